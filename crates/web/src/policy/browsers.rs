//! Which browsers profit from a prefetch.
//!
//! | browser | a `fetch` without credentials | the later navigation | so |
//! |---|---|---|---|
//! | Chromium and browsers based on it | on its own connection | takes it from the cache | yes |
//! | Firefox | on the connection of demand | has another cache entry | no; by a service worker, where the owner wants it |
//! | Safari, and every browser on iOS | not known | not known | no |

use http::HeaderMap;
use http::header::USER_AGENT;

use super::excluded::Excluded;
use super::fields;

/// The first Chromium with all features that the script uses: `deliveryType` is the latest of them.
const FIRST_CHROMIUM: u32 = 109;
/// The first Chromium that sends the tag of speculation rules; earlier ones ignore tagged rules.
const FIRST_TAGGING: u32 = 136;

/// The first Firefox with all features that the service worker uses: navigation preload is the latest of
/// them.
const FIRST_FIREFOX: u32 = 99;

/// How a page that was prefetched gets to the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeliveryMethod {
    /// By the browser's own cache.
    Cache,
    /// By a service worker, which shows it if the proxy permits it at that navigation.
    Worker,
}

/// Parts of robots' user agents; robots request a page and never the next one.
const ROBOTS: &[&str] = &["bot", "crawl", "spider", "slurp", "lighthouse", "preview", "monitor"];

/// Whether a browser with this request head uses a prefetch of that kind.
pub(super) fn gains(headers: &HeaderMap, way: DeliveryMethod) -> Result<(), Excluded> {
    let agent = fields::single(headers, USER_AGENT).ok_or(Excluded::Browser)?;
    let folded = agent.to_ascii_lowercase();
    if ROBOTS.iter().any(|robot| folded.contains(robot)) {
        return Err(Excluded::Robot);
    }
    let (version, first) = match way {
        DeliveryMethod::Cache => (chromium(headers, agent), FIRST_CHROMIUM),
        DeliveryMethod::Worker => (firefox(agent), FIRST_FIREFOX),
    };
    match version {
        Some(version) if version >= first => Ok(()),
        _ => Err(Excluded::Browser),
    }
}

/// The version of Firefox in the user agent: the worker works elsewhere, too. Browsers with another name on
/// iOS have none.
fn firefox(agent: &str) -> Option<u32> {
    let (before, version) = agent.split_once(" Firefox/")?;
    number(version).filter(|_| before.contains(" Gecko/"))
}

/// Whether a browser is one for [`DeliveryMethod::Worker`].
pub fn needs_a_worker(headers: &HeaderMap) -> bool {
    gains(headers, DeliveryMethod::Worker).is_ok()
}

/// Whether a browser sends the tag of the speculation rules that it follows.
pub(crate) fn tags_rules(headers: &HeaderMap) -> bool {
    let agent = fields::single(headers, USER_AGENT).unwrap_or_default();
    chromium(headers, agent).is_some_and(|version| version >= FIRST_TAGGING)
}

/// The version of Chromium on which a browser is based.
fn chromium(headers: &HeaderMap, agent: &str) -> Option<u32> {
    // Chromium sends its brands to secure origins. They are hard to fake by mistake, so they count for more
    // than the user agent.
    if headers.contains_key("sec-ch-ua") {
        let brands = fields::list(headers, "sec-ch-ua")?;
        brands.iter().find_map(|brand| {
            let version = brand.strip_prefix("\"Chromium\"")?.trim_start().strip_prefix(';')?;
            number(version.trim_start().strip_prefix("v=\"")?)
        })
    } else {
        agent.split_once("Chrome/").and_then(|(_, version)| number(version))
    }
}

