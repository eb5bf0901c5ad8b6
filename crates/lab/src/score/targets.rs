//! The targets of Lull, and the share of cells that reach each.

use serde::Serialize;

use super::cells::{Cell, Foreground, Link, Queue};
use super::groups::Group;
use super::measures::{Better, CellScore, Line, Spread};
use super::scheme::Scheme;

/// Differences of ratios below this do not count in comparisons with Nice.
const TOLERANCE: f64 = 0.005;

/// A figure that cells of Lull must reach.
struct Target {
    name: &'static str,
    groups: &'static [Group],
    is_about: fn(&Cell) -> bool,
    value: Value,
    better: Better,
    limit: f64,
    /// This share of the cells must be at the limit.
    share: f64,
    /// No cell may be beyond this.
    never: f64,
}

/// The value that a target judges.
enum Value {
    /// A value of the cell.
    Own(fn(&CellScore) -> Option<f64>),
    /// The background's bytes, relative to those of CUBIC in the same cell.
    OfCubic,
    /// The value less that of Nice in the same cell.
    LessNice(fn(&CellScore) -> Option<f64>),
}

/// A target, and the cells that reach it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The value that is judged, and its limit.
    pub target: String,
    /// Cells that have a value.
    pub cells: usize,
    /// Cells at the limit.
    pub at_limit: usize,
    /// The median and the worst value; none without cells.
    pub spread: Option<Spread>,
    /// Whether the target is met.
    pub is_met: bool,
    /// Cells beyond the limit with their values, the worst first.
    pub misses: Vec<(Cell, f64)>,
}

const CUBIC_QUEUES: &[Group] = &[
    Group::Bulk,
    Group::Shallow,
    Group::Deep,
    Group::Aqm,
    Group::Fq,
    Group::Many,
    Group::Jitter,
    Group::Lan,
];
const DROP_TAIL: &[Group] =
    &[Group::Bulk, Group::Deep, Group::Many, Group::Reno, Group::Bbr, Group::Mixed, Group::TwoWay];
const VARYING: &[Group] = &[Group::Jitter, Group::RecordedBulk, Group::Cellular];
const IDLE: &[Group] = &[Group::Idle, Group::Recorded, Group::Cellular];
const RESPONSES: &[Group] = &[Group::Requests, Group::Documents];

/// The groups that are compared with CUBIC.
pub(super) const OF_CUBIC: &[Group] = &[Group::Idle, Group::Recorded, Group::Cellular, Group::Lan];

fn percent_of_bdp(cell: &Cell) -> Option<u64> {
    match cell.queue {
        Queue::DropTail { percent_of_bdp } => Some(percent_of_bdp),
        Queue::Red | Queue::Codel | Queue::FqCodel | Queue::Tins => None,
    }
}

fn is_deep(cell: &Cell) -> bool {
    percent_of_bdp(cell) >= Some(100)
}

fn has_foreground(cell: &Cell) -> bool {
    cell.foreground != Foreground::None
}

fn any(_: &Cell) -> bool {
    true
}

/// The return, relative to 0.5 s and ten round-trip times, or to 2 s below 10 Mbit/s.
fn return_ratio(score: &CellScore) -> Option<f64> {
    if score.cell.network.mbit >= 10 { score.return_ratio } else { Some(score.return_s? / 2.0) }
}

