//! How far a run has come, and what of it is carried over the cut of a `queue` step.

use std::sync::{Arc, OnceLock};

use spillgate_admission::Reservation;
use spillgate_config::plan::{Action, Flow, Step};
use spillgate_model::{Code, Datum, Rows};

use crate::Outcome;

/// What a step left behind.
#[derive(Default)]
pub(super) struct Done {
    pub(super) ran: bool,
    pub(super) rows: Option<Arc<Rows>>,
    pub(super) next: Option<String>,
    pub(super) affected: Option<u64>,
    pub(super) value: Option<Datum>,
    pub(super) error: Option<Code>,
    /// `rows` as a tree, made when an expression first reads it, and the memory that it takes.
    pub(super) tree: OnceLock<(Datum, Reservation)>,
    /// The memory that `value` takes beyond what its step may read.
    pub(super) _grown: Option<Reservation>,
}

impl Done {
    pub(super) fn of_rows(rows: Rows) -> Self {
        Done { rows: Some(Arc::new(rows)), ..Done::default() }
    }
    pub(super) fn of_value(value: Datum) -> Self {
        Done { value: Some(value), ..Done::default() }
    }
    /// Made before by `Context::grow`; empty where there are no rows.
    pub(super) fn rows_tree(&self) -> Datum {
        self.tree.get().map_or_else(|| Datum::List(Arc::from([])), |(tree, _)| tree.clone())
    }
    /// `steps.NAME.value`: of a read its rows, of a write how many rows it changed.
    pub(super) fn value_tree(&self) -> Datum {
        match (&self.value, self.affected) {
            (Some(value), _) => value.clone(),
            (None, Some(affected)) => {
                let affected = i64::try_from(affected).unwrap_or(i64::MAX);
                Datum::Map(Arc::new([(Arc::from("affected"), Datum::Integer(affected))].into()))
            }
            (None, None) => self.rows_tree(),
        }
    }
    /// The code of what went wrong.
    pub(super) fn error_tree(&self) -> Datum {
        self.error.map_or(Datum::Null, |code| Datum::Text(Arc::from(code.name())))
    }
}

/// How far a run has come.
pub(crate) struct Progress {
    pub(super) done: Vec<Done>,
    /// The last step that ran and has a value.
    pub(super) last: Option<usize>,
    /// The step that is next.
    pub(super) index: usize,
}

/// What a step before the cut left for those behind it.
#[derive(Clone, Debug)]
pub(crate) struct Carried {
    pub(crate) step: Arc<str>,
    /// The flow's value so far is this step's.
    pub(crate) last: bool,
    pub(crate) ran: bool,
    pub(crate) rows: Option<Arc<Rows>>,
    pub(crate) affected: Option<u64>,
    pub(crate) value: Option<Datum>,
    pub(crate) error: Option<Code>,
}

impl Progress {
    /// Before the first step.
    pub(crate) fn new(flow: &Flow) -> Self {
        Progress { done: flow.steps.iter().map(|_| Done::default()).collect(), last: None, index: 0 }
    }

    /// Behind the flow's cut, with what was carried over it. Steps the flow no longer has are left out.
    pub(super) fn behind_cut(flow: &Flow, cut: usize, carried: &[Carried]) -> Self {
        let mut progress = Progress { index: cut + 1, ..Progress::new(flow) };
        for one in carried {
            let Some(position) = flow.steps.iter().position(|step| step.name == one.step) else { continue };
            let Carried { ran, rows, affected, value, error, .. } = one.clone();
            progress.done[position] = Done { ran, rows, affected, value, error, ..Done::default() };
            if one.last {
                progress.last = Some(position);
            }
        }
        progress
    }

    /// What the steps behind the cut need of those before it.
    pub(crate) fn carried(&self, flow: &Flow, needed: &Needed) -> Vec<Carried> {
        let last = self.last.filter(|_| needed.value);
        let wanted = |index: &usize| needed.steps.contains(index) || last == Some(*index);
        let one = |index: usize| {
            let Done { ran, rows, affected, value, error, .. } = &self.done[index];
            Carried {
                step: flow.steps[index].name.clone(),
                last: last == Some(index),
                ran: *ran,
                rows: rows.clone(),
                affected: *affected,
                value: value.clone(),
                error: *error,
            }
        };
        (0..flow.steps.len()).filter(wanted).map(one).collect()
    }

    /// The value of the last step that ran.
    pub(super) fn outcome(mut self) -> Outcome {
        let nothing = Outcome::Value { value: Datum::Null, stale: None };
        let Some(last) = self.last else { return nothing };
        let done = self.done.swap_remove(last);
        match (done.value, done.rows) {
            (Some(value), _) => Outcome::Value { value, stale: None },
            (None, Some(rows)) => Outcome::Rows { rows, next: done.next, affected: done.affected, stale: None },
            (None, None) => nothing,
        }
    }
}

/// Whether a step has a value of its own: the flow's is that of the last one that ran.
pub(super) fn has_value(step: &Step) -> bool {
    matches!(step.action, Action::Sql(_) | Action::Map(_) | Action::Http(_))
}

/// What the steps behind a flow's cut need of those before it.
#[derive(Debug, Default)]
pub(crate) struct Needed {
    /// Indexes of steps that are read there.
    pub(crate) steps: Vec<usize>,
    /// The flow's value may be that of a step before the cut.
    pub(crate) value: bool,
}

impl Needed {
    pub(super) fn of(flow: &Flow) -> Self {
        let Some(cut) = &flow.queue else { return Needed::default() };
        // The first step that always runs takes the place of what came before, unless that is handed on first.
        let hands_on = |step: &Step| matches!(&step.action, Action::Emit(emit) if emit.each.is_none());
        let decides = flow.steps[cut.step + 1..].iter().find(|step| has_value(step) || hands_on(step) || !step.route.is_empty());
        let replaced = decides.is_some_and(|step| has_value(step) && step.when.is_none());
        Needed { steps: cut.carries.clone(), value: !replaced }
    }
}
