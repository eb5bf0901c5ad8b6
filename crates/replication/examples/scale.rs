//! What an origin of many objects and replicas takes: `cargo run --release -p lull-replication-daemon
//! --example scale -- OBJECTS REPLICAS`. Disk and network are infinitely fast; bodies are off.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use lull_cc::Bytes;
use lull_replication::message::{Frame, PROTOCOL, Session, ToOrigin};
use lull_replication::origin::{
    Config, Effect, Image, Origin, Put, ReadsPerWriteAndByte, Transaction, TransactionId,
};
use lull_replication::subscription::Subscription;
use lull_replication::time::Reading;
use lull_replication::types::{Digest, Incarnation, Metadata, Payload, ReplicaId, Sequence};
use lull_replication::{BodyEffect, Path};

fn write(origin: &mut Origin<()>, number: u64, object: u64) {
    let now = Reading::default();
    let path = Path::new(&format!("site/{}/page-{object}.html", object % 997)).expect("a path");
    let digest = Digest::of(&number.to_le_bytes());
    let payload = Payload { digest, size: Bytes(1_000 + object % 50_000), bytes: () };
    let changes = BTreeMap::from([(path, Put::Body(payload, Metadata::default()))]);
    origin.handle_transaction(now, TransactionId(number), Transaction { changes });
    while let Some(effect) = origin.poll_effect() {
        match effect {
            Effect::Body(BodyEffect::Store(payload)) => {
                origin.handle_stored(now, &payload.digest, Ok(()));
            }
            Effect::Body(BodyEffect::Drop(digest)) => origin.handle_dropped(now, &digest),
            Effect::Append(_) => origin.handle_appended(now, Ok(())),
        }
    }
    while origin.poll_event().is_some() {}
}

fn drain(origin: &mut Origin<()>, replicas: u32) -> u64 {
    let mut messages = 0;
    for replica in 0..replicas {
        while origin.poll_control(Reading::default(), ReplicaId(replica)).is_some() {
            messages += 1;
        }
    }
    messages
}

/// Objects and replicas; none if the arguments are invalid.
fn asked() -> Option<(u64, u32)> {
    let numbers = std::env::args_os().skip(1).map(|word| word.to_str()?.parse().ok());
    let (objects, replicas) = match numbers.collect::<Option<Vec<u64>>>()?[..] {
        [] => (1_000_000, 100),
        [objects] => (objects, 100),
        [objects, replicas] => (objects, replicas),
        _ => return None,
    };
    let replicas = u32::try_from(replicas).ok()?;
    (objects > 0 && replicas > 0).then_some((objects, replicas))
}

fn main() -> ExitCode {
    let Some((objects, replicas)) = asked() else {
        eprintln!("usage: scale [OBJECTS [REPLICAS]], at least one of each");
        return ExitCode::from(2);
    };
    let now = Reading::default();
    let config = Config { heartbeat: Duration::from_secs(1_000_000), ..Config::default() };
    let policy = Box::new(ReadsPerWriteAndByte);
    let mut origin = Origin::recover(now, config, policy, Image::empty([1; 32]), []);
    for replica in 0..replicas {
        let id = ReplicaId(replica);
        let session = Session { origin: Incarnation(0), replica: Incarnation(1), connection: 1 };
        let position = Some(origin.last());
        let message = ToOrigin::Hello {
            protocol: PROTOCOL,
            replica: id,
            position,
            committed: Sequence::ZERO,
            only: Subscription::default(),
        };
        origin.handle_frame(now, id, Frame { session, message });
    }
    let begun = Instant::now();
    let mut messages = 0;
    for object in 0..objects {
        write(&mut origin, object, object);
        messages += drain(&mut origin, replicas);
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!("{objects} objects, {replicas} replicas, {messages} messages in {seconds:.1} s");
    let begun = Instant::now();
    let pushed = (0..100_000).map_while(|at| origin.poll_speculative(ReplicaId(at % replicas)));
    println!("{} bodies handed out in {:.3} s", pushed.count(), begun.elapsed().as_secs_f64());
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if let Some(line) = status.lines().find(|line| line.starts_with("VmHWM")) {
        println!("{line}");
    }
    ExitCode::SUCCESS
}
