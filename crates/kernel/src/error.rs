//! The errors, each reported in one line with the remedy.

use std::path::PathBuf;
use std::{fs, io};

use nix::unistd::Uid;

use crate::names;

/// An error of this crate. Its message is one line for the user at the terminal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The process may not load BPF programs or change cgroups.
    #[error("{what} needs {missing}: {remedy}")]
    Permission {
        /// The attempted operation.
        what: String,
        /// The capabilities that are missing.
        missing: String,
        /// The remedy for this process: "run as root" does not help root.
        remedy: &'static str,
    },
    /// The kernel cannot attach a congestion control by a link.
    #[error("Linux {release} is too old: loading a congestion control needs 6.4 or later")]
    OldKernel {
        /// The release in `uname -r`.
        release: String,
    },
    /// The kernel does not describe its types.
    #[error(
        "/sys/kernel/btf/vmlinux is missing: \
         use a kernel built with CONFIG_DEBUG_INFO_BTF, as the distributions' are"
    )]
    NoBtf,
    /// This kernel has no cgroup v2.
    #[error(
        "this kernel has no cgroup v2: use one built with CONFIG_CGROUPS and CONFIG_CGROUP_BPF"
    )]
    NoCgroup,
    /// cgroup v2 exists but cannot be reached.
    #[error(
        "cgroup v2 is mounted nowhere and cannot be mounted ({source}): \
         mount it with 'mount -t cgroup2 none /sys/fs/cgroup', or run as root"
    )]
    CgroupUnreachable {
        /// Why it could not be mounted.
        source: io::Error,
    },
    /// cgroup v2 exists and cannot be changed.
    #[error(
        "cgroup v2 is mounted read-only, as in a container, and no other mount can be made: \
         run it outside, or where that mount may be written to"
    )]
    CgroupReadOnly,
    /// The kernel does not let our programs be attached to our cgroup.
    #[error(
        "cannot attach a program to the cgroup: {source}; an outer cgroup may have a program that \
         permits no others below it: 'bpftool cgroup tree' shows it; detach that, or run lull in \
         another cgroup"
    )]
    ExclusiveProgram {
        /// The error of the kernel.
        source: io::Error,
    },
    /// A program of an outer cgroup would no longer run.
    #[error(
        "cannot keep a program of the cgroup around this one running, such as a firewall: {source}; \
         'bpftool cgroup tree' shows it; attach it with the flag 'multi', or run lull in another cgroup"
    )]
    OuterProgram {
        /// The error of the kernel.
        source: io::Error,
    },
    /// The BPF file system, which keeps loaded programs, is not accessible.
    #[error(
        "the BPF file system is mounted nowhere and cannot be mounted ({source}): \
         mount it with 'mount -t bpf bpf /sys/fs/bpf'"
    )]
    NoBpffs {
        /// Why it could not be mounted.
        source: io::Error,
    },
    /// The BPF file system exists, but cannot be used by this user.
    #[error(
        "the BPF file system at {} cannot be used by this user: run it as root, or grant \
         CAP_DAC_OVERRIDE as well",
        point.display()
    )]
    BpffsDenied {
        /// Its mount point.
        point: PathBuf,
    },
    /// The congestion control exists neither in the kernel nor in its modules.
    #[error(
        "there is no congestion control '{name}': this kernel has {available}{way_out}",
        way_out = how_to_load(.name)
    )]
    UnknownCongestion {
        /// The requested name.
        name: String,
        /// The available names, separated by spaces.
        available: String,
    },
    /// A name that is invalid for congestion controls.
    #[error(
        "'{name}' is not the name of a congestion control (1 to 15 bytes without a slash): this \
         kernel has {available}"
    )]
    BadCongestion {
        /// The requested name.
        name: String,
        /// The available names, separated by spaces.
        available: String,
    },
    /// A congestion control that does not yield itself, on a network that is not declared to help.
    #[error(
        "'{name}' does not yield by itself: it needs a network that serves packets of lower \
         effort (DSCP LE) after all others. Confirm that with --network-honours-le, or use --cc \
         nice, which yields on any network"
    )]
    NeedsLowerClass {
        /// The requested name.
        name: String,
    },
    /// The same without the mark that the network needs to serve it last.
    #[error(
        "'{name}' relies on the network to serve its packets last, which knows them by their DSCP: \
         leave out --dscp none"
    )]
    NeedsMark {
        /// The requested name.
        name: String,
    },
    /// A name that the kernel rejects.
    #[error("'{name}' is not a name: use 1 to 15 of a-z, 0-9 and '_'")]
    BadName {
        /// The requested name.
        name: String,
    },
    /// A parameter outside its range.
    #[error("{parameter} {value} is out of range: {range}")]
    BadParameter {
        /// Its name as on the command line.
        parameter: &'static str,
        /// The given value.
        value: String,
        /// The valid range.
        range: &'static str,
    },
    /// Lull has loaded this name before.
    #[error("'{name}' is loaded already ({parameters}): {remedy}, or take another --name")]
    AlreadyLoaded {
        /// The name.
        name: String,
        /// The parameters it was loaded with.
        parameters: String,
        /// How to make space for another one of this name.
        remedy: String,
    },
    /// The kernel has a congestion control of this name that is not Lull's.
    #[error("the kernel has a congestion control '{name}' that is not Lull's: take another --name")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// Lull has loaded nothing of this name.
    #[error("'{name}' is not loaded: {loaded}")]
    NotLoaded {
        /// The name.
        name: String,
        /// The loaded one.
        loaded: String,
    },
    /// It is in use.
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
    /// It cannot be seen whether programs run on it.
    #[error(
        "programs may use '{name}' in cgroups that are not visible here: unload it outside of \
         this container or cgroup namespace, or with --force (open connections keep it, new ones \
         go to the foreground)"
    )]
    UsersOutOfSight {
        /// The name.
        name: String,
    },
    /// No such process.
    #[error("there is no process {pid}")]
    NoProcess {
        /// The given id.
        pid: i32,
    },
    /// A process that must not be moved, or that has no sockets of a program.
    #[error("process {pid} cannot be moved: {why}")]
    NotToBeMoved {
        /// The given id.
        pid: i32,
        /// Why, and what to do instead.
        why: &'static str,
    },
    /// A process that the kernel does not move.
    #[error("process {pid} cannot be moved: {source}")]
    CannotMove {
        /// The given id.
        pid: i32,
        /// The error of the kernel.
        source: io::Error,
    },
    /// No such job.
    #[error("there is no job '{job}': 'lull jobs' lists those that run")]
    NoJob {
        /// The given name or id.
        job: String,
    },
    /// A name that is invalid for jobs.
    #[error("'{name}' is not a name of a job: use 1 to 63 of letters, digits, '.', '_' and '-'")]
    BadJobName {
        /// The given name.
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
    /// A user may pause and resume only jobs whose processes all have the rights of that user.
    #[error("job '{job}' has processes of another user: run 'sudo lull jobs'")]
    JobOfOther {
        /// Its name or number.
        job: String,
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
    #[error("the server at {} rejected the request: {why}", socket.display())]
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
        /// The given name.
        group: String,
    },
    /// No such user.
    #[error("there is no user '{user}': 'getent passwd' lists the users")]
    NoUser {
        /// The given name.
        user: String,
    },
    /// This process may not run a program as another user.
    #[error("cannot run a program as '{user}' ({source}): leave out --user, or run lull with sudo")]
    CannotBecome {
        /// Their name.
        user: String,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The program to run does not exist.
    #[error("cannot find '{program}': No such file or directory")]
    ProgramNotFound {
        /// The given name.
        program: String,
    },
    /// The program exists and cannot be run.
    #[error("cannot run '{program}': {source}")]
    ProgramNotExecutable {
        /// The given name.
        program: String,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The kernel refused a BPF program, map or attachment.
    #[error("the kernel did not {what}: {message}")]
    Bpf {
        /// The attempted operation.
        what: String,
        /// The message of libbpf, on one line.
        message: String,
    },
    /// A file or a system call failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// The attempted operation.
        what: String,
        /// The error of the kernel.
        source: io::Error,
    },
    /// A signal arrived before the program was started.
    #[error("ended by signal {signal} before the program was started")]
    Interrupted {
        /// Its number.
        signal: i32,
    },
}

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Adds the attempted operation to the error of a system call.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        move |source| Error::Io { what, source }
    }

    /// The same for an errno of `nix`.
    pub(crate) fn errno(what: impl Into<String>) -> impl FnOnce(nix::errno::Errno) -> Error {
        let what = what.into();
        move |errno| Error::Io { what, source: errno.into() }
    }

    /// An operation without permission. `is_capable`: although this process has the capabilities.
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
            // hierarchy_allows_attach of the kernel; the capabilities were checked before.
            Some(libc::EPERM) => Error::ExclusiveProgram { source },
            _ => Error::io("attach a program to the cgroup")(source),
        }
    }

    /// Why a program of an outer cgroup cannot continue to run.
    pub(crate) fn outer_program(source: io::Error) -> Error {
        Error::OuterProgram { source }
    }

    /// The message of libbpf, on one line; a lack of privilege gets a separate message.
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

