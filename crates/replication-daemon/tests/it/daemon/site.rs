//! An origin and replicas in separate folders.

use std::fs;
use std::path::Path as FilePath;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lull_cc::Bytes;
use lull_replication::Path;
use lull_replication::origin::{Put, Transaction};
use lull_replication::replica::Config;
use lull_replication::types::{Metadata, Sequence};
use lull_replication_daemon::daemon::{
    Clock, DaemonError, MachineClock, OriginDaemon, OriginEvent, OriginHandle, OriginOptions,
    ReplicaDaemon, ReplicaEvent, ReplicaHandle, ReplicaOptions, create_origin, join,
};
use lull_replication_daemon::identity::Ticket;
use lull_replication_daemon::store::Remote;
use lull_transport::Options;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

/// The longest wait of a test.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

pub(crate) fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// Bodies at full speed. A background connection takes a busy processor for a busy link and yields, without a bound on
/// its time. The tests of `lull-transport` and of the programs cover that.
pub(crate) fn full_speed() -> Options {
    Options::new().congestion_control("reno")
}

pub(crate) fn path(text: &str) -> Path {
    Path::new(text).expect("a path")
}

/// `size` bytes, different for each `seed`.
pub(crate) fn body(seed: u8, size: usize) -> Vec<u8> {
    (0..size).map(|at| (at / 251) as u8 ^ at as u8 ^ seed).collect()
}

