//! Moves a process back out of the background.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::{io, thread};

use nix::sched::CloneFlags;

use crate::adopt::{Adopted, PASSES, children_of, process_of};
use crate::background::clean_up;
use crate::cgroup::{Hierarchy, congestions_in};
use crate::error::{Error, Result};
use crate::existing_sockets::{self, SocketChanges, SocketSettings};
use crate::machine;
use crate::mounts::Bpffs;
use crate::process::cgroup_of;
use crate::release::Releases;
use crate::signals::Signals;
use crate::state::State;

/// Moves a process, and its descendants if `children`, back to the cgroup around its background. Its
/// background sockets get the congestion control of the system again, without a mark. Connections that they
/// accept and open from then on are in the foreground.
///
/// Sockets with a congestion control that is not a background's stay as they are.
///
/// # Errors
/// [`Error::NoProcess`], [`Error::CannotMove`], or the error that prevents the check.
pub fn foreground(pid: i32, children: bool) -> Result<Adopted> {
    let Some(pid) = process_of(pid) else { return Err(Error::NoProcess { pid }) };
    machine::check_privilege("lull exec")?;
    let _signals = Signals::block()?;
    let hierarchy = Hierarchy::open()?;
    let mut processes = BTreeSet::from([pid]);
    // Each generation takes a pass. Later children of a process move with their parent.
    for _ in 0..if children { PASSES } else { 0 } {
        let news: Vec<i32> = children_of(&processes).collect();
        if news.is_empty() {
            break;
        }
        processes.extend(news);
    }
    take_back(&hierarchy, pid, processes)
}

/// Moves processes to the foreground, and their sockets.
///
/// # Errors
/// If `first` cannot be moved.
pub(crate) fn take_back(
    hierarchy: &Hierarchy,
    first: i32,
    processes: BTreeSet<i32>,
) -> Result<Adopted> {
    let mut backgrounds = loaded()?;
    let mut foreground = Vec::new();
    // The reaper takes off the programs for them as soon as their background is empty.
    processes.iter().for_each(|&process| existing_sockets::release_windows_of(process));
    restore_cgroup(hierarchy, first, &mut backgrounds)?;
    for &process in processes.iter().filter(|&&process| process != first) {
        match restore_cgroup(hierarchy, process, &mut backgrounds) {
            Ok(()) | Err(Error::NoProcess { .. }) => {}
            Err(error) => foreground.push(error.to_string()),
        }
    }
    let (socket_changes, unchanged) = release(&processes, &backgrounds);
    foreground.extend(unchanged);
    foreground.extend(socket_changes.foreground());
    clean_up(hierarchy);
    Ok(Adopted {
        process: first,
        processes: processes.into_iter().collect(),
        connections: socket_changes.connections,
        listeners: socket_changes.listeners,
        foreground,
        left_cgroup: Vec::new(),
        shortfalls: Vec::new(),
    })
}

/// The names of everything that Lull has loaded.
fn loaded() -> Result<BTreeSet<String>> {
    let Some(bpffs) = Bpffs::find()? else { return Ok(BTreeSet::new()) };
    let state = State::open_existing(&bpffs)?;
    Ok(state.map(|state| state.names().into_iter().collect()).unwrap_or_default())
}

/// Moves one process, and notes the congestion control of its background.
fn restore_cgroup(
    hierarchy: &Hierarchy,
    pid: i32,
    backgrounds: &mut BTreeSet<String>,
) -> Result<()> {
    let cgroup = cgroup_of(pid).ok_or(Error::NoProcess { pid })?;
    backgrounds.extend(congestions_in(Path::new(&cgroup)).map(str::to_owned));
    let home = hierarchy.home_of(pid).map_err(|_| Error::NoProcess { pid })?;
    if home == Path::new(&cgroup) { Ok(()) } else { hierarchy.restore_cgroup(pid, &home) }
}

/// Changes the sockets of processes; reports the processes of which no socket could be changed.
fn release(
    processes: &BTreeSet<i32>,
    backgrounds: &BTreeSet<String>,
) -> (SocketChanges, Vec<String>) {
    let releases = Releases::find();
    let (mut socket_changes, mut done, mut unchanged) =
        (SocketChanges::default(), BTreeSet::new(), Vec::new());
    for &process in processes {
        let result = default_congestion(process).and_then(|congestion| {
            let wanted = SocketSettings {
                congestion: &congestion,
                class: Some(0),
                releases: Some(&releases),
                leaving: Some(backgrounds),
                only_others: false,
                sends: true,
                receives: false,
            };
            existing_sockets::change_sockets_of(process, wanted, &mut done)
        });
        match result {
            Ok(of_process) => socket_changes.add(of_process),
            Err(error) if existing_sockets::has_ended(&error) => {}
            Err(error) => {
                unchanged.push(format!("all open connections of process {process}: {error}"));
            }
        }
    }
    (socket_changes, unchanged)
}

/// The congestion control of new connections in the network namespace of a process.
fn default_congestion(pid: i32) -> io::Result<String> {
    let namespace = match File::open(format!("/proc/{pid}/ns/net")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        other => other?,
    };
    // A separate thread, because it stays in that namespace.
    let reader = thread::spawn(move || {
        nix::sched::setns(namespace, CloneFlags::CLONE_NEWNET)?;
        fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control")
    });
    let name = reader.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))?;
    Ok(name.trim().to_owned())
}
