//! `lull exec`: a program in the background.

mod adopt;
mod udp;

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use lull_cc::Bytes;
use lull_kernel::{
    Algorithm, Choice, Direction, Dscp, Ending, Error, Outcome, Parameters, PathTable, Summary,
    TimeWindow, Traffic, Udp, User,
};
use serde_json::{Value, json};

/// Exit codes of env(1), nice(1) and timeout(1) for failures before the program ran.
const FAILED: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// The value of `--cc` for which Nice is loaded automatically.
const NICE: &str = "nice";
const LULL: &str = "lull";
const BACKGROUND: &str = "background";

const USAGES: &str = "\
lull exec [OPTIONS] -- PROGRAM [ARGS]...
       lull exec [OPTIONS] --pid PID [--children]
       lull exec --pid PID --foreground [--children]";

const EXAMPLES: &str = "\
Examples:
  sudo lull exec -- restic backup /data
      run a backup as yourself, with your environment: RESTIC_PASSWORD, SSH_AUTH_SOCK, http_proxy
  sudo lull exec --name backup -- restic backup /data
      give the job a name, so that 'sudo lull jobs pause backup' can pause it
  sudo lull exec --between 02:00-06:00 -- rclone sync /data remote:data
      run it at night only; at 06:00 it is paused until 02:00
  sudo lull exec --user root -- nginx -g 'daemon off;'
      run a server that starts as root and drops root by itself
  sudo lull exec --pid \"$(systemctl show -P MainPID backup.service)\" --children
      move a running service into the background; it stays in its unit
  sudo lull exec --pid \"$(systemctl show -P MainPID backup.service)\" --children --foreground
      move it back
  sudo lull exec --weight 1 -- rclone copy /data remote:data
      take a tenth of what other jobs of 'lull exec' get on the same path
  sudo lull exec --cc background --network-honours-le -- rsync -a /data host:/backup
      on your own network that serves lower effort last: fill spare capacity without yielding by
      itself";

