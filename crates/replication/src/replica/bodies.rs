//! Bodies that are here, by what becomes of them.

use super::Object;
use super::early::Early;
use super::grace::Grace;
use super::replaced::Replaced;
use super::scope::Scope;
use super::shared_bodies::WithoutBody;
use crate::body_references::BodyReferences;
use crate::by_body::ByBody;
use crate::message::Stock;
use crate::path::Path;
use crate::time::LocalTime;
use crate::types::{Digest, Sequence};

/// Early bodies of commits of the state that are still to be checked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Unsettled {
    /// The bodies after this one in their order.
    pub(super) from: (Sequence, Option<Path>),
    pub(super) since: LocalTime,
}

/// The bodies of a replica.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Bodies<P> {
    /// All that are here, by their hashes.
    pub(super) references: BodyReferences<P>,
    /// Bodies of versions that the state does not have yet.
    pub(super) early: Early,
    /// The bodies that they replace.
    pub(super) replaced: Replaced,
    /// The last step has brought more commits into the state than were checked for early bodies.
    pub(super) unsettled: Option<Unsettled>,
    /// How many objects there are, and how many have their bodies.
    pub(super) stock: Stock,
    /// Objects that lack their bodies.
    pub(super) without_body: WithoutBody,
    /// The names that are taken.
    pub(super) scope: Scope,
    /// Objects that have their bodies.
    pub(super) holders: ByBody,
    /// Overwritten bodies, by when they are given up.
    grace: Grace,
    /// The disk counts as full until then.
    pub(super) full_until: Option<LocalTime>,
}

impl<P: Clone> Bodies<P> {
    pub(super) fn new(references: BodyReferences<P>, early: Early) -> Self {
        Bodies {
            references,
            early,
            replaced: Replaced::default(),
            unsettled: None,
            stock: Stock::default(),
            without_body: WithoutBody::default(),
            grace: Grace::default(),
            scope: Scope::default(),
            holders: ByBody::default(),
            full_until: None,
        }
    }

    /// An object has entered the state, or has another body.
    pub(super) fn enter(&mut self, path: &Path, object: &Object) {
        self.without_body.add(path, object);
        self.scope.enter(path, object);
        if object.valid {
            self.holders.add(&object.version.content.digest, path);
        }
    }

    /// An object has left the state, or is about to change.
    pub(super) fn leave(&mut self, path: &Path, object: &Object) {
        self.without_body.remove(path, object);
        self.scope.leave(path, object);
        if object.valid {
            self.holders.remove(&object.version.content.digest, path);
        }
    }

    /// Keeps an overwritten body until then.
    pub(super) fn keep_until(&mut self, until: LocalTime, digest: Digest) {
        self.grace.add(until, digest);
    }

    /// Gives up an overwritten body whose time is over; whether there was one.
    pub(super) fn expire(&mut self, now: LocalTime) -> bool {
        let is_over = self.grace.first().is_some_and(|until| until <= now);
        let over = is_over.then(|| self.grace.pop()).flatten();
        if let Some(digest) = over {
            self.references.release(&digest);
        }
        over.is_some()
    }

    /// The overwritten body that is given up first. The caller releases it.
    pub(super) fn pop_overwritten(&mut self) -> Option<Digest> {
        self.grace.pop()
    }

    /// A body is gone.
    pub(super) fn forget_overwritten(&mut self, digest: &Digest) {
        self.grace.forget(digest);
    }

    /// When the next overwritten body is given up.
    pub(super) fn expires_at(&self) -> Option<LocalTime> {
        self.grace.first()
    }
}

#[cfg(test)]
mod tests {
    use lull_cc::Bytes;

    use super::*;

    #[test]
    fn overwritten_body_is_kept_for_its_time() {
        let (body, at) = (Digest::of(b"body"), LocalTime::from_nanos);
        let references = BodyReferences::<()>::new([(body, Bytes(4))]);
        let mut bodies = Bodies::new(references, Early::default());
        bodies.references.refer(&body);
        bodies.keep_until(at(10), body);
        assert_eq!(bodies.expires_at(), Some(at(10)));
        assert!(!bodies.expire(at(9)));
        assert!(bodies.references.is_stored(&body));
        assert!(bodies.expire(at(10)));
        assert!(bodies.references.is_dropping(&body));
        assert!(!bodies.expire(at(99)));
    }

    #[test]
    fn lost_body_has_no_time_left() {
        let (body, at) = (Digest::of(b"body"), LocalTime::from_nanos);
        let mut bodies = Bodies::new(BodyReferences::<()>::new([]), Early::default());
        bodies.keep_until(at(10), body);
        bodies.forget_overwritten(&body);
        assert_eq!((bodies.expires_at(), bodies.pop_overwritten()), (None, None));
    }
}
