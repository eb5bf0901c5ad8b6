//! The loaded congestion controls, and the sockets that run them in every network namespace.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use libbpf_rs::MapHandle;

use crate::error::Result;
use crate::mounts::Bpffs;
use crate::owners::owners;
use crate::parameters::Parameters;
use crate::paths::{self, SharedPath};
use crate::sockets::{self, Socket};
use crate::state::{Record, State};
use crate::{control, elsewhere, machine};

/// A loaded congestion control.
#[derive(Clone, Debug)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// Whether it is still loaded. If not, these sockets keep the earlier control of that name until they are
    /// closed.
    pub is_loaded: bool,
    /// Its parameters; None if another version of Lull loaded it.
    pub parameters: Option<Parameters>,
    /// Loaded by `lull exec`, and unloaded when its last program ends.
    pub automatic: bool,
    /// When it was loaded, since the Unix epoch.
    pub since: Duration,
    /// The sockets that run it.
    pub sockets: Vec<Socket>,
    /// The paths that they share; None if the algorithm has a separate state for each connection.
    pub paths: Option<Vec<SharedPath>>,
}

impl Status {
    /// Connections that run Nice separately, because the table of paths had no room for theirs.
    pub fn unshared_connections(&self) -> usize {
        match self.paths {
            Some(_) => self.sockets.iter().filter(|socket| socket.membership.is_none()).count(),
            None => 0,
        }
    }
}

/// Everything that is loaded, by name.
///
/// # Errors
/// If the process has no permission.
pub fn status() -> Result<Vec<Status>> {
    machine::check_privilege("reading what is loaded")?;
    machine::check_btf()?;
    let bpffs = Bpffs::find()?;
    let state = match &bpffs {
        Some(bpffs) => State::open_existing(bpffs)?,
        None => None,
    };
    let mut all = match &state {
        Some(state) => loaded(state)?,
        None => Vec::new(),
    };
    // In a container, the host has loaded others.
    let elsewhere = elsewhere::find(state.as_ref());
    let other = elsewhere.as_ref().map_or(Ok(None), State::open_existing)?;
    if let Some(other) = &other {
        all.extend(loaded(other)?);
    }
    let states = Vec::from_iter(state.iter().chain(&other));
    all.extend(unloaded(&states)?);
    drop(states);
    drop((state, other));
    if all.iter().any(|status| !status.sockets.is_empty()) {
        let owners = owners();
        for socket in all.iter_mut().flat_map(|status| &mut status.sockets) {
            socket.owner = owners.get(&socket.inode).cloned();
        }
    }
    Ok(all)
}

/// The loaded controls, with their sockets.
fn loaded(state: &State<'_>) -> Result<Vec<Status>> {
    let mut all = Vec::new();
    for name in state.names() {
        let Some(folder) = state.find(&name) else { continue };
        let sockets = sockets::read(&folder)?;
        let paths = match (&sockets, folder.algorithm()) {
            (Some(sockets), Some(algorithm)) if algorithm.shares_paths() => {
                Some(paths::read(&folder.paths(), sockets, folder.foreground().exists())?)
            }
            _ => None,
        };
        let record = Record::read(&folder.record())?;
        let since = folder
            .since()
            .and_then(|time| time.duration_since(UNIX_EPOCH).ok())
            .unwrap_or_default();
        all.push(Status {
            name,
            is_loaded: true,
            // Our program cannot read another version's.
            parameters: record.map(|record| record.parameters).filter(|_| sockets.is_some()),
            automatic: record.is_some_and(|record| record.automatic),
            since,
            sockets: sockets.unwrap_or_default(),
            paths,
        });
    }
    Ok(all)
}

/// The sockets that chose a control that was unloaded since, by its name.
///
/// Their maps are those of our programs that are pinned nowhere. Controls that another process of Lull
/// registered for itself are not included.
fn unloaded(states: &[&State<'_>]) -> Result<Vec<Status>> {
    let places = |state: &&State<'_>| {
        let names = state.names().into_iter();
        names.filter_map(|name| state.find(&name)).collect::<Vec<_>>()
    };
    let pinned: Vec<u32> =
        states.iter().flat_map(places).filter_map(|place| place.sockets_id()).collect();
    let mut by_name = BTreeMap::<String, Vec<Socket>>::new();
    for id in control::maps_of_sockets() {
        let Some(map) = Some(id).filter(|id| !pinned.contains(id)).and_then(open_map) else {
            continue;
        };
        for (name, socket) in sockets::read_unknown(&map)? {
            by_name.entry(name).or_default().push(socket);
        }
    }
    let is_pinned = |name: &str| states.iter().any(|state| state.find(name).is_some());
    by_name.retain(|name, _| is_pinned(name) || !machine::is_registered(name));
    let status = |(name, sockets)| Status {
        name,
        is_loaded: false,
        parameters: None,
        automatic: false,
        since: Duration::ZERO,
        sockets,
        paths: None,
    };
    Ok(by_name.into_iter().map(status).collect())
}

fn open_map(id: u32) -> Option<MapHandle> {
    MapHandle::from_map_id(id).ok()
}
