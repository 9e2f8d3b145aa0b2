//! Servers for scenes, and turns for those that measure time.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(crate) use spillgate_test_support::rig::{key, tenant};
use spillgate_test_support::server::{Options, Server};

/// Two scenes at once would be each other's noise.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The key of an operator that every scene has.
pub(crate) const OPERATOR: &str = "operator-key-1";

/// Serves these sections and flows.
pub(crate) fn serve(sections: &[String], flows: &[(&str, String)]) -> Server {
    let server = format!("{}\n[admin.operator]\nkeys = [\"{OPERATOR}\"]\n", sections.concat());
    let flows: Vec<(&str, &str)> = flows.iter().map(|(name, text)| (*name, text.as_str())).collect();
    Server::start(&Options { binary: env!("CARGO_BIN_EXE_spillgate"), server: &server, flows: &flows, environment: &[] })
}

/// Lets the scene go on for a while.
pub(crate) fn play(time: Duration) {
    std::thread::sleep(time);
}
