//! How many concurrent requests the upstream handles without making demand wait, learned from demand's own
//! response times.
//!
//! The limit is a real number. Its whole part is the number of requests, demand and prefetches together, up
//! to which a prefetch may start. Its fraction determines the progress at which a prefetch is left to its end
//! when demand arrives and there is one request too many. Below one it is the part of the time in which a
//! prefetch may be in service at all. TCP Nice's window is below one in the same way (Nice §3.2).
//!
//! It grows slowly while it binds and demand is not slower beside prefetches than without, and shrinks by a
//! factor when demand is. So it is a sawtooth of bounded size.

use core::time::Duration;

use lull_cc::Timestamp;

use super::harm::{Estimate, Harm, Sample};

/// Demand may wait this much longer, as a part of its response time.
const TARGET: f64 = 0.03;
const QUEUED: f64 = 1.0 / 256.0;
/// The number of standard errors from which on harm is certain.
const CERTAIN: f64 = 1.5;
/// The same where prefetches have servers of their own, which rarely do harm: then most differences are chance.
const CERTAIN_ISOLATED: f64 = 3.0;
/// The limit is checked after this many samples beside prefetches.
const CHECK_SAMPLES: u32 = 32;
/// Its growth at a look: a relative part below one, and an absolute amount above.
const GROWTH_BELOW_ONE: f64 = 1.15;
const GROWTH: f64 = 0.1;
/// The factor after a check that showed harm.
const DECREASE: f64 = 0.8;
/// The weight of earlier samples after such a decrease.
const FADE: f64 = 0.25;
/// The weight of samples beyond the capacity after each check at which the limit binds. So a higher limit is
/// tried again after some hundred checks.
const FORGET: f64 = 0.99;
/// The minimum: a prefetch every sixty-fourth of the time, which shows when there is room again.
const MIN_LIMIT: f64 = 1.0 / 64.0;
/// The initial value: one prefetch on an idle upstream, half of the time.
const FIRST: f64 = 0.5;
/// The same where prefetches have servers of their own: one at a time.
const FIRST_ISOLATED: f64 = 1.0;
/// Lone requests that take this many times as long as usual show that another program uses the upstream.
const NEIGHBOUR: f64 = 1.6;
/// Then prefetches have this part of their earlier time.
const BESIDE_NEIGHBOUR: f64 = 1.0 / 16.0;
/// Demand requests of a block in which prefetches may start, at least, and as many more by a random draw.
const BLOCK_WITH: u32 = 40;
/// The same for a block in which none may.
const BLOCK_WITHOUT: u32 = 4;
/// Below this limit few pages are fetched anyway, and it is more important to learn soon that there is room.
/// So blocks without prefetches have this length then.
const LOW: f64 = 0.5;
const BLOCK_WITHOUT_LOW: u32 = 20;
/// Such a block ends after this time: so few visitors provide little data.
const MAX_BLOCK: Duration = Duration::from_secs(10);

/// The limit in the form for the owner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LimitFigures {
    /// Concurrent requests; below one a part of the time.
    pub limit: f64,
    /// The cost of prefetches for demand, if known.
    pub harm: Option<Estimate>,
    /// How much slower demand is than usual without prefetches.
    pub slowdown: f64,
}

/// A block of demand requests.
#[derive(Clone, Copy, Debug)]
struct Block {
    with_prefetches: bool,
    left: u32,
    began: Timestamp,
    /// Whether it contained a prefetch.
    is_used: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Limit {
    value: f64,
    most: f64,
    harm: Harm,
    block: Block,
    seen: u32,
    binds: bool,
    queued: f64,
    draw: u64,
    target: f64,
    /// Whether prefetches have servers of their own. Then demand's times do not show how many these can serve.
    is_isolated: bool,
}

impl Limit {
    /// A limit that grows up to `most`.
    pub(super) fn new(most: usize, is_isolated: bool) -> Self {
        Limit {
            value: if is_isolated { FIRST_ISOLATED } else { FIRST },
            is_isolated,
            most: most.max(1) as f64,
            harm: Harm::new(),
            block: Block {
                with_prefetches: true,
                left: BLOCK_WITH,
                began: Timestamp::ZERO,
                is_used: false,
            },
            seen: 0,
            binds: false,
            queued: 0.0,
            draw: 0,
            target: TARGET,
        }
    }

    /// This many schedulers send prefetches to the same server: each may cause its part of the harm.
    pub(super) fn set_sharers(&mut self, sharers: usize) {
        self.target = TARGET / sharers.max(1) as f64;
    }

    #[cfg(test)]
    pub(super) fn set(&mut self, value: f64) {
        self.value = value;
    }

    /// Concurrent requests up to which a prefetch may start.
    pub(super) fn concurrent_limit(&self) -> usize {
        (self.value as usize).max(1)
    }

    /// Usual service times after which a prefetch in service is left to its end, if there is one request too
    /// many. At a limit of 1 that is never, at 1.5 it is after one service time, just below 2 at once.
    pub(super) fn spare_after_service_times(&self) -> f64 {
        let part = libm::modf(self.value).0;
        if self.value < 1.0 { f64::INFINITY } else { (1.0 - part) / part }
    }

    /// Whether demand waits for prefetches although they are aborted.
    pub(super) fn aborts_are_futile(&self) -> bool {
        self.harm.aborts_are_futile()
    }

