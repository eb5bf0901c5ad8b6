//! Dates of logs, as times since 1970 in UTC.

use core::ops::RangeInclusive;

use jiff::civil::{Date, Time};
use jiff::tz::Offset;
use lull_cc::Timestamp;

const SECOND: u64 = 1_000_000_000;

/// A date in brackets, in the form of servers: the Common Log Format's, or RFC 3339.
pub(super) fn of_server(date: &str) -> Option<Timestamp> {
    common(date).or_else(|| rfc3339(date))
}

/// `01/Aug/1995:06:00:00 +0000`, the date of the Common Log Format. The zone may be missing, which is UTC, or
/// be the name of UTC; seconds may have a fraction.
pub(super) fn common(date: &str) -> Option<Timestamp> {
    let (date, zone) = date.split_once(' ').unwrap_or((date, "UTC"));
    let mut parts = date.splitn(4, ['/', ':']);
    let day = number(parts.next()?, 1..=31)?;
    let month = month(parts.next()?)?;
    let year = number(parts.next()?, 1970..=2500)?;
    let clock = clock(parts.next()?)?;
    let zone = match zone {
        "UTC" | "GMT" | "Z" => 0,
        zone => offset(zone)?,
    };
    since_1970(year, month, day, clock, zone)
}

/// The number of a month from its English name of three letters, from 0.
pub(super) fn month(name: &str) -> Option<i64> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let found = MONTHS.iter().position(|month| month.eq_ignore_ascii_case(name));
    found.map(|month| month as i64)
}

/// The columns `date` and `time` of the extended format, `1995-08-01` and `06:00:00`, in UTC.
pub(super) fn extended(date: &str, time: &str) -> Option<Timestamp> {
    let (year, month, day) = calendar(date)?;
    since_1970(year, month, day, clock(time)?, 0)
}

/// `1995/08/01 06:00:00.5`, as written by Go's programs, in UTC.
pub(super) fn with_slashes(text: &str) -> Option<Timestamp> {
    let (date, time) = text.split_once(' ')?;
    extended(&date.replace('/', "-"), time)
}

/// A day by its numbers, the month from 1, and the time on it as `6:00:00`, in UTC.
pub(super) fn of_parts(year: i64, month: i64, day: i64, time: &str) -> Option<Timestamp> {
    let is_day =
        (1970..=2500).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    is_day.then(|| since_1970(year, month - 1, day, clock(time)?, 0)).flatten()
}

/// `1995-08-01T06:00:00.5+02:00` or `…Z` (RFC 3339); a space may replace the `T`.
pub(super) fn rfc3339(text: &str) -> Option<Timestamp> {
    let (date, rest) = (text.get(..10)?, text.get(10..)?);
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let end = rest.find(['Z', 'z', '+', '-'])?;
    let zone = match &rest[end..] {
        "Z" | "z" => 0,
        zone => offset(&zone.replace(':', ""))?,
    };
    let (year, month, day) = calendar(date)?;
    since_1970(year, month, day, clock(&rest[..end])?, zone)
}

/// Seconds since 1970; or milliseconds, microseconds or nanoseconds, if they would otherwise be beyond the year
/// 5000.
pub(super) fn epoch(number: f64) -> Option<Timestamp> {
    const LATEST_SECOND: f64 = 1e11;
    let scale = [1.0, 1e3, 1e6, 1e9].into_iter().find(|scale| number / scale < LATEST_SECOND)?;
    let seconds = number / scale;
    (0.0..1.7e10).contains(&seconds).then(|| {
        // In two parts, because a double cannot represent current nanoseconds.
        let whole = seconds as u64;
        Timestamp::from_nanos(whole * SECOND + ((seconds - whole as f64) * 1e9) as u64)
    })
}

fn number(text: &str, range: RangeInclusive<i64>) -> Option<i64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|number| digits && range.contains(number))
}

/// `1995-08-01`; the month from 0.
fn calendar(date: &str) -> Option<(i64, i64, i64)> {
    let mut parts = date.splitn(3, '-');
    let year = number(parts.next()?, 1970..=2500)?;
    let month = number(parts.next()?, 1..=12)?;
    Some((year, month - 1, number(parts.next()?, 1..=31)?))
}

