//! Calls that wait: who is told when the fair order names a ticket. The order itself is not kept here.

use std::collections::HashMap;
use std::sync::Arc;

use spillgate_admission::seats::{Held, SeatRefusal, Ticket};
use spillgate_connector::{Access, Session};
use spillgate_model::{Code, Refusal};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::state::Idle;
use super::{FlowSeats, Purpose, Seat, Seats};
use crate::verdict::Failed;

/// What comes of waiting. A seat nobody takes goes back by its drop.
pub(super) enum Grant {
    Seat(Box<Seat>),
    /// The fair order refuses it.
    Refused(SeatRefusal),
    /// There is no session to be had.
    Failed(Box<Failed>),
}

pub(super) struct Waiting {
    ticket: Ticket,
    pub(super) access: Access,
    flow: Arc<FlowSeats>,
    deadline: Instant,
    sender: oneshot::Sender<Grant>,
}

/// Everybody who waits, by ticket.
#[derive(Default)]
pub(super) struct Line {
    waiting: HashMap<u64, Waiting>,
}

/// What came of a wait on its way to its call, delivered outside the lock.
pub(super) struct Handover {
    sender: oneshot::Sender<Grant>,
    grant: Grant,
    closed: Vec<Idle>,
}

impl Handover {
    pub(super) fn closing(mut self, closed: Vec<Idle>) -> Self {
        self.closed = closed;
        self
    }
    pub(super) fn deliver(self) {
        drop(self.closed);
        // If the call has left meanwhile, its seat goes to the next one by drop.
        let _not_taken = self.sender.send(self.grant);
    }
}

impl Waiting {
    pub(super) fn seated(self, seats: &Arc<Seats>, held: Held, session: Option<Box<dyn Session>>) -> Handover {
        let seat = Seat::new(seats, held, self.access, &self.flow, self.deadline, session);
        self.told(Grant::Seat(Box::new(seat)))
    }
    pub(super) fn told(self, grant: Grant) -> Handover {
        Handover { sender: self.sender, grant, closed: Vec::new() }
    }
    pub(super) fn ticket(&self) -> Ticket {
        self.ticket
    }
}

impl Line {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }
    pub(super) fn join(&mut self, seats: &Arc<Seats>, ticket: Ticket, access: Access, purpose: &Purpose<'_>) -> Place {
        let (sender, receiver) = oneshot::channel();
        let waiting = Waiting { ticket, access, flow: purpose.flow.clone(), deadline: purpose.deadline, sender };
        self.waiting.insert(ticket.number(), waiting);
        Place { seats: seats.clone(), ticket, receiver: Some(receiver) }
    }
    /// Takes one out: its wait is over.
    pub(super) fn take(&mut self, ticket: Ticket) -> Option<Waiting> {
        self.waiting.remove(&ticket.number())
    }
    /// Takes everybody out.
    pub(super) fn take_all(&mut self) -> Vec<Waiting> {
        self.waiting.drain().map(|(_, waiting)| waiting).collect()
    }
}

/// A place in line. Dropping it (deadline, hang-up) leaves the line.
pub(super) struct Place {
    seats: Arc<Seats>,
    ticket: Ticket,
    receiver: Option<oneshot::Receiver<Grant>>,
}

impl Place {
    pub(super) async fn granted(mut self) -> Grant {
        // Stays in `self` while waiting, so that a drop meanwhile leaves the line and gives an unread grant back.
        if let Some(receiver) = &mut self.receiver
            && let Ok(grant) = receiver.await
        {
            self.receiver = None;
            return grant;
        }
        Grant::Failed(Failed::refused(Refusal::new(Code::Internal, "The waiting line was lost.")))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.receiver.take().is_some() {
            // A grant that came at the last moment went with the receiver and is given back by its own drop.
            self.seats.change(|state, now| state.leave(self.ticket, now));
        }
    }
}
