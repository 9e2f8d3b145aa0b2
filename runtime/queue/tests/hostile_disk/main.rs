//! The store on disks that fill up, fail, lie and lose things. Each test cites its case.

#[path = "../rig/mod.rs"]
mod rig;

mod damage;
mod every_call;
mod foreign;
mod limits;
mod redo;
mod removed;
mod room;
mod start;
mod time;
mod zeroed;

use std::time::{Duration, Instant};

/// Waits for what the store does on its own.
fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it never comes: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
