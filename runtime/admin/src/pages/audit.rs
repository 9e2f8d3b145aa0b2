//! The audit: who changed what.

use serde::Serialize;

use crate::operations::AuditEntry;

/// `GET /admin/v1/audit`.
#[derive(Serialize)]
pub(crate) struct Audit {
    entries: Vec<EntryPage>,
    /// Ask again with it as `after`; `null`: there are no more.
    next: Option<u64>,
}

#[derive(Serialize)]
struct EntryPage {
    number: u64,
    /// RFC 3339, UTC.
    at: String,
    who: String,
    remote: String,
    action: String,
    subject: String,
    from: Option<String>,
    to: Option<String>,
    outcome: String,
}

impl Audit {
    /// `limit` were asked for.
    pub(crate) fn of(entries: Vec<AuditEntry>, limit: usize) -> Self {
        let next = if entries.len() < limit { None } else { entries.last().map(|entry| entry.number) };
        Audit { entries: entries.into_iter().map(EntryPage::of).collect(), next }
    }
}

impl EntryPage {
    fn of(entry: AuditEntry) -> Self {
        let AuditEntry { number, at_ms, change } = entry;
        EntryPage {
            number,
            at: time(at_ms),
            who: change.who,
            remote: change.remote.to_string(),
            action: change.action,
            subject: change.subject,
            from: change.from,
            to: change.to,
            outcome: change.outcome,
        }
    }
}

/// Milliseconds since 1970 as RFC 3339, UTC.
pub(super) fn time(at_ms: u64) -> String {
    let at = i64::try_from(at_ms).ok().and_then(|at| jiff::Timestamp::from_millisecond(at).ok());
    at.map_or_else(String::new, |at| at.to_string())
}

/// What a change came to, and whether the audit has it.
#[derive(Serialize)]
pub(crate) struct Changed<T> {
    #[serde(flatten)]
    pub(crate) value: T,
    pub(crate) audited: bool,
}
