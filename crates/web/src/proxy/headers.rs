//! Rewrites the heads of requests and responses (RFC 9110 §7.6, RFC 9112 §3, §6, §11).
//!
//! Pure: takes a head, and changes or rejects it.

use http::header::{self, Entry, HeaderMap, HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery};
use http::{Method, StatusCode, Uri, Version, request, response};

/// The mark of a prefetch by the browser's script.
pub const X_LULL: HeaderName = HeaderName::from_static("x-lull");
/// The field that marks a prefetch for the upstream (Fetch standard §3.1, `Sec-Purpose`).
pub const SEC_PURPOSE: HeaderName = HeaderName::from_static("sec-purpose");

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub(super) const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
pub(super) const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
/// Further fields of other proxies about the client, which this one does not send.
static FORWARDED: [HeaderName; 7] = [
    header::FORWARDED,
    HeaderName::from_static("x-forwarded-port"),
    HeaderName::from_static("x-forwarded-prefix"),
    HeaderName::from_static("x-forwarded-scheme"),
    HeaderName::from_static("x-forwarded-server"),
    HeaderName::from_static("x-forwarded-ssl"),
    HeaderName::from_static("x-real-ip"),
];

/// Whether a header of this name describes the client or its connection.
fn is_of_the_client(name: &str) -> bool {
    let said = [X_FORWARDED_FOR, X_FORWARDED_PROTO, X_FORWARDED_HOST];
    said.iter().chain(&FORWARDED).any(|one| one.as_str() == name)
}

/// Why a request is not passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    /// A short reason, for the client's developer.
    pub(crate) why: &'static str,
}

const fn refuse<T>(status: StatusCode, why: &'static str) -> Result<T, Refusal> {
    Err(Refusal { status, why })
}

/// The results of the checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Checked {
    /// The host of the client's request, if it has one.
    pub(crate) host: Option<HeaderValue>,
    /// Whether it is a prefetch of the script.
    pub(crate) is_marked: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub(crate) expects_continue: bool,
    /// Whether it opens a WebSocket over HTTP/2.
    pub(crate) opens_websocket: bool,
}

/// Rejects requests with two possible readings, or over a limit.
///
/// hyper has already rejected bytes that are not HTTP, several lengths, folded lines and an unknown last
/// coding. It has dropped `Content-Length` beside `Transfer-Encoding`.
pub(crate) fn check(
    head: &request::Parts,
    has_body: bool,
    most_uri_bytes: usize,
) -> Result<Checked, Refusal> {
    if head.method == Method::CONNECT {
        return refuse(StatusCode::NOT_IMPLEMENTED, "this is not a forward proxy");
    }
    check_target(head, most_uri_bytes)?;
    check_framing(head, has_body)?;
    Ok(Checked {
        host: host(head)?,
        is_marked: head.headers.get(X_LULL).is_some_and(is_mark),
        expects_continue: has_body
            && head.version == Version::HTTP_11
            && head
                .headers
                .get(header::EXPECT)
                .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue")),
        opens_websocket: false,
    })
}

/// Whether `X-Lull` marks a prefetch or the probe before it (`docs/reference/web-protocol.md`). The site decides
/// whether it is valid.
fn is_mark(value: &HeaderValue) -> bool {
    value == "1" || value == "0"
}

fn check_target(head: &request::Parts, most_bytes: usize) -> Result<(), Refusal> {
    let Some(target) = head.uri.path_and_query() else {
        return refuse(StatusCode::BAD_REQUEST, "the target has no path");
    };
    if target.as_str().len() > most_bytes {
        return refuse(StatusCode::URI_TOO_LONG, "the target is too long");
    }
    let is_asterisk = target.path() == "*" && head.method == Method::OPTIONS;
    if !target.path().starts_with('/') && !is_asterisk {
        return refuse(StatusCode::BAD_REQUEST, "the target does not begin with /");
    }
    Ok(())
}

