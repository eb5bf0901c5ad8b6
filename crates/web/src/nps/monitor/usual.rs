//! The usual times of the site's objects, by their paths.
//!
//! A budget knows thresholds only of the present objects. Others replace them when answers fail, and when
//! other pages become popular. The thresholds of the first ones still hold when they come back, even during
//! an overload, in which nothing can be learned.

use std::time::Duration;

/// The first line of saved times. A line for each object follows: from how many nanoseconds on an answer is
/// late, and the object's path.
pub const KEPT_TIMES: &[u8] = b"lull times 1\n";

/// Number of objects that are remembered: a few are representative now, many more may have been.
const MAX_OBJECTS: usize = 256;

/// Thresholds of the objects that were learned last.
#[derive(Debug, Default)]
pub(super) struct Usual {
    /// The most recently learned one is last.
    thresholds: Vec<(String, Duration)>,
    /// The number of changes.
    changes: u64,
}

impl Usual {
    /// From when on answers for `path` are late, as just learned. No threshold rises.
    pub(super) fn record(&mut self, path: &str, threshold: Duration) {
        let before = self.threshold(path);
        let least = before.map_or(threshold, |before| before.min(threshold));
        self.changes += u64::from(before != Some(least));
        self.thresholds.retain(|(other, _)| other != path);
        if self.thresholds.len() >= MAX_OBJECTS {
            self.thresholds.remove(0);
        }
        self.thresholds.push((path.to_owned(), least));
    }

    /// From when on answers for `path` are late, if that was ever learned.
    pub(super) fn threshold(&self, path: &str) -> Option<Duration> {
        self.thresholds.iter().find(|(other, _)| other == path).map(|(_, threshold)| *threshold)
    }

    /// The same for several paths.
    pub(super) fn all_thresholds(&self, paths: &[String]) -> Vec<Option<Duration>> {
        paths.iter().map(|path| self.threshold(path)).collect()
    }

    /// The server has changed: all thresholds are invalid.
    pub(super) fn clear(&mut self) {
        self.thresholds.clear();
        self.changes += 1;
    }

    /// All of it, for another process.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut kept = KEPT_TIMES.to_vec();
        // A path cannot contain a newline that could be read as another one.
        for (path, threshold) in self.thresholds.iter().filter(|(path, _)| !path.contains('\n')) {
            kept.extend(format!("{} {path}\n", threshold.as_nanos()).bytes());
        }
        kept
    }

    /// Continues with saved thresholds, in place of the present ones; false, without a change, if they are
    /// invalid.
    pub(super) fn take(&mut self, kept: &[u8]) -> bool {
        let text = kept.strip_prefix(KEPT_TIMES).and_then(|rest| std::str::from_utf8(rest).ok());
        let Some(text) = text.filter(|text| text.is_empty() || text.ends_with('\n')) else {
            return false;
        };
        let threshold = |line: &str| {
            let (nanos, path) = line.split_once(' ')?;
            Some((path.to_owned(), Duration::from_nanos(nanos.parse().ok()?)))
        };
        let Some(mut thresholds) = text.lines().map(threshold).collect::<Option<Vec<_>>>() else {
            return false;
        };
        thresholds.drain(..thresholds.len().saturating_sub(MAX_OBJECTS));
        self.thresholds = thresholds;
        true
    }

    /// A number that changes whenever the saved state changes.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn thresholds_never_rise_and_the_latest_are_kept() {
        let mut usual = Usual::default();
        usual.record("/a", 10 * MS);
        usual.record("/a", 300 * MS);
        usual.record("/b", 20 * MS);
        usual.record("/a", 9 * MS);
        let paths = ["/a", "/b", "/c"].map(str::to_owned);
        assert_eq!(usual.all_thresholds(&paths), [Some(9 * MS), Some(20 * MS), None]);
        for number in 0..10 * MAX_OBJECTS {
            usual.record(&format!("/{number}"), MS);
            usual.record("/a", 30 * MS);
            assert!(usual.thresholds.len() <= MAX_OBJECTS);
        }
        assert_eq!(usual.all_thresholds(&paths), [Some(9 * MS), None, None]);
        usual.clear();
        assert_eq!(usual.threshold("/a"), None);
    }

    #[test]
    fn only_valid_saved_thresholds_are_loaded() {
        let mut before = Usual::default();
        assert_eq!(before.changes(), 0);
        before.record("/a b", 10 * MS);
        before.record("/c", 20 * MS);
        let (kept, changes) = (before.encode(), before.changes());
        assert_eq!(kept, b"lull times 1\n10000000 /a b\n20000000 /c\n");
        // Equal values need not be saved.
        before.record("/c", 20 * MS);
        before.record("/c", 21 * MS);
        assert_eq!((changes, before.changes()), (2, 2));

        let mut after = Usual::default();
        after.record("/d", MS);
        for none in [
            &b""[..],
            b"lull times 2\n1 /a\n",
            b"lull times 1\n1 /a",
            b"lull times 1\n-1 /a\n",
            b"lull times 1\n1\n",
            b"lull times 1\n1 /\xff\n",
        ] {
            assert!(!after.take(none), "{none:?}");
        }
        assert_eq!(after.threshold("/d"), Some(MS));
        assert!(after.take(&kept));
        let known = ["/a b", "/c", "/d"].map(|path| after.threshold(path));
        assert_eq!(known, [Some(10 * MS), Some(20 * MS), None]);
        let many: String = (0..2 * MAX_OBJECTS).map(|number| format!("1 /{number}\n")).collect();
        assert!(after.take(&[KEPT_TIMES, many.as_bytes()].concat()));
        assert_eq!((after.thresholds.len(), after.threshold("/0")), (MAX_OBJECTS, None));
    }
}
