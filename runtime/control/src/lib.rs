//! Durable operator state: paused lanes, limits set over tenants' own, open breakers, that there is a store, the audit. Small, versioned, exportable.
//!
//! All of it is held in memory and written behind by one thread ([`keeper`]) into a notebook ([`notebook`], sled) and into an
//! export (`export`, one file of JSON lines). Whichever of the two is newer is loaded at a start.
//!
//! Limits (of the share of `disk_limit` that `spillgate_model::limits::operator_share` cuts off)
//! * records 3/32; the audit gives way, oldest entries first, and holds 10,000 at most
//! * notebook 9/32: beyond it, it is made anew; a damaged one that was set aside, as much again at most
//! * exports 9/32 (the last one, the one being written, a damaged one set aside); ballast 1/32 or 128 KiB
//!
//! Invariants
//! 1. Nothing on a request's path waits for this: reads are of memory, writes are behind. Only an operator's change is waited for.
//! 2. What [`Control::kept`] answered for is on disk, in the notebook and in the export, or in the one of them that could be written:
//!    the loss of either alone loses nothing.
//! 3. A notebook that does not open, a full volume or a damaged file stops nothing: the last export is loaded, remarks say so,
//!    and the notebook is tried again. Nothing is deleted: a damaged notebook is moved aside, once; with one aside already, the
//!    new one stays where it is and exports alone keep the state.
//! 4. Every record carries a version. Kinds and versions that are not known here are kept as they are and reported.
//! 5. Nothing grows past its share: live, after a restart, after any number of changes.
//!
//! It refuses: knowing tenants, queues or flows; anything a request must wait for; anything large.

mod ballast;
mod control;
mod export;
mod folder;
mod keeper;
mod notebook;
mod offline;
mod record;
mod records;
mod share;
mod sled_notebook;

pub use control::{AuditEntry, Control, ControlOptions, NotKept, PausedLane};
pub use folder::Began;
pub use offline::{Exported, Imported, OfflineError, export, import, remembers};
pub use record::Kind;
