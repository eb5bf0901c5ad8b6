//! The judgement of readers: what they saw, by the checker of the protocol.

use std::time::Duration;

use lull_replication::checker::{
    self, Acknowledged, Body, Changes, Log, Name, Observation, Violation,
};

use super::{History, Load, ReadersError};

/// The violations of a history: all readers in one mount are one session. Without Δ, only those of order.
///
/// # Errors
/// [`ReadersError::OtherWriter`]: then the log is unknown.
pub fn violations(
    load: &Load,
    history: &History,
    delta: Option<Duration>,
) -> Result<Vec<Violation>, ReadersError> {
    let name = |file: usize| Name(u32::try_from(file).unwrap_or(u32::MAX));
    let changes = |file: usize, body: u64| Changes::from([(name(file), Some(Body(body)))]);
    // The initial state is the first one, however many there were before.
    let first = (0..load.files.len()).flat_map(|file| changes(file, load.first_body(file)));
    let mut log: Vec<Changes> = vec![first.collect()];
    let begin = history.writes.first().map_or(1, |one| one.position);
    let mut acknowledged = Vec::new();
    for one in &history.writes {
        let changes = changes(load.writes[one.write].file, load.written_body(one.write));
        log.push(changes.clone());
        let position = log.len() as u64;
        if one.position.checked_sub(begin) != position.checked_sub(2) {
            return Err(ReadersError::OtherWriter);
        }
        acknowledged.push(Acknowledged { position, changes, at: one.at });
    }
    let reads = history.reads.iter().map(|seen| {
        let read = load.reads[seen.read];
        checker::Read {
            session: read.replica as u64,
            replica: read.replica as u64,
            began: seen.began,
            ended: seen.ended,
            bound: delta,
            seen: vec![(name(read.file), Observation::Body(Body(seen.body)))],
        }
    });
    let reads: Vec<checker::Read> = reads.collect();
    Ok(checker::check(&Log::new(log), &acknowledged, &reads))
}

#[cfg(test)]
mod tests {

    use super::super::{AnsweredRead, File, Read, Write, Written};
    use super::*;

    const fn s(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    /// Two files; the second is written after a second.
    fn history(reads: &[(u64, usize, u64)]) -> (Load, History) {
        let file = |name: &str| File { name: name.to_owned(), bytes: 20 };
        let load = Load {
            files: vec![file("a"), file("b")],
            reads: reads
                .iter()
                .map(|(at, file, _)| Read { at: s(*at), replica: 0, file: *file })
                .collect(),
            writes: vec![Write { at: s(1), file: 1 }],
        };
        let answered = reads.iter().enumerate().map(|(read, (at, _, body))| AnsweredRead {
            read,
            began: s(*at),
            ended: s(*at) + Duration::from_millis(1),
            body: *body,
        });
        let reads = answered.collect();
        let writes = vec![Written { write: 0, position: 7, began: s(1), at: s(1) }];
        let history = History { reads, writes, ..History::default() };
        (load, history)
    }

    #[test]
    fn reads_are_judged() {
        use Violation::{Back, Phantom, Stale};
        let found = |reads: &[(u64, usize, u64)]| {
            let (load, history) = history(reads);
            violations(&load, &history, Some(s(60))).unwrap()
        };
        // First bodies are 1 and 2, and the write has 3.
        assert_eq!(found(&[(2, 0, 1), (30, 1, 2), (60, 1, 2), (62, 1, 3)]), []);
        assert!(matches!(found(&[(62, 1, 2)])[..], [Stale { read: 0, .. }]));
        assert!(matches!(found(&[(5, 1, 3), (6, 1, 2)])[..], [Back { read: 1, .. }]));
        assert!(matches!(found(&[(5, 0, 3)])[..], [Phantom { read: 0 }]));
        let (load, history) = history(&[(62, 1, 2)]);
        assert_eq!(violations(&load, &history, None).unwrap(), [], "without a bound of staleness");
        let (load, mut other) = self::history(&[]);
        other.writes.push(Written { write: 0, position: 9, began: s(2), at: s(2) });
        let error = violations(&load, &other, Some(s(60))).unwrap_err();
        assert!(matches!(error, ReadersError::OtherWriter), "{error}");
    }
}
