//! Two hosts and a wire between them, without an emulator: for measuring the cost of hosts.

use std::io;
use std::net::IpAddr;

use super::host::{self, DEVICE, HARDWARE_ADDRESS, Host, Side};
use super::netlink::Netlink;
use super::{Error, Topology};

/// Two hosts joined by a pair of virtual Ethernet devices, as fast as the machine is.
#[derive(Clone, Debug)]
pub struct Wire {
    hosts: [Host; 2],
}

impl Wire {
    /// Makes the hosts `left1` and `right1`, with the settings of the emulator's hosts.
    ///
    /// # Errors
    /// [`Error::Permission`] if this process may not make hosts. After an error nothing is left
    /// behind.
    pub fn new() -> Result<Self, Error> {
        let hosts = [host::new_host(Side::Left, 1)?, host::new_host(Side::Right, 1)?];
        let [left, right] = &hosts;
        for host in &hosts {
            host.enter(|| host::prepare(&Topology::default()))??;
        }
        left.enter(|| {
            Netlink::open()?.add_veth(DEVICE, DEVICE, right.namespace(), HARDWARE_ADDRESS)
        })?
        .map_err(|error| Error::system("making a pair of devices", error))?;
        for host in &hosts {
            host.enter(|| configure(host))?
                .map_err(|error| Error::system("configuring a host", error))?;
        }
        for host in &hosts {
            host.enter(|| host::wait_until_running(DEVICE))?
                .map_err(|error| Error::system("starting a device", error))?;
        }
        Ok(Wire { hosts })
    }

    /// The left host and the right one.
    pub fn hosts(&self) -> &[Host; 2] {
        &self.hosts
    }
}

/// Inside a host: switches its device on and gives it an address.
fn configure(host: &Host) -> io::Result<()> {
    let netlink = Netlink::open()?;
    let index = nix::net::if_::if_nametoindex(DEVICE)?;
    // Without address resolution a host sends to its own address.
    netlink.set_hardware_address(index, HARDWARE_ADDRESS)?;
    netlink.set_loopback_up()?;
    netlink.set_up(index, Topology::default().mtu)?;
    let address = IpAddr::V4(host.v4());
    netlink.add_address(index, address)?;
    netlink.add_default_route(index, address)
}
