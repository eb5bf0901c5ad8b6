//! The children of a relay that wait to be admitted, the questions about them, and the relays among them.

use std::collections::{BTreeMap, BTreeSet};

use crate::message::{Frame, MAX_RELAYS, Refusal, Session, ToOrigin, Vouch};
use crate::types::{Incarnation, ReplicaId, Sequence};

/// The source of a question to the parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asker {
    /// The relay itself asks about a child.
    Own { child: ReplicaId, session: Session },
    /// A relay that is a child asks.
    Relay { child: ReplicaId, session: Session, question: u64, below: ReplicaId },
}

/// The state of a greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It waits until this relay serves children.
    Waits,
    /// The parent was asked.
    Asked,
    /// The parent has agreed.
    Admitted,
}

/// A child that has sent hello.
#[derive(Debug)]
struct Greeting {
    hello: Frame<ToOrigin>,
    vouch: Vouch,
    state: State,
}

impl Greeting {
    fn number(&self) -> (Incarnation, u32) {
        number(self.hello.session)
    }
}

/// Life and number of a connection.
fn number(session: Session) -> (Incarnation, u32) {
    (session.replica, session.connection)
}

#[derive(Debug, Default)]
pub(super) struct Children {
    greetings: BTreeMap<ReplicaId, Greeting>,
    /// By their numbers.
    questions: BTreeMap<u64, Asker>,
    last_question: u64,
    /// The relays that each child has reported.
    relays: BTreeMap<ReplicaId, Vec<ReplicaId>>,
    /// The last connections of admitted children, so that a late hello does not replace a newer one.
    newest: BTreeMap<ReplicaId, (Incarnation, u32)>,
}

impl Children {
    /// Questions without an answer, at most.
    const MAX_QUESTIONS: usize = 4_096;

    /// A child has sent hello; returns whether it is its newest.
    pub(super) fn greet(&mut self, hello: Frame<ToOrigin>, vouch: Vouch) -> bool {
        let (child, connection) = (vouch.replica, number(hello.session));
        let before = self.greetings.get(&child).map(Greeting::number);
        let newest = before.max(self.newest.get(&child).copied());
        if newest.is_some_and(|newest| connection <= newest) {
            return false;
        }
        self.relays.remove(&child);
        self.greetings.insert(child, Greeting { hello, vouch, state: State::Waits });
        true
    }

    /// Whether a child waits to be admitted.
    pub(super) fn waits(&self, child: ReplicaId) -> bool {
        self.greetings.contains_key(&child)
    }

    /// Whether a child waits on this connection.
    pub(super) fn is_greeting(&self, child: ReplicaId, session: Session) -> bool {
        self.greetings.get(&child).is_some_and(|greeting| greeting.number() == number(session))
    }

    /// The connection of a child has ended; returns whether it was the newest.
    pub(super) fn leave(&mut self, child: ReplicaId, session: Session) -> bool {
        let is_greeting = self.is_greeting(child, session);
        let is_newest = self.newest.get(&child) == Some(&number(session));
        let is_last = is_greeting || is_newest && !self.greetings.contains_key(&child);
        if is_last {
            self.forget(child);
        }
        is_last
    }

    /// A child does not wait any more, and has no relays below it.
    pub(super) fn forget(&mut self, child: ReplicaId) {
        self.greetings.remove(&child);
        self.relays.remove(&child);
    }

    /// The parent is gone, with the questions to it. Children that wait go on waiting.
    pub(super) fn cut(&mut self) {
        self.questions.clear();
        for greeting in self.greetings.values_mut() {
            greeting.state = State::Waits;
        }
    }

    /// A question about a child that waits.
    pub(super) fn poll_question(&mut self) -> Option<(Asker, Vouch)> {
        if self.questions.len() >= Self::MAX_QUESTIONS {
            return None;
        }
        let waits = |greeting: &&mut Greeting| greeting.state == State::Waits;
        let greeting = self.greetings.values_mut().find(waits)?;
        greeting.state = State::Asked;
        let (child, session) = (greeting.vouch.replica, greeting.hello.session);
        Some((Asker::Own { child, session }, greeting.vouch))
    }

    /// Numbers a question; none if there are too many.
    pub(super) fn ask(&mut self, asker: Asker) -> Option<u64> {
        if self.questions.len() >= Self::MAX_QUESTIONS {
            return None;
        }
        self.last_question += 1;
        self.questions.insert(self.last_question, asker);
        Some(self.last_question)
    }

    /// The parent has answered: returns its answer for the one who has asked, if that still waits for it.
    pub(super) fn answer(
        &mut self,
        question: u64,
        refusal: Option<Refusal>,
    ) -> Option<(Asker, Option<Refusal>)> {
        let asker = self.questions.remove(&question)?;
        if let Asker::Own { child, session } = asker {
            if !self.is_greeting(child, session) {
                return None;
            }
            if refusal.is_some() {
                self.forget(child);
            } else if let Some(greeting) = self.greetings.get_mut(&child) {
                greeting.state = State::Admitted;
            }
        }
        Some((asker, refusal))
    }

    /// A child that is admitted, and not ahead of the log.
    pub(super) fn poll_admitted(&mut self, last: Sequence) -> Option<(ReplicaId, Frame<ToOrigin>)> {
        let may = |(_, greeting): &(&ReplicaId, &Greeting)| {
            let position = greeting.vouch.position;
            greeting.state == State::Admitted && position.is_none_or(|one| one.sequence <= last)
        };
        let child = *self.greetings.iter().find(may)?.0;
        let greeting = self.greetings.remove(&child)?;
        self.newest.insert(child, greeting.number());
        Some((child, greeting.hello))
    }

    /// A child is a relay, with these below it; returns whether that is possible.
    pub(super) fn set_relays(&mut self, child: ReplicaId, relays: Vec<ReplicaId>) -> bool {
        self.relays.insert(child, relays);
        self.relays().count() < MAX_RELAYS
    }

    /// Another machine has joined under the number of a child.
    pub(super) fn replace(&mut self, child: ReplicaId) {
        self.forget(child);
        self.newest.remove(&child);
    }

    /// All relays below.
    pub(super) fn relays(&self) -> impl Iterator<Item = ReplicaId> + use<> {
        let all: BTreeSet<ReplicaId> = self.relays.values().flatten().copied().collect();
        all.into_iter()
    }
}
