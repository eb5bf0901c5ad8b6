//! Certificates and keys that change while origin and replicas run.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use lull_replication::message::Refusal;
use lull_replication::origin::Put;
use lull_replication::replica::Config;
use lull_replication::token::TokenError;
use lull_replication::types::{Content, Metadata, Sequence};
use lull_replication_daemon::daemon::{DaemonError, OriginEvent, ReplicaEvent, SkewedClock, join};
use lull_replication_daemon::http::{Blocked, ReplicaHttp, Serving};
use lull_replication_daemon::store::StoreError;

use super::sessions::{get, header};
use super::site::{LIMIT, Site, body, path, patient, runtime};

#[test]
fn failed_renewal_is_retried_until_it_succeeds() {
    runtime().block_on(async {
        let mut site = Site::new(1).await;
        let sequence = site.write(&[("a", Some(b"one"))]).await;
        site.reach(sequence).await;
        site.origin().begin_rotation().expect("written");
        // A certificate that cannot be recorded is not issued.
        let [identity, kept] =
            ["identity.json", "kept"].map(|name| site.folder().join("origin").join(name));
        fs::rename(&identity, &kept).expect("moved");
        fs::create_dir(&identity).expect("a folder");
        site.told(0, |event| matches!(event, ReplicaEvent::NotRenewed(_))).await;
        let finished = site.origin().finish_rotation().unwrap_err().to_string();
        assert!(finished.starts_with("replica-0 would be rejected afterwards"), "{finished}");
        fs::remove_dir(&identity).expect("it is empty");
        fs::rename(kept, identity).expect("moved back");
        patient("it has a new certificate", || site.origin().finish_rotation().is_ok()).await;
        site.stop().await;
    });
}

#[test]
fn certificates_are_renewed_at_runtime() {
    const DAY: i64 = 86_400 * 1_000_000_000;
    runtime().block_on(async {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("clock");
        let set = |days: i64| {
            fs::write(&file, [(days * DAY).to_le_bytes(), [0; 8]].concat()).expect("a file");
        };
        set(0);
        let clock = SkewedClock::open(&file).expect("a clock");
        let mut site = Site::on(Arc::new(clock), 1, Config::default()).await;
        let sequence = site.write(&[("a", Some(b"one"))]).await;
        site.reach(sequence).await;
        // Each lasts for 365 days.
        for days in [250, 500, 750] {
            let issued = |folder: &str, at: &str| {
                let file = site.folder().join(folder).join("identity.json");
                let text = fs::read_to_string(file).expect("an identity");
                let kept: serde_json::Value = serde_json::from_str(&text).expect("JSON");
                kept.pointer(at).and_then(serde_json::Value::as_i64).expect("a time")
            };
            let both = || (issued("origin", "/origin/issued"), issued("0", "/issued"));
            let before = both();
            set(days);
            patient("both have new ones", || both().0 > before.0 && both().1 > before.1).await;
            patient("it is back", || site.replica(0).status().connected).await;
        }
        let sequence = site.write(&[("a", Some(b"two"))]).await;
        site.reach(sequence).await;
        site.stop().await;
    });
}

