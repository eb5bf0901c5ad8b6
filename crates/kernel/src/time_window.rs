//! A time of day in which a job runs.

use std::fmt;
use std::str::FromStr;

use crate::sys;

/// A daily time window of local time, such as `02:00-06:00`. It may span midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeWindow {
    /// Minutes after midnight; the first one of the window.
    from: u32,
    /// Minutes after midnight; the first one after the window.
    to: u32,
    /// How many seconds its time is ahead of UTC; `None` for local time.
    zone: Option<i32>,
}

/// A text that is not a time window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write a start and an end of local time, such as 02:00-06:00 or 22:00-06:00")]
pub struct BadTimeWindow;

impl FromStr for TimeWindow {
    type Err = BadTimeWindow;

    fn from_str(text: &str) -> Result<Self, BadTimeWindow> {
        let (from, to) = text.split_once('-').ok_or(BadTimeWindow)?;
        let (from, to) = (minute(from)?, minute(to)?);
        // A window without a minute, or of the whole day, is a mistake.
        (from != to).then_some(TimeWindow { from, to, zone: None }).ok_or(BadTimeWindow)
    }
}

/// Minutes after midnight of a time such as `02:30`. `24:00` is the end of the day.
fn minute(text: &str) -> Result<u32, BadTimeWindow> {
    let (hours, minutes) = text.split_once(':').ok_or(BadTimeWindow)?;
    let number = |text: &str, most: u32| {
        let is_plain =
            (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|&number: &u32| is_plain && number <= most).ok_or(BadTimeWindow)
    };
    let (hours, minutes) = (number(hours, 24)?, number(minutes, 59)?);
    match 60 * hours + minutes {
        DAY => Ok(0),
        minute if minute < DAY => Ok(minute),
        _ => Err(BadTimeWindow),
    }
}

/// Minutes.
const DAY: u32 = 24 * 60;

impl fmt::Display for TimeWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |minute: u32| format!("{:02}:{:02}", minute / 60, minute % 60);
        write!(f, "{}-{}", time(self.from), time(self.to))
    }
}

impl TimeWindow {
    /// Whether a time of day, in minutes after midnight, is in the window.
    pub fn contains(self, minute: u32) -> bool {
        if self.from < self.to {
            (self.from..self.to).contains(&minute)
        } else {
            minute >= self.from || minute < self.to
        }
    }

    /// The window in a time that is this many seconds ahead of UTC.
    pub(crate) fn in_zone(self, zone: i32) -> Self {
        TimeWindow { zone: Some(zone), ..self }
    }

    /// How many seconds its time is ahead of UTC now. A process with another environment may have another local time.
    pub(crate) fn zone(self) -> i32 {
        // Time zones are within a day of UTC.
        self.zone.unwrap_or_else(|| sys::utc_and_offset().1 as i32)
    }

    pub(crate) fn is_open(self) -> bool {
        self.contains(self.minute())
    }

    /// Minutes after midnight now.
    fn minute(self) -> u32 {
        let (utc, local) = sys::utc_and_offset();
        let zone = self.zone.map_or(local, i64::from);
        ((utc + zone).div_euclid(60).rem_euclid(i64::from(DAY))) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(text: &str) -> TimeWindow {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn window_holds_its_start_and_not_its_end() {
        let night = window("02:00-06:30");
        for (minute, is_in) in [(119, false), (120, true), (389, true), (390, false)] {
            assert_eq!(night.contains(minute), is_in, "{minute}");
        }
        assert_eq!(night.to_string(), "02:00-06:30");
    }

    #[test]
    fn window_may_span_midnight() {
        let night = window("22:00-6:00");
        for (minute, is_in) in [(0, true), (359, true), (360, false), (1319, false), (1320, true)] {
            assert_eq!(night.contains(minute), is_in, "{minute}");
        }
        let evening = window("18:00-24:00");
        assert!(evening.contains(1439) && !evening.contains(0) && !evening.contains(1079));
    }

    #[test]
    fn bad_windows_are_rejected() {
        for text in [
            "",
            "02:00",
            "2-6",
            "02:00-02:00",
            "25:00-26:00",
            "24:01-02:00",
            "02:60-03:00",
            "a:b-c:d",
            "+2:00-06:00",
            "00:00-24:00",
        ] {
            assert_eq!(text.parse::<TimeWindow>(), Err(BadTimeWindow), "{text}");
        }
    }

    #[test]
    fn minute_depends_on_the_zone() {
        let day = window("00:00-12:00");
        assert!(day.minute() < DAY);
        let ahead = (day.in_zone(3_600).minute() + DAY - day.in_zone(0).minute()) % DAY;
        // A minute may begin between the two.
        assert!((59..=60).contains(&ahead), "{ahead}");
        assert_eq!(day.in_zone(-7_200).zone(), -7_200);
    }
}
