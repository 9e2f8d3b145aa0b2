//! The folder `data_dir/control`: which of its files is believed, and what is done with one that cannot be read.
//!
//! ```text
//! sled                    the notebook             sled.aside              one that was damaged: a person removes it
//! control.export          the last export          control.export.aside    one that was damaged: a person removes it
//! ballast                 space kept back
//! ```

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::ballast::{Ballast, free_bytes};
use crate::export::{self, Export};
use crate::notebook::{Change, Notebook, NotebookError};
use crate::record::{Kind, Record};
use crate::records::{Records, Seal};
use crate::share::{NEEDED, Share};

/// The notebook's entry with the seal of all others.
const SEAL: &str = "seal";

/// Opens the notebook in a folder.
pub(crate) type Opener = Box<dyn Fn(&Path) -> Result<Box<dyn Notebook>, NotebookError> + Send>;

/// The notebook as it stands.
pub(crate) enum Book {
    /// In use.
    Open(Box<dyn Notebook>),
    /// Not written for want of space.
    Short(Box<dyn Notebook>),
    /// Not now: it is tried again.
    Waiting(String),
    /// Damaged, with another one aside already: a person must look at them.
    LeftAlone(String),
    /// Not before a restart.
    Lost(String),
}

impl Book {
    /// What a failure makes of it. Damage is for [`Folder::set_aside`].
    pub(crate) fn after(error: &NotebookError) -> Book {
        match error {
            NotebookError::Lost => Book::Lost(error.to_string()),
            NotebookError::Full | NotebookError::Refused(_) | NotebookError::Damaged(_) => Book::Waiting(error.to_string()),
        }
    }
}

/// Where the state of a start comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Began {
    /// From what was kept.
    Kept,
    /// There was nothing: neither notebook nor export. True of a first start, and where somebody took the folder away.
    New,
    /// Something was there, and neither notebook nor export could be read.
    Lost,
}

/// What a start found.
pub(crate) struct Found {
    pub(crate) began: Began,
    pub(crate) book: Book,
    pub(crate) records: Records,
    /// Generation of the export that is there; 0 without one.
    pub(crate) exported: u64,
    /// What a person should know, a sentence each; true until the next start.
    pub(crate) remarks: Vec<String>,
}

/// `data_dir/control`.
pub(crate) struct Folder {
    path: PathBuf,
    pub(crate) share: Share,
    pub(crate) ballast: Ballast,
    opener: Opener,
}

impl Folder {
    pub(crate) fn new(path: &Path, share: Share, opener: Opener) -> Folder {
        Folder { path: path.to_owned(), share, ballast: Ballast::new(path.join("ballast"), share.ballast), opener }
    }
    fn book_path(&self) -> PathBuf {
        self.path.join("sled")
    }
    pub(crate) fn aside_path(&self) -> PathBuf {
        self.path.join("sled.aside")
    }
    pub(crate) fn export_path(&self) -> PathBuf {
        self.path.join("control.export")
    }
    /// Bytes of the notebook's files.
    pub(crate) fn book_bytes(&self) -> u64 {
        bytes_below(&self.book_path())
    }

