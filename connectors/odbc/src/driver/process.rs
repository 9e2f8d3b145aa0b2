//! Settings that drivers read from the environment of the process only.

use std::env;

/// IBM's driver makes a link anew by itself when it was lost or cut by a cancel, and sleeps between its tries while a caller
/// waits. A session whose link was lost is not used again here, so there is nothing to try for.
const SETTINGS: [(&str, &str); 1] = [("DB2_MAX_CLIENT_CONNRETRIES", "0")];

/// Sets what is not set yet. To be called first thing in `main`: once there is a second thread it does nothing.
pub(crate) fn prepare() {
    if !single_threaded() {
        return;
    }
    for (name, value) in SETTINGS {
        if env::var_os(name).is_none() {
            #[allow(clippy::disallowed_methods, reason = "the drivers read the environment and nothing else")]
            // SAFETY: this is the only thread of the process, so nobody reads the environment meanwhile.
            unsafe {
                env::set_var(name, value)
            };
        }
    }
}

fn single_threaded() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.strip_prefix("Threads:").is_some_and(|count| count.trim() == "1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_is_left_alone_once_there_are_threads() {
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(!single_threaded()));
        });
    }
}
