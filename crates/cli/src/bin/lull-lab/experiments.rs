//! `lull lab run` and `lull lab list`: experiments and their results.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use lull_lab::judge::{Results, Verdict, judge_beside};
use lull_lab::plan::{Cell, Network, Plan, PlanError, PlanSet, Selection};
use lull_lab::record::CellRecord;
use lull_lab::report::ReportError;
use lull_lab::run::{
    self, Budget, CellEnvironment, Isolation, Outcome, RunError, RunPreview, Runner,
};
use serde_json::{Value, json};

use crate::progress::{Progress, count, duration};
use crate::table;

const RUN_EXAMPLES: &str = "\
Examples:
  sudo lull lab run kernel-matrix --quick
      run the quick subset, in some minutes
  sudo lull lab run kernel-matrix --only flows=8 rtt=20ms,50ms
      run the cells with these values that are not recorded
  sudo lull lab run kernel-matrix --only flows=8 --fresh
      run these cells again; the records of the others stay
  sudo lull lab run 'kernel-*' --out results --seed 7 --json
      run several plans, and print the results as JSON
  lull lab run --simulated '*' --quick
      run all simulations, in minutes on any machine; --data names the folder of their logs
  lull lab run --prune --out report nice-fig3
      delete the records of earlier versions of the plan

Plans that load one of Lull's congestion controls into the kernel, or that use lull exec, need root and
BPF. Other plans over the emulator or a wire need no root where user namespaces are allowed. Simulations
need no privilege.

If the machine delays the emulator, the cell runs again, at most twice, and each time beside half as many
other cells. The run with the least delay is kept. With --quick, cells do not run again.

Recorded cells are not measured again after Lull was rebuilt. The run reports how many these are, and
--fresh runs them again.

The axes of a plan are in its file, and in the keys of the cells. The exit code is 1 if a cell or a plan
could not be run; the other plans run all the same. With --check, it is also 1 if a check is missed or has
no value. It is 2 for invalid plans and selections.";

/// Run experiments, and check their results
#[derive(Debug, clap::Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunArgs {
    /// Plans: names, or patterns with *
    #[arg(required_unless_present = "only", value_name = "PLAN")]
    plans: Vec<String>,
    /// Run only the quick subset of each plan
    #[arg(long)]
    quick: bool,
    /// Folder of records. An interrupted run continues with the records that are there
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,
    /// Seed of the first repetition
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Number of cells that run at once [default: depends on the machine]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Run only cells that need no kernel, and report the others
    #[arg(long)]
    simulated: bool,
    /// Only cells with these values: AXIS=VALUE, or AXIS=VALUE,VALUE. Quote a value that contains spaces; it may
    /// contain commas. Repeat the option for more values or axes
    #[arg(long, value_name = "AXIS=VALUE", num_args = 1..)]
    only: Vec<String>,
    /// Folder of data that simulations need, such as logs [default: shared/data beside the working folder or
    /// beside a parent of it]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Run recorded cells again
    #[arg(long)]
    fresh: bool,
    /// Delete records of cells that the plan no longer has, and old records of cells that ran again
    #[arg(long)]
    prune: bool,
    /// Exit with 1 if a check is missed, or has no value
    #[arg(long)]
    check: bool,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
    /// Folder of plans [default: ./plans, or the plans that are built in]
    #[arg(long = "plans", value_name = "DIR")]
    folder: Option<PathBuf>,
}

const LIST_EXAMPLES: &str = "\
Examples:
  lull lab list
      list all plans: cells, duration, and the paper's statement
  lull lab list 'kernel-*' 'fill-*'
      list some plans
  lull lab list --json nice-fig3 | jq '.plans[].quick_seconds'
      print the duration of the quick subset";

/// List the experiments
#[derive(Debug, clap::Args)]
#[command(after_help = LIST_EXAMPLES)]
pub(crate) struct ListArgs {
    /// Plans: names, or patterns with * [default: all]
    #[arg(value_name = "PLAN")]
    plans: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Folder of plans [default: ./plans, or the plans that are built in]
    #[arg(long = "plans", value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// Runs plans and shows the results.
pub(crate) fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    usage(try_run(&args))
}

/// Shows the plans.
pub(crate) fn list(args: ListArgs) -> anyhow::Result<ExitCode> {
    usage(try_list(&args))
}

/// An invalid plan or selection is reported on one line, with a separate exit code.
pub(crate) fn usage(result: anyhow::Result<ExitCode>) -> anyhow::Result<ExitCode> {
    match result {
        Err(error)
            if error.is::<PlanError>()
                || matches!(error.downcast_ref(), Some(RunError::Plan(_)))
                || matches!(error.downcast_ref(), Some(ReportError::Plan(_))) =>
        {
            crate::print_error(&error);
            Ok(ExitCode::from(crate::USAGE))
        }
        result => result,
    }
}

