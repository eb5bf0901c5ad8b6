//! Origins that share a log in a stream of a NATS server.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lull_replication::origin::{Put, Transaction};
use lull_replication::replica::Staleness;
use lull_replication::types::{Metadata, Sequence};
use lull_replication_daemon::daemon::{
    Clock, DaemonError, MachineClock, OriginDaemon, OriginEvent, OriginOptions, ReplicaDaemon,
    ReplicaOptions, create_origin, join,
};
use lull_replication_daemon::shared_log::{LogAddress, LogEvent};
use lull_replication_daemon::store::StoreError;
use lull_testing::nats::NatsServers;
use lull_testing::{free_port, needs};
use tempfile::TempDir;

use super::site::{LIMIT, body, path, patient, runtime};

/// Origins and a replica in folders of their own.
pub(super) struct Nodes {
    folder: TempDir,
    clock: Arc<dyn Clock>,
    log: LogAddress,
    /// The addresses of the origins for replicas.
    addresses: Vec<String>,
    told: Arc<Mutex<Vec<String>>>,
}

impl Nodes {
    pub(super) fn new(servers: &NatsServers, count: usize) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(MachineClock);
        let addresses = (0..count).map(|_| format!("127.0.0.1:{}", free_port())).collect();
        let log = format!("{}/pages", servers.url()).parse().expect("an address");
        let folder = tempfile::tempdir().expect("a folder");
        create_origin(&folder.path().join("0"), clock.read().wall).expect("a new origin");
        Nodes { folder, clock, log, addresses, told: Arc::default() }
    }

    fn path(&self, at: usize) -> PathBuf {
        self.folder.path().join(at.to_string())
    }

    /// Another folder gets the identity of the first.
    pub(super) fn copy_identity(&self, to: usize) {
        fs::create_dir_all(self.path(to)).expect("a folder");
        let name = "identity.json";
        fs::copy(self.path(0).join(name), self.path(to).join(name)).expect("a copy");
    }

    pub(super) fn options(&self, at: usize) -> OriginOptions {
        let listen = self.addresses.get(at).map_or("127.0.0.1:0", String::as_str);
        OriginOptions { log: Some(self.log.clone()), ..OriginOptions::new(self.path(at), listen) }
    }

    pub(super) async fn start(&self, options: OriginOptions) -> Result<OriginDaemon, DaemonError> {
        let told = Arc::clone(&self.told);
        let on_event = move |event| record_event(&told, &event);
        OriginDaemon::start(options, Arc::clone(&self.clock), on_event).await
    }

    pub(super) async fn run(&self, at: usize) -> OriginDaemon {
        self.start(self.options(at)).await.expect("an origin")
    }

    async fn until_standby(&self) {
        patient("an origin stands by", || !self.told.lock().expect("no panic").is_empty()).await;
    }

    /// Starts an origin in a task.
    pub(super) fn begin(
        &self,
        at: usize,
    ) -> impl Future<Output = Result<OriginDaemon, DaemonError>> + Send + use<> {
        let (options, clock) = (self.options(at), Arc::clone(&self.clock));
        let told = Arc::clone(&self.told);
        OriginDaemon::start(options, clock, move |event| record_event(&told, &event))
    }

    /// A replica that knows all origins.
    async fn replica(&self, origin: &OriginDaemon) -> ReplicaDaemon {
        self.replica_of(origin, &self.addresses.join(",")).await
    }

    /// A replica that knows these addresses.
    pub(super) async fn replica_of(&self, origin: &OriginDaemon, address: &str) -> ReplicaDaemon {
        let valid = Duration::from_secs(60);
        let ticket = origin.handle().ticket("paris", address, valid);
        let folder = self.folder.path().join("replica");
        join(&folder, ticket.expect("written"), &self.clock).await.expect("a new ticket");
        let options = ReplicaOptions::new(folder);
        ReplicaDaemon::start(options, Arc::clone(&self.clock), |_| {}).expect("a replica")
    }

    /// A further replica that knows all origins, with these bounds.
    pub(super) async fn reader(
        &self,
        origin: &OriginDaemon,
        staleness: Staleness,
    ) -> ReplicaDaemon {
        let valid = Duration::from_secs(60);
        let ticket = origin.handle().ticket("reader", &self.addresses.join(","), valid);
        let folder = self.folder.path().join("reader");
        join(&folder, ticket.expect("written"), &self.clock).await.expect("a new ticket");
        let mut options = ReplicaOptions::new(folder);
        options.config.staleness = staleness;
        ReplicaDaemon::start(options, Arc::clone(&self.clock), |_| {}).expect("a replica")
    }

    async fn error(&self, options: OriginOptions) -> String {
        match self.start(options).await {
            Ok(_) => panic!("it starts"),
            Err(error) => error.to_string(),
        }
    }
}

