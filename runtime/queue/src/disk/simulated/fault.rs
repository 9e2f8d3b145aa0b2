//! Which calls fail, and how.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What is asked of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum CallKind {
    List,
    Create,
    Open,
    Remove,
    SyncFolder,
    Free,
    Length,
    Read,
    Write,
    Sync,
    Forget,
}

impl CallKind {
    /// Every kind.
    pub const ALL: [CallKind; 11] = [
        CallKind::List,
        CallKind::Create,
        CallKind::Open,
        CallKind::Remove,
        CallKind::SyncFolder,
        CallKind::Free,
        CallKind::Length,
        CallKind::Read,
        CallKind::Write,
        CallKind::Sync,
        CallKind::Forget,
    ];
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The volume is full: nothing is done.
    NoSpace,
    /// EIO. Of a sync: what it should have made durable may be so or not, and nobody knows.
    Broken,
    /// Of a write: a part is written, then the volume is full.
    Short,
    /// Of a read: it works, and one bit is wrong.
    Flip,
    /// The machine stops: this call and every later one fails. Of a write, a part may have been written.
    Stop,
}

/// Whether a planned failure was reached.
#[derive(Clone, Debug)]
pub struct Reached(Arc<AtomicBool>);

impl Reached {
    /// It was.
    pub fn yes(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

#[derive(Debug)]
struct Planned {
    kind: CallKind,
    /// Calls until it fails.
    left: u64,
    failure: Failure,
    reached: Reached,
}

#[derive(Debug, Default)]
pub(super) struct Faults {
    planned: Vec<Planned>,
    always: Vec<(CallKind, Failure)>,
    calls: [u64; CallKind::ALL.len()],
}

impl Faults {
    pub(super) fn plan(&mut self, kind: CallKind, nth: u64, failure: Failure) -> Reached {
        let reached = Reached(Arc::default());
        self.planned.push(Planned { kind, left: nth, failure, reached: reached.clone() });
        reached
    }
    pub(super) fn always(&mut self, kind: CallKind, failure: Failure) {
        self.always.push((kind, failure));
    }
    pub(super) fn heal(&mut self) {
        self.planned.clear();
        self.always.clear();
    }
    pub(super) fn calls(&self, kind: CallKind) -> u64 {
        self.calls[kind as usize]
    }
    /// Counts a call and answers with how it fails.
    pub(super) fn call(&mut self, kind: CallKind) -> Option<Failure> {
        self.calls[kind as usize] += 1;
        let mut failure = self.always.iter().find(|(failing, _)| *failing == kind).map(|(_, failure)| *failure);
        self.planned.retain_mut(|planned| {
            if planned.kind != kind {
                return true;
            }
            planned.left = planned.left.saturating_sub(1);
            if planned.left > 0 {
                return true;
            }
            failure = Some(planned.failure);
            planned.reached.0.store(true, Ordering::SeqCst);
            false
        });
        failure
    }
}
