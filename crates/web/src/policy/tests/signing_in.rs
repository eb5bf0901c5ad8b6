//! Who signs in, before and after something was fetched ahead.

use super::*;

/// So long after the start that nobody has anything of a process before.
const LATER: u64 = 1000;

#[test]
fn a_new_cookie_clears_the_copies_of_who_may_have_some() {
    for (given, cookies, set, secure, cleared) in [
        (false, Some("_ga=1"), Some("session=1"), true, true),
        (false, Some("_ga=1"), Some("_gid=1"), true, false),
        (false, Some("_ga=1"), None, true, false),
        // Their copies carry `Vary: Cookie`, or there are none.
        (false, None, Some("session=1"), true, false),
        (false, Some("session=1"), Some("session=2"), true, false),
        (false, Some("_ga=1"), Some("session=1"), false, false),
        // Those of who had harmless ones only when the mark was given: a script has set one since, or
        // the form that signs in has come from another site.
        (true, Some("_ga=1; consent=1"), Some("session=1"), true, true),
        (true, None, Some("session=1"), true, true),
        (true, None, Some("session=1"), false, false),
        (true, Some("consent=1"), Some("_gid=1"), true, false),
        (true, None, None, true, false),
    ] {
        let fields: Vec<_> = cookies.map(|value| ("cookie", value)).into_iter().collect();
        let mut head =
            answered(200, &set.map(|value| ("set-cookie", value)).into_iter().collect::<Vec<_>>());
        let mut policy = policy();
        if given {
            policy.mark(Visitor::Measured, "/a", CLIENT, at(LATER), wall());
        }
        // Somebody else's is nothing to this one.
        policy.mark(Visitor::Measured, "/a", Client(8), at(LATER), wall());
        let now = at(LATER + 110);
        policy.observe(&asked("POST", "/in", &fields), secure, CLIENT, &mut head, now);
        let found = head.headers.get("clear-site-data").map(|value| value.to_str().unwrap());
        assert_eq!(found, cleared.then_some("\"cache\""), "{given} {cookies:?} {set:?} {secure}");
        // A sign-in over plain HTTP is one, although nothing can be cleared by it.
        let signs_in = cleared || (!secure && set == Some("session=1"));
        assert_eq!(policy.still(&admitted(Visitor::Measured), now).is_err(), signs_in);
        assert!(policy.still(&admitted(Visitor::Cookieless), now).is_ok());
    }
}

const SESSION: &str = "session=0123456789abcdef";

/// Whether a reply to a visitor's request with these fields, which sets a cookie, clears what the
/// client has.
fn setting_clears(policy: &mut Policy, fields: &[(&str, &str)], set: &str, now: u64) -> bool {
    let mut head = answered(200, &[("set-cookie", set)]);
    policy.observe(&asked("GET", "/x", fields), true, CLIENT, &mut head, at(now));
    head.headers.contains_key("clear-site-data")
}

#[test]
fn who_was_cleared_and_got_nothing_since_is_not_cleared_again() {
    let page = ("sec-fetch-dest", "document");
    let set = format!("{SESSION}; Path=/; HttpOnly");
    let mut policy = policy();
    policy.mark(Visitor::Measured, "/a", CLIENT, at(LATER), wall());
    assert!(setting_clears(&mut policy, &[page], &set, LATER + 1));
    let cookies = format!("_ga=1; {SESSION}");
    let signed_in = [("cookie", cookies.as_str())];
    let next = "session=0123456789abcdef0";
    assert!(!setting_clears(&mut policy, &signed_in, next, LATER + 2));
    // The cookie that takes its place says the same.
    assert!(!setting_clears(&mut policy, &[("cookie", next)], &set, LATER + 3));
    // Somebody else at that address.
    for cookie in ["consent=1", "session=0123456789abcdeg", "other=0123456789abcdef"] {
        assert!(setting_clears(&mut policy, &[("cookie", cookie)], "x=1", LATER + 4), "{cookie}");
    }
    assert!(setting_clears(&mut policy, &[], "x=1", LATER + 4));
    // What came since may be anybody's there.
    policy
        .keep(&admitted(Visitor::Measured), &mut answered(200, &[]), at(LATER + 125), wall())
        .unwrap();
    assert!(setting_clears(&mut policy, &signed_in, &set, LATER + 126));
}