/// Remembers that an origin stands by.
fn record_event(told: &Mutex<Vec<String>>, event: &OriginEvent) {
    if let OriginEvent::Log(LogEvent::Standby(_)) = event {
        told.lock().expect("no panic").push("standby".to_owned());
    }
}

pub(super) async fn write(
    origin: &OriginDaemon,
    name: &str,
    bytes: &[u8],
) -> Result<Sequence, String> {
    let handle = origin.handle();
    let mut stager = handle.bodies().stage();
    stager.write(bytes).expect("a disk").expect("room");
    let put = Put::Body(stager.finish().expect("a disk").expect("room"), Metadata::default());
    let changes = [(path(name), put)].into();
    handle.write(Transaction { changes }).await.map_err(|error| error.to_string())
}

/// Reads a file in this state or a later one, as a session that has seen it does.
pub(super) async fn read(replica: &ReplicaDaemon, after: Sequence, name: &str) -> Option<Vec<u8>> {
    let reading = replica.handle().object(&path(name), after, Some(LIMIT)).await;
    let (_, found) = reading.expect("an answer");
    let found = found?;
    let size = found.version.content.size.0 as usize;
    let mut bytes = Vec::new();
    for number in 0.. {
        if bytes.len() == size {
            break;
        }
        bytes.extend(found.piece(number).await.expect("a disk").expect("a piece"));
    }
    Some(bytes)
}

#[test]
fn standby_takes_over_and_has_all_acknowledged_writes() {
    needs!(lull_testing::command("nats-server"));
    runtime().block_on(async {
        let servers = NatsServers::single();
        let nodes = Nodes::new(&servers, 2);
        let first = nodes.run(0).await;
        let replica = nodes.replica(&first).await;
        write(&first, "before", &body(1, 9_000)).await.expect("written");
        nodes.copy_identity(1);
        let second = tokio::spawn(nodes.begin(1));
        nodes.until_standby().await;
        let mut last = Sequence::ZERO;
        // The first message after the standby's tells it that the writer knows it.
        for number in 0..20 {
            last = write(&first, &number.to_string(), &body(number, 700)).await.expect("written");
        }
        let token_key = first.handle().tokens();
        let status = first.handle().status().log.expect("a log");
        assert_eq!(
            (status.writer, status.standbys),
            (nodes.addresses[0].clone(), vec![nodes.addresses[1].clone()])
        );
        assert_eq!(read(&replica, last, "19").await, Some(body(19, 700)));
        // As if it was killed.
        drop(first);
        let begun = Instant::now();
        let second = second.await.expect("no panic").expect("an origin");
        let took = begun.elapsed();
        assert!(
            took < lull_testing::bound(Duration::from_secs(30), Duration::from_secs(10)),
            "{took:?}"
        );
        assert_eq!(state_of(&second), last);
        let token = token_key.issue(last);
        assert_eq!(second.handle().tokens().verify(&token).ok(), Some(last));
        let next = write(&second, "after", &body(2, 9_000)).await.expect("written");
        assert_eq!(next, last.next());
        for (name, bytes) in
            [("after", body(2, 9_000)), ("19", body(19, 700)), ("before", body(1, 9_000))]
        {
            assert_eq!(read(&replica, next, name).await, Some(bytes), "{name}");
        }
        // The first stands by now, and takes over in its turn.
        nodes.told.lock().expect("no panic").clear();
        second.stop().await.expect("it was well");
        let first = nodes.start(OriginOptions { take_over: true, ..nodes.options(0) }).await;
        let first = first.expect("an origin");
        assert_eq!(state_of(&first), next);
        first.stop().await.expect("it was well");
        replica.stop().await.expect("it was well");
    });
}

