//! The report as a page. The template engine escapes all texts. Only figures and the style sheet are not
//! escaped, and neither comes from a plan or a record.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior, Value};
use serde::Serialize;

use super::{Entry, PlanStatus, Report, ReportError, range_text, short};
use crate::judge::{Table, Verdict, number};
use crate::plan::{Check, CheckScope};
use crate::plot;
use crate::record::Header;

/// The extension of its name enables escaping.
const NAME: &str = "page.html";
const TEMPLATE: &str = include_str!("page.html");
/// Without `<` and `&`, which have a meaning in its place.
const STYLE: &str = include_str!("page.css");

/// Tables with more rows are folded.
const MAX_ROWS: usize = 12;

#[derive(Serialize)]
struct Page<'a> {
    style: &'static str,
    version: &'static str,
    commit: Option<&'a str>,
    counts: Vec<String>,
    sections: Vec<Section<'a>>,
}

#[derive(Serialize)]
struct Section<'a> {
    id: &'a str,
    title: &'a str,
    /// Its description, by paragraph.
    about: Vec<&'a str>,
    standing: PlanStatus,
    words: &'static str,
    paper: Paper<'a>,
    measured: String,
    figures: Vec<Picture>,
    checks: Vec<CheckRow<'a>>,
    /// Why results differ, by paragraph.
    why: Vec<&'a str>,
    notes: Vec<String>,
    table: Table,
    is_folded: bool,
    cells: usize,
    planned: usize,
    record: String,
    plan_hash: &'a str,
    runs: Vec<Run<'a>>,
}

#[derive(Serialize)]
struct Paper<'a> {
    source: &'a str,
    statement: &'a str,
    value: Option<&'a str>,
    /// Its text in the table of all plans.
    told: &'a str,
}

#[derive(Serialize)]
struct Picture {
    title: String,
    width: u32,
    height: u32,
    /// The SVG document without its outermost element.
    content: String,
}

#[derive(Serialize)]
struct CheckRow<'a> {
    name: &'a str,
    source: Option<&'a str>,
    demand: String,
    standing: PlanStatus,
    words: &'static str,
    judged: usize,
    met: usize,
    measured: String,
    why: &'a str,
    explanation: Option<&'a str>,
    /// Cells that miss it, worst first.
    misses: Vec<String>,
}

/// A run that wrote into the record.
#[derive(Serialize)]
struct Run<'a> {
    command: String,
    seed: u64,
    commit: Option<&'a str>,
    is_this_commit: bool,
    plan_hash: &'a str,
    is_this_plan: bool,
    version: &'a str,
    kernel: &'a str,
    cores: usize,
}

pub(super) fn html(report: &Report) -> Result<String, ReportError> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.add_template(NAME, TEMPLATE)?;
    let commit = report.commit.as_deref();
    let sections = report.entries.iter().map(|entry| section(entry, commit));
    let counts = PlanStatus::ALL.into_iter().filter_map(|standing| {
        let count = report.count(standing);
        (count > 0).then(|| format!("{count} {}", standing.words()))
    });
    let page = Page {
        style: STYLE,
        version: env!("CARGO_PKG_VERSION"),
        commit,
        counts: counts.collect(),
        sections: sections.collect::<Result<_, _>>()?,
    };
    Ok(environment.get_template(NAME)?.render(Value::from(Serde(&page)))?)
}

/// The paragraphs of a text, which empty lines separate.
fn paragraphs(text: &str) -> Vec<&str> {
    text.split("\n\n").map(str::trim).filter(|part| !part.is_empty()).collect()
}

fn section<'a>(entry: &'a Entry, commit: Option<&str>) -> Result<Section<'a>, ReportError> {
    let plan = &entry.plan;
    let table = entry.results.table(plan);
    let verdicts = plan.checks.iter().zip(&entry.results.verdicts);
    let is_run = entry.standing != PlanStatus::NotRun;
    Ok(Section {
        id: &plan.id,
        title: &plan.title,
        about: paragraphs(&plan.about),
        standing: entry.standing,
        words: entry.standing.words(),
        paper: Paper {
            source: &plan.paper.source,
            statement: &plan.paper.statement,
            value: plan.paper.value.as_deref(),
            told: entry.paper(),
        },
        measured: entry.measured(),
        figures: plot::figures(plan, &entry.cells)?.into_iter().map(picture).collect(),
        checks: verdicts.map(|(check, verdict)| check_row(check, verdict, is_run)).collect(),
        why: plan.why.as_deref().map_or(Vec::new(), paragraphs),
        notes: notes(entry),
        is_folded: table.rows.len() > MAX_ROWS,
        table,
        cells: entry.cells.len(),
        planned: entry.planned,
        record: file_name(&entry.record),
        plan_hash: short(&plan.hash),
        runs: entry.headers.iter().map(|header| run(header, &plan.hash, commit)).collect(),
    })
}

