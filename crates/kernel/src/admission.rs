//! Connections of a cgroup that start together are admitted one after the other.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use libbpf_rs::ProgramAttachType;
use libbpf_rs::libbpf_sys::bpf_attach_type;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use crate::attach::attach_beside_others;
use crate::error::{Error, Result};
use crate::machine;
use crate::skeletons::admission::AdmissionSkelBuilder;

/// How to spread out connections that start together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Time between two SYNs on a path while few wait. Below a tick of the kernel (4 ms at 250 Hz), several
    /// leave together.
    pub gap: Duration,
    /// The longest time that a connection waits.
    pub longest: Duration,
}

impl Default for Admission {
    /// 64 connections within a quarter of a second, and at most one second for any number.
    fn default() -> Self {
        Admission { gap: Duration::from_millis(4), longest: Duration::from_secs(1) }
    }
}

/// Spreads out the connections that processes of a cgroup open from now on, while the cgroup exists. No
/// connection fails or gives up earlier because of it.
///
/// # Errors
/// Why the kernel rejects the programs.
pub fn admit(cgroup: BorrowedFd<'_>, admission: Admission) -> Result<()> {
    machine::check_privilege("spreading connections out")?;
    let what = "load the programs that spread connections out";
    let mut object = MaybeUninit::uninit();
    let mut open = AdmissionSkelBuilder::default().open(&mut object).map_err(Error::bpf(what))?;
    let rodata = open.maps.rodata_data.as_deref_mut().expect("the programs have constants");
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX >> 32);
    rodata.gap_us = micros(admission.gap);
    rodata.longest_us = micros(admission.longest).max(1);
    let loaded = open.load().map_err(Error::bpf(what))?;
    let programs = &loaded.progs;
    for (program, kind) in [
        (programs.lull_admission.as_fd(), ProgramAttachType::CgroupSockOps),
        (programs.lull_hold_syn.as_fd(), ProgramAttachType::CgroupInetEgress),
    ] {
        attach_beside_others(program, cgroup, kind as bpf_attach_type)?;
    }
    Ok(())
}
