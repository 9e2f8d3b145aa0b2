//! The pages about queues, lanes, jobs and the store.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;
use spillgate_config::Plan;
use spillgate_config::plan::{QueuePlan, WhenFull};
use spillgate_engine::HeldLane;
use spillgate_queue::{DeadLetter, Health, JobId, JobState, LaneName, LaneStatus, Recovered, StoreStatus, Waits};

use super::{Amount, LimitPage, amount, milliseconds};

/// Lanes of one queue that are listed; the rest is a number, and each can be asked for by its name.
pub(crate) const LANES_SHOWN: usize = 1_000;

/// `GET /admin/v1/queues`.
#[derive(Serialize)]
pub(crate) struct Queues<'a> {
    store: StorePage<'a>,
    queues: Vec<QueuePage<'a>>,
}

/// What is known of the store.
pub(crate) enum Known<'a> {
    /// Nothing needs one.
    Absent,
    Recovering,
    /// It could not be opened.
    Unusable(&'a str),
    Open(&'a StoreStatus, &'a [Lane]),
}

/// A lane of the store, with what holds its head back: also what only the engine knows, such as a database that is down.
pub(crate) struct Lane {
    pub(crate) status: LaneStatus,
    /// In a word, and since when.
    pub(crate) head: (&'static str, Duration),
}

impl Lane {
    pub(crate) fn all(lanes: Vec<LaneStatus>, held: &[HeldLane]) -> Vec<Lane> {
        let held: HashMap<&LaneName, &HeldLane> = held.iter().map(|held| (&held.lane, held)).collect();
        let head = |status: &LaneStatus| match (status.waits, held.get(&status.name)) {
            // The store sees items that somebody could take, or that were handed back.
            (Waits::Worker | Waits::Backoff | Waits::SetAside, Some(held)) => (held.by.name(), held.since.elapsed()),
            (waits, _) => (waits.name(), status.waits_for),
        };
        lanes.into_iter().map(|status| Lane { head: head(&status), status }).collect()
    }
}

#[derive(Serialize)]
struct StorePage<'a> {
    state: &'static str,
    detail: Option<&'a str>,
    disk_limit_bytes: Amount,
    disk_reserve_bytes: Amount,
    #[serde(flatten)]
    numbers: Option<StoreNumbers<'a>>,
}

#[derive(Serialize)]
struct StoreNumbers<'a> {
    disk_used_bytes: u64,
    volume_free_bytes: u64,
    extents: Extents,
    batches: u64,
    syncs: u64,
    appended: u64,
    ended: u64,
    moved: u64,
    keys: u64,
    recovered: RecoveredPage<'a>,
}

#[derive(Serialize)]
struct Extents {
    total: u64,
    free: u64,
    quarantined: u64,
}

/// What the last start found.
#[derive(Serialize)]
struct RecoveredPage<'a> {
    lanes: u64,
    waiting: u64,
    cut_bytes: u64,
    cut_records: u64,
    quarantined_extents: u64,
    missing_files: &'a [String],
    losses: &'a [String],
    remarks: &'a [String],
}

#[derive(Serialize)]
struct QueuePage<'a> {
    name: &'a str,
    /// `null` where the plan has no such queue: the engine's own, or one that was taken out of the files and is not yet empty.
    settings: Option<QueueSettings>,
    totals: Numbers,
    lanes: Vec<LanePage<'a>>,
    lanes_left_out: usize,
}

/// `[queue.NAME]`.
#[derive(Serialize)]
pub(crate) struct QueueSettings {
    items: LimitPage<Amount>,
    bytes: LimitPage<Amount>,
    max_item_bytes: LimitPage<Amount>,
    when_full: &'static str,
    workers: usize,
    attempts: u32,
    lease_ms: Amount,
    expires_ms: Amount,
    max_result_bytes: Amount,
    result_keep_ms: Amount,
    dead_letters: u64,
    dead_letter_keep_ms: Amount,
    from: String,
}

/// Of one lane, or of several together.
#[derive(Serialize)]
struct Numbers {
    waiting: u64,
    set_aside: u64,
    running: u64,
    dead: u64,
    bytes: u64,
    disk_bytes: u64,
    oldest_item_age_ms: Option<u64>,
}

