//! The tables of the reference document, made from the tables of keys.

use std::fmt::Write as _;

use crate::keys::{Key, Kind, Presence, Section, Stage, flow, server};

/// The server file, as Markdown.
pub fn reference_server() -> String {
    document("Server file", &server::ROOT)
}

/// A flow file, as Markdown.
pub fn reference_flow() -> String {
    document("Flow file", &flow::ROOT)
}

fn document(title: &str, root: &Section) -> String {
    let mut out = format!("## {title}\n\n{}\n", root.about);
    table(root, &mut out);
    inner(root, &mut Vec::new(), &mut out);
    out
}

/// What may stand in several places is told where it stands first.
fn inner(section: &Section, told: &mut Vec<&'static Section>, out: &mut String) {
    for key in section.current() {
        let (Kind::Table(inside) | Kind::Tables(inside) | Kind::Named(inside)) = key.kind else { continue };
        if told.iter().any(|known| std::ptr::eq(*known, inside)) {
            continue;
        }
        told.push(inside);
        let _ = write!(out, "\n### `{}`\n\n{}\n", inside.title, inside.about);
        table(inside, out);
        inner(inside, told, out);
    }
}

fn table(section: &Section, out: &mut String) {
    out.push_str("\n| key | form | default | meaning |\n|---|---|---|---|\n");
    for key in section.current() {
        let _ = writeln!(out, "| `{}` | {} | {} | {} |", key.name, cell(&form(key)), cell(&default(key)), cell(key.about));
    }
    let later: Vec<String> = section
        .keys
        .iter()
        .filter(|key| key.stage != Stage::Now)
        .map(|key| format!("`{}` ({})", key.name, key.stage.comes_with()))
        .collect();
    if !later.is_empty() {
        let _ = writeln!(out, "\nNot available yet, refused by `check`: {}.", later.join(", "));
    }
}

fn form(key: &Key) -> String {
    let form = match key.kind {
        Kind::Table(inside) | Kind::Tables(inside) | Kind::Named(inside) => format!("`{}`", inside.title),
        _ => key.kind.expected(),
    };
    match key.lifted_by {
        Some(word) => format!("{form}, or \"{word}\""),
        None => form,
    }
}

fn default(key: &Key) -> String {
    match key.presence {
        Presence::Required => "required".into(),
        Presence::Optional => String::new(),
        Presence::Default("\"\"") => String::new(),
        Presence::Default(text) => format!("`{text}`"),
    }
}

/// A bar would end the cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}
