//! The least position that fits a read, without a walk through the log for each read.
//!
//! A body that was written once has one place in the log: from its write up to its overwrite. A read that saw
//! only such bodies costs a look-up for each. The existence of a name, its absence, and a repeated body have
//! many places. The positions that fit several names at a time are computed once for each question: the
//! names, and whether their bodies or only their existence are asked for. All reads with that question are
//! then look-ups among the answers that the log has given. So the whole takes
//!
//! ```text
//!   (changes of the log + names of all reads + for each question, the changes of its names) · log
//! ```
//!
//! There are as many questions as a harness has ways to ask, however long the history is: the names of a
//! folder for its listing, those of a transaction. The logarithm is that of sorted tables, and of sorting the
//! changes of a question by position. (For as many questions as reads no linear way is known: one can ask in
//! this way whether two sets intersect.)

use std::collections::BTreeMap;

use super::{Log, Name, Observation};

/// Names, and whether their bodies are of interest, in order.
type Question = Vec<(Name, bool)>;

/// By the sum of the marks of the observations: the positions where that sum begins, in order.
type Answers = BTreeMap<u64, Vec<u64>>;

/// Finds positions in a log.
pub(super) struct Finder<'a> {
    pub(super) log: &'a Log,
    answers: BTreeMap<Question, Answers>,
    /// Number of look-ups, and of changes that were visited.
    #[cfg(test)]
    pub(super) work: u64,
}

