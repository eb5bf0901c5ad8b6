//! The `lull` command: parses arguments and prints, nothing else.

mod doctor;
mod durable;
mod emulate;
mod exec;
mod jobs;
mod kernel;
mod lab;
mod origin;
mod predict;
mod publish;
#[cfg(test)]
mod reference;
mod replica;
mod web;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

const EXAMPLES: &str = "\
Examples:
  sudo lull exec -- rsync -a /data host:/backup
      a backup that nobody notices, as yourself
  sudo lull exec --pid 1234
      the same for a process that runs already
  sudo lull doctor
      whether this machine can do that, and what to do if not
  lull web --upstream http://127.0.0.1:8080 --listen 0.0.0.0:80
      stand in front of a web site
  lull publish public --origin /var/lib/lull/origin
      the same files everywhere, at once
  sudo lull lab demo
      see a download that does not notice an rsync, in 80 seconds";

const LAB_EXAMPLES: &str = "\
Examples:
  sudo lull lab demo
      see a download that does not notice an rsync, in 80 seconds
  lull lab emulate --rate 5mbit --rtt 40ms
      a shell behind a slow line of your making
  lull lab list 'nice-*'
      the experiments of the paper on Nice, and what they cost
  sudo lull lab run kernel-matrix --quick
      one of them, a first look
  lull lab report out
      what the runs have shown, as a page
  lull lab score bulk requests
      score background congestion control on two groups of simulations
  lull lab speed writes
      how many durable writes a second an origin acknowledges in time on this machine
  sudo lull lab torture
      break everything around origin and replicas for a minute, and look whether they keep their promises";

/// Traffic in the background that nobody notices.
#[derive(Debug, Parser)]
#[command(name = "lull", version = env!("LULL_VERSION"), after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Doctor(doctor::Args),
    Exec(exec::Args),
    Jobs(jobs::Args),
    Kernel(kernel::Args),
    /// Emulate links and run experiments
    #[command(subcommand, after_help = LAB_EXAMPLES)]
    Lab(Lab),
    /// Run the place where files are written that many places have
    #[command(subcommand, after_help = origin::EXAMPLES)]
    Origin(origin::Command),
    /// Learn from access logs what visitors may want next
    #[command(subcommand, after_help = predict::EXAMPLES)]
    Predict(predict::Command),
    Publish(publish::PublishArgs),
    /// Run a place that has the origin's files
    #[command(subcommand, after_help = replica::EXAMPLES)]
    Replica(replica::Command),
    Rollback(publish::RollbackArgs),
    Status(publish::StatusArgs),
    // It holds far more options than the others.
    Web(Box<web::Args>),
}

#[derive(Debug, clap::Subcommand)]
enum Lab {
    // It holds far more options than the others.
    Emulate(Box<emulate::Args>),
    Run(lab::RunArgs),
    List(lab::ListArgs),
    Report(lab::ReportArgs),
    Demo(lab::DemoArgs),
    // It holds far more options than the others.
    Replay(Box<lab::ReplayArgs>),
    Documents(lab::DocumentsArgs),
    Learn(lab::LearnArgs),
    // It holds far more options than the others.
    Replicate(Box<lab::ReplicateArgs>),
    // It holds far more options than the others.
    Readers(Box<lab::ReadersArgs>),
    // It holds far more options than the others.
    Edits(Box<lab::EditsArgs>),
    Score(lab::ScoreArgs),
    /// See how fast origin and replicas are on this machine
    #[command(subcommand, after_help = lab::SPEED_EXAMPLES)]
    Speed(lab::SpeedCommand),
    Torture(lab::TortureArgs),
    /// Run one cell; what `lull lab run` starts
    #[command(hide = true)]
    Cell,
}

/// The exit code for arguments that make no sense.
const USAGE: u8 = 2;

