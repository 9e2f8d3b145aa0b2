//! The configuration as written: a tree of values in the forms the tables of keys give them, each with its place.
//!
//! Nothing is proven here beyond form. A key that is not written gives its declared default; a key whose value was
//! refused (a fault stands already) gives its default too, so that one fault does not make others.

use std::time::Duration;

use spillgate_model::Secret;
use spillgate_model::units::Rate;

use crate::keys::{Key, Kind, Presence, Section};
use crate::place::{Located, Place, Setting};
use crate::raw::Raw;
use crate::walk;

/// A value in the form its key declares.
#[derive(Debug)]
pub(crate) enum Written {
    /// Refused; the fault stands.
    Broken,
    /// The key's word for no limit: `unlimited` or `off`.
    Lifted,
    Text(String),
    Secret(Secret),
    Integer(i64),
    Boolean(bool),
    Share(f64),
    Size(u64),
    Time(Duration),
    Rate(Rate),
    /// As TOML has it.
    Raw(Raw),
    List(Vec<Located<Written>>),
    Map(Vec<(Located<String>, Located<Written>)>),
    Table(Table),
    Tables(Vec<Table>),
    Named(Vec<(Located<String>, Table)>),
}

/// A table as written.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) section: &'static Section,
    pub(crate) place: Place,
    pub(crate) entries: Vec<Entry>,
}

impl std::fmt::Debug for Section {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.title)
    }
}

/// A key with its value.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    /// Where the key stands.
    pub(crate) key_place: Place,
    pub(crate) value: Located<Written>,
}

macro_rules! getters {
    ($($name:ident $written:ident $variant:ident $kind:ty, $unlimited:expr;)*) => { $(
        /// As written, without the default.
        pub(crate) fn $written(&self, name: &str) -> Option<Setting<$kind>> {
            let entry = self.entry(name)?;
            let value = match &entry.value.value {
                Written::$variant(value) => value.clone(),
                Written::Lifted => $unlimited?,
                _ => return None,
            };
            Some(Setting { value, place: Some(entry.value.place.clone()) })
        }
        /// As written, else the default, which such a key must have.
        pub(crate) fn $name(&self, name: &str) -> Setting<$kind> {
            self.$written(name).unwrap_or_else(|| match self.default_of(name) {
                Written::$variant(value) => Setting { value, place: None },
                other => unreachable!("the default of {name} is {other:?}"),
            })
        }
    )* };
}

/// A rate that refuses nothing.
pub(crate) const UNLIMITED_RATE: Rate = Rate { calls: u64::MAX, period: Duration::from_secs(1), burst: u64::MAX };

#[allow(dead_code)]
impl Table {
    getters! {
        text written_text Text String, None::<String>;
        integer written_integer Integer i64, Some(i64::MAX);
        boolean written_boolean Boolean bool, None::<bool>;
        share written_share Share f64, None::<f64>;
        size written_size Size u64, Some(u64::MAX);
        time written_time Time Duration, None::<Duration>;
        rate written_rate Rate Rate, Some(UNLIMITED_RATE);
    }

    fn default_of(&self, name: &str) -> Written {
        let key = self.section.find(name);
        match key.map(|key| (key, key.presence)) {
            Some((key, Presence::Default(text))) => walk::default_value(key, text).unwrap_or(Written::Broken),
            _ => Written::Broken,
        }
    }