fn check_framing(head: &request::Parts, has_body: bool) -> Result<(), Refusal> {
    let mut codings = head.headers.get_all(header::TRANSFER_ENCODING).iter();
    if let Some(coding) = codings.next()
        && (codings.next().is_some() || !is_chunked(coding))
    {
        // RFC 9112 §6.1: a server that does not understand a coding answers 501.
        return refuse(StatusCode::NOT_IMPLEMENTED, "the only transfer coding here is chunked");
    }
    let claims = head.headers.get(header::CONTENT_LENGTH);
    if !has_body && claims.is_some_and(|length| length.as_bytes().iter().any(|&b| b != b'0')) {
        return refuse(StatusCode::BAD_REQUEST, "Content-Length without a body");
    }
    Ok(())
}

fn is_chunked(coding: &HeaderValue) -> bool {
    coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked")
}

/// The requested host. RFC 9112 §3.2, §3.2.2: there is one valid `Host`, and an absolute target overrides it.
/// RFC 9113 §8.3.1: `Host` and `:authority` must be the same.
fn host(head: &request::Parts) -> Result<Option<HeaderValue>, Refusal> {
    let mut hosts = head.headers.get_all(header::HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return refuse(StatusCode::BAD_REQUEST, "more than one Host");
    }
    if host.is_some_and(|host| !is_host(host.as_bytes())) {
        return refuse(StatusCode::BAD_REQUEST, "the Host is invalid");
    }
    if let Some(authority) = head.uri.authority() {
        if !is_host(authority.as_str().as_bytes()) {
            return refuse(StatusCode::BAD_REQUEST, "the host of the target is invalid");
        }
        let differs = |host: &HeaderValue| !says(host, authority);
        if head.version == Version::HTTP_2 && host.is_some_and(differs) {
            return refuse(StatusCode::BAD_REQUEST, "Host and :authority differ");
        }
        return match HeaderValue::from_str(authority.as_str()) {
            Ok(value) => Ok(Some(value)),
            Err(_) => refuse(StatusCode::BAD_REQUEST, "the host of the target is invalid"),
        };
    }
    if host.is_none() && head.version != Version::HTTP_10 {
        return refuse(StatusCode::BAD_REQUEST, "no Host");
    }
    Ok(host.cloned())
}

fn says(host: &HeaderValue, authority: &Authority) -> bool {
    host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes())
}

/// Whether these are the bytes of `uri-host [ ":" port ]` (RFC 9110 §7.2): no user, no path, no list of
/// hosts.
fn is_host(bytes: &[u8]) -> bool {
    !bytes.is_empty()
        && bytes
            .iter()
            .all(|&byte| byte.is_ascii_alphanumeric() || b"-._~:[]%!$&'()*+;=".contains(&byte))
}

/// The information for the upstream beside the client's own fields.
#[derive(Clone, Debug)]
pub(crate) struct Forwarding<'a> {
    /// The client's address.
    pub(crate) peer: &'a HeaderValue,
    pub(crate) is_secure: bool,
    /// Whether fields of an earlier proxy are kept.
    pub(crate) trusts: bool,
    /// Replaces the client's `Host`, also if there was none.
    pub(crate) upstream_host: Option<&'a HeaderValue>,
    pub(crate) upstream_authority: &'a HeaderValue,
    pub(crate) via: Option<&'a HeaderValue>,
}

/// The body's framing on the way to the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    None,
    /// `Content-Length` is present, or hyper sets it.
    Length,
    Chunked,
}

