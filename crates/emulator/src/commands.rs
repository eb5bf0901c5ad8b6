//! Commands of other threads to the emulator's thread.

use std::collections::VecDeque;
use std::sync::mpsc::Sender;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Error;
use super::statistics::{FlowKey, WindowTally};

/// A command of another thread to the emulator's thread.
#[derive(Debug)]
pub(super) enum Command {
    /// The current window, and the flows that it names by number.
    Snapshot(Sender<(WindowTally, Vec<FlowKey>)>),
    /// End the window and begin one of this name.
    Mark(String, Sender<()>),
    /// Unplug the cable of the host of this number, or plug it in again.
    Cut(usize, bool, Sender<()>),
    /// End the thread.
    Stop,
}

/// Commands in transit from other threads to the emulator's.
///
/// They are behind a lock, on which that thread sleeps. Rust's channels do not sleep: a receiver that finds a
/// send in progress spins until it is complete, and takes the processor that the sender may be waiting for.
#[derive(Debug)]
pub(super) struct Commands(Mutex<Waiting>);

#[derive(Debug)]
struct Waiting {
    commands: VecDeque<Command>,
    is_open: bool,
}

impl Commands {
    pub(super) fn new() -> Self {
        Commands(Mutex::new(Waiting { commands: VecDeque::new(), is_open: true }))
    }

    /// Sends a command.
    ///
    /// # Errors
    /// [`Error::Stopped`] if the receiver has ended.
    pub(super) fn ask(&self, command: Command) -> Result<(), Error> {
        let mut waiting = self.lock();
        if !waiting.is_open {
            return Err(Error::Stopped);
        }
        waiting.commands.push_back(command);
        Ok(())
    }

    /// The oldest command.
    pub(super) fn take(&self) -> Option<Command> {
        self.lock().commands.pop_front()
    }

    /// For the thread that takes commands: a caller without an answer at its end gets an error.
    pub(super) fn accept_commands(&self) -> CommandsGuard<'_> {
        CommandsGuard(self)
    }

    /// A thread that panicked while holding the lock has left no partial changes.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// While this exists, commands are accepted.
pub(super) struct CommandsGuard<'a>(&'a Commands);

impl Drop for CommandsGuard<'_> {
    fn drop(&mut self) {
        let mut waiting = self.0.lock();
        waiting.is_open = false;
        // This tells callers that wait for an answer that none will come.
        waiting.commands.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::{Duration, Instant};

    use lull_testing::{bound, needs, root};
    use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
    use nix::unistd::Pid;

    use super::super::sys;
    use super::*;

    #[test]
    fn commands_are_answered_in_order() {
        let commands = Commands::new();
        let hearing = commands.accept_commands();
        let (answer, answered) = channel();
        commands.ask(Command::Mark("a".into(), answer.clone())).unwrap();
        commands.ask(Command::Mark("b".into(), answer)).unwrap();
        assert!(matches!(commands.take(), Some(Command::Mark(name, _)) if name == "a"));
        drop(hearing);
        assert!(answered.recv().is_err());
        assert!(matches!(commands.ask(Command::Stop), Err(Error::Stopped)));
        assert!(commands.take().is_none());
    }

    /// With a channel instead of the lock, and a thread with priority over all others (`SCHED_RR`), the
    /// longest of 20 s took 1.02 s.
    #[test]
    fn command_from_the_same_processor_does_not_block_it() {
        needs!(root());
        let mine = sched_getaffinity(Pid::from_raw(0)).unwrap();
        let mut one = CpuSet::new();
        one.set((0..CpuSet::count()).find(|&at| mine.is_set(at).unwrap()).unwrap()).unwrap();
        sched_setaffinity(Pid::from_raw(0), &one).unwrap();
        let commands = Commands::new();
        let (answer, _answered) = channel();
        let begun = Instant::now();
        let goes_on = || begun.elapsed() < Duration::from_secs(4);
        let longest = thread::scope(|scope| {
            let taking = scope.spawn(|| {
                sys::set_short_slice();
                let mut longest = Duration::ZERO;
                while goes_on() {
                    thread::sleep(Duration::from_micros(60));
                    let before = Instant::now();
                    while commands.take().is_some() {}
                    longest = longest.max(before.elapsed());
                }
                longest
            });
            while goes_on() {
                commands.ask(Command::Mark(String::new(), answer.clone())).unwrap();
            }
            taking.join().unwrap()
        });
        // On a busy machine a thread may also wait to be scheduled.
        assert!(longest < bound(Duration::from_secs(4), Duration::from_millis(500)), "{longest:?}");
    }
}
