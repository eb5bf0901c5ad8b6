use std::path::Path;

use super::*;
use lull_emulator::traffic::Work;

/// A plan of one cell that can run.
const SMALL: &str = r#"
id = "small"
title = "A small plan"
[paper]
source = "TCP Nice §4"
statement = "…"
[topology]
rate = "10mbit"
rtt = "20ms"
[[groups]]
name = "foreground"
kind = "bulk"
control = "cubic"
phases = ["alone"]
[[phases]]
name = "alone"
settle = "1s"
measure = "2s"
"#;

/// Two axes, a choice, an exclusion, a condition, and a subset.
const SWEEP: &str = r#"
id = "sweep"
title = "A sweep"
repetitions = 2
[paper]
source = "TCP Nice §4"
statement = "…"
[[axes]]
name = "rtt"
values = ["20ms", "200ms"]
[[axes]]
name = "flows"
values = [1, 8]
[choices]
measure = [{ rtt = "200ms", value = "40s" }, { value = "20s" }]
[[exclude]]
rtt = "200ms"
flows = [8]
[quick]
repetitions = 1
[quick.axes]
rtt = ["20ms"]
[quick.choices]
measure = [{ value = "5s" }]
[topology]
rate = "10mbit"
rtt = "$rtt"
[[groups]]
name = "background"
kind = "bulk"
control = "reno"
count = "$flows"
phases = ["both", "many"]
[[groups]]
name = "others"
kind = "command"
when = "flows == 8"
phases = ["both"]
program = ["sh", "-c", "ping -c ${flows} $LULL_RIGHT_1"]
[[phases]]
name = "both"
settle = "1s"
measure = "$measure"
[[phases]]
name = "many"
when = "flows > 1"
settle = "0s"
measure = "1s"
"#;

fn parse(text: &str) -> Plan {
    Plan::parse("plan.toml", text, false).unwrap()
}

fn all(plan: &Plan) -> Vec<Cell> {
    plan.cells(&Selection::default(), 7).unwrap()
}

#[test]
fn plan_without_axes_has_one_cell() {
    let plan = parse(SMALL);
    let cells = all(&plan);
    let [cell] = &cells[..] else { panic!("{cells:?}") };
    assert_eq!((cell.key.as_str(), cell.seed), ("repetition=1", 7));
    assert_eq!(cell.scenario.duration(), std::time::Duration::from_secs(3));
    let Network::Emulated(link) = &cell.scenario.topology else { panic!("{cell:?}") };
    assert_eq!(link.buffer.text(), "1bdp");
}

#[test]
fn sweep_is_a_product_without_excluded_cells() {
    let keys: Vec<String> = all(&parse(SWEEP)).into_iter().map(|cell| cell.key).collect();
    assert_eq!(
        keys,
        [
            "rtt=20ms flows=1 repetition=1",
            "rtt=20ms flows=8 repetition=1",
            "rtt=200ms flows=1 repetition=1",
            "rtt=20ms flows=1 repetition=2",
            "rtt=20ms flows=8 repetition=2",
            "rtt=200ms flows=1 repetition=2",
        ]
    );
}

#[test]
fn values_are_substituted_with_their_types() {
    let cells = all(&parse(SWEEP));
    let eight = &cells[1].scenario;
    assert_eq!(eight.group("background").unwrap().count, 8);
    let Some(Work::Command { program, .. }) = eight.group("others").unwrap().kind.work() else {
        panic!()
    };
    assert_eq!(program[2], "ping -c 8 $LULL_RIGHT_1");
    let names = |cell: &Cell| -> Vec<String> {
        cell.scenario.phases.iter().map(|phase| phase.name.clone()).collect()
    };
    assert_eq!(names(&cells[1]), ["both", "many"]);
    assert_eq!(names(&cells[2]), ["both"]);
    assert!(cells[2].scenario.group("others").is_none());
    let measured = |cell: &Cell| cell.scenario.phases[0].measure.text().to_owned();
    assert_eq!((measured(&cells[1]), measured(&cells[2])), ("20s".into(), "40s".into()));
    assert_eq!((cells[0].seed, cells[3].seed), (7, 8));
}

