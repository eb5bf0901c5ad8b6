//! The writes, the reads and the faults of a run, by the harness' clock.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::numbered;
pub use crate::numbered::UNKNOWN_BODY;

/// Objects that are written one by one.
pub(super) const SINGLES: u8 = 24;
/// Objects that are published together.
pub(super) const TOGETHER: u8 = 4;
/// The folder of those.
pub(super) const FOLDER: &str = "set";

/// The path of an object.
///
/// Objects have numbers: first those that are written one by one, then those that are published together.
pub fn path_of(object: u8) -> String {
    match object.checked_sub(SINGLES) {
        None => format!("{object:02}"),
        Some(number) => format!("{FOLDER}/{number}"),
    }
}

/// The object of a path.
pub(super) fn object_of(path: &str) -> Option<u8> {
    (0..SINGLES + TOGETHER).find(|object| path_of(*object) == path)
}

/// The body of a number, which contains it from the beginning to the end.
pub(super) fn body(number: u64) -> Vec<u8> {
    numbered::body(number, size_of(number))
}

/// Sizes are on both sides of the limits of stores and protocol.
fn size_of(number: u64) -> usize {
    match number % 128 {
        0 => 1_200_000,
        1..=8 => 150_000,
        9..=24 => 20_000,
        25..=64 => 3_000,
        _ => 100,
    }
}

/// Which body it is, if it is intact.
pub(super) fn number_of(bytes: &[u8]) -> Option<u64> {
    numbered::number_of(bytes, size_of)
}

/// A write that was acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The state in its acknowledgement.
    pub position: u64,
    /// Objects with the number of their new body; none if it was deleted.
    pub changes: Vec<(u8, Option<u64>)>,
    /// When the acknowledgement came.
    pub at: Duration,
}

/// The observations of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadContents {
    /// One object: the number of its body, or that it does not exist.
    One(u8, Option<u64>),
    /// A listing of the objects that are written one by one: bit n says whether object n exists.
    Listing(u32),
    /// The objects that are published together, in the folder of the state of this number.
    Together(u64, [Option<u64>; TOGETHER as usize]),
}

/// The observation of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectState {
    /// The body of this number.
    Body(u64),
    /// It exists.
    Present,
    /// It does not exist.
    Absent,
}

impl ReadContents {
    /// The observations by object.
    pub fn object_states(&self) -> Vec<(u8, ObjectState)> {
        let sight = |body: Option<u64>| body.map_or(ObjectState::Absent, ObjectState::Body);
        match *self {
            ReadContents::One(object, body) => vec![(object, sight(body))],
            ReadContents::Listing(there) => (0..SINGLES)
                .map(|object| match there >> object & 1 {
                    0 => (object, ObjectState::Absent),
                    _ => (object, ObjectState::Present),
                })
                .collect(),
            ReadContents::Together(_, bodies) => (SINGLES..).zip(bodies.map(sight)).collect(),
        }
    }

    /// The number of the requested state, if there was one. Then it is a separate read, which has to see that
    /// state, and does not constrain later ones.
    pub fn state(&self) -> Option<u64> {
        match *self {
            ReadContents::Together(state, _) => Some(state),
            ReadContents::One(..) | ReadContents::Listing(_) => None,
        }
    }
}

/// A read that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// The session of the reader.
    pub session: u32,
    /// Which replica answered.
    pub replica: u8,
    /// When it began.
    pub began: Duration,
    /// When it ended.
    pub ended: Duration,
    /// Its observations.
    pub seen: ReadContents,
}

/// A fault of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Its link was cut.
    LinkCut,
    /// Its daemon was killed with -9; the disk kept its contents.
    Kill,
    /// It lost its power: the daemon was killed and the disk forgot unsynced writes.
    PowerCut,
    /// The same, and parts of the unsynced writes survived.
    TornPowerCut,
    /// Its wall clock is wrong from now on. The daemon continues with its old time until it is killed, which
    /// comes next, and has this one afterwards.
    ClockSkew,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 5] =
        [Fault::LinkCut, Fault::Kill, Fault::PowerCut, Fault::TornPowerCut, Fault::ClockSkew];

    /// Whether connections may end by it.
    fn takes_connections(self) -> bool {
        match self {
            Fault::LinkCut | Fault::Kill | Fault::PowerCut | Fault::TornPowerCut => true,
            Fault::ClockSkew => false,
        }
    }

    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Fault::LinkCut => "link_cut",
            Fault::Kill => "kill",
            Fault::PowerCut => "power_cut",
            Fault::TornPowerCut => "torn_power_cut",
            Fault::ClockSkew => "clock_skew",
        }
    }
}

/// The machine of the origin that stands by.
pub(super) const STANDBY: u8 = u8::MAX;

