//! Folders where the site asks for a password (RFC 9110 §11).
//!
//! A user who has given one sends it with every navigation to that folder and below (RFC 7617 §2.2), without
//! being asked again. The anonymous copy would then be useless. So nothing there is prefetched for a day
//! after the last 401, for any client.

use std::collections::HashMap;

use lull_cc::Timestamp;

use super::bars::BARRED_FOR;
use super::target::Target;

/// The maximum number of folders. Beyond that they are distinguished only by their first segment, then not at
/// all.
const MAX_FOLDERS: usize = 1024;

/// The folders, by the end of their day. Each ends in `/`.
#[derive(Debug, Default)]
pub(super) struct Protected {
    until: HashMap<String, Timestamp>,
    /// Until then some folders may be missing.
    full_until: Timestamp,
}

impl Protected {
    /// A password was requested at `target`.
    pub(super) fn record(&mut self, target: &Target, now: Timestamp) {
        let mut folder = folder(target.path());
        if !self.has_room(folder) {
            self.until.retain(|_, until| now < *until);
        }
        if !self.has_room(folder) && folder != "/" {
            folder = first_segment(folder);
            self.until.retain(|other, _| !other.starts_with(folder));
        }
        let until = now + BARRED_FOR;
        if self.has_room(folder) {
            self.until.insert(folder.to_owned(), until);
        } else {
            self.full_until = until;
        }
    }

    fn has_room(&self, folder: &str) -> bool {
        self.until.len() < MAX_FOLDERS || self.until.contains_key(folder)
    }

    /// Whether `path`, decoded, is in such a folder. The root is not included: users with a password there
    /// send it with their requests for hints as well, and get none; all others may get some.
    pub(super) fn has(&self, path: &str, now: Timestamp) -> bool {
        if now < self.full_until || self.until.is_empty() {
            return now < self.full_until;
        }
        let ends = path.bytes().enumerate().filter(|(_, byte)| *byte == b'/').map(|(end, _)| end);
        ends.skip(1).any(|end| self.until.get(&path[..=end]).is_some_and(|until| now < *until))
    }
}

/// `/a/` for `/a/b`, and for itself.
pub(super) fn folder(path: &str) -> &str {
    path.rfind('/').map_or("/", |end| &path[..=end])
}

/// `/a/` of `/a/b/`.
fn first_segment(folder: &str) -> &str {
    folder[1..].find('/').map_or("/", |end| &folder[..end + 2])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(seconds)
    }

    fn target(path: &str) -> Target {
        Target::parse(path).unwrap()
    }

    #[test]
    fn password_protected_folder_is_not_prefetched_for_a_day() {
        let mut protected = Protected::default();
        protected.record(&target("/app/login?x"), at(10));
        for (path, now, expected) in [
            ("/app/home", 10, true),
            ("/app/", 10, true),
            ("/app/a/b", 86_409, true),
            ("/app/home", 86_410, false),
            ("/app", 10, false),
            ("/application", 10, false),
            ("/", 10, false),
            ("/b/app/", 10, false),
        ] {
            assert_eq!(protected.has(path, at(now)), expected, "{path} {now}");
        }
        protected.record(&target("/%61pp/login"), at(1000));
        assert!(protected.has("/app/home", at(86_500)));
    }

    #[test]
    fn root_is_no_protected_folder() {
        let mut protected = Protected::default();
        protected.record(&target("/login"), at(10));
        for path in ["/", "/a", "/a/b"] {
            assert!(!protected.has(path, at(11)));
        }
    }

    #[test]
    fn memory_is_bounded_and_overflow_protects_more() {
        let mut protected = Protected::default();
        for number in 0..5 * MAX_FOLDERS {
            protected.record(&target(&format!("/a/{number}/x")), at(1));
            assert!(protected.until.len() <= MAX_FOLDERS);
        }
        assert!((0..5 * MAX_FOLDERS).all(|number| protected.has(&format!("/a/{number}/y"), at(2))));
        for number in 0..5 * MAX_FOLDERS {
            protected.record(&target(&format!("/{number}/x")), at(1));
            assert!(protected.until.len() <= MAX_FOLDERS);
        }
        assert!(protected.has("/b", at(2)));
        // When the day is over there is room again.
        protected.record(&target("/c/d/x"), at(90_000));
        assert!(protected.has("/c/d/y", at(90_000)) && !protected.has("/c/y", at(90_000)));
    }
}