/// What ends a program whose output is not read (signal(7)). It has this number on all of Linux.
const SIGPIPE: i32 = 13;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return explain(&error),
    };
    let result = match cli.command {
        Command::Doctor(args) => doctor::run(&args),
        Command::Exec(args) => exec::run(args),
        Command::Jobs(args) => jobs::run(args),
        Command::Kernel(args) => kernel::run(args),
        Command::Lab(Lab::Emulate(args)) => emulate::run(*args),
        Command::Lab(Lab::Run(args)) => lab::run(args),
        Command::Lab(Lab::List(args)) => lab::list(args),
        Command::Lab(Lab::Report(args)) => lab::report(args),
        Command::Lab(Lab::Demo(args)) => lab::demo(args),
        Command::Lab(Lab::Replay(args)) => lab::replay(&args),
        Command::Lab(Lab::Documents(args)) => lab::documents(&args),
        Command::Lab(Lab::Learn(args)) => lab::learn(&args),
        Command::Lab(Lab::Replicate(args)) => lab::replicate(&args),
        Command::Lab(Lab::Readers(args)) => lab::readers(&args),
        Command::Lab(Lab::Edits(args)) => lab::edits(&args),
        Command::Lab(Lab::Score(args)) => lab::score(args),
        Command::Lab(Lab::Speed(command)) => lab::speed(command),
        Command::Lab(Lab::Torture(args)) => lab::torture(&args),
        Command::Lab(Lab::Cell) => lab::cell(),
        Command::Origin(command) => origin::run(command),
        Command::Predict(command) => predict::run(command),
        Command::Publish(args) => publish::publish(args),
        Command::Replica(command) => replica::run(command),
        Command::Rollback(args) => publish::rollback(args),
        Command::Status(args) => publish::status(args),
        Command::Web(args) => web::run(*args),
    };
    result.unwrap_or_else(|error| {
        complain(&error);
        ExitCode::FAILURE
    })
}

/// What is wrong with arguments that are right by themselves.
#[derive(Debug)]
struct Misuse(String);

impl std::error::Error for Misuse {}