#[test]
fn who_may_not_have_been_cleared_is_cleared_with_the_next_cookie() {
    let page = ("sec-fetch-dest", "document");
    for (fields, set) in [
        // Others may have the same.
        (&[page][..], "consent=all"),
        (&[page], "_gid=0123456789abcdef; Path=/"),
        // A frame of another site's has a cache of its own, and so may have what is fetched ahead.
        (&[("sec-fetch-dest", "iframe")], SESSION),
        (&[("sec-fetch-dest", "empty")], SESSION),
        (&[], SESSION),
        (&[page, ("sec-purpose", "prefetch")], SESSION),
    ] {
        let mut policy = policy();
        policy.mark(Visitor::Measured, "/a", CLIENT, at(LATER), wall());
        let cookie = set.split(';').next().unwrap();
        let is_harmless = cookie.starts_with("_gid");
        assert_eq!(setting_clears(&mut policy, fields, set, LATER + 1), !is_harmless);
        let fields = [("cookie", format!("{cookie}; consent=1"))];
        let fields = fields.each_ref().map(|(name, value)| (*name, value.as_str()));
        assert!(setting_clears(&mut policy, &fields, "x=1", LATER + 2), "{set}");
    }
    // With harmless cookies only it may be anybody.
    let mut policy = policy();
    policy.mark(Visitor::Measured, "/a", CLIENT, at(LATER), wall());
    for second in 1..3 {
        let fields = [page, ("cookie", "_ga=1")];
        assert!(setting_clears(&mut policy, &fields, SESSION, LATER + second));
    }
}

#[test]
fn who_asks_for_many_marks_has_nobody_elses_cache_cleared() {
    let mut policy = policy();
    let mut mark = |client| policy.mark(Visitor::Measured, "/a", Client(client), at(LATER), wall());
    let given = (1_000..101_000).filter(|client| mark(*client).is_some()).count();
    assert_eq!(given, 1 << 16, "as many as can be remembered");
    assert_eq!(mark(101_000), None);
    // Who has one may have another.
    assert!(mark(1_000).is_some());
    let signs_in = |policy: &mut Policy, client| {
        let mut head = answered(200, &[("set-cookie", SESSION)]);
        let request = asked("POST", "/in", &[]);
        policy.observe(&request, true, Client(client), &mut head, at(LATER + 1));
        head.headers.contains_key("clear-site-data")
    };
    assert!(signs_in(&mut policy, 1_000));
    assert!(!signs_in(&mut policy, CLIENT.0), "this client was given nothing");
}

#[test]
fn a_sign_in_over_plain_http_ends_prefetches_over_https() {
    let mut policy = policy();
    let mark = policy.mark(Visitor::Measured, "/a", CLIENT, at(LATER), wall()).unwrap();
    let request = asked("GET", "/a", &[("x-lull", &mark)]);
    let before = policy.admit(&request, true, CLIENT, at(LATER), wall()).unwrap();
    let mut signed_in = answered(200, &[("set-cookie", "session=1")]);
    let form = asked("POST", "/in", &[("cookie", "_ga=1")]);
    policy.observe(&form, false, CLIENT, &mut signed_in, at(LATER + 1));
    assert!(!signed_in.headers.contains_key("clear-site-data"), "browsers would not heed it");
    let kept = policy.keep(&before, &mut answered(200, &[]), at(LATER + 2), wall());
    assert_eq!(kept, Err(Refusal::SignedIn));
    let found = policy.admit(&request, true, CLIENT, at(LATER + 2), wall());
    assert_eq!(found, Err(Refusal::SignedIn));
    assert_eq!(policy.mark(Visitor::Measured, "/a", CLIENT, at(LATER + 2), wall()), None);
}

#[test]
fn a_copy_is_cleared_as_long_as_it_may_live() {
    for (after, cleared) in [(119, true), (120, false)] {
        let mut policy = policy();
        let kept =
            policy.keep(&admitted(Visitor::Measured), &mut answered(200, &[]), at(LATER), wall());
        assert_eq!(kept, Ok(MEASURED_TTL));
        let mut head = answered(200, &[("set-cookie", "session=1")]);
        let request = asked("POST", "/in", &[("cookie", "consent=1")]);
        policy.observe(&request, true, CLIENT, &mut head, at(LATER + after));
        assert_eq!(head.headers.contains_key("clear-site-data"), cleared, "{after}");
    }
}

