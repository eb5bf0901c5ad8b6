//! Decides which client sent a request, or that the line does not identify it.
//!
//! A URL becomes public when several distinct clients got it. If another column than the client is counted,
//! such as a time stamp, one visitor counts as many and a private link becomes public. So this module alone
//! determines the client of an [`Entry`](super::Entry), for any format: a word is an address or a host name,
//! or the line is not learned.

use std::borrow::Cow;
use std::collections::BTreeSet;

use core::net::{IpAddr, Ipv4Addr};

use super::{LineError, Part, forwarded};
use crate::address;

/// The client information of a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stated<'a> {
    /// The column of the client. It may be a list of addresses, the nearest one last.
    pub(super) column: Cow<'a, str>,
    /// `X-Forwarded-For` or another header that only proxies add. Clients can forge it.
    pub(super) forwarded: Option<Cow<'a, str>>,
    /// The value of the field that the user named.
    pub(super) named: Option<Cow<'a, str>>,
}

/// A network of proxies that append the address of their peer to `X-Forwarded-For`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u32,
}

impl core::str::FromStr for Network {
    type Err = &'static str;

    /// `10.0.0.5`, `10.0.0.0/8` or `2001:db8::/32`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "expected an address or a network, such as 10.0.0.5 or 10.0.0.0/8";
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| EXPECTED)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), |bits| bits.parse().map_err(|_| EXPECTED))?;
        if bits > most { Err(EXPECTED) } else { Ok(Network { address, bits }) }
    }
}

impl Network {
    fn has(&self, address: IpAddr) -> bool {
        fn number(address: IpAddr) -> (u128, u32) {
            match address {
                IpAddr::V4(v4) => (u128::from(v4.to_bits()), 32),
                IpAddr::V6(v6) => (v6.to_bits(), 128),
            }
        }
        let ((own, length), (other, other_length)) = (number(self.address), number(address));
        let shift = length.saturating_sub(self.bits);
        length == other_length && own.checked_shr(shift) == other.checked_shr(shift)
    }
}

/// Which field of a line names the client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClientField {
    /// The client of the format, unless the line shows that the request came through a proxy.
    #[default]
    Automatic,
    /// The client of the format, despite any header.
    Column,
    /// `X-Forwarded-For`, or `Forwarded` (RFC 7239).
    Forwarded,
    /// The field of this name.
    Named(Box<str>),
}

impl core::str::FromStr for ClientField {
    type Err = core::convert::Infallible;

    /// `auto`, `client` for the format's own field, `x-forwarded-for` or `forwarded` (RFC 7239), or the name
    /// of another field.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let name = text.to_ascii_lowercase().replace('-', "_");
        Ok(match name.strip_prefix("http_").unwrap_or(&name) {
            "auto" => ClientField::Automatic,
            "client" | "remote_addr" => ClientField::Column,
            "x_forwarded_for" | "forwarded" => ClientField::Forwarded,
            _ => ClientField::Named(text.into()),
        })
    }
}

/// The user's settings for clients and proxies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// The field that names the client.
    pub field: ClientField,
    /// Proxies of the site. The client is the last address in front of them.
    pub proxies: Vec<Network>,
}

impl Trust {
    fn is_proxy(&self, address: IpAddr) -> bool {
        self.proxies.iter().any(|network| network.has(address))
    }

    /// Whether the user has no settings for clients and proxies.
    pub(super) fn is_unset(&self) -> bool {
        self.field == ClientField::Automatic && self.proxies.is_empty()
    }

