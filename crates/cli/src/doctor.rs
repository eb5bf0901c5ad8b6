//! `lull doctor`: whether this machine can run programs in the background.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use lull_kernel::{Finding, Level};
use serde_json::json;

const EXAMPLES: &str = "\
Examples:
  sudo lull doctor
      print one line per check, with its remedy
  sudo lull doctor --json | jq -r '.findings[] | select(.level != \"ok\") | .remedy'
      print the remedies only";

/// Check whether this machine can run programs in the background
///
/// Checks the kernel, its type information (BTF), BPF, privileges, cgroup v2, the default congestion control, and
/// the queue discipline and MTU of the default route's device. Changes nothing. The exit code is 0 if 'lull exec'
/// can run, also with warnings; 1 if there is a problem; and 2 if the arguments are wrong.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Print JSON: {"ok": BOOL, "findings": [{check, level, found, remedy}]}
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let findings = lull_kernel::examine();
    let worst = findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok);
    let is_ok = worst < Level::Problem;
    let text = if args.json {
        json!({ "ok": is_ok, "findings": findings }).to_string() + "\n"
    } else {
        table(&findings)
    };
    io::stdout().write_all(text.as_bytes()).context("cannot write")?;
    Ok(if is_ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn table(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.check.len()).max().unwrap_or(0);
    let mut text = String::new();
    for finding in findings {
        let level = match finding.level {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Problem => "problem",
        };
        text += &format!("{level:7}  {:width$}  {}\n", finding.check, finding.found);
        if let Some(remedy) = &finding.remedy {
            text += &format!("{:7}  {:width$}  -> {remedy}\n", "", "");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_has_remedies_on_separate_lines() {
        let finding = |check, level, remedy: Option<&str>| Finding {
            check,
            level,
            found: "x".to_owned(),
            remedy: remedy.map(str::to_owned),
        };
        let findings =
            [finding("kernel", Level::Ok, None), finding("MTU", Level::Warning, Some("do it"))];
        let expected = "ok       kernel  x\nwarning  MTU     x\n                 -> do it\n";
        assert_eq!(table(&findings), expected);
    }
}