/// A fault that occurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Happened {
    /// The machine: 0 is the origin, the replica n is n + 1, and the second origin is 255.
    pub machine: u8,
    /// The fault.
    pub fault: Fault,
    /// When it began.
    pub from: Duration,
    /// Its end: for a killed daemon, when it ran again. For a clock, when another fault was possible; the
    /// clock is not right by then.
    pub to: Duration,
}

/// The staleness bounds of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Δ while it has a connection.
    pub connected: Duration,
    /// Δ while it knows that it has no connection.
    pub disconnected: Duration,
}

/// The replicas' knowledge of the offset of their wall clocks from the origin's.
///
/// Replicas use wall clocks if these are close enough, and otherwise, or until they know, echoes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Skews {
    /// How often a replica reported that they are too far apart.
    pub told: u64,
    /// How often a replica was asked, and was certain that they are.
    pub too_far: u64,
    /// How often a replica was asked, and was certain that they are not.
    pub close: u64,
}

impl Skews {
    /// A replica reports that it is this many seconds ahead at least, and at most.
    pub(super) fn add(&mut self, least: f64, most: f64, max_skew: Duration) {
        let max_skew = max_skew.as_secs_f64();
        self.too_far += u64::from(least > max_skew || most < -max_skew);
        self.close += u64::from(least >= -max_skew && most <= max_skew);
    }
}

/// Since when a replica has had a connection, or none, by its own reports.
pub(super) type Connections = Vec<(Duration, bool)>;

/// The history of a run.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Writes that were acknowledged.
    pub writes: Vec<Write>,
    /// Reads that were answered.
    pub reads: Vec<Read>,
    /// The faults.
    pub faults: Vec<Happened>,
    /// Bodies were made of the numbers from 1 to this one.
    pub bodies: u64,
    /// The bounds, by replica.
    pub bounds: Vec<Bounds>,
    /// The machine of the relay that serves a replica, by replica, if one does.
    pub(super) relays: BTreeMap<u8, u8>,
    pub(super) connections: Vec<Connections>,
    /// Their knowledge of their clocks.
    pub skews: Skews,
    /// Reads from this one on began after all writes had been acknowledged and all faults had ended: they
    /// must see the last state.
    pub last_reads: usize,
    /// Failures beside violations: a daemon that ended by itself, a replica that did not come to rest.
    pub failures: Vec<String>,
}

/// A replica reports a lost connection within this time of noticing it.
const REPORT_DELAY: Duration = Duration::from_secs(2);

/// How long after a fault a replica may legitimately have no connection, and answer. It answers until its Δ
/// is over, at most 8 s. The pause before its next attempt is no longer than its absence by then, because
/// pauses double. The rest is for the attempt itself.
pub(super) const RECONNECTING: Duration = Duration::from_secs(10);

/// How stale the reads of a history may have been.
pub struct Allowed<'h> {
    history: &'h History,
    /// By replica, when it may have had no connection. Computed once: there may be millions of reads, and
    /// thousands of faults.
    causes: Vec<Times>,
}

impl Allowed<'_> {
    /// The permitted staleness of a read. Δ of a disconnected replica counts only if the replica reported the
    /// loss, and its machine or the origin's had a fault that ends connections.
    pub fn bound(&self, read: &Read) -> Duration {
        let replica = usize::from(read.replica);
        let Some(bounds) = self.history.bounds.get(replica) else { return Duration::MAX };
        let is_away = || self.history.reported_loss(read) && self.has_cause(read);
        if is_away() { bounds.disconnected } else { bounds.connected }
    }

    /// Whether a fault may have ended it.
    fn has_cause(&self, read: &Read) -> bool {
        self.causes[usize::from(read.replica)].last(read) == Some(true)
    }
}

