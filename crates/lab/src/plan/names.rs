//! Checks that the quantities of an expression can exist. A misspelt group would have no value in any cell,
//! and expressions that use it would silently have no effect.

use serde_json::Value;

use super::expression::Expression;
use super::invalid::Invalid;
use super::{Plan, RESERVED};
use crate::record::QUANTITIES_BY_GROUP;

/// Names in expressions that are not quantities.
const FUNCTIONS: [&str; 7] =
    ["min", "max", "abs", "median", "sharing_of", "differences", "theorem1"];
/// Quantities of the link or of time: `NAME.PHASE`.
const BY_PHASE: [&str; 6] =
    ["utilisation", "queueing", "overflows", "seconds", "timing_error", "arrival_error"];
/// The names in `cpu` that are not phases.
const OF_THE_CELL: [&str; 2] = ["cell_s", "emulator_s"];

/// The names that a plan defines.
pub(super) struct Names<'a> {
    plan: &'a Plan,
    groups: Vec<&'a str>,
    phases: Vec<&'a str>,
}

impl<'a> Names<'a> {
    pub(super) fn of(plan: &'a Plan) -> Self {
        Names { plan, groups: names(&plan.file.groups), phases: names(&plan.file.phases) }
    }

    /// Its first unknown name, in one line.
    pub(super) fn check(&self, expression: &Expression) -> Result<(), Invalid> {
        for name in expression.names() {
            let path: Vec<&str> = name.split('.').collect();
            let text = || expression.text().split_whitespace().collect::<Vec<_>>().join(" ");
            self.check_path(&path).map_err(|why| why.within(format!("'{}'", text())))?;
        }
        Ok(())
    }

    fn check_path(&self, path: &[&str]) -> Result<(), Invalid> {
        let Some((&first, rest)) = path.split_first() else { return Ok(()) };
        let is_value = self.plan.axes.iter().any(|axis| axis.name == first)
            || self.plan.file.choices.contains_key(first);
        match first {
            _ if is_value || FUNCTIONS.contains(&first) => Ok(()),
            "metric" => one_of("metric", rest, self.plan.metrics.iter().map(|one| &*one.name)),
            "reference" => {
                one_of("reference", rest, self.plan.references.keys().map(String::as_str))?;
                self.check_path(rest.get(1..).unwrap_or_default())
            }
            "cpu" => one_of("phase", rest, self.phases.iter().copied().chain(OF_THE_CELL)),
            _ if BY_PHASE.contains(&first) => one_of("phase", rest, self.phases.iter().copied()),
            _ if first == "share" || QUANTITIES_BY_GROUP.contains(&first) => {
                one_of("group", rest, self.groups.iter().copied())?;
                one_of("phase", rest.get(1..).unwrap_or_default(), self.phases.iter().copied())
            }
            _ if RESERVED.contains(&first) => Ok(()),
            _ => {
                let why = "is no axis, choice or quantity";
                Err(Invalid::Name { name: first.to_owned(), why })
            }
        }
    }
}

/// The names in a list of tables.
fn names(tables: &Value) -> Vec<&str> {
    let tables = tables.as_array().into_iter().flatten();
    tables.filter_map(|table| table.get("name")?.as_str()).collect()
}

/// Whether a path begins with one of these, or may: one that ends earlier, such as `goodput[group]`, may.
fn one_of<'b>(
    what: &'static str,
    path: &[&str],
    names: impl Iterator<Item = &'b str>,
) -> Result<(), Invalid> {
    let Some(wanted) = path.first() else { return Ok(()) };
    let known: Vec<&str> = names.collect();
    // A quantity that follows from an axis exists in some cells.
    if known.iter().any(|name| name == wanted || name.contains('$')) {
        return Ok(());
    }
    let name = (*wanted).to_owned();
    Err(Invalid::Unknown { what, name, known: known.join(", ") })
}
