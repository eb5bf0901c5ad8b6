//! The cookie that keeps copies from users who sign in by HTTP authentication (RFC 9110 §11).
//!
//! A browser sends `Authorization` by itself once its user has entered a password, and its cache ignores that
//! field. So the first reply to credentials sets a session cookie, which the browser has for as long as it
//! remembers the password. Copies vary on cookies: with this one no copy from before is shown without a
//! request, and that request carries the credentials. The origin never sees it.

use http::HeaderMap;
use http::header::{COOKIE, HeaderValue, SET_COOKIE};

/// Its name.
pub(super) const NAME: &str = "lull_auth";

/// Removes the cookie from a request. Returns whether it was there.
pub fn take_auth_cookie(headers: &mut HeaderMap) -> bool {
    let is_ours = |cookie: &&[u8]| {
        cookie
            .split(|byte| *byte == b'=')
            .next()
            .is_some_and(|name| name.trim_ascii() == NAME.as_bytes())
    };
    let has =
        |line: &HeaderValue| line.as_bytes().split(|byte| *byte == b';').any(|one| is_ours(&one));
    if !headers.get_all(COOKIE).iter().any(has) {
        return false;
    }
    let lines: Vec<_> = headers.get_all(COOKIE).iter().cloned().collect();
    headers.remove(COOKIE);
    for line in lines {
        let others = line.as_bytes().split(|byte| *byte == b';').filter(|one| !is_ours(one));
        let others: Vec<_> = others.map(<[u8]>::trim_ascii).filter(|one| !one.is_empty()).collect();
        if let Ok(left) = HeaderValue::from_bytes(&others.join(&b"; "[..]))
            && !left.is_empty()
        {
            headers.append(COOKIE, left);
        }
    }
    true
}

/// Sets the cookie in a reply, which uses HTTPS if `secure`.
pub(super) fn set(headers: &mut HeaderMap, secure: bool) {
    let value = if secure {
        "lull_auth=1; Path=/; HttpOnly; SameSite=Lax; Secure"
    } else {
        "lull_auth=1; Path=/; HttpOnly; SameSite=Lax"
    };
    headers.append(SET_COOKIE, HeaderValue::from_static(value));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origin_never_sees_the_cookie() {
        for (lines, expected, found) in [
            (&["lull_auth=1"][..], &[][..], true),
            (&["a=1; lull_auth=1; b=\"2; 3\""], &["a=1; b=\"2; 3\""], true),
            (&["a=1", "lull_auth=1"], &["a=1"], true),
            (&["a=1;b=2", " lull_auth ; c"], &["a=1; b=2", "c"], true),
            (&["a=lull_auth"], &["a=lull_auth"], false),
            (&["lull_auth2=1;a=1"], &["lull_auth2=1;a=1"], false),
            (&[], &[], false),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(COOKIE, HeaderValue::from_static(line));
            }
            assert_eq!(take_auth_cookie(&mut headers), found, "{lines:?}");
            let left: Vec<_> =
                headers.get_all(COOKIE).iter().map(|one| one.to_str().unwrap()).collect();
            assert_eq!(left, expected);
        }
    }
}
