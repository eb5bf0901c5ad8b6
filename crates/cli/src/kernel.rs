//! `lull kernel`: the congestion control that the kernel runs.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use lull_cc::Bytes;
use lull_kernel::{
    Algorithm, Choice, Direction, Dscp, Error, Loaded, MinWindow, Parameters, PathTable, Prepared,
    SharedPath, Socket, Status,
};
use serde_json::{Value, json};

const EXAMPLES: &str = "Examples:
  sudo lull kernel load
      let any program choose 'lull' for a connection
  sudo lull kernel status
      list the connections that use it
  sudo lull kernel unload
      remove it again";

/// Load Lull's congestion controls into the kernel, unload them, and list the connections that use them
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Load a congestion control until it is unloaded or the machine restarts
    Load(Load),
    /// Unload a congestion control
    Unload(Unload),
    Serve(Serve),
    Slice(Slice),
    /// Show the loaded congestion controls and their sockets in all network namespaces
    #[command(after_help = STATUS_EXAMPLES)]
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

const STATUS_EXAMPLES: &str = "\
Examples:
  sudo lull kernel status
      print a table of the sockets with their windows and round-trip times
  sudo lull kernel status --json | jq '.[].sockets[] | {command, remote, window_packets}'
      print JSON; times are in microseconds";

const UNLOAD_EXAMPLES: &str = "\
Examples:
  sudo lull kernel unload
      unload lull, if no connection or program of 'lull exec' uses it
  sudo lull kernel unload --name nicer
      unload the variant that 'lull kernel load --name nicer' loaded
  sudo lull kernel unload --force --json
      unload it while it is in use, and print as JSON how many connections keep it";

const LOAD_EXAMPLES: &str = "\
Examples:
  sudo lull kernel load
      let any program choose 'lull' for a connection
  sudo lull kernel load --algorithm nice --name nicer --threshold 0.1 --fraction 0.25
      load a variant of TCP Nice that yields earlier, for 'lull exec --cc nicer'
  sudo lull kernel load --algorithm vegas
      load Vegas, the base of Nice, as 'lull_vegas' for comparison
  sudo lull kernel load --algorithm background
      load TCP-Background as 'background', for networks that serve lower effort last";

#[derive(Debug, clap::Args)]
#[command(after_help = LOAD_EXAMPLES)]
struct Load {
    /// Name by which programs choose it [default: the algorithm's name]
    #[arg(long)]
    name: Option<String>,
    /// Queueing delay that counts as interference, as a part of the largest delay (t in TCP Nice, OSDI 2002)
    /// [default: 0.2]
    #[arg(long, value_parser = number, allow_negative_numbers = true)]
    threshold: Option<f64>,
    /// Part of a round's packets that must see interference before the window is halved (f in TCP Nice)
    /// [default: 0.5]
    #[arg(long, value_parser = number, allow_negative_numbers = true)]
    fraction: Option<f64>,
    /// Smallest window in packets, from 1/48 to 1 [default: 1/48]
    #[arg(long, allow_hyphen_values = true)]
    min_window: Option<String>,
    /// lull (one window for all background connections of this host to a network); nice (TCP Nice, each connection by
    /// itself); vegas, the base of nice, for comparison; or background, which does not yield by itself and needs a
    /// network that serves lower effort last. Only nice has threshold, fraction and smallest window
    #[arg(long, value_enum, default_value_t = Kind::Lull)]
    algorithm: Kind,
    /// Maximum number of networks whose connections share a state; connections to further networks run Nice
    #[arg(long, hide = true, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    paths: Option<u32>,
    /// Let only processes with CAP_NET_ADMIN choose it
    #[arg(long)]
    restrict: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

fn number(text: &str) -> Result<f64, &'static str> {
    text.parse().map_err(|_| "write a number such as 0.2")
}

impl Load {
    fn name(&self) -> &str {
        match (&self.name, self.algorithm) {
            (Some(name), _) => name,
            (None, Kind::Background) => "background",
            // A stock kernel has its own 'vegas', in a module.
            (None, Kind::Vegas) => "lull_vegas",
            (None, Kind::Nice) => "nice",
            (None, Kind::Lull) => "lull",
        }
    }

