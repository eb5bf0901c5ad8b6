//! The bodies in the store, and the references to them.
//!
//! Bodies are stored under their hash. So one body may belong to many versions, and a body may be needed
//! again while it is being deleted. A body is dropped with its last reference. A body that is needed
//! meanwhile is stored only after the deletion, because a store that runs both at once may end without the
//! body.
//!
//! ```text
//!              keep               stored
//!   (absent) ───────▶ Storing ──────────────▶ Stored
//!       ▲                │ no room, or            │ no reference left,
//!       │◀───────────────┘ refers to it           ▼ or it is corrupted
//!       │                      dropped        Dropping
//!       └◀───────────────────────────────────────┤
//!                     Storing ◀──────────────────┘ dropped, and wanted meanwhile
//! ```
//!
//! A body may be stored in two ways at once, by itself and with a step: it exists if one of them succeeds.
//!
//! An object that needs a lost body keeps its reference, see [`BodyReferences::miss`]: the body is `Lost` until it is
//! stored again, or until the last reference is released.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use lull_cc::Bytes;

use crate::types::{Digest, DiskFull, Payload};

/// A job of the store. Each is answered, in any order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BodyEffect<P> {
    /// Store a body, and answer when it is durable.
    Store(Payload<P>),
    /// Delete a body.
    Drop(Digest),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State<P> {
    /// In several ways, each of which gets an answer.
    Storing {
        ways: u32,
    },
    Stored,
    Dropping {
        then: Option<Payload<P>>,
    },
    /// It is referred to, and not stored.
    Lost,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Entry<P> {
    references: u32,
    size: Bytes,
    state: State<P>,
    /// It was lost and is not back so far: references are kept whether it is stored or not.
    missed: bool,
}

impl<P> Entry<P> {
    fn is_stored(&self) -> bool {
        matches!(self.state, State::Stored)
    }
}

/// A reference to a body by a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pin(Digest, u64);

/// The bodies of one machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BodyReferences<P> {
    entries: BTreeMap<Digest, Entry<P>>,
    pins: BTreeSet<Pin>,
    last_pin: u64,
    effects: VecDeque<BodyEffect<P>>,
    bytes: u64,
    /// Of these, bytes being deleted.
    leaving: u64,
    waited: u64,
    /// Bodies that have become stored, or have ceased to be, in that order. `None` if no caller reads the
    /// list.
    turned: Option<VecDeque<(Digest, bool)>>,
    /// Bodies whose references or storage have changed. None if no caller reads the list.
    changed: Option<VecDeque<Digest>>,
    /// Bodies whose deletion has begun. None if no caller reads the list.
    doomed: Option<VecDeque<Digest>>,
    /// Bodies on their way into the store.
    coming: BTreeSet<Digest>,
    /// The store has another owner, who reports its bodies: nothing is stored or dropped for these references.
    is_borrowed: bool,
}

impl<P> BodyReferences<P> {
    /// Of the bodies that were found in the store. [`BodyReferences::collect`] drops those without
    /// references.
    pub(crate) fn new(found: impl IntoIterator<Item = (Digest, Bytes)>) -> Self {
        let entry = |size| Entry { references: 0, size, state: State::Stored, missed: false };
        let entries: BTreeMap<_, _> =
            found.into_iter().map(|(digest, size)| (digest, entry(size))).collect();
        let bytes = entries.values().map(|entry| entry.size.0).sum();
        let (pins, effects) = Default::default();
        BodyReferences {
            entries,
            pins,
            last_pin: 0,
            effects,
            bytes,
            leaving: 0,
            waited: 0,
            turned: None,
            changed: None,
            doomed: None,
            coming: BTreeSet::new(),
            is_borrowed: false,
        }
    }

    /// For a store with another owner: see [`found`](BodyReferences::found) and [`gone`](BodyReferences::gone).
    pub(crate) fn borrowed() -> Self {
        BodyReferences { is_borrowed: true, ..BodyReferences::new([]) }
    }

    /// The owner of the store has a body.
    pub(crate) fn found(&mut self, digest: &Digest) {
        let new = Entry { references: 0, size: Bytes(0), state: State::Stored, missed: false };
        let entry = self.entries.entry(*digest).or_insert(new);
        if matches!(entry.state, State::Lost) {
            (entry.state, entry.missed) = (State::Stored, false);
            self.bytes += entry.size.0;
        }
    }

    /// The owner of the store has a body no longer.
    pub(crate) fn gone(&mut self, digest: &Digest) {
        self.miss(digest);
        if self.entries.get(digest).is_some_and(|entry| entry.references == 0) {
            self.entries.remove(digest);
        }
    }

