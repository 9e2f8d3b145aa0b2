//! Which extents of the store's files are free.
//!
//! Extents are handed out from one file until it is used up, so that a batch usually touches one file. An extent is never handed out
//! while a record that makes it free is not durable: whoever releases one has waited for that.

/// Where an extent is: file number times extents per file plus index.
pub(crate) type Position = u32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Free,
    Held,
    /// It cannot be read; left as it is.
    Quarantined,
}

#[derive(Debug, Default)]
struct File {
    uses: Vec<Use>,
    free: u32,
    /// Where the search for a free one begins.
    next: usize,
}

/// All extents of a store.
#[derive(Debug)]
pub(crate) struct Extents {
    per_file: u32,
    files: Vec<Option<File>>,
    current: usize,
    free: u64,
    total: u64,
    quarantined: u64,
    /// Most that may be promised, whatever the files hold.
    most: u64,
}

impl Extents {
    pub(crate) fn new(per_file: u32, most: u64) -> Self {
        Extents { per_file, files: Vec::new(), current: 0, free: 0, total: 0, quarantined: 0, most }
    }

    /// A file with so many extents, all free.
    pub(crate) fn add_file(&mut self, number: usize, extents: u32) {
        if self.files.len() <= number {
            self.files.resize_with(number + 1, || None);
        }
        debug_assert!(self.files[number].is_none(), "a file is added once");
        self.files[number] = Some(File { uses: vec![Use::Free; extents as usize], free: extents, next: 0 });
        self.free += u64::from(extents);
        self.total += u64::from(extents);
    }

    /// Takes a file away that has no extent in use: whether it could.
    pub(crate) fn remove_file(&mut self, number: usize) -> bool {
        let Some(file) = self.files.get_mut(number).and_then(Option::as_mut) else { return false };
        if file.free as usize != file.uses.len() {
            return false;
        }
        self.free -= u64::from(file.free);
        self.total -= u64::from(file.free);
        self.files[number] = None;
        true
    }

    /// Takes away what of a file lies behind so many extents, if nothing stands there: whether it did.
    pub(crate) fn shorten_file(&mut self, number: usize, extents: u32) -> bool {
        let Some(file) = self.files.get_mut(number).and_then(Option::as_mut) else { return false };
        let kept = extents as usize;
        if file.uses.len() <= kept || file.uses[kept..].iter().any(|of| *of != Use::Free) {
            return false;
        }
        let gone = (file.uses.len() - kept) as u32;
        file.uses.truncate(kept);
        file.next = file.next.min(kept.saturating_sub(1));
        file.free -= gone;
        self.free -= u64::from(gone);
        self.total -= u64::from(gone);
        true
    }

    pub(crate) fn per_file(&self) -> u64 {
        u64::from(self.per_file)
    }
    /// How many a file has.
    pub(crate) fn file_extents(&self, number: usize) -> u64 {
        self.files.get(number).and_then(Option::as_ref).map_or(0, |file| file.uses.len() as u64)
    }

    fn file(&mut self, position: Position) -> Option<(&mut File, usize)> {
        let (number, index) = ((position / self.per_file) as usize, (position % self.per_file) as usize);
        let file = self.files.get_mut(number)?.as_mut()?;
        (index < file.uses.len()).then_some((file, index))
    }

    /// At a start: a lane has it.
    pub(crate) fn hold(&mut self, position: Position) {
        self.change(position, Use::Held);
    }

    /// At a start: it cannot be read.
    pub(crate) fn quarantine(&mut self, position: Position) {
        if self.change(position, Use::Quarantined) {
            self.quarantined += 1;
        }
    }

    /// What could not be read is said: it is used again.
    pub(crate) fn heal(&mut self, position: Position) {
        let Some((file, index)) = self.file(position) else { return };
        if file.uses[index] == Use::Quarantined {
            file.uses[index] = Use::Free;
            file.free += 1;
            self.free += 1;
            self.quarantined -= 1;
        }
    }
    /// Whether there is such an extent.
    pub(crate) fn has(&mut self, position: Position) -> bool {
        self.file(position).is_some()
    }

    fn change(&mut self, position: Position, to: Use) -> bool {
        let Some((file, index)) = self.file(position) else { return false };
        if file.uses[index] != Use::Free {
            return false;
        }
        file.uses[index] = to;
        file.free -= 1;
        self.free -= 1;
        true
    }