/// Run a program with its TCP traffic in the background
///
/// Every connection that the program and its children open or accept uses the congestion control lull and carries the
/// lower-effort DSCP, also if the program chooses another. All background connections of this host to one network (a
/// /24 of IPv4 or a /48 of IPv6) share one window, which yields to other traffic. Downloads yield by the window that
/// the connections advertise. The program keeps its exit code, signals, terminal and standard input. As with env, the
/// exit codes 125, 126 and 127 mean that the program did not run.
///
/// Needs root, or a running "lull kernel serve" and membership in its group. Without root, these options are not
/// available: --pid, --udp yield, --user, and --cc with other values than lull and nice. After "sudo lull exec", the
/// program does not run as root: it runs as the user who called sudo, with the environment from before sudo. Use --user
/// for another user. In a root shell or a script of root, the program runs as root.
///
/// Traffic of other processes stays in the foreground: containers, windows of a running tmux, ssh through a
/// ControlMaster, mounted network file systems. At the end, Lull reports such traffic and what you can do.
///
/// In a systemd unit, the program gets the sockets that systemd hands over. With NotifyAccess=all, the program can
/// report that it is ready, and reset the watchdog.
#[derive(Debug, clap::Args)]
#[command(override_usage = USAGES, after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Congestion control: lull (one window for all background connections of this host to a network), nice (TCP Nice,
    /// each connection by itself), background (TCP-Background, which does not yield by itself and needs
    /// --network-honours-le), or one that the kernel has. Lull loads the first three if needed. A kernel that cannot
    /// run lull uses nice, and a line at the end reports it
    #[arg(long, value_name = "NAME", default_value = LULL)]
    cc: String,
    /// Required with --cc background, which does not yield by itself: it relies on the network to send lower-effort
    /// packets last on every link that may be full
    #[arg(long)]
    network_honours_le: bool,
    /// DSCP of the packets: le (lower effort, RFC 8622), or none (the program sets it)
    #[arg(long, value_name = "DSCP", default_value = "le", value_parser = parse_dscp)]
    dscp: Dscp,
    /// Which TCP traffic yields: both, send (what the program sends) or receive (what it receives)
    #[arg(long, value_name = "DIRECTION", default_value_t)]
    direction: Direction,
    /// UDP that the program sends, QUIC included: pass (it is not slowed) or yield (packets beyond the spare capacity
    /// of their path get an ECN mark, or are dropped if their sender does not support ECN). With yield, Lull sends
    /// ICMP echo requests to the destinations
    #[arg(long, value_name = "ACTION", default_value = "pass", value_parser = udp::parse, conflicts_with = "pid")]
    udp: Udp,
    /// Run the program as this user (a name or a number) [default: the user who called sudo, or the
    /// current user]
    #[arg(long, value_name = "USER", conflicts_with = "pid")]
    user: Option<String>,
    /// Name that lull jobs shows; no two running jobs have the same
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Share of the spare capacity relative to other jobs to the same network, from 1 to 100. A connection of weight 20
    /// gets about twice as much as one of weight 10. Only with --cc lull [default: 10]
    #[arg(long, value_name = "WEIGHT", value_parser = clap::value_parser!(u32).range(1..=100))]
    weight: Option<u32>,
    /// Run the program only within a time of day (local time), such as 02:00-06:00. Lull starts it at the first time and
    /// freezes it at the second one, until the next day. Its connections stay open, but the other side may close them
    #[arg(long, alias = "at-most", value_name = "START-END", conflicts_with = "pid")]
    between: Option<TimeWindow>,
    /// Move a running process into the background instead of starting one
    #[arg(long, value_name = "PID", conflicts_with = "program")]
    pid: Option<i32>,
    /// With --pid: also move the descendants of the process
    #[arg(long, requires = "pid", conflicts_with = "program")]
    children: bool,
    /// With --pid: move the process and its open connections out of the background
    #[arg(
        long,
        requires = "pid",
        conflicts_with_all = ["program", "cc", "direction", "dscp", "name", "network_honours_le", "weight"]
    )]
    foreground: bool,
    /// Write a summary of the traffic as one line of JSON to FILE, or to standard error. With --pid it goes
    /// to standard output
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    json: Option<Option<PathBuf>>,
    /// Print no summary at the end
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
    /// Load an algorithm under the name of --cc if it is not loaded; for tests
    #[arg(
        long,
        hide = true,
        num_args = 0..=1,
        require_equals = true,
        value_enum,
        default_missing_value = NICE
    )]
    automatic: Option<Automatic>,
    /// Use the work-around of kernels before 6.13 for IPv4 over IPv6 sockets; for tests
    #[arg(long, hide = true)]
    mapped_by_parent: bool,
    /// Act as on kernels that have no hook for received traffic; for tests
    #[arg(long, hide = true)]
    no_receive_hook: bool,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, required_unless_present = "pid")]
    program: Vec<OsString>,
}

/// A congestion control that can be loaded for one run.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Automatic {
    Nice,
    Lull,
    Background,
}

impl Automatic {
    fn parameters(self) -> Parameters {
        match self {
            Automatic::Nice => Parameters::default(),
            Automatic::Lull => Parameters::lull(PathTable::default(), false),
            Automatic::Background => Parameters::background(false),
        }
    }
}

pub(crate) fn parse_dscp(text: &str) -> Result<Dscp, &'static str> {
    match text.to_ascii_lowercase().as_str() {
        "le" => Ok(Dscp::Le),
        "none" => Ok(Dscp::None),
        _ => Err("it is le or none"),
    }
}

/// The exit code for invalid arguments.
pub(crate) const USAGE: u8 = FAILED;

/// Checks the combination of the options.
fn check(args: &Args) -> anyhow::Result<()> {
    let automatic = automatic(args).map(|automatic| automatic.parameters().algorithm());
    if args.weight.is_some() && automatic.is_some_and(|algorithm| algorithm != Algorithm::Lull) {
        let text = format!("--weight needs --cc lull: '{}' has no weights", args.cc);
        return Err(crate::UsageError(text).into());
    }
    Ok(())
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let result = check(&args).and_then(|()| match args.pid {
        Some(pid) => adopt::adopt(pid, &args),
        None => start(&args),
    });
    Ok(result.unwrap_or_else(|error| {
        let code = match error.downcast_ref() {
            Some(Error::ProgramNotFound { .. }) => NOT_FOUND,
            Some(Error::ProgramNotExecutable { .. }) => NOT_EXECUTABLE,
            _ => FAILED,
        };
        crate::print_error(&error);
        if let Some(&Error::Interrupted { signal }) = error.downcast_ref() {
            lull_kernel::die_by(signal);
        }
        ExitCode::from(code)
    }))
}

