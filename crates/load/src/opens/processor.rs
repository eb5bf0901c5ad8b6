//! All threads of this process on one processor.

use std::{fs, io};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use lull_emulator::provenance::processors;

/// Until this is dropped, all threads of the process, and its children, stay on one of the allowed
/// processors.
#[derive(Debug)]
pub struct OneProcessor {
    before: CpuSet,
}

impl OneProcessor {
    /// Moves them there: to the last one, as the first handles more interrupts.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn pin() -> io::Result<Self> {
        let before = sched_getaffinity(Pid::from_raw(0))?;
        let mut one = CpuSet::new();
        one.set(*processors().last().ok_or(io::ErrorKind::NotFound)?)?;
        put(&one)?;
        Ok(OneProcessor { before })
    }
}

impl Drop for OneProcessor {
    fn drop(&mut self) {
        // If that is not permitted, they stay there.
        let _ = put(&self.before);
    }
}

fn put(processors: &CpuSet) -> io::Result<()> {
    for thread in fs::read_dir("/proc/self/task")? {
        let name = thread?.file_name();
        let Some(number) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        match sched_setaffinity(Pid::from_raw(number), processors) {
            // It has ended meanwhile.
            Ok(()) | Err(nix::Error::ESRCH) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
