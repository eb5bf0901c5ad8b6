//! Version vectors.

use super::WriterId;

/// A position in the log of each writer: the state that contains these commits and all before them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Vector(Vec<u64>);

impl Vector {
    /// The empty state of this many logs.
    pub fn zero(writers: usize) -> Self {
        Vector(vec![0; writers])
    }

    /// The position in one log; zero before its first commit.
    pub fn get(&self, writer: WriterId) -> u64 {
        self.0[writer.0]
    }

    /// The position in one log is at least this one.
    pub fn raise(&mut self, writer: WriterId, position: u64) {
        let own = &mut self.0[writer.0];
        *own = position.max(*own);
    }

    /// The position in one log is this one.
    pub fn set(&mut self, writer: WriterId, position: u64) {
        self.0[writer.0] = position;
    }

    /// The least state that contains both.
    pub fn join(&mut self, other: &Vector) {
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            *own = (*own).max(*other);
        }
    }

    /// Whether this state contains the other one.
    pub fn covers(&self, other: &Vector) -> bool {
        self.0.iter().zip(&other.0).all(|(own, other)| own >= other)
    }
}
