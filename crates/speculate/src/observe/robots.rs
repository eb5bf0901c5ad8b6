//! Detects clients that are not users with a browser, by the user agent.

/// Words in user agents of robots, feed readers, monitors and libraries, but not of browsers. In lower case.
///
/// A browser that counts as a robot is merely not learned, so too many words are better than too few.
const ROBOTS: &[&str] = &[
    "bot",
    "crawl",
    "spider",
    "slurp",
    "archiv",
    "index",
    "scan",
    "check",
    "monitor",
    "preview",
    "feed",
    "rss",
    "reader",
    "fetch",
    "http",
    "lib",
    "python",
    "perl",
    "ruby",
    "java/",
    "curl",
    "wget",
    "php",
    "headless",
    "lighthouse",
    "facebookexternalhit",
    "validator",
    "probe",
    "pingdom",
];

/// Whether a user agent is a robot's. Those of browsers begin with `Mozilla/`, or are Opera's old one;
/// browsers never send an empty one.
pub(super) fn is_robot(agent: &str) -> bool {
    let agent = agent.to_ascii_lowercase();
    let browser = agent.starts_with("mozilla/") || agent.starts_with("opera/");
    !browser || ROBOTS.iter().any(|word| agent.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn robots_and_browsers_are_distinguished() {
        for agent in [
            "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
            "Mozilla/5.0 (X11; Linux x86_64) HeadlessChrome/120.0.0.0 Safari/537.36",
            "Tiny Tiny RSS/1.11 (http://tt-rss.org/)",
            "UniversalFeedParser/4.2-pre-314-svn +http://feedparser.org/",
            "curl/7.82.0",
            "Java/1.8.0",
            "",
        ] {
            assert!(is_robot(agent), "{agent}");
        }
        for agent in [
            "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/32.0 Safari/537.36",
            "Mozilla/5.0+(Windows+NT+10.0;+Win64;+x64;+rv:109.0)+Gecko/20100101+Firefox/115.0",
            "Opera/9.80 (Windows NT 6.1) Presto/2.12.388 Version/12.16",
            "Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.0 Mobile/15E148 Safari/604.1",
        ] {
            assert!(!is_robot(agent), "{agent}");
        }
    }
}
