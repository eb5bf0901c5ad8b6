//! Replicas that implement only the protocol: enrolled, connected on all three channels, informed of every
//! commit. They decode messages and send those of a replica, and store nothing.
//!
//! A replica acknowledges durable commits; these have no disk, so they acknowledge whenever nothing more has
//! come. Pings and reports are those of a replica. They take the bodies that the origin sends and never
//! confirm them, so that it sends only a few.

use std::future::ready;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lull_replication::message::{
    Channel, Frame, PROTOCOL, Report, Session, Start, Stock, ToOrigin, ToReplica,
};
use lull_replication::replica::Config;
use lull_replication::subscription::Subscription;
use lull_replication::time::WallTime;
use lull_replication::types::{Incarnation, Position, Sequence};
use lull_replication::wire::{Attach, BodyPart};
use tokio::io::{ReadHalf, WriteHalf, split};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};
use tokio_rustls::client::TlsStream;

use super::{SpeedError, TIMEOUT, clock, name_of};
use crate::daemon::{Incoming, LinkError, Outgoing, certificate_time, dial, enrol};
use crate::identity::{ReplicaIdentity, Ticket};

/// How many enrol or connect at a time: an origin has places for 64 connections without a known channel.
const TOGETHER: usize = 16;
/// Commits after which a replica acknowledges although more has come.
const MAX_UNACKNOWLEDGED: u64 = 256;

type Reading = ReadHalf<TlsStream<TcpStream>>;
type Writing = WriteHalf<TlsStream<TcpStream>>;

/// The messages received by all replicas. Times count from the beginning.
#[derive(Debug)]
pub(super) struct Board {
    begun: Instant,
    /// The state after which commits are counted one by one.
    after: Sequence,
    commits: Vec<Commit>,
    decoded: AtomicU64,
    bodies: AtomicU64,
}

/// One commit: how many replicas have decoded it, and when the last one has, in nanoseconds.
#[derive(Debug, Default)]
struct Commit {
    replicas: AtomicU32,
    last: AtomicU64,
}

impl Board {
    /// For this many commits after a state; of others only the sum is known.
    pub(super) fn new(after: Sequence, commits: u64) -> Self {
        Board {
            begun: Instant::now(),
            after,
            commits: (0..commits).map(|_| Commit::default()).collect(),
            decoded: AtomicU64::new(0),
            bodies: AtomicU64::new(0),
        }
    }

    fn decode(&self, sequence: Sequence) {
        let place = sequence.0.checked_sub(self.after.0 + 1);
        let place = place.and_then(|place| usize::try_from(place).ok());
        if let Some(commit) = place.and_then(|place| self.commits.get(place)) {
            let nanos = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            commit.last.fetch_max(nanos, Ordering::Relaxed);
            commit.replicas.fetch_add(1, Ordering::Relaxed);
        }
        self.decoded.fetch_add(1, Ordering::Relaxed);
    }

    /// Commits, counted once for each replica that has decoded them.
    pub(super) fn decoded(&self) -> u64 {
        self.decoded.load(Ordering::Relaxed)
    }

    /// Bodies that were sent in the background, or on demand.
    pub(super) fn bodies(&self) -> u64 {
        self.bodies.load(Ordering::Relaxed)
    }

    /// When the last of this many replicas has decoded a commit; none if not all have.
    pub(super) fn last(&self, sequence: Sequence, replicas: u32) -> Option<Instant> {
        let place = usize::try_from(sequence.0.checked_sub(self.after.0 + 1)?).ok()?;
        let commit = self.commits.get(place)?;
        let all = commit.replicas.load(Ordering::Relaxed) == replicas;
        all.then(|| self.begun + Duration::from_nanos(commit.last.load(Ordering::Relaxed)))
    }
}

/// Runs all of it, a few at a time; returns the results, in no order.
async fn few<T: Send + 'static>(
    work: impl Iterator<Item = impl Future<Output = Result<T, SpeedError>> + Send + 'static>,
) -> Result<Vec<T>, SpeedError> {
    let places = Arc::new(Semaphore::new(TOGETHER));
    let mut tasks = JoinSet::new();
    for one in work {
        let places = Arc::clone(&places);
        tasks.spawn(async move {
            let _place = places.acquire_owned().await;
            one.await
        });
    }
    let mut done = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        done.push(ended.expect("no task panics")?);
    }
    Ok(done)
}

/// Uses all tickets; the identities are in separate folders.
pub(super) async fn join(
    folder: &FilePath,
    tickets: Vec<Ticket>,
) -> Result<Vec<ReplicaIdentity>, SpeedError> {
    let folder = folder.to_owned();
    let one = move |(number, ticket): (usize, Ticket)| {
        let folder = folder.join(name_of(u32::try_from(number).unwrap_or(u32::MAX)));
        async move { Ok(enrol(&folder, ticket, &clock()).await?) }
    };
    few(tickets.into_iter().enumerate().map(one)).await
}

