//! Where something stands: a file's text and an offset in it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::plan::Origin;

/// A file as read.
pub(crate) struct FileText {
    pub(crate) path: Arc<PathBuf>,
    /// Position in the order of reading: faults are sorted by it.
    pub(crate) order: usize,
    pub(crate) text: String,
    line_starts: Vec<usize>,
}

impl FileText {
    pub(crate) fn new(path: PathBuf, order: usize, text: String) -> Arc<Self> {
        let after_breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(offset, _)| offset + 1);
        let line_starts = std::iter::once(0).chain(after_breaks).collect();
        Arc::new(FileText { path: Arc::new(path), order, text, line_starts })
    }
}

/// A place in a file. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Place {
    file: Arc<FileText>,
    offset: usize,
    /// A TOML string starts here: offsets inside it count decoded bytes.
    quoted: bool,
}

impl fmt::Debug for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, column) = self.line_column();
        write!(out, "{}:{line}:{column}", self.path().display())
    }
}

impl Place {
    /// The start of a file whose text is used as it is.
    pub(crate) fn start(file: &Arc<FileText>) -> Self {
        Place { file: file.clone(), offset: 0, quoted: false }
    }
    /// A value or key of a TOML file.
    pub(crate) fn at(file: &Arc<FileText>, offset: usize) -> Self {
        Place { file: file.clone(), offset: offset.min(file.text.len()), quoted: true }
    }
    pub(crate) fn order(&self) -> usize {
        self.file.order
    }
    pub(crate) fn path(&self) -> &Path {
        &self.file.path
    }
    /// The folder that relative paths start from.
    pub(crate) fn folder(&self) -> &Path {
        self.file.path.parent().unwrap_or(Path::new(""))
    }
    /// From 1; the column in characters.
    pub(crate) fn line_column(&self) -> (usize, usize) {
        let line = self.file.line_starts.partition_point(|start| *start <= self.offset);
        let start = self.file.line_starts[line - 1];
        let column = self.file.text.get(start..self.offset).map_or(0, |before| before.chars().count());
        (line, column + 1)
    }
    pub(crate) fn line(&self) -> usize {
        self.line_column().0
    }
    pub(crate) fn origin(&self) -> Origin {
        Origin::File { path: self.file.path.clone(), line: self.line() }
    }
    /// `FILE:LINE`.
    pub(crate) fn short(&self) -> String {
        format!("{}:{}", self.path().display(), self.line())
    }
    /// The place of byte `offset` of the text that stands here.
    pub(crate) fn inside(&self, offset: usize) -> Place {
        let rest = self.file.text.get(self.offset..).unwrap_or("");
        let raw = if self.quoted { raw_offset(rest, offset) } else { offset };
        Place { file: self.file.clone(), offset: (self.offset + raw).min(self.file.text.len()), quoted: self.quoted }
    }
}

/// Where byte `decoded` of a TOML string stands in its written form, which starts `raw`.
fn raw_offset(raw: &str, decoded: usize) -> usize {
    let quote = if raw.starts_with('\'') { '\'' } else { '"' };
    let long = raw.starts_with("\"\"\"") || raw.starts_with("'''");
    let mut position = if long { 3 } else { 1 };
    if long {
        // The line break right after the opening quotes is not part of the text.
        position += raw[position..].bytes().take_while(|byte| *byte == b'\r').count();
        position += usize::from(raw[position..].starts_with('\n'));
    }
    let mut made = 0;
    while made < decoded {
        let Some(letter) = raw.get(position..).and_then(|rest| rest.chars().next()) else { break };
        if letter == '\\' && quote == '"' {
            let (read, written) = escape(&raw[position..]);
            position += read;
            made += written;
        } else {
            position += letter.len_utf8();
            made += letter.len_utf8();
        }
    }
    position
}

/// Length of an escape as written, and of what it stands for.
fn escape(raw: &str) -> (usize, usize) {
    let hexadecimal = |digits: usize| {
        let code = raw.get(2..2 + digits).and_then(|text| u32::from_str_radix(text, 16).ok()).and_then(char::from_u32);
        (2 + digits, code.map_or(1, char::len_utf8))
    };
    match raw[1..].chars().next() {
        Some('u') => hexadecimal(4),
        Some('U') => hexadecimal(8),
        Some('x') => hexadecimal(2),
        // A backslash at the end of a line takes the white space after it away.
        Some(letter) if letter.is_whitespace() => (raw.len() - raw[1..].trim_start().len(), 0),
        Some(letter) => (1 + letter.len_utf8(), 1),
        None => (1, 1),
    }
}

/// Something with the place where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Located<T> {
    pub(crate) value: T,
    pub(crate) place: Place,
}

/// The value of a key: written, or its default.
#[derive(Clone, Debug)]
pub(crate) struct Setting<T> {
    pub(crate) value: T,
    /// `None`: the default.
    pub(crate) place: Option<Place>,
}

impl<T> Setting<T> {
    pub(crate) fn origin(&self) -> Origin {
        self.place.as_ref().map_or(Origin::Default, Place::origin)
    }
    pub(crate) fn into_limit(self) -> crate::plan::Limit<T> {
        let origin = self.origin();
        crate::plan::Limit { value: self.value, origin }
    }
}