fn automatic(args: &Args) -> Option<Automatic> {
    match args.cc.as_str() {
        BACKGROUND => Some(Automatic::Background),
        NICE => Some(Automatic::Nice),
        LULL => Some(Automatic::Lull),
        _ => args.automatic,
    }
}

fn choice(args: &Args) -> Choice {
    Choice {
        congestion: args.cc.clone(),
        dscp: args.dscp,
        automatic: automatic(args).map(Automatic::parameters),
        network_honours_le: args.network_honours_le,
        name: args.name.clone(),
        weight: args.weight,
        direction: args.direction,
        udp: args.udp,
        hours: args.between,
        mapped_by_parent: args.mapped_by_parent,
        no_receive_hook: args.no_receive_hook,
    }
}

/// The user of the program, if it is not the current one by default.
fn user(args: &Args) -> Result<Option<User>, Error> {
    match &args.user {
        Some(name) => User::named(name).map(Some),
        None => User::sudo_caller(),
    }
}

fn start(args: &Args) -> anyhow::Result<ExitCode> {
    let user = user(args)?;
    if let Some(window) = args.between {
        // An error should come now, and not at night.
        lull_kernel::check_access()?;
        lull_kernel::wait_for_allowed_hours(window);
    }
    let outcome = lull_kernel::run(&args.program, &choice(args), user.as_ref())?;
    if !args.quiet {
        let text = match &args.json {
            Some(_) => summary_json(args, user.as_ref(), &outcome).to_string(),
            None => {
                let hint =
                    user.filter(|_| args.user.is_none()).and_then(|user| hint(&user, &outcome));
                summary_text(&outcome.summary, hint)
            }
        };
        write_summary(args, &text, &mut io::stderr());
    }
    match outcome.ending {
        Ending::Exited(code) => Ok(ExitCode::from(u8::try_from(code).unwrap_or(FAILED))),
        Ending::Killed(signal) => {
            lull_kernel::die_by(signal);
            // As in a shell, if that signal does not end this process.
            Ok(ExitCode::from(128u8.wrapping_add(u8::try_from(signal).unwrap_or(0))))
        }
    }
}

/// The work is done: a summary that cannot be written changes no exit code.
fn write_summary(args: &Args, text: &str, otherwise: &mut dyn Write) {
    match &args.json {
        Some(Some(path)) => {
            if let Err(error) = fs::write(path, format!("{text}\n")) {
                let error = anyhow::Error::new(error);
                crate::print_error(&error.context(format!("cannot write {}", path.display())));
            }
        }
        _ => {
            let _ = writeln!(otherwise, "{text}");
        }
    }
}

fn count(number: u64, what: &str) -> String {
    let ending = match what.ends_with('s') {
        _ if number == 1 => "",
        true => "es",
        false => "s",
    };
    format!("{number} {what}{ending}")
}

fn share(traffic: &Traffic) -> Option<f64> {
    let yielded = traffic.yielded?;
    let lived = traffic.lived.as_secs_f64();
    (lived > 0.0).then(|| (yielded.as_secs_f64() / lived).min(1.0))
}

/// A failed program may have needed the rights of root.
fn hint(user: &User, outcome: &Outcome) -> Option<String> {
    let name = user.name();
    (outcome.ending != Ending::Exited(0)).then(|| {
        format!(
            "the program ran as {name}, the user of sudo: --user root runs it as \
                          root"
        )
    })
}

/// The sentence, and deviations from the request on separate lines.
fn summary_text(summary: &Summary, hint: Option<String>) -> String {
    let exceptions = exceptions(&summary.left_cgroup, "foreground", &summary.foreground);
    let notes = summary.traffic.iter().flat_map(notes);
    let shortfalls = summary.shortfalls.iter().cloned();
    let lines = [sentence(summary)]
        .into_iter()
        .chain(shortfalls)
        .chain(notes)
        .chain(exceptions)
        .chain(hint);
    lines.map(|line| format!("lull: {line}")).collect::<Vec<_>>().join("\n")
}

