//! A cell's process: it ends with the runner, and its children end with it.

use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;

use super::processor::Tasks;
use lull_emulator::{Container, Signals, contain};

/// The environment of a cell.
#[derive(Debug)]
pub struct CellEnvironment<'a> {
    pub(super) container: Option<&'a Container>,
    pub(super) tasks: Option<Tasks>,
    /// Paths that stay visible to the cell.
    pub(super) needed: Vec<PathBuf>,
}

impl CellEnvironment<'_> {
    /// A shared process, for tests: files of programs are in the system's temporary folder.
    pub fn shared() -> Self {
        CellEnvironment { container: None, tasks: Tasks::open().ok(), needed: Vec::new() }
    }
}

/// Ends this process when the thread that started it ends. If the kernel refuses, it runs until its work is
/// done.
pub fn end_with_parent_thread() {
    let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
}

/// Runs `work` in a process whose children end with it, and that ends with the thread that started this one.
/// Returns its exit code. `needed` are the paths that `work` uses besides this program and its working
/// directory: a cell covers none of them with its own files.
///
/// # Errors
/// The errors of [`contain`]: the machine refuses, or this process has threads already.
pub fn alone(
    needed: &[&Path],
    work: impl FnOnce(&CellEnvironment<'_>) -> u8,
) -> Result<u8, lull_emulator::Error> {
    end_with_parent_thread();
    // Without them, a cell counts only its own time.
    let tasks = Tasks::open().ok();
    let needed = needed.iter().map(|path| path.to_path_buf()).collect();
    // Neither a cell nor the demo handles signals: their measurements until then are incomplete.
    contain(Signals::End, |container| {
        work(&CellEnvironment { container: Some(container), tasks, needed })
    })
}
