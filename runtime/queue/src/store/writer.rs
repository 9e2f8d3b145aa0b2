//! The writer: one thread that takes batches to the disk, and cleans between them.
//!
//! gather -> write each touched extent once -> sync each touched file once -> acknowledge -> again.
//! What is queued while a batch is synced is the next batch. A full volume (copy-on-write ones can be, also below files that are
//! allocated) holds the batch back until there is space; any other failure stops the store for good.
//!
//! Invariants
//! 1. One batch at a time, in the order of their numbers: the next one is not taken before this one is durable or the store has failed.
//! 2. A batch is committed, and its commands acknowledged, only after `write_durably` came back without a fault.
//! 3. A batch that found no space is kept as it is and tried again before anything newer; it is never dropped while the store runs.
//! 4. After a failed sync, or a write that failed for any other reason than space, nothing is written or acknowledged any more.
//! 5. What the catalog says of extents that are new with a batch is written, though not synced, before anybody is told of the batch.
//! 6. The core's lock is held for moves of memory only: never over a write, a sync or a sleep of this thread.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crate::core::Core;
use crate::core::batch::Batch;
use crate::status::Health;
use crate::store::StoreError;
use crate::store::files::{WriteError, is_full};
use crate::store::shared::{Shared, ring};

/// How often time is looked at when nothing else happens.
const TICK: Duration = Duration::from_millis(100);
/// How long a full volume is left alone before the batch is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Keys are swept, and letters looked at, so often.
const SWEEP: Duration = Duration::from_secs(1);
/// Extents are looked for because room was refused so often.
const LOOK: Duration = Duration::from_millis(100);

/// Where the last batch was for many, the first of the next one waits at most so long for the others.
const GATHER: Duration = Duration::from_millis(4);
/// How often it looks whether they still come.
const STEP: Duration = Duration::from_micros(100);
/// Many.
const MANY: usize = 8;

/// What a round of the writer came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    /// A batch became durable, or something was cleaned.
    Done,
    /// There was nothing to do.
    Idle,
    /// The volume is full: the same batch again.
    NoSpace,
    /// Nothing becomes durable any more.
    Failed,
}

/// The writer's own state.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    /// A batch that could not be written for want of space.
    held: Option<Batch>,
    /// Commands in the last batch.
    last: usize,
    /// How long the last sync took.
    last_sync: Duration,
    swept: Option<Instant>,
    looked: Option<Instant>,
    /// A round in which there was nothing to do was told.
    idled: Option<Instant>,
}

impl Writer {
    /// Runs until the store is closed.
    pub(crate) fn run(mut self, shared: &Arc<Shared>) {
        loop {
            match self.round(shared) {
                Round::Done => continue,
                Round::Idle if shared.is_closing() => break,
                Round::Failed => break,
                Round::NoSpace if shared.is_closing() => break,
                Round::NoSpace => pause(shared, RETRY),
                Round::Idle => {
                    let core = shared.core();
                    if !core.has_batch() && !core.wants_cleaning() && !shared.is_closing() {
                        let waited = shared.wake.wait_timeout(core, TICK);
                        drop(waited.unwrap_or_else(PoisonError::into_inner));
                    }
                }
            }
        }
        if shared.failure().is_none() {
            // A start has less to do; without it, it has all it needs.
            let _ = shared.files.empty_redo(true);
        }
        let failure = shared.failure().map_or(StoreError::Closing, StoreError::Failed);
        shared.end(&failure);
    }

    /// One batch and one step of cleaning.
    pub(crate) fn round(&mut self, shared: &Shared) -> Round {
        let batch = match self.held.take() {
            Some(batch) => Some(batch),
            None => {
                self.gather(shared);
                let mut core = shared.core();
                if core.check().is_err() {
                    drop(core);
                    return self.failed(shared);
                }
                self.look_at_time(&mut core, shared.by_hand);
                let commands = core.gathering.commands;
                let batch = core.collect();
                self.last = if batch.is_some() { commands } else { self.last };
                batch
            }
        };
        let wrote = match batch {
            Some(batch) => match self.write(shared, batch) {
                Round::Done => true,
                round => return round,
            },
            None => false,
        };
        let cleaned = crate::store::cleaner::clean(shared);
        // Whoever waits for cleaning and got nothing of it tries again, but not at once.
        if wrote || cleaned || is_due(&mut self.idled, TICK, shared.by_hand) {
            shared.progress.send_modify(|progress| progress.rounds += 1);
        }
        if wrote || cleaned { Round::Done } else { Round::Idle }
    }