fn try_run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    // `--only rate=10mbit kernel-matrix`: an argument that selects nothing is a plan.
    let (only, more): (Vec<&String>, Vec<&String>) =
        args.only.iter().partition(|argument| argument.contains('='));
    let patterns: Vec<String> = args.plans.iter().chain(more).cloned().collect();
    if patterns.is_empty() {
        let text = "no plan is named: see 'lull lab list'".to_owned();
        return Err(PlanError::Selection(text).into());
    }
    let mut plans = PlanSet::open(args.folder.as_deref())?.find(&patterns, args.quick)?;
    let all = Selection::new(only.into_iter().map(String::as_str))?;
    let mut selection = all.clone();
    if args.simulated {
        selection = selection.simulated();
        plans = without_kernel(plans, &all, &selection, &patterns)?;
    }
    let runner = Runner {
        isolation: Isolation::Processes(crate::lull()?),
        out: args.out.clone(),
        seed: args.seed,
        jobs: args.jobs,
        selection,
        fresh: args.fresh,
        prune: args.prune,
        // A first look has to be quick.
        again: !args.quick,
        data: args.data.clone(),
        program: crate::program(),
    };
    let Shown { values, is_recorded, code } = run_all(args, &plans, &runner)?;
    if args.json {
        let text = serde_json::to_string_pretty(&json!({ "plans": values }))?;
        writeln!(io::stdout(), "{text}").context("cannot write")?;
    } else if is_recorded {
        let command = report_command(args, &patterns);
        writeln!(io::stdout(), "\nas a page: {command}").context("cannot write")?;
    }
    Ok(code)
}

/// The output for all plans.
struct Shown {
    /// With `--json`, the results of each plan.
    values: Vec<Value>,
    /// Whether a cell has been recorded.
    is_recorded: bool,
    code: ExitCode,
}

/// Runs plans one after the other, and shows the results of each as it ends.
fn run_all(args: &RunArgs, plans: &[Plan], runner: &Runner) -> anyhow::Result<Shown> {
    // Contradictory options are reported before anything runs.
    let previews = previews(plans, runner)?;
    let mut left: Duration = previews.iter().map(|preview| preview.time).sum();
    if plans.len() > 1 {
        let cells: usize = previews.iter().map(|preview| preview.cells).sum();
        let text = format!("{} plans: {}, about {}", plans.len(), count(cells), duration(left));
        // The run continues if the output is closed.
        let _ = writeln!(io::stderr(), "{text}");
    }
    let mut shown = Shown { values: Vec::new(), is_recorded: false, code: ExitCode::SUCCESS };
    let mut ran = BTreeSet::new();
    for (plan, preview) in plans.iter().zip(previews) {
        left = left.saturating_sub(preview.time);
        let progress = Progress::new(&plan.id, args.seed, left);
        // Of two plans with the same cells, the second uses those that the first one ran.
        let fresh = args.fresh && ran.insert(&plan.cells_of);
        let runner = Runner { fresh, ..runner.clone() };
        match run_one(plan, &runner, progress) {
            Ok(ran) => shown.add(args, plan, &ran)?,
            // The other plans can still run, and the results of the previous ones are kept.
            Err(error) => {
                shown.code = ExitCode::FAILURE;
                crate::print_error(&error);
                if args.json {
                    let error = format!("{error:#}");
                    let value = json!({ "id": plan.id, "title": plan.title, "error": error });
                    shown.values.push(value);
                }
            }
        }
    }
    Ok(shown)
}

impl Shown {
    fn add(&mut self, args: &RunArgs, plan: &Plan, ran: &PlanResult) -> anyhow::Result<()> {
        let PlanResult { outcome, results, drawn } = ran;
        let is_missed = results.verdicts.iter().any(Verdict::fails);
        if !outcome.failed.is_empty() || (args.check && is_missed) {
            self.code = ExitCode::FAILURE;
        }
        self.is_recorded |= !outcome.cells.is_empty();
        if args.json {
            let mut value = results_json(plan, outcome, results)?;
            value["plots"] = json!(drawn);
            self.values.push(value);
        } else {
            let mut text = Vec::new();
            table::write(&mut text, plan, outcome, results, drawn)?;
            io::stdout().write_all(&text).context("cannot write")?;
        }
        Ok(())
    }
}

/// The result of a plan.
struct PlanResult {
    outcome: Outcome,
    results: Results,
    /// The plots' files.
    drawn: Vec<PathBuf>,
}

fn run_one(plan: &Plan, runner: &Runner, mut progress: Progress) -> anyhow::Result<PlanResult> {
    let outcome = runner.run(plan, |event| progress.show(&event));
    progress.end();
    let outcome = outcome?;
    let results = judge_beside(plan, &outcome.cells, &outcome.others);
    let drawn = lull_lab::plot::draw(plan, &outcome.cells, &runner.out)?;
    Ok(PlanResult { outcome, results, drawn })
}

