//! Isolation, over the whole binary and real databases: what one tenant does moves nobody else, nor does a database that is gone, a
//! link that fell silent, a queue that is full or callers that hang up; and a recovery is a recovery (promises 5 and 11; cases B9,
//! E2, E5).
//!
//! Callers are an open loop, and slow statements sleep. One scene is played at a time: two would be each other's noise. Whether
//! somebody waited for a seat is asked of the server's own records; bounds tell a wait behind somebody else's statement from none, on
//! a machine that does other things, too. The figures are the bench's.

#[path = "isolation/beside.rs"]
mod beside;
#[path = "isolation/crowds.rs"]
mod crowds;
#[path = "isolation/full_queue.rs"]
mod full_queue;
#[path = "isolation/hang_ups.rs"]
mod hang_ups;
#[path = "isolation/largest.rs"]
mod largest;
#[path = "isolation/pile_up.rs"]
mod pile_up;
#[path = "isolation/records.rs"]
mod records;
#[path = "isolation/scene.rs"]
mod scene;
#[path = "isolation/sick.rs"]
mod sick;
#[path = "isolation/storm.rs"]
mod storm;
#[path = "isolation/turns.rs"]
mod turns;
