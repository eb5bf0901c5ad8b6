//! `lull exec --pid`: a running process is moved into the background or out of it.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use lull_kernel::{Adopted, Error};
use serde_json::{Value, json};

use super::{Args, choice, count, exceptions, write_summary};

pub(super) fn adopt(pid: i32, args: &Args) -> anyhow::Result<ExitCode> {
    report_move(args, &move_process(pid, args)?)
}

fn move_process(pid: i32, args: &Args) -> Result<Adopted, Error> {
    if args.foreground {
        lull_kernel::foreground(pid, args.children)
    } else {
        lull_kernel::adopt(pid, args.children, &choice(args))
    }
}

fn report_move(args: &Args, adopted: &Adopted) -> anyhow::Result<ExitCode> {
    if args.quiet {
        return Ok(ExitCode::SUCCESS);
    }
    if args.json.is_some() {
        write_summary(args, &adopted_json(args, adopted).to_string(), &mut io::stdout());
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = io::stdout().lock();
    let processes = match adopted.processes.len() {
        1 => format!("process {} is", adopted.process),
        more => format!("process {} and {} of its descendants are", adopted.process, more - 1),
    };
    let (place, rest) = match args.foreground {
        true => ("foreground", "background"),
        false => ("background", "foreground"),
    };
    writeln!(
        out,
        "{processes} in the {place} now, with {} and {}",
        count(adopted.connections as u64, "open connection"),
        count(adopted.listeners as u64, "listener"),
    )
    .context("cannot write")?;
    let exceptions = exceptions(&adopted.left_cgroup, rest, &adopted.foreground);
    for line in adopted.shortfalls.iter().cloned().chain(exceptions) {
        writeln!(out, "{line}").context("cannot write")?;
    }
    if !args.foreground && adopted.connections + adopted.listeners > 0 {
        let note = "sockets from before can still be changed by the process itself";
        writeln!(out, "{note}").context("cannot write")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn adopted_json(args: &Args, adopted: &Adopted) -> Value {
    if args.foreground {
        return json!({
            "processes": adopted.processes,
            "connections": adopted.connections,
            "listeners": adopted.listeners,
            "background": adopted.foreground,
        });
    }
    json!({
        "processes": adopted.processes,
        "congestion": args.cc,
        "dscp": args.dscp,
        "connections": adopted.connections,
        "listeners": adopted.listeners,
        "foreground": adopted.foreground,
        "left_their_cgroup": adopted.left_cgroup,
        "shortfalls": adopted.shortfalls,
    })
}
