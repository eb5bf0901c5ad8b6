//! Whether a page's content security policies allow the script, and what the script needs for that.
//!
//! The `content-security-policy` crate, Servo's own, decides whether a policy allows a request. For each
//! policy the options are, in this order: it allows the unmodified script; the tag takes a nonce of the
//! policy; the policy takes the script's hash. Only the last one changes a policy, and it allows only Lull's
//! script, byte for byte.

use content_security_policy::{
    Destination, Initiator, ParserMetadata, Policy, PolicyDisposition, PolicySource, Request, Url,
    Violates,
};
use http::HeaderMap;
use http::header::{
    CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY_REPORT_ONLY, HeaderName, HeaderValue,
};

use crate::protocol::WORKER_PATH;
use crate::script::Script;

/// Why a page's policy permits no script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Forbids {
    /// Not in ASCII, so browsers may differ.
    #[error("the content security policy cannot be read")]
    Unreadable,
    /// No scripts at all, or only from other places than Lull's.
    #[error("the content security policy does not allow Lull's script")]
    Script,
    /// A hash or a nonce would disable `'unsafe-inline'`, and the page's own scripts with it.
    #[error("the content security policy has 'unsafe-inline', which a hash would disable")]
    UnsafeInline,
    /// The script could not ask for hints.
    #[error("the content security policy does not allow fetches from the site itself")]
    Connect,
    /// No service worker, or only one with another name than Lull's.
    #[error("the content security policy does not allow Lull's service worker")]
    Worker,
    /// No scripts, or an opaque origin.
    #[error("the page is in a sandbox")]
    Sandbox,
    /// It is not in a header, so a hash cannot be added.
    #[error("a policy in a <meta> does not allow Lull's script")]
    Meta,
}

/// The requirements of the policies in a reply's headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    /// The attributes of the tag.
    nonce: Option<String>,
    /// Header lines that get the script's hash.
    lines: Vec<(HeaderName, Vec<HeaderValue>)>,
    origin: Url,
    /// All policies that were checked.
    policies: Vec<String>,
    /// Whether the tag says, on a page that allows them, that the script may insert speculation rules.
    pub(super) offers_rules: bool,
    /// Seconds that the tag makes the script wait before it asks for hints.
    pub(super) wait: Option<u32>,
    /// Whether the visitor is in the control group, if there is one.
    pub(super) held: Option<bool>,
}

impl Grant {
    /// Checks all policies in the headers of a reply from `origin`.
    pub(super) fn of(headers: &HeaderMap, origin: &Url, script: &Script) -> Result<Self, Forbids> {
        let mut grant = Grant {
            nonce: None,
            lines: Vec::new(),
            origin: origin.clone(),
            policies: Vec::new(),
            offers_rules: false,
            wait: None,
            held: None,
        };
        // A report-only violation would be reported for every visitor.
        for name in [CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY_REPORT_ONLY] {
            let mut lines = Vec::new();
            let mut changed = false;
            for line in headers.get_all(&name) {
                let text = line.to_str().map_err(|_| Forbids::Unreadable)?;
                let mut policies = Vec::new();
                for policy in text.split(',') {
                    if name == CONTENT_SECURITY_POLICY {
                        sandbox(policy)?;
                    }
                    let extended = grant.ask(policy, PolicySource::Header, script)?;
                    changed |= extended.is_some();
                    policies.push(extended.unwrap_or_else(|| policy.to_owned()));
                }
                let line = HeaderValue::from_str(&policies.join(","));
                lines.push(line.map_err(|_| Forbids::Unreadable)?);
            }
            if changed {
                grant.lines.push((name, lines));
            }
        }
        Ok(grant)
    }

    /// Adds the script's hash to the policies in the headers that require it.
    pub(super) fn apply(&self, headers: &mut HeaderMap) {
        for (name, lines) in &self.lines {
            headers.remove(name);
            for line in lines {
                headers.append(name, line.clone());
            }
        }
    }

