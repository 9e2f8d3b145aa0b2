//! How long a call would wait, and what it is told when that is too long.
//!
//! In start-time fair queuing the wait follows from the tags: a call is served when the virtual time of its class has come to its own
//! start, and virtual time passes as seats over the weights of those who wait. No call waits longer than all work before it takes.

use std::time::Duration;

use super::FairSeats;
use super::asking::{Asking, Class, RefusalKind, SeatRefusal, Share};
use super::order::{FAST, Key, SLOW};
use super::serving::is_slow;
use super::tenants::{Queue, Tenant, Waiting};

/// Nobody is told to wait for longer.
const LONGEST: f64 = 3_600.0;
/// Nobody is told to come back sooner (seconds).
const SHORTEST: f64 = 0.001;
/// Turns of those who were refused reach at least so far ahead.
const TURNS: Duration = Duration::from_secs(1);
/// Seats that were due so many times over did not come back: the time since one was last given or came back counts.
const STALLED: f64 = 2.0;

/// A call that waits, or would.
struct Position {
    class: Class,
    speed: usize,
    share: Share,
    /// Calls of its line that go first.
    ahead: u32,
}

impl FairSeats {
    /// How long such a call would wait.
    pub(super) fn forecast(&self, asking: &Asking<'_>, now: Duration) -> Duration {
        let tenant = self.tenants.find(asking.tenant);
        if self.is_free(asking, tenant) {
            return Duration::ZERO;
        }
        let speed = usize::from(is_slow(asking.estimate));
        let line = tenant.map(|tenant| &tenant.queues[asking.class as usize].lines[speed]);
        // While a line stands, the newest goes first.
        let ahead = line.filter(|line| !line.standing.stands()).map_or(0, |line| u32::try_from(line.calls.len()).unwrap_or(u32::MAX));
        let position = Position { class: asking.class, speed, share: asking.share, ahead };
        self.wait_of(&position, tenant, now)
    }

    /// Whether such a call would have a seat at once.
    pub(super) fn is_free(&self, asking: &Asking<'_>, tenant: Option<&Tenant>) -> bool {
        let (room, speed) = (self.room(), usize::from(is_slow(asking.estimate)));
        room[speed]
            && tenant.is_none_or(|tenant| tenant.leaves_enough(speed))
            && tenant.map_or(0, |tenant| tenant.held) < self.limit_of(&asking.share)
            && (asking.class != Class::Control || self.control_has_room())
            && !self.order.any(room)
    }

    /// What speaks against letting such a call wait.
    pub(super) fn refusal_of(&mut self, asking: &Asking<'_>, waiting: u32, now: Duration) -> Option<SeatRefusal> {
        let wait = self.forecast(asking, now);
        let is_full = waiting >= asking.share.line;
        let sheds = self.pool.adaptive && asking.class != Class::Control;
        let kind = match beyond(asking, wait, now) {
            _ if is_full => RefusalKind::LineFull,
            beyond if sheds && !beyond.is_zero() => RefusalKind::WaitTooLong,
            _ => return None,
        };
        let retry_after = self.turn(asking, wait, now);
        Some(SeatRefusal { kind, waiting, expected_wait: wait, retry_after })
    }

    /// A call is taken out of its line without a seat. It is told when another that may take as long would not be.
    pub(super) fn refusal_of_waiting(&mut self, kind: RefusalKind, key: &Key, gone: &Waiting, now: Duration) -> SeatRefusal {
        let tenant = self.tenants.get(key.tenant);
        let (waiting, share) = (tenant.waiting, tenant.share);
        let name = tenant.name.clone();
        let deadline = now + gone.deadline.saturating_sub(gone.asked);
        let asking = Asking { tenant: &name, share, class: key.class, estimate: gone.estimate, times: None, deadline };
        let expected_wait = self.forecast(&asking, now);
        let retry_after = self.turn(&asking, expected_wait, now);
        SeatRefusal { kind, waiting, expected_wait, retry_after }
    }

    /// When a refused call may come back: once it would be done before its deadline, and a seat's time after the one that was refused
    /// before it, so that each finds a place that the others left. Turns reach a deadline ahead, or a second: by then all that waits now
    /// has been served, or has left.
    fn turn(&mut self, asking: &Asking<'_>, wait: Duration, now: Duration) -> Duration {
        let speed = usize::from(is_slow(asking.estimate));
        let apart = self.apart(asking, speed, now);
        let first = now + beyond(asking, wait, now).max(apart);
        let last = first + asking.deadline.saturating_sub(now).max(TURNS);
        let Some(tenant) = self.tenants.find_mut(asking.tenant) else { return first.saturating_sub(now) };
        let turn = &mut tenant.turns[speed];
        let next = first.max(*turn + apart);
        // All turns are given: from the first again.
        *turn = if next > last { first } else { next };
        turn.saturating_sub(now)
    }

