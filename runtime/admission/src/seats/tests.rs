//! The seats against a simulated database, and against anything that may be asked in any order.

mod advice;
mod classes;
mod heavier;
mod isolation;
mod limit;
mod lines;
mod properties;
mod recovery;
mod rig;
mod shares;
mod speeds;
mod world;
