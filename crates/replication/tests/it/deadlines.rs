//! Publications with a deadline: the real machines of an origin and replicas, over lines with a rate for the background
//! and one for normal priority.

use std::time::Duration;

use lull_cc::Bytes;
use lull_replication::message::{BodyHeader, Frame};
use lull_replication::origin::{
    self, Arrival, Distribution, DistributionId, Origin, Put, ReadsPerWriteAndByte, Transaction,
    TransactionId,
};
use lull_replication::replica::{self, Replica};
use lull_replication::time::{LocalTime, Reading, WallTime};
use lull_replication::types::{Digest, Metadata, Payload, ReplicaId, Sequence};
use lull_replication::{BodyEffect, Path};

const TICK: Duration = Duration::from_millis(100);
const TICKS_PER_SECOND: u64 = 10;
const KB: u64 = 1_000;
const MB: u64 = 1_000 * KB;

/// The bytes that a line carries in a second: at this second, in the background or at normal priority.
type Rate = fn(u64, bool) -> u64;

struct Line {
    rate: Rate,
    /// The body in transit, and its bytes that have left.
    body: Option<(Frame<BodyHeader>, u64)>,
    /// Bytes at normal priority, and in the background.
    sent: [u64; 2],
    /// The names of the former.
    urgent_names: Vec<String>,
    switches: usize,
    was_urgent: bool,
}

struct Host {
    id: ReplicaId,
    replica: Replica<()>,
    line: Line,
}

struct World {
    origin: Origin<()>,
    hosts: Vec<Host>,
    ticks: u64,
    transactions: u64,
}

fn now_at(ticks: u64) -> Reading {
    let passed = TICK * u32::try_from(ticks).expect("a short run");
    Reading { local: LocalTime::default().plus(passed), wall: WallTime::from_nanos(0).plus(passed) }
}

impl World {
    fn new(rates: &[Rate]) -> Self {
        let now = now_at(0);
        let (config, policy) = (origin::Config::default(), Box::new(ReadsPerWriteAndByte));
        let origin = Origin::recover(now, config, policy, origin::Image::empty([7; 32]), []);
        let host = |(number, rate): (usize, &Rate)| {
            let id = ReplicaId(number as u32 + 1);
            let config = replica::Config { replica: id, ..replica::Config::default() };
            let mut replica = Replica::recover(now, config, replica::Image::default(), []);
            replica.handle_connected(now);
            let line = Line {
                rate: *rate,
                body: None,
                sent: [0; 2],
                urgent_names: Vec::new(),
                switches: 0,
                was_urgent: false,
            };
            Host { id, replica, line }
        };
        let hosts = rates.iter().enumerate().map(host).collect();
        let mut world = World { origin, hosts, ticks: 0, transactions: 0 };
        world.settle();
        world
    }

    fn now(&self) -> Reading {
        now_at(self.ticks)
    }

    /// Writes files of these sizes; returns their state.
    fn write(&mut self, folder: &str, sizes: &[u64]) -> Sequence {
        self.transactions += 1;
        let changes = sizes.iter().enumerate().map(|(number, size)| {
            let text = format!("{folder}/{number}");
            let digest = Digest::of(format!("{text} {}", self.transactions).as_bytes());
            let body = Payload { digest, size: Bytes(*size), bytes: () };
            (Path::new(&text).expect("a path"), Put::Body(body, Metadata::default()))
        });
        let changes = Transaction { changes: changes.collect() };
        let (now, id) = (self.now(), TransactionId(self.transactions));
        self.origin.handle_transaction(now, id, changes);
        self.settle();
        self.origin.last().sequence
    }

    fn distribute(&mut self, at: Sequence, folder: &str, seconds: u64) -> DistributionId {
        let now = self.now();
        let wanted = Distribution {
            at,
            within: format!("{folder}/").into_bytes(),
            deadline: Some(now.local.plus(Duration::from_secs(seconds))),
            replicas: self.hosts.iter().map(|host| host.id).collect(),
        };
        self.origin.distribute(now, wanted)
    }

    /// Everything that takes no time.
    fn settle(&mut self) {
        for _ in 0..1_000 {
            let now = self.now();
            let is_due = |origin: &Origin<()>| {
                origin.distribution_timeout().is_some_and(|at| at <= now.local)
            };
            let mut moves = self.origin.has_more() || is_due(&self.origin);
            while self.origin.has_more() || is_due(&self.origin) {
                self.origin.go_on(now);
                moves |= store(&mut self.origin, now);
            }
            moves |= store(&mut self.origin, now);
            for host in &mut self.hosts {
                moves |= host.talk(&mut self.origin, now);
            }
            if !moves {
                return;
            }
        }
        panic!("it never settles");
    }

