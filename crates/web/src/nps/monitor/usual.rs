//! What is usual of the site's objects, by their paths.
//!
//! A budget knows thresholds only of the objects that stand for the site at the time. Others take their place
//! when answers fail, and when visitors want other pages; what was learned of the first ones holds
//! all the same when they come back, be it in an overload, of which nothing is to be learned.

use std::time::Duration;

/// Objects that are remembered: some stand for the site, many more may have.
const MOST: usize = 256;

/// Thresholds, of the objects that were learned last.
#[derive(Debug, Default)]
pub(super) struct Usual {
    /// The one that was learned last is the last.
    thresholds: Vec<(String, Duration)>,
}

impl Usual {
    /// From when on answers for `path` are late, as it was just learned. None rises by that.
    pub(super) fn note(&mut self, path: &str, threshold: Duration) {
        let least = self.of(path).map_or(threshold, |before| before.min(threshold));
        self.thresholds.retain(|(other, _)| other != path);
        if self.thresholds.len() >= MOST {
            self.thresholds.remove(0);
        }
        self.thresholds.push((path.to_owned(), least));
    }

    /// From when on answers for `path` are late, if that was ever learned.
    pub(super) fn of(&self, path: &str) -> Option<Duration> {
        self.thresholds.iter().find(|(other, _)| other == path).map(|(_, threshold)| *threshold)
    }

    /// The same of several paths.
    pub(super) fn of_all(&self, paths: &[String]) -> Vec<Option<Duration>> {
        paths.iter().map(|path| self.of(path)).collect()
    }

    /// The server has changed: nothing of that holds any more.
    pub(super) fn clear(&mut self) {
        self.thresholds.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn no_threshold_rises_and_those_that_were_learned_last_are_kept() {
        let mut usual = Usual::default();
        usual.note("/a", 10 * MS);
        usual.note("/a", 300 * MS);
        usual.note("/b", 20 * MS);
        usual.note("/a", 9 * MS);
        let paths = ["/a", "/b", "/c"].map(str::to_owned);
        assert_eq!(usual.of_all(&paths), [Some(9 * MS), Some(20 * MS), None]);
        for number in 0..10 * MOST {
            usual.note(&format!("/{number}"), MS);
            usual.note("/a", 30 * MS);
            assert!(usual.thresholds.len() <= MOST);
        }
        assert_eq!(usual.of_all(&paths), [Some(9 * MS), None, None]);
        usual.clear();
        assert_eq!(usual.of("/a"), None);
    }
}
