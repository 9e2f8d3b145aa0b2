//! The end of the process: a driver's own clean-up must not run while one of our threads is still in it, for that crashes.
//!
//! The C library runs what was registered last first. The hook here is registered when a driver has been loaded, so it runs before
//! the driver's: it lets no thread enter a driver any more and waits for those that are in one. If one does not come
//! out in time, the process ends at once, with its exit status and without anybody's clean-up.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::{Once, PoisonError, RwLock, RwLockReadGuard, TryLockError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long threads get to come out of their drivers.
const PATIENCE: Duration = Duration::from_secs(2);

/// Held for reading by whoever is in a driver; taken for writing once, at the end.
static GATE: RwLock<()> = RwLock::new(());

/// Goes into the driver. At the end of the process it never returns.
pub(crate) fn enter() -> RwLockReadGuard<'static, ()> {
    GATE.read().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the end of the process wait for drivers. To be called once one is loaded; the first call counts.
pub(super) fn wait_at_exit() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: the hook is a function of this program and needs no argument.
        let _refused = unsafe { on_exit(close_gate, null_mut()) };
    });
}

extern "C" fn close_gate(status: c_int, _argument: *mut c_void) {
    let end = Instant::now() + PATIENCE;
    loop {
        match GATE.try_write() {
            // Kept for ever: the gate stays closed.
            Ok(closed) => return std::mem::forget(closed),
            Err(TryLockError::Poisoned(closed)) => return std::mem::forget(closed.into_inner()),
            Err(TryLockError::WouldBlock) if Instant::now() < end => sleep(Duration::from_millis(2)),
            // SAFETY: ends the process; nothing after it runs.
            Err(TryLockError::WouldBlock) => unsafe { _exit(status) },
        }
    }
}

unsafe extern "C" {
    /// Like `atexit`, but tells the exit status (GNU C library).
    fn on_exit(hook: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
    fn _exit(status: c_int) -> !;
}
