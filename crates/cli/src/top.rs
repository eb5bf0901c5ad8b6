//! `lull top`: the background of this machine, live.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use lull_cli::arguments::seconds;
use lull_kernel::{Scope, read_background};
use lull_monitor::{Grouping, Model, Palette, Sort, Table, View, render, watch};

const EXAMPLES: &str = "\
Examples:
  sudo lull top
      watch the background connections; q quits
  lull top
      the same as a member of the group of 'lull kernel serve': other users' addresses are hidden
  sudo lull top --jobs --sort bytes
      one line per job, most bytes first
  sudo lull top --once --filter backup
      print the connections of the job 'backup' over one second, and end
  sudo lull top --once --json | jq '.connections[] | {job, peer, bytes_per_second}'
      print JSON; rates are in bytes per second, times in microseconds
  sudo lull top --json --interval 10 | tee -a background.jsonl
      append a line of JSON every 10 seconds";

/// Watch the background connections of this machine
///
/// Shows job, process, remote address, direction, rate, window in packets, queueing delay (round-trip time above that
/// of the empty path), state (use, yield, start, idle, pause), bytes so far, share of the spare capacity, and the rate
/// of this host's foreground ('fg') to the same network. Rates are in bit/s: 9.42M is 9.42 Mbit/s. A '-' is a value
/// that the congestion control does not have or that this user must not see.
///
/// Keys: s sorts by the next column, r reverses, / filters, p pauses, j switches between jobs and connections, arrows
/// scroll, q quits. NO_COLOR=1 disables colours.
///
/// Needs root to show everything. Other users see jobs, and with a running 'lull kernel serve' also connections. The
/// exit code is 0 on success, 1 on failure, and 2 if the arguments are wrong.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Print the table once, over one interval, and end
    #[arg(long)]
    once: bool,
    /// Print JSON instead of a table: one line per interval
    #[arg(long)]
    json: bool,
    /// Show one line per job instead of one per connection
    #[arg(long)]
    jobs: bool,
    /// Seconds between two readings
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,
    /// Order of the lines
    #[arg(long, value_enum, default_value_t = By::Rate)]
    sort: By,
    /// Show lines with this text only, in job, process, address, direction or state
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    filter: String,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum By {
    Rate,
    Bytes,
    Delay,
    Window,
    Job,
    Process,
    Peer,
}

impl By {
    fn sort(self) -> Sort {
        match self {
            By::Rate => Sort::Rate,
            By::Bytes => Sort::Bytes,
            By::Delay => Sort::Delay,
            By::Window => Sort::Window,
            By::Job => Sort::Job,
            By::Process => Sort::Process,
            By::Peer => Sort::Peer,
        }
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let grouping = if args.jobs { Grouping::Jobs } else { Grouping::Connections };
    let table = Table::new(grouping, args.sort.sort(), args.filter.clone());
    if args.once || args.json {
        print(&args, &table)?;
    } else if io::stdout().is_terminal() && io::stdin().is_terminal() {
        watch(table, palette(), args.interval, || read_background().map_err(anyhow::Error::from))?;
    } else {
        let text = "lull top needs a terminal: use --once or --json";
        return Err(anyhow::anyhow!(text));
    }
    Ok(ExitCode::SUCCESS)
}

/// <https://no-color.org>: any text but the empty one.
fn palette() -> Palette {
    match std::env::var_os("NO_COLOR").is_some_and(|text| !text.is_empty()) {
        true => Palette::Plain,
        false => Palette::Colour,
    }
}

fn print(args: &Args, table: &Table) -> anyhow::Result<()> {
    let mut model = Model::default();
    model.handle_snapshot(read_background()?);
    loop {
        thread::sleep(args.interval);
        let view = model.handle_snapshot(read_background()?);
        let text = if args.json { as_json(&view, table) } else { as_table(&view, table) };
        io::stdout().write_all(text.as_bytes()).context("cannot write")?;
        if args.once {
            return Ok(());
        }
    }
}

fn as_json(view: &View, table: &Table) -> String {
    let mut shown = view.clone();
    let rows = |grouping| table.grouped(grouping).rows(view).into_iter().cloned().collect();
    shown.connections = rows(Grouping::Connections);
    shown.jobs = rows(Grouping::Jobs);
    serde_json::to_string(&shown).expect("it has text keys only") + "\n"
}

fn as_table(view: &View, table: &Table) -> String {
    let note = match view.scope {
        Scope::Jobs => "connections need root, or a running 'lull kernel serve'\n",
        Scope::All | Scope::User => "",
    };
    render(view, table, width()) + note
}

/// Columns of the terminal, or enough for an IPv4 address with its port.
fn width() -> u16 {
    let columns = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let terminal = || io::stdout().is_terminal().then(lull_monitor::width).flatten();
    columns.or_else(terminal).unwrap_or(100)
}
