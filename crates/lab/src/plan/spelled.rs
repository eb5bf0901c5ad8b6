//! Quantities that a plan spells as text, such as `10mbit`, `50ms` and `1bdp`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use lull_cc::Bytes;
use lull_emulator::{Buffer, ParseError, parse_duration};

/// A quantity with its original spelling, so that records show it as in the plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Spelled<T> {
    /// The quantity.
    pub value: T,
    text: String,
}

impl<T> Spelled<T> {
    /// Its original text.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl<T: FromStr> FromStr for Spelled<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        Ok(Spelled { value: text.parse()?, text: text.to_owned() })
    }
}

impl<T> fmt::Display for Spelled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<T> Serialize for Spelled<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Spelled<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

/// A duration, spelled `300us`, `50ms` or `2.5s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time(pub Duration);

impl FromStr for Time {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        parse_duration(text).map(Time)
    }
}

/// An amount of data, spelled `100kB`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Size(pub(super) Bytes);

/// A text that is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a size: write 500B, 100kB or 1MB, for example")]
pub(super) struct SizeError(String);

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        match text.parse::<Buffer>() {
            Ok(Buffer::Bytes(bytes)) if bytes.0 > 0 => Ok(Size(bytes)),
            _ => Err(SizeError(text.to_owned())),
        }
    }
}
