//! Moves a process that runs already into the background.

use std::collections::BTreeSet;
use std::fs;
use std::mem::MaybeUninit;

use crate::background::{Background, Choice};
use crate::error::{Error, Result};
use crate::mend::{self, Mended};
use crate::signals::Signals;

/// What [`adopt`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// The processes that were moved, all threads included.
    pub processes: Vec<i32>,
    /// Open connections that were changed.
    pub connections: usize,
    /// Listeners that were changed; what they accept from now on is in the background.
    pub listeners: usize,
    /// What stays in the foreground, one line each.
    pub foreground: Vec<String>,
}

/// Moves a process, and its descendants if `children`, into a background cgroup, and changes
/// the sockets that it has.
///
/// # Errors
/// [`Error::NoProcess`], [`Error::CannotMove`], or whatever keeps a cgroup from being set up;
/// nothing is left behind then.
pub fn adopt(pid: i32, children: bool, choice: &Choice) -> Result<Adopted> {
    if pid <= 0 || !fs::exists(format!("/proc/{pid}")).unwrap_or(false) {
        return Err(Error::NoProcess { pid });
    }
    // Nobody shall interrupt us between the cgroup and its first process.
    let _signals = Signals::block()?;
    let mut storage = MaybeUninit::uninit();
    let background = Background::set_up(choice, &mut storage)?;
    let result = move_all(&background, pid, children, choice);
    if result.is_err() {
        background.tear_down();
    }
    result
}

fn move_all(
    background: &Background<'_>,
    pid: i32,
    children: bool,
    choice: &Choice,
) -> Result<Adopted> {
    background.cgroup.admit(pid)?;
    let mut moved = BTreeSet::from([pid]);
    // What a process of the cgroup forks is born in it: a pass without news is the last one.
    loop {
        let news = if children { children_of(&moved) } else { Vec::new() };
        if news.is_empty() {
            break;
        }
        for child in news {
            match background.cgroup.admit(child) {
                Ok(()) | Err(Error::NoProcess { .. }) => {}
                Err(error) => return Err(error),
            }
            moved.insert(child);
        }
    }
    let mut mended = Mended::default();
    let mut foreground = Vec::new();
    for &process in &moved {
        match mend::mend_process(process, &choice.congestion, choice.dscp) {
            Ok(of_process) => mended.add(of_process),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            Err(error) => {
                foreground.push(format!("all open connections of process {process}: {error}"));
            }
        }
    }
    if mended.waiting > 0 {
        let connections = match mended.waiting {
            1 => "1 connection".to_owned(),
            more => format!("{more} connections"),
        };
        foreground.push(format!("{connections} that a listener has not accepted yet"));
    }
    foreground.extend(mended.refused);
    if !children && !children_of(&moved).is_empty() {
        foreground.push("children that run already: move them with --children".to_owned());
    }
    Ok(Adopted {
        processes: moved.into_iter().collect(),
        connections: mended.connections,
        listeners: mended.listeners,
        foreground,
    })
}

/// The children of processes that are not among them.
fn children_of(processes: &BTreeSet<i32>) -> Vec<i32> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| !processes.contains(pid))
        .filter(|&pid| parent(pid).is_some_and(|parent| processes.contains(&parent)))
        .collect()
}

fn parent(pid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}
