//! Replicas that exchange the pieces of long bodies.

use std::fs;
use std::path::Path as FilePath;

use lull_replication::subscription::{Pattern, Subscription};
use lull_replication::types::{Digest, Sequence};
use lull_replication_daemon::daemon::{RelayOptions, ReplicaDaemon, ReplicaOptions, ShareOptions};

use super::relays::{Gate, Node, gate};
use super::site::{Site, full_speed, patient, runtime};
use super::versions::noise;

const SIZE: usize = 12_000_000;

fn sharing(options: ReplicaOptions) -> ReplicaOptions {
    let (listen, background) = ("127.0.0.1:0".to_owned(), full_speed());
    ReplicaOptions { share: Some(ShareOptions { listen, background }), ..options }
}

async fn know_each_other(nodes: &[&Node]) {
    let all = nodes.len() as u64 - 1;
    let knows = |node: &&Node| node.daemon.handle().status().neighbours == Some(all);
    patient("the neighbours", || nodes.iter().all(knows)).await;
}

async fn replicas(site: &Site, names: &[&str]) -> Vec<Node> {
    let mut nodes = Vec::new();
    for name in names {
        nodes.push(Node::start(site, name, sharing).await.0);
    }
    know_each_other(&nodes.iter().collect::<Vec<_>>()).await;
    nodes
}

/// Publishes a body as the file `large`.
async fn write(site: &Site, bytes: &[u8]) -> Sequence {
    let files = [("large", Some(bytes))];
    site.origin().write(site.transaction(&files)).await.expect("written")
}

async fn reach(site: &Site, names: &[&str], at: Sequence) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let reached = tokio::time::timeout(super::site::LIMIT, site.origin().wait_for(&names, at));
    reached.await.expect("in time").expect("they are known");
}

/// The bytes that have left the origin, in copies of the body.
fn copies(site: &Site, size: usize) -> f64 {
    let status = site.origin().status();
    let sent = |one: &lull_replication_daemon::daemon::PeerStatus| {
        one.control_bytes + one.demand_bytes + one.speculative_bytes
    };
    status.replicas.iter().map(sent).sum::<u64>() as f64 / size as f64
}

fn from_neighbours(node: &Node) -> u64 {
    node.daemon.handle().status().neighbour_bytes.expect("it shares")
}

async fn assert_has(node: &Node, at: Sequence, bytes: &[u8]) {
    let read = node.read(at).await;
    assert_eq!(Digest::of(&read), Digest::of(bytes));
}

#[test]
fn three_replicas_cost_the_origin_about_one_copy() {
    runtime().block_on(async {
        let names = ["a", "b", "c"];
        let site = Site::new(0).await;
        let nodes = replicas(&site, &names).await;
        let body = noise(1, SIZE);
        let at = write(&site, &body).await;
        reach(&site, &names, at).await;
        for node in &nodes {
            assert_has(node, at, &body).await;
        }
        let copies = copies(&site, SIZE);
        let given: u64 = nodes.iter().map(from_neighbours).sum();
        println!("{copies:.3} copies from the origin, {given} bytes from neighbours");
        assert!((1.0..1.3).contains(&copies), "{copies} copies");
        assert!((1.7..2.01).contains(&(given as f64 / SIZE as f64)), "{given} bytes");
        for node in &nodes {
            assert!(!node.was_told("neighbour 1"), "nothing went wrong");
            assert_eq!(node.daemon.handle().status().demands, 0);
        }
    });
}

#[test]
fn replicas_without_sharing_get_all_from_the_origin() {
    runtime().block_on(async {
        let mut site = Site::new(3).await;
        let body = noise(1, SIZE / 2);
        let at = site.write(&[("large", Some(&body))]).await;
        site.reach(at).await;
        let copies = copies(&site, body.len());
        assert!((3.0..3.1).contains(&copies), "{copies} copies");
        for number in 0..3 {
            let status = site.replica(number).status();
            assert_eq!((status.neighbours, status.neighbour_bytes), (None, None));
        }
        site.stop().await;
    });
}

/// One replica gets the half of its part of the body, and no more.
async fn with_a_held_one(site: &Site) -> (Vec<Node>, Node, tokio::sync::watch::Sender<Gate>) {
    let (origin, gate) = gate(site.ticket("unused").address).await;
    let behind = |options| sharing(ReplicaOptions { origin: Some(origin), ..options });
    let held = Node::start(site, "held", behind).await.0;
    let mut nodes = Vec::new();
    for name in ["a", "b"] {
        nodes.push(Node::start(site, name, sharing).await.0);
    }
    know_each_other(&[&nodes[0], &nodes[1], &held]).await;
    (nodes, held, gate)
}

/// So long that the part of each is more than the gate lets pass.
const LONG: usize = 18_000_000;

#[test]
fn neighbour_killed_halfway_is_replaced() {
    runtime().block_on(async {
        let site = Site::new(0).await;
        let (nodes, held, gate) = with_a_held_one(&site).await;
        let body = noise(2, LONG);
        let at = write(&site, &body).await;
        let has_begun = |node: &Node| from_neighbours(node) > LONG as u64 / 3;
        patient("the first pieces", || nodes.iter().all(has_begun)).await;
        // Without a goodbye.
        let folder = site.folder().join("held");
        drop(held);
        reach(&site, &["a", "b"], at).await;
        for node in &nodes {
            assert_has(node, at, &body).await;
        }
        let before = copies(&site, LONG);
        println!("{before:.3} copies from the origin");
        assert!(before < 1.4, "{before} copies");
        // It starts again, and continues behind its first pieces.
        gate.send_replace(Gate::Open);
        let options = sharing(ReplicaOptions::new(&folder));
        let again = ReplicaDaemon::start(options, site.clock(), |_| {}).expect("it starts");
        let has_all = || again.handle().status().valid_bytes == LONG as u64;
        patient("the rest", has_all).await;
        let status = again.handle().status();
        assert!(status.neighbour_bytes > Some(LONG as u64 / 4), "{status:?}");
    });
}