#[test]
fn no_prefetch_of_before_a_sign_in_comes_after_it() {
    let mut policy = policy();
    let mark = policy.mark(Visitor::Measured, "/a", CLIENT, at(0), wall()).unwrap();
    let request = asked("GET", "/a", &[("x-lull", &mark)]);
    let before = policy.admit(&request, true, CLIENT, at(0), wall()).unwrap();
    let mut signed_in = answered(200, &[("set-cookie", "session=1")]);
    policy.observe(
        &asked("POST", "/in", &[("cookie", "_ga=1")]),
        true,
        CLIENT,
        &mut signed_in,
        at(1),
    );
    // One that is under way, and one that comes now.
    assert_eq!(
        policy.keep(&before, &mut answered(200, &[]), at(2), wall()),
        Err(Refusal::SignedIn)
    );
    for later in 2..=60 {
        let wall = wall() + Duration::from_secs(later);
        let found = policy.admit(&request, true, CLIENT, at(later), wall);
        assert_eq!(found, Err(Refusal::SignedIn));
    }
    // A mark that would be refused is not given, and not waited for.
    for (visitor, client, given) in [
        (Visitor::Measured, CLIENT, false),
        (Visitor::Cookieless, CLIENT, true),
        (Visitor::Measured, Client(8), true),
    ] {
        let mark = policy.mark(visitor, "/a", client, at(60), super::wall());
        assert_eq!(mark.is_some(), given, "{visitor:?} {client:?}");
    }
    // When the sign-in is forgotten, the hint is good no more.
    let wall = wall() + Duration::from_secs(125);
    let found = policy.admit(&request, true, CLIENT, at(125), wall);
    assert_eq!(found, Err(Refusal::NotAhead(NotAhead::OldMark)));
    // Somebody else is not concerned, but for the mark, which is this one's.
    let wall = super::wall();
    let found = policy.admit(&request, true, Client(8), at(2), wall);
    assert_eq!(found, Err(Refusal::NotAhead(NotAhead::Mark)));
    let mark = policy.mark(Visitor::Measured, "/a", Client(8), at(2), wall).unwrap();
    let request = asked("GET", "/a", &[("x-lull", &mark)]);
    assert!(policy.admit(&request, true, Client(8), at(2), wall).is_ok());
}

const BASIC: (&str, &str) = ("authorization", "Basic eA==");

/// Whether a reply to this request clears what the client has.
fn clears(policy: &mut Policy, fields: &[(&str, &str)], secure: bool, now: u64) -> bool {
    let mut head = answered(200, &[]);
    policy.observe(&asked("GET", "/app/a", fields), secure, CLIENT, &mut head, at(now));
    head.headers.contains_key("clear-site-data")
}

#[test]
fn credentials_clear_the_copies_that_there_are_once() {
    for visitor in [Visitor::Cookieless, Visitor::Measured] {
        let mut policy = policy();
        // Nothing was fetched ahead.
        assert!(!clears(&mut policy, &[BASIC], true, LATER));
        policy.keep(&admitted(visitor), &mut answered(200, &[]), at(LATER + 400), wall()).unwrap();
        assert!(!clears(&mut policy, &[], true, LATER + 410));
        // What scripts send with requests of their own comes with no navigation.
        assert!(!clears(&mut policy, &[("authorization", "Bearer x")], true, LATER + 410));
        assert!(!clears(&mut policy, &[BASIC], false, LATER + 410));
        assert!(clears(&mut policy, &[BASIC], true, LATER + 420));
        assert!(!clears(&mut policy, &[BASIC], true, LATER + 421));
        // Somebody else behind the address, and by Digest, which says something new each time.
        for (said, expected) in [
            ("Basic eQ==", true),
            ("Digest username=\"bob\", nc=1", true),
            ("Digest username=\"bob\", nc=2", false),
        ] {
            let found = clears(&mut policy, &[("authorization", said)], true, LATER + 422);
            assert_eq!(found, expected, "{said}");
        }
    }
    let mut policy = policy();
    let kept = policy.keep(
        &admitted(Visitor::Cookieless),
        &mut answered(200, &[("cache-control", "max-age=300")]),
        at(LATER),
        wall(),
    );
    assert_eq!(kept, Ok(LONGEST_TTL));
    assert!(clears(&mut policy, &[BASIC], true, LATER + 359));
    // Copies of before the start are nobody's that is known.
    let mut fresh = super::policy();
    assert!(clears(&mut fresh, &[BASIC], true, 10) && !clears(&mut fresh, &[BASIC], true, 11));
}

#[test]
fn each_page_clears_the_copies_of_who_shares_a_password() {
    let page = ("sec-fetch-dest", "document");
    let mut policy = policy();
    let copy = &admitted(Visitor::Cookieless);
    policy.keep(copy, &mut answered(200, &[]), at(LATER), wall()).unwrap();
    // Of several browsers that say the same each has to be cleared.
    for (fields, second, expected) in [
        (&[BASIC, page][..], 10, true),
        (&[BASIC], 11, false),
        (&[BASIC, page], 12, true),
        // A prefetch is no page that somebody goes to.
        (&[BASIC, page, ("sec-purpose", "prefetch")], 13, false),
        // Each ticket is another one.
        (&[("authorization", "Negotiate YII1")], 20, true),
        (&[("authorization", "Negotiate YII2")], 21, false),
        (&[("authorization", "Negotiate YII3"), page], 22, true),
        (&[BASIC, page], 359, true),
        (&[BASIC, page], 360, false),
    ] {
        assert_eq!(clears(&mut policy, fields, true, LATER + second), expected, "{fields:?}");
    }
}

