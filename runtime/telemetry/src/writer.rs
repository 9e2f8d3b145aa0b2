//! A bounded double buffer in front of a thread that writes: for access records and log lines.
//!
//! Invariants
//! 1. Whoever appends holds the lock for one copy of a line and never while anything is written.
//! 2. Both buffers together hold at most twice [`CAPACITY`] bytes. A line that does not fit is dropped whole and counted.
//! 3. A line is in the output whole, or not at all, or (where a write failed in its middle) followed by a line break.
//! 4. A sink that does not take its bytes stops nothing but its own thread; [`LineWriter::close`] waits for it only so long.

use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use crate::instrument::Counter;
use crate::unpoisoned;

/// Bytes of one buffer.
pub(crate) const CAPACITY: usize = 1 << 20;
/// The thread is woken early when this much waits.
const HALF: usize = CAPACITY / 2;
/// How long a line waits for company.
const FLUSH_EVERY: Duration = Duration::from_millis(100);

/// Cheap handle.
#[derive(Clone)]
pub(crate) struct LineWriter {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// Lines came, half is full, or closing.
    work: Condvar,
    /// The thread ended.
    ended: Condvar,
    dropped: Arc<Counter>,
}

struct State {
    lines: Vec<u8>,
    count: u64,
    closing: bool,
    ended: bool,
}

impl LineWriter {
    /// Starts the thread. Lines that are not written are counted in `dropped`.
    pub(crate) fn start(name: &str, sink: Box<dyn Write + Send>, dropped: Arc<Counter>) -> std::io::Result<Self> {
        let state = State { lines: Vec::new(), count: 0, closing: false, ended: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), work: Condvar::new(), ended: Condvar::new(), dropped });
        let theirs = shared.clone();
        thread::Builder::new().name(name.into()).spawn(move || write_until_closed(&theirs, sink))?;
        Ok(LineWriter { shared })
    }

    /// Adds one line, its line break included. Never waits for the sink.
    pub(crate) fn append(&self, line: &[u8]) {
        let mut state = unpoisoned(self.shared.state.lock());
        let before = state.lines.len();
        if state.closing || before + line.len() > CAPACITY {
            drop(state);
            self.shared.dropped.increment();
            return;
        }
        state.lines.extend_from_slice(line);
        state.count += 1;
        drop(state);
        if before == 0 || (before < HALF && before + line.len() >= HALF) {
            self.shared.work.notify_one();
        }
    }

    /// Takes no more lines, writes out those it has, and ends the thread; waits `limit` at most. Says whether it ended.
    pub(crate) fn close(&self, limit: Duration) -> bool {
        let mut state = unpoisoned(self.shared.state.lock());
        state.closing = true;
        self.shared.work.notify_one();
        unpoisoned(self.shared.ended.wait_timeout_while(state, limit, |state| !state.ended)).0.ended
    }
}

fn write_until_closed(shared: &Shared, mut sink: Box<dyn Write + Send>) {
    let mut batch = Vec::new();
    let mut torn = false;
    loop {
        let mut state = wait_for_lines(shared);
        std::mem::swap(&mut state.lines, &mut batch);
        let count = std::mem::take(&mut state.count);
        let closing = state.closing;
        drop(state);
        let mended = if torn { sink.write_all(b"\n") } else { Ok(()) };
        let written = mended.and_then(|()| sink.write_all(&batch)).and_then(|()| sink.flush());
        torn = written.is_err();
        if torn {
            shared.dropped.add(count);
        }
        batch.clear();
        if closing {
            break;
        }
    }
    unpoisoned(shared.state.lock()).ended = true;
    shared.ended.notify_all();
}

/// Sleeps while there is nothing, then gives further lines a moment to come, unless half is full or the end has come.
fn wait_for_lines(shared: &Shared) -> MutexGuard<'_, State> {
    let state = unpoisoned(shared.state.lock());
    let state = unpoisoned(shared.work.wait_while(state, |state| state.lines.is_empty() && !state.closing));
    let more = |state: &mut State| state.lines.len() < HALF && !state.closing;
    unpoisoned(shared.work.wait_timeout_while(state, FLUSH_EVERY, more)).0
}

