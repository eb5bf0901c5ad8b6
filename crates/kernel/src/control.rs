//! The congestion controls of `bpf/`, loaded into the kernel with their constants.

use std::collections::BTreeSet;
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::AsFd;
use std::path::Path;

use libbpf_rs::query::{MapInfoIter, ProgInfoIter, ProgInfoQueryOptions};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapType, OpenObject, ProgramType};

use crate::constants::{Constants, set_background, set_nice};
use crate::error::{Error, Result};
use crate::machine;
use crate::path_foreground::{self, ForegroundLinks};
use crate::skeletons::background::{BackgroundSkel, BackgroundSkelBuilder};
use crate::skeletons::lull::{LullSkel, LullSkelBuilder};
use crate::skeletons::nice::{NiceSkel, NiceSkelBuilder, types as nice};

/// TCP_CONG_NON_RESTRICTED of the kernel: any process may choose it.
const NON_RESTRICTED: u32 = 1;

/// The programs of a congestion control in the kernel, not registered so far.
pub(crate) enum Control<'obj> {
    Nice(NiceSkel<'obj>),
    Background(BackgroundSkel<'obj>),
    Lull(LullSkel<'obj>),
}

impl<'obj> Control<'obj> {
    /// Loads the programs, to be registered under a name.
    pub(crate) fn load(
        object: &'obj mut MaybeUninit<OpenObject>,
        name: &str,
        restricted: bool,
        constants: &Constants,
    ) -> Result<Self> {
        let opening = "open the congestion control";
        let loading = "load the congestion control";
        let has_ack = machine::cong_control_has_ack()?;
        match constants {
            Constants::Nice(parameters) => {
                let mut open =
                    NiceSkelBuilder::default().open(object).map_err(Error::bpf(opening))?;
                let rodata = open.maps.rodata_data.as_deref_mut().expect("it has constants");
                rodata.cong_control_has_ack = has_ack.into();
                set_nice(&mut rodata.params, parameters);
                let operations = open.maps.nice.initial_value_mut().expect("it has operations");
                describe(operations, name, restricted)?;
                Ok(Control::Nice(open.load().map_err(Error::bpf(loading))?))
            }
            Constants::Background(protocol) => {
                let mut open =
                    BackgroundSkelBuilder::default().open(object).map_err(Error::bpf(opening))?;
                let rodata = open.maps.rodata_data.as_deref_mut().expect("it has constants");
                rodata.cong_control_has_ack = has_ack.into();
                set_background(&mut rodata.params, protocol);
                let operations =
                    open.maps.background.initial_value_mut().expect("it has operations");
                describe(operations, name, restricted)?;
                Ok(Control::Background(open.load().map_err(Error::bpf(loading))?))
            }
            Constants::Lull(limits) => {
                let mut open =
                    LullSkelBuilder::default().open(object).map_err(Error::bpf(opening))?;
                let rodata = open.maps.rodata_data.as_deref_mut().expect("it has constants");
                rodata.cong_control_has_ack = has_ack.into();
                rodata.path_kept_us = u64::from(limits.kept_seconds) * 1_000_000;
                let table = &mut open.maps.paths;
                table
                    .set_max_entries(limits.paths)
                    .map_err(Error::bpf("size the table of paths"))?;
                let operations = open.maps.lull.initial_value_mut().expect("it has operations");
                describe(operations, name, restricted)?;
                Ok(Control::Lull(open.load().map_err(Error::bpf(loading))?))
            }
        }
    }

    /// Pins the map with the state of each socket.
    pub(crate) fn pin_sockets(&mut self, path: &Path) -> Result<()> {
        let pinned = match self {
            Control::Nice(skeleton) => skeleton.maps.sockets.pin(path),
            Control::Background(skeleton) => skeleton.maps.sockets.pin(path),
            Control::Lull(skeleton) => skeleton.maps.sockets.pin(path),
        };
        pinned.map_err(Error::bpf("pin a map"))
    }

    /// Pins the table of paths and the weights of sockets, if they exist.
    pub(crate) fn pin_paths(&mut self, path: &Path, weights: &Path) -> Result<()> {
        match self {
            Control::Nice(_) | Control::Background(_) => Ok(()),
            Control::Lull(skeleton) => {
                let pinned = skeleton.maps.paths.pin(path);
                pinned
                    .and_then(|()| skeleton.maps.weights.pin(weights))
                    .map_err(Error::bpf("pin a map"))
            }
        }
    }

    /// Makes the tables of paths show the traffic of other connections of this host, until the returned value
    /// is dropped; `None` without such a table.
    pub(crate) fn watch_foreground(&self, name: &str) -> Result<Option<ForegroundLinks>> {
        match self {
            Control::Nice(_) | Control::Background(_) => Ok(None),
            Control::Lull(skeleton) => {
                let maps = &skeleton.maps;
                path_foreground::watch(name, maps.sockets.as_fd(), maps.paths.as_fd()).map(Some)
            }
        }
    }

    /// Registers it while the link exists.
    pub(crate) fn register(&mut self) -> Result<Link> {
        let link = match self {
            Control::Nice(skeleton) => skeleton.maps.nice.attach_struct_ops(),
            Control::Background(skeleton) => skeleton.maps.background.attach_struct_ops(),
            Control::Lull(skeleton) => skeleton.maps.lull.attach_struct_ops(),
        };
        link.map_err(Error::bpf("register the congestion control"))
    }
}

/// Kernel ids of the maps with each socket's state, for all congestion controls of Lull that are registered
/// or in use by a socket. Maps for only some of the sockets are not included.
pub(crate) fn maps_of_sockets() -> BTreeSet<u32> {
    /// `sockets` of `bpf/socket.h`.
    const MAP: &[u8] = b"sockets";
    /// `socket_cong_control` of `bpf/socket.h`, up to the length at which the kernel truncates program names.
    const PROGRAM: &[u8] = b"socket_cong_con";
    let options = ProgInfoQueryOptions::default().include_map_ids(true);
    let maps: BTreeSet<u32> = ProgInfoIter::with_query_opts(options)
        .filter(|program| program.ty == ProgramType::StructOps)
        .filter(|program| program.name.as_encoded_bytes() == PROGRAM)
        .flat_map(|program| program.map_ids)
        .collect();
    let storages = MapInfoIter::default().filter(|map| map.ty == MapType::SkStorage);
    storages
        .filter(|map| map.name.as_encoded_bytes() == MAP)
        .map(|map| map.id)
        .filter(|id| maps.contains(id))
        .collect()
}

/// Fills in the fields of the operations that are known only now. They are the same structure in all
/// programs.
fn describe(operations: &mut [u8], name: &str, restricted: bool) -> Result<()> {
    use nice::tcp_congestion_ops as Operations;

    let flags = if restricted { 0 } else { NON_RESTRICTED };
    let mut set = |at: usize, bytes: &[u8]| operations[at..at + bytes.len()].copy_from_slice(bytes);
    set(offset_of!(Operations, name), &[0; 16]);
    set(offset_of!(Operations, name), name.as_bytes());
    set(offset_of!(Operations, flags), &flags.to_ne_bytes());
    // The kernel rejects an unknown operation unless it is null.
    if !machine::has_tx_start_operation()? {
        set(offset_of!(Operations, cwnd_event_tx_start), &[0; size_of::<usize>()]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use lull_testing::{bpf, needs};

    use super::*;

    /// So a mismatch of the kernel's types is reported at the load, and never runs.
    #[test]
    fn cong_control_of_other_signature_does_not_load() {
        needs!(bpf());
        libbpf_rs::set_print(None);
        let has_ack = machine::cong_control_has_ack().unwrap();
        for (told, is_loaded) in [(has_ack, true), (!has_ack, false)] {
            let mut object = MaybeUninit::uninit();
            let mut open = NiceSkelBuilder::default().open(&mut object).unwrap();
            let rodata = open.maps.rodata_data.as_deref_mut().expect("it has constants");
            rodata.cong_control_has_ack = told.into();
            let operations = open.maps.nice.initial_value_mut().expect("it has operations");
            describe(operations, "never_attached", false).unwrap();
            assert_eq!(open.load().is_ok(), is_loaded, "with the ACK: {told}");
        }
    }
}
