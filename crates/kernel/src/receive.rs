//! Downloads of a background's processes yield: `bpf/receive.bpf.c`.

use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::str::FromStr;

use libbpf_rs::libbpf_sys::bpf_attach_type;
use libbpf_rs::query::MapInfoIter;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapHandle, MapType, OpenMapMut, ProgramAttachType};
use lull_cc::lull::Member;
use serde::Serialize;

use crate::attach::attach_beside_others;
use crate::error::{Error, Result};
use crate::skeletons::receive::ReceiveSkelBuilder;

/// Which traffic of a background yields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Sent and received traffic.
    #[default]
    Both,
    /// Sent traffic.
    Send,
    /// Received traffic.
    Receive,
}

/// A text that is not a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is both, send or receive")]
pub struct BadDirection;

impl FromStr for Direction {
    type Err = BadDirection;

    fn from_str(text: &str) -> Result<Self, BadDirection> {
        Self::ALL.into_iter().find(|direction| direction.name() == text).ok_or(BadDirection)
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Direction {
    const ALL: [Direction; 3] = [Direction::Both, Direction::Send, Direction::Receive];

    fn name(self) -> &'static str {
        match self {
            Direction::Both => "both",
            Direction::Send => "send",
            Direction::Receive => "receive",
        }
    }

    /// Whether sent traffic yields.
    pub fn sends(self) -> bool {
        self != Direction::Receive
    }

    /// Whether received traffic yields.
    pub fn receives(self) -> bool {
        self != Direction::Send
    }
}

/// Makes the connections that processes of a cgroup open or accept from now on yield by their advertised
/// window. `released` is the map of sockets that have left the background.
///
/// # Errors
/// If the kernel rejects the programs.
pub(crate) fn yield_received(
    cgroup: BorrowedFd<'_>,
    released: BorrowedFd<'_>,
    weight: Option<u32>,
) -> Result<()> {
    let what = "load the programs for received traffic";
    let mut object = MaybeUninit::uninit();
    let mut open = ReceiveSkelBuilder::default().open(&mut object).map_err(Error::bpf(what))?;
    let rodata = open.maps.rodata_data.as_deref_mut().expect("the programs have constants");
    rodata.weight = weight.unwrap_or(Member::USUAL_WEIGHT);
    open.maps.lull_released.reuse_fd(released).map_err(Error::bpf(what))?;
    if let Some(paths) = shared_paths(&open.maps.receive_paths) {
        open.maps.receive_paths.reuse_fd(paths.as_fd()).map_err(Error::bpf(what))?;
    }
    let loaded = open.load().map_err(Error::bpf(what))?;
    let programs = &loaded.progs;
    for (program, kind) in [
        (programs.lull_receive.as_fd(), ProgramAttachType::CgroupSockOps),
        (programs.lull_echo.as_fd(), ProgramAttachType::CgroupInetIngress),
    ] {
        attach_beside_others(program, cgroup, kind as bpf_attach_type)?;
    }
    Ok(())
}

/// The table of paths of a background or a congestion control that exists, which further ones share. It goes with the
/// last of them. Other versions of Lull may have a table of another layout.
pub(crate) fn shared_paths(own: &OpenMapMut<'_>) -> Option<MapHandle> {
    let name = own.name().to_str()?.to_owned();
    let is_alike = |map: &libbpf_rs::query::MapInfo| {
        map.ty == MapType::Hash
            && map.name == name.as_str()
            && map.value_size == own.value_size()
            && map.max_entries == own.max_entries()
    };
    MapInfoIter::default().filter(is_alike).find_map(|map| MapHandle::from_map_id(map.id).ok())
}
