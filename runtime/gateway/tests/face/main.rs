//! The HTTP face before a real engine and a real database, over real sockets on loopback.

mod calls;
mod document;
mod durable;
mod lifetime;
mod limits;
mod runs;
mod support;
