//! Changes: carried through whoever listens, logged, and put into the audit.

use std::future::Future;
use std::sync::Arc;

use axum::response::Response;
use serde::Serialize;
use spillgate_model::{Code, Refusal};
use spillgate_telemetry::happened::{self, AdminChange};

use crate::operations::Change;
use crate::pages::audit::Changed;
use crate::stack::Asked;
use crate::{State, reply};

/// The outcome of what was not refused.
pub(crate) const DONE: &str = "done";

/// What a change came to.
pub(crate) struct Effect<T> {
    /// For the caller.
    pub(crate) value: T,
    /// How it was before, and how it is now.
    pub(crate) from: Option<String>,
    pub(crate) to: Option<String>,
}

/// Carries a change through on a task of its own, keeps who asked for it and how it ended, and answers.
pub(crate) async fn carry_through<T: Serialize + Send + 'static>(
    state: &Arc<State>,
    asked: &Asked,
    action: &'static str,
    subject: String,
    work: impl Future<Output = Result<Effect<T>, Refusal>> + Send + 'static,
) -> Response {
    reply::result(carried_through(state, asked, action, subject, work).await.as_ref(), &asked.id)
}

/// The same, for an answer that says more.
pub(crate) async fn carried_through<T: Send + 'static>(
    state: &Arc<State>,
    asked: &Asked,
    action: &'static str,
    subject: String,
    work: impl Future<Output = Result<Effect<T>, Refusal>> + Send + 'static,
) -> Result<Changed<T>, Refusal> {
    let task = {
        let (state, asked) = (state.clone(), asked.clone());
        async move {
            let result = work.await;
            let (from, to, outcome, result) = match result {
                Ok(effect) => (effect.from, effect.to, DONE.to_owned(), Ok(effect.value)),
                Err(refusal) => (None, None, refusal.to_string(), Err(refusal)),
            };
            let audited = keep(&state, &asked, action, subject, (from, to), outcome).await;
            result.map(|value| Changed { value, audited })
        }
    };
    let broke_off = |_| Refusal::new(Code::Internal, "The change broke off; look at what it changed.");
    tokio::spawn(task).await.map_err(broke_off).and_then(|result| result)
}

/// Logs a change and puts it into the audit: whether that has it now.
pub(crate) async fn keep(
    state: &State,
    asked: &Asked,
    action: &'static str,
    subject: String,
    (from, to): (Option<String>, Option<String>),
    outcome: String,
) -> bool {
    let (remote, shown) = (asked.remote.ip(), to.as_deref().map_or_else(|| outcome.clone(), |to| format!("{outcome}: {to}")));
    let change = AdminChange { admin: &asked.admin, remote, action, subject: &subject, done: outcome == DONE, outcome: &shown };
    happened::admin_change(&state.telemetry, &change);
    let who = asked.admin.to_string();
    let change = Change { who, remote, action: action.to_owned(), subject, from, to, outcome };
    let kept = state.operations.record(change).await;
    if let Err(why) = &kept {
        tracing::error!(why, action, "a change could not be put into the audit");
    }
    kept.is_ok()
}
