//! What can go wrong, each told in one line with the way out.

use std::io;

/// An error of this crate. Its message is one line for the person at the terminal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The process may not load BPF programs or change cgroups.
    #[error("{what} needs {missing}: run it as root")]
    Permission {
        /// What was tried.
        what: String,
        /// The capabilities that are missing.
        missing: String,
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
    /// The BPF file system, which keeps what is loaded, is out of reach.
    #[error(
        "the BPF file system is mounted nowhere and cannot be mounted ({source}): \
         mount it with 'mount -t bpf bpf /sys/fs/bpf'"
    )]
    NoBpffs {
        /// Why it could not be mounted.
        source: io::Error,
    },
    /// The congestion control exists neither in the kernel nor in its modules.
    #[error("there is no congestion control '{name}': this kernel has {available}")]
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
    #[error(
        "'{name}' is loaded already ({parameters}): \
         unload it with 'lull kernel unload --name {name}', or take another --name"
    )]
    AlreadyLoaded {
        /// The name.
        name: String,
        /// The parameters it was loaded with.
        parameters: String,
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

    /// What libbpf said, on one line; a lack of privilege gets its own words.
    pub(crate) fn bpf(what: impl Into<String>) -> impl FnOnce(libbpf_rs::Error) -> Error {
        let what = what.into();
        move |error| {
            if error.kind() == libbpf_rs::ErrorKind::PermissionDenied {
                return Error::Permission {
                    what: format!("to {what}"),
                    missing: "CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN in the initial user namespace"
                        .to_owned(),
                };
            }
            let message = format!("{error:#}").replace('\n', " ");
            Error::Bpf { what, message }
        }
    }
}
