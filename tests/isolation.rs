//! Isolation, over the whole binary and real databases: what one tenant, database, link or queue does moves nobody else, and a
//! recovery is a recovery (promises 5 and 11; cases B9 and E5).
//!
//! Callers are an open loop, and slow statements sleep. Bounds are wide: they tell a wait behind somebody else's statement from none.
//! The figures are the bench's.

#[path = "isolation/crowds.rs"]
mod crowds;
#[path = "isolation/largest.rs"]
mod largest;
#[path = "isolation/pile_up.rs"]
mod pile_up;
#[path = "isolation/scene.rs"]
mod scene;
#[path = "isolation/sick.rs"]
mod sick;
#[path = "isolation/storm.rs"]
mod storm;
#[path = "isolation/turns.rs"]
mod turns;
