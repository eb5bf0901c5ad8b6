//! What a prefetch says in [`MARK`](super::MARK): for whom its copy will be.
//!
//! | mark | for who, at that path | the copy |
//! |---|---|---|
//! | `1` | has no cookies | varies on cookies |
//! | `2-SECONDS-CHECK` | has harmless ones | lacks that: [`Safeguard::Clear`] |
//!
//! Which cookies a navigation carries depends on its path (RFC 6265 §5.1.4): one of the path `/app`
//! goes neither with `/` nor with a request for hints. Where `Vary: Cookie` tells people apart that
//! does no harm. A copy without it may only be had where a request has shown what a navigation to that
//! very URL carries. So the second mark is given in the answer to a request below the URL's own path,
//! with which all go that go there, and is good for nothing else; nor for any other client, because it is
//! this one that is cleared when somebody signs in.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, SystemTime};

use super::prefetch::{NotAhead, Safeguard};
use super::sign_ins::Client;
use super::visitor::Visitor;

const COOKIELESS: &str = "1";
/// What a list says where each URL has a mark of its own, which is to be asked for.
const TO_BE_ASKED_FOR: &str = "2";
/// What stands in place of a mark where the script asks who answers for a URL. It has the form of one, so
/// that what carries it yields as prefetches do, and is good for none.
pub(super) const LOOK: &str = "2-0-0";
/// What says in its reply that the proxy has refused.
pub(super) const REFUSED: &str = "0";

/// How long a mark for a visitor with cookies is good.
pub(super) const GOOD_FOR: Duration = Duration::from_secs(60);
/// The clock may be set back in between by so much.
const CLOCK_SLACK: Duration = Duration::from_secs(5);

/// What a list of hints says to this visitor in place of marks.
pub fn of_a_list(visitor: Visitor) -> &'static str {
    match visitor {
        Visitor::Cookieless => COOKIELESS,
        Visitor::Measured => TO_BE_ASKED_FOR,
    }
}

/// What the reply to a prefetch says, in the field of the mark, of who may have its copy. The service
/// worker has another word.
pub(super) fn of_a_copy(safeguard: Safeguard) -> Option<&'static str> {
    match safeguard {
        Safeguard::Vary => Some(COOKIELESS),
        Safeguard::Clear => Some(TO_BE_ASKED_FOR),
        Safeguard::Word => None,
    }
}

/// Gives marks, and knows them again until the process ends.
#[derive(Debug, Default)]
pub(super) struct Marks(RandomState);

impl Marks {
    /// The mark of a prefetch of something at `path`, for who has sent a request below it now.
    pub(super) fn give(
        &self,
        visitor: Visitor,
        path: &str,
        client: Client,
        now: SystemTime,
    ) -> String {
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        match visitor {
            Visitor::Cookieless => COOKIELESS.to_owned(),
            Visitor::Measured => {
                let at = since.as_secs();
                format!("{TO_BE_ASKED_FOR}-{at}-{:016x}", self.check(path, client, at))
            }
        }
    }

    /// What keeps the copy of `path` from who signs in later, if the mark that `client` sends says so.
    pub(super) fn read(
        &self,
        mark: &str,
        path: &str,
        client: Client,
        now: SystemTime,
    ) -> Result<Safeguard, NotAhead> {
        if mark == COOKIELESS {
            return Ok(Safeguard::Vary);
        }
        let mut parts = mark.split('-');
        let (kind, at, check) = (parts.next(), parts.next(), parts.next());
        let at = at.and_then(|at| at.parse::<u32>().ok()).map(u64::from);
        let check = check.and_then(|check| u64::from_str_radix(check, 16).ok());
        let (Some(TO_BE_ASKED_FOR), Some(at), Some(check), None) = (kind, at, check, parts.next())
        else {
            return Err(NotAhead::Mark);
        };
        if check != self.check(path, client, at) {
            return Err(NotAhead::Mark);
        }
        let is_good = match now.duration_since(SystemTime::UNIX_EPOCH + Duration::from_secs(at)) {
            Ok(ago) => ago <= GOOD_FOR,
            Err(ahead) => ahead.duration() <= CLOCK_SLACK,
        };
        if is_good { Ok(Safeguard::Clear) } else { Err(NotAhead::OldMark) }
    }

    fn check(&self, path: &str, client: Client, at: u64) -> u64 {
        // What is asked for below `/a` and below `/a/` is the same.
        self.0.hash_one((path.strip_suffix('/').unwrap_or(path), client, at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: Client = Client(7);

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
    }

    #[test]
    fn a_mark_for_who_has_cookies_is_good_for_its_path_its_client_and_a_minute() {
        let marks = Marks::default();
        let mark = marks.give(Visitor::Measured, "/app/home", CLIENT, at(10));
        for (path, now, expected) in [
            ("/app/home", 10, Ok(Safeguard::Clear)),
            ("/app/home/", 10, Ok(Safeguard::Clear)),
            ("/app/home", 70, Ok(Safeguard::Clear)),
            ("/app/home", 5, Ok(Safeguard::Clear)),
            ("/app/home", 71, Err(NotAhead::OldMark)),
            ("/app/home", 4, Err(NotAhead::OldMark)),
            ("/app", 10, Err(NotAhead::Mark)),
            ("/app/home/x", 10, Err(NotAhead::Mark)),
            ("/", 10, Err(NotAhead::Mark)),
        ] {
            assert_eq!(marks.read(&mark, path, CLIENT, at(now)), expected, "{path} {now}");
        }
        let by_another = marks.read(&mark, "/app/home", Client(8), at(10));
        assert_eq!(by_another, Err(NotAhead::Mark));
        let root = marks.give(Visitor::Measured, "", CLIENT, at(10));
        assert_eq!(marks.read(&root, "/", CLIENT, at(10)), Ok(Safeguard::Clear));
    }

    #[test]
    fn without_cookies_one_mark_is_good_everywhere() {
        let marks = Marks::default();
        let mark = marks.give(Visitor::Cookieless, "/a", CLIENT, at(10));
        assert_eq!(mark, of_a_list(Visitor::Cookieless));
        assert_eq!(marks.read(&mark, "/b", CLIENT, at(100_000)), Ok(Safeguard::Vary));
    }

    #[test]
    fn a_mark_that_somebody_made_up_is_none() {
        let marks = Marks::default();
        let mark = marks.give(Visitor::Measured, "/a", CLIENT, at(10));
        let of_another = Marks::default().give(Visitor::Measured, "/a", CLIENT, at(10));
        let later = mark.replacen("2-1000010-", "2-1000011-", 1);
        assert_ne!(mark, later);
        let list = of_a_list(Visitor::Measured);
        let longer = format!("{mark}-1");
        let others = ["", "3", "2-", "2-1000010", "2--", "-", LOOK, REFUSED];
        for made_up in [of_another.as_str(), &later, &longer, list].into_iter().chain(others) {
            assert_eq!(marks.read(made_up, "/a", CLIENT, at(10)), Err(NotAhead::Mark), "{made_up}");
        }
    }
}
