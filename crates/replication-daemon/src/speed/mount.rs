//! A replica in a mount, with an origin beside it, for measurements of opening its files.

use std::path::Path as FilePath;
use std::time::Duration;

use lull_replication::origin::{Put, Strategy, Transaction};
use lull_replication::path::Path;
use lull_replication::types::Metadata;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::{SpeedError, clock, name_of, origin, runtime, tickets};
use crate::daemon::{OriginDaemon, ReplicaDaemon, ReplicaOptions, join};
use crate::fuse::Mounted;

/// For how long the replica may fetch the files.
const FETCHED: Duration = Duration::from_secs(60);

/// A replica whose files are mounted, and its origin. Dropping it ends both, and unmounts the files.
#[derive(Debug)]
pub struct MountedReplica {
    runtime: Runtime,
    // None after it was ended.
    parts: Option<(Mounted, ReplicaDaemon, OriginDaemon)>,
}

impl MountedReplica {
    /// Makes both in `folder`, and publishes the files in `files`, a folder without folders. Mounts the
    /// replica in the empty folder `place` when it has them.
    ///
    /// # Errors
    /// If one of them does not start, or the system permits no mount.
    pub fn start(
        folder: &FilePath,
        files: &FilePath,
        place: &FilePath,
    ) -> Result<Self, SpeedError> {
        Mounted::check(place)?;
        let runtime = runtime("lull")?;
        let parts = runtime.block_on(async {
            let daemon = origin(&folder.join("origin"), Strategy::Trip).await?;
            let [ticket] = <[_; 1]>::try_from(tickets(&daemon, 1)?).expect("one was asked for");
            let replica = folder.join("replica");
            join(&replica, ticket, &clock()).await?;
            let replica = ReplicaDaemon::start(ReplicaOptions::new(replica), clock(), |_| {})?;
            let handle = daemon.handle();
            let sequence = handle.write(published(&daemon, files)?).await?;
            let reached = timeout(FETCHED, handle.wait_for(&[name_of(0)], sequence)).await;
            let late = SpeedError::Late { what: "the files at the replica", after: FETCHED };
            reached.map_err(|_| late)??;
            let mounted = Mounted::open(place, replica.handle(), Some(FETCHED), |_| {})?;
            Ok::<_, SpeedError>((mounted, replica, daemon))
        })?;
        Ok(MountedReplica { runtime, parts: Some(parts) })
    }

    /// How many threads take the kernel's requests.
    pub fn threads() -> usize {
        Mounted::threads()
    }

    /// Unmounts it and ends both.
    ///
    /// # Errors
    /// The failure of one of them.
    pub fn stop(mut self) -> Result<(), SpeedError> {
        let Some((mounted, replica, origin)) = self.parts.take() else { return Ok(()) };
        self.runtime.block_on(async {
            mounted.close().await.map_err(SpeedError::System)?;
            replica.stop().await?;
            Ok(origin.stop().await?)
        })
    }
}

impl Drop for MountedReplica {
    fn drop(&mut self) {
        // Daemons end within their runtime.
        let _inside = self.runtime.enter();
        drop(self.parts.take());
    }
}

/// The files of a folder as one transaction.
fn published(
    daemon: &OriginDaemon,
    files: &FilePath,
) -> Result<Transaction<crate::store::Body>, SpeedError> {
    let failed = |source| SpeedError::File { path: files.to_owned(), source };
    let mut changes = std::collections::BTreeMap::new();
    for entry in std::fs::read_dir(files).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let bytes = std::fs::read(entry.path()).map_err(failed)?;
        let name = entry.file_name();
        let path = name.to_str().and_then(|name| Path::new(name).ok());
        let path = path.ok_or_else(|| failed(std::io::ErrorKind::InvalidData.into()))?;
        let mut stager = daemon.handle().bodies().stage();
        stager.write(&bytes)??;
        changes.insert(path, Put::Body(stager.finish()??, Metadata::default()));
    }
    Ok(Transaction { changes })
}
