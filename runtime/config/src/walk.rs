//! From TOML to [`Written`], driven by the tables of keys. Every fault of form is found here.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use spillgate_model::Secret;
use spillgate_model::units::{ByteSize, Rate, UnitError, parse_duration};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::fault::{Faults, did_you_mean};
use crate::keys::{Key, Kind, Presence, Section, Stage};
use crate::place::{FileText, Located, Place};
use crate::raw::{Raw, integer, printable};
use crate::source::Source;
use crate::written::{Entry, Table, Written, shown};

/// Walks one file.
pub(crate) struct Walk<'a> {
    pub(crate) file: &'a Arc<FileText>,
    pub(crate) source: &'a dyn Source,
    pub(crate) faults: &'a mut Faults,
    /// What `check` says without failing.
    pub(crate) notes: &'a mut Vec<String>,
    /// Files that secrets came from.
    pub(crate) secret_files: &'a mut Vec<std::path::PathBuf>,
    /// Digest of the secrets' values.
    pub(crate) secrets: &'a mut Sha256,
}

/// Parses a file and walks it. A file with syntax faults gives what could be read of it and `false`.
pub(crate) fn read_file(walk: &mut Walk<'_>, section: &'static Section) -> (Table, bool) {
    let (tree, errors) = DeTable::parse_recoverable(&walk.file.text);
    if errors.is_empty() {
        return (walk.section(section, tree.get_ref(), 0), true);
    }
    for error in &errors {
        let start = error.span().map_or(0, |span| span.start);
        walk.faults.add_broken(&Place::at(walk.file, start), format!("not TOML: {}", error.message().trim().replace('\n', "; ")));
    }
    let mut unheard = Faults::default();
    let mut rest = Walk {
        file: walk.file,
        source: walk.source,
        faults: &mut unheard,
        notes: &mut Vec::new(),
        secret_files: walk.secret_files,
        secrets: walk.secrets,
    };
    (rest.section(section, tree.get_ref(), 0), false)
}

