//! A store driven by hand, for tests on a simulated disk: no threads, nothing by chance.
//!
//! Nothing becomes durable until `step` is called, and time passes only as the given clock says. A crash is dropping the store and
//! opening another on what the disk kept.

use std::future::Future;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::store::writer::{Round, Writer};
use crate::store::{Store, StoreError, StoreOptions, volume};

/// A store and its writer.
#[derive(Debug)]
pub struct ByHand {
    store: Store,
    writer: Mutex<Writer>,
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stepped {
    /// A batch became durable, or something was cleaned.
    Done,
    /// There was nothing to do.
    Idle,
    /// The volume is full: the same batch is tried again at the next step.
    NoSpace,
    /// Nothing becomes durable any more.
    Failed,
}

impl ByHand {
    /// As [`Store::open`], without threads.
    pub fn open(options: StoreOptions) -> Result<ByHand, StoreError> {
        Ok(ByHand { store: Store::prepare(options, 0, true)?, writer: Mutex::default() })
    }
    /// The handle.
    pub fn store(&self) -> &Store {
        &self.store
    }
    /// One round of the writer: at most one batch, and some cleaning.
    pub fn step(&self) -> Stepped {
        match self.writer.lock().unwrap_or_else(PoisonError::into_inner).round(self.store.shared()) {
            Round::Done => Stepped::Done,
            Round::Idle => Stepped::Idle,
            Round::NoSpace => Stepped::NoSpace,
            Round::Failed => Stepped::Failed,
        }
    }
    /// Steps until there is nothing to do, at most so often.
    pub fn settle(&self, most: usize) -> Stepped {
        (0..most).map(|_| self.step()).find(|stepped| *stepped != Stepped::Done).unwrap_or(Stepped::Done)
    }
    /// Looks at the volume, as a thread does otherwise.
    pub fn look_at_volume(&self) {
        volume::look(self.store.shared(), 0);
    }
    /// Polls a call and steps in turn, until it answers or so many steps are over.
    pub fn run<F: Future>(&self, most: usize, call: F) -> Option<F::Output> {
        let mut call = pin!(call);
        for _ in 0..most {
            if let Poll::Ready(answer) = call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return Some(answer);
            }
            self.step();
        }
        None
    }
}
