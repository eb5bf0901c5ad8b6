//! `lull lab`: forwards to the program `lull-lab`, which is beside this one.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  lull lab --help
      list the commands for research
  sudo lull lab demo
      watch a download beside a background rsync, in a minute";

/// Emulate links and run experiments
///
/// Runs the program lull-lab, which must be in the same folder as lull. 'lull lab --help' lists its commands.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, disable_help_flag = true)]
pub(crate) struct Args {
    /// A command of lull-lab and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    pub(crate) arguments: Vec<OsString>,
}

const DEMO_EXAMPLES: &str = "\
Examples:
  sudo lull demo
      watch a download beside a backup on an emulated link of 10 Mbit/s, with a plot at the end
  sudo lull demo --link 50mbit --rtt 20
      the same on a link like yours";

/// Show the effect of 'lull exec' on an emulated link, in a minute
///
/// Runs 'lull-lab demo', which must be in the same folder as lull: it makes a link between network namespaces, so
/// nothing leaves this machine. 'lull demo --help' lists its options. Needs root and rsync.
#[derive(Debug, clap::Args)]
#[command(after_help = DEMO_EXAMPLES, disable_help_flag = true)]
pub(crate) struct DemoArgs {
    /// Options of lull-lab demo
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    pub(crate) arguments: Vec<OsString>,
}

/// The arguments of lull-lab for `lull lab` and `lull demo`; none if this is another command. They are taken as they
/// are, so that lull-lab sees each `--`.
pub(crate) fn forwarded(mut arguments: impl Iterator<Item = OsString>) -> Option<Vec<OsString>> {
    let command = arguments.nth(1)?;
    let own = (command == "demo").then(|| command.clone());
    (command == "lab" || own.is_some()).then(|| own.into_iter().chain(arguments).collect())
}

/// Becomes the program lull-lab. Returns only if it cannot be run.
pub(crate) fn forward(arguments: Vec<OsString>) -> ExitCode {
    let program = match std::env::current_exe() {
        Ok(own) => own.with_file_name("lull-lab"),
        Err(error) => {
            eprintln!("lull: cannot find the folder of this program, where lull-lab is: {error}");
            return ExitCode::FAILURE;
        }
    };
    let error = std::process::Command::new(&program).args(arguments).exec();
    eprintln!(
        "lull: {} cannot be run: {error}; 'cargo install --path crates/cli' builds it, then copy it there",
        program.display()
    );
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forwarded_words(line: &str) -> Option<Vec<String>> {
        let arguments = forwarded(line.split(' ').map(OsString::from))?;
        Some(arguments.into_iter().map(|word| word.into_string().unwrap()).collect())
    }

    #[test]
    fn lab_arguments_are_forwarded_unchanged() {
        assert_eq!(forwarded_words("lull exec -- lab"), None);
        assert_eq!(forwarded_words("lull"), None);
        assert_eq!(forwarded_words("lull lab").unwrap(), [""; 0]);
        assert_eq!(forwarded_words("lull demo --link 5mbit").unwrap(), ["demo", "--link", "5mbit"]);
        let all = forwarded_words("lull lab emulate --rate 5mbit -- sh -- -c").unwrap();
        assert_eq!(all, ["emulate", "--rate", "5mbit", "--", "sh", "--", "-c"]);
        assert_eq!(forwarded_words("lull lab --help").unwrap(), ["--help"]);
    }
}
