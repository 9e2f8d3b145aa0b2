//! Who is served: taking calls out of their lines, giving and taking back seats, and keeping the order up to date.

use std::sync::Arc;
use std::time::Duration;

use super::FairSeats;
use super::adaptive::Evidence;
use super::asking::{Asking, Class, Held, Next, RefusalKind, Share, Ticket};
use super::codel;
use super::estimate::{Estimate, HoldTimes};
use super::order::{FAST, Filed, Key, Rank, SLOW, virtual_time};
use super::running::Running;
use super::tenants::Waiting;

/// What is known of a call's flow, and where that is kept.
type Measured = (Option<Estimate>, Option<Arc<HoldTimes>>);

/// Whether such a call is slow, or has to be taken for slow.
pub(super) fn is_slow(estimate: Option<Estimate>) -> bool {
    estimate.is_none_or(|estimate| estimate.slow)
}

impl FairSeats {
    /// For which speeds a seat is free.
    pub(super) fn room(&self) -> [bool; 2] {
        let (held, limit) = (self.seated.held(), self.limit());
        let free = held < self.reachable();
        // However low the limit, and whoever hangs: fast calls keep the seats that are theirs.
        let fast = free && (held < limit || self.seated.held_at(FAST) < self.pool.fast_only.max(1));
        let slow = free && held < limit && self.seated.held_at(SLOW) < self.slow_seats();
        [fast, slow]
    }
    /// Seats that slow calls may hold.
    fn slow_seats(&self) -> u32 {
        self.limit().saturating_sub(self.pool.fast_only).max(1)
    }
    /// Seats that calls of a speed may hold.
    pub(super) fn seats_for(&self, speed: usize) -> u32 {
        if speed == SLOW { self.slow_seats() } else { self.limit().max(1) }
    }
    /// Seats that may be held.
    pub(super) fn limit(&self) -> u32 {
        self.limit.seats(self.pool.max).min(self.reachable())
    }
    /// Seats that a tenant may hold: its limit goes down with that of the database.
    pub(super) fn limit_of(&self, share: &Share) -> u32 {
        share.limit_under(self.limit.seats(self.pool.max), self.pool.max)
    }
    fn reachable(&self) -> u32 {
        self.pool.max.saturating_sub(self.held_back)
    }
    pub(super) fn control_has_room(&self) -> bool {
        self.seated.of_control() < (self.pool.max / 4).max(1)
    }

    /// The next waiting call for which there is a seat. What it finds to be waiting in vain is put with the dropped.
    pub(super) fn serve(&mut self, now: Duration) -> Option<Next> {
        loop {
            let room = self.room();
            let key = self.order.first(room, self.control_has_room(), &self.floors)?;
            let taken = self.take_from(&key, room, now);
            if let Some((ticket, waiting)) = taken {
                let held = self.seat(key.tenant, key.class, (waiting.estimate, waiting.times), now);
                return Some(Next::Grant { ticket, held });
            }
            self.refile(key.tenant);
        }
    }

    /// Takes the call whose turn it is out of the queue that is next, and those before it that waited in vain.
    fn take_from(&mut self, key: &Key, room: [bool; 2], now: Duration) -> Option<(Ticket, Waiting)> {
        let speed = self.speed_next(key, room)?;
        let slow = speed == SLOW;
        let sheds = self.pool.adaptive && key.class != Class::Control;
        let ticket = |number| Ticket { number, tenant: key.tenant, class: key.class, slow };
        let mut dropped = Vec::new();
        let share = self.tenants.at(key.tenant).share;
        let seats = self.limit_of(&share).min(self.seats_for(speed)).min(self.tenants.at(key.tenant).most(speed));
        let target = codel::target(self.seated.hold(speed), share.line, seats);
        let tenant = self.tenants.get(key.tenant);
        let line = &mut tenant.queue(key.class).lines[speed];
        let stands = line.standing.turn(line.oldest_wait(now), target, now) && sheds;
        while stands && line.calls.len() > 1 && line.oldest_wait(now) > target {
            dropped.extend(line.take(false).map(|(number, waiting)| (number, waiting, RefusalKind::Shed)));
        }
        let mut taken = None;
        while taken.is_none()
            && let Some((number, waiting)) = line.take(stands)
        {
            if waiting.is_in_vain(sheds, now) {
                dropped.push((number, waiting, RefusalKind::WaitTooLong));
            } else {
                taken = Some((ticket(number), waiting));
            }
        }
        if line.calls.is_empty() {
            line.standing.emptied(now);
        }
        let gone = dropped.len() + usize::from(taken.is_some());
        self.left_line(key.tenant, key.class, speed, u32::try_from(gone).unwrap_or(u32::MAX));
        for (number, waiting, kind) in dropped {
            let refusal = self.refusal_of_waiting(kind, key, &waiting, now);
            self.dropped.push_back((ticket(number), refusal));
        }
        taken
    }

