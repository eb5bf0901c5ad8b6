//! What can go wrong, each told in one line with the way out.

use std::io;

use nix::errno::Errno;

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
    /// Another congestion control runs than the one that the kernel said it had set.
    #[error(
        "this socket runs '{runs}' although '{name}' was set, as under 'lull exec --cc {runs}', \
         which decides for its program: leave it to that, or let the user-space carrier do it"
    )]
    Overruled {
        /// The congestion control that was asked for.
        name: String,
        /// The one that runs.
        runs: String,
    },
    /// The kernel paces no socket of this kind, so the user-space carrier cannot, either.
    #[error(
        "the kernel does not limit the pace of this socket ({0}), which is probably one of MPTCP: \
         take plain TCP, or give it the kernel's carrier by 'lull kernel load'"
    )]
    NoPacing(io::Error),
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

    pub(crate) fn errno(what: &'static str) -> impl FnOnce(Errno) -> Error {
        move |errno| Error::System { what, source: errno.into() }
    }

    /// What SO_MAX_PACING_RATE has met with.
    pub(crate) fn pacing(source: io::Error) -> Error {
        match source.raw_os_error().map(Errno::from_raw) {
            Some(errno) if is_unknown_option(errno) => Error::NoPacing(source),
            _ => Error::system("set SO_MAX_PACING_RATE")(source),
        }
    }
}

/// What a kind of socket answers to an option that others have.
pub(crate) fn is_unknown_option(errno: Errno) -> bool {
    matches!(errno, Errno::EOPNOTSUPP | Errno::ENOPROTOOPT)
}

/// For functions that already speak of [`io::Error`], such as `accept`: its kind is the kernel's, its
/// message says what was tried, too.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::System { source, .. }
            | Error::NoKernelCarrier { source, .. }
            | Error::NoPacing(source)
            | Error::Thread(source) => source.kind(),
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_error_names_operation_and_kind() {
        let refused = io::Error::from_raw_os_error(libc::ECONNREFUSED);
        let error = io::Error::from(Error::system("connect")(refused));
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(error.to_string(), "cannot connect: Connection refused (os error 111)");
        assert_eq!(io::Error::from(Error::NotTcp).kind(), io::ErrorKind::Other);
    }

    #[test]
    fn missing_pacing_differs_from_a_failed_limit() {
        let pacing = |errno| Error::pacing(io::Error::from_raw_os_error(errno));
        for errno in [libc::EOPNOTSUPP, libc::ENOPROTOOPT] {
            assert!(pacing(errno).to_string().contains("MPTCP"));
        }
        let error = pacing(libc::EPERM).to_string();
        assert!(error.starts_with("cannot set SO_MAX_PACING_RATE: "), "{error}");
    }
}
