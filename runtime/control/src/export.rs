//! The export: all records as one file of JSON lines that a person can read, written whole or not at all.
//!
//! ```text
//! {"spillgate_control":1,"generation":7,"records":2,"fingerprint":912345,"noted":7}
//! {"key":"audit/0000000000000001","version":1,"body":{…}}
//! {"key":"paused/bookings/agent","version":1,"body":{…}}
//! {"crc32":"0f3a99c1"}                                          over every byte before this line
//! ```
//! `noted` is the generation that the notebook had then: sled makes a silent fresh start of some damage, and that is how it is noticed.
//! A body that is not one line of JSON (of a later version) stands as `"raw"` in hexadecimal.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::record::Record;
use crate::records::{Records, Seal};

/// The format of this file.
const FORMAT: u32 = 1;
/// Bytes of a file that is read at all: far beyond the largest share.
const MOST_BYTES: u64 = 64 << 20;

/// Why an export cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExportError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("line {line}: {problem}")]
    Line { line: usize, problem: String },
    #[error("its format {0} is newer than this program")]
    Newer(u32),
    #[error("its last lines are missing, or it was changed: the checksum does not fit")]
    Checksum,
    #[error("it is too large to be one")]
    TooLarge,
}

#[derive(Serialize, Deserialize)]
struct Head {
    spillgate_control: u32,
    #[serde(flatten)]
    seal: Seal,
    #[serde(default)]
    noted: u64,
}

/// What an export says.
#[derive(Debug, Default)]
pub(crate) struct Export {
    pub(crate) records: Records,
    /// Changes up to this generation were durable in the notebook as well.
    pub(crate) noted: u64,
}

#[derive(Serialize, Deserialize)]
struct Line<'a> {
    key: String,
    version: u8,
    #[serde(borrow, skip_serializing_if = "Option::is_none", default)]
    body: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    raw: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Foot {
    crc32: String,
}

/// The records as text.
pub(crate) fn encode(records: &Records, noted: u64) -> Result<Vec<u8>, io::Error> {
    let mut text = Vec::new();
    put_line(&mut text, &Head { spillgate_control: FORMAT, seal: records.seal(), noted })?;
    for (key, record) in records.all() {
        // Only text that comes back byte by byte: what is sealed must be what is read.
        let body = serde_json::from_slice::<&RawValue>(&record.body).ok();
        let body = body.filter(|body| body.get().as_bytes() == &*record.body && !body.get().contains('\n'));
        let raw = body.is_none().then(|| record.body.iter().map(|byte| format!("{byte:02x}")).collect());
        put_line(&mut text, &Line { key: key.clone(), version: record.version, body, raw })?;
    }
    let foot = Foot { crc32: format!("{:08x}", crc32fast::hash(&text)) };
    put_line(&mut text, &foot)?;
    Ok(text)
}

fn put_line(text: &mut Vec<u8>, line: &impl Serialize) -> Result<(), io::Error> {
    serde_json::to_writer(&mut *text, line)?;
    text.push(b'\n');
    Ok(())
}

