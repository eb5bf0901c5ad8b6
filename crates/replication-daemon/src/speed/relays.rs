//! A body from an origin through relays to receivers: what leaves the origin, and how long it takes.
//!
//! All of them are the real daemons, in this process.

use std::path::{Path as FilePath, PathBuf};
use std::time::{Duration, Instant};

use lull_replication::origin::Strategy;
use lull_transport::Options;
use serde::Serialize;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::{Scratch, SpeedError, TICKET, clock, origin, raise_files, runtime, write_of};
use crate::daemon::{
    OriginDaemon, RelayOptions, ReplicaDaemon, ReplicaEvent, ReplicaOptions, join,
};
use crate::identity::TicketKind;

/// The longest wait for connections, and for the body.
const PATIENCE: Duration = Duration::from_secs(600);
/// Connections of a replica, of which both ends are in this process, and the files of its store.
const ENDS: u64 = 16;

/// The settings of a measurement.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The folder in which all of them are created, on the disk in question.
    pub folder: PathBuf,
    /// Relays, which the origin serves.
    pub relays: u32,
    /// Receivers, which the relays serve in equal shares.
    pub receivers: u32,
    /// Bytes of the body.
    pub size: usize,
}

/// The measurements.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Relays.
    pub relays: u32,
    /// Receivers below them.
    pub receivers: u32,
    /// Bytes of the body.
    pub bytes: u64,
    /// Bytes of bodies that left the origin.
    pub origin_bytes: u64,
    /// The same in copies for each relay: at best 1.
    pub copies: f64,
    /// From the acknowledgement until all relays had the body, in seconds.
    pub relays_seconds: f64,
    /// Until all receivers had it, and the origin knew.
    pub receivers_seconds: f64,
}

/// Publishes a body, and waits until all receivers have it.
///
/// # Errors
/// If a daemon fails, the folder cannot be used, or not all of them get the body.
pub fn run(settings: &Settings) -> Result<Report, SpeedError> {
    raise_files(settings.relays + settings.receivers, ENDS)?;
    let scratch = Scratch::new(settings.folder.join("relays"))?;
    runtime("lull-relays")?.block_on(measure(settings, &scratch.0))
}

async fn measure(settings: &Settings, folder: &FilePath) -> Result<Report, SpeedError> {
    let Settings { relays, receivers, size, .. } = *settings;
    let origin = origin(&folder.join("origin"), Strategy::Trip).await?;
    let mut daemons = Vec::new();
    let (mut addresses, mut names) = (Vec::new(), [Vec::new(), Vec::new()]);
    for number in 0..relays {
        let name = format!("relay-{number}");
        let (daemon, address) = relay(&origin, folder, &name).await?;
        daemons.push(daemon);
        addresses.push(address);
        names[0].push(name);
    }
    for number in 0..receivers {
        let name = format!("receiver-{number}");
        let above = addresses[number as usize % addresses.len().max(1)].clone();
        daemons.push(receiver(&origin, folder, &name, above).await?);
        names[1].push(name);
    }
    let handle = origin.handle();
    let all_connected = async {
        let connected = || handle.status().replicas.iter().filter(|one| one.connected).count();
        while connected() < daemons.len() {
            sleep(Duration::from_millis(50)).await;
        }
    };
    let late = |what| SpeedError::Late { what, after: PATIENCE };
    timeout(PATIENCE, all_connected).await.map_err(|_| late("connection of all receivers"))?;

    let at = handle.write(write_of(&handle, 0, 1, size)?).await?;
    let begun = Instant::now();
    let mut seconds = [0.0; 2];
    for (names, seconds) in names.iter().zip(&mut seconds) {
        let arrived = timeout(PATIENCE, handle.wait_for(names, at)).await;
        arrived.map_err(|_| late("body at all receivers"))??;
        *seconds = begun.elapsed().as_secs_f64();
    }
    let sent = handle.status().replicas.into_iter();
    let origin_bytes = sent.map(|one| one.demand_bytes + one.speculative_bytes).sum::<u64>();
    for daemon in daemons {
        daemon.stop().await?;
    }
    origin.stop().await?;
    let bytes = size as u64;
    let [relays_seconds, receivers_seconds] = seconds;
    let copies = origin_bytes as f64 / (bytes * u64::from(relays)).max(1) as f64;
    Ok(Report { relays, receivers, bytes, origin_bytes, copies, relays_seconds, receivers_seconds })
}

async fn relay(
    origin: &OriginDaemon,
    folder: &FilePath,
    name: &str,
) -> Result<(ReplicaDaemon, String), SpeedError> {
    let (folder, address) = (folder.join(name), origin.address().to_string());
    join(&folder, origin.handle().ticket_for(TicketKind::Relay, name, &address, TICKET)?, &clock())
        .await?;
    let (listens, listening) = oneshot::channel();
    let listens = std::sync::Mutex::new(Some(listens));
    let on_event = move |event| {
        if let ReplicaEvent::Relaying(address) = event
            && let Ok(mut listens) = listens.lock()
            && let Some(listens) = listens.take()
        {
            let _ = listens.send(address.to_string());
        }
    };
    let relay = RelayOptions { listen: "127.0.0.1:0".to_owned(), background: Options::new() };
    let options = ReplicaOptions { relay: Some(relay), ..ReplicaOptions::new(folder) };
    let daemon = ReplicaDaemon::start(options, clock(), on_event)?;
    let late = |_| SpeedError::Late { what: "relay that listens", after: PATIENCE };
    Ok((daemon, listening.await.map_err(late)?))
}

async fn receiver(
    origin: &OriginDaemon,
    folder: &FilePath,
    name: &str,
    relay: String,
) -> Result<ReplicaDaemon, SpeedError> {
    let (folder, address) = (folder.join(name), origin.address().to_string());
    join(&folder, origin.handle().ticket(name, &address, TICKET)?, &clock()).await?;
    let options = ReplicaOptions { via: vec![relay], ..ReplicaOptions::new(folder) };
    Ok(ReplicaDaemon::start(options, clock(), |_| {})?)
}
