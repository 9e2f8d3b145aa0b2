//! Queues, lanes and jobs: what is seen of them, and what an operator may do to them.
//!
//! Invariants
//! 1. A change is carried through by a task of its own, whoever still listens, and goes into the audit with how it ended.
//! 2. Everything asked for is bounded: letters of a page, letters of a replay, the length of a note.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::{Path, RawQuery, State as Shared};
use axum::response::Response;
use serde::Deserialize;
use spillgate_engine::Durable;
use spillgate_model::{Code, Refusal, problem};
use spillgate_queue::{JobId, JobState, LaneName, LaneStatus, Resolution, Store, StoreError};
use spillgate_telemetry::{ResolvedBy, happened};

use crate::change::{self, Effect};
use crate::pages::{self, queues};
use crate::stack::Asked;
use crate::{State, query, reply};

/// Letters on one page, unless fewer are asked for.
const LETTERS: usize = 100;
/// Most letters on one page, and of one replay.
const MOST_LETTERS: usize = 1_000;
/// Entries of the audit on one page.
const ENTRIES: usize = 100;
const MOST_ENTRIES: usize = 1_000;
/// Characters of a note.
const NOTE_CHARACTERS: usize = 1_000;

/// `GET /admin/v1/queues`.
pub(crate) async fn queues(Shared(state): Shared<Arc<State>>) -> Response {
    let live = state.engine.live();
    match state.engine.store() {
        Durable::Absent => reply::json(&queues::Queues::of(&live.plan, &queues::Known::Absent)),
        Durable::Recovering => reply::json(&queues::Queues::of(&live.plan, &queues::Known::Recovering)),
        Durable::Failed(detail) => reply::json(&queues::Queues::of(&live.plan, &queues::Known::Unusable(&detail))),
        Durable::Serving(store) => {
            let (status, lanes) = (store.status(), queues::Lane::all(store.lanes(None), &state.engine.held_lanes()));
            reply::json(&queues::Queues::of(&live.plan, &queues::Known::Open(&status, &lanes)))
        }
    }
}

/// `GET /admin/v1/queues/{queue}/lanes/{tenant}`.
pub(crate) async fn lane(Shared(state): Shared<Arc<State>>, Path(name): Path<Names>, asked: Extension<Asked>) -> Response {
    let found = store(&state).and_then(|store| find_lane(&store, &name.lane()));
    let seen = found.map(|lane| queues::Lane::all(vec![lane], &state.engine.held_lanes()));
    reply::result(seen.as_ref().map(|lanes| lanes.first().map(queues::LanePage::of)), &asked.id)
}

/// `GET /admin/v1/queues/{queue}/lanes/{tenant}/dead?after=JOB&limit=N`.
pub(crate) async fn dead(
    Shared(state): Shared<Arc<State>>,
    Path(name): Path<Names>,
    RawQuery(query): RawQuery,
    asked: Extension<Asked>,
) -> Response {
    let letters = async {
        let span = Span::read(query.as_deref())?;
        let after = span.after.map(|id| job_id(&id)).transpose()?;
        let limit = span.limit.unwrap_or(LETTERS).clamp(1, MOST_LETTERS);
        let letters = store(&state)?.dead(&name.lane(), after, limit).await.map_err(refusal)?;
        Ok(queues::Dead::of(letters, limit))
    };
    reply::result(letters.await.as_ref(), &asked.id)
}

/// `POST …/purge`, with `{"dead":true}` for the dead letters too.
pub(crate) async fn purge(Shared(state): Shared<Arc<State>>, Path(name): Path<Names>, asked: Extension<Asked>, body: Bytes) -> Response {
    #[derive(Default, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Wanted {
        #[serde(default)]
        dead: bool,
    }
    let wanted = match read_body::<Wanted>(&body) {
        Ok(wanted) => wanted,
        Err(refusal) => return reply::refusal(&refusal, &asked.id),
    };
    let work = {
        let (state, lane) = (state.clone(), name.lane());
        async move {
            let store = store(&state)?;
            let before = find_lane(&store, &lane)?;
            let purged = store.purge(&lane, wanted.dead).await.map_err(refusal)?;
            let from = format!("{} waiting, {} dead", before.waiting, before.dead);
            Ok(Effect { value: queues::Purged { purged }, from: Some(from), to: Some(format!("{purged} purged")) })
        }
    };
    change::carry_through(&state, &asked, "purge", name.subject(), work).await
}

