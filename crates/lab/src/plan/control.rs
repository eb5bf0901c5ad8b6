//! Congestion controls of ours, with parameters of their own.

use std::collections::BTreeMap;
use std::str::FromStr;

use lull_cc::filler::{PROTOCOLS, Protocol};
use lull_cc::{Base, NiceParameters, Reaction, Refinements, Window};
use serde::Deserialize;

/// Which algorithm of ours a control is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Algorithm {
    /// TCP Nice.
    Nice,
    /// Vegas, which Nice is built on.
    Vegas,
    /// Reno's window.
    Reno,
    /// CUBIC.
    Cubic,
    /// BBR.
    Bbr,
    /// LEDBAT.
    Ledbat,
    /// LEDBAT++.
    LedbatPlusPlus,
    /// TCP-LP.
    TcpLp,
    /// The controller whose connections share the window of their path.
    Lull,
    /// A protocol of the filler paper, by the paper's name: TCP-Background, LowPri1 and so on.
    Filler(&'static Protocol),
}

/// The names of those that are no protocol of the filler paper.
const NAMES: [(&str, Algorithm); 9] = [
    ("nice", Algorithm::Nice),
    ("vegas", Algorithm::Vegas),
    ("reno", Algorithm::Reno),
    ("cubic", Algorithm::Cubic),
    ("bbr", Algorithm::Bbr),
    ("ledbat", Algorithm::Ledbat),
    ("ledbat++", Algorithm::LedbatPlusPlus),
    ("tcp-lp", Algorithm::TcpLp),
    ("lull", Algorithm::Lull),
];

impl FromStr for Algorithm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let own = NAMES.iter().find(|(name, _)| *name == text).map(|(_, algorithm)| *algorithm);
        own.or_else(|| Protocol::by_name(text).map(Algorithm::Filler)).ok_or_else(|| {
            let names = NAMES.iter().map(|(name, _)| *name);
            let all: Vec<&str> =
                names.chain(PROTOCOLS.iter().map(|protocol| protocol.name)).collect();
            format!("there is no algorithm '{text}': there are {}", all.join(", "))
        })
    }
}

impl TryFrom<String> for Algorithm {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// A congestion control of ours with parameters of its own. What is left open is as
/// [`NiceParameters::refined`] has it, with the refinements of [`Refinements::RECORDED`]; of Vegas as [`NiceParameters::vegas`] with 1 and 3.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Control {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// What runs it: the kernel, or a thread of the sender.
    #[serde(default)]
    pub carrier: Carrier,
    /// t: queueing delay, as a part of the largest, that counts as interference.
    pub threshold: Option<f64>,
    /// f: part of a round's packets that must see it for the window to be halved.
    pub fraction: Option<f64>,
    /// The smallest window in packets, such as `1/48`.
    pub min_window: Option<String>,
    /// The window a connection begins with, in packets; simulated only.
    pub initial_window: Option<u32>,
    /// α of Vegas, in packets.
    pub alpha: Option<u32>,
    /// β of Vegas, in packets.
    pub beta: Option<u32>,
    /// What the window does in rounds without congestion: `vegas` or `reno`.
    pub base: Option<BaseName>,
    /// Whether the interference trigger is there.
    pub detector: Option<bool>,
    /// What the interference trigger does to the window: `half`, or for an ablation `packet`.
    pub decrease: Option<DecreaseName>,
    /// The refinements, by name; [`Refinements::RECORDED`] where this is left open.
    pub refinements: Option<Vec<RefinementName>>,
}

/// What runs a controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Carrier {
    /// The kernel, at each acknowledgement.
    #[default]
    Kernel,
    /// A thread of the sender, by `lull-transport`.
    UserSpace,
}

/// A base, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BaseName {
    /// [`Base::Vegas`].
    Vegas,
    /// [`Base::Reno`].
    Reno,
}

/// What the interference trigger does, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DecreaseName {
    /// [`Reaction::Half`].
    Half,
    /// [`Reaction::Packet`].
    Packet,
}

/// A refinement, by the name of its field in [`Refinements`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum RefinementName {
    Headroom,
    Gentle,
    Probation,
    Spaced,
    Recall,
    /// [`Refinements::least`].
    Least,
    /// [`Refinements::full`].
    Full,
    /// [`Refinements::noise`].
    Noise,
    /// [`Refinements::progress`].
    Progress,
}

impl Algorithm {
    /// Whether it is one controller with Nice.
    fn is_nice_s(self) -> bool {
        matches!(self, Algorithm::Nice | Algorithm::Vegas)
    }

    fn has_initial_window(self) -> bool {
        self.is_nice_s() || matches!(self, Algorithm::Reno | Algorithm::Filler(_))
    }
}

impl Control {
    /// A control that leaves everything open.
    pub fn plain(algorithm: Algorithm) -> Self {
        Control {
            algorithm,
            carrier: Carrier::default(),
            threshold: None,
            fraction: None,
            min_window: None,
            initial_window: None,
            alpha: None,
            beta: None,
            base: None,
            detector: None,
            decrease: None,
            refinements: None,
        }
    }

    /// What a group names: a control of the plan, or an algorithm as it is.
    ///
    /// # Errors
    /// What there is, in one line, if it is neither.
    pub fn named(name: &str, controls: &BTreeMap<String, Control>) -> Result<Self, String> {
        match controls.get(name) {
            Some(control) => Ok(control.clone()),
            None => name.parse().map(Control::plain),
        }
    }

