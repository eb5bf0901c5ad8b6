//! The processor time of this process.

use std::fs;
use std::io;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use super::SpeedError;

/// Time of the processor since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spent {
    /// All threads.
    pub(super) all: Duration,
    /// That of threads with this name.
    pub(super) named: Duration,
}

impl Spent {
    /// The time spent so far, by all threads and by those of a name, which all still run.
    pub(super) fn of(name: &str) -> Result<Self, SpeedError> {
        let system = |error: nix::Error| SpeedError::System(error.into());
        let all = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map_err(system)?;
        let named = named(name).map_err(SpeedError::System)?;
        Ok(Spent { all: all.into(), named })
    }

    /// The time spent since then.
    pub(super) fn since(self, earlier: Self) -> Self {
        Spent {
            all: self.all.saturating_sub(earlier.all),
            named: self.named.saturating_sub(earlier.named),
        }
    }

    /// That of threads with other names.
    pub(super) fn others(self) -> Duration {
        self.all.saturating_sub(self.named)
    }
}

fn named(name: &str) -> io::Result<Duration> {
    let mut spent = Duration::ZERO;
    for task in fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        // Threads of other owners end at any time.
        let Ok(own) = fs::read_to_string(task.join("comm")) else { continue };
        if own.trim_end() == name {
            let text = fs::read_to_string(task.join("schedstat"))?;
            let nanos = text.split_whitespace().next().and_then(|word| word.parse().ok());
            spent += nanos.map(Duration::from_nanos).ok_or(io::ErrorKind::InvalidData)?;
        }
    }
    Ok(spent)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread::Builder;
    use std::time::Instant;

    use super::*;

    #[test]
    fn processor_time_of_a_named_thread_is_separate() {
        let before = Spent::of("a-name").unwrap();
        let (done, busy) = channel();
        let (end, wait) = channel::<()>();
        let work = move || {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(50) {}
            done.send(()).unwrap();
            let _ = wait.recv();
        };
        let thread = Builder::new().name("a-name".to_owned()).spawn(work).unwrap();
        busy.recv().unwrap();
        let spent = Spent::of("a-name").unwrap().since(before);
        drop(end);
        thread.join().unwrap();
        // On a busy machine it may have had less time than the clock shows.
        assert!(spent.named > Duration::ZERO && spent.named <= spent.all, "{spent:?}");
        assert_eq!(spent.others() + spent.named, spent.all);
    }
}
