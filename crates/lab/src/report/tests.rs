use std::collections::BTreeSet;
use std::path::Path;

use roxmltree::{Document, Node, ParsingOptions};
use serde_json::{Value, json};

use super::*;
use crate::plan::Cell;
use crate::record::{GroupRecord, Line, PhaseRecord, Program, Recorder};

/// Two cells, one group, two plots, and one check: the goodput is 5 Mbit/s at least.
const PLAN: &str = "
id = 'made-up'
title = 'Made up'
about = '''
For tests.

For nothing else.
'''
[paper]
source = 'TCP Nice §4'
statement = 'little interference'
value = '5 Mbit/s'
[[axes]]
name = 'flows'
values = [1, 2]
[quick.axes]
flows = [1]
[topology]
rate = '10mbit'
rtt = '20ms'
[[groups]]
name = 'a'
kind = 'bulk'
control = 'cubic'
count = '$flows'
phases = ['p']
[[phases]]
name = 'p'
settle = '1s'
measure = '1s'
[[metrics]]
name = 'goodput'
unit = 'Mbit/s'
value = 'goodput.a.p'
[[plots]]
name = 'first'
title = 'Goodput'
kind = 'lines'
x = 'flows'
y = 'metric.goodput'
y_title = 'Mbit/s'
[[plots]]
name = 'second'
title = 'The same'
kind = 'bars'
x = 'flows'
y = 'metric.goodput'
y_title = 'Mbit/s'
level = 5
level_title = 'demanded'
[[checks]]
name = 'goodput'
value = 'metric.goodput'
at_least = 5
";

fn plan(text: &str, quick: bool) -> Plan {
    Plan::parse("made-up.toml", text, quick).unwrap()
}

/// `PLAN` with a line before its first table.
fn with_key(line: &str) -> String {
    PLAN.replacen("[paper]", &format!("{line}\n[paper]"), 1)
}

fn measured(cell: &Cell, goodput_mbit: f64) -> Line {
    let group = GroupRecord { goodput_mbit, ..GroupRecord::default() };
    let phase = PhaseRecord {
        name: "p".to_owned(),
        groups: [("a".to_owned(), group)].into(),
        ..PhaseRecord::default()
    };
    Line::Cell(Box::new(CellRecord {
        key: cell.key.clone(),
        hash: cell.hash.clone(),
        values: cell.values.clone(),
        repetition: cell.repetition,
        seed: cell.seed,
        phases: vec![phase],
        ..CellRecord::default()
    }))
}

/// A run of `plan` whose first cells receive this many Mbit/s; the others are not recorded.
fn record(folder: &Path, plan: &Plan, seed: u64, goodputs: &[f64]) {
    let mut recorder = Recorder::open(&record_path(folder, plan)).unwrap();
    let program = Program {
        arguments: ["lab", "run", "made-*"].map(str::to_owned).to_vec(),
        commit: Some("c0ffee".to_owned()),
    };
    let header = plan.header(&program, seed);
    recorder.write(&Line::Header(header)).unwrap();
    let cells = plan.cells(&Selection::default(), seed).unwrap();
    for (cell, goodput) in cells.iter().zip(goodputs) {
        recorder.write(&measured(cell, *goodput)).unwrap();
    }
}

/// The report on one plan and its quick subset.
fn report(text: &str, folder: &Path) -> Report {
    let plans = vec![plan(text, false), plan(text, true)];
    Report::read(vec![plans], folder, Some("c0ffee".to_owned())).unwrap()
}

/// The report on a plan with a run of `recorded`, which may be another version of it.
fn judged(text: &str, recorded: &str, goodputs: &[f64]) -> Report {
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), &plan(recorded, false), 1, goodputs);
    report(text, folder.path())
}

fn row(report: &Report) -> ReportRow {
    let [row] = <[ReportRow; 1]>::try_from(report.rows()).unwrap();
    row
}

