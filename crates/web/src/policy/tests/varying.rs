//! What a reply varies on, and whether the navigation would find its copy.

use super::*;

/// A prefetch of `/a` whose request carries this, too.
fn of_a_request(policy: &Policy, more: &[(&str, &str)]) -> Admitted {
    let fields: Vec<_> = [("x-lull", "1"), ("user-agent", "x"), ("sec-fetch-dest", "empty")]
        .into_iter()
        .chain(more.iter().copied())
        .collect();
    policy.admit(&asked("GET", "/a", &fields), true, CLIENT, at(0), wall()).unwrap()
}

#[test]
fn what_varies_on_fields_that_neither_sends_is_found() {
    for vary in [
        "RSC, Next-Router-State-Tree, Next-Router-Prefetch",
        "HX-Request",
        "X-Inertia",
        "Turbo-Frame",
        "X-Requested-With",
        "Accept-Charset",
        // What both have alike, and what somebody in front gives to both.
        "DNT, Sec-GPC, Sec-CH-UA-Model",
        "X-Forwarded-Proto",
    ] {
        let mut policy = policy();
        let admitted = of_a_request(
            &policy,
            &[("x-forwarded-proto", "https"), ("sec-gpc", "1"), ("sec-ch-ua-model", "\"x\"")],
        );
        let mut head = answered(200, &[("vary", vary)]);
        assert!(policy.keep(&admitted, &mut head, at(0), wall()).is_ok(), "{vary}");
        assert_eq!(head.headers[VARY], format!("{vary}, Cookie"));
    }
}

#[test]
fn what_varies_on_a_field_that_only_this_visitor_sends_is_not_kept_and_bars_nothing() {
    let mut policy = policy();
    let admitted = of_a_request(&policy, &[("x-inertia", "1")]);
    let mut head = answered(200, &[("vary", "Accept-Encoding, X-Inertia")]);
    let found = policy.keep(&admitted, &mut head, at(0), wall());
    assert_eq!(found, Err(Refusal::Unkept(Unkept::VariesHere("X-Inertia".into()))));
    assert!(policy.may_hint("/a", at(1)).is_ok());
    let admitted = of_a_request(&policy, &[]);
    assert!(
        policy.keep(&admitted, &mut answered(200, &[("vary", "X-Inertia")]), at(1), wall()).is_ok()
    );
}

#[test]
fn what_varies_on_cookies_is_of_no_use_to_who_has_some() {
    let mut policy = policy();
    let varies = || answered(200, &[("vary", "Accept-Encoding, Cookie")]);
    let mark = policy.mark(Visitor::Measured, "/a", CLIENT, at(0), wall()).unwrap();
    let found = policy.keep(&admitted(Visitor::Measured), &mut varies(), at(0), wall());
    assert_eq!(found, Err(Refusal::Unkept(Unkept::VariesHere("cookie".into()))));
    assert!(policy.varies_on_cookies("/a", at(86_399)));
    // Nobody of these asks for it again: neither for its mark, nor with one from before.
    assert_eq!(policy.mark(Visitor::Measured, "/a", CLIENT, at(1), wall()), None);
    let request = asked("GET", "/a", &[("x-lull", &mark)]);
    let found = policy.admit(&request, true, CLIENT, at(1), wall());
    assert_eq!(found, Err(Refusal::Barred(Offence::VariesOnCookies)));
    // To who has none it is exactly right.
    assert!(policy.may_hint("/a", at(1)).is_ok());
    assert!(policy.mark(Visitor::Cookieless, "/a", CLIENT, at(1), wall()).is_some());
    let admitted = of_a_request(&policy, &[]);
    assert!(policy.keep(&admitted, &mut varies(), at(1), wall()).is_ok());

    assert!(policy.mark(Visitor::Measured, "/b", CLIENT, at(1), wall()).is_some());
    assert!(!policy.varies_on_cookies("/a", at(86_401)));
}

#[test]
fn that_a_page_varies_on_cookies_is_seen_by_who_has_none() {
    for (url, below) in [("/a", "/a"), ("/", "")] {
        let mut policy = policy();
        let target = Target::parse(url).unwrap();
        let admitted = Admitted { target, ..admitted(Visitor::Cookieless) };
        let mut head = answered(200, &[("vary", "cookie")]);
        assert!(policy.keep(&admitted, &mut head, at(0), wall()).is_ok());
        assert!(policy.varies_on_cookies(url, at(1)));
        assert_eq!(policy.mark(Visitor::Measured, below, CLIENT, at(1), wall()), None, "{url}");
    }
}
