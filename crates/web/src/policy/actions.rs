//! URLs that look as if fetching them did something.
//!
//! `GET` should be safe, and on many sites it is not. A word counts wherever it stands in path or
//! query, as a word: `/users/7/delete-photo`, `/doLogout`, `?action=log_out`. So an article about
//! how to delete files is never fetched ahead either; that costs one prefetch, and the owner may
//! allow it by a pattern.

/// Words that make a URL one that does something.
const ANYWHERE: &[&str] = &[
    // Who somebody is.
    "logout",
    "logoff",
    "signout",
    "signoff",
    "login",
    "logon",
    "signin",
    "signup",
    "oauth",
    "oauth2",
    "sso",
    "saml",
    "impersonate", //
    // What is there.
    "delete",
    "remove",
    "destroy",
    "erase",
    "purge",
    "revoke",
    "deactivate",
    "undo", //
    // What somebody wants.
    "unsubscribe",
    "optout",
    "optin",
    "unfollow",
    "upvote",
    "downvote", //
    // What somebody buys.
    "checkout",
    "addtocart",
    "purchase",
    "basket",
    "cart",
    "payment", //
    // What runs a site.
    "wpadmin",
    "phpmyadmin",
    "webhook",
    "webhooks",
    "cron",
    "cgi",
    "xmlrpc",
    "graphql",
];

/// Words that do so as a whole segment of the path, without its ending: `/admin/`, `/profile.php`; or
/// as the value of a parameter.
const WHOLE: &[&str] =
    &["admin", "administrator", "account", "archive-all", "profile", "settings", "token"];

/// Verbs that do so as a whole segment, or where it begins with them: `/orders/7/cancel`, `/vote-up`,
/// `/addItem`, `?do=cancel`; but not `/how-to-cancel-a-flight`.
const VERBS: &[&str] = &[
    "add",
    "approve",
    "ban",
    "block",
    "buy",
    "cancel",
    "clear",
    "close",
    "confirm",
    "create",
    "disable",
    "download",
    "edit",
    "enable",
    "export",
    "flag",
    "follow",
    "import",
    "install",
    "invite",
    "join",
    "kill",
    "leave",
    "like",
    "mute",
    "order",
    "pay",
    "pin",
    "publish",
    "refresh",
    "register",
    "reject",
    "rename",
    "reset",
    "restart",
    "restore",
    "save",
    "send",
    "share",
    "stop",
    "submit",
    "subscribe",
    "switch",
    "toggle",
    "unblock",
    "uninstall",
    "unlike",
    "update",
    "upload",
    "upgrade",
    "verify",
    "vote",
];

/// Words that do so one after the other.
const IN_A_ROW: &[&[&str]] = &[
    &["log", "out"],
    &["log", "off"],
    &["log", "in"],
    &["log", "on"],
    &["sign", "out"],
    &["sign", "off"],
    &["sign", "in"],
    &["sign", "up"],
    &["sign", "on"],
    &["opt", "out"],
    &["opt", "in"],
    &["check", "out"],
    &["un", "subscribe"],
    &["add", "to"],
    &["mark", "as"],
    &["mark", "all"],
    &["wp", "admin"],
    &["wp", "cron"],
    &["wp", "json"],
    &["empty", "trash"],
    &["one", "click"],
    &["my", "account"],
    &["set", "language"],
    &["set", "currency"],
    &["report", "abuse"],
    &["report", "spam"],
];

/// What in a decoded path, and in its query, looks like an action.
pub(super) fn action(path: &str, query: Option<&str>) -> Option<String> {
    let words: Vec<String> = words(path).chain(words(query.unwrap_or(""))).collect();
    for word in &words {
        if ANYWHERE.contains(&word.as_str()) {
            return Some(word.clone());
        }
    }
    for row in IN_A_ROW {
        if words.windows(row.len()).any(|window| window == *row) {
            return Some(row.join(" "));
        }
    }
    let segments = path.split('/').map(|segment| segment.split('.').next().unwrap_or(""));
    let values = query.unwrap_or("").split('&').flat_map(|pair| pair.split('='));
    segments.chain(values).find_map(|part| {
        let whole = part.to_lowercase();
        if WHOLE.contains(&whole.as_str()) {
            return Some(whole);
        }
        let first = self::words(part).next().filter(|_| part.starts_with(char::is_alphabetic))?;
        VERBS.contains(&first.as_str()).then_some(first)
    })
}

