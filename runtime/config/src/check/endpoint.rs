//! `http = "GET /trucks/{id}/position"`.

use crate::place::{Located, Place};
use crate::raw::printable;

use super::Checker;

/// Methods of flows that read, then of those that write.
const METHODS: &[&str] = &["GET", "POST", "PUT", "PATCH", "DELETE"];
/// First segments the server keeps for itself.
const RESERVED: &[&str] = &["jobs"];

/// What a call leaves behind.
#[derive(Clone, Copy)]
pub(crate) struct Effects {
    /// `effect = "write"`.
    pub(crate) writes: bool,
    /// A `queue` step: a job.
    pub(crate) queues: bool,
}

/// Where a flow is served.
pub(crate) struct Endpoint {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    /// Names in braces.
    pub(crate) parameters: Vec<Located<String>>,
    pub(crate) place: Place,
}

impl Endpoint {
    /// Method and path with the names taken out: two flows of the same shape would answer the same calls.
    pub(crate) fn shape(&self) -> String {
        let segment = |segment: &str| if segment.starts_with('{') { "{}".to_owned() } else { segment.to_owned() };
        format!("{} {}", self.method, self.path.split('/').map(segment).collect::<Vec<_>>().join("/"))
    }
}

/// Reads it; `None` with a fault where it is of no use.
pub(crate) fn endpoint(checker: &mut Checker<'_>, written: &Located<String>, effects: Effects) -> Option<Endpoint> {
    let text = written.value.as_str();
    let split = text.split_once(' ').map(|(method, path)| (METHODS.iter().find(|known| **known == method), path.trim()));
    let Some((Some(method), path)) = split.filter(|(_, path)| path.starts_with('/')) else {
        let message = format!("expected a method and a path such as \"GET /trucks/{{id}}\", found \"{}\"", printable(text));
        checker.faults.add(&written.place, message);
        return None;
    };
    // A read may come by POST where its input does not fit a query string; a write never by GET, which anything repeats.
    let (fits, expected) = match effects {
        Effects { writes: true, .. } => (*method != "GET", "a flow that writes uses POST, PUT, PATCH or DELETE"),
        Effects { queues: true, .. } => (*method != "GET", "a flow that queues uses POST, PUT, PATCH or DELETE"),
        _ => (matches!(*method, "GET" | "POST"), "a flow that reads uses GET, or POST for input that does not fit a query string"),
    };
    if !fits {
        checker.faults.add(&written.place, format!("{expected}, found {method}"));
    }
    let mut parameters: Vec<Located<String>> = Vec::new();
    let mut offset = text.len() - path.len();
    for (index, segment) in path.split('/').enumerate() {
        let place = written.place.inside(offset);
        offset += segment.len() + 1;
        match segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
            Some(name) => {
                if parameters.iter().any(|known| known.value == name) {
                    checker.faults.add(&place, format!("`{{{name}}}` stands in the path twice"));
                }
                parameters.push(Located { value: name.into(), place });
            }
            None if index == 0 => {}
            None => plain_segment(checker, segment, index, &place),
        }
    }
    Some(Endpoint { method, path: path.into(), parameters, place: written.place.clone() })
}

fn plain_segment(checker: &mut Checker<'_>, segment: &str, index: usize, place: &Place) {
    let sound = !segment.is_empty() && segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte));
    if !sound || segment == "." || segment == ".." {
        let message = format!("expected letters, digits, -, ., _, ~ or one {{name}} between slashes, found `{}`", printable(segment));
        checker.faults.add(place, message);
    } else if index == 1 && RESERVED.contains(&segment) {
        checker.faults.add(place, format!("`/{segment}` is the server's own"));
    }
}
