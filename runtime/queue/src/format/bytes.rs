//! Reading numbers off the front of bytes, and putting them at the end of others.

use crate::format::Fault;
use crate::item::Hash;

/// What is left to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Input { rest: bytes }
    }
    pub(super) fn rest(self) -> &'a [u8] {
        self.rest
    }
    #[inline]
    pub(super) fn take(&mut self, bytes: usize) -> Result<&'a [u8], Fault> {
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or(Fault::Cut)?;
        self.rest = rest;
        Ok(taken)
    }
    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(Fault::Cut)?;
        self.rest = rest;
        Ok(*taken)
    }
    #[inline]
    pub(super) fn u8(&mut self) -> Result<u8, Fault> {
        self.array::<1>().map(|[byte]| byte)
    }
    #[inline]
    pub(super) fn u16(&mut self) -> Result<u16, Fault> {
        self.array().map(u16::from_le_bytes)
    }
    #[inline]
    pub(super) fn u32(&mut self) -> Result<u32, Fault> {
        self.array().map(u32::from_le_bytes)
    }
    #[inline]
    pub(super) fn u64(&mut self) -> Result<u64, Fault> {
        self.array().map(u64::from_le_bytes)
    }
    pub(super) fn hash(&mut self) -> Result<Hash, Fault> {
        self.array()
    }
    /// Seven bits a byte, lowest first.
    #[inline]
    pub(super) fn varint(&mut self) -> Result<u64, Fault> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Fault::Invalid("number"))
    }
    #[inline]
    pub(super) fn varint_u32(&mut self) -> Result<u32, Fault> {
        u32::try_from(self.varint()?).map_err(|_| Fault::Invalid("length"))
    }
}

/// See [`Input::varint`].
pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7f) as u8);
}

#[cfg(test)]
mod tests {
    use super::{Input, put_varint};

    #[test]
    fn numbers_come_back_as_they_were_put() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert_eq!(Input::new(&out).varint(), Ok(value), "{out:?}");
            assert!(Input::new(&out[..out.len() - 1]).varint().is_err());
        }
        assert!(Input::new(&[0xff; 10]).varint().is_err(), "more than 64 bits");
    }
}
