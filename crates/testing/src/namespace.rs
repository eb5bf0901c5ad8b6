//! Namespaces for tests that compare the state of the machine before and after.

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// Moves the calling thread, and all processes that it starts from now on, into new mount and network
/// namespaces, with an empty `/run`. Other tests make mounts, devices and named network namespaces at any
/// time; none of them is visible there. Read `/proc/thread-self`, not `/proc/self`, which is the main thread.
///
/// Needs [`root()`](crate::root).
///
/// # Panics
/// If the kernel refuses.
pub fn enter_own_namespaces() {
    const NONE: Option<&str> = None;
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET).expect("root may unshare");
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE)
        .expect("mounts can be made private");
    mount(Some("tmpfs"), "/run", Some("tmpfs"), MsFlags::empty(), NONE)
        .expect("a tmpfs can be mounted");
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::root;

    #[test]
    fn own_namespaces_hide_other_devices_and_mounts() {
        crate::needs!(root());
        let before = fs::read_to_string("/proc/thread-self/mounts").unwrap();
        enter_own_namespaces();
        let devices = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        // Two lines of headings and `lo`.
        assert_eq!(devices.lines().count(), 3, "{devices}");
        assert_eq!(fs::read_dir("/run").unwrap().count(), 0);
        let after = fs::read_to_string("/proc/thread-self/mounts").unwrap();
        assert_eq!(after.lines().count(), before.lines().count() + 1, "{after}");
    }
}
