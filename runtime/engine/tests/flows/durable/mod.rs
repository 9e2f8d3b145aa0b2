//! Durable flows: the item, its workers, its end.

mod appending;
mod attempts;
mod fairness;
mod handing_on;
mod life;
mod plans;
mod rig;
mod scheduling;
