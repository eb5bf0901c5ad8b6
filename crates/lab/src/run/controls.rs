//! The congestion controls of a run: registered under their own names, and removed with it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use lull_kernel::{Constants, PathTable};

use crate::plan::{Algorithm, Carrier, Cell, Control};
use lull_emulator::chain;

/// All variants that the cells of a run need.
#[derive(Debug)]
pub(super) struct Controls {
    held: Vec<(Control, lull_kernel::RegisteredControl)>,
    /// Congestion controls that are not available, and why.
    refused: Vec<(Control, lull_kernel::Error)>,
}

/// The kernel variants that a cell needs, by their names in its plan.
fn needed(cell: &Cell) -> impl Iterator<Item = (&String, &Control)> {
    let scenario = &cell.scenario;
    let is_used = move |name: &String| {
        scenario.groups.iter().any(|group| {
            group.control == *name || group.kind.controls().any(|other| other == name.as_str())
        })
    };
    scenario.controls.iter().filter(move |&(name, control)| {
        !scenario.is_simulated() && control.carrier == Carrier::Kernel && is_used(name)
    })
}

impl Controls {
    /// Registers each variant once, also if many cells use it.
    pub(super) fn register(cells: &[&Cell]) -> Self {
        let mut controls = Controls { held: Vec::new(), refused: Vec::new() };
        for (_, control) in cells.iter().flat_map(|cell| needed(cell)) {
            let is_held = controls.held.iter().any(|(other, _)| other == control);
            if is_held || controls.refused.iter().any(|(other, _)| other == control) {
                continue;
            }
            let parameters = control.parameters().expect("plans are checked when they are read");
            // At most 15 characters. No other process has this number, and no other run of this one.
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let own = format!("lab{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            let constants = match control.algorithm {
                Algorithm::Lull => Constants::Lull(PathTable::default()),
                _ => Constants::from(&parameters),
            };
            match lull_kernel::register_control(&own, constants) {
                Ok(held) => controls.held.push((control.clone(), held)),
                Err(error) => controls.refused.push((control.clone(), error)),
            }
        }
        controls
    }

    /// Why a cell cannot run, if one of them is missing.
    pub(super) fn refusal(&self, cell: &Cell) -> Option<String> {
        needed(cell).find_map(|(name, control)| {
            let (_, error) = self.refused.iter().find(|(other, _)| other == control)?;
            let why = chain(error);
            Some(format!("the congestion control '{name}' is not available: {why}"))
        })
    }

    /// The kernel's names of the controls of a cell.
    pub(super) fn names(&self, cell: &Cell) -> BTreeMap<String, String> {
        let name = |control: &Control| {
            let held = self.held.iter().find(|(other, _)| other == control);
            held.map(|(_, held)| held.name().to_owned())
        };
        cell.scenario
            .controls
            .iter()
            .filter_map(|(alias, control)| Some((alias.clone(), name(control)?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Plan, Selection};

    #[test]
    fn missing_control_stops_only_cells_that_need_it() {
        let text = "id = 'p'\ntitle = 'P'\n[paper]\nsource = 'a'\nstatement = 'b'\n\
             [[axes]]\nname = 'network'\nvalues = ['simulator', 'emulator']\n\
             [[axes]]\nname = 'control'\nvalues = ['reno', 'ours']\n\
             [topology]\nkind = '$network'\nrate = '10mbit'\nrtt = '20ms'\n\
             [controls.ours]\nalgorithm = 'nice'\n\
             [[groups]]\nname = 'a'\nkind = 'bulk'\ncontrol = '$control'\nphases = ['p']\n\
             [[phases]]\nname = 'p'\nsettle = '0s'\nmeasure = '1s'\n";
        let plan = Plan::parse("p.toml", text, false).unwrap();
        let cells = plan.cells(&Selection::default(), 1).unwrap();
        let ours = cells[3].scenario.controls["ours"].clone();
        let error = lull_kernel::Error::NameTaken { name: "lab1_0".to_owned() };
        let controls = Controls { held: Vec::new(), refused: vec![(ours, error)] };
        let refused: Vec<Option<String>> =
            cells.iter().map(|cell| controls.refusal(cell)).collect();
        assert_eq!(refused[..3], [None, None, None]);
        let why = refused[3].as_ref().unwrap();
        assert!(why.contains("'ours' is not available: ") && why.contains("lab1_0"), "{why}");
    }
}