/// Turns a client's request into that for the upstream over HTTP/1.1. Returns the protocol to upgrade to, if
/// the client asks for one that may pass.
pub(crate) fn to_upstream(
    head: &mut request::Parts,
    checked: &Checked,
    framing: Framing,
    forwarding: &Forwarding<'_>,
) -> Option<HeaderValue> {
    let websocket = HeaderValue::from_static("websocket");
    let upgrade = if checked.opens_websocket { Some(websocket) } else { upgrade_of(head) };
    // An absolute target, as HTTP/2 always has, becomes a path. It was checked that there is one.
    if head.uri.authority().is_some() || head.uri.scheme().is_some() {
        let path = head.uri.path_and_query().cloned();
        head.uri = Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    }
    let version = head.version;
    head.version = Version::HTTP_11;
    let headers = &mut head.headers;
    let is_marked = headers.remove(X_LULL).is_some() && checked.is_marked;
    remove_hop_by_hop(headers, forwarding.trusts);
    headers.remove(header::TE);
    if !checked.expects_continue {
        headers.remove(header::EXPECT);
    }
    match framing {
        // RFC 9110 §8.6: for a method with a defined body, the length 0 is stated. HTTP/2 does not need that,
        // but some servers answer 411 without it.
        Framing::None if [Method::POST, Method::PUT, Method::PATCH].contains(&head.method) => {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        Framing::None => {}
        Framing::Length => {
            single(headers, header::CONTENT_LENGTH);
        }
        Framing::Chunked => {
            headers.remove(header::CONTENT_LENGTH);
            headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
    }
    if let Some(protocol) = &upgrade {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, protocol.clone());
    }
    if is_marked {
        headers.entry(SEC_PURPOSE).or_insert(HeaderValue::from_static("prefetch"));
    }
    forward(headers, checked, forwarding);
    if let Some(name) = forwarding.via {
        add_via(headers, version, name);
    }
    upgrade
}

/// Merges the cookie fields. Browsers send several over HTTP/2, and a proxy to HTTP/1.1 has to join them (RFC
/// 9113 §8.2.3): servers would use only the first, or join them with commas.
pub(crate) fn join_cookies(headers: &mut HeaderMap) {
    let values = headers.get_all(header::COOKIE);
    if values.iter().nth(1).is_none() {
        return;
    }
    let values: Vec<_> = values.iter().map(HeaderValue::as_bytes).collect();
    // Concatenated valid values are valid.
    if let Ok(joined) = HeaderValue::from_bytes(&values.join(&b"; "[..])) {
        headers.insert(header::COOKIE, joined);
    }
}

fn forward(headers: &mut HeaderMap, checked: &Checked, forwarding: &Forwarding<'_>) {
    let Forwarding { peer, trusts, .. } = *forwarding;
    if trusts {
        append(headers, X_FORWARDED_FOR, peer);
    } else {
        headers.insert(X_FORWARDED_FOR, peer.clone());
        // Applications trust it like the others.
        for name in &FORWARDED {
            headers.remove(name);
        }
        // In CGI and its successors both are called `HTTP_X_FORWARDED_FOR`.
        let is_twin = |name: &&HeaderName| {
            name.as_str().contains('_') && is_of_the_client(&name.as_str().replace('_', "-"))
        };
        let twins: Vec<HeaderName> = headers.keys().filter(is_twin).cloned().collect();
        for name in twins {
            headers.remove(name);
        }
    }
    let scheme = if forwarding.is_secure { "https" } else { "http" };
    if !trusts || !headers.contains_key(X_FORWARDED_PROTO) {
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(scheme));
    }
    match &checked.host {
        Some(host) if !trusts || !headers.contains_key(X_FORWARDED_HOST) => {
            headers.insert(X_FORWARDED_HOST, host.clone());
        }
        None if !trusts => {
            headers.remove(X_FORWARDED_HOST);
        }
        _ => {}
    }
    let host =
        forwarding.upstream_host.or(checked.host.as_ref()).unwrap_or(forwarding.upstream_authority);
    headers.insert(header::HOST, host.clone());
}

/// Joins all values and `value` into one list.
fn append(headers: &mut HeaderMap, name: HeaderName, value: &HeaderValue) {
    let mut list = Vec::new();
    for before in headers.get_all(&name) {
        list.extend_from_slice(before.as_bytes());
        list.extend_from_slice(b", ");
    }
    list.extend_from_slice(value.as_bytes());
    // Concatenated valid values are valid.
    headers.insert(name, HeaderValue::from_bytes(&list).unwrap_or_else(|_| value.clone()));
}

/// RFC 9110 §7.6.3.
fn add_via(headers: &mut HeaderMap, version: Version, name: &HeaderValue) {
    let version: &[u8] = match version {
        Version::HTTP_10 => b"1.0 ",
        Version::HTTP_2 => b"2 ",
        _ => b"1.1 ",
    };
    if let Ok(value) = HeaderValue::from_bytes(&[version, name.as_bytes()].concat()) {
        append(headers, header::VIA, &value);
    }
}