#[test]
fn session_token_key_is_replaced_with_the_authority() {
    runtime().block_on(async {
        let site = Site::new(2).await;
        site.reach(Sequence::ZERO).await;
        let issue = |number: usize| site.replica(number).tokens().issue(Sequence(5));
        let judge = |number: usize, token: &str| site.replica(number).tokens().verify(token);
        let at_origin = || site.origin().tokens().issue(Sequence(5));
        let old = issue(0);
        assert_eq!(at_origin(), old);
        site.origin().begin_rotation().expect("written");
        // Until all know the new key none makes tokens with it.
        let new = loop {
            assert_eq!((issue(0), issue(1), at_origin()), (old.clone(), old.clone(), old.clone()));
            if site.origin().finish_rotation().is_ok() {
                break at_origin();
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        };
        assert_ne!(new, old);
        // Any of them may be the first one at any moment.
        patient("both make tokens with the new one", || {
            let tokens = [issue(0), issue(1)];
            for token in tokens.iter().chain([&new]) {
                assert_eq!((judge(0, token), judge(1, token)), (Ok(Sequence(5)), Ok(Sequence(5))));
            }
            tokens.iter().all(|token| *token == new)
        })
        .await;
        patient("the old key is given up", || {
            (0..2).all(|number| judge(number, &old) == Err(TokenError::Forged))
        })
        .await;
        assert_eq!(judge(1, &issue(0)), Ok(Sequence(5)));
        site.stop().await;
    });
}

/// Two replicas, of which the first one shows the last state. The second one has received it, and does not
/// show it unless it has to: a body of it never comes, and nothing is due for an hour.
async fn one_behind() -> (Site, Sequence) {
    let hour = Duration::from_secs(3_600);
    let mut site = Site::with(2, |config| config.staleness.connected = hour).await;
    let first = site.write(&[("page", Some(b"old"))]).await;
    site.reach(first).await;
    // A replica shows earlier announcements at once.
    let is_heard = |number: usize| site.replica(number).staleness().is_some();
    patient("the origin is heard", || is_heard(0) && is_heard(1)).await;
    let mut stager = site.origin().bodies().stage();
    stager.write(&body(7, 300_000)).expect("a disk").expect("room");
    let payload = stager.finish().expect("a disk").expect("room");
    let (digest, size, metadata) = (payload.digest, payload.size, Metadata::default());
    let mut held = site.origin().hold(payload).expect("it runs");
    held.stored().await.expect("room");
    assert_eq!(site.lose_bodies(), 1);
    let mut writes = site.transaction(&[("page", Some(b"new"))]);
    writes.changes.insert(path("large"), Put::Stored(Content { digest, size, metadata }));
    let last = site.origin().write(writes).await.expect("written");
    site.replica(0).entry(&path("page"), last, Some(LIMIT)).await.expect("the commit arrives");
    (site, last)
}

async fn rotate(site: &Site) {
    patient("the rotation before is over", || site.origin().begin_rotation().is_ok()).await;
    patient("all have renewed", || site.origin().finish_rotation().is_ok()).await;
}

async fn door(site: &Site, replica: usize) -> (Serving, SocketAddr) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    (ReplicaHttp::open(listener, site.replica(replica).clone(), Blocked::Wait), address)
}

/// The seen positions returned for this cookie, in a cookie and in a header.
async fn seen(site: &Site, address: SocketAddr, cookie: &str) -> [Option<Sequence>; 2] {
    let head = get(address, "/page", Some(cookie)).await;
    let verify = |token: &str| site.replica(1).tokens().verify(token).ok();
    let set = header(&head, "set-cookie").and_then(|set| set.split(['=', ';']).nth(1));
    [set.and_then(verify), header(&head, "lull-session").and_then(verify)]
}

#[test]
fn token_key_rotation_takes_no_session_back() {
    runtime().block_on(async {
        let (site, last) = one_behind().await;
        assert_eq!(site.read(1, "page").await.as_deref(), Some(&b"old"[..]));
        let old = site.replica(0).tokens().issue(last);
        rotate(&site).await;
        let waits = |number: usize| site.origin().status().replicas[number].to_reach;
        patient("both make new tokens", || waits(1) == Some(last.0)).await;
        assert_eq!((waits(0), site.replica(1).position()), (None, Sequence(1)));
        let (face, address) = door(&site, 1).await;
        // The state is the same as in the cookie, which will soon not be accepted.
        assert_eq!(seen(&site, address, &old).await, [Some(last), Some(last)]);
        let forged = Err(TokenError::Forged);
        let judge = |number: usize| site.replica(number).tokens().verify(&old);
        patient("the old key is given up", || (0..2).all(|number| judge(number) == forged)).await;
        assert_eq!(waits(1), None);
        assert_eq!(seen(&site, address, &old).await, [Some(last), Some(last)]);
        rotate(&site).await;
        face.close().await;
        site.stop().await;
    });
}

#[test]
fn replica_without_the_old_key_takes_no_session_back() {
    runtime().block_on(async {
        let (mut site, last) = one_behind().await;
        let old = site.replica(0).tokens().issue(last);
        site.origin().begin_rotation().expect("written");
        let renewed = || site.origin().status().replicas.iter().all(|one| !one.to_renew);
        patient("both know the new authority", renewed).await;
        site.crash_replica(1);
        site.origin().revoke("replica-1").expect("there is one");
        patient("the other one is not behind", || site.origin().finish_rotation().is_ok()).await;
        let forged = Err(TokenError::Forged);
        patient("the old key is given up", || site.replica(0).tokens().verify(&old) == forged)
            .await;
        let (folder, ticket) = (site.folder().join("1"), site.ticket("replica-1"));
        join(&folder, ticket, &site.clock()).await.expect("a new ticket");
        site.start_replica(1).await;
        let (face, address) = door(&site, 1).await;
        assert_eq!(site.replica(1).tokens().verify(&old), forged);
        assert_eq!(seen(&site, address, &old).await, [Some(last), Some(last)]);
        face.close().await;
        site.stop().await;
    });
}

