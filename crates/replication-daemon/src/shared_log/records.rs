//! The records in a batch: what a transaction of the store writes.

use bytes::Bytes as Buffer;
use lull_cc::Bytes;
use lull_replication::origin::Append;
use lull_replication::types::{Change, Commit, Digest, Payload};
use lull_replication::wire::WireError;
use lull_replication::wire::cursor::{Reader, Writer};

use crate::store::{Body, Job, Rows};

/// As many as there are.
const MANY: usize = u32::MAX as usize;
const JOBS: (&str, usize) = ("jobs", MANY);
const COMMITS: (&str, usize) = ("commits", MANY);
const CHANGES: (&str, usize) = ("changes", MANY);
const BODIES: (&str, usize) = ("bodies", MANY);
const ROWS: (&str, usize) = ("rows", MANY);

/// A batch of the log.
#[derive(Debug)]
pub(super) enum Batch {
    /// Jobs of one transaction.
    Jobs(Vec<Job<Append<Body>>>),
    /// The whole state follows, in rows. What was there before is void.
    StateBegins,
    /// Rows of the state.
    Rows(Rows),
    /// The state is complete, with this head.
    StateEnds(Vec<u8>),
}

/// The bytes of the jobs that have to be in the log; none if there are none. A deletion is not: it follows from the
/// state.
pub(super) fn encode_jobs(jobs: &[Job<Append<Body>>]) -> Result<Option<Vec<u8>>, WireError> {
    let jobs: Vec<_> = jobs.iter().filter(|job| !matches!(job, Job::Drop(_))).collect();
    if jobs.is_empty() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    let mut to = Writer::new(&mut bytes);
    to.u8(0);
    to.list(JOBS, &jobs, |to, job| match job {
        Job::Step(step) => {
            to.u8(0);
            write_step(to, step)
        }
        Job::Store(payload) => {
            to.u8(1);
            write_body(to, payload)
        }
        Job::Drop(_) => Ok(()),
    })?;
    Ok(Some(bytes))
}

/// The bytes of another batch.
pub(super) fn encode_state(batch: &Batch) -> Result<Vec<u8>, WireError> {
    let mut bytes = Vec::new();
    let mut to = Writer::new(&mut bytes);
    match batch {
        Batch::Jobs(_) => return Err(WireError::Value("jobs")),
        Batch::StateBegins => to.u8(1),
        Batch::Rows(Rows { table, rows }) => {
            to.u8(2);
            to.u8(*table);
            to.list(ROWS, rows, |to, (key, value)| {
                write_long(to, key)?;
                write_long(to, value)
            })?;
        }
        Batch::StateEnds(head) => {
            to.u8(3);
            to.bytes(head);
        }
    }
    Ok(bytes)
}

/// The batch of these bytes.
pub(super) fn decode(bytes: &[u8]) -> Result<Batch, WireError> {
    let mut from = Reader::new(bytes);
    let batch = match from.u8("batch")? {
        0 => Batch::Jobs(from.list(JOBS, 2, |from| match from.u8("job")? {
            0 => Ok(Job::Step(read_step(from)?)),
            1 => Ok(Job::Store(read_body(from)?)),
            kind => Err(WireError::Kind(kind)),
        })?),
        1 => Batch::StateBegins,
        2 => {
            let table = from.u8("table")?;
            let rows = from.list(ROWS, 8, |from| Ok((read_long(from)?, read_long(from)?)))?;
            Batch::Rows(Rows { table, rows })
        }
        3 => Batch::StateEnds(from.rest().to_vec()),
        kind => return Err(WireError::Kind(kind)),
    };
    from.end()?;
    Ok(batch)
}

fn write_step(to: &mut Writer<'_>, step: &Append<Body>) -> Result<(), WireError> {
    to.sequence(step.log_after);
    to.sequence(step.chain_from);
    to.list(COMMITS, &step.commits, |to, commit| {
        to.sequence(commit.sequence);
        to.wall(commit.stamp);
        to.list(CHANGES, &commit.changes, |to, change| {
            to.path(&change.path);
            to.option(change.content.as_ref(), Writer::content)
        })
    })?;
    to.list(BODIES, &step.inline, |to, payload| write_body(to, payload))
}