/// The plans that can run partly without a kernel; reports what that leaves out.
fn without_kernel(
    plans: Vec<Plan>,
    all: &Selection,
    simulated: &Selection,
    patterns: &[String],
) -> Result<Vec<Plan>, PlanError> {
    let mut kept = Vec::new();
    let mut without = Vec::new();
    for plan in plans {
        let (own, all) = (plan.cells(simulated, 1)?.len(), plan.cells(all, 1)?.len());
        if own == 0 {
            without.push(plan.id);
            continue;
        }
        if own < all {
            without.push(format!("{} of {} of {}", all - own, count(all), plan.id));
        }
        kept.push(plan);
    }
    if kept.is_empty() {
        let text = format!("'{}': each of these needs the kernel", patterns.join("', '"));
        return Err(PlanError::Selection(text));
    }
    if !without.is_empty() {
        let text = without.join(", ");
        let _ = writeln!(io::stderr(), "without cells that need the kernel: {text}");
    }
    Ok(kept)
}

/// The work of a run of each plan now.
fn previews(plans: &[Plan], runner: &Runner) -> Result<Vec<RunPreview>, PlanError> {
    let mut seen = BTreeSet::new();
    let mut previews = Vec::new();
    for plan in plans {
        let preview = match runner.preview(plan) {
            Ok(preview) => preview,
            Err(RunError::Plan(error)) => return Err(error),
            // It is reported when its turn comes.
            Err(_) => RunPreview::default(),
        };
        // Of two plans with the same cells, the first runs them.
        let is_first = seen.insert(&plan.cells_of);
        previews.push(if is_first { preview } else { RunPreview::default() });
    }
    Ok(previews)
}

/// The command that makes a page from the records of a run.
fn report_command(args: &RunArgs, patterns: &[String]) -> String {
    let mut words = vec!["lull lab report".to_owned(), quoted(&args.out.display().to_string())];
    words.extend(patterns.iter().map(|pattern| quoted(pattern)));
    words.extend(args.quick.then(|| "--quick".to_owned()));
    if let Some(folder) = &args.folder {
        words.extend(["--plans".to_owned(), quoted(&folder.display().to_string())]);
    }
    words.join(" ")
}

/// A word in the syntax of a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_=.,/:@%+".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

pub(crate) fn results_json(
    plan: &Plan,
    outcome: &Outcome,
    results: &Results,
) -> anyhow::Result<Value> {
    let mut value = serde_json::to_value(results)?;
    value["paper"] = serde_json::to_value(&plan.paper)?;
    value["record"] = json!(outcome.record);
    value["failed"] = serde_json::to_value(&outcome.failed)?;
    let cost = |cell: &CellRecord| {
        let (Some(simulation), Some(cost)) = (cell.simulation, cell.cost) else { return None };
        Some(json!({
            "key": cell.key,
            "events": simulation.events,
            "delivered_packets": simulation.delivered_packets,
            "wall_s": cost.wall_s,
            "cpu_s": cost.cpu_s,
            "memory_bytes_per_flow": cost.memory_bytes_per_flow,
        }))
    };
    let simulated: Vec<Value> = outcome.cells.iter().filter_map(cost).collect();
    if !simulated.is_empty() {
        value["simulated"] = json!(simulated);
    }
    value["header"] = serde_json::to_value(outcome.headers.last())?;
    let names: Vec<&str> = plan.metrics.iter().map(|metric| metric.name.as_str()).collect();
    value["metrics"] = json!(names);
    Ok(value)
}

fn try_list(args: &ListArgs) -> anyhow::Result<ExitCode> {
    let patterns = if args.plans.is_empty() { vec!["*".to_owned()] } else { args.plans.clone() };
    let plan_set = PlanSet::open(args.folder.as_deref())?;
    let plans = plan_set.find(&patterns, false)?.into_iter().zip(plan_set.find(&patterns, true)?);
    let budget = Budget::of_this_machine(None);
    let mut shown = Vec::new();
    let mut out = Vec::new();
    let mut totals = Totals::default();
    for (plan, quick) in plans {
        let cells = |plan: &Plan| plan.cells(&Selection::default(), 1);
        let (full, quick) = (cells(&plan)?, cells(&quick)?);
        let time = |cells: &[Cell]| run::estimate(cells.iter().map(|cell| &cell.scenario), &budget);
        let (time, quick_time) = (time(&full), time(&quick));
        let runs = runs_on(&full);
        totals.add(&plan, [(&full, false), (&quick, true)], &budget);
        if args.json {
            let mut value = plan.summary();
            value["about"] = json!(plan.about.trim());
            value["runs"] = json!(runs);
            value["cells"] = json!(full.len());
            value["seconds"] = json!(time.as_secs());
            value["quick_cells"] = json!(quick.len());
            value["quick_seconds"] = json!(quick_time.as_secs());
            shown.push(value);
            continue;
        }
        writeln!(out, "{}: {}", plan.id, plan.title)?;
        writeln!(
            out,
            "    {runs}; {}{}, about {}; --quick: {}, about {}",
            count(full.len()),
            if plan.cells_of == plan.id { String::new() } else { format!(" of {}", plan.cells_of) },
            duration(time),
            count(quick.len()),
            duration(quick_time)
        )?;
        writeln!(out, "    {}", plan.paper.source)?;
        if let Some(value) = &plan.paper.value {
            writeln!(out, "    {value}")?;
        }
    }
    if args.json {
        let value = json!({ "plans": shown, "total": totals.to_json() });
        out = serde_json::to_vec_pretty(&value)?;
        out.push(b'\n');
    } else if totals.plans > 1 {
        totals.write(&mut out)?;
    }
    io::stdout().write_all(&out).context("cannot write")?;
    Ok(ExitCode::SUCCESS)
}

