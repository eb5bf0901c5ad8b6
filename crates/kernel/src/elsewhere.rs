//! Congestion controls that are pinned in the BPF file system of another mount namespace.
//!
//! A container has a BPF file system of its own, and the congestion controls of the host. Their maps are found by
//! their numbers, which the record of each has, and are pinned once more where only this process sees it.

use std::fs;
use std::path::Path;

use libbpf_rs::query::MapInfoIter;
use libbpf_rs::{MapCore, MapHandle, MapType};

use crate::machine;
use crate::mounts::Bpffs;
use crate::state::{DIRECTORY, Location, PinFolder, RECORD_NAME, State};

/// A BPF file system with the registered controls of Lull that are not in `state`; `None` without any.
///
/// It keeps the maps, but not the registration.
pub(crate) fn find(state: Option<&State<'_>>) -> Option<Bpffs> {
    let found: Vec<_> = MapInfoIter::default()
        .filter(|map| map.ty == MapType::Array && map.name == RECORD_NAME)
        .filter_map(|map| MapHandle::from_map_id(map.id).ok())
        .filter_map(|record| Some((Location::read(&record)?, record)))
        .filter(|(location, _)| machine::is_registered(&location.name))
        .filter(|(location, _)| state.is_none_or(|state| state.find(&location.name).is_none()))
        .collect();
    if found.is_empty() {
        return None;
    }
    let bpffs = Bpffs::private().ok()?;
    let directory = bpffs.path().join(DIRECTORY);
    fs::create_dir(&directory).ok()?;
    for (location, record) in &found {
        // One whose maps go meanwhile is half made, and the next reader removes it.
        let _ = pin(&directory.join(&location.name), location, record);
    }
    Some(bpffs)
}

fn pin(folder: &Path, location: &Location, record: &MapHandle) -> Option<()> {
    fs::create_dir(folder).ok()?;
    let folder = PinFolder::at(folder);
    let pin = |id: u32, path: &Path| MapHandle::from_map_id(id).ok()?.pin(path).ok();
    pin(location.sockets, &folder.sockets())?;
    if location.paths > 0 {
        pin(location.paths, &folder.paths())?;
        pin(location.weights, &folder.weights())?;
    }
    // In place of the link, which would keep the control registered.
    for path in [folder.record(), folder.link()] {
        let id = record.info().ok()?.info.id;
        pin(id, &path)?;
    }
    Some(())
}
