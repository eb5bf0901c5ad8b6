//! The conditions on an object for a transaction to be committed.

use crate::types::Digest;

/// Bodies that a condition names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    /// Any body: the object must exist.
    Any,
    /// Bodies with these hashes.
    These(Vec<Digest>),
}

/// A condition on an object. It is judged when the transaction becomes a commit, by the state after the
/// earlier ones: a client that has read that state knows that the object was not written since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It has one of these bodies.
    Has(Named),
    /// It has none of these bodies, or there is no such object.
    HasNot(Named),
}

impl Condition {
    /// Whether it holds for an object with this body; none if there is no object.
    pub fn holds(&self, body: Option<&Digest>) -> bool {
        let (named, wanted) = match self {
            Condition::Has(named) => (named, true),
            Condition::HasNot(named) => (named, false),
        };
        let is_named = body.is_some_and(|body| match named {
            Named::Any => true,
            Named::These(bodies) => bodies.contains(body),
        });
        is_named == wanted
    }
}
