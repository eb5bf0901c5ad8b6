//! The settings of background sockets.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use lull_cc::NiceParameters;
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, connect, socket};

use crate::background::Background;
use crate::carrier::Carrier;
use crate::class::TrafficClass;
use crate::error::{Error, Result, is_unknown_option};
use crate::guard::{Before, Guard};
use crate::socket_options::{congestion_control, set_congestion_control, set_rate};
use crate::user_space::UserSpaceNice;

/// The congestion control under the user-space carrier: it reacts to losses, and every user may choose it.
const UNDERLYING: &str = "reno";
/// The longest name of a congestion control: the kernel's TCP_CA_NAME_MAX less the final zero.
const MAX_NAME_BYTES: usize = 15;

/// The requested class of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dscp {
    /// Lower effort, 000001 (RFC 8622): networks that support it send it after all other traffic.
    #[default]
    Le,
    /// The application's choice.
    None,
}

/// The options for making sockets background ones.
///
/// ```no_run
/// use std::io::Write;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut stream = lull_transport::Options::new().connect("192.0.2.1:873".parse()?)?;
/// eprintln!("in the background by {}", stream.carrier());
/// stream.write_all(b"background data")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    congestion_control: Option<String>,
    carrier: Option<Carrier>,
    dscp: Dscp,
    parameters: NiceParameters,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            congestion_control: None,
            carrier: None,
            dscp: Dscp::Le,
            parameters: NiceParameters::refined(),
        }
    }
}

impl Options {
    /// The kernel's `lull` if it is loaded, then its `nice`, then Nice from user space; packets marked as
    /// lower effort.
    pub fn new() -> Self {
        Self::default()
    }

    /// The name of the kernel's congestion control, as registered by `lull kernel load`. Without a name,
    /// `lull` is tried, and then `nice`.
    pub fn congestion_control(mut self, name: impl Into<String>) -> Self {
        self.congestion_control = Some(name.into());
        self
    }

    /// This carrier or an error, instead of the best one.
    pub fn carrier(mut self, carrier: Carrier) -> Self {
        self.carrier = Some(carrier);
        self
    }

    /// The class of the packets; lower effort by default.
    pub fn dscp(mut self, dscp: Dscp) -> Self {
        self.dscp = dscp;
        self
    }

    /// The constants of the user-space carrier; those of the kernel's are options of `lull kernel load`.
    pub fn parameters(mut self, parameters: NiceParameters) -> Self {
        self.parameters = parameters;
        self
    }

    /// Applies the settings that are possible before a socket connects or listens: class, congestion control
    /// and, for the user-space carrier, an initial pacing rate. Once it is connected, [`Prepared::stream`] or
    /// [`Prepared::guard`] does the rest. Not needed with [`connect`](Self::connect) and
    /// [`listener`](Self::listener).
    ///
    /// # Errors
    /// [`Error::NotTcp`]; [`Error::NoKernelCarrier`] or [`Error::Overruled`] if that carrier was required;
    /// [`Error::NoPacing`]; [`Error::BadName`]. On an error, the socket is unchanged.
    pub fn prepare(&self, socket: impl AsFd) -> Result<Prepared> {
        let socket = socket.as_fd();
        let before = Before::of(socket)?;
        let carrier = self.set_up(socket, &before).inspect_err(|_| before.restore_all(socket))?;
        let mut options = self.clone();
        if carrier == Carrier::UserSpace {
            // The initial pacing rate would remain if `nice` were available once it is connected.
            options.carrier = Some(carrier);
        }
        Ok(Prepared { options, carrier, before })
    }

    /// The settings of [`prepare`](Self::prepare).
    fn set_up(&self, socket: BorrowedFd<'_>, before: &Before) -> Result<Carrier> {
        let carrier = self.choose(socket)?;
        if carrier == Carrier::UserSpace {
            let first = UserSpaceNice::initial_rate().bytes_per_second();
            set_rate(socket, first.min(before.max_pacing_rate))?;
        }
        self.set_class(socket)?;
        Ok(carrier)
    }

    /// Puts a connected TCP socket in the background: it stays there until the guard's
    /// [`into_foreground`](Guard::into_foreground).
    ///
    /// For a socket with another owner. [`stream`](Self::stream) keeps the two together, and controls the
    /// rest of the data when the socket is closed.
    ///
    /// # Errors
    /// The errors of [`prepare`](Self::prepare), and for the user-space carrier [`Error::NotConnected`],
    /// [`Error::OldKernel`] and [`Error::Thread`]. On an error, the socket is unchanged.
    pub fn guard(&self, socket: impl AsFd) -> Result<Guard> {
        let socket = socket.as_fd();
        let before = Before::of(socket)?;
        self.guard_since(socket, before.clone()).inspect_err(|_| before.restore_all(socket))
    }

    /// Like [`guard`](Self::guard), for a socket whose previous state is known.
    fn guard_since(&self, socket: BorrowedFd<'_>, before: Before) -> Result<Guard> {
        let carrier = self.choose(socket)?;
        // Steps that may fail come first: a socket under control could get a pacing rate after it was
        // restored.
        self.set_class(socket)?;
        match carrier {
            Carrier::Kernel => Ok(Guard::kernel(before)),
            Carrier::UserSpace => Guard::user_space(socket, before, self.parameters),
        }
    }