/// The total cost of several plans. A cell of several plans counts once.
#[derive(Default)]
struct Totals {
    plans: usize,
    seen: BTreeSet<String>,
    /// Cells and their approximate time, one plan after the other: all of them in full and --quick, and those
    /// of them that need no kernel.
    sums: [(usize, Duration); 4],
}

impl Totals {
    fn add(&mut self, plan: &Plan, sets: [(&Vec<Cell>, bool); 2], budget: &Budget) {
        self.plans += 1;
        if !self.seen.insert(plan.cells_of.clone()) {
            return;
        }
        for (cells, is_quick) in sets {
            let all: Vec<_> = cells.iter().map(|cell| &cell.scenario).collect();
            let own = all.iter().copied().filter(|scenario| scenario.is_simulated()).collect();
            for (first, scenarios) in [(0, all), (2, own)] {
                let (count, time) = &mut self.sums[first + usize::from(is_quick)];
                *count += scenarios.len();
                *time += run::estimate(scenarios.into_iter(), budget);
            }
        }
    }

    fn to_json(&self) -> Value {
        let [full, quick, simulated, simulated_quick] =
            self.sums.map(|(cells, time)| json!({ "cells": cells, "seconds": time.as_secs() }));
        json!({
            "plans": self.plans,
            "full": full,
            "quick": quick,
            "simulated": simulated,
            "simulated_quick": simulated_quick,
        })
    }

    fn write(&self, out: &mut Vec<u8>) -> io::Result<()> {
        let told = |at: usize| {
            let (cells, time) = self.sums[at];
            format!("{}, about {}", count(cells), duration(time))
        };
        writeln!(out, "all {} plans: {}; --quick: {}", self.plans, told(0), told(1))?;
        writeln!(out, "    of that --simulated: {}; --quick: {}", told(2), told(3))
    }
}

/// The place where cells run.
fn runs_on(cells: &[Cell]) -> &'static str {
    let has = |is: fn(&Network) -> bool| cells.iter().any(|cell| is(&cell.scenario.topology));
    let simulated = has(|network| matches!(network, Network::Simulated(_)));
    let emulated = has(|network| matches!(network, Network::Emulated(_)));
    let is_none = |cell: &Cell| matches!(cell.scenario.topology, Network::None { .. });
    if !cells.is_empty() && cells.iter().all(is_none) {
        return "programs that need no network";
    }
    match (simulated, emulated) {
        (true, false) => "packet simulator",
        (true, true) => "packet simulator, and real kernel over the emulator",
        (false, true) => "real kernel over the emulator",
        (false, false) => "real kernel over a wire",
    }
}

/// Runs the cell from standard input, and writes its record to standard output: what [`Isolation::Processes`]
/// starts.
pub(crate) fn cell() -> anyhow::Result<ExitCode> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text).context("standard input cannot be read")?;
    let order: run::Order = serde_json::from_str(&text).context(
        "standard input does not describe \
                                                                 a cell",
    )?;
    order.take_place();
    let work = |environment: &CellEnvironment<'_>| -> anyhow::Result<()> {
        let record = run::run_cell(&order, environment, &mut ())?;
        let text = serde_json::to_string(&record)?;
        writeln!(io::stdout(), "{text}").context("cannot write")
    };
    if order.is_simulated() {
        // It makes nothing that has to be removed, but takes a processor.
        run::end_with_parent_thread();
        work(&CellEnvironment::shared())?;
        return Ok(ExitCode::SUCCESS);
    }
    let code = run::alone(&[], |environment| match work(environment) {
        Ok(()) => 0,
        Err(error) => {
            crate::print_error(&error);
            1
        }
    })?;
    Ok(ExitCode::from(code))
}