impl std::fmt::Display for Misuse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether standard output has no reader any more, as in `lull kernel status | head -1`.
fn is_broken_output(error: &anyhow::Error) -> bool {
    let cause = error.root_cause().downcast_ref::<std::io::Error>();
    error.to_string() == "cannot write"
        && cause.is_some_and(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Says what went wrong on one line.
fn complain(error: &anyhow::Error) {
    if is_broken_output(error) {
        // As other programs end there, without a word.
        lull_kernel::die_by(SIGPIPE);
    }
    // Some messages quote their cause: it is said once.
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    eprintln!("lull: {text}");
}

/// Prints help, or what is wrong with the arguments on one line.
fn explain(error: &clap::Error) -> ExitCode {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    ) {
        let _ = error.print();
        return ExitCode::from(error.exit_code().try_into().unwrap_or(USAGE));
    }
    let path = command_path(arguments().into_iter());
    eprintln!("lull: {} (see '{} --help')", one_line(&error.to_string()), path.join(" "));
    let command = path.get(1).map(String::as_str);
    // A wrapper keeps the program's exit codes free.
    ExitCode::from(if command == Some("exec") { exec::USAGE } else { USAGE })
}

/// The program's arguments to be shown: those that are no UTF-8 as near to it as can be.
fn arguments() -> Vec<String> {
    std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect()
}

/// This program as it was called, for the records that it makes.
fn program() -> lull_lab::record::Program {
    lull_lab::record::Program {
        arguments: arguments(),
        commit: Some(env!("LULL_COMMIT").to_owned()).filter(|commit| !commit.is_empty()),
    }
}

/// The command that the arguments lead to, as far as there is one: `lull kernel load`.
fn command_path(arguments: impl Iterator<Item = String>) -> Vec<String> {
    let mut command = &Cli::command();
    let mut path = vec![command.get_name().to_owned()];
    for argument in arguments {
        let Some(inner) = command.find_subcommand(&argument) else { break };
        path.push(argument);
        command = inner;
    }
    path
}

/// The lines of clap's message down to its usage, as one; its tips as further clauses.
fn one_line(message: &str) -> String {
    let mut text = String::new();
    for line in message
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"))
        .filter(|line| !line.is_empty())
    {
        let (separator, line) = match line.strip_prefix("tip: ") {
            Some(tip) => ("; ", tip),
            None => (" ", line),
        };
        if !text.is_empty() {
            text.push_str(separator);
        }
        text.push_str(line);
    }
    text.trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    /// The commands that are shown, each with the words that lead to it.
    fn commands(command: clap::Command, before: &str) -> Vec<(String, clap::Command)> {
        let path = format!("{before} {}", command.get_name()).trim_start().to_owned();
        let inner: Vec<clap::Command> =
            command.get_subcommands().filter(|inner| !inner.is_hide_set()).cloned().collect();
        let below = inner.into_iter().flat_map(|inner| commands(inner, &path));
        [(path.clone(), command)].into_iter().chain(below).collect()
    }

    /// The words of a line of shell, up to a pipe.
    fn words_of(line: &str) -> Vec<String> {
        let mut words = vec![String::new()];
        let mut quote = None;
        for c in line.chars() {
            match (quote, c) {
                (None, '\'' | '"') => quote = Some(c),
                (Some(open), _) if c == open => quote = None,
                (None, '|') => break,
                (None, ' ') => words.push(String::new()),
                _ => words.last_mut().expect("there is one").push(c),
            }
        }
        // What the shell puts in where it runs a command is a number here.
        let word = |word: String| if word.starts_with("$(") { "1".to_owned() } else { word };
        words.into_iter().filter(|word| !word.is_empty()).map(word).collect()
    }

    #[test]
    fn the_help_of_each_command_has_examples_that_it_understands() {
        let all = commands(Cli::command(), "");
        let paths: Vec<&str> = all.iter().map(|(path, _)| path.as_str()).collect();
        for known in ["lull", "lull exec", "lull kernel unload", "lull lab demo"] {
            assert!(paths.contains(&known), "{paths:?}");
        }
        for (path, mut command) in all {
            let help = command.render_long_help().to_string();
            let (_, examples) =
                help.split_once("\nExamples:\n").unwrap_or_else(|| panic!("{path}: {help}"));
            // As a shell does: a line that ends with a backslash goes on in the next.
            let examples = examples.replace(" \\\n     ", "");
            let lines = examples.lines().filter_map(|line| line.strip_prefix("  "));
            let calls: Vec<&str> = lines
                .map(|line| line.strip_prefix("sudo ").unwrap_or(line))
                .filter(|line| line.starts_with("lull "))
                .collect();
            assert!(!calls.is_empty(), "{path}: {examples}");
            for call in calls {
                assert!(call.starts_with(&path), "{path}: {call}");
                let parsed = Cli::try_parse_from(words_of(call));
                assert!(parsed.is_ok(), "{path}: {call}: {}", parsed.unwrap_err());
            }
        }
    }

    #[test]
    fn the_help_of_what_replicates_says_what_its_exit_codes_mean() {
        let of = |path: &str| {
            let first = path.split(' ').nth(1);
            first.is_some_and(|first| {
                ["origin", "publish", "replica", "rollback", "status"].contains(&first)
            })
        };
        let all = commands(Cli::command(), "").into_iter();
        let these: Vec<_> = all.filter(|(path, _)| of(path)).collect();
        assert_eq!(these.len(), 12);
        for (path, mut command) in these {
            let help = command.render_long_help().to_string().replace('\n', " ");
            for words in ["The exit code is ", "2 if the arguments make no sense"] {
                assert!(help.contains(words), "no '{words}' in {path}: {help}");
            }
            let waits = ["lull publish", "lull rollback"].contains(&&*path);
            assert_eq!(help.contains("and 3 if the state is made"), waits, "{path}");
        }
    }

    #[test]
    fn a_message_of_clap_becomes_one_line() {
        let error = Cli::try_parse_from(["lull", "exec", "--dscp", "ef", "true"]).unwrap_err();
        assert_eq!(
            one_line(&error.to_string()),
            "invalid value 'ef' for '--dscp <DSCP>': it is le or none"
        );
        let error = Cli::try_parse_from(["lull", "exec", "--bogus", "true"]).unwrap_err();
        assert_eq!(
            one_line(&error.to_string()),
            "unexpected argument '--bogus' found; to pass '--bogus' as a value, use '-- --bogus'"
        );
    }

    #[test]
    fn help_is_pointed_to_where_there_is_some() {
        for (arguments, path) in [
            (&["kernel", "load", "--bogus"][..], "lull kernel load"),
            (&["kernel", "bogus"], "lull kernel"),
            (&["predict", "eval", "--split", "2"], "lull predict eval"),
            (&["lab", "emulate", "--", "exec"], "lull lab emulate"),
            (&["exec", "--bogus", "kernel"], "lull exec"),
            (&["bogus"], "lull"),
            (&["--bogus", "kernel"], "lull"),
        ] {
            let found = command_path(arguments.iter().map(|&argument| argument.to_owned()));
            assert_eq!(found.join(" "), path);
        }
    }
}
