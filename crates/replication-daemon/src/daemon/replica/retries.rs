//! Limits of repeated attempts at operations that others may undo.

use std::time::{Duration, Instant};

/// Attempts that follow each other without a pause. The usual causes of a failure are over by then.
const AT_ONCE: u32 = 8;
/// Pause before the first attempt after these; doubled with each.
const FIRST: Duration = Duration::from_millis(50);
/// Longest pause between attempts. Each may fetch a whole body from the origin.
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// The retries of a reader, until its timeout.
#[derive(Debug)]
pub(crate) struct Retries {
    /// None if it has no end.
    until: Option<Instant>,
    count: u32,
    pause: Duration,
}

impl Retries {
    pub(crate) fn new(patience: Option<Duration>) -> Self {
        let until = patience.and_then(|patience| Instant::now().checked_add(patience));
        Retries { until, count: 0, pause: FIRST }
    }

    /// The rest of the patience, if it is limited.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.until.map(|until| until.saturating_duration_since(Instant::now()))
    }

    /// Waits for the next attempt, if there is one.
    pub(crate) async fn next(&mut self) -> bool {
        self.count = self.count.saturating_add(1);
        if self.count <= AT_ONCE {
            return true;
        }
        let left = self.left();
        if left.is_some_and(|left| left.is_zero()) {
            return false;
        }
        tokio::time::sleep(left.map_or(self.pause, |left| left.min(self.pause))).await;
        self.pause = (2 * self.pause).min(MAX_PAUSE);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn retries_last_as_long_as_the_reader_waits() {
        let patience = Duration::from_millis(200);
        let (begun, mut retries, mut count) = (Instant::now(), Retries::new(Some(patience)), 0);
        while retries.next().await {
            count += 1;
            assert!(retries.left().is_some_and(|left| left <= patience));
        }
        assert!(begun.elapsed() >= patience, "{:?}", begun.elapsed());
        assert!((9..=11).contains(&count), "{count} tries");
        let mut retries = Retries::new(None);
        for count in 1..=11 {
            assert!(retries.next().await && retries.left().is_none(), "{count}");
        }
    }

    #[tokio::test]
    async fn reader_without_patience_still_gets_some_retries() {
        let mut retries = Retries::new(Some(Duration::ZERO));
        let mut count = 0;
        while retries.next().await {
            count += 1;
        }
        assert_eq!(count, AT_ONCE);
    }
}
