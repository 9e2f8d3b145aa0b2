//! The seats that are held, and how long seats are held.

use std::sync::Arc;
use std::time::Duration;

use super::asking::{Class, Held};
use super::estimate::HoldTimes;
use super::order::{FAST, SLOW};

/// A call that holds its seat for longer is slow.
pub(super) const SLOW_FROM: Duration = Duration::from_millis(250);

const UNKNOWN_HOLD: Duration = Duration::from_millis(10);

/// A held seat.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) tenant: usize,
    pub(super) class: Class,
    pub(super) slow: bool,
    pub(super) granted: Duration,
    /// The connection-seconds its queue was charged for it until now, and by which weight.
    pub(super) charged: Duration,
    pub(super) weight: u32,
    pub(super) usual: Option<Duration>,
    pub(super) times: Option<Arc<HoldTimes>>,
    /// Since when the database works for it, and until when that is counted as evidence.
    pub(super) began: Duration,
    pub(super) counted: Duration,
    pub(super) connecting: bool,
}

/// All held seats.
#[derive(Debug)]
pub(super) struct Seated {
    places: Vec<Option<Running>>,
    free: Vec<usize>,
    /// By speed.
    held: [u32; 2],
    of_control: u32,
    /// Mean hold time by speed, and what was expected of the last call.
    hold: [Option<Duration>; 2],
    expected: [Option<Duration>; 2],
    /// When a seat was last known to be free, by speed: it came back, or was given away.
    pub(super) moved: [Duration; 2],
}

impl Seated {
    pub(super) fn new(max: u32) -> Self {
        let room = usize::try_from(max).unwrap_or(0).min(1_024);
        Seated {
            places: Vec::with_capacity(room),
            free: Vec::with_capacity(room),
            held: [0; 2],
            of_control: 0,
            hold: [None; 2],
            expected: [None; 2],
            moved: [Duration::ZERO; 2],
        }
    }
    pub(super) fn add(&mut self, running: Running) -> Held {
        let speed = usize::from(running.slow);
        self.held[speed] += 1;
        self.moved[speed] = running.granted;
        if running.usual.is_some() {
            // What is expected of it is the best that is known until the first one comes back.
            self.expected[speed] = Some(running.charged);
        }
        self.of_control += u32::from(running.class == Class::Control);
        let place = self.free.pop().unwrap_or(self.places.len());
        if place == self.places.len() {
            self.places.push(Some(running));
        } else {
            self.places[place] = Some(running);
        }
        Held { place }
    }
    /// Takes a seat back.
    pub(super) fn remove(&mut self, held: &Held, took: Option<Duration>, now: Duration) -> Option<Running> {
        let running = self.places.get_mut(held.place)?.take()?;
        self.free.push(held.place);
        let speed = usize::from(running.slow);
        self.held[speed] -= 1;
        self.of_control -= u32::from(running.class == Class::Control);
        self.moved[speed] = now;
        if let Some(took) = took {
            let mean = &mut self.hold[speed];
            *mean = Some(mean.map_or(took, |mean| (mean * 7 + took) / 8));
        }
        Some(running)
    }
    pub(super) fn get(&mut self, held: &Held) -> Option<&mut Running> {
        self.places.get_mut(held.place)?.as_mut()
    }
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Running> {
        self.places.iter_mut().flatten()
    }
    /// Looks at all held seats; calls that hold theirs for too long are slow from now on.
    pub(super) fn look(&mut self, now: Duration, mut at: impl FnMut(&mut Running)) {
        for running in self.places.iter_mut().flatten() {
            at(running);
            if !running.slow && !running.connecting && now.saturating_sub(running.granted) > SLOW_FROM {
                running.slow = true;
                running.times.iter().for_each(|times| times.overran());
                self.held[FAST] -= 1;
                self.held[SLOW] += 1;
            }
        }
    }
    pub(super) fn held(&self) -> u32 {
        self.held[FAST] + self.held[SLOW]
    }
    pub(super) fn held_at(&self, speed: usize) -> u32 {
        self.held[speed]
    }
    pub(super) fn of_control(&self) -> u32 {
        self.of_control
    }
    /// How long a seat is held; before the first one came back, so little that nobody is refused for a guess.
    pub(super) fn hold(&self, speed: usize) -> Duration {
        self.hold[speed].or(self.expected[speed]).unwrap_or(UNKNOWN_HOLD)
    }
    /// What a call is charged that is not yet measured.
    pub(super) fn charge_of_unmeasured(&self) -> Duration {
        self.hold[SLOW].unwrap_or(SLOW_FROM)
    }
}
