//! Isolation, over the whole binary and real databases: what one tenant does moves nobody else, and a recovery is a recovery
//! (promises 5 and 11; case E5).
//!
//! Callers are an open loop, and slow statements sleep. Bounds tell a wait behind somebody else's statement from none, on a machine
//! that does other things, too. The figures are the bench's.

#[path = "isolation/crowds.rs"]
mod crowds;
#[path = "isolation/largest.rs"]
mod largest;
#[path = "isolation/pile_up.rs"]
mod pile_up;
#[path = "isolation/records.rs"]
mod records;
#[path = "isolation/scene.rs"]
mod scene;
#[path = "isolation/storm.rs"]
mod storm;
#[path = "isolation/turns.rs"]
mod turns;