    /// The bodies in the store.
    pub(crate) fn stored(&self) -> impl Iterator<Item = &Digest> {
        self.entries.iter().filter(|(_, entry)| entry.is_stored()).map(|(digest, _)| digest)
    }

    /// From now on [`poll_turned`](BodyReferences::poll_turned) reports each change of [`is_stored`](BodyReferences::is_stored).
    pub(crate) fn follow(&mut self) {
        self.turned = Some(VecDeque::new());
    }

    /// The next body that has become stored, or has ceased to be, and which of both.
    pub(crate) fn poll_turned(&mut self) -> Option<(Digest, bool)> {
        self.turned.as_mut()?.pop_front()
    }

    fn turn(turned: &mut Option<VecDeque<(Digest, bool)>>, digest: &Digest, is_stored: bool) {
        if let Some(turned) = turned {
            turned.push_back((*digest, is_stored));
        }
    }

    /// From now on [`poll_changed`](BodyReferences::poll_changed) reports each change of [`held_by`](BodyReferences::held_by).
    pub(crate) fn follow_references(&mut self) {
        self.changed = Some(VecDeque::new());
    }

    /// The next body with a changed number of bytes that one reference frees.
    pub(crate) fn poll_changed(&mut self) -> Option<Digest> {
        self.changed.as_mut()?.pop_front()
    }

    /// From now on [`poll_doomed`](BodyReferences::poll_doomed) reports each deletion that begins.
    pub(crate) fn follow_drops(&mut self) {
        self.doomed = Some(VecDeque::new());
    }

    /// The next body whose deletion has begun.
    pub(crate) fn poll_doomed(&mut self) -> Option<Digest> {
        self.doomed.as_mut()?.pop_front()
    }

    /// Forgets deletions that were not polled.
    pub(crate) fn forget_doomed(&mut self) {
        self.doomed.iter_mut().for_each(VecDeque::clear);
    }

    /// The deletion of a body begins.
    fn drop_body(&mut self, digest: &Digest) {
        self.effects.push_back(BodyEffect::Drop(*digest));
        if let Some(doomed) = &mut self.doomed {
            doomed.push_back(*digest);
        }
    }

    fn change(&mut self, digest: &Digest) {
        if let Some(changed) = &mut self.changed {
            changed.push_back(*digest);
        }
    }

    /// Whether the body is durable, and will not be deleted.
    pub(crate) fn is_stored(&self, digest: &Digest) -> bool {
        self.entries.get(digest).is_some_and(Entry::is_stored)
    }

    /// Whether the body is stored with this size.
    pub(crate) fn is_stored_as(&self, digest: &Digest, size: Bytes) -> bool {
        let is_it = |entry: &Entry<P>| matches!(entry.state, State::Stored) && entry.size == size;
        self.entries.get(digest).is_some_and(is_it)
    }

    /// Bytes that would be freed if a body had this many references less.
    pub(crate) fn held_by(&self, digest: &Digest, references: u32) -> Bytes {
        match self.entries.get(digest) {
            Some(entry) if entry.references == references && entry.is_stored() => entry.size,
            _ => Bytes(0),
        }
    }

    /// Whether the body is on its way into the store, which will answer.
    pub(crate) fn is_coming(&self, digest: &Digest) -> bool {
        let state = self.entries.get(digest).map(|entry| &entry.state);
        matches!(state, Some(State::Storing { .. } | State::Dropping { then: Some(_) }))
    }

    /// The bodies that are on their way into the store.
    pub(crate) fn coming(&self) -> impl Iterator<Item = &Digest> {
        self.coming.iter()
    }

    /// Whether the body is in deletion: users of it have to wait, or store it again.
    pub(crate) fn is_dropping(&self, digest: &Digest) -> bool {
        self.entries.get(digest).is_some_and(|entry| matches!(entry.state, State::Dropping { .. }))
    }

    /// Whether the body should be here but is missing.
    pub(crate) fn is_lost(&self, digest: &Digest) -> bool {
        self.entries.get(digest).is_some_and(|entry| matches!(entry.state, State::Lost))
    }

    /// The bodies that are referred to, and not stored.
    pub(crate) fn lost(&self) -> impl Iterator<Item = &Digest> {
        let lost = self.entries.iter().filter(|(_, entry)| matches!(entry.state, State::Lost));
        lost.map(|(digest, _)| digest)
    }

