//! What `/proc` tells of a process.

use std::fmt::Display;
use std::fs;

/// The parent of a process, `self` or a number, if it is in our namespace of processes.
pub(crate) fn parent(process: impl Display) -> Option<i32> {
    parent_in(&fs::read_to_string(format!("/proc/{process}/status")).ok()?)
}

fn parent_in(status: &str) -> Option<i32> {
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    parent.trim().parse().ok().filter(|&parent| parent != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_is_one_that_we_can_name() {
        assert_eq!(parent_in("Name:\tsh\nPid:\t7\nPPid:\t12\nTracerPid:\t3\n"), Some(12));
        assert_eq!(parent_in("Name:\tsystemd\nPid:\t1\nPPid:\t0\n"), None);
        assert_eq!(parent_in(""), None);
        assert_eq!(parent("self"), Some(std::os::unix::process::parent_id() as i32));
    }
}
