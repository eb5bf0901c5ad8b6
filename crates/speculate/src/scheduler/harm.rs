//! The cost of prefetches for demand: the response times of demand with prefetches beside those without, of
//! similar requests.
//!
//! Times are divided by the usual time of their class (the URL), and compared among requests that met as many
//! others. So neither a different mix of pages nor more visitors looks like harm. The samples without
//! prefetches come from short blocks in which none starts. Envoy's gradient controller measures its minimum
//! round-trip time in such blocks, too.

use core::time::Duration;

use lull_cc::Timestamp;

use super::curve::Curve;
use super::moments::Moments;

/// The number of request classes.
const CLASSES: usize = 256;
/// The number of concurrency levels: 0, 1, 2 to 3, 4 to 7 and so on.
const LEVELS: usize = 8;
/// The usual time of a class follows the server within this time: a server that stays slow is usual by then.
const USUAL: Duration = Duration::from_secs(600);
/// Number of samples that set the usual time of a class, before it follows slowly.
const FIRST: f64 = 32.0;
/// A time of more than this many usual ones counts as this many: a single one only shows that it was late.
const MAX_SLOWDOWN: f64 = 10.0;
/// Aborts are futile if demand is slower by this part of its usual time after them, by two standard errors of so many
/// samples.
const FUTILE: f64 = 0.1;
const FUTILE_SAMPLES: f64 = 16.0;
/// The weight of one recent sample without prefetches and without company, by which a busy neighbour is
/// noticed.
const RECENT: f64 = 1.0 / 16.0;

/// One request of demand that has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) class: u8,
    /// Other requests of demand that were in service when it came.
    pub(super) others: usize,
    /// The same with prefetches; none if unknown, since one of them was almost done.
    pub(super) all_others: Option<usize>,
    /// Whether prefetches were allowed, and some were there.
    pub(super) with_prefetches: bool,
    /// The prefetches that it met.
    pub(super) met: Met,
    pub(super) time: Duration,
}

/// The prefetches in service when demand arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Met {
    None,
    /// All of them were aborted.
    Aborted,
    /// At least one was left to its end.
    Spared,
}

#[derive(Clone, Copy, Debug, Default)]
struct Usual {
    samples: f64,
    seconds: f64,
    at: Timestamp,
}

/// How much slower demand is beside prefetches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The part of its response time that demand waits for prefetches; may be below zero by chance.
    pub excess: f64,
    /// The standard error of that.
    pub error: f64,
}

/// The response times of demand.
#[derive(Clone, Debug)]
pub(super) struct Harm {
    usual: Box<[Usual]>,
    with: [Moments; LEVELS],
    without: [Moments; LEVELS],
    /// Requests without company that met no prefetch, and those for which prefetches were aborted.
    undisturbed: Moments,
    after_abort: Moments,
    curve: Curve,
    /// Recent times of requests without company, relative to usual ones.
    recent: f64,
}

fn level(others: usize) -> usize {
    ((usize::BITS - others.leading_zeros()) as usize).min(LEVELS - 1)
}

impl Harm {
    pub(super) fn new() -> Self {
        Harm {
            usual: vec![Usual::default(); CLASSES].into(),
            with: [Moments::default(); LEVELS],
            without: [Moments::default(); LEVELS],
            undisturbed: Moments::default(),
            after_abort: Moments::default(),
            curve: Curve::new(),
            recent: 1.0,
        }
    }

    pub(super) fn record(&mut self, now: Timestamp, sample: Sample) {
        let seconds = sample.time.as_secs_f64();
        let usual = &mut self.usual[usize::from(sample.class)];
        if usual.samples == 0.0 {
            *usual = Usual { samples: 1.0, seconds, at: now };
        }
        let ratio = (seconds / usual.seconds.max(1e-9)).min(MAX_SLOWDOWN);
        let is_usual = !sample.with_prefetches && sample.others == 0;
        if usual.samples < FIRST || is_usual {
            let since = now.saturating_since(usual.at).as_secs_f64() / USUAL.as_secs_f64();
            let first = 1.0 / (usual.samples + 1.0);
            let gain = if usual.samples < FIRST { first } else { since.min(1.0 / FIRST) };
            usual.seconds += (seconds - usual.seconds) * gain;
            usual.samples += 1.0;
            usual.at = now;
        }
        if is_usual {
            self.recent += (ratio - self.recent) * RECENT;
        }
        match sample.met {
            Met::None if sample.others == 0 => self.undisturbed.add(ratio),
            Met::Aborted if sample.others == 0 => self.after_abort.add(ratio),
            _ => {}
        }
        let side = if sample.with_prefetches { &mut self.with } else { &mut self.without };
        side[level(sample.others)].add(ratio);
        if let Some(others) = sample.all_others {
            self.curve.add(others, ratio);
        }
    }

    /// The estimate, if there are enough samples.
    pub(super) fn estimate(&self) -> Option<Estimate> {
        let (mut weight, mut excess, mut time, mut error) = (0.0, 0.0, 0.0, 0.0);
        for (with, without) in self.with.iter().zip(&self.without) {
            if with.samples() < 4.0 || without.samples() < 4.0 {
                continue;
            }
            weight += with.weight();
            excess += with.weight() * (with.mean() - without.mean());
            time += with.weight() * with.mean();
            error += with.weight() * with.weight() * (with.error() + without.error());
        }
        (weight > 0.0 && time > 0.0)
            .then(|| Estimate { excess: excess / time, error: libm::sqrt(error) / time })
    }

    /// Whether the server goes on with aborted requests: demand waits for them although they are aborted.
    pub(super) fn aborts_are_futile(&self) -> bool {
        let (after, clear) = (&self.after_abort, &self.undisturbed);
        if after.samples() < FUTILE_SAMPLES || clear.samples() < FUTILE_SAMPLES {
            return false;
        }
        let error = libm::sqrt(after.error() + clear.error());
        after.mean() - clear.mean() > FUTILE * clear.mean() + 2.0 * error
    }

    /// Prefetches are sent differently from now on: earlier samples of their harm have this weight.
    pub(super) fn fade(&mut self, to: f64) {
        self.with.iter_mut().for_each(|moments| moments.fade(to));
        // A random error in the reference must not last.
        self.without.iter_mut().for_each(|moments| moments.fade(libm::sqrt(libm::sqrt(to))));
    }

    /// Concurrent requests that the server handles without making them wait.
    pub(super) fn capacity(&self) -> usize {
        self.curve.capacity()
    }

    /// Samples with more than this many concurrent requests have this weight from now on.
    pub(super) fn forget_above(&mut self, requests: usize, to: f64) {
        self.curve.fade_above(requests, to);
    }

    /// How much longer requests take now than usual, without any prefetch beside them.
    pub(super) fn slowdown(&self) -> f64 {
        self.recent
    }
}
