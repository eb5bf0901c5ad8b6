//! The folder of a run.

use std::fs;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};

use super::TortureError;

fn system(what: &'static str) -> impl Fn(std::io::Error) -> TortureError {
    move |source| TortureError::System { what, source }
}

/// A folder in memory that is only visible here, and disappears with this process.
#[derive(Debug)]
pub(super) struct PrivateFolder(PathBuf);

impl PrivateFolder {
    /// Covers a folder that every machine has, and that does not contain the program.
    pub(super) fn cover(program: &Path) -> Result<Self, TortureError> {
        let candidates = ["/mnt", "/srv", "/media", "/opt"].map(Path::new);
        let found = candidates.into_iter().find(|one| one.is_dir() && !program.starts_with(one));
        let folder =
            found.ok_or(std::io::ErrorKind::NotFound.into()).map_err(system("finding /mnt"))?;
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(Some("lull-lab"), folder, Some("tmpfs"), flags, None::<&str>)
            .map_err(|error| system("covering a folder")(error.into()))?;
        Ok(PrivateFolder(folder.to_owned()))
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(super) fn folder(&self, name: &str) -> Result<PathBuf, TortureError> {
        let path = self.path(name);
        fs::create_dir(&path).map_err(system("making a folder"))?;
        Ok(path)
    }

    pub(super) fn text(&self, name: &str) -> String {
        self.path(name).to_string_lossy().into_owned()
    }
}