/// Connected replicas. They are disconnected when this is dropped.
#[derive(Debug)]
pub(super) struct Swarm {
    tasks: JoinSet<Result<(), SpeedError>>,
    stop: watch::Sender<bool>,
}

impl Swarm {
    /// Connects all of them, as replicas that have everything up to `from`, which is in the origin's log.
    pub(super) async fn connect(
        identities: Vec<ReplicaIdentity>,
        from: Position,
        board: &Arc<Board>,
    ) -> Result<Self, SpeedError> {
        let one = |identity: ReplicaIdentity| async move {
            let replica = identity.replica().0;
            let connected = Connected::open(&identity, from).await;
            Ok((replica, connected.map_err(|why| SpeedError::Replica { replica, why })?))
        };
        let connected = few(identities.into_iter().map(one)).await?;
        let stop = watch::Sender::new(false);
        let mut tasks = JoinSet::new();
        for (replica, connected) in connected {
            let (board, mut stopped) = (Arc::clone(board), stop.subscribe());
            tasks.spawn(async move {
                tokio::select! {
                    ended = connected.follow(replica, from.sequence, &board) => ended,
                    _ = stopped.wait_for(|stop| *stop) => Ok(()),
                }
            });
        }
        Ok(Swarm { tasks, stop })
    }

    /// Returns the error of a replica that does not follow any more, if there is one.
    pub(super) fn check(&mut self) -> Result<(), SpeedError> {
        match self.tasks.try_join_next() {
            Some(ended) => ended.expect("no replica panics"),
            None => Ok(()),
        }
    }

    /// Waits until this many commits were decoded, counted once for each replica. Returns false [`TIMEOUT`]
    /// after the last commit.
    pub(super) async fn wait(&mut self, board: &Board, decoded: u64) -> Result<bool, SpeedError> {
        const PAUSE: Duration = Duration::from_millis(2);
        let (mut before, mut since) = (board.decoded(), Instant::now());
        loop {
            self.check()?;
            let now = board.decoded();
            if now >= decoded {
                return Ok(true);
            }
            if now > before {
                (before, since) = (now, Instant::now());
            } else if since.elapsed() > TIMEOUT {
                return Ok(false);
            }
            sleep(PAUSE).await;
        }
    }

    /// Ends their connections.
    pub(super) async fn stop(mut self) -> Result<(), SpeedError> {
        self.check()?;
        self.stop.send_replace(true);
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("no replica panics")?;
        }
        Ok(())
    }
}

/// The connections of a replica that the origin has accepted.
struct Connected {
    session: Session,
    incoming: Incoming<Reading, ToReplica>,
    outgoing: Outgoing<Writing>,
    demand: Bodies,
    speculative: Bodies,
}

impl Connected {
    async fn open(identity: &ReplicaIdentity, from: Position) -> Result<Self, LinkError> {
        let clock = clock();
        let connect = |channel| {
            let how = identity.connect(certificate_time(&clock));
            async move { dial(identity.address(), how?, channel).await }
        };
        let (read, write) = split(connect(Channel::Control).await?);
        let (mut incoming, mut outgoing) = (Incoming::new(read), Outgoing::new(write));
        // The first connection of its first life.
        let session = Session { replica: Incarnation(1), connection: 1, ..Session::default() };
        let message = ToOrigin::Hello {
            protocol: PROTOCOL,
            replica: identity.replica(),
            position: Some(from),
            committed: from.sequence,
            only: Subscription::default(),
        };
        outgoing.put(&Frame { session, message })?;
        outgoing.flush().await?;
        let welcome: Frame<ToReplica> = incoming.next().await?;
        if !matches!(welcome.message, ToReplica::Welcome { start: Start::Log, .. }) {
            return Err(LinkError::Order);
        }
        let session = welcome.session;
        let demand = Bodies::attach(connect(Channel::Demand).await?, session).await?;
        let speculative = Bodies::attach(connect(Channel::Speculative).await?, session).await?;
        Ok(Connected { session, incoming, outgoing, demand, speculative })
    }

    /// Receives messages until the connection ends, which is an error, or the task is cancelled.
    async fn follow(self, replica: u32, from: Sequence, board: &Board) -> Result<(), SpeedError> {
        let Connected { session, incoming, outgoing, mut demand, mut speculative } = self;
        let failed = |why| SpeedError::Replica { replica, why };
        let control = Control { replica, session, incoming, outgoing, heard: from, said: from };
        tokio::select! {
            ended = control.follow(board) => ended,
            ended = demand.take(board) => ended.map_err(failed),
            ended = speculative.take(board) => ended.map_err(failed),
        }
    }
}

