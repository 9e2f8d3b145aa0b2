//! The real store against a small model of it: the same random commands to both, compared after every step, over restarts, kills and
//! power cuts in the middle of a write.
//!
//! What is checked after every step
//! * states, attempts, outcomes and counts are the model's; nothing acknowledged is lost, nothing ends twice (promise 2);
//! * items, bytes and disk of queue, tenant and store are within their limits (promise 1);
//! * a key stands for one job, from the append until it runs out or is freed (promise 7);
//! * a lane hands out in order, and one item of each order value at a time.
//!
//! A failing seed is printed. `SPILLGATE_MODEL_SEED=N` runs that one alone and tells each step, `SPILLGATE_MODEL_SEEDS=N` runs so many.

#[path = "../rig/mod.rs"]
mod rig;

mod book;
mod checks;
mod chosen;
mod commands;
mod doubt;
mod run;

use crate::run::run_seeds;

const PARTS: u64 = 4;

#[test]
fn the_store_is_its_model_over_restarts_and_crashes_part_1() {
    run_seeds(0, PARTS);
}
#[test]
fn the_store_is_its_model_over_restarts_and_crashes_part_2() {
    run_seeds(1, PARTS);
}
#[test]
fn the_store_is_its_model_over_restarts_and_crashes_part_3() {
    run_seeds(2, PARTS);
}
#[test]
fn the_store_is_its_model_over_restarts_and_crashes_part_4() {
    run_seeds(3, PARTS);
}