    /// Makes a connected stream a background one: a `TcpStream` of std or Tokio, or any type with the
    /// descriptor of a TCP connection.
    ///
    /// # Errors
    /// The errors of [`guard`](Self::guard).
    pub fn stream<S: AsFd>(&self, stream: S) -> Result<Background<S>> {
        let guard = self.guard(&stream)?;
        Ok(Background::new(stream, guard))
    }

    /// Connects to `address` in the background, from the handshake on.
    ///
    /// # Errors
    /// The errors of [`guard`](Self::guard), and [`Error::System`] if there is no answer.
    pub fn connect(&self, address: SocketAddr) -> Result<Background<TcpStream>> {
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::Inet,
            SocketAddr::V6(_) => AddressFamily::Inet6,
        };
        let socket = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)
            .map_err(Error::errno("make a socket"))?;
        let prepared = self.prepare(&socket)?;
        let address = SockaddrStorage::from(address);
        loop {
            match connect(socket.as_raw_fd(), &address) {
                // A signal. The handshake continues: the next call waits for its end, or finds that it is
                // done.
                Err(Errno::EINTR) => {}
                Ok(()) | Err(Errno::EISCONN) => return prepared.stream(TcpStream::from(socket)),
                Err(errno) => return Err(Error::errno("connect")(errno)),
            }
        }
    }

    /// Names of the kernel's congestion controls, the best one first.
    fn names(&self) -> Vec<&str> {
        self.congestion_control.as_deref().map_or_else(|| vec!["lull", "nice"], |name| vec![name])
    }

    /// Chooses the carrier and sets its congestion control.
    fn choose(&self, socket: BorrowedFd<'_>) -> Result<Carrier> {
        let names = self.names();
        if let Some(name) = names.iter().find(|name| name.is_empty() || name.len() > MAX_NAME_BYTES)
        {
            return Err(Error::BadName { name: (*name).to_owned() });
        }
        if self.carrier != Some(Carrier::UserSpace) {
            let mut failed = None;
            for name in names {
                match give_kernel_control(socket, name) {
                    Ok(()) => return Ok(Carrier::Kernel),
                    Err(Error::NotTcp) => return Err(Error::NotTcp),
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
            if let (Some(error), true) = (failed, self.carrier.is_some()) {
                return Err(error);
            }
        }
        match set_congestion_control(socket, UNDERLYING) {
            Err(errno) if is_not_tcp(errno) => Err(Error::NotTcp),
            // Any other congestion control of the machine also stays below the pacing rate.
            _ => Ok(Carrier::UserSpace),
        }
    }

    fn set_class(&self, socket: BorrowedFd<'_>) -> Result<()> {
        match self.dscp {
            Dscp::Le => TrafficClass::LOWER_EFFORT.set(socket),
            Dscp::None => Ok(()),
        }
    }
}

/// A socket that is ready to connect or to listen in the background, and its previous state.
#[derive(Clone, Debug)]
pub struct Prepared {
    options: Options,
    carrier: Carrier,
    before: Before,
}

impl Prepared {
    /// The carrier of the connection, or of accepted ones.
    pub fn carrier(&self) -> Carrier {
        self.carrier
    }

    /// Like [`Options::guard`], for the prepared socket, which is connected by now, or for one that was
    /// accepted from it. In the foreground, it returns to the state before that.
    ///
    /// # Errors
    /// The errors of [`Options::guard`]; the socket then stays in the background, as it was prepared.
    pub fn guard(&self, socket: impl AsFd) -> Result<Guard> {
        self.options.guard_since(socket.as_fd(), self.before.clone())
    }

    /// Like [`Options::stream`], and like [`guard`](Self::guard).
    ///
    /// # Errors
    /// The errors of [`Options::guard`].
    pub fn stream<S: AsFd>(&self, stream: S) -> Result<Background<S>> {
        let guard = self.guard(&stream)?;
        Ok(Background::new(stream, guard))
    }
}

/// Sets a congestion control of the kernel for a socket.
fn give_kernel_control(socket: BorrowedFd<'_>, name: &str) -> Result<()> {
    match set_congestion_control(socket, name).and_then(|()| congestion_control(socket)) {
        Ok(runs) if runs == name => Ok(()),
        // The hooks of `lull exec` let the call succeed and set the congestion control of the cgroup. That
        // may yield or not; with pacing above it, it does.
        Ok(runs) => {
            let runs = runs.to_string_lossy().into_owned();
            Err(Error::Overruled { name: name.to_owned(), runs })
        }
        Err(errno) if is_not_tcp(errno) => Err(Error::NotTcp),
        // Not registered, or only for processes with CAP_NET_ADMIN.
        Err(errno) => {
            Err(Error::NoKernelCarrier { name: name.to_owned(), source: io::Error::from(errno) })
        }
    }
}

/// The errors of sockets other than TCP, and of other descriptors, for an option of TCP.
fn is_not_tcp(errno: Errno) -> bool {
    is_unknown_option(errno) || errno == Errno::ENOTSOCK
}