    /// Lets time pass until all have it, for this many seconds at most; returns when each had.
    fn run(&mut self, id: DistributionId, seconds: u64) -> Vec<Option<u64>> {
        for _ in 0..seconds * TICKS_PER_SECOND {
            self.tick();
            if self.arrivals(id).iter().all(|one| one.done.is_some()) {
                break;
            }
        }
        let second = |at: LocalTime| at.since(LocalTime::default()).as_secs();
        self.arrivals(id).iter().map(|one| one.done.map(second)).collect()
    }

    fn tick(&mut self) {
        self.ticks += 1;
        let (now, second) = (self.now(), self.ticks / TICKS_PER_SECOND);
        for host in &mut self.hosts {
            host.line.carry(second, host.id, &mut host.replica, &mut self.origin, now);
        }
        self.settle();
    }

    fn arrivals(&self, id: DistributionId) -> Vec<Arrival> {
        self.origin.distribution(self.now(), id).expect("it is known").arrivals
    }
}

/// The origin's disk.
fn store(origin: &mut Origin<()>, now: Reading) -> bool {
    let mut moves = false;
    while let Some(effect) = origin.poll_effect() {
        moves = true;
        match effect {
            origin::Effect::Body(BodyEffect::Store(body)) => {
                origin.handle_stored(now, &body.digest, Ok(()));
            }
            origin::Effect::Body(BodyEffect::Drop(digest)) => origin.handle_dropped(now, &digest),
            origin::Effect::Append(_) => origin.handle_appended(now, Ok(())),
        }
    }
    while origin.poll_event().is_some() {}
    while origin.poll_garbage().is_some() {}
    moves
}

impl Host {
    /// The control channel and the disk.
    fn talk(&mut self, origin: &mut Origin<()>, now: Reading) -> bool {
        let mut moves = false;
        while let Some(frame) = origin.poll_control(now, self.id) {
            self.replica.handle_control(now, frame);
            moves = true;
        }
        while let Some(effect) = self.replica.poll_effect() {
            moves = true;
            match effect {
                replica::Effect::Body(BodyEffect::Store(body)) => {
                    self.replica.handle_stored(now, &body.digest, Ok(()));
                }
                replica::Effect::Body(BodyEffect::Drop(digest)) => {
                    self.replica.handle_dropped(&digest)
                }
                replica::Effect::Commit(_) => self.replica.handle_committed(now, Ok(())),
            }
        }
        while self.replica.poll_answer().is_some() || self.replica.poll_event().is_some() {}
        while self.replica.poll_garbage().is_some() {}
        if self.replica.poll_timeout().is_some_and(|at| at <= now.local) {
            self.replica.handle_timeout(now);
        }
        while let Some(frame) = self.replica.poll_send() {
            origin.handle_frame(now, self.id, frame);
            moves = true;
        }
        moves
    }
}

impl Line {
    /// The bodies of a tick.
    fn carry(
        &mut self,
        second: u64,
        id: ReplicaId,
        replica: &mut Replica<()>,
        origin: &mut Origin<()>,
        now: Reading,
    ) {
        let is_urgent = origin.is_urgent(id);
        self.switches += usize::from(is_urgent != self.was_urgent);
        self.was_urgent = is_urgent;
        let mut budget = (self.rate)(second, is_urgent) / TICKS_PER_SECOND;
        while budget > 0 {
            let Some((frame, left)) = self.body.take().or_else(|| {
                let frame = origin.poll_speculative(id)?;
                Some((frame, 0))
            }) else {
                return;
            };
            let content = frame.message.version.expect("a version is pushed").content;
            origin.handle_part_sent(id, &frame, Bytes(left));
            if !origin.is_wanted(id, &frame) {
                origin.handle_push_cut_off(id, &frame);
                replica.handle_body(now, frame, None);
                continue;
            }
            let part = budget.min(content.size.0 - left);
            budget -= part;
            self.sent[usize::from(!is_urgent)] += part;
            if is_urgent {
                self.urgent_names.push(frame.message.path.to_string());
            }
            if left + part < content.size.0 {
                self.body = Some((frame, left + part));
                continue;
            }
            let body = Payload { digest: content.digest, size: content.size, bytes: () };
            replica.handle_body(now, frame, Some(body));
        }
    }
}

