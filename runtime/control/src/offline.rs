//! Export and import without a server. Whoever calls holds the lock of the data folder.

use std::path::Path;

use crate::export as lines;
use crate::folder::{self, Book, Folder};
use crate::record::Kind;
use crate::share::Share;
use crate::sled_notebook;
use spillgate_model::limits::OPERATOR_STATE_BYTES;

/// Why operator state cannot be exported or imported.
#[derive(Debug, thiserror::Error)]
pub enum OfflineError {
    /// There is none.
    #[error("there is no operator state in {0}")]
    Nothing(String),
    /// What was given is no whole export.
    #[error("this is not a whole export: {0}")]
    NotAnExport(String),
    /// The system refused.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The notebook cannot take it.
    #[error("it cannot be written: {0}")]
    Notebook(String),
}

/// The state as text.
#[derive(Debug)]
pub struct Exported {
    /// JSON lines.
    pub text: Vec<u8>,
    /// How many records.
    pub records: usize,
    /// What a person should know, a sentence each.
    pub remarks: Vec<String>,
}

/// What an import did.
#[derive(Debug)]
pub struct Imported {
    /// Records that are there now.
    pub records: usize,
    /// Records that were there before.
    pub before: usize,
    /// What a person should know, a sentence each.
    pub remarks: Vec<String>,
}

fn folder_of(path: &Path) -> Folder {
    // Without the server file its share is not known; a server with a smaller one cuts the audit to it when it starts.
    Folder::new(path, Share::of(OPERATOR_STATE_BYTES), Box::new(sled_notebook::open))
}

/// Reads the newer of notebook and last export in `folder` (`data_dir/control`). Moves nothing.
pub fn export(folder: &Path) -> Result<Exported, OfflineError> {
    if !folder.is_dir() {
        return Err(OfflineError::Nothing(folder.display().to_string()));
    }
    let (records, remarks) = folder_of(folder).peek();
    Ok(Exported { text: lines::encode(&records, 0)?, records: records.seal().records, remarks })
}

/// Whether the state in `folder` has records of a kind. Moves nothing.
pub fn remembers(folder: &Path, kind: Kind) -> bool {
    folder.is_dir() && folder_of(folder).peek().0.of(kind, "").next().is_some()
}

/// Makes the state in `folder` exactly what an export says.
pub fn import(folder: &Path, text: &[u8]) -> Result<Imported, OfflineError> {
    let mut records = lines::decode(text).map_err(|error| OfflineError::NotAnExport(error.to_string()))?.records;
    let folder = folder_of(folder);
    let found = folder.open();
    let (before, mut remarks) = (found.records, found.remarks);
    if !records.trim(folder.share.records).is_empty() {
        remarks.push("the audit is longer than its share: its oldest entries were left out".into());
    }
    // Newer than whatever is there, so that it is believed.
    records.outdate(before.seal().generation.max(found.exported));
    lines::write(&folder.export_path(), &records, 0)?;
    match found.book {
        Book::Open(mut book) => {
            folder::write_all(&mut *book, &before, &records).map_err(|error| OfflineError::Notebook(error.to_string()))?;
        }
        Book::Short(_) => remarks.push("the volume is full; the export is in place and is loaded at the next start".into()),
        Book::Waiting(detail) | Book::LeftAlone(detail) | Book::Lost(detail) => {
            remarks.push(format!("the notebook could not be opened ({detail}); the export is in place and is loaded at the next start"));
        }
    }
    Ok(Imported { records: records.seal().records, before: before.seal().records, remarks })
}
