//! Two origins that share a log in a cluster of three servers, while servers and origins are killed.

use std::collections::BTreeMap;
use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lull_replication::checker::{self, Acknowledged, Body, Changes, Log, Name, Observation};
use lull_replication::replica::Staleness;
use lull_replication::types::Sequence;
use lull_replication_daemon::daemon::{
    DaemonError, OriginDaemon, OriginOptions, ReplicaDaemon, ReplicaHandle,
};
use lull_testing::nats::NatsServers;
use lull_testing::{bound, needs};
use tokio::task::JoinHandle;

use super::logs::{Nodes, read, state_of, write};
use super::site::{path, runtime};

/// The times of the faults.
#[derive(Clone, Copy)]
struct Plan {
    length: Duration,
    /// Between two kills of a server.
    server: Duration,
    /// Between two kills of the origin that writes.
    origin: Duration,
}

/// Δ of the replica, connected or not. It is not asked whether it is connected, so the larger one is checked.
const BOUNDS: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(4)];
/// How long a killed server or origin does not run.
const DOWN: Duration = Duration::from_secs(3);

/// One of the origins: it runs, or it starts and perhaps stands by.
#[derive(Default)]
struct Slot {
    daemon: Option<OriginDaemon>,
    starting: Option<JoinHandle<Result<OriginDaemon, DaemonError>>>,
    /// It is started again then.
    start_at: Option<Instant>,
}

/// What happened in a run.
#[derive(Debug, Default)]
struct Outcome {
    /// The numbers of acknowledged writes, with their states, and when the answer came.
    acknowledged: Vec<(u64, u64, Duration)>,
    reads: Vec<checker::Read>,
    failed: u64,
    server_kills: usize,
    origin_kills: usize,
    /// From the kill of an origin to the next acknowledged write.
    takeovers: Vec<Duration>,
}

/// Sessions at the replica that read the latest files, until that is over.
#[derive(Debug)]
struct Readers {
    begun: Instant,
    /// Files with numbers below this one may be there.
    next: AtomicU64,
    is_over: AtomicBool,
}

impl Readers {
    /// Reads as one session, with the state that it has seen as its token.
    async fn read(self: Arc<Self>, replica: ReplicaHandle, session: u64) -> Vec<checker::Read> {
        const PATIENCE: Duration = Duration::from_millis(300);
        let (mut seen, mut reads) = (Sequence::ZERO, Vec::new());
        while !self.is_over.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(2)).await;
            let back = (reads.len() as u64 * 7 + session) % 20;
            let number = self.next.load(Ordering::Relaxed).saturating_sub(back);
            let began = self.begun.elapsed();
            let name = path(&number.to_string());
            let Ok((at, found)) = replica.entry(&name, seen, Some(PATIENCE)).await else {
                continue;
            };
            assert!(at >= seen, "session {session} went from {seen} to {at}");
            seen = at;
            let observed = found.map_or(Observation::Absent, |_| Observation::Body(Body(number)));
            reads.push(checker::Read {
                session,
                replica: 0,
                began,
                ended: self.begun.elapsed(),
                bound: Some(BOUNDS[1]),
                seen: vec![(Name(number as u32), observed)],
            });
        }
        reads
    }
}

struct Run {
    nodes: Nodes,
    readers: Arc<Readers>,
    replica: ReplicaDaemon,
    reading: Vec<JoinHandle<Vec<checker::Read>>>,
    servers: NatsServers,
    slots: [Slot; 2],
    outcome: Outcome,
    /// The server that does not run, and when it starts again.
    down: Option<(usize, Instant)>,
    killed_at: Option<Instant>,
}

