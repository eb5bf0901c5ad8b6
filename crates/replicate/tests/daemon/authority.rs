//! Certificates and keys that change while origin and replicas run.

use std::fs;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use lull_replicate::daemon::{BentClock, DaemonError, ReplicaEvent, join};
use lull_replicate::replica::Config;
use lull_replicate::store::StoreError;
use lull_replicate::token::TokenError;
use lull_replicate::types::Sequence;

use super::site::{Site, body, patient, runtime};

#[test]
fn a_renewal_that_fails_is_tried_again_until_it_succeeds() {
    runtime().block_on(async {
        let mut site = Site::new(1).await;
        let sequence = site.write(&[("a", Some(b"one"))]).await;
        site.reach(sequence).await;
        // All places of those whom the origin does not know yet.
        let address = site.ticket("other").address;
        let strangers = || TcpStream::connect(&address).expect("the origin listens");
        let strangers: Vec<TcpStream> = (0..64).map(|_| strangers()).collect();
        site.origin().begin_rotation().expect("written");
        site.told(0, |event| matches!(event, ReplicaEvent::NotRenewed(_))).await;
        let finished = site.origin().finish_rotation().unwrap_err().to_string();
        assert!(finished.starts_with("replica-0 would be shut out"), "{finished}");
        drop(strangers);
        patient("it has a new certificate", || site.origin().finish_rotation().is_ok()).await;
        site.stop().await;
    });
}

#[test]
fn certificates_are_renewed_while_origin_and_replica_run() {
    const DAY: i64 = 86_400 * 1_000_000_000;
    runtime().block_on(async {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("clock");
        let set = |days: i64| {
            fs::write(&file, [(days * DAY).to_le_bytes(), [0; 8]].concat()).expect("a file");
        };
        set(0);
        let clock = BentClock::open(&file).expect("a clock");
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
fn the_key_of_session_tokens_is_replaced_with_the_authority() {
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
        // From one moment to the next any of them may be the first that does.
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

#[test]
fn a_replica_joins_again_where_it_was_and_keeps_what_it_has() {
    runtime().block_on(async {
        let mut site = Site::new(1).await;
        let large = body(7, 300_000);
        let sequence = site.write(&[("a", Some(&large))]).await;
        site.reach(sequence).await;
        // Its first state a replica applies at once, and the body comes later.
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
