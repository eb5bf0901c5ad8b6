//! The byte of the IP header that holds the class of a socket's packets.

use std::os::fd::{AsRawFd, BorrowedFd};

use nix::sys::socket::{
    AddressFamily, SockaddrLike, SockaddrStorage, getsockname, getsockopt, setsockopt, sockopt,
};

use crate::error::{Error, Result, is_unknown_option};

/// The class in both versions of IP: an IPv6 socket may send IPv4 to a mapped address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TrafficClass {
    /// None if it must not be set.
    v4: Option<i32>,
    /// None for an IPv4 socket, and for an IPv6 one of MPTCP: that has no such option.
    v6: Option<i32>,
}

impl TrafficClass {
    /// 000001 (RFC 8622). It is above the two bits of ECN, which TCP handles itself.
    pub(crate) const LOWER_EFFORT: Self = TrafficClass { v4: Some(1 << 2), v6: Some(1 << 2) };

    pub(crate) fn of(socket: BorrowedFd<'_>) -> Result<Self> {
        let v4 = getsockopt(&socket, sockopt::Ipv4Tos);
        let told = Error::errno("read the traffic class");
        if !is_v6(socket)? {
            return Ok(TrafficClass { v4: Some(v4.map_err(told)?), v6: None });
        }
        let v6 = match getsockopt(&socket, sockopt::Ipv6TClass) {
            Err(errno) if is_unknown_option(errno) => None,
            other => Some(other.map_err(told)?),
        };
        Ok(TrafficClass { v4: v4.ok(), v6 })
    }

    pub(crate) fn set(self, socket: BorrowedFd<'_>) -> Result<()> {
        let v4 = self.v4.map_or(Ok(()), |class| setsockopt(&socket, sockopt::Ipv4Tos, &class));
        let result = if is_v6(socket)? {
            // A socket without IPv4 may reject the one. MPTCP does not know the other: the IPv6 subflows of
            // its connections keep their class.
            let v6 =
                self.v6.map_or(Ok(()), |class| setsockopt(&socket, sockopt::Ipv6TClass, &class));
            v6.or_else(|errno| if is_unknown_option(errno) { Ok(()) } else { Err(errno) })
        } else {
            v4
        };
        result.map_err(Error::errno("set the traffic class"))
    }
}

fn is_v6(socket: BorrowedFd<'_>) -> Result<bool> {
    let name = getsockname::<SockaddrStorage>(socket.as_raw_fd())
        .map_err(Error::errno("ask for a socket's address"))?;
    Ok(name.family() == Some(AddressFamily::Inet6))
}
