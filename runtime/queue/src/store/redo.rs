//! The file `redo`: makes batches durable that touch many places, by one sync of one piece.
//!
//! A disk takes as long for a small write as for one of many times its size. A batch for many lanes is therefore written twice: to its
//! places, without a sync, and in one piece behind the batch before it in `redo`, which is synced. When `redo` is full the files of extents
//! are synced, by then in few large pieces (a checkpoint), and it is begun anew: another epoch.
//!
//! Invariants
//! 1. What was acknowledged is synced in its place, or stands synced in `redo` with everything later that went through it.
//! 2. A start writes what `redo` says to its places and syncs it before anything is read, and empties `redo`.
//! 3. Nothing is written without `redo` while it says anything: what it says is never written over something later.
//! 4. It is allocated, and written once, when it is made, and is part of the limit. Without it batches are written to their places alone.
//!
//! It refuses: knowing what is written.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spillgate_model::chance;

use crate::core::stream::Write;
use crate::disk::{Disk, DiskFile};
use crate::format::{
    EXTENT_BYTES, REDO_BYTES, REDO_NAME, REDO_PAGE_BYTES, RedoHead, RedoWrite, decode_redo, put_redo, redo_announced, redo_bytes,
};
use crate::store::files::{WriteError, read_at};

/// A batch for so many separate places, or more, is worth it …
const SCATTERED: usize = 3;
/// … if they are smaller than this on average: above it a write in its place costs no more than one more in `redo`.
const SMALL_BYTES: usize = 16 * 1024;
/// While it says something, other batches go through it as well, up to this part of it.
const PART: u64 = 8;
/// It is filled with zeros, so that a sync in use finds nothing to say about allocation.
static ZEROS: [u8; EXTENT_BYTES] = [0; EXTENT_BYTES];

/// How large it is under a limit. 0: there is none, the store is too small for one.
pub(crate) fn redo_file_bytes(disk_limit: u64) -> u64 {
    let bytes = (disk_limit / 128).min(*REDO_BYTES.end());
    if bytes < *REDO_BYTES.start() { 0 } else { bytes - bytes % REDO_PAGE_BYTES as u64 }
}

/// See the module.
pub(crate) struct Redo {
    file: Arc<dyn DiskFile>,
    bytes: u64,
    store: u64,
    state: Mutex<State>,
}

struct State {
    epoch: u64,
    /// The next batch's.
    number: u32,
    /// Where it begins.
    end: u64,
    /// It says something, or may.
    is_used: bool,
    /// Files of extents with something that is not synced.
    unsynced: BTreeSet<u32>,
    /// For the batch that is written.
    buffer: Vec<u8>,
}

/// What a batch should do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Go through it.
    Through,
    /// Go through it, when it was emptied.
    Anew,
    /// To its places alone, when it was emptied.
    Past,
}

impl Redo {
    /// One that says nothing.
    pub(crate) fn new(file: Arc<dyn DiskFile>, bytes: u64, store: u64) -> Self {
        // What an earlier run left behind must never seem to go on: it began somewhere else.
        let epoch = chance::drawn();
        let state = State { epoch, number: 0, end: 0, is_used: false, unsynced: BTreeSet::new(), buffer: Vec::new() };
        Redo { file, bytes, store, state: Mutex::new(state) }
    }

    /// Makes the file: allocated, written, durable as such.
    pub(crate) fn create(disk: &dyn Disk, bytes: u64, store: u64) -> io::Result<Self> {
        let file = disk.create(REDO_NAME, bytes)?;
        let fill = || {
            let mut offset = 0;
            while offset < bytes {
                let piece = usize::try_from(bytes - offset).unwrap_or(usize::MAX).min(ZEROS.len());
                file.write_at(&ZEROS[..piece], offset)?;
                offset += piece as u64;
            }
            file.sync()
        };
        if let Err(error) = fill().and_then(|()| disk.sync_folder()) {
            let _ = disk.remove(REDO_NAME);
            return Err(error);
        }
        Ok(Redo::new(file, bytes, store))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody else removed it.
    pub(crate) fn is_gone(&self) -> bool {
        self.file.is_there().is_ok_and(|is_there| !is_there)
    }

    /// Whether it says anything.
    pub(crate) fn is_used(&self) -> bool {
        self.lock().is_used
    }

    /// What is best for a batch.
    pub(crate) fn way(&self, writes: &[Write]) -> Way {
        let goes_on = |pair: &[Write]| pair[1].place() == pair[0].place() + pair[0].bytes.len() as u64;
        let places = writes.len() - writes.windows(2).filter(|pair| goes_on(pair)).count();
        let bytes = redo_bytes(writes.iter().map(as_redo)) as u64;
        let is_scattered = places >= SCATTERED && bytes < (places * SMALL_BYTES) as u64;
        let (end, is_used) = {
            let state = self.lock();
            (state.end, state.is_used)
        };
        let is_worth_it = is_scattered || (is_used && bytes <= self.bytes / PART);
        match (is_worth_it && bytes <= self.bytes, end + bytes <= self.bytes) {
            (true, true) => Way::Through,
            (true, false) if is_scattered => Way::Anew,
            _ => Way::Past,
        }
    }

    /// Puts a batch into it and syncs; `files` are those it was written to.
    pub(crate) fn put(&self, writes: &[Write], files: BTreeSet<u32>) -> Result<(), WriteError> {
        let mut state = self.lock();
        let state = &mut *state;
        let head = RedoHead { store: self.store, epoch: state.epoch, number: state.number };
        put_redo(&mut state.buffer, head, writes.iter().map(as_redo));
        state.is_used = true;
        self.file.write_at(&state.buffer, state.end).map_err(WriteError::Write)?;
        self.file.sync().map_err(WriteError::Sync)?;
        state.end += state.buffer.len() as u64;
        state.number += 1;
        state.unsynced.extend(files);
        Ok(())
    }

    /// Files that must be synced before it is begun anew.
    pub(crate) fn unsynced(&self) -> BTreeSet<u32> {
        self.lock().unsynced.clone()
    }

    /// All that it says is synced in its place: the next batch is written over the first.
    pub(crate) fn begin_anew(&self) {
        let mut state = self.lock();
        state.epoch = state.epoch.wrapping_add(1);
        (state.number, state.end) = (0, 0);
        state.unsynced.clear();
    }

    /// The same, where no batch follows: it says nothing from now on.
    pub(crate) fn empty(&self) -> Result<(), WriteError> {
        self.begin_anew();
        let mut state = self.lock();
        let state = &mut *state;
        let head = RedoHead { store: self.store, epoch: state.epoch, number: 0 };
        put_redo(&mut state.buffer, head, std::iter::empty());
        self.file.write_at(&state.buffer, 0).map_err(WriteError::Write)?;
        self.file.sync().map_err(WriteError::Sync)?;
        state.is_used = false;
        Ok(())
    }
}

fn as_redo(write: &Write) -> RedoWrite<'_> {
    let (content, padding) = write.bytes.split_at(write.bytes.len() - write.padding);
    RedoWrite { position: write.position, offset: write.offset, content, zeros: padding.len() }
}