/// Sinks for tests.
#[cfg(test)]
pub(crate) mod sinks {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;

    /// What was written so far.
    #[derive(Clone, Default)]
    pub(crate) struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Kept {
        pub(crate) fn text(&self) -> String {
            String::from_utf8(unpoisoned(self.0.lock()).clone()).expect("lines are UTF-8")
        }
    }

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            unpoisoned(self.0.lock()).extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Says that a write has come and does not return before it is let go.
    pub(crate) struct Stuck {
        came: SyncSender<()>,
        go: Receiver<()>,
    }

    impl Stuck {
        pub(crate) fn new() -> (Self, Receiver<()>, SyncSender<()>) {
            let (came, has_come) = sync_channel(64);
            let (let_go, go) = sync_channel(64);
            (Stuck { came, go }, has_come, let_go)
        }
    }

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let _ = self.came.send(());
            let _ = self.go.recv();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::sinks::{Kept, Stuck};
    use std::time::Instant;

    use super::*;

    fn start(sink: impl Write + Send + 'static) -> (LineWriter, Arc<Counter>) {
        let dropped = Arc::new(Counter::default());
        (LineWriter::start("test-lines", Box::new(sink), dropped.clone()).expect("a thread starts"), dropped)
    }

    #[test]
    fn lines_from_many_threads_come_out_whole_and_are_flushed_at_the_end() {
        let kept = Kept::default();
        let (writer, dropped) = start(kept.clone());
        thread::scope(|scope| {
            for thread in 0..4 {
                let writer = &writer;
                scope.spawn(move || (0..1_000).for_each(|line| writer.append(format!("{thread}:{line}\n").as_bytes())));
            }
        });
        assert!(writer.close(Duration::from_secs(10)));
        let text = kept.text();
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!((lines.len(), dropped.value()), (4_000, 0));
        writer.append(b"too late\n");
        assert_eq!((dropped.value(), kept.text().lines().count()), (1, 4_000));
    }

    #[test]
    fn a_sink_that_takes_nothing_stops_nobody_and_is_bounded() {
        let (sink, has_come, let_go) = Stuck::new();
        let (writer, dropped) = start(sink);
        writer.append(b"first\n");
        has_come.recv().expect("the thread writes the first line");
        let line = [b'x'; 1024];
        let began = Instant::now();
        for _ in 0..10_000 {
            writer.append(&line);
        }
        assert!(began.elapsed() < Duration::from_secs(5), "nobody waits for the sink");
        assert_eq!(dropped.value(), 10_000 - 1024, "one buffer is full, the rest is counted");
        assert!(!writer.close(Duration::from_millis(1)), "the end waits only so long");
        let_go.send(()).expect("the first write ends");
        let_go.send(()).expect("the second write ends");
        assert!(writer.close(Duration::from_secs(10)));
    }

    #[test]
    fn a_failed_write_is_counted_and_the_next_line_begins_afresh() {
        /// Takes three bytes, fails once, then works: a full disk that is freed.
        struct Failing(Kept, u32);
        impl Write for Failing {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.1 += 1;
                match self.1 {
                    1 => self.0.write(&bytes[..3]),
                    2 => Err(std::io::ErrorKind::StorageFull.into()),
                    _ => self.0.write(bytes),
                }
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let kept = Kept::default();
        let (writer, dropped) = start(Failing(kept.clone(), 0));
        writer.append(b"broken\n");
        while dropped.value() == 0 {
            thread::yield_now();
        }
        writer.append(b"whole\n");
        assert!(writer.close(Duration::from_secs(10)));
        assert_eq!((kept.text().as_str(), dropped.value()), ("bro\nwhole\n", 1));
    }
}
