//! The priority of a connection that sends bodies in the background.

use std::os::fd::{AsFd, OwnedFd};

use lull_transport::{Guard, Options};
use tokio::net::TcpStream;

use super::LinkError;

/// A connection in the background, which comes to the foreground while bodies would be late otherwise. So a body that is
/// in transit goes on, and need not begin again on another connection.
#[derive(Debug)]
pub(super) struct ConnectionPriority {
    socket: OwnedFd,
    options: Options,
    /// None in the foreground.
    guard: Option<Guard>,
}

impl ConnectionPriority {
    /// Puts a connection in the background.
    pub(super) fn background(options: &Options, stream: &TcpStream) -> Result<Self, LinkError> {
        let guard = options.guard(stream)?;
        let socket = stream.as_fd().try_clone_to_owned()?;
        Ok(ConnectionPriority { socket, options: options.clone(), guard: Some(guard) })
    }

    /// To the foreground, or back. If the system refuses, the bodies go on as they are: they arrive in any case.
    pub(super) fn set_urgent(&mut self, is_urgent: bool) {
        if !is_urgent {
            self.guard = self.guard.take().or_else(|| self.options.guard(&self.socket).ok());
        } else if let Some(guard) = self.guard.take() {
            let _ = guard.into_foreground(&self.socket);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use lull_transport::{Carrier, Dscp};
    use socket2::SockRef;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn urgent_connection_leaves_the_background_and_returns() -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let stream = TcpStream::connect(listener.local_addr()?).await?;
        let class = || SockRef::from(&stream).tos_v4();
        let before = class()?;
        let options = Options::new().carrier(Carrier::UserSpace).dscp(Dscp::Le);
        let mut priority = ConnectionPriority::background(&options, &stream).unwrap();
        let background = class()?;
        assert_ne!(background, before);
        for _ in 0..3 {
            priority.set_urgent(true);
            assert_eq!((class()?, priority.guard.is_some()), (before, false));
            // Once more changes nothing.
            priority.set_urgent(true);
            priority.set_urgent(false);
            assert_eq!((class()?, priority.guard.is_some()), (background, true));
        }
        Ok(())
    }
}
