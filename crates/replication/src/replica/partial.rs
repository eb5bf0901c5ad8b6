//! Bodies that have arrived in part.

use super::Replica;
use crate::message::{MAX_PARTIAL, ToOrigin};
use crate::path::Path;
use crate::types::{Digest, Sequence};

impl<P: Clone> Replica<P> {
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