    /// Bytes in the store, with those on their way into and out of it.
    pub(crate) fn bytes(&self) -> Bytes {
        Bytes(self.bytes)
    }

    /// Bytes that stay: without those being deleted.
    pub(crate) fn kept(&self) -> Bytes {
        Bytes(self.bytes - self.leaving)
    }

    /// How often a body had to wait for its own deletion.
    pub(crate) fn take_waited(&mut self) -> u64 {
        core::mem::take(&mut self.waited)
    }

    /// Stores a body unless it exists, and refers to it.
    pub(crate) fn store_referenced(&mut self, payload: Payload<P>) {
        self.change(&payload.digest);
        let digest = payload.digest;
        match self.entries.get_mut(&digest) {
            None => {
                self.insert(payload.digest, payload.size);
                self.effects.push_back(BodyEffect::Store(payload));
            }
            Some(entry) => {
                entry.references += 1;
                match &mut entry.state {
                    State::Dropping { then } if then.is_none() => {
                        *then = Some(payload);
                        self.coming.insert(digest);
                        self.leaving -= entry.size.0;
                        self.waited += 1;
                    }
                    State::Lost => {
                        entry.state = State::Storing { ways: 1 };
                        self.coming.insert(digest);
                        self.bytes += entry.size.0;
                        self.effects.push_back(BodyEffect::Store(payload));
                    }
                    State::Storing { .. } | State::Stored | State::Dropping { .. } => {}
                }
            }
        }
    }

    /// Refers to a body that enters the store by other means, unless it is being deleted.
    pub(crate) fn expect(&mut self, digest: Digest, size: Bytes) -> bool {
        self.change(&digest);
        match self.entries.get_mut(&digest) {
            None => self.insert(digest, size),
            Some(entry) if matches!(entry.state, State::Dropping { .. }) => return false,
            Some(entry) => {
                entry.references += 1;
                match &mut entry.state {
                    State::Lost => {
                        entry.state = State::Storing { ways: 1 };
                        self.coming.insert(digest);
                        self.bytes += entry.size.0;
                    }
                    State::Storing { ways } => *ways += 1,
                    State::Stored | State::Dropping { .. } => {}
                }
            }
        }
        true
    }

    fn insert(&mut self, digest: Digest, size: Bytes) {
        self.bytes += size.0;
        let state = State::Storing { ways: 1 };
        self.coming.insert(digest);
        self.entries.insert(digest, Entry { references: 1, size, state, missed: false });
    }

    /// Adds a reference to an existing body.
    ///
    /// # Panics
    /// If it is not stored.
    pub(crate) fn refer(&mut self, digest: &Digest) {
        self.change(digest);
        let entry =
            self.entries.get_mut(digest).filter(|entry| matches!(entry.state, State::Stored));
        entry.expect("only bodies that are stored are referred to").references += 1;
    }

    /// References a body for a reader, if it is there.
    pub(crate) fn pin(&mut self, digest: &Digest) -> Option<Pin> {
        if !self.is_stored(digest) {
            return None;
        }
        self.refer(digest);
        self.last_pin += 1;
        let pin = Pin(*digest, self.last_pin);
        self.pins.insert(pin);
        Some(pin)
    }

    /// Releases a reader's reference. If the body was lost meanwhile, that reference is void.
    pub(crate) fn unpin(&mut self, pin: Pin) {
        if self.pins.remove(&pin) {
            self.release(&pin.0);
        }
    }

    /// Whether a reader holds the body.
    pub(crate) fn is_pinned(&self, digest: &Digest) -> bool {
        self.pins.range(Pin(*digest, 0)..=Pin(*digest, u64::MAX)).next().is_some()
    }

    fn forget_pins(&mut self, digest: &Digest) {
        let all = Pin(*digest, 0)..=Pin(*digest, u64::MAX);
        while let Some(pin) = self.pins.range(all.clone()).next().copied() {
            self.pins.remove(&pin);
        }
    }

    /// Removes a reference. A lost body has none any more.
    pub(crate) fn release(&mut self, digest: &Digest) {
        self.change(digest);
        let Some(entry) = self.entries.get_mut(digest) else { return };
        entry.references = entry.references.saturating_sub(1);
        if entry.references == 0 && self.is_borrowed {
            if !entry.is_stored() {
                self.entries.remove(digest);
            }
        } else if entry.references == 0 {
            match &mut entry.state {
                State::Storing { .. } => {}
                // A corrupt body may be in its place.
                State::Lost => {
                    (entry.state, entry.missed) = (State::Dropping { then: None }, false);
                    self.bytes += entry.size.0;
                    self.leaving += entry.size.0;
                    self.drop_body(digest);
                }
                State::Dropping { then } => {
                    if then.take().is_some() {
                        self.coming.remove(digest);
                        self.leaving += entry.size.0;
                    }
                }
                State::Stored => {
                    entry.state = State::Dropping { then: None };
                    self.leaving += entry.size.0;
                    self.drop_body(digest);
                    Self::turn(&mut self.turned, digest, false);
                }
            }
        }
    }

