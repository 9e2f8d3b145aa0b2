//! What to do next: commands made up by chance, as far as the model can tell what comes of them.

use bytes::Bytes;
use spillgate_queue::{JobId, JobState, Key, NewItem, Unique};

use crate::commands::{Act, Finish};
use crate::rig::content;
use crate::run::{KEYS, NOTES, UNIQUES, World, hash_of};

/// What a group of commands that are on their way together is already about.
#[derive(Debug, Default)]
struct Group {
    jobs: Vec<JobId>,
    /// Lanes that get new items: which comes first could not be told.
    adding: Vec<usize>,
    noted: bool,
}

impl World {
    pub(crate) fn new_content(&mut self) -> Bytes {
        self.contents += 1;
        let length = match self.chance.below(20) {
            0..2 => 0,
            2..12 => self.chance.below(300),
            12..17 => self.chance.below(8_000),
            17..19 => 60_000 + self.chance.below(8_000),
            _ => 100_000 + self.chance.below(100_000),
        };
        content(self.contents, usize::try_from(length).expect("small"))
    }

    pub(crate) fn item(&mut self) -> NewItem {
        let mut item = NewItem { content: self.new_content(), ..NewItem::default() };
        if self.chance.one_in(3) {
            item.order = Some(self.chance.below(3));
        }
        if self.chance.one_in(4) {
            item.expires_in = Some(self.span(90));
        }
        item
    }

    fn keyed_item(&mut self) -> NewItem {
        let mut item = self.item();
        for _ in 0..self.chance.below(3) {
            let hash = hash_of(b'k', self.chance.below(KEYS));
            if item.keys.iter().all(|key| key.hash != hash) {
                item.keys.push(Key { hash, input: hash_of(b'i', self.chance.below(2)), keep: self.span(100) });
            }
        }
        if self.chance.one_in(3) {
            item.unique = Some(Unique { hash: hash_of(b'u', self.chance.below(UNIQUES)), within: self.span(100) });
        }
        item.claimed = self.chance.one_in(6);
        item
    }

    /// Some commands that may be on their way together: about different jobs, and at most one that adds to a lane.
    pub(crate) fn acts(&mut self) -> Vec<Act> {
        if self.chance.one_in(3) {
            let lane = self.any_lane();
            let items = (0..=self.chance.below(3)).map(|_| self.keyed_item()).collect();
            return vec![Act::Append { lane, items }];
        }
        if self.chance.one_in(8) {
            let lane = self.any_lane();
            // Which of them may make way must be known, and which number comes next: there is room though all was full before.
            if self.book.lanes[lane].exact && !self.book.unended(lane).any(|(_, entry)| entry.vague) {
                return vec![Act::Shed { lane, item: self.item() }];
            }
        }
        if self.chance.one_in(12) {
            let lane = self.any_lane();
            if self.book.unended(lane).any(|(_, entry)| entry.vague) {
                return Vec::new();
            }
            return vec![Act::Purge { lane, dead_too: self.chance.one_in(2) }];
        }
        if self.chance.one_in(15) {
            return self.replay().into_iter().collect();
        }
        let (mut acts, mut group) = (Vec::new(), Group::default());
        for _ in 0..=self.chance.below(4) {
            acts.extend(self.act(&mut group));
        }
        acts
    }

    /// Alone, as whether its keys are free hangs on what else is on its way.
    fn replay(&mut self) -> Option<Act> {
        let lane = self.any_lane();
        let letters = self.book.letters(lane);
        let letter = self.pick(&letters).filter(|_| self.book.lanes[lane].exact)?;
        Some(Act::Replay { letter })
    }

    fn act(&mut self, group: &mut Group) -> Option<Act> {
        let of = |state: JobState| -> Vec<JobId> {
            self.book
                .jobs
                .iter()
                .filter(|(id, entry)| entry.state == state && !entry.forgotten && !group.jobs.contains(id))
                .map(|(id, _)| *id)
                .collect()
        };
        let (waiting, unknown) = (of(JobState::Queued), of(JobState::Unknown));
        let running: Vec<JobId> = self.leases.keys().filter(|id| !group.jobs.contains(id)).copied().collect();
        match self.chance.below(20) {
            0..6 => {
                let lane = self.any_lane();
                if group.adding.contains(&lane) {
                    return None;
                }
                group.adding.push(lane);
                let items = (0..=self.chance.below(3)).map(|_| self.item()).collect();
                Some(Act::Append { lane, items })
            }
            6..9 => {
                let id = self.pick(&running)?;
                group.jobs.push(id);
                Some(Act::Start { id })
            }
            9..15 => {
                let id = self.pick(&running)?;
                group.jobs.push(id);
                let finish = self.finish(group);
                Some(Act::Finish { id, finish })
            }
            15..17 => {
                let id = self.pick(&running)?;
                group.jobs.push(id);
                Some(Act::Release { id, pause: self.span(20), counts: self.chance.one_in(2) })
            }
            17 => {
                let id = self.pick(&waiting)?;
                if self.book.jobs[&id].interrupted || self.book.jobs[&id].vague {
                    return None;
                }
                group.jobs.push(id);
                Some(Act::Cancel { id })
            }
            _ => {
                let id = self.pick(&unknown)?;
                group.jobs.push(id);
                let state = if self.chance.one_in(2) { JobState::Succeeded } else { JobState::Failed };
                Some(Act::Resolve { id, state, outcome: Some(content(1, 50)) })
            }
        }
    }

    fn finish(&mut self, group: &mut Group) -> Finish {
        let states = [JobState::Succeeded, JobState::Succeeded, JobState::Failed, JobState::Dead, JobState::Unknown, JobState::Cancelled];
        let state = self.pick(&states).expect("there are some");
        let outcome = self.chance.one_in(2).then(|| self.new_content());
        let frees_keys = state == JobState::Failed && self.chance.one_in(2);
        let lane = self.any_lane();
        let mut emits = Vec::new();
        let there = self.book.lanes[lane].exact && self.book.lanes[lane].number.is_some();
        if state == JobState::Succeeded && self.chance.one_in(3) && there && !group.adding.contains(&lane) {
            group.adding.push(lane);
            emits.push((lane, (0..=self.chance.below(3)).map(|_| self.item()).collect()));
        }
        let note = (!group.noted && self.chance.one_in(4)).then(|| (hash_of(b'n', self.chance.below(NOTES)), content(self.contents, 40)));
        group.noted |= note.is_some();
        let keep = self.span(300);
        Finish { state, outcome, keep, frees_keys, emits, note }
    }
}
