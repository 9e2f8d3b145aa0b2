use super::*;

fn limits() -> TenantLimits {
    TenantLimits {
        rate: Rate { calls: 2, period: Duration::from_secs(60), burst: 2 },
        in_flight: 1,
        memory: 100,
        run: RunLimits { calls: 2, depth: 1, retries: 1, ..RunLimits::default() },
        repeat_budget: Rate { calls: 1, period: Duration::from_secs(1), burst: 1 },
    }
}

/// A gate and the server's memory, of which 1,000 may be out.
#[derive(Default)]
struct World {
    gate: Arc<TenantGate>,
    server: Arc<Budget>,
}

impl World {
    fn enter(&self, run: Option<&str>, memory: u64) -> Result<Permit, Refusal> {
        self.enter_with(&limits(), run, 0, memory)
    }
    fn enter_with(&self, limits: &TenantLimits, run: Option<&str>, depth: u64, memory: u64) -> Result<Permit, Refusal> {
        let run: Option<Arc<str>> = run.map(Into::into);
        let call = Entering { run: run.as_ref(), depth, memory, now: Duration::ZERO };
        self.gate.enter(limits, &call, &self.server, 1_000)
    }
    /// Rate left, in flight, memory of tenant and server.
    fn taken(&self) -> (u64, u64, u64, u64) {
        let left = self.gate.rate_remaining(limits().rate, Duration::ZERO);
        (left, self.gate.in_flight(), self.gate.memory(), self.server.used())
    }
}

fn code(refused: Result<Permit, Refusal>) -> Code {
    refused.expect_err("it is refused").code
}

#[test]
fn e1_refused_calls_give_back_all_they_took() {
    let world = World::default();
    let first = world.enter(None, 10).expect("A runs");
    assert_eq!(code(world.enter(None, 10)), Code::InFlightExceeded);
    drop(first);
    assert_eq!(code(world.enter(None, 101)), Code::MemoryFull);
    drop(world.enter(None, 100).expect("C passes"));
    assert_eq!(code(world.enter(None, 1)), Code::RateExceeded);
    assert_eq!(world.taken(), (0, 0, 0, 0));
}

#[test]
fn e1_a_call_refused_behind_the_gate_gives_back_rate_and_run_calls_too() {
    let world = World::default();
    for _ in 0..50 {
        let permit = world.enter(Some("run"), 10).expect("nothing was used up");
        permit.give_back();
        permit.give_back();
    }
    assert_eq!((world.taken(), world.gate.runs().live()), ((2, 0, 0, 0), 0));
    assert_eq!(code(world.enter(Some("run"), 101)), Code::MemoryFull);
    assert_eq!((world.taken(), world.gate.runs().live()), ((2, 0, 0, 0), 0));
}

#[test]
fn the_gate_asks_rate_then_run_then_in_flight_then_memory() {
    // Everything is used up; limit after limit is lifted, and the next one in the order speaks.
    let world = World::default();
    let wide = TenantLimits { rate: Rate { calls: 1_000, period: Duration::from_secs(1), burst: 1_000 }, in_flight: 9, ..limits() };
    let held = [Some("run"), Some("run")].map(|run| world.enter_with(&wide, run, 0, 50).expect("within all limits"));
    let refused = |limits: &TenantLimits, depth| code(world.enter_with(limits, Some("run"), depth, 1));
    let spent = TenantLimits { rate: Rate { calls: 1, period: Duration::from_secs(3_600), burst: 1 }, in_flight: 1, ..limits() };
    assert_eq!(refused(&spent, 2), Code::RateExceeded);
    let more_rate = TenantLimits { rate: wide.rate, ..spent };
    assert_eq!(refused(&more_rate, 2), Code::RunExhausted);
    assert_eq!(refused(&more_rate, 1), Code::RunExhausted);
    let more_calls = TenantLimits { run: RunLimits::default(), ..more_rate };
    assert_eq!(refused(&more_calls, 1), Code::InFlightExceeded);
    let more_in_flight = TenantLimits { in_flight: 9, ..more_calls };
    assert_eq!(refused(&more_in_flight, 1), Code::MemoryFull);
    let more_memory = TenantLimits { memory: 1_000, ..more_in_flight };
    assert!(world.enter_with(&more_memory, Some("run"), 1, 1).is_ok());
    drop(held);
    assert_eq!((world.gate.in_flight(), world.gate.memory(), world.server.used()), (0, 0, 0));
}

#[test]
fn e1_a_refusal_for_memory_says_whose_memory_is_in_use() {
    let world = World::default();
    let refused = |memory: u64| world.enter(None, memory).expect_err("it is in use");
    assert_eq!((refused(101).scope, refused(101).policy.expect("a policy").name), (Scope::Tenant, "tenant.memory"));
    let held = world.server.reserve(950, 1_000).expect("nothing was reserved");
    let of_server = refused(51);
    assert_eq!((of_server.scope, of_server.policy.expect("a policy").name), (Scope::Server, "server.memory"));
    drop(held);
}

#[test]
fn calls_that_name_no_run_touch_no_table_of_runs() {
    let world = World::default();
    drop(world.enter(None, 1).expect("it runs"));
    assert_eq!(world.gate.runs().live(), 0);
    assert!(world.enter_with(&limits(), None, 9, 1).is_ok(), "it has its tenant's limits only");
}