#[test]
fn quick_subset_replaces_axes_choices_and_repetitions() {
    let quick = Plan::parse("plan.toml", SWEEP, true).unwrap();
    let cells = all(&quick);
    assert_eq!(cells.len(), 2);
    assert_eq!(cells[0].scenario.phases[0].measure.text(), "5s");
    assert_ne!(quick.hash, parse(SWEEP).hash);
}

#[test]
fn selection_takes_axis_values() {
    let plan = parse(SWEEP);
    let select = |arguments: &[&str]| -> Result<usize, String> {
        let selection = Selection::new(arguments.iter().copied()).map_err(|e| e.to_string())?;
        plan.cells(&selection, 1).map(|cells| cells.len()).map_err(|error| error.to_string())
    };
    assert_eq!(select(&["flows=8"]), Ok(2));
    assert_eq!(select(&["flows=1,8", "rtt=20ms"]), Ok(4));
    assert_eq!(select(&["flows=8", "flows=1"]), Ok(6));
    for (arguments, word) in [("flows", "AXIS=VALUE"), ("flow=8", "flows"), ("flows=9", "1, 8")] {
        let error = select(&[arguments]).unwrap_err();
        assert!(error.contains(word) && !error.contains('\n'), "{error}");
    }
    let selection = Selection::new(["flows=8"]).unwrap();
    let error = parse(SMALL).cells(&selection, 1).unwrap_err().to_string();
    assert_eq!(error, "there is no axis 'flows': the plan has no axes: run it without --only");
}

#[test]
fn selection_takes_values_that_contain_commas() {
    let text = SWEEP.replace("\"20ms\"", "\"20ms, wired\"").replace("\"$rtt\"", "\"20ms\"");
    let plan = parse(&text);
    let select = |arguments: &[&str]| -> Result<Vec<String>, String> {
        let selection = Selection::new(arguments.iter().copied()).map_err(|e| e.to_string())?;
        let cells = plan.cells(&selection, 1).map_err(|error| error.to_string())?;
        let mut values: Vec<_> = cells.iter().map(|cell| shown(&cell.values["rtt"])).collect();
        values.sort();
        values.dedup();
        Ok(values)
    };
    let (wired, other) = ("20ms, wired".to_owned(), "200ms".to_owned());
    assert_eq!(select(&["rtt=20ms, wired"]), Ok(vec![wired.clone()]));
    for arguments in [&["rtt=20ms, wired,200ms"][..], &["rtt=200ms", "rtt=20ms, wired"]] {
        assert_eq!(select(arguments), Ok(vec![other.clone(), wired.clone()]));
    }
    let error = select(&["rtt=20ms"]).unwrap_err();
    assert!(error.contains("no value '20ms' here: it has '20ms, wired', 200ms"), "{error}");
}

#[test]
fn cell_hash_depends_on_its_work_alone() {
    let hash = |text: &str| all(&parse(text))[0].hash.clone();
    let check = "[[checks]]\nname = 'a'\nvalue = '1'\nat_least = 1\n";
    assert_eq!(hash(SMALL), hash(&format!("{SMALL}{check}")));
    assert_eq!(hash(SMALL), hash(&SMALL.replace("A small plan", "Another title")));
    assert_eq!(hash(SMALL), hash(&SMALL.replace("[topology]", "[topology]\nprocessors = 0.5")));
    for (from, to) in [("2s", "3s"), ("cubic", "reno"), ("10mbit", "11mbit")] {
        assert_ne!(hash(SMALL), hash(&SMALL.replace(from, to)), "{to}");
    }
    // For controls, all parameters of those used.
    let with = |controls: &str| {
        hash(&format!("{}\n{controls}", SMALL.replace("control = \"cubic\"", "control = \"ours\"")))
    };
    let ours = "[controls.ours]\nalgorithm = 'nice'\n";
    assert_eq!(with(ours), with(&format!("{ours}[controls.other]\nalgorithm = 'vegas'\n")));
    assert_eq!(with(ours), with(&format!("{ours}fraction = 0.5\n")), "as it is if left open");
    assert_ne!(with(ours), with(&format!("{ours}refinements = []\n")));
    assert_ne!(with(ours), with(&format!("{ours}carrier = 'user-space'\n")));
    let by_name = parse(&SMALL.replace("cubic", "nice"));
    let decisive = all(&by_name)[0].scenario.decisive_controls();
    assert!(decisive["nice"].contains("headroom: true"), "{decisive:?}");
    let plan = parse(SMALL);
    let other = plan.cells(&Selection::default(), 8).unwrap();
    assert_ne!(all(&plan)[0].hash, other[0].hash);
}

