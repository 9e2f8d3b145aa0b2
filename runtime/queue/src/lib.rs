//! Durable queues: work on disk under limits that cannot be passed.
//!
//! A store is a folder of files allocated ahead and cut into extents of 64 KiB. Each lane (a queue and a tenant) owns whole
//! extents. One writer gathers what all lanes have to write into batches, each made durable by one sync.
//!
//! Invariants
//! 1. Nothing is acknowledged before it is synced; after a failed sync nothing is acknowledged any more.
//! 2. Room is reserved before content exists and given back by drop; the final state of an item is part of its room.
//! 3. No limit in force at an append is ever passed: items, bytes and disk of queue, lane, tenant and store.
//! 4. A job ends in exactly one state; a lease that was lost can end nothing.
//! 5. Recovery never loops and never needs data deleted by hand: what cannot be read is cut or set aside, counted and named.
//! 6. What is held in memory is bounded per extent, per job at work and per kept key, never per waiting item.
//!
//! It refuses: knowing what content means, running work, deciding which lane is served next.

// Lengths and places here are bounded by the format: an extent has 16-bit places, a record at most 2^30 bytes (asserted there).
#![allow(clippy::cast_possible_truncation)]

pub mod clock;
mod core;
pub mod disk;
pub mod format;
pub mod inspect;
mod item;
mod job;
mod limits;
pub mod record;
mod status;
mod store;

pub use item::{Appended, Appending, Hash, Key, Lease, Leased, NewItem, Take, TakeFrom, Unique, Waits};
pub use job::{Emit, End, Job, JobId, JobState, Resolution};
pub use limits::{Full, Need, QueueLimits, Room, WhichLimit};
pub use status::{DeadLetter, Health, LaneName, LaneStatus, Recovered, StoreStatus, SyncTimes};
#[doc(hidden)]
pub use store::testing;
pub use store::{Store, StoreError, StoreOptions};
