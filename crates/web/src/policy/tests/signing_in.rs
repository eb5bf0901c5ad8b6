//! Users who sign in after a prefetch.

use super::*;

const LATER: u64 = 1000;
const CHROME: (&str, &str) = ("user-agent", "Mozilla/5.0 (X11) Chrome/156.0.0.0 Safari/537.36");

/// The ETag of a copy of `/a` that was requested at `LATER` and is valid for `seconds`.
fn copy(policy: &mut Policy, seconds: u64) -> String {
    let asked_at = Admitted { at: at(LATER), ..admitted() };
    let control = format!("max-age={seconds}");
    let mut head = answered(200, &[("cache-control", &control), ("content-type", "text/html")]);
    policy.admit_reply(&asked_at, &mut head, at(LATER), wall()).unwrap();
    head.headers[ETAG].to_str().unwrap().to_owned()
}

/// The answer to a browser that has the copy with this ETag, and requests `url` with these fields.
fn renewed(
    policy: &Policy,
    tag: &str,
    (method, url): (&str, &str),
    fields: &[(&str, &str)],
    now: u64,
) -> Option<response::Parts> {
    let fields: Vec<_> = fields.iter().copied().chain([("if-none-match", tag)]).collect();
    let mut request = asked(method, url, &fields);
    let tags = take_tags(&mut request.headers);
    assert!(!request.headers.contains_key("if-none-match"), "the origin would see it");
    policy.renew(&request, &tags, at(now))
}

#[test]
fn copy_is_renewed_for_anonymous_users_only() {
    let mut policy = policy();
    let tag = copy(&mut policy, 200);
    for (fields, expected) in [
        (&[][..], true),
        (&[("cookie", "_ga=1")], true),
        (&[("cookie", "_ga=1; _gid=2")], true),
        (&[("cookie", "_ga=1; session=1")], false),
        (&[("cookie", "session=1")], false),
        (&[("cookie", "lull_auth=1")], false),
        (&[("authorization", "Basic eA==")], false),
        (&[("x-remote-user", "ann")], false),
        // A reload, a part of a file, and a script that needs a part of the page.
        (&[("cache-control", "max-age=0")], false),
        (&[("pragma", "no-cache")], false),
        (&[("range", "bytes=0-1")], false),
        (&[("hx-request", "true")], false),
    ] {
        let found = renewed(&policy, &tag, ("GET", "/a"), fields, LATER + 10);
        assert_eq!(found.is_some(), expected, "{fields:?}");
        if let Some(head) = found {
            assert_eq!(head.status, 304);
            assert_eq!(head.headers["cache-control"], "private, max-age=190");
            assert_eq!(head.headers["etag"], tag.as_str());
        }
    }
    assert!(renewed(&policy, &tag, ("HEAD", "/a"), &[], LATER).is_none());
    assert!(renewed(&policy, &tag, ("GET", "/b"), &[], LATER).is_none());
    let strong = tag.trim_start_matches("W/");
    assert!(renewed(&policy, strong, ("GET", "/a"), &[], LATER).is_some());
}

#[test]
fn copy_is_never_renewed_beyond_its_time() {
    let mut policy = policy();
    let tag = copy(&mut policy, 200);
    for (now, left) in [(LATER, Some(200)), (LATER + 199, Some(1)), (LATER + 200, None)] {
        let found = renewed(&policy, &tag, ("GET", "/a"), &[], now);
        let control = found.map(|head| head.headers["cache-control"].to_str().unwrap().to_owned());
        assert_eq!(control, left.map(|left| format!("private, max-age={left}")), "{now}");
    }
}

#[test]
fn copy_of_another_process_is_not_renewed() {
    let tag = copy(&mut policy(), 200);
    assert!(renewed(&policy(), &tag, ("GET", "/a"), &[], LATER + 1).is_none());
}

#[test]
fn copy_is_not_renewed_once_its_url_is_barred() {
    let mut policy = policy();
    let tag = copy(&mut policy, 200);
    policy.bar("/a", Offence::OptOut, at(LATER + 1));
    assert!(renewed(&policy, &tag, ("GET", "/a"), &[], LATER + 2).is_none());
}

