//! The progress of a publication, and of transfers to replicas: bars on a terminal, and nothing elsewhere.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use lull_replication_daemon::daemon::FetchProgress;
use lull_replication_daemon::http::client::{Client, Publishing};
use lull_replication_daemon::service::runtime;
use serde_json::Value;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(250);

pub(super) fn target() -> ProgressDrawTarget {
    if io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    }
}

pub(super) fn bar(template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(0), target());
    let style = ProgressStyle::with_template(template).expect("the template is well formed");
    bar.set_style(style.progress_chars("=> "));
    bar
}

pub(super) const OF_BYTES: &str =
    "{prefix} [{bar:30}] {bytes}/{total_bytes}, {bytes_per_sec}, about {eta} left";
const OF_BODIES: &str = "{prefix} [{bar:30}] {pos}/{len} files, {per_sec}, about {eta} left";

/// Shows a publication until `work` ends.
pub(super) async fn publication<T>(
    publishing: &Arc<Publishing>,
    work: impl Future<Output = T>,
) -> T {
    let bar = bar(OF_BYTES);
    let count = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
    let show = || {
        let to_send = count(&publishing.to_send);
        if to_send == 0 {
            // The number is known once all were read.
            bar.set_prefix(format!("reading: {} files", count(&publishing.files)));
            bar.set_length(count(&publishing.read));
        } else {
            bar.set_prefix("sending");
            bar.set_length(to_send);
        }
        bar.set_position(count(&publishing.sent).min(to_send));
    };
    let ended = with_progress(work, async || show()).await;
    bar.finish_and_clear();
    ended
}

/// Shows what a receiver has fetched until `work` ends.
pub(crate) async fn fetch<T>(progress: &FetchProgress, work: impl Future<Output = T>) -> T {
    let bar = bar(OF_BYTES);
    bar.set_prefix("fetching");
    let show = || {
        bar.set_length(progress.total.load(Ordering::Relaxed));
        bar.set_position(progress.here.load(Ordering::Relaxed));
    };
    let ended = with_progress(work, async || show()).await;
    bar.finish_and_clear();
    ended
}

/// Shows how many bodies are still missing at each of these replicas until `work` ends.
pub(super) async fn arrivals<T>(
    client: &Client,
    names: &[String],
    work: impl Future<Output = T>,
) -> T {
    let all = MultiProgress::with_draw_target(target());
    let bars: Vec<_> = names
        .iter()
        .map(|name| {
            let bar = all.add(bar(OF_BODIES));
            bar.set_prefix(name.clone());
            bar
        })
        .collect();
    let watched = io::stderr().is_terminal();
    let show = async || {
        if !watched {
            return;
        }
        let Ok(text) = client.status().await else { return };
        let Ok(status) = serde_json::from_str::<Value>(&text) else { return };
        for (name, bar) in names.iter().zip(&bars) {
            if let Some(queue) = queue_of(&status, name) {
                let most = bar.length().unwrap_or(0).max(queue);
                bar.set_length(most);
                bar.set_position(most - queue);
            }
        }
    };
    let ended = with_progress(work, show).await;
    bars.iter().for_each(ProgressBar::finish_and_clear);
    ended
}

/// The bodies that wait for a replica.
fn queue_of(status: &Value, name: &str) -> Option<u64> {
    let replicas = status["replicas"].as_array()?;
    replicas.iter().find(|one| one["name"] == *name)?["queue"].as_u64()
}

async fn with_progress<T>(work: impl Future<Output = T>, mut show: impl AsyncFnMut()) -> T {
    let mut work = core::pin::pin!(work);
    loop {
        match lull_replication_daemon::service::within(PAUSE, &mut work).await {
            Some(ended) => return ended,
            None => show().await,
        }
    }
}

/// A bar for the stock of a replica in this process, and the thread that moves it. It ends with this.
pub(crate) struct ReplicaBar {
    bar: ProgressBar,
    ends: Arc<AtomicBool>,
}

impl ReplicaBar {
    /// The progress of the replica in `folder`. Hidden if standard error is not a terminal.
    pub(crate) fn show(folder: PathBuf) -> Self {
        let bar = bar("[{bar:30}] {bytes}/{total_bytes} here, {msg}, about {eta} left");
        let ends = Arc::new(AtomicBool::new(false));
        if io::stderr().is_terminal() {
            let (bar, ends) = (bar.clone(), Arc::clone(&ends));
            // Without the progress bar the replica still runs.
            let watch = move || watch(&Client::new(folder), &bar, &ends);
            let _ = thread::Builder::new().name("lull-progress".to_owned()).spawn(watch);
        }
        ReplicaBar { bar, ends }
    }

    /// Prints a message beside the bar.
    pub(crate) fn print_above_bar(&self, say: impl FnOnce()) {
        self.bar.suspend(say);
    }
}

impl Drop for ReplicaBar {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        self.bar.finish_and_clear();
    }
}

fn watch(client: &Client, bar: &ProgressBar, ends: &AtomicBool) {
    let Ok(runtime) = runtime() else { return };
    while !ends.load(Ordering::Relaxed) {
        let text = runtime.block_on(client.status()).ok();
        let status = text.and_then(|text| serde_json::from_str::<Value>(&text).ok());
        if let Some(status) = status {
            let LocalStock { bytes, files } = LocalStock::of(&status);
            if bytes.0 < bytes.1 {
                bar.set_length(bytes.1);
                bar.set_position(bytes.0);
                bar.set_message(format!("{} of {} files", files.0, files.1));
            } else if bar.position() > 0 {
                bar.finish_and_clear();
                bar.reset();
            }
        }
        thread::sleep(PAUSE);
    }
}

