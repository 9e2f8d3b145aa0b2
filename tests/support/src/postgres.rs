//! A private Postgres server.
//!
//! Invariants
//! 1. One server a test program ([`shared`]), in a folder of its own, on a free port of the loopback address.
//! 2. It ends with the program: a shell waits on a pipe that only the program holds open, then stops the server by its
//!    process id and removes the folder.
//! 3. Making a server's files takes longer than starting it: they are made once every few days, kept in the temporary folder
//!    (for their owner only) and copied.
//! 4. It never runs as root (Postgres refuses that): root starts it as the user `postgres`, or `nobody`.

use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// Who logs in.
pub const USER: &str = "spillgate_owner";
/// With what.
pub const PASSWORD: &str = "open-sesame-4711";

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct Postgres {
    folder: PathBuf,
    port: u16,
    /// Its standard input is the pipe.
    guard: Child,
}

/// The server of this test program, started at the first call.
pub fn shared() -> &'static Postgres {
    static SERVER: OnceLock<Postgres> = OnceLock::new();
    SERVER.get_or_init(Postgres::start)
}

impl Postgres {
    /// Starts a server; panics with the server's own words where it cannot.
    pub fn start() -> Postgres {
        let programs = programs().expect("Postgres' programs (initdb, postgres) are installed");
        let account = account();
        let folder = folder(account);
        let command = |program: &str| {
            let mut command = Command::new(program);
            if let Some((user, group)) = account {
                command.uid(user).gid(group);
            }
            command.current_dir(&folder).env_remove("PGDATA").env_remove("TZ").env("LC_ALL", "C");
            command
        };
        files(&programs, account, &command);
        let (guard, port) = serve(&programs, &folder, &command);
        Postgres { folder, port, guard }
    }
    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }
    /// The folder of the Unix socket.
    pub fn socket_folder(&self) -> &Path {
        &self.folder
    }
    /// The certificate that signed the server's own (names: 127.0.0.1, localhost).
    pub fn root_certificate(&self) -> PathBuf {
        self.folder.join("root.crt")
    }
    /// A connection URL for the database `postgres` over plain TCP.
    pub fn url(&self) -> String {
        self.url_at(self.port)
    }
    /// The same through another port, such as a proxy's.
    pub fn url_at(&self, port: u16) -> String {
        format!("postgres://{USER}:{PASSWORD}@127.0.0.1:{port}/postgres?sslmode=disable")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ended = self.guard.wait();
    }
}

/// Everything a server stands on, in the current folder of `command`: from the kept copy, or made and kept.
fn files(programs: &Path, account: Option<(u32, u32)>, command: &dyn Fn(&str) -> Command) {
    let version = Command::new(programs.join("initdb")).arg("--version").output().map(|told| told.stdout).unwrap_or_default();
    let version: String = String::from_utf8_lossy(&version).chars().filter(char::is_ascii_digit).collect();
    // Temporary folders are tidied file by file: an old copy is not trusted to be whole.
    let days = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs() / 86_400);
    let owner = account.map_or_else(own_user, |(user, _)| user);
    let name = format!("spillgate-pg-files-{owner}-{version}-");
    let kept = std::env::temp_dir().join(format!("{name}{}", days / 3));
    let sound = |folder: &Path| {
        std::fs::symlink_metadata(folder).is_ok_and(|kept| kept.is_dir() && kept.uid() == owner && kept.mode() & 0o077 == 0)
    };
    if sound(&kept) {
        return succeed(command("cp").arg("-R").arg(kept.join(".")).arg("."));
    }
    make_files(programs, command);
    let copy = kept.with_extension(std::process::id().to_string());
    // Kept for others; whoever comes second leaves it at that.
    succeed(command("sh").args(["-c", KEEP, "keep"]).arg(std::env::temp_dir().join(name)).arg(copy).arg(kept));
}

/// Removes the copies of earlier days and keeps this one for others; whoever comes second leaves it at that.
const KEEP: &str = r#"
umask 077
for old in "$1"*; do case "$old" in "$3"*) ;; *) rm -rf "$old" ;; esac; done
mkdir "$2" && cp -R . "$2" && mv -T "$2" "$3" 2>/dev/null || rm -rf "$2"
"#;

fn make_files(programs: &Path, command: &dyn Fn(&str) -> Command) {
    let initdb = programs.join("initdb");
    succeed(command("sh").args([
        "-c",
        "printf %s \"$1\" >password; printf 'subjectAltName=IP:127.0.0.1,DNS:localhost' >names",
        "files",
        PASSWORD,
    ]));
    succeed(
        command(&initdb.to_string_lossy())
            .args(["--pgdata=data", "--no-sync", "--no-instructions", "--encoding=UTF8", "--locale=C", "--auth=scram-sha-256"])
            .args([&format!("--username={USER}"), "--pwfile=password"]),
    );
    for arguments in CERTIFICATE_STEPS {
        succeed(command("openssl").args(*arguments));
    }
}

