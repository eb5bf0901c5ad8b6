//! Listings of a bucket, in versions 1 and 2 of the request.

use core::ops::Bound;
use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Response;
use jiff::Timestamp;
use lull_replication::replica::{Outcome, Page, PageItem, PageRequest, ReadTarget, Request, above};
use lull_replication::types::{Sequence, Version};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use super::Parameters;
use super::xml::{CommonPrefixes, Contents, Listing, S3Error};
use crate::http::conditions;
use crate::http::content::Content;

/// Items of a page, at most.
const MAX_KEYS: usize = 1_000;
/// The bytes that `encoding-type=url` does not escape.
const PLAIN: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

/// How a name is written in XML.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Plain,
    Url,
}

impl Encoding {
    fn text(self, name: &[u8]) -> Result<String, S3Error> {
        /// Characters that XML 1.0 cannot have, also not escaped.
        fn is_forbidden(one: char) -> bool {
            one.is_control() && !matches!(one, '\t' | '\n' | '\r')
                || matches!(one, '\u{fffe}' | '\u{ffff}')
        }
        if self == Encoding::Url {
            return Ok(percent_encode(name, PLAIN).to_string());
        }
        let text = str::from_utf8(name).ok().filter(|text| !text.contains(is_forbidden));
        text.map(str::to_owned).ok_or_else(|| {
            S3Error::argument(
                "a name has bytes that XML cannot have: list with encoding-type=url".to_owned(),
            )
        })
    }
}

/// A requested page.
#[derive(Debug)]
pub(super) struct Query {
    is_second: bool,
    prefix: Vec<u8>,
    delimiter: Vec<u8>,
    /// `marker` or `start-after`.
    begins_after: Option<Vec<u8>>,
    continuation: Option<String>,
    from: Bound<Vec<u8>>,
    /// The state of the page before.
    pub(super) after: Sequence,
    limit: usize,
    encoding: Encoding,
}

impl Query {
    /// The page that these parameters ask for. `verify` returns the state of a session token.
    pub(super) fn new(
        parameters: &Parameters,
        verify: impl Fn(&str) -> Option<Sequence>,
    ) -> Result<Self, S3Error> {
        let bytes = |name: &str| parameters.get(name).cloned();
        let text = |name: &str| parameters.get(name).map(|value| String::from_utf8_lossy(value));
        let invalid = |name: &str| S3Error::argument(format!("`{name}` is not valid"));
        let is_second = match text("list-type").as_deref() {
            None => false,
            Some("2") => true,
            Some(_) => return Err(invalid("list-type")),
        };
        let encoding = match text("encoding-type").as_deref() {
            None | Some("") => Encoding::Plain,
            Some("url") => Encoding::Url,
            Some(_) => return Err(invalid("encoding-type")),
        };
        let limit = match text("max-keys") {
            None => MAX_KEYS,
            Some(text) => text.parse::<usize>().map_err(|_| invalid("max-keys"))?.min(MAX_KEYS),
        };
        let (prefix, delimiter) =
            (bytes("prefix").unwrap_or_default(), bytes("delimiter").unwrap_or_default());
        let begins_after = bytes(if is_second { "start-after" } else { "marker" });
        let continuation = text("continuation-token").filter(|_| is_second).map(Cow::into_owned);
        let (after, from) = match (&continuation, &begins_after) {
            (Some(token), _) => {
                let read = read_continuation(token, verify);
                read.ok_or_else(|| invalid("continuation-token"))?
            }
            (None, Some(marker)) => (
                Sequence::ZERO,
                if is_second {
                    Bound::Excluded(marker.clone())
                } else {
                    behind(marker, &prefix, &delimiter)
                },
            ),
            (None, None) => (Sequence::ZERO, Bound::Unbounded),
        };
        Ok(Query {
            is_second,
            prefix,
            delimiter,
            begins_after,
            continuation,
            from,
            after,
            limit,
            encoding,
        })
    }

    /// The read of the page.
    pub(super) fn read(&self, after: Sequence) -> Request {
        let (prefix, delimiter) = (self.prefix.clone(), self.delimiter.clone());
        let page = PageRequest { prefix, delimiter, from: self.from.clone(), limit: self.limit };
        Request { target: ReadTarget::Page(page), after }
    }