    /// A queue with calls of both speeds serves the one that came first.
    fn speed_next(&mut self, key: &Key, room: [bool; 2]) -> Option<usize> {
        let tenant = self.tenants.get(key.tenant);
        let may = [FAST, SLOW].map(|speed| room[speed] && tenant.leaves_enough(speed));
        let lines = &tenant.queue(key.class).lines;
        let first = |speed: usize| lines[speed].calls.first_key_value().map(|(number, _)| *number).filter(|_| may[speed]);
        [FAST, SLOW].into_iter().filter_map(|speed| Some((first(speed)?, speed))).min().map(|(_, speed)| speed)
    }

    /// So many calls are no longer in line.
    pub(super) fn left_line(&mut self, tenant: usize, class: Class, speed: usize, calls: u32) {
        self.tenants.get(tenant).waiting -= calls;
        self.backlog.waiting[class as usize][speed] -= calls;
    }

    /// A call gets a seat, and its queue is charged what it is expected to hold.
    pub(super) fn seat(&mut self, place: usize, class: Class, (estimate, times): Measured, now: Duration) -> Held {
        let slow = is_slow(estimate);
        let charged = estimate.map_or_else(|| self.seated.charge_of_unmeasured(), |estimate| estimate.hold);
        let clock = &mut self.clocks[class as usize];
        let tenant = self.tenants.get(place);
        let weight = tenant.share.weight;
        tenant.held += 1;
        tenant.slow.held += u32::from(slow);
        let queue = tenant.queue(class);
        queue.held += 1;
        // One that waited keeps its claim, were its tag set back behind the clock.
        let start = if queue.filed.is_some() { queue.finish } else { queue.finish.max(*clock) };
        *clock = start.max(*clock);
        queue.finish = start + virtual_time(charged, weight);
        self.floors.used(class, charged, |class| self.backlog.waits(class));
        self.refile(place);
        let usual = estimate.as_ref().map(Evidence::usual);
        let (granted, began, counted) = (now, now, now);
        self.seated.add(Running { tenant: place, class, slow, granted, charged, weight, usual, times, began, counted, connecting: false })
    }

    /// Calls that have held their seats for longer than was charged are charged what they held until now: who turns out slower than
    /// expected does not go first until its calls end.
    pub(super) fn charge_the_late(&mut self, now: Duration) {
        let mut late = Vec::new();
        for running in self.seated.iter_mut() {
            let held = now.saturating_sub(running.granted);
            let beyond = held.saturating_sub(running.charged);
            if beyond.is_zero() {
                continue;
            }
            running.charged = held;
            let class = running.class;
            let queue = self.tenants.get(running.tenant).queue(class);
            queue.finish += virtual_time(beyond, running.weight);
            if !self.backlog.waits(class) {
                // What is used while nobody waits is not owed.
                let clock = &mut self.clocks[class as usize];
                *clock = queue.finish.max(*clock);
            }
            self.floors.used(class, beyond, |class| self.backlog.waits(class));
            late.push(running.tenant);
        }
        late.sort_unstable();
        late.dedup();
        late.into_iter().for_each(|place| self.refile(place));
    }