/// A standby that announces itself may find a message of the writer instead, and must apply it.
#[test]
fn standby_joins_while_the_writer_writes() {
    needs!(lull_testing::command("nats-server"));
    const JOINS: usize = 8;
    runtime().block_on(async {
        let servers = NatsServers::single();
        let nodes = Nodes::new(&servers, 2);
        let first = nodes.run(0).await;
        write(&first, "first", b"1").await.expect("written");
        nodes.copy_identity(1);
        let writing = async {
            for number in 0u64.. {
                write(&first, &(number % 50).to_string(), &number.to_le_bytes())
                    .await
                    .expect("written");
            }
        };
        let joining = async {
            let mut joins = 0;
            while joins < JOINS {
                nodes.told.lock().expect("no panic").clear();
                let second = nodes.begin(1);
                tokio::pin!(second);
                let known = async {
                    nodes.until_standby().await;
                    // Some more messages after the announcement.
                    tokio::time::sleep(Duration::from_millis(300)).await;
                };
                tokio::select! {
                    () = known => joins += 1,
                    ended = &mut second => match ended {
                        // The one before is still closing it.
                        Err(DaemonError::Store(StoreError::InUse)) => {
                            tokio::time::sleep(Duration::from_millis(50)).await;
                        }
                        ended => panic!("it stands by no longer: {:?}", ended.err()),
                    },
                }
            }
        };
        tokio::select! {
            () = joining => {}
            () = writing => {}
        }
        let last = state_of(&first);
        first.stop().await.expect("it was well");
        let options = OriginOptions { take_over: true, ..nodes.options(1) };
        let second = patient_start(&nodes, options).await;
        assert!(state_of(&second) >= last);
        second.stop().await.expect("it was well");
    });
}

