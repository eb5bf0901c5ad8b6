//! Other active runs on this machine: each uses the processors as if it were alone.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Beyond this number, runs do not detect each other.
const PLACES: usize = 16;

/// A run's entry among those of the machine, or of a network namespace. It is removed when this is dropped,
/// and when the process ends in any way.
#[derive(Debug)]
pub(super) struct Presence {
    _place: Option<UnixDatagram>,
    others: usize,
}

impl Presence {
    pub(super) fn enter() -> Self {
        Self::among("lull-lab-run")
    }

    fn among(name: &str) -> Self {
        let mut place = None;
        let mut others = 0;
        for number in 0..PLACES {
            let address = SocketAddr::from_abstract_name(format!("{name}-{number}"));
            match (address.and_then(|address| UnixDatagram::bind_addr(&address)), &place) {
                (Ok(socket), None) => place = Some(socket),
                (Err(error), _) if error.kind() == io::ErrorKind::AddrInUse => others += 1,
                // Free, or unavailable.
                _ => {}
            }
        }
        Presence { _place: place, others }
    }

    /// How many others there were when this one started.
    pub(super) fn others(&self) -> usize {
        self.others
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_sees_earlier_runs_that_still_exist() {
        let name = format!("lull-test-{}", std::process::id());
        let first = Presence::among(&name);
        let second = Presence::among(&name);
        assert_eq!((first.others(), second.others()), (0, 1));
        drop(first);
        assert_eq!(Presence::among(&name).others(), 1);
        drop(second);
        assert_eq!(Presence::among(&name).others(), 0);
    }
}
