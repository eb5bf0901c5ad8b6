//! The sender of a request, as far as it can be identified.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::header::USER_AGENT;
use http::{HeaderMap, HeaderValue, request};

use super::notices::Notices;
use super::settings::Settings;
use super::shared_cache;
use super::sharing::Sharing;
use crate::policy::{Client, fields};
use crate::proxy::Connection;

/// The sender of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Requester {
    pub(super) address: IpAddr,
    pub(super) client: Client,
    /// Whether it used HTTPS to the proxy in front.
    pub(super) secure: bool,
    /// Whether it came through a shared cache that the owner has not named.
    pub(super) by_cache: bool,
}

/// Distinguishes clients, by a key that is drawn at each start, and divides them into those with hints and
/// the control group.
#[derive(Debug, Default)]
pub(super) struct Clients {
    key: RandomState,
    /// Number of proxies in front of the one that connects, if `X-Forwarded-*` is trusted.
    forwarded_before: Option<usize>,
    /// The share of visitors without hints, in units of 1/10,000.
    held_back: u16,
    /// Whether the shared cache in front is known to pass prefetches on.
    is_cache_known: bool,
    /// Several proxies have the same visitors in the control group.
    sharing: Option<Arc<Sharing>>,
}

impl Clients {
    pub(super) fn new(settings: &Settings, sharing: Option<Arc<Sharing>>) -> Self {
        Clients {
            key: RandomState::new(),
            forwarded_before: settings.trust_forwarded.then_some(settings.forwarded_before),
            held_back: settings.held_back,
            is_cache_known: settings.behind_cdn,
            sharing,
        }
    }

    /// An IPv6 network of 64 bits is one client: a host there has all its addresses, and browsers change
    /// theirs.
    fn client(&self, address: IpAddr) -> Client {
        Client(match address {
            IpAddr::V4(address) => self.key.hash_one(address),
            IpAddr::V6(address) => self.key.hash_one(&address.octets()[..8]),
        })
    }
}

impl Requester {
    pub(super) fn of(
        head: &request::Parts,
        connection: &Connection,
        clients: &Clients,
        notices: &Notices,
    ) -> Self {
        let before = clients.forwarded_before;
        let forwarded = before.and_then(|before| forwarded(&head.headers, before, notices));
        let address = forwarded.unwrap_or(connection.peer().ip()).to_canonical();
        let secure = is_secure(&head.headers, before.is_some(), connection.is_secure());
        let client = clients.client(address);
        let by_cache = !clients.is_cache_known && shared_cache::is_cache(head);
        Requester { address, client, secure, by_cache }
    }

    /// The group that a page names to its script; none if there is no control group.
    pub(super) fn group(&self, headers: &HeaderMap, clients: &Clients) -> Option<bool> {
        (clients.held_back > 0).then(|| self.is_held_back(headers, clients))
    }

    /// The group of a visitor whose page names the one that it was sent with. Address and user agent may
    /// have changed since.
    pub(super) fn is_of_held_page(
        &self,
        said: Option<u8>,
        headers: &HeaderMap,
        clients: &Clients,
    ) -> bool {
        let said = said.filter(|_| clients.held_back > 0);
        said.map_or_else(|| self.is_held_back(headers, clients), |said| said != 0)
    }

    /// Whether this visitor gets no hints. The answer is the same while the proxy runs, and at all proxies that
    /// share a model.
    fn is_held_back(&self, headers: &HeaderMap, clients: &Clients) -> bool {
        if clients.held_back == 0 {
            return false;
        }
        let draw = match &clients.sharing {
            Some(sharing) => sharing.draw(&network(self.address), headers),
            None => {
                let agent = headers.get(USER_AGENT).map(HeaderValue::as_bytes);
                clients.key.hash_one((self.client, agent, "held back"))
            }
        };
        draw % 10_000 < u64::from(clients.held_back)
    }

    /// A hash of address and user agent, for counting visitors.
    pub(super) fn visitor_hash(&self, headers: &HeaderMap, clients: &Clients) -> u64 {
        let agent = headers.get(USER_AGENT).map(HeaderValue::as_bytes);
        clients.key.hash_one((self.client, agent))
    }

    pub(super) fn scheme(&self) -> &'static str {
        if self.secure { "https" } else { "http" }
    }
}

/// The part of an address that identifies a client.
fn network(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets()[..8].to_vec(),
    }
}

