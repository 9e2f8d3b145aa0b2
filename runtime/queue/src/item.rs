//! What goes into a lane and what comes out of it.

use std::time::Duration;

use bytes::Bytes;

use crate::job::JobId;
use crate::limits::Room;
use crate::status::LaneName;
use crate::store::Store;

/// The first 16 bytes of a SHA-256 over what must be told apart.
pub type Hash = [u8; 16];

/// A key under which work is done once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Over everything the key is scoped by (tenant, flow, key).
    pub hash: Hash,
    /// Over the input: the same key with another input is refused.
    pub input: Hash,
    /// How long it is kept after the work ended.
    pub keep: Duration,
}

/// A business key that may be used once, across tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unique {
    /// Over flow and values.
    pub hash: Hash,
    /// How long it is taken, counted from the append.
    pub within: Duration,
}

/// One item to append.
#[derive(Clone, Debug, Default)]
pub struct NewItem {
    /// What the engine needs to run it.
    pub content: Bytes,
    /// Its idempotency key and, where the flow derives one, the derived key. At most two.
    pub keys: Vec<Key>,
    /// Its business key.
    pub unique: Option<Unique>,
    /// Items of a lane with the same value complete in order.
    pub order: Option<u64>,
    /// When it is given up, counted from now.
    pub expires_in: Option<Duration>,
    /// It is already being worked on by the caller: born leased, and started. After a crash it comes out `interrupted`.
    pub claimed: bool,
}

/// What to append, and where.
#[derive(Debug)]
pub struct Appending {
    /// Taken before; what the items do not use of it goes back.
    pub room: Room,
    /// In order. Usually one.
    pub items: Vec<NewItem>,
}

/// What became of one item.
#[derive(Debug)]
pub enum Appended {
    /// Durable.
    New {
        /// Its job.
        job: JobId,
        /// Of an item that was claimed.
        lease: Option<Lease>,
    },
    /// One of its keys is known with the same input: nothing was appended.
    Repeat {
        /// The first call's job.
        job: JobId,
    },
    /// One of its keys is known with another input: nothing was appended.
    KeyReused {
        /// The first call's job.
        job: JobId,
    },
    /// Its business key is taken: nothing was appended.
    UniqueTaken {
        /// The job that has it.
        job: JobId,
        /// Whose it is.
        tenant: std::sync::Arc<str>,
    },
}

/// The right to end one item. Dropping it without an end hands the item back; the attempt counts.
#[derive(Debug)]
pub struct Lease {
    pub(crate) store: Store,
    pub(crate) job: JobId,
    /// Fences off a worker whose lease ran out.
    pub(crate) token: u64,
}

impl Lease {
    /// The job it is for.
    pub fn job(&self) -> JobId {
        self.job
    }
}

/// An item handed to a worker.
#[derive(Debug)]
pub struct Leased {
    /// The right to end it.
    pub lease: Lease,
    /// As it was appended.
    pub content: Bytes,
    /// From 1: how many attempts have been counted, with this one.
    pub attempt: u32,
    /// A write was started for it by an attempt that never told its end.
    pub interrupted: bool,
    /// Since the append.
    pub age: Duration,
    /// Its keys, as it was appended.
    pub keys: Vec<Key>,
}

/// What a lane has for a worker.
#[derive(Debug)]
pub enum Take {
    /// At least one.
    Items(Vec<Leased>),
    /// Nothing now.
    Nothing {
        /// What its head waits for.
        waits: Waits,
        /// When time alone may change that.
        ready_in: Option<Duration>,
    },
}

/// What the head of a lane waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// Nothing is waiting in it.
    Empty,
    /// A worker.
    Worker,
    /// The pause after a failed attempt.
    Backoff,
    /// An earlier item with the same `order_by` value.
    Order,
    /// An operator paused it.
    Paused,
    /// Its dead letters are full.
    DeadLetters,
    /// The most items that may be set aside at once are.
    SetAside,
}

impl Waits {
    /// The word in pages and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Waits::Empty => "empty",
            Waits::Worker => "worker",
            Waits::Backoff => "backoff",
            Waits::Order => "order",
            Waits::Paused => "paused",
            Waits::DeadLetters => "dead_letters",
            Waits::SetAside => "set_aside",
        }
    }
}

/// A lane with what it may be asked for.
#[derive(Clone, Debug)]
pub struct TakeFrom {
    /// Which.
    pub lane: LaneName,
    /// Most items at once.
    pub most: usize,
    /// How long until a lease that was not renewed is lost.
    pub lease: Duration,
}
