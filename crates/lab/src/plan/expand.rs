//! From a plan to its cells: the sweep's combinations, with values filled in.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::invalid::Invalid;
use super::locate::{Fault, fault};
use super::scenario::Scenario;
use super::{Axis, Plan, PlanError, hash};

/// One run: a combination of the sweep's values and a seed.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Its name within the plan: `foreground=cubic rtt=50ms repetition=1`. Stable.
    pub key: String,
    /// SHA-256 of everything that decides its behaviour, apart from the programs that run it.
    pub hash: String,
    /// The values of the axes and of the choices, by name.
    pub values: Map<String, Value>,
    /// Counted from 1.
    pub repetition: u32,
    /// The seed of its random numbers.
    pub seed: u64,
    /// Its content.
    pub scenario: Scenario,
    /// The same in its text form, for the process that runs it.
    pub written: Value,
}

/// A part of a plan's cells: only these values of the named axes, and on request, only cells that need no
/// kernel.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// The texts of the arguments, by axis. Only the axis knows which values they have.
    wanted: BTreeMap<String, Vec<String>>,
    simulated: bool,
}

impl Selection {
    /// From arguments `AXIS=VALUE`. More values of one axis may follow after commas, or as separate
    /// arguments. A value may contain commas itself.
    ///
    /// # Errors
    /// [`PlanError::Selection`] if one has no `=`.
    pub fn new<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Result<Self, PlanError> {
        let mut wanted: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for argument in arguments {
            let Some((axis, values)) = argument.split_once('=') else {
                return Err(PlanError::Selection(format!(
                    "'{argument}' selects nothing: write AXIS=VALUE, or AXIS=VALUE,VALUE"
                )));
            };
            wanted.entry(axis.trim().to_owned()).or_default().push(values.to_owned());
        }
        Ok(Selection { wanted, simulated: false })
    }

    /// The same, limited to cells that need no kernel.
    #[must_use]
    pub fn simulated(self) -> Self {
        Selection { simulated: true, ..self }
    }

    /// Whether it selects every cell.
    pub(crate) fn is_all(&self) -> bool {
        self.wanted.is_empty() && !self.simulated
    }

    fn check(&self, axes: &[Axis]) -> Result<(), PlanError> {
        for (name, texts) in &self.wanted {
            let Some(axis) = axes.iter().find(|axis| axis.name == *name) else {
                let known: Vec<_> = axes.iter().map(|axis| axis.name.as_str()).collect();
                let known = match &known[..] {
                    [] => "the plan has no axes: run it without --only".to_owned(),
                    known => format!("there are {}", known.join(", ")),
                };
                let text = format!("there is no axis '{name}': {known}");
                return Err(PlanError::Selection(text));
            };
            let known: Vec<String> = axis.values.iter().map(shown).collect();
            if let Some(value) = texts.iter().find_map(|text| split(text, &known).err()) {
                let quoted = |value: &String| {
                    if value.contains(',') { format!("'{value}'") } else { value.clone() }
                };
                let known: Vec<_> = known.iter().map(quoted).collect();
                return Err(PlanError::Selection(format!(
                    "the axis '{name}' has no value '{value}' here: it has {}",
                    known.join(", ")
                )));
            }
        }
        Ok(())
    }

    fn takes(&self, axis: &Axis, value: &Value) -> bool {
        let Some(texts) = self.wanted.get(&axis.name) else { return true };
        let (known, value): (Vec<_>, _) = (axis.values.iter().map(shown).collect(), shown(value));
        texts.iter().any(|text| split(text, &known).is_ok_and(|values| values.contains(&value)))
    }
}

/// The known values in a list with commas. A value may contain commas: the longest one that matches is taken.
///
/// # Errors
/// The part that begins no known value.
fn split(text: &str, known: &[String]) -> Result<Vec<String>, String> {
    let parts: Vec<&str> = text.split(',').collect();
    let (mut values, mut at) = (Vec::new(), 0);
    while at < parts.len() {
        let joined = |end: usize| parts[at..end].join(",").trim().to_owned();
        let ends = (at + 1..=parts.len()).rev();
        let Some(end) = ends.into_iter().find(|end| known.contains(&joined(*end))) else {
            return Err(parts[at].trim().to_owned());
        };
        values.push(joined(end));
        at = end;
    }
    Ok(values)
}