/// Waits until a condition holds.
pub(crate) async fn patient(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < LIMIT, "never: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

type Told<E> = Arc<Mutex<Vec<E>>>;

/// Waits for an event, and forgets all earlier ones.
async fn wait_for<E: std::fmt::Debug>(told: &Told<E>, is_it: impl Fn(&E) -> bool) {
    let started = Instant::now();
    let was_told = || {
        let mut all = told.lock().expect("no panic");
        let found = all.iter().any(&is_it);
        assert!(found || started.elapsed() < LIMIT, "only this was reported: {all:?}");
        if found {
            all.clear();
        }
        found
    };
    while !was_told() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

struct OneReplica {
    daemon: Option<ReplicaDaemon>,
    handle: ReplicaHandle,
    told: Told<ReplicaEvent>,
}

pub(crate) struct Site {
    folder: TempDir,
    clock: Arc<dyn Clock>,
    origin: Option<OriginDaemon>,
    handle: OriginHandle,
    address: String,
    told: Told<OriginEvent>,
    config: Config,
    /// Commits that the origin's log keeps, if not the default.
    log: Option<usize>,
    /// The bucket of the origin's large bodies, and the most bytes of copies.
    pub(crate) store: Option<(Remote, Bytes)>,
    replicas: Vec<OneReplica>,
}

impl Site {
    pub(crate) async fn new(replicas: usize) -> Self {
        Self::with(replicas, |_| {}).await
    }

    /// With replicas of this kind.
    pub(crate) async fn with(replicas: usize, change: impl Fn(&mut Config)) -> Self {
        let mut config = Config::default();
        change(&mut config);
        Self::on(Arc::new(MachineClock), replicas, config).await
    }

    /// All with this clock.
    pub(crate) async fn on(clock: Arc<dyn Clock>, replicas: usize, config: Config) -> Self {
        Self::of(clock, replicas, config, None, None).await
    }

    /// With an origin whose large bodies are in a bucket, and whose log keeps at most this many commits.
    pub(crate) async fn with_store(remote: Remote, copies: Bytes, log: Option<usize>) -> Self {
        let (clock, store) = (Arc::new(MachineClock), Some((remote, copies)));
        Self::of(clock, 0, Config::default(), log, store).await
    }

    /// With an origin whose log keeps at most this many commits, and no replicas so far.
    pub(crate) async fn with_log(log: usize) -> Self {
        Self::of(Arc::new(MachineClock), 0, Config::default(), Some(log), None).await
    }

    async fn of(
        clock: Arc<dyn Clock>,
        replicas: usize,
        config: Config,
        log: Option<usize>,
        store: Option<(Remote, Bytes)>,
    ) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        create_origin(&folder.path().join("origin"), clock.read().wall).expect("a new origin");
        let told = Told::default();
        let started = origin(folder.path(), "127.0.0.1:0", log, store.clone(), &clock, &told);
        let origin = started.await;
        let (handle, address) = (origin.handle(), origin.address().to_string());
        let origin = Some(origin);
        let none = Vec::new();
        let mut site = Site {
            folder,
            clock,
            origin,
            handle,
            address,
            told,
            config,
            log,
            store,
            replicas: none,
        };
        for _ in 0..replicas {
            site.add_replica().await;
        }
        site
    }

    pub(crate) async fn add_replica(&mut self) {
        let address = self.address.clone();
        self.add_replica_by(&address).await;
    }

    /// A replica that finds the origin at this address.
    pub(crate) async fn add_replica_by(&mut self, address: &str) {
        let number = self.replicas.len();
        let valid = Duration::from_secs(60);
        let ticket = self.handle.ticket(&format!("replica-{number}"), address, valid);
        let ticket = ticket.expect("written");
        let folder = self.folder.path().join(number.to_string());
        join(&folder, ticket, &self.clock).await.expect("a new ticket");
        let told = Told::default();
        let daemon = replica(&folder, self.config, &self.clock, &told);
        let handle = daemon.handle();
        self.replicas.push(OneReplica { daemon: Some(daemon), handle, told });
    }

    pub(crate) fn folder(&self) -> &FilePath {
        self.folder.path()
    }

    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    pub(crate) fn origin(&self) -> &OriginHandle {
        &self.handle
    }

    pub(crate) fn replica(&self, number: usize) -> &ReplicaHandle {
        &self.replicas[number].handle
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn ticket(&self, name: &str) -> Ticket {
        let valid = Duration::from_secs(60);
        self.handle.ticket(name, &self.address, valid).expect("written")
    }

    /// Files with their bytes, or none for a deletion; as one transaction.
    pub(crate) fn transaction(
        &self,
        files: &[(&str, Option<&[u8]>)],
    ) -> Transaction<lull_replication_daemon::store::Body> {
        let put = |bytes: &[u8]| {
            let mut stager = self.handle.bodies().stage();
            stager.write(bytes).expect("a disk").expect("room");
            Put::Body(stager.finish().expect("a disk").expect("room"), Metadata::default())
        };
        let change =
            |(name, bytes): &(&str, Option<&[u8]>)| (path(name), bytes.map_or(Put::Delete, put));
        Transaction { changes: files.iter().map(change).collect() }
    }

    pub(crate) async fn write(&mut self, files: &[(&str, Option<&[u8]>)]) -> Sequence {
        self.handle.write(self.transaction(files)).await.expect("written")
    }

    /// Waits until all replicas show it.
    pub(crate) async fn reach(&self, sequence: Sequence) {
        let names: Vec<String> =
            (0..self.replicas.len()).map(|number| format!("replica-{number}")).collect();
        let reached = tokio::time::timeout(LIMIT, self.handle.wait_for(&names, sequence)).await;
        reached.expect("in time").expect("they are known");
    }

    /// A replica's body under a name.
    pub(crate) async fn read(&self, replica: usize, name: &str) -> Option<Vec<u8>> {
        let path = path(name);
        let reading = self.replica(replica).object(&path, Sequence::ZERO, Some(LIMIT));
        let (_, found) = reading.await.expect("an answer");
        let found = found?;
        let mut bytes = Vec::new();
        let size = found.version.content.size.0 as usize;
        for number in 0.. {
            if bytes.len() == size {
                break;
            }
            bytes.extend(found.piece(number).await.expect("a disk").expect("a piece"));
        }
        Some(bytes)
    }

    pub(crate) async fn told(&self, replica: usize, is_it: impl Fn(&ReplicaEvent) -> bool) {
        wait_for(&self.replicas[replica].told, is_it).await;
    }

    pub(crate) async fn told_origin(&self, is_it: impl Fn(&OriginEvent) -> bool) {
        wait_for(&self.told, is_it).await;
    }

    pub(crate) async fn start_origin(&mut self) {
        let store = self.store.clone();
        let started =
            origin(self.folder.path(), &self.address, self.log, store, &self.clock, &self.told);
        let daemon = started.await;
        self.handle = daemon.handle();
        self.origin = Some(daemon);
    }

    pub(crate) async fn start_replica(&mut self, number: usize) {
        let folder = self.folder.path().join(number.to_string());
        let one = &mut self.replicas[number];
        let daemon = replica(&folder, self.config, &self.clock, &one.told);
        one.handle = daemon.handle();
        one.daemon = Some(daemon);
    }

    /// It ends without closing its connections.
    pub(crate) fn crash_origin(&mut self) {
        self.origin = None;
    }

    pub(crate) fn crash_replica(&mut self, number: usize) {
        self.replicas[number].daemon = None;
    }

    /// Deletes the files of the origin's bodies; returns how many there were.
    pub(crate) fn lose_bodies(&self) -> usize {
        let mut lost = 0;
        for folder in fs::read_dir(self.folder().join("origin/bodies")).expect("a folder") {
            for file in fs::read_dir(folder.expect("an entry").path()).expect("a folder") {
                fs::remove_file(file.expect("an entry").path()).expect("deleted");
                lost += 1;
            }
        }
        lost
    }

    pub(crate) async fn stop_origin(&mut self) {
        self.origin.take().expect("it runs").stop().await.expect("it was well");
    }

    pub(crate) async fn stop(mut self) {
        for one in &mut self.replicas {
            if let Some(daemon) = one.daemon.take() {
                daemon.stop().await.expect("it was well");
            }
        }
        if self.origin.is_some() {
            self.stop_origin().await;
        }
    }
}

async fn origin(
    folder: &FilePath,
    listen: &str,
    log: Option<usize>,
    store: Option<(Remote, Bytes)>,
    clock: &Arc<dyn Clock>,
    told: &Told<OriginEvent>,
) -> OriginDaemon {
    let started = Instant::now();
    loop {
        let told = Arc::clone(told);
        let on_event = move |event| told.lock().expect("no panic").push(event);
        let mut options = OriginOptions::new(folder.join("origin"), listen);
        options.background = full_speed();
        options.config.log = log.unwrap_or(options.config.log);
        if let Some((remote, copies)) = store.clone() {
            (options.store, options.copies) = (Some(remote), copies);
        }
        match OriginDaemon::start(options, Arc::clone(clock), on_event).await {
            Ok(daemon) => return daemon,
            // Connections of the previous one may hold the port for a moment.
            Err(DaemonError::Listen { .. }) if started.elapsed() < LIMIT => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

fn replica(
    folder: &FilePath,
    config: Config,
    clock: &Arc<dyn Clock>,
    told: &Told<ReplicaEvent>,
) -> ReplicaDaemon {
    let told = Arc::clone(told);
    let on_event = move |event| told.lock().expect("no panic").push(event);
    let options = ReplicaOptions { config, ..ReplicaOptions::new(folder) };
    ReplicaDaemon::start(options, Arc::clone(clock), on_event).expect("it starts")
}