    fn parameters(&self) -> anyhow::Result<Parameters> {
        let defaults = Parameters::default();
        let (algorithm, called) = match self.algorithm {
            Kind::Nice => (Algorithm::Nice, "nice"),
            Kind::Vegas => (Algorithm::Vegas, "vegas"),
            Kind::Background => (Algorithm::Background, "background"),
            Kind::Lull => (Algorithm::Lull, "lull"),
        };
        for (option, is_given) in [
            ("--threshold", self.threshold.is_some()),
            ("--fraction", self.fraction.is_some()),
            ("--min-window", self.min_window.is_some()),
        ] {
            if is_given && algorithm != Algorithm::Nice {
                let text = format!(
                    "{option} is a parameter of nice, and {called} does not have it: leave it \
                     out, or use --algorithm nice"
                );
                return Err(crate::UsageError(text).into());
            }
        }
        if self.paths.is_some() && algorithm != Algorithm::Lull {
            let text = format!(
                "--paths is a parameter of lull, and {called} has no table of paths: \
                         leave it out"
            );
            return Err(crate::UsageError(text).into());
        }
        match algorithm {
            Algorithm::Background => return Ok(Parameters::background(self.restrict)),
            Algorithm::Lull => {
                let table = PathTable::default();
                let paths = self.paths.unwrap_or(table.paths);
                return Ok(Parameters::lull(PathTable { paths, ..table }, self.restrict));
            }
            Algorithm::Nice | Algorithm::Vegas => {}
        }
        let min_window = match &self.min_window {
            Some(text) => text.parse()?,
            None => MinWindow::default(),
        };
        let threshold = self.threshold.unwrap_or(defaults.threshold());
        let fraction = self.fraction.unwrap_or(defaults.fraction());
        Ok(Parameters::new(algorithm, threshold, fraction, min_window, self.restrict)?)
    }
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Kind {
    Nice,
    Vegas,
    Background,
    Lull,
}

const SERVE_EXAMPLES: &str = "\
Examples:
  sudo groupadd lull; sudo usermod -aG lull \"$USER\"
      once; the membership begins with the next login
  sudo lull kernel serve
      from now on, 'lull exec -- rsync -a /data host:/backup' works without sudo
  sudo lull kernel serve --group users --socket /run/other.sock
      for another group; its members set LULL_SOCKET=/run/other.sock";

/// Let members of a group use 'lull exec' without sudo
///
/// The server listens at a Unix socket, and moves a process that connects into the background. The kernel names that
/// process and its user. The process stays inside its cgroup, so its limits hold. A user can't move the process of
/// another user. Users may choose --cc lull, --cc nice, --dscp, --name, --weight, --direction and --between. These
/// options of 'lull exec' need root: other values of --cc, --udp yield, --user and --pid. The server runs until it is
/// killed; programs in the background stay there. A socket that systemd hands over is used instead of --socket. The
/// server needs Linux 6.5.
#[derive(Debug, clap::Args)]
#[command(after_help = SERVE_EXAMPLES)]
struct Serve {
    /// Path of the Unix socket
    #[arg(long, value_name = "PATH", default_value = lull_kernel::SOCKET)]
    socket: PathBuf,
    /// Group whose members may connect
    #[arg(long, value_name = "GROUP", default_value = "lull")]
    group: String,
}

const SLICE_EXAMPLES: &str = "\
Examples:
  sudo lull kernel slice /lull.slice/lull-background.slice
      what lull-slice.service runs: units with 'Slice=lull-background.slice' are in the background
  sudo lull kernel slice /background
      then 'docker run --cgroup-parent /background IMAGE' runs a container in the background";

/// Put a cgroup and all cgroups inside it into the background
///
/// Makes the cgroup if it is missing. Connections that its processes open or accept from then on are background ones,
/// for as long as the cgroup exists; the command ends at once. Use it for a slice of systemd, or for the parent cgroup
/// of containers. The congestion control stays loaded until 'lull kernel unload'.
#[derive(Debug, clap::Args)]
#[command(after_help = SLICE_EXAMPLES)]
struct Slice {
    /// Path of the cgroup below the mount point of cgroup v2, as in /proc/PID/cgroup
    cgroup: PathBuf,
    /// Congestion control: lull (one window for all background connections of this host to a network: a /24 of IPv4 or
    /// a /48 of IPv6), nice, or one that the kernel has. Lull loads the first two if needed
    #[arg(long, value_name = "NAME", default_value = "lull")]
    cc: String,
    /// DSCP of the packets: le (lower effort, RFC 8622), or none (programs set it)
    #[arg(long, value_name = "DSCP", default_value = "le", value_parser = crate::exec::parse_dscp)]
    dscp: Dscp,
}

#[derive(Debug, clap::Args)]
#[command(after_help = UNLOAD_EXAMPLES)]
struct Unload {
    /// The name that it was loaded by
    #[arg(long, default_value = "lull")]
    name: String,
    /// Unload it although it is in use: open connections keep it, new ones go to the foreground
    #[arg(long)]
    force: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let result = match args.command {
        Command::Load(args) => load(&args),
        Command::Unload(args) => unload(&args),
        Command::Serve(args) => lull_kernel::serve(&args.socket, &args.group).map_err(Into::into),
        Command::Slice(args) => slice(&args),
        Command::Status { json } => status(json),
    };
    match result {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            let usage = error.is::<crate::UsageError>()
                || matches!(
                    error.downcast_ref(),
                    Some(Error::BadName { .. } | Error::BadParameter { .. })
                );
            crate::print_error(&error);
            Ok(ExitCode::from(if usage { crate::USAGE } else { 1 }))
        }
    }
}

