//! Origins and replicas over loopback, with TLS, stores on a disk, and crashes.

mod authority;
mod away;
mod bodies;
mod buckets;
mod crashes;
mod deadlines;
mod demands;
mod faces;
mod failovers;
mod logs;
mod mounts;
mod neighbours;
mod nfs_export;
mod opened;
mod publish;
mod relays;
mod remembered;
mod resumed;
mod s3_client;
mod s3_endpoint;
mod s3_server;
mod sessions;
mod site;
mod snapshots;
mod subscriptions;
mod sys;
mod trees;
mod unmounting;
mod versions;
mod watch;

use std::fs;
use std::time::{Duration, Instant};

use lull_replication::message::{NotEnrolled, Refusal};
use lull_replication::replica::{Outcome, ReadTarget, Request, WaitReason};
use lull_replication::types::Sequence;
use lull_replication_daemon::daemon::{self, DaemonError, OriginEvent, ReadError, ReplicaEvent};

use site::{Site, body, path, patient, runtime};

/// Of the kinds that are handled differently: empty, in the log, one piece in a file, some pieces, and more
/// than is kept in memory during the transfer.
const SIZES: [usize; 5] = [0, 1_000, 50_000, 300_000, 3_000_000];

#[test]
fn written_file_is_readable_at_each_replica() {
    runtime().block_on(async {
        let mut site = Site::new(2).await;
        let files: Vec<(String, Vec<u8>)> =
            SIZES.iter().map(|size| (format!("folder/{size}"), body(7, *size))).collect();
        let files: Vec<(&str, Option<&[u8]>)> =
            files.iter().map(|(name, bytes)| (&**name, Some(&**bytes))).collect();
        let sequence = site.write(&files).await;
        site.reach(sequence).await;
        for replica in 0..2 {
            for (name, bytes) in &files {
                assert_eq!(site.read(replica, name).await.as_deref(), *bytes, "{name}");
            }
            assert_eq!(site.read(replica, "folder/none").await, None);
            let target = ReadTarget::Folder(lull_replication::Path::new("folder").ok());
            let all = site.replica(replica).read(Request { target, after: sequence }, None).await;
            let Ok(Outcome::Folder(all)) = all.map(|answer| answer.outcome) else { panic!() };
            assert_eq!(all.len(), SIZES.len());
        }
        // Overwritten and deleted at once.
        let sequence = site.write(&[("folder/0", Some(b"new")), ("folder/1000", None)]).await;
        site.reach(sequence).await;
        assert_eq!(site.read(1, "folder/0").await.as_deref(), Some(&b"new"[..]));
        assert_eq!(site.read(1, "folder/1000").await, None);
        let back = site.origin().rollback(Sequence(1)).await.expect("the log reaches back");
        site.reach(back).await;
        assert_eq!(site.read(0, "folder/1000").await, Some(body(7, 1_000)));
        let status = site.origin().status();
        assert_eq!((status.sequence, status.objects), (3, SIZES.len() as u64));
        assert!(
            status.replicas.iter().all(|one| one.connected && one.lag == Some(0)),
            "{status:?}"
        );
        assert!(status.replicas[0].speculative_bytes > 3_000_000, "pushed: {status:?}");
        // The messages in the other direction are small, and there are some.
        let told = site.replica(0).status().control_bytes;
        assert!((100..100_000).contains(&told), "{told} bytes");
        site.stop().await;
    });
}

#[test]
fn replica_works_without_its_origin_and_catches_up_later() {
    runtime().block_on(async {
        let mut site = Site::new(1).await;
        let sequence = site.write(&[("a", Some(b"one"))]).await;
        site.reach(sequence).await;
        assert_eq!(site.read(0, "a").await.as_deref(), Some(&b"one"[..]));
        site.crash_origin();
        site.told(0, |event| matches!(event, ReplicaEvent::Disconnected { .. })).await;
        assert_eq!(site.read(0, "a").await.as_deref(), Some(&b"one"[..]));
        // After a restart it has no heartbeat, so it guarantees nothing until it receives one.
        site.crash_replica(0);
        site.start_replica(0).await;
        let request = Request { target: ReadTarget::Object(path("a")), after: Sequence::ZERO };
        let soon = Some(Duration::from_millis(50));
        let waits = site.replica(0).read(request, soon).await;
        assert_eq!(waits.unwrap_err(), ReadError::Waits(WaitReason::Stale));
        site.start_origin().await;
        let sequence = site.write(&[("a", Some(b"two"))]).await;
        site.reach(sequence).await;
        assert_eq!(site.read(0, "a").await.as_deref(), Some(&b"two"[..]));
        site.stop().await;
    });
}