    /// Takes one into use. Files beyond the limit, left from a higher one, come last: they are to become free.
    pub(crate) fn allocate(&mut self) -> Option<Position> {
        let has_free = |file: &Option<File>| file.as_ref().is_some_and(|file| file.free > 0);
        if !self.files.get(self.current).is_some_and(has_free) || self.total > self.most {
            // The one with the most to give, the first of equals: what follows lies together.
            let first = |number: usize| u32::try_from(number * self.per_file as usize).unwrap_or(u32::MAX);
            let worth = |number: usize| (!self.lies_beyond(first(number)), self.files[number].as_ref().map_or(0, |file| file.free));
            let numbers = (0..self.files.len()).rev().filter(|number| has_free(&self.files[*number]));
            self.current = numbers.max_by_key(|number| worth(*number))?;
        }
        let (number, per_file) = (self.current, self.per_file);
        let most = if self.is_beyond_limit() { self.most } else { u64::MAX };
        let file = self.files[number].as_mut()?;
        let length = file.uses.len();
        // What the limit has left of it comes first.
        let within = usize::try_from(most.saturating_sub(number as u64 * u64::from(per_file))).unwrap_or(length).min(length);
        let next = file.next.min(within);
        let index = (next..within).chain(0..next).chain(within..length).find(|index| file.uses[*index] == Use::Free)?;
        file.next = (index + 1) % length;
        file.uses[index] = Use::Held;
        file.free -= 1;
        self.free -= 1;
        Some(u32::try_from(number * self.per_file as usize + index).unwrap_or(Position::MAX))
    }

    /// Gives one back.
    pub(crate) fn release(&mut self, position: Position) {
        let Some((file, index)) = self.file(position) else { return };
        assert_eq!(file.uses[index], Use::Held, "only what is held is given back");
        file.uses[index] = Use::Free;
        file.free += 1;
        self.free += 1;
    }

    /// Whether files are left from a higher limit.
    pub(crate) fn is_beyond_limit(&self) -> bool {
        self.total > self.most
    }
    /// Whether an extent is in a file that is to be given back.
    pub(crate) fn lies_beyond(&self, position: Position) -> bool {
        self.is_beyond_limit() && u64::from(position) >= self.most
    }
    /// Whether what lies beyond the limit could move: something within it is free.
    pub(crate) fn has_free_within(&self) -> bool {
        let within =
            |number: usize| usize::try_from(self.most.saturating_sub(number as u64 * u64::from(self.per_file))).unwrap_or(usize::MAX);
        let files = self.files.iter().enumerate().filter_map(|(number, file)| Some((within(number), file.as_ref()?)));
        files.filter(|(_, file)| file.free > 0).any(|(within, file)| file.uses.iter().take(within).any(|of| *of == Use::Free))
    }
    /// Extents that lanes may hold together.
    pub(crate) fn usable(&self) -> u64 {
        self.total.min(self.most) - self.quarantined.min(self.total)
    }
    /// The limit, whatever there is.
    pub(crate) fn most(&self) -> u64 {
        self.most
    }
    pub(crate) fn total(&self) -> u64 {
        self.total
    }
    pub(crate) fn free(&self) -> u64 {
        self.free
    }
    pub(crate) fn quarantined(&self) -> u64 {
        self.quarantined
    }
    pub(crate) fn held(&self) -> u64 {
        self.total - self.free - self.quarantined
    }
}

#[cfg(test)]
mod tests {
    use super::Extents;

    #[test]
    fn extents_of_one_file_are_used_up_before_another_is_begun() {
        let mut extents = Extents::new(4, u64::MAX);
        extents.add_file(0, 4);
        extents.add_file(1, 3);
        extents.quarantine(1);
        let mut taken: Vec<u32> = (0..6).map(|_| extents.allocate().expect("there are six")).collect();
        assert_eq!(extents.allocate(), None, "the quarantined one is not handed out");
        assert_eq!(taken[..3], [0, 2, 3]);
        taken.sort_unstable();
        assert_eq!(taken, [0, 2, 3, 4, 5, 6]);
        extents.release(2);
        assert_eq!(extents.allocate(), Some(2));
    }

    #[test]
    fn what_lies_beyond_the_limit_is_used_last_and_not_counted() {
        let mut extents = Extents::new(2, 4);
        (0..3).for_each(|file| extents.add_file(file, 2));
        assert!(extents.usable() == 4 && extents.has_free_within());
        let taken: Vec<_> = (0..5).filter_map(|_| extents.allocate()).collect();
        assert!(taken[..4].iter().all(|position| *position < 4) && taken[4] >= 4, "{taken:?}");
        assert!(!extents.has_free_within() && extents.free() > 0);
    }
}