/// Whether a visitor used HTTPS, according to the proxy in front: that may use TLS to this one independently
/// of the visitor's scheme.
fn is_secure(headers: &HeaderMap, trusts: bool, by_tls: bool) -> bool {
    const PROTO: &str = "x-forwarded-proto";
    if trusts && headers.contains_key(PROTO) {
        fields::single(headers, PROTO) == Some("https")
    } else {
        by_tls
    }
}

/// The client's address, as the proxies in front say it. One that cannot be read is reported once.
fn forwarded(headers: &HeaderMap, before: usize, notices: &Notices) -> Option<IpAddr> {
    let said = forwarded_for(headers, before)?;
    let address = address(said);
    if address.is_none() {
        notices.unread_forwarded(said);
    }
    address
}

/// The address seen by the first trusted proxy: the last of the list after removing those that the later
/// proxies have added. A client that bypasses some of them has fewer in it.
fn forwarded_for(headers: &HeaderMap, before: usize) -> Option<&str> {
    let values = headers.get_all("x-forwarded-for").iter().rev();
    let entries = values.flat_map(|value| value.to_str().unwrap_or("?").rsplit(','));
    entries.take(before.saturating_add(1)).last().map(str::trim)
}

/// An address, with or without a port: some proxies write both.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    bare.parse().ok().or_else(with_port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxy_in_front_reports_the_scheme_of_a_visitor() {
        for (said, trusts, by_tls, expected) in [
            (&["https"][..], true, false, true),
            (&["https"], true, true, true),
            (&["http"], true, true, false),
            (&["http"], true, false, false),
            (&["https", "http"], true, true, false),
            (&[], true, true, true),
            (&[], true, false, false),
            // Any client can send it.
            (&["https"], false, false, false),
            (&["http"], false, true, true),
        ] {
            let mut headers = HeaderMap::new();
            for one in said {
                headers.append("x-forwarded-proto", HeaderValue::from_static(one));
            }
            assert_eq!(is_secure(&headers, trusts, by_tls), expected, "{said:?} {trusts} {by_tls}");
        }
    }

    #[test]
    fn clients_are_addresses_and_ipv6_networks_of_64_bits() {
        let clients = Clients::default();
        let client = |address: &str| clients.client(address.parse().unwrap());
        assert_eq!(client("192.0.2.7"), client("192.0.2.7"));
        assert_ne!(client("192.0.2.7"), client("192.0.2.8"));
        assert_eq!(client("2001:db8::1"), client("2001:db8::ffff:2"));
        assert_ne!(client("2001:db8::1"), client("2001:db8:0:1::1"));
    }

    #[test]
    fn client_address_is_that_seen_by_the_first_trusted_proxy() {
        for (values, before, expected) in [
            (&["192.0.2.7"][..], 0, Some("192.0.2.7")),
            (&["10.0.0.1, 192.0.2.7"], 0, Some("192.0.2.7")),
            (&["10.0.0.1", "192.0.2.7 , [2001:db8::1]"], 0, Some("2001:db8::1")),
            // One more proxy, and another one before these two that lies.
            (&["198.51.100.1, 192.0.2.7, 10.0.0.1"], 1, Some("192.0.2.7")),
            (&["198.51.100.1, 192.0.2.7", "10.0.0.1"], 1, Some("192.0.2.7")),
            (&["198.51.100.1", "192.0.2.7", "10.0.0.1"], 2, Some("198.51.100.1")),
            // A client that bypasses the first of them.
            (&["192.0.2.7"], 1, Some("192.0.2.7")),
            (&["192.0.2.7"], usize::MAX, Some("192.0.2.7")),
            (&["192.0.2.7, unknown"], 0, None),
            (&["192.0.2.7, unknown"], 1, Some("192.0.2.7")),
            (&[""], 0, None),
            (&[], 0, None),
        ] {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("x-forwarded-for", HeaderValue::from_static(value));
            }
            let expected: Option<IpAddr> = expected.map(|address| address.parse().unwrap());
            let found = forwarded_for(&headers, before).and_then(address);
            assert_eq!(found, expected, "{values:?} {before}");
        }
    }

    #[test]
    fn address_may_have_a_port() {
        for (text, expected) in [
            ("203.0.113.7:51234", Some("203.0.113.7")),
            ("[2001:db8::1]:443", Some("2001:db8::1")),
            ("[2001:db8::1]", Some("2001:db8::1")),
            ("2001:db8::1", Some("2001:db8::1")),
            ("203.0.113.7", Some("203.0.113.7")),
            ("203.0.113.7:", None),
            ("203.0.113.7:99999", None),
            ("_hidden", None),
            ("", None),
        ] {
            assert_eq!(address(text), expected.map(|text| text.parse().unwrap()), "{text}");
        }
    }
}
