//! State saved beside the model.

use std::sync::{Arc, Mutex};

use super::clock::wall;
use super::lock::lock;
use super::monitor::Monitor;
use super::notices::Notices;
use super::persistence::{Persistence, SAVE_INTERVAL, Save};
use super::sharing::Sharing;
use super::site_rules::SiteRules;

/// Bars, the server's usual times, and messages for other proxies.
#[derive(Debug, Default)]
pub(super) struct SavedState {
    bars: Mutex<Persistence>,
    times: Mutex<Persistence>,
    unsent: Mutex<Option<Persistence>>,
}

impl SavedState {
    pub(super) fn save_bars_by(&self, save: Save) {
        *lock(&self.bars) = Persistence::new(Some(save));
    }

    pub(super) fn save_times_by(&self, save: Save) {
        *lock(&self.times) = Persistence::new(Some(save));
    }

    pub(super) fn save_unsent_by(&self, save: Save) {
        *lock(&self.unsent) = Some(Persistence::new(Some(save)));
    }

    /// Whether messages for other proxies are saved.
    pub(super) fn has_place_for_unsent(&self) -> bool {
        lock(&self.unsent).is_some()
    }

    /// Saves the messages that could not be sent.
    pub(super) fn save_unsent(&self, is_end: bool, sharing: &Sharing, notices: &Arc<Notices>) {
        if let Some(persistence) = &mut *lock(&self.unsent) {
            let changes = lock(&sharing.unsent).changes();
            let written = || lock(&sharing.unsent).encode();
            persistence.save_or_end(is_end, changes, written, notices.reporter());
        }
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
