//! Replicas that take some names only, over real connections.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lull_replication::subscription::{Pattern, Subscription};
use lull_replication::types::Sequence;
use lull_replication_daemon::daemon::{ReplicaDaemon, ReplicaEvent, ReplicaOptions, join};

use super::site::{Site, body, path, patient, runtime};

const LIMIT: Option<Duration> = Some(Duration::from_secs(120));

fn only(patterns: &[&str]) -> Subscription {
    let pattern = |text: &&str| Pattern::new(text.as_bytes()).expect("a pattern");
    Subscription::new(patterns.iter().map(pattern).collect()).expect("a few")
}

#[test]
fn replica_receives_only_the_files_that_it_subscribes_to() {
    runtime().block_on(async {
        let mut site = Site::new(0).await;
        let (small, large) = (body(1, 1_000), body(2, 300_000));
        let folder = site.folder().join("docs-only");
        join(&folder, site.ticket("docs-only"), &site.clock()).await.expect("a new ticket");
        let told = Arc::new(Mutex::new(Vec::new()));
        let start = |patterns: &[&str]| {
            let options = ReplicaOptions { only: only(patterns), ..ReplicaOptions::new(&folder) };
            let told = Arc::clone(&told);
            let on_event =
                move |event: ReplicaEvent| told.lock().expect("no panic").push(event.to_string());
            ReplicaDaemon::start(options, site.clock(), on_event).expect("it starts")
        };
        let files = [("docs/a", Some(&small[..])), ("large/b", Some(&large[..]))];
        let at = site.origin().write(site.transaction(&files)).await.expect("written");
        let daemon = start(&["docs/**", "dosc/**"]);
        let names = ["docs-only".to_owned()];
        site.origin().wait_for(&names, at).await.expect("it is known");
        let status = daemon.handle().status();
        assert_eq!((status.objects, status.valid_objects), (2, 1));
        assert_eq!((status.unsubscribed_objects, status.unsubscribed_bytes), (1, 300_000));
        assert_eq!((status.speculative_bytes, status.demand_bytes), (1_000, 0));
        let matching: Vec<_> =
            status.only.into_iter().map(|one| (one.pattern, one.objects)).collect();
        assert_eq!(matching, [("docs/**".to_owned(), 1), ("dosc/**".to_owned(), 0)]);
        patient("the report", || {
            let status = site.origin().status();
            status.replicas[0].unsubscribed_bytes == Some(300_000)
                && status.replicas[0].only.len() == 2
        })
        .await;
        let said =
            || told.lock().expect("no panic").iter().any(|text| text.contains("--only dosc/**"));
        assert!(said(), "{told:?}");
        // A reader gets the other file all the same.
        let reading = daemon.handle();
        let (_, found) =
            reading.object(&path("large/b"), Sequence::ZERO, LIMIT).await.expect("an answer");
        assert_eq!(found.expect("it is there").version.content.size.0, 300_000);
        let status = daemon.handle().status();
        assert_eq!((status.unsubscribed_bytes, status.demand_bytes), (0, 300_000));
        daemon.stop().await.expect("it was well");
        // The next run takes all names.
        let at = site.write(&[("large/c", Some(&large[..99_000]))]).await;
        let options = ReplicaOptions::new(&folder);
        let daemon = ReplicaDaemon::start(options, site.clock(), |_| {}).expect("it starts");
        site.origin().wait_for_files(&names, at, None).await.expect("it is known");
        // The file has arrived; it counts once its transaction is applied.
        patient("all files", || {
            let status = daemon.handle().status();
            (status.objects, status.valid_objects, status.unsubscribed_bytes) == (3, 3, 0)
        })
        .await;
        assert_eq!(daemon.handle().status().demand_bytes, 0);
        daemon.stop().await.expect("it was well");
        site.stop().await;
    });
}
