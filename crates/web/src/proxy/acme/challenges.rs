//! Answers to the challenges of a certificate authority, while it asks (RFC 8555 §8.3).

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Where it asks.
pub(crate) const PATH: &str = "/.well-known/acme-challenge/";

/// The current answers by token.
#[derive(Debug, Default)]
pub(crate) struct Challenges(Mutex<BTreeMap<String, String>>);

impl Challenges {
    fn answers(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer for a path, if Lull has a challenge there. The site may have its own answers.
    pub(crate) fn answer(&self, path: &str) -> Option<String> {
        let token = path.strip_prefix(PATH)?;
        self.answers().get(token).cloned()
    }

    /// Answers that are there for as long as this lives.
    pub(crate) fn offer(&self) -> Offered<'_> {
        Offered { challenges: self, tokens: Vec::new() }
    }
}

/// Answers for one order.
pub(crate) struct Offered<'a> {
    challenges: &'a Challenges,
    tokens: Vec<String>,
}

impl Offered<'_> {
    pub(crate) fn add(&mut self, token: &str, answer: &str) {
        self.challenges.answers().insert(token.to_owned(), answer.to_owned());
        self.tokens.push(token.to_owned());
    }
}

impl Drop for Offered<'_> {
    fn drop(&mut self) {
        let mut answers = self.challenges.answers();
        for token in &self.tokens {
            answers.remove(token);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenge_is_answered_while_its_order_lasts() {
        let challenges = Challenges::default();
        let answer = |token: &str| challenges.answer(&format!("{PATH}{token}"));
        {
            let mut offered = challenges.offer();
            offered.add("t1", "t1.key");
            assert_eq!(answer("t1").as_deref(), Some("t1.key"));
            assert_eq!((answer("t2"), challenges.answer("/t1")), (None, None));
        }
        assert_eq!(answer("t1"), None);
    }
}
