//! Admission of connections, its duration, and its cost.

mod channels;
mod demands;

use lull_replication::message::{
    Channel, Frame, FromAuthority, NotEnrolled, PROTOCOL, Session, ToAuthority, ToOrigin, ToReplica,
};
use lull_replication::origin::{Demand, Priority, Put, Strategy, Transaction};
use lull_replication::subscription::Subscription;
use lull_replication::types::{Incarnation, Metadata, Position};
use lull_replication::wire::{Attach, BodyPart, Message, OLDEST, encode};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncWrite, copy, sink, split};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::*;
use crate::daemon::clock::certificate_time;
use crate::daemon::enrol::dial;
use crate::daemon::link::{Incoming, Outgoing, soon};
use crate::daemon::{LinkError, MachineClock, ReplicaDaemon, ReplicaOptions, join};
use crate::identity::ReplicaIdentity;

struct Site {
    folder: TempDir,
    clock: Arc<dyn Clock>,
    daemon: OriginDaemon,
}

impl Site {
    async fn new() -> Self {
        Self::with(Box::new(ReadsPerWriteAndByte)).await
    }

    /// With bodies in the order of this policy.
    async fn with(policy: Box<dyn Prioritise>) -> Self {
        Self::of(|options| options.policy = policy).await
    }

    /// Of this kind.
    async fn of(change: impl FnOnce(&mut OriginOptions)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(MachineClock);
        let origin = folder.path().join("origin");
        create_origin(&origin, clock.read().wall).unwrap();
        let mut options = OriginOptions::new(origin, "127.0.0.1:0");
        change(&mut options);
        let daemon = OriginDaemon::start(options, Arc::clone(&clock), |_| {}).await.unwrap();
        Site { folder, clock, daemon }
    }

    /// The only replica of this origin joins, once more.
    async fn join(&self, folder: &str) -> ReplicaIdentity {
        self.join_as("replica", folder).await
    }

    async fn join_as(&self, name: &str, folder: &str) -> ReplicaIdentity {
        let folder = self.folder.path().join(folder);
        let (origin, address) = (self.daemon.handle(), self.daemon.address().to_string());
        let ticket = origin.ticket(name, &address, Duration::from_secs(60)).unwrap();
        join(&folder, ticket, &self.clock).await.unwrap();
        ReplicaIdentity::open(&folder).unwrap()
    }

    /// Connects without a message so far.
    async fn connect(
        &self,
        identity: &ReplicaIdentity,
        channel: Channel,
    ) -> Result<impl AsyncRead + AsyncWrite + Unpin + use<>, LinkError> {
        let how = identity.connect(certificate_time(&self.clock)).unwrap();
        dial(identity.address(), how, channel).await
    }

    /// A replica of this name joins, sends hello on its first connection, and attaches the other two. Nothing
    /// is read from the three.
    async fn attach(
        &self,
        name: &str,
        position: Option<Position>,
    ) -> (ReplicaId, Session, [impl AsyncRead + AsyncWrite + Unpin + Send + use<>; 3]) {
        let identity = self.join_as(name, name).await;
        let replica = identity.replica();
        let committed = position.map_or(Sequence::ZERO, |position| position.sequence);
        let session = Session { replica: Incarnation(1), connection: 1, ..Session::default() };
        // Of an earlier release, which gets whole bodies and says nothing about their pieces.
        let hello = ToOrigin::Hello {
            protocol: OLDEST,
            replica,
            position,
            committed,
            only: Subscription::default(),
        };
        let mut control = self.connect(&identity, Channel::Control).await.unwrap();
        say(&mut control, session, hello).await.unwrap();
        let session_of = |core: &Core| core.links.get(&replica).map(|link| link.session);
        let session = soon(async {
            loop {
                match self.daemon.handle().0.with(|core, _| session_of(core)) {
                    Some(session) => return Ok(session),
                    None => sleep(Duration::from_millis(2)).await,
                }
            }
        });
        let session = session.await.unwrap();
        let mut demand = self.connect(&identity, Channel::Demand).await.unwrap();
        say(&mut demand, session, Attach).await.unwrap();
        let mut speculative = self.connect(&identity, Channel::Speculative).await.unwrap();
        say(&mut speculative, session, Attach).await.unwrap();
        (replica, session, [control, demand, speculative])
    }

