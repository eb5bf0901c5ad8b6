//! The priority scheduler of a resource: demand first, then speculation by priority (SSR §3.1.2).
//!
//! A resource, such as a connection, a server or a disk, takes its work from here, one item after
//! the other. Demand waits in the order of its arrival and is served strictly first. Speculative
//! items wait by priority; while one waits its priority decays, so that what was worth much long ago
//! does not stand in the way of what is worth something now (§3.1.3).
//!
//! Nothing here sends or waits: calls say what arrived and what was finished, answers say what the
//! resource does next and what was discarded. Time comes in with each call.
//!
//! ```text
//!  demand ─────▶ ┌ first in, first out ───────┐
//!                │                            ├─▶ serve ──▶ resource ──▶ finished
//!  speculate ──▶ └ by priority, decaying ─────┘    (of speculation a few at a time)
//!                  │
//!                  └──▶ discarded: the least first, when there is no room
//! ```

use std::collections::{BTreeMap, VecDeque};

use core::cmp::Reverse;
use core::time::Duration;

use lull_cc::Timestamp;

/// What a scheduler keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Items that wait, of both kinds together: the buffer that demand takes from speculation when
    /// it needs it.
    pub waiting: usize,
    /// Speculative items that wait. Small at what stands downstream of another scheduler, so that
    /// nothing outdated piles up there (SSR §3.1.3).
    pub speculative: usize,
    /// Speculative items at the resource at a time. One that was handed over can't be overtaken by
    /// demand any more.
    pub in_service: usize,
    /// After this time a waiting priority is worth half. None for no decay: the paper names decay as
    /// an alternative to small queues.
    pub half_life: Option<Duration>,
}

/// What the resource does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<D, K, S> {
    /// Something that somebody waits for.
    Demand(D),
    /// Something that may be wanted, with its key.
    Speculative(K, S),
}

/// Something that is not going to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discarded<D, K, S> {
    /// The buffer is full of demand.
    Demand(D),
    /// There was no room for it any more.
    Speculative(K, S),
}

/// Where a speculative item stands: by its priority as if it had been put in at time zero, the
/// earlier one first of equals.
///
/// All priorities decay alike, p · 2^(−t / half-life), so the order of two items never changes
/// while they wait, and it suffices to compare log₂ p + (time of arrival) / half-life.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Place {
    score: f64,
    arrival: Reverse<u64>,
}

impl Eq for Place {}

impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Place {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.score.total_cmp(&other.score).then(self.arrival.cmp(&other.arrival))
    }
}

/// The scheduler of one resource: items of demand `D`, speculative items `S` by keys `K`.
#[derive(Clone, Debug)]
pub struct Scheduler<D, K, S> {
    limits: Limits,
    demand: VecDeque<D>,
    speculative: BTreeMap<Place, (K, S)>,
    places: BTreeMap<K, Place>,
    arrivals: u64,
    in_service: usize,
}

impl<D, K: Ord + Clone, S> Scheduler<D, K, S> {
    /// A scheduler of an idle resource.
    ///
    /// # Panics
    /// If the half-life is zero.
    pub fn new(limits: Limits) -> Self {
        assert!(limits.half_life != Some(Duration::ZERO), "what decays at once has no priority");
        Scheduler {
            limits,
            demand: VecDeque::new(),
            speculative: BTreeMap::new(),
            places: BTreeMap::new(),
            arrivals: 0,
            in_service: 0,
        }
    }

    /// Somebody waits for something. If the buffer is full, the least speculative item makes room
    /// (SSR §3.1.2: under overload speculation is discarded first); if there is none, the newcomer
    /// itself is turned away.
    pub fn demand(&mut self, item: D) -> Option<Discarded<D, K, S>> {
        let discarded = if self.waiting() < self.limits.waiting {
            None
        } else {
            match self.discard_least() {
                Some((key, item)) => Some(Discarded::Speculative(key, item)),
                None => return Some(Discarded::Demand(item)),
            }
        };
        self.demand.push_back(item);
        discarded
    }