/// `POST …/pause`.
pub(crate) async fn pause(state: Shared<Arc<State>>, name: Path<Names>, asked: Extension<Asked>) -> Response {
    set_paused(state, name, asked, true).await
}

/// `POST …/resume`.
pub(crate) async fn resume(state: Shared<Arc<State>>, name: Path<Names>, asked: Extension<Asked>) -> Response {
    set_paused(state, name, asked, false).await
}

async fn set_paused(Shared(state): Shared<Arc<State>>, Path(name): Path<Names>, asked: Extension<Asked>, paused: bool) -> Response {
    let word = |paused| Some(if paused { "paused" } else { "running" }.to_owned());
    let work = {
        let (state, lane) = (state.clone(), name.lane());
        async move {
            let store = store(&state)?;
            if paused && lane.queue.starts_with('(') {
                let detail =
                    "The engine's own lanes hold runs of schedules and direct calls, which no pause stops: change the flow's file instead.";
                return Err(Refusal::new(Code::WrongState, detail));
            }
            // A lane that nothing was put into yet may be paused too, if there can ever be one.
            let before = match find_lane(&store, &lane) {
                Ok(known) => known.paused,
                Err(_) if is_planned(&state, &lane) => false,
                Err(refusal) => return Err(refusal),
            };
            // Kept first: what an operator sees as paused stays so. Where it cannot be kept, it is paused all the same.
            let forgotten_at_restart = state.operations.keep_pause(&lane, paused).await.err();
            store.pause(&lane, paused);
            Ok(Effect { value: queues::Paused { paused, forgotten_at_restart }, from: word(before), to: word(paused) })
        }
    };
    change::carry_through(&state, &asked, if paused { "pause" } else { "resume" }, name.subject(), work).await
}