    /// The client of a line.
    ///
    /// A proxy appends the address of its peer to `X-Forwarded-For`, so only the entry of a known proxy is
    /// true. All earlier entries may be forged. Without a known proxy, a line through one is not used: the
    /// proxy's address may be one of many, and the header may be forged.
    pub(super) fn client<'a>(&self, stated: Stated<'a>) -> Result<Client<'a>, LineError> {
        let column = forwarded::as_list(stated.column);
        let [forwarded, named] =
            [stated.forwarded, stated.named].map(|text| text.map(forwarded::as_list));
        let missing = LineError::Missing(Part::Client);
        let list = match self.field {
            ClientField::Named(_) => return self.column(named.ok_or(missing)?),
            ClientField::Column => return self.column(column),
            ClientField::Forwarded => {
                let list = forwarded.filter(|list| has_address(list)).ok_or(missing)?;
                return self.last(&list);
            }
            ClientField::Automatic => match forwarded.filter(|list| has_address(list)) {
                Some(list) => list,
                None => return self.column(column),
            },
        };
        let nearest = last_of(&column);
        if nearest.is_some_and(|nearest| self.is_proxy(nearest)) {
            return self.last(&list);
        }
        // The server has replaced the proxy's address by the entry that the proxy appended.
        let is_replaced = nearest.is_some() && nearest == last_of(&list);
        if !self.proxies.is_empty() || is_replaced {
            return self.column(column);
        }
        Err(LineError::Proxied)
    }

    /// The last address of a list that is not a proxy's. Of several addresses the first may be forged, and if
    /// no proxy is known the last may be one of many proxies.
    fn last<'a>(&self, list: &str) -> Result<Client<'a>, LineError> {
        if self.proxies.is_empty() && list.contains(',') {
            return Err(LineError::Proxied);
        }
        for word in list.rsplit(',') {
            let address = address::parse(word.trim()).filter(|address| !address.is_unspecified());
            let address = address.ok_or(LineError::Invalid(Part::Client))?;
            if !self.is_proxy(address) {
                return Ok(Client::Address(Cow::Owned(address.to_string())));
            }
        }
        Err(LineError::Proxied)
    }

    /// The client by a separate field.
    fn column<'a>(&self, column: Cow<'a, str>) -> Result<Client<'a>, LineError> {
        if column.contains(',') {
            return self.last(&column);
        }
        // Most are, and without proxies nothing else is needed.
        if self.proxies.is_empty()
            && column.parse::<Ipv4Addr>().is_ok_and(|address| !address.is_unspecified())
        {
            return Ok(Client::Address(column));
        }
        let Some(address) = address::parse(&column) else {
            return match is_host_name(&column) {
                true => Ok(Client::Name(in_lower_case(column))),
                false => Err(LineError::Invalid(Part::Client)),
            };
        };
        if address.is_unspecified() {
            Err(LineError::Invalid(Part::Client))
        } else if self.is_proxy(address) {
            // Without the proxy's entry the client is unknown.
            Err(LineError::Proxied)
        } else if column.parse::<Ipv4Addr>().is_ok() {
            Ok(Client::Address(column))
        } else {
            Ok(Client::Address(Cow::Owned(address.to_string())))
        }
    }
}