#[test]
fn default_of_topology_has_the_hash_of_a_missing_key() {
    let hash = |queue: &str| {
        let text = SMALL.replace("[topology]", &format!("[topology]\n{queue}"));
        all(&parse(&text))[0].hash.clone()
    };
    assert_eq!(hash(""), hash("queue = \"default\""));
    assert_ne!(hash(""), hash("queue = \"priority\""));
}

/// An error is reported in one line that names the file, the line and the key.
#[test]
fn invalid_plan_is_rejected_with_line_and_remedy() {
    let spoilt: &[(&str, &str, &str, &[&str])] = &[
        ("a typo", "title =", "titel =", &["plan.toml:3", "titel", "title"]),
        ("no TOML", "id = \"small\"", "id = ", &["plan.toml:2"]),
        ("a rate without a unit", "\"10mbit\"", "\"10\"", &[":8", "topology.rate", "mbit"]),
        ("a number for a text", "\"20ms\"", "20", &[":9", "topology.rtt"]),
        ("no rate", "rate = \"10mbit\"\n", "", &["topology", "rate"]),
        ("no phase", "[\"alone\"]", "[\"alone\", \"beside\"]", &["groups", "beside", "alone"]),
        ("an unknown name", "\"20ms\"", "\"$rtt\"", &[":9", "topology.rtt", "$rtt"]),
        ("no control", "control = \"cubic\"\n", "", &["groups", "foreground", "control"]),
        ("an unknown kind", "\"bulk\"", "\"bulky\"", &["groups.0", "bulk", "requests"]),
        ("a key of another kind", "control =", "think = \"1s\"\ncontrol =", &["groups", "think"]),
        ("a bad name", "name = \"foreground\"", "name = \"Foreground\"", &["groups", "letters"]),
        ("no time", "measure = \"2s\"", "measure = \"0s\"", &["phases", "alone"]),
        ("a bad time", "settle = \"1s\"", "settle = \"1h\"", &["phases.0.settle", "ms"]),
        ("an id with capitals", "\"small\"", "\"Small\"", &[":2", "id"]),
    ];
    for (what, from, to, words) in spoilt {
        assert!(SMALL.contains(from), "{what}");
        let text = SMALL.replacen(from, to, 1);
        let error = Plan::parse("plan.toml", &text, false).expect_err(what).to_string();
        assert!(!error.contains('\n'), "{what}: {error}");
        assert!(error.starts_with("plan.toml"), "{what}: {error}");
        for word in *words {
            assert!(error.contains(word), "{what}: no {word} in: {error}");
        }
    }
}

