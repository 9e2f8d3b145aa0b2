//! What columns there are where an expression names one that is not: databases write names in their own case.

use cel::ExecutionError;
use spillgate_model::Datum;

use crate::Scope;

/// Names that are listed of one step, and the bytes of one.
const SHOWN: usize = 20;
const NAME_BYTES: usize = 64;

/// The columns of the rows it reads that lack the name, as the end of a message. Names only, no values: the text may reach a caller.
pub(crate) fn there_are(error: &ExecutionError, paths: &[String], scope: &Scope<'_>) -> String {
    let ExecutionError::NoSuchKey(missing) = error else { return String::new() };
    let mut text = String::new();
    for path in paths {
        let Some((step, "rows")) = path.strip_prefix("steps.").and_then(|path| path.rsplit_once('.')) else { continue };
        let Some(Datum::Map(parts)) = scope.steps.iter().find(|(name, _)| *name == step).map(|(_, parts)| parts) else { continue };
        let Some(Datum::List(rows)) = parts.get("rows") else { continue };
        let Some(Datum::Map(row)) = rows.first() else { continue };
        if row.contains_key(missing.as_str()) {
            continue;
        }
        let shown: Vec<String> =
            row.keys().take(SHOWN).map(|name| format!("`{}`", &name[..name.floor_char_boundary(NAME_BYTES)])).collect();
        let more = if row.len() > SHOWN { format!(" and {} more", row.len() - SHOWN) } else { String::new() };
        text.push_str(&format!("; the rows of step {step} have {}{more}", shown.join(", ")));
    }
    text
}