    /// The part of the time in which a prefetch may be in service.
    pub(super) fn share(&self) -> f64 {
        let share = self.value.min(1.0);
        if self.has_neighbour() { share * BESIDE_NEIGHBOUR } else { share }
    }

    /// When prefetches may start at the latest: not earlier in a block without them.
    pub(super) fn opens(&self) -> Timestamp {
        if self.block.with_prefetches { Timestamp::ZERO } else { self.block.began + MAX_BLOCK }
    }

    /// Whether the upstream is slower than usual without our prefetches. Servers of a lower priority yield to
    /// neighbours as well, and are not asked.
    pub(super) fn has_neighbour(&self) -> bool {
        !self.is_isolated && self.harm.slowdown() > NEIGHBOUR
    }

    /// A prefetch starts.
    pub(super) fn started(&mut self) {
        self.block.is_used = true;
    }

    /// A prefetch waits because of the limit.
    pub(super) fn binds(&mut self) {
        self.binds = true;
    }

    /// A demand request has come beside this many prefetches. Returns whether it is in a block with
    /// prefetches; none if it gives no sample.
    pub(super) fn demand(&mut self, now: Timestamp, prefetches: usize) -> Option<bool> {
        if self.block.left == 0 || self.block.began < self.opens() && now >= self.opens() {
            self.next_block(now);
        }
        self.block.left -= 1;
        if self.block.with_prefetches && self.block.is_used {
            Some(true)
        } else if self.is_isolated {
            // They stay in service while demand keeps the processor busy. So demand that meets none comes at times
            // of little demand, and would not be comparable.
            (!self.block.with_prefetches).then_some(false)
        } else {
            // One that was still in service when the block began is neither.
            (prefetches == 0).then_some(false)
        }
    }

    fn next_block(&mut self, now: Timestamp) {
        // Blocks without prefetches are only needed after some with prefetches.
        let with = !(self.block.with_prefetches && self.block.is_used);
        // Knuth's linear congruential generator: blocks must not be in phase with the visits of a robot.
        self.draw = self
            .draw
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let least = match (with, self.value < LOW) {
            (true, _) => BLOCK_WITH,
            (false, false) => BLOCK_WITHOUT,
            (false, true) => BLOCK_WITHOUT_LOW,
        };
        let more = (self.draw >> 33) as u32 % least;
        self.block =
            Block { with_prefetches: with, left: least + more, began: now, is_used: false };
    }

    /// A request of demand was answered.
    pub(super) fn record(&mut self, now: Timestamp, sample: Sample) {
        self.harm.record(now, sample);
        let is_queued = if sample.others >= self.concurrent_limit() { 1.0 } else { 0.0 };
        self.queued += (is_queued - self.queued) * QUEUED;
        if !sample.with_prefetches {
            return;
        }
        self.seen += 1;
        if self.seen >= CHECK_SAMPLES {
            self.seen = 0;
            self.adjust();
        }
    }

    fn adjust(&mut self) {
        let binds = core::mem::take(&mut self.binds);
        let Some(Estimate { excess, error }) = self.harm.estimate() else { return };
        let behind = 1.0 / (1.0 - self.queued).max(0.1);
        let (excess, error) = (excess * behind, error * behind);
        let certain = if self.is_isolated { CERTAIN_ISOLATED } else { CERTAIN };
        if self.has_neighbour() || (excess - self.target > certain * error) {
            let whole = libm::floor(self.value).max(1.0);
            self.value = (self.value * DECREASE).min(whole).max(MIN_LIMIT);
            self.harm.fade(FADE);
        } else if binds {
            self.grow(excess, error);
        }
    }

    fn grow(&mut self, excess: f64, error: f64) {
        let next = if self.value < 1.0 {
            (self.value * GROWTH_BELOW_ONE).min(1.0)
        } else {
            self.value + GROWTH
        };
        let known = if self.is_isolated { self.most as usize } else { self.harm.capacity() };
        // The server may have grown since more was tried.
        self.harm.forget_above(known, FORGET);
        let capacity = known as f64;
        // Above the capacity a prefetch is left to its end while demand waits.
        let doubt = if next <= capacity { 0.5 } else { 2.0 };
        if excess + doubt * error < self.target {
            self.value = next.min(capacity + 0.95).min(self.most);
        }
    }

    pub(super) fn figures(&self) -> LimitFigures {
        LimitFigures {
            limit: self.value,
            harm: self.harm.estimate(),
            slowdown: self.harm.slowdown(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::harm::Met;
    use super::*;

    /// The limit after demand that is 2 % slower beside prefetches.
    fn settled(sharers: usize) -> f64 {
        let mut limit = Limit::new(8, false);
        limit.set_sharers(sharers);
        for number in 0..6_000_u64 {
            let with_prefetches = number % 2 == 0;
            let micros = if with_prefetches { 1_020 } else { 1_000 };
            let time = Duration::from_micros(micros);
            let sample = Sample {
                class: 0,
                others: 0,
                all_others: Some(0),
                with_prefetches,
                met: Met::None,
                time,
            };
            limit.binds();
            limit.record(Timestamp::from_nanos(1_000_000 * number), sample);
        }
        limit.figures().limit
    }

    #[test]
    fn proxies_that_share_a_server_divide_the_harm() {
        let (alone, of_three) = (settled(1), settled(3));
        assert!(alone >= 1.0 && of_three < 0.1, "{alone} {of_three}");
    }
}
