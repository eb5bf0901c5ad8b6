//! Addresses as logs and headers write them.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The address in a word: without its port, its brackets and its zone. An IPv4 address in IPv6 form is the
/// IPv4 address, so that one client has one address. None if the word is not an address.
pub(crate) fn parse(word: &str) -> Option<IpAddr> {
    // Most words of a log are not addresses, and have another first character.
    if !matches!(word.as_bytes().first()?, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F' | b':' | b'[') {
        return None;
    }
    if !word.contains(':') {
        return word.parse::<Ipv4Addr>().ok().map(IpAddr::V4);
    }
    let address = match word.parse::<IpAddr>() {
        Ok(address) => address,
        Err(_) => with_port(word)?,
    };
    Some(address.to_canonical())
}

/// `192.0.2.7:41342`, `[2001:db8::1]:443`, `[2001:db8::1]` and `fe80::1%eth0`.
fn with_port(word: &str) -> Option<IpAddr> {
    if let Ok(socket) = word.parse::<SocketAddr>() {
        return Some(socket.ip());
    }
    let inner = match word.strip_prefix('[') {
        Some(rest) => {
            let (inner, behind) = rest.split_once(']')?;
            if !behind.is_empty() && !is_port(behind.strip_prefix(':')?) {
                return None;
            }
            inner
        }
        None => word,
    };
    // The zone is the name of an interface of the server, and may be any text (RFC 4007, section 11).
    let address = inner.split('%').next()?;
    address.parse::<Ipv6Addr>().ok().map(IpAddr::V6)
}

/// Whether a text is a port number.
pub(crate) fn is_port(text: &str) -> bool {
    (1..=5).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_brackets_zone_and_mapping_are_stripped() {
        for (word, expected) in [
            ("192.0.2.7", Some("192.0.2.7")),
            ("192.0.2.7:41342", Some("192.0.2.7")),
            ("::ffff:192.0.2.7", Some("192.0.2.7")),
            ("[::ffff:192.0.2.7]:80", Some("192.0.2.7")),
            ("2001:DB8::1", Some("2001:db8::1")),
            ("2001:db8::80", Some("2001:db8::80")),
            ("[2001:db8::1]:443", Some("2001:db8::1")),
            ("[2001:db8::1]", Some("2001:db8::1")),
            ("fe80::1%eth0", Some("fe80::1")),
            ("[fe80::1%25eth0]:443", Some("fe80::1")),
            ("[2001:db8::1]x", None),
            ("[2001:db8::1]:x", None),
            ("192.0.2.7%eth0", None),
            ("192.0.2.777", None),
            ("1720000000.123", None),
            ("09:46:40", None),
            ("", None),
        ] {
            let found = parse(word).map(|address| address.to_string());
            assert_eq!(found.as_deref(), expected, "{word}");
        }
    }
}