fn exceptions<'a>(
    left_cgroup: impl IntoIterator<Item = &'a String>,
    rest: &str,
    unchanged: &[String],
) -> impl Iterator<Item = String> {
    let stays = unchanged.iter().map(move |what| format!("in the {rest} stays: {what}"));
    left_cgroup.into_iter().cloned().chain(stays)
}

/// A sender receives less than this, too: acknowledgements of an application, directories.
const DOWNLOAD: u64 = 100_000;

/// Traffic of the program that is not slowed, or not marked.
fn notes(traffic: &Traffic) -> Vec<String> {
    let mut notes = Vec::new();
    if traffic.tcp_received >= DOWNLOAD && traffic.tcp_received > traffic.tcp_bytes {
        let received = Bytes(traffic.tcp_received);
        notes.push(match traffic.slows_received {
            true => format!("received {received} over TCP in the background"),
            false => format!("received {received} over TCP in the foreground"),
        });
    }
    if traffic.unmarked > 0 {
        notes.push(format!(
            "{} without the DSCP mark: marked packets got no answer, unmarked ones did, so a router on \
             the path may drop them; --dscp none disables the mark",
            count(traffic.unmarked, "connection")
        ));
    }
    notes.extend(traffic.udp.iter().flat_map(udp::notes));
    notes
}

fn sentence(summary: &Summary) -> String {
    let mut text = match &summary.traffic {
        Ok(traffic) => sent(traffic),
        Err(why) => format!("the sent bytes are unknown: {why}"),
    };
    if summary.survivors > 0 {
        let verb = if summary.survivors == 1 { "goes" } else { "go" };
        let processes = count(summary.survivors as u64, "process");
        text += &format!("; {processes} {verb} on in the background");
    }
    text
}

fn sent(traffic: &Traffic) -> String {
    let mut text = format!(
        "sent {} over TCP in {}",
        Bytes(traffic.tcp_bytes),
        count(traffic.connections, "connection"),
    );
    if let (Some(yielded), Some(share)) = (traffic.yielded, share(traffic)) {
        text += &format!(
            ", yielding for {:.1} s, {:.0} % of their time",
            yielded.as_secs_f64(),
            100.0 * share
        );
    }
    text += &udp::clause(traffic);
    if traffic.refused > 0 {
        text += &format!("; {} in the foreground", count(traffic.refused, "connection"));
    }
    text
}

