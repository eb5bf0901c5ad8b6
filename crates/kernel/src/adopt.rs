//! Moves a running process into the background.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::path::PathBuf;

use crate::background::{Background, Choice};
use crate::cgroup::{self, Cgroup};
use crate::error::{Error, Result};
use crate::existing_sockets::{self, SocketChanges, SocketSettings};
use crate::process::parent;
use crate::receive::Attached;
use crate::release::Releases;
use crate::signals::Signals;
use crate::{jobs, machine, reaper};

/// PF_KTHREAD of the kernel, in the flags of `/proc/PID/stat`.
const KERNEL_THREAD: u32 = 0x0020_0000;

/// How often the processes are searched for descendants. Each generation takes one pass, and a fork meanwhile
/// another; faster ones are reported.
pub(crate) const PASSES: usize = 64;

/// The result of [`adopt`] or [`foreground`](crate::foreground()).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// The requested process. If a thread was named, its process.
    pub process: i32,
    /// The processes that were moved, all threads included.
    pub processes: Vec<i32>,
    /// Open connections that were changed.
    pub connections: usize,
    /// Changed listeners; connections that they accept from now on are in the background.
    pub listeners: usize,
    /// Connections that kept their class, foreground or background, one line each.
    pub foreground: Vec<String>,
    /// Processes that had to leave their cgroup for the background, one line each.
    pub left_cgroup: Vec<String>,
    /// Requested features that the kernel lacks, one line each.
    pub shortfalls: Vec<String>,
}

/// Moves a process, and its descendants if `children`, into a background cgroup, and changes its sockets. The
/// id of a thread stands for its process, for the kernel moves all threads together.
///
/// The background cgroup is inside the process's present one, so that limits still hold and `systemctl stop`
/// still reaches it. If none can be made there, it is inside the one of the caller, and
/// [`Adopted::left_cgroup`] says so.
///
/// Descendants that cannot be moved do not prevent the move of others: [`Adopted::foreground`] names them.
///
/// # Errors
/// [`Error::NoProcess`], [`Error::CannotMove`], [`Error::NotToBeMoved`], or any error of the set-up of a
/// cgroup for the process itself; nothing is left behind then.
pub fn adopt(pid: i32, children: bool, choice: &Choice) -> Result<Adopted> {
    let Some(pid) = process_of(pid) else { return Err(Error::NoProcess { pid }) };
    machine::check_privilege("lull exec")?;
    if pid == 1 {
        let why = "it is the first process, which all others come from: name one of those";
        return Err(Error::NotToBeMoved { pid, why });
    }
    if is_kernel_thread(pid) {
        let why = "it is a thread of the kernel: name a process that runs a program";
        return Err(Error::NotToBeMoved { pid, why });
    }
    // No signal may interrupt this between the cgroup and its first process.
    let signals = Signals::block()?;
    let mut storage = MaybeUninit::uninit();
    let background = Background::set_up(choice, &mut storage)?;
    let mut backgrounds = HomeBackgrounds {
        background: &background,
        choice,
        inside: Vec::new(),
        adopting: Vec::new(),
    };
    let result = move_all(&mut backgrounds, pid, children);
    let HomeBackgrounds { inside, adopting, .. } = backgrounds;
    let mut left: Vec<PathBuf> =
        inside.into_iter().filter_map(|shelter| removed_or_left(shelter.cgroup?)).collect();
    if result.is_err() {
        background.hierarchy.detach(&adopting);
        background.tear_down();
    } else {
        left.extend(removed_or_left(background.cgroup));
        reaper::start_reaper(left, adopting, &signals);
    }
    result
}

/// Removes a cgroup without processes; returns the path of one with processes.
fn removed_or_left(cgroup: Cgroup) -> Option<PathBuf> {
    let path = cgroup.called().to_owned();
    (!cgroup.remove()).then_some(path)
}