impl Walk<'_> {
    fn place(&self, span: Range<usize>) -> Place {
        Place::at(self.file, span.start)
    }

    pub(crate) fn section(&mut self, section: &'static Section, tree: &DeTable<'_>, start: usize) -> Table {
        let mut entries = Vec::new();
        for (name, value) in tree.iter() {
            let key_place = self.place(name.span());
            let written = name.get_ref().as_ref();
            let Some(key) = section.find(written) else {
                let near = did_you_mean(written, section.current().map(|key| key.name));
                self.faults.add(&key_place, format!("{} has no key `{}`{near}", section.title, printable(written)));
                continue;
            };
            if key.stage != Stage::Now {
                self.faults.add(&key_place, format!("{} is not available yet: it comes with {}", shown(key), key.stage.comes_with()));
                continue;
            }
            let value = self.value(key, &key.kind, value);
            entries.push(Entry { name: key.name, key_place, value });
        }
        let place = Place::at(self.file, start);
        for key in section.current().filter(|key| key.presence == Presence::Required) {
            if !entries.iter().any(|entry| entry.name == key.name) {
                self.faults.add(&place, format!("{} lacks {}: expected {}", section.title, shown(key), key.kind.expected()));
            }
        }
        Table { section, place, entries }
    }

    fn value(&mut self, key: &Key, kind: &Kind, value: &Spanned<DeValue<'_>>) -> Located<Written> {
        let place = self.place(value.span());
        let written = self.form(key, kind, value).unwrap_or_else(|message| {
            // Of a limit that is a value nobody needs to be told how to lift it.
            let word = key.lifted_by.filter(|_| matches!(kind, Kind::Table(_)));
            let message = word.map_or(message.clone(), |word| message.replacen("a table", &format!("a table or \"{word}\""), 1));
            self.faults.add(&place, format!("{}: {message}", shown(key)));
            Written::Broken
        });
        Located { value: written, place }
    }

    fn form(&mut self, key: &Key, kind: &Kind, value: &Spanned<DeValue<'_>>) -> Result<Written, String> {
        let place = self.place(value.span());
        if let Some(word) = key.lifted_by.filter(|word| value.get_ref().as_str() == Some(word)) {
            self.notes.push(format!("{}: {} is {word}", place.short(), shown(key)));
            return Ok(Written::Lifted);
        }
        match (kind, value.get_ref()) {
            (Kind::Secret, DeValue::String(text)) => self.secret(text, &place).map(Written::Secret),
            (Kind::Secret, other) => Err(format!("expected {}, found {}", kind.expected(), other.type_str())),
            (Kind::List(item), DeValue::Array(items)) => {
                Ok(Written::List(items.iter().map(|entry| self.value(key, item, entry)).collect()))
            }
            (Kind::Map(item), DeValue::Table(table)) => {
                let entries = table.iter().map(|(name, entry)| (self.name(name), self.value(key, item, entry)));
                Ok(Written::Map(entries.collect()))
            }
            (Kind::Table(section), DeValue::Table(table)) => Ok(Written::Table(self.section(section, table, value.span().start))),
            (Kind::Tables(section), DeValue::Array(items)) => self.tables(section, items.iter()),
            (Kind::Named(section), DeValue::Table(table)) => self.named(section, table),
            (kind, value) => leaf(self.file, kind, value),
        }
    }

    fn name(&self, name: &Spanned<std::borrow::Cow<'_, str>>) -> Located<String> {
        Located { value: name.get_ref().to_string(), place: self.place(name.span()) }
    }

    fn tables<'t, 'i: 't>(
        &mut self,
        section: &'static Section,
        items: impl Iterator<Item = &'t Spanned<DeValue<'i>>>,
    ) -> Result<Written, String> {
        let mut tables = Vec::new();
        for item in items {
            match item.get_ref() {
                DeValue::Table(table) => tables.push(self.section(section, table, item.span().start)),
                other => return Err(format!("expected a list of tables, found {} in it", other.type_str())),
            }
        }
        Ok(Written::Tables(tables))
    }

    fn named(&mut self, section: &'static Section, table: &DeTable<'_>) -> Result<Written, String> {
        let mut tables = Vec::new();
        for (name, entry) in table.iter() {
            let name = self.name(name);
            match entry.get_ref() {
                DeValue::Table(inner) => {
                    let inner = self.section(section, inner, entry.span().start);
                    tables.push((name, inner));
                }
                other => {
                    let message = format!("expected {} to be a table, found {}", printable(&name.value), other.type_str());
                    self.faults.add(&name.place, message);
                }
            }
        }
        Ok(Written::Named(tables))
    }

    /// Fills in `env:NAME` and `file:PATH`. Messages name the variable or the file, never a value.
    fn secret(&mut self, text: &str, place: &Place) -> Result<Secret, String> {
        if let Some(name) = text.strip_prefix("env:") {
            let value = self.source.environment(name).filter(|value| !value.is_empty());
            let value = value.ok_or_else(|| format!("the environment variable `{}` is not set", printable(name)))?;
            self.digest(&value);
            return Ok(Secret::new(value));
        }
        let Some(path) = text.strip_prefix("file:") else { return Ok(Secret::new(text)) };
        let path = place.folder().join(Path::new(path));
        let read = self.source.read(&path).map_err(|error| format!("the file {} {error}", path.display()))?;
        self.secret_files.push(path.clone());
        match read.trim_end_matches(['\n', '\r']) {
            "" => Err(format!("the file {} is empty", path.display())),
            value => {
                self.digest(value);
                Ok(Secret::new(value))
            }
        }
    }

    fn digest(&mut self, value: &str) {
        self.secrets.update((value.len() as u64).to_le_bytes());
        self.secrets.update(value.as_bytes());
    }
}