#[test]
fn session_with_a_newer_state_waits_for_it() {
    runtime().block_on(async {
        let mut site = Site::new(1).await;
        site.reach(Sequence::ZERO).await;
        let request = Request { target: ReadTarget::Object(path("a")), after: Sequence(1) };
        let behind = site.replica(0).begin(request.clone()).expect("it runs");
        patient("a reason", || behind.why() == Some(WaitReason::Behind)).await;
        drop(behind);
        assert_eq!(site.replica(0).status().waiting, 0, "no read waits for it any more");
        let replica = site.replica(0).clone();
        let reading = tokio::spawn(async move { replica.read(request, None).await });
        site.write(&[("a", Some(b"one"))]).await;
        let answer = reading.await.expect("no panic").expect("an answer");
        assert!(matches!(answer.outcome, Outcome::Object(_)), "{answer:?}");
        site.stop().await;
    });
}

#[test]
fn ticket_admits_one_replica_and_a_revoked_one_is_rejected() {
    runtime().block_on(async {
        let mut site = Site::new(1).await;
        let sequence = site.write(&[("a", Some(b"one"))]).await;
        site.reach(sequence).await;
        let ticket = site.ticket("other");
        let folder = site.folder().join("other");
        daemon::join(&folder, ticket.clone(), &site.clock()).await.expect("a new ticket");
        let again = daemon::join(&folder, ticket.clone(), &site.clock()).await;
        assert!(matches!(again, Err(DaemonError::NotEnrolled(NotEnrolled::Ticket))), "{again:?}");
        let elsewhere = site.folder().join("elsewhere");
        let used = daemon::join(&elsewhere, ticket, &site.clock()).await;
        assert!(matches!(used, Err(DaemonError::NotEnrolled(NotEnrolled::Ticket))), "{used:?}");
        // After a rejection, the folder can be used for another ticket.
        let ticket = site.ticket("other");
        daemon::join(&elsewhere, ticket, &site.clock()).await.expect("a new ticket");

        let mut forged = site.ticket("third");
        forged.authority.0[0] ^= 1;
        let third = site.folder().join("third");
        let other = daemon::join(&third, forged, &site.clock()).await;
        assert!(matches!(other, Err(DaemonError::OtherOrigin(_))), "{other:?}");

        site.origin().revoke("replica-0").expect("there is one");
        site.told(0, |event| matches!(event, ReplicaEvent::Disconnected { .. })).await;
        site.told_origin(
            |event| matches!(event, OriginEvent::Rejected { why, .. } if why.contains("revoked")),
        )
        .await;
        assert!(!site.replica(0).status().connected);
        let nobody = site.origin().revoke("nobody");
        assert!(matches!(nobody, Err(DaemonError::NoReplica(_))), "{nobody:?}");
        site.stop().await;
    });
}

#[test]
fn origin_restored_from_an_old_backup_is_rejected() {
    runtime().block_on(async {
        let mut site = Site::new(1).await;
        let sequence = site.write(&[("a", Some(b"one"))]).await;
        site.reach(sequence).await;
        site.stop_origin().await;
        let backup = site.folder().join("backup");
        fs::create_dir(&backup).expect("a folder");
        let state = site.folder().join("origin/state.redb");
        fs::copy(&state, backup.join("state.redb")).expect("a copy");
        site.start_origin().await;
        let sequence = site.write(&[("a", Some(b"two"))]).await;
        site.reach(sequence).await;
        site.stop_origin().await;
        fs::copy(backup.join("state.redb"), &state).expect("a copy");
        site.start_origin().await;
        site.told(0, |event| matches!(event, ReplicaEvent::Refused(Refusal::Ahead(_)))).await;
        // Also when it has written past the replica.
        for text in [b"2nd", b"3rd", b"4th"] {
            site.write(&[("a", Some(text))]).await;
        }
        site.told(0, |event| matches!(event, ReplicaEvent::Refused(Refusal::Diverged))).await;
        assert!(site.replica(0).status().refused.is_some());
        site.stop().await;
    });
}

