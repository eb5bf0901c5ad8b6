//! One program over an emulated link: the implementation of `lull lab emulate`.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use lull_cc::{Bytes, Rate};
use nix::unistd::Pid;
use serde::Serialize;

use super::contain::{Container, FAILED, Signals, Supervisor, chain};
use super::statistics::{Counts, DirectionStatistics, LinkDescription, Record, Spread};
use super::{Emulator, Error, Host, Topology, contain};
use crate::provenance::{Origin, Program};

/// The exit code if the program exists but cannot run, as in shells.
const NOT_EXECUTABLE: u8 = 126;
/// The exit code if there is no such program, as in shells.
const NOT_FOUND: u8 = 127;
/// The most flows in the printed table in each direction.
const LISTED_FLOWS: usize = 8;

/// A program and its network.
#[derive(Clone, Debug)]
pub struct Session {
    /// The network.
    pub topology: Topology,
    /// The program and its arguments; empty for the user's shell.
    pub command: Vec<OsString>,
    /// The destination of the record: a file, or `-` for the standard output.
    pub json: Option<PathBuf>,
    /// The calling program, for the record.
    pub asked: Program,
}

/// The record of a session. Its first fields are those of runs.
#[derive(Serialize)]
struct SessionRecord<'a> {
    #[serde(flatten)]
    origin: &'a Origin,
    program: Vec<String>,
    exit_code: u8,
    #[serde(flatten)]
    record: &'a Record,
}

impl Session {
    /// Runs the program on the first host on the left and returns its exit code: 128 and the
    /// signal's number if a signal ended it, 125 if the emulator failed.
    ///
    /// The program finds the hosts' addresses in `LULL_LEFT_1`, `LULL_RIGHT_1` and so on, with `_V6` appended
    /// for IPv6. It runs other programs on other hosts with `ip netns exec right1 PROGRAM`. When it ends, all
    /// its children end too.
    ///
    /// # Errors
    /// [`Error::Topology`] for an invalid network; otherwise those of [`contain`].
    pub fn run(&self) -> Result<u8, Error> {
        self.topology.validate()?;
        let origin =
            self.json.is_some().then(|| Origin::new(&self.asked, self.topology.forward.seed));
        contain(Signals::Pass, |container| {
            self.run_contained(container, origin.as_ref()).unwrap_or_else(|error| {
                tracing::error!(target: "lull::emulator", "lull: {}", chain(&error));
                FAILED
            })
        })
    }

    fn run_contained(&self, container: &Container, origin: Option<&Origin>) -> Result<u8, Error> {
        let json: Option<Box<dyn Write>> = match &self.json {
            None => None,
            Some(path) if path.as_os_str() == "-" => Some(Box::new(io::stdout())),
            Some(path) => {
                // Before the program runs: its work must not be lost because of a wrong path.
                let file = File::create(path).map_err(|error| {
                    Error::system(format!("writing to {}", path.display()), error)
                })?;
                Some(Box::new(file))
            }
        };
        let supervisor = Supervisor::new()?;
        let emulator = Emulator::start(&self.topology)?;
        container.name_hosts(&emulator)?;
        let mut command = self.prepare(&emulator);
        let code = match command.spawn() {
            Ok(child) => supervisor.wait(Pid::from_raw(child.id() as i32), Signals::Pass)?,
            Err(error) => {
                let program = command.get_program().to_string_lossy();
                tracing::error!(target: "lull::emulator", "lull: {program} cannot be run: {error}");
                if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE }
            }
        };
        let record = emulator.finish()?;
        // If the output is closed, the exit code still counts.
        let _ = write_table(&mut io::stderr().lock(), &record);
        if let Some((mut json, origin)) = json.zip(origin) {
            self.write_record(&mut json, origin, &record, code)
                .map_err(|error| Error::system("writing the record", error))?;
        }
        Ok(code)
    }

    /// The program with its environment, on the first host on the left.
    fn prepare(&self, emulator: &Emulator) -> Command {
        let host = emulator.left(0);
        let mut command = match self.command.split_first() {
            Some((program, arguments)) => {
                let mut command = host.command(program);
                command.args(arguments);
                command
            }
            None => host.command(std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into())),
        };
        command.envs(emulator.hosts().iter().flat_map(Host::variables));
        command
    }

    fn write_record(
        &self,
        to: &mut dyn Write,
        origin: &Origin,
        record: &Record,
        exit_code: u8,
    ) -> io::Result<()> {
        let record = SessionRecord {
            origin,
            program: self.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            exit_code,
            record,
        };
        serde_json::to_writer_pretty(&mut *to, &record)?;
        writeln!(to)?;
        to.flush()
    }
}