#[test]
fn no_prefetch_of_before_credentials_comes_after_them() {
    let mut policy = policy();
    let request = asked("GET", "/a", &[("x-lull", "1")]);
    let before = policy.admit(&request, true, CLIENT, at(LATER), wall()).unwrap();
    clears(&mut policy, &[BASIC], true, LATER + 1);
    let kept = policy.keep(&before, &mut answered(200, &[]), at(LATER + 2), wall());
    assert_eq!(kept, Err(Refusal::SignedIn));
    let found = policy.admit(&request, true, CLIENT, at(LATER + 2), wall());
    assert_eq!(found, Err(Refusal::SignedIn));
    assert!(policy.admit(&request, true, Client(8), at(LATER + 2), wall()).is_ok());
}

#[test]
fn a_list_of_before_credentials_is_good_for_nothing_as_long_as_it_may_be_pointed_at() {
    let mut policy = policy();
    let request = asked("GET", "/a", &[("x-lull", "1")]);
    let admits = |policy: &Policy, second: u64| {
        policy.admit(&request, true, CLIENT, at(LATER + second), wall()).is_ok()
    };
    assert!(admits(&policy, 0));
    clears(&mut policy, &[BASIC], true, LATER);
    assert!(!admits(&policy, 150) && !admits(&policy, 300) && admits(&policy, 360));
    // Who reads on is heard of by questions for hints.
    policy.sent_credentials(CLIENT, at(LATER + 300));
    assert!(!admits(&policy, 400));
}

#[test]
fn an_answer_that_takes_longer_than_sign_ins_are_remembered_gives_no_copy() {
    for (visitor, longest) in [(Visitor::Cookieless, 120), (Visitor::Measured, 60)] {
        for (seconds, is_kept) in [(longest - 1, true), (longest, false), (3_600, false)] {
            let mut policy = policy();
            let admitted = Admitted { at: at(LATER), ..admitted(visitor) };
            let kept = policy.keep(&admitted, &mut answered(200, &[]), at(LATER + seconds), wall());
            assert_eq!(kept.is_ok(), is_kept, "{visitor:?} {seconds}: {kept:?}");
        }
    }
}

#[test]
fn where_a_password_is_asked_for_nothing_is_fetched_ahead() {
    let folders = ["/app", "/my%20files", "/caf%C3%A9", "/100%25"];
    for (folder, by_prefetch) in folders.into_iter().flat_map(|one| [(one, false), (one, true)]) {
        let (inner, other) = (format!("{folder}/in"), format!("{folder}/a"));
        let mut policy = policy();
        let mut head = answered(401, &[("www-authenticate", "Basic realm=\"x\"")]);
        if by_prefetch {
            let request = asked("GET", &inner, &[("x-lull", "1")]);
            let admitted = policy.admit(&request, true, CLIENT, at(LATER), wall()).unwrap();
            assert!(policy.keep(&admitted, &mut head, at(LATER), wall()).is_err());
        } else {
            let request = asked("GET", &inner, &[]);
            policy.observe(&request, true, CLIENT, &mut head, at(LATER));
        }
        let hinted = policy.may_hint(&other, at(LATER + 1));
        assert_eq!(hinted, Err(Refusal::Protected), "{folder} {by_prefetch}");
        let request = asked("GET", &other, &[("x-lull", "1")]);
        let found = policy.admit(&request, true, CLIENT, at(LATER + 1), wall());
        assert_eq!(found, Err(Refusal::Protected));
        assert!(policy.may_hint("/b", at(LATER + 1)).is_ok());
    }
    let mut policy = policy();
    let mut head = answered(401, &[("www-authenticate", "Bearer")]);
    policy.observe(&asked("GET", "/api/x", &[]), true, CLIENT, &mut head, at(LATER));
    assert!(policy.may_hint("/api/y", at(LATER)).is_ok());
    // In the root only those are concerned whose copies cannot be cleared.
    let mut head = answered(401, &[("www-authenticate", "Digest realm=\"x\"")]);
    policy.observe(&asked("GET", "/in", &[]), true, CLIENT, &mut head, at(LATER));
    assert!(policy.is_protected_without_https(at(LATER)));
    for (secure, is_let_through) in [(true, true), (false, false)] {
        let request = asked("GET", "/a", &[("x-lull", "1")]);
        let found = policy.admit(&request, secure, CLIENT, at(LATER), wall());
        assert_eq!(found.is_ok(), is_let_through, "{secure}");
    }
}
