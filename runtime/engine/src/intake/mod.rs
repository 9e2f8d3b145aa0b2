//! Intake: what a caller sent becomes the flow's typed values, once.
//!
//! Invariants
//! 1. Every field that does not fit is named in one refusal; nothing is guessed, rounded or shortened.
//! 2. Omitted, null and the text "null" are three things: the default (NULL without one), NULL where the input is not
//!    required, and four letters.
//! 3. An identity-bound input comes from the tenant's attributes and from nowhere else; a caller that sends it is refused.
//! 4. Numbers go from their digits into their type without passing through a double.
//! 5. No bytes from outside make it panic, recurse, or hold more than a small multiple of them.
//!
//! It refuses: I/O, waiting, knowing HTTP beyond the spelling of paths and query strings.

mod body;
mod path;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;

use spillgate_config::plan::{Flow, Input, TenantPlan};
use spillgate_config::typed::{self, Problem};
use spillgate_model::refusal::BadField;
use spillgate_model::{Code, Refusal, Type, Value, limits};

use crate::{PageRequest, query};
pub use path::PathTemplate;

/// The input that asks a paged flow for a later page.
pub const CURSOR: &str = "cursor";
/// The input that says how many rows a page has.
pub const SIZE: &str = "size";

/// What a caller sent, as it came.
#[derive(Clone, Copy, Debug, Default)]
pub struct Given<'a> {
    /// The flow's template and the path it matched, percent-encoded, without `/api`.
    pub path: Option<(&'a PathTemplate, &'a str)>,
    /// The query string of a flow that takes its input there.
    pub query: Option<&'a str>,
    /// The JSON object of a flow that takes its input there (and the arguments of a test or a tool call). Empty: `{}`.
    pub body: Option<&'a [u8]>,
}

/// The typed input of one call.
#[derive(Clone, Debug)]
pub struct Intake {
    /// In the order the flow declares its inputs.
    pub values: Arc<[Value]>,
    /// `cursor` and `size` of a paged flow.
    pub page: PageRequest,
}

/// Reads what was given for `flow`. A refusal is `malformed` (it cannot be read at all) or `invalid_input` (all bad fields).
pub fn read(flow: &Flow, tenant: &TenantPlan, given: &Given<'_>) -> Result<Intake, Refusal> {
    let entries =
        Entries { path: given.path, query: given.query.unwrap_or_default(), body: given.body.map_or(Ok(Vec::new()), body::entries)? };
    let mut faults = Faults::default();
    check_names(flow, &entries, &mut faults)?;
    // One allocation: the length is known from the slice.
    let inputs = flow.inputs.iter().enumerate();
    let values: Arc<[Value]> = inputs.map(|(position, input)| value_of(position, input, tenant, &entries, &mut faults)).collect();
    let page = page_of(flow, &entries, &mut faults);
    faults.end().map(|()| Intake { values, page })
}

/// Where the fields of one call stand.
struct Entries<'a> {
    path: Option<(&'a PathTemplate, &'a str)>,
    query: &'a str,
    /// Name and JSON text, in the order they came.
    body: Vec<(Cow<'a, str>, &'a str)>,
}

/// A path or query part whose percent-encoding is broken.
const UNREADABLE: Problem = Cow::Borrowed("is not percent-encoded UTF-8");

/// A value as it came.
enum Raw<'a> {
    /// From a path or query.
    Text(Cow<'a, str>),
    /// The JSON text of one value, well-formed.
    Json(&'a str),
}

impl Raw<'_> {
    fn is_null(&self) -> bool {
        matches!(self, Raw::Json("null"))
    }

    fn read(&self, kind: Type) -> Result<Value, Problem> {
        match self {
            Raw::Text(text) => typed::from_text(kind, text),
            Raw::Json(json) => typed::from_json(kind, json),
        }
    }
}

/// How often a field came.
enum Found<'a> {
    Omitted,
    Once(Raw<'a>),
    Repeated,
    /// Its percent-encoding is broken.
    Unreadable,
}

