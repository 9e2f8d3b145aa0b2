//! A server under measurement: its process, and what the kernel says about it.

use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use spillgate_test_support::client::{Client, get};

/// User space always sees a hundred ticks a second.
const TICK: Duration = Duration::from_millis(10);
const START_LIMIT: Duration = Duration::from_secs(20);

/// A child process that serves HTTP. Ends with the value.
pub(crate) struct Server {
    child: Child,
    /// Where it listens.
    pub(crate) address: SocketAddr,
}

impl Server {
    /// Starts a program whose output goes to `log`, and waits until `ready_path` answers 200.
    pub(crate) fn start(command: &mut Command, address: SocketAddr, ready_path: &str, log: &Path) -> Result<Self> {
        let output = File::create(log).with_context(|| format!("cannot create {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = command.spawn().with_context(|| format!("cannot start {}", command.get_program().display()))?;
        let mut server = Server { child, address };
        let started = Instant::now();
        while !answers(address, ready_path) {
            if let Some(status) = server.child.try_wait()? {
                let said = std::fs::read_to_string(log).unwrap_or_default();
                bail!("{} ended with {status} before it answered:\n{said}", command.get_program().display());
            }
            if started.elapsed() > START_LIMIT {
                bail!("{} did not answer {ready_path} within {START_LIMIT:?}; see {}", command.get_program().display(), log.display());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(server)
    }
    /// CPU time used so far, user and system, all threads.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        cpu_of(&self.child.id().to_string())
    }
    /// Resident bytes now.
    pub(crate) fn resident_bytes(&self) -> Result<u64> {
        status_bytes(&self.child.id().to_string(), "VmRSS:")
    }
    /// The most resident bytes since the start or [`Server::reset_peak`].
    pub(crate) fn peak_bytes(&self) -> Result<u64> {
        peak_bytes_of(&self.child.id().to_string())
    }
    /// Forgets the peak, so that the next one belongs to what is measured next.
    pub(crate) fn reset_peak(&self) -> Result<()> {
        std::fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5").context("cannot reset the peak of resident memory")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        let _status = self.child.wait();
    }
}

/// The most resident bytes of a process so far; `self` is this one.
pub(crate) fn peak_bytes_of(process: &str) -> Result<u64> {
    status_bytes(process, "VmHWM:")
}

fn status_bytes(process: &str, field: &str) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let kib: u64 = status
        .lines()
        .find_map(|line| line.strip_prefix(field)?.trim().strip_suffix(" kB")?.parse().ok())
        .with_context(|| format!("no {field} in the status of the process"))?;
    Ok(kib * 1024)
}

/// CPU time of this process: the load generator's own.
pub(crate) fn own_cpu() -> Result<Duration> {
    cpu_of("self")
}

fn cpu_of(process: &str) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    cpu_ticks(&stat).map(|ticks| TICK * ticks).context("the stat of the process has another form")
}

/// Fields 14 and 15, counted from behind the command's name, which may hold anything.
fn cpu_ticks(stat: &str) -> Option<u32> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_ascii_whitespace().skip(11);
    let user: u32 = times.next()?.parse().ok()?;
    let system: u32 = times.next()?.parse().ok()?;
    Some(user + system)
}

/// A loopback address nobody listens on.
pub(crate) fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

fn answers(address: SocketAddr, path: &str) -> bool {
    fetch(address, path, "").is_ok_and(|(status, _)| status == 200)
}

/// One `GET` on a connection of its own.
pub(crate) fn fetch(address: SocketAddr, path: &str, key: &str) -> Result<(u16, Vec<u8>)> {
    send(address, &get(path, key))
}

/// One request on a connection of its own.
pub(crate) fn send(address: SocketAddr, request: &[u8]) -> Result<(u16, Vec<u8>)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let mut client = Client::connect(address).await?;
        let (status, body) = client.call(request).await?;
        Ok((status, body.to_vec()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_found_behind_any_name() {
        let stat = "17 (a) b (c)) S 1 17 17 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 3 0 12 1 1";
        assert_eq!(cpu_ticks(stat), Some(300));
        assert!(own_cpu().is_ok());
    }
}
