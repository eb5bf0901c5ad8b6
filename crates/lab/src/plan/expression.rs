//! Expressions over an experiment's quantities: `goodput.foreground.beside / link.rate_mbit`.
//!
//! The language is that of Jinja's expressions. It has numbers, strings, `+ - * / ** %`, comparisons, `and`,
//! `or`, `not`, `in`, attributes and `a if condition else b`. It has tables such as
//! `{ 'reno': 820, 'sack': 1007 }[protocol]`. Its functions are `min`, `max`, `abs`, the `median` of a list,
//! `sharing_of` lists of goodputs, `differences` of two lists, and `theorem1`. A division never truncates. A
//! missing quantity is an error instead of a zero.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use lull_sim::fluid::{self, FluidParameters, NiceRules};
use minijinja::value::{Kwargs, Rest, Serde, ValueKind};
use minijinja::{Environment, UndefinedBehavior, Value};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An expression with a valid syntax.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression {
    text: String,
    /// The quantities that it uses, with dots, and the functions that it calls; sorted.
    names: Vec<String>,
}

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{expression}': {why}")]
pub struct ExpressionError {
    expression: String,
    why: String,
}

fn environment() -> &'static Environment<'static> {
    static ENVIRONMENT: OnceLock<Environment<'static>> = OnceLock::new();
    ENVIRONMENT.get_or_init(|| {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        let fold = |values: Rest<f64>, pick: fn(f64, f64) -> f64| {
            values.iter().copied().reduce(pick).map_or(Value::UNDEFINED, Value::from)
        };
        environment.add_function("min", move |values: Rest<f64>| fold(values, f64::min));
        environment.add_function("max", move |values: Rest<f64>| fold(values, f64::max));
        environment.add_function("abs", f64::abs);
        environment.add_function("median", |values: Vec<f64>| {
            crate::statistics::median(&values).map_or(Value::UNDEFINED, Value::from)
        });
        environment.add_function("sharing_of", |lists: Rest<Vec<f64>>| {
            crate::statistics::sharing(&lists.concat()).map_or(Value::UNDEFINED, Value::from)
        });
        environment.add_function("differences", differences);
        environment.add_function("theorem1", theorem1);
        environment
    })
}

/// The results of Nice §3 for a network: `path` and `buffer` in packets, `reno` and `nice` flows, and the
/// `threshold`. It has the `bound` of equation 1 and the fluid model's interference `per_period`, which that
/// bounds, and `per_second` with this project's bound, `second_bound`.
fn theorem1(named: Kwargs) -> Result<Value, minijinja::Error> {
    // Interference is a ratio that does not depend on the round-trip time.
    let parameters = FluidParameters {
        buffer: named.get("buffer")?,
        reno_flows: named.get("reno")?,
        nice_flows: named.get("nice")?,
        threshold: named.get("threshold")?,
        decrease: 0.5,
        service_rate: named.get("path")?,
        round_trip: 1.0,
        nice: NiceRules::default(),
    };
    named.assert_all_used()?;
    let of_the_model = fluid::interference(&parameters).map_err(|error| {
        minijinja::Error::new(minijinja::ErrorKind::InvalidOperation, error.to_string())
    })?;
    Ok(Value::from(Serde(serde_json::json!({
        "bound": fluid::bound(&parameters),
        "per_period": of_the_model.per_period,
        "per_second": of_the_model.per_second,
        "second_bound": fluid::throughput_bound(&parameters),
    }))))
}

/// The excess of one list over another, pair by pair: for elements with equal attribute `by`, the difference
/// of the sums of attribute `of`.
fn differences(
    more: Vec<Value>,
    less: Vec<Value>,
    named: Kwargs,
) -> Result<Value, minijinja::Error> {
    let wrong = |why| minijinja::Error::new(minijinja::ErrorKind::InvalidOperation, why);
    let (by, of): (String, String) = (named.get("by")?, named.get("of")?);
    named.assert_all_used()?;
    let sums = |list: &[Value]| -> Result<BTreeMap<String, (usize, f64)>, minijinja::Error> {
        let mut sums: BTreeMap<String, (usize, f64)> = BTreeMap::new();
        for element in list {
            let (key, number) = (element.get_attr(&by)?, f64::try_from(element.get_attr(&of)?)?);
            if key.is_undefined() {
                return Err(wrong(format!("an element has no '{by}'")));
            }
            let sum = sums.entry(key.to_string()).or_default();
            *sum = (sum.0 + 1, sum.1 + number);
        }
        Ok(sums)
    };
    let (more, less) = (sums(&more)?, sums(&less)?);
    let differences = more.iter().map(|(key, (count, sum))| match less.get(key) {
        Some((other, subtrahend)) if other == count => Ok(sum - subtrahend),
        other => {
            let other = other.map_or(0, |(count, _)| *count);
            Err(wrong(format!("of '{by}' {key} there are {count} and {other}: no pairs")))
        }
    });
    let differences = differences.collect::<Result<Vec<f64>, _>>()?;
    match less.keys().find(|key| !more.contains_key(*key)) {
        Some(key) => Err(wrong(format!("of '{by}' {key} there are 0 and some: no pairs"))),
        None => Ok(Value::from(differences)),
    }
}