/// A plot's document without its outermost element, which the page writes itself: it scales, and needs no
/// namespace.
fn picture(figure: plot::Figure) -> Picture {
    let begin = figure.svg.find('>').map_or(0, |at| at + 1);
    let end = figure.svg.rfind("</svg>").unwrap_or(figure.svg.len());
    assert!(figure.svg.starts_with("<svg ") && begin <= end, "a plot is one SVG element");
    Picture {
        content: figure.svg[begin..end].trim().to_owned(),
        title: figure.title,
        width: figure.width,
        height: figure.height,
    }
}

fn check_row<'a>(check: &'a Check, verdict: &'a Verdict, is_run: bool) -> CheckRow<'a> {
    let standing = match verdict.is_met {
        Some(true) => PlanStatus::Met,
        Some(false) => PlanStatus::Missed,
        None if is_run => PlanStatus::Incomplete,
        None => PlanStatus::NotRun,
    };
    let beyond = verdict.beyond.iter();
    let misses = beyond.chain(verdict.worst.iter().filter(|one| one.margin < 0.0)).map(|one| {
        let [bound, margin] = [one.bound, one.margin.abs()].map(|value| number(value, 4));
        format!("{}: {} misses {bound} by {margin}", one.key, one.text())
    });
    CheckRow {
        name: &check.name,
        source: check.source.as_deref(),
        demand: demand(check),
        standing,
        words: if verdict.is_met.is_none() && verdict.judged == 0 && is_run {
            "nothing to judge"
        } else {
            standing.words()
        },
        judged: verdict.judged,
        met: verdict.met,
        measured: verdict.range.map(range_text).unwrap_or_default(),
        why: if is_run { &verdict.why } else { "–" },
        explanation: verdict.explanation.as_deref(),
        misses: misses.take(10).collect(),
    }
}

/// The demand of a check, in the words of its plan.
fn demand(check: &Check) -> String {
    let of = match check.of {
        CheckScope::Each => "",
        CheckScope::Combination => "mean over repetitions of ",
        CheckScope::Mean => "mean of ",
        CheckScope::Median => "median of ",
        CheckScope::Sure => "mean over repetitions, as far as sure, of ",
        CheckScope::Slope => "for each doubling of its axis, as far as sure, ",
    };
    let mut text = format!("{of}{}", check.value.text());
    if let Some(per) = &check.per {
        text = format!("{text} per {of}{}", per.text());
    }
    let bounds = [
        (" ≥ ", &check.at_least),
        (" ≤ ", &check.at_most),
        (", never below ", &check.never_below),
        (", never above ", &check.never_above),
    ];
    for (words, bound) in bounds {
        if let Some(bound) = bound {
            text = text + words + bound.text();
        }
    }
    if let Some(only) = &check.only {
        text = format!("{text}, where {}", only.text());
    }
    if check.share < 1.0 {
        text = format!("{text}, in {} % of the cells", (check.share * 1000.0).round() / 10.0);
    }
    text
}

/// Notes that a reader must know before trusting the figures.
fn notes(entry: &Entry) -> Vec<String> {
    let mut notes = [entry.gaps(), entry.leftovers()].concat();
    if let Some((key, late_ms)) = entry.results.disturbed.first() {
        notes.push(format!(
            "in doubt: in {} the emulator was late, worst by {} ms ({key})",
            super::cells(entry.results.disturbed.len()),
            number(*late_ms, 3)
        ));
    }
    if entry.standing != PlanStatus::NotRun {
        let without = entry.results.without_value.iter();
        notes.extend(without.map(|what| format!("without a value in any cell: {what}")));
    }
    notes
}

fn run<'a>(header: &'a Header, plan_hash: &str, commit: Option<&str>) -> Run<'a> {
    // The program's path on the machine that ran it is left out.
    let program = header.command.first().map(|program| file_name(std::path::Path::new(program)));
    let arguments = header.command.iter().skip(1).map(|argument| quoted(argument));
    Run {
        command: program.into_iter().chain(arguments).collect::<Vec<_>>().join(" "),
        seed: header.seed,
        commit: header.commit.as_deref(),
        is_this_commit: header.commit.as_deref() == commit,
        plan_hash: short(&header.plan_hash),
        is_this_plan: header.plan_hash == plan_hash,
        version: &header.version,
        kernel: &header.kernel,
        cores: header.cores,
    }
}

fn file_name(path: &std::path::Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// An argument as a shell takes it.
fn quoted(argument: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_=.,/:@%+".contains(c);
    if !argument.is_empty() && argument.chars().all(is_plain) {
        argument.to_owned()
    } else {
        format!("'{}'", argument.replace('\'', r"'\''"))
    }
}
