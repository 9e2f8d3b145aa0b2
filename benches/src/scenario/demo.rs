//! From starting `spillgate demo` to its first answered call, with an empty data folder and with a filled one.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, ensure};

use super::Settings;
use crate::folder::Folder;
use crate::process::{Server, fetch, free_address};
use crate::report::{DemoStart, print_demo};

/// Runs it.
pub(crate) fn run(settings: &Settings) -> Result<DemoStart> {
    let folder = Folder::new("demo")?;
    let start =
        DemoStart { first_millis: millis_to_answer(settings, &folder.path)?, again_millis: millis_to_answer(settings, &folder.path)? };
    print_demo(&start);
    Ok(start)
}

fn millis_to_answer(settings: &Settings, folder: &Path) -> Result<f64> {
    let (listen, admin) = (free_address()?, free_address()?);
    let mut command = Command::new(&settings.product);
    command.args(["demo", "--listen", &listen.to_string(), "--admin-listen", &admin.to_string(), "--data"]).arg(folder.join("data"));
    let started = Instant::now();
    let server = Server::start(&mut command, listen, "/healthz", &folder.join("demo.log"))?;
    let (status, body) = fetch(server.address, "/api/trucks/7", "demo-agent")?;
    let millis = started.elapsed().as_secs_f64() * 1e3;
    ensure!(status == 200, "the demo answered {status}: {}", String::from_utf8_lossy(&body));
    Ok(millis)
}
