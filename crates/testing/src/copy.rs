//! Programs that other users may run.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A copy of a program, under its own name, that every user may read and run. It is removed when this is
/// dropped.
#[derive(Debug)]
pub struct PublicCopy {
    folder: TempDir,
    program: PathBuf,
}

impl PublicCopy {
    /// Copies `program`.
    ///
    /// # Panics
    /// If it cannot be copied.
    pub fn of(program: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join(program.file_name().unwrap_or(OsStr::new("program")));
        // A separate process writes it. A file that this process has open for writing is also open in a child
        // that another thread starts meanwhile, until the child calls exec. For that time, the kernel refuses
        // to run the file as busy.
        let status = Command::new("cp").arg(program).arg(&copy).status().unwrap();
        assert!(status.success(), "cp: {status}");
        for path in [folder.path(), &copy] {
            fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
        }
        PublicCopy { folder, program: copy }
    }

    /// The copy.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The folder that contains only the copy.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn copied_program_runs_while_others_start() {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let copy = PublicCopy::of(Path::new("/bin/true"));
                        assert!(Command::new(copy.program()).status().unwrap().success());
                        let folder = copy.folder().to_owned();
                        drop(copy);
                        assert!(!folder.exists());
                    }
                });
            }
        });
    }
}