#[test]
fn a_repeat_draws_on_its_run_then_on_the_tenant_and_a_refused_one_on_neither() {
    let world = World::default();
    let now = Duration::ZERO;
    let wide = TenantLimits { in_flight: 9, rate: Rate { calls: 9, period: Duration::from_secs(1), burst: 9 }, ..limits() };
    let one = world.enter_with(&wide, Some("one"), 0, 1).expect("it runs");
    one.repeat(&wide, now).expect("the first");
    assert_eq!(one.repeat(&wide, now).expect_err("its run has one").code, Code::RunExhausted);
    let two = world.enter_with(&wide, Some("two"), 0, 1).expect("it runs");
    for _ in 0..3 {
        assert_eq!(two.repeat(&wide, now).expect_err("the tenant has one").code, Code::RepeatsExhausted);
    }
    two.repeat(&wide, now + Duration::from_secs(1)).expect("its run was charged nothing");
    let none = world.enter_with(&wide, None, 0, 1).expect("it runs");
    assert_eq!(none.repeat(&wide, now).expect_err("a key without a run").code, Code::RepeatsExhausted);
}

#[test]
fn who_finds_no_place_is_told_when_one_will_have_changed_hands() {
    let world = World::default();
    let wide = TenantLimits { in_flight: 4, rate: Rate { calls: 99, period: Duration::from_secs(1), burst: 99 }, ..limits() };
    world.gate.ended(Duration::from_secs(2));
    let _held: Vec<_> = (0..4).map(|_| world.enter_with(&wide, None, 0, 1).expect("a place")).collect();
    let waits = [1, 2, 3, 4].map(|_| world.enter_with(&wide, None, 0, 1).expect_err("none is left").retry_after);
    assert_eq!(waits, [500, 1_000, 1_500, 2_000].map(|wait| Some(Duration::from_millis(wait))));
}

#[test]
fn where_places_change_hands_nobody_is_told_to_wait_longer_whoever_had_them() {
    // Callers that hang up, or are refused at a seat, end no call: their places come free all the same.
    let world = World::default();
    let wide = TenantLimits { in_flight: 4, rate: Rate { calls: 999, period: Duration::from_secs(1), burst: 999 }, ..limits() };
    let mean = Duration::from_millis(600);
    world.gate.ended(mean);
    let mut held: std::collections::VecDeque<_> = (0..4).map(|_| world.enter_with(&wide, None, 0, 1).expect("a place")).collect();
    for tick in 0..600 {
        let call = Entering { run: None, depth: 0, memory: 1, now: Duration::from_millis(100 * tick) };
        let enter = || world.gate.enter(&wide, &call, &world.server, 1_000);
        let told = enter().expect_err("none is left").retry_after.expect("when to come again");
        assert!(told <= mean, "{told:?} after {tick} tenths of a second");
        if tick % 2 == 1 {
            drop(held.pop_front());
            held.push_back(enter().expect("one came free"));
        }
    }
    // Where none comes free, they are.
    let later = |seconds: u64| {
        let call = Entering { run: None, depth: 0, memory: 1, now: Duration::from_secs(60 + seconds) };
        world.gate.enter(&wide, &call, &world.server, 1_000).expect_err("none is left").retry_after.expect("when to come again")
    };
    let told = [0, 1, 2, 3, 4, 5].map(later);
    assert!(told[5] > mean, "{told:?}");
}

#[test]
fn control_is_never_behind_work_and_has_its_own_caps() {
    let world = World::default();
    let wide = TenantLimits { rate: Rate { calls: 1_000, period: Duration::from_secs(60), burst: 1_000 }, ..limits() };
    let _work = world.enter(None, 100).expect("all its places and all its memory");
    let _rate = world.enter(None, 0).expect_err("no place");
    let enter = |waits| world.gate.enter_control(&wide, Duration::ZERO, waits);
    let waits: Vec<_> = std::iter::from_fn(|| enter(true).ok()).collect();
    assert_eq!(waits.len() as u64, WAITS_AT_ONCE);
    let looks: Vec<_> = std::iter::from_fn(|| enter(false).ok()).collect();
    assert_eq!((waits.len() + looks.len()) as u64, CONTROL_AT_ONCE, "who waits leaves places to who does not");
    let refused = world.gate.enter_control(&wide, Duration::ZERO, false).expect_err("capped");
    assert_eq!((refused.code, refused.policy.expect("a limit").name), (Code::InFlightExceeded, "control"));
    drop((looks, waits));
    let other = World::default();
    for _ in 0..2 {
        drop(other.gate.enter_control(&limits(), Duration::ZERO, false).expect("within the rate"));
    }
    assert_eq!(other.gate.enter_control(&limits(), Duration::ZERO, false).expect_err("too often").code, Code::RateExceeded);
    assert_eq!(other.taken().0, 2, "calls have a rate of their own");
}

#[test]
fn a_call_that_needs_less_gives_back_the_rest_once() {
    let world = World::default();
    let permit = world.enter(None, 90).expect("it runs");
    for (bytes, left) in [(40, 40), (40, 40), (70, 40), (0, 0)] {
        permit.shrink_memory(bytes);
        assert_eq!((world.gate.memory(), world.server.used()), (left, left), "{bytes}");
    }
    drop(permit);
    assert_eq!(world.taken(), (1, 0, 0, 0));
}

#[test]
fn a_lowered_limit_refuses_and_evicts_nothing() {
    let budget = Arc::new(Budget::default());
    let held: Vec<_> = (0..5).map(|_| budget.reserve(1, 5).expect("below the limit")).collect();
    assert_eq!(budget.reserve(1, 2).expect_err("above the lowered limit"), 5);
    drop(held);
    assert!(budget.reserve(2, 2).is_ok());
}
