//! After a crash: of every command that was not answered, find out whether it became true. Both are right; anything else is not.

use spillgate_queue::{JobId, JobState};

use crate::book::{Answer, Entry};
use crate::commands::{Act, STATE_KEEP};
use crate::run::World;

impl World {
    /// Nobody works any more; what was started is interrupted.
    pub(crate) fn forget_work(&mut self) {
        let running: Vec<JobId> = self.book.jobs.iter().filter(|(_, entry)| entry.state == JobState::Running).map(|(id, _)| *id).collect();
        for id in running {
            self.book.hand_back(id, 0);
        }
        for entry in self.book.jobs.values_mut().filter(|entry| !entry.state.is_end()) {
            entry.attempts_vague = true;
            // A pause that does not count as an attempt is only remembered.
            entry.pause_vague = entry.not_before > self.book.now;
        }
        for lane in &mut self.book.lanes {
            lane.paused = false;
        }
    }

    /// See the module.
    pub(crate) fn find_out(&mut self, act: &Act) {
        let state = |world: &World, id: JobId| world.store().job(id).map(|job| job.state);
        match act {
            Act::Append { lane, items } => self.find_appended(*lane, items),
            Act::Shed { lane, item } => {
                self.find_shed(*lane);
                self.find_appended(*lane, std::slice::from_ref(item));
            }
            Act::Start { id } => self.entry(*id).vague = true,
            Act::Release { id, pause, .. } => {
                let not_before = self.book.now + crate::book::milliseconds(*pause);
                let entry = self.entry(*id);
                (entry.vague, entry.pause_vague) = (true, true);
                entry.not_before = not_before;
            }
            Act::Finish { id, finish } => {
                let happened = state(self, *id) == Some(finish.state);
                self.find_emitted(finish.emits.iter().map(|(lane, items)| (*lane, items.len() as u64)), happened);
                if happened {
                    self.apply(act);
                }
            }
            Act::Cancel { id } => {
                if state(self, *id) == Some(JobState::Cancelled) {
                    self.apply(act);
                }
            }
            Act::Resolve { id, state: to, .. } => {
                if state(self, *id) == Some(*to) {
                    self.apply(act);
                }
            }
            Act::Purge { lane, .. } => {
                let waiting: Vec<JobId> = self.book.unended(*lane).map(|(id, _)| *id).collect();
                for id in waiting {
                    if state(self, id) == Some(JobState::Purged) && !self.book.jobs[&id].interrupted {
                        self.book.finish(id, JobState::Purged, None, STATE_KEEP, true);
                        self.entry(id).attempts_vague = true;
                    }
                }
                let left = self.ask(self.store().dead(&self.book.lanes[*lane].name, None, 100)).expect("letters can be listed");
                for id in self.book.letters(*lane) {
                    if left.iter().all(|letter| letter.job != id) {
                        self.drop_letter(id);
                    }
                }
            }
            Act::Replay { letter } => {
                let lane = self.book.jobs[letter].lane;
                let name = self.book.lanes[lane].name.clone();
                let letters = self.ask(self.store().dead(&name, None, 100)).expect("letters can be listed");
                let gone = letters.iter().all(|known| known.job != *letter);
                self.find_emitted([(lane, 1)].into_iter(), gone);
                if gone {
                    let new = self.book.next_id(lane).expect("it has a letter");
                    self.replayed(*letter, new);
                }
            }
        }
    }

    fn find_appended(&mut self, lane: usize, items: &[spillgate_queue::NewItem]) {
        let name = self.book.lanes[lane].name.clone();
        let number = self.store().lanes(None).into_iter().find(|status| status.name == name).map(|status| status.number);
        let Some(number) = number.filter(|number| *number > 0) else { return };
        // As it was when they were sent: one may have stood in the way of the next, and be lost now.
        let mut then = self.book.clone();
        for item in items {
            if then.answer(item) != Answer::New {
                continue;
            }
            let id = JobId { lane: number, sequence: then.lanes[lane].next_sequence };
            then.enter(id, Entry::new(lane, item, then.now));
            let Some(job) = self.store().job(id) else { continue };
            assert_eq!(job.state, JobState::Queued, "{id}");
            let mut entry = Entry::new(lane, item, self.book.now);
            entry.attempts_vague = true;
            self.book.enter(id, entry);
            if item.claimed {
                self.book.hand_back(id, 0);
            }
        }
    }

    /// Items that were handed on are there if and only if their origin is over.
    fn find_emitted(&mut self, emits: impl Iterator<Item = (usize, u64)>, happened: bool) {
        for (lane, count) in emits {
            let first = self.book.next_id(lane).expect("emits go to lanes that exist");
            for sequence in first.sequence..first.sequence + count {
                let id = JobId { sequence, ..first };
                assert_eq!(self.store().job(id).is_some(), happened, "{id} was handed on, and the end that it hangs on: {happened}");
            }
        }
    }
}
