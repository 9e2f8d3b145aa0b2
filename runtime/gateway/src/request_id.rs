//! Request ids: 128 bits in hexadecimal, half chance (a process), half a count (a call in it). No lock, no clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use spillgate_model::chance;

/// Hands out ids.
#[derive(Debug)]
pub(crate) struct RequestIds {
    process: u64,
    count: AtomicU64,
}

impl RequestIds {
    pub(crate) fn new() -> Self {
        RequestIds { process: chance::drawn(), count: AtomicU64::new(0) }
    }

    /// The next id and its number, which also seeds the jitter of its reply.
    pub(crate) fn next(&self) -> (Arc<str>, u64) {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let mut text = [0; 32];
        write_hex(self.process, &mut text[..16]);
        write_hex(number, &mut text[16..]);
        (std::str::from_utf8(&text).unwrap_or_default().into(), number ^ self.process)
    }
}

fn write_hex(value: u64, out: &mut [u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (pair, byte) in out.chunks_exact_mut(2).zip(value.to_be_bytes()) {
        pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_128_bits_and_never_the_same() {
        let ids = RequestIds::new();
        let (first, second) = (ids.next().0, ids.next().0);
        assert!(first.len() == 32 && first.bytes().all(|byte| byte.is_ascii_hexdigit()), "{first}");
        assert_eq!((&first[..16], &first[16..], &second[16..]), (&second[..16], "0000000000000000", "0000000000000001"));
    }
}
