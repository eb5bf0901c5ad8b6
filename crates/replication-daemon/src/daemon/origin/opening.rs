//! The start of an origin: its identity and its store, from the folder or from a log that several origins share.

use std::path::PathBuf;
use std::sync::Arc;

use blake3::derive_key;
use lull_cc::Bytes;
use lull_replication::time::WallTime;
use lull_replication::types::Digest;
use tokio::net::TcpListener;

use crate::daemon::{DaemonError, blocking};
use crate::identity::{IdentityError, OriginIdentity};
use crate::shared_log::{Opening, SharedLog};
use crate::store::{
    Opened, OriginState, Remote, Settings, SharedOrigin, Store, StoreError, first_life,
};

/// The origin in a folder, to be opened.
pub(super) struct Folder {
    pub(super) path: PathBuf,
    pub(super) settings: Settings,
    pub(super) store: Option<Remote>,
    pub(super) copies: Bytes,
    pub(super) now: WallTime,
    pub(super) log: Option<Arc<SharedLog>>,
    pub(super) take_over: bool,
}

/// Ends the waiting for a log when it is dropped.
struct Stop(Option<Arc<SharedLog>>);

impl Drop for Stop {
    fn drop(&mut self) {
        if let Some(log) = &self.0 {
            log.stop();
        }
    }
}

impl Folder {
    /// Opens it, on another thread. With a log that waits while another origin writes; meanwhile connections to the
    /// listener are closed, so that replicas try the next address at once.
    pub(super) async fn open(
        self,
        listener: &TcpListener,
    ) -> Result<(Opened<OriginState>, OriginIdentity), DaemonError> {
        let mut stop = Stop(self.log.clone());
        let opening = blocking(move || self.open_now());
        tokio::pin!(opening);
        let opened = loop {
            tokio::select! {
                opened = &mut opening => break opened,
                accepted = listener.accept() => drop(accepted),
            }
        };
        let opened = opened.unwrap_or_else(|| Err(StoreError::Stopped.into()))?;
        stop.0 = None;
        Ok(opened)
    }

    fn open_now(self) -> Result<(Opened<OriginState>, OriginIdentity), DaemonError> {
        let Folder { path, settings, store, copies, now, log, take_over } = self;
        let mut identity = OriginIdentity::open(&path, now)?;
        let Some(log) = log else {
            let opened = Store::<OriginState>::open_origin(&path, settings, store, copies, now)?;
            return Ok((opened, identity));
        };
        let key = match identity.log_key() {
            Some(key) => key,
            None if Store::<OriginState>::exists(&path) => identity.make_log_key()?,
            None => return Err(IdentityError::NoLogKey(path).into()),
        };
        drop(identity);
        let opening = Opening { log: &log, folder: &path, settings, key, take_over };
        let life = opening.become_writer(first_life(now))?;
        let number = Digest(derive_key("Lull 2026 number of an origin in a bucket", &key));
        let shared = SharedOrigin { number: number.to_string(), life: life.0 };
        let mut opened =
            Store::<OriginState>::open_shared_origin(&path, settings, store, copies, now, shared)?;
        opened.store.follow_log(Arc::<SharedLog>::clone(&log));
        // Another origin may have changed it.
        let mut identity = OriginIdentity::open(&path, now)?;
        identity.publish_by(Box::new(move |encrypted| {
            log.append_identity(encrypted).map_err(|error| IdentityError::Log(error.to_string()))
        }))?;
        Ok((opened, identity))
    }
}
