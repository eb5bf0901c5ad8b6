//! Serves one-off receivers: finds objects by name, and sends their bodies in the background.
//!
//! A receiver is no replica. The state machine does not know it, so no write and no other receiver waits for it.

use core::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use lull_replication::lane::Lanes;
use lull_replication::message::{BodyHeader, Frame, MAX_FOUND, MAX_NEAR, Session};
use lull_replication::path::Path;
use lull_replication::types::{Content, Digest, Version};
use lull_replication::wire::{BodyPart, FromSource, PIECE, ToSource};
use lull_replication::{Pin, origin::Origin};
use tokio::io::{AsyncRead, AsyncWrite, split};
use tokio::time::timeout;

use super::bodies::{Serves, check_again};
use super::link::{Incoming, Outgoing};
use super::{LinkError, read_with_retries};
use crate::store::{Body, BodyReader};

/// A receiver that asks for nothing is gone: it may store what it has got meanwhile.
const SILENCE: Duration = Duration::from_secs(120);
/// Names that are compared with one that does not exist, at most.
const MAX_COMPARED: usize = 100_000;
/// How like a name has to be, from 0 to 1.
const LIKE: f64 = 0.85;

/// Answers the questions of a receiver until it has gone.
pub(super) async fn serve<S: Serves>(
    shared: &Arc<S>,
    stream: impl AsyncRead + AsyncWrite,
) -> Result<(), LinkError> {
    let (read, write) = split(stream);
    let mut incoming = Incoming::<_, ToSource>::new(read);
    let mut to = Outgoing::new(write);
    loop {
        let question = timeout(SILENCE, incoming.next()).await.map_err(|_| LinkError::Silent)?;
        match question {
            Err(LinkError::Closed) => return Ok(()),
            Err(why) => return Err(why),
            Ok(Frame { message: ToSource::Find(name), .. }) => {
                find(shared, name.as_ref(), &mut to).await?;
            }
            Ok(Frame { message: ToSource::Get { path, digest, pieces }, .. }) => {
                get(shared, path, (digest, pieces), &mut to).await?;
            }
        }
        to.flush().await?;
    }
}

fn put(to: &mut Outgoing<impl AsyncWrite + Unpin>, message: FromSource) -> Result<(), LinkError> {
    Ok(to.put(&Frame { session: Session::default(), message })?)
}

/// Some objects behind `after`, all if that is none: of this name and below it, or of all names.
fn objects_behind(
    machine: &Origin<Body>,
    name: Option<&Path>,
    after: Option<&Path>,
) -> Vec<(Path, Version)> {
    let objects = &machine.image().objects;
    let below = name.map_or_else(Vec::new, Path::prefix);
    // Other names come between the name itself and those below it.
    let itself = name.filter(|_| after.is_none());
    let itself = itself.and_then(|name| objects.get_key_value(name));
    let after = after.map(Path::as_bytes).filter(|after| *after >= &below[..]);
    let from = after.map_or(Bound::Included(&below[..]), Bound::Excluded);
    let rest = objects.range::<[u8], _>((from, Bound::Unbounded));
    let rest = rest.take_while(|(path, _)| path.as_bytes().starts_with(&below));
    let all = itself.into_iter().chain(rest).take(MAX_FOUND);
    all.map(|(path, version)| (path.clone(), *version)).collect()
}

async fn find<S: Serves>(
    shared: &Arc<S>,
    name: Option<&Path>,
    to: &mut Outgoing<impl AsyncWrite + Unpin>,
) -> Result<(), LinkError> {
    let mut after: Option<Path> = None;
    loop {
        let objects = shared.with_machine(|machine| objects_behind(machine, name, after.as_ref()));
        if let (Some(name), None, []) = (name, &after, &objects[..]) {
            return put(to, FromSource::Unknown(near(shared, name).await));
        }
        let more = objects.len() == MAX_FOUND;
        after = objects.last().map(|(path, _)| path.clone());
        put(to, FromSource::Found { objects, more })?;
        to.flush().await?;
        if !more {
            return Ok(());
        }
    }
}