/// A value that holds no other keys.
fn leaf(file: &Arc<FileText>, kind: &Kind, value: &DeValue<'_>) -> Result<Written, String> {
    let refused = || {
        // A value where a list or table belongs may be a secret: say what it is, not which.
        let hide = matches!(kind, Kind::List(_) | Kind::Map(_) | Kind::Table(_) | Kind::Tables(_) | Kind::Named(_));
        let found = if hide { value.type_str().to_owned() } else { Raw::read(file, value).show() };
        format!("expected {}, found {found}", kind.expected())
    };
    let unit = |error: UnitError| error.to_string();
    match (kind, value) {
        (Kind::Text | Kind::Path | Kind::Expression, DeValue::String(text)) => Ok(Written::Text(text.to_string())),
        (Kind::Address, DeValue::String(text)) => match text.parse::<std::net::SocketAddr>() {
            Ok(_) => Ok(Written::Text(text.to_string())),
            Err(_) => Err(refused()),
        },
        (Kind::Word(words), DeValue::String(text)) if words.contains(&text.as_ref()) => Ok(Written::Text(text.to_string())),
        (Kind::Word(words), DeValue::String(text)) => Err(format!("{}{}", refused(), did_you_mean(text, words.iter().copied()))),
        (Kind::Integer { min, max }, DeValue::Integer(number)) => {
            integer(number).filter(|number| (*min..=*max).contains(number)).map(Written::Integer).ok_or_else(refused)
        }
        (Kind::Share, DeValue::Float(number)) => share(number.as_str()).ok_or_else(refused),
        (Kind::Share, DeValue::Integer(number)) => share(number.as_str()).ok_or_else(refused),
        (Kind::Boolean, DeValue::Boolean(value)) => Ok(Written::Boolean(*value)),
        (Kind::Size { min, max }, DeValue::String(text)) => {
            let size = ByteSize::parse(text).map_err(unit)?.0;
            if (*min..=*max).contains(&size) { Ok(Written::Size(size)) } else { Err(refused()) }
        }
        (Kind::Time { min, max }, DeValue::String(text)) => {
            let time = parse_duration(text).map_err(unit)?;
            let fits = (u128::from(*min)..=u128::from(*max)).contains(&time.as_millis());
            if fits { Ok(Written::Time(time)) } else { Err(refused()) }
        }
        (Kind::Rate, DeValue::String(text)) => Rate::parse(text).map(Written::Rate).map_err(unit),
        (Kind::Rate, DeValue::Table(table)) => rate_table(table).ok_or_else(refused),
        (Kind::InputType, DeValue::String(_)) => Ok(Written::Raw(Raw::read(file, value))),
        (Kind::InputType, DeValue::Array(items)) if items.len() == 1 && items[0].get_ref().is_str() => {
            Ok(Written::Raw(Raw::read(file, value)))
        }
        (Kind::Value, DeValue::Table(_)) => Err(refused()),
        (Kind::Value | Kind::Anything, _) => Ok(Written::Raw(Raw::read(file, value))),
        _ => Err(refused()),
    }
}

fn share(text: &str) -> Option<Written> {
    let number: f64 = text.replace('_', "").parse().ok()?;
    (number > 0.0 && number <= 1.0).then_some(Written::Share(number))
}

fn rate_table(table: &DeTable<'_>) -> Option<Written> {
    let mut rate = Rate::parse(table.get("rate")?.get_ref().as_str()?).ok()?;
    rate.burst = table.get("burst").map_or(Some(rate.burst), |burst| {
        burst.get_ref().as_integer().and_then(integer).and_then(|burst| u64::try_from(burst).ok()).filter(|burst| *burst > 0)
    })?;
    let known = table.iter().all(|(name, _)| matches!(name.get_ref().as_ref(), "rate" | "burst"));
    known.then_some(Written::Rate(rate))
}

/// The default of a key, read as a file's value would be.
pub(crate) fn default_value(key: &Key, text: &'static str) -> Option<Written> {
    let value = DeValue::parse(text).ok()?;
    let nowhere = FileText::new(Default::default(), 0, String::new());
    match (&key.kind, value.get_ref()) {
        (Kind::List(item), DeValue::Array(items)) => {
            let one = |entry: &Spanned<DeValue<'_>>| {
                Some(Located { value: leaf(&nowhere, item, entry.get_ref()).ok()?, place: Place::start(&nowhere) })
            };
            items.iter().map(one).collect::<Option<Vec<_>>>().map(Written::List)
        }
        (kind, value) => leaf(&nowhere, kind, value).ok(),
    }
}
