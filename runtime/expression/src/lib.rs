//! Expressions of flow files: CEL that always ends, at a cost known before it runs.
//!
//! Invariants
//! 1. An expression reads `input.NAME`, `tenant.NAME` and `steps.NAME.{rows,value,error}` and nothing else; every function it
//!    calls stands in one table. Both are checked when it is compiled.
//! 2. Before it runs, a bound on its steps is computed from its tree and the sizes of what it reads; above
//!    [`MAX_COST`] it is refused. Every copied byte is part of that bound, so memory is bounded with it.
//! 3. It never panics and never overflows the stack: depth is bounded when compiled, a panic below is an error.
//! 4. Values are exact both ways; an unsigned integer beyond 64 bits signed is an error.
//!
//! It refuses: clocks, randomness, patterns that are not literals, macros nested more than three deep.
//! It adds to CEL: `rows[-1]` counts from the end, and is null where there is no such row.

mod check;
mod columns;
mod convert;
mod cost;
mod from_end;
mod functions;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use cel::common::ast::IdedExpr;
use cel::{Context, Env, ExecutionError, ParseErrors, Value};
use spillgate_model::Datum;

/// Most bytes of an expression's text.
pub const MAX_TEXT_BYTES: usize = 16 * 1024;
/// Most steps of one evaluation (a step is about a tenth of a microsecond, or sixteen bytes copied).
pub const MAX_COST: u64 = 1_000_000;
/// From this cost on an evaluation does not belong on a thread that serves others.
pub const LARGE_COST: u64 = 50_000;
/// Most bytes of a result, about.
pub const MAX_RESULT_BYTES: usize = 16 << 20;

/// The parser and the tree walks recurse: they run on a stack that holds the deepest tree of [`MAX_TEXT_BYTES`].
const COMPILE_STACK_BYTES: usize = 256 << 20;

static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut environment = Env::stdlib();
    // Cannot clash: nothing else was added. If it ever did, its functions would be unknown, which tests notice.
    let _added = environment.add_extension(cel::extensions::strings);
    Arc::new(environment)
});

/// A compiled expression. Cheap to clone.
#[derive(Clone)]
pub struct Expression {
    compiled: Arc<Compiled>,
}

struct Compiled {
    text: Box<str>,
    /// With indexes from the end written out.
    tree: IdedExpr,
    names: Names,
}

/// What an expression reads. `input` and `tenant` are maps; a step's map has `rows`, `value`, `error`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Paths it mentions, such as `steps.position.rows` or `input.id`; sorted, each once.
    pub paths: Vec<String>,
}

/// Why an expression cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ExpressionError {
    /// What and where within the text.
    pub message: String,
    /// Byte offset within the expression, where known.
    pub offset: Option<usize>,
}

impl ExpressionError {
    fn new(message: impl Into<String>) -> Self {
        ExpressionError { message: message.into(), offset: None }
    }
}

