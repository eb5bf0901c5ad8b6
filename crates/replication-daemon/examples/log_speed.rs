//! Durable writes of an origin with its log in its folder, in one NATS server, and in a cluster of three, one after the other:
//! `cargo run --profile checked -p lull-replication-daemon --example log_speed`.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lull_replication::Path;
use lull_replication::origin::{Put, Transaction};
use lull_replication::types::Metadata;
use lull_replication_daemon::daemon::{
    Clock, MachineClock, OriginDaemon, OriginHandle, OriginOptions, create_origin,
};
use lull_testing::nats::NatsServers;

/// Clients that write one after the other.
const WRITERS: [usize; 3] = [1, 16, 64];
const LENGTH: Duration = Duration::from_secs(8);
const SIZE: usize = 1_000;

/// Writes until the time is over; returns how long each write took.
async fn write(origin: OriginHandle, writer: usize) -> Vec<Duration> {
    let begun = Instant::now();
    let mut took = Vec::new();
    while begun.elapsed() < LENGTH {
        let mut bytes = vec![writer as u8; SIZE];
        bytes[..8].copy_from_slice(&(took.len() as u64).to_le_bytes());
        let mut stager = origin.bodies().stage();
        stager.write(&bytes).expect("a disk").expect("room");
        let body = stager.finish().expect("a disk").expect("room");
        let path = Path::new(&format!("{writer}/{}", took.len() % 1_000)).expect("a path");
        let changes = [(path, Put::Body(body, Metadata::default()))].into();
        let one = Instant::now();
        origin.write(Transaction { changes }).await.expect("written");
        took.push(one.elapsed());
    }
    took
}

async fn measure(name: &str, log: Option<String>) -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir_in("target")?;
    let clock: Arc<dyn Clock> = Arc::new(MachineClock);
    create_origin(folder.path(), clock.read().wall)?;
    let log = log.map(|log| log.parse()).transpose()?;
    let options = OriginOptions { log, ..OriginOptions::new(folder.path(), "127.0.0.1:0") };
    let origin = OriginDaemon::start(options, clock, |_| {}).await?;
    for writers in WRITERS {
        let all: Vec<_> =
            (0..writers).map(|writer| tokio::spawn(write(origin.handle(), writer))).collect();
        let mut took = Vec::new();
        for one in all {
            took.extend(one.await?);
        }
        took.sort_unstable();
        let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
        println!(
            "| {name} | {writers} | {:.0} | {:.1} | {:.1} |",
            took.len() as f64 / LENGTH.as_secs_f64(),
            at(0.5),
            at(0.99)
        );
    }
    origin.stop().await?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Runtime::new()?;
    let (single, cluster) = (NatsServers::single(), NatsServers::cluster(3));
    println!(
        "| log | writers | writes a second | median, ms | p99, ms |\n| --- | --- | --- | --- | --- |"
    );
    runtime.block_on(async {
        measure("folder", None).await?;
        measure("one NATS server", Some(format!("{}/speed", single.url()))).await?;
        measure("three NATS servers", Some(format!("{}/speed", cluster.url()))).await
    })
}
