//! The program `lull-lab`, which `lull lab` runs: commands for research. Parses arguments and prints.

mod demo;
mod distribute;
mod documents;
mod edits;
mod emulate;
mod experiments;
mod learn;
mod progress;
mod readers;
mod replay;
mod replicate;
mod report;
mod score;
mod section;
mod speed;
mod table;
mod torture;
mod values;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{CommandFactory, Parser};
use lull_cli::message::{USAGE, UsageError, arguments, explain, print_error};

const EXAMPLES: &str = "\
Examples:
  sudo lull lab demo
      watch a download beside a background rsync, in a minute
  lull lab emulate --rate 5mbit --rtt 40ms
      open a shell behind an emulated slow line
  lull lab list 'nice-*'
      list the experiments of the paper on TCP Nice, and how long they take
  sudo lull lab run kernel-matrix --quick
      run a subset of an experiment
  lull lab report out
      draw the results of the runs as a page
  lull lab score bulk requests
      score background congestion control on two groups of simulations
  lull lab speed writes
      measure how many durable writes per second an origin acknowledges in time
  sudo lull lab torture
      break networks, disks and processes around an origin for a minute, and check its guarantees";

/// Emulate links and run experiments
#[derive(Debug, Parser)]
#[command(name = "lull lab", bin_name = "lull lab", version = env!("LULL_VERSION"), after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Emulate(Box<emulate::Args>),
    Run(experiments::RunArgs),
    List(experiments::ListArgs),
    Report(report::ReportArgs),
    Demo(demo::DemoArgs),
    Replay(Box<replay::ReplayArgs>),
    Documents(documents::DocumentsArgs),
    Learn(learn::LearnArgs),
    Replicate(Box<replicate::ReplicateArgs>),
    Distribute(distribute::DistributeArgs),
    Readers(Box<readers::ReadersArgs>),
    // It holds far more options than the others.
    Edits(Box<edits::EditsArgs>),
    Score(score::ScoreArgs),
    /// Measure the speed of an origin and its replicas on this machine
    #[command(subcommand, after_help = speed::EXAMPLES)]
    Speed(speed::Command),
    Torture(torture::TortureArgs),
    /// Run one cell, which standard input describes; `lull lab run` starts it
    #[command(hide = true)]
    Cell,
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return ExitCode::from(explain(&error, &Cli::command())),
    };
    // Libraries log errors that they meet in the process that they start.
    if let Err(error) = lull_cli::log::start(std::io::stderr) {
        print_error(&error);
        return ExitCode::FAILURE;
    }
    let result = match cli.command {
        Command::Emulate(args) => emulate::run(*args),
        Command::Run(args) => experiments::run(args),
        Command::List(args) => experiments::list(args),
        Command::Report(args) => report::report(args),
        Command::Demo(args) => demo::demo(args),
        Command::Replay(args) => replay::replay(&args),
        Command::Documents(args) => documents::documents(&args),
        Command::Learn(args) => learn::learn(&args),
        Command::Replicate(args) => replicate::replicate(&args),
        Command::Distribute(args) => distribute::distribute(&args),
        Command::Readers(args) => readers::readers(&args),
        Command::Edits(args) => edits::edits(&args),
        Command::Score(args) => score::score(args),
        Command::Speed(command) => speed::speed(command),
        Command::Torture(args) => torture::torture(&args),
        Command::Cell => experiments::cell(),
    };
    result.unwrap_or_else(|error| {
        print_error(&error);
        ExitCode::FAILURE
    })
}

/// This program and its arguments, for records. Users call it as `lull lab`.
fn program() -> lull_emulator::provenance::Program {
    lull_emulator::provenance::Program {
        arguments: ["lab".to_owned()].into_iter().chain(arguments()).collect(),
        commit: Some(env!("LULL_COMMIT").to_owned()).filter(|commit| !commit.is_empty()),
    }
}

/// The program `lull`, which is beside this one.
fn lull() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find the folder of this program")?;
    let lull = own.with_file_name("lull");
    if !lull.is_file() {
        bail!("{} is missing: copy the program lull there", lull.display());
    }
    Ok(lull)
}

#[cfg(test)]
mod tests {
    use lull_cli::help::errors_in_examples;
    use lull_cli::message::command_path;

    use super::*;

    #[test]
    fn arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn examples_in_help_are_understood() {
        assert_eq!(errors_in_examples(&Cli::command()), [""; 0]);
    }

    #[test]
    fn earlier_option_names_still_work() {
        for (command, earlier, now) in [
            ("replicate access.log", "--letter", "--paper-exact"),
            ("score", "--held-out", "--validation-cells"),
            ("readers --into files access.log", "--waits 2s", "--slow-read-threshold 2s"),
            ("replay --to http://[::1]:80 access.log", "--among 7", "--spread-over-clients 7"),
        ] {
            let parsed = |option: &str| {
                let line = format!("lab {command} {option}");
                Cli::command().try_get_matches_from(line.split(' ')).unwrap()
            };
            assert_eq!(parsed(earlier), parsed(now), "{earlier}");
        }
    }

    #[test]
    fn reference_of_commands_is_current() {
        let about = "All commands of `lull lab`, with all options, as `--help` shows them. The program `lull-lab` \
                     runs them; it must be in the same folder as `lull`.";
        let page = lull_cli::reference::page(Cli::command(), "Commands for research", about);
        lull_testing::assert_generated("docs/reference/lab.md", &page);
    }

    #[test]
    fn help_hint_names_the_command() {
        let words = ["emulate", "--", "exec"].map(str::to_owned).into_iter();
        assert_eq!(command_path(&Cli::command(), words).join(" "), "lull lab emulate");
    }
}