    /// The entry of that key, broken or not.
    pub(crate) fn entry(&self, name: &str) -> Option<&Entry> {
        debug_assert!(self.section.find(name).is_some(), "{} declares no {name}", self.section.title);
        self.entries.iter().find(|entry| entry.name == name)
    }
    pub(crate) fn has(&self, name: &str) -> bool {
        self.entry(name).is_some()
    }
    /// Whether the value was refused.
    pub(crate) fn is_broken(&self, name: &str) -> bool {
        self.entry(name).is_some_and(|entry| matches!(entry.value.value, Written::Broken))
    }
    /// Whether the key's word for no limit stands there.
    pub(crate) fn is_lifted(&self, name: &str) -> bool {
        self.entry(name).is_some_and(|entry| matches!(entry.value.value, Written::Lifted))
    }
    /// Where the value stands, else the table.
    pub(crate) fn place_of(&self, name: &str) -> Place {
        self.entry(name).map_or_else(|| self.place.clone(), |entry| entry.value.place.clone())
    }
    /// Where the key stands, else the table.
    pub(crate) fn key_place(&self, name: &str) -> Place {
        self.entry(name).map_or_else(|| self.place.clone(), |entry| entry.key_place.clone())
    }
    /// A text with its place.
    pub(crate) fn located(&self, name: &str) -> Option<Located<String>> {
        let setting = self.written_text(name)?;
        setting.place.map(|place| Located { value: setting.value, place })
    }
    pub(crate) fn secret(&self, name: &str) -> Option<Located<Secret>> {
        let entry = self.entry(name)?;
        let Written::Secret(secret) = &entry.value.value else { return None };
        Some(Located { value: secret.clone(), place: entry.value.place.clone() })
    }
    pub(crate) fn raw(&self, name: &str) -> Option<Located<&Raw>> {
        let entry = self.entry(name)?;
        let Written::Raw(value) = &entry.value.value else { return None };
        Some(Located { value, place: entry.value.place.clone() })
    }
    pub(crate) fn list(&self, name: &str) -> &[Located<Written>] {
        match self.entry(name).map(|entry| &entry.value.value) {
            Some(Written::List(items)) => items,
            _ => &[],
        }
    }
    /// The texts of a list, else those of the default.
    pub(crate) fn texts(&self, name: &str) -> Vec<Setting<String>> {
        let text = |written: Written, place| match written {
            Written::Text(value) => Some(Setting { value, place }),
            _ => None,
        };
        if self.has(name) && !self.is_broken(name) {
            let item = |item: &Located<Written>| match &item.value {
                Written::Text(value) => Some(Setting { value: value.clone(), place: Some(item.place.clone()) }),
                _ => None,
            };
            return self.list(name).iter().filter_map(item).collect();
        }
        match self.default_of(name) {
            Written::List(items) => items.into_iter().filter_map(|item| text(item.value, None)).collect(),
            _ => Vec::new(),
        }
    }
    pub(crate) fn map(&self, name: &str) -> &[(Located<String>, Located<Written>)] {
        match self.entry(name).map(|entry| &entry.value.value) {
            Some(Written::Map(items)) => items,
            _ => &[],
        }
    }
    pub(crate) fn table(&self, name: &str) -> Option<&Table> {
        match self.entry(name).map(|entry| &entry.value.value) {
            Some(Written::Table(table)) => Some(table),
            _ => None,
        }
    }
    pub(crate) fn tables(&self, name: &str) -> &[Table] {
        match self.entry(name).map(|entry| &entry.value.value) {
            Some(Written::Tables(tables)) => tables,
            _ => &[],
        }
    }
    pub(crate) fn named(&self, name: &str) -> &[(Located<String>, Table)] {
        match self.entry(name).map(|entry| &entry.value.value) {
            Some(Written::Named(tables)) => tables,
            _ => &[],
        }
    }
}

impl Table {
    /// A table nobody wrote: every key has its default.
    pub(crate) fn empty(section: &'static Section, place: Place) -> Table {
        Table { section, place, entries: Vec::new() }
    }
    /// What stands under a key of this table where nobody wrote it.
    pub(crate) fn unwritten(&self, name: &str) -> Table {
        match self.section.find(name).map(|key| &key.kind) {
            Some(Kind::Table(section)) => Table::empty(section, self.place.clone()),
            other => unreachable!("{name} of {} is no table: {}", self.section.title, other.map_or("not declared".into(), Kind::expected)),
        }
    }
}

/// The key's name as messages show it.
pub(crate) fn shown(key: &Key) -> String {
    format!("`{}`", key.name)
}
