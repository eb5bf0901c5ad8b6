//! Publications with a deadline, to real replicas.

use std::time::Duration;

use lull_replication::Path;
use lull_replication::types::Sequence;
use lull_replication_daemon::daemon::{DaemonError, DistributionStatus, PeerStatus};

use super::site::{Site, body, patient, runtime};

/// Waits until all replicas have it.
async fn until_done(site: &Site, number: u64) -> DistributionStatus {
    let status = || site.origin().distribution(number).expect("it is known");
    patient("all have it", || status().hosts.iter().all(|host| host.phase == "done")).await;
    status()
}

fn second(site: &Site) -> PeerStatus {
    site.origin().status().replicas[1].clone()
}

/// Large and small files, those of the publication and others.
async fn write(site: &mut Site, version: u8) -> Sequence {
    let (large, other) = (body(version, 3_000_000), body(version + 100, 2_000_000));
    let small = [version; 500];
    let files = [("site/large", &large[..]), ("site/small", &small), ("other/large", &other)];
    let files = files.map(|(name, bytes)| (name, Some(bytes)));
    site.write(&files).await
}

#[test]
fn late_publication_is_urgent_and_then_the_background_returns() {
    runtime().block_on(async {
        let mut site = Site::new(2).await;
        site.reach(Sequence::ZERO).await;
        site.crash_replica(1);
        patient("it is away", || !second(&site).connected).await;
        let at = write(&mut site, 1).await;
        let names = site.origin().matching(&["replica-*".to_owned()]).expect("there are two");
        assert_eq!(names, ["replica-0", "replica-1"]);
        // There is no time at all for the second one.
        let within = Path::new("site").ok();
        let late = &names[1..];
        let limit = Some(Duration::ZERO);
        let number = site.origin().distribute(late, at, within.as_ref(), limit).expect("a replica");
        patient("it is urgent", || second(&site).urgent).await;
        let away = site.origin().distribution(number).expect("it is known");
        assert_eq!((&*away.hosts[0].phase, away.hosts[0].missing_files), ("away", 2));
        assert_eq!(away.bytes, Some(3_000_500));
        site.start_replica(1).await;
        let status = until_done(&site, number).await;
        assert_eq!(status.hosts[0].state, Some(at.0));
        assert_eq!(status.hosts[0].missing_bytes, Some(0));
        assert!(status.hosts[0].done_at.is_some() && !second(&site).urgent);
        site.reach(at).await;
        for replica in 0..2 {
            assert_eq!(site.read(replica, "site/large").await, Some(body(1, 3_000_000)));
            assert_eq!(site.read(replica, "other/large").await, Some(body(101, 2_000_000)));
        }
        let first = site.origin().status().replicas[0].urgent_bytes;
        assert_eq!(first, 0, "it had nothing to do with the deadline");
        // All of the publication, and nothing else.
        let status = second(&site);
        let urgent = status.urgent_bytes;
        assert!((3_000_500..4_000_000).contains(&urgent), "{urgent} of {status:?}");
        assert!(status.speculative_bytes >= urgent + 2_000_000, "{status:?}");
        // The next one has time enough.
        let at = write(&mut site, 2).await;
        let limit = Some(Duration::from_secs(36_000));
        let number = site.origin().distribute(&names, at, None, limit).expect("replicas");
        let status = until_done(&site, number).await;
        assert_eq!(status.files, Some(3));
        assert_eq!(second(&site).urgent_bytes, urgent);
        site.stop().await;
    });
}

#[test]
fn publication_is_distributed_to_known_replicas_only() {
    runtime().block_on(async {
        let mut site = Site::new(2).await;
        let matching = |patterns: &[&str]| {
            let patterns: Vec<String> = patterns.iter().map(ToString::to_string).collect();
            site.origin().matching(&patterns)
        };
        for patterns in [&["*"][..], &["replica-1", "*-0", "replica-*"]] {
            assert_eq!(matching(patterns).expect("two"), ["replica-0", "replica-1"]);
        }
        assert_eq!(matching(&["*-1"]).expect("one"), ["replica-1"]);
        let none = matching(&["*", "paris-*"]);
        assert!(matches!(none, Err(DaemonError::NoMatch(_))), "{none:?}");
        let none = matching(&["paris"]);
        assert!(matches!(none, Err(DaemonError::NoReplica(_))), "{none:?}");
        // One that is revoked meanwhile is not waited for.
        let names = matching(&["*"]).expect("two");
        site.crash_replica(1);
        let at = write(&mut site, 1).await;
        let number = site.origin().distribute(&names, at, None, None).expect("replicas");
        site.origin().revoke("replica-1").expect("there is one");
        let phases = || {
            let status = site.origin().distribution(number).expect("it is known");
            status.hosts.into_iter().map(|host| host.phase).collect::<Vec<_>>()
        };
        patient("one has it", || phases() == ["done", "revoked"]).await;
        assert_eq!(site.origin().matching(&["*".to_owned()]).expect("one"), ["replica-0"]);
        assert_eq!(site.origin().distribution(number + 1), None);
        site.stop().await;
    });
}
