//! The judgement of a run: its history against the log, by the checker of the protocol.

use std::time::Duration;

use lull_replication::checker::{
    self, Acknowledged, Body, Changes, Log, Name, Observation, Violation,
};

use super::Judgement;
use super::history::{History, ObjectState, Read, path_of};

/// Compares the history of a run with the log on the origin's disk at the end: its commits in order.
pub fn judge(history: &History, log: Vec<Changes>) -> Judgement {
    let states = log.len() as u64;
    let acknowledged: Vec<Acknowledged> = history
        .writes
        .iter()
        .map(|write| Acknowledged {
            position: write.position,
            changes: write
                .changes
                .iter()
                .map(|(object, body)| (name(*object), body.map(Body)))
                .collect(),
            at: write.at,
        })
        .collect();
    // A read of an earlier state has asked for that state: order and Δ do not apply to it.
    let (earlier, present): (Vec<_>, Vec<_>) =
        history.reads.iter().enumerate().partition(|(_, read)| read.seen.state().is_some());
    let mut violations = wrong_states(&earlier, &log);
    let allowed = history.allowed();
    let bound = |number, read: &Read| match number >= history.last_reads {
        true => Duration::ZERO,
        false => allowed.bound(read),
    };
    let reads: Vec<checker::Read> =
        present.iter().map(|(number, read)| checked(bound(*number, read), read)).collect();
    let found = checker::check(&Log::new(log), &acknowledged, &reads);
    let lost = found.iter().filter(|one| matches!(one, Violation::Lost { .. })).count();
    violations.extend(found.iter().map(|one| told(one, &present)));
    Judgement { states, violations, lost_writes: lost as u64 }
}

/// The name of an object for the checker.
pub(super) fn name(object: u8) -> Name {
    Name(u32::from(object))
}

/// Earlier states that were shown differently from the log, in words.
fn wrong_states(earlier: &[(usize, &Read)], log: &[Changes]) -> Vec<String> {
    let mut by_state: Vec<_> =
        earlier.iter().filter_map(|(_, read)| Some((read.seen.state()?, *read))).collect();
    by_state.sort_by_key(|(state, _)| *state);
    let mut commits = (1..).zip(log);
    let (mut position, mut bodies) = (0, Changes::new());
    let mut wrong = Vec::new();
    for (state, read) in by_state {
        while position < state
            && let Some((next, changes)) = commits.next()
        {
            position = next;
            bodies.extend(changes);
        }
        let fits = |(object, sight): (u8, ObjectState)| {
            let body = bodies.get(&name(object)).copied().flatten();
            match sight {
                ObjectState::Body(number) => body == Some(Body(number)),
                ObjectState::Present => body.is_some(),
                ObjectState::Absent => body.is_none(),
            }
        };
        if position != state {
            wrong.push(format!(
                "a read showed state {state}, which the log does not have: {}",
                words(read)
            ));
        } else if !read.seen.object_states().into_iter().all(fits) {
            wrong.push(format!("a read showed wrong files for state {state}: {}", words(read)));
        }
    }
    wrong
}

fn checked(bound: Duration, read: &Read) -> checker::Read {
    let seen = read.seen.object_states().into_iter().map(|(object, sight)| {
        let sight = match sight {
            ObjectState::Body(number) => Observation::Body(Body(number)),
            ObjectState::Present => Observation::Present,
            ObjectState::Absent => Observation::Absent,
        };
        (name(object), sight)
    });
    checker::Read {
        session: u64::from(read.session),
        replica: u64::from(read.replica),
        began: read.began,
        ended: read.ended,
        bound: Some(bound),
        seen: seen.collect(),
    }
}

/// The number of objects that are described of a read.
const SHOWN: usize = 4;

/// A violation with its read.
fn told(violation: &Violation, reads: &[(usize, &Read)]) -> String {
    let (Violation::Torn { read }
    | Violation::Back { read, .. }
    | Violation::Stale { read, .. }
    | Violation::Phantom { read }) = violation
    else {
        return violation.to_string();
    };
    let Some((_, one)) = reads.get(*read) else { return violation.to_string() };
    format!("{violation}: {}", words(one))
}

/// A read in words.
fn words(read: &Read) -> String {
    let object_states = read.seen.object_states();
    let mut saw: Vec<String> = object_states
        .iter()
        .take(SHOWN)
        .map(|(object, sight)| match sight {
            ObjectState::Body(number) => format!("{} = {number}", path_of(*object)),
            ObjectState::Present => path_of(*object),
            ObjectState::Absent => format!("no {}", path_of(*object)),
        })
        .collect();
    if object_states.len() > SHOWN {
        saw.push(format!("and {} more", object_states.len() - SHOWN));
    }
    format!(
        "session {} at replica {}, from {:.3} to {:.3} s, saw {}",
        read.session,
        read.replica,
        read.began.as_secs_f64(),
        read.ended.as_secs_f64(),
        saw.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::super::ReadContents;
    use super::*;

    /// The four that are published together.
    const TOGETHER: [u8; 4] = [24, 25, 26, 27];

    fn published(bodies: [u64; 4]) -> Changes {
        TOGETHER
            .into_iter()
            .zip(bodies)
            .map(|(object, body)| (name(object), Some(Body(body))))
            .collect()
    }

    fn looked(state: u64, bodies: [Option<u64>; 4]) -> Read {
        let (began, ended) = (Duration::from_secs(1), Duration::from_secs(2));
        Read { session: 100, replica: 0, began, ended, seen: ReadContents::Together(state, bodies) }
    }

    #[test]
    fn known_state_must_match_its_number() {
        let other = Changes::from([(name(0), Some(Body(9)))]);
        let deleted = Changes::from([(name(24), None)]);
        let log = [other, published([1, 2, 3, 4]), published([5, 6, 7, 8]), deleted];
        let [none, first, second, last] = [
            [None; 4],
            [1, 2, 3, 4].map(Some),
            [5, 6, 7, 8].map(Some),
            [None, Some(6), Some(7), Some(8)],
        ];
        for (state, bodies, right) in [
            (0, none, true),
            (1, none, true),
            (2, first, true),
            (3, second, true),
            (4, last, true),
            // A complete state, but of another number.
            (1, first, false),
            (3, first, false),
            (2, second, false),
            (4, second, false),
            (3, last, false),
            // Half of one.
            (3, [Some(5), Some(6), Some(3), Some(4)], false),
            // A lost one.
            (5, last, false),
        ] {
            // They are judged by the number, in any order.
            let reads = vec![looked(4, last), looked(state, bodies), looked(1, none)];
            let history = History { reads, ..History::default() };
            let Judgement { violations, .. } = judge(&history, log.to_vec());
            assert_eq!(violations.len(), usize::from(!right), "{state}: {violations:?}");
            assert!(violations.iter().all(|said| said.contains(&format!("state {state}"))));
        }
    }
}
