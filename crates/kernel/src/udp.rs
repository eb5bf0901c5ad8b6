//! UDP uploads of a background's processes yield: `bpf/udp.bpf.c`.

mod control;
mod echo;
mod table;

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use control::Control;
use libbpf_rs::libbpf_sys::bpf_attach_type;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapHandle, ProgramAttachType};
use serde::Serialize;
pub use table::UdpSample;
pub(crate) use table::{read_counters, samples};

use crate::attach::attach_beside_others;
use crate::error::{Error, Result};
use crate::skeletons::udp::UdpSkelBuilder;

/// The treatment of UDP packets that a background sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Udp {
    /// They are counted.
    #[default]
    Pass,
    /// They yield: packets above the rate that the path allows are marked or dropped.
    Yield,
}

/// UDP packets that a background has sent while they yielded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UdpTraffic {
    /// Bytes that have left, with headers from IP on.
    pub bytes: u64,
    /// Packets that have left with the mark Congestion Experienced.
    pub marked: u64,
    /// Packets that were dropped.
    pub dropped: u64,
    /// Packets that left at any rate, because the table of paths was full.
    pub uncontrolled: u64,
    /// Networks that answered no echo requests.
    pub unanswered: u64,
    /// Networks that were used from another network namespace.
    pub other_namespaces: u64,
}

/// The virtual queues of a background. They keep their last allowance for two seconds after this is dropped, and then
/// allow what they allow without measurements.
pub(crate) struct Yielding {
    control: Control,
    counters: MapHandle,
}

impl Yielding {
    /// The traffic so far.
    pub(crate) fn traffic(&self) -> Result<UdpTraffic> {
        Ok(UdpTraffic {
            unanswered: self.control.unanswered(),
            other_namespaces: self.control.other_namespaces(),
            ..read_counters(&self.counters)?
        })
    }
}

/// Makes UDP uploads of the processes of a cgroup yield. `sockets` is the pinned map of sockets of `lull`, if that is
/// loaded.
///
/// # Errors
/// If the kernel rejects the program, or this process may not send echo requests.
pub(crate) fn yield_udp(cgroup: BorrowedFd<'_>, sockets: Option<&Path>) -> Result<Yielding> {
    let what = "load the program for UDP";
    let mut object = MaybeUninit::uninit();
    let mut open = UdpSkelBuilder::default().open(&mut object).map_err(Error::bpf(what))?;
    if let Some(path) = sockets {
        let pinned = MapHandle::from_pinned_path(path).map_err(Error::bpf(what))?;
        open.maps.sockets.reuse_fd(pinned.as_fd()).map_err(Error::bpf(what))?;
        let rodata = open.maps.rodata_data.as_deref_mut().expect("the program has constants");
        rodata.is_sharing_paths = true;
    }
    let loaded = open.load().map_err(Error::bpf(what))?;
    let maps = &loaded.maps;
    let handle = |map| MapHandle::try_from(map).map_err(Error::bpf(what));
    let tables = table::Tables {
        paths: handle(&maps.udp_paths)?,
        allowances: handle(&maps.udp_allowances)?,
        wakes: handle(&maps.udp_wakes)?,
    };
    let counters = handle(&maps.udp_counters)?;
    let control = Control::start(tables)?;
    let kind = ProgramAttachType::CgroupInetEgress as bpf_attach_type;
    attach_beside_others(loaded.progs.lull_udp.as_fd(), cgroup, kind)?;
    Ok(Yielding { control, counters })
}