    /// Whether the kernel can run it.
    pub(super) fn check_kernel_s(&self) -> Result<(), String> {
        if !self.algorithm.is_nice_s() && self.algorithm != Algorithm::Lull {
            let text = "the kernel has no such control of ours: it has 'nice', 'vegas' and 'lull'";
            return Err(text.to_owned());
        }
        match (self.initial_window, self.min_window.as_deref()) {
            (Some(_), _) => Err("initial_window belongs to kind = 'simulator'".to_owned()),
            (_, Some("2")) => Err("min_window = 2 belongs to kind = 'simulator'".to_owned()),
            // Figure 5 begins there; the kernel's ends above it.
            _ if self.threshold == Some(0.0) => {
                Err("threshold = 0 belongs to kind = 'simulator': it is above 0 here".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// A key of Nice's that is there, if one is.
    fn nice_key(&self) -> Option<&'static str> {
        [
            ("threshold", self.threshold.is_some()),
            ("fraction", self.fraction.is_some()),
            ("min_window", self.min_window.is_some()),
            ("alpha", self.alpha.is_some()),
            ("beta", self.beta.is_some()),
            ("base", self.base.is_some()),
            ("detector", self.detector.is_some()),
            ("decrease", self.decrease.is_some()),
            ("refinements", self.refinements.is_some()),
        ]
        .into_iter()
        .find_map(|(key, is)| is.then_some(key))
    }

    /// All that makes it this control, with every constant that the plan leaves open.
    pub(super) fn decisive(&self) -> String {
        let Control { algorithm, carrier, initial_window, .. } = self;
        // A refinement that is off makes no other cell than before there was one of its name.
        let mut parameters = format!("{:?}", self.parameters())
            .replace(", noise: false", "")
            .replace(", progress: false", "");
        if *algorithm != Algorithm::Nice {
            // Nobody else has Nice's refinements, so a new one makes no other cell of theirs.
            parameters = parameters.replace(", full: false", "");
        }
        format!("{algorithm:?} {carrier:?} {initial_window:?} {parameters}")
    }

    /// The controller's constants, of Nice and Vegas.
    ///
    /// # Errors
    /// What is outside its range, in one line.
    pub fn parameters(&self) -> Result<NiceParameters, String> {
        let usual = match self.algorithm {
            Algorithm::Nice => {
                NiceParameters { refinements: Refinements::RECORDED, ..NiceParameters::refined() }
            }
            _ => NiceParameters::vegas(1, 3),
        };
        if let (false, Some(key)) = (self.algorithm.is_nice_s(), self.nice_key()) {
            return Err(format!("{key} belongs to the algorithms 'nice' and 'vegas'"));
        }
        if let Some(window) = self.initial_window.filter(|window| !(1..=1000).contains(window)) {
            return Err(format!("initial_window = {window}: it is 1 to 1000 packets"));
        }
        if self.initial_window.is_some() && !self.algorithm.has_initial_window() {
            return Err("initial_window is fixed: this algorithm has one of its own".to_owned());
        }
        let fixed = |name: &str, value: Option<f64>, usual: u32| match value {
            None => Ok(usual),
            // Neither may round to 0 where it is above.
            Some(value) if value > 0.0 && value <= 1.0 => {
                Ok(((value * 65_536.0).round() as u32).max(1))
            }
            Some(value) => Err(format!("{name} = {value}: it is above 0, and 1 at most")),
        };
        let threshold = match self.threshold {
            // Any delay above the floor is congestion (Nice §4.2 experiment 3).
            Some(0.0) => 0,
            threshold => fixed("threshold", threshold, usual.threshold)?,
        };
        let packets = |name: &str, value: Option<u32>, usual: u32| match value {
            None => Ok(usual),
            Some(value) if value <= 1000 => Ok(value << Window::SHIFT),
            Some(value) => Err(format!("{name} = {value}: it is 1000 packets at most")),
        };
        let min_window = match self.min_window.as_deref() {
            None => usual.min_window,
            // No window for the kernel's command line, where it ends at 1; an ablation.
            Some("2") => Window::TWO,
            Some(text) => {
                text.parse::<lull_kernel::MinWindow>().map_err(|error| error.to_string())?.window()
            }
        };
        let refinements = self.refinements.as_ref().map_or(usual.refinements, |names| {
            let has = |name| names.contains(&name);
            Refinements {
                headroom: has(RefinementName::Headroom),
                gentle: has(RefinementName::Gentle),
                probation: has(RefinementName::Probation),
                spaced: has(RefinementName::Spaced),
                recall: has(RefinementName::Recall),
                least: has(RefinementName::Least),
                full: has(RefinementName::Full),
                noise: has(RefinementName::Noise),
                progress: has(RefinementName::Progress),
            }
        });
        if self.carrier == Carrier::UserSpace && self.algorithm != Algorithm::Nice {
            return Err("carrier = 'user-space' has the algorithm 'nice' only".to_owned());
        }
        Ok(NiceParameters {
            min_window,
            threshold,
            fraction: fixed("fraction", self.fraction, usual.fraction)?,
            alpha: packets("alpha", self.alpha, usual.alpha)?,
            beta: packets("beta", self.beta, usual.beta)?,
            base: match self.base {
                None => usual.base,
                Some(BaseName::Vegas) => Base::Vegas,
                Some(BaseName::Reno) => Base::Reno,
            },
            detector: self.detector.unwrap_or(usual.detector),
            reaction: match self.decrease {
                None => usual.reaction,
                Some(DecreaseName::Half) => Reaction::Half,
                Some(DecreaseName::Packet) => Reaction::Packet,
            },
            refinements,
            ..usual
        })
    }
}
