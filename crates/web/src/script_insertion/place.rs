//! Finds the place of the tag, and inserts it.
//!
//! lol_html only finds the place: it reads the page and never changes it. The cut is made here, so that the
//! page without the tag is the original page by construction, for any behaviour of lol_html. Once the place
//! is found, the rest is not parsed. If there can be none, the head is read to its end all the same: the page
//! may still opt out of prefetching.
//!
//! | document | place |
//! |---|---|
//! | has `</head>` | before it |
//! | has none | before the first element that cannot be in a head, which ends it |
//! | has only elements allowed in a head | at its end, unless something is left open there |
//! | does not begin with `<` | none: it may be anything |
//!
//! The contents of a `<template>` are not part of the page, and end no head.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use content_security_policy::Url;
use encoding_rs::Encoding;
use lol_html::html_content::{Comment, EndTag};
use lol_html::send::{
    DocumentContentHandlers, Element, ElementContentHandlers, HtmlRewriter, Settings,
};
use lol_html::{AsciiCompatibleEncoding, MemorySettings, OutputSink, Selector};

use super::csp::{Forbids, Grant};
use crate::script::Script;

/// A longer tag ends the search: its page passes without a script.
const MAX_TAG_BYTES: usize = 256 * 1024;

/// Elements that can be in a head (HTML, "in head" insertion mode), and the two around it.
const IN_HEAD: &[&str] = &[
    "html", "head", "base", "basefont", "bgsound", "link", "meta", "noframes", "noscript",
    "script", "style", "template", "title",
];
/// Of these, the elements that contain text: a tag within would be read as text.
const TEXT: &[&str] = &["noframes", "noscript", "script", "style", "title"];

/// Why a page has no script although its head permitted one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoInsertionPoint {
    /// Anything may follow.
    #[error("the document does not begin with a tag")]
    NoTag,
    /// A construct is still open at its end.
    #[error("the document ends before the script can be inserted")]
    End,
    /// `<meta name="lull" content="off">`.
    #[error("the page opts out (<meta name=\"lull\" content=\"off\">)")]
    OptOut,
    /// `<meta name="robots" content="nofollow">`.
    #[error("the page forbids robots to follow its links (<meta name=\"robots\">)")]
    NoFollow,
    /// `<meta http-equiv="refresh">` with a URL.
    #[error("the page redirects (<meta http-equiv=\"refresh\">)")]
    Refresh,
    /// `<html amp>` or `<html ⚡>`.
    #[error("the page is an AMP page, which may not have other scripts")]
    Amp,
    /// `<base>` of another origin.
    #[error("the page's <base> names another origin")]
    Base,
    /// UTF-16, ISO-2022-JP and the like.
    #[error("the page's encoding is not a superset of ASCII")]
    Encoding,
    /// A tag over the limit, or an unparsable page.
    #[error(
        "the page has a tag of more than {MAX_TAG_BYTES} bytes before the script can be \
             inserted"
    )]
    Parser,
    /// The body is not gzip as declared.
    #[error("the page is not compressed as its header states")]
    Coding,
    /// A policy in the document.
    #[error(transparent)]
    Policy(#[from] Forbids),
}

impl NoInsertionPoint {
    /// Whether the head was not read to its end, so that an opt-out is unknown.
    pub fn is_unread(&self) -> bool {
        matches!(
            self,
            NoInsertionPoint::Encoding | NoInsertionPoint::Parser | NoInsertionPoint::Coding
        )
    }

    /// Of several reasons the one of most weight is reported: those that bar the page, those that may hide
    /// one, the rest.
    fn weight(self) -> u8 {
        match self {
            NoInsertionPoint::OptOut => 3,
            NoInsertionPoint::Refresh => 2,
            _ if self.is_unread() => 1,
            _ => 0,
        }
    }
}

/// The result for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Unknown so far.
    Looking,
    /// The script was inserted.
    Placed,
    /// The page is unchanged.
    Left(NoInsertionPoint),
}

/// Inserts the tag into a page that arrives in pieces.
pub(super) struct Injector {
    looking: Option<Box<HeadSearch>>,
    outcome: Outcome,
}

struct HeadSearch {
    head: Head,
    grant: Grant,
    script: &'static Script,
}

/// Reads a page to the end of its head.
pub(super) struct Head {
    rewriter: HtmlRewriter<'static, Counter>,
    seen: Arc<Mutex<ParserState>>,
    /// Received bytes that were not sent: the parser is not past them.
    held: Vec<u8>,
    /// Number of bytes that were output.
    released: usize,
    beginning: Beginning,
    encoding_is_stated: bool,
}

