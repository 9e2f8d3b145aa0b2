//! The waiting line: first come, first served, bounded per tenant.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use spillgate_connector::Access;
use spillgate_model::{Code, Refusal};
use tokio::sync::oneshot;

use super::{Idle, Purpose, Seat, Seats};
use crate::verdict::Failed;

/// What the first in line gets. A seat nobody takes goes back by its drop.
pub(super) enum Grant {
    Seat(Box<Seat>),
    Refused(Box<Failed>),
}

pub(super) struct Waiting {
    number: u64,
    pub(super) access: Access,
    pub(super) tenant: Arc<str>,
    pub(super) flow: Arc<str>,
    pub(super) deadline: tokio::time::Instant,
    sender: oneshot::Sender<Grant>,
}

#[derive(Default)]
pub(super) struct Line {
    waiting: VecDeque<Waiting>,
    of_tenant: HashMap<Arc<str>, usize>,
    next: u64,
}

/// A grant on its way to its call, delivered outside the lock.
pub(super) struct Handover {
    sender: oneshot::Sender<Grant>,
    grant: Grant,
    closed: Vec<Idle>,
}

impl Handover {
    pub(super) fn with_closed(mut self, closed: Vec<Idle>) -> Self {
        self.closed = closed;
        self
    }
    pub(super) fn deliver(self) {
        drop(self.closed);
        // If the call has left meanwhile, its seat goes to the next one by drop.
        let _not_taken = self.sender.send(self.grant);
    }
}

impl Line {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }
    /// How many calls of a tenant wait.
    pub(super) fn of(&self, tenant: &str) -> usize {
        self.of_tenant.get(tenant).copied().unwrap_or(0)
    }
    /// What the first in line wants.
    pub(super) fn front(&self) -> Option<Access> {
        self.waiting.front().map(|waiting| waiting.access)
    }
    pub(super) fn join(&mut self, seats: &Arc<Seats>, access: Access, purpose: &Purpose<'_>) -> Place {
        let (sender, receiver) = oneshot::channel();
        let number = self.next;
        self.next += 1;
        *self.of_tenant.entry(purpose.tenant.clone()).or_default() += 1;
        let (tenant, flow) = (purpose.tenant.clone(), purpose.flow.clone());
        self.waiting.push_back(Waiting { number, access, tenant, flow, deadline: purpose.deadline, sender });
        Place { seats: seats.clone(), number, receiver: Some(receiver) }
    }
    /// Takes the first one out and makes its grant.
    pub(super) fn hand(&mut self, grant: impl FnOnce(&Waiting) -> Grant) -> Option<Handover> {
        let first = self.waiting.pop_front()?;
        self.left(&first.tenant);
        let grant = grant(&first);
        Some(Handover { sender: first.sender, grant, closed: Vec::new() })
    }
    fn leave(&mut self, number: u64) {
        if let Ok(position) = self.waiting.binary_search_by_key(&number, |waiting| waiting.number)
            && let Some(waiting) = self.waiting.remove(position)
        {
            self.left(&waiting.tenant);
        }
    }
    fn left(&mut self, tenant: &Arc<str>) {
        if let Some(count) = self.of_tenant.get_mut(tenant) {
            *count -= 1;
            if *count == 0 {
                self.of_tenant.remove(tenant);
            }
        }
    }
}

/// A place in line. Dropping it (deadline, hang-up) leaves the line.
pub(super) struct Place {
    seats: Arc<Seats>,
    number: u64,
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
        Grant::Refused(Failed::refused(Refusal::new(Code::Internal, "The waiting line was lost.")))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.receiver.take().is_some() {
            // A grant that came at the last moment went with the receiver and is given back by its own drop.
            self.seats.change(|state| state.line.leave(self.number));
        }
    }
}
