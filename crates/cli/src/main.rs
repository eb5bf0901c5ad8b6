//! The program `lull`: parses arguments and prints.

mod doctor;
mod exec;
mod exporter;
mod fetch;
mod generate;
mod jobs;
mod kernel;
mod lab;
mod origin;
mod predict;
mod publish;
mod replica;
mod top;
mod try_link;
mod web;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use lull_cli::message::{USAGE, UsageError, command_path, explain, print_error};

const EXAMPLES: &str = "\
Examples:
  sudo lull exec -- rsync -a /data host:/backup
      run a backup in the background, as yourself
  sudo lull exec --pid 1234
      move a running process into the background
  sudo lull top
      watch the background connections of this machine
  sudo lull doctor
      check whether this machine can run programs in the background
  lull try backup.example.org
      show what an upload to a host of your own does to your link, with and without Lull
  lull web --upstream http://127.0.0.1:8080 --listen 0.0.0.0:80
      put the prefetching proxy in front of a web server
  lull publish public --origin /var/lib/lull/origin
      publish a folder to all replicas
  sudo lull demo
      watch a download beside a background rsync, in a minute";

/// Background traffic that does not slow other traffic
#[derive(Debug, Parser)]
#[command(name = "lull", version = env!("LULL_VERSION"), after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Completions(generate::Completions),
    Demo(lab::DemoArgs),
    Doctor(doctor::Args),
    Exec(exec::Args),
    Exporter(exporter::Args),
    Fetch(fetch::Args),
    Jobs(jobs::Args),
    Kernel(kernel::Args),
    Lab(lab::Args),
    #[command(hide = true)]
    ManualPages(generate::ManualPages),
    /// Run an origin server: the single place where replicated files are written
    #[command(subcommand, after_help = origin::EXAMPLES)]
    Origin(origin::Command),
    /// Learn from access logs which pages visitors request next
    #[command(subcommand, after_help = predict::EXAMPLES)]
    Predict(predict::Command),
    Publish(publish::PublishArgs),
    /// Run a replica: a server with a copy of the origin's files
    #[command(subcommand, after_help = replica::EXAMPLES)]
    Replica(replica::Command),
    Rollback(publish::RollbackArgs),
    Status(publish::StatusArgs),
    Top(top::Args),
    Try(try_link::Args),
    // It holds far more options than the others.
    Web(Box<web::Args>),
}

fn main() -> ExitCode {
    if let Some(arguments) = lab::forwarded(std::env::args_os()) {
        return lab::forward(arguments);
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let root = Cli::command();
            let code = explain(&error, &root);
            // The other codes belong to the program that `lull exec` runs.
            let is_exec = code == USAGE
                && command_path(&root, lull_cli::message::arguments().into_iter())
                    .get(1)
                    .is_some_and(|command| command == "exec");
            return ExitCode::from(if is_exec { exec::USAGE } else { code });
        }
    };
    let result = match cli.command {
        Command::Completions(args) => generate::completions(&args, Cli::command()),
        Command::Demo(args) => {
            return lab::forward(["demo".into()].into_iter().chain(args.arguments).collect());
        }
        Command::Doctor(args) => doctor::run(&args),
        Command::Exec(args) => exec::run(args),
        Command::Exporter(args) => exporter::run(&args),
        Command::Fetch(args) => fetch::run(&args),
        Command::Jobs(args) => jobs::run(args),
        Command::Kernel(args) => kernel::run(args),
        Command::Lab(args) => return lab::forward(args.arguments),
        Command::ManualPages(args) => generate::manual_pages(&args, Cli::command()),
        Command::Origin(command) => origin::run(command),
        Command::Predict(command) => predict::run(command),
        Command::Publish(args) => publish::publish(args),
        Command::Replica(command) => replica::run(command),
        Command::Rollback(args) => publish::rollback(args),
        Command::Status(args) => publish::status(args),
        Command::Top(args) => top::run(args),
        Command::Try(args) => try_link::run(&args),
        Command::Web(args) => web::run(*args),
    };
    result.unwrap_or_else(|error| {
        print_error(&error);
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests {
    use lull_cli::help::{commands, errors_in_examples};
    use lull_cli::message::one_line;

    use super::*;

    #[test]
    fn arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn examples_in_help_are_understood() {
        assert_eq!(errors_in_examples(&Cli::command()), [""; 0]);
        let paths: Vec<String> = commands(&Cli::command()).into_iter().map(|one| one.0).collect();
        for known in ["lull", "lull exec", "lull kernel unload", "lull lab"] {
            assert!(paths.iter().any(|path| path == known), "{paths:?}");
        }
    }

    #[test]
    fn reference_of_commands_is_current() {
        let about = "All commands of `lull`, with all options, as `--help` shows them. \
                     [Commands for research](lab.md) have a page of their own.";
        let page = lull_cli::reference::page(Cli::command(), "Commands and options", about);
        lull_testing::assert_generated("docs/reference/commands.md", &page);
    }

    #[test]
    fn help_of_replication_explains_exit_codes() {
        let of = |path: &str| {
            let first = path.split(' ').nth(1);
            first.is_some_and(|first| {
                ["fetch", "origin", "publish", "replica", "rollback", "status"].contains(&first)
            })
        };
        let all = commands(&Cli::command()).into_iter();
        let these: Vec<_> = all.filter(|(path, _)| of(path)).collect();
        assert_eq!(these.len(), 13);
        for (path, mut command) in these {
            let help = command.render_long_help().to_string().replace('\n', " ");
            for words in ["The exit code is ", "2 if the arguments are wrong"] {
                assert!(help.contains(words), "no '{words}' in {path}: {help}");
            }
            let waits = ["lull publish", "lull rollback"].contains(&&*path);
            assert_eq!(help.contains("and 3 if the state exists"), waits, "{path}");
        }
    }

    #[test]
    fn clap_message_becomes_one_line() {
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
    fn help_hint_names_the_command() {
        for (arguments, path) in [
            (&["kernel", "load", "--bogus"][..], "lull kernel load"),
            (&["kernel", "bogus"], "lull kernel"),
            (&["predict", "eval", "--split", "2"], "lull predict eval"),
            (&["exec", "--bogus", "kernel"], "lull exec"),
            (&["bogus"], "lull"),
            (&["--bogus", "kernel"], "lull"),
        ] {
            let words = arguments.iter().map(|&argument| argument.to_owned());
            assert_eq!(command_path(&Cli::command(), words).join(" "), path);
        }
    }
}
