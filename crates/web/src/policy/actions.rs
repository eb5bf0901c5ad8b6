//! URLs whose names suggest an action.
//!
//! `GET` should be safe, and on many sites it is not. A word counts anywhere in path or query, as a whole
//! word: `/users/7/delete-photo`, `/doLogout`, `?action=log_out`. So an article about how to delete files is
//! never prefetched either; that costs one prefetch, and the owner may allow it by a pattern.
//!
//! The words are those of English ([`self`]) and of other large languages ([`super::action_words`]). No list
//! is complete: [`super::side_effects`] learns further URLs from the site's behaviour.

use super::action_words;

/// Words that mark a URL as an action.
const ANYWHERE: &[&str] = &[
    // Identity.
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
    // Contents.
    "delete",
    "remove",
    "destroy",
    "erase",
    "purge",
    "revoke",
    "deactivate",
    "undo", //
    // Subscriptions and votes.
    "unsubscribe",
    "optout",
    "optin",
    "unfollow",
    "upvote",
    "downvote", //
    // Purchases.
    "checkout",
    "addtocart",
    "purchase",
    "basket",
    "cart",
    "payment", //
    // Administration.
    "wpadmin",
    "phpmyadmin",
    "webhook",
    "webhooks",
    "cron",
    "cgi",
    "xmlrpc",
    "graphql",
];

/// Words with this effect as a whole segment of the path, without its ending: `/admin/`, `/profile.php`; or
/// as the value of a parameter.
const WHOLE: &[&str] = &[
    "admin",
    "administrator",
    "account",
    "archive-all",
    "click",
    "count",
    "counter",
    "hit",
    "pixel",
    "poweroff",
    "profile",
    "settings",
    "shutdown",
    "token",
    "track",
];

/// Verbs with this effect as a whole segment, or at its beginning: `/orders/7/cancel`, `/vote-up`,
/// `/addItem`, `?do=cancel`; but not `/how-to-cancel-a-flight`.
const VERBS: &[&str] = &[
    "accept",
    "activate",
    "add",
    "approve",
    "ban",
    "block",
    "bookmark",
    "buy",
    "cancel",
    "clear",
    "close",
    "confirm",
    "create",
    "decline",
    "decrement",
    "deny",
    "disable",
    "dislike",
    "download",
    "edit",
    "enable",
    "execute",
    "export",
    "favorite",
    "favourite",
    "flag",
    "follow",
    "hide",
    "import",
    "increment",
    "install",
    "invite",
    "join",
    "kill",
    "leave",
    "like",
    "lock",
    "mute",
    "order",
    "pay",
    "pin",
    "poweroff",
    "publish",
    "rate",
    "reboot",
    "refresh",
    "register",
    "reject",
    "rename",
    "reopen",
    "reorder",
    "resend",
    "reset",
    "restart",
    "restore",
    "retry",
    "save",
    "send",
    "share",
    "shutdown",
    "stop",
    "submit",
    "subscribe",
    "switch",
    "toggle",
    "trigger",
    "unblock",
    "unbookmark",
    "unhide",
    "uninstall",
    "unlike",
    "unlock",
    "unmute",
    "unpin",
    "unpublish",
    "unshare",
    "unstar",
    "update",
    "upgrade",
    "upload",
    "upvote",
    "verify",
    "vote",
];

/// Sequences of words with this effect.
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

/// The part of a decoded path or its query that looks like an action.
pub(super) fn action(path: &str, query: Option<&str>) -> Option<String> {
    if query.is_none() && is_static_file(path) {
        return None;
    }
    let words: Vec<String> = words(path).chain(words(query.unwrap_or(""))).collect();
    for word in &words {
        if ANYWHERE.contains(&word.as_str()) || action_words::is_action(word) {
            return Some(word.clone());
        }
    }
    for row in IN_A_ROW.iter().chain(action_words::IN_A_ROW) {
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
        let mut of_part = self::words(part);
        let first = of_part.next().filter(|_| part.starts_with(char::is_alphabetic))?;
        let last = of_part.last();
        if VERBS.contains(&first.as_str()) {
            return Some(first);
        }
        // In many languages the verb comes last: `/artikel-kaufen/5`.
        let is_verb = |word: &String| action_words::VERBS.contains(&word.as_str());
        Some(first).filter(is_verb).or(last.filter(is_verb))
    })
}