    /// The tag, if the policies in the document (`<meta>`) permit it too.
    pub(super) fn tag(&self, metas: &[String], script: &Script) -> Result<String, Forbids> {
        let mut grant = self.clone();
        for meta in metas {
            for policy in meta.split(',') {
                match grant.ask(policy, PolicySource::Meta, script) {
                    Ok(None) => {}
                    Ok(Some(_)) | Err(_) => return Err(Forbids::Meta),
                }
            }
        }
        let (nonce, rules) = match self.offers_rules.then(|| grant.nonce_of_rules()).flatten() {
            Some(nonce) => (nonce, " data-rules"),
            None => (grant.nonce, ""),
        };
        let nonce = nonce.map(|nonce| format!(" nonce=\"{nonce}\"")).unwrap_or_default();
        let wait = self.wait.map(|wait| format!(" data-wait=\"{wait}\"")).unwrap_or_default();
        let held = self.held.map(|held| if held { " data-held=1" } else { " data-held=0" });
        let held = held.unwrap_or_default();
        let Script { path, integrity, .. } = script;
        // With `crossorigin`, also for the same origin: a page's `Integrity-Policy` blocks any other script.
        Ok(format!(
            "<script async crossorigin src=\"{path}\" integrity=\"{integrity}\"{nonce}{rules}{wait}{held}></script>"
        ))
    }

    /// The nonce, if there is one, with which all policies permit speculation rules that the script inserts
    /// into the page; `None` if they do not. An unneeded nonce of the tag does not matter.
    fn nonce_of_rules(&self) -> Option<Option<String>> {
        let parse =
            |text: &String| Policy::parse(text, PolicySource::Header, PolicyDisposition::Enforce);
        let policies: Vec<Policy> = self.policies.iter().map(parse).collect();
        let nonce = self.nonce.as_deref().or_else(|| {
            let sources = policies.iter().filter_map(effective).flat_map(|(_, sources)| sources);
            sources.filter_map(|source| nonce_of(source)).next()
        });
        let lets_in = policies.iter().all(|policy| allows_rules(policy, nonce));
        lets_in.then(|| nonce.map(str::to_owned))
    }

    /// Checks one policy. May choose the nonce; returns the policy with its changes, if it needs any.
    fn ask(
        &mut self,
        text: &str,
        source: PolicySource,
        script: &Script,
    ) -> Result<Option<String>, Forbids> {
        self.policies.push(text.to_owned());
        let policy = Policy::parse(text, source, PolicyDisposition::Enforce);
        if violates(&policy, &self.request("/.lull/hints", Destination::None, "", "")) {
            return Err(Forbids::Connect);
        }
        if script.by_worker && !self.allows_worker(&policy) {
            return Err(Forbids::Worker);
        }
        let passes = |policy: &Policy, nonce: &str| {
            let integrity = &script.integrity;
            !violates(policy, &self.request(&script.path, Destination::Script, nonce, integrity))
        };
        if passes(&policy, self.nonce.as_deref().unwrap_or("")) {
            return Ok(None);
        }
        let (name, sources) = effective(&policy).ok_or(Forbids::Script)?;
        if self.nonce.is_none()
            && let Some(nonce) = sources.iter().find_map(|source| nonce_of(source))
            && passes(&policy, nonce)
        {
            self.nonce = Some(nonce.to_owned());
            return Ok(None);
        }
        let has = |word: &str| sources.iter().any(|source| source.eq_ignore_ascii_case(word));
        if sources.is_empty() || has("'none'") {
            return Err(Forbids::Script);
        }
        // By CSP3 §6.7.3.2 a nonce or a hash disables 'unsafe-inline'. With an existing one it already is.
        let strict = sources.iter().any(|source| is_nonce_or_hash(source));
        if has("'unsafe-inline'") && !strict {
            return Err(Forbids::UnsafeInline);
        }
        let extended = with_source(text, name, &format!("'{}'", script.integrity));
        let nonce = self.nonce.as_deref().unwrap_or("");
        if passes(&Policy::parse(&extended, source, PolicyDisposition::Enforce), nonce) {
            Ok(Some(extended))
        } else {
            Err(Forbids::Script)
        }
    }

    /// Whether a policy allows the script to register the service worker.
    fn allows_worker(&self, policy: &Policy) -> bool {
        // A registration assigns a script's URL.
        let is_trusted =
            !policy.directive_set.iter().any(|one| one.name == "require-trusted-types-for");
        let request = self.request(WORKER_PATH, Destination::ServiceWorker, "", "");
        is_trusted && !violates(policy, &request)
    }

