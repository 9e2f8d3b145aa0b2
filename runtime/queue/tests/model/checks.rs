//! What must be the same in the store and in the book, at any moment.

use spillgate_queue::{Job, JobId, JobState, LaneName, Take, TakeFrom};

use crate::commands::STATE_KEEP;
use crate::rig::EXTENT;
use crate::run::{World, hash_of};

impl World {
    /// A job as book and store have it.
    pub(crate) fn show(&self, id: JobId) -> String {
        let Some(entry) = self.book.jobs.get(&id) else { return format!("{id}: the book does not know it") };
        let entry = crate::book::Entry { content: bytes::Bytes::new(), ..entry.clone() };
        format!("{id}: {entry:?}\nstore: {:?}", self.store().job(id))
    }

    /// Everything that can be asked without changing anything.
    pub(crate) fn check(&mut self) {
        let ids: Vec<JobId> = self.book.jobs.iter().filter(|(_, entry)| !entry.forgotten).map(|(id, _)| *id).collect();
        for id in ids {
            self.check_job(id);
        }
        self.check_lanes();
        self.check_keys();
    }

    fn check_job(&mut self, id: JobId) {
        let now = self.book.now;
        let name = self.book.lanes[self.book.jobs[&id].lane].name.clone();
        assert_eq!(self.store().was_job(id), Some(name.clone()), "{id} was given out");
        let Some(job) = self.store().job(id) else {
            let entry = self.entry(id);
            let end = entry.end.clone().unwrap_or_else(|| panic!("{id} is lost (promise 2): {:?}", entry.state));
            let may_be_pushed_out = entry.keys.is_empty() && entry.unique.is_none() && !end.letter;
            assert!(end.kept_until <= now || may_be_pushed_out, "{id}: its state is kept until {} and it is {now}", end.kept_until);
            entry.forgotten = true;
            return;
        };
        self.check_known(id, &name, &job);
    }

    fn check_known(&mut self, id: JobId, name: &LaneName, job: &Job) {
        assert_eq!((job.id, &job.lane), (id, name));
        self.follow(id, job.state);
        assert_eq!(job.state, self.book.jobs[&id].state, "{} (promise 2)", self.show(id));
        let entry = self.entry(id);
        if entry.attempts_vague && job.attempts < entry.attempts {
            entry.attempts = job.attempts;
        }
        entry.attempts_vague = false;
        assert_eq!(job.attempts, entry.attempts, "{id}: attempts");
        assert_eq!(job.replayed_as, entry.replayed_as, "{id}: what it was replayed as");
        let outcome = entry.end.as_ref().and_then(|end| end.outcome.clone());
        assert!(!(job.has_outcome && job.outcome_gone), "{id}");
        match outcome {
            None => assert!(!job.has_outcome && !job.outcome_gone, "{id} has an outcome that nobody gave"),
            Some(_) if job.outcome_gone => {}
            Some(outcome) => {
                assert!(job.has_outcome, "{id}: its outcome is lost");
                let kept = self.ask(self.store().outcome(id)).expect("an outcome can be read");
                assert_eq!(kept, Some(outcome), "{id}: its outcome");
            }
        }
    }

    /// Whatever ran out by now may have ended before the last command.
    pub(crate) fn follow_all(&mut self, lane: usize) {
        let unended: Vec<JobId> = self.book.unended(lane).map(|(id, _)| *id).collect();
        for id in unended {
            if let Some(job) = self.store().job(id)
                && job.state != JobState::Running
            {
                self.follow(id, job.state);
            }
        }
    }

    /// What happens by time alone.
    fn follow(&mut self, id: JobId, seen: JobState) {
        let now = self.book.now;
        let entry = &self.book.jobs[&id];
        if entry.state == JobState::Running && seen != JobState::Running && entry.lease_until <= now {
            self.book.hand_back(id, 0);
            self.leases.remove(&id);
        }
        let entry = &self.book.jobs[&id];
        let may_expire = entry.is_expired(now) || (entry.vague && entry.expires_at.is_some_and(|at| at <= now));
        if entry.state == JobState::Queued && seen == JobState::Expired && may_expire {
            self.book.finish(id, JobState::Expired, None, STATE_KEEP, true);
        }
    }

    fn check_lanes(&self) {
        let lanes = self.store().lanes(None);
        let (mut disk, limits) = (0, self.limits);
        for (index, book) in self.book.lanes.iter().enumerate() {
            let Some(status) = lanes.iter().find(|status| status.name == book.name) else {
                assert_eq!(self.book.unended(index).count(), 0, "{:?} is lost", book.name);
                continue;
            };
            let in_state = |state| self.book.in_lane(index).filter(|(_, entry)| entry.state == state).count() as u64;
            let show = || self.book.unended(index).map(|(id, _)| self.show(*id)).collect::<Vec<_>>().join("\n");
            assert_eq!(status.waiting, in_state(JobState::Queued), "{:?}: waiting, of {}", book.name, show());
            assert_eq!(status.running, in_state(JobState::Running), "{:?}: running", book.name);
            assert_eq!(status.dead, self.book.letters(index).len() as u64, "{:?}: dead letters", book.name);
            let bytes: u64 = self.book.unended(index).map(|(_, entry)| entry.content.len() as u64).sum();
            assert_eq!(status.bytes, bytes, "{:?}: bytes", book.name);
            assert_eq!(status.disk % EXTENT, 0);
            disk += status.disk;
        }
        for tenant in ["anna", "ben"] {
            let of: Vec<_> = lanes.iter().filter(|status| *status.name.tenant == *tenant).collect();
            let (items, bytes) = of.iter().fold((0, 0), |(items, bytes), lane| (items + lane.waiting + lane.running, bytes + lane.bytes));
            let held: u64 = of.iter().map(|lane| lane.disk).sum();
            assert!(items <= limits.tenant_items && bytes <= limits.tenant_bytes, "{tenant}: {items} items, {bytes} bytes (promise 1)");
            assert!(held <= limits.tenant_disk, "{tenant} holds {held} of {} (promise 1)", limits.tenant_disk);
        }
        let status = self.store().status();
        assert!(disk <= status.disk_used && status.disk_used <= self.disk_limit, "{disk} of {} (promise 1)", status.disk_used);
        let files = self.disk.bytes();
        assert!(files <= self.disk_limit, "{files} bytes of files (promise 1)");
    }

