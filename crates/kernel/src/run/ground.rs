//! Where a program runs: in a cgroup of this process, or in one that a server has made for it.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use libbpf_rs::OpenObject;

use super::Traffic;
use crate::background::Background;
use crate::cgroup;
use crate::elsewhere::Elsewhere;
use crate::error::Result;
use crate::hooks::{Counters, Requests};
use crate::serve::Served;

/// A background cgroup.
pub(super) enum Ground<'run, 'obj> {
    /// The program enters it.
    Own(&'run Background<'obj>),
    /// This process is in it, and so is what it starts.
    Served(&'run Served),
}

impl<'run> Ground<'run, '_> {
    /// The cgroup, as `/proc/PID/cgroup` calls it.
    pub(super) fn called(&self) -> &'run Path {
        match self {
            Ground::Own(background) => background.cgroup.called(),
            Ground::Served(served) => served.called(),
        }
    }

    /// The `cgroup.procs` that the program has to enter, if it has to.
    pub(super) fn procs(&self) -> Result<Option<OwnedFd>> {
        match self {
            Ground::Own(background) => background.cgroup.procs().map(Some),
            Ground::Served(_) => Ok(None),
        }
    }

    /// Requests of the hooks. A server answers those of its own.
    pub(super) fn requests(&self) -> Result<Option<Requests<'run>>> {
        match self {
            Ground::Own(background) => background.hooks.requests().map(Some),
            Ground::Served(_) => Ok(None),
        }
    }

    /// Watches for what others send; that needs the rights of root.
    pub(super) fn watch<'storage>(
        &self,
        storage: &'storage mut [MaybeUninit<OpenObject>; 2],
    ) -> Option<Elsewhere<'storage>> {
        match self {
            Ground::Own(background) => {
                let cgroup = &background.cgroup;
                Elsewhere::watch(storage, cgroup.as_fd(), cgroup.id())
            }
            Ground::Served(_) => None,
        }
    }

    /// The processes of the program.
    pub(super) fn processes(&self) -> Vec<i32> {
        match self {
            Ground::Own(background) => background.cgroup.processes(),
            Ground::Served(served) => served.processes(),
        }
    }

    pub(super) fn traffic(&self) -> Result<Traffic> {
        match self {
            Ground::Own(background) => {
                let hooks = &background.hooks;
                Ok(traffic(hooks.counters()?, hooks.knows_yielding))
            }
            Ground::Served(served) => {
                let (counters, knows_yielding) = served.counters()?;
                Ok(traffic(counters, knows_yielding))
            }
        }
    }

    /// Why the program had to leave the cgroup of this process, if it had.
    pub(super) fn left_cgroup(&self) -> Option<String> {
        match self {
            Ground::Own(background) => {
                let why = background.why_outside.as_ref()?;
                Some(cgroup::left("the program", &background.hierarchy.own(), why))
            }
            Ground::Served(_) => None,
        }
    }
}

fn traffic(counters: Counters, knows_yielding: bool) -> Traffic {
    Traffic {
        connections: counters.connections,
        refused: counters.refused,
        tcp_bytes: counters.tcp_bytes,
        tcp_received: counters.tcp_received,
        unmarked: counters.unmarked,
        udp_bytes: counters.udp_bytes,
        lived: counters.lived,
        yielded: knows_yielding.then_some(counters.yielded),
    }
}