/// A value as in keys and tables.
pub(crate) fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Whether every key of `pattern` is a name with the pattern's value, or with one in its list.
fn matches(pattern: &BTreeMap<String, Value>, values: &Map<String, Value>) -> bool {
    pattern.iter().filter(|(name, _)| *name != "value").all(|(name, wanted)| {
        let Some(value) = values.get(name) else { return false };
        wanted.as_array().map_or(wanted == value, |wanted| wanted.contains(value))
    })
}

impl Plan {
    /// The cells of a part of the plan, in a stable order: the last axis changes first.
    /// Repetition number n has the seed `seed` + n − 1.
    ///
    /// # Errors
    /// [`PlanError::Selection`], or [`PlanError::File`] for an invalid cell.
    pub fn cells(&self, selection: &Selection, seed: u64) -> Result<Vec<Cell>, PlanError> {
        selection.check(&self.axes)?;
        let combinations = self.combinations(selection);
        let mut cells = Vec::new();
        // Repetitions come last, so that an interrupted run has each cell once.
        for repetition in 1..=self.repetitions {
            for values in &combinations {
                let cell = self.cell(values.clone(), repetition, seed)?;
                if !selection.simulated || cell.scenario.is_simulated() {
                    cells.push(cell);
                }
            }
        }
        Ok(cells)
    }

    /// The combinations of the axes' values that are not excluded.
    pub(crate) fn combinations(&self, selection: &Selection) -> Vec<Map<String, Value>> {
        let mut combinations: Vec<Vec<&Value>> = vec![Vec::new()];
        for axis in &self.axes {
            let taken = |value: &&Value| selection.takes(axis, value);
            combinations = combinations
                .iter()
                .flat_map(|so_far| {
                    axis.values.iter().filter(taken).map(|value| {
                        let mut longer = so_far.clone();
                        longer.push(value);
                        longer
                    })
                })
                .collect();
        }
        let named = |combination: &Vec<&Value>| -> Map<String, Value> {
            let values = self.axes.iter().zip(combination);
            values.map(|(axis, value)| (axis.name.clone(), (*value).clone())).collect()
        };
        let is_run = |values: &Map<String, Value>| {
            !self.file.exclude.iter().any(|pattern| matches(pattern, values))
        };
        combinations.iter().map(named).filter(is_run).collect()
    }

    fn cell(
        &self,
        mut values: Map<String, Value>,
        repetition: u32,
        seed: u64,
    ) -> Result<Cell, PlanError> {
        let mut key: Vec<String> = self
            .axes
            .iter()
            .map(|axis| format!("{}={}", axis.name, shown(&values[&axis.name])))
            .collect();
        key.push(format!("repetition={repetition}"));
        let axes = values.clone();
        self.choose(&mut values)?;
        let mut written = json!({
            "topology": self.file.topology,
            "groups": self.file.groups,
            "phases": self.file.phases,
        });
        if !self.file.controls.is_null() {
            written["controls"] = self.file.controls.clone();
        }
        substitute(&mut written, &values, &mut Vec::new())
            .map_err(|fault| self.error_at(&fault.path, &fault.to_string()))?;
        remove_defaults(&mut written);
        let mut scenario: Scenario =
            serde_path_to_error::deserialize(&written).map_err(|error| {
                let path: Vec<String> = error
                    .path()
                    .iter()
                    .map(|segment| segment.to_string().trim_matches(['[', ']']).to_owned())
                    .collect();
                self.error_at(&path, &error.inner().to_string())
            })?;
        scenario
            .validate()
            .and_then(|()| scenario.prune(&Value::Object(values.clone())))
            .map_err(|fault| self.error(&as_strs(&fault.path), fault.to_string()))?;
        let seed = seed.wrapping_add(u64::from(repetition) - 1);
        // The values of the choices are in the text of the scenario, or are only compared with results.
        let mut decides = json!({ "scenario": written, "values": axes, "seed": seed });
        let controls = scenario.decisive_controls();
        if !self.file.controls.is_null() || !controls.is_empty() {
            decides["scenario"]["controls"] = json!(controls);
        }
        // The processors only decide when a cell runs, and beside which others.
        if let Some(topology) = decides["scenario"]["topology"].as_object_mut() {
            topology.remove("processors");
        }
        Ok(Cell {
            key: key.join(" "),
            hash: hash(decides.to_string().as_bytes()),
            values,
            repetition,
            seed,
            scenario,
            written,
        })
    }