#[test]
fn plan_is_met_if_complete_and_all_checks_hold() {
    let more = format!("{PLAN}[[checks]]\nname = 'more'\nvalue = 'metric.goodput'\nat_least = ");
    let nowhere = format!("{more}5\nwhere = 'flows == 3'\n");
    let unseen = format!("{more}5\n")
        .replace("'more'\nvalue = 'metric.goodput'", "'more'\nvalue = 'latency.a.p.mean_ms'");
    for (what, text, goodputs, standing, verdict, why) in [
        ("all is well", PLAN, &[6.0, 7.0][..], PlanStatus::Met, "met", "2 of 2 cells"),
        (
            "a cell misses",
            PLAN,
            &[6.0, 4.0],
            PlanStatus::Missed,
            "missed",
            "misses 5.0000 by 1.0000",
        ),
        (
            "another check",
            &format!("{more}8\n"),
            &[6.0, 7.0],
            PlanStatus::Missed,
            "missed",
            "more: ",
        ),
        ("a cell is missing", PLAN, &[6.0], PlanStatus::Incomplete, "missed", "1 of 2 cells"),
        ("a miss is a miss", PLAN, &[4.0], PlanStatus::Missed, "missed", "1 of 2 cells"),
        ("no cell", PLAN, &[], PlanStatus::NotRun, "missed", "not run"),
        ("nothing to judge", &nowhere, &[6.0, 7.0], PlanStatus::Incomplete, "missed", "nothing to"),
        ("never observed", &unseen, &[6.0, 7.0], PlanStatus::Incomplete, "missed", "nothing to"),
    ] {
        let report = judged(text, text, goodputs);
        let row = row(&report);
        assert_eq!(report.entries[0].standing, standing, "{what}");
        assert_eq!(row.verdict, verdict, "{what}");
        assert!(row.why.contains(why), "{what}: {}", row.why);
        assert_eq!(report.count(standing), 1, "{what}");
    }
}

#[test]
fn row_has_the_printed_value_and_the_measured_range() {
    let report = judged(PLAN, PLAN, &[6.0, 8.0]);
    let text = serde_json::to_string(&row(&report)).unwrap();
    let start = "{\"id\":\"made-up\",\"verdict\":\"met\",\"paper\":\"5 Mbit/s\",\
                 \"measured\":\"goodput: 6.000 … 8.000, median 7.000\",\"why\":\"";
    assert!(text.starts_with(start), "{text}");
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value.as_object().unwrap().len(), 5);
    // Without a value, the statement is used for comparison.
    let text = PLAN.replace("value = '5 Mbit/s'\n", "");
    assert_eq!(row(&judged(&text, &text, &[6.0, 8.0])).paper, "little interference");
}

#[test]
fn missed_row_shows_the_explanation_of_the_plan() {
    let text = with_key("why = '''\nThe trace is\nanother one.'''") + "why = 'too few flows'\n";
    let report = judged(&text, &text, &[6.0, 4.0]);
    let why = row(&report).why;
    assert!(why.contains("by 1.0000") && why.contains("too few flows"), "{why}");
    assert!(why.ends_with("The trace is another one."), "{why}");
    let page = report.html().unwrap();
    assert!(page.contains("another one.") && page.contains("too few flows"));
}

#[test]
fn plan_without_checks_is_shown_without_a_row() {
    let text = &PLAN[..PLAN.find("[[checks]]").unwrap()];
    let report = judged(text, text, &[6.0, 4.0]);
    assert_eq!(report.entries[0].standing, PlanStatus::Unjudged);
    assert!(report.rows().is_empty());
    assert!(report.html().unwrap().contains("not judged"));
}

#[test]
fn cells_of_another_plan_are_left_out_and_reported() {
    let other = PLAN.replace("20ms", "30ms");
    let report = judged(PLAN, &other, &[6.0, 7.0]);
    assert_eq!(report.entries[0].standing, PlanStatus::NotRun);
    let why = row(&report).why;
    let hash = plan(&other, false).hash;
    assert!(why.contains("ignored: 2 cells of another plan"), "{why}");
    assert!(why.contains(&hash[..12]), "{why}");
    assert!(report.html().unwrap().contains("(another text)"));
}

#[test]
fn extra_cells_are_reported_after_the_checks() {
    let folder = tempfile::tempdir().unwrap();
    let other = plan(&PLAN.replace("values = [1, 2]", "values = [1, 2, 3]"), false);
    record(folder.path(), &other, 1, &[6.0, 7.0, 8.0]);
    let why = row(&report(PLAN, folder.path())).why;
    let (checks, besides) = why.split_once("; ignored: ").unwrap();
    assert!(checks.starts_with("goodput: 2 of 2 cells"), "{why}");
    assert!(besides.contains("1 cell of another plan") && besides.contains("--prune"), "{why}");
    assert!(besides.contains(&format!("--out {}", folder.path().display())), "{why}");
}