/// The protocol to upgrade to. Upgrades to HTTP/2 do not pass: the following requests would bypass every rule
/// of this module.
fn upgrade_of(head: &request::Parts) -> Option<HeaderValue> {
    let asks = head.version == Version::HTTP_11
        && tokens(&head.headers, header::CONNECTION)
            .any(|token| token.eq_ignore_ascii_case(b"upgrade"));
    let mut protocols = head.headers.get_all(header::UPGRADE).iter();
    let protocol = protocols.next().filter(|_| asks && protocols.next().is_none())?;
    let is_single_token = protocol.as_bytes().iter().all(|&byte| is_token(byte) || byte == b'/');
    let name = protocol.as_bytes();
    let is_http = [&b"h2c"[..], b"h2"].iter().any(|other| name.eq_ignore_ascii_case(other))
        || name.get(..4).is_some_and(|start| start.eq_ignore_ascii_case(b"http"));
    (is_single_token && !name.is_empty() && !is_http).then(|| protocol.clone())
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// The elements of a list header.
fn tokens(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &[u8]> {
    headers
        .get_all(name)
        .into_iter()
        .flat_map(|value| value.as_bytes().split(|&byte| byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|token| !token.is_empty())
}

/// RFC 9110 §7.6.1: fields of one connection only, and those that `Connection` names. `Connection` may not
/// name the headers for message framing. With a trusted proxy in front it may not name that proxy's fields
/// about the client, because the client may have written `Connection`.
fn remove_hop_by_hop(headers: &mut HeaderMap, keeps_forwarded: bool) {
    if headers.contains_key(header::CONNECTION) {
        let named: Vec<HeaderName> = tokens(headers, header::CONNECTION)
            .filter_map(|token| HeaderName::from_bytes(token).ok())
            .filter(|name| {
                ![header::HOST, header::CONTENT_LENGTH, header::CONTENT_TYPE].contains(name)
                    && !(keeps_forwarded
                        && (is_of_the_client(name.as_str()) || name == header::VIA))
            })
            .collect();
        for name in named {
            headers.remove(name);
        }
        headers.remove(header::CONNECTION);
    }
    for name in
        [KEEP_ALIVE, PROXY_CONNECTION, header::TRANSFER_ENCODING, header::UPGRADE, HTTP2_SETTINGS]
    {
        headers.remove(name);
    }
}

/// Keeps the first value only.
fn single(headers: &mut HeaderMap, name: HeaderName) {
    if let Entry::Occupied(entry) = headers.entry(name)
        && entry.iter().nth(1).is_some()
    {
        let (name, mut values) = entry.remove_entry_mult();
        let first = values.next();
        drop(values);
        if let Some(first) = first {
            headers.insert(name, first);
        }
    }
}

/// Merges a list of equal lengths (RFC 9110 §8.6). Their equality was checked when it was parsed.
fn one_length(headers: &mut HeaderMap) {
    let length = headers.get(header::CONTENT_LENGTH).filter(|all| all.as_bytes().contains(&b','));
    let first = length.and_then(|all| all.as_bytes().split(|byte| *byte == b',').next());
    if let Some(Ok(first)) = first.map(|first| HeaderValue::from_bytes(first.trim_ascii())) {
        headers.insert(header::CONTENT_LENGTH, first);
    }
}

/// Why a response is not passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unusable;

/// Turns an upstream's response into that for the client.
///
/// # Errors
/// [`Unusable`] if the end of its body is undefined.
pub(crate) fn to_client(head: &mut response::Parts, is_upgrade: bool) -> Result<(), Unusable> {
    let headers = &mut head.headers;
    let switches = head.status == StatusCode::SWITCHING_PROTOCOLS;
    if switches && !is_upgrade {
        return Err(Unusable);
    }
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    if let Some(coding) = codings.next() {
        if codings.next().is_some() || !is_chunked(coding) {
            return Err(Unusable);
        }
        // RFC 9112 §6.3: the coding overrides a length.
        headers.remove(header::CONTENT_LENGTH);
    } else {
        single(headers, header::CONTENT_LENGTH);
        one_length(headers);
    }
    let protocol = if switches { headers.get(header::UPGRADE).cloned() } else { None };
    remove_hop_by_hop(headers, false);
    // It names another port of the upstream, which bypasses this proxy.
    headers.remove(header::ALT_SVC);
    if switches {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        if let Some(protocol) = protocol {
            headers.insert(header::UPGRADE, protocol);
        }
    }
    head.version = Version::HTTP_11;
    Ok(())
}

#[cfg(test)]
mod tests;