    /// The store has answered one of the requests to store the body; returns whether a lost body is back. If
    /// none of them had space, all references are released; a lost body stays lost.
    pub(crate) fn handle_stored(&mut self, digest: &Digest, outcome: Result<(), DiskFull>) -> bool {
        self.change(digest);
        let Some(entry) = self.entries.get_mut(digest) else { return false };
        let State::Storing { ways } = &mut entry.state else { return false };
        *ways -= 1;
        if outcome.is_err() && *ways > 0 {
            return false;
        }
        self.coming.remove(digest);
        let back = outcome.is_ok() && core::mem::take(&mut entry.missed);
        if outcome.is_err() && entry.missed {
            entry.state = State::Lost;
            self.bytes -= entry.size.0;
        } else if outcome.is_err() {
            self.lose(digest);
        } else if entry.references == 0 {
            entry.state = State::Dropping { then: None };
            self.leaving += entry.size.0;
            self.drop_body(digest);
        } else {
            entry.state = State::Stored;
            Self::turn(&mut self.turned, digest, true);
        }
        back
    }

    /// The store has deleted the body.
    pub(crate) fn handle_dropped(&mut self, digest: &Digest) {
        let Some(entry) = self.entries.get_mut(digest) else { return };
        let State::Dropping { then } = &mut entry.state else { return };
        match then.take() {
            Some(payload) => {
                entry.state = State::Storing { ways: 1 };
                self.effects.push_back(BodyEffect::Store(payload));
            }
            None => self.lose(digest),
        }
    }

    /// A stored body is missing or corrupt. References to it stay.
    pub(crate) fn miss(&mut self, digest: &Digest) {
        self.change(digest);
        if let Some(entry) = self.entries.get_mut(digest)
            && matches!(entry.state, State::Stored)
        {
            (entry.state, entry.missed) = (State::Lost, true);
            self.bytes -= entry.size.0;
            Self::turn(&mut self.turned, digest, false);
        }
    }

    /// Refers to a body, whether it was found at the start or not.
    pub(crate) fn need(&mut self, digest: &Digest, size: Bytes) {
        self.change(digest);
        let lost = Entry { references: 0, size, state: State::Lost, missed: true };
        self.entries.entry(*digest).or_insert(lost).references += 1;
    }

    /// The body is missing from the store or corrupt: all references are released.
    pub(crate) fn lose(&mut self, digest: &Digest) {
        self.change(digest);
        self.forget_pins(digest);
        self.coming.remove(digest);
        if let Some(entry) = self.entries.remove(digest) {
            if matches!(entry.state, State::Lost) {
                return;
            }
            self.bytes -= entry.size.0;
            if matches!(entry.state, State::Dropping { then: None }) {
                self.leaving -= entry.size.0;
            }
            if entry.is_stored() {
                Self::turn(&mut self.turned, digest, false);
            }
        }
    }

    /// A stored body is corrupt: all references are released, and the file is deleted.
    pub(crate) fn discard(&mut self, digest: &Digest) {
        self.change(digest);
        self.forget_pins(digest);
        if let Some(entry) = self.entries.get_mut(digest).filter(|entry| entry.is_stored()) {
            (entry.state, entry.references) = (State::Dropping { then: None }, 0);
            self.leaving += entry.size.0;
            self.drop_body(digest);
            Self::turn(&mut self.turned, digest, false);
        }
    }

    /// Drops bodies without references: after a start, once all references are taken.
    pub(crate) fn collect(&mut self) {
        for (digest, entry) in &mut self.entries {
            if entry.references == 0 && matches!(entry.state, State::Stored) {
                entry.state = State::Dropping { then: None };
                self.leaving += entry.size.0;
                self.effects.push_back(BodyEffect::Drop(*digest));
                Self::turn(&mut self.turned, digest, false);
            }
        }
    }

    pub(crate) fn poll_effect(&mut self) -> Option<BodyEffect<P>> {
        self.effects.pop_front()
    }
}

#[cfg(test)]
mod tests;