/// Reads what [`encode`] wrote.
pub(crate) fn decode(text: &[u8]) -> Result<Export, ExportError> {
    let end = text.strip_suffix(b"\n").ok_or(ExportError::Checksum)?;
    let foot_at = end.iter().rposition(|byte| *byte == b'\n').ok_or(ExportError::Checksum)? + 1;
    let (before, foot) = end.split_at(foot_at);
    let foot: Foot = serde_json::from_slice(foot).map_err(|_| ExportError::Checksum)?;
    if foot.crc32 != format!("{:08x}", crc32fast::hash(before)) {
        return Err(ExportError::Checksum);
    }
    let at = |line: usize| move |problem: String| ExportError::Line { line, problem };
    let mut lines = before.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let head: Head = serde_json::from_slice(lines.next().unwrap_or_default()).map_err(|error| at(1)(error.to_string()))?;
    if head.spillgate_control > FORMAT {
        return Err(ExportError::Newer(head.spillgate_control));
    }
    let mut records = Vec::with_capacity(head.seal.records.min(before.len()));
    for (index, line) in lines.enumerate() {
        let fault = at(index + 2);
        let line: Line<'_> = serde_json::from_slice(line).map_err(|error| fault(error.to_string()))?;
        let body = match (line.body, line.raw) {
            (Some(body), None) => body.get().as_bytes().into(),
            (None, Some(raw)) => from_hexadecimal(&raw).ok_or_else(|| fault("raw is not hexadecimal".into()))?.into(),
            _ => return Err(fault("it needs a body or raw, one of them".into())),
        };
        records.push((line.key, Record { version: line.version, body }));
    }
    let records = Records::restored(records, head.seal.generation);
    if records.seal() != head.seal {
        return Err(ExportError::Checksum);
    }
    Ok(Export { records, noted: head.noted })
}

fn from_hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|digit| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// Reads an export. `None`: there is none.
pub(crate) fn read(path: &Path) -> Result<Option<Export>, ExportError> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
        Ok(metadata) if metadata.len() > MOST_BYTES => return Err(ExportError::TooLarge),
        Ok(_) => {}
    }
    decode(&fs::read(path)?).map(Some)
}

/// Writes an export under another name, syncs, renames, and syncs the folder.
pub(crate) fn write(path: &Path, records: &Records, noted: u64) -> Result<(), io::Error> {
    write_whole(path, &encode(records, noted)?)
}

/// Readable by the owner only, whole or not there, durable when it returns.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), io::Error> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut name = path.as_os_str().to_owned();
    name.push(".unfinished");
    let unfinished = Path::new(&name);
    let written = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(unfinished)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()));
    if let Err(error) = written {
        // Half a file would only hold space that is missing already.
        let _left_behind = fs::remove_file(unfinished);
        return Err(error);
    }
    fs::rename(unfinished, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Records {
        let mut records = Records::default();
        let mut put = |key: &str, version, body: &[u8]| {
            records.put(key.to_owned(), Record { version, body: body.into() }, 1 << 20).expect("room");
        };
        put("paused/bookings/agent", 1, br#"{"queue":"bookings","note":"a \"quote\" and \u00e9"}"#);
        put("audit/0000000000000001", 1, br#"{"number":1}"#);
        put("breaker/as400", 9, b"\x00\xffnot json");
        put("later/thing", 2, b" {\"spaced\": 1} ");
        put("empty/one", 3, b"");
        records
    }

    #[test]
    fn what_was_exported_is_read_back_byte_by_byte() {
        let records = some();
        let text = encode(&records, 3).expect("encoded");
        let Export { records: again, noted } = decode(&text).expect("decoded");
        assert_eq!(noted, 3);
        assert_eq!(again.seal(), records.seal());
        assert!(again.all().eq(records.all()));
        assert_eq!(encode(&again, 3).expect("encoded"), text);
        assert!(text.is_ascii() || std::str::from_utf8(&text).is_ok(), "a person can read it");
    }

    #[test]
    fn every_changed_or_missing_byte_is_noticed() {
        let text = encode(&some(), 0).expect("encoded");
        for cut in 0..text.len() {
            assert!(decode(&text[..cut]).is_err(), "cut at {cut}");
        }
        for at in 0..text.len() {
            let mut changed = text.clone();
            changed[at] ^= 1;
            assert!(decode(&changed).is_err(), "changed at {at}");
        }
    }

    #[test]
    fn a_format_from_the_future_is_refused_by_name() {
        let mut text = br#"{"spillgate_control":2,"generation":1,"records":0,"fingerprint":0}"#.to_vec();
        text.push(b'\n');
        let crc = crc32fast::hash(&text);
        text.extend(format!("{{\"crc32\":\"{crc:08x}\"}}\n").bytes());
        assert!(matches!(decode(&text), Err(ExportError::Newer(2))));
    }
}
