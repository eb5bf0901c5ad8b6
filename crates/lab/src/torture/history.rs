//! What was written, what was read, and what was broken meanwhile, by the harness' clock.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::numbered;
pub use crate::numbered::NOBODYS;

/// Objects that are written one by one.
pub(super) const SINGLES: u8 = 24;
/// Objects that are published together.
pub(super) const TOGETHER: u8 = 4;
/// The folder of those.
pub(super) const FOLDER: &str = "set";

/// The path of an object.
///
/// Objects have numbers: first those that are written one by one, then those that are published
/// together.
pub fn path_of(object: u8) -> String {
    match object.checked_sub(SINGLES) {
        None => format!("{object:02}"),
        Some(number) => format!("{FOLDER}/{number}"),
    }
}

/// The object of a path.
pub fn object_of(path: &str) -> Option<u8> {
    (0..SINGLES + TOGETHER).find(|object| path_of(*object) == path)
}

/// The body of a number, which says it from the beginning to the end.
pub fn body(number: u64) -> Vec<u8> {
    numbered::body(number, size_of(number))
}

/// Sizes are on both sides of what stores and protocol treat differently.
fn size_of(number: u64) -> usize {
    match number % 128 {
        0 => 1_200_000,
        1..=8 => 150_000,
        9..=24 => 20_000,
        25..=64 => 3_000,
        _ => 100,
    }
}

/// Which body it is, of those that are as they were made.
pub(super) fn number_of(bytes: &[u8]) -> Option<u64> {
    numbered::number_of(bytes, size_of)
}

/// A write that was acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The state that it was said to have made.
    pub position: u64,
    /// Objects with the number of their new body; none if it was deleted.
    pub changes: Vec<(u8, Option<u64>)>,
    /// When the acknowledgement came.
    pub at: Duration,
}

/// What a read saw at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// One object: the number of its body, or that it is not there.
    One(u8, Option<u64>),
    /// A listing of the objects that are written one by one: bit n says whether object n is there.
    Listing(u32),
    /// The objects that are published together, in a folder of one state.
    Together([Option<u64>; TOGETHER as usize]),
}

/// What a read saw of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// The body of this number.
    Body(u64),
    /// That it is there.
    Present,
    /// That it is not.
    Absent,
}

impl Seen {
    /// What it says of which objects.
    pub fn sights(&self) -> Vec<(u8, Sight)> {
        let sight = |body: Option<u64>| body.map_or(Sight::Absent, Sight::Body);
        match *self {
            Seen::One(object, body) => vec![(object, sight(body))],
            Seen::Listing(there) => (0..SINGLES)
                .map(|object| match there >> object & 1 {
                    0 => (object, Sight::Absent),
                    _ => (object, Sight::Present),
                })
                .collect(),
            Seen::Together(bodies) => (SINGLES..).zip(bodies.map(sight)).collect(),
        }
    }

    /// Whether it is of an earlier state: then it is a read by itself, which says nothing about what
    /// comes after it.
    pub fn is_earlier(&self) -> bool {
        matches!(self, Seen::Together(_))
    }
}

/// A read that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Whose.
    pub session: u32,
    /// Which replica answered.
    pub replica: u8,
    /// When it began.
    pub began: Duration,
    /// When it ended.
    pub ended: Duration,
    /// What it saw.
    pub seen: Seen,
}

/// What was done to a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Its link was cut.
    LinkCut,
    /// Its daemon was killed with -9; the disk kept what it had.
    Kill,
    /// It lost its power: the daemon was killed and the disk forgot what was not synced.
    PowerCut,
    /// The same, and parts of what was not synced were there all the same.
    TornPowerCut,
    /// Its wall clock was set wrong.
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

/// A fault that was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Happened {
    /// To which machine: 0 is the origin, the replica n is n + 1.
    pub machine: u8,
    /// What.
    pub fault: Fault,
    /// When it began.
    pub from: Duration,
    /// When it was over: of a killed daemon, when it ran again.
    pub to: Duration,
}

/// What a replica promises about staleness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Δ while it has a connection.
    pub connected: Duration,
    /// Δ while it knows that it has none.
    pub disconnected: Duration,
}

/// Since when a replica has had a connection, or none, as it told itself.
pub(super) type Connections = Vec<(Duration, bool)>;

/// All of a run.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Writes that were acknowledged.
    pub writes: Vec<Write>,
    /// Reads that were answered.
    pub reads: Vec<Read>,
    /// What was broken.
    pub faults: Vec<Happened>,
    /// Bodies were made of the numbers from 1 to this one.
    pub bodies: u64,
    /// What the replicas promise, by replica.
    pub bounds: Vec<Bounds>,
    pub(super) connections: Vec<Connections>,
    /// Reads from this one on began after all writes had been acknowledged and all was healed: they are
    /// to see the last state.
    pub last_reads: usize,
    /// What should not have happened, beside broken promises: a daemon that ended by itself, a replica
    /// that did not come to rest.
    pub failures: Vec<String>,
}

/// A replica tells of a lost connection within this time of noticing it.
const TOLD_WITHIN: Duration = Duration::from_secs(2);

/// For so long after a fault a replica may rightly have no connection yet, and answer. Until its Δ is over it
/// answers, 8 s at most; that is how long it has been away by then, and the pause before its next try is no
/// longer, because pauses double. The rest is for the try itself.
pub(super) const RECONNECTING: Duration = Duration::from_secs(10);

