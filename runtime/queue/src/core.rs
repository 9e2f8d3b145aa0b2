//! The state of a store: what is where, who may use how much, what the next batch writes. No I/O, no clock, no waiting.
//!
//! Commands change the state at once and put bytes into the batch that is being gathered; they answer with its number. The writer
//! takes a batch ([`batch`]), writes and syncs it, and says so; only then its commands are acknowledged and its effects seen by others.
//!
//! Invariants
//! 1. What is written says nothing that depends on something written in the same batch or later, but for records of the same lane's
//!    same stream: floors, purges' effects on extents and moved copies follow from what is durable.
//! 2. A lane's extents are reused only after the floor that frees them is durable.
//! 3. Sum of all lanes' claims + the cleaning reserve <= usable extents, whenever room is given out or spare extents are taken.
//! 4. A job's end is written once; whoever ends it must hold its lease, or find it waiting.
//! 5. An end is needed as long as its time, and as long as its item stands on disk: else the item would come back to life.

pub(crate) mod append;
pub(crate) mod batch;
pub(crate) mod clean;
pub(crate) mod damage;
pub(crate) mod decide;
pub(crate) mod emit;
pub(crate) mod end;
pub(crate) mod end_rate;
pub(crate) mod extents;
pub(crate) mod find;
pub(crate) mod items;
pub(crate) mod journal;
pub(crate) mod keys;
pub(crate) mod lane;
pub(crate) mod letters;
pub(crate) mod lookup;
pub(crate) mod purge;
pub(crate) mod recover;
pub(crate) mod room;
pub(crate) mod shed;
pub(crate) mod stream;
pub(crate) mod take;
pub(crate) mod work;
pub(crate) mod write;

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::core::batch::Gathering;
use crate::core::end_rate::EndRate;
use crate::core::extents::Extents;
use crate::core::keys::Keys;
use crate::core::lane::Lane;
use crate::job::{JobId, JobState};
use crate::status::{Health, LaneName, Recovered};
use crate::store::StoreError;

/// How long the state of a job that the store itself ended is kept.
pub(crate) const STATE_KEEP_MS: u64 = 24 * 60 * 60 * 1000;
const LETTERS_MOST: u64 = 1_000;
const LETTERS_KEEP_MS: u64 = 7 * STATE_KEEP_MS;

/// Why a command was not done.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The lane's journal must be cleaned first: again after the next batch.
    Later,
    /// For good.
    Error(StoreError),
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        Refused::Error(error)
    }
}

/// The number of the batch with which something becomes durable.
pub(crate) type Ticket = u64;

/// All lanes of a queue.
#[derive(Debug)]
pub(crate) struct Queue {
    /// Jobs that have not ended, and promised ones.
    pub(crate) items: u64,
    pub(crate) bytes: u64,
    pub(crate) lanes: Vec<usize>,
    /// Of these, lanes with jobs that have not ended.
    pub(crate) busy: u64,
    pub(crate) end_rate: EndRate,
    pub(crate) letters_most: u64,
    pub(crate) letters_keep: u64,
    pub(crate) work: Arc<Notify>,
}

/// All lanes of a tenant.
#[derive(Debug)]
pub(crate) struct Tenant {
    pub(crate) items: u64,
    pub(crate) bytes: u64,
    /// Extents its lanes are charged with.
    pub(crate) claimed: u64,
    /// The limit when room was last asked for.
    pub(crate) disk_limit: u64,
    pub(crate) lanes: Vec<usize>,
}

/// Since the start of the process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) batches: u64,
    pub(crate) syncs: u64,
    pub(crate) appended: u64,
    pub(crate) ended: u64,
    pub(crate) moved: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Core {
    /// Of the files.
    pub(crate) store: u64,
    /// Store time, milliseconds.
    pub(crate) now: u64,
    /// Wall clock, for labels.
    pub(crate) wall: u64,
    pub(crate) extents: Extents,
    pub(crate) lanes: Vec<Lane>,
    by_name: HashMap<LaneName, usize>,
    by_number: HashMap<u64, usize>,
    pub(crate) queues: HashMap<Arc<str>, Queue>,
    pub(crate) tenants: HashMap<Arc<str>, Tenant>,
    pub(crate) keys: Keys,
    pub(crate) uniques: Keys,
    next_serial: u64,
    next_token: u64,
    /// Extents that lanes are charged with.
    pub(crate) claimed: u64,
    /// Of these, what rooms may still need: nothing else takes them.
    promised_extents: u64,
    /// Content bytes of the largest item: the cleaning reserve can move it.
    largest: u64,
    pub(crate) gathering: Gathering,
    /// Every batch up to this one is durable.
    pub(crate) committed: u64,
    pub(crate) health: Health,
    /// The volume is below its reserve.
    pub(crate) volume_low: bool,
    /// A batch cannot be written for want of space.
    pub(crate) batch_held: bool,
    pub(crate) counters: Counters,
    /// Of all lanes together.
    pub(crate) end_rate: EndRate,
    pub(crate) recovered: Recovered,
    /// Lanes whose read items are in memory, oldest first.
    loaded_lanes: std::collections::VecDeque<usize>,
    /// Hidden items that are still to be said void.
    voids: Vec<(usize, u64)>,
    /// What a start must write before anything else: fillers of torn writes.
    pub(crate) mends: Vec<stream::Write>,
    /// Rooms that were refused since cleaning last looked.
    pub(crate) room_wanted: bool,
    /// Cleaning may look again for room that was refused.
    pub(crate) may_look: bool,
    agenda: clean::Agenda,
    /// Uses of extents that the catalog does not name yet; `None`: nothing stands there.
    uncatalogued: crate::store::catalog::Entries,
    /// Uses with a serial below it are durable, as far as they came to be.
    committed_below: u64,
    /// What damage has cost and is still to be said.
    damage: damage::Damage,
    /// Lanes for which a command waits.
    wanting: Vec<usize>,
}