#[test]
fn cells_of_several_programs_are_reported_by_program() {
    let folder = tempfile::tempdir().unwrap();
    let whole = plan(PLAN, false);
    record(folder.path(), &whole, 1, &[6.0]);
    assert!(!row(&report(PLAN, folder.path())).why.contains("programs"));
    let second = whole.cells(&Selection::default(), 1).unwrap().remove(1);
    let mut recorder = Recorder::open(&record_path(folder.path(), &whole)).unwrap();
    let commit = Some("0123456789abcdef-dirty.1a2b3c4d".to_owned());
    let program = Program { arguments: Vec::new(), commit };
    recorder.write(&Line::Header(whole.header(&program, 1))).unwrap();
    recorder.write(&measured(&second, 7.0)).unwrap();
    let report = report(PLAN, folder.path());
    let told = "2 programs measured the cells: 1 cell by commit 0123456789ab-dirty.1a2b3c4d, \
                1 cell by commit c0ffee";
    assert!(row(&report).why.ends_with(told), "{}", row(&report).why);
    assert!(report.html().unwrap().contains(told));
    assert_eq!(row(&report).verdict, "met");
}

#[test]
fn changed_check_judges_recorded_cells() {
    let report = judged(PLAN, &PLAN.replace("at_least = 5", "at_least = 50"), &[6.0, 7.0]);
    assert_eq!(row(&report).verdict, "met");
    let page = report.html().unwrap();
    assert!(page.contains("(another text)") && !page.contains("of another plan"));
    assert!(!page.contains("(another than this page"));
    let elsewhere = Report { commit: Some("decade".to_owned()), ..report };
    assert!(elsewhere.html().unwrap().contains("(another than this page"));
}

#[test]
fn record_belongs_to_plans_that_show_its_cells() {
    let view = "id = 'view'\ntitle = 'The same'\ncells_of = 'made-up'\n\
                [paper]\nsource = 'a'\nstatement = 'b'\n\
                [[checks]]\nname = 'c'\nvalue = 'metric.goodput'\nat_least = 5\n";
    let plans = tempfile::tempdir().unwrap();
    let read = |name: &str, text: &str| {
        let path = plans.path().join(name);
        fs::write(&path, text).unwrap();
        Plan::read(&path, false).unwrap()
    };
    let both = [read("made-up.toml", PLAN), read("view.toml", view)];
    for ran in &both {
        let folder = tempfile::tempdir().unwrap();
        record(folder.path(), ran, 1, &[6.0, 7.0]);
        for shown in &both {
            let report = Report::read(vec![vec![shown.clone()]], folder.path(), None).unwrap();
            assert_eq!(row(&report).verdict, "met");
            let page = report.html().unwrap();
            assert!(!page.contains("(another text)"), "{} by {}", shown.id, ran.id);
        }
    }
    // A changed text of the plan that the cells belong to is still reported.
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), &both[0], 1, &[6.0, 7.0]);
    read("made-up.toml", &PLAN.replace("For nothing else", "Nor for anything else"));
    let report = Report::read(vec![vec![read("view.toml", view)]], folder.path(), None).unwrap();
    assert!(report.html().unwrap().contains("(another text)"));
}

#[test]
fn quick_subset_is_used_if_nothing_else_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), &plan(PLAN, true), 1, &[6.0]);
    let quick = report(PLAN, folder.path());
    assert_eq!(row(&quick).verdict, "met");
    assert!(row(&quick).why.contains("quick subset"), "{}", row(&quick).why);
    record(folder.path(), &plan(PLAN, false), 1, &[6.0, 4.0]);
    let full = report(PLAN, folder.path());
    assert!(!full.entries[0].plan.quick);
    assert_eq!(row(&full).verdict, "missed");
}

#[test]
fn fuller_run_counts_of_several_seeds() {
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), &plan(PLAN, false), 1, &[6.0, 7.0]);
    record(folder.path(), &plan(PLAN, false), 5, &[4.0]);
    let first = report(PLAN, folder.path());
    assert_eq!(row(&first).verdict, "met");
    assert!(row(&first).why.contains("ignored: 1 cell with other seeds"), "{}", row(&first).why);
    record(folder.path(), &plan(PLAN, false), 5, &[4.0, 4.0]);
    assert_eq!(row(&report(PLAN, folder.path())).verdict, "missed");
}

