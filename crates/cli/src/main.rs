//! The `lull` command: parses arguments and prints, nothing else.

mod emulate;
mod exec;
mod kernel;
mod lab;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

/// Traffic in the background that nobody notices.
#[derive(Debug, Parser)]
#[command(name = "lull", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Exec(exec::Args),
    Kernel(kernel::Args),
    /// Emulate links and run experiments
    #[command(subcommand)]
    Lab(Lab),
}

#[derive(Debug, clap::Subcommand)]
enum Lab {
    // It holds far more options than the others.
    Emulate(Box<emulate::Args>),
    Run(lab::RunArgs),
    List(lab::ListArgs),
    Demo(lab::DemoArgs),
    /// Run one cell; what `lull lab run` starts
    #[command(hide = true)]
    Cell,
}

/// The exit code for arguments that make no sense.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return explain(&error),
    };
    let result = match cli.command {
        Command::Exec(args) => exec::run(args),
        Command::Kernel(args) => kernel::run(args),
        Command::Lab(Lab::Emulate(args)) => emulate::run(*args),
        Command::Lab(Lab::Run(args)) => lab::run(args),
        Command::Lab(Lab::List(args)) => lab::list(args),
        Command::Lab(Lab::Demo(args)) => lab::demo(&args),
        Command::Lab(Lab::Cell) => lab::cell(),
    };
    result.unwrap_or_else(|error| {
        complain(&error);
        ExitCode::FAILURE
    })
}

/// Says what went wrong on one line.
fn complain(error: &anyhow::Error) {
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
    let command = std::env::args().nth(1).filter(|name| !name.starts_with('-'));
    eprintln!(
        "lull: {} (see 'lull {}--help')",
        one_line(&error.to_string()),
        command.as_ref().map_or(String::new(), |name| format!("{name} "))
    );
    // A wrapper keeps the program's exit codes free.
    ExitCode::from(if command.as_deref() == Some("exec") { exec::USAGE } else { USAGE })
}

/// The lines of clap's message down to its usage, as one.
fn one_line(message: &str) -> String {
    let lines: Vec<&str> = message
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"))
        .filter(|line| !line.is_empty())
        .collect();
    lines.join(" ").trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn a_message_of_clap_becomes_one_line() {
        let error = Cli::try_parse_from(["lull", "exec", "--dscp", "ef", "true"]).unwrap_err();
        assert_eq!(
            one_line(&error.to_string()),
            "invalid value 'ef' for '--dscp <DSCP>': it is le or none"
        );
    }
}