#[test]
fn silent_neighbour_is_replaced() {
    runtime().block_on(async {
        let site = Site::new(0).await;
        let (nodes, held, gate) = with_a_held_one(&site).await;
        let body = noise(3, LONG);
        let at = write(&site, &body).await;
        reach(&site, &["a", "b"], at).await;
        for node in &nodes {
            assert_has(node, at, &body).await;
        }
        // The other one may take its place at once, and ask it for nothing any more.
        let told = |text| nodes.iter().any(|node| node.was_told(text));
        assert!(told("gives no more pieces of `large`") && told("slow or silent"));
        assert_eq!(held.daemon.handle().status().valid_bytes, 0);
        gate.send_replace(Gate::Open);
        reach(&site, &["held"], at).await;
        assert_has(&held, at, &body).await;
        let copies = copies(&site, LONG);
        println!("{copies:.3} copies from the origin");
        assert!(copies < 1.7, "{copies} copies");
    });
}

/// Changes a byte of each piece of the large bodies below a folder. Returns how many there are.
fn corrupt(folder: &FilePath) -> usize {
    let mut corrupted = 0;
    for entry in fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry");
        if entry.file_type().expect("a type").is_dir() {
            corrupted += corrupt(&entry.path());
        } else if entry.metadata().expect("a file").len() == SIZE as u64 {
            let mut bytes = fs::read(entry.path()).expect("a file");
            bytes.iter_mut().step_by(1_000).for_each(|byte| *byte ^= 1);
            fs::write(entry.path(), bytes).expect("written");
            corrupted += 1;
        }
    }
    corrupted
}

/// The neighbour has the body under another name, and its disk has changed it since.
#[test]
fn neighbour_with_wrong_bytes_is_named_and_not_used() {
    runtime().block_on(async {
        let site = Site::new(0).await;
        let only = |pattern: &str| {
            let pattern = Pattern::new(pattern.as_bytes()).expect("a pattern");
            Subscription::new(vec![pattern]).expect("one")
        };
        let of = |pattern: &'static str| {
            move |options| sharing(ReplicaOptions { only: only(pattern), ..options })
        };
        let bad = Node::start(&site, "bad", of("old/**")).await.0;
        let good = [
            Node::start(&site, "a", of("large")).await.0,
            Node::start(&site, "b", of("large")).await.0,
        ];
        know_each_other(&[&bad, &good[0], &good[1]]).await;
        let body = noise(4, SIZE);
        let files = [("old/one", Some(&body[..]))];
        let at = site.origin().write(site.transaction(&files)).await.expect("written");
        reach(&site, &["bad"], at).await;
        assert_eq!(corrupt(&site.folder().join("bad")), 1);
        let before = copies(&site, SIZE);
        let at = write(&site, &body).await;
        reach(&site, &["a", "b"], at).await;
        for node in &good {
            assert_has(node, at, &body).await;
            assert!(node.was_told("has sent a wrong piece of `large`"));
            assert!(node.was_told("until this replica starts again"));
            let status = node.daemon.handle().status();
            assert_eq!((status.neighbours, status.demands), (Some(1), 0));
        }
        let cost = copies(&site, SIZE) - before;
        println!("{cost:.3} copies from the origin");
        assert!(cost < 1.3, "{cost} copies");
    });
}

#[test]
fn children_of_a_relay_exchange_pieces() {
    runtime().block_on(async {
        let site = Site::new(0).await;
        let relay = |options| {
            let (listen, background) = ("127.0.0.1:0".to_owned(), full_speed());
            ReplicaOptions { relay: Some(RelayOptions { listen, background }), ..options }
        };
        let (relay, address) = Node::start(&site, "relay", relay).await;
        let below = |options| sharing(ReplicaOptions { via: vec![address.clone()], ..options });
        let mut nodes = Vec::new();
        for name in ["a", "b", "c"] {
            nodes.push(Node::start(&site, name, below).await.0);
        }
        know_each_other(&nodes.iter().collect::<Vec<_>>()).await;
        let body = noise(5, SIZE);
        let at = write(&site, &body).await;
        reach(&site, &["relay", "a", "b", "c"], at).await;
        for node in nodes.iter().chain([&relay]) {
            assert_has(node, at, &body).await;
        }
        let from_relay: u64 = nodes.iter().map(Node::received).sum();
        println!("{from_relay} bytes from the relay");
        assert!(from_relay < SIZE as u64 * 13 / 10, "{from_relay} bytes");
    });
}

/// The first body makes most of the second one, so too little has to come.
#[test]
fn new_version_with_few_changes_comes_from_the_origin() {
    runtime().block_on(async {
        let names = ["a", "b"];
        let site = Site::new(0).await;
        let nodes = replicas(&site, &names).await;
        let old = noise(6, SIZE);
        let at = write(&site, &old).await;
        reach(&site, &names, at).await;
        let before: Vec<u64> = nodes.iter().map(from_neighbours).collect();
        let new = super::versions::changed(&old);
        let at = write(&site, &new).await;
        reach(&site, &names, at).await;
        for (node, before) in nodes.iter().zip(before) {
            assert_has(node, at, &new).await;
            assert_eq!(from_neighbours(node), before);
        }
    });
}
