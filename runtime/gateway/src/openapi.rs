//! The OpenAPI 3.1 document of what one tenant may call.

use serde_json::{Value, json};
use spillgate_config::Plan;
use spillgate_engine::LiveTenant;

/// The document.
pub fn document(plan: &Plan, tenant: &LiveTenant) -> Value {
    let _ = (plan, tenant);
    json!({ "openapi": "3.1.0" })
}