/// The number that `text` begins with.
fn number(text: &str) -> Option<u32> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const CHROME: &str = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 Safari/537.36";

    #[test]
    fn only_supported_browsers_are_asked_to_prefetch() {
        let none = Err(Excluded::Browser);
        for (agent, brands, expected) in [
            (CHROME, "", Ok(())),
            (CHROME, r#""Not)A;Brand";v="8", "Chromium";v="156", "Google Chrome";v="156""#, Ok(())),
            (CHROME, r#""Brave";v="156", "Chromium"; v="156""#, Ok(())),
            ("Mozilla/5.0 (X11) HeadlessChrome/156.0.0.0 Safari/537.36", "", Ok(())),
            ("Mozilla/5.0 (X11) Chrome/156.0.0.0 Safari/537.36 Edg/156.0.0.0", "", Ok(())),
            // Older ones, and others.
            ("Mozilla/5.0 (X11) Chrome/108.0.0.0 Safari/537.36", "", none.clone()),
            ("Mozilla/5.0 (X11) Chrome/64.0 Safari/537.36 Edge/17.1", "", none.clone()),
            (CHROME, r#""Chromium";v="90""#, none.clone()),
            (CHROME, r#""Other";v="156""#, none.clone()),
            (
                "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
                "",
                none.clone(),
            ),
            (
                "Mozilla/5.0 (Macintosh) AppleWebKit/605.1.15 Version/18.0 Safari/605.1.15",
                "",
                none.clone(),
            ),
            (
                "Mozilla/5.0 (iPhone) AppleWebKit/605.1.15 CriOS/156.0 Mobile Safari/604.1",
                "",
                none.clone(),
            ),
            ("curl/8.0", "", none.clone()),
            ("", "", none.clone()),
            // Robots, on any engine.
            (
                "Mozilla/5.0 (compatible; Googlebot/2.1) Chrome/156.0.0.0 Safari/537.36",
                "",
                Err(Excluded::Robot),
            ),
            (
                "Mozilla/5.0 Chrome/156.0.0.0 Safari/537.36 Chrome-Lighthouse",
                "",
                Err(Excluded::Robot),
            ),
        ] {
            let mut headers = HeaderMap::new();
            if !brands.is_empty() {
                headers.insert("sec-ch-ua", HeaderValue::from_static(brands));
            }
            headers.insert(USER_AGENT, HeaderValue::from_str(agent).unwrap());
            assert_eq!(gains(&headers, DeliveryMethod::Cache), expected, "{agent} {brands}");
        }
        assert_eq!(gains(&HeaderMap::new(), DeliveryMethod::Cache), none);
    }

    #[test]
    fn only_firefox_needs_a_worker() {
        let firefox = "Mozilla/5.0 (X11; Linux x86_64; rv:153.0) Gecko/20100101 Firefox/153.0";
        for (agent, brands, expected) in [
            (firefox, "", true),
            (&firefox.replace("153", "99"), "", true),
            (&firefox.replace("153", "98"), "", false),
            (firefox, r#""Chromium";v="156""#, true),
            (CHROME, "", false),
            (
                "Mozilla/5.0 (iPhone) AppleWebKit/605.1.15 FxiOS/153.0 Mobile Safari/604.1",
                "",
                false,
            ),
            (
                "Mozilla/5.0 (Macintosh) AppleWebKit/605.1.15 Version/18.0 Safari/605.1.15",
                "",
                false,
            ),
            ("Mozilla/5.0 Gecko/20100101 Firefox/153.0 (compatible; somebot)", "", false),
            ("Firefox/153.0", "", false),
            ("", "", false),
        ] {
            let mut headers = HeaderMap::new();
            if !brands.is_empty() {
                headers.insert("sec-ch-ua", HeaderValue::from_static(brands));
            }
            headers.insert(USER_AGENT, HeaderValue::from_str(agent).unwrap());
            assert_eq!(needs_a_worker(&headers), expected, "{agent} {brands}");
        }
    }

    #[test]
    fn newer_browsers_send_speculation_tags() {
        for (brands, expected) in [
            (r#""Chromium";v="156""#, true),
            (r#""Chromium";v="136""#, true),
            (r#""Chromium";v="135""#, false),
            (r#""Other";v="156""#, false),
            ("", true),
        ] {
            let mut headers = HeaderMap::new();
            if !brands.is_empty() {
                headers.insert("sec-ch-ua", HeaderValue::from_static(brands));
            }
            headers.insert(USER_AGENT, HeaderValue::from_static(CHROME));
            assert_eq!(tags_rules(&headers), expected, "{brands}");
        }
        assert!(!tags_rules(&HeaderMap::new()));
    }
}