fn print_line(text: &str) -> anyhow::Result<()> {
    writeln!(io::stdout(), "{text}").context("cannot write")
}

fn load(args: &Load) -> anyhow::Result<()> {
    let parameters = args.parameters()?;
    let name = args.name();
    let loaded = lull_kernel::load(name, parameters)?;
    if args.json {
        let mut value = parameters_json(&parameters);
        value["name"] = json!(name);
        return print_line(&value.to_string());
    }
    match loaded {
        Loaded::New => print_line(&format!("loaded '{name}' ({parameters})")),
        Loaded::Kept => print_line(&format!("'{name}' was loaded by lull exec and stays now")),
    }
}

fn slice(args: &Slice) -> anyhow::Result<()> {
    let parameters = match args.cc.as_str() {
        "lull" => Some(Parameters::lull(PathTable::default(), false)),
        "nice" => Some(Parameters::default()),
        _ => None,
    };
    let choice = Choice {
        congestion: args.cc.clone(),
        dscp: args.dscp,
        automatic: parameters,
        network_honours_le: false,
        name: None,
        weight: None,
        direction: Direction::default(),
        udp: lull_kernel::Udp::default(),
        hours: None,
        mapped_by_parent: false,
        no_receive_hook: false,
    };
    let cgroup = args.cgroup.display();
    match lull_kernel::prepare_slice(&args.cgroup, &choice)? {
        Prepared::Now => print_line(&format!("processes of {cgroup} are now in the background")),
        Prepared::Before => {
            print_line(&format!("processes of {cgroup} were in the background before"))
        }
    }
}

fn unload(args: &Unload) -> anyhow::Result<()> {
    let unloaded = lull_kernel::unload(&args.name, args.force)?;
    if args.json {
        let value = json!({
            "name": args.name,
            "sockets_that_keep_it": unloaded.open + unloaded.closed,
            "closed_sockets_that_keep_it": unloaded.closed,
        });
        return print_line(&value.to_string());
    }
    let kept = |count: usize, what: &str| match count {
        0 => String::new(),
        1 => format!("; 1 {what} connection keeps it"),
        more => format!("; {more} {what} connections keep it"),
    };
    let (open, closed) = (kept(unloaded.open, "open"), kept(unloaded.closed, "closed"));
    print_line(&format!("unloaded '{}'{open}{closed}", args.name))
}

