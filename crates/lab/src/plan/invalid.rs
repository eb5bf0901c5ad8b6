//! What is wrong with a part of a plan.

use lull_sim::traffic::SizesError;

use super::expression::ExpressionError;

/// Why a part of a plan is invalid, in one line. Where that is, a [`PlanError`](super::PlanError) says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// A key is missing.
    #[error("its kind needs the key '{0}'")]
    Missing(&'static str),
    /// A key has no meaning here.
    #[error("'{key}' belongs to {owner}")]
    Foreign {
        /// The key.
        key: &'static str,
        /// What it is a key of.
        owner: &'static str,
    },
    /// The value of a key is not allowed.
    #[error("{key} = {value}: {allowed}")]
    Value {
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
        /// What it may be.
        allowed: String,
    },
    /// A name stands for nothing.
    #[error("there is no {what} '{name}': there are {known}")]
    Unknown {
        /// What was looked for.
        what: &'static str,
        /// The name.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// A name is used for something else than what it stands for.
    #[error("'{name}' {why}")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Keys do not go together, or a rule about several of them is broken.
    #[error("{0}")]
    Rule(&'static str),
    /// An expression has no value.
    #[error(transparent)]
    Expression(#[from] ExpressionError),
    /// A distribution of sizes cannot be used.
    #[error("sizes: {0}")]
    Sizes(SizesError),
    /// A part of the part is wrong.
    #[error("{part}: {why}")]
    Within {
        /// The part.
        part: String,
        /// What is wrong with it.
        why: Box<Invalid>,
    },
}

impl Invalid {
    /// The value of a key is not allowed.
    pub(super) fn value(
        key: &'static str,
        value: impl ToString,
        allowed: impl Into<String>,
    ) -> Self {
        Invalid::Value { key, value: value.to_string(), allowed: allowed.into() }
    }

    /// The same, of a part of what is described.
    pub(super) fn within(self, part: impl Into<String>) -> Self {
        Invalid::Within { part: part.into(), why: Box::new(self) }
    }

    /// The key, where one is at fault.
    pub(super) fn key(&self) -> Option<&'static str> {
        match self {
            Invalid::Missing(key) | Invalid::Foreign { key, .. } | Invalid::Value { key, .. } => {
                Some(key)
            }
            _ => None,
        }
    }
}
