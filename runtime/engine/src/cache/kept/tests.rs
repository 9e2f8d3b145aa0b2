use std::collections::HashMap;

use super::*;

const LIMIT: u64 = 64 * 1024;
const HOUR: Duration = Duration::from_secs(3600);

fn key(number: u64) -> Key {
    number.to_be_bytes().into()
}

fn reply(bytes: u64) -> Outcome {
    let text = "x".repeat(usize::try_from(bytes).expect("a small one"));
    Outcome::Value { value: Datum::Text(text.into()), stale: None }
}

fn keep(kept: &mut Kept, tenant: &str, number: u64, bytes: u64, life: Duration) {
    kept.keep(key(number), &tenant.into(), reply(bytes), life, LIMIT);
    check(kept);
}

fn is_kept(kept: &Kept, number: u64) -> bool {
    kept.get(&key(number)).is_some()
}

/// Every book agrees with the entries themselves, and nothing is above its bound.
fn check(kept: &Kept) {
    let mut held: HashMap<&str, (u64, usize)> = HashMap::new();
    for (key, entry) in &kept.entries {
        let part = held.entry(&entry.owner).or_default();
        (part.0, part.1) = (part.0 + entry.bytes, part.1 + 1);
        assert_eq!(kept.by_end.get(&(entry.ends, entry.number)), Some(key));
        assert_eq!(kept.parts[&entry.owner].round.get(&entry.number), Some(key));
    }
    let by_bytes: BTreeSet<_> = held.iter().map(|(owner, (bytes, _))| (*bytes, Arc::from(*owner))).collect();
    assert_eq!(by_bytes, kept.by_bytes);
    assert_eq!(held.len(), kept.parts.len());
    for (owner, (bytes, entries)) in &held {
        assert_eq!((kept.parts[*owner].bytes, kept.parts[*owner].round.len()), (*bytes, *entries));
        assert!(*bytes <= LIMIT / PART, "{owner} holds {bytes}");
    }
    assert_eq!(kept.by_end.len(), kept.entries.len());
    assert_eq!(held.values().map(|(bytes, _)| bytes).sum::<u64>(), kept.bytes);
    assert!(kept.bytes <= LIMIT);
}

#[test]
fn a_full_part_gives_up_its_own_oldest_but_those_asked_for() {
    let mut kept = Kept::default();
    keep(&mut kept, "calm", 1, 1000, HOUR);
    for number in 10..20 {
        keep(&mut kept, "greedy", number, 1000, HOUR);
    }
    kept.get(&key(10)).expect("kept").asked();
    for number in 20..22 {
        keep(&mut kept, "greedy", number, 1000, HOUR);
    }
    assert!(is_kept(&kept, 1) && is_kept(&kept, 10) && is_kept(&kept, 20) && is_kept(&kept, 21));
    assert!(!is_kept(&kept, 11), "the oldest that nobody asked for");
    for number in 100..1000 {
        keep(&mut kept, "greedy", number, 1000, HOUR);
    }
    assert!(is_kept(&kept, 1) && !is_kept(&kept, 10));
}

#[test]
fn where_all_is_full_whoever_holds_most_gives_up_first() {
    let mut kept = Kept::default();
    keep(&mut kept, "calm", 0, 1000, HOUR);
    for number in 1..=200_usize {
        keep(&mut kept, ["one", "two", "three", "four", "five"][number % 5], number as u64, 2000, HOUR);
    }
    assert!(is_kept(&kept, 0), "five that ask for all there is take nothing of one that holds little");
    assert!(kept.bytes > LIMIT - 4000, "{}", kept.bytes);
    let parts = kept.by_bytes.iter().map(|(bytes, _)| *bytes).filter(|bytes| *bytes > 2000);
    assert!(parts.clone().max().expect("five") - parts.min().expect("five") < 4000, "they hold the same, to an entry");
}

#[tokio::test(start_paused = true)]
async fn what_serves_nobody_any_more_makes_room_for_others() {
    let mut kept = Kept::default();
    for number in 0..100 {
        keep(&mut kept, &format!("of yesterday {}", number % 20), number, 1000, HOUR);
    }
    tokio::time::advance(2 * HOUR).await;
    for number in 100..108 {
        keep(&mut kept, "of today", number, 1500, HOUR);
    }
    assert!((100..108).all(|number| is_kept(&kept, number)), "it has its whole part, though others held as much each");
}

#[test]
fn none_is_larger_than_a_part_and_the_older_one_stays_then() {
    let mut kept = Kept::default();
    keep(&mut kept, "one", 1, LIMIT / PART, HOUR);
    assert!(!is_kept(&kept, 1));
    keep(&mut kept, "one", 2, 1000, HOUR);
    keep(&mut kept, "one", 2, LIMIT / PART, HOUR);
    assert!(is_kept(&kept, 2), "it may stand in for a failure yet");
    kept.keep(key(3), &"one".into(), reply(0), HOUR, 0);
    assert!(!is_kept(&kept, 3), "a server that keeps nothing");
}

#[test]
fn an_entry_stays_its_first_owners_whoever_makes_it_fresh() {
    let mut kept = Kept::default();
    keep(&mut kept, "calm", 1, 1000, HOUR);
    keep(&mut kept, "greedy", 1, 2000, HOUR);
    for number in 10..100 {
        keep(&mut kept, "greedy", number, 1000, HOUR);
    }
    assert!(is_kept(&kept, 1));
}

#[test]
fn whatever_is_kept_and_in_which_order_the_books_agree() {
    let mut kept = Kept::default();
    let mut random = 7_u64;
    let mut below = |most: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % most
    };
    for _ in 0..3000 {
        let (tenant, number) = (below(7), below(300));
        if below(4) == 0 {
            kept.get(&key(number)).iter().for_each(|entry| entry.asked());
        }
        // Some have ended as soon as they are kept.
        let life = Duration::from_secs(below(2) * 3600);
        keep(&mut kept, &format!("tenant {tenant}"), number, below(20_000), life);
    }
    assert!(kept.metrics.evictions.value() > 100);
}
