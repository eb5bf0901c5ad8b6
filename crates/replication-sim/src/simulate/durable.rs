//! The durable state of a disk, and the operations on it, for the model and for the real store.

use std::sync::Arc;

use lull_cc::Bytes;
use lull_replication::BodyEffect;
use lull_replication::types::{Digest, Incarnation, Payload};
use lull_replication::{checker, origin, replica};
use lull_replication_daemon::store::{self, OriginState, ReplicaState, State, Tables};

/// A body, identified by its number.
pub(super) type Body = checker::Body;

/// The bytes of a numbered body: the number, and zeros up to its size.
pub(super) fn contents(body: Body, size: Bytes) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(size.0).expect("bodies here are small")];
    bytes[..8].copy_from_slice(&body.0.to_le_bytes());
    bytes
}

/// The durable state of a disk beside bodies.
pub(super) trait Durable: Clone + PartialEq + core::fmt::Debug {
    type Step: Clone;
    /// How the real store represents it.
    type State: State + Tables<Image = Self>;

    /// Applies a step; returns the bodies that it stores.
    fn apply(&mut self, step: &Self::Step) -> Vec<Payload<Body>>;

    /// The same step for the real store.
    fn step(step: &Self::Step) -> <Self::State as Tables>::Step;

    /// The initial state of the real store, for the image of an empty disk.
    fn state(&self) -> Self::State;

    fn incarnation(&mut self) -> &mut Incarnation;
}

impl Durable for origin::Image {
    type Step = origin::Append<Body>;
    type State = OriginState;

    fn step(step: &Self::Step) -> origin::Append<store::Body> {
        origin::Append {
            commits: step.commits.clone(),
            inline: step.inline.iter().map(real).collect(),
            log_after: step.log_after,
            chain_from: step.chain_from,
        }
    }

    fn state(&self) -> OriginState {
        OriginState::beginning(self.last())
    }

    fn incarnation(&mut self) -> &mut Incarnation {
        &mut self.incarnation
    }

    fn apply(&mut self, step: &Self::Step) -> Vec<Payload<Body>> {
        origin::Image::apply(self, step);
        step.inline.clone()
    }
}

impl Durable for replica::Image {
    type Step = Arc<replica::Step>;
    type State = ReplicaState;

    fn step(step: &Self::Step) -> Arc<replica::Step> {
        Arc::clone(step)
    }

    fn state(&self) -> ReplicaState {
        ReplicaState::default()
    }

    fn incarnation(&mut self) -> &mut Incarnation {
        &mut self.incarnation
    }

    fn apply(&mut self, step: &Self::Step) -> Vec<Payload<Body>> {
        replica::Image::apply(self, step);
        Vec::new()
    }
}

/// A body with all of its bytes.
pub(super) fn real(payload: &Payload<Body>) -> Payload<store::Body> {
    let bytes = contents(payload.bytes, payload.size);
    Payload { digest: payload.digest, size: payload.size, bytes: store::Body::Memory(bytes.into()) }
}

/// A requested operation of a disk.
#[derive(Clone, Debug)]
pub(super) enum Operation<S> {
    Store(Payload<Body>),
    Drop(Digest),
    Step(S),
}

impl<S> From<BodyEffect<Body>> for Operation<S> {
    fn from(effect: BodyEffect<Body>) -> Self {
        match effect {
            BodyEffect::Store(payload) => Operation::Store(payload),
            BodyEffect::Drop(digest) => Operation::Drop(digest),
        }
    }
}