/// The sender of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Client<'a> {
    /// An address in its usual form, without a port.
    Address(Cow<'a, str>),
    /// A host's name, or a pseudonym that stands for an address.
    Name(Cow<'a, str>),
}

/// Names differ by more than case.
fn in_lower_case(name: Cow<'_, str>) -> Cow<'_, str> {
    if name.bytes().any(|b| b.is_ascii_uppercase()) {
        Cow::Owned(name.to_ascii_lowercase())
    } else {
        name
    }
}

fn last_of(list: &str) -> Option<IpAddr> {
    list.rsplit(',').next().and_then(|word| address::parse(word.trim()))
}

/// Whether a header has an address at all: servers log a dash for a missing header.
fn has_address(list: &str) -> bool {
    list.split(',').any(|word| address::parse(word.trim()).is_some())
}

/// Whether a text is a list of addresses, as in `X-Forwarded-For` and `Forwarded`.
pub(super) fn is_address_list(text: &str) -> bool {
    let is_one = |word: &str| word == "unknown" || address::parse(word).is_some();
    let is_list = !text.is_empty() && text.split(',').all(|word| is_one(word.trim()));
    is_list || forwarded::is_forwarded(text)
}

/// Words before or within log lines that look like host names, but are never clients.
const NO_CLIENTS: &[&str] = &[
    "unknown",
    "null",
    "none",
    "nil",
    "undefined",
    "localdomain",
    "unix",
    "stdout",
    "stderr", //
    "jan",
    "feb",
    "mar",
    "apr",
    "may",
    "jun",
    "jul",
    "aug",
    "sep",
    "oct",
    "nov",
    "dec", //
    "mon",
    "tue",
    "wed",
    "thu",
    "fri",
    "sat",
    "sun", //
    "emerg",
    "alert",
    "crit",
    "critical",
    "error",
    "err",
    "warn",
    "warning",
    "notice",
    "info",
    "debug",
    "trace",
    "fatal", //
    "http",
    "https",
    "h2",
    "h3",
    "ws",
    "wss",
    "grpcs",
    "tcp",
    "udp", //
    "get",
    "head",
    "post",
    "put",
    "delete",
    "options",
    "patch",
    "connect",
    "started",
    "completed",
];

/// Whether an address is in a private network, in which a container sees load balancers and nodes: RFC 1918,
/// RFC 4193, RFC 6598, loopback and link-local.
pub(super) fn is_internal(address: &str) -> bool {
    match address::parse(address) {
        Some(IpAddr::V4(v4)) => {
            let [first, second, ..] = v4.octets();
            let is_shared = first == 100 && second & 0b1100_0000 == 64;
            v4.is_private() || v4.is_loopback() || v4.is_link_local() || is_shared
        }
        Some(IpAddr::V6(v6)) => {
            v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local()
        }
        None => false,
    }
}

/// States of a cache, as nginx and others log them.
pub(super) fn is_cache_status(word: &str) -> bool {
    const STATES: [&str; 9] =
        ["HIT", "MISS", "BYPASS", "EXPIRED", "STALE", "UPDATING", "REVALIDATED", "DYNAMIC", "PASS"];
    word.bytes().all(|b| b.is_ascii_uppercase()) && STATES.contains(&word)
}

/// Whether a word is a host name, or a pseudonym of the same form (RFC 1123, section 2.1). Time stamps,
/// numbers, tags and common words of logs are not.
pub(super) fn is_host_name(word: &str) -> bool {
    let name = word.strip_suffix('.').unwrap_or(word);
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    };
    let last = name.rsplit('.').next().unwrap_or(name);
    name.len() <= 253
        && name.split('.').all(is_label)
        && last.bytes().any(|b| b.is_ascii_alphabetic())
        && !is_compact_time(name)
        && !is_cache_status(name)
        && !is_common_word(name)
}

/// Whether a word is one of [`NO_CLIENTS`].
fn is_common_word(word: &str) -> bool {
    const MAX_LETTERS: usize = 11;
    // All that are longer than `h2` consist of letters.
    let may_be = |word: &str| {
        word.len() == 2
            || word.len() <= MAX_LETTERS && word.bytes().all(|b| b.is_ascii_alphabetic())
    };
    may_be(word) && NO_CLIENTS.iter().any(|other| word.eq_ignore_ascii_case(other))
}

/// `20240703T094640Z`, and words that begin with a date: `2024-07-03_…`.
fn is_compact_time(word: &str) -> bool {
    let bytes = word.as_bytes();
    let digits = |range: core::ops::Range<usize>| {
        bytes.get(range).is_some_and(|part| part.iter().all(u8::is_ascii_digit))
    };
    digits(0..8) && matches!(bytes.get(8), Some(b'T' | b't' | b'-' | b'_')) && digits(9..13)
        || digits(0..4) && digits(5..7) && bytes[4] == b'-' && bytes.get(7) == Some(&b'-')
}

/// Whether pseudonyms are clients: clients come back, request IDs do not.
///
/// A word without a dot may be a pseudonym of a client or the ID of a request, which looks the same. It is
/// accepted if words of its kind recur often enough.
#[derive(Clone, Debug, Default)]
pub(super) struct Pseudonyms {
    seen: BTreeSet<Box<str>>,
    lines: u64,
    repeats: u64,
    are_believed: bool,
}

/// Pseudonyms that are remembered until they are accepted.
const MAX_SEEN: usize = 4_096;
/// One line in this many has to be of a client that was seen before.
const COME_BACK: u64 = 32;
/// This many repeats are a permanent proof.
const PROOF: u64 = 256;

impl Pseudonyms {
    /// The same evidence for lines that will be read again from the first one.
    pub(super) fn for_reread(self) -> Self {
        Pseudonyms { seen: BTreeSet::new(), ..self }
    }

    /// Takes the next client's name, and returns whether it is accepted.
    pub(super) fn record(&mut self, name: &str) -> bool {
        if self.are_believed || name.contains('.') {
            return true;
        }
        self.lines += 1;
        if self.seen.contains(name) {
            self.repeats += 1;
        } else {
            if self.seen.len() >= MAX_SEEN {
                self.seen.clear();
            }
            self.seen.insert(name.into());
        }
        let come_back = self.repeats > 0 && self.repeats * COME_BACK >= self.lines;
        self.are_believed = come_back && self.repeats >= PROOF;
        come_back
    }
}
