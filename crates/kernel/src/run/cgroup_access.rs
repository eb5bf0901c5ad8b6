//! Access to the cgroup of a program: one of this process, or one that a server has made for it.

use std::collections::BTreeSet;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use libbpf_rs::OpenObject;

use super::Traffic;
use crate::background::{Background, Choice};
use crate::cgroup;
use crate::delegation::Delegation;
use crate::error::Result;
use crate::hooks::Counters;
use crate::program_watch::ProgramWatch;
use crate::serve::Served;

/// A background cgroup.
pub(super) enum CgroupAccess<'run, 'obj> {
    /// The program enters it.
    Own(&'run Background<'obj>),
    /// This process is in it, and so are its children.
    Served(&'run Served),
}

impl<'run, 'obj> CgroupAccess<'run, 'obj> {
    /// The cgroup, by its name in `/proc/PID/cgroup`.
    pub(super) fn called(&self) -> &'run Path {
        match self {
            CgroupAccess::Own(background) => background.cgroup.called(),
            CgroupAccess::Served(served) => served.called(),
        }
    }

    /// The `cgroup.procs` that the program has to enter, if it has to.
    pub(super) fn procs(&self) -> Result<Option<OwnedFd>> {
        match self {
            CgroupAccess::Own(background) => background.cgroup.procs().map(Some),
            CgroupAccess::Served(_) => Ok(None),
        }
    }

    /// Watches for data that others send. A server does so for its own.
    pub(super) fn delegation<'storage>(
        &self,
        storage: &'storage mut [MaybeUninit<OpenObject>; 2],
    ) -> Option<Delegation<'storage>> {
        match self {
            CgroupAccess::Own(background) => {
                let cgroup = &background.cgroup;
                Delegation::watch(storage, cgroup.as_fd(), cgroup.id())
            }
            CgroupAccess::Served(_) => None,
        }
    }

    /// Looks after the background. A server does so for its own.
    pub(super) fn watch(
        &self,
        choice: &'run Choice,
        delegation: Option<&'run Delegation<'_>>,
        done: BTreeSet<u64>,
    ) -> Result<Option<ProgramWatch<'run, 'obj>>> {
        match self {
            CgroupAccess::Own(background) => {
                ProgramWatch::new(background, choice, delegation, done).map(Some)
            }
            CgroupAccess::Served(_) => Ok(None),
        }
    }

    /// The foreground connections that a server has seen, one line each.
    pub(super) fn served_foreground(&self, program: i32) -> Vec<String> {
        match self {
            CgroupAccess::Own(_) => Vec::new(),
            CgroupAccess::Served(served) => served.foreground(program),
        }
    }

    /// The processes of the program.
    pub(super) fn processes(&self) -> Vec<i32> {
        match self {
            CgroupAccess::Own(background) => background.cgroup.processes(),
            CgroupAccess::Served(served) => served.processes(),
        }
    }

    pub(super) fn traffic(&self) -> Result<Traffic> {
        match self {
            CgroupAccess::Own(background) => {
                let hooks = &background.hooks;
                let slows_received = hooks.slows_received();
                let traffic = traffic(hooks.counters()?, hooks.knows_yielding, slows_received);
                Ok(Traffic { udp: hooks.udp_traffic()?, ..traffic })
            }
            CgroupAccess::Served(served) => {
                let (counters, knows_yielding) = served.counters()?;
                Ok(traffic(counters, knows_yielding, served.slows_received()))
            }
        }
    }

    /// Why the program had to leave the cgroup of this process, if it had to.
    pub(super) fn left_cgroup(&self) -> Option<String> {
        match self {
            CgroupAccess::Own(background) => {
                let why = background.why_outside.as_ref()?;
                Some(cgroup::left("the program", &background.hierarchy.own(), why))
            }
            CgroupAccess::Served(_) => None,
        }
    }

    /// Requested features that the kernel lacks, one line each.
    pub(super) fn shortfalls(&self) -> Vec<String> {
        match self {
            CgroupAccess::Own(background) => background.shortfalls(),
            CgroupAccess::Served(_) => Vec::new(),
        }
    }
}

fn traffic(counters: Counters, knows_yielding: bool, slows_received: bool) -> Traffic {
    Traffic {
        connections: counters.connections,
        refused: counters.refused,
        tcp_bytes: counters.tcp_bytes,
        tcp_received: counters.tcp_received,
        slows_received,
        unmarked: counters.unmarked,
        udp_bytes: counters.udp_bytes,
        udp: None,
        lived: counters.lived,
        yielded: knows_yielding.then_some(counters.yielded),
    }
}
