//! The key that signs page cursors: made once, kept in the data folder, so that a cursor outlives a restart.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};

use crate::private_file;

/// Reads `data_dir/cursor.key`, or makes it: 32 random bytes, readable by the owner only, whole or not there.
pub(crate) fn load_or_make(data_dir: &Path) -> anyhow::Result<[u8; 32]> {
    fs::create_dir_all(data_dir).with_context(|| format!("data_dir {} cannot be made", data_dir.display()))?;
    let path = data_dir.join("cursor.key");
    match fs::read(&path) {
        Ok(bytes) => match bytes.try_into() {
            Ok(key) => Ok(key),
            Err(_) => bail!("{} must hold 32 bytes; remove it to have a new one made (cursors given out before then end)", path.display()),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => make(&path),
        Err(error) => Err(error).with_context(|| format!("{} cannot be read", path.display())),
    }
}

fn make(path: &Path) -> anyhow::Result<[u8; 32]> {
    let mut key = [0; 32];
    getrandom::fill(&mut key).context("no random bytes for the cursor key")?;
    private_file::write(path, &key).with_context(|| format!("{} cannot be written", path.display()))?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_the_same_after_a_restart_and_a_damaged_one_is_refused() {
        let folder = std::env::temp_dir().join(format!("spillgate-cursor-key-{}", std::process::id()));
        let first = load_or_make(&folder).expect("made");
        assert_eq!(load_or_make(&folder).expect("read"), first);
        fs::write(folder.join("cursor.key"), b"short").expect("damaged");
        assert!(load_or_make(&folder).expect_err("refused").to_string().contains("32 bytes"));
        fs::remove_dir_all(&folder).expect("cleaned");
    }
}
