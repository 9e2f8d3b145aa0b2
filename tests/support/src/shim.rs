//! Lets IBM's Db2 driver talk to an Apache Derby network server, and breaks the link on demand.
//!
//! Both speak DRDA. Four edits on the wire make them understand each other; everything else passes untouched:
//! 1. to the server, `EXCSAT` and `ACCRDB`: the product id `SQLvvrrm` becomes `DNC10010` (in EBCDIC and UTF-8), an old level
//!    of Derby's own client that keeps Derby from sending its session-data extension;
//! 2. to the server, `DSCSQLSTT`: the object `QRYINSID`, which Derby does not know, is dropped;
//! 3. to the client, `ACCRDBRM`: `TYPDEFOVR` gains the `CCSIDDBC` (1200) that IBM's driver insists on;
//! 4. to the client, `SQLCARD`: messages are cut to the 70 bytes Db2 keeps to (IBM's driver takes a longer one for a broken
//!    link), and "no row" has Db2's number, 100.

use std::io::{Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Deref;

use crate::link::{Link, Wire};

const EXCSAT: u16 = 0x1041;
const ACCRDB: u16 = 0x2001;
const DSCSQLSTT: u16 = 0x2008;
const ACCRDBRM: u16 = 0x2201;
const SQLCARD: u16 = 0x2408;
/// Where in an `SQLCARD` the numbers and texts stand: its length and code come first, then a byte that says it is not null.
const SQLCODE_AT: usize = 5;
const SQLSTATE_AT: usize = 9;
const RDBNAM_AT: usize = 58;
const LONGEST_MESSAGE: usize = 70;
const QRYINSID: u16 = 0x215B;
const TYPDEFOVR: u16 = 0x0035;
/// Code pages 1208, 1200, 1208 for single-byte, double-byte and mixed text.
const TYPDEFOVR_FULL: [u8; 18] = [0, 6, 0x11, 0x9C, 4, 184, 0, 6, 0x11, 0x9D, 4, 176, 0, 6, 0x11, 0x9E, 4, 184];
const HEAD: usize = 6;
const MAGIC: u8 = 0xD0;
const CONTINUED: u16 = 0x8000;

/// What stands between a client and Derby: a link that edits what it carries.
pub struct Shim(Link);

impl Shim {
    /// Listens on a free port of the loopback address and forwards to `target`.
    pub fn to(target: SocketAddr) -> Shim {
        Shim(Link::carrying(
            target,
            [|from, to, wire| forward(from, to, to_server, wire), |from, to, wire| forward(from, to, to_client, wire)],
        ))
    }
}

impl Deref for Shim {
    type Target = Link;

    fn deref(&self) -> &Link {
        &self.0
    }
}

type Edit = fn(code: u16, body: Vec<u8>) -> Vec<u8>;

/// Forwards data stream structures one by one. One whose length has the top bit set goes on in raw segments of the same form.
fn forward(mut from: &TcpStream, mut to: &TcpStream, edit: Edit, wire: &Wire) -> Result<()> {
    loop {
        let mut head = [0; HEAD];
        from.read_exact(&mut head)?;
        let (mut more, length) = segment(head[0], head[1]);
        let mut body = vec![0; length.saturating_sub(HEAD)];
        from.read_exact(&mut body)?;
        // Only a lone object may change its length.
        let alone = !more && head[2] == MAGIC && body.len() >= 4 && usize::from(number(&body, 0)) == body.len();
        if alone {
            body = edit(number(&body, 2), body);
            head[..2].copy_from_slice(&length_bytes(body.len() + HEAD));
        }
        let mut message = [&head[..], &body].concat();
        while more {
            let mut next = [0; 2];
            from.read_exact(&mut next)?;
            let (continued, length) = segment(next[0], next[1]);
            let mut rest = vec![0; length.saturating_sub(2)];
            from.read_exact(&mut rest)?;
            message.extend_from_slice(&next);
            message.extend_from_slice(&rest);
            more = continued;
        }
        wire.wait_while_frozen();
        to.write_all(&message)?;
    }
}

/// Whether a segment goes on, and how long it is.
fn segment(high: u8, low: u8) -> (bool, usize) {
    let written = u16::from_be_bytes([high, low]);
    let length = written & !CONTINUED;
    (written & CONTINUED != 0, usize::from(if length == 0 { !CONTINUED } else { length }))
}

fn number(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn length_bytes(length: usize) -> [u8; 2] {
    u16::try_from(length).expect("an edited structure is short").to_be_bytes()
}

fn to_server(code: u16, body: Vec<u8>) -> Vec<u8> {
    match code {
        EXCSAT | ACCRDB => {
            let renamed = rename_product(body, b"SQL", b'0', b"DNC10010");
            // The same in EBCDIC.
            rename_product(renamed, &[0xE2, 0xD8, 0xD3], 0xF0, &[0xC4, 0xD5, 0xC3, 0xF1, 0xF0, 0xF0, 0xF1, 0xF0])
        }
        DSCSQLSTT => rebuild(code, &body, |inner, data| (inner != QRYINSID).then(|| data.to_vec())),
        _ => body,
    }
}

fn to_client(code: u16, body: Vec<u8>) -> Vec<u8> {
    match code {
        ACCRDBRM => rebuild(code, &body, |inner, data| Some(if inner == TYPDEFOVR { TYPDEFOVR_FULL.to_vec() } else { data.to_vec() })),
        SQLCARD => as_db2_tells(body),
        _ => body,
    }
}

/// Edit 4. A card that is null or of another shape is left alone.
fn as_db2_tells(mut card: Vec<u8>) -> Vec<u8> {
    if card.get(4) != Some(&0) || card.len() < RDBNAM_AT + 4 {
        return card;
    }
    if &card[SQLSTATE_AT..SQLSTATE_AT + 5] == b"02000" {
        card[SQLCODE_AT..SQLCODE_AT + 4].copy_from_slice(&100_i32.to_be_bytes());
    }
    let message_at = RDBNAM_AT + 2 + usize::from(number(&card, RDBNAM_AT));
    if message_at + 2 <= card.len() {
        let length = usize::from(number(&card, message_at));
        let (start, end) = (message_at + 2 + length.min(LONGEST_MESSAGE), message_at + 2 + length);
        if end > start && end <= card.len() {
            card.drain(start..end);
            card[message_at..message_at + 2].copy_from_slice(&length_bytes(LONGEST_MESSAGE));
            let whole = length_bytes(card.len());
            card[..2].copy_from_slice(&whole);
        }
    }
    card
}

/// Replaces each `prefix` that is followed by five digits.
fn rename_product(mut body: Vec<u8>, prefix: &[u8; 3], zero: u8, name: &[u8; 8]) -> Vec<u8> {
    for at in 0..body.len().saturating_sub(name.len() - 1) {
        let (start, digits) = body[at..at + name.len()].split_at(prefix.len());
        if start == prefix && digits.iter().all(|digit| (zero..zero + 10).contains(digit)) {
            body[at..at + name.len()].copy_from_slice(name);
        }
    }
    body
}

/// Writes a collection anew, each inner object changed or left out.
fn rebuild(code: u16, body: &[u8], change: impl Fn(u16, &[u8]) -> Option<Vec<u8>>) -> Vec<u8> {
    let mut inner = Vec::with_capacity(body.len());
    let mut at = 4;
    while at + 4 <= body.len() {
        let (length, code) = (usize::from(number(body, at)), number(body, at + 2));
        let end = (at + length.max(4)).min(body.len());
        if let Some(data) = change(code, &body[at + 4..end]) {
            inner.extend_from_slice(&object(code, &data));
        }
        at = end;
    }
    object(code, &inner)
}

fn object(code: u16, data: &[u8]) -> Vec<u8> {
    [&length_bytes(data.len() + 4)[..], &code.to_be_bytes(), data].concat()
}
