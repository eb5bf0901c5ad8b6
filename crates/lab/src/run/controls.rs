//! The congestion controls of a run: registered under names of its own, and gone with it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use super::RunError;
use crate::plan::{Carrier, Cell, Control};

/// All variants that the cells of a run need.
#[derive(Debug)]
pub(super) struct Controls {
    held: Vec<(Control, lull_kernel::Held)>,
}

impl Controls {
    /// Registers each variant once, however many cells use it.
    pub(super) fn register(plan: &str, cells: &[&Cell]) -> Result<Self, RunError> {
        let mut controls = Controls { held: Vec::new() };
        let on_kernel = cells.iter().filter(|cell| !cell.scenario.is_simulated());
        let used = on_kernel.flat_map(|cell| &cell.scenario.controls);
        let by_kernel = used.filter(|(_, control)| control.carrier == Carrier::Kernel);
        for (name, control) in by_kernel {
            if controls.held.iter().any(|(other, _)| other == control) {
                continue;
            }
            let parameters = control.parameters().expect("plans are checked when they are read");
            // At most 15 characters. No other process has this number, and no other run of this one.
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let own = format!("lab{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            let held = lull_kernel::hold(&own, &parameters).map_err(|source| {
                RunError::Control { plan: plan.to_owned(), name: name.clone(), source }
            })?;
            controls.held.push((control.clone(), held));
        }
        Ok(controls)
    }

    /// What the kernel calls the controls of a cell.
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
