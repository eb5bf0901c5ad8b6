//! The information of `/proc` about a process.

use std::fmt::Display;
use std::fs;
use std::iter;

/// Follows the name of a removed cgroup, while one of its processes has not been waited for.
const REMOVED: &str = " (deleted)";

/// The parent of a process, `self` or an id, if it is in this PID namespace.
pub(crate) fn parent(process: impl Display) -> Option<i32> {
    parent_in(&fs::read_to_string(format!("/proc/{process}/status")).ok()?)
}

fn parent_in(status: &str) -> Option<i32> {
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    parent.trim().parse().ok().filter(|&parent| parent != 0)
}

/// Whether a process descends from another, by parents that still run.
pub(crate) fn descends(process: i32, from: i32) -> bool {
    iter::successors(parent(process), |&ancestor| parent(ancestor)).any(|ancestor| ancestor == from)
}

/// The v2 cgroup of a process, whether it was removed meanwhile or not.
pub(crate) fn cgroup_of(process: i32) -> Option<String> {
    cgroup_in(&fs::read_to_string(format!("/proc/{process}/cgroup")).ok()?)
}

fn cgroup_in(text: &str) -> Option<String> {
    let cgroup = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(cgroup.strip_suffix(REMOVED).unwrap_or(cgroup).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_cgroup_keeps_its_name() {
        assert_eq!(cgroup_in("4:memory:/a\n0::/b.slice/c\n").as_deref(), Some("/b.slice/c"));
        assert_eq!(cgroup_in("0::/b/c 1.scope (deleted)\n").as_deref(), Some("/b/c 1.scope"));
        assert_eq!(cgroup_in("4:memory:/a\n"), None);
    }

    #[test]
    fn process_descends_from_its_parent_and_not_itself() {
        let own = std::process::id() as i32;
        assert!(descends(own, std::os::unix::process::parent_id() as i32));
        assert!(!descends(own, own));
    }

    #[test]
    fn parent_is_a_process_with_a_name() {
        assert_eq!(parent_in("Name:\tsh\nPid:\t7\nPPid:\t12\nTracerPid:\t3\n"), Some(12));
        assert_eq!(parent_in("Name:\tsystemd\nPid:\t1\nPPid:\t0\n"), None);
        assert_eq!(parent_in(""), None);
        assert_eq!(parent("self"), Some(std::os::unix::process::parent_id() as i32));
    }
}
