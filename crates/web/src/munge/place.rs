//! Where the tag goes, and putting it there.
//!
//! lol_html only says where: it is fed the page and never changes it. The cut is made here, so that
//! the page without the tag is the page as it came by construction, whatever lol_html makes of it.
//! Once the place is found nothing is looked at any more. Where there can be none the head is read to
//! its end all the same: the page may still say that it is not to be fetched ahead.
//!
//! | document | place |
//! |---|---|
//! | has `</head>` | before it |
//! | has none | before the first element that cannot be in a head, which ends it |
//! | has only what can be in a head | at its end, unless something is left open there |
//! | does not begin with `<` | none: it may be anything |
//!
//! What is in a `<template>` is not in the page, and ends no head.

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

/// A tag that is longer than this is given up: its page passes without a script.
const LONGEST_TAG: usize = 256 * 1024;

/// Elements that can be in a head (HTML, "in head" insertion mode), and the two around it.
const IN_HEAD: &[&str] = &[
    "html", "head", "base", "basefont", "bgsound", "link", "meta", "noframes", "noscript",
    "script", "style", "template", "title",
];
/// Of these, those whose contents are text: a tag within would be read as that.
const TEXT: &[&str] = &["noframes", "noscript", "script", "style", "title"];

/// Why a page has no script although its head allowed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPlace {
    /// Anything may follow.
    #[error("the document does not begin with a tag")]
    NoTag,
    /// Something is left open at its end.
    #[error("the document ends before there is a place for the script")]
    End,
    /// `<meta name="lull" content="off">`.
    #[error("the page opts out (<meta name=\"lull\" content=\"off\">)")]
    OptOut,
    /// `<meta name="robots" content="nofollow">`.
    #[error("the page says that its links are not to be followed (<meta name=\"robots\">)")]
    NoFollow,
    /// `<meta http-equiv="refresh">` with a URL.
    #[error("the page leads elsewhere (<meta http-equiv=\"refresh\">)")]
    Refresh,
    /// `<html amp>` or `<html ⚡>`.
    #[error("the page is an AMP page, which is valid without other scripts only")]
    Amp,
    /// `<base>` of another origin.
    #[error("the page's <base> is of another origin")]
    Base,
    /// UTF-16, ISO-2022-JP and the like.
    #[error("the page's encoding is none that contains ASCII")]
    Encoding,
    /// A tag over the limit, or what the parser cannot read.
    #[error("the page has a tag of more than {LONGEST_TAG} bytes before the place for the script")]
    Parser,
    /// Something else than gzip is called gzip.
    #[error("the page is not compressed as its header says")]
    Coding,
    /// A policy in the document.
    #[error(transparent)]
    Policy(#[from] Forbids),
}

impl NoPlace {
    /// Whether the head was not read to its end, so that nobody knows what the page says of itself.
    pub fn is_unread(&self) -> bool {
        matches!(self, NoPlace::Encoding | NoPlace::Parser | NoPlace::Coding)
    }

    /// Of several the one of most weight is told: what bars the page, what may hide that, the rest.
    fn weight(self) -> u8 {
        match self {
            NoPlace::OptOut => 3,
            NoPlace::Refresh => 2,
            _ if self.is_unread() => 1,
            _ => 0,
        }
    }
}

/// What became of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Not known yet.
    Looking,
    /// The script is in.
    Placed,
    /// The page is as it came.
    Left(NoPlace),
}

/// Puts the tag into a page that comes in pieces.
pub(super) struct Injector {
    looking: Option<Box<Looking>>,
    outcome: Outcome,
}

struct Looking {
    head: Head,
    grant: Grant,
    script: &'static Script,
}

/// Reads a page as far as its head goes.
pub(super) struct Head {
    rewriter: HtmlRewriter<'static, Counter>,
    seen: Arc<Mutex<Seen>>,
    /// What came and has not gone out: the parser is not past it.
    held: Vec<u8>,
    /// How much has gone out.
    released: usize,
    beginning: Beginning,
    encoding_is_stated: bool,
}

/// What the parser saw, and how far it is.
#[derive(Debug, Default)]
struct Seen {
    passed: usize,
    place: Option<usize>,
    no_place: Option<NoPlace>,
    templates: u32,
    open_text: u32,
    policies: Vec<String>,
}