const TARGETS: &[Target] = &[
    Target {
        name: "return, relative to 0.5 s + 10 RTTs",
        groups: CUBIC_QUEUES,
        is_about: any,
        value: Value::Own(return_ratio),
        better: Better::Low,
        limit: 1.0,
        share: 1.0,
        never: f64::INFINITY,
    },
    Target {
        name: "idle link with jitter, of CUBIC",
        groups: IDLE,
        is_about: |cell| !has_foreground(cell) && cell.link != Link::Steady,
        value: Value::OfCubic,
        better: Better::High,
        limit: 0.9,
        share: 1.0,
        never: 0.0,
    },
    Target {
        name: "kept over links with jitter",
        groups: VARYING,
        is_about: has_foreground,
        value: Value::Own(|score| score.kept),
        better: Better::High,
        limit: 0.97,
        share: 0.95,
        never: 0.95,
    },
    Target {
        name: "idle LAN, of CUBIC",
        groups: &[Group::Lan],
        is_about: |cell| !has_foreground(cell),
        value: Value::OfCubic,
        better: Better::High,
        limit: 0.95,
        share: 1.0,
        never: 0.0,
    },
    Target {
        name: "kept, 1 BDP and more",
        groups: DROP_TAIL,
        is_about: is_deep,
        value: Value::Own(|score| score.kept),
        better: Better::High,
        limit: 0.97,
        share: 0.95,
        never: 0.95,
    },
    Target {
        name: "kept, 0.25 BDP",
        groups: &[Group::Shallow, Group::Many, Group::Reno, Group::Bbr],
        is_about: |cell| percent_of_bdp(cell) == Some(25),
        value: Value::Own(|score| score.kept),
        better: Better::High,
        limit: 0.97,
        share: 0.5,
        never: 0.9,
    },
    Target {
        name: "kept, RED and CoDel",
        groups: &[Group::Aqm, Group::Ecn, Group::Reno, Group::Bbr],
        is_about: |cell| matches!(cell.queue, Queue::Red | Queue::Codel),
        value: Value::Own(|score| score.kept),
        better: Better::High,
        limit: 0.95,
        share: 0.9,
        never: 0.9,
    },
    Target {
        name: "kept, FQ-CoDel, one connection",
        groups: &[Group::Fq],
        is_about: |cell| cell.connections == 1,
        value: Value::Own(|score| score.kept),
        better: Better::High,
        limit: 0.75,
        share: 1.0,
        never: 0.0,
    },
    Target {
        name: "kept, FQ-CoDel, two and more",
        groups: &[Group::Fq],
        is_about: |cell| cell.connections > 1,
        value: Value::Own(|score| score.kept),
        better: Better::High,
        limit: 0.9,
        share: 1.0,
        never: 0.0,
    },
    Target {
        name: "reaped beside downloads",
        groups: CUBIC_QUEUES,
        is_about: has_foreground,
        value: Value::Own(|score| score.reaped),
        better: Better::High,
        limit: 0.9,
        share: 0.5,
        never: 0.75,
    },
    Target {
        name: "mean response, from 10 Mbit/s",
        groups: RESPONSES,
        is_about: |cell| cell.network.mbit >= 10,
        value: Value::Own(|score| score.mean),
        better: Better::Low,
        limit: 1.05,
        share: 1.0,
        never: f64::INFINITY,
    },
    Target {
        name: "p99 response, from 10 Mbit/s",
        groups: RESPONSES,
        is_about: |cell| cell.network.mbit >= 10,
        value: Value::Own(|score| score.p99),
        better: Better::Low,
        limit: 1.2,
        share: 1.0,
        never: f64::INFINITY,
    },
    Target {
        name: "reaped beside responses, from 10 Mbit/s",
        groups: RESPONSES,
        is_about: |cell| cell.network.mbit >= 10,
        value: Value::Own(|score| score.reaped),
        better: Better::High,
        limit: 0.45,
        share: 1.0,
        never: 0.0,
    },
    Target {
        name: "kept beside UDP, less Nice's, one connection",
        groups: &[Group::Udp],
        is_about: |cell| cell.connections == 1,
        value: Value::LessNice(|score| score.kept),
        better: Better::High,
        limit: -TOLERANCE,
        share: 1.0,
        never: f64::NEG_INFINITY,
    },
    Target {
        name: "reaped beside UDP, less Nice's, one connection",
        groups: &[Group::Udp],
        is_about: |cell| cell.connections == 1,
        value: Value::LessNice(|score| score.reaped),
        better: Better::High,
        limit: -TOLERANCE,
        share: 1.0,
        never: f64::NEG_INFINITY,
    },
    Target {
        name: "kept beside a crowd, first 10 s",
        groups: &[Group::Crowd],
        is_about: any,
        value: Value::Own(|score| score.kept),
        better: Better::High,
        limit: 0.95,
        share: 1.0,
        never: 0.0,
    },
    Target {
        name: "BBR's RTT beside 8 and 64 connections",
        groups: &[Group::Bbr],
        is_about: |cell| cell.connections > 1,
        value: Value::Own(|score| score.rtt),
        better: Better::Low,
        limit: 1.1,
        share: 1.0,
        never: f64::INFINITY,
    },
    Target {
        name: "kept beside four hosts, less Nice's",
        groups: &[Group::Hosts],
        is_about: any,
        value: Value::LessNice(|score| score.kept),
        better: Better::High,
        limit: -TOLERANCE,
        share: 1.0,
        never: f64::NEG_INFINITY,
    },
];

impl Target {
    fn verdict(&self, scores: &[CellScore]) -> Verdict {
        let is_own = |score: &&CellScore| {
            let is_own_group = self.groups.contains(&score.group);
            score.scheme == Scheme::Lull && is_own_group && (self.is_about)(&score.cell)
        };
        let under = |scheme: Scheme, own: &CellScore| {
            let is_same = |one: &&CellScore| {
                one.scheme == scheme && one.group == own.group && one.cell == own.cell
            };
            scores.iter().find(is_same).cloned()
        };
        let value = |score: &CellScore| match self.value {
            Value::Own(value) => value(score),
            Value::OfCubic => {
                let cubic = under(Scheme::Cubic, score)?.reaped.filter(|&cubic| cubic > 0.0)?;
                Some(score.reaped? / cubic)
            }
            Value::LessNice(value) => Some(value(score)? - value(&under(Scheme::Nice, score)?)?),
        };
        let found = scores.iter().filter(is_own);
        let values: Vec<(Cell, f64)> =
            found.filter_map(|score| Some((score.cell, value(score)?))).collect();
        let is_within = |value: f64, limit: f64| match self.better {
            Better::High => value >= limit,
            Better::Low => value <= limit,
        };
        let mut misses: Vec<_> =
            values.iter().copied().filter(|&(_, value)| !is_within(value, self.limit)).collect();
        misses.sort_by(|one, other| one.1.total_cmp(&other.1));
        if self.better == Better::Low {
            misses.reverse();
        }
        let at_limit = values.len() - misses.len();
        let is_enough = at_limit as f64 >= self.share * values.len() as f64;
        let is_never = values.iter().any(|&(_, value)| !is_within(value, self.never));
        Verdict {
            target: self.text(),
            cells: values.len(),
            at_limit,
            spread: Spread::of(self.better, values.iter().map(|&(_, value)| Some(value))),
            is_met: !values.is_empty() && is_enough && !is_never,
            misses,
        }
    }