#[test]
fn cookies_of_a_reply_leave_the_cache_unchanged() {
    for cookie in [None, Some("_ga=1"), Some("session=1")] {
        let fields: Vec<_> =
            cookie.map(|value| ("cookie", value)).into_iter().chain([CHROME]).collect();
        let set = [("set-cookie", "session=0123456789abcdef; Path=/; HttpOnly")];
        let mut policy = policy();
        copy(&mut policy, 200);
        let (mut head, before) = (answered(200, &set), answered(200, &set));
        policy.observe(&asked("POST", "/in", &fields), true, false, CLIENT, &mut head, at(LATER));
        assert_eq!(head.headers, before.headers, "{cookie:?}");
    }
}

const BASIC: (&str, &str) = ("authorization", "Basic eA==");

#[test]
fn first_reply_to_credentials_sets_the_cookie() {
    for (fields, secure, has_cookie, expected) in [
        (
            &[BASIC, CHROME][..],
            true,
            false,
            Some("lull_auth=1; Path=/; HttpOnly; SameSite=Lax; Secure"),
        ),
        (&[BASIC, CHROME], false, false, Some("lull_auth=1; Path=/; HttpOnly; SameSite=Lax")),
        (&[BASIC, CHROME], true, true, None),
        // Browsers that keep no copies, and programs.
        (&[BASIC], true, false, None),
        (&[BASIC, ("user-agent", "curl/8.0")], true, false, None),
        // Credentials of scripts' own requests do not come with a navigation.
        (&[("authorization", "Bearer x"), CHROME], true, false, None),
        (&[CHROME], true, false, None),
    ] {
        let mut head = answered(200, &[]);
        let request = asked("GET", "/app/a", fields);
        policy().observe(&request, secure, has_cookie, CLIENT, &mut head, at(LATER));
        let found = head.headers.get("set-cookie").map(|value| value.to_str().unwrap());
        assert_eq!(found, expected, "{fields:?} {has_cookie}");
    }
}

#[test]
fn password_protected_pages_are_not_prefetched() {
    let folders = ["/app", "/my%20files", "/caf%C3%A9", "/100%25"];
    for (folder, by_prefetch) in folders.into_iter().flat_map(|one| [(one, false), (one, true)]) {
        let (inner, other) = (format!("{folder}/in"), format!("{folder}/a"));
        let mut policy = policy();
        let mut head = answered(401, &[("www-authenticate", "Basic realm=\"x\"")]);
        if by_prefetch {
            let request = asked("GET", &inner, &[("x-lull", "1")]);
            let admitted = policy.admit(&request, CLIENT, at(LATER)).unwrap();
            assert!(policy.admit_reply(&admitted, &mut head, at(LATER), wall()).is_err());
        } else {
            let request = asked("GET", &inner, &[]);
            policy.observe(&request, true, false, CLIENT, &mut head, at(LATER));
        }
        let hinted = policy.may_hint(&other, at(LATER + 1));
        assert_eq!(hinted, Err(Refusal::Protected), "{folder} {by_prefetch}");
        let request = asked("GET", &other, &[("x-lull", "1")]);
        let found = policy.admit(&request, CLIENT, at(LATER + 1));
        assert_eq!(found, Err(Refusal::Protected));
        assert!(policy.may_hint("/b", at(LATER + 1)).is_ok());
    }
    let mut policy = policy();
    let mut head = answered(401, &[("www-authenticate", "Bearer")]);
    policy.observe(&asked("GET", "/api/x", &[]), true, false, CLIENT, &mut head, at(LATER));
    assert!(policy.may_hint("/api/y", at(LATER)).is_ok());
    // In the root it bars nothing.
    let mut head = answered(401, &[("www-authenticate", "Digest realm=\"x\"")]);
    policy.observe(&asked("GET", "/in", &[]), true, false, CLIENT, &mut head, at(LATER));
    assert!(policy.may_hint("/a", at(LATER)).is_ok());
}