#[test]
fn body_stays_in_the_background_while_that_is_fast_enough() {
    let mut world = World::new(&[|_, _| MB, |second, _| if second % 20 < 5 { 0 } else { MB }]);
    let at = world.write("site", &[20 * MB, 10 * MB, 100 * KB, 3]);
    let id = world.distribute(at, "site", 300);
    let done = world.run(id, 600);
    assert!(done.iter().all(|second| second.is_some_and(|second| second < 60)), "{done:?}");
    for host in &world.hosts {
        assert_eq!((host.line.sent, host.line.switches), ([0, 30 * MB + 100 * KB + 3], 0));
    }
}

#[test]
fn only_the_replica_that_would_be_late_is_urgent() {
    // The first one has enough. The second one has not, and a line that others use.
    let slow: Rate = |_, urgent| if urgent { MB } else { 50 * KB };
    let mut world = World::new(&[|_, _| 2 * MB, slow]);
    let sizes = vec![2 * MB; 20];
    let at = world.write("site", &sizes);
    let id = world.distribute(at, "site", 200);
    let done = world.run(id, 400);
    assert!(done.iter().all(|second| second.is_some_and(|second| second <= 200)), "{done:?}");
    let [fast, slow] = &world.hosts[..] else { panic!("two") };
    assert_eq!(fast.line.sent[0], 0);
    // Only as much as is needed, with a reserve: ten of forty would have arrived in the background.
    let [urgent, background] = slow.line.sent;
    assert!(urgent >= 30 * MB && background >= MB, "{urgent} urgent, {background} not");
    assert!(slow.line.switches <= 4, "{} switches", slow.line.switches);
}

#[test]
fn urgent_files_pass_others_which_arrive_afterwards() {
    let slow: Rate = |_, urgent| if urgent { MB } else { 20 * KB };
    let mut world = World::new(&[slow]);
    // Small ones are worth more, and one of them is in transit.
    world.write("other", &[90 * KB; 30]);
    let at = world.write("site", &[5 * MB, 5 * MB]);
    let id = world.distribute(at, "site", 100);
    let done = world.run(id, 300);
    assert!(done[0].is_some_and(|second| second <= 100), "{done:?}");
    let line = &world.hosts[0].line;
    assert!(line.sent[0] > 5 * MB, "{:?}", line.sent);
    let is_of_it = |name: &String| name.starts_with("site/");
    assert!(line.urgent_names.iter().all(is_of_it), "{:?}", line.urgent_names);
    let stock = world.hosts[0].replica.stock();
    assert!(stock.valid_objects < 32, "the others are still to come");
    // Nothing was forgotten, and nothing else is urgent.
    let before = line.sent[0];
    (0..300 * TICKS_PER_SECOND).for_each(|_| world.tick());
    let stock = world.hosts[0].replica.stock();
    assert_eq!((stock.valid_objects, stock.objects), (32, 32));
    assert_eq!(world.hosts[0].line.sent[0], before);
}

#[test]
fn impossible_deadline_is_reported_and_the_files_still_arrive() {
    let mut world = World::new(&[|_, _| 100 * KB]);
    let at = world.write("site", &[MB; 50]);
    let id = world.distribute(at, "site", 100);
    world.run(id, 20);
    let late = world.arrivals(id)[0].late_by.expect("500 s instead of 100");
    assert!((300..500).contains(&late.as_secs()), "{late:?}");
    assert!(world.origin.is_urgent(world.hosts[0].id));
    let done = world.run(id, 1_000);
    assert!(done[0].is_some_and(|second| (480..540).contains(&second)), "{done:?}");
    assert_eq!(world.arrivals(id)[0].late_by, None);
    // The next one is known to be late at once.
    let at = world.write("site", &[MB; 50]);
    let id = world.distribute(at, "site", 100);
    world.run(id, 1);
    assert!(world.arrivals(id)[0].late_by.is_some());
}

#[test]
fn overwritten_file_is_not_waited_for() {
    let mut world = World::new(&[|_, urgent| if urgent { 0 } else { 100 * KB }]);
    let at = world.write("site", &[10 * MB, 10 * KB]);
    let id = world.distribute(at, "site", 1_000);
    world.run(id, 5);
    assert_eq!(world.arrivals(id)[0].files, 1);
    world.write("site", &[KB]);
    let done = world.run(id, 20);
    assert!(done[0].is_some(), "{done:?}");
}