fn read_step(from: &mut Reader<'_>) -> Result<Append<Body>, WireError> {
    let (log_after, chain_from) = (from.sequence("log")?, from.sequence("chain")?);
    let commits = from.list(COMMITS, 20, |from| {
        let (sequence, stamp) = (from.sequence("commit")?, from.wall("stamp")?);
        let changes = from.list(CHANGES, 4, |from| {
            let path = from.path()?;
            Ok(Change { path, content: from.option("content", Reader::content)? })
        })?;
        Ok(Commit { sequence, stamp, changes: changes.into() })
    })?;
    let inline = from.list(BODIES, 36, read_body)?;
    Ok(Append { commits, inline, log_after, chain_from })
}

fn write_body(to: &mut Writer<'_>, payload: &Payload<Body>) -> Result<(), WireError> {
    let Body::Memory(bytes) = &payload.bytes else {
        return Err(WireError::Value("a small body"));
    };
    to.digest(&payload.digest);
    write_long(to, bytes)
}

fn read_body(from: &mut Reader<'_>) -> Result<Payload<Body>, WireError> {
    let digest = from.digest("body")?;
    let bytes = Buffer::from(read_long(from)?);
    if Digest::of(&bytes) != digest {
        return Err(WireError::Value("a small body"));
    }
    Ok(Payload { digest, size: Bytes(bytes.len() as u64), bytes: Body::Memory(bytes) })
}

/// Bytes after their length in four bytes.
fn write_long(to: &mut Writer<'_>, value: &[u8]) -> Result<(), WireError> {
    let what = "bytes";
    let count = value.len();
    to.u32(u32::try_from(count).map_err(|_| WireError::Count { what, count, limit: MANY })?);
    to.bytes(value);
    Ok(())
}

fn read_long(from: &mut Reader<'_>) -> Result<Vec<u8>, WireError> {
    let count = from.u32("bytes")? as usize;
    let mut rest = from.rest();
    if rest.len() < count {
        return Err(WireError::Short("bytes"));
    }
    let bytes = rest[..count].to_vec();
    rest = &rest[count..];
    *from = Reader::new(rest);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use lull_replication::path::Path;
    use lull_replication::time::WallTime;
    use lull_replication::types::{Content, Metadata, Sequence};

    use super::*;

    fn body(bytes: &'static [u8]) -> Payload<Body> {
        let size = Bytes(bytes.len() as u64);
        Payload { digest: Digest::of(bytes), size, bytes: Body::Memory(Buffer::from_static(bytes)) }
    }

    fn step() -> Append<Body> {
        let content =
            Content { digest: Digest::of(b"hello"), size: Bytes(5), metadata: Metadata::default() };
        let changes = vec![
            Change { path: Path::new("a/b").unwrap(), content: Some(content) },
            Change { path: Path::new("c").unwrap(), content: None },
        ];
        let commit = Commit {
            sequence: Sequence(7),
            stamp: WallTime::from_nanos(5),
            changes: changes.into(),
        };
        let (log_after, chain_from) = (Sequence(1), Sequence(2));
        Append { commits: vec![commit], inline: vec![body(b"hello")], log_after, chain_from }
    }

    #[test]
    fn jobs_in_the_log_decode_to_what_was_encoded() {
        let jobs = [Job::Step(step()), Job::Drop(Digest([1; 32])), Job::Store(body(b"small"))];
        let bytes = encode_jobs(&jobs).unwrap().unwrap();
        let Batch::Jobs(found) = decode(&bytes).unwrap() else { unreachable!() };
        let [Job::Step(found_step), Job::Store(stored)] = &found[..] else { unreachable!() };
        assert_eq!(found_step.commits, step().commits);
        assert_eq!((found_step.log_after, found_step.chain_from), (Sequence(1), Sequence(2)));
        assert_eq!(found_step.inline[0].digest, Digest::of(b"hello"));
        assert_eq!(stored.digest, Digest::of(b"small"));
        assert!(encode_jobs(&jobs[1..2]).unwrap().is_none());
        for end in [1, bytes.len() / 2, bytes.len() - 1] {
            assert!(decode(&bytes[..end]).is_err());
        }
    }

    #[test]
    fn state_in_the_log_decodes_to_what_was_encoded() {
        let rows = vec![(b"key".to_vec(), vec![3; 70_000]), (Vec::new(), Vec::new())];
        let bytes = encode_state(&Batch::Rows(Rows { table: 2, rows: rows.clone() })).unwrap();
        let Batch::Rows(found) = decode(&bytes).unwrap() else { unreachable!() };
        assert_eq!((found.table, found.rows), (2, rows));
        let bytes = encode_state(&Batch::StateEnds(vec![1, 2])).unwrap();
        assert!(matches!(decode(&bytes), Ok(Batch::StateEnds(head)) if head == [1, 2]));
    }
}