/// A number for the observation of a name. So a sum represents several observations, and a change of one of
/// them is one addition. Two states may have the same sum: candidates are checked.
fn mark(name: Name, seen: Observation) -> u64 {
    // The finaliser of SplitMix64: it only has to scatter similar values.
    let scatter = |value: u64| {
        let mut mixed = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let (kind, body) = match seen {
        Observation::Absent => (0, 0),
        Observation::Present => (1, 0),
        Observation::Body(body) => (2, body.0),
    };
    scatter(scatter(scatter(u64::from(name.0)) ^ kind) ^ body)
}

impl<'a> Finder<'a> {
    pub(super) fn new(log: &'a Log) -> Self {
        Finder {
            log,
            answers: BTreeMap::new(),
            #[cfg(test)]
            work: 0,
        }
    }

    #[cfg(test)]
    fn count(&mut self, work: usize) {
        self.work += work as u64;
    }

    #[cfg(not(test))]
    fn count(&mut self, _work: usize) {}

    /// The least position from `floor` that fits the whole read.
    pub(super) fn position(&mut self, seen: &[(Name, Observation)], floor: u64) -> Option<u64> {
        self.count(seen.len());
        let log = self.log;
        let (mut least, mut end) = (floor, log.end() + 1);
        let mut open = Vec::new();
        for &(name, seen) in seen {
            match (seen, log.positions.get(&(name, seen)).map(Vec::as_slice)) {
                (Observation::Body(_) | Observation::Present, None) => return None,
                (Observation::Body(_), Some(&[from])) => {
                    least = least.max(from);
                    end = end.min(log.overwritten(name, from));
                }
                _ => open.push((name, seen)),
            }
        }
        if least >= end {
            return None;
        }
        self.count(open.len());
        let position = if open.iter().all(|(name, seen)| log.fits(*name, *seen, least)) {
            least
        } else if let [(name, seen)] = open[..] {
            log.earliest(name, seen, least)?
        } else {
            self.next(open, least)?
        };
        (position < end).then_some(position)
    }

    /// The least position after one that does not fit.
    fn next(&mut self, mut seen: Vec<(Name, Observation)>, behind: u64) -> Option<u64> {
        seen.sort_unstable();
        seen.dedup();
        let question: Question =
            seen.iter().map(|(name, seen)| (*name, matches!(seen, Observation::Body(_)))).collect();
        if !self.answers.contains_key(&question) {
            let answers = self.answers_of(&question);
            self.answers.insert(question.clone(), answers);
        }
        let log = self.log;
        let wanted = seen.iter().map(|(name, seen)| mark(*name, *seen)).fold(0, u64::wrapping_add);
        let positions = self.answers.get(&question)?.get(&wanted)?;
        let first = positions.partition_point(|at| *at <= behind);
        // The first one, unless two states have one sum.
        let fits = |at: &u64| seen.iter().all(|(name, seen)| log.fits(*name, *seen, *at));
        positions[first..].iter().copied().find(fits)
    }

    fn answers_of(&mut self, question: &Question) -> Answers {
        let mut changes = Vec::new();
        for (number, (name, bodies)) in question.iter().enumerate() {
            for (at, body) in self.log.histories.get(name).into_iter().flatten() {
                let seen = match body {
                    Some(body) if *bodies => Observation::Body(*body),
                    Some(_) => Observation::Present,
                    None => Observation::Absent,
                };
                changes.push((*at, number, mark(*name, seen)));
            }
        }
        self.count(changes.len());
        changes.sort_unstable();
        let mut now: Vec<u64> =
            question.iter().map(|(name, _)| mark(*name, Observation::Absent)).collect();
        let mut sum = now.iter().copied().fold(0, u64::wrapping_add);
        let mut answers = Answers::new();
        for commit in changes.chunk_by(|one, next| one.0 == next.0) {
            let before = sum;
            for (_, number, mark) in commit {
                sum = sum.wrapping_sub(now[*number]).wrapping_add(*mark);
                now[*number] = *mark;
            }
            if sum != before {
                answers.entry(sum).or_default().push(commit[0].0);
            }
        }
        answers
    }
}

impl Log {
    /// The position where a name is overwritten after its write at a position.
    fn overwritten(&self, name: Name, position: u64) -> u64 {
        let history = self.histories.get(&name).map_or(&[][..], Vec::as_slice);
        let next = history.partition_point(|(at, _)| *at <= position);
        history.get(next).map_or(self.end() + 1, |(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Body, Changes};
    use super::*;

    const FIRST: Name = Name(1);
    const OTHER: Name = Name(2);

    fn log(changes: impl Iterator<Item = Vec<(Name, Option<u64>)>>) -> Log {
        let body = |(name, body): (Name, Option<u64>)| (name, body.map(Body));
        Log::new(changes.map(|one| one.into_iter().map(body).collect::<Changes>()).collect())
    }

    /// The cost of as many reads as the log is long, each from a different floor.
    fn work(log: &Log, seen: impl Fn(u64) -> Vec<(Name, Observation)>) -> u64 {
        let mut finder = Finder::new(log);
        for floor in 0..log.end() {
            finder.position(&seen(floor), floor);
        }
        finder.work
    }

    #[test]
    fn check_time_grows_linearly_with_the_history() {
        // One of the two exists at each position, never both and never none.
        let in_turns = |length: u64| {
            log((0..length).map(|at| {
                let body = |on: bool| on.then_some(at);
                vec![(FIRST, body(at % 2 == 0)), (OTHER, body(at % 2 == 1))]
            }))
        };
        // It is deleted again and again.
        let deleted = |length: u64| log((0..length).map(|_| vec![(FIRST, None)]));
        // Two bodies that return, and never exist together.
        let again = |length: u64| {
            log((0..length).map(|at| vec![(FIRST, Some(at % 2)), (OTHER, Some(at % 2))]))
        };
        let once = |length: u64| log((0..length).map(|at| vec![(FIRST, Some(at))]));
        type Case<'a> =
            (&'a dyn Fn(u64) -> Log, &'a dyn Fn(u64) -> Vec<(Name, Observation)>, &'a str);
        let body = |body| Observation::Body(Body(body));
        let cases: [Case<'_>; 6] = [
            (
                &in_turns,
                &|_| vec![(FIRST, Observation::Absent), (OTHER, Observation::Absent)],
                "both absent",
            ),
            (
                &in_turns,
                &|_| vec![(FIRST, Observation::Present), (OTHER, Observation::Present)],
                "both present",
            ),
            (&deleted, &|_| vec![(FIRST, Observation::Present)], "deleted, and present"),
            (
                &deleted,
                &|_| vec![(FIRST, Observation::Present), (OTHER, Observation::Absent)],
                "so with another",
            ),
            (&again, &|_| vec![(FIRST, body(0)), (OTHER, body(1))], "bodies that come back"),
            (&once, &|at| vec![(FIRST, body(at))], "bodies of their own"),
        ];
        for (log, seen, what) in cases {
            let [short, long] = [500, 1_000].map(|length| work(&log(length), seen));
            assert!(short <= 10 * 500, "{what}: {short}");
            assert!(long <= 2 * short + 10, "{what}: {short} and {long}");
        }
    }

    #[test]
    fn finder_agrees_with_a_scan_of_the_log() {
        let mut random = 7_u64;
        let mut draw = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        for _ in 0..300 {
            let length = draw(12);
            let mut changes = Vec::new();
            for _ in 0..length {
                let some = draw(3) as u32..3;
                changes.push(some.map(|name| (Name(name), draw(4).checked_sub(1))).collect());
            }
            let log = log(changes.into_iter());
            let mut finder = Finder::new(&log);
            for _ in 0..60 {
                let mut one = |_| {
                    let seen = match draw(4) {
                        0 => Observation::Absent,
                        1 => Observation::Present,
                        _ => Observation::Body(Body(draw(3))),
                    };
                    (Name(draw(3) as u32), seen)
                };
                let seen = [(); 4].map(&mut one);
                let seen = &seen[..1 + draw(4) as usize];
                let floor = draw(log.end() + 1);
                let fits = |at: &u64| seen.iter().all(|(name, seen)| log.fits(*name, *seen, *at));
                let walked = (floor..=log.end()).find(fits);
                assert_eq!(finder.position(seen, floor), walked, "{seen:?} from {floor}: {log:?}");
            }
        }
    }
}
