//! The real binary, started on files a test writes, and a small client that sends exactly what a test wants.
//!
//! Invariants
//! 1. A server ends with its [`Server`]: killed by its process id, its folder removed.
//! 2. Ports are chosen by the system and read from what the server prints, never guessed.
//! 3. A server that is killed and started again works on the same files; only its ports and its output are new.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value as Json;

/// How long a test waits for anything before it fails.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A new empty folder; the caller removes it (a [`Server`] does so for its own).
pub fn folder(name: &str) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let unique = format!("spillgate-{name}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let folder = std::env::temp_dir().join(unique);
    std::fs::create_dir_all(&folder).expect("a folder for the test");
    folder
}

/// A running server.
pub struct Server {
    child: Child,
    started: Started,
    /// Its files; `server.toml` and `flows/` are in it.
    pub folder: PathBuf,
    /// `HOST:PORT` of the flows.
    pub flows: String,
    /// `HOST:PORT` of the admin face.
    pub admin: String,
    output: Arc<Mutex<String>>,
    log: Arc<Mutex<String>>,
}

/// How it was started, to do it again.
struct Started {
    program: Vec<String>,
    environment: Vec<(String, String)>,
}

/// What to start.
pub struct Options<'a> {
    /// Path of the binary: `env!("CARGO_BIN_EXE_spillgate")`.
    pub binary: &'a str,
    /// The server file without `[server]`: tenants, databases.
    pub server: &'a str,
    /// Flow files by name.
    pub flows: &'a [(&'a str, &'a str)],
    /// Environment variables.
    pub environment: &'a [(&'a str, &'a str)],
}

impl Options<'_> {
    /// Writes the files: `server.toml`, which has flows and admin face listen there, and the flows.
    pub fn write(&self, folder: &Path, [listen, admin]: [&str; 2]) {
        std::fs::create_dir_all(folder.join("flows")).expect("a folder for the flows");
        // `{folder}` in the server file stands for the test's folder.
        let rest = self.server.replace("{folder}", &folder.to_string_lossy());
        let server = format!("[server]\nlisten = \"{listen}\"\nadmin_listen = \"{admin}\"\n{rest}");
        std::fs::write(folder.join("server.toml"), server).expect("the server file");
        for (name, text) in self.flows {
            std::fs::write(folder.join("flows").join(name), text).expect("a flow file");
        }
    }
}

impl Server {
    /// Writes the files and starts the binary; returns when it says that it serves.
    pub fn start(options: &Options<'_>) -> Server {
        Self::start_through(&[], options)
    }

    /// The same through a program that becomes the one named behind its arguments, such as `nsenter`.
    pub fn start_through(launcher: &[String], options: &Options<'_>) -> Server {
        let folder = folder("server");
        options.write(&folder, ["127.0.0.1:0", "127.0.0.1:0"]);
        let program = launcher.iter().cloned().chain([options.binary.to_owned()]).collect();
        Self::start_program(program, folder, options.environment)
    }

    /// Starts the binary on the files in `folder`.
    pub fn start_in(binary: &str, folder: PathBuf, environment: &[(&str, &str)]) -> Server {
        Self::start_program(vec![binary.to_owned()], folder, environment)
    }

    fn start_program(program: Vec<String>, folder: PathBuf, environment: &[(&str, &str)]) -> Server {
        let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let started = Started { program, environment };
        let (child, output, log) = started.spawn(&folder);
        let mut server = Server { child, started, folder, flows: String::new(), admin: String::new(), output, log };
        server.find_addresses();
        server
    }