/// `GET /admin/v1/queues/{queue}/lanes/{tenant}`.
#[derive(Serialize)]
pub(crate) struct LanePage<'a> {
    queue: &'a str,
    tenant: &'a str,
    /// The first half of its job ids, in hexadecimal.
    number: String,
    #[serde(flatten)]
    numbers: Numbers,
    paused: bool,
    head: Head,
    appended: u64,
    /// By final state, since the start; states that nothing ended in are left out.
    ended: BTreeMap<&'static str, u64>,
}

/// What the head of a lane waits for, and since when.
#[derive(Serialize)]
struct Head {
    waits_for: &'static str,
    since_ms: Amount,
}

impl<'a> Queues<'a> {
    pub(crate) fn of(plan: &'a Plan, known: &Known<'a>) -> Self {
        let lanes: &[Lane] = if let Known::Open(_, lanes) = known { lanes } else { &[] };
        let mut by_queue: BTreeMap<&str, Vec<&Lane>> = plan.queues.iter().map(|queue| (&*queue.name, Vec::new())).collect();
        for lane in lanes {
            by_queue.entry(&lane.status.name.queue).or_default().push(lane);
        }
        let settings = |name: &str| plan.queues.iter().find(|queue| *queue.name == *name).map(QueueSettings::of);
        let queues = by_queue.into_iter().map(|(name, lanes)| QueuePage {
            name,
            settings: settings(name),
            totals: Numbers::of(&lanes),
            lanes_left_out: lanes.len().saturating_sub(LANES_SHOWN),
            lanes: lanes.into_iter().take(LANES_SHOWN).map(LanePage::of).collect(),
        });
        Queues { queues: queues.collect(), store: StorePage::of(plan, known) }
    }
}

impl<'a> StorePage<'a> {
    fn of(plan: &Plan, known: &Known<'a>) -> Self {
        let (state, detail, numbers) = match known {
            Known::Absent => ("absent", None, None),
            Known::Recovering => ("recovering", None, None),
            Known::Unusable(detail) => ("failed", Some(*detail), None),
            Known::Open(status, _) => {
                let (state, detail) = match &status.health {
                    Health::Serving => ("serving", None),
                    Health::DiskLow { .. } => ("disk_low", None),
                    Health::Failed { detail } => ("failed", Some(detail.as_str())),
                };
                (state, detail, Some(StoreNumbers::of(status)))
            }
        };
        let limits = (Amount(plan.server.disk_limit), Amount(plan.server.disk_reserve));
        StorePage { state, detail, disk_limit_bytes: limits.0, disk_reserve_bytes: limits.1, numbers }
    }
}

impl<'a> StoreNumbers<'a> {
    fn of(status: &'a StoreStatus) -> Self {
        let Recovered { lanes, waiting, cut_bytes, cut_records, quarantined_extents, missing_files, losses, remarks } = &status.recovered;
        StoreNumbers {
            disk_used_bytes: status.disk_used,
            volume_free_bytes: status.volume_free,
            extents: Extents { total: status.extents_total, free: status.extents_free, quarantined: status.extents_quarantined },
            batches: status.batches,
            syncs: status.syncs,
            appended: status.appended,
            ended: status.ended,
            moved: status.moved,
            keys: status.keys,
            recovered: RecoveredPage {
                lanes: *lanes,
                waiting: *waiting,
                cut_bytes: *cut_bytes,
                cut_records: *cut_records,
                quarantined_extents: *quarantined_extents,
                missing_files,
                losses,
                remarks,
            },
        }
    }
}

impl QueueSettings {
    pub(crate) fn of(plan: &QueuePlan) -> Self {
        QueueSettings {
            items: amount(&plan.items),
            bytes: amount(&plan.bytes),
            max_item_bytes: amount(&plan.max_item),
            when_full: match plan.when_full {
                WhenFull::Refuse => "refuse",
                WhenFull::ShedOldest => "shed_oldest",
            },
            workers: plan.workers,
            attempts: plan.attempts,
            lease_ms: milliseconds(plan.lease),
            expires_ms: milliseconds(plan.expires),
            max_result_bytes: Amount(plan.max_result),
            result_keep_ms: milliseconds(plan.result_keep),
            dead_letters: plan.dead_items,
            dead_letter_keep_ms: milliseconds(plan.dead_keep),
            from: plan.origin.to_string(),
        }
    }
}