impl<'a> Entries<'a> {
    fn in_path(&self, position: usize) -> Option<&'a str> {
        self.path.and_then(|(template, path)| template.part(path, position))
    }

    fn find(&self, position: Option<usize>, name: &str) -> Found<'a> {
        let from_path = position.and_then(|position| self.in_path(position));
        let from_query = query::values(self.query, name);
        let from_body = self.body.iter().filter(|(key, _)| key == name).map(|(_, json)| Raw::Json(json));
        let from_path = from_path.into_iter().map(query::decode_path);
        let mut all = from_path.chain(from_query).map(|text| text.map(Raw::Text)).chain(from_body.map(Some));
        match (all.next(), all.next()) {
            (None, _) => Found::Omitted,
            (Some(Some(raw)), None) => Found::Once(raw),
            (Some(None), None) => Found::Unreadable,
            (Some(_), Some(_)) => Found::Repeated,
        }
    }
}

/// Bad fields on their way into one refusal.
#[derive(Default)]
struct Faults(Vec<BadField>);

impl Faults {
    /// Names as long as any the checker lets pass; longer ones are strangers.
    const NAME_CHARACTERS: usize = 64;

    fn add(&mut self, name: &str, problem: Problem) {
        let full = self.0.len() >= limits::INPUTS_PER_FLOW;
        if !full && !self.0.iter().any(|known| known.name == name && known.problem == problem) {
            self.0.push(BadField { name: name.chars().take(Self::NAME_CHARACTERS).collect(), problem: problem.into_owned() });
        }
    }

    fn end(self) -> Result<(), Refusal> {
        if self.0.is_empty() {
            return Ok(());
        }
        let mut names: Vec<&str> = self.0.iter().map(|field| field.name.as_str()).collect();
        names.dedup();
        let shown = names[..names.len().min(8)].join(", ");
        let more = if names.len() > 8 { ", …" } else { "" };
        let detail = match names.len() {
            1 => format!("The field {shown} does not fit."),
            count => format!("{count} fields do not fit: {shown}{more}."),
        };
        Err(Refusal::new(Code::InvalidInput, detail).fields(self.0))
    }
}

/// Refuses names the flow does not have, and inputs that may not stand where they came.
fn check_names(flow: &Flow, entries: &Entries<'_>, faults: &mut Faults) -> Result<(), Refusal> {
    for name in query::names(entries.query) {
        let name = name.ok_or_else(|| Refusal::new(Code::Malformed, "A name in the query string is not percent-encoded UTF-8."))?;
        if !flow.takes_body() {
            check_name(flow, entries, &name, faults);
        } else {
            faults.add(&name, Problem::Borrowed("send it in the JSON body; this flow reads no query string"));
        }
    }
    for (name, _) in &entries.body {
        check_name(flow, entries, name, faults);
    }
    Ok(())
}

fn check_name(flow: &Flow, entries: &Entries<'_>, name: &str, faults: &mut Faults) {
    if flow.page.is_some() && (name == CURSOR || name == SIZE) {
        return;
    }
    match flow.inputs.iter().position(|input| &*input.name == name) {
        Some(position) if flow.inputs[position].from_tenant.is_some() => {
            faults.add(name, Problem::Borrowed("is set from the caller's identity; leave it out"));
        }
        Some(position) if entries.in_path(position).is_some() => {
            faults.add(name, Problem::Borrowed("stands in the path already; leave it out here"));
        }
        Some(_) => {}
        None => faults.add(name, unknown(flow, name)),
    }
}

/// Says that there is no such input, and which one may have been meant.
fn unknown(flow: &Flow, name: &str) -> Problem {
    const ALIKE: f64 = 0.8;
    if name.len() > Faults::NAME_CHARACTERS {
        return Problem::Borrowed("is no input of this flow");
    }
    let offered = flow.inputs.iter().filter(|input| input.from_tenant.is_none()).map(|input| &*input.name);
    let offered = offered.chain(flow.page.iter().flat_map(|_| [CURSOR, SIZE]));
    let scored = offered.map(|known| (strsim::jaro_winkler(known, name), known));
    match scored.max_by(|one, other| one.0.total_cmp(&other.0)) {
        Some((score, known)) if score >= ALIKE => Problem::Owned(format!("is no input of this flow; did you mean {known}?")),
        _ => Problem::Borrowed("is no input of this flow"),
    }
}

fn value_of(position: usize, input: &Input, tenant: &TenantPlan, entries: &Entries<'_>, faults: &mut Faults) -> Value {
    let value = match &input.from_tenant {
        Some(attribute) => from_identity(attribute, input, tenant),
        None => from_caller(position, input, entries, faults),
    };
    value.unwrap_or_else(|problem| {
        faults.add(&input.name, problem);
        Value::Null
    })
}