/// Null means unknown.
fn summary_json(args: &Args, user: Option<&User>, outcome: &Outcome) -> Value {
    let summary = &outcome.summary;
    let traffic = summary.traffic.as_ref().ok();
    let (code, signal) = match outcome.ending {
        Ending::Exited(code) => (Some(code), None),
        Ending::Killed(signal) => (None, Some(signal)),
    };
    json!({
        "program": args.program.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>(),
        "user": user.map(User::name),
        "exit_code": code,
        "signal": signal,
        "congestion": args.cc,
        "dscp": args.dscp,
        "direction": args.direction,
        "seconds": summary.elapsed.as_secs_f64(),
        "connections": traffic.map(|traffic| traffic.connections),
        "connections_in_the_foreground": traffic.map(|traffic| traffic.refused),
        "tcp_bytes": traffic.map(|traffic| traffic.tcp_bytes),
        "connections_without_mark": traffic.map(|traffic| traffic.unmarked),
        "tcp_bytes_received": traffic.map(|traffic| traffic.tcp_received),
        "received_in_the_background": traffic.map(|traffic| traffic.slows_received),
        "udp": args.udp,
        "udp_bytes": traffic.map(|traffic| traffic.udp_bytes),
        "udp_in_the_background": traffic.map(|traffic| traffic.udp.as_ref().map(udp::json)),
        "connection_seconds": traffic.map(|traffic| traffic.lived.as_secs_f64()),
        "yielding_seconds": traffic.and_then(|traffic| traffic.yielded).map(|t| t.as_secs_f64()),
        "yielding_share": traffic.and_then(share),
        "not_counted": summary.traffic.as_ref().err(),
        "surviving_processes": summary.survivors,
        "foreground": summary.foreground,
        "left_its_cgroup": summary.left_cgroup,
        "shortfalls": summary.shortfalls,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;

    use super::*;

    fn traffic() -> Traffic {
        Traffic {
            connections: 2,
            refused: 0,
            tcp_bytes: 1_500_000,
            tcp_received: 900_000,
            slows_received: true,
            unmarked: 0,
            udp_bytes: 0,
            udp: None,
            lived: Duration::from_secs(8),
            yielded: Some(Duration::from_secs(2)),
        }
    }

    fn summary() -> Summary {
        Summary {
            elapsed: Duration::from_secs(10),
            traffic: Ok(traffic()),
            survivors: 0,
            foreground: Vec::new(),
            left_cgroup: None,
            shortfalls: Vec::new(),
        }
    }

    #[test]
    fn summary_is_one_sentence() {
        assert_eq!(
            sentence(&summary()),
            "sent 1.5 MB over TCP in 2 connections, yielding for 2.0 s, 25 % of their time; \
             0 B over UDP, not slowed"
        );
        let other = Traffic { yielded: None, connections: 1, refused: 1, ..traffic() };
        assert_eq!(
            sentence(&Summary { traffic: Ok(other), survivors: 2, ..summary() }),
            "sent 1.5 MB over TCP in 1 connection; 0 B over UDP, not slowed; \
             1 connection in the foreground; 2 processes go on in the background"
        );
        assert_eq!(
            sentence(&Summary { traffic: Err("why".into()), survivors: 1, ..summary() }),
            "the sent bytes are unknown: why; 1 process goes on in the background"
        );
    }

    #[test]
    fn exceptions_have_their_own_lines() {
        assert_eq!(summary_text(&summary(), None), format!("lull: {}", sentence(&summary())));
        let summary = Summary {
            foreground: vec!["a".into(), "b".into()],
            left_cgroup: Some("c".into()),
            shortfalls: vec!["d".into()],
            ..summary()
        };
        let text = summary_text(&summary, None);
        let lines: Vec<_> = text.lines().skip(1).collect();
        assert_eq!(
            lines,
            [
                "lull: d",
                "lull: c",
                "lull: in the foreground stays: a",
                "lull: in the foreground stays: b"
            ]
        );
    }

    #[test]
    fn notes_report_downloads_and_missing_marks() {
        assert_eq!(notes(&traffic()), Vec::<String>::new());
        let other = Traffic { tcp_received: 2_000_000, unmarked: 1, ..traffic() };
        let [download, mark] = &notes(&other)[..] else { panic!("{other:?}") };
        assert_eq!(download, "received 2.0 MB over TCP in the background");
        let fast = Traffic { slows_received: false, ..other.clone() };
        assert_eq!(notes(&fast)[0], "received 2.0 MB over TCP in the foreground");
        assert!(mark.starts_with("1 connection without the DSCP mark"), "{mark}");
        let small = Traffic { tcp_received: 90_000, tcp_bytes: 0, ..traffic() };
        assert_eq!(notes(&small), Vec::<String>::new());
    }

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn nice_lull_and_background_are_loaded_under_their_names() {
        let loaded = |words: &[&str]| {
            let line = Line::try_parse_from([&["exec"], words, &["true"]].concat()).unwrap();
            choice(&line.args).automatic.map(|parameters| parameters.algorithm())
        };
        assert_eq!(loaded(&[]), Some(Algorithm::Lull));
        assert_eq!(loaded(&["--cc", "nice"]), Some(Algorithm::Nice));
        assert_eq!(loaded(&["--cc", "lull"]), Some(Algorithm::Lull));
        assert_eq!(loaded(&["--cc", "background"]), Some(Algorithm::Background));
        assert_eq!(loaded(&["--cc", "other"]), None);
        assert_eq!(loaded(&["--cc", "other", "--automatic"]), Some(Algorithm::Nice));
        let background = ["--cc", "other", "--automatic=background"];
        assert_eq!(loaded(&background), Some(Algorithm::Background));
    }

    #[test]
    fn dscp_is_le_or_none() {
        assert_eq!(parse_dscp("LE"), Ok(Dscp::Le));
        assert_eq!(parse_dscp("none"), Ok(Dscp::None));
        assert!(parse_dscp("ef").is_err());
    }
}