fn status(as_json: bool) -> anyhow::Result<()> {
    let all = lull_kernel::status()?;
    if as_json {
        return print_line(&Value::from_iter(all.iter().map(status_json)).to_string());
    }
    if all.is_empty() {
        return print_line("nothing is loaded");
    }
    for status in &all {
        print_line(&headline(status))?;
        if let Some(line) = unshared_line(status) {
            print_line(&format!("  {line}"))?;
        }
        path_table(status)?;
        table(&status.sockets)?;
    }
    Ok(())
}

fn headline(status: &Status) -> String {
    if !status.is_loaded {
        let keep = match status.sockets.len() {
            1 => "1 socket keeps it until it is closed".to_owned(),
            more => format!("{more} sockets keep it until they are closed"),
        };
        return format!("{}: unloaded; {keep}", status.name);
    }
    let parameters =
        status.parameters.map_or("loaded by another version of Lull".to_owned(), |parameters| {
            parameters.to_string()
        });
    let how = if status.automatic { "by lull exec " } else { "" };
    let sockets = match status.sockets.len() {
        1 => "1 socket".to_owned(),
        count => format!("{count} sockets"),
    };
    format!("{}: {parameters}; loaded {how}at {}; {sockets}", status.name, utc(status.since))
}

/// The message about connections that share no path.
fn unshared_line(status: &Status) -> Option<String> {
    let all = status.sockets.len();
    match status.unshared_connections() {
        0 => None,
        unshared => Some(format!(
            "{unshared} of {all} background connections use per-connection Nice: table of paths is full"
        )),
    }
}

fn path_table(status: &Status) -> anyhow::Result<()> {
    let paths = status.paths.as_deref().unwrap_or_default();
    if paths.is_empty() {
        return Ok(());
    }
    let header =
        ["destination", "interface", "connections", "leader", "W", "base rtt", "rate", "netns"];
    let mut rows = vec![header.map(str::to_owned)];
    let or_none = |text: Option<String>| text.unwrap_or("-".to_owned());
    for path in paths {
        let leader = path.leader.map(|at| &status.sockets[at]);
        rows.push([
            path.destination.to_string(),
            path.interface.to_string(),
            path.members.to_string(),
            or_none(leader.map(|leader| format!("{} to {}", leader.local, leader.remote))),
            path.window.to_string(),
            or_none(path.base_rtt.map(milliseconds)),
            format!("{} packets/s", path.packets_per_second),
            or_none(path.network_namespace.map(|number| number.to_string())),
        ]);
    }
    print_table(&rows)
}

fn milliseconds(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}

/// Prints rows with columns as wide as their longest cell.
fn print_table<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> anyhow::Result<()> {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..COLUMNS).map(|column| width(column).unwrap_or(0)).collect();
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}")).collect();
        print_line(format!("  {}", cells.join("  ")).trim_end())?;
    }
    Ok(())
}

fn table(sockets: &[Socket]) -> anyhow::Result<()> {
    if sockets.is_empty() {
        return Ok(());
    }
    let mut rows = vec![
        [
            "local",
            "remote",
            "state",
            "W",
            "min rtt",
            "max rtt",
            "srtt",
            "congested",
            "acked",
            "netns",
            "process",
        ]
        .map(str::to_owned),
    ];
    let of_nice = |text: Option<String>| text.unwrap_or("-".to_owned());
    for socket in sockets {
        rows.push([
            socket.local.to_string(),
            socket.remote.to_string(),
            socket.state.to_owned(),
            of_nice(socket.window.map(|window| window.to_string())),
            of_nice(socket.yielding.map(|yielding| milliseconds(yielding.min_rtt))),
            of_nice(socket.yielding.map(|yielding| milliseconds(yielding.max_rtt))),
            milliseconds(socket.srtt),
            of_nice(
                socket.yielding.map(|yielding| {
                    format!("{} of {}", yielding.rounds_congested, yielding.rounds)
                }),
            ),
            Bytes(socket.bytes_acked).to_string(),
            socket.network_namespace.to_string(),
            socket
                .owner
                .as_ref()
                .map_or("-".to_owned(), |owner| format!("{} ({})", owner.command, owner.pid)),
        ]);
    }
    print_table(&rows)
}