/// Nanoseconds of the day of `06:00:00` or `06:00:00.25`.
pub(super) fn clock(time: &str) -> Option<u64> {
    let (time, fraction) = time.split_once('.').unwrap_or((time, ""));
    let mut parts = time.splitn(3, ':');
    let hour = number(parts.next()?, 0..=23)?;
    let minute = number(parts.next()?, 0..=59)?;
    // 60 is a leap second.
    let second = number(parts.next()?, 0..=60)?;
    let mut nanos = 0;
    for (at, digit) in fraction.bytes().enumerate() {
        if !digit.is_ascii_digit() {
            return None;
        }
        if at < 9 {
            nanos += u64::from(digit - b'0') * 10u64.pow(8 - at as u32);
        }
    }
    Some((hour * 3600 + minute * 60 + second) as u64 * SECOND + nanos)
}

/// Seconds east of UTC of `+0200`.
fn offset(zone: &str) -> Option<i64> {
    let (sign, digits) = match zone.as_bytes().first()? {
        b'+' => (1, &zone[1..]),
        b'-' => (-1, &zone[1..]),
        _ => return None,
    };
    let digits = if digits.len() == 4 { number(digits, 0..=2359)? } else { return None };
    Some(sign * (digits / 100 * 3600 + digits % 100 * 60))
}

/// The month counts from 0, the zone is in seconds east of UTC. A day that the month does not have is not a
/// date.
fn since_1970(year: i64, month: i64, day: i64, clock: u64, zone: i64) -> Option<Timestamp> {
    let (year, month, day) =
        (year.try_into().ok()?, (month + 1).try_into().ok()?, day.try_into().ok()?);
    let midnight = Date::new(year, month, day).ok()?.to_datetime(Time::midnight());
    let seconds = Offset::UTC.to_timestamp(midnight).ok()?.as_second() - zone;
    let nanos = i128::from(seconds) * i128::from(SECOND) + i128::from(clock);
    u64::try_from(nanos).ok().map(Timestamp::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(days: u64) -> Timestamp {
        Timestamp::from_nanos(days * 86_400 * SECOND)
    }

    #[test]
    fn dates_around_leap_days_are_right() {
        for (date, days) in [
            ("01/Jan/1970:00:00:00 +0000", 0),
            ("29/Feb/2000:00:00:00 +0000", 11_016),
            ("01/Mar/2000:00:00:00 +0000", 11_017),
            ("31/Dec/1999:00:00:00 +0000", 10_956),
            ("31/Dec/1999:02:00:00 +0200", 10_956),
            ("30/Dec/1999:19:30:00 -0430", 10_956),
        ] {
            assert_eq!(common(date), Some(seconds(days)), "{date}");
        }
    }

    #[test]
    fn all_date_formats_agree() {
        let at = Timestamp::from_nanos(807_256_800 * SECOND);
        let quarter = Timestamp::from_nanos(807_256_800 * SECOND + SECOND / 4);
        assert_eq!(common("01/Aug/1995:06:00:00 +0000"), Some(at));
        assert_eq!(extended("1995-08-01", "06:00:00"), Some(at));
        assert_eq!(extended("1995-08-01", "06:00:00.25"), Some(quarter));
        for text in ["01/AUG/1995:06:00:00 UTC", "01/aug/1995:06:00:00", "01/Aug/1995:06:00:00 GMT"]
        {
            assert_eq!(common(text), Some(at), "{text}");
        }
        for text in ["1995-08-01T06:00:00Z", "1995-08-01 08:00:00+02:00"] {
            assert_eq!(rfc3339(text), Some(at), "{text}");
        }
        assert_eq!(rfc3339("1995-08-01T04:00:00.250-0200"), Some(quarter));
        for number in [807_256_800.25, 807_256_800_250.0, 807_256_800_250_000.0, 807_256_800.25e9] {
            assert_eq!(epoch(number), Some(quarter), "{number}");
        }
    }

    #[test]
    fn invalid_date_is_rejected() {
        for date in [
            "32/Jan/1999:00:00:00 +0000",
            "29/Feb/1999:00:00:00 +0000",
            "31/Apr/1999:00:00:00 +0000",
            "01/Foo/1999:00:00:00 +0000",
            "01/Jan/1999:24:00:00 +0000",
            "01/Jan/1999:00:00:00 0000",
            "01/Jan/1999:00:00:00 CET",
            "01/Jan/1999:00:00:00 +é00",
            "+1/Jan/1999:00:00:00 +0000",
            "01/Jan/1970:00:00:00 +0100",
            "",
            "01/Jan",
        ] {
            assert_eq!(common(date), None, "{date}");
        }
        for date in ["1995-08-01", "1995-08-01T06:00:00", "1995-13-01T06:00:00Z", "é995-08-01T"] {
            assert_eq!(rfc3339(date), None, "{date}");
        }
        for number in [-1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(epoch(number), None, "{number}");
        }
    }
}
