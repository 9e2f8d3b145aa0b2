//! A disk in memory that does to its content what real disks do to theirs. For tests: nothing of a running server uses it.
//!
//! 1. What was written is durable after [`DiskFile::sync`], names after [`Disk::sync_folder`]; of everything else a crash keeps any part:
//!    each sector of 512 bytes in any version since the last sync, each name as it was or as it is, in any order.
//! 2. A file that was never synced may be shorter after a crash.
//! 3. A sync that fails makes some sectors durable and forgets that the others are not, as systems do.
//! 4. After a crash the old value and its files answer every call with an error: a process that died writes no more.
//! 5. Everything that is left to chance comes from the seed.

mod fault;
mod sectors;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use fault::{CallKind, Failure, Reached};

use crate::disk::simulated::fault::Faults;
use crate::disk::simulated::sectors::Sectors;
use crate::disk::{Disk, DiskFile};
use crate::format::SECTOR_BYTES;

/// Numbers from a seed, as good as chance. The same seed gives the same numbers for ever.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// From a seed.
    pub fn new(seed: u64) -> Chance {
        Chance(seed)
    }
    /// The next number (splitmix64).
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
    /// From 0 up to below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.number() % end.max(1)
    }
    /// Once in `times`.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// A disk in memory. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct SimulatedDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    files: Vec<Sectors>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    free: u64,
    faults: Faults,
    bytes_read: u64,
    chance: Chance,
    stopped: bool,
}

/// Free bytes of a new disk.
const FREE_BYTES: u64 = 1 << 40;

impl SimulatedDisk {
    /// An empty folder.
    pub fn new(seed: u64) -> SimulatedDisk {
        SimulatedDisk::with(State {
            files: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            free: FREE_BYTES,
            faults: Faults::default(),
            bytes_read: 0,
            chance: Chance::new(seed),
            stopped: false,
        })
    }

    fn with(state: State) -> SimulatedDisk {
        SimulatedDisk { state: Arc::new(Mutex::new(state)) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The power goes: what the next start finds.
    pub fn crash(&self) -> SimulatedDisk {
        let mut state = self.taken();
        let State { files, names, durable_names, chance, .. } = &mut state;
        let mut left = BTreeMap::new();
        for name in names.keys().chain(durable_names.keys()) {
            let found = if chance.one_in(2) { names.get(name) } else { durable_names.get(name) };
            if let Some(file) = found {
                left.insert(name.clone(), *file);
            }
        }
        *names = left.clone();
        *durable_names = left;
        for file in files {
            file.crash(chance);
        }
        SimulatedDisk::with(state)
    }

    /// The process is killed: the system still has everything that was written, and still has not made it durable.
    pub fn kill(&self) -> SimulatedDisk {
        SimulatedDisk::with(self.taken())
    }

    fn taken(&self) -> State {
        let mut state = self.lock();
        let left = State {
            files: std::mem::take(&mut state.files),
            names: std::mem::take(&mut state.names),
            durable_names: std::mem::take(&mut state.durable_names),
            free: state.free,
            faults: Faults::default(),
            bytes_read: 0,
            chance: state.chance.clone(),
            stopped: false,
        };
        state.stopped = true;
        left
    }

    /// The same content again, all durable, without planned failures.
    pub fn copy(&self, seed: u64) -> SimulatedDisk {
        let state = self.lock();
        let files: Vec<Sectors> = state.files.iter().map(|file| Sectors::durable(file.content().to_vec())).collect();
        let (names, durable_names) = (state.names.clone(), state.names.clone());
        let (free, faults, chance) = (state.free, Faults::default(), Chance::new(seed));
        SimulatedDisk::with(State { files, names, durable_names, free, faults, bytes_read: 0, chance, stopped: false })
    }

    /// Lets the `nth` call of a kind from now on fail, counted from 1. Answers with whether it came to that.
    pub fn fail(&self, kind: CallKind, nth: u64, failure: Failure) -> Reached {
        self.lock().faults.plan(kind, nth, failure)
    }
    /// Lets every call of a kind fail until [`SimulatedDisk::heal`].
    pub fn fail_all(&self, kind: CallKind, failure: Failure) {
        self.lock().faults.always(kind, failure);
    }
    /// No call fails any more.
    pub fn heal(&self) {
        self.lock().faults.heal();
    }
    /// How many calls of a kind there were, failed ones among them.
    pub fn calls(&self, kind: CallKind) -> u64 {
        self.lock().faults.calls(kind)
    }
    /// Bytes that reads asked for.
    pub fn bytes_read(&self) -> u64 {
        self.lock().bytes_read
    }
    /// What the volume has left; making a file takes from it and removing one gives back.
    pub fn set_free(&self, bytes: u64) {
        self.lock().free = bytes;
    }
    /// Whether a planned [`Failure::Stop`] has come: everything fails until [`SimulatedDisk::crash`].
    pub fn has_stopped(&self) -> bool {
        self.lock().stopped
    }

    /// A file's content, as a reader sees it.
    pub fn content(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.lock();
        state.names.get(name).map(|file| state.files[*file].content().to_vec())
    }
    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        let state = self.lock();
        state.names.values().map(|file| state.files[*file].content().len() as u64).sum()
    }
    /// Puts a file there, or other content into it, all durable.
    pub fn put(&self, name: &str, content: Vec<u8>) {
        let mut state = self.lock();
        state.files.push(Sectors::durable(content));
        let file = state.files.len() - 1;
        state.names.insert(name.to_owned(), file);
        state.durable_names.insert(name.to_owned(), file);
    }
    /// Changes one bit at rest.
    pub fn flip(&self, name: &str, offset: u64, bit: u8) {
        let mut content = self.content(name).unwrap_or_default();
        if let Some(byte) = usize::try_from(offset).ok().and_then(|at| content.get_mut(at)) {
            *byte ^= 1 << (bit % 8);
        }
        self.put(name, content);
    }
    /// A file is gone.
    pub fn lose(&self, name: &str) {
        let mut state = self.lock();
        state.names.remove(name);
        state.durable_names.remove(name);
    }
    /// The files, in order.
    pub fn names(&self) -> Vec<String> {
        self.lock().names.keys().cloned().collect()
    }
}

impl State {
    /// Counts a call; what it shall fail with.
    fn call(&mut self, kind: CallKind) -> io::Result<Option<Failure>> {
        if self.stopped {
            return Err(io::Error::other("the machine has stopped"));
        }
        match self.faults.call(kind) {
            Some(Failure::Stop) if kind != CallKind::Write => {
                self.stopped = true;
                Err(io::Error::other("the machine stops"))
            }
            Some(Failure::NoSpace) => Err(no_space()),
            Some(Failure::Broken) if kind != CallKind::Sync => Err(broken()),
            other => Ok(other),
        }
    }
}

fn no_space() -> io::Error {
    io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error())
}

