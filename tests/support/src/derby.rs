//! Apache Derby, the stand-in for a Db2 server, with a database in a folder of its own. (One in memory would do, but IBM's driver
//! writes names in capitals, and Derby knows `memory:` in small letters only.)
//!
//! One Java process is both: `ij`, Derby's own console, which opens the database embedded, and the network server that
//! clients reach (through [`crate::shim`]). The console stays open: it seeds, and it shows what the database itself says is
//! running, past any driver. It reads from a pipe of this process, so it ends when this process ends, however that ends;
//! the shell that started it then removes the folder.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::nap;

/// The database's name as clients write it.
pub const DATABASE: &str = "FLEET";
/// User and password; neither is checked, but both are needed.
pub const USER: &str = "app";
/// See [`USER`].
pub const PASSWORD: &str = "app-secret";

/// A running Derby.
pub struct Derby {
    address: SocketAddr,
    child: Child,
    console: Mutex<Console>,
}

/// Runs Java and cleans up behind it.
const GUARD: &str = r#"java "$@"; rm -rf "$DERBY_FOLDER""#;

struct Console {
    /// Closed to end it.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    commands: u64,
}

impl Derby {
    /// The one of this test program, started at first use.
    pub fn shared() -> &'static Derby {
        static SHARED: OnceLock<Derby> = OnceLock::new();
        SHARED.get_or_init(Derby::start)
    }
    /// Starts one with an empty database.
    pub fn start() -> Derby {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port();
        let jars = ["derby", "derbynet", "derbytools"].map(|name| format!("/usr/share/java/{name}.jar")).join(":");
        let folder = std::env::temp_dir().join(format!("spillgate-derby-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for Derby");
        std::fs::write(folder.join(nap::FILE), nap::class()).expect("a class for statements that sleep");
        let mut child = Command::new("sh")
            .args(["-c", GUARD, "java"])
            .env("DERBY_FOLDER", &folder)
            .args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx256m"])
            .args(["-Dderby.stream.error.file=/dev/null", "-Dderby.drda.startNetworkServer=true", "-Dderby.drda.host=127.0.0.1"])
            .args(["-Dderby.system.durability=test", &format!("-Dderby.system.home={}", folder.display())])
            .arg(format!("-Dderby.drda.portNumber={port}"))
            .args(["-cp", &format!("{jars}:{}", folder.display()), "org.apache.derby.tools.ij"])
            .current_dir(std::env::temp_dir())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null()) // inherited, it would outlive the test program by a moment
            .spawn()
            .expect("java; deploy/test-tools.sh installs it");
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let derby = Derby {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            child,
            console: Mutex::new(Console { input: Some(input), output, commands: 0 }),
        };
        derby.run(&format!("connect 'jdbc:derby:{DATABASE};create=true;user={USER};password={PASSWORD}'"));
        // The console's first answer does not mean that the network server listens already; it accepts or it will never.
        while TcpStream::connect(derby.address).is_err() {
            derby.run("values 1");
        }
        derby
    }
    /// Where its network server listens. IBM's driver needs a [`crate::shim::Shim`] before it.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
    /// Runs one statement, without its semicolon, and gives what the console printed. Panics on an error.
    pub fn run(&self, statement: &str) -> String {
        let mut console = self.console.lock().unwrap_or_else(PoisonError::into_inner);
        let printed = console.ask(statement);
        assert!(!printed.contains("ERROR "), "{statement}: {printed}");
        printed
    }
    /// How many statements with this text in them Derby itself shows at work or holding a transaction open.
    pub fn running(&self, part: &str) -> usize {
        let printed = self.run(&format!(
            "select count(*) from syscs_diag.transaction_table where type = 'UserTransaction' and sql_text like '%{part}%' \
             and sql_text not like '%transaction_table%'"
        ));
        let count = printed.lines().find_map(|line| line.trim().parse().ok().filter(|_| line.ends_with(' ')));
        count.unwrap_or_else(|| panic!("a count: {printed}"))
    }
}

impl Drop for Derby {
    fn drop(&mut self) {
        self.console.get_mut().unwrap_or_else(PoisonError::into_inner).input = None;
        let _reaped = self.child.wait();
    }
}

impl Console {
    /// Sends a statement and reads up to the answer of a marker sent behind it.
    fn ask(&mut self, statement: &str) -> String {
        self.commands += 1;
        let marker = format!("end-of-answer-{}", self.commands);
        let input = self.input.as_mut().expect("open until it is dropped");
        writeln!(input, "{statement};\nvalues '{marker}';").and_then(|()| input.flush()).expect("Derby's console is there");
        let mut printed = String::new();
        let mut line = String::new();
        while !line.contains(&marker) {
            line.clear();
            let length = self.output.read_line(&mut line).expect("Derby's console answers");
            assert!(length > 0, "Derby's console ended: {printed}");
            printed.push_str(&line);
        }
        printed
    }
}