    /// Something may be wanted, with a priority above zero. One that waits under the same key is
    /// replaced, whatever its priority: the predictor knows better now (SSR §3.1.3).
    ///
    /// Gives what is discarded: the least of all that wait if there is no room, which may be the
    /// newcomer; and at once what has no priority.
    pub fn speculate(
        &mut self,
        now: Timestamp,
        key: K,
        priority: f64,
        item: S,
    ) -> Option<Discarded<D, K, S>> {
        self.cancel(&key);
        if priority.is_nan() || priority <= 0.0 {
            return Some(Discarded::Speculative(key, item));
        }
        let place = Place { score: self.score(now, priority), arrival: Reverse(self.arrivals) };
        self.arrivals += 1;
        self.places.insert(key.clone(), place);
        self.speculative.insert(place, (key, item));
        let full = self.speculative.len() > self.limits.speculative
            || self.waiting() > self.limits.waiting;
        let least = if full { self.discard_least() } else { None };
        least.map(|(key, item)| Discarded::Speculative(key, item))
    }

    /// Something is not wanted any more, because somebody asked for it meanwhile or the client has
    /// left; gives it back if it waited.
    pub fn cancel(&mut self, key: &K) -> Option<S> {
        let place = self.places.remove(key)?;
        self.speculative.remove(&place).map(|(_, item)| item)
    }

    /// What the idle resource does next: demand as long as there is any; else the speculative item
    /// of the highest priority, if not too many are at the resource.
    pub fn serve(&mut self) -> Option<Next<D, K, S>> {
        if let Some(item) = self.demand.pop_front() {
            return Some(Next::Demand(item));
        }
        if self.in_service >= self.limits.in_service {
            return None;
        }
        let (_, (key, item)) = self.speculative.pop_last()?;
        self.places.remove(&key);
        self.in_service += 1;
        Some(Next::Speculative(key, item))
    }

    /// The resource is done with a speculative item.
    ///
    /// # Panics
    /// If it had none.
    pub fn finished(&mut self) {
        assert!(self.in_service > 0, "no speculative item is at the resource");
        self.in_service -= 1;
    }

    /// The priority that a waiting item has now; none if it does not wait.
    pub fn priority(&self, now: Timestamp, key: &K) -> Option<f64> {
        let place = self.places.get(key)?;
        Some(libm::exp2(place.score - self.ages(now)))
    }

    /// Items that wait, of both kinds.
    pub fn waiting(&self) -> usize {
        self.demand.len() + self.speculative.len()
    }

    /// Speculative items at the resource.
    pub fn in_service(&self) -> usize {
        self.in_service
    }

    fn score(&self, now: Timestamp, priority: f64) -> f64 {
        libm::log2(priority) + self.ages(now)
    }

    /// Half-lives since time zero.
    fn ages(&self, now: Timestamp) -> f64 {
        match self.limits.half_life {
            Some(half_life) => now.as_nanos() as f64 / half_life.as_nanos() as f64,
            None => 0.0,
        }
    }

    fn discard_least(&mut self) -> Option<(K, S)> {
        let (_, (key, item)) = self.speculative.pop_first()?;
        self.places.remove(&key);
        Some((key, item))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Strings = Scheduler<u32, &'static str, ()>;

    const LIMITS: Limits = Limits {
        waiting: 4,
        speculative: 3,
        in_service: 1,
        half_life: Some(Duration::from_secs(10)),
    };

    fn at(second: u64) -> Timestamp {
        Timestamp::from_nanos(second * 1_000_000_000)
    }

    /// What comes out while the resource takes one thing at a time.
    fn drain(scheduler: &mut Strings) -> Vec<Next<u32, &'static str, ()>> {
        core::iter::from_fn(|| {
            let next = scheduler.serve();
            if let Some(Next::Speculative(..)) = next {
                scheduler.finished();
            }
            next
        })
        .collect()
    }