/// `POST …/dead/replay`, with `{"jobs":[…]}` or `{"all":true}`.
pub(crate) async fn replay(Shared(state): Shared<Arc<State>>, Path(name): Path<Names>, asked: Extension<Asked>, body: Bytes) -> Response {
    #[derive(Default, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Wanted {
        #[serde(default)]
        jobs: Vec<String>,
        #[serde(default)]
        all: bool,
    }
    let wanted = read_body::<Wanted>(&body).and_then(|wanted| {
        let jobs: Vec<JobId> = wanted.jobs.iter().map(|id| job_id(id)).collect::<Result<_, _>>()?;
        match (wanted.all, jobs.len()) {
            (true, 0) => Ok(None),
            (false, 1..=MOST_LETTERS) => Ok(Some(jobs)),
            _ => Err(malformed(r#"Send {"all":true}, or {"jobs":[…]} with 1 to 1000 of them."#)),
        }
    });
    let jobs = match wanted {
        Ok(jobs) => jobs,
        Err(refusal) => return reply::refusal(&refusal, &asked.id),
    };
    let work = {
        let (state, lane) = (state.clone(), name.lane());
        async move {
            let page = replay_letters(&state, &lane, jobs).await?;
            let to = format!("{} replayed, {} refused", page.replayed.len(), page.refused.len());
            Ok(Effect { value: page, from: None, to: Some(to) })
        }
    };
    change::carry_through(&state, &asked, "replay", name.subject(), work).await
}

/// Replays the letters of a lane with these ids, or all of them up to the bound. The first one without room ends it: those
/// behind it would be refused as well.
async fn replay_letters(state: &State, lane: &LaneName, jobs: Option<Vec<JobId>>) -> Result<queues::Replayed, Refusal> {
    let store = store(state)?;
    find_lane(&store, lane)?;
    let most = jobs.as_ref().map_or(MOST_LETTERS, |_| usize::MAX);
    let mut page = queues::Replayed::default();
    let mut wanted = jobs;
    let (mut after, mut tried) = (None, 0);
    loop {
        let letters = store.dead(lane, after, LETTERS).await.map_err(refusal)?;
        let Some(last) = letters.last() else { break };
        after = Some(last.job);
        for letter in letters {
            if tried == most {
                page.more = true;
                return Ok(page);
            }
            if let Some(wanted) = &mut wanted {
                let Some(place) = wanted.iter().position(|id| *id == letter.job) else { continue };
                wanted.swap_remove(place);
            }
            tried += 1;
            let live = state.engine.live();
            let replayed = match state.engine.lane_room(&live, lane, letter.bytes) {
                Ok(room) => store.replay(letter.job, room).await.map_err(refusal),
                Err(refusal) => {
                    page.refused.push(refused(letter.job, &refusal));
                    page.more = true;
                    return Ok(page);
                }
            };
            match replayed {
                Ok(job) => page.replayed.push(queues::ReplayedLetter { letter: letter.job.to_string(), job: job.to_string() }),
                Err(refusal) => page.refused.push(refused(letter.job, &refusal)),
            }
        }
        if wanted.as_ref().is_some_and(Vec::is_empty) {
            break;
        }
    }
    let none = Refusal::new(Code::UnknownJob, "The lane has no such dead letter.");
    page.refused.extend(wanted.unwrap_or_default().into_iter().map(|job| refused(job, &none)));
    Ok(page)
}

fn refused(job: JobId, refusal: &Refusal) -> queues::RefusedLetter {
    queues::RefusedLetter { letter: job.to_string(), code: refusal.code.name(), detail: refusal.detail.clone() }
}

/// `POST /admin/v1/jobs/{id}/resolve`, with `{"state":"succeeded|failed","note":…}`.
pub(crate) async fn resolve(Shared(state): Shared<Arc<State>>, Path(id): Path<String>, asked: Extension<Asked>, body: Bytes) -> Response {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Wanted {
        state: String,
        #[serde(default)]
        note: String,
    }
    let wanted = job_id(&id).and_then(|job| {
        let wanted = serde_json::from_slice::<Wanted>(&body).map_err(|error| malformed(&format!("The body does not fit: {error}.")))?;
        let end = [JobState::Succeeded, JobState::Failed].into_iter().find(|end| end.name() == wanted.state);
        let end = end.ok_or_else(|| malformed("A job is resolved as `succeeded` or `failed`."))?;
        if wanted.note.chars().count() > NOTE_CHARACTERS {
            return Err(malformed(&format!("A note has at most {NOTE_CHARACTERS} characters.")));
        }
        Ok((job, end, wanted.note))
    });
    let (job, end, note) = match wanted {
        Ok(wanted) => wanted,
        Err(refusal) => return reply::refusal(&refusal, &asked.id),
    };
    let subject = format!("jobs/{job}");
    let work = {
        let (state, request_id) = (state.clone(), asked.id.clone());
        async move {
            let store = store(&state)?;
            let outcome = outcome_of(end, &note, &request_id);
            store.resolve(job, Resolution { state: end, outcome: Some(outcome.into()) }).await.map_err(refusal)?;
            happened::interrupted_resolved(&state.telemetry, "", &job.to_string(), ResolvedBy::Operator, end.name());
            let to = if note.is_empty() { end.name().to_owned() } else { format!("{}: {note}", end.name()) };
            Ok(Effect { value: queues::Resolved::of(job, end), from: Some(JobState::Unknown.name().to_owned()), to: Some(to) })
        }
    };
    change::carry_through(&state, &asked, "resolve", subject, work).await
}

/// What the job's caller reads: that a person found out, and what.
fn outcome_of(end: JobState, note: &str, request_id: &str) -> Vec<u8> {
    if end == JobState::Succeeded {
        return serde_json::json!({ "resolved_by": "operator", "note": note }).to_string().into_bytes();
    }
    let detail = format!("An operator found that the write did not happen. {note}");
    // Whenever its caller likes.
    let refusal = Refusal::new(Code::DatabaseError, detail.trim_end()).retry_after(Duration::ZERO);
    problem::body(&refusal, refusal.retry_after_ms(), request_id)
}

/// `GET /admin/v1/audit?after=NUMBER&limit=N`.
pub(crate) async fn audit(Shared(state): Shared<Arc<State>>, RawQuery(query): RawQuery, asked: Extension<Asked>) -> Response {
    let entries = async {
        let span = Span::read(query.as_deref())?;
        let after = span.after.map_or(Ok(0), |number| number.parse().map_err(|_| malformed("`after` is the number of an entry.")))?;
        let limit = span.limit.unwrap_or(ENTRIES).clamp(1, MOST_ENTRIES);
        let unreadable = |why: String| Refusal::new(Code::Internal, format!("The audit cannot be read: {why}"));
        let entries = state.operations.audit(after, limit).await.map_err(unreadable)?;
        Ok(pages::audit::Audit::of(entries, limit))
    };
    reply::result(entries.await.as_ref(), &asked.id)
}

/// A lane in a path.
#[derive(Deserialize)]
pub(crate) struct Names {
    queue: String,
    tenant: String,
}

impl Names {
    fn lane(&self) -> LaneName {
        LaneName { queue: self.queue.as_str().into(), tenant: self.tenant.as_str().into() }
    }
    fn subject(&self) -> String {
        format!("queues/{}/lanes/{}", self.queue, self.tenant)
    }
}

/// Where a page begins, and how much of it is wanted.
struct Span<'a> {
    after: Option<Cow<'a, str>>,
    limit: Option<usize>,
}

