use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

const LIMITS: RetryLimits = RetryLimits { share: 0.25, floor: 10, floors_share: 0.1, floors: 50, window: Duration::from_secs(10) };
const START: Duration = Duration::from_secs(100);
const LOUD: usize = 0;
const QUIET: usize = 1;

fn call(budget: &RetryBudget, tenant: usize, calls: usize) {
    (0..calls).for_each(|_| budget.called(tenant, &LIMITS, START));
}

/// How many of so many retries are had.
fn taken(budget: &RetryBudget, tenant: usize, wanted: usize) -> usize {
    (0..wanted).filter(|_| budget.take(tenant, &LIMITS, START)).count()
}

#[test]
fn e3_400_calls_that_fail_together_make_100_retries() {
    let (budget, taken, together) = (RetryBudget::new(1), AtomicU64::new(0), Barrier::new(8));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                call(&budget, LOUD, 50);
                together.wait();
                // All wait for their back-off at once: none has run, all count.
                for _ in 0..50 {
                    if budget.take(LOUD, &LIMITS, START) {
                        taken.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let taken = taken.into_inner();
    assert!((90..=100).contains(&taken), "never above the share, and near it: {taken}");
    let (used, most) = budget.used(LOUD, &LIMITS, START);
    assert_eq!((used, most), (taken, 100));
}

#[test]
fn e3_what_one_tenant_fails_takes_no_other_tenants_retries_away() {
    let budget = RetryBudget::new(2);
    call(&budget, LOUD, 460);
    call(&budget, QUIET, 17);
    assert_eq!(taken(&budget, LOUD, 920), 115, "a quarter of its own");
    assert_eq!(taken(&budget, QUIET, 20), 10, "its floor is there, whatever the other has spent");
    call(&budget, QUIET, 63);
    assert_eq!(taken(&budget, QUIET, 20), 10, "and a quarter of its own 80 calls");
}

#[test]
fn the_floors_of_many_tenants_have_an_end_and_their_shares_have_none() {
    let budget = RetryBudget::new(100);
    (0..100).for_each(|tenant| call(&budget, tenant, 4));
    let all: usize = (0..100).map(|tenant| taken(&budget, tenant, 12)).sum();
    assert_eq!(all, 100 + 50, "one each, a quarter of four, and fifty of the floors together");
    // 600 calls more: a tenth of a thousand is a hundred.
    (0..100).for_each(|tenant| call(&budget, tenant, 6));
    let more: usize = (0..100).map(|tenant| taken(&budget, tenant, 12)).sum();
    assert!((100..=150).contains(&more), "{more}");
    assert!((0..100).all(|tenant| budget.used(tenant, &LIMITS, START).0 >= 2), "each has its quarter of ten");
}

#[test]
fn a_few_calls_have_the_floor() {
    let budget = RetryBudget::new(1);
    call(&budget, LOUD, 1);
    assert_eq!(taken(&budget, LOUD, 20), 10, "the floor");
    assert!(!budget.take(LOUD, &LIMITS, START));
    assert!(budget.take(LOUD, &LIMITS, START + LIMITS.window * 2), "it comes back with time");
}

#[test]
fn a_share_of_nothing_is_nothing() {
    let (budget, none) = (RetryBudget::new(1), RetryLimits { floor: 0, ..LIMITS });
    assert!(!budget.take(LOUD, &none, START));
    call(&budget, LOUD, 3);
    assert!(!budget.take(LOUD, &none, START));
    call(&budget, LOUD, 1);
    assert!(budget.take(LOUD, &none, START));
}

#[test]
fn a_tenant_keeps_what_it_took_under_another_plan_and_one_that_left_leaves_nothing() {
    let budget = RetryBudget::new(2);
    [LOUD, QUIET].into_iter().for_each(|tenant| call(&budget, tenant, 1));
    assert_eq!(taken(&budget, QUIET, 20), 10);
    // The first one left, another came before the second.
    let other = budget.under(&[None, Some(QUIET), None]);
    assert_eq!(other.used(1, &LIMITS, START).0, 10);
    assert!(!other.take(1, &LIMITS, START), "its budget is spent under this plan, too");
    call(&other, 0, 1);
    assert_eq!((other.used(0, &LIMITS, START).0, taken(&other, 0, 1)), (0, 1), "the place of one that left is new");
    // What still runs under the old plan counts with the new one.
    call(&budget, QUIET, 79);
    assert_eq!(taken(&other, 1, 20), 10);
    assert!(!budget.take(7, &LIMITS, START), "a place that no tenant has");
}
