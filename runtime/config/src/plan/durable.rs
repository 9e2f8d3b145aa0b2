//! Durable work as proven: queues, the queue step, keys, schedules.

use std::sync::Arc;
use std::time::Duration;

use spillgate_expression::Expression;
use spillgate_model::Type;

use super::{Cron, Limit, Origin, SqlStep, SqlText};

/// `[queue.NAME]`.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct QueuePlan {
    pub name: Arc<str>,
    pub items: Limit<u64>,
    pub bytes: Limit<u64>,
    /// Content bytes of one item.
    pub max_item: Limit<u64>,
    /// Several tenants may call flows that use it: each leaves a part of it to the others.
    pub shared: bool,
    pub when_full: WhenFull,
    pub workers: usize,
    /// Attempts that count, all together.
    pub attempts: u32,
    pub lease: Duration,
    /// When an item is given up whose flow does not say.
    pub expires: Duration,
    /// `results.max_result`.
    pub max_result: u64,
    /// `results.keep`: of the final state, and of the result where there is room.
    pub result_keep: Duration,
    /// `dead_letters.items`, a lane.
    pub dead_items: u64,
    pub dead_keep: Duration,
    pub origin: Origin,
}

/// `when_full`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// Refuse the new item.
    Refuse,
    /// End the offender's own oldest waiting items as `shed`.
    ShedOldest,
}

/// `queued` of a tenant or class.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct QueuedPlan {
    pub items: Limit<u64>,
    pub bytes: Limit<u64>,
    /// Bytes of disk that all its lanes may hold.
    pub disk: Limit<u64>,
}

impl Default for QueuedPlan {
    fn default() -> Self {
        let limit = |value| Limit { value, origin: Origin::Default };
        QueuedPlan { items: limit(10_000), bytes: limit(256 << 20), disk: limit(512 << 20) }
    }
}

/// The `queue` step of a flow.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct QueueCut {
    /// Index of the step: what stands before it runs while the caller waits.
    pub step: usize,
    /// Index into [`super::Plan::queues`].
    pub queue: usize,
    /// `expires`; the queue's own without it.
    pub expires: Duration,
    /// Items of a tenant with the same value complete in order.
    pub order_by: Option<Expression>,
    /// Indexes of the steps before it that are read after it: what an item holds beside its input.
    pub carries: Vec<usize>,
}

/// `emit = "FLOW"`.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct EmitStep {
    /// Name of the target flow: its first step is a `queue` step.
    pub flow: Arc<str>,
    /// Index of it into [`super::Plan::flows`].
    pub target: usize,
    /// A list of maps, each the input of one item. Without it the value of the last step before is the input of one.
    pub each: Option<Expression>,
}

/// Whether a caller sends a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyNeed {
    /// Without one the call is refused.
    Required,
    /// It may.
    Optional,
    /// The key is made of run and input (a key that is sent counts too).
    Derived,
}

/// `idempotency = {…}`.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct IdempotencyPlan {
    pub need: KeyNeed,
    pub keep: Duration,
    /// The same input from the same run counts as a repeat for so long, even under a new key.
    pub derive_within: Option<Duration>,
    pub record: Option<RecordPlan>,
    /// A row means that the work was done; none proves that it was not. Reads the flow's inputs, `:idempotency_key`, `:job`.
    pub verify: Option<SqlStep>,
}

/// `record = "TABLE"`: a row in the transaction of the flow's one write step.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct RecordPlan {
    pub table: Box<str>,
    /// Index into [`super::Plan::databases`].
    pub database: usize,
    /// Index of the write step.
    pub step: usize,
    /// Inserts TENANT, FLOW, IDEMPOTENCY_KEY, JOB, DONE_AT.
    pub insert: SqlText,
    /// Finds JOB by TENANT, FLOW and IDEMPOTENCY_KEY.
    pub find: SqlText,
    /// What makes the table: printed by `check`.
    pub ddl: String,
}

/// `unique = {…}`.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct UniquePlan {
    /// Indexes into the flow's inputs.
    pub by: Vec<usize>,
    pub within: Duration,
}

/// `[schedule]`.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct SchedulePlan {
    pub when: When,
    /// Who it runs as: index into [`super::Plan::tenants`].
    pub tenant: usize,
    /// What the high-water mark is after a run; not moved where it gives null. `:watermark` in SQL is the mark before it
    /// (NULL at first), bound as text or number.
    pub watermark: Option<Expression>,
    /// The type of the column the mark is read from, where the flow declares it: its text is bound as that.
    pub watermark_type: Option<Type>,
}

/// When a scheduled flow runs. UTC.
#[derive(Clone, Debug)]
pub enum When {
    /// `every`.
    Every(Duration),
    /// `cron`: minute, hour, day of month, month, day of week.
    Cron(Cron),
}

/// A value of a statement that is no input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// The tenant's name.
    Tenant,
    /// The flow's name.
    Flow,
    /// `:idempotency_key`: the caller's key; a number drawn for the item stands in where there is none.
    Key,
    /// `:job`: the job id.
    Job,
    /// `:watermark` of a schedule.
    Watermark,
}
