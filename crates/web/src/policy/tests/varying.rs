//! The fields that a reply varies on, and whether the navigation would find its copy.

use super::*;

/// A prefetch of `/a` whose request has these fields, too.
fn of_a_request(policy: &Policy, more: &[(&str, &str)]) -> Admitted {
    let fields: Vec<_> = [("x-lull", "1"), ("user-agent", "x"), ("sec-fetch-dest", "empty")]
        .into_iter()
        .chain(more.iter().copied())
        .collect();
    policy.admit(&asked("GET", "/a", &fields), CLIENT, at(0)).unwrap()
}

#[test]
fn vary_on_fields_that_neither_request_sends_is_accepted() {
    for vary in [
        "RSC, Next-Router-State-Tree, Next-Router-Prefetch",
        "HX-Request",
        "X-Inertia",
        "Turbo-Frame",
        "X-Requested-With",
        "Accept-Charset",
        // Fields that are equal in both, and those that a proxy in front adds to both.
        "DNT, Sec-GPC, Sec-CH-UA-Model",
        "X-Forwarded-Proto",
    ] {
        let mut policy = policy();
        let admitted = of_a_request(
            &policy,
            &[("x-forwarded-proto", "https"), ("sec-gpc", "1"), ("sec-ch-ua-model", "\"x\"")],
        );
        let mut head = answered(200, &[("vary", vary)]);
        assert!(policy.admit_reply(&admitted, &mut head, at(0), wall()).is_ok(), "{vary}");
        assert_eq!(head.headers[VARY], format!("{vary}, Cookie"));
    }
}

#[test]
fn vary_on_a_field_of_this_visitor_bars_no_url() {
    let mut policy = policy();
    let admitted = of_a_request(&policy, &[("x-inertia", "1")]);
    let mut head = answered(200, &[("vary", "Accept-Encoding, X-Inertia")]);
    let found = policy.admit_reply(&admitted, &mut head, at(0), wall());
    assert_eq!(found, Err(Refusal::NotCacheable(NotCacheable::VariesHere("X-Inertia".into()))));
    assert!(policy.may_hint("/a", at(1)).is_ok());
    let admitted = of_a_request(&policy, &[]);
    assert!(
        policy
            .admit_reply(&admitted, &mut answered(200, &[("vary", "X-Inertia")]), at(1), wall())
            .is_ok()
    );
}

#[test]
fn page_that_varies_on_cookies_is_kept() {
    for vary in ["Cookie", "Accept-Encoding, cookie"] {
        let mut policy = policy();
        let mut head = answered(200, &[("vary", vary)]);
        assert!(policy.admit_reply(&admitted(), &mut head, at(0), wall()).is_ok());
        assert_eq!(head.headers[VARY], vary);
        assert!(policy.may_hint("/a", at(1)).is_ok());
    }
}
