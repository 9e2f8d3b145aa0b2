//! The way to the server: the first place that answers, over TCP without delay or a Unix socket.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpSocket, TcpStream, UnixStream, lookup_host};
use tokio::time::timeout;

use crate::settings::Place;

/// One address of the server, known to answer: a cancel must go where its connection went.
#[derive(Clone, Debug)]
pub(crate) enum Peer {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// A connected stream.
#[derive(Debug)]
pub(crate) enum Link {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Peer {
    pub(crate) async fn connect(&self, limit: Option<Duration>) -> io::Result<Link> {
        let connecting = async {
            match self {
                Peer::Tcp(address) => {
                    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
                    socket.set_nodelay(true)?;
                    socket.set_keepalive(true)?;
                    Ok(Link::Tcp(socket.connect(*address).await?))
                }
                Peer::Unix(path) => Ok(Link::Unix(UnixStream::connect(path).await?)),
            }
        };
        match limit {
            None => connecting.await,
            Some(limit) => timeout(limit, connecting).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())),
        }
    }
}

impl Place {
    /// Every address of this place, in order.
    pub(crate) async fn peers(&self) -> io::Result<Vec<Peer>> {
        Ok(match self {
            Place::Address(address, port) => vec![Peer::Tcp((*address, *port).into())],
            Place::Socket(path) => vec![Peer::Unix(path.clone())],
            Place::Name(name, port) => lookup_host((name.as_str(), *port)).await?.map(Peer::Tcp).collect(),
        })
    }
}

impl AsyncRead for Link {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Link::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Link::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Link {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Link::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Link::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Link::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Link::Unix(stream) => Pin::new(stream).poll_flush(context),
        }
    }
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Link::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Link::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
