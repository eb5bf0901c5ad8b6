//! Patterns over the axes of the sweep, in choices, exclusions and references. One with an unknown name
//! matches no cell, and would silently have no effect.

use serde_json::Value;

use super::expand::shown;
use super::{Plan, PlanError};

/// Checks all patterns of a plan.
///
/// # Errors
/// [`PlanError::File`] with the line of the missing axis or value.
pub(super) fn check(plan: &Plan) -> Result<(), PlanError> {
    let file = &plan.file;
    // With --quick, the subset's patterns have replaced the plan's own, or follow them.
    let is_own = |name: &String| !plan.quick || !file.quick.choices.contains_key(name);
    let own = file.choices.iter().filter(|(name, _)| is_own(name));
    let own = own.map(|choice| (&["choices"][..], choice));
    let quick = file.quick.choices.iter().map(|choice| (&["quick", "choices"][..], choice));
    for (path, (name, entries)) in own.chain(quick) {
        for (at, entry) in entries.iter().enumerate() {
            let at = at.to_string();
            let pattern = entry.iter().filter(|(axis, _)| *axis != "value");
            check_pattern(plan, &[path, &[name, &at]].concat(), pattern)?;
        }
    }
    let own = match plan.quick {
        true => &file.exclude[..file.exclude.len() - file.quick.exclude.len()],
        false => &file.exclude[..],
    };
    for (path, list) in [(&["exclude"][..], own), (&["quick", "exclude"], &file.quick.exclude)] {
        for (at, pattern) in list.iter().enumerate() {
            check_pattern(plan, &[path, &[&at.to_string()]].concat(), pattern)?;
        }
    }
    for (name, pattern) in &plan.references {
        check_pattern(plan, &["references", name], pattern)?;
    }
    Ok(())
}

/// Whether each axis in a pattern at `place` exists, and has the values in it.
fn check_pattern<'a>(
    plan: &Plan,
    place: &[&str],
    pattern: impl IntoIterator<Item = (&'a String, &'a Value)>,
) -> Result<(), PlanError> {
    for (axis, wanted) in pattern {
        let place = [place, &[axis]].concat();
        let error = |text: String| {
            let text = format!("{}: {text}", place.join("."));
            // A quoted name may have several lines.
            plan.error(&place, text.replace(['\n', '\r'], " "))
        };
        let Some(known) = values(plan, axis) else {
            let known: Vec<&str> = plan.axes.iter().map(|axis| axis.name.as_str()).collect();
            let known = match known.is_empty() {
                true => "the plan has none".to_owned(),
                false => format!("there are {}", known.join(", ")),
            };
            return Err(error(format!("'{axis}' is no axis: {known}")));
        };
        let wanted = wanted.as_array().map_or(std::slice::from_ref(wanted), Vec::as_slice);
        if let Some(stranger) = wanted.iter().find(|value| !known.contains(value)) {
            let mut told: Vec<String> = Vec::new();
            for value in known.into_iter().map(shown) {
                if !told.contains(&value) {
                    told.push(value);
                }
            }
            let (stranger, told) = (shown(stranger), told.join(", "));
            let text = format!("the axis '{axis}' has no value '{stranger}': it has {told}");
            return Err(error(text));
        }
    }
    Ok(())
}

/// All values of an axis, including those of the subset; none if there is no such axis.
fn values<'a>(plan: &'a Plan, axis: &str) -> Option<Vec<&'a Value>> {
    let own = plan.file.axes.iter().find(|own| own.name == axis)?;
    let quick = plan.file.quick.axes.get(axis).into_iter().flatten();
    Some(own.values.iter().chain(quick).collect())
}
