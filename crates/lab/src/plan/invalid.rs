//! Errors in a part of a plan.

use lull_sim::traffic::SizesError;

use super::expression::ExpressionError;

/// Why a part of a plan is invalid, in one line. The position is in [`PlanError`](super::PlanError).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// A key is missing.
    #[error("its kind needs the key '{0}'")]
    Missing(&'static str),
    /// A key is not allowed here.
    #[error("'{key}' belongs to {owner}")]
    Foreign {
        /// The key.
        key: &'static str,
        /// The owner of the key.
        owner: &'static str,
    },
    /// The value of a key is not allowed.
    #[error("{key} = {value}: {allowed}")]
    Value {
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
        /// The allowed values.
        allowed: String,
    },
    /// A name is not defined.
    #[error("there is no {what} '{name}': choose one of {known}")]
    Unknown {
        /// The kind of name.
        what: &'static str,
        /// The name.
        name: String,
        /// The defined names.
        known: String,
    },
    /// A name is used for a wrong purpose.
    #[error("'{name}' {why}")]
    Name {
        /// The name.
        name: String,
        /// The reason.
        why: &'static str,
    },
    /// Keys that exclude each other, or a broken rule about several keys.
    #[error("{0}")]
    Rule(&'static str),
    /// An expression has no value.
    #[error(transparent)]
    Expression(#[from] ExpressionError),
    /// A distribution of sizes is invalid.
    #[error("sizes: {0}")]
    Sizes(SizesError),
    /// An element of the part is invalid.
    #[error("{part}: {why}")]
    Within {
        /// The element.
        part: String,
        /// The reason.
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

    /// The same, for an element of the part.
    pub(super) fn within(self, part: impl Into<String>) -> Self {
        Invalid::Within { part: part.into(), why: Box::new(self) }
    }

    /// The key, if one is wrong.
    pub(super) fn key(&self) -> Option<&'static str> {
        match self {
            Invalid::Missing(key) | Invalid::Foreign { key, .. } | Invalid::Value { key, .. } => {
                Some(key)
            }
            _ => None,
        }
    }
}
