use super::*;

/// Seconds since 1970 of `2026-11-01T10:00`, by counting days, not by the code under test.
fn at(text: &str) -> i64 {
    let number = |range: std::ops::Range<usize>| text[range].parse::<i64>().expect("digits");
    let (year, month, day) = (number(0..4), number(5..7), number(8..10));
    let leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let lengths = |year: i64| [31, if leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let years: i64 = (1970..year).map(|year| if leap(year) { 366 } else { 365 }).sum();
    let months: i64 = lengths(year).iter().take(usize::try_from(month - 1).expect("a month")).sum();
    ((years + months + day - 1) * 24 + number(11..13)) * 3_600 + number(14..16) * 60
}

fn next(cron: &str, after: &str) -> i64 {
    Cron::parse(cron).expect("it is one").next_after(at(after)).expect("it comes")
}

#[test]
fn the_next_tick_is_the_first_that_fits() {
    for (cron, after, expected) in [
        ("* * * * *", "2026-11-01T10:00", "2026-11-01T10:01"),
        ("*/15 * * * *", "2026-11-01T10:46", "2026-11-01T11:00"),
        ("5/20 * * * *", "2026-11-01T10:25", "2026-11-01T10:45"),
        ("30 2 * * *", "2026-12-31T02:30", "2027-01-01T02:30"),
        ("0 9-17/4 * * *", "2026-11-01T13:00", "2026-11-01T17:00"),
        ("0 0 1 jan,JUL *", "2026-11-01T10:00", "2027-01-01T00:00"),
        ("0 12 * * mon-fri", "2026-10-30T12:00", "2026-11-02T12:00"),
        ("0 12 * * 0", "2026-10-30T12:00", "2026-11-01T12:00"),
        ("0 12 * * 7", "2026-10-30T12:00", "2026-11-01T12:00"),
        ("0 12 * * sat-sun", "2026-10-31T12:00", "2026-11-01T12:00"),
        ("0 0 29 2 *", "2026-11-01T10:00", "2028-02-29T00:00"),
        ("0 0 29 2 *", "2096-03-01T00:00", "2104-02-29T00:00"),
        ("0 0 31 * *", "2026-11-01T10:00", "2026-12-31T00:00"),
        // Both days restricted: the 13th, or a Friday.
        ("0 0 13 * fri", "2026-11-01T10:00", "2026-11-06T00:00"),
        ("0 0 13 * fri", "2026-11-12T10:00", "2026-11-13T00:00"),
        // A step of all days restricts, but is still no second choice.
        ("0 0 */10 * mon", "2026-11-01T10:00", "2026-12-21T00:00"),
    ] {
        assert_eq!(next(cron, after), at(expected), "{cron} after {after}");
    }
}

#[test]
fn a_tick_is_always_later_and_seconds_do_not_matter() {
    let cron = Cron::parse("0 * * * *").expect("it is one");
    let ten = at("2026-11-01T10:00");
    assert_eq!(cron.next_after(ten - 1), Some(ten));
    assert_eq!(cron.next_after(ten), Some(ten + 3_600));
    assert_eq!(cron.next_after(ten + 59), Some(ten + 3_600));
    assert_eq!(cron.next_after(-1), Some(0), "before 1970");
    assert_eq!((cron.next_after(i64::MAX), cron.next_after(i64::MAX - 100)), (None, None));
    assert_eq!(Cron::parse("  0  *\t* * *  ").map(|cron| cron.written().to_owned()).as_deref(), Ok("0 * * * *"));
}

#[test]
fn every_day_of_four_centuries_has_its_month_and_day() {
    let mut day = 0;
    for year in 1970..2371 {
        for month in 1..=12 {
            let first = at(&format!("{year}-{month:02}-01T00:00")) / DAY;
            assert_eq!(day, first);
            while month_and_day(day).0 == month {
                assert_eq!(month_and_day(day), (month, day - first + 1));
                day += 1;
            }
        }
    }
}

#[test]
fn what_is_no_schedule_is_refused_where_it_stands() {
    for (cron, offset, part) in [
        ("", 0, "0 fields"),
        ("* * * *", 0, "4 fields"),
        ("* * * * * *", 0, "6 fields"),
        ("60 * * * *", 0, "minute: expected 0 to 59"),
        ("0 24 * * *", 2, "hour: expected 0 to 23"),
        ("0 0 0 * *", 4, "day of month: expected 1 to 31"),
        ("0 0 * janury *", 6, "month: expected 1 to 12 or jan to dec"),
        ("0 0 * * fri-mon", 8, "runs backwards"),
        ("0 0 * * 8", 8, "day of week"),
        ("*/0 * * * *", 0, "minute"),
        ("+1 * * * *", 0, "minute"),
        ("1,,2 * * * *", 0, "minute"),
        ("1-2-3 * * * *", 0, "minute"),
        ("@daily", 0, "1 fields"),
        ("0 0 30 2 *", 0, "never comes"),
        ("0 0 31 4,6,9,11 *", 0, "never comes"),
    ] {
        let fault = Cron::parse(cron).expect_err(cron);
        assert_eq!(fault.offset, offset, "{cron}: {}", fault.message);
        assert!(fault.message.contains(part), "{cron}: {}", fault.message);
    }
}