impl<'a> Span<'a> {
    fn read(query: Option<&'a str>) -> Result<Self, Refusal> {
        let [after, limit] = query::read(query, ["after", "limit"], "This page takes `after` and `limit`.")?;
        let limit = limit.map(|limit| limit.parse().map_err(|_| malformed("`limit` is a whole number."))).transpose()?;
        Ok(Span { after, limit })
    }
}

/// A JSON object; nothing at all stands for an empty one.
fn read_body<T: Default + for<'a> Deserialize<'a>>(body: &[u8]) -> Result<T, Refusal> {
    if body.trim_ascii().is_empty() {
        return Ok(T::default());
    }
    serde_json::from_slice(body).map_err(|error| malformed(&format!("The body does not fit: {error}.")))
}

fn malformed(detail: &str) -> Refusal {
    Refusal::new(Code::Malformed, detail)
}

fn job_id(text: &str) -> Result<JobId, Refusal> {
    text.parse().map_err(|_| Refusal::new(Code::UnknownJob, "That is not the id of a job."))
}

/// The store, or why there is none.
pub(crate) fn store(state: &State) -> Result<Store, Refusal> {
    match state.engine.store() {
        Durable::Serving(store) => Ok(store),
        Durable::Absent => Err(Refusal::new(Code::UnknownJob, "There is no store: nothing that runs needs one.")),
        Durable::Recovering => Err(Refusal::new(Code::Recovering, "The store is being opened.")),
        Durable::Failed(detail) => Err(Refusal::new(Code::StoreFailed, format!("The store could not be opened: {detail}"))),
    }
}

/// Items, bytes and disk that all lanes of a tenant hold.
pub(crate) fn queued_by(state: &State, tenant: &str) -> Option<[u64; 3]> {
    let store = store(state).ok()?;
    let lanes = store.lanes(None).into_iter().filter(|lane| *lane.name.tenant == *tenant);
    let add = |sum: [u64; 3], lane: LaneStatus| [sum[0] + lane.waiting + lane.running, sum[1] + lane.bytes, sum[2] + lane.disk];
    Some(lanes.fold([0; 3], add))
}

fn find_lane(store: &Store, name: &LaneName) -> Result<LaneStatus, Refusal> {
    let lane = store.lanes(Some(&name.queue)).into_iter().find(|lane| lane.name == *name);
    lane.ok_or_else(|| Refusal::new(Code::UnknownPage, "The store has no such lane."))
}

/// Whether the plan that runs may fill such a lane.
fn is_planned(state: &State, lane: &LaneName) -> bool {
    let plan = &state.engine.live().plan;
    plan.queues.iter().any(|queue| queue.name == lane.queue) && plan.tenants.iter().any(|tenant| tenant.name == lane.tenant)
}

fn refusal(error: StoreError) -> Refusal {
    let detail = error.to_string();
    match error {
        StoreError::NotFound => Refusal::new(Code::UnknownJob, "There is no such job or lane, or nothing is kept of it."),
        StoreError::WrongState(state) => Refusal::new(Code::WrongState, format!("The job is {}: that cannot be done to it.", state.name())),
        StoreError::Closing => Refusal::new(Code::Draining, "The store is being closed."),
        StoreError::Full(_) => Refusal::new(Code::QueueFull, detail),
        StoreError::Failed(_) | StoreError::Unusable(_) => Refusal::new(Code::StoreFailed, detail),
        StoreError::LeaseLost | StoreError::Damaged => Refusal::new(Code::Internal, detail),
    }
}