/// The observations of the parser, and its position.
#[derive(Debug, Default)]
struct ParserState {
    passed: usize,
    place: Option<usize>,
    no_place: Option<NoInsertionPoint>,
    templates: u32,
    open_text: u32,
    policies: Vec<String>,
}

impl ParserState {
    fn leave(&mut self, why: NoInsertionPoint) {
        if self.no_place.is_none_or(|before| before.weight() < why.weight()) {
            self.no_place = Some(why);
        }
    }
}

/// Counts the bytes that the parser is past.
struct Counter(Arc<Mutex<ParserState>>);

impl OutputSink for Counter {
    fn handle_chunk(&mut self, chunk: &[u8]) {
        lock(&self.0).passed += chunk.len();
    }
}

fn lock(seen: &Mutex<ParserState>) -> MutexGuard<'_, ParserState> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the parser.
#[derive(Debug, thiserror::Error)]
#[error("the place of the script is known")]
struct Enough;

impl Injector {
    /// For a page in `encoding`, which its header states or not.
    pub(super) fn new(
        grant: Grant,
        script: &'static Script,
        origin: Url,
        encoding: &'static Encoding,
        encoding_is_stated: bool,
    ) -> Self {
        let Some(head) = Head::new(Some(origin), encoding, encoding_is_stated) else {
            return Injector { looking: None, outcome: Outcome::Left(NoInsertionPoint::Encoding) };
        };
        let looking = HeadSearch { head, grant, script };
        Injector { looking: Some(Box::new(looking)), outcome: Outcome::Looking }
    }

    /// For a malformed compressed body.
    pub(super) fn none() -> Self {
        Injector { looking: None, outcome: Outcome::Left(NoInsertionPoint::Coding) }
    }

    pub(super) fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Takes a chunk of the page, and appends the bytes that may be sent to `out`.
    pub(super) fn push(&mut self, input: &[u8], out: &mut Vec<u8>) {
        match &mut self.looking {
            None => out.extend_from_slice(input),
            Some(looking) => {
                let decided = looking.head.push(input, out);
                self.release(decided, out);
            }
        }
    }

    /// Takes the end of the page.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        if let Some(looking) = &mut self.looking {
            let decided = looking.head.at_the_end();
            self.release(Some(decided), out);
        }
    }

    /// Sends the held bytes, with the tag at its place if there is one.
    fn release(&mut self, decided: Option<Result<usize, NoInsertionPoint>>, out: &mut Vec<u8>) {
        let Some(decided) = decided else {
            return;
        };
        let Some(looking) = self.looking.take() else {
            return;
        };
        let HeadSearch { head, grant, script } = *looking;
        let tag = decided.and_then(|place| {
            // The parser reports a place before it is past it.
            let at = place.checked_sub(head.released).ok_or(NoInsertionPoint::Parser)?;
            let policies = core::mem::take(&mut lock(&head.seen).policies);
            Ok((at, grant.tag(&policies, script)?))
        });
        self.outcome = match tag {
            Ok((at, tag)) => {
                out.extend_from_slice(&head.held[..at]);
                out.extend_from_slice(tag.as_bytes());
                out.extend_from_slice(&head.held[at..]);
                Outcome::Placed
            }
            Err(why) => {
                out.extend_from_slice(&head.held);
                Outcome::Left(why)
            }
        };
    }
}

impl Head {
    /// For a page in `encoding`, whether its header states it or not. The target of its `<base>` is only
    /// checked if its `origin` is given. `None` if the encoding does not contain ASCII.
    pub(super) fn new(
        origin: Option<Url>,
        encoding: &'static Encoding,
        encoding_is_stated: bool,
    ) -> Option<Self> {
        let seen = Arc::new(Mutex::new(ParserState::default()));
        let rewriter = rewriter(&seen, origin, encoding)?;
        Some(Head {
            rewriter,
            seen,
            held: Vec::new(),
            released: 0,
            beginning: Beginning::default(),
            encoding_is_stated,
        })
    }

