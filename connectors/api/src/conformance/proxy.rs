//! A link that can be cut: a TCP proxy for one target.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Forwards loopback connections to a target until it is cut.
pub struct Proxy {
    address: SocketAddr,
    cut: watch::Sender<u64>,
    open: Arc<AtomicBool>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Proxy {
    /// Listens on a free port of the loopback address.
    pub async fn to(target: SocketAddr) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound port");
        let (cut, _) = watch::channel(0);
        let open = Arc::new(AtomicBool::new(true));
        let accepting = tokio::spawn(accept(listener, target, cut.clone(), open.clone()));
        Proxy { address, cut, open, accepting }
    }
    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
    /// Drops every connection; later ones are dropped as they come, until [`Proxy::heal`].
    pub fn cut(&self) {
        self.open.store(false, Ordering::SeqCst);
        self.cut.send_modify(|cuts| *cuts += 1);
    }
    /// Lets connections through again.
    pub fn heal(&self) {
        self.open.store(true, Ordering::SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, target: SocketAddr, cut: watch::Sender<u64>, open: Arc<AtomicBool>) {
    while let Ok((mut client, _)) = listener.accept().await {
        let mut cut = cut.subscribe();
        if !open.load(Ordering::SeqCst) {
            continue;
        }
        tokio::spawn(async move {
            let Ok(mut server) = TcpStream::connect(target).await else { return };
            let _nodelay = (client.set_nodelay(true), server.set_nodelay(true));
            tokio::select! {
                _ended = copy_bidirectional(&mut client, &mut server) => {}
                _cut = cut.changed() => {}
            }
        });
    }
}
