//! Who sends a request, as far as that is told apart.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

use http::header::USER_AGENT;
use http::{HeaderMap, HeaderValue, request};

use super::Shared;
use crate::policy::{Client, fields};
use crate::proxy::Connection;

/// The sender of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Who {
    pub(super) address: IpAddr,
    pub(super) client: Client,
    /// Whether it came by HTTPS to whoever stands in front.
    pub(super) secure: bool,
}

/// Tells clients apart, by a key that is drawn anew at each start.
#[derive(Debug, Default)]
pub(super) struct Clients(RandomState);

impl Clients {
    /// Those of one IPv6 network of 64 bits are one client: whoever has one address there has them
    /// all, and browsers take another one now and then.
    fn client(&self, address: IpAddr) -> Client {
        Client(match address {
            IpAddr::V4(address) => self.0.hash_one(address),
            IpAddr::V6(address) => self.0.hash_one(&address.octets()[..8]),
        })
    }
}

impl Who {
    pub(super) fn of(head: &request::Parts, connection: &Connection, shared: &Shared) -> Self {
        let trusts = shared.settings.trust_forwarded;
        let forwarded = if trusts { forwarded_for(&head.headers) } else { None };
        let address = forwarded.unwrap_or(connection.peer().ip()).to_canonical();
        let secure = connection.is_secure()
            || (trusts && fields::single(&head.headers, "x-forwarded-proto") == Some("https"));
        Who { address, client: shared.clients.client(address), secure }
    }

    /// Whether this visitor is of the share that is held back. The same answer for as long as the
    /// proxy runs, so that a visitor is always on the same side.
    pub(super) fn is_held_back(&self, headers: &HeaderMap, shared: &Shared) -> bool {
        let agent = headers.get(USER_AGENT).map(HeaderValue::as_bytes);
        let draw = shared.clients.0.hash_one((self.client, agent, "held back"));
        draw % 10_000 < u64::from(shared.settings.held_back)
    }

    pub(super) fn scheme(&self) -> &'static str {
        if self.secure { "https" } else { "http" }
    }
}

/// The last address of the list: the one that the proxy in front has seen itself.
fn forwarded_for(headers: &HeaderMap) -> Option<IpAddr> {
    let last = headers.get_all("x-forwarded-for").iter().next_back()?.to_str().ok()?;
    let last = last.rsplit(',').next()?.trim();
    last.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_addresses_and_networks_of_64_bits() {
        let clients = Clients::default();
        let client = |address: &str| clients.client(address.parse().unwrap());
        assert_eq!(client("192.0.2.7"), client("192.0.2.7"));
        assert_ne!(client("192.0.2.7"), client("192.0.2.8"));
        assert_eq!(client("2001:db8::1"), client("2001:db8::ffff:2"));
        assert_ne!(client("2001:db8::1"), client("2001:db8:0:1::1"));
    }

    #[test]
    fn the_last_address_of_a_list_is_the_one_that_was_seen() {
        for (values, expected) in [
            (&["192.0.2.7"][..], Some("192.0.2.7")),
            (&["10.0.0.1, 192.0.2.7"], Some("192.0.2.7")),
            (&["10.0.0.1", "192.0.2.7 , [2001:db8::1]"], Some("2001:db8::1")),
            (&["192.0.2.7, unknown"], None),
            (&[""], None),
            (&[], None),
        ] {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("x-forwarded-for", HeaderValue::from_static(value));
            }
            let expected = expected.map(|address| address.parse().unwrap());
            assert_eq!(forwarded_for(&headers), expected, "{values:?}");
        }
    }
}
