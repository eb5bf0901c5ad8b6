//! Sockets that leave a background.
//!
//! A socket runs the hooks of the cgroup that it was made in, for life: they put their own congestion
//! control in the place of every other. So the hooks ask a map whether the socket was released.

use std::os::fd::{AsRawFd, BorrowedFd};

use libbpf_rs::query::MapInfoIter;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

/// The name of the map in `bpf/exec.bpf.c`.
const NAME: &str = "lull_released";

/// The maps of all backgrounds, also of those whose cgroup is gone while a socket keeps them.
#[derive(Debug)]
pub(crate) struct Releases(Vec<MapHandle>);

impl Releases {
    /// Finds them. Those that other programs have removed meanwhile are left out.
    pub(crate) fn find() -> Self {
        let ours = MapInfoIter::default()
            .filter(|map| map.ty == MapType::SkStorage && map.name == NAME)
            .filter_map(|map| MapHandle::from_map_id(map.id).ok());
        Releases(ours.collect())
    }

    /// Releases a socket from all of them: which one it belongs to, the kernel does not say.
    pub(crate) fn release(&self, socket: BorrowedFd<'_>) {
        for map in &self.0 {
            let key = socket.as_raw_fd().to_ne_bytes();
            // Without room for it the socket stays what it is, which is read back.
            let _ = map.update(&key, &1u32.to_ne_bytes(), MapFlags::ANY);
        }
    }
}
