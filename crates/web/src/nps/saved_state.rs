//! State saved beside the model.

use std::sync::{Arc, Mutex};

use super::clock::wall;
use super::lock::lock;
use super::monitor::Monitor;
use super::notices::Notices;
use super::persistence::{Persistence, SAVE_INTERVAL, Save};
use super::site_rules::SiteRules;

/// Bars and the server's usual times.
#[derive(Debug, Default)]
pub(super) struct SavedState {
    bars: Mutex<Persistence>,
    times: Mutex<Persistence>,
}

impl SavedState {
    pub(super) fn save_bars_by(&self, save: Save) {
        *lock(&self.bars) = Persistence::new(Some(save));
    }

    pub(super) fn save_times_by(&self, save: Save) {
        *lock(&self.times) = Persistence::new(Some(save));
    }

    /// Saves the changes since the last time, and at the end waits until they are saved.
    pub(super) fn save(
        &self,
        is_end: bool,
        rules: &SiteRules,
        monitor: &Monitor,
        notices: &Arc<Notices>,
    ) {
        // Changes made meanwhile are saved now, and again the next time.
        let changes = rules.policy().bar_changes();
        let bars = || rules.policy().encode_bars(rules.now(), wall());
        lock(&self.bars).save_or_end(is_end, changes, bars, notices.reporter());
        let changes = monitor.time_changes();
        let times = || monitor.encode_times();
        lock(&self.times).save_or_end(is_end, changes, times, notices.reporter());
    }

    /// Saves every minute from the start on: the model may take longer to read.
    pub(super) async fn save_every_minute(
        &self,
        rules: &SiteRules,
        monitor: &Monitor,
        notices: &Arc<Notices>,
    ) {
        loop {
            tokio::time::sleep(SAVE_INTERVAL).await;
            self.save(false, rules, monitor, notices);
        }
    }
}
