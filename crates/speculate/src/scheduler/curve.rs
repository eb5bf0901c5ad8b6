//! The response time of demand by the number of requests in service: the server is full where it begins to
//! rise.

use super::moments::Moments;

/// The number of concurrency values.
const MAX_REQUESTS: usize = 16;
/// The server is full where a request takes this much longer than alone.
const RISE: f64 = 1.15;
/// Number of samples from which on a number of requests is judged.
const ENOUGH: f64 = 12.0;

/// Response times, relative to usual ones, by the requests in service when a request came, including itself.
#[derive(Clone, Debug)]
pub(super) struct Curve([Moments; MAX_REQUESTS]);

impl Curve {
    pub(super) fn new() -> Self {
        Curve([Moments::default(); MAX_REQUESTS])
    }

    /// A request came when there were `others`, and took `time`.
    pub(super) fn add(&mut self, others: usize, time: f64) {
        if let Some(moments) = self.0.get_mut(others) {
            moments.add(time);
        }
    }

    /// Samples with more than this many requests have this weight from now on.
    pub(super) fn fade_above(&mut self, requests: usize, to: f64) {
        self.0.iter_mut().skip(requests).for_each(|moments| moments.fade(to));
    }

    /// Concurrent requests that the server handles without making them wait, as far as known: one more than
    /// was tried, if the last number tried was not too high.
    pub(super) fn capacity(&self) -> usize {
        let [alone, more @ ..] = &self.0;
        if alone.samples() < ENOUGH {
            return 1;
        }
        for (place, moments) in more.iter().enumerate() {
            let is_known = moments.samples() >= ENOUGH;
            let bar = RISE * alone.mean();
            let error = libm::sqrt(moments.error() + RISE * RISE * alone.error());
            if !is_known {
                return place + 2;
            }
            if moments.mean() - bar > error {
                return place + 1;
            }
        }
        MAX_REQUESTS
    }
}