impl Numbers {
    fn of(lanes: &[&Lane]) -> Self {
        let sum = |read: fn(&LaneStatus) -> u64| lanes.iter().map(|lane| read(&lane.status)).sum();
        Numbers {
            waiting: sum(|lane| lane.waiting),
            set_aside: sum(|lane| lane.set_aside),
            running: sum(|lane| lane.running),
            dead: sum(|lane| lane.dead),
            bytes: sum(|lane| lane.bytes),
            disk_bytes: sum(|lane| lane.disk),
            oldest_item_age_ms: lanes.iter().filter_map(|lane| lane.status.oldest_age).max().map(whole_milliseconds),
        }
    }
}

fn whole_milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl<'a> LanePage<'a> {
    pub(crate) fn of(lane: &'a Lane) -> Self {
        let numbers = Numbers::of(&[lane]);
        let Lane { status: lane, head } = lane;
        LanePage {
            queue: &lane.name.queue,
            tenant: &lane.name.tenant,
            number: format!("{:x}", lane.number),
            numbers,
            paused: lane.paused,
            head: Head { waits_for: head.0, since_ms: milliseconds(head.1) },
            appended: lane.appended,
            ended: ends(lane).filter(|(_, count)| *count > 0).collect(),
        }
    }
}

/// Items of a lane that ended, by final state.
pub(crate) fn ends(lane: &LaneStatus) -> impl Iterator<Item = (&'static str, u64)> {
    JobState::ALL.into_iter().filter(|state| state.is_end()).map(|state| (state.name(), lane.ended[state as usize]))
}

/// `GET /admin/v1/queues/{queue}/lanes/{tenant}/dead`.
#[derive(Serialize)]
pub(crate) struct Dead {
    dead: Vec<LetterPage>,
    /// Ask again with it as `after`; `null`: there are no more.
    next: Option<String>,
}

#[derive(Serialize)]
struct LetterPage {
    job: String,
    age_ms: u64,
    bytes: u64,
    attempts: u32,
    /// What its last attempt ended with, as its caller sees it.
    problem: Option<Box<RawValue>>,
}

impl Dead {
    /// `limit` were asked for.
    pub(crate) fn of(letters: Vec<DeadLetter>, limit: usize) -> Self {
        let next = if letters.len() < limit { None } else { letters.last().map(|letter| letter.job.to_string()) };
        let page = |letter: DeadLetter| LetterPage {
            job: letter.job.to_string(),
            age_ms: whole_milliseconds(letter.age),
            bytes: letter.bytes,
            attempts: letter.attempts,
            problem: letter.outcome.and_then(|problem| serde_json::from_slice(&problem).ok()),
        };
        Dead { dead: letters.into_iter().map(page).collect(), next }
    }
}

/// `POST …/purge`.
#[derive(Serialize)]
pub(crate) struct Purged {
    /// Items that ended as `purged`.
    pub(crate) purged: u64,
}

/// `POST …/pause` and `…/resume`.
#[derive(Serialize)]
pub(crate) struct Paused {
    pub(crate) paused: bool,
    /// Why it will be forgotten at a restart; `null`: it will not.
    pub(crate) forgotten_at_restart: Option<String>,
}

/// `POST …/dead/replay`.
#[derive(Default, Serialize)]
pub(crate) struct Replayed {
    pub(crate) replayed: Vec<ReplayedLetter>,
    /// The first one for which there is no room ends the replay.
    pub(crate) refused: Vec<RefusedLetter>,
    /// There are letters that were not tried.
    pub(crate) more: bool,
}

#[derive(Serialize)]
pub(crate) struct ReplayedLetter {
    pub(crate) letter: String,
    /// Under which it runs now.
    pub(crate) job: String,
}

#[derive(Serialize)]
pub(crate) struct RefusedLetter {
    pub(crate) letter: String,
    pub(crate) code: &'static str,
    pub(crate) detail: String,
}

/// `POST /admin/v1/jobs/{id}/resolve`.
#[derive(Serialize)]
pub(crate) struct Resolved {
    job: String,
    state: &'static str,
}

impl Resolved {
    pub(crate) fn of(job: JobId, state: JobState) -> Self {
        Resolved { job: job.to_string(), state: state.name() }
    }
}