    /// Ends it with SIGKILL: nothing of it runs any more when this returns.
    pub fn kill(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).expect("the process is ours");
    }

    /// Starts it again on the same files, after its end; returns when it says that it serves.
    pub fn start_again(&mut self) {
        let _already_ended = self.child.kill();
        let _status = self.child.wait();
        (self.child, self.output, self.log) = self.started.spawn(&self.folder);
        self.find_addresses();
    }

    fn find_addresses(&mut self) {
        let line = self.addresses();
        let mut addresses = line.split("http://").skip(1).map(|rest| rest.split(',').next().unwrap_or(rest).trim().to_owned());
        self.flows = addresses.next().expect("where flows are");
        self.admin = addresses.next().expect("where the admin face is");
    }

    /// The line that says where it listens, as soon as it is there.
    fn addresses(&mut self) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let log = self.log();
            if let Some((_, rest)) = log.split_once("flows on ")
                && let Some((line, _)) = rest.split_once('\n')
            {
                return line.to_owned();
            }
            let ended = self.child.try_wait().expect("the process is ours");
            assert!(ended.is_none() && Instant::now() < end, "the server does not serve ({ended:?}): {log}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What it wrote to standard output (access records) so far.
    pub fn output(&self) -> String {
        self.output.lock().expect("no reader panicked").clone()
    }
    /// What it wrote to standard error (the log) so far.
    pub fn log(&self) -> String {
        self.log.lock().expect("no reader panicked").clone()
    }
    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
    /// Resident memory now, in bytes.
    pub fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).expect("the server runs");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line for resident memory");
        line.split_whitespace().nth(1).and_then(|kibibytes| kibibytes.parse::<u64>().ok()).expect("a number") * 1024
    }
    /// The same once everything that it opens behind its listeners is open: what is measured from here on is what calls cost.
    pub fn settled_bytes(&self) -> u64 {
        // The operator state is opened last, and makes this file when it is open.
        self.wait_for("operator state", |server| server.folder.join("data/control/ballast").exists().then_some(()));
        self.resident_bytes()
    }
    /// Writes a file below the server's folder.
    pub fn write(&self, path: impl AsRef<Path>, text: &str) {
        std::fs::write(self.folder.join(path), text).expect("the file is written");
    }
    /// Sends a signal by name.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.id().to_string()]).status().expect("kill runs");
        assert!(sent.success());
    }
    /// Waits for the process to end by itself.
    pub fn ended(&mut self) -> std::process::ExitStatus {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("the process is ours") {
                return status;
            }
            assert!(Instant::now() < end, "the server did not end; its log: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    /// Asks `probe` until it has an answer; fails with the log after [`PATIENCE`].
    pub fn wait_for<T>(&self, what: &str, mut probe: impl FnMut(&Server) -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(answer) = probe(self) {
                return answer;
            }
            assert!(Instant::now() < end, "no {what}; the log: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    /// A GET as the tenant with this key.
    pub fn get(&self, key: &str, target: &str) -> Reply {
        Request::new("GET", target).key(key).send(&self.flows)
    }
    /// A JSON POST as the tenant with this key.
    pub fn post(&self, key: &str, target: &str, body: &str) -> Reply {
        Request::new("POST", target).key(key).body(body).send(&self.flows)
    }
    /// A GET on the admin face.
    pub fn admin_get(&self, key: &str, target: &str) -> Reply {
        Request::new("GET", target).key(key).send(&self.admin)
    }
}

impl Started {
    fn spawn(&self, folder: &Path) -> (Child, Arc<Mutex<String>>, Arc<Mutex<String>>) {
        let mut child = Command::new(&self.program[0])
            .args(&self.program[1..])
            .args(["serve", "--config"])
            .arg(folder.join("server.toml"))
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let output = collect(child.stdout.take().expect("piped"));
        let log = collect(child.stderr.take().expect("piped"));
        (child, output, log)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _already_ended = self.child.kill();
        let _status = self.child.wait();
        let _left_behind = std::fs::remove_dir_all(&self.folder);
    }
}

/// Gathers what a pipe says, on a thread of its own, so that the server never waits for the test.
fn collect(pipe: impl std::io::Read + Send + 'static) -> Arc<Mutex<String>> {
    let text = Arc::new(Mutex::new(String::new()));
    let gathered = text.clone();
    std::thread::spawn(move || {
        let mut reader = BufReader::new(pipe);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
            gathered.lock().expect("no reader panicked").push_str(&String::from_utf8_lossy(&line));
            line.clear();
        }
    });
    text
}

/// A request, byte by byte as the test wants it.
#[derive(Clone, Debug)]
pub struct Request {
    head: String,
    body: Vec<u8>,
}

impl Request {
    /// Starts one; `Connection: close`.
    pub fn new(method: &str, target: &str) -> Request {
        Request { head: format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"), body: Vec::new() }
    }
    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Request {
        self.head.push_str(&format!("{name}: {value}\r\n"));
        self
    }
    /// Adds a bearer key.
    #[must_use]
    pub fn key(self, key: &str) -> Request {
        self.header("Authorization", &format!("Bearer {key}"))
    }
    /// Adds a JSON body.
    #[must_use]
    pub fn body(mut self, body: &str) -> Request {
        self.body = body.as_bytes().to_vec();
        self.header("Content-Type", "application/json").header("Content-Length", &body.len().to_string())
    }
    /// Sends it and leaves the connection open: dropping it is a hang-up.
    pub fn open(&self, address: &str) -> TcpStream {
        self.try_open(address).expect("the server accepts and the request is sent")
    }
    /// The same where the reader's system takes hardly anything of the reply before somebody reads it.
    pub fn open_narrow(&self, address: &str) -> TcpStream {
        const TAKES: u32 = 128 * 1024;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
        let connecting = async {
            let socket = tokio::net::TcpSocket::new_v4()?;
            socket.set_recv_buffer_size(TAKES)?;
            socket.connect(crate::load::address(address)).await?.into_std()
        };
        let stream = runtime.block_on(connecting).expect("the server accepts");
        stream.set_nonblocking(false).and_then(|()| self.send_on(stream)).expect("the request is sent")
    }
    /// Sends it and reads the whole reply.
    pub fn send(&self, address: &str) -> Reply {
        let mut bytes = Vec::new();
        self.open(address).read_to_end(&mut bytes).expect("a reply in time");
        Reply::parse(&bytes)
    }
    /// The same of a server that may die in the middle: a reply counts only where all of it came.
    pub fn try_send(&self, address: &str) -> io::Result<Reply> {
        let mut bytes = Vec::new();
        self.try_open(address)?.read_to_end(&mut bytes)?;
        let head = bytes.windows(4).position(|end| end == b"\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)? + 4;
        let reply = Reply::parse(&bytes);
        let whole = reply.header("content-length").and_then(|length| length.parse::<usize>().ok()) == Some(bytes.len() - head);
        if whole { Ok(reply) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
    fn try_open(&self, address: &str) -> io::Result<TcpStream> {
        self.send_on(TcpStream::connect(address)?)
    }
    fn send_on(&self, mut stream: TcpStream) -> io::Result<TcpStream> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(format!("{}\r\n", self.head).as_bytes())?;
        stream.write_all(&self.body)?;
        Ok(stream)
    }
}

/// A reply.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Status code.
    pub status: u16,
    /// Status line and headers as they came.
    pub head: String,
    /// Body as it came.
    pub body: String,
}

impl Reply {
    fn parse(bytes: &[u8]) -> Reply {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no HTTP reply: {text:?}"));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        Reply { status, head: head.to_owned(), body: body.to_owned() }
    }
    /// The body as JSON.
    pub fn json(&self) -> Json {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        lines.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
    /// The problem's code, for replies that are one.
    pub fn code(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        self.json()["code"].as_str().expect("a problem has a code").to_owned()
    }
}
