//! Postgres' `numeric` in its binary form, written out digit by digit.

use std::fmt;

/// Four decimal digits in each group, as sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numeric<'a> {
    /// Big-endian groups of 16 bits.
    groups: &'a [u8],
    /// Power of 10,000 of the first group.
    weight: i16,
    sign: u16,
    /// Digits after the point.
    scale: u16,
}

const POSITIVE: u16 = 0x0000;
const NEGATIVE: u16 = 0x4000;
const NAN: u16 = 0xC000;
const INFINITY: u16 = 0xD000;
const NEGATIVE_INFINITY: u16 = 0xF000;

impl<'a> Numeric<'a> {
    /// `None` for bytes that are no numeric.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Self> {
        let (head, groups) = bytes.split_at_checked(8)?;
        let field = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let numeric = Numeric { groups, weight: i16::from_be_bytes([head[2], head[3]]), sign: field(4), scale: field(6) };
        let sound = groups.len() == 2 * usize::from(field(0))
            && groups.chunks_exact(2).all(|group| u16::from_be_bytes([group[0], group[1]]) < 10_000)
            && matches!(numeric.sign, POSITIVE | NEGATIVE | NAN | INFINITY | NEGATIVE_INFINITY);
        sound.then_some(numeric)
    }
    /// The group of that power of 10,000; those that were not sent are zero.
    fn group(&self, power: i32) -> u16 {
        let index = usize::try_from(i32::from(self.weight) - power).ok();
        index.and_then(|index| self.groups.get(2 * index..2 * index + 2)).map_or(0, |group| u16::from_be_bytes([group[0], group[1]]))
    }
}

impl fmt::Display for Numeric<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.sign {
            NAN => return out.write_str("NaN"),
            INFINITY => return out.write_str("Infinity"),
            NEGATIVE_INFINITY => return out.write_str("-Infinity"),
            NEGATIVE => out.write_str("-")?,
            _ => {}
        }
        let first = i32::from(self.weight).max(0);
        write!(out, "{}", self.group(first))?;
        for power in (0..first).rev() {
            write!(out, "{:04}", self.group(power))?;
        }
        if self.scale > 0 {
            out.write_str(".")?;
        }
        let mut left = usize::from(self.scale);
        let mut power = -1;
        while left > 0 {
            let digits = group_digits(self.group(power));
            let shown = left.min(4);
            out.write_str(std::str::from_utf8(&digits[..shown]).map_err(|_| fmt::Error)?)?;
            left -= shown;
            power -= 1;
        }
        Ok(())
    }
}

fn group_digits(group: u16) -> [u8; 4] {
    // Each digit is below ten.
    #[allow(clippy::cast_possible_truncation)]
    [1000, 100, 10, 1].map(|unit| b'0' + (group / unit % 10) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(groups: &[u16], weight: i16, sign: u16, scale: u16) -> Option<String> {
        let mut bytes = Vec::new();
        bytes.extend(u16::try_from(groups.len()).expect("few").to_be_bytes());
        bytes.extend(weight.to_be_bytes());
        bytes.extend(sign.to_be_bytes());
        bytes.extend(scale.to_be_bytes());
        groups.iter().for_each(|group| bytes.extend(group.to_be_bytes()));
        Numeric::read(&bytes).map(|numeric| numeric.to_string())
    }

    #[test]
    fn b1_every_digit_and_the_scale_are_written() {
        for (groups, weight, sign, scale, wanted) in [
            (&[123, 4500][..], 0, NEGATIVE, 2, "-123.45"),
            (&[], 0, POSITIVE, 0, "0"),
            (&[], 0, POSITIVE, 2, "0.00"),
            (&[1], -8, NEGATIVE, 32, "-0.00000000000000000000000000000001"),
            (&[500], -1, POSITIVE, 2, "0.05"),
            (&[1, 0, 7], 2, POSITIVE, 0, "100000007"),
            (&[1], 2, POSITIVE, 1, "100000000.0"),
            (&[9999], 0, POSITIVE, 6, "9999.000000"),
            (&[], 0, NAN, 0, "NaN"),
            (&[], 0, INFINITY, 0, "Infinity"),
            (&[], 0, NEGATIVE_INFINITY, 0, "-Infinity"),
        ] {
            assert_eq!(shown(groups, weight, sign, scale).as_deref(), Some(wanted));
        }
    }

    #[test]
    fn bytes_that_are_no_numeric_are_none() {
        assert!(Numeric::read(&[]).is_none() && Numeric::read(&[0; 7]).is_none());
        assert_eq!(shown(&[10_000], 0, POSITIVE, 0), None);
        assert_eq!(shown(&[1], 0, 0x1234, 0), None);
        assert!(Numeric::read(&[0, 2, 0, 0, 0, 0, 0, 0, 0, 1]).is_none());
    }
}
