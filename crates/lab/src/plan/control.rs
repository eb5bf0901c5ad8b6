//! Congestion controls of ours, with parameters of their own.

use lull_cc::{Base, NiceParameters, Refinements, Window};
use serde::Deserialize;

/// Which algorithm of ours a control is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    /// TCP Nice.
    Nice,
    /// Vegas, which Nice is built on.
    Vegas,
}

/// A congestion control of ours with parameters of its own. What is left open is as
/// [`NiceParameters::refined`] has it, of Vegas as [`NiceParameters::vegas`] with 1 and 3.
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
    /// α of Vegas, in packets.
    pub alpha: Option<u32>,
    /// β of Vegas, in packets.
    pub beta: Option<u32>,
    /// What the window does in rounds without congestion: `vegas` or `reno`.
    pub base: Option<BaseName>,
    /// Whether the interference trigger is there.
    pub detector: Option<bool>,
    /// The refinements, by name; all of them where this is left open.
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
}

impl Control {
    /// The controller's constants.
    ///
    /// # Errors
    /// What is outside its range, in one line.
    pub fn parameters(&self) -> Result<NiceParameters, String> {
        let usual = match self.algorithm {
            Algorithm::Nice => NiceParameters::refined(),
            Algorithm::Vegas => NiceParameters::vegas(1, 3),
        };
        let fixed = |name: &str, value: Option<f64>, usual: u32| match value {
            None => Ok(usual),
            // Neither may round to 0.
            Some(value) if value > 0.0 && value <= 1.0 => {
                Ok(((value * 65_536.0).round() as u32).max(1))
            }
            Some(value) => Err(format!("{name} = {value}: it is above 0, and 1 at most")),
        };
        let packets = |name: &str, value: Option<u32>, usual: u32| match value {
            None => Ok(usual),
            Some(value) if value <= 1000 => Ok(value << Window::SHIFT),
            Some(value) => Err(format!("{name} = {value}: it is 1000 packets at most")),
        };
        let min_window = match &self.min_window {
            None => usual.min_window,
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
            }
        });
        if self.carrier == Carrier::UserSpace && self.algorithm != Algorithm::Nice {
            return Err("carrier = 'user-space' has the algorithm 'nice' only".to_owned());
        }
        Ok(NiceParameters {
            min_window,
            threshold: fixed("threshold", self.threshold, usual.threshold)?,
            fraction: fixed("fraction", self.fraction, usual.fraction)?,
            alpha: packets("alpha", self.alpha, usual.alpha)?,
            beta: packets("beta", self.beta, usual.beta)?,
            base: match self.base {
                None => usual.base,
                Some(BaseName::Vegas) => Base::Vegas,
                Some(BaseName::Reno) => Base::Reno,
            },
            detector: self.detector.unwrap_or(usual.detector),
            refinements,
            ..usual
        })
    }
}
