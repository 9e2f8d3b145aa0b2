//! Dates and times that exist, in one canonical form. No zone is ever added, applied or dropped.

/// `YYYY-MM-DD`.
pub(super) fn date(text: &str) -> Option<&str> {
    let bytes = text.as_bytes();
    let shape = bytes.len() == 10 && bytes[4] == b'-' && bytes[7] == b'-';
    if !shape {
        return None;
    }
    let (year, month, day) = (number(&bytes[..4])?, number(&bytes[5..7])?, number(&bytes[8..])?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => 0,
    };
    (year >= 1 && (1..=days).contains(&day)).then_some(text)
}

/// `HH:MM:SS` with up to twelve digits of a fraction (as many as Db2 keeps).
pub(super) fn time(text: &str) -> Option<&str> {
    let bytes = text.as_bytes();
    let shape = bytes.len() >= 8 && bytes[2] == b':' && bytes[5] == b':';
    if !shape {
        return None;
    }
    let (hour, minute, second) = (number(&bytes[..2])?, number(&bytes[3..5])?, number(&bytes[6..8])?);
    let fraction = match &bytes[8..] {
        [] => true,
        [b'.', digits @ ..] => (1..=12).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    (hour < 24 && minute < 60 && second < 60 && fraction).then_some(text)
}

/// A date and a time with `T` or a space between, and a zone (`Z` or `+HH:MM`) where one was given. `T` in the result.
pub(super) fn timestamp(text: &str) -> Option<String> {
    let (day, rest) = text.split_at_checked(10)?;
    let clock = rest.strip_prefix(['T', ' '])?;
    let zone = clock.find(['Z', '+', '-']).unwrap_or(clock.len());
    let (clock, zone) = clock.split_at(zone);
    (date(day).is_some() && time(clock).is_some() && is_zone(zone)).then(|| {
        let mut canonical = String::with_capacity(text.len());
        canonical.extend([day, "T", clock, zone]);
        canonical
    })
}

fn is_zone(text: &str) -> bool {
    match text.as_bytes() {
        [] | [b'Z'] => true,
        [b'+' | b'-', hours @ .., b':', tens, ones] if hours.len() == 2 => {
            number(hours).is_some_and(|hours| hours < 24) && number(&[*tens, *ones]).is_some_and(|minutes| minutes < 60)
        }
        _ => false,
    }
}

/// Four digits at most.
fn number(digits: &[u8]) -> Option<u16> {
    digits.iter().try_fold(0, |sum: u16, digit| digit.is_ascii_digit().then(|| sum * 10 + u16::from(digit - b'0')))
}