impl Run {
    async fn begin() -> Self {
        let servers = NatsServers::cluster(3);
        let nodes = Nodes::new(&servers, 2);
        let first = nodes.run(0).await;
        nodes.copy_identity(1);
        let mut slots: [Slot; 2] = Default::default();
        slots[1].start_at = Some(Instant::now());
        let (outcome, down, killed_at) = Default::default();
        let [connected, disconnected] = BOUNDS;
        let disconnected = Some(disconnected);
        let staleness = Staleness { connected, disconnected, ..Staleness::default() };
        let replica = nodes.reader(&first, staleness).await;
        let begun = Instant::now();
        let (next, is_over) = Default::default();
        let readers = Arc::new(Readers { begun, next, is_over });
        let reading = (0..2)
            .map(|session| tokio::spawn(Arc::clone(&readers).read(replica.handle(), session)));
        let reading = reading.collect();
        slots[0].daemon = Some(first);
        Run { nodes, readers, replica, reading, servers, slots, outcome, down, killed_at }
    }

    /// Starts what has to run again.
    async fn restart(&mut self) {
        if let Some((at, _)) = self.down.take_if(|(_, until)| *until <= Instant::now()) {
            self.servers.restart(at);
        }
        for (at, slot) in self.slots.iter_mut().enumerate() {
            if slot.start_at.take_if(|then| *then <= Instant::now()).is_some() {
                slot.starting = Some(tokio::spawn(self.nodes.begin(at)));
            }
            if let Some(started) = slot.starting.take_if(|starting| starting.is_finished()) {
                match started.await.expect("no panic") {
                    Ok(daemon) => slot.daemon = Some(daemon),
                    // Its port, or the servers.
                    Err(error) => {
                        assert!(!error.to_string().contains("damaged"), "origin {at}: {error}");
                        eprintln!("origin {at}: {error}");
                        slot.start_at = Some(Instant::now() + DOWN);
                    }
                }
            }
        }
    }

    /// Writes the file of this number by the origin that runs, if there is one.
    async fn write(&mut self, number: u64) {
        const PATIENCE: Duration = Duration::from_secs(1);
        let Some(origin) = self.slots.iter().find_map(|slot| slot.daemon.as_ref()) else {
            return tokio::time::sleep(Duration::from_millis(20)).await;
        };
        self.readers.next.store(number + 1, Ordering::Relaxed);
        let (name, bytes) = (number.to_string(), number.to_le_bytes());
        let writing = write(origin, &name, &bytes);
        match tokio::time::timeout(PATIENCE, writing).await {
            Ok(Ok(state)) => {
                let at = self.readers.begun.elapsed();
                self.outcome.acknowledged.push((number, state.0, at));
                if let Some(killed) = self.killed_at.take() {
                    self.outcome.takeovers.push(killed.elapsed());
                }
            }
            Ok(Err(error)) => {
                self.outcome.failed += 1;
                // It was replaced.
                if origin.handle().is_stopped() {
                    eprintln!("{error}");
                    self.kill_origin();
                }
            }
            Err(_) => self.outcome.failed += 1,
        }
    }

    fn kill_origin(&mut self) {
        let slot = self.slots.iter_mut().find(|slot| slot.daemon.is_some());
        let Some(slot) = slot else { return };
        drop(slot.daemon.take());
        slot.start_at = Some(Instant::now() + DOWN);
        self.outcome.origin_kills += 1;
        self.killed_at.get_or_insert_with(Instant::now);
    }

    fn kill_server(&mut self) {
        if self.down.is_none() {
            let at = self.outcome.server_kills % self.servers.count();
            self.servers.kill(at);
            self.down = Some((at, Instant::now() + DOWN));
            self.outcome.server_kills += 1;
        }
    }

    async fn torture(&mut self, plan: Plan) {
        let begun = Instant::now();
        let (mut next_server, mut next_origin) = (begun + plan.server, begun + plan.origin);
        let mut number = 0;
        while begun.elapsed() < plan.length {
            self.restart().await;
            self.write(number).await;
            number += 1;
            if Instant::now() >= next_server {
                next_server += plan.server;
                self.kill_server();
            }
            if Instant::now() >= next_origin {
                next_origin += plan.origin;
                self.kill_origin();
            }
        }
    }