impl Seen {
    fn leave(&mut self, why: NoPlace) {
        if self.no_place.is_none_or(|before| before.weight() < why.weight()) {
            self.no_place = Some(why);
        }
    }
}

/// Counts what the parser is past.
struct Counter(Arc<Mutex<Seen>>);

impl OutputSink for Counter {
    fn handle_chunk(&mut self, chunk: &[u8]) {
        lock(&self.0).passed += chunk.len();
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the parser's work.
#[derive(Debug, thiserror::Error)]
#[error("enough is known")]
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
            return Injector { looking: None, outcome: Outcome::Left(NoPlace::Encoding) };
        };
        let looking = Looking { head, grant, script };
        Injector { looking: Some(Box::new(looking)), outcome: Outcome::Looking }
    }

    /// For what is not compressed as it says.
    pub(super) fn none() -> Self {
        Injector { looking: None, outcome: Outcome::Left(NoPlace::Coding) }
    }

    pub(super) fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Takes a piece of the page, and appends what may go out to `out`.
    pub(super) fn push(&mut self, input: &[u8], out: &mut Vec<u8>) {
        match &mut self.looking {
            None => out.extend_from_slice(input),
            Some(looking) => {
                let decided = looking.head.push(input, out);
                self.settle(decided, out);
            }
        }
    }

    /// Takes the end of the page.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        if let Some(looking) = &mut self.looking {
            let decided = looking.head.at_the_end();
            self.settle(Some(decided), out);
        }
    }

    /// Lets out what is held, with the tag at its place if there is one.
    fn settle(&mut self, decided: Option<Result<usize, NoPlace>>, out: &mut Vec<u8>) {
        let Some(decided) = decided else {
            return;
        };
        let Some(looking) = self.looking.take() else {
            return;
        };
        let Looking { head, grant, script } = *looking;
        let tag = decided.and_then(|place| {
            // The parser tells of a place before it is past it.
            let at = place.checked_sub(head.released).ok_or(NoPlace::Parser)?;
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
    /// Of a page in `encoding`, which its header states or not. Where its `<base>` leads is only looked
    /// at if its `origin` is given. `None` where the encoding does not contain ASCII.
    pub(super) fn new(
        origin: Option<Url>,
        encoding: &'static Encoding,
        encoding_is_stated: bool,
    ) -> Option<Self> {
        let seen = Arc::new(Mutex::new(Seen::default()));
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

    /// Gives the place, or why there is none, once the head has ended or opts out. Appends what the
    /// parser is past to `out`.
    pub(super) fn push(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Option<Result<usize, NoPlace>> {
        self.held.extend_from_slice(input);
        match self.beginning.take(input) {
            // Nothing of UTF-16 can be read.
            Err(NoPlace::Encoding) => return Some(Err(NoPlace::Encoding)),
            Err(why) => lock(&self.seen).leave(why),
            Ok(()) => {}
        }
        let written = self.rewriter.write(input);
        let mut seen = lock(&self.seen);
        if seen.no_place == Some(NoPlace::OptOut) {
            return Some(Err(NoPlace::OptOut));
        }
        let end = seen.place.map_or(usize::MAX, |place| place.saturating_sub(self.released));
        let news = self.held.iter().take(end).skip(self.held.len() - input.len());
        // Escape sequences change what bytes mean in ISO-2022-JP, which browsers also guess.
        if !self.encoding_is_stated && news.copied().any(|byte| byte == 0x1b) {
            seen.leave(NoPlace::Encoding);
        }
        if written.is_err() && seen.place.is_none() {
            seen.leave(NoPlace::Parser);
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

    pub(super) fn at_the_end(&self) -> Result<usize, NoPlace> {
        let seen = lock(&self.seen);
        if let Some(why) = seen.no_place {
            return Err(why);
        }
        if self.beginning != Beginning::Tag {
            return Err(NoPlace::NoTag);
        }
        if seen.templates > 0 || seen.open_text > 0 || !self.held.is_empty() {
            return Err(NoPlace::End);
        }
        Ok(self.released)
    }
}

fn rewriter(
    seen: &Arc<Mutex<Seen>>,
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
    // Who listens to comments makes the parser wait for their ends, so that a document that ends
    // within one is known.
    let comments = DocumentContentHandlers::default()
        .comments(|_: &mut Comment<'_>| -> lol_html::HandlerResult { Ok(()) });
    let settings = Settings::new_send()
        .append_document_content_handler(comments)
        .append_element_content_handler((Cow::Owned(selector), handlers))
        .with_encoding(AsciiCompatibleEncoding::new(encoding)?)
        .with_memory_settings(
            MemorySettings::new()
                .with_preallocated_parsing_buffer_size(1024)
                .with_max_allowed_memory_usage(LONGEST_TAG),
        )
        .with_strict(false);
    Some(HtmlRewriter::new(settings, Counter(Arc::clone(seen))))
}

/// Looks at a start tag.
fn visit(
    element: &mut Element<'_, '_>,
    shared: &Arc<Mutex<Seen>>,
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
            if why == NoPlace::OptOut {
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

/// How the `<html>` of an AMP page is marked (AMP HTML specification, "Required markup"), and of its kinds.
const OF_AMP: [&str; 6] = ["amp", "⚡", "amp4ads", "⚡4ads", "amp4email", "⚡4email"];

/// What `<html>`, `<meta>` and `<base>` say that concerns us.
fn says(
    name: &str,
    element: &Element<'_, '_>,
    origin: Option<&Url>,
    policies: &mut Vec<String>,
) -> Result<(), NoPlace> {
    if name == "base" {
        let Some((origin, href)) = origin.zip(element.get_attribute("href")) else {
            return Ok(());
        };
        // The tag's path is read from there.
        return match origin.join(href.trim()) {
            Ok(url) if url.origin() == origin.origin() => Ok(()),
            _ => Err(NoPlace::Base),
        };
    }
    if name == "html" {
        let is_marked = OF_AMP.iter().any(|mark| element.has_attribute(mark));
        return if is_marked { Err(NoPlace::Amp) } else { Ok(()) };
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
        return Err(NoPlace::OptOut);
    }
    if (is("name", "robots") || is("name", "lull")) && has_word(&["nofollow", "none"]) {
        return Err(NoPlace::NoFollow);
    }
    if is("http-equiv", "content-security-policy") {
        // More than a page ever has; each is asked about.
        if policies.len() == 32 {
            return Err(NoPlace::Policy(Forbids::Meta));
        }
        policies.push(html_unescape(&content));
    } else if is("http-equiv", "refresh") && leads_elsewhere(&content) {
        return Err(NoPlace::Refresh);
    } else if is("http-equiv", "content-type")
        && let Some((_, charset)) = content.to_ascii_lowercase().split_once("charset=")
    {
        contains_ascii(charset.split(';').next().unwrap_or(""))?;
    }
    Ok(())
}

/// Whether a refresh is of another page: behind the seconds there is a URL, which `url=` may stand before.
/// By the seconds alone a page is loaded anew.
fn leads_elsewhere(content: &str) -> bool {
    let url =
        content.trim_start().trim_start_matches(|one: char| one.is_ascii_digit() || one == '.');
    url.contains(|one: char| !one.is_ascii_whitespace() && !matches!(one, ';' | ','))
}

fn contains_ascii(label: &str) -> Result<(), NoPlace> {
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
        Some(_) => Err(NoPlace::Encoding),
        None => Ok(()),
    }
}

/// The character references that policies are written with. With any other the policy's directive
/// matches nothing that we would be let through by.
fn html_unescape(text: &str) -> String {
    text.replace("&#39;", "'")
        .replace("&#039;", "'")
        .replace("&#x27;", "'")
        .replace("&apos;", "'")
        .replace("&quot;", "\"")
        .replace("&#34;", "\"")
        .replace("&amp;", "&")
}

/// How a document begins: with a byte order mark perhaps, with white space perhaps, and then with a
/// tag, a comment or a declaration; or with something else.
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
    fn take(&mut self, input: &[u8]) -> Result<(), NoPlace> {
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
                (Beginning::Start, 0xfe | 0xff) => return Err(NoPlace::Encoding),
                (Beginning::Start | Beginning::Space, b'\t' | b'\n' | 0x0c | b'\r' | b' ') => {
                    Beginning::Space
                }
                (Beginning::Start | Beginning::Space, b'<') => Beginning::Tag,
                _ => {
                    *self = Beginning::Else;
                    return Err(NoPlace::NoTag);
                }
            };
        }
        Ok(())
    }
}