    fn text(&self) -> String {
        let sign = match self.better {
            Better::High => "≥",
            Better::Low => "≤",
        };
        let mut text = format!("{} {sign} {}", self.name, self.limit);
        if self.share < 1.0 {
            text += &format!(" in {} %", self.share * 100.0);
        }
        if self.never.is_finite() && self.never != 0.0 {
            text += &format!(", never beyond {}", self.never);
        }
        text
    }
}

/// Groups in which Lull is worse than Nice on both sides, by the median or by the worst cell: for the foreground, and
/// in its use of the path.
fn compare_with_nice(lines: &[Line]) -> Verdict {
    let under = |scheme: Scheme| lines.iter().filter(move |line| line.scheme == scheme);
    let mut found = Verdict {
        target: "groups not worse than Nice on both sides".to_owned(),
        cells: 0,
        at_limit: 0,
        spread: None,
        is_met: true,
        misses: Vec::new(),
    };
    for lull in under(Scheme::Lull) {
        let Some(nice) = under(Scheme::Nice).find(|nice| nice.group == lull.group) else {
            continue;
        };
        found.cells += 1;
        let is_fine = !is_worse(lull, nice, |spread| spread.median)
            && !is_worse(lull, nice, |spread| spread.worst);
        found.at_limit += usize::from(is_fine);
        found.is_met &= is_fine;
        if !is_fine {
            found.target += &format!("; {} is", lull.group);
        }
    }
    found
}

/// Whether Lull is worse than Nice on both sides, by one value of each spread.
fn is_worse(lull: &Line, nice: &Line, of: fn(Spread) -> f64) -> bool {
    let less = |spread: fn(&Line) -> Option<Spread>| {
        let (lull, nice) = (spread(lull).map(of), spread(nice).map(of));
        lull.zip(nice).is_some_and(|(lull, nice)| lull < nice - TOLERANCE)
    };
    // Requests always arrive in the end: what counts is when.
    let slower = match (lull.mean.map(of), nice.mean.map(of)) {
        (Some(lull), Some(nice)) => lull > nice + TOLERANCE,
        _ => less(|line| line.kept),
    };
    slower && less(|line| line.reaped)
}

/// Judges the cells of Lull, beside those of Nice and CUBIC. Targets whose groups did not run are left out.
pub(super) fn verdicts(scores: &[CellScore], lines: &[Line]) -> Vec<Verdict> {
    let own = TARGETS.iter().map(|target| target.verdict(scores));
    own.chain([compare_with_nice(lines)]).filter(|verdict| verdict.cells > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::super::cells::Set;
    use super::*;

    fn scores(scheme: Scheme, kept: &[f64]) -> Vec<CellScore> {
        let cells = Group::Crowd.cells(Set::Tuned, 7);
        let score = |(&kept, &cell): (&f64, &Cell)| CellScore {
            kept: Some(kept),
            ..CellScore::empty(Group::Crowd, scheme, cell)
        };
        kept.iter().zip(&cells).map(score).collect()
    }

    #[test]
    fn verdict_counts_cells_and_lists_the_worst_first() {
        let scores = scores(Scheme::Lull, &[0.96, 0.94, 0.99, 0.9]);
        let verdicts = verdicts(&scores, &[]);
        let [crowd] = &verdicts[..] else { panic!("{verdicts:?}") };
        assert_eq!((crowd.cells, crowd.at_limit, crowd.is_met), (4, 2, false));
        let misses: Vec<f64> = crowd.misses.iter().map(|miss| miss.1).collect();
        assert_eq!(misses, [0.9, 0.94]);
        assert!(crowd.target.starts_with("kept beside a crowd"), "{}", crowd.target);
    }

    #[test]
    fn group_worse_than_nice_on_both_sides_is_named() {
        let spread = |median, worst| Some(Spread { median, worst });
        let line = |scheme, kept, reaped| {
            let line = Line::new(Group::Udp, scheme, &[]);
            Line { kept, reaped, ..line }
        };
        let nice = line(Scheme::Nice, spread(0.99, 0.9), spread(0.7, 0.4));
        let worse = line(Scheme::Lull, spread(1.0, 0.8), spread(0.8, 0.3));
        let found = compare_with_nice(&[nice.clone(), worse]);
        assert!(!found.is_met && found.target.ends_with("; udp is"), "{found:?}");
        let fine = line(Scheme::Lull, spread(0.9, 0.8), spread(0.7, 0.4));
        assert!(compare_with_nice(&[nice, fine]).is_met);
    }
}
