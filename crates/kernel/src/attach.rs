//! Programs of cgroups beside those of others.

use std::os::fd::{AsFd, BorrowedFd};

use libbpf_rs::libbpf_sys::bpf_attach_type;

use crate::error::{Error, Result};
use crate::sys;

/// Attaches a program to a cgroup, and keeps all programs of the outer cgroups running.
///
/// A program that was attached with BPF_F_ALLOW_OVERRIDE stops running for a cgroup that gets its own one
/// (compute_effective_progs of the kernel). It may be a firewall, so it is attached here, too.
pub(crate) fn attach_beside_others(
    program: BorrowedFd<'_>,
    cgroup: BorrowedFd<'_>,
    kind: bpf_attach_type,
) -> Result<()> {
    let others = sys::effective_programs(cgroup, kind).map_err(Error::outer_program)?;
    sys::attach_to_cgroup(program, cgroup, kind).map_err(Error::attach)?;
    let running = sys::effective_programs(cgroup, kind).map_err(Error::outer_program)?;
    for overridden in others.into_iter().filter(|number| !running.contains(number)) {
        sys::program(overridden)
            .and_then(|program| sys::attach_to_cgroup(program.as_fd(), cgroup, kind))
            .map_err(Error::outer_program)?;
    }
    Ok(())
}
