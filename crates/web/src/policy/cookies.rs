//! Cookies that do not identify a user.

use http::HeaderMap;
use http::header::COOKIE;

use super::auth_cookie;
use super::learned_cookies::LearnedCookies;

/// The rest of a measuring script's cookie name. It allows only what that script appends: an application has
/// its own names, and `_gateway_session` begins like Google's.
#[derive(Clone, Copy, Debug)]
enum Rest {
    Nothing,
    /// A tracker's name that an operator has chosen.
    Any,
    /// The number of a property: capital letters, digits, and hyphens between them.
    Property,
    /// Lowercase letters, of this number.
    Letters(usize),
    /// Digits.
    Number,
    /// A word that begins with a capital letter.
    Word,
}

/// Cookies set by analytics and advertising scripts, consent tools and load balancers, and used by no server
/// for its pages: scripts in the page read them, or the load balancer does.
const HARMLESS: &[(&str, Rest)] = &[
    ("_ga", Rest::Nothing), // Google
    ("_ga_", Rest::Property),
    ("_gid", Rest::Nothing),
    ("_gat", Rest::Nothing),
    ("_gat_", Rest::Any),
    ("_gac_", Rest::Property),
    ("_gac_gb_", Rest::Property),
    ("_gcl_", Rest::Letters(2)),
    ("__utm", Rest::Letters(1)),
    ("__utmt_", Rest::Any),
    ("__utmli", Rest::Nothing),
    ("__utmxx", Rest::Nothing),
    ("_pk_id", Rest::Nothing), // Matomo
    ("_pk_id.", Rest::Any),
    ("_pk_ses", Rest::Nothing),
    ("_pk_ses.", Rest::Any),
    ("_pk_ref", Rest::Nothing),
    ("_pk_ref.", Rest::Any),
    ("mtm_consent", Rest::Nothing),
    ("mtm_consent_removed", Rest::Nothing),
    ("_fbp", Rest::Nothing), // Meta
    ("_fbc", Rest::Nothing),
    ("_clck", Rest::Nothing), // Clarity
    ("_clsk", Rest::Nothing),
    ("_hj", Rest::Word), // Hotjar
    ("_hjid", Rest::Nothing),
    ("_uetsid", Rest::Nothing), // Bing
    ("_uetvid", Rest::Nothing),
    ("_ym_uid", Rest::Nothing), // Metrica
    ("_ym_d", Rest::Nothing),
    ("_ym_isad", Rest::Nothing),
    ("_ym_visorc", Rest::Nothing),
    ("_ym_visorc_", Rest::Number),
    ("ajs_anonymous_id", Rest::Nothing), // Segment
    ("_ttp", Rest::Nothing),             // TikTok
    ("_tt_enable_cookie", Rest::Nothing),
    ("ttcsid", Rest::Nothing),
    ("ttcsid_", Rest::Property),
    ("__hstc", Rest::Nothing), // HubSpot
    ("__hssc", Rest::Nothing),
    ("__hssrc", Rest::Nothing),
    ("hubspotutk", Rest::Nothing),
    ("__qca", Rest::Nothing),  // Quantcast
    ("__gads", Rest::Nothing), // Google Ad Manager
    ("__gpi", Rest::Nothing),
    ("__eoi", Rest::Nothing),
    ("cto_bundle", Rest::Nothing), // Criteo
    ("_scid", Rest::Nothing),      // Snap
    ("_scid_r", Rest::Nothing),
    ("_rdt_uuid", Rest::Nothing),   // Reddit
    ("_pin_unauth", Rest::Nothing), // Pinterest
    ("li_fat_id", Rest::Nothing),   // LinkedIn
    ("_vwo_uuid", Rest::Nothing),   // VWO
    ("_vwo_uuid_v2", Rest::Nothing),
    ("Hm_lvt_", Rest::Any), // Baidu
    ("Hm_lpvt_", Rest::Any),
    ("OptanonConsent", Rest::Nothing), // OneTrust
    ("OptanonAlertBoxClosed", Rest::Nothing),
    ("CookieConsent", Rest::Nothing),     // Cookiebot
    ("cookieyes-consent", Rest::Nothing), // CookieYes
    ("cmplz_", Rest::Any),                // Complianz
    ("euconsent-v2", Rest::Nothing),      // IAB TCF
    ("addtl_consent", Rest::Nothing),
    ("borlabs-cookie", Rest::Nothing),
    ("klaro", Rest::Nothing),
    ("AWSALB", Rest::Nothing), // load balancers and their like
    ("AWSALBCORS", Rest::Nothing),
    ("AWSALBTG", Rest::Nothing),
    ("AWSALBTGCORS", Rest::Nothing),
    ("ARRAffinity", Rest::Nothing),
    ("ARRAffinitySameSite", Rest::Nothing),
    ("__cf_bm", Rest::Nothing),
    ("_cfuvid", Rest::Nothing),
];

