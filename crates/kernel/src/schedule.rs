//! A time of day in which a job runs: outside it, its processes are frozen.

use std::fmt;
use std::str::FromStr;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};

use crate::error::{Error, Result};
use crate::job_control::{pause, resume};
use crate::jobs::jobs;
use crate::{machine, sys};

/// A daily time window of local time, such as `02:00-06:00`. It may span midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeWindow {
    /// Minutes after midnight; the first one of the window.
    from: u32,
    /// Minutes after midnight; the first one after the window.
    to: u32,
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
        (from != to).then_some(TimeWindow { from, to }).ok_or(BadTimeWindow)
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

    fn is_open(self) -> bool {
        self.contains(sys::minute_of_day())
    }
}

/// How often the clock is read. Clocks are set, and machines sleep, so nothing is slept for hours.
const PERIOD: Duration = Duration::from_secs(1);

/// Waits until a time window is open. Returns at once if it is.
pub fn wait_for_allowed_hours(window: TimeWindow) {
    while !window.is_open() {
        thread::sleep(PERIOD);
    }
}

/// Pauses the background that this process makes whenever a time window is closed, and resumes it when it opens,
/// until the process ends. A job that a user has paused within the window stays paused.
///
/// # Errors
/// If this process may not pause it.
pub fn keep_to_allowed_hours(window: TimeWindow) -> Result<()> {
    machine::check_privilege("pausing a job outside its time window")?;
    let own = format!("{}.", std::process::id());
    // Signals are those of the program: no thread may take them.
    let mut before = SigSet::empty();
    pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&SigSet::all()), Some(&mut before))
        .map_err(Error::errno("block signals"))?;
    let spawned = thread::Builder::new().name("time window".to_owned()).spawn(move || {
        let mut was_open = true;
        loop {
            thread::sleep(PERIOD);
            let is_open = window.is_open();
            if is_open != was_open && change(&own, is_open) {
                was_open = is_open;
            }
        }
    });
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None)
        .map_err(Error::errno("unblock signals"))?;
    spawned.map(|_| ()).map_err(Error::io("start a thread"))
}

/// Whether the background was paused or resumed. There is none before the program starts.
fn change(own: &str, is_open: bool) -> bool {
    let jobs = jobs().unwrap_or_default();
    let Some(job) = jobs.iter().find(|job| job.id.starts_with(own)) else { return false };
    let changed = if is_open { resume(&job.id) } else { pause(&job.id) };
    changed.is_ok()
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
    fn minute_of_day_is_within_the_day() {
        assert!(sys::minute_of_day() < DAY);
    }
}