impl Expression {
    /// Reads an expression.
    ///
    /// # Errors
    /// Syntax errors.
    pub fn new(text: impl Into<String>) -> Result<Self, ExpressionError> {
        let mut expression = Expression { text: text.into(), names: Vec::new() };
        let names = environment()
            .compile_expression(&expression.text)
            .map(|compiled| compiled.undeclared_variables(true))
            .map_err(|error| expression.error(&error))?;
        expression.names.extend(names);
        expression.names.sort();
        Ok(expression)
    }

    /// Its text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The quantities that it uses, with dots, and the functions that it calls.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    fn error(&self, error: &minijinja::Error) -> ExpressionError {
        let why = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
        ExpressionError { expression: self.text.clone(), why }
    }

    /// The quantities that it uses. A cell has thousands, including those of the cells that it refers to, and the
    /// engine copies all that it gets.
    fn used(&self, quantities: &serde_json::Value) -> serde_json::Value {
        let mut used = serde_json::Value::Object(serde_json::Map::new());
        for name in &self.names {
            copy(name, quantities, &mut used);
        }
        used
    }

    fn value(&self, quantities: &serde_json::Value) -> Result<Value, ExpressionError> {
        environment()
            .compile_expression(&self.text)
            .and_then(|expression| expression.eval(Value::from(Serde(self.used(quantities)))))
            .map_err(|error| self.error(&error))
    }

    /// Its value as a number.
    ///
    /// # Errors
    /// If a quantity is missing, or the value is not a finite number.
    pub fn number(&self, quantities: &serde_json::Value) -> Result<f64, ExpressionError> {
        let value = self.value(quantities)?;
        let number = f64::try_from(value.clone()).ok().filter(|number| number.is_finite());
        number.ok_or_else(|| ExpressionError {
            expression: self.text.clone(),
            why: format!("its value {value:?} is no finite number"),
        })
    }

    /// Its values as numbers: those of a non-empty list, or a single one.
    ///
    /// # Errors
    /// If a quantity is missing, or a value is not a finite number.
    pub fn numbers(&self, quantities: &serde_json::Value) -> Result<Vec<f64>, ExpressionError> {
        let value = self.value(quantities)?;
        if value.kind() != ValueKind::Seq {
            return Ok(vec![self.number(quantities)?]);
        }
        let elements = value.try_iter().map_err(|error| self.error(&error))?;
        let finite = |one: Value| f64::try_from(one).ok().filter(|number| number.is_finite());
        let numbers: Option<Vec<f64>> = elements.map(finite).collect();
        numbers.filter(|numbers| !numbers.is_empty()).ok_or_else(|| ExpressionError {
            expression: self.text.clone(),
            why: format!("its value {value:?} is no list of finite numbers"),
        })
    }

    /// Whether it is true.
    ///
    /// # Errors
    /// If a quantity is missing.
    pub fn holds(&self, quantities: &serde_json::Value) -> Result<bool, ExpressionError> {
        Ok(self.value(quantities)?.is_true())
    }
}

/// Copies the value of a name with dots; if there is none, the objects on the way to it.
fn copy(name: &str, mut from: &serde_json::Value, mut to: &mut serde_json::Value) {
    let mut keys = name.split('.').peekable();
    while let Some(key) = keys.next() {
        let Some(value) = from.get(key) else { return };
        let copied = &mut to[key];
        if keys.peek().is_none() || !value.is_object() {
            *copied = value.clone();
            return;
        }
        if !copied.is_object() {
            *copied = serde_json::Value::Object(serde_json::Map::new());
        }
        (from, to) = (value, copied);
    }
}