/// Endings of frameworks' session cookies, after any beginning.
const OF_SESSIONS: &[&str] = &["_session", "_key", "_sid", "_token"];

impl Rest {
    fn is(self, rest: &str) -> bool {
        let all = |is: fn(&u8) -> bool| !rest.is_empty() && rest.as_bytes().iter().all(is);
        match self {
            Rest::Nothing => rest.is_empty(),
            Rest::Any => !rest.is_empty(),
            Rest::Property => {
                all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'-')
            }
            Rest::Letters(count) => rest.len() == count && all(u8::is_ascii_lowercase),
            Rest::Number => all(u8::is_ascii_digit),
            Rest::Word => rest.starts_with(|first: char| first.is_ascii_uppercase()),
        }
    }
}

/// Whether a cookie belongs to a common analytics script.
fn is_measuring(name: &str) -> bool {
    let is_of_a_session = |end: &&str| {
        let start = name.len().checked_sub(end.len());
        let found = start.and_then(|start| name.get(start..));
        found.is_some_and(|found| found.eq_ignore_ascii_case(end))
    };
    let is_listed = |(beginning, rest): &(&str, Rest)| {
        name.strip_prefix(beginning).is_some_and(|found| rest.is(found))
    };
    HARMLESS.iter().any(is_listed) && !OF_SESSIONS.iter().any(is_of_a_session)
}

/// The cookies that do not identify a user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Harmless {
    /// Without the usual ones.
    only_own: bool,
    own: Vec<String>,
    learned: LearnedCookies,
}

impl Harmless {
    /// Cookies by their names, added to the usual ones; an empty name removes the usual ones. A name with a
    /// final `*` stands for all names with that prefix. Case matters, as in browsers. `*` alone is ignored:
    /// it would make every user anonymous.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut of = Harmless::default();
        for name in names {
            match name {
                "" => of.only_own = true,
                "*" => {}
                name => of.own.push(name.to_owned()),
            }
        }
        of
    }

    /// No cookie at all.
    pub fn none() -> Self {
        Harmless { only_own: true, ..Harmless::default() }
    }

    /// The values of cookies that are learned to be harmless, to be filled by [`super::CookieEvidence`].
    /// `None` if the usual cookies do not count either: then only the owner decides.
    pub fn learned(&self) -> Option<LearnedCookies> {
        (!self.only_own).then(|| self.learned.clone())
    }

    /// Whether the cookie `name` is on the list.
    pub fn has(&self, name: &str) -> bool {
        // It shows that its user has entered a password.
        if name == auth_cookie::NAME {
            return false;
        }
        if !self.only_own && is_measuring(name) {
            return true;
        }
        self.own.iter().any(|listed| match listed.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == listed,
        })
    }
}

/// Stands for cookies that are not text. No text of a header contains it, and nothing without a name is
/// harmless.
const NO_TEXT: &str = "\u{fffd}";

/// The cookies of a request, with their values. One without a name is sent as its bare value.
fn cookies(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    let lines = headers.get_all(COOKIE).iter().map(|line| line.to_str().unwrap_or(NO_TEXT));
    let all = lines.flat_map(|line| line.split(';')).map(str::trim);
    all.filter(|cookie| !cookie.is_empty()).map(|cookie| match cookie.split_once('=') {
        Some((name, value)) => (name.trim_end(), value.trim_start()),
        None => ("", cookie),
    })
}

/// The cookies of a request that are not on the list, with their values, whether or not these were learned to
/// be harmless.
pub fn unlisted_cookies<'a>(
    headers: &'a HeaderMap,
    harmless: &Harmless,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    cookies(headers).filter(|(name, _)| !harmless.has(name))
}

/// The names of the cookies of a request by which its user may be signed in.
pub fn blocking_cookies<'a>(
    headers: &'a HeaderMap,
    harmless: &Harmless,
) -> impl Iterator<Item = &'a str> {
    let blocks = |(name, value): &(&str, &str)| !harmless.learned.has(name, value);
    let names = unlisted_cookies(headers, harmless).filter(blocks).map(|(name, _)| name);
    names.filter(|name| !name.is_empty())
}

/// The conclusion from the cookies of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// The request has no cookies.
    None,
    /// All are on the list.
    Harmless,
    /// All are on the list, or have values that were learned to be harmless.
    Learned,
    /// There are others, or a value that is not text.
    Others,
}

