//! The traffic of other connections of this host: programs at the root cgroup that write it to the tables of
//! paths.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, ProgramMut};

use crate::cgroup::Hierarchy;
use crate::error::{Error, Result};
use crate::receive;
use crate::skeletons::foreground::ForegroundSkelBuilder;

/// The programs are attached to the root cgroup while these exist.
pub(crate) struct ForegroundLinks {
    /// For what the host sends.
    pub(crate) sent: Link,
    /// For what it receives.
    pub(crate) received: Link,
}

/// Attaches the programs. `congestion` is the registered name of the congestion control, the others are its maps.
/// Downloads have one table of paths for all congestion controls.
pub(crate) fn watch(
    congestion: &str,
    sockets: BorrowedFd<'_>,
    paths: BorrowedFd<'_>,
) -> Result<ForegroundLinks> {
    let what = "watch the foreground";
    let hierarchy = Hierarchy::open()?;
    let mut object = MaybeUninit::uninit();
    let mut open = ForegroundSkelBuilder::default().open(&mut object).map_err(Error::bpf(what))?;
    let rodata = open.maps.rodata_data.as_deref_mut().expect("the program has constants");
    rodata.congestion.fill(0);
    for (to, &from) in rodata.congestion.iter_mut().zip(congestion.as_bytes()) {
        *to = from as _;
    }
    open.maps.sockets.reuse_fd(sockets).map_err(Error::bpf(what))?;
    open.maps.paths.reuse_fd(paths).map_err(Error::bpf(what))?;
    if let Some(paths) = receive::shared_paths(&open.maps.receive_paths) {
        open.maps.receive_paths.reuse_fd(paths.as_fd()).map_err(Error::bpf(what))?;
    }
    let loaded = open.load().map_err(Error::bpf(what))?;
    let attach = |program: &ProgramMut<'_>| {
        program.attach_cgroup(hierarchy.root().as_raw_fd()).map_err(Error::bpf(what))
    };
    let (sent, received) = (&loaded.progs.lull_foreground, &loaded.progs.lull_foreground_received);
    Ok(ForegroundLinks { sent: attach(sent)?, received: attach(received)? })
}