    /// All acknowledged writes are in the log, in their order, as a third origin reads it, and all reads fit it.
    async fn judge(mut self) -> Outcome {
        self.readers.is_over.store(true, Ordering::Relaxed);
        for reading in self.reading.drain(..) {
            self.outcome.reads.extend(reading.await.expect("no panic"));
        }
        for slot in &mut self.slots {
            drop(slot.daemon.take());
            if let Some(starting) = &slot.starting {
                starting.abort();
            }
        }
        if let Some((at, _)) = self.down {
            self.servers.restart(at);
        }
        drop(self.replica);
        self.nodes.copy_identity(2);
        let options = OriginOptions { take_over: true, ..self.nodes.options(2) };
        let last = self.nodes.start(options).await.expect("an origin");
        let outcome = take(&mut self.outcome);
        let (number, state, _) = outcome.acknowledged.last().expect("writes");
        assert!(state_of(&last).0 >= *state, "{number}");
        let replica = self.nodes.replica_of(&last, &last.address().to_string()).await;
        let bytes = read(&replica, state_of(&last), &number.to_string()).await;
        assert_eq!(bytes, Some(number.to_le_bytes().to_vec()));
        let written = self.readers.next.load(Ordering::Relaxed);
        let log = log_of(&replica.handle(), state_of(&last), written).await;
        let write = |(number, position, at): &(u64, u64, Duration)| Acknowledged {
            position: *position,
            changes: change(*number),
            at: *at,
        };
        let acknowledged: Vec<_> = outcome.acknowledged.iter().map(write).collect();
        assert_eq!(checker::check(&Log::new(log), &acknowledged, &outcome.reads), []);
        last.stop().await.expect("it was well");
        outcome
    }
}

/// A write has one file, which no other one has.
fn change(number: u64) -> Changes {
    Changes::from([(Name(number as u32), Some(Body(number)))])
}

/// The log up to this state, by a replica that has it. Writes below `written` may be in it.
async fn log_of(replica: &ReplicaHandle, last: Sequence, written: u64) -> Vec<Changes> {
    let mut log = BTreeMap::new();
    for number in 0..written {
        let entry = replica.entry(&path(&number.to_string()), last, None).await;
        if let (_, Some(version)) = entry.expect("an answer") {
            log.insert(version.sequence.0, change(number));
        }
    }
    assert!(log.keys().copied().eq(1..=last.0), "each state is one write");
    log.into_values().collect()
}

fn check(plan: Plan, kills: (usize, usize)) {
    let outcome = runtime().block_on(async {
        let mut run = Run::begin().await;
        run.torture(plan).await;
        run.judge().await
    });
    let Outcome { acknowledged, reads, failed, server_kills, origin_kills, takeovers } = outcome;
    let longest = takeovers.iter().max().copied().unwrap_or_default();
    println!(
        "{} acknowledged writes, {} reads, {failed} writes that failed or took over 1 s, {server_kills} kills of servers, {origin_kills} \
         of origins; takeovers: {takeovers:.1?}",
        acknowledged.len(),
        reads.len()
    );
    assert!(server_kills >= kills.0 && origin_kills >= kills.1);
    assert!(acknowledged.len() > 10 && reads.len() > 100);
    // An election in the cluster may come on top.
    assert!(longest < bound(Duration::from_secs(90), Duration::from_secs(25)), "{takeovers:?}");
}

/// Some seconds; five minutes in the tier `full`.
#[test]
fn failovers_lose_no_acknowledged_write() {
    needs!(lull_testing::command("nats-server"));
    let seconds = Duration::from_secs;
    let short = Plan { length: seconds(14), server: seconds(3), origin: seconds(5) };
    let long = Plan { length: seconds(300), server: seconds(10), origin: seconds(30) };
    check(bound(short, long), bound((1, 1), (20, 8)));
}