    /// Lets those catch up who were told of the last batch together, so that they are in one again: as long as they come, and for a
    /// small part of what a sync takes.
    fn gather(&self, shared: &Shared) {
        let (began, most) = (Instant::now(), (self.last_sync / 4).min(GATHER));
        let (mut before, mut quiet) = (0, 0);
        if shared.by_hand || self.last < MANY || most < STEP {
            return;
        }
        shared.gathers.store(true, Ordering::Release);
        loop {
            let commands = shared.core().gathering.commands;
            quiet = if commands == before { quiet + 1 } else { 0 };
            // Those who are fewer than last time may be late; where they are as many, one look more tells whether that is all.
            let patience = if commands >= self.last { 0 } else { 1 };
            if commands == 0 || quiet > patience || began.elapsed() >= most {
                break;
            }
            before = commands;
            std::thread::sleep(STEP);
        }
        shared.gathers.store(false, Ordering::Release);
    }

    fn failed(&self, shared: &Shared) -> Round {
        let detail = shared.failure().unwrap_or_default();
        shared.end(&StoreError::Failed(detail));
        Round::Failed
    }

    fn look_at_time(&mut self, core: &mut Core, by_hand: bool) {
        let lanes = core.lose_overdue();
        core.void_some();
        core.say_damage();
        if is_due(&mut self.swept, SWEEP, by_hand) {
            core.sweep();
        }
        core.may_look |= is_due(&mut self.looked, LOOK, by_hand);
        for notify in Shared::work(core, &lanes) {
            ring(&notify);
        }
    }

    fn write(&mut self, shared: &Shared, batch: Batch) -> Round {
        let (syncs, took) = match shared.files.write_durably(&batch.writes, !shared.by_hand) {
            Ok(written) => written,
            Err(WriteError::Write(error)) if is_full(&error) => {
                self.held = Some(batch);
                note_full(shared, true);
                return Round::NoSpace;
            }
            Err(WriteError::Write(error)) => {
                shared.core().poison(format!("a write failed: {error}"));
                return self.failed(shared);
            }
            Err(WriteError::Sync(error)) => {
                // What a failed sync left behind is unknown, also to a second one: nothing is acknowledged any more.
                shared.files.note_failure();
                shared.core().poison(format!("a sync failed: {error}"));
                return self.failed(shared);
            }
        };
        if !batch.opened.is_empty() {
            shared.files.note_opened(&batch.opened);
        }
        self.last_sync = took;
        shared.sync_times.lock().unwrap_or_else(PoisonError::into_inner).record(self.last_sync);
        note_full(shared, false);
        let (effects, work) = {
            let mut core = shared.core();
            core.counters.syncs += syncs;
            let effects = core.commit(batch);
            shared.progress.send_modify(|progress| progress.committed = core.committed);
            let work = Shared::work(&core, &effects.work);
            (effects, work)
        };
        shared.tell(&effects);
        work.iter().for_each(|notify| ring(notify));
        Round::Done
    }
}

/// Whether so much time went by since the last time; always if there is no time but the one that is set.
fn is_due(last: &mut Option<Instant>, every: Duration, by_hand: bool) -> bool {
    let due = by_hand || last.is_none_or(|last| last.elapsed() >= every);
    if due {
        *last = Some(Instant::now());
    }
    due
}

fn pause(shared: &Shared, time: Duration) {
    let core = shared.core();
    let waited = shared.wake.wait_timeout_while(core, time, |_| !shared.is_closing());
    drop(waited.unwrap_or_else(PoisonError::into_inner));
}

fn note_full(shared: &Shared, full: bool) {
    let mut core = shared.core();
    if core.batch_held != full {
        core.batch_held = full;
        core.judge_health(shared.volume_free.load(Ordering::Relaxed), shared.disk_reserve);
    }
}

impl Core {
    /// Health out of what is known of the volume.
    pub(crate) fn judge_health(&mut self, free: u64, reserve: u64) {
        self.volume_low = free < reserve || self.batch_held;
        if self.check().is_ok() {
            self.health = if self.volume_low { Health::DiskLow { free, reserve } } else { Health::Serving };
        }
    }
}