#[test]
fn invalid_addition_is_rejected_too() {
    for (what, added, words) in [
        ("a check without a bound", "[[checks]]\nname = 'a'\nvalue = '1'", &["at_least"][..]),
        (
            "two bounds",
            "[[checks]]\nname = 'a'\nvalue = '1'\nat_least = 1\nat_most = 2",
            &["either"],
        ),
        (
            "a slope over nothing",
            "[[checks]]\nname = 'a'\nvalue = '1'\nat_most = 1\nof = 'slope'",
            &["'a'", "over"],
        ),
        (
            "a slope over no axis",
            "[[checks]]\nname = 'a'\nvalue = '1'\nat_most = 1\nof = 'slope'\nover = 'flows'",
            &["flows", "no axis"],
        ),
        ("half an expression", "[[metrics]]\nname = 'a'\nvalue = '1 +'", &["'1 +'"]),
        (
            "a plot of no axis",
            "[[plots]]\nname = 'a'\ntitle = 'a'\nkind = 'bars'\nx = 'rtt'\ny = '1'\ny_title = 'a'",
            &["rtt", "no axis"],
        ),
        ("an axis of a quantity's name", "[[axes]]\nname = 'goodput'\nvalues = [1]", &["goodput"]),
        ("an axis without values", "[[axes]]\nname = 'a'\nvalues = []", &["values"]),
        (
            "an exclusion of all",
            "[[axes]]\nname = 'a'\nvalues = [1]\n[[exclude]]\na = 1",
            &["no cell"],
        ),
        (
            "a choice with a hole",
            "[[axes]]\nname = 'a'\nvalues = [1, 2]\n[choices]\nb = [{ a = 1, value = 2 }]",
            &["choices.b"],
        ),
        (
            "a threshold of 2",
            "[controls.nice]\nalgorithm = 'nice'\nthreshold = 2",
            &["controls.nice", "threshold"],
        ),
        (
            "a threshold of 0 for the kernel",
            "[controls.nice]\nalgorithm = 'nice'\nthreshold = 0",
            &["controls.nice", "threshold", "simulator"],
        ),
        (
            "an unknown refinement",
            "[controls.nice]\nalgorithm = 'nice'\nrefinements = ['x']",
            &["controls.nice.refinements", "headroom"],
        ),
        (
            "vegas in user space",
            "[controls.v]\nalgorithm = 'vegas'\ncarrier = 'user-space'",
            &["user-space"],
        ),
        (
            "a choice of no axis",
            "[[axes]]\nname = 'a'\nvalues = [1]\n[choices]\nb = [{ c = 3, value = 2 }, { value = 1 }]",
            &["choices.b.0.c: 'c' is no axis: there are a"],
        ),
        (
            "a choice for a value that no cell has",
            "[[axes]]\nname = 'a'\nvalues = [1, 2]\n[choices]\nb = [\n{ a = 3, value = 2 },\n{ value = 1 }]",
            &[":25: choices.b.0.a: the axis 'a' has no value '3': it has 1, 2"],
        ),
        (
            "the same of the subset",
            "[[axes]]\nname = 'a'\nvalues = [1]\n[choices]\nb = [{ value = 2 }]\n[quick.axes]\na = [1, 2]\n\
             [quick.choices]\nb = [{ a = [2, 3], value = 2 }, { value = 1 }]",
            &["quick.choices.b.0.a: the axis 'a' has no value '3': it has 1, 2"],
        ),
        (
            "an exclusion of a value that no cell has",
            "[[axes]]\nname = 'a'\nvalues = ['x', 'y']\n[[exclude]]\na = ['x', 'z']",
            &["exclude.0.a: the axis 'a' has no value 'z': it has x, y"],
        ),
        (
            "a reference to a value that no cell has",
            "[[axes]]\nname = 'a'\nvalues = ['x', 'y']\n[references.r]\na = 'z'",
            &["references.r.a: the axis 'a' has no value 'z': it has x, y"],
        ),
        ("a reference to no axis", "[references.a]\nx = 1", &["references.a", "'x'"]),
        ("a quick axis of no name", "[quick.axes]\nx = [1]", &["quick.axes.x"]),
        (
            "a check of a group that is not there",
            "[[checks]]\nname = 'c'\nvalue = 'goodput.forground.alone'\nat_least = 1",
            &["checks: 'c'", "no group 'forground'", "foreground"],
        ),
        (
            "a bound in a phase that is not there",
            "[[checks]]\nname = 'c'\nvalue = 1\nat_least = '2 * share.foreground.beside'",
            &["checks: 'c'", "no phase 'beside'", "alone"],
        ),
        (
            "a metric of an unknown quantity",
            "[[metrics]]\nname = 'm'\nvalue = 'throughput.foreground.alone'",
            &["metrics: 'm'", "'throughput' is no axis, choice or quantity"],
        ),
        (
            "a plot of no metric",
            "[[plots]]\nname = 'p'\ntitle = 't'\nkind = 'points'\nx = '1'\ny = 'metric.m'\ny_title = 't'",
            &["plots: 'p'", "no metric 'm'"],
        ),
        (
            "a plot over no metric",
            "[[plots]]\nname = 'p'\ntitle = 't'\nkind = 'points'\nx = 'metric.m'\ny = '1'\ny_title = 't'",
            &["plots: 'p'", "no metric 'm'"],
        ),
        (
            "a limit on the other side",
            "[[checks]]\nname = 'c'\nvalue = 1\nat_most = 1\nnever_below = 0",
            &["checks: 'c'", "never_below, which goes with at_least"],
        ),
        ("too many repetitions", "[quick]\nrepetitions = 100000", &["repetitions"]),
    ] {
        let quick = added.contains("[quick");
        let text = format!("{SMALL}\n{added}\n");
        let error = Plan::parse("plan.toml", &text, quick).expect_err(what).to_string();
        assert!(!error.contains('\n'), "{what}: {error}");
        for word in words {
            assert!(error.contains(word), "{what}: no {word} in: {error}");
        }
    }
}