pub(super) fn sent(headers: &HeaderMap, harmless: &Harmless) -> Sent {
    let mut sent = Sent::None;
    for (name, value) in cookies(headers) {
        if harmless.has(name) {
            sent = if sent == Sent::Learned { sent } else { Sent::Harmless };
        } else if harmless.learned.has(name, value) {
            sent = Sent::Learned;
        } else {
            return Sent::Others;
        }
    }
    sent
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn sent_with(lines: &[&[u8]]) -> Sent {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(COOKIE, HeaderValue::from_bytes(line).unwrap());
        }
        sent(&headers, &Harmless::default())
    }

    #[test]
    fn only_listed_cookies_keep_a_user_anonymous() {
        for (lines, expected) in [
            (&[][..], Sent::None),
            (&[&b""[..]], Sent::None),
            (&[b" ; "], Sent::None),
            (&[b"_ga=GA1.1.2"], Sent::Harmless),
            (&[b"_ga=1; _ga_X1=2; _gid=3"], Sent::Harmless),
            (&[b"_ga=1", b"_pk_id.1.a2=3"], Sent::Harmless),
            (&[b"session=1"], Sent::Others),
            (&[b"_ga=1; session=1"], Sent::Others),
            (&[b"_ga=1", b"session=1"], Sent::Others),
            // Names that only resemble those on the list.
            (&[b"_GA=1"], Sent::Others),
            (&[b"x_ga=1"], Sent::Others),
            (&[b"_gax=1"], Sent::Others),
            (&[b"__Host-_ga=1"], Sent::Others),
            // Names that frameworks derive from an application's, with the prefixes of names on the list.
            (&[b"_gateway_session=1"], Sent::Others),
            (&[b"_gather_key=1"], Sent::Others),
            (&[b"_hjelp_session=1"], Sent::Others),
            (&[b"_ga_app_session=1"], Sent::Others),
            (&[b"_ga=1; _ym_shop_session=1"], Sent::Others),
            (&[b"theme=\xff"], Sent::Others),
            // Without a name, without a value, or not text.
            (&[b"_ga"], Sent::Others),
            (&[b"=_ga"], Sent::Others),
            (&[b"_ga=\xff"], Sent::Others),
        ] {
            assert_eq!(sent_with(lines), expected, "{lines:?}");
        }
    }

    #[test]
    fn default_list_has_exact_names_of_measuring_scripts() {
        let usual = Harmless::default();
        for name in [
            "_ga",
            "_ga_1A2B3C4D5E",
            "_gid",
            "_gat",
            "_gat_gtag_UA_123_1",
            "_gac_UA-123456-1",
            "_gac_gb_1A2B3C",
            "_gcl_au",
            "__utma",
            "__utmt_shop",
            "__utmli",
            "_pk_id",
            "_pk_id.1.1fff",
            "_pk_ses.1.1fff",
            "_pk_ref.1.1fff",
            "mtm_consent",
            "mtm_consent_removed",
            "_hjid",
            "_hjSessionUser_123",
            "_hjSession_123",
            "_ym_uid",
            "_ym_visorc_123",
            "OptanonConsent",
            "CookieConsent",
            "cookieyes-consent",
            "cmplz_statistics",
            "euconsent-v2",
            "__cf_bm",
            "AWSALB",
            "hubspotutk",
            "_ttp",
        ] {
            assert!(usual.has(name), "{name}");
        }
        for name in [
            "_ga_portal",
            "_ga_portal_session",
            "_ga_",
            "_gateway_session",
            "_gac_app",
            "_gcl_app",
            "_gcl_session",
            "__utmost",
            "_pk_identity",
            "_pk_session",
            "AWSALBx",
            "cookieconsent",
            "cmplz_my_session",
            "lang",
            "theme",
            "mtm_consent_token",
            "_hjemmeside_session",
            "_hj",
            "_ym_app",
            "_ym_visorc_app",
            // By their form they would be.
            "_gat_session",
            "_gat_app_key",
            "_ga_SESSION",
            "_gat_SESSION",
            "_gat_app_sid",
            "_hjApp_session",
            "_pk_id.app_token",
            "",
        ] {
            assert!(!usual.has(name), "{name}");
        }
        assert!(!Harmless::new(["lull*", "lull_auth"]).has("lull_auth"));
        // An owner may know more.
        assert!(Harmless::new(["_gat*"]).has("_gateway_session"));
    }

    #[test]
    fn cookies_of_the_owner_extend_the_default_list() {
        let added = Harmless::new(["theme", "ab_*", "*"]);
        for (name, expected) in
            [("theme", true), ("ab_1", true), ("_ga", true), ("session", false), ("", false)]
        {
            assert_eq!(added.has(name), expected, "{name}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, HeaderValue::from_static("_ga=1; theme=2; sid=3; lang=de; x"));
        assert_eq!(blocking_cookies(&headers, &added).collect::<Vec<_>>(), ["sid", "lang"]);
    }

    #[test]
    fn empty_name_removes_the_default_list() {
        let own = Harmless::new(["theme", "ab_*", "*", ""]);
        for (name, expected) in
            [("theme", true), ("ab_1", true), ("ab_", true), ("_ga", false), ("", false)]
        {
            assert_eq!(own.has(name), expected, "{name}");
        }
        assert!(!Harmless::none().has("_ga"));
    }
}