/// The words of a text, in lower case: runs of letters, parted also where a small letter meets a
/// capital one, as in `logOut`.
fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    let mut rest = text;
    core::iter::from_fn(move || {
        let start = rest.find(char::is_alphabetic)?;
        rest = &rest[start..];
        let mut before_small = false;
        let end = rest
            .char_indices()
            .find(|&(_, c)| {
                let ends = !c.is_alphabetic() || before_small && c.is_uppercase();
                before_small = c.is_lowercase();
                ends
            })
            .map_or(rest.len(), |(at, _)| at);
        let word = rest[..end].to_lowercase();
        rest = &rest[end..];
        Some(word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_that_look_like_actions_are_known_by_their_words() {
        for (path, query, expected) in [
            ("/logout", None, Some("logout")),
            ("/LOGOUT", None, Some("logout")),
            ("/log-out", None, Some("log out")),
            ("/users/log_out.php", None, Some("log out")),
            ("/doLogOut", None, Some("log out")),
            ("/doLogout", None, Some("logout")),
            ("/logout2", None, Some("logout")),
            ("/sign/out", None, Some("sign out")),
            ("/accounts/signin", None, Some("signin")),
            ("/posts/7/delete", None, Some("delete")),
            ("/delete-photo/7", None, Some("delete")),
            ("/deletePhoto", None, Some("delete")),
            ("/newsletter/unsubscribe/abc", None, Some("unsubscribe")),
            ("/add-to-cart/12", None, Some("cart")),
            ("/add_to_wishlist", None, Some("add to")),
            ("/cart", None, Some("cart")),
            ("/wp-admin/post.php", None, Some("wp admin")),
            ("/wp-login.php", None, Some("login")),
            ("/cgi-bin/count", None, Some("cgi")),
            ("/orders/7/cancel", None, Some("cancel")),
            ("/admin/", None, Some("admin")),
            ("/edit.php", None, Some("edit")),
            ("/page", Some("action=logout"), Some("logout")),
            ("/page", Some("do=cancel"), Some("cancel")),
            ("/page", Some("delete=7"), Some("delete")),
            ("/poll/7/vote-up", None, Some("vote")),
            ("/vote_yes/3", None, Some("vote")),
            ("/buy-now/12", None, Some("buy")),
            ("/addItem/3", None, Some("add")),
            ("/AddItem/3", None, Some("add")),
            ("/subscribe-now.php", None, Some("subscribe")),
            ("/confirm-email/x", None, Some("confirm")),
            ("/follow-user/9", None, Some("follow")),
            ("/report-abuse/5", None, Some("report abuse")),
            ("/page", Some("do=vote_up"), Some("vote")),
            ("/profile.php", None, Some("profile")),
            // Words that only contain one, and what is said in passing.
            ("/blog/blogout-day", None, None),
            ("/undeletedable", None, None),
            ("/how-to-cancel-a-flight", None, None),
            ("/cartoons/1", None, None),
            ("/cancellation-policy", None, None),
            ("/news/administration", None, None),
            ("/likely", None, None),
            ("/how-to-vote", None, None),
            ("/buyers-guide", None, None),
            ("/addresses/1", None, None),
            ("/profile-of-a-painter", None, None),
            ("/7-orders", None, None),
            ("/catalog/outdoor", None, None),
            ("/", None, None),
            ("/lessons/02-filedir/index.html", None, None),
        ] {
            assert_eq!(action(path, query).as_deref(), expected, "{path} {query:?}");
        }
    }

    #[test]
    fn words_end_where_a_capital_begins() {
        let found: Vec<_> = words("/logOut2me/HTMLPage-x_ÄpfelBirne").collect();
        assert_eq!(found, ["log", "out", "me", "htmlpage", "x", "äpfel", "birne"]);
    }
}
