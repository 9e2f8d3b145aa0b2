//! What the engine promises, on a real SQLite file.

mod caching;
mod durable;
mod ending;
mod once;
mod paging;
mod reading;
mod reloading;
mod services;
mod support;
mod writing;