#[test]
fn rejoining_replica_keeps_its_data() {
    runtime().block_on(async {
        let mut site = Site::new(1).await;
        let large = body(7, 300_000);
        let sequence = site.write(&[("a", Some(&large))]).await;
        site.reach(sequence).await;
        // A replica applies its first state immediately, and the body arrives later.
        patient("the body", || site.replica(0).status().valid_bytes == 300_000).await;
        site.origin().revoke("replica-0").expect("there is one");
        let (folder, ticket) = (site.folder().join("0"), site.ticket("replica-0"));
        let running = join(&folder, ticket.clone(), &site.clock()).await;
        let in_use = DaemonError::Store(StoreError::InUse).to_string();
        assert_eq!(running.map_err(|error| error.to_string()), Err(in_use));
        site.crash_replica(0);
        join(&folder, ticket, &site.clock()).await.expect("the ticket was not used");
        let sent = |site: &Site| {
            let status = site.origin().status();
            status.replicas[0].demand_bytes + status.replicas[0].speculative_bytes
        };
        let before = sent(&site);
        site.start_replica(0).await;
        let sequence = site.write(&[("b", Some(b"new"))]).await;
        site.reach(sequence).await;
        assert_eq!(site.read(0, "a").await, Some(large));
        let more = sent(&site) - before;
        assert!(more < 100_000, "{more} bytes were sent again");
        site.stop().await;
    });
}

#[test]
fn rejected_replica_reports_why_and_backs_off() {
    runtime().block_on(async {
        let site = Site::new(2).await;
        site.reach(Sequence::ZERO).await;
        let refused = |number: usize, why: Refusal| {
            let is_it = move |event: &ReplicaEvent| matches!(event, ReplicaEvent::Refused(told) if *told == why);
            site.told(number, is_it)
        };
        site.origin().revoke("replica-0").expect("there is one");
        refused(0, Refusal::Revoked).await;
        let words = ["revoked", "new ticket"];
        let why = || site.replica(0).status().refused.unwrap_or_default();
        patient("it shows why", || words.iter().all(|word| why().contains(word))).await;
        let elsewhere = site.folder().join("elsewhere");
        let ticket = site.ticket("replica-1");
        join(&elsewhere, ticket, &site.clock()).await.expect("a new ticket");
        refused(1, Refusal::Replaced).await;
        let late = |event: &ReplicaEvent| {
            matches!(event, ReplicaEvent::Disconnected { again, .. } if *again > Duration::from_secs(1))
        };
        site.told(1, late).await;
        site.stop().await;
    });
}

#[test]
fn replica_unknown_to_a_restored_origin_reports_it() {
    runtime().block_on(async {
        let mut site = Site::new(0).await;
        let identity = site.folder().join("origin/identity.json");
        let backup = fs::read(&identity).expect("an identity");
        site.add_replica().await;
        site.stop_origin().await;
        fs::write(&identity, backup).expect("restored");
        site.start_origin().await;
        let unknown =
            |event: &ReplicaEvent| matches!(event, ReplicaEvent::Refused(Refusal::Unknown));
        site.told(0, unknown).await;
        site.stop().await;
    });
}

/// Whether the other side has not closed it.
fn is_open(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).expect("a socket");
    matches!(stream.peek(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

#[test]
fn silent_connections_block_no_replica() {
    runtime().block_on(async {
        let mut site = Site::new(1).await;
        site.reach(Sequence::ZERO).await;
        site.crash_replica(0);
        let address = site.ticket("other").address;
        let connect = |_| TcpStream::connect(&address).expect("the origin listens");
        let unidentified: Vec<_> = (0..100).map(connect).collect();
        site.told_origin(|event| matches!(event, OriginEvent::Crowded { .. })).await;
        site.start_replica(0).await;
        patient("it is connected", || site.replica(0).status().connected).await;
        // The latest ones have not even reached their timeout.
        let open = unidentified.iter().filter(|stream| is_open(stream)).count();
        assert!((32..=64).contains(&open), "{open} are open");
        site.stop().await;
    });
}
