//! The common setup of tests in several modules.

use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;

use super::{
    Clock, OriginDaemon, OriginOptions, ReplicaDaemon, ReplicaOptions, create_origin, join,
};

/// An origin, and a replica with that name.
pub(crate) async fn origin_and_replica(
    folder: &FilePath,
    name: &str,
    clock: &Arc<dyn Clock>,
) -> (OriginDaemon, ReplicaDaemon) {
    let (own, theirs) = (folder.join("replica"), folder.join("origin"));
    create_origin(&theirs, clock.read().wall).unwrap();
    let options = OriginOptions::new(theirs, "127.0.0.1:0");
    let origin = OriginDaemon::start(options, Arc::clone(clock), |_| {}).await.unwrap();
    let address = origin.address().to_string();
    let ticket = origin.handle().ticket(name, &address, Duration::from_secs(60)).unwrap();
    join(&own, ticket, clock).await.unwrap();
    let options = ReplicaOptions::new(own);
    let replica = ReplicaDaemon::start(options, Arc::clone(clock), |_| {}).unwrap();
    (origin, replica)
}
