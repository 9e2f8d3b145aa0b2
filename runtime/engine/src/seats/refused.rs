//! What a call is told that gets no seat.

use std::time::Duration;

use spillgate_admission::seats::{RefusalKind, SeatRefusal};
use spillgate_model::{Code, Refusal};
use spillgate_telemetry::SeatRefused;
use tokio::time::Instant;

use super::{Purpose, Seats};
use crate::steps::jittered;
use crate::verdict::Failed;

/// Bounds of what a refused call is told to wait.
pub(super) const RETRY_AFTER: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(30));

impl Seats {
    /// Counts the refusal, and says when asking again may help: calls that were refused together do not come back together.
    pub(super) fn refused(&self, refusal: &SeatRefusal, purpose: &Purpose<'_>) -> Box<Failed> {
        let SeatRefusal { kind, waiting, expected_wait, retry_after } = *refusal;
        let wait = retry_after.clamp(RETRY_AFTER.0, RETRY_AFTER.1);
        let (code, why, detail) = match kind {
            RefusalKind::LineFull => {
                let detail = format!("{waiting} calls of this tenant wait for this database already.");
                (Code::Overloaded, SeatRefused::LineFull, detail)
            }
            RefusalKind::Shed => {
                let detail = "This tenant's line for the database has stood for too long; its newest calls go first.".to_owned();
                (Code::Overloaded, SeatRefused::Shed, detail)
            }
            RefusalKind::WaitTooLong => {
                let (wait, left) = (expected_wait.as_millis(), purpose.deadline.saturating_duration_since(Instant::now()).as_millis());
                let detail =
                    format!("A seat of the database is expected in about {wait} ms. {left} ms are left: too few to wait and then be done.");
                (Code::WaitTooLong, SeatRefused::WaitTooLong, detail)
            }
        };
        self.metrics.seat_refused(purpose.tenant, why);
        let mut refusal = Refusal::new(code, detail).retry_after((wait + jittered(wait / 2)).min(RETRY_AFTER.1));
        if kind == RefusalKind::LineFull {
            refusal = refusal.policy("line", u64::from(purpose.share.line), u64::from(waiting));
        }
        Failed::refused(refusal)
    }
}