impl Serialize for Expression {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.text.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Expression {
    /// From text, or from a bare number.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "an expression as text, or a number")]
        enum Written {
            Text(String),
            Number(f64),
        }
        let text = match Written::deserialize(deserializer)? {
            Written::Text(text) => text,
            Written::Number(number) => number.to_string(),
        };
        Expression::new(text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn number(text: &str) -> Result<f64, ExpressionError> {
        let quantities = json!({
            "flows": 8,
            "buffer": "1bdp",
            "place": "foreground",
            "goodput": { "foreground": { "alone": 9.5, "beside": 9.31 } },
            "time_to_80": { "background": { "left": null } },
            "goodputs": { "near": { "p": [1, 2] }, "far": { "p": [3] } },
            "sharing": { "near": { "p": 0.47 } },
            "hits": [0, 2],
            "navigations": [
                { "number": 0, "load": 3 }, { "number": 1, "load": 90 }, { "number": 2, "load": 5 },
            ],
        });
        Expression::new(text).and_then(|expression| expression.number(&quantities))
    }

    #[test]
    fn expressions_follow_arithmetic() {
        for (text, value) in [
            ("1/48", 1.0 / 48.0),
            ("goodput.foreground.beside / goodput.foreground.alone", 9.31 / 9.5),
            ("0.97 - (flows / 48) / (43 + 43)", 0.97 - 8.0 / 48.0 / 86.0),
            ("max(1, flows, 3) + min(2.5, 4) + abs(-1)", 11.5),
            ("2 ** 3", 8.0),
            ("3 if buffer == '1bdp' and flows >= 8 else 4", 3.0),
            ("3 if flows in [1, 64] else 4", 4.0),
            ("{ '1bdp': { 'a': 2.5 }, '4bdp': { 'a': 3 } }[buffer]['a']", 2.5),
            ("sharing_of(goodputs.near.p, goodputs.far.p)", 0.5),
            ("median([3, 1, 2.5])", 2.5),
            // A whole, a part of it, and a part that it lacks.
            (
                "goodput[place]['alone'] - goodput.foreground.alone if goodput.other is undefined else 1",
                0.0,
            ),
            ("goodput.foreground.alone + goodput['foreground'].alone", 19.0),
            ("median(navigations | selectattr('number', 'in', hits) | map(attribute='load'))", 4.0),
        ] {
            assert!((number(text).unwrap() - value).abs() < 1e-12, "{text}");
        }
        // 4 · 4 · e^(−183 · 0.9 · 0.5 / 4) / (427 · 0.5).
        let theorem = "theorem1(path=244, buffer=183, reno=4, nice=16, threshold=0.1)";
        assert!((number(&format!("{theorem}.bound")).unwrap() / 8.583e-11 - 1.0).abs() < 1e-3);
        assert!(number(&format!("{theorem}.per_second")).unwrap() > 1e-4);
    }

    #[test]
    fn differences_are_paired_and_unpaired_cells_reported() {
        let quantities = json!({
            "slow": [
                { "visitor": 7, "load": 9 }, { "visitor": 8, "load": 5 }, { "visitor": 7, "load": 4 },
            ],
            "fast": [
                { "visitor": 7, "load": 3 }, { "visitor": 7, "load": 6 }, { "visitor": 8, "load": 7.5 },
            ],
            "others": [{ "visitor": 7, "load": 3 }, { "visitor": 8, "load": 6 }],
            "one": 3,
            "empty": [],
        });
        let numbers = |text: &str| Expression::new(text).unwrap().numbers(&quantities);
        let pairs = |more: &str, less: &str| {
            numbers(&format!("differences({more}, {less}, by='visitor', of='load')"))
        };
        assert_eq!(pairs("slow", "fast"), Ok(vec![4.0, -2.5]));
        assert_eq!(numbers("one + 1"), Ok(vec![4.0]));
        for (found, why) in [
            (pairs("slow", "others"), "of 'visitor' 7 there are 2 and 1"),
            (pairs("slow", "empty"), "of 'visitor' 7 there are 2 and 0"),
            (pairs("empty", "others"), "of 'visitor' 7 there are 0 and some"),
            (numbers("differences(slow, fast, by='seed', of='load')"), "has no 'seed'"),
            (numbers("differences(slow, fast, by='visitor', of='paint')"), "differences"),
            (numbers("differences(slow, fast, by='visitor')"), "of"),
            (numbers("empty"), "is no list of finite numbers"),
            (numbers("[1, 'a']"), "is no list of finite numbers"),
            (numbers("nothing"), "nothing"),
        ] {
            let error = found.unwrap_err().to_string();
            assert!(error.contains(why), "{why}: {error}");
        }
        assert!(
            Expression::new("differences(slow, fast, by='visitor', of='load')")
                .unwrap()
                .number(&quantities)
                .is_err()
        );
    }

    #[test]
    fn missing_name_has_no_value() {
        for text in [
            "goodput.foreground.left",
            "goodput.nobody.alone",
            "nothing + 1",
            "time_to_80.background.left",
            "time_to_80.background.left + 1",
            "1 / 0",
            "theorem1(path=244, buffer=0, reno=4, nice=16, threshold=0.1).bound",
            "theorem1(path=244).bound",
            "{ '4bdp': 3 }[buffer]",
            "median([])",
            "median(navigations | map(attribute='missing'))",
            "buffer",
            "1 +",
            "(",
        ] {
            assert!(number(text).is_err(), "{text}: {:?}", number(text));
        }
    }
}
