//! The mark of a cgroup that [`prepare_slice`](crate::prepare_slice) has put into the background, by which `lull jobs`
//! finds it. It disappears with the cgroup.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use crate::cgroup::{Background, Hierarchy, children};
use crate::error::{Error, Result};
use crate::sys;

/// The attribute of a cgroup that holds the congestion control of its connections.
const MARK: &std::ffi::CStr = c"user.lull.slice";

/// Deeper trees contain no slice.
const DEEPEST: usize = 16;

/// Marks a cgroup as a slice in the background.
pub(crate) fn mark(cgroup: &File, congestion: &str) -> Result<()> {
    sys::set_attribute(cgroup.as_fd(), MARK, congestion.as_bytes())
        .map_err(Error::io("write the mark of a slice to its cgroup"))
}

/// The marked cgroups. The id of each is its name in `/proc/PID/cgroup`.
pub(crate) fn slices(hierarchy: &Hierarchy) -> Vec<Background> {
    let mut found = Vec::new();
    let top = hierarchy.top();
    find(&hierarchy.path_of(top), top, DEEPEST, &mut found);
    found
}

fn find(directory: &Path, called: &Path, depth: usize, found: &mut Vec<Background>) {
    if let Some(congestion) = marked(directory) {
        let id = called.to_string_lossy().into_owned();
        found.push(Background { called: called.to_owned(), congestion, id });
    }
    if depth == 0 {
        return;
    }
    for child in children(directory) {
        let Some(name) = child.file_name().map(PathBuf::from) else { continue };
        find(&child, &called.join(name), depth - 1, found);
    }
}

fn marked(directory: &Path) -> Option<String> {
    let value = sys::attribute(File::open(directory).ok()?.as_fd(), MARK).ok()?;
    String::from_utf8(value).ok()
}
