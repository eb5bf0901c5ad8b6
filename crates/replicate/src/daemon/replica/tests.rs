//! What becomes of a replica whose state machine fails.

use super::*;
use crate::daemon::link::soon;
use crate::daemon::{MachineClock, OriginDaemon, OriginOptions, create_origin, join};
use crate::replica::{Request, What};

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_panics_ends_the_replica_and_nobody_waits_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let clock: Arc<dyn Clock> = Arc::new(MachineClock);
    let (own, theirs) = (folder.path().join("replica"), folder.path().join("origin"));
    create_origin(&theirs, clock.read().wall).unwrap();
    let options = OriginOptions::new(theirs, "127.0.0.1:0");
    let origin = OriginDaemon::start(options, Arc::clone(&clock), |_| {}).await.unwrap();
    let (handle, address) = (origin.handle(), origin.address().to_string());
    let ticket = handle.ticket("replica", &address, Duration::from_secs(60)).unwrap();
    join(&own, ticket, &clock).await.unwrap();
    let daemon = ReplicaDaemon::start(ReplicaOptions::new(own), clock, |_| {}).unwrap();
    let replica = daemon.handle();
    let path = Path::new("a").unwrap();
    // Of a state that does not come.
    let request = Request { what: What::Object(path), after: Sequence(9) };
    let mut waits = replica.begin(request.clone()).unwrap();
    let shared = Arc::clone(&replica.0);
    let call = move || shared.with(|core, _| assert!(core.closed, "on purpose"));
    assert!(std::thread::spawn(call).join().is_err());
    let answer = soon(async { Ok(waits.answer().await) }).await.unwrap();
    assert_eq!(answer, Err(ReadError::Stopped));
    assert_eq!(replica.read(request, None).await, Err(ReadError::Stopped));
    soon(async {
        daemon.failed().await;
        Ok(())
    })
    .await
    .unwrap();
    let ended = daemon.stop().await;
    assert!(matches!(ended, Err(DaemonError::Panicked)), "{ended:?}");
    drop(waits);
    origin.stop().await.unwrap();
}