/// The stock of a replica compared with everything announced to it that it subscribes to, including commits that it does not show
/// so far: how much, and of how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LocalStock {
    bytes: (u64, u64),
    files: (u64, u64),
}

impl LocalStock {
    fn of(status: &Value) -> Self {
        let of = |name: &str| status[name].as_u64().unwrap_or(0);
        // Bodies that the patterns leave out do not come, unless a read fetches them. On a link with a price, only the
        // origin knows which bodies come.
        let has_price = status["reads_per_gb"].is_number();
        let awaited = |all: &str, left: &str| {
            if has_price { of(&format!("valid_{all}")) } else { of(all).saturating_sub(of(left)) }
        };
        LocalStock {
            bytes: (
                of("valid_bytes") + of("buffered_valid_bytes"),
                awaited("bytes", "unsubscribed_bytes") + of("buffered_bytes"),
            ),
            files: (
                of("valid_objects") + of("buffered_valid_bodies"),
                awaited("objects", "unsubscribed_objects") + of("buffered_bodies"),
            ),
        }
    }
}

/// The transfer to a replica, by two of its states this many seconds apart; none if there is none.
pub(super) fn transfer_text(before: &Value, after: &Value, seconds: f64) -> Option<String> {
    let count = |status: &Value, name: &str| status[name].as_u64().unwrap_or(0);
    let queue = count(after, "queue");
    let here = count(after, "valid_bytes") + count(after, "unsubscribed_bytes");
    let has_price = after["reads_per_gb"].is_number();
    let missing = if has_price { 0 } else { count(after, "bytes").saturating_sub(here) };
    if queue == 0 && missing == 0 {
        return None;
    }
    let bytes = |status: &Value| count(status, "speculative_bytes") + count(status, "demand_bytes");
    let rate = bytes(after).saturating_sub(bytes(before)) as f64 / seconds;
    let left = count(before, "queue").saturating_sub(queue) as f64 / seconds;
    let rest = if queue > 0 {
        format!("{queue} bodies wait to be sent")
    } else if rate > 0.0 {
        "the last bodies are in transit".to_owned()
    } else {
        format!("{missing} bytes were missing at its last report")
    };
    let estimate = match (queue, rate > 0.0) {
        (1.., true) if left > 0.0 => format!(", about {:.0} s left", queue as f64 / left),
        (1.., false) => ", nothing was sent in the last second".to_owned(),
        _ => String::new(),
    };
    Some(format!("{rest}, {:.1} MB/s{estimate}", rate / 1e6))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn replica_with_all_bodies_has_none_pending() {
        let one = json!({ "queue": 0, "bytes": 7, "valid_bytes": 7, "speculative_bytes": 7 });
        assert_eq!(transfer_text(&one, &one, 1.0), None);
    }

    #[test]
    fn bytes_outside_the_subscription_are_not_pending() {
        let mut one = json!({
            "queue": 0, "bytes": 9, "valid_bytes": 3, "objects": 3, "valid_objects": 1, "speculative_bytes": 3,
            "unsubscribed_bytes": 6, "unsubscribed_objects": 2,
        });
        assert_eq!(transfer_text(&one, &one, 1.0), None);
        assert_eq!(LocalStock::of(&one), LocalStock { bytes: (3, 3), files: (1, 1) });
        one["unsubscribed_bytes"] = json!(4);
        let text = transfer_text(&one, &one, 1.0).expect("a body is missing");
        assert!(text.starts_with("2 bytes were missing at its last report"), "{text}");
    }

    #[test]
    fn bytes_below_the_price_are_not_pending() {
        let one = json!({
            "queue": 0, "bytes": 9, "valid_bytes": 3, "objects": 3, "valid_objects": 1,
            "reads_per_gb": 1000.0, "saved_bytes": 6,
        });
        assert_eq!(transfer_text(&one, &one, 1.0), None);
        assert_eq!(LocalStock::of(&one), LocalStock { bytes: (3, 3), files: (1, 1) });
    }

    #[test]
    fn waiting_commit_counts_as_pending() {
        let shown = json!({ "valid_bytes": 7, "bytes": 7, "valid_objects": 1, "objects": 1 });
        assert_eq!(LocalStock::of(&shown), LocalStock { bytes: (7, 7), files: (1, 1) });
        let mut waits = shown;
        for (name, count) in [
            ("buffered_bodies", 3),
            ("buffered_valid_bodies", 2),
            ("buffered_bytes", 100),
            ("buffered_valid_bytes", 65),
        ] {
            waits[name] = json!(count);
        }
        assert_eq!(LocalStock::of(&waits), LocalStock { bytes: (72, 107), files: (3, 4) });
    }

    #[test]
    fn queued_bodies_have_a_rate_and_an_estimate() {
        let before = json!({ "queue": 3_000, "speculative_bytes": 0 });
        let after = json!({ "queue": 2_000, "speculative_bytes": 4_000_000 });
        let text = transfer_text(&before, &after, 0.5).expect("bodies are in transit");
        assert_eq!(text, "2000 bodies wait to be sent, 8.0 MB/s, about 1 s left");
    }

    #[test]
    fn stalled_queue_is_reported() {
        let one = json!({ "queue": 2, "speculative_bytes": 5 });
        let text = transfer_text(&one, &one, 1.0).expect("bodies wait");
        assert!(text.ends_with("nothing was sent in the last second"), "{text}");
    }

    #[test]
    fn sent_but_unreported_bodies_are_pending() {
        let before = json!({ "queue": 0, "bytes": 9, "valid_bytes": 3, "speculative_bytes": 0 });
        let after = json!({ "queue": 0, "bytes": 9, "valid_bytes": 3, "speculative_bytes": 6 });
        let text = transfer_text(&before, &after, 1.0).expect("a body is on its way");
        assert!(text.starts_with("the last bodies are in transit"), "{text}");
    }
}