    /// A seat came back: its queue is charged what it really held.
    pub(super) fn settle(&mut self, mut running: Running, answered: bool, now: Duration) {
        let cost = now.saturating_sub(running.granted);
        let (class, place) = (running.class, running.tenant);
        let tenant = self.tenants.get(place);
        tenant.evidence.count(&mut running, now);
        if answered {
            tenant.evidence.answered(&running);
        }
        tenant.held -= 1;
        tenant.slow.held -= u32::from(running.slow);
        let queue = tenant.queue(class);
        queue.held -= 1;
        let real = queue.finish + virtual_time(cost, running.weight);
        queue.finish = real.saturating_sub(virtual_time(running.charged, running.weight));
        if !self.backlog.waits(class) {
            // What is used while nobody waits is not owed.
            let clock = &mut self.clocks[class as usize];
            *clock = queue.finish.max(*clock);
        }
        self.floors.used(class, cost.saturating_sub(running.charged), |class| self.backlog.waits(class));
        self.refile(place);
    }

    /// A call joins its line.
    pub(super) fn join(&mut self, place: usize, asking: &Asking<'_>, now: Duration) -> Ticket {
        let slow = is_slow(asking.estimate);
        let ticket = Ticket { number: self.next_number, tenant: place, class: asking.class, slow };
        self.next_number += 1;
        let tenant = self.tenants.get(place);
        tenant.waiting += 1;
        let queue = tenant.queue(asking.class);
        let line = &mut queue.lines[usize::from(slow)];
        if line.calls.is_empty() {
            line.standing.first_joins(now);
        }
        let waiting = Waiting { asked: now, deadline: asking.deadline, estimate: asking.estimate, times: asking.times.cloned() };
        line.calls.insert(ticket.number, waiting);
        self.backlog.waiting[asking.class as usize][usize::from(slow)] += 1;
        self.refile(place);
        ticket
    }

    /// The limit moved, and with it that of each tenant.
    pub(super) fn refile_all(&mut self) {
        self.tenants.places().for_each(|place| self.refile(place));
    }

    /// Brings a tenant's places in the order up to date: after every change of what it holds, what waits, or what it may.
    pub(super) fn refile(&mut self, place: usize) {
        let tenant = self.tenants.at(place);
        if tenant.waiting == 0 && tenant.backlogged == 0 {
            return;
        }
        let may = tenant.held < self.limit_of(&tenant.share);
        for class in Class::ALL {
            let tenant = self.tenants.get(place);
            let is_reserved = tenant.held < tenant.share.reserved;
            let weight = tenant.share.weight.max(1);
            let leaves_enough = [FAST, SLOW].map(|speed| tenant.leaves_enough(speed));
            let queue = tenant.queue(class);
            let waiting = queue.speeds();
            let waits = waiting != [false, false];
            let speeds = [FAST, SLOW].map(|speed| waiting[speed] && leaves_enough[speed]);
            let may = may && speeds != [false, false];
            if !waits && queue.backlogged == 0 {
                continue;
            }
            let backlogged = if waits { weight } else { 0 };
            let weights = &mut self.backlog.weights[class as usize];
            *weights = *weights + u64::from(backlogged) - u64::from(queue.backlogged);
            let counted = u32::from(queue.backlogged > 0);
            queue.backlogged = backlogged;
            let before = queue.filed.take();
            if waits && may {
                if before.is_none() {
                    // It wanted no seat until now, or could have none: it has saved up no claim.
                    queue.finish = queue.finish.max(self.clocks[class as usize]);
                }
                let rank = match class {
                    Class::Control => Rank::Control,
                    _ if is_reserved => Rank::Reserved,
                    _ => Rank::Class(class),
                };
                // It keeps its place among equals until it is served.
                let turn = before.filter(|before| before.key.start == queue.finish).map_or(self.next_turn, |before| before.key.turn);
                let key = Key { class, start: queue.finish, turn, tenant: place };
                queue.filed = Some(Filed { rank, key, speeds });
            }
            if before != queue.filed {
                self.next_turn += 1;
                before.iter().for_each(|filed| self.order.take_out(filed));
                queue.filed.iter().for_each(|filed| self.order.file(filed));
            }
            tenant.backlogged = tenant.backlogged + u32::from(waits) - counted;
        }
    }
}
