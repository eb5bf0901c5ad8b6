//! The state that keeps a socket in the background.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use lull_cc::NiceParameters;

use crate::carrier::Carrier;
use crate::class::TrafficClass;
use crate::control::Control;
use crate::error::{Error, Result};
use crate::info::TcpInfo;
use crate::socket_options::{congestion_control, set_congestion_control, set_rate};
use crate::user_space::UserSpaceNice;

/// The previous state of a socket.
#[derive(Clone, Debug)]
pub(crate) struct Before {
    congestion_control: OsString,
    traffic_class: TrafficClass,
    /// The previous setting, in bytes per second (`SO_MAX_PACING_RATE`).
    set_pacing_rate: u64,
    /// The application's own part of it.
    pub(crate) max_pacing_rate: u64,
}

impl Before {
    pub(crate) fn of(socket: BorrowedFd<'_>) -> Result<Self> {
        let congestion_control = congestion_control(socket).map_err(|_| Error::NotTcp)?;
        let traffic_class = TrafficClass::of(socket)?;
        let set_pacing_rate = TcpInfo::of(socket).map_or(u64::MAX, |info| info.max_pacing_rate);
        // The initial pacing rate of a prepared socket, or of one accepted from it, is not the application's
        // setting.
        let first = UserSpaceNice::initial_rate().bytes_per_second();
        let max_pacing_rate = if set_pacing_rate == first { u64::MAX } else { set_pacing_rate };
        Ok(Before { congestion_control, traffic_class, set_pacing_rate, max_pacing_rate })
    }

    /// Restores a socket after a failed attempt, as far as the kernel allows: the caller gets the first
    /// error.
    pub(crate) fn restore_all(&self, socket: BorrowedFd<'_>) {
        let _ = set_rate(socket, self.set_pacing_rate);
        let _ = self.traffic_class.set(socket);
        let _ = self.restore_congestion_control(socket);
    }

    fn restore_congestion_control(&self, socket: BorrowedFd<'_>) -> Result<()> {
        let name = self.congestion_control.to_string_lossy();
        set_congestion_control(socket, &name).map_err(Error::errno("restore a congestion control"))
    }
}

/// A socket's place in the background.
///
/// With the user-space carrier, the guard controls a socket. If it is dropped, the socket keeps its present
/// pacing rate; another guard would mistake that for the application's own limit. It holds a duplicate of the
/// descriptor, so the connection ends when both are closed, or by `shutdown`. With the kernel's carrier it
/// does nothing, and holds nothing.
#[derive(Debug)]
pub struct Guard {
    before: Before,
    control: Option<Arc<Control>>,
}

impl Guard {
    pub(crate) fn kernel(before: Before) -> Self {
        Guard { before, control: None }
    }

    pub(crate) fn user_space(
        socket: BorrowedFd<'_>,
        before: Before,
        parameters: NiceParameters,
    ) -> Result<Self> {
        let duplicate: OwnedFd =
            socket.try_clone_to_owned().map_err(Error::system("duplicate a descriptor"))?;
        let control = Control::start(duplicate, parameters, before.max_pacing_rate)?;
        Ok(Guard { before, control: Some(control) })
    }

    /// The carrier of the connection.
    pub fn carrier(&self) -> Carrier {
        if self.control.is_some() { Carrier::UserSpace } else { Carrier::Kernel }
    }

    /// The present controller, if it runs in user space.
    pub fn user_space_nice(&self) -> Option<UserSpaceNice> {
        self.control.as_ref().and_then(|control| control.nice())
    }

    /// Restores the previous state of `socket`, which this guard was made for.
    ///
    /// The next data may still wait for the end of the pause after the last packets in the background: with
    /// the user-space carrier 2/W round-trip times (Nice §2.3), nine seconds at most. The kernel stores that
    /// as a time stamp of the connection, which neither another pacing rate nor another congestion control
    /// resets.
    ///
    /// # Errors
    /// [`Error::System`] if its old congestion control no longer exists, or this user may not choose it. The
    /// pacing rate is restored even then.
    pub fn into_foreground(self, socket: impl AsFd) -> Result<()> {
        let Guard { before, control } = self;
        let socket = socket.as_fd();
        if let Some(control) = control {
            // The thread may be about to set a pacing rate: wait until it has finished.
            control.stop();
            set_rate(socket, before.max_pacing_rate)?;
        }
        before.traffic_class.set(socket)?;
        before.restore_congestion_control(socket)
    }

    /// For an application that closes its socket now.
    pub(crate) fn linger(&self) {
        if let Some(control) = &self.control {
            control.linger();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::Options;

    #[test]
    fn application_limit_holds_in_background_and_after_it() {
        const MOST: u64 = 10_000;
        let most = |stream: &TcpStream| TcpInfo::of(stream).unwrap().max_pacing_rate;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        set_rate(stream.as_fd(), MOST).unwrap();
        let guard = Options::new().carrier(Carrier::UserSpace).guard(&stream).unwrap();
        stream.write_all(&[0; 5_000]).unwrap();
        peer.read_exact(&mut [0; 5_000]).unwrap();
        // Two packets in a round trip of loopback would be more.
        assert!(guard.user_space_nice().unwrap().rate().bytes_per_second() > MOST);
        assert_eq!(most(&stream), MOST);
        // The machine's own congestion control may be restricted to root; the pacing rate is still restored.
        let _ = guard.into_foreground(&stream);
        assert_eq!(most(&stream), MOST);
    }
}
