//! `lull lab demo`: the main use case as a demonstration.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use lull_cc::Rate;
use lull_lab::judge::judge;
use lull_lab::plan::{Network, Plan, PlanSet, Scenario, Selection};
use lull_lab::record::{CellRecord, Line, RecordFile, Recorder};
use lull_lab::run::{self, CellEnvironment, Order, Outcome, Tick, Watch};
use lull_monitor::{Curve, plot};
use serde_json::json;

const EXAMPLES: &str = "\
Examples:
  sudo lull lab demo
      show a live table; then write the plot out/demo.svg and the record out/demo.jsonl
  sudo lull lab demo --link 50mbit --rtt 20
      the same on a link like yours
  sudo lull lab demo --json --out /tmp/demo
      show no table; print the results as 'lull lab run --json' does";

/// Show a download beside an rsync under `lull exec`, in a minute
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DemoArgs {
    /// Folder for the plot and the record
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,
    /// Rate of the emulated link
    #[arg(long, value_name = "RATE", default_value = "10mbit")]
    link: Rate,
    /// Round-trip time of the emulated link, in milliseconds
    #[arg(long, value_name = "MILLISECONDS", default_value = "50", value_parser = clap::value_parser!(u16).range(1..=500))]
    rtt: u16,
    /// Print the results as JSON instead of the table
    #[arg(long)]
    json: bool,
    /// Folder of the plan 'demo' [default: the plan that is built in]
    #[arg(long = "plans", value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// Runs the plan `demo` with a live table, and draws it.
pub(crate) fn demo(args: DemoArgs) -> anyhow::Result<ExitCode> {
    crate::experiments::usage(try_demo(&args))
}

fn try_demo(args: &DemoArgs) -> anyhow::Result<ExitCode> {
    let plan = plan(args)?;
    lull_kernel::check_privilege("the demo, which loads a congestion control,")?;
    lull_kernel::check_kernel()?;
    let is_there = Command::new("rsync").arg("--version").stdout(Stdio::null()).status();
    is_there.context("the demo needs rsync: install it (apt-get install rsync)")?;
    let code = run::alone(&[&args.out], |environment| match show(&plan, args, environment) {
        Ok(()) => 0,
        Err(error) => {
            crate::print_error(&error);
            1
        }
    })?;
    if code != 0 {
        // The next `lull exec` cleans up after a killed one.
        let lull = crate::lull()?;
        let _ = Command::new(lull).args(["exec", "--quiet", "true"]).stderr(Stdio::null()).status();
    }
    Ok(ExitCode::from(code))
}

/// The plan with the link that was asked for.
fn plan(args: &DemoArgs) -> anyhow::Result<Plan> {
    if let Some(folder) = &args.folder {
        let found = PlanSet::open(Some(folder))?.find(&["demo".to_owned()], false)?.pop();
        return found.context("the folder has no plan 'demo'");
    }
    let text = BUILT_IN.replace(
        LINK,
        &format!("rate = \"{}bit\"\nrtt = \"{}ms\"", args.link.bits_per_second(), args.rtt),
    );
    Ok(Plan::parse("demo.toml", &text, false)?)
}

/// The plan that is built in, and its link.
const BUILT_IN: &str = include_str!("../../../../../plans/demo.toml");
const LINK: &str = "rate = \"10mbit\"\nrtt = \"50ms\"";

fn show(plan: &Plan, args: &DemoArgs, environment: &CellEnvironment<'_>) -> anyhow::Result<()> {
    let out = &args.out;
    let cells = plan.cells(&Selection::default(), 1)?;
    let [cell] = &cells[..] else { bail!("the plan 'demo' must have one cell") };
    let path = run::record_path(out, plan);
    // Before the long run: a wrong path must not lose its results.
    let mut recorder = Recorder::open(&path)?;
    recorder.retain(|_| false)?;
    recorder.write(&Line::Header(plan.header(&crate::program(), 1)))?;
    let Network::Emulated(link) = &cell.scenario.topology else { bail!("the demo needs a link") };
    let order = Order::new(plan, cell, Default::default(), None, false);
    let mut table = (!args.json).then(|| Table::new(&cell.scenario));
    let record = match &mut table {
        Some(table) => {
            println!(
                "A link of {}, {} and {} of buffer between network namespaces; {} s on the real \
                 kernel.\n",
                link.rate.value,
                link.rtt,
                link.buffer,
                cell.scenario.duration().as_secs()
            );
            table.draw()?;
            run::run_cell(&order, environment, table)?
        }
        None => run::run_cell(&order, environment, &mut ())?,
    };
    recorder.write(&Line::Cell(Box::new(record)))?;
    let RecordFile { headers, cells, failed } = RecordFile::read(&path)?;
    let [cell] = &cells[..] else { bail!("the record does not hold the cell") };
    let svg = out.join("demo.svg");
    lull_lab::plot::timeline(cell, &plan.title, &svg)?;
    let Some(table) = &mut table else {
        let outcome = Outcome { record: path, headers, cells, others: Vec::new(), failed };
        return show_json(plan, outcome, &svg);
    };
    table.finish(cell)?;
    println!();
    let verdicts = judge(plan, &cells).verdicts;
    for verdict in &verdicts {
        let word = if verdict.is_met == Some(true) { "met" } else { "MISSED" };
        println!("{word}: {}: {}", verdict.name, verdict.why);
    }
    // The demo shows its result: a miss is not a failure of the demo.
    if verdicts.iter().any(|verdict| verdict.is_met != Some(true)) {
        println!(
            "A check was missed: is this machine busy with something else? \
             `lull lab run demo --fresh --check` says so with its exit code."
        );
    }
    println!("\n{}", table.plot());
    println!("plot: {}, record: {}", svg.display(), path.display());
    Ok(())
}

/// The same output as `lull lab run --json` for a plan.
fn show_json(plan: &Plan, outcome: Outcome, svg: &Path) -> anyhow::Result<()> {
    let mut value = crate::experiments::results_json(plan, &outcome, &judge(plan, &outcome.cells))?;
    value["plots"] = json!([svg]);
    let text = serde_json::to_string_pretty(&json!({ "plans": [value] }))?;
    writeln!(io::stdout(), "{text}").context("cannot write")
}

/// A row for each phase, redrawn repeatedly on a terminal.
struct Table {
    rows: Vec<Row>,
    groups: Vec<(String, String)>,
    /// Number of drawn lines, which the next drawing replaces.
    drawn: usize,
    is_terminal: bool,
    ticks: u32,
    /// Seconds, and Mbit/s of each group.
    curves: Vec<Vec<(f64, f64)>>,
}

struct Row {
    phase: String,
    title: String,
    /// Mbit/s of each group, if it exists.
    rates: Vec<Option<f64>>,
    queueing_ms: Option<f64>,
    /// The present activity.
    note: String,
}

impl Table {
    fn new(scenario: &Scenario) -> Self {
        let groups: Vec<(String, String)> = scenario
            .groups
            .iter()
            .map(|group| {
                (group.name.clone(), group.title.clone().unwrap_or_else(|| group.name.clone()))
            })
            .collect();
        let rows = scenario.phases.iter().map(|phase| Row {
            phase: phase.name.clone(),
            title: phase.title.clone().unwrap_or_else(|| phase.name.clone()),
            rates: vec![None; groups.len()],
            queueing_ms: None,
            note: String::new(),
        });
        let is_terminal = io::stdout().is_terminal();
        let curves = vec![Vec::new(); groups.len()];
        Table { rows: rows.collect(), groups, drawn: 0, is_terminal, ticks: 0, curves }
    }

    /// The whole table; without a terminal nothing, until the end.
    fn draw(&mut self) -> io::Result<()> {
        if !self.is_terminal {
            return Ok(());
        }
        let text = self.text();
        let mut out = io::stdout().lock();
        if self.drawn > 0 {
            // Up to the first line of the last drawing, and clear the rest below.
            write!(out, "\x1b[{}A\x1b[J", self.drawn)?;
        }
        self.drawn = text.lines().count();
        write!(out, "{text}")?;
        out.flush()
    }

    fn text(&self) -> String {
        let mut text = format!("{:<26}", "");
        for (_, title) in &self.groups {
            text += &format!("{title:>18}");
        }
        text += "   median wait in the queue\n";
        for row in &self.rows {
            text += &format!("{:<26}", row.title);
            for rate in &row.rates {
                let rate = rate.map_or("-".to_owned(), |rate| format!("{rate:.2} Mbit/s"));
                text += &format!("{rate:>18}");
            }
            let wait = row.queueing_ms.map_or("-".to_owned(), |wait| format!("{wait:.1} ms"));
            text += &format!("{:>12}   {}", wait, row.note);
            text.truncate(text.trim_end().len());
            text.push('\n');
        }
        text
    }

    /// The rates of all groups over time, each as the first letter of its title.
    fn plot(&self) -> String {
        let curves = self.groups.iter().zip(&self.curves).map(|((_, title), points)| Curve {
            letter: title.chars().next().unwrap_or('*'),
            name: title.clone(),
            points: points.clone(),
        });
        plot(&curves.collect::<Vec<_>>(), "Mbit/s", 78, 16)
    }

    fn row(&mut self, phase: &str) -> Option<&mut Row> {
        self.rows.iter_mut().find(|row| row.phase == phase)
    }

    /// The final contents of the record.
    fn finish(&mut self, cell: &CellRecord) -> io::Result<()> {
        let groups = self.groups.clone();
        for phase in &cell.phases {
            let Some(row) = self.row(&phase.name) else { continue };
            row.note.clear();
            row.queueing_ms = phase.queueing.map(|delay| delay.p50_ms);
            row.rates = groups
                .iter()
                .map(|(name, _)| phase.groups.get(name).map(|group| group.goodput_mbit))
                .collect();
        }
        if self.is_terminal { self.draw() } else { write!(io::stdout(), "\n{}", self.text()) }
    }
}

/// How often a cell reports.
const TICK: Duration = Duration::from_millis(500);

impl Watch for Table {
    fn tick(&mut self, tick: &Tick<'_>) {
        let groups = self.groups.clone();
        let rate = |name: &str| tick.groups.iter().find(|(group, ..)| *group == name);
        let left = tick.phase.duration().saturating_sub(tick.since).as_secs();
        let doing = if tick.is_measured { "measuring" } else { "settling" };
        self.ticks += 1;
        let seconds = f64::from(self.ticks) * TICK.as_secs_f64();
        for ((name, _), points) in groups.iter().zip(&mut self.curves) {
            points.extend(rate(name).map(|(_, now, _)| (seconds, *now)));
        }
        let is_shown = self.ticks.is_multiple_of(4);
        if let Some(row) = self.row(&tick.phase.name) {
            row.rates = groups.iter().map(|(name, _)| rate(name).map(|(_, now, _)| *now)).collect();
            row.queueing_ms = tick.queueing_ms;
            row.note = format!("{doing}, {left} s left");
            if left == 0 && tick.since + Duration::from_millis(600) > tick.phase.duration() {
                row.note.clear();
            }
        }
        if !self.is_terminal && is_shown {
            let parts: Vec<String> = groups
                .iter()
                .filter_map(|(name, title)| {
                    rate(name).map(|(_, now, _)| format!("{title} {now:.2} Mbit/s"))
                })
                .collect();
            let title = tick.phase.title.as_deref().unwrap_or(&tick.phase.name);
            let since = tick.since.as_secs();
            println!("{title}, {since} s: {}", parts.join(", "));
        }
        // If the table cannot be shown, the demo continues all the same.
        let _ = self.draw();
    }
}
