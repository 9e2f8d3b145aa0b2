//! `spillgate control export|import`: the operator state of a stopped server as one file of JSON lines.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;

use crate::cli::Control;
use crate::data_dir::DataDir;
use crate::private_file;

/// Bytes of a file that may be one.
const EXPORT_BYTES: u64 = 64 << 20;

/// Does what was asked.
pub(crate) fn run(command: &Control) -> anyhow::Result<ExitCode> {
    match command {
        Control::Export { data, file } => export(data, file.as_deref()),
        Control::Import { data, file } => import(data, file.as_deref()),
    }
}

fn export(data: &Path, file: Option<&Path>) -> anyhow::Result<ExitCode> {
    let folder = DataDir::take_stopped(data)?;
    let exported = spillgate_control::export(&folder.control())?;
    match file {
        Some(path) => private_file::write(path, &exported.text).with_context(|| format!("{} cannot be written", path.display()))?,
        None => std::io::stdout().lock().write_all(&exported.text).context("the output cannot be written")?,
    }
    eprintln!("{} records exported", exported.records);
    say(&exported.remarks);
    Ok(ExitCode::from(u8::from(!exported.remarks.is_empty())))
}

fn import(data: &Path, file: Option<&Path>) -> anyhow::Result<ExitCode> {
    let mut text = Vec::new();
    let read = match file {
        Some(path) => std::fs::File::open(path).and_then(|file| file.take(EXPORT_BYTES).read_to_end(&mut text)),
        None => std::io::stdin().lock().take(EXPORT_BYTES).read_to_end(&mut text),
    };
    read.with_context(|| {
        file.map_or_else(|| "standard input cannot be read".to_owned(), |path| format!("{} cannot be read", path.display()))
    })?;
    // A new folder is fine: that is how state moves to another machine.
    let folder = DataDir::take(data)?;
    let imported = spillgate_control::import(&folder.control(), &text)?;
    eprintln!("{} records imported in place of {}", imported.records, imported.before);
    say(&imported.remarks);
    Ok(ExitCode::from(u8::from(!imported.remarks.is_empty())))
}

fn say(remarks: &[String]) {
    for remark in remarks {
        eprintln!("remark: {remark}");
    }
}
