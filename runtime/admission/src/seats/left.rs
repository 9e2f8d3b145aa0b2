//! What each tenant leaves to the others of the seats for slow calls.
//!
//! A statement that has begun is not stopped, so that fairness of the next turn alone is late: a call whose caller pauses for a moment
//! between two of them would find its seat taken for seconds by one who has more of them already. So the slow calls of a tenant leave to
//! each other one what it lately wanted, up to its fair share, and have the rest, or their own fair share, whichever is more. What is
//! left to a tenant that wants nothing any more is given to others within about a second.

use std::time::Duration;

use super::FairSeats;
use super::asking::Class;
use super::order::SLOW;
use super::tenants::Tenant;

/// What a tenant wants is the mean of what it held and waited for, with this time constant (seconds).
const MEMORY: f64 = 1.0;

/// The seats for slow calls that a tenant holds, wants, and may hold.
#[derive(Debug)]
pub(super) struct SlowSeats {
    pub(super) held: u32,
    /// The most it may hold beside what the others want.
    pub(super) most: u32,
    wanted: f64,
    /// The first class in which it wants some.
    class: Class,
    /// So many are left to it.
    kept: u32,
}

impl Default for SlowSeats {
    fn default() -> Self {
        SlowSeats { held: 0, most: u32::MAX, wanted: 0.0, class: Class::Background, kept: 0 }
    }
}

impl Tenant {
    /// Whether it may hold one more for a call of this speed, as far as others want some.
    pub(super) fn leaves_enough(&self, speed: usize) -> bool {
        speed != SLOW || self.slow.held < self.slow.most
    }
    /// Seats that it may hold for calls of this speed, as far as others want some.
    pub(super) fn most(&self, speed: usize) -> u32 {
        if speed == SLOW { self.slow.most.max(1) } else { u32::MAX }
    }
    /// What it wants now.
    fn want(&mut self, part: f64) {
        let mut now = f64::from(self.slow.held);
        let mut first = None;
        for (class, queue) in Class::ALL.into_iter().zip(&self.queues) {
            let waiting = u32::try_from(queue.lines[SLOW].calls.len()).unwrap_or(u32::MAX);
            now += f64::from(waiting);
            first = first.or((waiting > 0 || queue.held > 0).then_some(class));
        }
        self.slow.class = first.unwrap_or(self.slow.class);
        self.slow.wanted += (now - self.slow.wanted) * part;
    }
    /// In whole seats.
    fn wants(&self) -> u32 {
        // Not negative, and no more than seats and places in line.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let wanted = self.slow.wanted.round() as u32;
        wanted
    }
    fn weight(&self) -> u64 {
        u64::from(self.share.weight.max(1))
    }
}

impl FairSeats {
    /// Ten times a second, after so long. Whether it is another plan than before.
    pub(super) fn leave_to_others(&mut self, elapsed: Duration) -> bool {
        let part = 1.0 - (-elapsed.as_secs_f64() / MEMORY).exp();
        self.tenants.iter_mut().for_each(|tenant| tenant.slow.held = 0);
        for running in self.seated.iter_mut().filter(|running| running.slow) {
            self.tenants.get(running.tenant).slow.held += 1;
        }
        // Of tenants of a class and those above it, who are served before it in any case.
        let mut weights = [0; Class::ALL.len()];
        for tenant in self.tenants.iter_mut() {
            tenant.want(part);
            if tenant.wants() > 0 {
                weights[tenant.slow.class as usize..].iter_mut().for_each(|weights| *weights += tenant.weight());
            }
        }
        let seats = self.seats_for(SLOW);
        let fair = |weight: u64, of: u64| u64::from(seats) * weight / of.max(weight);
        let mut kept = [0_u32; Class::ALL.len()];
        for tenant in self.tenants.iter_mut() {
            let fair = fair(tenant.weight(), weights[tenant.slow.class as usize]);
            tenant.slow.kept = tenant.wants().min(tenant.share.limit).min(u32::try_from(fair).unwrap_or(seats));
            kept[tenant.slow.class as usize..].iter_mut().for_each(|kept| *kept += tenant.slow.kept);
        }
        let mut changed = false;
        for tenant in self.tenants.iter_mut() {
            let class = tenant.slow.class as usize;
            let joins = if tenant.wants() > 0 { 0 } else { tenant.weight() };
            let own = u32::try_from(fair(tenant.weight(), weights[class] + joins)).unwrap_or(seats).max(tenant.share.reserved).max(1);
            let most = seats.saturating_sub(kept[class] - tenant.slow.kept).max(own);
            // Who has all of them to itself is held up by what is free alone.
            let most = if most >= seats { u32::MAX } else { most };
            changed |= std::mem::replace(&mut tenant.slow.most, most) != most;
        }
        changed
    }
}