    /// The session of its connection, if it has one.
    fn session(&self) -> Option<Session> {
        self.daemon.handle().0.with(|core, _| core.links.values().next().map(|link| link.session))
    }
}

/// Says something.
async fn say(
    stream: &mut (impl AsyncWrite + Unpin),
    session: Session,
    message: impl Message,
) -> Result<(), LinkError> {
    let mut outgoing = Outgoing::new(stream);
    outgoing.put(&Frame { session, message })?;
    outgoing.flush().await.map(drop)
}

/// Sends a ping and nothing else.
async fn ping(mut stream: impl AsyncWrite + Unpin, session: Session, clock: Arc<dyn Clock>) {
    loop {
        let sent = clock.read().local;
        say(&mut stream, session, ToOrigin::Ping { sent }).await.unwrap();
        sleep(Duration::from_millis(50)).await;
    }
}

/// Reads everything, and ignores it.
async fn drain(mut stream: impl AsyncRead + Unpin) {
    let _ = copy(&mut stream, &mut sink()).await;
}

/// Sends a message; returns the first answer.
async fn ask<A: Message>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    session: Session,
    message: impl Message,
) -> Result<A, LinkError> {
    let (read, write) = split(stream);
    let mut outgoing = Outgoing::new(write);
    outgoing.put(&Frame { session, message })?;
    outgoing.flush().await?;
    let mut incoming = Incoming::new(read);
    Ok(soon(incoming.next()).await?.message)
}

/// The hello of a life.
fn hello(identity: &ReplicaIdentity, life: u64) -> (Session, ToOrigin) {
    let session = Session { origin: Incarnation(0), replica: Incarnation(life), connection: 1 };
    let replica = identity.replica();
    let committed = Sequence::ZERO;
    (
        session,
        ToOrigin::Hello {
            protocol: PROTOCOL,
            replica,
            position: None,
            committed,
            only: Subscription::default(),
        },
    )
}

fn is_closed<T>(answer: &Result<T, LinkError>) -> bool {
    matches!(answer, Err(LinkError::Closed | LinkError::Io(_)))
}