impl History {
    /// How stale its reads may have been.
    pub fn allowed(&self) -> Allowed<'_> {
        Allowed { history: self, causes: self.by_replica(|replica| self.causes(replica).collect()) }
    }

    /// Whether the replica reported no connection, at some time of the read.
    fn reported_loss(&self, read: &Read) -> bool {
        let none = Connections::new();
        let told = self.connections.get(usize::from(read.replica)).unwrap_or(&none);
        let next = told.partition_point(|(at, _)| *at <= read.began);
        let had = next.checked_sub(1).is_some_and(|last| told[last].1);
        let kept = told.get(next).is_none_or(|(at, _)| *at > read.ended + REPORT_DELAY);
        !(had && kept)
    }

    /// When a replica may have had no connection.
    fn causes(&self, replica: u8) -> impl Iterator<Item = (Duration, Duration)> {
        self.faults_of(replica)
            .filter(|happened| happened.fault.takes_connections())
            .map(|happened| (happened.from, happened.to + RECONNECTING))
    }

    /// The faults of a replica's machine, of its relay's, or of an origin's.
    fn faults_of(&self, replica: u8) -> impl Iterator<Item = &Happened> {
        let relay = self.relays.get(&replica).copied().unwrap_or(0);
        let machines = [0, STANDBY, replica + 1, relay];
        self.faults.iter().filter(move |happened| machines.contains(&happened.machine))
    }

    /// How many faults there were of each kind.
    pub fn faults_by_kind(&self) -> BTreeMap<Fault, u64> {
        let mut counts: BTreeMap<_, _> = Fault::ALL.iter().map(|fault| (*fault, 0)).collect();
        for happened in &self.faults {
            *counts.entry(happened.fault).or_default() += 1;
        }
        counts
    }

    /// Reads in progress during a fault, at their replica or at the origin.
    pub fn reads_during_faults(&self) -> usize {
        let broken = self.by_replica(|replica| {
            self.faults_of(replica).map(|happened| (happened.from, happened.to)).collect()
        });
        let is_broken = |read: &&Read| broken[usize::from(read.replica)].last(read) == Some(true);
        self.reads.iter().filter(is_broken).count()
    }

    /// Reads of each replica, before the end, at times at which it must not consider itself disconnected: the
    /// small Δ counts despite any report.
    pub fn reads_in_calm(&self) -> Vec<usize> {
        let causes = self.allowed().causes;
        let mut reads = vec![0; self.bounds.len()];
        for read in self.reads.iter().take(self.last_reads) {
            let replica = usize::from(read.replica);
            reads[replica] += usize::from(causes[replica].last(read) == Some(false));
        }
        reads
    }

    fn by_replica(&self, times: impl Fn(u8) -> Vec<(Duration, Duration)>) -> Vec<Times> {
        (0..self.bounds.len()).map(|replica| Times::of(times(replica as u8))).collect()
    }
}

/// Intervals, prepared for queries.
struct Times(Vec<(Duration, Duration)>);

impl Times {
    fn of(mut times: Vec<(Duration, Duration)>) -> Self {
        times.sort_unstable();
        let mut latest = Duration::ZERO;
        for (_, to) in &mut times {
            latest = latest.max(*to);
            *to = latest;
        }
        Times(times)
    }