    /// Returns the place, or why there is none, once the head has ended or opts out. Appends the bytes that
    /// the parser is past to `out`.
    pub(super) fn push(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Option<Result<usize, NoInsertionPoint>> {
        self.held.extend_from_slice(input);
        match self.beginning.take(input) {
            // UTF-16 cannot be read.
            Err(NoInsertionPoint::Encoding) => return Some(Err(NoInsertionPoint::Encoding)),
            Err(why) => lock(&self.seen).leave(why),
            Ok(()) => {}
        }
        let written = self.rewriter.write(input);
        let mut seen = lock(&self.seen);
        if seen.no_place == Some(NoInsertionPoint::OptOut) {
            return Some(Err(NoInsertionPoint::OptOut));
        }
        let end = seen.place.map_or(usize::MAX, |place| place.saturating_sub(self.released));
        let news = self.held.iter().take(end).skip(self.held.len() - input.len());
        // Escape sequences change the meaning of bytes in ISO-2022-JP, which browsers also guess.
        if !self.encoding_is_stated && news.copied().any(|byte| byte == 0x1b) {
            seen.leave(NoInsertionPoint::Encoding);
        }
        if written.is_err() && seen.place.is_none() {
            seen.leave(NoInsertionPoint::Parser);
            return seen.no_place.map(Err);
        }
        if let Some(place) = seen.place {
            return Some(seen.no_place.map_or(Ok(place), Err));
        }
        let passed = (seen.passed - self.released).min(self.held.len());
        out.extend(self.held.drain(..passed));
        self.released += passed;
        None
    }

    pub(super) fn at_the_end(&self) -> Result<usize, NoInsertionPoint> {
        let seen = lock(&self.seen);
        if let Some(why) = seen.no_place {
            return Err(why);
        }
        if self.beginning != Beginning::Tag {
            return Err(NoInsertionPoint::NoTag);
        }
        if seen.templates > 0 || seen.open_text > 0 || !self.held.is_empty() {
            return Err(NoInsertionPoint::End);
        }
        Ok(self.released)
    }
}

fn rewriter(
    seen: &Arc<Mutex<ParserState>>,
    origin: Option<Url>,
    encoding: &'static Encoding,
) -> Option<HtmlRewriter<'static, Counter>> {
    let selector: Selector = "*".parse().ok()?;
    let for_elements = Arc::clone(seen);
    let handlers = ElementContentHandlers::default().element(
        move |element: &mut Element<'_, '_>| -> lol_html::HandlerResult {
            visit(element, &for_elements, origin.as_ref())
        },
    );
    // With a comment handler the parser waits for the ends of comments, so that a document that ends within
    // one is recognized.
    let comments = DocumentContentHandlers::default()
        .comments(|_: &mut Comment<'_>| -> lol_html::HandlerResult { Ok(()) });
    let settings = Settings::new_send()
        .append_document_content_handler(comments)
        .append_element_content_handler((Cow::Owned(selector), handlers))
        .with_encoding(AsciiCompatibleEncoding::new(encoding)?)
        .with_memory_settings(
            MemorySettings::new()
                .with_preallocated_parsing_buffer_size(1024)
                .with_max_allowed_memory_usage(MAX_TAG_BYTES),
        )
        .with_strict(false);
    Some(HtmlRewriter::new(settings, Counter(Arc::clone(seen))))
}

/// Examines a start tag.
fn visit(
    element: &mut Element<'_, '_>,
    shared: &Arc<Mutex<ParserState>>,
    origin: Option<&Url>,
) -> lol_html::HandlerResult {
    let name = element.tag_name();
    let mut seen = lock(shared);
    if seen.templates == 0 {
        if !IN_HEAD.contains(&name.as_str()) {
            seen.place = Some(element.source_location().bytes().start);
            return Err(Enough.into());
        }
        if let Err(why) = says(&name, element, origin, &mut seen.policies) {
            seen.leave(why);
            if why == NoInsertionPoint::OptOut {
                return Err(Enough.into());
            }
        }
    }
    let text = TEXT.contains(&name.as_str());
    if name == "template" {
        seen.templates += 1;
    } else if text {
        seen.open_text += 1;
    }
    drop(seen);

    if !element.can_have_content() || !(text || name == "template" || name == "head") {
        return Ok(());
    }
    let shared = Arc::clone(shared);
    element.on_end_tag(Box::new(move |end: &mut EndTag<'_>| {
        let mut seen = lock(&shared);
        if name == "template" {
            seen.templates = seen.templates.saturating_sub(1);
        } else if text {
            seen.open_text = seen.open_text.saturating_sub(1);
        } else if seen.templates == 0 {
            seen.place = Some(end.source_location().bytes().start);
            return Err(Enough.into());
        }
        Ok(())
    }))
}

/// How the `<html>` of an AMP page is marked (AMP HTML specification, "Required markup"), with its variants.
const OF_AMP: [&str; 6] = ["amp", "⚡", "amp4ads", "⚡4ads", "amp4email", "⚡4email"];

