//! The declared tables of keys: what may stand where, in what form, with what default.
//!
//! Decoding, faults for unknown and later keys, the JSON schemas and the reference document all come from these tables
//! and from nothing else. Defaults are written as the files write them and read by the same decoder.

pub(crate) mod durable;
pub(crate) mod flow;
pub(crate) mod isolation;
pub(crate) mod server;

use spillgate_model::units::{ByteSize, show_duration};
use std::time::Duration;

/// A table of a file.
pub(crate) struct Section {
    /// As messages and the reference name it: `[server]`.
    pub(crate) title: &'static str,
    /// One sentence.
    pub(crate) about: &'static str,
    /// In the order of the reference.
    pub(crate) keys: &'static [Key],
}

/// One key.
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) about: &'static str,
    pub(crate) presence: Presence,
    /// This word may stand in place of the value and lifts the limit: `unlimited` or `off`. `check` lists where it does.
    pub(crate) lifted_by: Option<&'static str>,
    pub(crate) stage: Stage,
}

/// What happens when a key is not written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// A fault.
    Required,
    /// Nothing.
    Optional,
    /// This TOML value stands in.
    Default(&'static str),
}

/// The part of the product a key belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Now,
    Edge,
}

impl Stage {
    /// What it comes with, for the fault.
    pub(crate) fn comes_with(self) -> &'static str {
        match self {
            Stage::Now => "this version",
            Stage::Edge => "the hardened edge",
        }
    }
}

/// The form of a value.
pub(crate) enum Kind {
    /// Any text.
    Text,
    /// One of these words.
    Word(&'static [&'static str]),
    /// `IP:PORT`.
    Address,
    /// A path; relative ones start at the file they stand in.
    Path,
    /// Text, or `env:NAME`, or `file:PATH`; never shown.
    Secret,
    /// A CEL expression.
    Expression,
    Integer {
        min: i64,
        max: i64,
    },
    Boolean,
    Size {
        min: u64,
        max: u64,
    },
    /// In milliseconds.
    Time {
        min: u64,
        max: u64,
    },
    /// A number above 0 and at most 1.
    Share,
    /// `"600/min"` or `{ rate = "600/min", burst = 50 }`.
    Rate,
    /// A type of inputs, or a list of one.
    InputType,
    /// Text, number, boolean, date; or a list of them.
    Value,
    /// Any TOML value.
    Anything,
    List(&'static Kind),
    /// `NAME = value`.
    Map(&'static Kind),
    /// `[key]` or `key = { … }`.
    Table(&'static Section),
    /// `[[key]]` or a list of tables.
    Tables(&'static Section),
    /// `[key.NAME]`.
    Named(&'static Section),
}

impl Kind {
    /// What a fault says was expected.
    pub(crate) fn expected(&self) -> String {
        match self {
            Kind::Text => "text".into(),
            Kind::Word(words) => format!("one of {}", words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ")),
            Kind::Address => "an address such as \"127.0.0.1:8080\"".into(),
            Kind::Path => "a path".into(),
            Kind::Secret => "text, \"env:NAME\" or \"file:PATH\"".into(),
            Kind::Expression => "an expression".into(),
            Kind::Integer { min, max: i64::MAX } => format!("a whole number from {min}"),
            Kind::Integer { min, max } => format!("a whole number from {min} to {max}"),
            Kind::Boolean => "true or false".into(),
            Kind::Size { min, max } => format!("a size from \"{}\" to \"{}\"", ByteSize(*min), ByteSize(*max)),
            Kind::Time { min, max } => format!("a time from \"{}\" to \"{}\"", milliseconds(*min), milliseconds(*max)),
            Kind::Share => "a number above 0 and at most 1".into(),
            Kind::Rate => "a rate such as \"600/min\" or { rate = \"600/min\", burst = 50 }".into(),
            Kind::InputType => "a type such as \"integer\", or a list such as [\"integer\"]".into(),
            Kind::Value => "text, a number, true or false, a date, or a list of them".into(),
            Kind::Anything => "a value".into(),
            Kind::List(item) => format!("a list, each item {}", item.expected()),
            Kind::Map(item) => format!("a table of names, each {}", item.expected()),
            Kind::Table(_) => "a table".into(),
            Kind::Tables(_) => "a list of tables".into(),
            Kind::Named(_) => "a table for each name".into(),
        }
    }
}

fn milliseconds(amount: u64) -> String {
    show_duration(Duration::from_millis(amount))
}

/// A key that need not be written.
pub(crate) const fn key(name: &'static str, kind: Kind, about: &'static str) -> Key {
    Key { name, kind, about, presence: Presence::Optional, lifted_by: None, stage: Stage::Now }
}

impl Key {
    pub(crate) const fn required(self) -> Self {
        Key { presence: Presence::Required, ..self }
    }
    pub(crate) const fn default(self, toml: &'static str) -> Self {
        Key { presence: Presence::Default(toml), ..self }
    }
    pub(crate) const fn or_unlimited(self) -> Self {
        Key { lifted_by: Some("unlimited"), ..self }
    }
    pub(crate) const fn or_off(self) -> Self {
        Key { lifted_by: Some("off"), ..self }
    }
    pub(crate) const fn later(self, stage: Stage) -> Self {
        Key { stage, ..self }
    }
}

impl Section {
    pub(crate) fn find(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }
    /// The keys of this version.
    pub(crate) fn current(&self) -> impl Iterator<Item = &'static Key> {
        self.keys.iter().filter(|key| key.stage == Stage::Now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visit(section: &'static Section, seen: &mut Vec<&'static Section>) {
        seen.push(section);
        for key in section.keys {
            match key.kind {
                Kind::Table(inner) | Kind::Tables(inner) | Kind::Named(inner) => visit(inner, seen),
                _ => {}
            }
        }
    }

    #[test]
    fn every_default_is_readable_by_its_own_decoder_and_every_key_is_explained() {
        let mut sections = Vec::new();
        visit(&server::ROOT, &mut sections);
        visit(&flow::ROOT, &mut sections);
        visit(&isolation::OVERRIDE, &mut sections);
        for (section, key) in sections.iter().flat_map(|section| section.keys.iter().map(move |key| (section, key))) {
            assert!(key.about.ends_with('.'), "{} {}: {}", section.title, key.name, key.about);
            if let Presence::Default(text) = key.presence {
                assert!(crate::walk::default_value(key, text).is_some(), "{} {} = {text}", section.title, key.name);
            }
            let twice = section.keys.iter().filter(|other| other.name == key.name).count();
            assert_eq!(twice, 1, "{} {}", section.title, key.name);
        }
    }
}
