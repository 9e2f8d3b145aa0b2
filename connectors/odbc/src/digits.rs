//! Canonical text of numbers, dates, times and timestamps from what drivers write.
//!
//! Each function gives `None` where the text is not plainly one value: it is then refused, never guessed.

use spillgate_connector::exact::{is_date, is_time};

/// Most digits an exponent is written out to: DECFLOAT(34) goes to 6,144.
const EXPONENT: i64 = 6_200;

/// `-?digits[.digits]` from `,5`, `-.5`, `+1`, `1E+3`. A decimal comma is a point; two separators are none of both (case B2).
/// NaN and the infinities of DECFLOAT keep their names. Writes into `out`.
pub(crate) fn decimal(text: &str, out: &mut String) -> Option<()> {
    let text = text.trim_matches([' ', '\0']);
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    out.clear();
    if negative {
        out.push('-');
    }
    if unsigned.starts_with(|letter: char| letter.is_ascii_alphabetic()) {
        return special(unsigned, out);
    }
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], unsigned[at + 1..].parse::<i64>().ok().filter(|exponent| exponent.abs() <= EXPONENT)?),
        None => (unsigned, 0),
    };
    let (whole, fraction) = mantissa.find(['.', ',']).map_or((mantissa, ""), |at| (&mantissa[..at], &mantissa[at + 1..]));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    if exponent == 0 {
        push_parts(out, whole, fraction);
    } else {
        let all = [whole, fraction].concat();
        let point = i64::try_from(whole.len()).ok()? + exponent;
        let length = i64::try_from(all.len()).ok()?;
        if point <= 0 {
            let zeros = "0".repeat(usize::try_from(-point).ok()?);
            push_parts(out, "", &[&zeros, all.as_str()].concat());
        } else if point >= length {
            let zeros = "0".repeat(usize::try_from(point - length).ok()?);
            push_parts(out, [all.as_str(), &zeros].concat().trim_start_matches('0'), "");
        } else {
            let (whole, fraction) = all.split_at(usize::try_from(point).ok()?);
            push_parts(out, whole, fraction);
        }
    }
    Some(())
}

fn push_parts(out: &mut String, whole: &str, fraction: &str) {
    out.push_str(if whole.is_empty() { "0" } else { whole });
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
}

fn special(name: &str, out: &mut String) -> Option<()> {
    let known = if name.eq_ignore_ascii_case("NaN") || name.eq_ignore_ascii_case("sNaN") {
        "NaN"
    } else if name.eq_ignore_ascii_case("Infinity") || name.eq_ignore_ascii_case("Inf") {
        "Infinity"
    } else {
        return None;
    };
    out.push_str(known);
    Some(())
}

/// `YYYY-MM-DD`.
pub(crate) fn date(text: &str) -> Option<&str> {
    let text = text.trim_end_matches([' ', '\0']);
    is_date(text).then_some(text)
}

/// `HH:MM:SS[.fraction]`; Db2's own form writes points between the fields.
pub(crate) fn time(text: &str, out: &mut String) -> Option<()> {
    out.clear();
    push_time(text.trim_end_matches([' ', '\0']), out)
}

fn push_time(text: &str, out: &mut String) -> Option<()> {
    let bytes = text.as_bytes();
    if !text.is_ascii() || bytes.len() < 8 {
        return None;
    }
    let start = out.len();
    out.push_str(&text[..2]);
    out.push(if bytes[2] == b'.' { ':' } else { char::from(bytes[2]) });
    out.push_str(&text[3..5]);
    out.push(if bytes[5] == b'.' { ':' } else { char::from(bytes[5]) });
    out.push_str(&text[6..]);
    // Db2 has an hour 24, the end of the day.
    (is_time(&out[start..]) || &out[start..] == "24:00:00").then_some(())
}

/// `YYYY-MM-DDTHH:MM:SS[.fraction][±HH:MM]`, from the forms with a blank, a `T` or Db2's `-` in the middle.
pub(crate) fn timestamp(text: &str, out: &mut String) -> Option<()> {
    let text = text.trim_end_matches([' ', '\0']);
    let date = text.get(..10).filter(|date| is_date(date))?;
    let rest = text.get(10..)?.strip_prefix([' ', 'T', '-'])?;
    let (clock, offset) = rest.find(['+', '-', 'Z']).map_or((rest, ""), |at| rest.split_at(at));
    out.clear();
    out.push_str(date);
    out.push('T');
    push_time(clock.trim_end(), out)?;
    let digits = |range: std::ops::Range<usize>| offset.get(range).is_some_and(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
    match (offset.len(), offset.as_bytes().first()) {
        (0, _) => {}
        (1, Some(b'Z')) => out.push_str("+00:00"),
        (3, Some(b'+' | b'-')) if digits(1..3) => {
            out.push_str(offset);
            out.push_str(":00");
        }
        (6, Some(b'+' | b'-')) if digits(1..3) && &offset[3..4] == ":" && digits(4..6) => out.push_str(offset),
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal_of(text: &str) -> Option<String> {
        let mut out = String::new();
        decimal(text, &mut out).map(|()| out)
    }

    #[test]
    fn b1_b2_decimals_keep_every_digit_whatever_separator_the_driver_writes() {
        let nines = "9".repeat(31);
        let cases = [
            ("1234,56", Some("1234.56")),
            ("1234.56", Some("1234.56")),
            ("-.5", Some("-0.5")),
            (".05", Some("0.05")),
            ("-0.00", Some("-0.00")),
            ("7.", Some("7")),
            (" 12 ", Some("12")),
            (&nines, Some(&*nines)),
            ("1.234,56", None),
            ("1,234,56", None),
            ("12,5x", None),
            ("", None),
            ("-", None),
            (".", None),
            ("1.5E+3", Some("1500")),
            ("1.2345E2", Some("123.45")),
            ("-1E-3", Some("-0.001")),
            ("0E+5", Some("0")),
            ("1E99999", None),
            ("NaN", Some("NaN")),
            ("-Infinity", Some("-Infinity")),
            ("Inflation", None),
        ];
        for (text, wanted) in cases {
            assert_eq!(decimal_of(text).as_deref(), wanted, "{text:?}");
        }
    }

    #[test]
    fn b7_instants_keep_their_digits_or_are_refused() {
        let mut out = String::new();
        let cases = [
            ("2026-01-02 03:04:05.123456", Some("2026-01-02T03:04:05.123456")),
            ("2026-01-02-03.04.05.123456789012", Some("2026-01-02T03:04:05.123456789012")),
            ("2026-01-02T03:04:05Z", Some("2026-01-02T03:04:05+00:00")),
            ("2026-01-02 03:04:05-07", Some("2026-01-02T03:04:05-07:00")),
            ("2026-01-02 24:00:00", Some("2026-01-02T24:00:00")),
            ("infinity", None),
            ("2026-02-30 00:00:00", None),
            ("2026-01-02 03:04", None),
            ("2026-01-02 03:04:05 BC", None),
            ("ä026-01-02 03:04:05", None),
        ];
        for (text, wanted) in cases {
            assert_eq!(timestamp(text, &mut out).map(|()| out.as_str()), wanted, "{text}");
        }
        assert_eq!(date("2026-03-08"), Some("2026-03-08"));
        assert_eq!(date("0044-03-15 BC"), None);
        assert_eq!(time("23.59.59", &mut out).map(|()| out.as_str()), Some("23:59:59"));
        assert_eq!(time("25:00:00", &mut out), None);
    }
}