/// Endings of files that no server runs: pictures, fonts, style sheets, sound and film.
const STATIC: &[&str] = &[
    "avif", "bmp", "css", "flac", "gif", "ico", "jpeg", "jpg", "m4a", "mp3", "mp4", "ogg", "otf",
    "png", "svg", "ttf", "webm", "webp", "woff", "woff2",
];
/// Words in the names of tracking pixels.
const COUNTED: &[&str] =
    &["beacon", "cgi", "count", "counter", "hit", "hits", "pixel", "stats", "track", "tracker"];

/// Whether a path is a file such as `/images/cart.png`, whose name describes its contents. Images that count
/// visitors are not included.
pub(crate) fn is_static_file(path: &str) -> bool {
    let Some((_, ending)) = path.rsplit('/').next().and_then(|name| name.rsplit_once('.')) else {
        return false;
    };
    let is_static = STATIC.iter().any(|one| ending.eq_ignore_ascii_case(one));
    is_static && !words(path).any(|word| COUNTED.contains(&word.as_str()))
}

/// The words of a text, in lower case: runs of letters, also separated where a lowercase letter meets an
/// uppercase one, as in `logOut`.
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
    fn action_urls_are_recognized_by_their_words() {
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
            ("/accept/5", None, Some("accept")),
            ("/shutdown", None, Some("shutdown")),
            ("/counter/home", None, Some("counter")),
            ("/hit/5", None, Some("hit")),
            // Pictures, fonts and the like do nothing, except for those that count.
            ("/images/cart.png", None, None),
            ("/icons/logout.SVG", None, None),
            ("/css/login.css", None, None),
            ("/img/cart.png", Some("delete=1"), Some("cart")),
            ("/cart/add.js", None, Some("cart")),
            ("/cart.png/delete", None, Some("cart")),
            ("/pixel.gif", None, Some("pixel")),
            ("/cgi-bin/count.gif", None, Some("cgi")),
            // Words that only contain one, and phrases.
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
    fn actions_in_other_languages_are_recognized() {
        for (path, expected) in [
            ("/abmelden", Some("abmelden")),
            ("/konto/abmelden.html", Some("abmelden")),
            ("/benutzer-abmelden", Some("abmelden")),
            ("/warenkorb", Some("warenkorb")),
            ("/artikel-kaufen/5", Some("kaufen")),
            ("/abstimmen/5", Some("abstimmen")),
            ("/beitrag/7/löschen", Some("löschen")),
            ("/beitrag/7/loeschen", Some("loeschen")),
            ("/deconnexion", Some("deconnexion")),
            ("/déconnexion", Some("déconnexion")),
            ("/se-deconnecter", Some("deconnecter")),
            ("/panier/ajouter/5", Some("panier")),
            ("/produit/5/ajouter", Some("ajouter")),
            ("/cerrar-sesion", Some("cerrar sesion")),
            ("/carrito", Some("carrito")),
            ("/votar/5", Some("votar")),
            ("/esci", Some("esci")),
            ("/carrello/aggiungi/5", Some("carrello")),
            ("/sair", Some("sair")),
            ("/carrinho", Some("carrinho")),
            ("/uitloggen", Some("uitloggen")),
            ("/winkelwagen", Some("winkelwagen")),
            ("/wyloguj", Some("wyloguj")),
            ("/koszyk", Some("koszyk")),
            ("/logga-ut", Some("logga ut")),
            ("/log-ud", Some("log ud")),
            ("/kirjaudu-ulos", Some("kirjaudu")),
            ("/cikis", Some("cikis")),
            ("/sepet", Some("sepet")),
            ("/vyhod", Some("vyhod")),
            ("/выйти", Some("выйти")),
            ("/退出登录", Some("退出登录")),
            ("/ログアウト", Some("ログアウト")),
            ("/dang-xuat", Some("dang xuat")),
            ("/zaehler.php", Some("zaehler")),
            ("/compteur/5", Some("compteur")),
            // Phrases, and names.
            ("/so-kaufen-wir-ein", None),
            ("/artikel/der-kaufmann", None),
            ("/actualites/le-votant", None),
            ("/start", None),
            ("/blog/abstimmung-2026", None),
        ] {
            assert_eq!(action(path, None).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn capital_begins_a_new_word() {
        let found: Vec<_> = words("/logOut2me/HTMLPage-x_ÄpfelBirne").collect();
        assert_eq!(found, ["log", "out", "me", "htmlpage", "x", "äpfel", "birne"]);
    }
}