#[test]
fn failed_cells_are_reported_until_they_run() {
    let folder = tempfile::tempdir().unwrap();
    let whole = plan(PLAN, false);
    record(folder.path(), &whole, 1, &[6.0]);
    let second = whole.cells(&Selection::default(), 1).unwrap().remove(1);
    let mut recorder = Recorder::open(&record_path(folder.path(), &whole)).unwrap();
    let failed =
        Failed { key: second.key.clone(), hash: second.hash.clone(), error: "no room".into() };
    recorder.write(&Line::Failed(failed)).unwrap();
    let why = row(&report(PLAN, folder.path())).why;
    assert!(why.contains("1 cell failed, such as flows=2 repetition=1: no room"), "{why}");
    recorder.write(&measured(&second, 6.0)).unwrap();
    assert_eq!(row(&report(PLAN, folder.path())).verdict, "met");
}

#[test]
fn missing_folder_is_reported_in_one_line() {
    let error = Report::read(Vec::new(), Path::new("/no/such/folder"), None).unwrap_err();
    assert!(error.to_string().contains("/no/such/folder"), "{error}");
    assert!(!error.to_string().contains('\n'), "{error}");
}

/// A page on three plans: one met, one missed, one not run.
fn page() -> String {
    let folder = tempfile::tempdir().unwrap();
    let named = |name: &str| PLAN.replace("'made-up'", &format!("'{name}'"));
    let experiment = |name: &str| vec![plan(&named(name), false), plan(&named(name), true)];
    record(folder.path(), &experiment("first")[0], 1, &[6.0, 7.0]);
    record(folder.path(), &experiment("second")[0], 1, &[4.0, 3.0]);
    let experiments = ["first", "second", "third"].map(experiment).to_vec();
    let report = Report::read(experiments, folder.path(), None).unwrap();
    report.html().unwrap()
}

/// Reads a page as XML, which is stricter than any browser.
fn parse(page: &str) -> Document<'_> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    Document::parse_with_options(page, options).unwrap()
}

fn elements<'a>(document: &'a Document<'_>, name: &'a str) -> Vec<Node<'a, 'a>> {
    document.descendants().filter(|node| node.has_tag_name(name)).collect()
}

fn all_text(node: Node<'_, '_>) -> String {
    node.descendants().filter_map(|node| node.text().filter(|_| node.is_text())).collect()
}

#[test]
fn page_is_well_formed_and_self_contained() {
    let page = page();
    let document = parse(&page);
    let mut ids = BTreeSet::new();
    for id in document.descendants().filter_map(|node| node.attribute("id")) {
        assert!(ids.insert(id), "two elements are called {id}");
    }
    for node in document.descendants().filter(Node::is_element) {
        assert!(!["script", "link", "iframe", "img", "object"].contains(&node.tag_name().name()));
        for attribute in node.attributes() {
            match attribute.name() {
                "href" => {
                    let to = attribute.value().strip_prefix('#').expect("a link within the page");
                    assert!(ids.contains(to), "{to} is nowhere");
                }
                name => assert!(!name.starts_with("on") && name != "src", "{name}"),
            }
        }
    }
    for word in ["http", "url(", "@import"] {
        assert!(!page.contains(word), "{word}");
    }
}