/// What an expression is evaluated over. Values not mentioned by the expression need not be there.
#[derive(Clone, Debug, Default)]
pub struct Scope<'a> {
    /// `input.NAME`.
    pub input: Vec<(&'a str, Datum)>,
    /// `tenant.NAME`: the caller's attributes, and `tenant.name`.
    pub tenant: Vec<(&'a str, Datum)>,
    /// `steps.NAME`: maps with `rows`, `value`, `error`.
    pub steps: Vec<(&'a str, Datum)>,
}

impl Scope<'_> {
    fn root(&self, root: &str) -> Option<&[(&str, Datum)]> {
        match root {
            "input" => Some(&self.input),
            "tenant" => Some(&self.tenant),
            "steps" => Some(&self.steps),
            _ => None,
        }
    }
}

impl Expression {
    /// Compiles; names other than `input`, `tenant`, `steps` are refused, and so is a nesting whose cost cannot be bounded.
    pub fn compile(text: &str) -> Result<Self, ExpressionError> {
        if text.trim().is_empty() {
            return Err(ExpressionError::new("expected an expression, found nothing"));
        }
        if text.len() > MAX_TEXT_BYTES {
            return Err(ExpressionError::new(format!("an expression has at most {MAX_TEXT_BYTES} bytes, this one has {}", text.len())));
        }
        let failed = || ExpressionError::new("the expression could not be read");
        std::thread::scope(|scope| {
            let compiling = std::thread::Builder::new().name("compile".into()).stack_size(COMPILE_STACK_BYTES);
            let thread = compiling.spawn_scoped(scope, || compile(text)).map_err(|_| failed())?;
            thread.join().unwrap_or_else(|_| Err(failed()))
        })
    }
    /// The text as written.
    pub fn text(&self) -> &str {
        &self.compiled.text
    }
    /// What it reads.
    pub fn names(&self) -> Names {
        self.compiled.names.clone()
    }
    /// The paths it reads, without a copy.
    pub fn paths(&self) -> &[String] {
        &self.compiled.names.paths
    }
    /// A bound on the steps of an evaluation over this scope.
    pub fn cost(&self, scope: &Scope<'_>) -> u64 {
        cost::estimate(&self.compiled.tree, scope)
    }
    /// Evaluates over a scope: a map with `input`, `tenant`, `steps`.
    pub fn evaluate(&self, scope: &Scope<'_>) -> Result<Datum, ExpressionError> {
        self.run(scope, |_| false)?.ok_or_else(|| ExpressionError::new("the expression could not be evaluated"))
    }
    /// Evaluates over samples of the right types, whose values mean nothing. `None`: it fails on these values but may not
    /// on others (an index beyond a list, a text that is no number); an error is one of names or types.
    pub fn prove(&self, samples: &Scope<'_>) -> Result<Option<Datum>, ExpressionError> {
        self.run(samples, convert::is_of_values)
    }

    /// `None` where it fails in a way that `passes` over.
    fn run(&self, scope: &Scope<'_>, passes: fn(&ExecutionError) -> bool) -> Result<Option<Datum>, ExpressionError> {
        let cost = self.cost(scope);
        if cost > MAX_COST {
            return Err(ExpressionError::new(format!(
                "evaluating this could take {cost} steps, more than {MAX_COST}: read fewer rows or nest fewer macros"
            )));
        }
        let run = || {
            let mut context = Context::with_env(ENVIRONMENT.clone());
            convert::bind(&mut context, &self.compiled.names.paths, scope);
            match Value::resolve(&self.compiled.tree, &context) {
                Ok(value) => convert::to_datum(&value).map(Some),
                Err(error) if passes(&error) => Ok(None),
                Err(error) => Err(ExpressionError::new(convert::describe(&error) + &columns::there_are(&error, self.paths(), scope))),
            }
        };
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
            let _kept_inside: Box<dyn Any + Send> = panic;
            Err(ExpressionError::new("the expression could not be evaluated"))
        })
    }
}

impl std::fmt::Debug for Expression {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_tuple("Expression").field(&self.compiled.text).finish()
    }
}

fn compile(text: &str) -> Result<Expression, ExpressionError> {
    let parsed = catch_unwind(|| ENVIRONMENT.compile(text));
    let program = match parsed {
        Ok(Ok(program)) => program,
        Ok(Err(errors)) => return Err(syntax_error(text, &errors)),
        Err(_) => return Err(ExpressionError::new("the expression could not be read")),
    };
    let mut tree = program.expression().clone();
    from_end::write_out(&mut tree);
    let names = check::check(&program, &tree, text)?;
    Ok(Expression { compiled: Arc::new(Compiled { text: text.into(), tree, names }) })
}

/// The first error, with its line and column turned into a byte offset.
fn syntax_error(text: &str, errors: &ParseErrors) -> ExpressionError {
    let Some(first) = errors.errors.first() else {
        return ExpressionError::new("the expression could not be read");
    };
    let (line, column) = (usize::try_from(first.pos.0).unwrap_or(0), usize::try_from(first.pos.1).unwrap_or(0));
    let start: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let offset = start + check::byte_offset(text.get(start..).unwrap_or_default(), column.saturating_sub(1));
    let message = if first.msg == "UNKNOWN" { "this is not an expression".into() } else { first.msg.clone() };
    ExpressionError { message, offset: Some(offset.min(text.len())) }
}

#[cfg(test)]
mod tests;
