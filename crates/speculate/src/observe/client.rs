//! Clients without their addresses.

use std::borrow::Cow;

use core::net::IpAddr;

use siphasher::sip::SipHasher24;

use crate::address;

/// Turns the client data of a log or a connection into numbers that identify no client without the key:
/// SipHash-2-4, a pseudo-random function (Aumasson and Bernstein, 2012).
///
/// The key is drawn at random. It is never stored with a model, so that the stored numbers cannot be joined
/// with other data.
#[derive(Clone)]
pub struct ClientHasher {
    keyed: SipHasher24,
}

impl core::fmt::Debug for ClientHasher {
    /// Without the key.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("ClientHasher")
    }
}

/// A client for as long as its session lasts. It is an address together with a user agent, so most people who
/// share one address are separate clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub(crate) u64);

/// The origin of a client, which it cannot choose like its user agent: the unit of "distinct clients".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin(pub(crate) u64);

impl ClientHasher {
    /// A hasher with a secret key.
    pub fn new(key: [u8; 16]) -> Self {
        ClientHasher { keyed: SipHasher24::new_with_key(&key) }
    }

    /// The origin of an address. All addresses of one IPv6 network of 48 bits are one origin: that is the
    /// largest assignment for a line (RFC 6177), whose owner has all of them.
    ///
    /// Host names of one domain are one origin as well: its owner assigns the names of all addresses there,
    /// and may change them each time.
    ///
    /// A port after the address, which some servers log, belongs to the connection: it is ignored.
    pub fn origin(&self, address: &str) -> Origin {
        let address = alone(address);
        match address.parse() {
            Ok(IpAddr::V6(address)) => Origin(self.hash(b'6', &[&address.octets()[..6]])),
            Ok(IpAddr::V4(_)) => Origin(self.hash(b'a', &[address.as_bytes()])),
            Err(_) => Origin(self.hash(b'a', &[domain(&address).as_bytes()])),
        }
    }

    /// The client of an address, with or without a port, and a user agent.
    pub fn client(&self, address: &str, agent: &str) -> ClientId {
        let address = alone(address);
        ClientId(
            self.hash(b'c', &[&address.len().to_le_bytes(), address.as_bytes(), agent.as_bytes()]),
        )
    }

    /// The hash of other text from clients. Its key prevents chosen collisions.
    pub(crate) fn text(&self, text: &str) -> u64 {
        self.hash(b't', &[text.as_bytes()])
    }

    /// Shows whether two keys are the same, and nothing else about them.
    pub(crate) fn fingerprint(&self) -> u64 {
        // Another letter when classes of clients are chosen in another way: then counts begin again.
        self.hash(b'l', &[])
    }

    fn hash(&self, purpose: u8, parts: &[&[u8]]) -> u64 {
        use core::hash::Hasher as _;
        let mut hasher = self.keyed;
        hasher.write(&[purpose]);
        for part in parts {
            hasher.write(part);
        }
        hasher.finish()
    }
}

/// The domain of a host's name: its last two labels, or three below a registry such as `co.uk`.
fn domain(name: &str) -> &str {
    const REGISTRIES: [&str; 12] =
        ["ac", "co", "com", "edu", "go", "gob", "gov", "mil", "ne", "net", "or", "org"];
    let mut dots = name.rmatch_indices('.').map(|(at, _)| at);
    let (Some(last), Some(second)) = (dots.next(), dots.next()) else { return name };
    let is_country = name.len() - last == ".uk".len();
    let is_registry = is_country && REGISTRIES.contains(&&name[second + 1..last]);
    let begin = if is_registry { dots.next() } else { Some(second) };
    begin.map_or(name, |dot| &name[dot + 1..])
}

/// An address without its port and its zone, in one form: `192.0.2.7` of `192.0.2.7:41342` and of
/// `::ffff:192.0.2.7`, and `2001:db8::1` of `[2001:DB8::1]:443`. Other text is unchanged.
fn alone(address: &str) -> Cow<'_, str> {
    // Most addresses are IPv4 ones without a port, and need no further check.
    match address.contains(':').then(|| address::parse(address)).flatten() {
        Some(address) => Cow::Owned(address.to_string()),
        None => Cow::Borrowed(address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_key_gives_other_client_numbers() {
        let (one, other) = (ClientHasher::new([1; 16]), ClientHasher::new([2; 16]));
        assert_eq!(one.client("192.0.2.7", "x"), one.client("192.0.2.7", "x"));
        assert_ne!(one.client("192.0.2.7", "x"), other.client("192.0.2.7", "x"));
        assert_ne!(one.origin("192.0.2.7"), other.origin("192.0.2.7"));
    }

    #[test]
    fn client_is_address_and_agent_and_origin_is_the_address() {
        let hasher = ClientHasher::new([1; 16]);
        assert_ne!(hasher.client("192.0.2.7", "x"), hasher.client("192.0.2.7", "y"));
        assert_ne!(hasher.client("192.0.2.7", "1x"), hasher.client("192.0.2.71", "x"));
        assert_ne!(hasher.origin("192.0.2.7"), hasher.origin("192.0.2.8"));
        assert_eq!(hasher.origin("2001:db8::1"), hasher.origin("2001:db8::ffff:2"));
        assert_eq!(hasher.origin("2001:db8::1"), hasher.origin("2001:db8:0:ff01::1"));
        assert_ne!(hasher.origin("2001:db8::1"), hasher.origin("2001:db8:1::1"));
    }

    #[test]
    fn port_makes_no_other_client() {
        let hasher = ClientHasher::new([1; 16]);
        for (bare, with_port) in [
            ("192.0.2.7", "192.0.2.7:41342"),
            ("192.0.2.7", "::ffff:192.0.2.7"),
            ("2001:db8::1", "[2001:db8::1]:443"),
            ("fe80::1", "fe80::1%eth0"),
            ("2001:db8::1", "2001:DB8:0::1"),
        ] {
            assert_eq!(hasher.origin(bare), hasher.origin(with_port));
            assert_eq!(hasher.client(bare, "x"), hasher.client(with_port, "x"));
        }
        assert_eq!(hasher.origin("[2001:db8::1]:443"), hasher.origin("[2001:db8::2]:80"));
        // Its last group is no port.
        assert_ne!(hasher.client("2001:db8::1:80", "x"), hasher.client("2001:db8::1", "x"));
    }

    #[test]
    fn hosts_of_one_domain_are_one_origin() {
        let hasher = ClientHasher::new([1; 16]);
        let is_one = |one, other| hasher.origin(one) == hasher.origin(other);
        assert!(is_one("pc1.isp.example", "pc2.isp.example"));
        assert!(is_one("a.pc1.isp.co.uk", "pc2.isp.co.uk"));
        assert!(!is_one("pc1.isp.example", "pc1.other.example"));
        assert!(!is_one("isp.co.uk", "other.co.uk"));
        assert!(!is_one("one.example", "other.example"));
        assert!(!is_one("c1", "c2"));
        assert_ne!(hasher.client("pc1.isp.example", "x"), hasher.client("pc2.isp.example", "x"));
    }

    #[test]
    fn key_is_not_shown() {
        assert_eq!(format!("{:?}", ClientHasher::new([1; 16])), "ClientHasher");
    }
}