impl Core {
    pub(crate) fn new(store: u64, extents: Extents, now: u64, wall: u64) -> Self {
        Core {
            store,
            now,
            wall,
            extents,
            lanes: Vec::new(),
            by_name: HashMap::new(),
            by_number: HashMap::new(),
            queues: HashMap::new(),
            tenants: HashMap::new(),
            keys: Keys::default(),
            uniques: Keys::default(),
            next_serial: 1,
            next_token: now << 16,
            claimed: 0,
            promised_extents: 0,
            largest: 0,
            gathering: Gathering::default(),
            committed: 0,
            health: Health::Serving,
            volume_low: false,
            batch_held: false,
            counters: Counters::default(),
            end_rate: EndRate::default(),
            recovered: Recovered::default(),
            loaded_lanes: std::collections::VecDeque::new(),
            voids: Vec::new(),
            mends: Vec::new(),
            room_wanted: false,
            may_look: true,
            agenda: clean::Agenda::default(),
            uncatalogued: crate::store::catalog::Entries::new(),
            committed_below: 0,
            damage: damage::Damage::default(),
            wanting: Vec::new(),
        }
    }

    /// Time goes on; never back.
    pub(crate) fn advance(&mut self, now: u64, wall: u64) {
        self.now = self.now.max(now);
        self.wall = wall;
    }

    /// Whether anything can still become durable.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match &self.health {
            Health::Failed { detail } => Err(StoreError::Failed(detail.clone())),
            _ => Ok(()),
        }
    }

    /// A write or a sync failed: nothing is acknowledged any more.
    pub(crate) fn poison(&mut self, detail: String) {
        if self.check().is_ok() {
            self.health = Health::Failed { detail };
        }
    }

    /// The lane of that name, made if it is new.
    pub(crate) fn lane_index(&mut self, name: &LaneName) -> usize {
        if let Some(index) = self.by_name.get(name) {
            return *index;
        }
        let index = self.lanes.len();
        self.lanes.push(Lane::new(name.clone(), self.now));
        self.by_name.insert(name.clone(), index);
        self.queue(&name.queue.clone()).lanes.push(index);
        self.tenant(&name.tenant.clone()).lanes.push(index);
        index
    }
    /// The lane of that name.
    pub(crate) fn find_lane(&self, name: &LaneName) -> Option<usize> {
        self.by_name.get(name).copied()
    }
    /// The lane that gave out an id.
    pub(crate) fn lane_of(&self, id: JobId) -> Option<usize> {
        self.by_number.get(&id.lane).copied()
    }
    pub(crate) fn queue(&mut self, name: &Arc<str>) -> &mut Queue {
        self.queues.entry(name.clone()).or_insert_with(|| Queue {
            items: 0,
            bytes: 0,
            lanes: Vec::new(),
            busy: 0,
            end_rate: EndRate::default(),
            letters_most: LETTERS_MOST,
            letters_keep: LETTERS_KEEP_MS,
            work: Arc::new(Notify::new()),
        })
    }
    pub(crate) fn tenant(&mut self, name: &Arc<str>) -> &mut Tenant {
        self.tenants.entry(name.clone()).or_insert_with(|| Tenant {
            items: 0,
            bytes: 0,
            claimed: 0,
            disk_limit: u64::MAX,
            lanes: Vec::new(),
        })
    }
    pub(crate) fn id(&self, lane: usize, sequence: u64) -> JobId {
        JobId { lane: self.lanes[lane].number, sequence }
    }

    /// What is to be written into the catalog, and below which serial it is complete then.
    pub(crate) fn take_uncatalogued(&mut self) -> (crate::store::catalog::Entries, u64) {
        (std::mem::take(&mut self.uncatalogued), self.committed_below)
    }
    /// It could not be written.
    pub(crate) fn put_back_uncatalogued(&mut self, entries: crate::store::catalog::Entries) {
        for (position, entry) in entries {
            self.uncatalogued.entry(position).or_insert(entry);
        }
    }
    /// It could not be brought up to date at the start.
    pub(crate) fn catalog_is_behind(&mut self) {
        self.committed_below = 0;
    }
    /// At a start, when all that was found is in the catalog.
    pub(crate) fn catalogued_below(&self) -> u64 {
        self.committed_below
    }

    fn token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    /// Counts of one job's end.
    pub(crate) fn count_end(&mut self, lane: usize, state: JobState) {
        self.counters.ended += 1;
        self.lanes[lane].ended[state as usize] += 1;
        self.rate_end(lane);
    }
}
