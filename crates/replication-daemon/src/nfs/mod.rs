//! A replica's files as an NFS export (NFS version 3, RFC 1813), read-only, over TCP.
//!
//! | module | contents |
//! |---|---|
//! | `rpc` | records, calls and replies (RFC 5531) |
//! | `mount_protocol` | how a client gets the handle of the root |
//! | `procedures` | the procedures of NFS |
//! | `files` | reads of the replica |
//! | `handles` | file handles, which are valid at each replica and after a restart |
//! | `listings` | folders that clients read in parts, each of one state |
//! | `attributes` | what `stat` shows, and permissions |
//!
//! A handle of a file is one version of it, as after `rename` on a usual server: a client never mixes two
//! versions. When the file is overwritten, its handle is stale, and the client looks its name up again. Each
//! `LOOKUP`, `GETATTR`, `ACCESS`, and first `READDIR` of a folder is a read of the replica.
//!
//! The types of replies are those of `nfs3_types`. Calls are decoded here: that crate allocates as many bytes as
//! a client claims to send. `nfs3_server`, which uses it, also bounds neither connections nor calls in progress,
//! and checks no permissions.

mod attributes;
mod files;
mod handles;
mod listings;
mod mount_protocol;
mod procedures;
mod rpc;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncWriteExt, split};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;

use crate::daemon::ReplicaHandle;
use crate::http::{ConnectionService, Listener, Serving, Stream, stopped};
use files::Files;
use rpc::{Call, Refused, read_record};

/// Calls of one connection that are answered at the same time. The next ones wait.
const CALLS: usize = 64;
/// How long a read waits for the replica, if the replica has no shorter limit. Then `NFS3ERR_JUKEBOX` makes the client
/// retry, and a waiting program can be interrupted.
const PATIENCE: Duration = Duration::from_secs(2);

/// The NFS service of a replica.
#[derive(Debug)]
pub struct ReplicaNfs(Arc<Files>);

impl ReplicaNfs {
    /// Opens the service. A read that must wait for longer than `patience`, or two seconds, is answered with
    /// `NFS3ERR_JUKEBOX`.
    pub fn open(
        listener: TcpListener,
        replica: ReplicaHandle,
        patience: Option<Duration>,
    ) -> Serving {
        let patience = patience.map_or(PATIENCE, |patience| patience.min(PATIENCE));
        let service = ReplicaNfs(Arc::new(Files::new(replica, patience)));
        Serving::open(Listener::tcp(listener), Arc::new(service))
    }
}

impl ConnectionService for ReplicaNfs {
    async fn serve(&self, stream: Box<dyn Stream>, mut stop: watch::Receiver<bool>) {
        let (mut reader, mut writer) = split(stream);
        let (sender, mut replies) = mpsc::channel::<Vec<u8>>(CALLS);
        let reading = async {
            // Dropped with the connection: then nothing waits for its reads.
            let mut calls = JoinSet::new();
            let slots = Arc::new(Semaphore::new(CALLS));
            loop {
                while calls.try_join_next().is_some() {}
                // Never closed.
                let slot = Arc::clone(&slots).acquire_owned().await.ok();
                let Ok(Some(record)) = read_record(&mut reader).await else { return };
                let (files, sender) = (Arc::clone(&self.0), sender.clone());
                calls.spawn(async move {
                    if let Some(reply) = answer(&files, &record).await {
                        // The connection may have ended.
                        let _ = sender.send(reply).await;
                    }
                    drop(slot);
                });
            }
        };
        let writing = async {
            while let Some(reply) = replies.recv().await {
                if writer.write_all(&reply).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = reading => {}
            () = writing => {}
            () = stopped(&mut stop) => {}
        }
    }
}

/// The reply to a record, with its header; none if it is no call.
async fn answer(files: &Files, record: &[u8]) -> Option<Vec<u8>> {
    let (xid, call) = Call::read(record)?;
    let result = match call {
        Ok(call) => match call.program {
            nfs3_types::nfs3::PROGRAM => procedures::answer(files, call).await,
            nfs3_types::mount::PROGRAM => mount_protocol::answer(files, call).await,
            _ => Err(Refused::NoProgram),
        },
        Err(refused) => Err(refused),
    };
    Some(rpc::reply(xid, result))
}
