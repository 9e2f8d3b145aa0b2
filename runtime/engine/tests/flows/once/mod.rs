//! Keys: work is done once, whoever asks how often, and whatever crashes meanwhile.
//!
//! Each life is an engine on a runtime of its own with a real store; a crash takes both away at once, with all that the disk was not
//! asked to sync. The database is a SQLite file that outlives them.

mod crashes;
mod durable;
mod keys;
mod life;
mod races;
mod unique;
