//! Health checks of upstream servers.

use std::sync::Arc;

use tokio::time::sleep;

use super::event::{Event, Listener};
use super::fetch::{Codings, Fetcher};
use super::site_config::HealthCheck;
use super::upstream_group::UpstreamGroup;

/// The user agent of the checks.
const AGENT: &str = "lull/0.1 (health check)";
/// Failed checks in a row after which a server is unhealthy, and passed ones after which it is healthy again.
const FALL: u32 = 3;
const RISE: u32 = 2;
/// The part of an answer that is read.
const MAX_ANSWER_BYTES: usize = 16 << 10;

/// Checks one server of a group until it is dropped.
pub(crate) async fn watch(
    group: Arc<UpstreamGroup>,
    server: usize,
    check: HealthCheck,
    mut fetcher: Fetcher,
    listener: Listener,
) {
    let mut streak = Streak::default();
    loop {
        let fetched = fetcher.get(&check.path, AGENT, Codings::Identity, MAX_ANSWER_BYTES).await;
        let failure = match fetched {
            Ok(fetched) if fetched.status.is_success() || fetched.status.is_redirection() => None,
            Ok(fetched) => Some(format!("it answers {}", fetched.status)),
            Err(failure) => Some(failure.to_string()),
        };
        let of = &group.servers[server];
        if let Some(is_healthy) = streak.record(failure.is_none())
            && of.set_healthy(is_healthy)
        {
            let server = of.config.to_string();
            listener.report(&match failure {
                None => Event::ServerHealthy { server },
                Some(why) => {
                    Event::ServerUnhealthy { server, why: format!("{}: {why}", check.path) }
                }
            });
        }
        sleep(check.interval).await;
    }
}

/// Checks in a row with the same result.
#[derive(Debug, Default)]
struct Streak {
    is_good: bool,
    count: u32,
}

impl Streak {
    /// The server's new state, if this check decides it.
    fn record(&mut self, is_good: bool) -> Option<bool> {
        if self.is_good != is_good {
            *self = Streak { is_good, count: 0 };
        }
        self.count = self.count.saturating_add(1);
        let enough = if is_good { RISE } else { FALL };
        (self.count >= enough).then_some(is_good)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_falls_after_three_checks_and_rises_after_two() {
        let mut streak = Streak::default();
        let mut found = String::new();
        for check in "gbbgbbbbgbggg".chars() {
            found.push(match streak.record(check == 'g') {
                Some(true) => 'g',
                Some(false) => 'b',
                None => '.',
            });
        }
        assert_eq!(found, "......bb...gg");
    }
}
