//! The time by which replicas are to have a publication.

use jiff::civil::Time;
use jiff::{SignedDuration, Timestamp, ZonedDateTime};

/// Parses a time of day, a duration, or a time with its date (RFC 3339).
///
/// # Errors
/// The valid forms.
pub(super) fn deadline(text: &str) -> Result<Timestamp, String> {
    after(&ZonedDateTime::now(), text)
}

/// The same, at this local time.
fn after(now: &ZonedDateTime, text: &str) -> Result<Timestamp, String> {
    const HELP: &str = "write a time of day such as 06:00, a duration such as 90m, or a time with its date such as \
                        2026-01-31T06:00:00Z";
    let present = now.timestamp();
    let is_time_of_day = text.contains(':') && !text.contains('-');
    let at = if is_time_of_day {
        text.parse::<Time>().ok().and_then(|time| next(now, time))
    } else if let Ok(at) = text.parse::<Timestamp>() {
        Some(at)
    } else {
        let time = text.parse::<SignedDuration>().ok();
        time.and_then(|time| present.checked_add(time).ok())
    };
    let at = at.ok_or_else(|| HELP.to_owned())?;
    if at > present { Ok(at) } else { Err(format!("that is over; {HELP}")) }
}

/// The next time when local clocks show this.
fn next(now: &ZonedDateTime, time: Time) -> Option<Timestamp> {
    let on = |day: jiff::civil::Date| {
        let at = day.to_datetime(time).to_zoned_datetime(now.time_zone().clone()).ok()?;
        Some(at.timestamp())
    };
    let today = on(now.date())?;
    if today > now.timestamp() { Some(today) } else { on(now.date().tomorrow().ok()?) }
}

#[cfg(test)]
mod tests {
    use jiff::tz::{TimeZone, offset};

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn deadline_is_the_next_such_time() {
        // Half past eleven in the evening, local time.
        let zone = TimeZone::fixed(offset(2));
        let now = at("2026-03-01T21:30:00Z").to_zoned_datetime(zone);
        for (text, expected) in [
            ("23:45", "2026-03-01T21:45:00Z"),
            ("06:00", "2026-03-02T04:00:00Z"),
            ("23:30", "2026-03-02T21:30:00Z"),
            ("23:30:01", "2026-03-01T21:30:01Z"),
            ("90m", "2026-03-01T23:00:00Z"),
            ("1h30m", "2026-03-01T23:00:00Z"),
            ("2 days", ""),
            ("20s", "2026-03-01T21:30:20Z"),
            ("2026-03-03T06:00:00+01:00", "2026-03-03T05:00:00Z"),
            ("2026-03-01T06:00:00Z", ""),
            ("25:00", ""),
            ("-5m", ""),
            ("0s", ""),
            ("soon", ""),
            ("", ""),
        ] {
            let found = after(&now, text);
            let expected = expected.parse().ok();
            assert_eq!(found.as_ref().ok(), expected.as_ref(), "{text}: {found:?}");
            if let Err(error) = found {
                assert!(error.contains("a time of day such as 06:00"), "{error}");
            }
        }
    }
}
