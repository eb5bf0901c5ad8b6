//! Transfers of probes: how long each took.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The transfers of a group of probes in a phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Transfers {
    /// The size of each, in bytes.
    pub bytes: u64,
    /// By action, in the order in which they were made.
    pub actions: BTreeMap<String, ActionRecord>,
}

/// The transfers of one action.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ActionRecord {
    /// From the first packet of its connection to the last byte received, in seconds.
    pub seconds: Vec<f64>,
    /// The rate of the others meanwhile, in Mbit/s; empty if there were none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside_mbit: Vec<f64>,
}

impl Transfers {
    /// The value of `transfer.GROUP.PHASE` in expressions: for each action the count of its transfers, and if
    /// there are any, their times and bandwidths.
    pub(super) fn quantities(&self) -> Value {
        let of = |action: &ActionRecord| {
            if action.seconds.is_empty() {
                return json!({ "count": 0 });
            }
            let mbit: Vec<f64> = action
                .seconds
                .iter()
                .map(|seconds| self.bytes as f64 * 8.0 / 1e6 / seconds.max(1e-9))
                .collect();
            let ([mean_s, min_s, max_s], [mean_mbit, min_mbit, max_mbit]) =
                (summary(&action.seconds), summary(&mbit));
            let mut quantities = json!({
                "count": action.seconds.len(),
                "mean_s": mean_s, "min_s": min_s, "max_s": max_s,
                "mean_mbit": mean_mbit, "min_mbit": min_mbit, "max_mbit": max_mbit,
            });
            if !action.beside_mbit.is_empty() {
                quantities["beside_mbit"] = json!(summary(&action.beside_mbit)[0]);
            }
            quantities
        };
        Value::Object(self.actions.iter().map(|(name, one)| (name.clone(), of(one))).collect())
    }
}

/// Mean, minimum and maximum of some values, at least one.
fn summary(values: &[f64]) -> [f64; 3] {
    let fold = |pick: fn(f64, f64) -> f64| values.iter().copied().reduce(pick).unwrap_or(f64::NAN);
    [values.iter().sum::<f64>() / values.len() as f64, fold(f64::min), fold(f64::max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_bandwidth_is_that_of_the_transfers() {
        let made = |seconds: &[f64], beside: &[f64]| ActionRecord {
            seconds: seconds.to_vec(),
            beside_mbit: beside.to_vec(),
        };
        let transfers = Transfers {
            bytes: 1_000_000,
            actions: [
                ("alone".to_owned(), made(&[8.0, 2.0], &[])),
                ("beside".to_owned(), made(&[4.0], &[3.0])),
                ("never".to_owned(), made(&[], &[])),
            ]
            .into(),
        };
        let all = transfers.quantities();
        let alone = &all["alone"];
        assert_eq!((alone["count"].as_u64(), alone["mean_s"].as_f64()), (Some(2), Some(5.0)));
        assert_eq!((alone["min_s"].as_f64(), alone["max_s"].as_f64()), (Some(2.0), Some(8.0)));
        assert_eq!(alone["mean_mbit"].as_f64(), Some(2.5));
        assert_eq!(alone["min_mbit"].as_f64(), Some(1.0));
        assert!(alone.get("beside_mbit").is_none());
        assert_eq!(all["beside"]["beside_mbit"].as_f64(), Some(3.0));
        // An action that never ran has a count of 0 and no times.
        assert_eq!(all["never"], json!({ "count": 0 }));
    }
}
