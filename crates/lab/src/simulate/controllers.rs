//! The controllers of `lull-cc`, by their names in plans.

use std::sync::atomic::{AtomicU64, Ordering};

use lull_cc::filler::Filler;
use lull_cc::lull::SharedPath;
use lull_cc::{
    Bbr, Controller, Cubic, Ledbat, LedbatPlusPlus, Nice, Reno, TcpLp, TcpLpParameters, Window,
};
use lull_sim::traffic::ControllerFactory;

use crate::plan::{Algorithm, Control, Invalid};

/// Makes the controllers of a control; `seed` feeds those that have randomness of their own, and `path` is
/// what connections of `lull` share.
///
/// # Errors
/// A constant outside its range, in one line.
pub(super) fn factory(
    control: &Control,
    segment_bytes: u16,
    seed: u64,
    path: SharedPath,
) -> Result<ControllerFactory, Invalid> {
    let parameters = control.parameters()?;
    let window = control.initial_window.map(Window::from_packets);
    let made = AtomicU64::new(seed);
    let algorithm = control.algorithm;
    Ok(ControllerFactory::boxed(move || -> Box<dyn Controller + Send> {
        match (algorithm, window) {
            // Vegas is Nice without its detector (`NiceParameters::vegas`).
            (Algorithm::Nice | Algorithm::Vegas, None) => Box::new(Nice::new(parameters)),
            (Algorithm::Nice | Algorithm::Vegas, Some(window)) => {
                Box::new(Nice::with_window(parameters, window, Window::MAX))
            }
            (Algorithm::Reno, None) => Box::new(Reno::new()),
            (Algorithm::Reno, Some(window)) => Box::new(Reno::with_window(window)),
            (Algorithm::Filler(protocol), None) => Box::new(Filler::new(*protocol)),
            (Algorithm::Filler(protocol), Some(window)) => {
                Box::new(Filler::with_window(*protocol, window, Window::MAX))
            }
            (Algorithm::Cubic, _) => Box::new(Cubic::new()),
            (Algorithm::Ledbat, _) => Box::new(Ledbat::new()),
            (Algorithm::LedbatPlusPlus, _) => Box::new(LedbatPlusPlus::new()),
            (Algorithm::Lull, _) => Box::new(path.join()),
            (Algorithm::TcpLp, _) => Box::new(TcpLp::new(TcpLpParameters::default())),
            (Algorithm::Bbr, _) => {
                let seed = made.fetch_add(1, Ordering::Relaxed);
                Box::new(Bbr::new(seed).with_packet_bytes(u32::from(segment_bytes)))
            }
        }
    }))
}