impl History {
    /// How stale a read may have been. Δ of a disconnected replica counts only if the replica told that it had
    /// no connection, and something was done to its machine or to the origin's that takes connections.
    pub fn bound(&self, read: &Read) -> Duration {
        let Some(bounds) = self.bounds.get(usize::from(read.replica)) else { return Duration::MAX };
        let is_away = || self.told_of_loss(read) && self.has_cause(read);
        if is_away() { bounds.disconnected } else { bounds.connected }
    }

    /// Whether the replica told of no connection, at some time of the read.
    fn told_of_loss(&self, read: &Read) -> bool {
        let none = Connections::new();
        let told = self.connections.get(usize::from(read.replica)).unwrap_or(&none);
        let next = told.partition_point(|(at, _)| *at <= read.began);
        let had = next.checked_sub(1).is_some_and(|last| told[last].1);
        let kept = told.get(next).is_none_or(|(at, _)| *at > read.ended + TOLD_WITHIN);
        !(had && kept)
    }

    /// Whether it may have had none, by what was done.
    fn has_cause(&self, read: &Read) -> bool {
        let theirs = |happened: &&Happened| [0, read.replica + 1].contains(&happened.machine);
        self.faults.iter().filter(theirs).any(|happened| {
            happened.fault.takes_connections()
                && happened.from <= read.ended
                && read.began <= happened.to + RECONNECTING
        })
    }

    /// How many faults there were of each kind.
    pub fn faults_by_kind(&self) -> BTreeMap<Fault, u64> {
        let mut counts: BTreeMap<_, _> = Fault::ALL.iter().map(|fault| (*fault, 0)).collect();
        for happened in &self.faults {
            *counts.entry(happened.fault).or_default() += 1;
        }
        counts
    }

    /// Reads that were under way while something was broken, at their replica or at the origin.
    pub fn reads_during_faults(&self) -> usize {
        let mut by_machine: BTreeMap<u8, Vec<(Duration, Duration)>> = BTreeMap::new();
        for happened in &self.faults {
            by_machine.entry(happened.machine).or_default().push((happened.from, happened.to));
        }
        // Of one machine they come one after the other.
        by_machine.values_mut().for_each(|times| times.sort_unstable());
        let broken = |machine: u8, read: &Read| {
            let Some(times) = by_machine.get(&machine) else { return false };
            let next = times.partition_point(|(from, _)| *from <= read.ended);
            next.checked_sub(1).is_some_and(|last| times[last].1 >= read.began)
        };
        self.reads.iter().filter(|read| broken(0, read) || broken(read.replica + 1, read)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(began: u64, ended: u64) -> Read {
        let [began, ended] = [began, ended].map(Duration::from_secs);
        Read { session: 0, replica: 1, began, ended, seen: Seen::One(0, None) }
    }

    #[test]
    fn bodies_of_all_sizes_are_known() {
        for number in [0, 1, 9, 25, 127, 128, 1_000_003] {
            let bytes = body(number);
            assert_eq!(number_of(&bytes), Some(number));
            assert_eq!(number_of(&bytes[..bytes.len() - 1]), None);
        }
    }

    #[test]
    fn a_read_says_what_it_saw_of_which_objects() {
        let one = Seen::One(5, Some(7)).sights();
        assert_eq!(one, [(5, Sight::Body(7))]);
        let listing = Seen::Listing(0b101).sights();
        assert_eq!(listing.len(), usize::from(SINGLES));
        let there: Vec<u8> = listing
            .iter()
            .filter(|(_, sight)| *sight == Sight::Present)
            .map(|(object, _)| *object)
            .collect();
        assert_eq!(there, [0, 2]);
        let together = Seen::Together([Some(1), None, Some(2), Some(3)]).sights();
        assert_eq!(together[1], (SINGLES + 1, Sight::Absent));
        assert_eq!(together[3], (SINGLES + 3, Sight::Body(3)));
    }

    #[test]
    fn paths_and_objects_are_each_others() {
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
    fn the_small_delta_counts_unless_something_was_done_that_takes_a_connection() {
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
                // It takes itself for away all the time.
                connections: vec![Vec::new(); 2],
                faults: vec![fault(machine, kind, 20, 24)],
                ..History::default()
            };
            for (began, ended, near) in
                [(10, 19, false), (18, 21, true), (22, 23, true), (34, 35, true), (35, 36, false)]
            {
                let expected = if near && cause { disconnected } else { connected };
                let what = format!("{kind:?} of {machine}, read from {began} to {ended}");
                assert_eq!(history.bound(&read(began, ended)), expected, "{what}");
            }
        }
    }

    #[test]
    fn the_small_delta_counts_while_a_replica_has_a_connection() {
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
        for (began, ended, expected) in [
            (5, 6, disconnected),
            (9, 11, disconnected),
            (10, 11, connected),
            (16, 17, connected),
            // It may have lost its connection by then, and told of it later.
            (17, 18, disconnected),
            (25, 26, disconnected),
            (31, 40, connected),
        ] {
            assert_eq!(history.bound(&read(began, ended)), expected, "{began} to {ended}");
        }
    }

    #[test]
    fn reads_during_faults_are_those_of_their_replica_and_of_the_origin() {
        let at = |machine, from, to| fault(machine, Fault::Kill, from, to);
        let history = History {
            reads: vec![read(1, 2), read(9, 11), read(12, 13), read(21, 22), read(31, 32)],
            faults: vec![at(2, 10, 12), at(0, 20, 30), at(1, 31, 33)],
            ..History::default()
        };
        assert_eq!(history.reads_during_faults(), 3);
        assert_eq!(history.faults_by_kind()[&Fault::Kill], 3);
    }
}
