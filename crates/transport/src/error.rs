//! Errors, each in one line with a remedy.

use std::io;

use nix::errno::Errno;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Only TCP has a congestion control.
    #[error("this is not a TCP socket: only TCP connections can be in the background")]
    NotTcp,
    /// The required carrier does not exist on this machine, or this process may not use it.
    #[error(
        "the kernel does not allow congestion control '{name}' for this socket ({source}): load \
         it with 'lull kernel load', without --restrict, or use the user-space carrier"
    )]
    NoKernelCarrier {
        /// The congestion control.
        name: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The kernel reported that it had set a congestion control, but another one runs.
    #[error(
        "this socket runs '{runs}' although '{name}' was set, as under 'lull exec --cc {runs}', \
         which sets it for the program: keep that, or use the user-space carrier"
    )]
    Overruled {
        /// The requested congestion control.
        name: String,
        /// The one that runs.
        runs: String,
    },
    /// The kernel paces no socket of this kind, so the user-space carrier cannot, either.
    #[error(
        "the kernel does not pace this socket ({0}), which is probably an MPTCP socket: use plain \
         TCP, or the kernel carrier ('lull kernel load')"
    )]
    NoPacing(io::Error),
    /// An impossible name of a congestion control.
    #[error("'{name}' is not the name of a congestion control: use 1 to 15 characters")]
    BadName {
        /// The requested name.
        name: String,
    },
    /// The kernel does not report values that the user-space controller needs.
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
        /// The failed action.
        what: &'static str,
        /// The kernel's reason.
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

    /// The error of an attempt to set SO_MAX_PACING_RATE.
    pub(crate) fn pacing(source: io::Error) -> Error {
        match source.raw_os_error().map(Errno::from_raw) {
            Some(errno) if is_unknown_option(errno) => Error::NoPacing(source),
            _ => Error::system("set SO_MAX_PACING_RATE")(source),
        }
    }
}

/// The error of a kind of socket for an option that it does not have.
pub(crate) fn is_unknown_option(errno: Errno) -> bool {
    matches!(errno, Errno::EOPNOTSUPP | Errno::ENOPROTOOPT)
}

/// For functions that return [`io::Error`], such as `accept`: its kind is the kernel's, and its message
/// contains the failed action, too.
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
