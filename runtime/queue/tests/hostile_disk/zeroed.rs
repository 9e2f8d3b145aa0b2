//! Whole extents, their beginnings, records and files that are gone while the server is down: told as a loss, and nothing is run again
//! as if it had not been.

use std::sync::Arc;

use bytes::Bytes;
use spillgate_queue::disk::simulated::SimulatedDisk;
use spillgate_queue::inspect::{inspect, verify};
use spillgate_queue::{Hash, JobId, JobState, LaneName, Recovered};

use crate::rig::{FILE, HandClock, Rig, UNLIMITED, content, end, lane, plain, wait};

const LIMIT: u64 = 4 * FILE;
const EXTENT: usize = 65_536;
const NOTE: Hash = [7; 16];

/// A stopped store: 300 items of a lane, of which 150 have ended in its order; a schedule's lane with its watermark.
struct Stopped {
    disk: SimulatedDisk,
    clock: Arc<HandClock>,
    ended: Vec<JobId>,
    waiting: Vec<JobId>,
}

fn q() -> LaneName {
    lane("q", "t1")
}
fn schedule() -> LaneName {
    lane("(schedule)", "t3")
}

fn stopped(ends: usize) -> Stopped {
    let rig = Rig::new(5, LIMIT);
    let mut waiting: Vec<JobId> =
        (0..300).map(|number| rig.append(&q(), plain(content(number, 4_000)), &UNLIMITED).expect("there is room")).collect();
    let mut ended = Vec::new();
    for _ in 0..ends {
        let item = rig.take(&q(), 1).pop().expect("it waits");
        ended.push(item.lease.job());
        wait(rig.store.start(&item.lease)).expect("it starts");
        wait(rig.store.finish(item.lease, end(JobState::Succeeded, Some(Bytes::from_static(b"{}"))))).expect("it ends");
    }
    waiting.drain(..ends);
    rig.append(&schedule(), plain(content(1, 100)), &UNLIMITED).expect("there is room");
    let tick = rig.take(&schedule(), 1).pop().expect("it waits");
    let note = Some((NOTE, Bytes::from_static(b"70")));
    wait(rig.store.finish(tick.lease, spillgate_queue::End { note, ..end(JobState::Succeeded, None) })).expect("it ends");
    rig.store.close();
    Stopped { disk: rig.disk.kill(), clock: Arc::clone(&rig.clock), ended, waiting }
}

impl Stopped {
    /// Places of the extents of a lane's stream: file, and offset in it.
    fn extents(&self, name: &LaneName, stream: u8) -> Vec<(String, usize)> {
        let mut found = Vec::new();
        for file in self.disk.names().into_iter().filter(|name| name.starts_with("extents")) {
            let bytes = self.disk.content(&file).expect("it is there");
            for (index, extent) in bytes.chunks(EXTENT).enumerate().filter(|(_, extent)| extent[0] != 0 && extent[9] == stream) {
                let header = spillgate_queue::format::decode_header(extent).expect("it is whole");
                if header.name == *name {
                    found.push((file.clone(), index * EXTENT));
                }
            }
        }
        found
    }
    fn zeroed(&self, (file, at): &(String, usize), bytes: usize) -> SimulatedDisk {
        let disk = self.disk.copy(1);
        let mut content = disk.content(file).expect("it is there");
        content[*at..*at + bytes].fill(0);
        disk.put(file, content);
        disk
    }
    fn open(&self, disk: SimulatedDisk) -> Rig {
        Rig::open(disk, Arc::clone(&self.clock), LIMIT).expect("it opens")
    }
}

fn faults(disk: &SimulatedDisk) -> Vec<String> {
    let mut faults = Vec::new();
    verify(disk, &mut |damage| faults.push(damage.reason)).expect("it is a store");
    faults
}

/// Every job has exactly one visible state, and what is lost says so.
fn check_jobs(rig: &Rig, jobs: &[JobId], lost: &[JobId], what: &str) {
    for job in jobs {
        let state = rig.store.job(*job).unwrap_or_else(|| panic!("{what}: {job} is as if it had never been (promise 2)")).state;
        assert_eq!(state == JobState::Dead, lost.contains(job), "{what}: {job} is {state:?}");
        if state == JobState::Dead {
            let told = wait(rig.store.outcome(*job)).expect("it can be read").expect("it says why");
            let told = String::from_utf8_lossy(&told);
            assert!(told.contains("lost") || told.contains("damaged"), "{what}: {told}");
        }
    }
}