/// The channel that all others depend on.
struct Control {
    replica: u32,
    session: Session,
    incoming: Incoming<Reading, ToReplica>,
    outgoing: Outgoing<Writing>,
    heard: Sequence,
    said: Sequence,
}

impl Control {
    async fn follow(mut self, board: &Board) -> Result<(), SpeedError> {
        let replica = self.replica;
        let failed = |why| SpeedError::Replica { replica, why };
        let (config, clock) = (Config::default(), clock());
        let mut pings = interval(config.ping);
        let mut reports = interval(config.report.unwrap_or(config.ping));
        loop {
            let waiting = self.heard.0 - self.said.0;
            tokio::select! {
                biased;
                _ = pings.tick() => {
                    let sent = clock.read().local;
                    self.say(ToOrigin::Ping { sent }).await.map_err(failed)?;
                }
                _ = reports.tick() => {
                    self.say(ToOrigin::Report(report())).await.map_err(failed)?;
                }
                () = ready(()), if waiting >= MAX_UNACKNOWLEDGED => {
                    self.acknowledge().await.map_err(failed)?;
                }
                frame = self.incoming.next() => self.receive_frames(frame.map_err(failed)?, board)?,
                () = ready(()), if waiting > 0 => self.acknowledge().await.map_err(failed)?,
            }
        }
    }

    fn receive_frames(&mut self, frame: Frame<ToReplica>, board: &Board) -> Result<(), SpeedError> {
        let told = match frame.message {
            ToReplica::Invalidation { sequence, more, .. } if sequence == self.heard.next() => {
                if !more {
                    self.heard = sequence;
                    board.decode(sequence);
                }
                return Ok(());
            }
            ToReplica::Heartbeat { .. } | ToReplica::Renew => return Ok(()),
            ToReplica::Invalidation { sequence, .. } => {
                format!("{sequence} behind {}", self.heard)
            }
            ToReplica::Welcome { .. } => "to start over".to_owned(),
            ToReplica::Refused(why) => why.to_string(),
            ToReplica::Tree { .. } => "a part of a tree that it has not requested".to_owned(),
            ToReplica::Withdrawn(_) => "a part of a body that it has not requested".to_owned(),
            ToReplica::Vouched { .. } | ToReplica::Urgent(_) | ToReplica::Neighbours(_) => {
                "about a replica that it has not named".to_owned()
            }
        };
        Err(SpeedError::SwarmReport { replica: self.replica, told })
    }

    async fn acknowledge(&mut self) -> Result<(), LinkError> {
        self.said = self.heard;
        self.say(ToOrigin::Ack(self.heard)).await
    }

    async fn say(&mut self, message: ToOrigin) -> Result<(), LinkError> {
        self.outgoing.put(&Frame { session: self.session, message })?;
        self.outgoing.flush().await.map(drop)
    }
}

/// The report of a replica without bodies.
fn report() -> Report {
    let reflects = Some(WallTime::default());
    Report { reflects, lasts: None, skew: Some((0, 0)), stock: Stock::default() }
}

/// A connection for bodies.
struct Bodies {
    incoming: Incoming<Reading, BodyPart>,
    // Closing it would end the session.
    _outgoing: Outgoing<Writing>,
}

impl Bodies {
    async fn attach(stream: TlsStream<TcpStream>, session: Session) -> Result<Self, LinkError> {
        let (read, write) = split(stream);
        let mut outgoing = Outgoing::new(write);
        outgoing.put(&Frame { session, message: Attach })?;
        outgoing.flush().await?;
        Ok(Bodies { incoming: Incoming::new(read), _outgoing: outgoing })
    }

    /// Receives until the connection ends, which is an error.
    async fn take(&mut self, board: &Board) -> Result<(), LinkError> {
        loop {
            if let BodyPart::Header(_) = self.incoming.next().await?.message {
                board.bodies.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commit_is_decoded_when_the_last_replica_has_it() {
        let board = Board::new(Sequence(3), 2);
        for sequence in [3, 4, 4, 5, 6] {
            board.decode(Sequence(sequence));
        }
        assert_eq!(board.decoded(), 5);
        assert!(board.last(Sequence(4), 2).is_some_and(|at| at <= Instant::now()));
        // Earlier and later ones are only counted.
        for (sequence, replicas) in [(5, 2), (3, 1), (6, 1)] {
            assert_eq!(board.last(Sequence(sequence), replicas), None);
        }
    }
}