#[test]
fn lost_body_is_reported_and_not_requested_repeatedly() {
    runtime().block_on(async {
        let mut site = Site::new(0).await;
        let large = body(3, 200_000);
        site.write(&[("a", Some(&large)), ("b", Some(b"small"))]).await;
        assert_eq!(site.lose_bodies(), 1, "only the large one is a file");
        site.add_replica().await;
        site.told_origin(|event| matches!(event, OriginEvent::Lost { .. })).await;
        let begun = Instant::now();
        for _ in 0..20 {
            let reading = site.replica(0).object(&path("a"), Sequence::ZERO, None).await;
            assert_eq!(reading.unwrap_err(), ReadError::Lost);
            assert_eq!(site.read(0, "b").await.as_deref(), Some(&b"small"[..]), "it need not wait");
        }
        site.told(0, |event| matches!(event, ReplicaEvent::Lost(of) if *of == path("a"))).await;
        let asked = site.replica(0).status().demands;
        // It asks again each second.
        let most = 3 + begun.elapsed().as_secs();
        assert!((1..=most).contains(&asked), "asked {asked} times");
        // The same body under another name restores it.
        site.write(&[("c", Some(&large))]).await;
        patient("it is here", || site.replica(0).status().valid_objects == 3).await;
        assert_eq!(site.read(0, "a").await, Some(large));
        site.stop().await;
    });
}

#[test]
fn authority_is_replaced_while_replicas_run() {
    runtime().block_on(async {
        let mut site = Site::new(2).await;
        let sequence = site.write(&[("a", Some(b"one"))]).await;
        site.reach(sequence).await;
        let finished = site.origin().finish_rotation();
        assert!(matches!(finished, Err(DaemonError::Rotation(_))), "{finished:?}");
        // One of them is missing here.
        site.crash_replica(1);
        site.origin().begin_rotation().expect("written");
        site.told(0, |event| matches!(event, ReplicaEvent::Disconnected { .. })).await;
        patient("it is back", || site.replica(0).status().connected).await;
        let finished = site.origin().finish_rotation().unwrap_err().to_string();
        assert!(finished.starts_with("replica-1 would be rejected afterwards"), "{finished}");
        site.start_replica(1).await;
        patient("all have a new certificate", || site.origin().finish_rotation().is_ok()).await;
        // The origin shows the new one from now on, and both drop the old one.
        let sequence = site.write(&[("a", Some(b"two"))]).await;
        site.reach(sequence).await;
        patient("no replica trusts the old one", || {
            let kept = |number: usize| {
                let file = site.folder().join(number.to_string()).join("identity.json");
                let text = fs::read_to_string(file).expect("an identity");
                let kept: serde_json::Value = serde_json::from_str(&text).expect("JSON");
                kept["authorities"].as_array().expect("a list").len()
            };
            (kept(0), kept(1)) == (1, 1)
        })
        .await;
        site.crash_replica(0);
        site.start_replica(0).await;
        let sequence = site.write(&[("a", Some(b"three"))]).await;
        site.reach(sequence).await;
        // A second rotation.
        site.origin().begin_rotation().expect("written");
        patient("all have a new certificate", || site.origin().finish_rotation().is_ok()).await;
        let sequence = site.write(&[("a", Some(b"four"))]).await;
        site.reach(sequence).await;
        site.stop().await;
    });
}

/// A replica that has 100 kB of its origin's.
async fn with_a_large_body() -> Site {
    let mut site = Site::new(1).await;
    let large = body(1, 100_000);
    let sequence = site.write(&[("a", Some(&large))]).await;
    site.reach(sequence).await;
    assert_eq!(site.read(0, "a").await, Some(large));
    site
}

