//! What the engine promises, on a real SQLite file.

mod breaking;
mod caching;
mod durable;
mod ending;
mod isolation;
mod once;
mod paging;
mod reading;
mod reloading;
mod retrying;
mod services;
mod support;
mod writing;
