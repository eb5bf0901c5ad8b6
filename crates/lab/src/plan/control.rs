//! Congestion controls of this project, with their own parameters.

use std::collections::BTreeMap;
use std::str::FromStr;

use lull_cc::filler::{PROTOCOLS, Protocol};
use lull_cc::{Base, NiceParameters, Reaction, Refinements, Window};
use serde::Deserialize;

use super::invalid::Invalid;

/// The algorithm of a control, if it is of this project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Algorithm {
    /// TCP Nice.
    Nice,
    /// Vegas, the basis of Nice.
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
    /// A protocol of the filler paper, by the name in the paper: TCP-Background, LowPri1 and so on.
    Filler(&'static Protocol),
}

/// The names of those that are not protocols of the filler paper.
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
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let own = NAMES.iter().find(|(name, _)| *name == text).map(|(_, algorithm)| *algorithm);
        own.or_else(|| Protocol::by_name(text).map(Algorithm::Filler)).ok_or_else(|| {
            let names = NAMES.iter().map(|(name, _)| *name);
            let all: Vec<&str> =
                names.chain(PROTOCOLS.iter().map(|protocol| protocol.name)).collect();
            Invalid::Unknown { what: "algorithm", name: text.to_owned(), known: all.join(", ") }
        })
    }
}

impl TryFrom<String> for Algorithm {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        text.parse()
    }
}

/// A congestion control of this project with its own parameters. The defaults are those of
/// [`NiceParameters::refined`], with the refinements of [`Refinements::RECORDED`]; for Vegas, those of
/// [`NiceParameters::vegas`] with 1 and 3.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Control {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Where it runs: in the kernel, or in a thread of the sender.
    #[serde(default)]
    pub carrier: Carrier,
    /// t: queueing delay that counts as interference, as a part of the largest.
    pub threshold: Option<f64>,
    /// f: the part of a round's packets with such a delay that halves the window.
    pub fraction: Option<f64>,
    /// The smallest window in packets, such as `1/48`.
    pub min_window: Option<String>,
    /// The initial window, in packets; simulated only.
    pub initial_window: Option<u32>,
    /// α of Vegas, in packets.
    pub alpha: Option<u32>,
    /// β of Vegas, in packets.
    pub beta: Option<u32>,
    /// How the window grows in rounds without congestion: `vegas` or `reno`.
    pub base: Option<BaseName>,
    /// Whether the interference trigger is on.
    pub detector: Option<bool>,
    /// The reaction to the interference trigger: `half`, or for an ablation `packet`.
    pub decrease: Option<DecreaseName>,
    /// The refinements, by name; by default [`Refinements::RECORDED`].
    pub refinements: Option<Vec<RefinementName>>,
}

/// Where a controller runs.
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

/// The reaction to the interference trigger, by name.
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
    /// Whether it has the parameters of Nice.
    fn is_nice_parameter(self) -> bool {
        matches!(self, Algorithm::Nice | Algorithm::Vegas)
    }

    fn has_initial_window(self) -> bool {
        self.is_nice_parameter() || matches!(self, Algorithm::Reno | Algorithm::Filler(_))
    }
}

impl Control {
    /// A control with all defaults.
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

    /// The control of a group's name: one of the plan, or an algorithm with its defaults.
    ///
    /// # Errors
    /// The available names, in one line, if it is neither.
    pub fn named(name: &str, controls: &BTreeMap<String, Control>) -> Result<Self, Invalid> {
        match controls.get(name) {
            Some(control) => Ok(control.clone()),
            None => name.parse().map(Control::plain),
        }
    }

    /// Whether the kernel can run it.
    pub(super) fn check_for_kernel(&self) -> Result<(), Invalid> {
        const SIMULATED: &str = "this value needs kind = 'simulator'";
        if !self.algorithm.is_nice_parameter() && self.algorithm != Algorithm::Lull {
            return Err(Invalid::Rule(
                "the kernel has no such control of Lull: it has 'nice', 'vegas' and 'lull'",
            ));
        }
        match (self.initial_window, self.min_window.as_deref()) {
            (Some(window), _) => Err(Invalid::value("initial_window", window, SIMULATED)),
            (_, Some("2")) => Err(Invalid::value("min_window", 2, SIMULATED)),
            // Figure 5 begins there; the kernel's lowest value is above it.
            _ if self.threshold == Some(0.0) => {
                Err(Invalid::value("threshold", 0, format!("{SIMULATED}; it is above 0 here")))
            }
            _ => Ok(()),
        }
    }

    /// A parameter of Nice that is set, if any.
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

