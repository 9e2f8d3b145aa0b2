//! Sizes, times and rates as the files write them: `"64MiB"`, `"800ms"`, `"600/min"`.
//!
//! Sizes: a whole number and `B KiB MiB GiB`. Times: a whole number and `ms s min h d`. Rates: `N/s N/min N/h`.
//! Anything else is refused with a sentence that names the form.

use std::fmt;
use std::time::Duration;

/// Text that is no size, time or rate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, found {found:?}")]
pub struct UnitError {
    /// The form, with an example.
    pub expected: &'static str,
    /// What stood there.
    pub found: String,
}

fn split<'a>(text: &'a str, expected: &'static str) -> Result<(u64, &'a str), UnitError> {
    let error = || UnitError { expected, found: text.into() };
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '_').ok_or_else(error)?;
    let number = text[..end].replace('_', "").parse().map_err(|_| error())?;
    Ok((number, text[end..].trim_start()))
}

/// A size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(
    /// Bytes.
    pub u64,
);

impl ByteSize {
    /// Reads `"64MiB"`.
    pub fn parse(text: &str) -> Result<Self, UnitError> {
        const EXPECTED: &str = "a size such as \"64MiB\" (B, KiB, MiB, GiB)";
        let (number, unit) = split(text, EXPECTED)?;
        let factor = match unit {
            "B" => 1u64,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => 0,
        };
        number.checked_mul(factor).filter(|_| factor > 0).map(ByteSize).ok_or_else(|| UnitError { expected: EXPECTED, found: text.into() })
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, shift) in [("GiB", 30), ("MiB", 20), ("KiB", 10)] {
            if self.0 >= 1 << shift && self.0 & ((1 << shift) - 1) == 0 {
                return write!(out, "{}{unit}", self.0 >> shift);
            }
        }
        write!(out, "{}B", self.0)
    }
}

/// Reads `"800ms"`.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    const EXPECTED: &str = "a time such as \"800ms\" (ms, s, min, h, d)";
    let (number, unit) = split(text, EXPECTED)?;
    let factor = match unit {
        "ms" => 1u64,
        "s" => 1_000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => 0,
    };
    number
        .checked_mul(factor)
        .filter(|_| factor > 0)
        .map(Duration::from_millis)
        .ok_or_else(|| UnitError { expected: EXPECTED, found: text.into() })
}

/// Writes a time as the files do, in the largest unit that is exact.
pub fn show_duration(time: Duration) -> String {
    let milliseconds = time.as_millis();
    for (unit, factor) in [("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)] {
        if milliseconds >= factor && milliseconds.is_multiple_of(factor) {
            return format!("{}{unit}", milliseconds / factor);
        }
    }
    format!("{milliseconds}ms")
}

/// A rate: calls in a period, and how many may come at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Calls in a period.
    pub calls: u64,
    /// The period.
    pub period: Duration,
    /// How many may come at once.
    pub burst: u64,
}

impl Rate {
    /// Reads `"600/min"`; the burst is one tenth of the calls of a minute, at least 1, unless the file says otherwise.
    pub fn parse(text: &str) -> Result<Self, UnitError> {
        const EXPECTED: &str = "a rate such as \"600/min\" (/s, /min, /h)";
        let error = || UnitError { expected: EXPECTED, found: text.into() };
        let (number, unit) = text.split_once('/').ok_or_else(error)?;
        let calls: u64 = number.trim().replace('_', "").parse().ok().filter(|calls| *calls > 0).ok_or_else(error)?;
        let seconds = match unit.trim() {
            "s" => 1,
            "min" => 60,
            "h" => 3_600,
            _ => return Err(error()),
        };
        let burst = (calls * 60 / seconds / 10).max(1);
        Ok(Rate { calls, period: Duration::from_secs(seconds), burst })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.period.as_secs() {
            1 => "s",
            60 => "min",
            _ => "h",
        };
        write!(out, "{}/{unit}", self.calls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_times_and_rates_are_read_and_written_alike() {
        for text in ["64MiB", "1KiB", "17B", "2GiB"] {
            assert_eq!(ByteSize::parse(text).map(|size| size.to_string()).as_deref(), Ok(text));
        }
        for text in ["800ms", "20s", "5min", "26h", "7d"] {
            assert_eq!(parse_duration(text).map(show_duration).as_deref(), Ok(text));
        }
        assert_eq!(Rate::parse("6000/min").map(|rate| rate.burst), Ok(600));
        for text in ["", "64", "64MB", "MiB", "-1s", "99999999999GiB"] {
            assert!(ByteSize::parse(text).is_err(), "{text}");
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
