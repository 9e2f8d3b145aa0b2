//! Flows made ready to run, once per plan.

use std::sync::Arc;

use spillgate_config::Plan;
use spillgate_config::plan::{Action, Flow, RecordPlan, SqlStep, Step};
use spillgate_connector::{DeclaredColumn, ReadLimits};

use super::http::PreparedHttp;
use super::progress::Needed;
use crate::breaker::LiveBreaker;
use crate::database::LiveDatabase;
use crate::seats::FlowSeats;
use crate::statements::Prepared;

/// A flow ready to run.
#[derive(Debug)]
pub(crate) struct PreparedFlow {
    /// In the order of the flow's steps.
    pub(crate) steps: Vec<PreparedStep>,
    /// The whole flow is one plain read: the common case, run without any of the general machinery.
    pub(crate) lookup: Option<Lookup>,
    /// `idempotency.record`.
    pub(crate) record: Option<PreparedRecord>,
    /// `idempotency.verify`.
    pub(crate) verify: Option<PreparedVerify>,
    /// It hands on items.
    pub(crate) emits: bool,
    /// What is carried over the flow's cut.
    pub(crate) needed: Needed,
    /// By the database's index; none where it asks nothing of it.
    pub(crate) breakers: Vec<Option<Arc<LiveBreaker>>>,
    /// How long it holds a seat, by the database's index.
    pub(crate) seats: Vec<Arc<FlowSeats>>,
    /// Where its first statement runs, if callers wait for it and get its failure.
    pub(crate) asked_first: Option<usize>,
}

/// The statements of a flow's record.
#[derive(Debug)]
pub(crate) struct PreparedRecord {
    pub(crate) database: usize,
    pub(crate) insert: Prepared,
    pub(crate) find: Prepared,
}

/// What tells whether a flow's write was done.
#[derive(Debug)]
pub(crate) struct PreparedVerify {
    pub(crate) database: usize,
    pub(crate) text: Prepared,
    pub(crate) limits: ReadLimits,
}

/// Which step and database a flow of one plain read has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lookup {
    pub(crate) database: usize,
    pub(crate) limits: ReadLimits,
}

/// A step ready to run.
#[derive(Debug)]
pub(crate) enum PreparedStep {
    Sql(PreparedSql),
    Http(PreparedHttp),
    /// Nothing to prepare.
    Plain,
}

/// A statement, and for a paged step the one for later pages.
#[derive(Debug)]
pub(crate) struct PreparedSql {
    pub(crate) first: Prepared,
    pub(crate) later: Option<Prepared>,
    /// The flow is paged by this step.
    pub(crate) paged: bool,
    pub(crate) limits: ReadLimits,
}

impl PreparedFlow {
    /// `databases`: in the plan's order.
    pub(crate) fn new(flow: &Flow, plan: &Plan, databases: &[Arc<LiveDatabase>]) -> Result<Self, String> {
        let steps = flow.steps.iter().enumerate().map(|(index, step)| match &step.action {
            Action::Sql(sql) => Ok(PreparedStep::Sql(sql_step(flow, index, sql, plan))),
            Action::Http(http) => match PreparedHttp::new(http, &plan.server.http_hosts, plan.tenants.len()) {
                Ok(prepared) => Ok(PreparedStep::Http(prepared)),
                Err(problem) => Err(format!("flow {}, step {}: {problem}", flow.name, step.name)),
            },
            Action::Map(_) | Action::Queue | Action::Emit(_) | Action::Route => Ok(PreparedStep::Plain),
        });
        let steps = steps.collect::<Result<Vec<_>, String>>()?;
        let once = flow.idempotency.as_ref();
        let record = once.and_then(|once| once.record.as_ref()).map(|wanted| record(flow, wanted, plan));
        let verify = once.and_then(|once| once.verify.as_ref()).map(|sql| verify(flow, sql, plan));
        let emits = flow.steps.iter().any(|step| matches!(step.action, Action::Emit(_)));
        let seats = databases.iter().map(|database| database.seats.flow(flow)).collect();
        let breakers = databases.iter().enumerate().map(|(index, database)| asks(flow, index).then(|| database.breakers.of(flow)));
        let breakers = breakers.collect();
        let (lookup, asked_first) = (lookup(flow, &steps), asked_first(flow));
        Ok(PreparedFlow { emits, lookup, needed: Needed::of(flow), steps, record, verify, breakers, seats, asked_first })
    }
}

/// Whether a flow has anything to do with a database.
fn asks(flow: &Flow, database: usize) -> bool {
    let in_steps = flow.steps.iter().any(|step| matches!(&step.action, Action::Sql(sql) if sql.database == database));
    let once = flow.idempotency.as_ref();
    let by_record = once.and_then(|once| once.record.as_ref()).is_some_and(|record| record.database == database);
    let by_verify = once.and_then(|once| once.verify.as_ref()).is_some_and(|verify| verify.database == database);
    in_steps || by_record || by_verify
}

fn record(flow: &Flow, record: &RecordPlan, plan: &Plan) -> PreparedRecord {
    let driver = plan.databases[record.database].driver;
    let prepared = |text| Prepared::new(text, &flow.inputs, driver, Arc::from([]));
    PreparedRecord { database: record.database, insert: prepared(&record.insert), find: prepared(&record.find) }
}

fn verify(flow: &Flow, sql: &SqlStep, plan: &Plan) -> PreparedVerify {
    let text = Prepared::new(&sql.text, &flow.inputs, plan.databases[sql.database].driver, Arc::from([]));
    // One row says it.
    PreparedVerify { database: sql.database, text, limits: ReadLimits { max_rows: 1, max_bytes: sql.max_bytes } }
}

fn sql_step(flow: &Flow, index: usize, sql: &SqlStep, plan: &Plan) -> PreparedSql {
    let driver = plan.databases[sql.database].driver;
    let columns = sql.columns.iter().map(|(name, kind)| DeclaredColumn { name: name.clone(), kind: *kind });
    let columns: Arc<[DeclaredColumn]> = columns.collect();
    let prepared = |text| Prepared::new(text, &flow.inputs, driver, columns.clone());
    PreparedSql {
        first: prepared(&sql.text),
        later: sql.text_after_cursor.as_ref().map(prepared),
        paged: flow.page.as_ref().is_some_and(|page| page.step == index),
        limits: ReadLimits { max_rows: sql.max_rows, max_bytes: sql.max_bytes },
    }
}

fn lookup(flow: &Flow, steps: &[PreparedStep]) -> Option<Lookup> {
    let ([step], [PreparedStep::Sql(prepared)]) = (flow.steps.as_slice(), steps) else { return None };
    let Action::Sql(sql) = &step.action else { return None };
    let plain =
        !sql.write && !prepared.paged && step.when.is_none() && step.route.is_empty() && step.on_error.is_none() && step.retry.is_none();
    plain.then_some(Lookup { database: sql.database, limits: prepared.limits })
}

/// The database that a call of the flow is sure to need a seat of before anything else is done for it: the gate may ask for it. A
/// cached reply needs none, and what `on_error` stands in for is no failure.
fn asked_first(flow: &Flow) -> Option<usize> {
    let is_plain = |step: &Step| step.when.is_none() && step.on_error.is_none();
    let first = flow.steps.iter().find(|step| !matches!(step.action, Action::Map(_)) || !step.route.is_empty())?;
    match &first.action {
        Action::Sql(sql) if is_plain(first) && flow.cache.is_none() => Some(sql.database),
        _ => None,
    }
}
