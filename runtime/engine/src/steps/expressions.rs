//! Expressions of steps: what they see, and where they are evaluated.

use std::sync::Arc;

use spillgate_admission::Reservation;
use spillgate_config::plan::Step;
use spillgate_expression::{Expression, LARGE_COST, Scope};
use spillgate_model::{Code, Datum, Refusal};

use super::{Context, Done};
use crate::verdict::{Failed, Fallible};

/// Cells from which on rows are not turned into a tree on a thread that serves others.
const LARGE_CELLS: usize = 10_000;
/// What a cell takes as a node of the tree and of the interpreter's copy beside its text: an entry of each map and a box.
const TREE_BYTES_PER_CELL: usize = 256;

impl Context<'_> {
    /// Whether a condition of `step` holds.
    pub(super) async fn holds(&self, condition: &Expression, step: &Step, done: &[Done]) -> Fallible<bool> {
        match self.evaluate(condition, step, done).await? {
            Datum::Boolean(holds) => Ok(holds),
            _ => Err(fault(step, "a condition is neither true nor false")),
        }
    }

    /// The step after this one: the first route that holds, else the next in the file.
    pub(super) async fn next_step(&self, step: &Step, index: usize, done: &[Done]) -> Fallible<usize> {
        for (condition, target) in &step.route {
            if self.holds(condition, step, done).await? {
                // Forward only, as checked: a flow always ends.
                return Ok((*target).max(index + 1));
            }
        }
        Ok(index + 1)
    }

    /// Evaluates over what the call knows so far; a large one off the threads that serve others.
    pub(super) async fn evaluate(&self, expression: &Expression, step: &Step, done: &[Done]) -> Fallible<Datum> {
        let large = self.grow(expression, done).await?;
        let scope = self.scope(expression, done);
        let result = if !large && expression.cost(&scope) < LARGE_COST {
            expression.evaluate(&scope)
        } else {
            // One a core: more at once would only hold memory for longer.
            let _turn = self.inner.evaluations.acquire().await.map_err(|_| broken_off())?;
            let (expression, owned) = (expression.clone(), Owned::of(scope));
            let evaluating = tokio::task::spawn_blocking(move || expression.evaluate(&owned.scope()));
            evaluating.await.map_err(|_| broken_off())?
        };
        result.map_err(|error| fault(step, &error.message))
    }

    /// Makes the trees of the rows that the expression reads: memory is reserved first, and large ones are made on another
    /// thread. True where one is large.
    async fn grow(&self, expression: &Expression, done: &[Done]) -> Fallible<bool> {
        let mut any_large = false;
        for (name, part) in expression.paths().iter().filter_map(|path| path.strip_prefix("steps.")?.rsplit_once('.')) {
            let Some(position) = self.flow().steps.iter().position(|step| *step.name == *name) else { continue };
            let done = &done[position];
            let (Some(rows), "rows" | "value") = (&done.rows, part) else { continue };
            let cells = rows.len() * rows.columns().len();
            any_large |= cells > LARGE_CELLS;
            if done.tree.get().is_some() || (part == "value" && done.affected.is_some()) {
                continue;
            }
            let reservation = self.reserve_tree(cells * TREE_BYTES_PER_CELL + rows.held_bytes())?;
            let tree = if cells > LARGE_CELLS {
                let rows = rows.clone();
                let growing = tokio::task::spawn_blocking(move || Datum::from_rows(&rows));
                growing.await.map_err(|_| broken_off())?
            } else {
                Datum::from_rows(rows)
            };
            let _first = done.tree.set((tree, reservation));
        }
        Ok(any_large)
    }

    /// Memory for a tree, from what the server has for all calls.
    pub(super) fn reserve_tree(&self, bytes: usize) -> Fallible<Reservation> {
        let limit = self.call.live.plan.server.memory.value;
        self.inner.memory.reserve(bytes as u64, limit).map_err(|used| {
            let refusal = Refusal::new(Code::MemoryFull, "The memory for evaluating what was read is in use.");
            Failed::refused(refusal.policy("server.memory", limit, used))
        })
    }

    /// Only what the expression mentions.
    fn scope<'e>(&self, expression: &'e Expression, done: &[Done]) -> Scope<'e> {
        let mut scope = Scope::default();
        let flow = self.flow();
        for path in expression.paths() {
            let Some((root, rest)) = path.split_once('.') else { continue };
            match root {
                "input" => {
                    let position = flow.inputs.iter().position(|input| *input.name == *rest);
                    if let Some(value) = position.and_then(|position| self.call.flowfile.input.get(position)) {
                        scope.input.push((rest, Datum::from(value)));
                    }
                }
                "tenant" => {
                    if let Some(value) = self.of_tenant(rest) {
                        scope.tenant.push((rest, value));
                    }
                }
                _ => {
                    let Some((name, part)) = rest.rsplit_once('.') else { continue };
                    let Some(position) = flow.steps.iter().position(|step| *step.name == *name) else { continue };
                    add_part(&mut scope.steps, name, part, &done[position]);
                }
            }
        }
        scope
    }

    fn of_tenant(&self, name: &str) -> Option<Datum> {
        let tenant = &self.call.live.tenants[self.call.tenant].plan;
        match tenant.attributes.get(name) {
            Some(value) => Some(Datum::from(value)),
            None if name == "name" => Some(Datum::Text(tenant.name.clone())),
            None => None,
        }
    }
}

/// A step that did not run has no rows and null for the rest, so that expressions may ask for them.
fn add_part<'e>(steps: &mut Vec<(&'e str, Datum)>, name: &'e str, part: &str, done: &Done) {
    let value = match part {
        "rows" => done.rows_tree(),
        _ if !done.ran => Datum::Null,
        "value" => done.value_tree(),
        _ => done.error_tree(),
    };
    match steps.iter_mut().find(|(known, _)| *known == name) {
        Some((_, Datum::Map(parts))) => {
            Arc::make_mut(parts).insert(Arc::from(part), value);
        }
        _ => steps.push((name, Datum::Map(Arc::new([(Arc::from(part), value)].into())))),
    }
}

/// What the flow says does not fit the data it met.
fn fault(step: &Step, message: &str) -> Box<Failed> {
    Failed::refused(Refusal::new(Code::ExpressionFailed, format!("Step {} cannot be evaluated: {message}.", step.name)))
}

fn broken_off() -> Box<Failed> {
    Failed::refused(Refusal::new(Code::Internal, "An evaluation broke off."))
}

/// A scope that outlives its call, for another thread.
struct Owned {
    input: Vec<(String, Datum)>,
    tenant: Vec<(String, Datum)>,
    steps: Vec<(String, Datum)>,
}

impl Owned {
    fn of(scope: Scope<'_>) -> Self {
        let own = |values: Vec<(&str, Datum)>| values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Owned { input: own(scope.input), tenant: own(scope.tenant), steps: own(scope.steps) }
    }
    fn scope(&self) -> Scope<'_> {
        fn lent(values: &[(String, Datum)]) -> Vec<(&str, Datum)> {
            values.iter().map(|(name, value)| (name.as_str(), value.clone())).collect()
        }
        Scope { input: lent(&self.input), tenant: lent(&self.tenant), steps: lent(&self.steps) }
    }
}