    /// The time between two seats for such calls of one tenant.
    fn apart(&self, asking: &Asking<'_>, speed: usize, now: Duration) -> Duration {
        let queue = self.tenants.find(asking.tenant).map(|tenant| &tenant.queues[asking.class as usize]);
        let fair =
            f64::from(self.seats_for(speed)) * f64::from(asking.share.weight.max(1)) / self.weights(asking.class, &asking.share, queue);
        let own = fair.min(f64::from(self.limit_of(&asking.share).max(1)));
        duration(self.seated.hold(speed).as_secs_f64() / own).max(self.interval(speed, now))
    }

    /// The weights of those who want seats in a class, one of this share among them.
    fn weights(&self, class: Class, share: &Share, queue: Option<&Queue>) -> f64 {
        let joins = if queue.is_none_or(|queue| queue.backlogged == 0) { u64::from(share.weight.max(1)) } else { 0 };
        // Weights are at most thousands for each tenant: exact as a float.
        #[allow(clippy::cast_precision_loss)]
        let weights = (self.backlog.weights[class as usize] + joins) as f64;
        weights
    }

    fn wait_of(&self, position: &Position, tenant: Option<&Tenant>, now: Duration) -> Duration {
        let Position { class, speed, share, ahead } = *position;
        let hold = self.seated.hold(speed).as_secs_f64();
        let seats = f64::from(self.seats_for(speed));
        let held = tenant.map_or(0, |tenant| tenant.held);
        let surplus = (self.seated.held() + 1).saturating_sub(self.limit()).max(1);
        let next = self.interval(speed, now).as_secs_f64() * f64::from(surplus);
        let own_limit = self.limit_of(&share);
        let own_limit = own_limit.min(tenant.map_or(u32::MAX, |tenant| tenant.most(speed)));
        let at_own_limit = if held >= own_limit { hold * f64::from(ahead + 1) / f64::from(own_limit.max(1)) } else { 0.0 };
        if held < share.reserved || class == Class::Control {
            return duration(next.max(at_own_limit));
        }
        let queue = tenant.map(|tenant| &tenant.queues[class as usize]);
        let lead = queue.map_or(0, |queue| queue.finish.saturating_sub(self.clocks[class as usize]) >> 10);
        let lead = Duration::from_nanos(u64::try_from(lead).unwrap_or(u64::MAX)).as_secs_f64();
        let weights = self.weights(class, &share, queue);
        let fair = (lead + f64::from(ahead) * hold / f64::from(share.weight.max(1))) * weights / seats;
        let work = |class: Class| hold * f64::from(self.backlog.waiting[class as usize][speed]) / seats;
        let above: f64 = Class::ALL.into_iter().filter(|other| *other < class).map(work).sum();
        duration((next + above + fair.min(work(class))).max(at_own_limit))
    }

    /// The time between two seats that come free for calls of this speed.
    pub(super) fn interval(&self, speed: usize, now: Duration) -> Duration {
        let rate = |speed: usize| f64::from(self.seated.held_at(speed)) / self.seated.hold(speed).as_secs_f64().max(1e-6);
        let (rate, moved) = if speed == SLOW {
            (rate(SLOW), self.seated.moved[SLOW])
        } else {
            (rate(FAST) + rate(SLOW), self.seated.moved[FAST].max(self.seated.moved[SLOW]))
        };
        let hold = self.seated.hold(speed).as_secs_f64();
        let expected = if rate > 0.0 { (1.0 / rate).min(hold) } else { hold };
        let since = now.saturating_sub(moved).as_secs_f64();
        duration(if since > STALLED * hold { expected.max(since) } else { expected }.max(SHORTEST))
    }
}

/// By how much a call that waits so long would miss its deadline.
fn beyond(asking: &Asking<'_>, wait: Duration, now: Duration) -> Duration {
    let left = asking.deadline.saturating_sub(now);
    // An estimate alone never refuses: only a call that runs can show that it was too high.
    let own = asking.estimate.map_or(Duration::ZERO, |estimate| estimate.hold).min(left / 2);
    (wait + own).saturating_sub(left)
}

fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.min(LONGEST)).unwrap_or(Duration::ZERO)
}
