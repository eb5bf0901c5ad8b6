//! Trials in real time, on a machine that may share its processors with others.

use std::env;
use std::fs::{self, File};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;
use std::time::{Duration, Instant};

/// A hypervisor that takes more than this part of the processors' time leaves a trial in doubt, as in
/// `lull lab run`.
const MOST_STOLEN: f64 = 0.005;
/// Trials at most.
const TRIALS: u32 = 5;
/// How long a quiet second is waited for before another.
const PATIENCE: Duration = Duration::from_secs(30);

/// Makes a trial in real time. If it fails, and a hypervisor took the processors away meanwhile, that
/// says nothing of the program: it is made again when they are back, five times at most. The trials of
/// all test programs take turns, so that none disturbs another one; a trial makes none itself.
///
/// # Panics
/// As the trial did, if it had the processors, or was the last one.
pub fn undisturbed<T>(mut trial: impl FnMut() -> T) -> T {
    let _turn = turn();
    for _ in 1..TRIALS {
        let before = Taken::now();
        let failure = match catch_unwind(AssertUnwindSafe(&mut trial)) {
            Ok(result) => return result,
            Err(failure) => failure,
        };
        let stolen = Taken::now().since(before);
        if stolen <= MOST_STOLEN {
            resume_unwind(failure);
        }
        eprintln!("a hypervisor took {:.1} % of the processors: once more", stolen * 100.0);
        wait_for_quiet();
    }
    trial()
}

/// One trial at a time among all test programs that were built into the same folder, until it is dropped, or
/// its process ends.
fn turn() -> File {
    let program = env::current_exe().expect("a test has a program");
    let folder = File::open(program.parent().expect("a program is in a folder"))
        .expect("a folder that can be read");
    folder.lock().expect("a lock on a folder");
    folder
}

fn wait_for_quiet() {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        let before = Taken::now();
        thread::sleep(Duration::from_secs(1));
        if Taken::now().since(before) <= MOST_STOLEN {
            return;
        }
    }
}

/// What all processors have counted, in ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Taken {
    all: f64,
    stolen: f64,
}

impl Taken {
    /// Nothing where there is no such count.
    fn now() -> Self {
        Self::from_stat(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    fn from_stat(stat: &str) -> Self {
        // proc(5): user, nice, system, idle, iowait, irq, softirq, steal; guests are in the first two.
        let line = stat.lines().next().unwrap_or_default();
        let ticks = line.split_whitespace().skip(1).take(8).filter_map(|one| one.parse().ok());
        let ticks: Vec<f64> = ticks.collect();
        Taken { all: ticks.iter().sum(), stolen: ticks.get(7).copied().unwrap_or(0.0) }
    }

    /// The part of the processors' time that was stolen.
    fn since(self, before: Self) -> f64 {
        (self.stolen - before.stolen) / (self.all - before.all).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    #[should_panic(expected = "the program's own")]
    fn what_fails_with_all_processors_fails() {
        // Where they are taken at that very moment it fails as well, later.
        undisturbed(|| panic!("the program's own"));
    }

    #[test]
    fn trials_take_turns() {
        let inside = AtomicU32::new(0);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    undisturbed(|| {
                        assert_eq!(
                            inside.fetch_add(1, Ordering::SeqCst),
                            0,
                            "another trial goes on"
                        );
                        thread::sleep(Duration::from_millis(20));
                        inside.fetch_sub(1, Ordering::SeqCst);
                    });
                });
            }
        });
    }

    #[test]
    fn what_was_stolen_is_a_part_of_all_ticks() {
        let before = Taken::from_stat("cpu  100 0 50 800 0 0 10 40 7 0\ncpu0 1 2 3\n");
        assert_eq!(before, Taken { all: 1000.0, stolen: 40.0 });
        let after = Taken::from_stat("cpu  150 0 50 890 0 0 10 100 7 0\n");
        assert_eq!(after.since(before), 0.3);
        assert_eq!(Taken::from_stat("").since(before).max(0.0), 0.0);
    }
}
