//! The time from which on an answer shows that the server is loaded.
//!
//! SSR §5.2.2 uses thresholds given by hand, and names learning them as future work: response times are
//! nearly constant at low load and rise sharply beyond a knee. So a threshold must be a little above the
//! usual time at low load, and that must be learned without mistaking a load for usual.
//!
//! - It is learned only while prefetching is paused, and after the prefetches in flight have ended.
//! - A window of samples counts by its median, which a few late ones do not change.
//! - The lowest window counts. A threshold only ever falls, so that no overload, however long, can raise one;
//!   a start under load is corrected by the first pause at low load.

use core::time::Duration;

/// A representative object, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectId(pub u32);

/// The source of thresholds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Thresholds {
    /// By hand, one for each object (SSR §5.2.2).
    Given(Vec<Duration>),
    /// Learned from samples.
    Learned {
        /// Number of objects.
        objects: usize,
        /// How they are learned.
        learning: Learning,
    },
}

/// How thresholds are learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Learning {
    /// Samples of an object in a window.
    pub window: usize,
    /// The time for prefetches in flight to end when a pause begins.
    pub drain: Duration,
    /// Shortest time from the end of a pause to the next one, counting only time in which hints are wanted.
    pub every: Duration,
    /// The same in lengths of that pause, so that pauses only take a share of the time however slow the
    /// objects are.
    pub rest: u32,
    /// The multiple of the usual time that is late.
    pub factor: u32,
    /// Added to that, for fast objects, whose time is mostly jitter.
    pub slack: Duration,
}

impl Default for Learning {
    /// Twenty samples; a second; ten minutes, and twenty pauses; twice the usual time and a millisecond.
    fn default() -> Self {
        Learning {
            window: 20,
            drain: Duration::from_secs(1),
            every: Duration::from_secs(600),
            rest: 20,
            factor: 2,
            slack: Duration::from_millis(1),
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Object {
    threshold: Option<Duration>,
    /// Samples of the current pause, up to a window.
    samples: Vec<Duration>,
}

/// The knowledge about the objects.
#[derive(Clone, Debug)]
pub(super) struct LearnedThresholds {
    objects: Vec<Object>,
    learning: Option<Learning>,
}

impl LearnedThresholds {
    pub(super) fn new(thresholds: &Thresholds) -> Self {
        let (objects, learning) = match thresholds {
            Thresholds::Given(given) => {
                let object = |one: &Duration| Object { threshold: Some(*one), samples: Vec::new() };
                (given.iter().map(object).collect(), None)
            }
            Thresholds::Learned { objects, learning } => {
                assert!(learning.window > 0, "a median is of one sample at least");
                (vec![Object::default(); *objects], Some(*learning))
            }
        };
        let known = LearnedThresholds { objects, learning };
        assert!(!known.objects.is_empty(), "a monitor needs an object to probe");
        known
    }

    pub(super) fn objects(&self) -> usize {
        self.objects.len()
    }

    pub(super) fn threshold(&self, object: ObjectId) -> Option<Duration> {
        self.objects.get(object.0 as usize)?.threshold
    }

    /// Whether thresholds are learned, and not given.
    pub(super) fn is_learning(&self) -> bool {
        self.learning.is_some()
    }

    /// Time from the end of a pause of this length to the next one.
    pub(super) fn rest_after(&self, pause: Duration) -> Duration {
        let of = |learning: Learning| learning.every.max(pause.saturating_mul(learning.rest));
        self.learning.map_or(Duration::MAX, of)
    }

    /// A pause begins.
    pub(super) fn clear_samples(&mut self) {
        self.objects.iter_mut().for_each(|object| object.samples.clear());
    }

    /// A sample, taken this long after the pause began.
    pub(super) fn learn(&mut self, paused_for: Duration, object: ObjectId, time: Duration) {
        let Some(learning) = self.learning else { return };
        let Some(object) = self.objects.get_mut(object.0 as usize) else { return };
        if paused_for < learning.drain || object.samples.len() >= learning.window {
            return;
        }
        object.samples.push(time);
        if object.samples.len() < learning.window {
            return;
        }
        let mut sorted = object.samples.clone();
        sorted.sort_unstable();
        let median = sorted[sorted.len() / 2];
        let threshold = median.saturating_mul(learning.factor).saturating_add(learning.slack);
        // Never up: a slow answer today may be a lasting overload.
        object.threshold = Some(object.threshold.map_or(threshold, |known| known.min(threshold)));
    }

    /// Samples of the object with the fewest in this pause, and how many it needs.
    pub(super) fn progress(&self) -> (usize, usize) {
        let window = self.learning.map_or(0, |learning| learning.window);
        let fewest = self.objects.iter().map(|object| object.samples.len()).min();
        (fewest.unwrap_or_default(), window)
    }

    /// Whether each object had its window in this pause.
    pub(super) fn learned_all(&self) -> bool {
        let window = self.learning.map_or(0, |learning| learning.window);
        self.objects.iter().all(|object| object.samples.len() >= window)
    }

    /// Continues with these objects, some of them with a known threshold; false if there is nothing to learn.
    pub(super) fn replace(&mut self, known: &[Option<Duration>]) -> bool {
        if self.learning.is_none() {
            return false;
        }
        assert!(!known.is_empty(), "a monitor needs an object to probe");
        let object =
            |threshold: &Option<Duration>| Object { threshold: *threshold, samples: Vec::new() };
        self.objects = known.iter().map(object).collect();
        true
    }
}