/// What the file says.
#[derive(Debug, Default)]
pub(crate) struct Said {
    /// Batches, in order.
    batches: Vec<Vec<u8>>,
    /// Something stands in it, be it nothing that counts.
    pub(crate) is_used: bool,
    /// Batches are missing before others.
    pub(crate) is_damaged: bool,
}

impl Said {
    /// Reads it.
    pub(crate) fn read(file: &dyn DiskFile, store: u64) -> io::Result<Said> {
        let mut said = Said::default();
        let mut all = vec![0; REDO_PAGE_BYTES.min(usize::try_from(file.bytes()?).unwrap_or(0))];
        read_at(file, &mut all, 0)?;
        // As it is after a clean end: nothing else need be looked at.
        if all.iter().all(|byte| *byte == 0) || decode_redo(&all).is_ok_and(|(head, writes)| head.store == store && writes.is_empty()) {
            return Ok(said);
        }
        said.is_used = true;
        all.resize(usize::try_from(file.bytes()?).unwrap_or(0), 0);
        read_at(file, &mut all, 0)?;
        let mut offset = 0;
        let mut next: Option<(u64, u32)> = None;
        let mut misses = false;
        while let Some(rest) = all.get(offset..).filter(|rest| !rest.is_empty()) {
            let bytes = redo_announced(rest, store).unwrap_or(usize::MAX);
            let head = rest.get(..bytes).and_then(|batch| decode_redo(batch).ok()).map(|(head, _)| head);
            let follows = |head: &RedoHead| match next {
                None => offset == 0 && head.number == 0,
                Some((epoch, number)) => head.epoch == epoch && head.number >= number,
            };
            match head.filter(|head| head.store == store && follows(head)) {
                Some(head) => {
                    said.is_damaged |= misses;
                    said.batches.push(rest[..bytes].to_vec());
                    next = Some((head.epoch, head.number.saturating_add(1)));
                    (offset, misses) = (offset + bytes, false);
                }
                // Without the first nothing counts: it is of an epoch that had hardly begun.
                None if next.is_none() => break,
                None => (offset, misses) = (offset + REDO_PAGE_BYTES, true),
            }
        }
        Ok(said)
    }

    /// Every write, in order.
    pub(crate) fn writes(&self) -> impl Iterator<Item = RedoWrite<'_>> {
        self.batches.iter().filter_map(|batch| decode_redo(batch).ok()).flat_map(|(_, writes)| writes)
    }
    /// The same by extent.
    pub(crate) fn by_extent(&self) -> Overlay {
        let mut overlay = Overlay::default();
        for write in self.writes() {
            let bytes = [write.content, &ZEROS[..write.zeros]].concat();
            overlay.0.entry(write.position).or_default().push((write.offset, bytes));
        }
        overlay
    }
}

/// What would be written at a start, for somebody who only reads.
#[derive(Debug, Default)]
pub(crate) struct Overlay(BTreeMap<u32, Vec<(usize, Vec<u8>)>>);

impl Overlay {
    /// Changes what was read of an extent, from `offset` on, to what it would be.
    pub(crate) fn lay_over(&self, position: u32, offset: usize, read: &mut [u8]) {
        for (begin, bytes) in self.0.get(&position).into_iter().flatten() {
            let end = (begin + bytes.len()).min(offset + read.len());
            let begin_here = (*begin).max(offset);
            if begin_here < end {
                read[begin_here - offset..end - offset].copy_from_slice(&bytes[begin_here - begin..end - begin]);
            }
        }
    }
}
