//! A TCP link to a server that falls silent, breaks and heals on demand.

use std::io::{Read, Result, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// What clients connect to. Connections end with it.
pub struct Link {
    address: SocketAddr,
    wire: Arc<Wire>,
}

/// What all connections of a link share.
#[derive(Default)]
pub struct Wire {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Bytes are taken and kept back.
    frozen: bool,
    /// New connections are dropped as they come.
    down: bool,
    ended: bool,
    sockets: Vec<TcpStream>,
}

/// Carries bytes one way until either side ends; waits on the wire before it sends.
pub type Carry = fn(from: &TcpStream, to: &TcpStream, wire: &Wire) -> Result<()>;

impl Wire {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Until it is no longer frozen.
    pub fn wait_while_frozen(&self) {
        let mut state = self.state();
        while state.frozen && !state.ended {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
    fn drop_connections(&self, state: &mut State) {
        for socket in state.sockets.drain(..) {
            let _already_gone = socket.shutdown(Shutdown::Both);
        }
        self.changed.notify_all();
    }
}

impl Link {
    /// Listens on a free port of the loopback address and forwards every byte to `target`.
    pub fn to(target: SocketAddr) -> Link {
        Link::carrying(target, [plain, plain])
    }
    /// The same with a say in what is forwarded: to the server, and to the client.
    pub fn carrying(target: SocketAddr, ways: [Carry; 2]) -> Link {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound port");
        let wire = Arc::new(Wire::default());
        let accepting = wire.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                if accepting.state().ended {
                    return;
                }
                let Ok(client) = client else { return };
                let _refused = serve(client, target, ways, &accepting);
            }
        });
        Link { address, wire }
    }
    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
    /// Connections that were made and not cut since.
    pub fn connections(&self) -> usize {
        // Each has a socket on either side.
        self.wire.state().sockets.len() / 2
    }
    /// Keeps back every byte from now on, both ways, without closing anything: a peer that fell silent.
    pub fn freeze(&self) {
        self.wire.state().frozen = true;
    }
    /// Lets the kept bytes go.
    pub fn thaw(&self) {
        self.wire.state().frozen = false;
        self.wire.changed.notify_all();
    }
    /// Closes every connection; new ones are closed as they come, until [`Link::heal`].
    pub fn cut(&self) {
        let mut state = self.wire.state();
        state.down = true;
        self.wire.drop_connections(&mut state);
    }
    /// Takes connections again.
    pub fn heal(&self) {
        self.wire.state().down = false;
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let mut state = self.wire.state();
        state.ended = true;
        self.wire.drop_connections(&mut state);
        drop(state);
        // Wakes the accepting thread, which then sees the end.
        let _woken = TcpStream::connect(self.address);
    }
}

fn serve(client: TcpStream, target: SocketAddr, ways: [Carry; 2], wire: &Arc<Wire>) -> Result<()> {
    if wire.state().down {
        return client.shutdown(Shutdown::Both);
    }
    let server = TcpStream::connect(target)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    wire.state().sockets.extend([client.try_clone()?, server.try_clone()?]);
    let pairs = [(client.try_clone()?, server.try_clone()?), (server, client)];
    for ((from, to), carry) in pairs.into_iter().zip(ways) {
        let wire = wire.clone();
        thread::spawn(move || {
            let _until_either_side_ends = carry(&from, &to, &wire);
            let _closed = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
        });
    }
    Ok(())
}

fn plain(mut from: &TcpStream, mut to: &TcpStream, wire: &Wire) -> Result<()> {
    let mut bytes = [0; 16 * 1024];
    loop {
        let count = from.read(&mut bytes)?;
        if count == 0 {
            return Ok(());
        }
        wire.wait_while_frozen();
        to.write_all(&bytes[..count])?;
    }
}
