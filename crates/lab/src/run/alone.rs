//! A cell's process: what it starts ends with it, and it ends with the runner.

use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;

use super::processor::Tasks;
use lull_emulator::{Container, Signals, contain};

/// Where a cell runs.
#[derive(Debug)]
pub struct Surroundings<'a> {
    pub(super) container: Option<&'a Container>,
    pub(super) tasks: Option<Tasks>,
    /// Places that stay in sight of the cell.
    pub(super) needed: Vec<PathBuf>,
}

impl Surroundings<'_> {
    /// A process that it shares with others, for tests: files of programs go under the system's
    /// folder for such things.
    pub fn shared() -> Self {
        Surroundings { container: None, tasks: Tasks::open().ok(), needed: Vec::new() }
    }
}

/// Ends this process when the thread that started it does. Where the kernel refuses, it lives on until
/// its work is done.
pub fn end_with_runner() {
    let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
}

/// Runs `work` in a process that takes everything with it when it ends, and that ends with the
/// thread that started this one; returns its exit code. `needed` are the places that `work` uses
/// besides this program and its working directory: a cell covers none of them with its own files.
///
/// # Errors
/// Those of [`contain`]: the machine refuses, or this process has threads already.
pub fn alone(
    needed: &[&Path],
    work: impl FnOnce(&Surroundings<'_>) -> u8,
) -> Result<u8, lull_emulator::Error> {
    end_with_runner();
    // Without them a cell counts its own time only.
    let tasks = Tasks::open().ok();
    let needed = needed.iter().map(|path| path.to_path_buf()).collect();
    // Neither a cell nor the demo answers signals: what they measured until then is no measurement.
    contain(Signals::End, |container| {
        work(&Surroundings { container: Some(container), tasks, needed })
    })
}
