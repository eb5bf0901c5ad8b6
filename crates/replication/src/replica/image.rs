//! The contents of a replica's stable storage.

use std::collections::BTreeMap;

use crate::message::Stock;
use crate::path::Path;
use crate::types::{Incarnation, Position, Version};

/// An object as readers may see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Object {
    /// The version.
    pub version: Version,
    /// Whether its body is in the store. If not, a read has to wait for it.
    pub valid: bool,
}

/// One durable step: after a crash all of it is present, or nothing, and readers see all of it or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Step {
    /// The position of the state after it.
    pub position: Option<Position>,
    /// Objects that change, or cease to exist.
    pub changes: BTreeMap<Path, Option<Object>>,
}

/// The state of a replica on stable storage: the initial state at a start, which [`Step`]s change. The
/// reference for stores: theirs must equal it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Image {
    /// The replica's life. It is incremented before a replica starts.
    pub incarnation: Incarnation,
    /// The position of the state; none before the first one.
    pub position: Option<Position>,
    /// All objects.
    pub objects: BTreeMap<Path, Object>,
}

impl Image {
    /// Does a step.
    pub fn apply(&mut self, step: &Step) {
        self.position = step.position;
        for (path, object) in &step.changes {
            match object {
                Some(object) => self.objects.insert(path.clone(), *object),
                None => self.objects.remove(path),
            };
        }
    }
}

impl Stock {
    pub(super) fn add(&mut self, object: &Object) {
        let size = object.version.content.size.0;
        self.objects += 1;
        self.bytes.0 += size;
        if object.valid {
            self.valid_objects += 1;
            self.valid_bytes.0 += size;
        }
    }

    pub(super) fn remove(&mut self, object: &Object) {
        let size = object.version.content.size.0;
        // A seeded bug may have put an uncounted object there.
        self.objects = self.objects.saturating_sub(1);
        self.bytes.0 = self.bytes.0.saturating_sub(size);
        if object.valid {
            self.lose(object);
        }
    }

    /// An object's body is no longer stored.
    pub(super) fn lose(&mut self, object: &Object) {
        let size = object.version.content.size.0;
        self.valid_objects = self.valid_objects.saturating_sub(1);
        self.valid_bytes.0 = self.valid_bytes.0.saturating_sub(size);
    }
}
