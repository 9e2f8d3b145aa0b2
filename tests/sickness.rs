//! Isolation from what is sick, over the whole binary and real databases: a database that is gone, a link that fell silent, a queue
//! that is full and callers that hang up move nobody else, and all of it heals by itself (promise 5; case B9).
//!
//! Callers are an open loop, and slow statements sleep.

#[path = "isolation/beside.rs"]
mod beside;
#[path = "isolation/crowds.rs"]
mod crowds;
#[path = "isolation/full_queue.rs"]
mod full_queue;
#[path = "isolation/hang_ups.rs"]
mod hang_ups;
#[path = "isolation/scene.rs"]
mod scene;
#[path = "isolation/sick.rs"]
mod sick;
