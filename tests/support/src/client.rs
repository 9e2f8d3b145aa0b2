//! The least HTTP client that can measure a server: one keep-alive connection, requests made beforehand, replies read
//! by their `Content-Length`.
//!
//! It refuses replies without a `Content-Length`: then bytes cannot be told apart from the next reply.

use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const MAX_HEAD_BYTES: usize = 16 * 1024;

/// A connection and what it has read beyond the last reply.
pub struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// Where the parts of a reply stand in the buffer.
struct Head {
    status: u16,
    body_start: usize,
    body_length: usize,
}

impl Client {
    /// Opens a connection with Nagle's delay off, as both servers have it.
    pub async fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Client { stream, buffer: Vec::with_capacity(MAX_HEAD_BYTES) })
    }
    /// Sends a request and reads its reply; the body stays valid until the next call.
    pub async fn call(&mut self, request: &[u8]) -> Result<(u16, &[u8])> {
        self.buffer.clear();
        self.stream.write_all(request).await?;
        let head = loop {
            self.fill().await?;
            if let Some(head) = parse_head(&self.buffer)? {
                break head;
            }
            if self.buffer.len() > MAX_HEAD_BYTES {
                return Err(malformed("the head of the reply is too long"));
            }
        };
        let end = head.body_start + head.body_length;
        while self.buffer.len() < end {
            self.fill().await?;
        }
        Ok((head.status, &self.buffer[head.body_start..end]))
    }
    async fn fill(&mut self) -> Result<()> {
        if self.stream.read_buf(&mut self.buffer).await? == 0 {
            return Err(Error::new(ErrorKind::UnexpectedEof, "the server closed the connection"));
        }
        Ok(())
    }
}

/// A `GET` as every caller sends it.
pub fn get(path: &str, key: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\nAccept: application/json\r\n\r\n").into_bytes()
}

/// A `POST` of JSON.
pub fn post(path: &str, key: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

fn parse_head(bytes: &[u8]) -> Result<Option<Head>> {
    let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
        return Ok(None);
    };
    let status = bytes.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    let status = status.ok_or_else(|| malformed("no status in the reply"))?;
    let body_length = bytes[..end]
        .split(|byte| *byte == b'\n')
        .find_map(content_length)
        .ok_or_else(|| malformed("the reply has no Content-Length, which this client needs"))?;
    Ok(Some(Head { status, body_start: end + 4, body_length }))
}

fn malformed(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, what)
}

fn content_length(line: &[u8]) -> Option<usize> {
    const NAME: &[u8] = b"content-length:";
    let (name, value) = line.split_at_checked(NAME.len())?;
    if !name.eq_ignore_ascii_case(NAME) {
        return None;
    }
    std::str::from_utf8(value).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_once_it_is_complete() {
        let reply = b"HTTP/1.1 404 Not Found\r\nContent-Type: x\r\nContent-Length: 3\r\n\r\nabc";
        for length in 0..reply.len() - 3 {
            assert!(parse_head(&reply[..length]).expect("no fault in a part").is_none());
        }
        let head = parse_head(reply).expect("well formed").expect("complete");
        assert_eq!((head.status, &reply[head.body_start..], head.body_length), (404, &b"abc"[..], 3));
    }

    #[test]
    fn a_reply_of_unknown_length_is_refused() {
        assert!(parse_head(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").is_err());
    }
}