/// The record in a few lines for readers.
fn write_table(to: &mut impl Write, record: &Record) -> io::Result<()> {
    let topology = &record.topology;
    let seconds = record.total.seconds();
    let delay = topology.forward.delay_s + topology.reverse.delay_s;
    let round_trip = Duration::from_secs_f64(delay);
    writeln!(
        to,
        "\n{seconds:.1} s over a round-trip time of {round_trip:?}, {} by default",
        topology.congestion_control
    )?;
    writeln!(
        to,
        "{:<34} {:>10} {:>13} {:>13} {:>7} {:>6}   queueing delay in ms: mean, p50, p95, p99, max",
        "", "sent", "rate", "goodput", "dropped", "marked"
    )?;
    let directions = [
        ("left > right", &topology.forward, &record.total.forward),
        ("right > left", &topology.reverse, &record.total.reverse),
    ];
    for (name, link, statistics) in directions {
        let used = statistics.utilisation() * 100.0;
        let title = format!("{name}, {used:.1} % of {}", describe(link));
        writeln!(to, "{title}")?;
        write_counts(to, "  all", &statistics.all, seconds)?;
        write_parts(to, statistics, seconds)?;
    }
    let late = |spread: Option<Spread>| {
        let Spread { p50_ms, p99_ms, max_ms, .. } = spread.unwrap_or_default();
        format!("{p50_ms:.3} ms late (median; p99 {p99_ms:.3}, max {max_ms:.3})")
    };
    writeln!(
        to,
        "the emulator took packets in {} and delivered {}; it used {:.1} % of a processor",
        late(record.total.arrival_error),
        late(record.total.timing_error),
        record.cpu_s / seconds.max(1e-9) * 100.0
    )?;
    if record.overruns > 0 {
        writeln!(
            to,
            "WARNING: this machine was too slow and lost {} packets before the bottleneck: the \
             results are invalid; use a lower rate",
            record.overruns
        )?;
    }
    if record.unroutable > 0 {
        writeln!(to, "{} packets went to addresses that no host has", record.unroutable)?;
    }
    Ok(())
}

fn describe(link: &LinkDescription) -> String {
    let rate = match &link.trace {
        Some(trace) => format!("the trace {trace}"),
        None => Rate::from_bits_per_second(link.rate_bit_s).to_string(),
    };
    let buffer = match link.buffer {
        lull_sim::queue::Limit::Bytes(bytes) => Bytes(bytes).to_string(),
        lull_sim::queue::Limit::Packets(packets) => format!("{packets} packets"),
    };
    format!("{rate}, {} with {buffer}", link.discipline.name())
}

/// Classes if there is more than one, and the largest flows.
fn write_parts(
    to: &mut impl Write,
    statistics: &DirectionStatistics,
    seconds: f64,
) -> io::Result<()> {
    if statistics.classes.len() > 1 {
        for class in &statistics.classes {
            write_counts(to, &format!("  dscp {}", class.dscp), &class.counts, seconds)?;
        }
    }
    let mut flows: Vec<_> = statistics.flows.iter().collect();
    flows.sort_by_key(|flow| std::cmp::Reverse(flow.counts.bytes));
    for flow in flows.iter().take(LISTED_FLOWS) {
        write_counts(to, &format!("  {}", flow.flow), &flow.counts, seconds)?;
    }
    if let Some(more) = flows.len().checked_sub(LISTED_FLOWS + 1) {
        writeln!(to, "  and {} smaller flows", more + 1)?;
    }
    Ok(())
}

fn write_counts(to: &mut impl Write, title: &str, counts: &Counts, seconds: f64) -> io::Result<()> {
    let rate = |bytes: u64| {
        Rate::from_bits_per_second((bytes as f64 * 8.0 / seconds.max(1e-9)) as u64).to_string()
    };
    write!(
        to,
        "{title:<34} {:>10} {:>13} {:>13} {:>7} {:>6}",
        Bytes(counts.bytes).to_string(),
        rate(counts.bytes),
        rate(counts.goodput_bytes),
        counts.dropped,
        counts.marked
    )?;
    match counts.queueing_delay {
        None => writeln!(to),
        Some(Spread { mean_ms, p50_ms, p95_ms, p99_ms, max_ms }) => {
            writeln!(to, "   {mean_ms:.2}, {p50_ms:.2}, {p95_ms:.2}, {p99_ms:.2}, {max_ms:.2}")
        }
    }
}