/// All sections of a plan, one key per line.
const WHOLE: &str = r#"
id = "whole"
title = "All sections"
about = "…"
why = "…"
repetitions = 2
series = "100ms"
[paper]
source = "TCP Nice §4"
statement = "…"
value = "…"
[[axes]]
name = "flows"
values = [1, 8]
title = "flows"
[[exclude]]
flows = 8
[choices]
measure = [
    { flows = 1, value = "2s" },
    { value = "3s" },
]
[quick]
repetitions = 1
[quick.axes]
flows = [1]
[quick.choices]
measure = [{ value = "1s" }]
[[quick.exclude]]
flows = 8
[topology]
rate = "10mbit"
rtt = "20ms"
buffer = "1bdp"
queue = "droptail"
left = 2
right = 2
[controls.nice]
algorithm = "nice"
threshold = 0.2
refinements = []
[[groups]]
name = "foreground"
title = "foreground"
kind = "bulk"
control = "cubic"
phases = ["alone"]
from = "left2"
to = "right2"
dscp = 0
spread = "1s"
pace = "1mbit"
[[groups]]
name = "background"
kind = "bulk"
control = "nice"
count = "$flows"
when = "flows == 1"
phases = ["alone"]
[[phases]]
name = "alone"
title = "alone"
settle = "1s"
measure = "$measure"
when = "flows < 9"
[[metrics]]
name = "kept"
title = "kept"
unit = "×"
value = "goodput.foreground.alone"
where = "flows == 1"
hidden = true
[[checks]]
name = "kept"
source = "…"
why = "…"
value = "metric.kept"
where = "flows == 1"
at_least = 0.9
share = 0.8
never_below = 0.5
of = "each"
[[plots]]
name = "kept"
title = "kept"
kind = "lines"
x = "flows"
y = "metric.kept"
y_title = "kept"
series = "flows"
panels = "flows"
where = "flows == 1"
level = 1
level_title = "all"
log = true
"#;

/// `WHOLE` with line number `at` replaced, read in full or as its subset.
fn error_with(at: usize, line: &str, quick: bool) -> Option<String> {
    let mut lines: Vec<&str> = WHOLE.lines().collect();
    lines[at - 1] = line;
    Plan::parse("plan.toml", &lines.join("\n"), quick).err().map(|error| error.to_string())
}

#[test]
fn misspelt_key_is_rejected_with_its_line() {
    for quick in [false, true] {
        Plan::parse("plan.toml", WHOLE, quick).unwrap();
    }
    let mut tried = 0;
    for (at, line) in (1..).zip(WHOLE.lines()) {
        let (Some((key, value)), false) = (line.split_once(" = "), line.starts_with(' ')) else {
            continue;
        };
        // The names of choices are free. A missing definition of $measure is reported where it is used.
        if key == "measure" && !value.starts_with('"') {
            continue;
        }
        let error = error_with(at, &format!("{key}x = {value}"), true)
            .unwrap_or_else(|| panic!("{line} is taken with another key"));
        assert!(error.starts_with(&format!("plan.toml:{at}: ")), "{line}: {error}");
        assert!(error.contains(&format!("{key}x")), "{line}: {error}");
        assert!(!error.contains('\n'), "{line}: {error}");
        tried += 1;
    }
    assert!(tried > 70, "{tried}");
}