fn own_user() -> u32 {
    std::fs::metadata("/proc/self").map_or(0, |own| own.uid())
}

/// A root certificate and a server certificate signed by it; Postgres wants the key readable by itself only.
const CERTIFICATE_STEPS: &[&[&str]] = &[
    &[
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "30",
        "-subj",
        "/CN=Test root",
        "-keyout",
        "root.key",
        "-out",
        "root.crt",
    ],
    &[
        "req",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-subj",
        "/CN=localhost",
        "-keyout",
        "server.key",
        "-out",
        "server.csr",
    ],
    &[
        "x509",
        "-req",
        "-in",
        "server.csr",
        "-CA",
        "root.crt",
        "-CAkey",
        "root.key",
        "-CAcreateserial",
        "-days",
        "30",
        "-extfile",
        "names",
        "-out",
        "server.crt",
    ],
];

fn serve(programs: &Path, folder: &Path, command: &dyn Fn(&str) -> Command) -> (Child, u16) {
    // Another program may take the port between our look and the server's start: then another is tried.
    for _attempt in 0..5 {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port();
        let mut guard = command("sh")
            .args(["-c", GUARD, "guard"])
            .arg(programs.join("postgres"))
            .args(["-D", "data", "-p", &port.to_string(), "-k"])
            .arg(folder)
            .args(["-c", "listen_addresses=127.0.0.1", "-c", "max_connections=200", "-c", "fsync=off", "-c", "full_page_writes=off"])
            .args(["-c", "ssl=on", "-c", "ssl_cert_file=../server.crt", "-c", "ssl_key_file=../server.key"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0) // a Ctrl-C at the terminal ends the tests, not the guard
            .spawn()
            .expect("a shell");
        if ready(folder, &mut guard) {
            return (guard, port);
        }
    }
    panic!("Postgres does not start: {}", std::fs::read_to_string(folder.join("log")).unwrap_or_default());
}

/// Starts the server, waits until the pipe closes, stops the server, removes the folder. Where the server ends by itself
/// (it could not start) the folder with its log stays.
const GUARD: &str = r#"
exec 3<&0
folder=$PWD
"$@" >log 2>&1 </dev/null 3<&- &
server=$!
{ while read -r line; do :; done <&3; : >closed; kill -QUIT $server; } 2>/dev/null &
waiter=$!
wait $server
if [ -e closed ]; then cd / && rm -rf "$folder"; else kill $waiter; fi
"#;

fn ready(folder: &Path, guard: &mut Child) -> bool {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(60) {
        let told = std::fs::read_to_string(folder.join("data/postmaster.pid")).unwrap_or_default();
        if told.lines().any(|line| line.trim() == "ready") {
            return true;
        }
        if guard.try_wait().is_ok_and(|ended| ended.is_some()) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

/// A folder under the system's temporary one, short enough for a Unix socket's path.
fn folder(account: Option<(u32, u32)>) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let folder = std::env::temp_dir().join(format!("spillgate-pg-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
    std::fs::create_dir(&folder).expect("a folder of its own");
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).expect("its permissions");
    if let Some((user, group)) = account {
        chown(&folder, Some(user), Some(group)).expect("the folder is given to the server's user");
    }
    folder
}

/// The user to run as, where this program is root.
fn account() -> Option<(u32, u32)> {
    if own_user() != 0 {
        return None;
    }
    let accounts = std::fs::read_to_string("/etc/passwd").expect("the list of users");
    ["postgres", "nobody"].iter().find_map(|name| {
        let mut fields = accounts.lines().map(|line| line.split(':')).find(|fields| fields.clone().next() == Some(name))?.skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    })
}

/// The folder that holds both programs: the newest version's, wherever the system keeps it.
fn programs() -> Option<PathBuf> {
    let told = Command::new("pg_config").arg("--bindir").output().ok().and_then(|output| String::from_utf8(output.stdout).ok());
    let mut versions: Vec<PathBuf> =
        std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    versions.sort_by_key(|path| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok()));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let known = ["/usr/local/bin", "/usr/local/pgsql/bin", "/opt/homebrew/bin"].map(PathBuf::from);
    told.map(|folder| PathBuf::from(folder.trim()))
        .into_iter()
        .chain(versions.into_iter().rev().map(|version| version.join("bin")))
        .chain(known)
        .chain(std::env::split_paths(&path))
        .find(|folder| folder.join("initdb").exists() && folder.join("postgres").exists())
}

fn succeed(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_answers_and_is_gone_when_dropped() {
        let server = Postgres::start();
        let folder = server.socket_folder().to_owned();
        std::net::TcpStream::connect(("127.0.0.1", server.port())).expect("somebody listens");
        let port = server.port();
        drop(server);
        assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err(), "nobody listens");
        assert!(!folder.exists(), "nothing is left");
    }
}
