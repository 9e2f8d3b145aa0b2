//! A small file system of a test's own, that can be filled.
//!
//! A shell in a mount namespace of its own mounts a tmpfs and waits on a pipe that only this process holds open. Whatever ends this
//! process ends the shell, with it the namespace, and with that the file system: nothing is to be cleaned up by hand.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::server::folder;

/// The file system. Dropping it takes it away.
pub struct Volume {
    holder: Child,
    path: PathBuf,
    /// As flags of `nsenter`.
    user: &'static [&'static str],
}

/// The flags of `unshare` and `nsenter`: as root, or as whoever may make a user namespace.
const WAYS: [(&[&str], &[&str]); 2] =
    [(&["--mount"], &["--mount"]), (&["--user", "--map-root-user", "--mount"], &["--user", "--preserve-credentials", "--mount"])];
const HOLDER: &str = r#"mount -t tmpfs -o "size=$1" tmpfs "$2" && chmod 700 "$2" && echo mounted && while read -r line; do :; done"#;

impl Volume {
    /// Mounts one of `bytes`. The error says why this machine does not let us.
    pub fn mount(bytes: u64) -> Result<Volume, String> {
        let path = folder("volume");
        let mut why = String::new();
        for (unshare, user) in WAYS {
            let holder = Command::new("unshare")
                .args(unshare)
                .args(["sh", "-c", HOLDER, "sh", &bytes.to_string()])
                .arg(&path)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn();
            let mut holder = holder.map_err(|error| format!("unshare cannot be run: {error}"))?;
            let mut said = String::new();
            let told = BufReader::new(holder.stdout.take().expect("piped")).read_line(&mut said);
            if told.is_ok() && said == "mounted\n" {
                return Ok(Volume { holder, path, user });
            }
            let _read = holder.stderr.take().expect("piped").read_to_string(&mut why);
            let _status = holder.wait();
        }
        let _left_behind = std::fs::remove_dir(&path);
        Err(why)
    }
    /// Where programs started through [`Volume::launcher`] see it.
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// What such programs are started with.
    pub fn launcher(&self) -> Vec<String> {
        let of_holder = ["nsenter".to_owned(), "--target".to_owned(), self.holder.id().to_string()];
        of_holder.into_iter().chain(self.user.iter().map(|flag| (*flag).to_owned())).chain(["--".to_owned()]).collect()
    }
    /// Where this process sees it.
    pub fn here(&self) -> PathBuf {
        let path = self.path.strip_prefix("/").expect("an absolute path");
        Path::new("/proc").join(self.holder.id().to_string()).join("root").join(path)
    }
    /// A foreign file that takes what is left, to the last byte that is given.
    pub fn fill(&self) -> PathBuf {
        let path = self.here().join("foreign");
        let mut file = File::create(&path).expect("a foreign file");
        for size in [1 << 16, 1 << 10, 1] {
            let block = vec![b'x'; size];
            while file.write_all(&block).is_ok() {}
        }
        path
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        let _status = self.holder.wait();
        let _left_behind = std::fs::remove_dir(&self.path);
    }
}
