//! The differential equations, solved without any of the closed forms.
//!
//! Fixed fourth-order Runge–Kutta steps in seconds, with the laws of the three intervals as published in Nice
//! §3 and without holds. At a boundary the solution chatters around it by a step, which is equivalent to a
//! hold.

use super::super::{FluidParameters, Windows};

/// A step, as a part of τ.
const STEP: f64 = 1e-3;

/// The end of a numeric period.
pub(super) struct Numeric {
    pub(super) at_loss: Windows,
    pub(super) duration: f64,
    pub(super) reno_packets: f64,
    pub(super) nice_packets: f64,
}

fn round_trip(p: &FluidParameters, w: Windows) -> f64 {
    p.round_trip + (w.total() - p.path()).max(0.0) / p.service_rate
}

/// dW_r/dt and dW_n/dt.
fn slope(p: &FluidParameters, w: Windows) -> Windows {
    let (m, l) = (f64::from(p.reno_flows), f64::from(p.nice_flows));
    let queue = w.total() - p.path();
    let nice = if queue < 0.0 {
        l
    } else if queue < p.trigger() {
        if w.nice > l * p.nice.vegas_minimum { -l } else { 0.0 }
    } else if w.nice > l * p.nice.minimum_window {
        -p.decrease * w.nice
    } else {
        0.0
    };
    let rtt = round_trip(p, w);
    Windows { reno: m / rtt, nice: nice / rtt }
}

fn along(w: Windows, slope: Windows, dt: f64) -> Windows {
    Windows { reno: w.reno + slope.reno * dt, nice: w.nice + slope.nice * dt }
}

/// From just after a loss to the next one.
pub(super) fn period(p: &FluidParameters, start: Windows) -> Numeric {
    let dt = STEP * p.round_trip;
    let mut now = Numeric { at_loss: start, duration: 0.0, reno_packets: 0.0, nice_packets: 0.0 };
    for _ in 0..100_000_000 {
        let w = now.at_loss;
        let k1 = slope(p, w);
        let k2 = slope(p, along(w, k1, dt / 2.0));
        let k3 = slope(p, along(w, k2, dt / 2.0));
        let k4 = slope(p, along(w, k3, dt));
        let mean =
            |of: fn(&Windows) -> f64| (of(&k1) + 2.0 * of(&k2) + 2.0 * of(&k3) + of(&k4)) / 6.0;
        let mean = Windows { reno: mean(|w| w.reno), nice: mean(|w| w.nice) };
        // The last step is as long as it takes to fill the buffer.
        let room = p.capacity() - w.total();
        let last = mean.total() * dt >= room;
        let dt = if last { room / mean.total() } else { dt };
        let next = along(w, mean, dt);
        let rtt = (round_trip(p, w) + round_trip(p, next)) / 2.0;
        now.reno_packets += (w.reno + next.reno) / 2.0 / rtt * dt;
        now.nice_packets += (w.nice + next.nice) / 2.0 / rtt * dt;
        now.duration += dt;
        now.at_loss = next;
        if last {
            return now;
        }
    }
    panic!("no loss: {p:?}");
}
