//! The seats against a simulated database, and against anything that may be asked in any order.

mod isolation;
mod properties;
mod recovery;
mod rules;
mod world;