    /// Reads whatever is there, changes nothing that can be read, and puts the newer state in force.
    pub(crate) fn open(&self) -> Found {
        if let Err(error) = fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.path) {
            tracing::error!(%error, "the folder for operator state cannot be made");
        }
        let mut remarks = Vec::new();
        let there = self.book_path().exists();
        let export = self.read_export(&mut remarks).unwrap_or_default();
        let exported = export.records.seal().generation;
        let opened = self.open_book().and_then(|(book, records)| {
            let lost = records.seal().generation < export.noted;
            if lost { Err(NotebookError::Damaged("it has lost changes".into())) } else { Ok((book, records)) }
        });
        let unread = there && opened.is_err();
        let (mut book, noted) = match opened {
            Ok((book, records)) => (Book::Open(book), records),
            Err(NotebookError::Damaged(detail)) => (self.set_aside(detail), Records::default()),
            Err(error) => (Book::after(&error), Records::default()),
        };
        let mut records = if exported > noted.seal().generation { export.records } else { noted.clone() };
        let began = match records.seal().generation {
            0 if unread || !remarks.is_empty() => Began::Lost,
            0 => Began::New,
            _ => Began::Kept,
        };
        if began != Began::Kept {
            // From now on there is always something: the next start knows whether it is still there.
            records.outdate(0);
        }
        let dropped = records.trim(self.share.records);
        if let Book::Open(open) = &mut book
            && (records.seal() != noted.seal() || !dropped.is_empty())
            && let Err(error) = write_all(&mut **open, &noted, &records)
        {
            book = Book::after(&error);
        }
        Found { began, book, records, exported, remarks }
    }

    /// The newer state, for a reader that must leave everything as it is.
    pub(crate) fn peek(&self) -> (Records, Vec<String>) {
        let mut remarks = Vec::new();
        // Opening one that is not there would make it.
        let there = self.book_path().exists();
        let noted = match there.then(|| self.open_book()) {
            None => Records::default(),
            Some(Ok((_book, records))) => records,
            Some(Err(error)) => {
                remarks.push(format!("the notebook {} cannot be read, this is the last export: {error}", self.book_path().display()));
                Records::default()
            }
        };
        match export::read(&self.export_path()) {
            Ok(Some(export)) if export.records.seal().generation > noted.seal().generation => (export.records, remarks),
            Ok(_) => (noted, remarks),
            Err(error) => {
                remarks.push(format!("{} cannot be read: {error}", self.export_path().display()));
                (noted, remarks)
            }
        }
    }

    /// Whether there is space to work in, with the ballast given up if there is none else.
    pub(crate) fn has_space(&self) -> bool {
        let enough = || free_bytes(&self.path).is_ok_and(|free| free >= NEEDED);
        enough() || (self.ballast.release() && enough())
    }

    /// Opens the notebook and reads it, with the ballast given up if it would not open without.
    pub(crate) fn open_book(&self) -> Result<(Box<dyn Notebook>, Records), NotebookError> {
        // Never tried without space: a start that breaks off is what damages one.
        if !self.has_space() {
            return Err(NotebookError::Full);
        }
        let book = (self.opener)(&self.book_path())?;
        let records = read_all(&*book)?;
        Ok((book, records))
    }

    /// Moves a damaged notebook out of the way and makes a new one; with one aside already, nothing is touched.
    pub(crate) fn set_aside(&self, detail: String) -> Book {
        tracing::error!(detail, "the notebook of operator state cannot be read");
        if self.aside_path().exists() {
            return Book::LeftAlone(detail);
        }
        if let Err(error) = fs::rename(self.book_path(), self.aside_path()) {
            return Book::Waiting(format!("{detail}; it cannot be moved aside: {error}"));
        }
        match self.open_book() {
            Ok((book, _)) => Book::Open(book),
            Err(error) => Book::after(&error),
        }
    }

    /// Makes a healthy notebook anew that has grown too large. The export has everything meanwhile.
    pub(crate) fn renew(&self, records: &Records) -> Result<Box<dyn Notebook>, NotebookError> {
        fs::remove_dir_all(self.book_path())?;
        let (mut book, before) = self.open_book()?;
        write_all(&mut *book, &before, records)?;
        Ok(book)
    }

    fn read_export(&self, remarks: &mut Vec<String>) -> Option<Export> {
        let path = self.export_path();
        let error = match export::read(&path) {
            Ok(export) => return export,
            Err(error) => error,
        };
        let aside = self.path.join("control.export.aside");
        // The next export takes its place: what a person may still want to read must not go with it.
        let kept = if aside.exists() { "an earlier one" } else { "it" };
        if !aside.exists() {
            let _stays_then = fs::rename(&path, &aside);
        }
        tracing::error!(%error, "the last export of operator state cannot be read");
        remarks.push(format!("the last export of the operator state could not be read ({error}); {kept} is at {}", aside.display()));
        None
    }
}

/// Adds a batch and the seal of the state it leads to, durably.
pub(crate) fn append(book: &mut dyn Notebook, mut changes: Vec<Change>, seal: Seal) -> Result<(), NotebookError> {
    let seal = Record::of(&seal).map_err(|error| NotebookError::Refused(error.to_string()))?;
    changes.push((SEAL.to_owned(), Some(seal.to_bytes())));
    book.write(changes)?;
    book.flush()
}

/// Makes a notebook that holds `before` hold exactly `records`.
pub(crate) fn write_all(book: &mut dyn Notebook, before: &Records, records: &Records) -> Result<(), NotebookError> {
    let gone = before.all().filter(|(key, _)| records.get(key).is_none()).map(|(key, _)| (key.clone(), None));
    let there = records.all().filter(|(key, record)| before.get(key) != Some(record));
    let changes = gone.chain(there.map(|(key, record)| (key.clone(), Some(record.to_bytes())))).collect();
    append(book, changes, records.seal())
}

pub(crate) fn read_all(book: &dyn Notebook) -> Result<Records, NotebookError> {
    let damaged = |problem: &str| NotebookError::Damaged(problem.to_owned());
    let (mut seal, mut records) = (None, Vec::new());
    for (key, value) in book.scan()? {
        let record = Record::from_bytes(&value).ok_or_else(|| damaged("a record is empty"))?;
        if key == SEAL {
            seal = Some(record.read::<Seal>().ok_or_else(|| damaged("its seal is not one of this version"))?);
        } else {
            records.push((key, record));
        }
    }
    let Some(seal) = seal else {
        return if records.is_empty() { Ok(Records::default()) } else { Err(damaged("its seal is missing")) };
    };
    let records = Records::restored(records, seal.generation);
    if records.seal() == seal { Ok(records) } else { Err(damaged("records are missing or changed")) }
}

/// Bytes of all files below a folder; those that go away meanwhile count nothing.
fn bytes_below(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => bytes_below(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}

const _: () = assert!(Kind::VERSION > 0, "a record without a version is a damaged one");