/// Null means that the algorithm does not have it.
fn parameters_json(parameters: &Parameters) -> Value {
    let is_nice = parameters.algorithm() == Algorithm::Nice;
    let of_nice = |value: f64| is_nice.then_some(value);
    json!({
        "algorithm": parameters.algorithm(),
        "threshold": of_nice(parameters.threshold()),
        "fraction": of_nice(parameters.fraction()),
        "min_window": of_nice(parameters.min_window().as_f64()),
        "restricted": parameters.restricted(),
    })
}

fn status_json(status: &Status) -> Value {
    json!({
        "name": status.name,
        "parameters": status.parameters.as_ref().map(parameters_json),
        "loaded_by": status.is_loaded.then_some(if status.automatic { "exec" } else { "load" }),
        "since": status.is_loaded.then(|| utc(status.since)),
        "sockets": status.sockets.iter().map(socket_json).collect::<Vec<_>>(),
        "sockets_without_path": status.paths.as_ref().map(|_| status.unshared_connections()),
        "paths": status.paths.as_ref().map(|paths| {
            paths.iter().map(|path| path_json(path, status)).collect::<Vec<_>>()
        }),
    })
}

fn path_json(path: &SharedPath, status: &Status) -> Value {
    let leader = path.leader.map(|at| &status.sockets[at]);
    json!({
        "destination": path.destination.to_string(),
        "interface": path.interface,
        "network_namespace": path.network_namespace,
        "connections": path.members,
        "phase": path.phase,
        "leader": leader.map(|leader| json!({ "local": leader.local, "remote": leader.remote })),
        "window_packets": path.window.as_f64(),
        "base_rtt_us": path.base_rtt.map(|rtt| rtt.as_micros() as u64),
        "packets_per_second": path.packets_per_second,
        "foreground": path.foreground.map(|foreground| json!({
            "connected_us": foreground.connected.map(|time| time.as_micros() as u64),
            "sent_us": foreground.sent.map(|time| time.as_micros() as u64),
            "bytes": foreground.bytes,
            "recent_bytes": foreground.recent_bytes,
        })),
    })
}

fn socket_json(socket: &Socket) -> Value {
    let yielding = socket.yielding;
    json!({
        "local": socket.local,
        "remote": socket.remote,
        "state": socket.state,
        "network_namespace": socket.network_namespace,
        "inode": socket.inode,
        "cgroup": socket.cgroup,
        "window_packets": socket.window.map(|window| window.as_f64()),
        "min_rtt_us": yielding.map(|yielding| yielding.min_rtt.as_micros() as u64),
        "max_rtt_us": yielding.map(|yielding| yielding.max_rtt.as_micros() as u64),
        "srtt_us": socket.srtt.as_micros() as u64,
        "rounds": yielding.map(|yielding| yielding.rounds),
        "rounds_congested": yielding.map(|yielding| yielding.rounds_congested),
        "yielding_seconds": yielding.map(|yielding| yielding.yielded.as_secs_f64()),
        "bytes_acked": socket.bytes_acked,
        "bytes_sent": socket.bytes_sent,
        "bytes_received": socket.bytes_received,
        "mss": socket.mss,
        "receive_window": socket.receive_window,
        "pid": socket.owner.as_ref().map(|owner| owner.pid),
        "command": socket.owner.as_ref().map(|owner| owner.command.as_str()),
    })
}

/// Date and time of a Unix time, in the form of RFC 3339.
fn utc(since: Duration) -> String {
    let seconds = since.as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // The Gregorian calendar repeats every 400 years of 146 097 days; years begin in March here, so that the
    // leap day is the last.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unix_time_is_shown_as_a_date() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(Duration::from_secs(seconds)), expected);
        }
    }
}