#[test]
fn invalid_value_is_rejected_with_its_line() {
    for (line, spoilt) in [
        ("rtt = \"20ms\"", "rtt = \"20\""),
        ("queue = \"droptail\"", "queue = \"fifo\""),
        ("threshold = 0.2", "threshold = 2"),
        ("control = \"nice\"", "control = 5"),
        ("count = \"$flows\"", "count = \"$flow\""),
        ("count = \"$flows\"", "count = 0"),
        ("from = \"left2\"", "from = \"left3\""),
        ("to = \"right2\"", "to = \"left2\""),
        ("dscp = 0", "dscp = 64"),
        ("when = \"flows == 1\"", "when = \"flow == 1\""),
        ("when = \"flows < 9\"", "when = \"flow < 9\""),
        ("measure = \"$measure\"", "measure = \"0s\""),
        ("value = \"metric.kept\"", "value = \"metric.kept +\""),
        ("of = \"each\"", "of = \"all\""),
        ("kind = \"lines\"", "kind = \"pie\""),
        ("share = 0.8", "share = \"most\""),
    ] {
        let at = WHOLE.lines().position(|other| other == line).unwrap() + 1;
        let error = error_with(at, spoilt, false).unwrap_or_else(|| panic!("{spoilt} is taken"));
        assert!(error.starts_with(&format!("plan.toml:{at}: ")), "{spoilt}: {error}");
        assert!(!error.contains('\n'), "{spoilt}: {error}");
    }
}

/// Another view of the cells of the sweep.
const VIEW: &str = r#"id = "view"
title = "The same cells"
cells_of = "sweep"
[paper]
source = "TCP Nice §4"
statement = "…"
[[checks]]
name = "a"
value = "flows"
at_least = 1
"#;

fn beside(id: &str) -> Option<(String, String)> {
    (id == "sweep").then(|| ("sweep.toml".to_owned(), SWEEP.to_owned()))
}

#[test]
fn plan_may_show_the_cells_of_another() {
    for quick in [false, true] {
        let view = Plan::parse_beside("view.toml", VIEW, quick, beside).unwrap();
        let sweep = Plan::parse("sweep.toml", SWEEP, quick).unwrap();
        assert_eq!((view.id.as_str(), view.cells_of.as_str()), ("view", "sweep"));
        assert_eq!((sweep.cells_of.as_str(), sweep.checks.len()), ("sweep", 0));
        let identities = |plan: &Plan| -> Vec<_> {
            all(plan).into_iter().map(|cell| (cell.key, cell.hash, cell.seed)).collect()
        };
        assert_eq!(identities(&view), identities(&sweep));
        let record = |plan: &Plan| crate::run::record_path(Path::new("out"), plan);
        assert_eq!(record(&view), record(&sweep));
        assert_eq!((view.checks.len(), view.metrics.len()), (1, sweep.metrics.len()));
        // So a record of a run of either plan belongs to both.
        assert_eq!(view.hash, sweep.hash);
    }
}

#[test]
fn plan_showing_other_cells_has_none_of_its_own() {
    for (what, from, to, words) in [
        ("no such plan", "\"sweep\"", "\"swoop\"", &["view.toml:3", "cells_of", "swoop"][..]),
        ("a path", "\"sweep\"", "\"../sweep\"", &["view.toml:3", "cells_of"]),
        (
            "cells",
            "[paper]",
            "[[axes]]\nname = 'a'\nvalues = [1]\n[paper]",
            &["view.toml:4", "axes"],
        ),
        ("a strange plot", "[[checks]]", PLOT, &["view.toml:7", "nothing", "no axis"]),
    ] {
        let text = VIEW.replacen(from, to, 1);
        let error = Plan::parse_beside("view.toml", &text, false, beside).expect_err(what);
        for word in words {
            assert!(error.to_string().contains(word), "{what}: no {word} in: {error}");
        }
    }
    let chain = |_: &str| Some(("other.toml".to_owned(), VIEW.to_owned()));
    let error = Plan::parse_beside("view.toml", VIEW, false, chain).unwrap_err().to_string();
    assert!(error.contains("other.toml:3") && error.contains("cells_of"), "{error}");
    let alone = Plan::parse("view.toml", VIEW, false).unwrap_err().to_string();
    assert!(alone.contains("there is no plan 'sweep' beside it"), "{alone}");
}

/// A plot over an axis that no plan has.
const PLOT: &str = r#"[[plots]]
name = "p"
title = "p"
kind = "lines"
x = "nothing"
y = "1"
y_title = "p"
[[checks]]"#;
