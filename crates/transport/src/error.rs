//! What can go wrong, each told in one line with the way out.

use std::io;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Only TCP has a congestion control.
    #[error("this socket is no TCP socket: only TCP connections can be made background ones")]
    NotTcp,
    /// A carrier was asked for that this machine has not, or that this process may not use.
    #[error(
        "the kernel does not give congestion control '{name}' to this socket ({source}): \
         load it with 'lull kernel load', without --restrict, or let the user-space carrier do it"
    )]
    NoKernelCarrier {
        /// The congestion control.
        name: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A name that no congestion control can have.
    #[error("'{name}' is not a name of a congestion control: use 1 to 15 characters")]
    BadName {
        /// What was asked for.
        name: String,
    },
    /// The kernel does not report what the user-space controller needs.
    #[error(
        "this kernel's TCP_INFO is too short for control from user space: \
         it needs Linux 4.18, or 'lull kernel load' on 6.4"
    )]
    OldKernel,
    /// The socket is not connected, so there is nothing to control from user space yet.
    #[error("the socket is not connected: connect it first, or use Options::connect")]
    NotConnected,
    /// No thread could be started for the user-space carrier.
    #[error("cannot start the thread of the user-space carrier ({0}): raise the limit of threads")]
    Thread(io::Error),
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::System { what, source }
    }

    pub(crate) fn errno(what: &'static str) -> impl FnOnce(nix::errno::Errno) -> Error {
        move |errno| Error::System { what, source: errno.into() }
    }
}

/// For functions that already speak of [`io::Error`], such as `accept`.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::System { source, .. } => source,
            other => io::Error::other(other),
        }
    }
}
