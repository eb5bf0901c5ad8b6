//! The reference page of plans names every key that the parser accepts.

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;

use super::control::Control;
use super::file::{Axis, Check, Entry, Metric, Paper, PlanFile, Plot, Quick, ViewFile};
use super::group::GroupText;
use super::network_text::NetworkText;
use super::scenario::{Phase, Scenario};

const PAGE: &str = include_str!("../../../../docs/reference/plans.md");

/// The keys of a table, as the parser's error for another key lists them.
fn keys<T: DeserializeOwned>() -> Vec<String> {
    let error = toml::from_str::<T>("not-a-key = 1").err().expect("no key is called like that");
    let (_, known) = error.message().split_once("expected").expect("the known keys");
    known.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The words in code on the page.
fn words() -> BTreeSet<&'static str> {
    let code = PAGE.split('`').skip(1).step_by(2);
    code.flat_map(|code| code.split(|c: char| !c.is_alphanumeric() && c != '_')).collect()
}

#[test]
fn reference_of_plans_has_every_key() {
    let words = words();
    for (table, keys) in [
        ("plan", keys::<PlanFile>()),
        ("plan that shows another one", keys::<ViewFile>()),
        ("paper", keys::<Paper>()),
        ("axes", keys::<Axis>()),
        ("quick", keys::<Quick>()),
        ("topology", keys::<NetworkText>()),
        ("cell", keys::<Scenario>()),
        ("controls", keys::<Control>()),
        ("groups", keys::<GroupText>()),
        ("phases", keys::<Phase>()),
        ("metrics", keys::<Metric>()),
        ("checks", keys::<Check>()),
        ("plots", keys::<Plot>()),
        ("plots.entries", keys::<Entry>()),
    ] {
        assert!(!keys.is_empty(), "{table}");
        let missing: Vec<_> = keys.iter().filter(|key| !words.contains(key.as_str())).collect();
        assert!(missing.is_empty(), "{table}: docs/reference/plans.md lacks {missing:?}");
    }
}