    fn check_keys(&self) {
        for number in 0..crate::run::KEYS {
            let hash = hash_of(b'k', number);
            let key = spillgate_queue::Key { hash, input: hash_of(b'i', 0), keep: std::time::Duration::ZERO };
            let expected = self.book.key_holder(&hash).map(|holder| {
                let held = self.book.jobs[&holder].keys.iter().find(|held| held.hash == hash).expect("the holder has it");
                (holder, held.input == key.input)
            });
            assert_eq!(
                self.store().find_key(&key),
                expected,
                "key {number} (promise 7), {:?}",
                expected.map(|(id, _)| &self.book.jobs[&id])
            );
        }
    }

    /// Notes and dead letters: they are read from disk.
    pub(crate) fn check_kept(&self) {
        for (index, book) in self.book.lanes.iter().enumerate() {
            for number in 0..crate::run::NOTES {
                let name = hash_of(b'n', number);
                let note = self.ask(self.store().note(&book.name, &name)).expect("a note can be read");
                assert_eq!(note.as_ref(), book.notes.get(&name), "note {number} of {:?}", book.name);
            }
            let expected = self.book.letters(index);
            let letters = match self.ask(self.store().dead(&book.name, None, 100)) {
                Ok(letters) => letters,
                Err(spillgate_queue::StoreError::NotFound) => Vec::new(),
                Err(error) => panic!("letters can be listed: {error}"),
            };
            assert_eq!(letters.iter().map(|letter| letter.job).collect::<Vec<_>>(), expected, "letters of {:?}", book.name);
            for letter in letters {
                let entry = &self.book.jobs[&letter.job];
                assert_eq!(letter.bytes, entry.content.len() as u64);
                let end = entry.end.as_ref().expect("it is dead");
                assert!(letter.outcome.is_none() || letter.outcome == end.outcome);
            }
        }
    }

    /// Takes from a lane: what is handed out must be what the book would hand out.
    pub(crate) fn take(&mut self, lane: usize, most: usize, lease: std::time::Duration) {
        let from = TakeFrom { lane: self.book.lanes[lane].name.clone(), most, lease };
        let taken = self.ask(self.store().take(from));
        self.settle();
        self.follow_all(lane);
        let eligible = self.book.eligible(lane);
        let sure: Vec<JobId> = eligible.iter().filter(|id| !self.book.jobs[id].pause_vague && !self.book.jobs[id].vague).copied().collect();
        let items = match taken.expect("a lane can be asked") {
            Take::Nothing { waits, .. } => {
                assert!(sure.is_empty(), "{sure:?} wait for a worker, and the store says {waits:?}");
                return;
            }
            Take::Items(items) => items,
        };
        let most = most.min(self.book.places_for_letters(lane));
        assert!(!items.is_empty() && items.len() <= most, "{} of {most} (dead letters stay within their limit)", items.len());
        let ids: Vec<JobId> = items.iter().map(|item| item.lease.job()).collect();
        let vague = |id: &JobId| self.book.jobs.get(id).is_some_and(|entry| entry.pause_vague || entry.vague);
        let in_order: Vec<JobId> = eligible.iter().filter(|id| !vague(id) || ids.contains(id)).take(ids.len()).copied().collect();
        if !ids.iter().any(vague) {
            let show = || ids.iter().chain(&in_order).map(|id| self.show(*id)).collect::<Vec<_>>().join("\n");
            assert_eq!(ids, in_order, "what a lane hands out, in order: {}", show());
        }
        let (now, recovered) = (self.book.now, self.store().status().recovered);
        for item in items {
            let id = item.lease.job();
            let entry = self.entry(id);
            assert_eq!(entry.state, JobState::Queued, "{id}");
            assert_eq!(item.content, entry.content, "{id}: content");
            assert_eq!(item.keys, entry.keys, "{id}: keys");
            if entry.vague {
                entry.interrupted = item.interrupted;
            }
            assert!(!entry.is_expired(now), "{id} has expired");
            assert_eq!(item.interrupted, entry.interrupted, "{id}: interrupted (promise 7): {entry:?}, {recovered:?}");
            if (entry.attempts_vague || entry.vague) && item.attempt <= entry.attempts {
                entry.attempts = item.attempt - 1;
            }
            assert_eq!(item.attempt, entry.attempts + 1, "{id}: attempt");
            assert_eq!(item.age.as_millis(), u128::from(now - entry.appended_at), "{id}: age");
            entry.vague = false;
            entry.pause_vague = false;
            entry.attempts_vague = false;
            entry.attempts += 1;
            entry.state = JobState::Running;
            entry.lease_until = now + u64::try_from(lease.as_millis()).expect("short");
            self.leases.insert(id, item.lease);
        }
    }
}
