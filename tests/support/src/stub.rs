//! An ODBC driver of our own that watches how it is used, for what no real one lets itself be asked: whether a handle is ever used by two
//! threads at once. It is C, as the drivers are, compiled by the compiler that links the tests.

use std::path::PathBuf;
use std::process::Command;

use crate::server::folder;

const SOURCE: &str = include_str!("stub_driver.c");

/// The compiled driver; its file is gone with the value.
pub struct StubDriver {
    folder: PathBuf,
}

impl StubDriver {
    /// Compiles it.
    pub fn compile() -> StubDriver {
        let folder = folder("stub-driver");
        std::fs::write(folder.join("stub_driver.c"), SOURCE).expect("the source is written");
        // Its own calls of its own functions are not to end in another driver that is loaded in the same process.
        let compiled = Command::new("cc")
            .args("-std=c11 -Wall -Wextra -Werror -O1 -shared -fPIC -Wl,-Bsymbolic -D_GNU_SOURCE stub_driver.c -o libstub.so".split(' '))
            .current_dir(&folder)
            .output()
            .expect("a C compiler");
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        StubDriver { folder }
    }
    /// A connection string for it.
    pub fn connection(&self) -> String {
        format!("Driver={};", self.folder.join("libstub.so").display())
    }
}

impl Drop for StubDriver {
    fn drop(&mut self) {
        let _left_behind = std::fs::remove_dir_all(&self.folder);
    }
}
