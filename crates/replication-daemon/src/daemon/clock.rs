//! The clocks of a machine, and those of a test.

use core::fmt;
use core::time::Duration;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use lull_replication::time::{LocalTime, Reading, WallTime};
use nix::time::{ClockId, clock_gettime};
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

/// The clock of a daemon.
pub trait Clock: fmt::Debug + Send + Sync {
    /// The present time of both clocks.
    fn read(&self) -> Reading;
}

/// The machine's own: `CLOCK_BOOTTIME`, which continues while the machine sleeps, and the wall clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct MachineClock;

impl Clock for MachineClock {
    #[expect(clippy::disallowed_methods, reason = "the one place where the daemons read the time")]
    fn read(&self) -> Reading {
        let booted = clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from);
        let booted = booted.expect("Linux has this clock since 2.6.39");
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let nanos = |of: Duration| i64::try_from(of.as_nanos()).unwrap_or(i64::MAX);
        Reading {
            local: LocalTime::from_nanos(nanos(booted)),
            wall: WallTime::from_nanos(nanos(wall)),
        }
    }
}

/// The machine's clocks, modified by a file: a lab gives each process of one machine its own clocks with it.
///
/// The file has two integers of 64 bits, little-endian. The first is the number of nanoseconds by which the
/// wall clock is ahead, and is read each time. The second is the parts per million by which both clocks run
/// fast, and is read once.
#[derive(Debug)]
pub struct SkewedClock {
    file: File,
    begun: Reading,
    parts_per_million: i64,
}

impl SkewedClock {
    /// The clocks described by the file.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn open(path: &FilePath) -> io::Result<Self> {
        let file = File::open(path)?;
        let mut said = [0; 16];
        file.read_exact_at(&mut said, 0)?;
        let [_, rate] = integers(said);
        Ok(SkewedClock { file, begun: MachineClock.read(), parts_per_million: rate })
    }

    fn ahead(&self) -> i64 {
        let mut said = [0; 16];
        // Without the file the clock is unmodified.
        self.file.read_exact_at(&mut said, 0).map_or(0, |()| integers(said)[0])
    }
}

fn integers(bytes: [u8; 16]) -> [i64; 2] {
    let whole = u128::from_le_bytes(bytes);
    [whole as u64, (whole >> 64) as u64].map(u64::cast_signed)
}

impl Clock for SkewedClock {
    fn read(&self) -> Reading {
        let Reading { local, wall } = MachineClock.read();
        let passed = i128::try_from(local.since(self.begun.local).as_nanos()).unwrap_or(0);
        let gained = passed * i128::from(self.parts_per_million) / 1_000_000;
        let gained = i64::try_from(gained).unwrap_or(0);
        Reading {
            local: LocalTime::from_nanos(local.as_nanos().saturating_add(gained)),
            wall: WallTime::from_nanos(
                wall.as_nanos().saturating_add(gained).saturating_add(self.ahead()),
            ),
        }
    }
}

/// The time for the validation of certificates.
#[derive(Debug)]
struct CertificateTime(Arc<dyn Clock>);

impl TimeProvider for CertificateTime {
    fn current_time(&self) -> Option<UnixTime> {
        let nanos = u64::try_from(self.0.read().wall.as_nanos()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_nanos(nanos)))
    }
}

pub(crate) fn certificate_time(clock: &Arc<dyn Clock>) -> Arc<dyn TimeProvider> {
    Arc::new(CertificateTime(Arc::clone(clock)))
}

/// Waits until the clock shows `at`, or for ever without it. Timers run by a clock that may stop during a
/// suspend, so callers check the time themselves.
pub(super) async fn until(clock: &dyn Clock, at: Option<LocalTime>) {
    /// Shortest time before a state machine that asks to be called at once is called again.
    const MIN_PAUSE: Duration = Duration::from_millis(1);
    match at {
        Some(at) => tokio::time::sleep(at.since(clock.read().local).max(MIN_PAUSE)).await,
        None => core::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::{env, fs};

    use lull_testing::{Missing, command, needs, root};

    use super::*;

    /// A kernel that gives processes their own clocks.
    fn time_namespaces() -> Result<(), Missing> {
        let there = FilePath::new("/proc/self/timens_offsets").exists();
        if there { Ok(()) } else { Err(Missing::new("no time namespaces: CONFIG_TIME_NS")) }
    }

    #[test]
    fn intervals_use_the_clock_that_counts_suspend() {
        /// Set in the process with other clocks.
        const INSIDE: &str = "LULL_REPLICATE_SLEPT";
        const SLEPT: u64 = 10_000_000;
        if env::var_os(INSIDE).is_some() {
            let shown = MachineClock.read().local.as_nanos() as f64 / 1e9;
            let uptime = fs::read_to_string("/proc/uptime").unwrap();
            let uptime: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
            assert!(uptime > SLEPT as f64, "{uptime} s: no other clocks");
            assert!((shown - uptime).abs() < 10.0, "{shown} s, and {uptime} s with sleep");
            return;
        }
        needs!(root(), command("unshare"), time_namespaces());
        let mut inside = Command::new("unshare");
        inside.args(["--time", "--fork", "--boottime", &SLEPT.to_string()]);
        inside
            .arg(env::current_exe().unwrap())
            .args(["--exact", "daemon::clock::tests::intervals_use_the_clock_that_counts_suspend"]);
        let output = inside.env(INSIDE, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }

    #[test]
    fn skewed_clock_has_the_offset_and_rate_of_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("clock");
        let write = |ahead: i64, rate: i64| {
            fs::write(&path, [ahead.to_le_bytes(), rate.to_le_bytes()].concat()).unwrap();
        };
        assert!(SkewedClock::open(&path).is_err());
        write(-3_000_000_000, 0);
        let clock = SkewedClock::open(&path).unwrap();
        let before = MachineClock.read();
        let shown = clock.read();
        let after = MachineClock.read();
        assert!((before.local..=after.local).contains(&shown.local));
        let behind = Duration::from_secs(3);
        assert!((before.wall.minus(behind)..=after.wall.minus(behind)).contains(&shown.wall));
        write(5_000_000_000, 0);
        assert!(clock.read().wall >= after.wall.plus(Duration::from_secs(5)));

        // Ten times as fast.
        write(0, 9_000_000);
        let begun = MachineClock.read();
        let clock = SkewedClock::open(&path).unwrap();
        let first = clock.read().local;
        std::thread::sleep(Duration::from_millis(20));
        let last = clock.read().local;
        assert!(last.since(first) >= Duration::from_millis(200));
        assert!(last.since(first) <= MachineClock.read().local.since(begun.local) * 10);
    }
}
