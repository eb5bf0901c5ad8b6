//! The names that this replica takes: the bodies of others come only if a read waits for them.

use lull_cc::Bytes;

use super::{Event, Object, Replica};
use crate::message::Stock;
use crate::path::Path;
use crate::subscription::{Pattern, Subscription};
use crate::types::Sequence;

/// The subscription, and its effect on the state. The counts are kept, so that no event goes through all objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Scope {
    only: Subscription,
    /// The objects that each pattern matches.
    matching: Vec<u64>,
    /// Other objects, of those without their bodies.
    unsubscribed_objects: u64,
    unsubscribed_bytes: u64,
    /// All objects that are not folders.
    files: u64,
    /// The last commit of the origin when that was first known. An earlier state may lack the objects of a pattern.
    complete_at: Option<Sequence>,
    /// Patterns without objects were reported.
    is_checked: bool,
}

impl Scope {
    fn new(only: Subscription) -> Self {
        Scope { matching: vec![0; only.patterns().len()], only, ..Scope::default() }
    }

    pub(super) fn only(&self) -> &Subscription {
        &self.only
    }

    /// Whether the body of an object is expected without a read.
    pub(super) fn has(&self, path: &Path) -> bool {
        self.only.has(path)
    }

    /// An object has entered the state.
    pub(super) fn enter(&mut self, path: &Path, object: &Object) {
        self.count(path, object, |count, by| *count += by);
    }

    /// An object has left the state, or is about to change.
    pub(super) fn leave(&mut self, path: &Path, object: &Object) {
        // A seeded bug may have put an uncounted object there.
        self.count(path, object, |count, by| *count = count.saturating_sub(by));
    }

    fn count(&mut self, path: &Path, object: &Object, step: impl Fn(&mut u64, u64)) {
        if self.only.is_all() {
            return;
        }
        if !object.version.content.is_folder() {
            step(&mut self.files, 1);
        }
        let mut is_taken = false;
        for (pattern, count) in self.only.patterns().iter().zip(&mut self.matching) {
            if pattern.matches(path) {
                is_taken = true;
                step(count, 1);
            }
        }
        if !is_taken && !object.valid {
            step(&mut self.unsubscribed_objects, 1);
            step(&mut self.unsubscribed_bytes, object.version.content.size.0);
        }
    }

    /// The origin has no commit after this one.
    pub(super) fn complete_at(&mut self, last: Sequence) {
        self.complete_at.get_or_insert(last);
    }

    /// The patterns without objects in the state after `position`, once. None before the state has files and is
    /// complete: then nothing is known about a pattern.
    fn take_unmatched(&mut self, position: Sequence) -> Vec<Pattern> {
        let is_known = !self.only.is_nothing()
            && self.files > 0
            && self.complete_at.is_some_and(|at| at <= position);
        if !is_known || core::mem::replace(&mut self.is_checked, true) {
            return Vec::new();
        }
        let all = self.only.patterns().iter().zip(&self.matching);
        all.filter(|(_, count)| **count == 0).map(|(pattern, _)| pattern.clone()).collect()
    }

    /// Adds the objects that are left out.
    pub(super) fn add_to(&self, stock: Stock) -> Stock {
        let (unsubscribed_objects, unsubscribed_bytes) =
            (self.unsubscribed_objects, Bytes(self.unsubscribed_bytes));
        Stock { unsubscribed_objects, unsubscribed_bytes, ..stock }
    }
}

impl<P: Clone> Replica<P> {
    /// Takes these names only. To be called before the first connection of this life. Metadata of all names come all
    /// the same; a read of another name fetches its body.
    pub fn subscribe(&mut self, only: Subscription) {
        self.apply.buffer.subscribe(only.clone());
        self.bodies.scope = Scope::new(only);
        for (path, object) in &self.image.objects {
            self.bodies.scope.enter(path, object);
        }
    }

    /// Reports patterns without objects, which are probably mistakes.
    pub(super) fn report_unmatched(&mut self) {
        let position = self.position();
        let unmatched = self.bodies.scope.take_unmatched(position).into_iter();
        self.output.events.extend(unmatched.map(Event::Unmatched));
    }

    /// Whether it takes no names: no body comes before it is read.
    pub fn is_metered(&self) -> bool {
        self.bodies.scope.only.is_nothing()
    }

    /// The bytes that one read is worth on its link; none if that has no price.
    pub fn bytes_per_read(&self) -> Option<Bytes> {
        self.config.bytes_per_read
    }

    /// The patterns of names that it takes, and how many objects each matches; none if it takes all.
    pub fn patterns(&self) -> impl Iterator<Item = (&Pattern, u64)> {
        let Scope { only, matching, .. } = &self.bodies.scope;
        only.patterns().iter().zip(matching.iter().copied())
    }
}
