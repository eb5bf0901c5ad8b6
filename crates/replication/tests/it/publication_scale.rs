//! The cost of a publication for origin and replica by its number of files: their state machines alone,
//! without disks and networks.
//!
//! Processor time of this thread is compared between two sizes, so the speed of the machine does not matter.
//! `LULL_REPLICATE_FILES` is the larger size (16,000); the smaller one is a sixteenth of it.

use std::time::Duration;

use lull_cc::Bytes;
use lull_replication::message::{Frame, ToReplica};
use lull_replication::origin::{
    self, Origin, Put, ReadsPerWriteAndByte, Transaction, TransactionId,
};
use lull_replication::replica::{self, Replica};
use lull_replication::time::{LocalTime, Reading, WallTime};
use lull_replication::types::{Digest, Metadata, Payload, ReplicaId};
use lull_replication::{BodyEffect, Path};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};

const REPLICA: ReplicaId = ReplicaId(1);
const SIZE: Bytes = Bytes(4_096);
/// The exponent of a cost like n is 1, of one like n² 2. Trees of a million entries do not fit into a cache,
/// which is a part of the rest.
const STEEPEST: f64 = 1.5;

/// An origin and a replica whose disks and network are immediate.
struct Bench {
    origin: Origin<()>,
    replica: Replica<()>,
    micros: i64,
    /// The replica's disk does nothing for now.
    stands: bool,
    effects: Vec<replica::Effect<()>>,
    longest: Longest,
}