/// Evaluates `<html>`, `<meta>` and `<base>`.
fn says(
    name: &str,
    element: &Element<'_, '_>,
    origin: Option<&Url>,
    policies: &mut Vec<String>,
) -> Result<(), NoInsertionPoint> {
    if name == "base" {
        let Some((origin, href)) = origin.zip(element.get_attribute("href")) else {
            return Ok(());
        };
        // The tag's path is resolved against it.
        return match origin.join(href.trim()) {
            Ok(url) if url.origin() == origin.origin() => Ok(()),
            _ => Err(NoInsertionPoint::Base),
        };
    }
    if name == "html" {
        let is_marked = OF_AMP.iter().any(|mark| element.has_attribute(mark));
        return if is_marked { Err(NoInsertionPoint::Amp) } else { Ok(()) };
    }
    if name != "meta" {
        return Ok(());
    }
    if let Some(charset) = element.get_attribute("charset") {
        contains_ascii(&charset)?;
    }
    let content = element.get_attribute("content").unwrap_or_default();
    let has_word = |words: &[&str]| {
        content
            .split([',', ' '])
            .any(|one| words.iter().any(|word| one.trim().eq_ignore_ascii_case(word)))
    };
    let is = |attribute: &str, value: &str| {
        element
            .get_attribute(attribute)
            .is_some_and(|found| found.trim().eq_ignore_ascii_case(value))
    };
    if is("name", "lull") && has_word(&["off"]) {
        return Err(NoInsertionPoint::OptOut);
    }
    if (is("name", "robots") || is("name", "lull")) && has_word(&["nofollow", "none"]) {
        return Err(NoInsertionPoint::NoFollow);
    }
    if is("http-equiv", "content-security-policy") {
        // More than any real page has; each has to be checked.
        if policies.len() == 32 {
            return Err(NoInsertionPoint::Policy(Forbids::Meta));
        }
        policies.push(html_unescape(&content));
    } else if is("http-equiv", "refresh") && leads_elsewhere(&content) {
        return Err(NoInsertionPoint::Refresh);
    } else if is("http-equiv", "content-type")
        && let Some((_, charset)) = content.to_ascii_lowercase().split_once("charset=")
    {
        contains_ascii(charset.split(';').next().unwrap_or(""))?;
    }
    Ok(())
}

/// Whether a refresh leads to another page: a URL follows the seconds, perhaps after `url=`. With the seconds
/// alone a page is reloaded.
fn leads_elsewhere(content: &str) -> bool {
    let url =
        content.trim_start().trim_start_matches(|one: char| one.is_ascii_digit() || one == '.');
    url.contains(|one: char| !one.is_ascii_whitespace() && !matches!(one, ';' | ','))
}

fn contains_ascii(label: &str) -> Result<(), NoInsertionPoint> {
    let label = label.trim().trim_matches(['"', '\'']);
    match Encoding::for_label(label.as_bytes()) {
        // HTML reads a `<meta>` of UTF-16 as UTF-8: it could not be read otherwise.
        Some(encoding)
            if encoding.is_ascii_compatible()
                || encoding == encoding_rs::UTF_16LE
                || encoding == encoding_rs::UTF_16BE =>
        {
            Ok(())
        }
        Some(_) => Err(NoInsertionPoint::Encoding),
        None => Ok(()),
    }
}

/// The character references in which policies are written. With any other reference, the directive matches no
/// source that would permit the script.
fn html_unescape(text: &str) -> String {
    text.replace("&#39;", "'")
        .replace("&#039;", "'")
        .replace("&#x27;", "'")
        .replace("&apos;", "'")
        .replace("&quot;", "\"")
        .replace("&#34;", "\"")
        .replace("&amp;", "&")
}

/// The beginning of a document: optionally a byte order mark, optionally white space, and then a tag, a
/// comment or a declaration; or other text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Beginning {
    #[default]
    Start,
    Mark(usize),
    Space,
    Tag,
    Else,
}

impl Beginning {
    fn take(&mut self, input: &[u8]) -> Result<(), NoInsertionPoint> {
        const MARK: [u8; 3] = [0xef, 0xbb, 0xbf];
        for &byte in input {
            *self = match (*self, byte) {
                (Beginning::Tag | Beginning::Else, _) => return Ok(()),
                (Beginning::Start, _) if byte == MARK[0] => Beginning::Mark(1),
                (Beginning::Mark(at), _) if byte == MARK[at] => {
                    if at == 2 {
                        Beginning::Space
                    } else {
                        Beginning::Mark(at + 1)
                    }
                }
                (Beginning::Start, 0xfe | 0xff) => return Err(NoInsertionPoint::Encoding),
                (Beginning::Start | Beginning::Space, b'\t' | b'\n' | 0x0c | b'\r' | b' ') => {
                    Beginning::Space
                }
                (Beginning::Start | Beginning::Space, b'<') => Beginning::Tag,
                _ => {
                    *self = Beginning::Else;
                    return Err(NoInsertionPoint::NoTag);
                }
            };
        }
        Ok(())
    }
}