/// Takes all that waits and ends it: which jobs, and whether interrupted.
fn drain(rig: &Rig, name: &LaneName) -> Vec<(JobId, bool)> {
    let mut taken = Vec::new();
    loop {
        let items = rig.take(name, 16);
        if items.is_empty() {
            return taken;
        }
        for item in items {
            taken.push((item.lease.job(), item.interrupted));
            wait(rig.store.finish(item.lease, end(JobState::Succeeded, None))).expect("it ends");
        }
    }
}

fn told(recovered: &Recovered, what: &str) {
    assert!(!recovered.losses.is_empty(), "{what}: nobody says that anything is lost: {recovered:?}");
}

#[test]
fn promise_2_an_extent_of_items_that_is_gone_is_a_loss_and_its_jobs_end_as_dead() {
    let stopped = stopped(0);
    let extents = stopped.extents(&q(), 0);
    assert!(extents.len() > 10 && faults(&stopped.disk).is_empty());
    for (place, bytes) in [(0, EXTENT), (0, 4096), (5, EXTENT), (5, 4096), (extents.len() - 1, EXTENT), (extents.len() - 1, 4096)] {
        let what = format!("extent {place}, {bytes} bytes");
        let disk = stopped.zeroed(&extents[place], bytes);
        assert!(!faults(&disk).is_empty(), "{what}: verify says nothing");
        assert!(!inspect(&disk).expect("it is a store").remarks.is_empty(), "{what}");
        let rig = stopped.open(disk);
        told(&rig.store.status().recovered, &what);
        let taken = drain(&rig, &q());
        let lost: Vec<JobId> = stopped.waiting.iter().filter(|job| taken.iter().all(|(taken, _)| taken != *job)).copied().collect();
        assert!((1..=23).contains(&lost.len()), "{what}: {} are lost", lost.len());
        assert!(taken.iter().all(|(_, interrupted)| !interrupted), "{what}: the journal is whole, nothing was ever started");
        check_jobs(&rig, &stopped.waiting, &lost, &what);
        // No number is given out twice.
        let new = rig.append(&q(), plain(content(1, 10)), &UNLIMITED).expect("there is room");
        assert!(!stopped.waiting.contains(&new), "{what}: {new} was given out before");
        let rig = rig.restart();
        check_jobs(&rig, &stopped.waiting, &lost, &format!("{what}, one more start"));
        let recovered = rig.store.status().recovered;
        assert!(recovered.losses.is_empty() && recovered.quarantined_extents == 0, "{what}: it is told once: {recovered:?}");
        rig.store.close();
        assert_eq!(faults(&rig.disk.kill()), Vec::<String>::new(), "{what}: and mended");
    }
}

#[test]
fn promise_7_an_extent_of_a_journal_that_is_gone_hands_items_out_as_interrupted() {
    for ends in [20, 150] {
        let stopped = stopped(ends);
        let extents = stopped.extents(&q(), 1);
        for (at, bytes) in extents.iter().enumerate().flat_map(|(at, _)| [(at, EXTENT), (at, 4096)]) {
            let what = format!("{ends} ended, journal extent {at} of {}, {bytes} bytes", extents.len());
            let disk = stopped.zeroed(&extents[at], bytes);
            assert!(!faults(&disk).is_empty(), "{what}: verify says nothing");
            let rig = stopped.open(disk);
            told(&rig.store.status().recovered, &what);
            // Whoever starts again before all is worked on still knows.
            let rig = rig.restart();
            let taken = drain(&rig, &q());
            for (job, interrupted) in &taken {
                assert!(*interrupted || !stopped.ended.contains(job), "{what}: {job} had ended and is run again");
            }
            assert!(stopped.waiting.iter().all(|job| taken.iter().any(|(taken, _)| taken == job)), "{what}: all that waits is there");
            let new = rig.append(&q(), plain(content(1, 10)), &UNLIMITED).expect("there is room");
            assert!(!stopped.waiting.contains(&new) && !stopped.ended.contains(&new), "{what}: {new} was given out before");
            assert_eq!(drain(&rig, &q()), [(new, false)], "{what}: what came later is not concerned");
        }
    }
}

#[test]
fn promise_2_a_watermark_that_is_gone_is_told() {
    let stopped = stopped(3);
    let place = &stopped.extents(&schedule(), 1)[0];
    for bytes in [EXTENT, 4096] {
        let disk = stopped.zeroed(place, bytes);
        assert!(!faults(&disk).is_empty(), "verify says nothing");
        let rig = stopped.open(disk);
        let losses = rig.store.status().recovered.losses;
        assert!(losses.iter().any(|loss| loss.contains("(schedule)/t3") && loss.contains("how far a schedule is")), "{losses:?}");
        assert_eq!(wait(rig.store.note(&schedule(), &NOTE)), Ok(None));
    }
}