fn broken() -> io::Error {
    io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error())
}

fn missing() -> io::Error {
    io::Error::from(io::ErrorKind::NotFound)
}

impl Disk for SimulatedDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut state = self.lock();
        state.call(CallKind::List)?;
        Ok(state.names.keys().cloned().collect())
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.lock();
        state.call(CallKind::Create)?;
        if state.names.contains_key(name) {
            return Err(io::Error::from(io::ErrorKind::AlreadyExists));
        }
        let length = usize::try_from(bytes).map_err(|_| no_space())?;
        state.free = state.free.checked_sub(bytes).ok_or_else(no_space)?;
        state.files.push(Sectors::new(length));
        let file = state.files.len() - 1;
        state.names.insert(name.to_owned(), file);
        drop(state);
        Ok(Arc::new(SimulatedFile { disk: self.clone(), file }))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.lock();
        state.call(CallKind::Open)?;
        let file = state.names.get(name).copied().ok_or_else(missing)?;
        drop(state);
        Ok(Arc::new(SimulatedFile { disk: self.clone(), file }))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.lock();
        state.call(CallKind::Remove)?;
        let file = state.names.remove(name).ok_or_else(missing)?;
        state.free += state.files[file].content().len() as u64;
        Ok(())
    }

    fn sync_folder(&self) -> io::Result<()> {
        let mut state = self.lock();
        if state.call(CallKind::SyncFolder)?.is_some() {
            return Err(broken());
        }
        state.durable_names = state.names.clone();
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let mut state = self.lock();
        state.call(CallKind::Free)?;
        Ok(state.free)
    }
}

#[derive(Debug)]
struct SimulatedFile {
    disk: SimulatedDisk,
    file: usize,
}

impl DiskFile for SimulatedFile {
    fn is_there(&self) -> io::Result<bool> {
        let state = self.disk.lock();
        Ok(state.stopped || state.names.values().any(|file| *file == self.file))
    }

    fn bytes(&self) -> io::Result<u64> {
        let mut state = self.disk.lock();
        state.call(CallKind::Length)?;
        Ok(state.files[self.file].content().len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut state = self.disk.lock();
        let failure = state.call(CallKind::Read)?;
        state.bytes_read += buffer.len() as u64;
        let content = state.files[self.file].content();
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let found = content.get(start..).and_then(|rest| rest.get(..buffer.len()));
        buffer.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        if failure == Some(Failure::Flip) && !buffer.is_empty() {
            let at = state.chance.below(buffer.len() as u64 * 8);
            buffer[usize::try_from(at / 8).unwrap_or(0)] ^= 1 << (at % 8);
        }
        Ok(())
    }

    fn write_at(&self, content: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.disk.lock();
        let failure = state.call(CallKind::Write)?;
        let State { files, chance, stopped, free, .. } = &mut *state;
        let file = &mut files[self.file];
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        // As a real file: a write past its end makes it longer, which takes space.
        let longer = start.saturating_add(content.len()).saturating_sub(file.content().len());
        *free = free.checked_sub(longer as u64).ok_or_else(no_space)?;
        file.grow(longer);
        match failure {
            None | Some(Failure::Flip) => {
                file.write(content, start);
                Ok(())
            }
            Some(failure) => {
                // A sector is written whole or not at all.
                let part = usize::try_from(chance.below(content.len() as u64 + 1)).unwrap_or(0);
                let part = ((start + part) / SECTOR_BYTES * SECTOR_BYTES).saturating_sub(start);
                file.write(&content[..part], start);
                *stopped = failure == Failure::Stop;
                Err(if failure == Failure::Short { no_space() } else { io::Error::other("the machine stops") })
            }
        }
    }

    fn cut(&self, bytes: u64) -> io::Result<()> {
        let mut state = self.disk.lock();
        state.call(CallKind::Remove)?;
        let file = &mut state.files[self.file];
        let before = file.content().len();
        file.cut(usize::try_from(bytes).unwrap_or(usize::MAX));
        let given_back = before - file.content().len();
        state.free += given_back as u64;
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.lock();
        let failure = state.call(CallKind::Sync)?;
        let State { files, chance, .. } = &mut *state;
        match failure {
            None => {
                files[self.file].sync();
                Ok(())
            }
            Some(_) => {
                files[self.file].fail_sync(chance);
                Err(broken())
            }
        }
    }

    fn forget_cached(&self) -> io::Result<()> {
        let mut state = self.disk.lock();
        state.call(CallKind::Forget)?;
        state.files[self.file].forget();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