#[test]
fn page_has_a_row_and_a_section_per_plan() {
    let page = page();
    let document = parse(&page);
    let rows: Vec<Vec<String>> = elements(&document, "table")[0]
        .descendants()
        .filter(|node| node.has_tag_name("tr"))
        .skip(1)
        .map(|row| row.children().filter(Node::is_element).map(all_text).collect())
        .collect();
    let range = |low, high, median| format!("goodput: {low} … {high}, median {median}");
    let expected = [
        ["first", "Made up", "5 Mbit/s", &range("6.000", "7.000", "6.500"), "met"],
        ["second", "Made up", "5 Mbit/s", &range("3.000", "4.000", "3.500"), "missed"],
        ["third", "Made up", "5 Mbit/s", "–", "not run"],
    ];
    assert_eq!(rows, expected);
    let ids: Vec<_> =
        elements(&document, "section").iter().filter_map(|node| node.attribute("id")).collect();
    assert_eq!(ids, ["first", "second", "third"]);
    for section in elements(&document, "section") {
        let id = section.attribute("id").unwrap();
        let text = all_text(section);
        for words in ["TCP Nice §4", "little interference", "For tests.", "metric.goodput ≥ 5"] {
            assert!(text.contains(words), "{id}: no {words}");
        }
        let about = section.descendants().filter(|node| node.attribute("class") == Some("about"));
        assert_eq!(about.map(all_text).collect::<Vec<_>>(), ["For tests.", "For nothing else."]);
        let figures: Vec<_> =
            section.descendants().filter(|node| node.has_tag_name("figure")).collect();
        let titles: Vec<_> = section
            .descendants()
            .filter(|node| node.has_tag_name("svg"))
            .map(|node| node.attribute("aria-label").unwrap())
            .collect();
        if id == "third" {
            assert!(figures.is_empty());
            continue;
        }
        assert_eq!(titles, ["Goodput", "The same"], "{id}");
        assert!(figures.iter().all(|figure| all_text(*figure).contains("Mbit/s")));
        for words in ["lull lab run 'made-*'", "c0ffee", "Results: 2 rows"] {
            assert!(text.contains(words), "{id}: no {words}");
        }
        assert!(!text.contains("/some/where"));
    }
    let second = all_text(elements(&document, "section")[1]);
    assert!(second.contains("3.0000 misses 5.0000 by 2.0000 (flows=2 repetition=1)"), "{second}");
}

#[test]
fn long_tables_are_folded_and_short_ones_open() {
    let many = PLAN.replace("values = [1, 2]", "values = [1,2,3,4,5,6,7,8,9,10,11,12,13]");
    for (text, count, is_open) in [(PLAN, 2, true), (&*many, 13, false)] {
        let page = judged(text, text, &vec![6.0; count]).html().unwrap();
        let document = parse(&page);
        let results = elements(&document, "details")
            .into_iter()
            .find(|node| node.attribute("class") == Some("results"))
            .unwrap();
        assert_eq!(results.has_attribute("open"), is_open, "{count}");
    }
}

#[test]
fn text_of_plans_and_records_is_escaped() {
    let nasty = "<script>alert(1)</script> & \"quoted\"";
    let text = with_key(&format!("why = '{nasty}'"))
        .replace("'Made up'", &format!("'{nasty}'"))
        .replace("'The same'", &format!("'{nasty}'"))
        .replace("'little interference'", &format!("'{nasty}'"))
        .replace("name = 'goodput'\nvalue", &format!("name = '{nasty}'\nvalue"));
    let page = judged(&text, &text, &[6.0, 4.0]).html().unwrap();
    let document = parse(&page);
    assert!(elements(&document, "script").is_empty());
    assert!(all_text(document.root()).matches(nasty).count() >= 5);
    let labels: Vec<_> =
        elements(&document, "svg").iter().filter_map(|node| node.attribute("aria-label")).collect();
    assert_eq!(labels, ["Goodput", nasty]);
}

/// The style sheet selects the colours that depend on the ground by their values.
#[test]
fn figures_follow_the_colours_of_the_page() {
    let page = page();
    let document = parse(&page);
    let style = all_text(elements(&document, "style")[0]);
    let figure = elements(&document, "figure")[0];
    for (attribute, colour) in
        [("fill", "#FFFFFF"), ("fill", "#282828"), ("stroke", "#282828"), ("stroke", "#DEDEDE")]
    {
        assert!(style.contains(&format!("figure [{attribute}=\"{colour}\"]")), "{colour}");
        let is_there = figure.descendants().any(|node| node.attribute(attribute) == Some(colour));
        assert!(is_there, "{attribute} {colour}");
    }
}

#[test]
fn table_omits_uninformative_columns() {
    let text = PLAN.replace("[1, 2]", "[1]")
        + "[[metrics]]\nname = 'none'\nvalue = 'latency.a.p.mean_ms'\n\
           [[metrics]]\nname = 'h'\nvalue = '1'\nhidden = true\n";
    let report = judged(&text, &text, &[6.0]);
    let table = report.entries[0].results.table(&report.entries[0].plan);
    assert!(table.axes.is_empty());
    let names: Vec<&str> = table.metrics.iter().map(|metric| metric.name.as_str()).collect();
    assert_eq!(names, ["goodput"]);
    assert_eq!(
        json!(table.rows),
        json!([
            { "values": [], "metrics": ["6.000"], "repetitions": 1, "missed": [] }
        ])
    );
}