    /// All parameters of this control, including the defaults of those that the plan leaves open.
    pub(super) fn decisive(&self) -> String {
        let Control { algorithm, carrier, initial_window, .. } = self;
        // The hash of a cell must not change when a refinement is added that is off in it.
        let mut parameters = format!("{:?}", self.parameters())
            .replace(", noise: false", "")
            .replace(", progress: false", "");
        if *algorithm != Algorithm::Nice {
            // Other controls do not have Nice's refinements, so a new one does not change the hash of their
            // cells.
            parameters = parameters.replace(", full: false", "");
        }
        format!("{algorithm:?} {carrier:?} {initial_window:?} {parameters}")
    }

    /// The controller's constants, of Nice and Vegas.
    ///
    /// # Errors
    /// The first key with a value outside its range, or that this algorithm does not have.
    pub fn parameters(&self) -> Result<NiceParameters, Invalid> {
        let default = match self.algorithm {
            Algorithm::Nice => {
                NiceParameters { refinements: Refinements::RECORDED, ..NiceParameters::refined() }
            }
            _ => NiceParameters::vegas(1, 3),
        };
        self.check_keys()?;
        let threshold = match self.threshold {
            // Any delay above the floor is congestion (Nice §4.2 experiment 3).
            Some(0.0) => 0,
            threshold => fraction("threshold", threshold, default.threshold)?,
        };
        let refinements = self.refinements.as_deref().map_or(default.refinements, refinements);
        let parameters = NiceParameters {
            min_window: self.min_window()?.unwrap_or(default.min_window),
            threshold,
            fraction: fraction("fraction", self.fraction, default.fraction)?,
            alpha: packets("alpha", self.alpha, default.alpha)?,
            beta: packets("beta", self.beta, default.beta)?,
            base: self.base.map_or(default.base, Base::from),
            detector: self.detector.unwrap_or(default.detector),
            reaction: self.decrease.map_or(default.reaction, Reaction::from),
            refinements,
            ..default
        };
        if self.carrier == Carrier::UserSpace && self.algorithm != Algorithm::Nice {
            let only = "only the algorithm 'nice' has it";
            return Err(Invalid::value("carrier", "'user-space'", only));
        }
        Ok(parameters)
    }

    /// Keys that the algorithm does not have, and the initial window.
    fn check_keys(&self) -> Result<(), Invalid> {
        if let (false, Some(key)) = (self.algorithm.is_nice_parameter(), self.nice_key()) {
            return Err(Invalid::Foreign { key, owner: "the algorithms 'nice' and 'vegas'" });
        }
        let Some(window) = self.initial_window else { return Ok(()) };
        if !(1..=1000).contains(&window) {
            return Err(Invalid::value("initial_window", window, "it is 1 to 1000 packets"));
        }
        if !self.algorithm.has_initial_window() {
            let fixed = "this algorithm has an initial window of its own";
            return Err(Invalid::value("initial_window", window, fixed));
        }
        Ok(())
    }

    fn min_window(&self) -> Result<Option<Window>, Invalid> {
        match self.min_window.as_deref() {
            None => Ok(None),
            // The kernel's command line has no such window, as it ends at 1; for an ablation.
            Some("2") => Ok(Some(Window::TWO)),
            Some(text) => match text.parse::<lull_kernel::MinWindow>() {
                Ok(window) => Ok(Some(window.window())),
                Err(_) => Err(Invalid::value(
                    "min_window",
                    format!("'{text}'"),
                    "it is a fraction from 1/48 to 1, or 2",
                )),
            },
        }
    }
}

/// A part of one, with 16 fractional bits.
fn fraction(key: &'static str, value: Option<f64>, default: u32) -> Result<u32, Invalid> {
    match value {
        None => Ok(default),
        // A value above 0 must not be rounded to 0.
        Some(value) if value > 0.0 && value <= 1.0 => {
            Ok(((value * 65_536.0).round() as u32).max(1))
        }
        Some(value) => Err(Invalid::value(key, value, "it is above 0, and 1 at most")),
    }
}

/// A number of packets, with 16 fractional bits.
fn packets(key: &'static str, value: Option<u32>, default: u32) -> Result<u32, Invalid> {
    match value {
        None => Ok(default),
        Some(value) if value <= 1000 => Ok(value << Window::SHIFT),
        Some(value) => Err(Invalid::value(key, value, "it is 1000 packets at most")),
    }
}

fn refinements(names: &[RefinementName]) -> Refinements {
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
}

impl From<BaseName> for Base {
    fn from(name: BaseName) -> Self {
        match name {
            BaseName::Vegas => Base::Vegas,
            BaseName::Reno => Base::Reno,
        }
    }
}

impl From<DecreaseName> for Reaction {
    fn from(name: DecreaseName) -> Self {
        match name {
            DecreaseName::Half => Reaction::Half,
            DecreaseName::Packet => Reaction::Packet,
        }
    }
}
