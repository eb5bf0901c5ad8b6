//! The place of a program: in a cgroup of this process, or in one that a server has made for it.

use std::collections::BTreeSet;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use libbpf_rs::OpenObject;

use super::Traffic;
use crate::background::{Background, Choice};
use crate::cgroup;
use crate::elsewhere::Elsewhere;
use crate::error::Result;
use crate::hooks::Counters;
use crate::serve::Served;
use crate::watch::Watch;

/// A background cgroup.
pub(super) enum Ground<'run, 'obj> {
    /// The program enters it.
    Own(&'run Background<'obj>),
    /// This process is in it, and so are its children.
    Served(&'run Served),
}

impl<'run, 'obj> Ground<'run, 'obj> {
    /// The cgroup, by its name in `/proc/PID/cgroup`.
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

    /// Watches for data that others send. A server does so for its own.
    pub(super) fn elsewhere<'storage>(
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

    /// Looks after the background. A server does so for its own.
    pub(super) fn watch(
        &self,
        choice: &'run Choice,
        elsewhere: Option<&'run Elsewhere<'_>>,
        done: BTreeSet<u64>,
    ) -> Result<Option<Watch<'run, 'obj>>> {
        match self {
            Ground::Own(background) => Watch::new(background, choice, elsewhere, done).map(Some),
            Ground::Served(_) => Ok(None),
        }
    }

    /// The foreground connections that a server has seen, one line each.
    pub(super) fn served_foreground(&self, program: i32) -> Vec<String> {
        match self {
            Ground::Own(_) => Vec::new(),
            Ground::Served(served) => served.foreground(program),
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
                let slows_received = hooks.slows_received();
                let traffic = traffic(hooks.counters()?, hooks.knows_yielding, slows_received);
                Ok(Traffic { udp: hooks.udp_traffic()?, ..traffic })
            }
            Ground::Served(served) => {
                let (counters, knows_yielding) = served.counters()?;
                Ok(traffic(counters, knows_yielding, served.slows_received()))
            }
        }
    }

    /// Why the program had to leave the cgroup of this process, if it had to.
    pub(super) fn left_cgroup(&self) -> Option<String> {
        match self {
            Ground::Own(background) => {
                let why = background.why_outside.as_ref()?;
                Some(cgroup::left("the program", &background.hierarchy.own(), why))
            }
            Ground::Served(_) => None,
        }
    }

    /// Requested features that the kernel lacks, one line each.
    pub(super) fn shortfalls(&self) -> Vec<String> {
        match self {
            Ground::Own(background) => background.shortfalls(),
            Ground::Served(_) => Vec::new(),
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
