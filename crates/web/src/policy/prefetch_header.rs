//! The values of [`PREFETCH_HEADER`](super::PREFETCH_HEADER) from the script, and those in lists for the request after a
//! prefetch.
//!
//! | value | of a request | of a list, to the script |
//! |---|---|---|
//! | `0` | only asks which server answers for the URL | |
//! | `1` | a prefetch: it has no cookies, and its copy varies on cookies | its visitor has no cookies, so the navigation finds the copy |
//! | `2` | has the copy stored for the cookies that this request has | its visitor has harmless cookies, so each copy is to be confirmed |

use super::visitor::Visitor;

/// A prefetch, and its reply if that may be kept.
pub(super) const PREFETCH: &str = "1";
/// The confirmation of a copy.
pub(super) const CONFIRM: &str = "2";
/// The question which server answers for a URL.
pub(super) const SERVER_CHECK: &str = "0";
/// The proxy's value for a rejection, and for its answer to the probe.
pub(super) const REFUSED: &str = "0";
/// The proxy's value for a prefetch without capacity: it may be hinted again.
pub(super) const NOT_NOW: &str = "3";

/// The value in a list of hints for this visitor.
pub fn value_for_list(visitor: Visitor) -> &'static str {
    match visitor {
        Visitor::Cookieless => PREFETCH,
        Visitor::Measured => CONFIRM,
    }
}