#[test]
fn promise_2_a_record_whose_frame_is_damaged_ends_its_job_as_dead() {
    let stopped = stopped(0);
    // In the open extent, which has no footer, and in one that is full.
    let extents = stopped.extents(&q(), 0);
    for place in [extents.len() - 1, 3] {
        let (file, at) = &extents[place];
        let disk = stopped.disk.copy(1);
        let content = disk.content(file).expect("it is there");
        // The second record of the extent, or its rest.
        let second = at + 512 + 4_000 + 64;
        let frame = (second..).step_by(8).find(|at| content[at + 4] & 0xc0 == 0xc0 && content[at + 5] == 1).expect("there is one");
        disk.flip(file, frame as u64 + 1, 2);
        assert!(!faults(&disk).is_empty(), "verify says nothing");
        let rig = stopped.open(disk);
        let taken = drain(&rig, &q());
        let lost: Vec<JobId> = stopped.waiting.iter().filter(|job| taken.iter().all(|(taken, _)| taken != *job)).copied().collect();
        assert_eq!(lost.len(), 1, "extent {place}: {frame} {at} {:?}", rig.store.status().recovered);
        let state = rig.store.job(lost[0]).expect("it is known").state;
        assert_eq!(state, JobState::Dead);
        let recovered = rig.store.status().recovered;
        assert!(!recovered.losses.is_empty() || !recovered.remarks.is_empty(), "extent {place}: {recovered:?}");
    }
}

#[test]
fn promise_2_a_file_that_was_cut_or_is_gone_costs_no_number_twice_and_its_jobs_end_visibly() {
    let stopped = stopped(10);
    let all: Vec<JobId> = stopped.ended.iter().chain(&stopped.waiting).copied().collect();
    for length in [None, Some(0), Some(70_001), Some(3 * EXTENT), Some(5 * EXTENT + 20_000)] {
        let what = format!("extents-0000 cut to {length:?}");
        let disk = stopped.disk.copy(1);
        match length {
            None => disk.lose("extents-0000"),
            Some(length) => disk.put("extents-0000", stopped.disk.content("extents-0000").expect("it is there")[..length].to_vec()),
        }
        assert!(!faults(&disk).is_empty(), "{what}: verify says nothing");
        let rig = stopped.open(disk);
        told(&rig.store.status().recovered, &what);
        for job in &all {
            assert!(rig.store.job(*job).is_some(), "{what}: {job} is as if it had never been");
        }
        let new = rig.append(&q(), plain(content(1, 10)), &UNLIMITED).expect("there is room");
        assert!(!all.contains(&new), "{what}: {new} was given out before");
    }
}

#[test]
fn a_tail_that_is_gone_with_all_that_tells_of_it_leaves_no_number_twice() {
    let rig = Rig::new(5, LIMIT);
    let jobs: Vec<JobId> =
        (0..400).map(|number| rig.append(&q(), plain(content(number, 4_000)), &UNLIMITED).expect("there is room")).collect();
    rig.store.close();
    let disk = rig.disk.kill();
    disk.lose("extents-0001");
    let rig = Rig::open(disk, Arc::clone(&rig.clock), LIMIT).expect("it opens");
    told(&rig.store.status().recovered, "the last file is gone");
    let new = rig.append(&q(), plain(content(1, 10)), &UNLIMITED).expect("there is room");
    assert!(!jobs.contains(&new), "{new} was given out before");
    let last = jobs.last().expect("there are some");
    assert_eq!(rig.store.job(*last).map(|job| job.state), Some(JobState::Dead), "{last}");
}

