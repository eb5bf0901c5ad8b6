//! An origin and a replica within your own program: `cargo run -p lull-replication-daemon --example embed`.
//! Two files are written as one transaction; the replica shows both or none of them.

use std::error::Error;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;

use lull_replication::Path;
use lull_replication::origin::{Put, Transaction};
use lull_replication::types::{Metadata, Sequence};
use lull_replication_daemon::daemon::{
    Clock, MachineClock, OriginDaemon, OriginOptions, ReplicaDaemon, ReplicaHandle, ReplicaOptions,
    create_origin, join,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// How long a read may wait and a ticket is valid.
const MINUTE: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let clock: Arc<dyn Clock> = Arc::new(MachineClock);
    let origin = start_origin(&folder.path().join("origin"), &clock).await?;
    let replica = start_replica(&origin, &folder.path().join("paris"), &clock).await?;

    let mut changes = Transaction { changes: Default::default() };
    for (name, text) in [("page.html", "<link href=page.css>"), ("page.css", "p { color: green }")]
    {
        // Large bodies may be written piece by piece: they are staged on the disk.
        let mut stager = origin.handle().bodies().stage();
        stager.write(text.as_bytes())?.map_err(|_| "the disk is full")?;
        let payload = stager.finish()?.map_err(|_| "the disk is full")?;
        changes.changes.insert(Path::new(name)?, Put::Body(payload, Metadata::default()));
    }
    let state = origin.handle().write(changes).await?;
    origin.handle().wait_for(&["paris".to_owned()], state).await?;

    for name in ["page.html", "page.css"] {
        println!("{name} in state {}: {}", state.0, read(&replica.handle(), name).await?);
    }
    replica.stop().await?;
    Ok(origin.stop().await?)
}

async fn start_origin(folder: &FilePath, clock: &Arc<dyn Clock>) -> Result<OriginDaemon> {
    create_origin(folder, clock.read().wall)?;
    let options = OriginOptions::new(folder, "127.0.0.1:0");
    let on_event = |event| eprintln!("origin: {event:?}");
    Ok(OriginDaemon::start(options, Arc::clone(clock), on_event).await?)
}

/// Joins by a ticket, as it would on another machine.
async fn start_replica(
    origin: &OriginDaemon,
    folder: &FilePath,
    clock: &Arc<dyn Clock>,
) -> Result<ReplicaDaemon> {
    let ticket = origin.handle().ticket("paris", &origin.address().to_string(), MINUTE)?;
    join(folder, ticket, clock).await?;
    let on_event = |event| eprintln!("replica: {event:?}");
    Ok(ReplicaDaemon::start(ReplicaOptions::new(folder), Arc::clone(clock), on_event)?)
}

/// The contents under a name. Its version stays the same while its pieces are read.
async fn read(replica: &ReplicaHandle, name: &str) -> Result<String> {
    let (_, found) = replica.object(&Path::new(name)?, Sequence::ZERO, Some(MINUTE)).await?;
    let found = found.ok_or("there is no such file")?;
    let size = found.version.content.size.0 as usize;
    let mut bytes = Vec::with_capacity(size);
    for number in 0.. {
        if bytes.len() >= size {
            break;
        }
        // A body that was damaged on the disk is fetched again when it is read again.
        bytes.extend(found.piece(number).await?.ok_or("the body is not here any more")?);
    }
    Ok(String::from_utf8(bytes)?)
}
