//! Characters in request targets that are not allowed in URLs, but sent by clients (HTTP/1 only).
//!
//! nginx passes `<` and `>`, and in a query `"`, on to the upstream. hyper rejects them with 400 before any
//! handler sees the request. So they are escaped before hyper reads them, as browsers do themselves (WHATWG
//! URL, percent-encode sets of path and query). To any server both spellings are the same URL.
//!
//! Only a request line is ever changed, and only if it certainly is one. Until then, each read on the
//! connection must have been one whole head of a request without a body, which hyper accepted. A byte more in
//! a body of a known length would be read as the next request. Otherwise everything passes unchanged, for the
//! rest of the connection.

/// Fields that announce bytes other than a head.
const MORE: &[&[u8]] = &[b"content-length", b"transfer-encoding", b"upgrade", b"expect"];

/// Inspects the bytes of a client on one connection.
#[derive(Debug, Default)]
pub(crate) struct TargetEscape {
    /// Heads received so far.
    heads: u64,
    is_off: bool,
}

impl TargetEscape {
    /// The replacement for `chunk`, if it must be changed. `handled` is the number of requests without a body
    /// that hyper has read so far, and `is_simple` means that there were no others.
    pub(crate) fn take(&mut self, chunk: &[u8], handled: u64, is_simple: bool) -> Option<Vec<u8>> {
        if self.is_off {
            return None;
        }
        self.is_off = !is_simple || handled != self.heads || !is_one_head(chunk);
        if self.is_off {
            return None;
        }
        self.heads += 1;
        escaped(chunk)
    }
}

/// Whether these bytes are exactly one head of a request without a body.
fn is_one_head(chunk: &[u8]) -> bool {
    let Some(chunk) = chunk.strip_suffix(b"\r\n\r\n") else { return false };
    let mut lines =
        chunk.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let is_request = lines.next().is_some_and(is_request_line);
    let begins = |line: &[u8], field: &&[u8]| {
        line.get(..field.len()).is_some_and(|start| start.eq_ignore_ascii_case(field))
    };
    is_request
        && lines.all(|line| !line.is_empty() && !MORE.iter().any(|field| begins(line, field)))
}

/// Whether a line is `GET /… HTTP/1.1`, with one space at each place and no other white space.
fn is_request_line(line: &[u8]) -> bool {
    let mut words = line.split(|byte| *byte == b' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let is_plain = |word: &[u8]| !word.iter().any(u8::is_ascii_control);
    words.next().is_none()
        && method.is_some_and(|method| {
            !method.is_empty() && method.iter().all(u8::is_ascii_uppercase) && method != b"CONNECT"
        })
        && target.is_some_and(|target| target.starts_with(b"/") && is_plain(target))
        && version.is_some_and(|version| [&b"HTTP/1.0"[..], b"HTTP/1.1"].contains(&version))
}

/// The same with a valid URL as its target; `None` if it is valid already.
fn escaped(head: &[u8]) -> Option<Vec<u8>> {
    let end = head.iter().position(|byte| *byte == b'\r')?;
    let (line, rest) = head.split_at(end);
    let mut in_query = false;
    let is_bad = |byte: u8, in_query: bool| match byte {
        b'<' | b'>' => true,
        b'"' => in_query,
        b'`' => !in_query,
        _ => false,
    };
    if !line.iter().any(|byte| b"<>\"`".contains(byte)) {
        return None;
    }
    let mut new = Vec::with_capacity(head.len() + 32);
    for byte in line {
        in_query |= *byte == b'?';
        if is_bad(*byte, in_query) {
            new.extend(format!("%{byte:02X}").bytes());
        } else {
            new.push(*byte);
        }
    }
    new.extend(rest);
    Some(new)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn head(target: &str) -> Vec<u8> {
        format!("GET {target} HTTP/1.1\r\nHost: a\r\nCookie: b=\"<c>\"\r\n\r\n").into_bytes()
    }

    #[test]
    fn target_is_escaped_as_browsers_do() {
        for (target, expected) in [
            ("/a?b=\"c\"<d>`", "/a?b=%22c%22%3Cd%3E`"),
            ("/<a>`\"?b", "/%3Ca%3E%60\"?b"),
            ("/a?b", "/a?b"),
            ("/caf%C3%A9", "/caf%C3%A9"),
        ] {
            let mut escape = TargetEscape::default();
            let given = head(target);
            let read = escape.take(&given, 0, true).unwrap_or_else(|| given.clone());
            assert_eq!(String::from_utf8(read), String::from_utf8(head(expected)));
        }
    }

    #[test]
    fn only_single_complete_heads_are_changed() {
        for chunk in [
            &b"POST /<a> HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n"[..],
            b"POST /<a> HTTP/1.1\r\nHost: a\r\ntransfer-Encoding: chunked\r\n\r\n",
            b"GET /<a> HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n",
            // Two heads, or a head and other bytes.
            b"GET /<a> HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\n",
            b"GET /<a> HTTP/1.1\nHost: a\n\nPOST /b HTTP/1.1\r\n\r\n",
            b"GET /<a> HTTP/1.1\r\nHost: a\r\n\r\nx",
            // A part of one.
            b"GET /<a> HTTP/1.1\r\nHost: a\r\n",
            // Ambiguous lines.
            b"GET  /<a> HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET /<a>\t HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET /<a>\rx HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET http://a/<a> HTTP/1.1\r\nHost: a\r\n\r\n",
            b"CONNECT /<a> HTTP/1.1\r\nHost: a\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\n",
            b"\r\n\r\n",
            b"",
        ] {
            let mut escape = TargetEscape::default();
            assert_eq!(escape.take(chunk, 0, true), None, "{}", chunk.escape_ascii());
            // Nor does anything later.
            assert_eq!(escape.take(&head("/<a>"), 1, true), None);
        }
    }

    #[test]
    fn requests_change_only_after_complete_heads() {
        for (handled, is_simple, changes) in
            [(1, true, true), (0, true, false), (2, true, false), (1, false, false)]
        {
            let mut escape = TargetEscape::default();
            assert_eq!(escape.take(&head("/a"), 0, true), None);
            assert_eq!(escape.take(&head("/<a>"), handled, is_simple).is_some(), changes);
        }
    }

    proptest! {
        /// Only one line is changed, and the rest stays byte for byte.
        #[test]
        fn only_the_request_line_is_changed(chunk in "[A-Z ]{0,4} /[ -~]{0,9} HTTP/1.1\r\n[ -~\r\n]{0,40}\r\n\r\n") {
            let mut escape = TargetEscape::default();
            if let Some(read) = escape.take(chunk.as_bytes(), 0, true) {
                let line = |bytes: &[u8]| bytes.iter().position(|byte| *byte == b'\n').unwrap();
                let (old, new) = (line(chunk.as_bytes()), line(&read));
                prop_assert_eq!(&chunk.as_bytes()[old..], &read[new..]);
                prop_assert!(!read[..new].iter().any(|byte| b"<>".contains(byte)));
            }
        }
    }
}
