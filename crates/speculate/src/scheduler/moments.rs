//! A mean and its error, with decay.

/// The weight of samples halves within about as many new ones.
const MEMORY: f64 = 512.0;

/// A mean and its variance, with decay.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moments {
    weight: f64,
    /// The sum of squared weights: the equivalent number of samples is `weight² / squares`.
    squares: f64,
    mean: f64,
    spread: f64,
}

impl Moments {
    pub(super) fn add(&mut self, value: f64) {
        let keep = 1.0 - core::f64::consts::LN_2 / MEMORY;
        self.weight = self.weight * keep + 1.0;
        self.squares = self.squares * keep * keep + 1.0;
        self.spread *= keep;
        let off = value - self.mean;
        self.mean += off / self.weight;
        self.spread += off * (value - self.mean);
    }

    pub(super) fn mean(&self) -> f64 {
        self.mean
    }

    pub(super) fn weight(&self) -> f64 {
        self.weight
    }

    /// The equivalent number of samples.
    pub(super) fn samples(&self) -> f64 {
        if self.squares > 0.0 { self.weight * self.weight / self.squares } else { 0.0 }
    }

    /// The variance of the mean.
    pub(super) fn error(&self) -> f64 {
        let samples = self.samples();
        if samples < 2.0 { f64::INFINITY } else { self.spread / self.weight / (samples - 1.0) }
    }

    pub(super) fn fade(&mut self, to: f64) {
        self.weight *= to;
        self.squares *= to;
        self.spread *= to;
    }
}