#[test]
fn promise_2_an_extent_that_is_gone_right_after_a_kill_is_told_however_new_it_was() {
    let rig = Rig::new(5, LIMIT);
    let (a, b) = (lane("q", "a"), lane("q", "b"));
    let append = |name: &LaneName| -> Vec<JobId> {
        (0..10).map(|number| rig.append(name, plain(content(number, 400)), &UNLIMITED).expect("there is room")).collect()
    };
    let (first, second) = (append(&a), append(&b));
    // Nothing is given the time to be written after the last one was acknowledged.
    let stopped = Stopped { disk: rig.disk.kill(), clock: Arc::clone(&rig.clock), ended: Vec::new(), waiting: Vec::new() };
    let disk = stopped.zeroed(&stopped.extents(&b, 0)[0], EXTENT);
    assert!(!faults(&disk).is_empty(), "verify says nothing");
    let opened = stopped.open(disk);
    told(&opened.store.status().recovered, "the extent of a new lane");
    assert_eq!(opened.take(&a, 16).len(), first.len(), "the other lane is whole");
    let next = opened.append(&b, plain(content(1, 10)), &UNLIMITED).expect("there is room");
    assert!(!second.contains(&next), "{next} was given out before");
    let states = second.iter().map(|job| opened.store.job(*job).map(|job| job.state));
    assert!(states.into_iter().all(|state| state.is_none_or(|state| state == JobState::Dead)), "and none is as if it still waited");
}

#[test]
fn promise_2_what_was_started_and_whose_item_is_gone_ends_as_unknown() {
    let rig = Rig::new(5, LIMIT);
    let mut jobs: Vec<JobId> =
        (0..40).map(|number| rig.append(&q(), plain(content(number, 4_000)), &UNLIMITED).expect("there is room")).collect();
    for item in rig.take(&q(), 2) {
        wait(rig.store.start(&item.lease)).expect("it starts");
    }
    rig.store.close();
    let stopped = Stopped { disk: rig.disk.kill(), clock: Arc::clone(&rig.clock), ended: Vec::new(), waiting: Vec::new() };
    let rig = stopped.open(stopped.zeroed(&stopped.extents(&q(), 0)[0], EXTENT));
    crate::eventually("it is said", || rig.store.job(jobs[0]).is_some_and(|job| job.state == JobState::Unknown));
    let state = |job: JobId| rig.store.job(job).map(|job| job.state);
    assert_eq!((state(jobs[1]), state(jobs[2])), (Some(JobState::Unknown), Some(JobState::Dead)));
    let taken = drain(&rig, &q());
    assert!(taken.len() > 20 && taken.iter().all(|(_, interrupted)| !interrupted), "{taken:?}");
    jobs.retain(|job| state(*job) == Some(JobState::Succeeded));
    assert_eq!(jobs.len(), taken.len(), "each in exactly one state (promise 2)");
}

#[test]
fn a_number_is_not_given_out_again_where_the_last_record_cannot_be_read() {
    let rig = Rig::new(5, LIMIT);
    let jobs: Vec<JobId> = (0..5).map(|number| rig.append(&q(), plain(content(number, 700)), &UNLIMITED).expect("there is room")).collect();
    rig.store.close();
    let disk = rig.disk.kill();
    let file = disk.content("extents-0000").expect("it is there");
    let last = content(4, 700);
    let at = file.windows(last.len()).position(|bytes| bytes == last).expect("it was written");
    for (offset, bit) in [(at + 300, 3), (at - 21 - 10, 1), (at - 21 - 10 + 2, 4), (at - 21 - 10 + 4, 7), (at - 21 - 10 + 5, 1)] {
        let disk = disk.copy(1);
        disk.flip("extents-0000", offset as u64, bit);
        let rig = Rig::open(disk, Arc::clone(&rig.clock), LIMIT).expect("it opens");
        let recovered = rig.store.status().recovered;
        assert!(recovered.cut_records > 0, "bit {bit} at {offset}: {recovered:?}");
        let new = rig.append(&q(), plain(content(1, 10)), &UNLIMITED).expect("there is room");
        assert!(!jobs.contains(&new), "bit {bit} at {offset}: {new} was given out before");
    }
}

#[test]
fn a_footer_that_cannot_be_read_costs_nothing_and_verify_tells_it() {
    let stopped = stopped(5);
    for stream in [0, 1] {
        for (file, at) in stopped.extents(&q(), stream) {
            let bytes = stopped.disk.content(&file).expect("it is there");
            if bytes[at + EXTENT - 8..at + EXTENT - 4] != *b"spft" {
                continue;
            }
            for offset in [EXTENT - 1, EXTENT - 6, EXTENT - 30, EXTENT - 40] {
                let disk = stopped.disk.copy(1);
                disk.flip(&file, (at + offset) as u64, 2);
                let faults = faults(&disk);
                assert!(faults.iter().any(|fault| fault.contains("footer")), "{offset} of {file} {at}: {faults:?}");
                let rig = stopped.open(disk);
                assert_eq!(drain(&rig, &q()).len(), 295, "{offset} of {file} {at}");
            }
        }
    }
}
