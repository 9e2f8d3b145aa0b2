//! Holds back log lines whose like was just written.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::instrument::Counter;
use crate::unpoisoned;

/// Lines of one kind written in a window.
const LINES: u32 = 5;
/// The window.
const WINDOW: Duration = Duration::from_secs(10);

/// One kind of line (and one database, where it is about one).
#[derive(Debug)]
pub(crate) struct Throttle {
    window: Mutex<Option<Window>>,
    /// All lines of all kinds that were held back.
    held_back: Arc<Counter>,
}

#[derive(Debug)]
struct Window {
    since: Instant,
    lines: u32,
    held_back: u64,
}

impl Throttle {
    pub(crate) fn new(held_back: &Arc<Counter>) -> Self {
        Throttle { window: Mutex::default(), held_back: held_back.clone() }
    }

    /// Whether a line may be written now: `Some` of how many were held back before it.
    pub(crate) fn pass(&self) -> Option<u64> {
        self.pass_at(Instant::now())
    }

    fn pass_at(&self, now: Instant) -> Option<u64> {
        let mut state = unpoisoned(self.window.lock());
        let window = state.get_or_insert(Window { since: now, lines: 0, held_back: 0 });
        if now.saturating_duration_since(window.since) >= WINDOW {
            *window = Window { since: now, lines: 0, held_back: window.held_back };
        }
        if window.lines == LINES {
            window.held_back += 1;
            self.held_back.increment();
            return None;
        }
        window.lines += 1;
        Some(std::mem::take(&mut window.held_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_one_kind_becomes_a_few_lines_and_a_count() {
        let (held_back, start) = (Arc::new(Counter::default()), Instant::now());
        let throttle = Throttle::new(&held_back);
        let passed = (0..1_000).filter(|_| throttle.pass_at(start).is_some()).count();
        assert_eq!(passed, 5);
        assert_eq!(throttle.pass_at(start + WINDOW), Some(995));
        assert_eq!(throttle.pass_at(start + WINDOW), Some(0));
        assert_eq!(held_back.value(), 995);
    }
}