    fn order(scheduler: &mut Strings) -> Vec<&'static str> {
        drain(scheduler)
            .into_iter()
            .filter_map(|next| match next {
                Next::Speculative(key, ()) => Some(key),
                Next::Demand(_) => None,
            })
            .collect()
    }

    #[test]
    fn demand_comes_first_and_in_order_then_speculation_by_priority() {
        let mut scheduler = Strings::new(LIMITS);
        for (key, priority) in [("low", 0.1), ("high", 0.9)] {
            assert_eq!(scheduler.speculate(at(0), key, priority, ()), None);
        }
        assert_eq!((scheduler.demand(1), scheduler.demand(2)), (None, None));
        assert_eq!(
            drain(&mut scheduler),
            [
                Next::Demand(1),
                Next::Demand(2),
                Next::Speculative("high", ()),
                Next::Speculative("low", ())
            ]
        );
    }

    #[test]
    fn a_full_buffer_discards_speculation_first_and_the_least_of_it() {
        let mut scheduler = Strings::new(LIMITS);
        for (key, priority) in [("a", 0.3), ("b", 0.1), ("c", 0.2)] {
            assert_eq!(scheduler.speculate(at(0), key, priority, ()), None);
        }
        assert_eq!(scheduler.demand(1), None);
        for (item, key) in [(2, "b"), (3, "c"), (4, "a")] {
            assert_eq!(scheduler.demand(item), Some(Discarded::Speculative(key, ())));
        }
        assert_eq!(scheduler.demand(5), Some(Discarded::Demand(5)));
        assert_eq!(
            scheduler.speculate(at(0), "d", 1.0, ()),
            Some(Discarded::Speculative("d", ())),
            "no room beside so much demand"
        );
    }

    #[test]
    fn the_queue_of_speculation_is_small_and_keeps_the_best() {
        let mut scheduler = Strings::new(LIMITS);
        for (key, priority, discarded) in [
            ("a", 0.3, None),
            ("b", 0.1, None),
            ("c", 0.2, None),
            ("d", 0.4, Some("b")),
            ("e", 0.05, Some("e")),
        ] {
            let expected = discarded.map(|key| Discarded::Speculative(key, ()));
            assert_eq!(scheduler.speculate(at(0), key, priority, ()), expected);
        }
        assert_eq!(order(&mut scheduler), ["d", "a", "c"]);
    }

    #[test]
    fn a_waiting_priority_halves_with_each_half_life() {
        let mut scheduler = Strings::new(LIMITS);
        scheduler.speculate(at(0), "old", 0.8, ());
        scheduler.speculate(at(20), "new", 0.3, ());
        assert!((scheduler.priority(at(20), &"old").unwrap() - 0.2).abs() < 1e-9);
        assert_eq!(order(&mut scheduler), ["new", "old"]);
        let mut scheduler = Strings::new(Limits { half_life: None, ..LIMITS });
        scheduler.speculate(at(0), "old", 0.8, ());
        scheduler.speculate(at(20), "new", 0.3, ());
        assert_eq!(order(&mut scheduler), ["old", "new"]);
    }

    #[test]
    fn what_waits_is_put_in_again_with_what_is_known_now() {
        let mut scheduler = Strings::new(LIMITS);
        scheduler.speculate(at(0), "a", 0.9, ());
        scheduler.speculate(at(0), "b", 0.5, ());
        assert_eq!(scheduler.speculate(at(0), "a", 0.1, ()), None);
        assert_eq!(scheduler.waiting(), 2);
        assert_eq!(order(&mut scheduler), ["b", "a"]);
        scheduler.speculate(at(0), "a", 0.9, ());
        for priority in [0.0, -1.0, f64::NAN] {
            let discarded = scheduler.speculate(at(0), "a", priority, ());
            assert_eq!(discarded, Some(Discarded::Speculative("a", ())));
        }
        assert_eq!(scheduler.serve(), None);
        scheduler.speculate(at(0), "a", f64::INFINITY, ());
        assert_eq!(scheduler.cancel(&"a"), Some(()));
        assert_eq!(scheduler.cancel(&"a"), None);
    }

    #[test]
    fn few_speculative_items_are_at_the_resource_and_demand_does_not_wait_for_them() {
        let mut scheduler = Strings::new(LIMITS);
        scheduler.speculate(at(0), "a", 0.9, ());
        scheduler.speculate(at(0), "b", 0.8, ());
        assert_eq!(scheduler.serve(), Some(Next::Speculative("a", ())));
        assert_eq!(scheduler.serve(), None);
        scheduler.demand(1);
        assert_eq!(scheduler.serve(), Some(Next::Demand(1)));
        scheduler.finished();
        assert_eq!(scheduler.serve(), Some(Next::Speculative("b", ())));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Demand,
        Speculate(u8, u8),
        Cancel(u8),
        Next,
        Finished,
        Later(u8),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            Just(Step::Demand),
            (0u8..12, 0u8..6).prop_map(|(key, priority)| Step::Speculate(key, priority)),
            (0u8..12).prop_map(Step::Cancel),
            Just(Step::Next),
            Just(Step::Finished),
            (0u8..30).prop_map(Step::Later),
        ];
        prop::collection::vec(step, 0..300)
    }

    proptest! {
        /// As a list that is searched from end to end with priorities worked out anew each time.
        #[test]
        fn it_does_what_a_list_would(
            steps in steps(), waiting in 0usize..8, speculative in 0usize..6, in_service in 1usize..3
        ) {
            let limits = Limits { waiting, speculative, in_service, ..LIMITS };
            let mut scheduler: Scheduler<u64, u8, u64> = Scheduler::new(limits);
            let mut demand: VecDeque<u64> = VecDeque::new();
            // Key, priority, when, and which.
            let mut list: Vec<(u8, f64, u64, u64)> = Vec::new();
            let (mut second, mut count, mut busy) = (0u64, 0u64, 0usize);
            let worth = |one: &(u8, f64, u64, u64), now: u64| {
                one.1 * libm::exp2(-((now - one.2) as f64) / 10.0)
            };
            // The later one of equals is the lesser.
            let compare = |list: &[(u8, f64, u64, u64)], now: u64, a: usize, b: usize| {
                let (x, y) = (worth(&list[a], now), worth(&list[b], now));
                x.total_cmp(&y).then(list[b].3.cmp(&list[a].3))
            };
            let least = |list: &[(u8, f64, u64, u64)], now: u64| {
                (0..list.len()).min_by(|&a, &b| compare(list, now, a, b))
            };
            for step in steps {
                count += 1;
                match step {
                    Step::Later(by) => second += u64::from(by),
                    Step::Finished => if busy > 0 {
                        busy -= 1;
                        scheduler.finished();
                    },
                    Step::Cancel(key) => {
                        let at = list.iter().position(|one| one.0 == key);
                        let expected = at.map(|at| list.remove(at).3);
                        prop_assert_eq!(scheduler.cancel(&key), expected);
                    }
                    Step::Demand => {
                        let expected = if demand.len() + list.len() < waiting {
                            None
                        } else if let Some(at) = least(&list, second) {
                            let one = list.remove(at);
                            Some(Discarded::Speculative(one.0, one.3))
                        } else {
                            Some(Discarded::Demand(count))
                        };
                        if expected != Some(Discarded::Demand(count)) {
                            demand.push_back(count);
                        }
                        prop_assert_eq!(scheduler.demand(count), expected);
                    }
                    Step::Speculate(key, priority) => {
                        list.retain(|one| one.0 != key);
                        // No two are a power of 2^(1/10) apart, so that rounding makes no difference.
                        let priority = [0.0, 0.3, 0.5, 0.7, 1.1, 1.3][usize::from(priority)];
                        let expected = if priority > 0.0 {
                            list.push((key, priority, second, count));
                            let full = list.len() > speculative
                                || demand.len() + list.len() > waiting;
                            least(&list, second).filter(|_| full).map(|at| list.remove(at))
                        } else {
                            Some((key, priority, second, count))
                        };
                        let expected = expected.map(|one| Discarded::Speculative(one.0, one.3));
                        let now = Timestamp::from_nanos(second * 1_000_000_000);
                        prop_assert_eq!(scheduler.speculate(now, key, priority, count), expected);
                    }
                    Step::Next => {
                        let next = scheduler.serve();
                        if let Some(item) = demand.pop_front() {
                            prop_assert_eq!(next, Some(Next::Demand(item)));
                        } else if busy == in_service || list.is_empty() {
                            prop_assert_eq!(next, None);
                        } else {
                            busy += 1;
                            let best =
                                (0..list.len()).max_by(|&a, &b| compare(&list, second, a, b));
                            let one = list.remove(best.unwrap());
                            prop_assert_eq!(next, Some(Next::Speculative(one.0, one.3)));
                        }
                    }
                }
                prop_assert!(scheduler.waiting() <= waiting);
                prop_assert_eq!(scheduler.waiting(), demand.len() + list.len());
                prop_assert_eq!(scheduler.in_service(), busy);
            }
        }
    }
}