/// A file of `/proc`. Names of programs need not be UTF-8.
fn read(pid: i32, file: &str) -> String {
    let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The process of an id: itself, or that of a thread.
pub(crate) fn process_of(number: i32) -> Option<i32> {
    process_in(&read(number, "status"))
}

fn process_in(status: &str) -> Option<i32> {
    let group = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    // 0 stands for one that is not visible, or that is just ending.
    group.trim().parse().ok().filter(|&process| process > 0)
}

fn is_kernel_thread(pid: i32) -> bool {
    let stat = read(pid, "stat");
    // The name of the process is in parentheses, and may contain some itself.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let flags = fields.split_whitespace().nth(6).and_then(|flags| flags.parse::<u32>().ok());
    flags.is_some_and(|flags| flags & KERNEL_THREAD != 0)
}

/// The background cgroups for the processes of each cgroup.
struct HomeBackgrounds<'run, 'obj> {
    background: &'run Background<'obj>,
    choice: &'run Choice,
    inside: Vec<HomeBackground>,
    /// The programs for connections from before.
    adopting: Vec<Attached>,
}

struct HomeBackground {
    /// The cgroup of the processes.
    home: PathBuf,
    /// Inside that one; None if it is the one of the caller.
    cgroup: Option<Cgroup>,
    /// Why it is outside that one.
    why: Option<String>,
}

impl HomeBackgrounds<'_, '_> {
    /// Moves a process; reports it if the process had to leave its cgroup.
    fn admit(&mut self, pid: i32) -> Result<Option<String>> {
        let hierarchy = &self.background.hierarchy;
        let home = hierarchy.home_of(pid).map_err(|_| Error::NoProcess { pid })?;
        let index = match self.inside.iter().position(|shelter| shelter.home == home) {
            Some(index) => index,
            None => {
                self.inside.push(self.make(home)?);
                self.inside.len() - 1
            }
        };
        let shelter = &self.inside[index];
        shelter.cgroup.as_ref().unwrap_or(&self.background.cgroup).admit(pid)?;
        let who = format!("process {pid}");
        Ok(shelter.why.as_ref().map(|why| cgroup::left(&who, &shelter.home, why)))
    }

    /// Whether a process runs in none of them.
    fn is_outside(&self, pid: i32) -> bool {
        let inside = self.inside.iter().filter_map(|shelter| shelter.cgroup.as_ref());
        // A process that has ended needs none.
        inside.chain([&self.background.cgroup]).all(|cgroup| cgroup.holds(pid).is_ok_and(|is| !is))
    }

    /// The children of these processes that are in no background so far. A process that is forked in a
    /// background starts there, and is not new.
    fn unplaced_children(&self, processes: &BTreeSet<i32>) -> Vec<i32> {
        children_of(processes).filter(|&child| self.is_outside(child)).collect()
    }

    /// Makes it possible that connections from before yield in what they receive. The hooks of a socket are those of the
    /// cgroup in which it was made: usually the one from which its process was moved.
    fn adopt_windows(&mut self) {
        for home in &self.inside {
            let directory = File::open(self.background.hierarchy.path_of(&home.home));
            let hooks = &self.background.hooks;
            self.adopting.extend(
                directory.ok().and_then(|cgroup| hooks.attach_adopting(&home.home, cgroup.as_fd())),
            );
        }
    }

    fn make(&self, home: PathBuf) -> Result<HomeBackground> {
        if self.background.hierarchy.is_own(&home) {
            let why = self.background.why_outside.clone();
            return Ok(HomeBackground { home, cgroup: None, why });
        }
        match self.background.hierarchy.create_inside(&home, &self.choice.congestion) {
            Ok(cgroup) => {
                let name = self.choice.name.as_deref();
                let named = name.map_or(Ok(()), |name| jobs::set_name(cgroup.directory(), name));
                let hooks = &self.background.hooks;
                if let Err(error) = named.and_then(|()| hooks.attach(cgroup.as_fd())) {
                    cgroup.remove();
                    return Err(error);
                }
                Ok(HomeBackground { home, cgroup: Some(cgroup), why: None })
            }
            Err(why) => Ok(HomeBackground { home, cgroup: None, why: Some(why) }),
        }
    }
}

fn move_all(
    backgrounds: &mut HomeBackgrounds<'_, '_>,
    pid: i32,
    children: bool,
) -> Result<Adopted> {
    let choice = backgrounds.choice;
    let mut left_cgroup = Vec::from_iter(backgrounds.admit(pid)?);
    let mut moved = BTreeSet::from([pid]);
    // Also those that cannot be moved: their children may be.
    let mut seen = moved.clone();
    let mut foreground = Vec::new();
    for pass in 0.. {
        let news = if children { backgrounds.unplaced_children(&seen) } else { Vec::new() };
        if news.is_empty() {
            break;
        }
        if pass == PASSES {
            let what = "children that were started meanwhile: move them with --children once more";
            foreground.push(what.to_owned());
            break;
        }
        for child in news {
            seen.insert(child);
            match backgrounds.admit(child) {
                Ok(left) => {
                    moved.insert(child);
                    left_cgroup.extend(left);
                }
                Err(Error::NoProcess { .. }) => {}
                Err(error @ Error::CannotMove { .. }) => foreground.push(error.to_string()),
                Err(error) => foreground.push(format!("process {child}: {error}")),
            }
        }
    }
    let (mut socket_changes, mut done) = (SocketChanges::default(), BTreeSet::new());
    let releases = Releases::find();
    backgrounds.adopt_windows();
    let receives = backgrounds.background.hooks.slows_received();
    let wanted = SocketSettings { receives, ..choice.wanted(Some(&releases)) };
    for &process in &moved {
        match existing_sockets::change_sockets_of(process, wanted, &mut done) {
            Ok(of_process) => socket_changes.add(of_process),
            Err(error) if existing_sockets::has_ended(&error) => {}
            Err(error) => {
                foreground.push(format!("all open connections of process {process}: {error}"));
            }
        }
    }
    foreground.extend(socket_changes.foreground());
    if !children && !backgrounds.unplaced_children(&moved).is_empty() {
        foreground.push("children that run already: move them with --children".to_owned());
    }
    Ok(Adopted {
        process: pid,
        processes: moved.into_iter().collect(),
        connections: socket_changes.connections,
        listeners: socket_changes.listeners,
        foreground,
        left_cgroup,
        shortfalls: backgrounds.background.shortfalls(),
    })
}

/// The children of processes that are not among them.
pub(crate) fn children_of(processes: &BTreeSet<i32>) -> impl Iterator<Item = i32> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| !processes.contains(pid))
        .filter(|&pid| parent(pid).is_some_and(|parent| processes.contains(&parent)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_id_names_its_process() {
        let status = "Name:\tworker\nTgid:\t12\nNgid:\t0\nPid:\t15\nPPid:\t1\n";
        assert_eq!(process_in(status), Some(12));
        assert_eq!(process_in("Name:\tsh\nTgid:\t0\nPid:\t0\n"), None);
        assert_eq!(process_in(""), None);
        let own = std::process::id() as i32;
        assert_eq!(process_of(own), Some(own));
        // libtest runs this in a thread that is not the first.
        let thread = nix::unistd::gettid().as_raw();
        assert_eq!(process_of(thread), Some(own));
        assert_eq!(process_of(-1), None);
    }
}