    /// Whether a read overlapped one of them, or came after those so far; none if there was none.
    fn last(&self, read: &Read) -> Option<bool> {
        let next = self.0.partition_point(|(from, _)| *from <= read.ended);
        next.checked_sub(1).map(|last| self.0[last].1 >= read.began)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_BOUNDS: Bounds = Bounds { connected: Duration::ZERO, disconnected: Duration::ZERO };

    fn read(began: u64, ended: u64) -> Read {
        let [began, ended] = [began, ended].map(Duration::from_secs);
        Read { session: 0, replica: 1, began, ended, seen: ReadContents::One(0, None) }
    }

    #[test]
    fn bodies_of_all_sizes_are_recognised() {
        for number in [0, 1, 9, 25, 127, 128, 1_000_003] {
            let bytes = body(number);
            assert_eq!(number_of(&bytes), Some(number));
            assert_eq!(number_of(&bytes[..bytes.len() - 1]), None);
        }
    }

    #[test]
    fn read_names_its_objects_and_versions() {
        let one = ReadContents::One(5, Some(7)).object_states();
        assert_eq!(one, [(5, ObjectState::Body(7))]);
        let listing = ReadContents::Listing(0b101).object_states();
        assert_eq!(listing.len(), usize::from(SINGLES));
        let there: Vec<u8> = listing
            .iter()
            .filter(|(_, sight)| *sight == ObjectState::Present)
            .map(|(object, _)| *object)
            .collect();
        assert_eq!(there, [0, 2]);
        let together = ReadContents::Together(9, [Some(1), None, Some(2), Some(3)]);
        assert_eq!(together.object_states()[1], (SINGLES + 1, ObjectState::Absent));
        assert_eq!(together.object_states()[3], (SINGLES + 3, ObjectState::Body(3)));
        assert_eq!(
            [together, ReadContents::One(5, None)].map(|seen| seen.state()),
            [Some(9), None]
        );
    }

    #[test]
    fn paths_and_objects_map_to_each_other() {
        for object in 0..SINGLES + TOGETHER {
            assert_eq!(object_of(&path_of(object)), Some(object));
        }
        assert_eq!(object_of("set"), None);
    }

    fn fault(machine: u8, fault: Fault, from: u64, to: u64) -> Happened {
        let [from, to] = [from, to].map(Duration::from_secs);
        Happened { machine, fault, from, to }
    }

    #[test]
    fn small_delta_applies_unless_connections_were_disturbed() {
        let [connected, disconnected] = [2, 6].map(Duration::from_secs);
        let bounds = Bounds { connected, disconnected };
        for (machine, kind, cause) in [
            (0, Fault::Kill, true),
            (0, Fault::LinkCut, true),
            (2, Fault::LinkCut, true),
            (2, Fault::PowerCut, true),
            (2, Fault::TornPowerCut, true),
            (2, Fault::ClockSkew, false),
            // The other replica.
            (1, Fault::LinkCut, false),
        ] {
            let history = History {
                bounds: vec![bounds; 2],
                // It regards itself as away all the time.
                connections: vec![Vec::new(); 2],
                faults: vec![fault(machine, kind, 20, 24)],
                ..History::default()
            };
            let allowed = history.allowed();
            for (began, ended, near) in
                [(10, 19, false), (18, 21, true), (22, 23, true), (34, 35, true), (35, 36, false)]
            {
                let expected = if near && cause { disconnected } else { connected };
                let what = format!("{kind:?} of {machine}, read from {began} to {ended}");
                assert_eq!(allowed.bound(&read(began, ended)), expected, "{what}");
            }
        }
    }

    #[test]
    fn small_delta_applies_while_a_replica_is_connected() {
        let [connected, disconnected] = [2, 6].map(Duration::from_secs);
        let bounds = Bounds { connected, disconnected };
        let times = [(10, true), (20, false), (30, true)];
        let history = History {
            faults: vec![fault(2, Fault::LinkCut, 0, 100)],
            bounds: vec![bounds; 2],
            connections: vec![
                Vec::new(),
                times.map(|(at, has)| (Duration::from_secs(at), has)).to_vec(),
            ],
            ..History::default()
        };
        let allowed = history.allowed();
        for (began, ended, expected) in [
            (5, 6, disconnected),
            (9, 11, disconnected),
            (10, 11, connected),
            (16, 17, connected),
            // It may have lost its connection by then, and reported it later.
            (17, 18, disconnected),
            (25, 26, disconnected),
            (31, 40, connected),
        ] {
            assert_eq!(allowed.bound(&read(began, ended)), expected, "{began} to {ended}");
        }
    }

    #[test]
    fn clocks_are_close_too_far_or_unknown() {
        let mut skews = Skews::default();
        let most = Duration::from_millis(500);
        for (least, most_seconds, too_far, close) in [
            (-0.1, 0.5, 0, 1),
            (-0.5, -0.4, 0, 2),
            (0.4, 0.6, 0, 2),
            (-0.6, 0.0, 0, 2),
            (0.6, 0.7, 1, 2),
            (-3.0, -0.6, 2, 2),
        ] {
            skews.add(least, most_seconds, most);
            assert_eq!((skews.too_far, skews.close), (too_far, close), "{least} {most_seconds}");
        }
    }

    #[test]
    fn reads_during_faults_belong_to_replica_and_origin() {
        let at = |machine, from, to| fault(machine, Fault::Kill, from, to);
        let history = History {
            bounds: vec![NO_BOUNDS; 2],
            reads: vec![read(1, 2), read(9, 11), read(12, 13), read(21, 22), read(31, 32)],
            faults: vec![at(2, 10, 12), at(0, 20, 30), at(1, 31, 33)],
            ..History::default()
        };
        assert_eq!(history.reads_during_faults(), 3);
        assert_eq!(history.faults_by_kind()[&Fault::Kill], 3);
    }

    #[test]
    fn calm_reads_exclude_those_with_disturbed_connections() {
        let history = History {
            bounds: vec![NO_BOUNDS; 2],
            reads: vec![
                read(1, 2),
                read(9, 11),
                // By then it may legitimately have no connection, after a fault and within a longer one.
                read(22, 23),
                read(40, 41),
                read(61, 62),
                read(90, 91),
                // The end.
                read(92, 93),
            ],
            last_reads: 6,
            faults: vec![
                fault(2, Fault::Kill, 10, 12),
                fault(0, Fault::LinkCut, 20, 50),
                fault(0, Fault::PowerCut, 21, 22),
                // A wrong clock cuts no connection, and the other replica is another machine.
                fault(2, Fault::ClockSkew, 61, 62),
                fault(1, Fault::Kill, 61, 91),
            ],
            ..History::default()
        };
        // The first is before any fault.
        assert_eq!(history.reads_in_calm(), [0, 2]);
        let allowed = history.allowed();
        for read in &history.reads {
            let began = read.began.as_secs();
            assert_eq!(!allowed.has_cause(read), [1, 61, 90, 92].contains(&began), "{began} s");
        }
    }
}
