//! Bodies that have arrived in part, and those of which an older version is here.

use core::net::SocketAddr;

use lull_cc::Bytes;

use super::Replica;
use crate::message::{BodyHeader, MAX_PARTIAL, ToOrigin, WITH_NEIGHBOURS, WITH_RANGES, Wanted};
use crate::origin::LONG;
use crate::path::Path;
use crate::types::{Content, Digest, Sequence};

/// An older body that is shorter has little to offer.
const SHORTEST: Bytes = Bytes(1 << 20);
/// Changes of a commit in which a renamed object is looked for, at most: a read may wait meanwhile.
const MOST_CHANGES: usize = 10_000;

impl<P: Clone> Replica<P> {
    /// The peer of the next connection speaks this version of the protocol. To be called before the connection.
    pub fn set_protocol(&mut self, version: u16) {
        self.connection.protocol = version;
    }

    /// Whether the sender of a body waits behind the hashes of its pieces for [`want_pieces`](Replica::want_pieces).
    pub fn is_asked(&self, header: &BodyHeader) -> bool {
        let size = header.version.map_or(Bytes(0), |version| version.content.size);
        self.connection.protocol >= WITH_RANGES && size > LONG && !header.lost
    }

    /// Neighbours get pieces at this address. To be called before the connection.
    pub fn set_share(&mut self, address: Option<SocketAddr>) {
        self.connection.share = address;
    }

    /// Whether the pieces of a body may come from neighbours.
    pub fn may_exchange(&self) -> bool {
        self.connection.protocol >= WITH_NEIGHBOURS && self.is_connected()
    }

    /// Says which pieces of a body are wanted.
    pub fn want_pieces(&mut self, wanted: Wanted) {
        if self.is_connected() {
            self.connection.outbox.push_back(ToOrigin::Wanted(wanted));
        }
    }

    /// The body of an older version of an object, if it is here: most of a new one may be in it.
    pub fn older_body(&self, path: &Path, new: &Digest) -> Option<Content> {
        let object = self.image.objects.get(path).filter(|object| object.valid);
        let past = || self.history.last(path).map(|version| version.content);
        let content = object.map(|object| object.version.content).or_else(past);
        let is_here = |content: &Content| self.has_older(content, new);
        content.filter(is_here).or_else(|| self.renamed_body(path, new))
    }

    fn has_older(&self, older: &Content, new: &Digest) -> bool {
        let is_here = self.bodies.references.is_stored_as(&older.digest, older.size);
        is_here && older.digest != *new && older.size >= SHORTEST
    }

    /// The body of an object that the same commit deletes: a file that was renamed and changed. One with the same file name
    /// in another folder is preferred, and then one of a similar size.
    fn renamed_body(&self, path: &Path, new: &Digest) -> Option<Content> {
        fn name_of(path: &Path) -> Option<&[u8]> {
            path.as_bytes().rsplit(|byte| *byte == b'/').next()
        }
        let is_new = |content: &Content| content.digest == *new;
        let few = self.apply.buffer.iter().filter(|one| one.changes.len() <= MOST_CHANGES);
        let (commit, size) = few.into_iter().find_map(|one| {
            let change = one.changes.iter().find(|change| change.path == *path)?;
            Some((one, change.content.filter(is_new)?.size))
        })?;
        let deleted = commit.changes.iter().filter(|change| change.content.is_none());
        let bodies = deleted.filter_map(|change| {
            let object = self.image.objects.get(&change.path).filter(|object| object.valid)?;
            let content = object.version.content;
            self.has_older(&content, new).then_some((&change.path, content))
        });
        let distance = |(from, content): &(&Path, Content)| {
            (name_of(from) != name_of(path), content.size.0.abs_diff(size.0))
        };
        bodies.min_by_key(distance).map(|(_, content)| content)
    }

    /// These bodies have arrived in part, with so many pieces: all of them, and none that is in transit. The origin
    /// sends the rest. To be called before a connection, and when they change.
    pub fn set_partial(&mut self, mut all: Vec<(Digest, u32)>) {
        all.truncate(MAX_PARTIAL);
        if all == self.connection.partial {
            return;
        }
        self.connection.partial = all;
        if self.is_connected() {
            let all = self.connection.partial.clone();
            self.connection.outbox.push_back(ToOrigin::Partial(all));
        }
    }

    /// At the beginning of a connection: the origin knows of none.
    pub(super) fn report_partial(&mut self) {
        if !self.connection.partial.is_empty() {
            let all = self.connection.partial.clone();
            self.connection.outbox.push_back(ToOrigin::Partial(all));
        }
    }

    /// Whether the body of a version that has arrived in part is still to come.
    pub fn awaits(&self, path: &Path, sequence: Sequence) -> bool {
        self.is_of_use(path, sequence)
    }

    /// Whether an object of the state, or of a commit that is not applied, needs this body and does not have it. Looks at
    /// all objects that lack theirs.
    pub fn lacks_body(&self, digest: &Digest) -> bool {
        let mut objects = self.bodies.without_body.paths();
        let mut buffered = self.apply.buffer.iter().flat_map(|commit| commit.changes.iter());
        objects.any(|path| {
            let object = self.image.objects.get(path);
            object.is_some_and(|object| object.version.content.digest == *digest)
        }) || buffered.any(|change| change.content.is_some_and(|content| content.digest == *digest))
    }
}