/// The remedy for missing permissions.
fn remedy(is_root: bool, is_first_namespace: bool, is_capable: bool) -> &'static str {
    match (is_root, is_first_namespace, is_capable) {
        (false, ..) => "run it as root",
        (true, false, _) => {
            "run it as root outside of this user namespace, which may be a container's"
        }
        (true, true, false) => {
            "root lacks that here, as in a container or a service: run it outside, or grant it to \
             the container"
        }
        (true, true, true) => {
            "root has that, so a system call filter, a security module or the kernel's lockdown \
             forbids it: run it outside of that, or allow it"
        }
    }
}

/// Only the first user namespace maps every id to itself (user_namespaces(7)). Without a map the kernel has
/// no others.
fn is_first_namespace(map: &str) -> bool {
    map.is_empty() || map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// The command that loads it, if Lull can load a control of this name.
fn how_to_load(name: &str) -> String {
    if names::is_valid(name) {
        format!("; 'lull kernel load --name {name}' loads TCP Nice under that name")
    } else {
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_gets_no_advice_to_become_root() {
        assert_eq!(remedy(false, true, false), "run it as root");
        for (is_first_namespace, is_capable) in [(false, true), (true, false), (true, true)] {
            assert_ne!(remedy(true, is_first_namespace, is_capable), "run it as root");
        }
    }

    #[test]
    fn first_user_namespace_maps_every_number_to_itself() {
        assert!(is_first_namespace("         0          0 4294967295\n"));
        assert!(is_first_namespace(""));
        assert!(!is_first_namespace("         0       1000          1\n"));
        assert!(!is_first_namespace("         0     100000      65536\n"));
    }

    #[test]
    fn loadable_control_is_reported_with_its_command() {
        let told = |name: &str| {
            let available = "reno cubic".to_owned();
            Error::UnknownCongestion { name: name.to_owned(), available }.to_string()
        };
        let way_out = "reno cubic; 'lull kernel load --name nicer' loads TCP Nice under that name";
        assert!(told("nicer").ends_with(way_out), "{}", told("nicer"));
        assert!(told("dctcp-2.x").ends_with("this kernel has reno cubic"));
    }
}
