//! When a schedule is due. Pure; both clocks are passed in.
//!
//! Invariants
//! 1. `every` counts on the steady clock from a round moment of UTC; setting the wall clock changes nothing (case E7).
//! 2. `cron` follows the wall clock, looked at often: one that is set back neither stops it nor makes up for anything, one that is set
//!    forward gives one tick for all that were passed over.
//! 3. Ticks that were missed are never made up for.

use std::time::Duration;

use spillgate_config::plan::When;
use tokio::time::Instant;

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub(super) steady: Instant,
    /// Since 1970.
    pub(super) wall: Duration,
}

/// How often the wall clock is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// The next tick of a schedule.
#[derive(Clone, Copy, Debug)]
pub(super) enum Next {
    Every {
        due: Instant,
    },
    Cron {
        due: i64,
        seen: i64,
    },
    /// The expression fits no day any more.
    Never,
}

/// What a look at a schedule says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Not,
    /// `missed`: how many were passed over before it.
    Now {
        missed: u64,
    },
}

impl Next {
    pub(super) fn first(when: &When, now: Now) -> Next {
        match when {
            When::Every(every) => {
                let every = (*every).max(Duration::from_millis(1));
                let past = now.wall.as_nanos() % every.as_nanos();
                let past = Duration::from_nanos(u64::try_from(past).unwrap_or_default());
                Next::Every { due: now.steady + (every - past) }
            }
            When::Cron(cron) => {
                let wall = seconds(now.wall);
                cron.next_after(wall).map_or(Next::Never, |due| Next::Cron { due, seen: wall })
            }
        }
    }

    /// Whether a tick is due; the next one is found then.
    pub(super) fn look(&mut self, when: &When, now: Now) -> Due {
        match (&mut *self, when) {
            (Next::Every { due }, When::Every(every)) if *due <= now.steady => {
                let every = (*every).max(Duration::from_millis(1));
                let missed = u64::try_from((now.steady - *due).as_nanos() / every.as_nanos()).unwrap_or(u64::MAX);
                *due = u32::try_from(missed + 1).map_or(now.steady + every, |ticks| *due + every * ticks);
                Due::Now { missed }
            }
            (Next::Cron { due, seen }, When::Cron(cron)) => {
                let wall = seconds(now.wall);
                let is_due = wall >= *due;
                let set_back = wall < *seen;
                *seen = wall;
                if is_due || set_back {
                    match cron.next_after(wall) {
                        Some(next) => *due = next,
                        None => *self = Next::Never,
                    }
                }
                if is_due { Due::Now { missed: 0 } } else { Due::Not }
            }
            _ => Due::Not,
        }
    }

    /// When to look again.
    pub(super) fn look_at(&self, now: Now) -> Option<Instant> {
        match self {
            Next::Every { due } => Some(*due),
            Next::Cron { due, .. } => {
                let left = u64::try_from(due - seconds(now.wall)).map_or(Duration::ZERO, Duration::from_secs);
                Some(now.steady + left.clamp(Duration::from_millis(10), LOOK))
            }
            Next::Never => None,
        }
    }
}

fn seconds(wall: Duration) -> i64 {
    i64::try_from(wall.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(start: Instant, steady: Duration, wall: u64) -> Now {
        Now { steady: start + steady, wall: Duration::from_secs(wall) }
    }

    #[test]
    fn e7_every_keeps_its_pace_whatever_is_done_to_the_wall_clock() {
        let (start, when) = (Instant::now(), When::Every(MINUTE));
        let mut next = Next::first(&when, at(start, Duration::ZERO, 1_000_010));
        // 1,000,010 is 50 seconds past a minute.
        let first = Duration::from_secs(10);
        assert_eq!(next.look_at(at(start, Duration::ZERO, 0)), Some(start + first));
        assert_eq!(next.look(&when, at(start, first - Duration::from_millis(1), 5_000_000)), Due::Not);
        assert_eq!(next.look(&when, at(start, first, 0)), Due::Now { missed: 0 });
        assert_eq!(next.look(&when, at(start, first, 9_999_999)), Due::Not);
        assert_eq!(next.look(&when, at(start, first + MINUTE, 7)), Due::Now { missed: 0 });
    }

    #[test]
    fn ticks_that_were_missed_are_skipped() {
        let (start, when) = (Instant::now(), When::Every(MINUTE));
        let mut next = Next::first(&when, at(start, Duration::ZERO, 0));
        assert_eq!(next.look(&when, at(start, MINUTE * 5, 0)), Due::Now { missed: 4 });
        assert_eq!(next.look_at(at(start, MINUTE * 5, 0)), Some(start + MINUTE * 6));
    }

    /// As a flow file has it.
    fn cron(written: &str) -> When {
        let server = "[server]\nflows = \"flows\"\n[database.a]\ndriver = \"sqlite\"\nconnection = \"a.db\"\n[tenant.t]\nkeys = [\"k\"]\n";
        let flow = format!("name = \"f\"\neffect = \"read\"\n[schedule]\ncron = \"{written}\"\ntenant = \"t\"\n[[step]]\nmap = \"1\"\n");
        let source = spillgate_config::source::Memory::default().file("server.toml", server).file("flows/f.toml", flow);
        let plan = spillgate_config::load_from(&source, std::path::Path::new("server.toml")).expect("a plan");
        plan.flows[0].schedule.clone().expect("it is scheduled").when
    }

    /// Looks each second, as the task does: at which steady seconds a tick came.
    fn ticks(when: &When, wall_at: impl Fn(u64) -> u64, seconds: u64) -> Vec<u64> {
        let start = Instant::now();
        let moment = |second: u64| at(start, Duration::from_secs(second), wall_at(second));
        let mut next = Next::first(when, moment(0));
        (0..seconds).filter(|second| next.look(when, moment(*second)) != Due::Not).collect()
    }

    #[test]
    fn e7_cron_goes_on_when_the_wall_clock_is_set_back_and_makes_up_for_nothing_when_set_forward() {
        let when = cron("*/5 * * * *");
        let begin = 1_800_000_000 / 300 * 300;
        assert_eq!(ticks(&when, |second| begin + 10 + second, 1_000), [290, 590, 890]);
        // An hour back after 400 seconds: the next round moment comes as ever.
        let back = |second: u64| begin + 10 + second - if second > 400 { 3_600 } else { 0 };
        assert_eq!(ticks(&when, back, 1_000), [290, 590, 890]);
        // An hour forward: one tick for the twelve that were passed over.
        let forward = |second: u64| begin + 10 + second + if second > 400 { 3_600 } else { 0 };
        assert_eq!(ticks(&when, forward, 1_000), [290, 401, 590, 890]);
    }

    #[test]
    fn a_wait_for_cron_is_short_so_that_a_set_clock_is_seen() {
        let (start, when) = (Instant::now(), cron("0 0 1 1 *"));
        let now = at(start, Duration::ZERO, 1_800_000_000);
        assert_eq!(Next::first(&when, now).look_at(now), Some(start + LOOK));
    }
}
