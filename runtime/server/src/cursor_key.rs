//! The key that signs page cursors: made once, kept in the data folder, so that a cursor outlives a restart.
//!
//! Nothing that is wrong with the file stops a start: a new key only means that cursors given out before end.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::Context as _;

use crate::private_file;

/// Reads `data_dir/cursor.key`, or makes it: 32 random bytes, readable by the owner only, whole or not there.
pub(crate) fn load_or_make(data_dir: &Path) -> anyhow::Result<[u8; 32]> {
    let path = data_dir.join("cursor.key");
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return make(&path),
        // It may be sound: it is left where it is.
        Err(error) => {
            tracing::error!(%error, "cursor.key cannot be read; cursors given out before are refused, and those given out now end with this process");
            return random();
        }
    };
    let found = bytes.len();
    if let Ok(key) = bytes.try_into() {
        return Ok(key);
    }
    let aside = data_dir.join("cursor.key.aside");
    let kept = fs::rename(&path, &aside);
    tracing::error!(
        found_bytes = found,
        aside = kept.is_ok().then(|| tracing::field::display(aside.display())),
        "cursor.key does not hold 32 bytes; a new one is made, and cursors given out before are refused"
    );
    make(&path)
}

/// A new key; where it cannot be written (a full volume) it is good for this process.
fn make(path: &Path) -> anyhow::Result<[u8; 32]> {
    let key = random()?;
    if let Err(error) = private_file::write(path, &key) {
        tracing::warn!(%error, "cursor.key cannot be written; cursors given out now end with this process");
    }
    Ok(key)
}

fn random() -> anyhow::Result<[u8; 32]> {
    let mut key = [0; 32];
    getrandom::fill(&mut key).context("no random bytes for the cursor key")?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("spillgate-cursor-key-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    #[test]
    fn the_key_is_the_same_after_a_restart() {
        let folder = folder("same");
        let first = load_or_make(&folder).expect("made");
        assert_eq!(load_or_make(&folder).expect("read"), first);
        fs::remove_dir_all(&folder).expect("cleaned");
    }

    #[test]
    fn a_damaged_key_is_kept_aside_and_a_new_one_made() {
        let folder = folder("damaged");
        let first = load_or_make(&folder).expect("made");
        fs::write(folder.join("cursor.key"), b"short").expect("damaged");
        let second = load_or_make(&folder).expect("the start goes on");
        assert_ne!(first, second);
        assert_eq!(load_or_make(&folder).expect("read"), second);
        assert_eq!(fs::read(folder.join("cursor.key.aside")).expect("kept"), b"short");
        fs::remove_dir_all(&folder).expect("cleaned");
    }

    #[test]
    fn a_key_that_can_neither_be_read_nor_written_stops_no_start() {
        let folder = folder("unreadable");
        fs::create_dir(folder.join("cursor.key")).expect("a folder in its place");
        assert_ne!(load_or_make(&folder).expect("made"), load_or_make(&folder).expect("made"), "of this process only");
        assert_ne!(load_or_make(&folder.join("nowhere")).expect("made"), [0; 32]);
        fs::remove_dir_all(&folder).expect("cleaned");
    }
}
