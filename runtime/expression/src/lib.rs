//! Expressions of flow files: CEL with a cost cap.
use spillgate_model::Datum;

/// A compiled expression. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Expression {}

/// What an expression reads. `input` and `tenant` are maps; a step's map has `rows`, `value`, `error`.
#[derive(Clone, Debug)]
pub struct Names {
    /// Paths it mentions, such as `steps.position.rows` or `input.id`.
    pub paths: Vec<String>,
}

/// Why an expression cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct ExpressionError {
    /// What and where within the text.
    pub message: String,
    /// Byte offset within the expression, where known.
    pub offset: Option<usize>,
}

impl Expression {
    /// Compiles; names other than `input`, `tenant`, `steps` are refused, and so is a nesting whose cost cannot be bounded.
    pub fn compile(text: &str) -> Result<Self, ExpressionError> {
        Err(ExpressionError { message: text.into(), offset: None })
    }
    /// The text as written.
    pub fn text(&self) -> &str {
        ""
    }
    /// What it reads.
    pub fn names(&self) -> Names {
        Names { paths: Vec::new() }
    }
    /// Evaluates over a scope: a map with `input`, `tenant`, `steps`.
    pub fn evaluate(&self, scope: &Scope<'_>) -> Result<Datum, ExpressionError> {
        let _ = scope;
        Err(ExpressionError { message: String::new(), offset: None })
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
