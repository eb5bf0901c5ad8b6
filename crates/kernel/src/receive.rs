//! Downloads of a background's processes yield: `bpf/receive.bpf.c`.

use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use libbpf_rs::libbpf_sys::bpf_attach_type;
use libbpf_rs::query::MapInfoIter;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapHandle, MapType, OpenMapMut, Program, ProgramAttachType, ProgramType};
use lull_cc::lull::Member;
use serde::Serialize;

use crate::attach::attach_beside_others;
use crate::error::{Error, Result};
use crate::skeletons::receive::ReceiveSkelBuilder;
use crate::sys;

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

/// An option of TCP that only `lull_adopt` of `bpf/receive.bpf.c` knows (OPTION_ADOPT).
pub(crate) const ADOPT: i32 = 0x6c75_6c6c;

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

/// The programs that make what a background receives yield.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiveHooks<'a> {
    /// The map of sockets that have left the background.
    pub(crate) released: BorrowedFd<'a>,
    /// The map of the programs' own window clamps.
    pub(crate) clamps: BorrowedFd<'a>,
    /// The weight of a connection.
    pub(crate) weight: Option<u32>,
    /// The kernel is given a program of a type that it does not have; for tests.
    pub(crate) no_hook: bool,
}

/// Programs of a cgroup, each with its number and where it is attached.
#[derive(Clone, Debug)]
pub(crate) struct Attached {
    /// The name of the cgroup in `/proc/PID/cgroup`.
    pub(crate) cgroup: PathBuf,
    programs: Vec<(u32, bpf_attach_type)>,
}

impl Attached {
    /// Takes the programs off again. Those that others have taken off meanwhile are left out.
    pub(crate) fn detach(&self, cgroup: BorrowedFd<'_>) {
        for &(number, kind) in &self.programs {
            let _ = sys::program(number)
                .and_then(|program| sys::detach_from_cgroup(program.as_fd(), cgroup, kind));
        }
    }
}

impl ReceiveHooks<'_> {
    /// Makes the connections that processes of a cgroup open or accept from now on yield by their advertised
    /// window.
    ///
    /// # Errors
    /// If the kernel rejects the programs.
    pub(crate) fn attach(&self, cgroup: BorrowedFd<'_>) -> Result<()> {
        self.attach_programs(cgroup, false).map(drop)
    }

    /// Makes it possible that sockets that were made in a cgroup yield: those that [`ADOPT`] is set for.
    ///
    /// # Errors
    /// If the kernel rejects the programs.
    pub(crate) fn attach_adopting(
        &self,
        called: &Path,
        cgroup: BorrowedFd<'_>,
    ) -> Result<Attached> {
        let programs = self.attach_programs(cgroup, true)?;
        Ok(Attached { cgroup: called.to_owned(), programs })
    }

    fn attach_programs(
        &self,
        cgroup: BorrowedFd<'_>,
        is_adopting: bool,
    ) -> Result<Vec<(u32, bpf_attach_type)>> {
        let what = "load the programs for received traffic";
        let mut object = MaybeUninit::uninit();
        let mut open = ReceiveSkelBuilder::default().open(&mut object).map_err(Error::bpf(what))?;
        let rodata = open.maps.rodata_data.as_deref_mut().expect("the programs have constants");
        rodata.weight = self.weight.unwrap_or(Member::USUAL_WEIGHT);
        rodata.is_adopting = is_adopting;
        open.progs.lull_adopt.set_autoload(is_adopting);
        if self.no_hook {
            open.progs.lull_receive.set_prog_type(ProgramType::Unspec);
        }
        open.maps.lull_released.reuse_fd(self.released).map_err(Error::bpf(what))?;
        open.maps.window_clamps.reuse_fd(self.clamps).map_err(Error::bpf(what))?;
        if let Some(paths) = shared_paths(&open.maps.receive_paths) {
            open.maps.receive_paths.reuse_fd(paths.as_fd()).map_err(Error::bpf(what))?;
        }
        let loaded = open.load().map_err(Error::bpf(what))?;
        let programs = &loaded.progs;
        let adopt = (programs.lull_adopt.as_fd(), ProgramAttachType::CgroupSetsockopt);
        let mut attached = Vec::new();
        for (program, kind) in [
            (programs.lull_receive.as_fd(), ProgramAttachType::CgroupSockOps),
            (programs.lull_echo.as_fd(), ProgramAttachType::CgroupInetIngress),
        ]
        .into_iter()
        .chain(is_adopting.then_some(adopt))
        {
            let kind = kind as bpf_attach_type;
            attach_beside_others(program, cgroup, kind)?;
            attached.push((Program::id_from_fd(program).map_err(Error::bpf(what))?, kind));
        }
        Ok(attached)
    }
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