/// Names that are like one that does not exist, the most similar first.
async fn near<S: Serves>(shared: &Arc<S>, wanted: &Path) -> Vec<Path> {
    let (mut found, mut after, mut compared) = (Vec::new(), None, 0);
    let wanted = wanted.key().into_owned();
    while compared < MAX_COMPARED {
        let objects = shared.with_machine(|machine| objects_behind(machine, None, after.as_ref()));
        let Some((last, _)) = objects.last() else { break };
        after = Some(last.clone());
        compared += objects.len();
        found.extend(objects.into_iter().filter_map(|(path, _)| {
            let likeness = likeness(&wanted, &path.key());
            (likeness >= LIKE).then_some((likeness, path))
        }));
        found.sort_by(|one, other| other.0.total_cmp(&one.0));
        found.truncate(MAX_NEAR);
        tokio::task::yield_now().await;
    }
    found.into_iter().map(|(_, path)| path).collect()
}

/// How like two names are, from 0 to 1. The same file in another folder is very like.
fn likeness(wanted: &str, name: &str) -> f64 {
    let file = |name: &str| name.rsplit('/').next().map(str::to_owned);
    if file(wanted) == file(name) { 0.95 } else { strsim::jaro_winkler(wanted, name) }
}

/// A body that is not deleted.
struct Kept<'a, S: Serves>(&'a S, Pin);

impl<S: Serves> Drop for Kept<'_, S> {
    fn drop(&mut self) {
        self.0.unpin(self.1);
    }
}

/// Sends the body of an object: behind so many pieces, if it has this hash.
async fn get<S: Serves>(
    shared: &Arc<S>,
    path: Path,
    (digest, pieces): (Digest, u32),
    to: &mut Outgoing<impl AsyncWrite + Unpin>,
) -> Result<(), LinkError> {
    let (version, at) = shared.with_machine(|machine| {
        (machine.image().objects.get(&path).copied(), machine.last().sequence)
    });
    let header = BodyHeader { path, version, at, demand: false, lost: false };
    let lane = Lanes::default().of_body(&header);
    let content = version.map(|version| version.content);
    let content = content.filter(|content| content.size.0 > 0);
    let path = header.path.clone();
    put(to, FromSource::Part(BodyPart::Header(header)))?;
    let Some(content) = content else { return Ok(()) };
    let mut pin = shared.pin(&content.digest);
    if pin.is_none() {
        // A relay may have to get it first.
        to.flush().await?;
        shared.bring(&path).await;
        pin = shared.pin(&content.digest);
    }
    let Some(pin) = pin else { return put(to, FromSource::Part(BodyPart::Broken { lane })) };
    let _kept = Kept(&**shared, pin);
    let first = if content.digest == digest { pieces } else { 0 };
    if !send(shared, &content, first, to).await? {
        check_again(&**shared, &content).await?;
        put(to, FromSource::Part(BodyPart::Broken { lane }))?;
    }
    Ok(())
}

/// Sends hashes and pieces. Returns whether that was possible.
async fn send<S: Serves>(
    shared: &Arc<S>,
    content: &Content,
    first: u32,
    to: &mut Outgoing<impl AsyncWrite + Unpin>,
) -> Result<bool, LinkError> {
    let (reader, lane) = (shared.body_reader(), Lanes::default().lane_for(content.size));
    let Content { digest, size, .. } = *content;
    let count = u32::try_from(size.0.div_ceil(PIECE as u64)).unwrap_or(u32::MAX);
    if count == 1 {
        let read = move |reader: &BodyReader| reader.read(&digest);
        let Some(bytes) = read_with_retries(reader, None, read).await? else { return Ok(false) };
        let part = BodyPart::Piece { lane, number: 0, bytes: bytes.to_vec() };
        put(to, FromSource::Part(part))?;
        return Ok(true);
    }
    let Some(outline) = shared.outlines().get_or_read(reader, content, None).await? else {
        return Ok(false);
    };
    for part in outline.parts(lane) {
        put(to, FromSource::Part(part))?;
        to.flush().await?;
    }
    for number in first.min(count - 1)..count {
        let read = move |reader: &BodyReader| reader.piece(&digest, size, number);
        let piece = read_with_retries(reader, None, read).await?;
        let Some(bytes) = piece.filter(|bytes| outline.has(number, bytes)) else {
            return Ok(false);
        };
        put(to, FromSource::Part(BodyPart::Piece { lane, number, bytes: bytes.to_vec() }))?;
        to.flush().await?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_names_are_near() {
        let is_like = |wanted, name| likeness(wanted, name) >= LIKE;
        assert!(is_like("images/debain.iso", "images/debian.iso"));
        assert!(is_like("debian.iso", "images/debian.iso"));
        assert!(!is_like("debian.iso", "docs/index.html"));
    }
}
