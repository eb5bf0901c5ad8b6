//! What can go wrong, each told in one line with the way out.

use std::path::PathBuf;
use std::{fs, io};

use nix::unistd::Uid;

use crate::machine;

/// An error of this crate. Its message is one line for the person at the terminal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The process may not load BPF programs or change cgroups.
    #[error("{what} needs {missing}: {remedy}")]
    Permission {
        /// What was tried.
        what: String,
        /// The capabilities that are missing.
        missing: String,
        /// What helps whoever this process is: being told to be root does not help root.
        remedy: &'static str,
    },
    /// The kernel cannot attach a congestion control by a link.
    #[error("Linux {release} is too old: loading a congestion control needs 6.4 or later")]
    OldKernel {
        /// As `uname -r` says it.
        release: String,
    },
    /// The kernel does not describe its types.
    #[error(
        "/sys/kernel/btf/vmlinux is missing: \
         use a kernel built with CONFIG_DEBUG_INFO_BTF, as the distributions' are"
    )]
    NoBtf,
    /// No cgroup v2 in this kernel.
    #[error(
        "this kernel has no cgroup v2: use one built with CONFIG_CGROUPS and CONFIG_CGROUP_BPF"
    )]
    NoCgroup,
    /// cgroup v2 is there but out of reach.
    #[error(
        "cgroup v2 is mounted nowhere and cannot be mounted ({source}): \
         mount it with 'mount -t cgroup2 none /sys/fs/cgroup', or run as root"
    )]
    CgroupUnreachable {
        /// Why it could not be mounted.
        source: io::Error,
    },
    /// cgroup v2 is there and cannot be changed.
    #[error(
        "cgroup v2 is mounted read-only, as in a container, and no other mount can be made: \
         run it outside, or where that mount may be written to"
    )]
    CgroupReadOnly,
    /// The kernel does not let a cgroup of ours have our programs.
    #[error(
        "cannot attach a program to the cgroup: {source}; it seems that a cgroup around it has one \
         which bears no others below: 'bpftool cgroup tree' shows it; detach that, or run lull in \
         another cgroup"
    )]
    ExclusiveProgram {
        /// What the kernel said.
        source: io::Error,
    },
    /// A program of a cgroup around ours would no longer run.
    #[error(
        "cannot keep a program of the cgroup around this one running, such as a firewall: {source}; \
         'bpftool cgroup tree' shows it; attach it with the flag 'multi', or run lull in another cgroup"
    )]
    OuterProgram {
        /// What the kernel said.
        source: io::Error,
    },
    /// The BPF file system, which keeps what is loaded, is out of reach.
    #[error(
        "the BPF file system is mounted nowhere and cannot be mounted ({source}): \
         mount it with 'mount -t bpf bpf /sys/fs/bpf'"
    )]
    NoBpffs {
        /// Why it could not be mounted.
        source: io::Error,
    },
    /// The BPF file system is there, for others.
    #[error(
        "the BPF file system at {} is closed to this user: run it as root, or grant CAP_DAC_OVERRIDE \
         as well",
        point.display()
    )]
    BpffsDenied {
        /// Where it is mounted.
        point: PathBuf,
    },
    /// The congestion control exists neither in the kernel nor in its modules.
    #[error(
        "there is no congestion control '{name}': this kernel has {available}{way_out}",
        way_out = how_to_load(.name)
    )]
    UnknownCongestion {
        /// What was asked for.
        name: String,
        /// What is there, separated by spaces.
        available: String,
    },
    /// A name that no congestion control can have.
    #[error(
        "'{name}' is no name of a congestion control, which has 1 to 15 bytes and no slash: \
         this kernel has {available}"
    )]
    BadCongestion {
        /// What was asked for.
        name: String,
        /// What is there, separated by spaces.
        available: String,
    },
    /// A congestion control that does not yield by itself, on a network that is not said to help.
    #[error(
        "'{name}' does not yield by itself: it is unobtrusive only where the network serves packets \
         of lower effort (DSCP LE) after all others; say so with --network-honours-le, or take \
         --cc nice, which yields on any network"
    )]
    NeedsLowerClass {
        /// What was asked for.
        name: String,
    },
    /// The same without the mark that the network could serve it by.
    #[error(
        "'{name}' relies on the network to serve its packets last, which knows them by their DSCP: \
         leave out --dscp none"
    )]
    NeedsMark {
        /// What was asked for.
        name: String,
    },
    /// A name that the kernel would not take.
    #[error("'{name}' is not a name: use 1 to 15 of a-z, 0-9 and '_'")]
    BadName {
        /// What was asked for.
        name: String,
    },
    /// A parameter outside its range.
    #[error("{parameter} {value} is out of range: {range}")]
    BadParameter {
        /// Its name as on the command line.
        parameter: &'static str,
        /// What was asked for.
        value: String,
        /// What is allowed.
        range: &'static str,
    },
    /// We have loaded this name before.
    #[error("'{name}' is loaded already ({parameters}): {remedy}, or take another --name")]
    AlreadyLoaded {
        /// The name.
        name: String,
        /// The parameters it was loaded with.
        parameters: String,
        /// What makes room for another one of this name.
        remedy: String,
    },
    /// The kernel has a congestion control of this name that is not ours.
    #[error("the kernel has a congestion control '{name}' that is not Lull's: take another --name")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// Nothing of this name was loaded by us.
    #[error("'{name}' is not loaded: {loaded}")]
    NotLoaded {
        /// The name.
        name: String,
        /// What is loaded.
        loaded: String,
    },
    /// It is being used.
    #[error(
        "'{name}' is in use by {users}: wait for them, or unload it with --force \
         (open connections keep it, new ones go to the foreground)"
    )]
    InUse {
        /// The name.
        name: String,
        /// Sockets and programs.
        users: String,
    },
    /// Whether programs run on it is out of sight.
    #[error(
        "whether programs use '{name}' is not to be seen from here, where not all cgroups are in \
         sight: unload it outside of this container or cgroup namespace, or with --force (open \
         connections keep it, new ones go to the foreground)"
    )]
    UsersOutOfSight {
        /// The name.
        name: String,
    },
    /// No such process.
    #[error("there is no process {pid}")]
    NoProcess {
        /// As it was given.
        pid: i32,
    },
    /// A process that must not be moved, or that has no sockets of a program.
    #[error("process {pid} cannot be moved: {why}")]
    NotToBeMoved {
        /// As it was given.
        pid: i32,
        /// Why, and what to do instead.
        why: &'static str,
    },
    /// A process that the kernel does not move.
    #[error("process {pid} cannot be moved: {source}")]
    CannotMove {
        /// As it was given.
        pid: i32,
        /// What the kernel said.
        source: io::Error,
    },
    /// No such job.
    #[error("there is no job '{job}': 'lull jobs' lists those that run")]
    NoJob {
        /// As it was given.
        job: String,
    },
    /// A name that no job can have.
    #[error("'{name}' is not a name of a job: use 1 to 63 of letters, digits, '.', '_' and '-'")]
    BadJobName {
        /// As it was given.
        name: String,
    },
    /// Another job has that name.
    #[error(
        "a job named '{name}' is running (process {pid}): wait until it ends, or take another --name"
    )]
    JobRuns {
        /// The name.
        name: String,
        /// Its first process.
        pid: i32,
    },
    /// No background can be made inside the cgroup of a process.
    #[error("no background can be made inside the cgroup of process {pid}: {why}")]
    NoRoom {
        /// The process.
        pid: i32,
        /// The reason.
        why: String,
    },
    /// The server that makes backgrounds for plain users did not make one.
    #[error("the server at {} refused: {why}", socket.display())]
    Refused {
        /// Its socket.
        socket: PathBuf,
        /// The reason.
        why: String,
    },
    /// The server is for other users.
    #[error(
        "this user may not use the server at {}: have an administrator add the user to the group of \
         that socket, or run it as root",
        socket.display()
    )]
    NotInGroup {
        /// Its socket.
        socket: PathBuf,
    },
    /// No such group.
    #[error(
        "there is no group '{group}': create it with 'groupadd {group}', or name another with --group"
    )]
    NoGroup {
        /// As it was given.
        group: String,
    },
    /// No such user.
    #[error("there is no user '{user}': 'getent passwd' lists the users")]
    NoUser {
        /// As it was given.
        user: String,
    },
    /// This process may not run a program as another user.
    #[error("cannot run a program as '{user}' ({source}): leave out --user, or run lull with sudo")]
    CannotBecome {
        /// Their name.
        user: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The program to run does not exist.
    #[error("cannot find '{program}': No such file or directory")]
    ProgramNotFound {
        /// As it was given.
        program: String,
    },
    /// The program exists and cannot be run.
    #[error("cannot run '{program}': {source}")]
    ProgramNotExecutable {
        /// As it was given.
        program: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel refused a BPF program, map or attachment.
    #[error("the kernel refused to {what}: {message}")]
    Bpf {
        /// What was tried.
        what: String,
        /// What libbpf said, on one line.
        message: String,
    },
    /// A file or a system call failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A signal came before the program was started.
    #[error("ended by signal {signal} before the program was started")]
    Interrupted {
        /// Its number.
        signal: i32,
    },
}

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Says what was tried when a system call failed.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        move |source| Error::Io { what, source }
    }

    /// The same for an errno of `nix`.
    pub(crate) fn errno(what: impl Into<String>) -> impl FnOnce(nix::errno::Errno) -> Error {
        let what = what.into();
        move |errno| Error::Io { what, source: errno.into() }
    }

    /// Something that this process may not do. `is_capable`: although it has the capabilities.
    pub(crate) fn permission(
        what: impl Into<String>,
        missing: impl Into<String>,
        is_capable: bool,
    ) -> Error {
        let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        let remedy = remedy(Uid::effective().is_root(), is_first_namespace(&map), is_capable);
        Error::Permission { what: what.into(), missing: missing.into(), remedy }
    }

    /// Why a program cannot be attached to a cgroup.
    pub(crate) fn attach(source: io::Error) -> Error {
        match source.raw_os_error() {
            // hierarchy_allows_attach of the kernel; our capabilities have been looked at before.
            Some(libc::EPERM) => Error::ExclusiveProgram { source },
            _ => Error::io("attach a program to the cgroup")(source),
        }
    }

    /// Why a program of a cgroup around ours cannot be kept running.
    pub(crate) fn outer_program(source: io::Error) -> Error {
        Error::OuterProgram { source }
    }

    /// What libbpf said, on one line; a lack of privilege gets its own words.
    pub(crate) fn bpf(what: impl Into<String>) -> impl FnOnce(libbpf_rs::Error) -> Error {
        let what = what.into();
        move |error| {
            if error.kind() == libbpf_rs::ErrorKind::PermissionDenied {
                let missing =
                    "CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN in the initial user namespace";
                return Error::permission(format!("to {what}"), missing, true);
            }
            let message = format!("{error:#}").replace('\n', " ");
            Error::Bpf { what, message }
        }
    }
}

