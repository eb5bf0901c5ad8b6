//! Relays that pass bodies on while they receive them, over real connections.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lull_replication::types::Sequence;
use lull_replication_daemon::daemon::{
    RelayOptions, ReplicaDaemon, ReplicaEvent, ReplicaOptions, join,
};
use lull_replication_daemon::identity::TicketKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{oneshot, watch};

use super::site::{Site, body, full_speed, path, patient, runtime};
use super::versions::{changed, noise};

const LIMIT: Option<Duration> = Some(Duration::from_secs(120));
/// A body that takes many pieces.
const LARGE: usize = 8_000_000;
/// The gate holds a connection that has carried this much of it.
const HELD_AT: usize = LARGE / 2;
/// The receive buffer of the gate. One that grows by itself takes the rest of the body if the gate is slow to read.
const GATE_BUFFER: u32 = 64 * 1024;

/// What happens to connections that have carried much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// They wait.
    Holds,
    /// They end.
    Cuts,
    Open,
}

/// Passes connections on to an address, through a gate. Returns its own address.
pub(super) async fn gate(to: String) -> (String, watch::Sender<Gate>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("it is bound").to_string();
    let (sender, gate) = watch::channel(Gate::Holds);
    let to = to.parse().expect("an address");
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpSocket::new_v4().expect("a socket");
            server.set_recv_buffer_size(GATE_BUFFER).expect("a smaller buffer");
            let Ok(server) = server.connect(to).await else { continue };
            tokio::spawn(pass(client, server, gate.clone()));
        }
    });
    (address, sender)
}

async fn pass(client: TcpStream, server: TcpStream, mut gate: watch::Receiver<Gate>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let down = async move {
        let (mut bytes, mut carried) = (vec![0; 64 * 1024], 0);
        while let Ok(count @ 1..) = from_server.read(&mut bytes).await {
            carried += count;
            if to_client.write_all(&bytes[..count]).await.is_err() {
                return;
            }
            if carried >= HELD_AT {
                let state = gate.wait_for(|gate| *gate != Gate::Holds).await;
                if state.is_ok_and(|gate| *gate == Gate::Cuts) {
                    return;
                }
            }
        }
    };
    tokio::select! {
        () = down => {}
        _ = copy(&mut from_client, &mut to_server) => {}
    }
}

/// A replica and its events.
pub(super) struct Node {
    pub(super) daemon: ReplicaDaemon,
    told: Arc<Mutex<Vec<String>>>,
}

impl Node {
    /// Joins and starts. A relay returns the address where it listens.
    pub(super) async fn start(
        site: &Site,
        name: &str,
        options: impl FnOnce(ReplicaOptions) -> ReplicaOptions,
    ) -> (Self, String) {
        let folder = site.folder().join(name);
        let address = site.ticket("unused").address;
        let valid = Duration::from_secs(60);
        let ticket = site.origin().ticket_for(TicketKind::Relay, name, &address, valid);
        let ticket = ticket.expect("a ticket");
        join(&folder, ticket, &site.clock()).await.expect("a new ticket");
        let (told, (listens, listening)) =
            (Arc::<Mutex<Vec<String>>>::default(), oneshot::channel());
        let (events, listens) = (Arc::clone(&told), Mutex::new(Some(listens)));
        let on_event = move |event: ReplicaEvent| {
            if let ReplicaEvent::Relaying(address) = &event
                && let Some(listens) = listens.lock().expect("no panic").take()
            {
                let _ = listens.send(address.to_string());
            }
            events.lock().expect("no panic").push(event.to_string());
        };
        let options = options(ReplicaOptions::new(&folder));
        let is_relay = options.relay.is_some();
        let daemon = ReplicaDaemon::start(options, site.clock(), on_event).expect("it starts");
        let address = if is_relay { listening.await.expect("it listens") } else { String::new() };
        (Node { daemon, told }, address)
    }

    pub(super) fn was_told(&self, text: &str) -> bool {
        self.told.lock().expect("no panic").iter().any(|event| event.contains(text))
    }

    /// Bytes of bodies that have come in the background.
    pub(super) fn received(&self) -> u64 {
        self.daemon.handle().status().speculative_bytes
    }

    pub(super) async fn read(&self, at: Sequence) -> Vec<u8> {
        let handle = self.daemon.handle();
        let (_, found) = handle.object(&path("large"), at, LIMIT).await.expect("an answer");
        let found = found.expect("it is there");
        let (mut bytes, size) = (Vec::new(), found.version.content.size.0 as usize);
        for number in 0.. {
            if bytes.len() == size {
                break;
            }
            bytes.extend(found.piece(number).await.expect("a disk").expect("a piece"));
        }
        bytes
    }
}

