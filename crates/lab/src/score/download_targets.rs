//! How many cells of downloads are at their targets.

use std::fmt;

use serde::Serialize;

use super::cells::{Foreground, Link, Queue};
use super::measures::CellScore;
use super::scheme::Scheme;

/// The part of its goodput that the foreground should keep, and the part that it should never lose.
const KEPT: f64 = 0.95;
const LEAST_KEPT: f64 = 0.85;
/// The part of an idle link that the background should use.
const REAPED: f64 = 0.9;
/// The background should have returned after half a second and so many round-trip times.
const RETURN_RTTS: f64 = 15.0;

/// A number of cells, and how many of them are at a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Part {
    /// The cells that count.
    pub of: usize,
    /// Cells at the target.
    pub at: usize,
}

impl Part {
    fn count(values: impl Iterator<Item = bool>) -> Self {
        values.fold(Part::default(), |part, is_at| Part {
            of: part.of + 1,
            at: part.at + usize::from(is_at),
        })
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.at, self.of)
    }
}

/// The cells of one controller that are at the targets for downloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Targets {
    /// The background's controller.
    pub scheme: Scheme,
    /// The foreground keeps 0.95, with buffers from 1 BDP on.
    pub kept: Part,
    /// It keeps 0.85, with the same buffers.
    pub least_kept: Part,
    /// The same two with a buffer of a quarter of the BDP.
    pub kept_shallow: Part,
    /// See [`Targets::kept_shallow`].
    pub least_kept_shallow: Part,
    /// The background has returned within 15 round-trip times and half a second.
    pub returned: Part,
    /// Alone it uses 0.9 of a steady link.
    pub reaped_steady: Part,
    /// Alone it uses 0.9 of a link with pauses.
    pub reaped_pausing: Part,
}

impl Targets {
    /// Counts the cells of a controller.
    pub(super) fn new(scheme: Scheme, cells: &[CellScore]) -> Self {
        let own = || cells.iter().filter(move |one| one.scheme == scheme);
        let keeps = |is_shallow: bool, least: f64| {
            let cells = own().filter(|one| is_shallow == is_below_bdp(one));
            Part::count(cells.filter_map(|one| one.kept).map(|kept| kept >= least))
        };
        let reaps = |is_steady: bool| {
            let cells = own().filter(|one| one.cell.foreground == Foreground::None);
            let cells = cells.filter(|one| is_steady == (one.cell.link == Link::Steady));
            Part::count(cells.filter_map(|one| one.reaped).map(|reaped| reaped >= REAPED))
        };
        let is_in_time = |one: &CellScore| {
            let limit = 0.5 + RETURN_RTTS * one.cell.network.rtt_ms as f64 / 1000.0;
            one.return_s.map(|seconds| seconds <= limit)
        };
        Targets {
            scheme,
            kept: keeps(false, KEPT),
            least_kept: keeps(false, LEAST_KEPT),
            kept_shallow: keeps(true, KEPT),
            least_kept_shallow: keeps(true, LEAST_KEPT),
            returned: Part::count(own().filter_map(is_in_time)),
            reaped_steady: reaps(true),
            reaped_pausing: reaps(false),
        }
    }
}

fn is_below_bdp(score: &CellScore) -> bool {
    matches!(score.cell.queue, Queue::DropTail { percent_of_bdp } if percent_of_bdp < 100)
}

impl fmt::Display for Targets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: the foreground keeps 0.95 in {} cells from 1 BDP on and 0.85 in {}, at 0.25 BDP in {} and {}; back within \
             15 RTTs + 0.5 s in {}; alone 0.9 of {} steady links and of {} with pauses",
            self.scheme,
            self.kept,
            self.least_kept,
            self.kept_shallow,
            self.least_kept_shallow,
            self.returned,
            self.reaped_steady,
            self.reaped_pausing
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::cells::Set;
    use super::super::groups::Group;
    use super::*;

    fn score(group: Group, place: usize) -> CellScore {
        let cell = group.cells(Set::Downloads, 201)[place];
        CellScore::empty(group, Scheme::DownloadCubic, cell)
    }

    #[test]
    fn cells_are_counted_by_buffer_and_link() {
        let beside = |group, kept, return_s| CellScore {
            kept: Some(kept),
            // The first network has a round-trip time of 20 ms: 0.8 s are in time.
            return_s: Some(return_s),
            ..score(group, 0)
        };
        let alone = |place, reaped| CellScore { reaped: Some(reaped), ..score(Group::Idle, place) };
        let cells = [
            beside(Group::Bulk, 0.95, 0.8),
            beside(Group::Bulk, 0.90, 0.85),
            beside(Group::Shallow, 0.80, 0.1),
            alone(0, 0.9),
            // After the 18 steady ones.
            alone(18, 0.5),
        ];
        let of = |at, of| Part { of, at };
        let expected = Targets {
            scheme: Scheme::DownloadCubic,
            kept: of(1, 2),
            least_kept: of(2, 2),
            kept_shallow: of(0, 1),
            least_kept_shallow: of(0, 1),
            returned: of(2, 3),
            reaped_steady: of(1, 1),
            reaped_pausing: of(0, 1),
        };
        assert_eq!(Targets::new(Scheme::DownloadCubic, &cells), expected);
    }
}