    /// The response. `issue` returns the session token of the page's state.
    pub(super) fn page(
        &self,
        outcome: Outcome,
        issue: impl Fn() -> String,
    ) -> Result<Response<Content>, S3Error> {
        let Outcome::Page(Page { items, next }) = outcome else {
            unreachable!("a page is answered by a page");
        };
        // S3 answers so, although there may be more.
        let next = next.filter(|_| self.limit > 0);
        let name = |bytes: &[u8]| self.encoding.text(bytes);
        let optional = |bytes: &Option<Vec<u8>>| bytes.as_deref().map(name).transpose();
        let mut listing = Listing {
            prefix: name(&self.prefix)?,
            max_keys: self.limit,
            delimiter: (!self.delimiter.is_empty()).then(|| name(&self.delimiter)).transpose()?,
            encoding_type: (self.encoding == Encoding::Url).then_some("url"),
            is_truncated: next.is_some(),
            ..Listing::default()
        };
        if self.is_second {
            listing.key_count = Some(items.len());
            listing.start_after = optional(&self.begins_after)?;
            listing.continuation_token = self.continuation.clone();
            listing.next_continuation_token =
                next.as_ref().map(|next| continuation(&issue(), next));
        } else {
            listing.marker = Some(optional(&self.begins_after)?.unwrap_or_default());
            let marker = next.as_ref().and_then(|next| match (next, items.last()) {
                (Bound::Excluded(name), _) => Some(&name[..]),
                (_, Some(PageItem::Prefix(prefix))) => Some(&prefix[..]),
                _ => None,
            });
            listing.next_marker = marker.map(name).transpose()?;
        }
        for item in &items {
            match item {
                PageItem::File(path, version) => {
                    listing.contents.push(contents(name(path.as_bytes())?, version));
                }
                PageItem::Prefix(prefix) => {
                    listing.common_prefixes.push(CommonPrefixes { prefix: name(prefix)? });
                }
            }
        }
        Ok(listing.response())
    }
}

fn contents(key: String, version: &Version) -> Contents {
    let modified = i128::from(version.content.metadata.modified.as_nanos());
    let modified = Timestamp::from_nanosecond(modified).unwrap_or(Timestamp::UNIX_EPOCH);
    Contents {
        key,
        last_modified: format!("{modified:.3}"),
        e_tag: conditions::tag_of(&version.content.digest),
        size: version.content.size.0,
        storage_class: "STANDARD",
    }
}

/// Where a listing of version 1 continues after a marker: behind all names that a common beginning stands for.
fn behind(marker: &[u8], prefix: &[u8], delimiter: &[u8]) -> Bound<Vec<u8>> {
    let rest = marker.strip_prefix(prefix).unwrap_or_default();
    let is_common = !delimiter.is_empty() && rest.ends_with(delimiter);
    let above = is_common.then(|| above(marker)).flatten();
    above.map_or_else(|| Bound::Excluded(marker.to_vec()), Bound::Included)
}

/// A continuation token: the state, so that no later page is of an earlier one, and the place.
fn continuation(session: &str, next: &Bound<Vec<u8>>) -> String {
    let (kind, place) = match next {
        Bound::Included(place) => ('i', &place[..]),
        Bound::Excluded(place) => ('e', &place[..]),
        Bound::Unbounded => ('i', &b""[..]),
    };
    format!("{kind}{}.{session}", URL_SAFE_NO_PAD.encode(place))
}

fn read_continuation(
    token: &str,
    verify: impl Fn(&str) -> Option<Sequence>,
) -> Option<(Sequence, Bound<Vec<u8>>)> {
    let (place, session) = token.split_once('.')?;
    let decoded = |text: &str| URL_SAFE_NO_PAD.decode(text).ok();
    let from = match place.split_at_checked(1)? {
        ("i", place) => Bound::Included(decoded(place)?),
        ("e", place) => Bound::Excluded(decoded(place)?),
        _ => return None,
    };
    Some((verify(session)?, from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn continuation_token_returns_place_and_state() {
        let verify = |token: &str| (token == "a.b").then_some(Sequence(7));
        for place in [Bound::Included(b"x\xff".to_vec()), Bound::Excluded(b"a/b".to_vec())] {
            let token = continuation("a.b", &place);
            assert_eq!(read_continuation(&token, verify), Some((Sequence(7), place)));
        }
        for token in ["", "i", "x.a.b", "i!.a.b", "iYQ", "iYQ.other"] {
            assert_eq!(read_continuation(token, verify), None, "{token}");
        }
    }

    #[test]
    fn marker_that_is_a_common_beginning_skips_its_names() {
        let excluded = |name: &[u8]| Bound::Excluded(name.to_vec());
        assert_eq!(behind(b"a/", b"", b"/"), Bound::Included(b"a0".to_vec()));
        assert_eq!(behind(b"a/", b"a/", b"/"), excluded(b"a/"), "the prefix itself is none");
        assert_eq!(behind(b"a/", b"", b""), excluded(b"a/"));
        assert_eq!(behind(b"a/b", b"", b"/"), excluded(b"a/b"));
    }

    #[test]
    fn names_that_xml_cannot_have_need_encoding() {
        for name in [&b"\xff"[..], b"a\x01", "\u{ffff}".as_bytes()] {
            assert!(Encoding::Plain.text(name).is_err(), "{name:?}");
        }
        assert_eq!(Encoding::Plain.text(b"a b\t<").ok().as_deref(), Some("a b\t<"));
        assert_eq!(Encoding::Url.text(b"a/b c\xff~").ok().as_deref(), Some("a/b%20c%FF~"));
    }
}