/// The checker proved that every tenant that may call the flow has the attribute in the input's type.
fn from_identity(attribute: &str, input: &Input, tenant: &TenantPlan) -> Result<Value, Problem> {
    match tenant.attributes.get(attribute) {
        Some(value) => Ok(value.clone()),
        None if attribute == "name" && input.kind == Type::Text => Ok(Value::Text(Box::from(&*tenant.name))),
        None if input.required => Err(Problem::Borrowed("this caller's identity has no such attribute; only an operator can add it")),
        None => Ok(input.default.clone()),
    }
}

fn from_caller(position: usize, input: &Input, entries: &Entries<'_>, faults: &mut Faults) -> Result<Value, Problem> {
    match entries.find(Some(position), &input.name) {
        Found::Omitted if input.required => Err(Problem::Borrowed("is required")),
        Found::Omitted => Ok(input.default.clone()),
        Found::Unreadable => Err(UNREADABLE),
        Found::Once(raw) if raw.is_null() => {
            if input.required {
                Err(Problem::Borrowed("is required and may not be null"))
            } else {
                Ok(Value::Null)
            }
        }
        Found::Once(raw) if input.list => list_of(input, raw, faults),
        Found::Once(raw) => {
            let value = raw.read(input.kind)?;
            input.check(&value).map(|()| value)
        }
        // A list may come as a repeated query key; whatever else came twice has no single meaning.
        Found::Repeated if input.list && entries.body.is_empty() && entries.in_path(position).is_none() => {
            let items = query::values(entries.query, &input.name).map(|text| text.map(Raw::Text));
            collect(input, items, faults)
        }
        Found::Repeated => Err(Problem::Borrowed("was given more than once")),
    }
}

fn list_of(input: &Input, raw: Raw<'_>, faults: &mut Faults) -> Result<Value, Problem> {
    match raw {
        Raw::Text(_) => collect(input, std::iter::once(Some(raw)), faults),
        Raw::Json(json) => collect(input, body::items(json)?.into_iter().map(|item| Some(Raw::Json(item))), faults),
    }
}

fn collect<'a>(input: &Input, items: impl Iterator<Item = Option<Raw<'a>>>, faults: &mut Faults) -> Result<Value, Problem> {
    let (mut values, mut count) = (Vec::new(), 0);
    // One more than allowed is enough to refuse them.
    for (index, raw) in items.take(limits::LIST_ITEMS + 1).enumerate() {
        count = index + 1;
        let item = raw.ok_or(UNREADABLE).and_then(|raw| raw.read(input.kind));
        match item.and_then(|value| input.check_item(&value).map(|()| value)) {
            Ok(value) => values.push(value),
            Err(problem) => faults.add(&format!("{}[{index}]", input.name), problem),
        }
    }
    input.check_count(count)?;
    Ok(Value::List(values.into()))
}

/// Reads `cursor` and `size` where the flow is paged.
fn page_of(flow: &Flow, entries: &Entries<'_>, faults: &mut Faults) -> PageRequest {
    let Some(page) = &flow.page else { return PageRequest::default() };
    let mut read = |name: &str, kind: Type| match entries.find(None, name) {
        Found::Omitted => None,
        Found::Once(raw) if raw.is_null() => None,
        Found::Once(raw) => raw.read(kind).map_err(|problem| faults.add(name, problem)).ok(),
        Found::Unreadable => {
            faults.add(name, UNREADABLE);
            None
        }
        Found::Repeated => {
            faults.add(name, Problem::Borrowed("was given more than once"));
            None
        }
    };
    let cursor = match read(CURSOR, Type::Text) {
        Some(Value::Text(text)) => Some(String::from(text)),
        _ => None,
    };
    let size = match read(SIZE, Type::Integer) {
        Some(Value::Integer(size)) => Some(size),
        _ => None,
    };
    let fits = |size: i64| usize::try_from(size).ok().filter(|size| (1..=page.max).contains(size));
    if size.is_some_and(|size| fits(size).is_none()) {
        faults.add(SIZE, Problem::Owned(format!("must be from 1 to {}", page.max)));
    }
    PageRequest { cursor, size: size.and_then(fits) }
}