/// The longest call of each machine: other calls wait for it.
#[derive(Debug, Default)]
struct Longest {
    origin: (Duration, &'static str),
    replica: (Duration, &'static str),
}

impl Longest {
    fn of<T>(
        longest: &mut (Duration, &'static str),
        what: &'static str,
        call: impl FnOnce() -> T,
    ) -> T {
        let before = processor_time();
        let value = call();
        *longest = (*longest).max((processor_time() - before, what));
        value
    }
}

/// The processor time of this thread.
fn processor_time() -> Duration {
    let spent = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("the system tells");
    spent.into()
}

impl Bench {
    fn new() -> Self {
        let now = reading(0);
        let (config, policy) = (origin::Config::default(), Box::new(ReadsPerWriteAndByte));
        let image = origin::Image::empty([7; 32]);
        let origin = Origin::recover(now, config, policy, image, []);
        let replica = Self::replica(now, None);
        let mut bench = Bench {
            origin,
            replica,
            micros: 0,
            stands: false,
            effects: Vec::new(),
            longest: Longest::default(),
        };
        bench.replica.handle_connected(now);
        bench.run();
        bench
    }

    fn replica(now: Reading, quota: Option<Bytes>) -> Replica<()> {
        let config = replica::Config { replica: REPLICA, quota, ..replica::Config::default() };
        Replica::recover(now, config, replica::Image::default(), [])
    }

    /// A microsecond later.
    fn now(&mut self) -> Reading {
        self.micros += 1;
        reading(self.micros)
    }

    /// Commits this many new files, in this many transactions.
    fn publish(&mut self, files: u64, transactions: u64) {
        let each = files / transactions;
        for number in 0..transactions {
            let changes = (number * each..(number + 1) * each).map(|file| {
                let text = format!("folder-{}/file-{file}", file / 1_000);
                let path = Path::new(&text).expect("a path");
                let digest = Digest::of(text.as_bytes());
                let body = Payload { digest, size: SIZE, bytes: () };
                (path, Put::Body(body, Metadata::default()))
            });
            let changes = Transaction { changes: changes.collect() };
            let now = self.now();
            Longest::of(&mut self.longest.origin, "transaction", || {
                self.origin.handle_transaction(now, TransactionId(number), changes)
            });
            self.store();
        }
    }

    /// The origin's disk runs its jobs.
    fn store(&mut self) {
        loop {
            self.carry_out();
            if !self.origin.has_more() {
                return;
            }
            let now = self.now();
            Longest::of(&mut self.longest.origin, "work", || self.origin.go_on(now));
        }
    }

    fn carry_out(&mut self) {
        while let Some(effect) = self.origin.poll_effect() {
            let now = self.now();
            match effect {
                origin::Effect::Body(BodyEffect::Store(body)) => {
                    Longest::of(&mut self.longest.origin, "stored", || {
                        self.origin.handle_stored(now, &body.digest, Ok(()))
                    });
                }
                origin::Effect::Body(BodyEffect::Drop(digest)) => {
                    self.origin.handle_dropped(now, &digest);
                }
                origin::Effect::Append(_) => {
                    Longest::of(&mut self.longest.origin, "appended", || {
                        self.origin.handle_appended(now, Ok(()))
                    });
                }
            }
        }
        while self.origin.poll_event().is_some() {}
    }

    /// Runs until there is nothing more to do.
    fn run(&mut self) {
        loop {
            let before = self.micros;
            self.store();
            let now = reading(self.micros);
            while let Some(frame) = Longest::of(&mut self.longest.origin, "control", || {
                self.origin.poll_control(now, REPLICA)
            }) {
                let is_heartbeat = matches!(frame.message, ToReplica::Heartbeat { .. });
                Longest::of(&mut self.longest.replica, "control", || {
                    self.replica.handle_control(now, frame)
                });
                self.micros += i64::from(!is_heartbeat);
            }
            while let Some(frame) = Longest::of(&mut self.longest.origin, "speculative", || {
                self.origin.poll_speculative(REPLICA)
            }) {
                let content = frame.message.version.expect("a version is pushed").content;
                let body = Payload { digest: content.digest, size: content.size, bytes: () };
                let now = self.now();
                Longest::of(&mut self.longest.replica, "body", || {
                    self.replica.handle_body(now, frame, Some(body))
                });
            }
            self.effects.extend(core::iter::from_fn(|| self.replica.poll_effect()));
            let effects = if self.stands { Vec::new() } else { core::mem::take(&mut self.effects) };
            for effect in effects {
                let now = self.now();
                match effect {
                    replica::Effect::Body(BodyEffect::Store(body)) => {
                        Longest::of(&mut self.longest.replica, "stored", || {
                            self.replica.handle_stored(now, &body.digest, Ok(()))
                        });
                    }
                    replica::Effect::Body(BodyEffect::Drop(digest)) => {
                        self.replica.handle_dropped(&digest);
                    }
                    replica::Effect::Commit(_) => {
                        Longest::of(&mut self.longest.replica, "committed", || {
                            self.replica.handle_committed(now, Ok(()))
                        });
                    }
                }
            }
            while self.replica.poll_answer().is_some() || self.replica.poll_event().is_some() {}
            while self.replica.poll_garbage().is_some() {}
            while let Some(Frame { session, message }) = self.replica.poll_send() {
                let now = self.now();
                Longest::of(&mut self.longest.origin, "frame", || {
                    self.origin.handle_frame(now, REPLICA, Frame { session, message })
                });
            }
            if self.replica.poll_timeout().is_some_and(|at| at <= reading(self.micros).local) {
                let now = self.now();
                Longest::of(&mut self.longest.replica, "timeout", || {
                    self.replica.handle_timeout(now)
                });
            }
            if self.micros == before {
                return;
            }
        }
    }

    /// A replica without files replaces the previous one.
    fn join_again(&mut self, quota: Option<Bytes>) {
        let now = self.now();
        self.origin.handle_joined(now, REPLICA);
        self.replica = Bench::replica(now, quota);
        self.replica.handle_connected(now);
    }

    /// All files are in place.
    fn expect(&self, files: u64) {
        let stock = self.replica.stock();
        assert_eq!((stock.objects, stock.valid_objects), (files, files));
        assert_eq!(self.replica.position(), self.origin.last().sequence);
    }
}

fn reading(micros: i64) -> Reading {
    let nanos = micros * 1_000;
    Reading { local: LocalTime::from_nanos(nanos), wall: WallTime::from_nanos(nanos) }
}

/// Processor seconds of this thread for `work`.
fn seconds(work: impl FnOnce()) -> f64 {
    let spent = || {
        let usage = getrusage(UsageWho::RUSAGE_THREAD).expect("the system tells");
        (usage.user_time() + usage.system_time()).num_microseconds() as f64 / 1e6
    };
    let before = spent();
    work();
    spent() - before
}

/// The exponent of `cost` by the number of files, the least of some runs.
fn expect_linear(what: &str, cost: impl Fn(u64) -> f64) {
    const RUNS: usize = 3;
    const TIMES: u64 = 16;
    let most = std::env::var("LULL_REPLICATE_FILES").ok().and_then(|text| text.parse().ok());
    let most = most.unwrap_or(16_000);
    let least = |files| (0..RUNS).map(|_| cost(files)).fold(f64::INFINITY, f64::min);
    let (few, many) = (least(most / TIMES), least(most));
    let exponent = (many / few).ln() / (TIMES as f64).ln();
    let micros = many * 1e6 / most as f64;
    println!("{what}: {exponent:.2}, {micros:.1} µs a file of {most}");
    assert!(exponent < STEEPEST, "{what}: {few:.4} s and {many:.4} s, exponent {exponent:.2}");
}

#[test]
fn publication_costs_the_same_per_file_at_any_scale() {
    expect_linear("one commit", |files| {
        let mut bench = Bench::new();
        bench.publish(files, 1);
        let spent = seconds(|| bench.run());
        bench.expect(files);
        spent
    });
}

#[test]
fn waiting_commits_cost_the_same_each_at_any_scale() {
    expect_linear("many commits", |files| {
        let mut bench = Bench::new();
        bench.publish(files, files);
        bench.stands = true;
        let waiting = seconds(|| bench.run());
        bench.stands = false;
        let spent = seconds(|| bench.run());
        bench.expect(files);
        waiting + spent
    });
}

#[test]
fn new_replica_costs_the_same_per_file_at_any_scale() {
    expect_linear("new replica", |files| {
        let mut bench = Bench::new();
        bench.publish(files, 1);
        bench.run();
        bench.join_again(None);
        let spent = seconds(|| bench.run());
        bench.expect(files);
        spent
    });
}

/// With space for half of the bodies. Each later one may evict those of earlier ones.
#[test]
fn publication_over_quota_costs_the_same_per_file() {
    expect_linear("quota", |files| {
        let mut bench = Bench::new();
        bench.join_again(Some(Bytes(files / 2 * SIZE.0)));
        bench.run();
        bench.publish(files, 1);
        let spent = seconds(|| bench.run());
        assert_eq!(bench.replica.position(), bench.origin.last().sequence);
        let stock = bench.replica.stock();
        assert_eq!((stock.objects, stock.valid_objects), (files, files / 2));
        spent
    });
}

/// Other callers wait for a machine during its longest call. So no call of a publication may take longer because
/// the publication has more files.
fn expect_short_calls(what: &str, longest_of: impl Fn(u64) -> (Duration, &'static str)) {
    const RUNS: usize = 3;
    const TIMES: u64 = 16;
    let most = std::env::var("LULL_REPLICATE_FILES").ok().and_then(|text| text.parse().ok());
    let most = most.unwrap_or(16_000);
    let longest = |files| (0..RUNS).map(|_| longest_of(files)).min().expect("there are runs");
    let (few, many) = (longest(most / TIMES), longest(most));
    println!("{what}: {few:?} of {} files, {many:?} of {most}", most / TIMES);
    assert!(many.0 < few.0 * (TIMES as u32 / 2), "{what}: {few:?}, {many:?}");
}

#[test]
fn no_replica_call_takes_longer_for_more_files() {
    expect_short_calls("longest calls of the replica", |files| {
        let mut bench = Bench::new();
        bench.publish(files, 1);
        bench.longest = Longest::default();
        bench.run();
        bench.expect(files);
        bench.longest.replica
    });
}

#[test]
fn no_origin_call_takes_longer_for_more_files() {
    expect_short_calls("longest calls of the origin", |files| {
        let mut bench = Bench::new();
        bench.publish(files, 1);
        bench.run();
        bench.expect(files);
        // A new one compares its tree, and gets all bodies.
        bench.join_again(None);
        bench.run();
        bench.expect(files);
        bench.longest.origin
    });
}

#[test]
fn no_call_takes_longer_for_a_joining_replica() {
    expect_short_calls("longest calls of a new replica", |files| {
        let mut bench = Bench::new();
        bench.publish(files, 1);
        bench.run();
        bench.join_again(None);
        bench.longest = Longest::default();
        bench.run();
        bench.expect(files);
        bench.longest.replica
    });
}