/// An origin behind a gate, a relay, a relay below it, and a replica below that.
async fn three_levels(site: &Site) -> ([Node; 3], watch::Sender<Gate>) {
    let relay = || {
        let (listen, background) = ("127.0.0.1:0".to_owned(), full_speed());
        Some(RelayOptions { listen, background })
    };
    let (origin, gate) = gate(site.ticket("unused").address).await;
    let of = |options| ReplicaOptions { origin: Some(origin), relay: relay(), ..options };
    let (upper, address) = Node::start(site, "upper", of).await;
    let of = |options| ReplicaOptions { via: vec![address], relay: relay(), ..options };
    let (lower, address) = Node::start(site, "lower", of).await;
    let of = |options| ReplicaOptions { via: vec![address], ..options };
    let (leaf, _) = Node::start(site, "leaf", of).await;
    patient("the connections", || leaf.daemon.handle().status().connected).await;
    ([upper, lower, leaf], gate)
}

/// Publishes a body as the file `large`.
async fn write(site: &Site, bytes: &[u8]) -> Sequence {
    let files = [("large", Some(bytes))];
    site.origin().write(site.transaction(&files)).await.expect("written")
}

/// All three levels get the body.
async fn assert_arrives(site: &Site, leaf: &Node, at: Sequence, bytes: &[u8]) {
    let names = ["upper", "lower", "leaf"].map(str::to_owned);
    site.origin().wait_for(&names, at).await.expect("they are known");
    assert!(leaf.read(at).await == bytes);
}

#[test]
fn bodies_are_passed_on_before_they_are_complete() {
    runtime().block_on(async {
        let site = Site::new(0).await;
        let ([upper, lower, leaf], gate) = three_levels(&site).await;
        let large = body(1, LARGE);
        let at = write(&site, &large).await;
        // The last bytes have not reached the first relay, and the leaf has the first ones.
        patient("the first pieces", || leaf.received() > LARGE as u64 / 4).await;
        for node in [&upper, &lower, &leaf] {
            let status = node.daemon.handle().status();
            assert!(status.speculative_bytes < LARGE as u64, "{status:?}");
            assert_eq!(status.valid_bytes, 0);
        }
        gate.send_replace(Gate::Open);
        assert_arrives(&site, &leaf, at, &large).await;
        let status = site.origin().status();
        assert_eq!((status.pushed, status.demands), (1, 0));
        for node in [&upper, &lower, &leaf] {
            assert!(!node.was_told("cut off"));
            assert_eq!(node.received(), LARGE as u64, "each byte came once");
        }
    });
}

#[test]
fn body_cut_off_at_the_relay_is_cut_off_below() {
    runtime().block_on(async {
        let site = Site::new(0).await;
        let ([upper, lower, leaf], gate) = three_levels(&site).await;
        let large = body(1, LARGE);
        let at = write(&site, &large).await;
        patient("the first pieces", || leaf.received() > LARGE as u64 / 4).await;
        gate.send_replace(Gate::Cuts);
        patient("the end", || upper.was_told("`large` was cut off")).await;
        gate.send_replace(Gate::Open);
        assert_arrives(&site, &leaf, at, &large).await;
        drop(lower);
    });
}

/// The connections of the replicas below stay.
#[test]
fn overwritten_body_is_cut_off_at_all_levels() {
    runtime().block_on(async {
        let site = Site::new(0).await;
        let ([upper, lower, leaf], gate) = three_levels(&site).await;
        let (old, new) = (body(1, LARGE), body(2, LARGE / 4));
        let files = [("large", Some(&old[..]))];
        site.origin().write(site.transaction(&files)).await.expect("written");
        patient("the first pieces", || leaf.received() > LARGE as u64 / 4).await;
        let files = [("large", Some(&new[..]))];
        let at = site.origin().write(site.transaction(&files)).await.expect("written");
        gate.send_replace(Gate::Open);
        let names = ["upper", "lower", "leaf"].map(str::to_owned);
        site.origin().wait_for(&names, at).await.expect("they are known");
        assert!(leaf.read(at).await == new);
        for node in [&upper, &lower, &leaf] {
            assert!(!node.was_told("no connection"), "{:?}", node.told);
            assert!(node.received() < (LARGE + new.len()) as u64, "the rest did not come");
        }
    });
}

/// Each level has the old version, and asks the one above for the chunks of the new one before that has all of it.
#[test]
fn new_version_costs_its_changed_chunks_at_each_level() {
    runtime().block_on(async {
        let site = Site::new(0).await;
        let ([upper, lower, leaf], gate) = three_levels(&site).await;
        gate.send_replace(Gate::Open);
        let old = noise(1, 4 * LARGE);
        let at = write(&site, &old).await;
        assert_arrives(&site, &leaf, at, &old).await;
        let before = [&upper, &lower, &leaf].map(Node::received);
        let new = changed(&old);
        let at = write(&site, &new).await;
        assert_arrives(&site, &leaf, at, &new).await;
        for (node, before) in [&upper, &lower, &leaf].into_iter().zip(before) {
            let cost = node.received() - before;
            assert!(cost < new.len() as u64 / 20, "{cost} bytes of {}", new.len());
            assert!(!node.was_told("cut off"), "{:?}", node.told);
        }
    });
}
