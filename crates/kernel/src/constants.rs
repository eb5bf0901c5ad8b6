//! The constants of the congestion controls of `bpf/`, in the form that the programs have them.

use lull_cc::filler::{Decrease, Limit, Protocol, Timeout};
use lull_cc::{Base, NiceParameters, Reaction};

use crate::skeletons::background::types as background;
use crate::skeletons::nice::types as nice;

/// The constants of a congestion control, which identify its algorithm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Constants {
    /// `bpf/nice.bpf.c`: Nice, or Vegas if its parts are switched off.
    Nice(NiceParameters),
    /// `bpf/background.bpf.c`: TCP-Background, or another protocol of its paper.
    Background(Protocol),
    /// `bpf/lull.bpf.c`: connections of this host that share a path share one state.
    Lull(PathTable),
}

impl From<&NiceParameters> for Constants {
    fn from(parameters: &NiceParameters) -> Self {
        Constants::Nice(*parameters)
    }
}

impl From<&Protocol> for Constants {
    fn from(protocol: &Protocol) -> Self {
        Constants::Background(*protocol)
    }
}

impl Constants {
    /// The constants for the programs: the fields of `struct nice_params` or `struct background_params`, in
    /// their order; nothing for Lull. Constants are compared by these words, which have the codes of the
    /// kernel.
    pub fn words(&self) -> Vec<u64> {
        match self {
            Constants::Nice(parameters) => {
                let mut to = nice::nice_params::default();
                set_nice(&mut to, parameters);
                vec![
                    to.min_window,
                    to.threshold.into(),
                    to.fraction.into(),
                    to.alpha.into(),
                    to.beta.into(),
                    to.delay_floor_us.into(),
                    to.base.into(),
                    to.detector.into(),
                    to.refinements.into(),
                ]
            }
            Constants::Background(protocol) => {
                let mut to = background::background_params::default();
                set_background(&mut to, protocol);
                [to.decrease, to.amount, to.limit, to.limit_amount, to.factor, to.hold]
                    .map(u64::from)
                    .to_vec()
            }
            Constants::Lull(_) => Vec::new(),
        }
    }
}

/// Limits of the table of paths of [`Constants::Lull`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathTable {
    /// Number of paths, at most; connections to further ones run Nice separately.
    pub paths: u32,
    /// How long an unused path is remembered, in seconds. It is removed when another path is added after
    /// that, or when the table is full.
    pub kept_seconds: u32,
}

impl Default for PathTable {
    /// Enough for a host that replicates to a thousand places, as an entry takes memory only while it is
    /// used. Entries are kept as long as Nice remembers a round-trip time.
    fn default() -> Self {
        PathTable { paths: 4096, kept_seconds: 200 }
    }
}

/// Writes the constants of Nice or Vegas into the program.
pub(crate) fn set_nice(to: &mut nice::nice_params, from: &NiceParameters) {
    to.min_window = from.min_window.raw();
    to.threshold = from.threshold;
    to.fraction = from.fraction;
    to.alpha = from.alpha;
    to.beta = from.beta;
    to.delay_floor_us = from.delay_floor_micros;
    // The order of `enum nice_base`.
    to.base = match from.base {
        Base::Vegas => 0,
        Base::Reno => 1,
    };
    // The order of `enum nice_detector`.
    to.detector = match (from.detector, from.reaction) {
        (false, _) => 0,
        (true, Reaction::Half) => 1,
        (true, Reaction::Packet) => 2,
    };
    to.refinements = from.refinements.bits();
}

/// Writes the constants of a protocol of the filler paper into the program.
pub(crate) fn set_background(to: &mut background::background_params, from: &Protocol) {
    // The order of `enum background_decrease`.
    (to.decrease, to.amount) = match from.decrease {
        Decrease::Linear(packets) => (0, packets),
        Decrease::LessPower(exponent) => (1, exponent.0),
        Decrease::Multiplicative(factor) => (2, factor.0),
        Decrease::Power(exponent) => (3, exponent.0),
        Decrease::Logarithmic(factor) => (4, factor),
    };
    // The order of `enum background_limit`.
    (to.limit, to.limit_amount, to.factor) = match from.regrowth {
        None => (0, 0, 0),
        Some(regrowth) => match regrowth.limit {
            Limit::Linear(packets) => (1, packets, regrowth.factor.0),
            Limit::Power(exponent) => (2, exponent.0, regrowth.factor.0),
        },
    };
    to.hold = match from.timeout {
        Timeout::Halve => 0,
        Timeout::Hold(exponent) => exponent.0,
    };
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use libbpf_rs::skel::SkelBuilder;

    use super::*;
    use crate::skeletons::nice::NiceSkelBuilder;

    /// The kernel's defaults, as compiled.
    #[test]
    fn defaults_of_the_program_match_the_reference() {
        let mut object = MaybeUninit::uninit();
        let open = NiceSkelBuilder::default().open(&mut object).unwrap();
        let defaults = open.maps.rodata_data.as_deref().expect("it has constants").params;
        let mut refined = nice::nice_params::default();
        set_nice(&mut refined, &NiceParameters::refined());
        assert_eq!(format!("{defaults:?}"), format!("{refined:?}"));
    }
}
