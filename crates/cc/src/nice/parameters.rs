//! The constants of Nice, and the refinements that go beyond the published algorithm.

use crate::Window;

/// How the window changes while the detector is silent (SSR §4.1.2: any TCP-friendly rule).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Base {
    /// Vegas' −1, 0, +1 a round, as the papers' prototype.
    #[default]
    Vegas,
    /// Reno's +1 a round.
    Reno,
}

/// The detector's change of the window (Nice §2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reaction {
    /// Halves it: the paper's multiplicative decrease.
    #[default]
    Half,
    /// Subtracts one packet, like Vegas: an ablation, which shows the effect of halving.
    Packet,
}

/// The constants of Nice. Fractions are fixed point with 16 fractional bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NiceParameters {
    /// The window is never halved below this (Nice §2.3: 1/48).
    pub min_window: Window,
    /// t of Nice §2.2: the share of the queue above which a packet counts as congested.
    pub threshold: u32,
    /// f of Nice §2.2: the share of a round's packets above which the window is halved.
    pub fraction: u32,
    /// Vegas' α in packets: fewer queued, and the window grows.
    pub alpha: u32,
    /// Vegas' β in packets: more queued, and the window shrinks.
    pub beta: u32,
    /// Queueing delay that never counts, in microseconds: on a path of microseconds the jitter of
    /// the hosts is larger than any share of the queue.
    pub delay_floor_micros: u32,
    /// The rule for rounds without congestion.
    pub base: Base,
    /// `false` for the base alone, without the interference trigger.
    pub detector: bool,
    /// The reaction to the interference trigger.
    pub reaction: Reaction,
    /// Changes beyond the published algorithm.
    pub refinements: Refinements,
}

/// Refinements within the papers' design: each keeps the window at or below Reno's, and `docs/algorithm.md`
/// lists measurements of its benefit and cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refinements {
    /// Growth above two packets is limited by the room below the trigger, so that many flows that grow at
    /// once do not exceed it.
    pub headroom: bool,
    /// With many flows, growth below two packets is half the window instead of a whole packet. Otherwise the
    /// flows at the floor would each send a packet at once.
    pub gentle: bool,
    /// A new flow has a quarter of the threshold until it has seen rounds without congestion.
    pub probation: bool,
    /// The two packets of a pair are sent apart. Otherwise, on a slow link, the second waits for the first
    /// and reports that as a queue.
    pub spaced: bool,
    /// A series of cuts by the detector leaves half of its first window in memory. Up to that, slow start
    /// restores the window when the foreground has ended.
    pub recall: bool,
    /// Vegas uses the lowest round-trip time of a round instead of the mean. Otherwise its own bursts or the
    /// path's jitter look like a queue. Only for a flow with more than two packets in a millisecond, where
    /// they do.
    pub least: bool,
    /// Once a loss was seen, the round-trip time around it is used for that of the full queue. It replaces
    /// twice the empty one's, which a short buffer never reaches.
    pub full: bool,
    /// Delay that jitter explains is not congestion: the noise floor of the path is learned, and added to the
    /// round-trip time of the empty queue ([`NoiseFloor`](crate::noise_floor::NoiseFloor)).
    pub noise: bool,
    /// At any delay, a pair of packets is sent once a second ([`minimum_progress`](crate::nice::minimum_progress)).
    pub progress: bool,
}

impl Refinements {
    /// The published algorithm.
    pub const NONE: Refinements = Refinements {
        headroom: false,
        gentle: false,
        probation: false,
        spaced: false,
        recall: false,
        least: false,
        full: false,
        noise: false,
        progress: false,
    };
    /// All of them.
    pub const ALL: Refinements = Refinements {
        headroom: true,
        gentle: true,
        probation: true,
        spaced: true,
        recall: true,
        least: true,
        full: true,
        noise: true,
        progress: true,
    };

    /// The refinements with which the experiments of `plans/` were recorded: all that matter on a link
    /// without jitter.
    pub const RECORDED: Refinements = Refinements { noise: false, progress: false, ..Self::ALL };

    /// One bit each, in the order of `enum nice_refinement` of the kernel's mirror.
    pub const fn bits(self) -> u32 {
        let Refinements {
            headroom,
            gentle,
            probation,
            spaced,
            recall,
            least,
            full,
            noise,
            progress,
        } = self;
        headroom as u32
            | (gentle as u32) << 1
            | (probation as u32) << 2
            | (spaced as u32) << 3
            | (recall as u32) << 4
            | (least as u32) << 5
            | (full as u32) << 6
            | (noise as u32) << 7
            | (progress as u32) << 8
    }

    /// The refinements of these bits; bits that [`bits`](Self::bits) does not return are ignored.
    pub const fn from_bits(bits: u32) -> Self {
        Refinements {
            headroom: bits & 1 != 0,
            gentle: bits & 2 != 0,
            probation: bits & 4 != 0,
            spaced: bits & 8 != 0,
            recall: bits & 16 != 0,
            least: bits & 32 != 0,
            full: bits & 64 != 0,
            noise: bits & 128 != 0,
            progress: bits & 256 != 0,
        }
    }
}

/// `numerator / denominator` with 16 fractional bits.
pub const fn fixed(numerator: u32, denominator: u32) -> u32 {
    (((numerator as u64) << Window::SHIFT) / denominator as u64) as u32
}

impl NiceParameters {
    /// The constants of the papers' kernel prototype: t = 0.2, f = 0.5, α = 1, β = 3, 1/48
    /// (Nice §2.3), Vegas below.
    pub const fn prototype() -> Self {
        NiceParameters {
            min_window: Window::ONE_48TH,
            threshold: fixed(1, 5),
            fraction: fixed(1, 2),
            alpha: fixed(1, 1),
            beta: fixed(3, 1),
            delay_floor_micros: 500,
            base: Base::Vegas,
            detector: true,
            reaction: Reaction::Half,
            refinements: Refinements::NONE,
        }
    }

    /// The constants of the papers' simulations: like the prototype, with t = 0.1 (Nice §4.1).
    pub const fn simulation() -> Self {
        NiceParameters { threshold: fixed(1, 10), ..Self::prototype() }
    }

    /// The constants of `lull`: the prototype with all refinements.
    pub const fn refined() -> Self {
        NiceParameters { refinements: Refinements::ALL, ..Self::prototype() }
    }

    /// Vegas(α, β) alone, in packets (Nice §2.1): no detector, no window below two.
    pub const fn vegas(alpha: u32, beta: u32) -> Self {
        NiceParameters {
            min_window: Window::TWO,
            alpha: fixed(alpha, 1),
            beta: fixed(beta, 1),
            detector: false,
            refinements: Refinements::NONE,
            ..Self::prototype()
        }
    }
}

impl Default for NiceParameters {
    fn default() -> Self {
        Self::refined()
    }
}
