//! The measurements of a cell, with the names that expressions use.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{CellRecord, GroupRecord, Transfers};
use crate::statistics::sharing;

/// A quantity of a group, by its name in expressions.
type Quantity = (&'static str, fn(&GroupRecord) -> Value);

const QUANTITIES: &[Quantity] = &[
    ("goodput", |group| json!(group.goodput_mbit)),
    ("sent", |group| json!(group.sent_mbit)),
    ("mean_rtt", |group| json!(group.rtt_ms)),
    ("srtt", |group| json!(group.srtt_ms)),
    ("window", |group| json!(group.window)),
    ("packets", |group| json!(group.packets)),
    ("drops", |group| json!(group.dropped)),
    ("loss", |group| json!(loss(group))),
    ("retransmitted", |group| json!(group.retransmitted)),
    ("fairness", |group| json!(group.fairness)),
    ("latency", |group| json!(group.latency)),
    ("transferred", |group| json!(group.transferred_bytes)),
    ("waiting", |group| json!(group.waiting)),
    ("delay", |group| json!(group.delay)),
    ("timeouts", |group| json!(group.timeouts)),
    ("cuts", |group| json!(group.cuts)),
    ("demand", |group| json!(group.demand)),
    ("sharing", |group| json!(sharing(&group.flows_mbit))),
    ("goodputs", |group| match group.flows_mbit.is_empty() {
        true => Value::Null,
        false => json!(group.flows_mbit),
    }),
    ("time_to_80", |group| json!(group.time_to_80_s)),
    ("time_to_90", |group| json!(group.time_to_90_s)),
    ("transfer", |group| json!(group.transfers.as_ref().map(Transfers::quantities))),
    ("completion", |group| json!(group.completion_s)),
    ("report", |group| json!(group.report)),
];

/// Their names.
pub(crate) const QUANTITIES_BY_GROUP: [&str; QUANTITIES.len()] = {
    let mut names = [""; QUANTITIES.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = QUANTITIES[at].0;
        at += 1;
    }
    names
};

fn loss(group: &GroupRecord) -> f64 {
    let all = group.packets + group.dropped;
    if all == 0 { 0.0 } else { group.dropped as f64 / all as f64 }
}

impl CellRecord {
    /// The values that expressions use: the sweep's values by their names, `link`, and
    ///
    /// | name | meaning | unit |
    /// |---|---|---|
    /// | `goodput.GROUP.PHASE` | payload received | Mbit/s |
    /// | `sent.GROUP.PHASE`, `share.GROUP.PHASE` | data that passed the link | Mbit/s, part of the link |
    /// | `mean_rtt.GROUP.PHASE`, `srtt.GROUP.PHASE` | mean round-trip time, by the link and by TCP | ms |
    /// | `window.GROUP.PHASE` | mean congestion window in the kernel | packets |
    /// | `packets.GROUP.PHASE` | data packets that passed the link | packets |
    /// | `drops.GROUP.PHASE`, `loss.GROUP.PHASE` | packets dropped | packets, part |
    /// | `retransmitted.GROUP.PHASE` | retransmitted segments | packets |
    /// | `timeouts.GROUP.PHASE`, `cuts.GROUP.PHASE` | timeouts, and reactions to congestion of every kind | |
    /// | `fairness.GROUP.PHASE` | Jain's index | |
    /// | `latency.GROUP.PHASE.mean_ms`, `.p50_ms`, `.p95_ms`, `.p99_ms`, `.count` | requests | ms |
    /// | `transferred.GROUP.PHASE` | payload that arrived | bytes |
    /// | `waiting.GROUP.PHASE.mean_ms`, … | how long its packets waited at the bottleneck | ms |
    /// | `delay.GROUP.PHASE.mean_ms`, … | one-way delay of its datagrams | ms |
    /// | `goodputs.GROUP.PHASE` | each connection's goodput, for `sharing_of(…)` | Mbit/s |
    /// | `sharing.GROUP.PHASE` | sample standard deviation of these over their mean | |
    /// | `demand.GROUP.PHASE.mbit`, `.active_clients`, … | the demand of its log | |
    /// | `simulation.events`, `.delivered_packets`, `cost.wall_s`, … | of a simulated cell | |
    /// | `time_to_80.GROUP.PHASE`, `time_to_90.GROUP.PHASE` | from the phase's beginning | s |
    /// | `transfer.GROUP.PHASE.ACTION.mean_s`, `.mean_mbit`, `.count`, … | probes | s, Mbit/s |
    /// | `completion.GROUP.PHASE` | from the start of its programs to the end of the last | s |
    /// | `report.GROUP.PHASE.…` | the report of its program | |
    /// | `utilisation.PHASE`, `queueing.PHASE.mean_ms`, … | of the link | part, ms |
    /// | `overflows.PHASE` | how often its queue overflowed: drops within two round trips are one | |
    /// | `seconds.PHASE` | duration of the measurement | s |
    /// | `cpu.cell_s`, `cpu.emulator_s` | processor time of the whole cell | s |
    /// | `cpu.PHASE.process_s`, `.interrupts_s`, `.others_s` | the same during the measurement | s |
    ///
    /// A phase that the cell does not have, and a quantity that was not observed, are missing.
    pub fn quantities(&self) -> Value {
        let mut all = self.values.clone();
        if let Some(link) = &self.link {
            all.insert("link".to_owned(), json!(link));
        }
        all.insert("seed".to_owned(), json!(self.seed));
        all.insert("repetition".to_owned(), json!(self.repetition));
        if let Some(simulation) = &self.simulation {
            all.insert("simulation".to_owned(), json!(simulation));
            all.insert("cost".to_owned(), json!(self.cost));
        } else {
            let mut cpu = json!({ "cell_s": self.cpu_s, "emulator_s": self.emulator_cpu_s });
            for phase in &self.phases {
                cpu[&phase.name] = json!(phase.cpu);
            }
            all.insert("cpu".to_owned(), cpu);
        }
        let mut by_group: BTreeMap<&str, BTreeMap<&str, Map<String, Value>>> = BTreeMap::new();
        let mut put = |quantity, group, phase: &str, value: Value| {
            if !value.is_null() {
                let groups = by_group.entry(quantity).or_default();
                groups.entry(group).or_default().insert(phase.to_owned(), value);
            }
        };
        for phase in &self.phases {
            for (name, group) in &phase.groups {
                for (quantity, value) in QUANTITIES {
                    put(quantity, name, &phase.name, value(group));
                }
                if let Some(link) = &self.link {
                    put("share", name, &phase.name, json!(group.sent_mbit / link.rate_mbit));
                }
            }
        }
        for (quantity, groups) in by_group {
            all.insert(quantity.to_owned(), json!(groups));
        }
        let by_phase = |value: fn(&super::PhaseRecord) -> Value| {
            let phases = self.phases.iter().map(|phase| (phase.name.clone(), value(phase)));
            Value::Object(phases.filter(|(_, value)| !value.is_null()).collect())
        };
        let seconds =
            |phase: &super::PhaseRecord| json!(phase.measured_to_s - phase.measured_from_s);
        all.insert("seconds".to_owned(), by_phase(seconds));
        all.insert("utilisation".to_owned(), by_phase(|phase| json!(phase.utilisation)));
        all.insert("queueing".to_owned(), by_phase(|phase| json!(phase.queueing)));
        all.insert("overflows".to_owned(), by_phase(|phase| json!(phase.overflows)));
        all.insert("timing_error".to_owned(), by_phase(|phase| json!(phase.timing_error)));
        all.insert("arrival_error".to_owned(), by_phase(|phase| json!(phase.arrival_error)));
        Value::Object(all)
    }
}