    fn error_at(&self, path: &[String], text: &str) -> PlanError {
        let path = as_strs(path);
        self.error(&path, format!("{}: {text}", path.join(".")))
    }

    /// Adds the values of the choices.
    fn choose(&self, values: &mut Map<String, Value>) -> Result<(), PlanError> {
        for (name, choice) in &self.file.choices {
            let error = |text: String| {
                Err(self.error(&["choices", name], format!("choices.{name}: {text}")))
            };
            let Some(entry) = choice.iter().find(|entry| matches(entry, values)) else {
                return error(
                    "no entry matches some cell: end with an entry that has a value only".into(),
                );
            };
            let Some(value) = entry.get("value") else {
                return error("every entry needs the key 'value'".to_owned());
            };
            values.insert(name.clone(), value.clone());
        }
        Ok(())
    }
}

fn as_strs(path: &[String]) -> Vec<&str> {
    path.iter().map(String::as_str).collect()
}

/// Removes keys of the topology whose value is "default". So an axis can change what other cells do not write, and
/// their hashes and records stay valid.
fn remove_defaults(written: &mut Value) {
    if let Some(topology) = written["topology"].as_object_mut() {
        topology.retain(|_, value| value != "default");
    }
}

/// Replaces `$name` and `${name}` in all texts of `value`. If the text contains nothing else, it takes the
/// type of the name's value. `$` before a capital letter is unchanged: it is a shell variable.
fn substitute(
    value: &mut Value,
    values: &Map<String, Value>,
    path: &mut Vec<String>,
) -> Result<(), Fault> {
    match value {
        Value::String(text) => {
            let replaced = fill(text, values).map_err(|error| fault(&as_strs(path), error))?;
            if let Some(replaced) = replaced {
                *value = replaced;
            }
        }
        Value::Array(list) => {
            for (at, element) in list.iter_mut().enumerate() {
                path.push(at.to_string());
                substitute(element, values, path)?;
                path.pop();
            }
        }
        Value::Object(table) => {
            for (key, element) in table.iter_mut() {
                path.push(key.clone());
                substitute(element, values, path)?;
                path.pop();
            }
        }
        _ => {}
    }
    Ok(())
}

fn fill(text: &str, values: &Map<String, Value>) -> Result<Option<Value>, Invalid> {
    let mut filled = String::new();
    let mut rest = text;
    let mut changed = false;
    while let Some(at) = rest.find('$') {
        filled.push_str(&rest[..at]);
        let behind = &rest[at + 1..];
        let is_other = |c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        // ${name}text, or $name followed by a character that no name contains.
        let braced = behind.strip_prefix('{').and_then(|inside| inside.split_once('}'));
        let (name, after) = match braced {
            Some((name, after)) if !name.contains(is_other) => (name, after),
            _ => behind.split_at(behind.find(is_other).unwrap_or(behind.len())),
        };
        if name.is_empty() {
            filled.push('$');
            rest = behind;
            continue;
        }
        let Some(value) = values.get(name) else {
            let known: Vec<_> = values.keys().map(|name| format!("${name}")).collect();
            let (name, known) = (format!("${name}"), known.join(", "));
            return Err(Invalid::Unknown { what: "value", name, known });
        };
        if at == 0 && after.is_empty() && !changed {
            return Ok(Some(value.clone()));
        }
        filled.push_str(&shown(value));
        rest = after;
        changed = true;
    }
    filled.push_str(rest);
    Ok(changed.then_some(Value::String(filled)))
}