/// What helps whoever may not do something.
fn remedy(is_root: bool, is_first_namespace: bool, is_capable: bool) -> &'static str {
    match (is_root, is_first_namespace, is_capable) {
        (false, ..) => "run it as root",
        (true, false, _) => {
            "run it as root outside of this user namespace, which may be a container's"
        }
        (true, true, false) => {
            "root lacks that here, as in a container or a service: run it outside, or grant that \
             there"
        }
        (true, true, true) => {
            "root has that, so something else forbids it, such as a filter of system calls, a \
             security module or the kernel's lockdown: run it outside of that, or allow it there"
        }
    }
}

/// Only the first user namespace maps every number to itself (user_namespaces(7)). Without a map
/// the kernel has no others.
fn is_first_namespace(map: &str) -> bool {
    map.is_empty() || map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// What may have been forgotten, if the name can be one of ours.
fn how_to_load(name: &str) -> String {
    match machine::check_name(name) {
        Ok(()) => format!("; 'lull kernel load --name {name}' loads TCP Nice under that name"),
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_not_told_to_be_root() {
        assert_eq!(remedy(false, true, false), "run it as root");
        for (is_first_namespace, is_capable) in [(false, true), (true, false), (true, true)] {
            assert_ne!(remedy(true, is_first_namespace, is_capable), "run it as root");
        }
    }

    #[test]
    fn the_first_user_namespace_maps_every_number_to_itself() {
        assert!(is_first_namespace("         0          0 4294967295\n"));
        assert!(is_first_namespace(""));
        assert!(!is_first_namespace("         0       1000          1\n"));
        assert!(!is_first_namespace("         0     100000      65536\n"));
    }

    #[test]
    fn what_can_be_loaded_is_told_with_the_way_to_load_it() {
        let told = |name: &str| {
            let available = "reno cubic".to_owned();
            Error::UnknownCongestion { name: name.to_owned(), available }.to_string()
        };
        let way_out = "reno cubic; 'lull kernel load --name nicer' loads TCP Nice under that name";
        assert!(told("nicer").ends_with(way_out), "{}", told("nicer"));
        assert!(told("dctcp-2.x").ends_with("this kernel has reno cubic"));
    }
}