/// Starts an origin whose folder an ended one may still be closing.
async fn patient_start(nodes: &Nodes, options: OriginOptions) -> OriginDaemon {
    let begun = Instant::now();
    loop {
        let again = OriginOptions {
            log: options.log.clone(),
            take_over: options.take_over,
            ..OriginOptions::new(options.folder.clone(), options.listen.clone())
        };
        match nodes.start(again).await {
            Ok(origin) => return origin,
            Err(error) => assert!(begun.elapsed() < LIMIT, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[test]
fn forced_second_writer_ends_the_first() {
    needs!(lull_testing::command("nats-server"));
    runtime().block_on(async {
        let servers = NatsServers::single();
        let nodes = Nodes::new(&servers, 2);
        let first = nodes.run(0).await;
        let before = write(&first, "a", b"1").await.expect("written");
        nodes.copy_identity(1);
        let second = nodes.start(OriginOptions { take_over: true, ..nodes.options(1) }).await;
        let second = second.expect("an origin");
        let refused = write(&first, "b", b"2").await;
        first.failed().await;
        let error = first.stop().await.expect_err("another origin writes").to_string();
        assert!(error.contains("has taken over the log"), "{error}");
        assert!(refused.is_err(), "{refused:?}");
        assert_eq!(state_of(&second), before);
        assert_eq!(write(&second, "b", b"3").await.expect("written"), before.next());
        second.stop().await.expect("it was well");
    });
}

#[test]
fn deleted_or_truncated_log_is_refused() {
    needs!(lull_testing::command("nats-server"));
    runtime().block_on(async {
        let servers = NatsServers::single();
        let nodes = Nodes::new(&servers, 1);
        let origin = nodes.run(0).await;
        for number in 0..5 {
            write(&origin, &number.to_string(), b"1").await.expect("written");
        }
        // While it runs.
        servers.request(0, "$JS.API.STREAM.DELETE.pages", "");
        let refused = write(&origin, "b", b"2").await;
        assert!(refused.is_err(), "{refused:?}");
        let error = origin.stop().await.expect_err("no log").to_string();
        assert!(error.contains("was deleted") && error.contains("set --log"), "{error}");
        // And at the next start.
        let error = nodes.error(nodes.options(0)).await;
        assert!(error.contains("was deleted") && error.contains("set --log"), "{error}");
        // A new stream gets the state of the folder.
        let log = format!("{}/pages2", servers.url()).parse().ok();
        let options = OriginOptions { log: log.clone(), ..nodes.options(0) };
        let origin = nodes.start(options).await.expect("an origin");
        assert_eq!(state_of(&origin), Sequence(5));
        write(&origin, "b", b"2").await.expect("written");
        origin.stop().await.expect("it was well");
        servers.request(0, "$JS.API.STREAM.PURGE.pages2", "");
        servers.request(0, "lull.log.pages2", "hello");
        let error = nodes.error(OriginOptions { log, ..nodes.options(0) }).await;
        assert!(error.contains("something else writes"), "{error}");
    });
}

#[test]
fn origin_with_files_moves_into_a_log() {
    needs!(lull_testing::command("nats-server"));
    runtime().block_on(async {
        let servers = NatsServers::single();
        let nodes = Nodes::new(&servers, 2);
        let plain = OriginOptions { log: None, ..nodes.options(0) };
        let origin = nodes.start(plain).await.expect("an origin");
        for number in 0..30 {
            write(&origin, &format!("folder/{number}"), &body(number, 12_000))
                .await
                .expect("written");
        }
        origin.stop().await.expect("it was well");
        // The folder was copied before it had a log: there is no key for the identity in the log.
        nodes.copy_identity(1);
        let error = nodes.error(nodes.options(1)).await;
        assert!(error.contains("copy it again"), "{error}");
        let origin = nodes.run(0).await;
        let last = write(&origin, "new", b"1").await.expect("written");
        origin.stop().await.expect("it was well");
        nodes.copy_identity(1);
        let options = OriginOptions { take_over: true, ..nodes.options(1) };
        let other = nodes.start(options).await.expect("an origin");
        assert_eq!(state_of(&other), last);
        let replica = nodes.replica(&other).await;
        assert_eq!(read(&replica, last, "folder/7").await, Some(body(7, 12_000)));
        other.stop().await.expect("it was well");
        // Another origin in the same log.
        create_origin(&nodes.path(7), nodes.clock.read().wall).expect("a new origin");
        let log = Some(nodes.log.clone());
        let options = OriginOptions { log, ..OriginOptions::new(nodes.path(7), "127.0.0.1:0") };
        let error = nodes.error(options).await;
        assert!(error.contains("name another stream"), "{error}");
    });
}

#[test]
fn writes_wait_while_the_log_is_away_and_reads_go_on() {
    needs!(lull_testing::command("nats-server"));
    runtime().block_on(async {
        let mut servers = NatsServers::single();
        let nodes = Nodes::new(&servers, 1);
        let origin = nodes.run(0).await;
        let replica = nodes.replica(&origin).await;
        let last = write(&origin, "a", &body(1, 700)).await.expect("written");
        assert_eq!(read(&replica, last, "a").await, Some(body(1, 700)));
        servers.kill(0);
        let mut writing = Box::pin(write(&origin, "b", b"2"));
        assert!(tokio::time::timeout(Duration::from_secs(2), &mut writing).await.is_err());
        assert_eq!(read(&replica, last, "a").await, Some(body(1, 700)));
        servers.restart(0);
        let next = (&mut writing).await.expect("written");
        drop(writing);
        assert_eq!(next, last.next());
        assert_eq!(read(&replica, next, "b").await, Some(b"2".to_vec()));
        origin.stop().await.expect("it was well");
    });
}

/// The error of an origin whose log is on this server, which must not be waited for.
fn unusable(servers: &NatsServers, tls: bool) -> String {
    runtime().block_on(async {
        let mut nodes = Nodes::new(servers, 1);
        if tls {
            let log = nodes.log.to_string().replace("nats://", "tls://");
            nodes.log = log.parse().expect("an address");
        }
        let error = nodes.error(nodes.options(0)).await;
        assert!(!error.contains('\n') && error.contains("/pages cannot be used: "), "{error}");
        error
    })
}

#[test]
fn user_that_the_log_rejects_is_an_error() {
    needs!(lull_testing::command("nats-server"));
    let servers = NatsServers::single_with("authorization { user: u, password: p }");
    let error = unusable(&servers, false);
    assert!(error.contains("reject the user: set NATS_USER"), "{error}");
}

#[test]
fn log_without_jetstream_is_an_error() {
    needs!(lull_testing::command("nats-server"));
    let error = unusable(&NatsServers::without_jetstream(), false);
    assert!(error.contains("without JetStream: add `jetstream {"), "{error}");
}

#[test]
fn untrusted_certificate_of_the_log_is_an_error() {
    needs!(lull_testing::command("nats-server"));
    let names = ["127.0.0.1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: String| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("a disk");
        path.display().to_string()
    };
    let certificate = write("certificate.pem", made.cert.pem());
    let key = write("key.pem", made.signing_key.serialize_pem());
    let lines = format!("tls {{ cert_file: \"{certificate}\", key_file: \"{key}\" }}");
    let servers = NatsServers::single_with(&lines);
    // A server that needs TLS says so.
    for tls in [true, false] {
        let error = unusable(&servers, tls);
        assert!(error.contains("TLS fails (invalid peer certificate"), "{error}");
        assert!(error.contains("set NATS_CA"), "{error}");
    }
}

#[test]
fn log_without_tls_at_a_tls_address_is_an_error() {
    needs!(lull_testing::command("nats-server"));
    let error = unusable(&NatsServers::single(), true);
    assert!(error.contains("TLS fails (") && error.contains("write nats://"), "{error}");
}

pub(super) fn state_of(origin: &OriginDaemon) -> Sequence {
    origin.handle().last()
}
