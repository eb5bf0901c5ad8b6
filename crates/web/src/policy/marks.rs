//! The values of [`MARK`](super::MARK) from the script, and the values in lists for the request after a
//! prefetch.
//!
//! | mark | of a request | of a list, to the script |
//! |---|---|---|
//! | `0` | only asks which server answers for the URL | |
//! | `1` | a prefetch: it has no cookies, and its copy varies on cookies | its visitor has no cookies, so the navigation finds the copy |
//! | `2` | has the copy stored for the cookies that this request has | its visitor has harmless cookies, so each copy is to be confirmed |

use super::visitor::Visitor;

/// A prefetch, and its reply if that may be kept.
pub(super) const AHEAD: &str = "1";
/// The confirmation of a copy.
pub(super) const CONFIRM: &str = "2";
/// The question which server answers for a URL.
pub(super) const LOOK: &str = "0";
/// The proxy's value for a rejection, and for its answer to the probe.
pub(super) const REFUSED: &str = "0";
/// The proxy's value for a prefetch without capacity: it may be hinted again.
pub(super) const NOT_NOW: &str = "3";

/// The mark of a list of hints for this visitor.
pub fn of_a_list(visitor: Visitor) -> &'static str {
    match visitor {
        Visitor::Cookieless => AHEAD,
        Visitor::Measured => CONFIRM,
    }
}