    fn request(
        &self,
        path: &str,
        destination: Destination,
        nonce: &str,
        integrity: &str,
    ) -> Request {
        let mut url = self.origin.clone();
        url.set_path(path);
        let script = destination == Destination::Script;
        Request {
            current_url: url.clone(),
            origin: url.origin(),
            url,
            redirect_count: 0,
            destination,
            initiator: if script { Initiator::None } else { Initiator::Fetch },
            nonce: nonce.to_owned(),
            integrity_metadata: integrity.to_owned(),
            parser_metadata: if script {
                ParserMetadata::ParserInserted
            } else {
                ParserMetadata::None
            },
        }
    }
}

/// Whether a policy allows speculation rules with this nonce in the page. To the policy they are inline
/// scripts, with their own keyword, `'inline-speculation-rules'`, which the library does not know.
fn allows_rules(policy: &Policy, nonce: Option<&str>) -> bool {
    // Trusted types restrict the text of scripts of any type.
    if policy.directive_set.iter().any(|one| one.name == "require-trusted-types-for") {
        return false;
    }
    let Some((name, sources)) = effective(policy) else { return true };
    let has = |word: &str| sources.iter().any(|source| source.eq_ignore_ascii_case(word));
    let is_strict = sources.iter().any(|source| is_nonce_or_hash(source));
    (name != "default-src" && has("'inline-speculation-rules'"))
        || sources.iter().any(|source| nonce.is_some() && nonce_of(source) == nonce)
        || (has("'unsafe-inline'") && !is_strict && !has("'strict-dynamic'"))
}

fn violates(policy: &Policy, request: &Request) -> bool {
    !matches!(policy.does_request_violate_policy(request), Violates::DoesNotViolate)
}

fn sandbox(text: &str) -> Result<(), Forbids> {
    let policy = Policy::parse(text, PolicySource::Header, PolicyDisposition::Enforce);
    let Some(sandbox) = policy.directive_set.iter().find(|one| one.name == "sandbox") else {
        return Ok(());
    };
    // In an opaque origin nothing is same-origin, and the cache is another one.
    let allowed = ["allow-scripts", "allow-same-origin"]
        .iter()
        .all(|flag| sandbox.value.iter().any(|value| value.eq_ignore_ascii_case(flag)));
    if allowed { Ok(()) } else { Err(Forbids::Sandbox) }
}

/// The directive that governs script elements (CSP3 §6.8.3), and its sources.
fn effective(policy: &Policy) -> Option<(&str, &[String])> {
    ["script-src-elem", "script-src", "default-src"].iter().find_map(|name| {
        let found = policy.directive_set.iter().find(|directive| directive.name == *name)?;
        Some((found.name.as_str(), found.value.as_slice()))
    })
}

fn nonce_of(source: &str) -> Option<&str> {
    let inner = source.strip_prefix('\'')?.strip_suffix('\'')?;
    let (kind, nonce) = inner.split_at_checked("nonce-".len())?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "+/-_=".contains(c);
    (kind.eq_ignore_ascii_case("nonce-") && !nonce.is_empty() && nonce.chars().all(plain))
        .then_some(nonce)
}

fn is_nonce_or_hash(source: &str) -> bool {
    let source = source.to_ascii_lowercase();
    ["'nonce-", "'sha256-", "'sha384-", "'sha512-"].iter().any(|kind| source.starts_with(kind))
}

