//! Sockets that leave a background.
//!
//! A socket permanently runs the hooks of the cgroup in which it was made: they replace every other
//! congestion control by their own. So the hooks look up in a map whether the socket was released.

use std::os::fd::{AsRawFd, BorrowedFd};

use libbpf_rs::query::MapInfoIter;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

/// The name of the map in `bpf/exec.bpf.c`.
const NAME: &str = "lull_released";

/// The maps of all backgrounds, including those whose cgroup is gone while a socket keeps them.
#[derive(Debug)]
pub(crate) struct Releases(Vec<MapHandle>);

impl Releases {
    /// Finds them, without those that other processes have removed meanwhile.
    pub(crate) fn find() -> Self {
        let ours = MapInfoIter::default()
            .filter(|map| map.ty == MapType::SkStorage && map.name == NAME)
            .filter_map(|map| MapHandle::from_map_id(map.id).ok());
        Releases(ours.collect())
    }

    /// Releases a socket from all of them: the kernel does not show to which one it belongs.
    pub(crate) fn release(&self, socket: BorrowedFd<'_>) {
        for map in &self.0 {
            let key = socket.as_raw_fd().to_ne_bytes();
            // Without space for it the socket stays unchanged, which is read back.
            let _ = map.update(&key, &1u32.to_ne_bytes(), MapFlags::ANY);
        }
    }
}