#[tokio::test(flavor = "multi_thread")]
async fn replica_revoked_before_its_hello_is_rejected() {
    let site = Site::new().await;
    let identity = site.join("one").await;
    let control = site.connect(&identity, Channel::Control).await.unwrap();
    let renewing = site.connect(&identity, Channel::Enrolment).await.unwrap();
    site.daemon.handle().revoke("replica").unwrap();
    let (session, hello) = hello(&identity, 1);
    let answer = ask::<ToReplica>(control, session, hello).await;
    assert!(is_closed(&answer), "{answer:?}");
    assert_eq!(site.session(), None);
    let question = ToAuthority::Renew(identity.renew().unwrap().request);
    let answer = ask::<FromAuthority>(renewing, Session::default(), question).await;
    let refused = Ok(FromAuthority::Refused(NotEnrolled::Revoked));
    assert_eq!(answer.map_err(|error| error.to_string()), refused);
    site.daemon.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn old_identity_is_rejected_after_joining_again() {
    let site = Site::new().await;
    let old = site.join("one").await;
    let control = site.connect(&old, Channel::Control).await.unwrap();
    let renewing = site.connect(&old, Channel::Enrolment).await.unwrap();
    let new = site.join("two").await;
    assert_eq!(new.replica(), old.replica());
    let options = ReplicaOptions::new(site.folder.path().join("two"));
    let replica = ReplicaDaemon::start(options, Arc::clone(&site.clock), |_| {}).unwrap();
    let session = soon(async {
        loop {
            match site.session() {
                Some(session) => return Ok(session),
                None => tokio::time::sleep(Duration::from_millis(2)).await,
            }
        }
    })
    .await
    .unwrap();
    // One that would end all other connections of its number.
    let (number, hello) = hello(&old, u64::MAX);
    let answer = ask::<ToReplica>(control, number, hello).await;
    assert!(is_closed(&answer), "{answer:?}");
    assert_eq!(site.session(), Some(session), "and the new one goes on");
    let question = ToAuthority::Renew(old.renew().unwrap().request);
    let answer = ask::<FromAuthority>(renewing, Session::default(), question).await;
    let refused = Ok(FromAuthority::Refused(NotEnrolled::Ticket));
    assert_eq!(answer.map_err(|error| error.to_string()), refused);
    replica.stop().await.unwrap();
    site.daemon.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_replica_blocks_no_other() {
    let site = Site::new().await;
    let identity = site.join("one").await;
    let mut open = Vec::new();
    for _ in 0..80 {
        // Closed by the origin when there are too many.
        open.extend(site.connect(&identity, Channel::Control).await.ok());
    }
    assert!((1..80).contains(&open.len()), "{} are open", open.len());
    site.join("two").await;
    site.daemon.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rejoined_replica_is_accepted_after_any_incarnation() {
    let site = Site::new().await;
    let old = site.join("one").await;
    // Of a machine with a wrong clock, or of one that is no longer used.
    let (session, first) = hello(&old, u64::MAX);
    let control = site.connect(&old, Channel::Control).await.unwrap();
    let answer = ask::<ToReplica>(control, session, first).await.unwrap();
    assert!(matches!(answer, ToReplica::Welcome { .. }), "{answer:?}");
    let new = site.join("two").await;
    let (session, second) = hello(&new, 5);
    let control = site.connect(&new, Channel::Control).await.unwrap();
    let answer = ask::<ToReplica>(control, session, second).await;
    assert!(matches!(answer, Ok(ToReplica::Welcome { .. })), "{answer:?}");
    site.daemon.stop().await.unwrap();
}

#[tokio::test]
async fn invalid_congestion_control_is_reported_at_start() {
    let folder = tempfile::tempdir().unwrap();
    let origin = folder.path().join("origin");
    create_origin(&origin, MachineClock.read().wall).unwrap();
    for name in ["", "a-name-too-long-", "a-name-that-is-far-too-long"] {
        let mut options = OriginOptions::new(&origin, "127.0.0.1:0");
        options.background = Options::new().congestion_control(name);
        let refused = OriginDaemon::start(options, Arc::new(MachineClock), |_| {}).await;
        let why = refused.unwrap_err().to_string();
        assert!(why.contains("is not the name of a congestion control"), "{name:?}: {why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replica_restored_from_a_backup_gets_that_error() {
    let site = Site::new().await;
    let identity = site.join("one").await;
    let begin = |life: u64| {
        let (session, message) = hello(&identity, life);
        let frame = Frame { session, message };
        let origin = site.daemon.handle();
        let begun = origin.0.with(|core, now| core.handle_hello(now, identity.replica(), frame));
        begun.map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(begin(7), Ok(()));
    let why = begin(6).unwrap_err();
    assert!(why.contains("restored from a backup"), "{why}");
    site.daemon.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn panicking_call_ends_the_origin() {
    let site = Site::new().await;
    let origin = site.daemon.handle();
    let shared = Arc::clone(&origin.0);
    let call = move || shared.with(|core, _| assert!(core.closed, "on purpose"));
    assert!(std::thread::spawn(call).join().is_err());
    soon(async {
        site.daemon.failed().await;
        Ok(())
    })
    .await
    .unwrap();
    let path = Path::new("a").unwrap();
    let changes = [(path, Put::Delete)].into();
    let refused = origin.write(Transaction { changes }).await;
    assert!(matches!(refused, Err(WriteError::Stopped)), "{refused:?}");
    let ended = site.daemon.stop().await;
    assert!(matches!(ended, Err(DaemonError::Panicked)), "{ended:?}");
}

#[tokio::test]
async fn interrupted_creation_of_an_origin_can_be_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let origin = folder.path().join("origin");
    let create = || create_origin(&origin, MachineClock.read().wall);
    // Before the database had its name, and before there was an identity.
    std::fs::create_dir_all(&origin).unwrap();
    std::fs::write(origin.join("state.redb.new"), "half of it").unwrap();
    create().unwrap();
    std::fs::remove_file(origin.join("identity.json")).unwrap();
    create().unwrap();
    let again = create();
    assert!(matches!(again, Err(DaemonError::Identity(IdentityError::Exists(_)))), "{again:?}");
    let options = OriginOptions::new(&origin, "127.0.0.1:0");
    let daemon = OriginDaemon::start(options, Arc::new(MachineClock), |_| {}).await.unwrap();
    daemon.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_for_an_unreachable_replica_fails_at_once() {
    let site = Site::new().await;
    let origin = site.daemon.handle();
    let wait = |name: &str| {
        let (origin, names) = (origin.clone(), [name.to_owned()]);
        async move { origin.wait_for(&names, Sequence(9)).await }
    };
    let nobody = wait("nobody").await;
    assert!(matches!(nobody, Err(DaemonError::NoReplica(_))), "{nobody:?}");
    // It has a ticket.
    origin.ticket("later", "127.0.0.1:1", Duration::from_secs(60)).unwrap();
    let later = wait("later").await;
    assert!(matches!(later, Err(DaemonError::NotJoined(_))), "{later:?}");
    site.join("one").await;
    let waiting = tokio::spawn(wait("replica"));
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!waiting.is_finished(), "it may come");
    origin.revoke("replica").unwrap();
    let revoked = soon(async { Ok(waiting.await.unwrap()) }).await.unwrap();
    assert!(matches!(revoked, Err(DaemonError::NotJoined(_))), "{revoked:?}");
    site.daemon.stop().await.unwrap();
}

/// Files of these sizes, as one transaction.
async fn write(origin: &OriginHandle, files: &[(&str, usize)]) -> Sequence {
    let change = |(name, size): &(&str, usize)| {
        let mut stager = origin.bodies().stage();
        stager.write(&vec![7; *size]).unwrap().unwrap();
        let put = Put::Body(stager.finish().unwrap().unwrap(), Metadata::default());
        (Path::new(name).unwrap(), put)
    };
    let changes = files.iter().map(change).collect();
    origin.write(Transaction { changes }).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_for_a_replica_includes_bodies() {
    let site = Site::new().await;
    let origin = site.daemon.handle();
    let names = ["replica".to_owned()];
    let begin = Some(origin.tree().position);
    let (_, session, [control, demand, speculative]) = site.attach(&names[0], begin).await;
    let (read, mut control) = split(control);
    let mut tasks = JoinSet::new();
    tasks.spawn(drain(read));
    tasks.spawn(drain(demand));
    tasks.spawn(drain(speculative));
    // It has applied this at its deadline, without bodies.
    let at = write(&origin, &[("a", 100), ("b", 50_000)]).await;
    let sent = site.clock.read().local;
    say(&mut control, session, ToOrigin::Ping { sent }).await.unwrap();
    say(&mut control, session, ToOrigin::Ack(at)).await.unwrap();
    timeout(Duration::from_secs(120), origin.wait_for_state(&names, at)).await.unwrap().unwrap();
    let waiting = (origin.clone(), names.clone());
    let waiting = tokio::spawn(async move { waiting.0.wait_for(&waiting.1, at).await });
    soon(async {
        while of(&origin, "replica").queue != Some(0) {
            sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    })
    .await
    .unwrap();
    // A transaction that wrote none of these.
    let other = write(&origin, &[("d/c", 0)]).await;
    say(&mut control, session, ToOrigin::Ack(other)).await.unwrap();
    let files = |within: &'static str| {
        let (origin, names) = (origin.clone(), names.clone());
        let within = Path::new(within).ok();
        tokio::spawn(async move { origin.wait_for_files(&names, other, within.as_ref()).await })
    };
    let (all, below) = (files(""), files("d"));
    for taken in [1, 2] {
        sleep(Duration::from_millis(50)).await;
        assert!(!waiting.is_finished() && !all.is_finished(), "{taken} is to come");
        say(&mut control, session, ToOrigin::Taken(taken)).await.unwrap();
    }
    let has_it = timeout(Duration::from_secs(120), waiting).await;
    has_it.expect("it has both").unwrap().unwrap();
    sleep(Duration::from_millis(50)).await;
    assert!(!all.is_finished() && !below.is_finished(), "of the other commit it has none");
    say(&mut control, session, ToOrigin::Taken(3)).await.unwrap();
    for waiting in [all, below] {
        let has_it = timeout(Duration::from_secs(120), waiting).await;
        has_it.expect("it has all").unwrap().unwrap();
    }
    tasks.shutdown().await;
    site.daemon.stop().await.unwrap();
}

/// The other way round than usual.
#[derive(Debug)]
struct LargestFirst;

impl Prioritise for LargestFirst {
    fn priority(&self, path: &Path, demand: Demand) -> Priority {
        Priority(u8::MAX - ReadsPerWriteAndByte.priority(path, demand).0)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_are_pushed_in_the_order_of_the_policy() {
    let policies: [(Box<dyn Prioritise>, _); 2] = [
        (Box::new(ReadsPerWriteAndByte), ["small", "middle", "large"]),
        (Box::new(LargestFirst), ["large", "middle", "small"]),
    ];
    for (policy, expected) in policies {
        let site = Site::with(policy).await;
        let files = [("large", 60_000), ("middle", 3_000), ("small", 100)];
        let at = write(&site.daemon.handle(), &files).await;
        let (_, session, [mut control, _demand, speculative]) = site.attach("replica", None).await;
        say(&mut control, session, ToOrigin::Resynced(at)).await.unwrap();
        let mut incoming = Incoming::<_, BodyPart>::new(speculative);
        let mut pushed = Vec::new();
        while pushed.len() < files.len() {
            let part = soon(incoming.next()).await.unwrap().message;
            if let BodyPart::Header(header) = part {
                pushed.push(header.path.to_string());
            }
        }
        assert_eq!(pushed, expected);
        site.daemon.stop().await.unwrap();
    }
}

/// The origin's status of a replica.
fn of(origin: &OriginHandle, name: &str) -> PeerStatus {
    origin.status().replicas.into_iter().find(|one| one.name == name).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn replica_without_acknowledgements_costs_no_memory() {
    const WRITES: u64 = 200;
    const OBJECTS: u64 = 100;
    /// The buffered bytes of one connection before it sends.
    const BATCH: u64 = 64 * 1024;
    let site = Site::new().await;
    let origin = site.daemon.handle();
    let begin = Some(origin.tree().position);
    let mut tasks = JoinSet::new();
    // This one reads nothing.
    let (deaf, session, [control, _demand, _speculative]) = site.attach("deaf", begin).await;
    let (_read, write) = split(control);
    tasks.spawn(ping(write, session, Arc::clone(&site.clock)));
    // This one reads everything.
    let (_, session, [control, demand, speculative]) = site.attach("mute", begin).await;
    let (read, write) = split(control);
    tasks.spawn(ping(write, session, Arc::clone(&site.clock)));
    tasks.spawn(drain(read));
    tasks.spawn(drain(demand));
    tasks.spawn(drain(speculative));
    // This one gets the root of a tree to compare, and never asks for a part of it.
    let (_, session, [control, _demand, _speculative]) = site.attach("slow", None).await;
    let (_read, write) = split(control);
    tasks.spawn(ping(write, session, Arc::clone(&site.clock)));
    site.join_as("honest", "honest").await;
    let mut options = ReplicaOptions::new(site.folder.path().join("honest"));
    // Otherwise it would wait for the bodies, with one sync of the disk for every few of them.
    options.config.eager = Some(true);
    let honest = ReplicaDaemon::start(options, Arc::clone(&site.clock), |_| {}).unwrap();

    // With long names, so that they do not fit into the buffers of the system.
    let folder = ["x".repeat(250), "y".repeat(250), "z".repeat(250), "u".repeat(250)].join("/");
    let mut last = Sequence::ZERO;
    for number in 0..WRITES {
        let change = |object: u64| {
            let path = Path::new(&format!("{folder}/{number}-{object}")).unwrap();
            let mut stager = origin.bodies().stage();
            stager.write(format!("{number} {object}").as_bytes()).unwrap().unwrap();
            (path, Put::Body(stager.finish().unwrap().unwrap(), Metadata::default()))
        };
        let changes = (0..OBJECTS).map(change).collect();
        last = origin.write(Transaction { changes }).await.unwrap();
    }
    let names = ["honest".to_owned()];
    let caught_up = timeout(Duration::from_secs(120), origin.wait_for_state(&names, last)).await;
    caught_up.expect("the others hold it up").unwrap();

    // The one that reads all receives everything.
    let told = timeout(Duration::from_secs(120), async {
        while of(&origin, "mute").control_bytes < WRITES * OBJECTS * 1_000 {
            sleep(Duration::from_millis(10)).await;
        }
    });
    told.await.expect("it reads");
    assert!(of(&origin, "slow").control_bytes < 4_096, "it has asked for nothing");
    for name in ["deaf", "mute", "slow"] {
        let one = of(&origin, name);
        assert_eq!((one.connected, one.sequence), (true, Some(0)), "{name}");
        // At most as many bodies are in transfer as the replica's memory may hold; other objects are one bit.
        assert!(one.speculative_bytes < 2 << 20, "{name} was sent {}", one.speculative_bytes);
        let queue = one.queue.unwrap();
        assert!(queue <= WRITES * OBJECTS, "{queue} wait for {name}");
    }
    // The origin took out of the log for the deaf one only the bytes that were sent, and one batch.
    let next = origin.0.with(|core, now| core.machine.poll_control(now, deaf)).unwrap();
    let ToReplica::Invalidation { sequence, .. } = next.message else { panic!("{next:?}") };
    let mut frame = Vec::new();
    encode(&next, &mut frame).unwrap();
    let frame = frame.len() as u64;
    let told = sequence.0 - 1;
    assert!(told < WRITES / 2, "{told} of {WRITES} are on their way to who reads none");
    let held = (told * frame).saturating_sub(of(&origin, "deaf").control_bytes);
    assert!(held <= BATCH + 2 * frame, "{held} bytes wait for who reads none");

    tasks.shutdown().await;
    honest.stop().await.unwrap();
    site.daemon.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn body_is_lost_only_if_a_second_look_fails() {
    let site = Site::new().await;
    let origin = site.daemon.handle();
    write(&origin, &[("small", 100), ("large", 200_000)]).await;
    let lost = || origin.0.with(|core, _| core.machine.lost().count());
    let content = |name: &str| {
        let name = Path::new(name).unwrap();
        origin.0.with(|core, _| core.machine.image().objects[&name].content)
    };
    // A reader did not find them: they were dropped just then, and stored again.
    for name in ["small", "large"] {
        crate::daemon::bodies::check_again(&*origin.0, &content(name)).await.unwrap();
        assert_eq!(lost(), 0, "{name}");
    }
    std::fs::remove_dir_all(site.folder.path().join("origin/bodies")).unwrap();
    crate::daemon::bodies::check_again(&*origin.0, &content("small")).await.unwrap();
    assert_eq!(lost(), 0, "it lies in the database");
    crate::daemon::bodies::check_again(&*origin.0, &content("large")).await.unwrap();
    assert_eq!(lost(), 1);
    // A lost body, or one that is no longer needed, is not looked for.
    crate::daemon::bodies::check_again(&*origin.0, &content("large")).await.unwrap();
    site.daemon.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_body_does_not_block_a_wait() {
    let site = Site::new().await;
    let origin = site.daemon.handle();
    let names = ["replica".to_owned()];
    let begin = Some(origin.tree().position);
    let (_, session, [control, _demand, _speculative]) = site.attach(&names[0], begin).await;
    let (read, mut control) = split(control);
    let mut tasks = JoinSet::new();
    tasks.spawn(drain(read));
    let at = write(&origin, &[("large", 50_000)]).await;
    say(&mut control, session, ToOrigin::Ack(at)).await.unwrap();
    let waiting = (origin.clone(), names);
    let waiting = tokio::spawn(async move { waiting.0.wait_for(&waiting.1, at).await });
    sleep(Duration::from_millis(50)).await;
    assert!(!waiting.is_finished(), "it is to come");
    let large = origin.0.with(|core, _| core.machine.image().objects[&b"large"[..]].content);
    std::fs::remove_dir_all(site.folder.path().join("origin/bodies")).unwrap();
    crate::daemon::bodies::check_again(&*origin.0, &large).await.unwrap();
    let ended = timeout(Duration::from_secs(120), waiting).await;
    ended.expect("it comes no more").unwrap().unwrap();
    tasks.shutdown().await;
    site.daemon.stop().await.unwrap();
}
