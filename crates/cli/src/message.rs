//! Messages on standard error, and the exit codes of wrong arguments.

use std::process::ExitCode;

use clap::error::ErrorKind;

/// The exit code for wrong arguments.
pub const USAGE: u8 = 2;

/// The signal that ends a program whose output is not read (signal(7)). It has this number on all of Linux.
const SIGPIPE: i32 = 13;

/// An error in arguments that are valid individually, but not together.
#[derive(Debug)]
pub struct UsageError(pub String);

impl std::error::Error for UsageError {}

impl std::fmt::Display for UsageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether standard output has lost its reader, as in `lull kernel status | head -1`.
fn is_broken_output(error: &anyhow::Error) -> bool {
    let cause = error.root_cause().downcast_ref::<std::io::Error>();
    error.to_string() == "cannot write"
        && cause.is_some_and(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Prints an error with its causes on one line of standard error.
pub fn print_error(error: &anyhow::Error) {
    if is_broken_output(error) {
        // Other programs end silently here.
        lull_kernel::die_by(SIGPIPE);
    }
    // Some messages quote their cause, which is then not repeated.
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    eprintln!("lull: {text}");
}

/// Runs a command. A [`UsageError`] is printed, and becomes the exit code [`USAGE`].
///
/// # Errors
/// The other errors of `work`.
pub fn usage_error(work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<ExitCode> {
    match work() {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) if error.is::<UsageError>() => {
            print_error(&error);
            Ok(ExitCode::from(USAGE))
        }
        Err(error) => Err(error),
    }
}

/// The program's arguments as text. Bytes that are not UTF-8 become replacement characters.
pub fn arguments() -> Vec<String> {
    std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect()
}

/// Prints help, or one line about wrong arguments. `root` is the command of the program; returns the exit code.
pub fn explain(error: &clap::Error, root: &clap::Command) -> u8 {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    ) {
        let _ = error.print();
        return error.exit_code().try_into().unwrap_or(USAGE);
    }
    let path = command_path(root, arguments().into_iter());
    eprintln!("lull: {} (see '{} --help')", one_line(&error.to_string()), path.join(" "));
    USAGE
}

/// The longest command that the arguments name, as words: `lull`, `kernel`, `load`.
pub fn command_path(root: &clap::Command, arguments: impl Iterator<Item = String>) -> Vec<String> {
    let mut command = root;
    let mut path = vec![command.get_name().to_owned()];
    for argument in arguments {
        let Some(inner) = command.find_subcommand(&argument) else { break };
        path.push(argument);
        command = inner;
    }
    path
}

/// Joins the lines of clap's message above its usage into one line, with its tips as clauses.
pub fn one_line(message: &str) -> String {
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
