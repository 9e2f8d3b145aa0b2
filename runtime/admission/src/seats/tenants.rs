//! What is known of each tenant of one database: its share, the seats it holds, its lines.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::adaptive::Evidence;
use super::asking::{Class, Share, Ticket};
use super::codel::Standing;
use super::estimate::{Estimate, HoldTimes};
use super::left::SlowSeats;
use super::order::{FAST, Filed, SLOW, Virtual};

/// A call in line.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) asked: Duration,
    pub(super) deadline: Duration,
    pub(super) estimate: Option<Estimate>,
    pub(super) times: Option<Arc<HoldTimes>>,
}

impl Waiting {
    /// Whether it would not be done before its deadline. An estimate beyond half of the time it had is not believed.
    pub(super) fn is_in_vain(&self, sheds: bool, now: Duration) -> bool {
        let left = self.deadline.saturating_sub(now);
        let had = self.deadline.saturating_sub(self.asked);
        let own = self.estimate.map_or(Duration::ZERO, |estimate| estimate.hold).min(had / 2);
        left.is_zero() || (sheds && left < own)
    }
}

/// The waiting calls of one speed, by the numbers of their tickets: oldest first.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) calls: BTreeMap<u64, Waiting>,
    pub(super) standing: Standing,
}

impl Line {
    pub(super) fn oldest_wait(&self, now: Duration) -> Duration {
        self.calls.first_key_value().map_or(Duration::ZERO, |(_, oldest)| now.saturating_sub(oldest.asked))
    }
    /// Which call is taken out next: the newest while the line stands.
    pub(super) fn take(&mut self, newest: bool) -> Option<(u64, Waiting)> {
        if newest { self.calls.pop_last() } else { self.calls.pop_first() }
    }
}

/// A tenant in one class.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Where its last call ends in virtual time, and so where its next begins.
    pub(super) finish: Virtual,
    pub(super) held: u32,
    /// The weight it counts with among those that wait; 0 while nothing of it waits.
    pub(super) backlogged: u32,
    pub(super) lines: [Line; 2],
    pub(super) filed: Option<Filed>,
}

impl Queue {
    pub(super) fn speeds(&self) -> [bool; 2] {
        [!self.lines[FAST].calls.is_empty(), !self.lines[SLOW].calls.is_empty()]
    }
    pub(super) fn waiting(&self) -> u32 {
        u32::try_from(self.lines.iter().map(|line| line.calls.len()).sum::<usize>()).unwrap_or(u32::MAX)
    }
}

/// A tenant.
#[derive(Debug)]
pub(super) struct Tenant {
    pub(super) name: Arc<str>,
    /// As last told.
    pub(super) share: Share,
    pub(super) held: u32,
    pub(super) waiting: u32,
    /// Queues of it that are counted among those that wait.
    pub(super) backlogged: u32,
    pub(super) queues: [Queue; Class::ALL.len()],
    pub(super) evidence: Evidence,
    pub(super) slow: SlowSeats,
    /// The last turn that was given to a refused call, by speed.
    pub(super) turns: [Duration; 2],
}

impl Tenant {
    fn new(name: Arc<str>, share: Share) -> Self {
        let (queues, evidence, slow, turns) = Default::default();
        Tenant { name, share, held: 0, waiting: 0, backlogged: 0, queues, evidence, slow, turns }
    }
    fn is_idle(&self) -> bool {
        self.held == 0 && self.waiting == 0
    }
    pub(super) fn queue(&mut self, class: Class) -> &mut Queue {
        &mut self.queues[class as usize]
    }
    pub(super) fn line(&mut self, ticket: &Ticket) -> &mut Line {
        &mut self.queues[ticket.class as usize].lines[usize::from(ticket.slow)]
    }
}

/// Tenants that were seen, forgotten some time after they went idle.
#[derive(Debug, Default)]
pub(super) struct Tenants {
    by_name: HashMap<Arc<str>, usize>,
    all: Vec<Tenant>,
    free: Vec<usize>,
    /// So many names make it look for idle ones.
    sweep_at: usize,
}

/// No sweep below so many tenants.
const FEW: usize = 256;

impl Tenants {
    /// Its place, with its share brought up to date; and whether that is another one than before.
    pub(super) fn place(&mut self, name: &Arc<str>, share: Share) -> (usize, bool) {
        if let Some(place) = self.by_name.get(name) {
            let before = std::mem::replace(&mut self.all[*place].share, share);
            return (*place, before != share);
        }
        if self.by_name.len() >= self.sweep_at.max(FEW) {
            self.sweep();
        }
        let tenant = Tenant::new(name.clone(), share);
        let place = match self.free.pop() {
            Some(place) => {
                self.all[place] = tenant;
                place
            }
            None => {
                self.all.push(tenant);
                self.all.len() - 1
            }
        };
        self.by_name.insert(name.clone(), place);
        (place, false)
    }
    fn sweep(&mut self) {
        let (all, free) = (&self.all, &mut self.free);
        self.by_name.retain(|_, place| {
            let idle = all[*place].is_idle();
            free.extend(idle.then_some(*place));
            !idle
        });
        self.sweep_at = self.by_name.len() * 2;
    }
    /// Places of all of them, and of some that are no longer known.
    pub(super) fn places(&self) -> Range<usize> {
        0..self.all.len()
    }
    pub(super) fn find(&self, name: &str) -> Option<&Tenant> {
        self.by_name.get(name).map(|place| &self.all[*place])
    }
    pub(super) fn find_mut(&mut self, name: &str) -> Option<&mut Tenant> {
        self.by_name.get(name).map(|place| &mut self.all[*place])
    }
    pub(super) fn at(&self, place: usize) -> &Tenant {
        &self.all[place]
    }
    pub(super) fn get(&mut self, place: usize) -> &mut Tenant {
        &mut self.all[place]
    }
    pub(super) fn iter(&self) -> impl Iterator<Item = &Tenant> {
        self.by_name.values().map(|place| &self.all[*place])
    }
    /// All of them, idle ones that were forgotten included.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Tenant> {
        self.all.iter_mut()
    }
}
