//! The traffic of other connections of this host: a program at the root cgroup that writes it to the table of
//! paths.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use libbpf_rs::Link;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use crate::cgroup::Hierarchy;
use crate::error::{Error, Result};
use crate::skeletons::foreground::ForegroundSkelBuilder;

/// Attaches the program to the root cgroup while the returned link exists. `congestion` is the registered
/// name of the congestion control, the others are its maps.
pub(crate) fn watch(
    congestion: &str,
    sockets: BorrowedFd<'_>,
    paths: BorrowedFd<'_>,
) -> Result<Link> {
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
    let loaded = open.load().map_err(Error::bpf(what))?;
    let program = &loaded.progs.lull_foreground;
    program.attach_cgroup(hierarchy.root().as_raw_fd()).map_err(Error::bpf(what))
}