#[test]
fn bytes_are_counted_from_the_start_of_the_origin() {
    runtime().block_on(async {
        let mut site = with_a_large_body().await;
        let lives = |site: &Site| (site.origin().status().life, site.replica(0).status().life);
        let first = lives(&site);
        let sent = |site: &Site| {
            let status = site.origin().status();
            let one = &status.replicas[0];
            one.control_bytes + one.demand_bytes + one.speculative_bytes
        };
        patient("it was sent", || sent(&site) > 100_000).await;
        let before = sent(&site);
        // By another connection.
        site.crash_replica(0);
        site.start_replica(0).await;
        let sequence = site.write(&[("b", Some(b"small"))]).await;
        site.reach(sequence).await;
        assert!(sent(&site) > before);
        let second = lives(&site);
        assert_eq!((first.0, first.1 != second.1), (second.0, true), "only the replica's is new");
        site.stop().await;
    });
}

#[test]
fn origin_shows_the_state_of_its_replicas() {
    runtime().block_on(async {
        let mut site = with_a_large_body().await;
        let one = |site: &Site| site.origin().status().replicas[0].clone();
        patient("it has said how it is", || one(&site).valid_bytes == Some(100_000)).await;
        let status = one(&site);
        assert_eq!(
            (status.objects, status.valid_objects, status.bytes),
            (Some(1), Some(1), Some(100_000))
        );
        assert!(status.staleness_seconds.is_some_and(|seconds| seconds < 30.0), "{status:?}");
        assert!(status.skew_seconds.is_some() && status.silent_seconds.is_none(), "{status:?}");
        site.crash_replica(0);
        patient("it is away", || !one(&site).connected).await;
        let status = one(&site);
        assert_eq!(
            status.served_while_disconnected_seconds, status.silent_seconds,
            "for an hour, if it is only cut"
        );
        assert!(status.silent_seconds.is_some());
        site.stop().await;
    });
}

#[test]
fn time_served_while_disconnected_is_reported() {
    runtime().block_on(async {
        let mut site = with_a_large_body().await;
        let status = |site: &Site| site.replica(0).status();
        assert_eq!(status(&site).last_outage, None);
        site.crash_origin();
        patient("it is away", || status(&site).disconnected_seconds.is_some()).await;
        // Stored bodies are read as usual.
        assert_eq!(site.read(0, "a").await, Some(body(1, 100_000)));
        site.start_origin().await;
        patient("it is back", || status(&site).connected).await;
        let outage = status(&site).last_outage.expect("there was one");
        assert!(outage.lasted_seconds > 0.0, "{outage:?}");
        assert!(outage.began_seconds_ago >= outage.lasted_seconds, "{outage:?}");
        assert_eq!(outage.served_seconds.to_bits(), outage.lasted_seconds.to_bits(), "{outage:?}");
        assert_eq!(status(&site).disconnected_seconds, None);
        site.stop().await;
    });
}

#[test]
fn restarted_origin_lists_absent_replicas() {
    runtime().block_on(async {
        let mut site = with_a_large_body().await;
        let one = |site: &Site| site.origin().status().replicas[0].clone();
        site.crash_replica(0);
        site.crash_origin();
        site.start_origin().await;
        let last = site.write(&[("b", Some(b"small"))]).await;
        let status = one(&site);
        assert!(status.admitted && status.never_connected && !status.connected, "{status:?}");
        assert_eq!((status.sequence, status.lag), (None, Some(1)), "no further commit is known");
        assert_eq!(status.queue, None, "nor what waits for it");
        assert!(status.silent_seconds.is_some() && status.stale_at_least, "{status:?}");
        assert_eq!(status.silent_seconds, status.staleness_seconds);
        assert_eq!(status.silent_seconds, status.served_while_disconnected_seconds);
        let before = status.silent_seconds;
        patient("it is away for longer", || one(&site).silent_seconds > before).await;
        site.start_replica(0).await;
        site.reach(last).await;
        patient("it has said how it is", || !one(&site).stale_at_least).await;
        let status = one(&site);
        assert_eq!(
            (status.never_connected, status.lag, status.silent_seconds),
            (false, Some(0), None)
        );
        assert!(status.queue.is_some(), "{status:?}");
        // The holder of an unused ticket is not expected.
        let _ = site.ticket("somebody");
        let status = site.origin().status().replicas[1].clone();
        assert!(!status.admitted && !status.never_connected, "{status:?}");
        assert_eq!(
            (status.lag, status.silent_seconds, status.staleness_seconds),
            (None, None, None)
        );
        site.stop().await;
    });
}
