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

/// For functions that already speak of [`io::Error`], such as `accept`: its kind is the kernel's, its
/// message says what was tried, too.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::System { source, .. }
            | Error::NoKernelCarrier { source, .. }
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
    fn as_an_io_error_it_says_what_was_tried_and_of_which_kind_it_is() {
        let refused = io::Error::from_raw_os_error(libc::ECONNREFUSED);
        let error = io::Error::from(Error::system("connect")(refused));
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(error.to_string(), "cannot connect: Connection refused (os error 111)");
        assert_eq!(io::Error::from(Error::NotTcp).kind(), io::ErrorKind::Other);
    }
}