/// A policy with one more source in the directive `name`, and otherwise unchanged.
fn with_source(text: &str, name: &str, source: &str) -> String {
    let mut done = false;
    let directives: Vec<String> = text
        .split(';')
        .map(|directive| {
            let is_it = directive
                .split_ascii_whitespace()
                .next()
                .is_some_and(|word| word.eq_ignore_ascii_case(name));
            if is_it && !done {
                done = true;
                format!("{} {source}", directive.trim_ascii_end())
            } else {
                directive.to_owned()
            }
        })
        .collect();
    directives.join(";")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script() -> Script {
        Script {
            body: String::new(),
            packed: bytes::Bytes::new(),
            path: "/.lull/lull-0.js".into(),
            integrity: "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=".into(),
            by_worker: false,
        }
    }

    fn grant(lines: &[(&'static str, &str)]) -> Result<(Option<String>, HeaderMap), Forbids> {
        let mut headers = HeaderMap::new();
        for (name, line) in lines {
            headers.append(
                HeaderName::from_static(name),
                HeaderValue::from_bytes(line.as_bytes()).unwrap(),
            );
        }
        let origin = Url::parse("https://example.org").unwrap();
        let grant = Grant::of(&headers, &origin, &script())?;
        grant.apply(&mut headers);
        Ok((grant.nonce, headers))
    }

    const CSP: &str = "content-security-policy";
    const REPORT: &str = "content-security-policy-report-only";

    enum Expected {
        AsItIs,
        Nonce(&'static str),
        /// The new policy, with `HASH` in place of the script's.
        Hash(&'static str),
        No(Forbids),
    }

    #[test]
    fn tag_carries_the_credential_that_each_policy_demands() {
        use Expected::{AsItIs, Hash, No, Nonce};
        use Forbids::{Connect, Script, UnsafeInline};
        for (policy, expected) in [
            ("", AsItIs),
            ("img-src 'none'", AsItIs),
            ("default-src 'self'", AsItIs),
            ("script-src 'self'", AsItIs),
            ("script-src 'self' 'unsafe-inline'", AsItIs),
            ("script-src *", AsItIs),
            ("script-src https:", AsItIs),
            ("script-src example.org", AsItIs),
            ("script-src https://example.org/.lull/", AsItIs),
            ("script-src *.org", AsItIs),
            ("default-src 'none'; script-src 'self'; connect-src 'self'", AsItIs),
            ("script-src 'none'; script-src-elem 'self'", AsItIs),
            ("require-trusted-types-for 'script'; trusted-types x", AsItIs),
            ("upgrade-insecure-requests; frame-ancestors 'none'", AsItIs),
            ("SCRIPT-SRC 'SELF'", AsItIs),
            // A nonce of the page.
            ("script-src 'nonce-abc123'", Nonce("abc123")),
            ("script-src 'nonce-a+/-_=='", Nonce("a+/-_==")),
            ("script-src 'nonce-a' 'nonce-b'", Nonce("a")),
            ("script-src 'nonce-a' 'strict-dynamic' https: 'unsafe-inline'", Nonce("a")),
            ("default-src 'self' 'nonce-a' 'strict-dynamic'", Nonce("a")),
            ("script-src-elem 'nonce-e'; script-src 'nonce-s'", Nonce("e")),
            // A hash of our script.
            ("script-src https://cdn.example", Hash("script-src https://cdn.example HASH")),
            (
                "img-src *; script-src  cdn.example ; connect-src 'self'",
                Hash("img-src *; script-src  cdn.example HASH; connect-src 'self'"),
            ),
            ("script-src https://example.org/js/", Hash("script-src https://example.org/js/ HASH")),
            ("script-src 'self' 'strict-dynamic'", Hash("script-src 'self' 'strict-dynamic' HASH")),
            (
                "script-src 'sha256-AAAA' 'strict-dynamic'",
                Hash("script-src 'sha256-AAAA' 'strict-dynamic' HASH"),
            ),
            (
                "script-src cdn.example 'sha256-AAAA' 'unsafe-inline'",
                Hash("script-src cdn.example 'sha256-AAAA' 'unsafe-inline' HASH"),
            ),
            (
                "default-src https://cdn.example; connect-src 'self'",
                Hash("default-src https://cdn.example HASH; connect-src 'self'"),
            ),
            // Impossible.
            ("default-src 'none'", No(Connect)),
            ("script-src 'none'", No(Script)),
            ("script-src", No(Script)),
            ("default-src 'none'; connect-src 'self'", No(Script)),
            ("script-src cdn.example 'unsafe-inline'", No(UnsafeInline)),
            ("script-src 'unsafe-inline' 'unsafe-eval'", No(UnsafeInline)),
            ("script-src 'self'; connect-src 'none'", No(Connect)),
            ("script-src 'self'; connect-src api.example", No(Connect)),
            ("default-src api.example", No(Connect)),
        ] {
            let found = grant(&[(CSP, policy)]);
            let header = |headers: &HeaderMap| headers[CSP].to_str().unwrap().to_owned();
            match (expected, found) {
                (AsItIs, Ok((None, headers))) => assert_eq!(header(&headers), policy),
                (Nonce(expected), Ok((Some(nonce), headers))) => {
                    assert_eq!((nonce.as_str(), header(&headers).as_str()), (expected, policy));
                }
                (Hash(expected), Ok((None, headers))) => {
                    let hash = format!("'{}'", script().integrity);
                    assert_eq!(header(&headers), expected.replace("HASH", &hash));
                }
                (No(expected), Err(found)) => assert_eq!(found, expected, "{policy}"),
                (_, found) => panic!("{policy}: {found:?}"),
            }
        }
    }

    #[test]
    fn tag_marks_where_policies_allow_speculation_rules() {
        let origin = Url::parse("https://example.org").unwrap();
        for (header, meta, expected) in [
            ("", "", true),
            ("img-src 'none'; frame-ancestors 'none'", "", true),
            ("script-src 'self' 'unsafe-inline'", "", true),
            ("script-src 'nonce-a'", "", true),
            ("script-src 'nonce-a' 'strict-dynamic' 'unsafe-inline'", "", true),
            ("default-src 'self' 'nonce-a'", "", true),
            ("script-src 'self' 'nonce-a', default-src 'self'; script-src 'nonce-a'", "", true),
            ("script-src 'self' 'inline-speculation-rules'", "", true),
            ("script-src 'none'; script-src-elem 'self' 'inline-speculation-rules'", "", true),
            ("script-src 'nonce-a', script-src 'nonce-a'", "", true),
            ("", "script-src 'nonce-m'", true),
            ("script-src 'self'", "", false),
            ("default-src 'self'", "", false),
            // Only in script-src and script-src-elem.
            ("default-src 'self' 'inline-speculation-rules'", "", false),
            ("script-src 'self' 'unsafe-inline' 'sha256-AAAA'", "", false),
            ("script-src 'self' 'unsafe-inline'; script-src-elem 'self'", "", false),
            ("script-src https://cdn.example", "", false),
            ("script-src *", "", false),
            ("script-src 'nonce-a', script-src 'self'", "", false),
            ("script-src 'self', script-src 'nonce-a'", "", false),
            ("script-src 'self' 'nonce-a', script-src 'self' 'nonce-b'", "", false),
            ("require-trusted-types-for 'script'", "", false),
            ("", "script-src 'self'", false),
            ("", "require-trusted-types-for 'script'", false),
        ] {
            for name in [CSP, REPORT] {
                let mut headers = HeaderMap::new();
                let name: HeaderName = name.parse().unwrap();
                headers.insert(name, HeaderValue::from_static(header));
                let mut grant = Grant::of(&headers, &origin, &script()).unwrap();
                let metas: Vec<String> =
                    [meta.to_owned()].into_iter().filter(|meta| !meta.is_empty()).collect();
                assert!(!grant.tag(&metas, &script()).unwrap().contains("data-rules"));
                grant.offers_rules = true;
                let tag = grant.tag(&metas, &script()).unwrap();
                assert_eq!(
                    tag.ends_with(" data-rules></script>"),
                    expected,
                    "{header} {meta} {tag}"
                );
            }
        }
    }

    #[test]
    fn tag_carries_the_group_of_the_visitor() {
        let origin = Url::parse("https://example.org").unwrap();
        let mut grant = Grant::of(&HeaderMap::new(), &origin, &script()).unwrap();
        for (held, expected) in [
            (None, "\"></script>"),
            (Some(true), " data-held=1></script>"),
            (Some(false), " data-held=0></script>"),
        ] {
            grant.held = held;
            let tag = grant.tag(&[], &script()).unwrap();
            assert!(tag.ends_with(expected), "{tag}");
        }
    }

    #[test]
    fn tag_carries_the_wait_if_one_is_set() {
        let origin = Url::parse("https://example.org").unwrap();
        let mut grant = Grant::of(&HeaderMap::new(), &origin, &script()).unwrap();
        assert!(!grant.tag(&[], &script()).unwrap().contains("data-wait"));
        grant.wait = Some(17);
        assert!(grant.tag(&[], &script()).unwrap().ends_with(" data-wait=\"17\"></script>"));
    }

    #[test]
    fn worker_is_requested_where_policies_allow_it() {
        let origin = Url::parse("https://example.org").unwrap();
        let worker = Script { by_worker: true, ..script() };
        for (policy, expected) in [
            ("", Ok(())),
            ("script-src 'self'", Ok(())),
            ("default-src 'self'", Ok(())),
            ("script-src 'none'; script-src-elem 'self'; worker-src 'self'", Ok(())),
            ("worker-src 'none'", Err(Forbids::Worker)),
            ("worker-src blob:", Err(Forbids::Worker)),
            ("script-src 'self'; child-src 'none'", Err(Forbids::Worker)),
            ("script-src https://cdn.example", Err(Forbids::Worker)),
            ("require-trusted-types-for 'script'", Err(Forbids::Worker)),
        ] {
            for name in [CSP, REPORT] {
                let mut headers = HeaderMap::new();
                headers
                    .insert(HeaderName::from_static(name), HeaderValue::from_str(policy).unwrap());
                let found = Grant::of(&headers, &origin, &worker).map(|_| ());
                assert_eq!(found, expected, "{policy}");
                assert!(Grant::of(&headers, &origin, &script()).is_ok(), "{policy}");
            }
        }
    }

    #[test]
    fn sandbox_without_scripts_gets_no_tag() {
        for (policy, expected) in [
            ("sandbox", false),
            ("sandbox allow-scripts", false),
            ("sandbox allow-same-origin", false),
            ("sandbox allow-scripts allow-same-origin allow-forms", true),
            ("sandbox ALLOW-SCRIPTS ALLOW-SAME-ORIGIN", true),
        ] {
            let found = grant(&[(CSP, policy)]);
            assert_eq!(found.is_ok(), expected, "{policy}");
            // A sandbox is never report-only.
            assert!(grant(&[(REPORT, policy)]).is_ok());
        }
    }

    #[test]
    fn all_policies_count() {
        for (lines, nonce, ok) in [
            (&[(CSP, "script-src 'nonce-a'"), (CSP, "script-src 'self'")][..], Some("a"), true),
            (&[(CSP, "script-src 'nonce-a', script-src 'nonce-a'")], Some("a"), true),
            (&[(CSP, "script-src 'self'"), (CSP, "script-src 'none'")], None, false),
            (&[(CSP, "script-src 'self', script-src 'none'")], None, false),
            (&[(CSP, "script-src 'self'"), (REPORT, "script-src 'none'")], None, false),
            (&[(REPORT, "script-src 'nonce-r'")], Some("r"), true),
            (&[(CSP, "script-src 'self'\u{e9}")], None, false),
        ] {
            let found = grant(lines);
            assert_eq!(found.is_ok(), ok, "{lines:?}");
            if let Ok((found, _)) = found {
                assert_eq!(found.as_deref(), nonce, "{lines:?}");
            }
        }
        // One tag has one nonce: the other policy takes the hash.
        let (nonce, headers) =
            grant(&[(CSP, "script-src 'nonce-a', script-src 'nonce-b'"), (CSP, "img-src *")])
                .unwrap();
        assert_eq!(nonce.as_deref(), Some("a"));
        let lines: Vec<_> =
            headers.get_all(CSP).iter().map(|line| line.to_str().unwrap()).collect();
        let extended =
            format!("script-src 'nonce-a', script-src 'nonce-b' '{}'", script().integrity);
        assert_eq!(lines, [extended.as_str(), "img-src *"]);
    }

    #[test]
    fn policies_in_the_document_count_too() {
        let origin = Url::parse("https://example.org").unwrap();
        for (header, metas, expected) in [
            ("", &[][..], Ok("")),
            ("", &["script-src 'self'"], Ok("")),
            ("", &["script-src 'nonce-m'"], Ok("m")),
            ("script-src 'nonce-h'", &["script-src 'nonce-h' 'strict-dynamic'"], Ok("h")),
            ("script-src 'nonce-h'", &["script-src 'nonce-m'"], Err(Forbids::Meta)),
            ("", &["script-src 'none'"], Err(Forbids::Meta)),
            ("", &["script-src cdn.example"], Err(Forbids::Meta)),
            ("", &["connect-src 'none'"], Err(Forbids::Meta)),
            ("", &["img-src *", "default-src 'none'"], Err(Forbids::Meta)),
            ("", &["sandbox"], Ok("")),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(header));
            let grant = Grant::of(&headers, &origin, &script()).unwrap();
            let metas: Vec<String> = metas.iter().map(|&meta| meta.into()).collect();
            let tag = grant.tag(&metas, &script());
            assert_eq!(tag.is_ok(), expected.is_ok(), "{header} {metas:?}");
            if let (Ok(tag), Ok(nonce)) = (tag, expected) {
                assert_eq!(tag.contains(&format!("nonce=\"{nonce}\"")), !nonce.is_empty(), "{tag}");
            }
        }
    }
}
