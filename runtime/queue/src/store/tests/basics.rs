//! Items go in, are durable, come out in order and end.

use std::time::Duration;

use crate::item::Waits;
use crate::job::JobState;
use crate::store::tests::{MIB, Rig, item};

#[test]
fn promise_2_what_was_acknowledged_comes_out_once_in_order_after_a_crash() {
    let rig = Rig::new(4 * MIB);
    let jobs: Vec<_> = (0..300_u32).map(|number| rig.append_one("a", item(number.to_le_bytes()))).collect();
    let first = rig.take("a", 10);
    assert_eq!(first.iter().map(|leased| leased.lease.job()).collect::<Vec<_>>(), jobs[..10]);
    for leased in first {
        rig.finish(leased, JobState::Succeeded);
    }
    let rig = rig.crash();
    assert!(jobs[..10].iter().all(|job| rig.state(*job) == Some(JobState::Succeeded)));
    let mut left = Vec::new();
    loop {
        let taken = rig.take("a", 7);
        if taken.is_empty() {
            break;
        }
        for leased in taken {
            assert!(!leased.interrupted, "nothing was started");
            left.push((leased.lease.job(), leased.content.to_vec()));
            rig.finish(leased, JobState::Failed);
        }
    }
    let expected: Vec<_> = (10..300_u32).map(|number| (jobs[number as usize], number.to_le_bytes().to_vec())).collect();
    assert_eq!(left, expected);
    let rig = rig.crash();
    assert!(rig.take("a", 1).is_empty());
    assert_eq!(rig.hand.store().lanes(None)[0].waits, Waits::Empty);
}

#[test]
fn an_item_larger_than_an_extent_comes_back_whole() {
    let rig = Rig::new(16 * MIB);
    let large: Vec<u8> = (0..1_000_000_u32).map(|at| (at % 251) as u8).collect();
    rig.append_one("a", item("small"));
    rig.append_one("a", item(large.clone()));
    rig.append_one("a", item("after"));
    let rig = rig.crash();
    let contents: Vec<_> =
        rig.take("a", 1).into_iter().chain(rig.take("a", 5)).chain(rig.take("a", 5)).map(|leased| leased.content).collect();
    assert!(contents[0] == "small" && contents[1] == large && contents[2] == "after");
}

#[test]
fn e4_a_started_item_is_interrupted_and_its_late_worker_is_fenced_off() {
    let rig = Rig::new(4 * MIB);
    let job = rig.append_one("a", item("x"));
    let late = rig.take("a", 1).pop().expect("it waits");
    rig.run(rig.hand.store().start(&late.lease)).expect("the lease is held");
    rig.pass(Duration::from_secs(31));
    let again = rig.take("a", 1).pop().expect("the lease ran out");
    assert!(again.interrupted && again.attempt == 2);
    let fenced = rig.run(rig.hand.store().finish(late.lease, super::end(JobState::Succeeded)));
    assert_eq!(fenced, Err(crate::store::StoreError::LeaseLost));
    assert_eq!(rig.state(job), Some(JobState::Running));
    let rig = rig.crash();
    let again = rig.take("a", 1).pop().expect("it comes again");
    assert!(again.interrupted);
    rig.finish(again, JobState::Unknown);
    assert_eq!(rig.crash().state(job), Some(JobState::Unknown));
}
