//! What becomes of an abandoned session: its seat stays taken until the connector says that nothing runs any more.

use std::sync::Arc;

use spillgate_admission::seats::Held;
use spillgate_connector::{Access, Ended, Session};
use spillgate_telemetry::happened;
use tokio::sync::oneshot;

use super::Seats;

/// Ends a session in a task of its own; the seat moves from `in_use` to `ending` at once. The receiver learns whether
/// the end was confirmed. In the fair order the seat stays its tenant's.
pub(super) fn start(seats: &Arc<Seats>, access: Access, held: Option<Held>, session: Box<dyn Session>) -> oneshot::Receiver<bool> {
    let (sender, receiver) = oneshot::channel();
    seats.change(|state, _| {
        state.in_use = state.in_use.saturating_sub(1);
        state.ending += 1;
    });
    let taken = Taken { seats: seats.clone(), access, held, clean: None };
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn(taken.end(session, sender))),
        // The process is going down: nobody is left to wait for an answer.
        Err(_) => drop(session),
    }
    receiver
}

/// Holds the seat as `ending`; frees it by drop, also when the connector panics.
struct Taken {
    seats: Arc<Seats>,
    access: Access,
    held: Option<Held>,
    clean: Option<Box<dyn Session>>,
}

impl Taken {
    async fn end(mut self, session: Box<dyn Session>, told: oneshot::Sender<bool>) {
        match session.end().await {
            Ended::Clean(session) => {
                self.clean = session.usable().then_some(session);
                let _listening = told.send(true);
            }
            Ended::Closed => {
                let _listening = told.send(true);
            }
            Ended::Unconfirmed(limit) => {
                let _listening = told.send(false);
                happened::seat_lost(&self.seats.metrics, "the end of a cancelled statement could not be confirmed");
                self.seats.change(|state, _| state.lost += 1);
                // By then the database's own limit has ended it.
                tokio::time::sleep(limit).await;
            }
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let (mut clean, held) = (self.clean.take(), self.held.take());
        self.seats.change(|state, now| {
            state.ending = state.ending.saturating_sub(1);
            state.end(held, None, now);
            state.keep(self.access, &mut clean, now);
        });
        drop(clean);
    }
}
