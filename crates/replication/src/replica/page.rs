//! Pages of a listing in the order of the names' bytes: those of one state.

use core::ops::Bound;

use crate::path::Path;
use crate::types::Version;

/// A part of a listing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PageRequest {
    /// Only files whose names begin with this.
    pub prefix: Vec<u8>,
    /// Names are cut behind its first place after the prefix, and each such beginning is listed once. Empty:
    /// nothing is cut.
    pub delimiter: Vec<u8>,
    /// Where it begins.
    pub from: Bound<Vec<u8>>,
    /// How many items, at most.
    pub limit: usize,
}

/// An item of a page.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PageItem {
    /// A file.
    File(Path, Version),
    /// The common beginning of several names, with the delimiter.
    Prefix(Vec<u8>),
}

/// A page. Links and folders are not in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Page {
    /// In the order of their bytes.
    pub items: Vec<PageItem>,
    /// Where the next page begins; none if this is the last one.
    pub next: Option<Bound<Vec<u8>>>,
}

/// The lowest bytes that are above all that begin with `prefix`; none if there are none.
pub fn above(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte < 0xff)?;
    let mut above = prefix[..=last].to_vec();
    above[last] += 1;
    Some(above)
}
