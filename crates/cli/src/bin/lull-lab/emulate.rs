//! `lull lab emulate`: a program over an emulated link.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use lull_cc::Rate;
use lull_emulator::{
    Backend, Buffer, Discipline, Error, Link, LinkRate, Session, Topology, parse_duration,
    read_trace,
};

/// The exit code if the emulator fails, which leaves all lower codes to the program, as env's does.
const FAILED: u8 = 125;

const EXAMPLES: &str = "\
Examples:
  lull lab emulate -- sh -c 'ip netns exec right1 iperf3 -s -1 & sleep 1; iperf3 -c $LULL_RIGHT_1'
      run one flow over 10 Mbit/s and 50 ms; the receiver is on the first host on the right
  lull lab emulate --rate 5mbit --rate-up 1mbit --delay 15ms --queue fq-codel
      open a shell behind an asymmetric line; \"up\" is the forward direction, from the shell to the right
  lull lab emulate --left 2 --right 2 --json record.json -- ./two-flows.sh
      run flows of two pairs of hosts over one link, such as a download beside an upload in the background
  lull lab emulate --trace Verizon-LTE-short.down.gz --buffer 100p --json record.json -- ./test.sh
      replay the link of a moving telephone, and record all flows

COMMAND runs on the host left1. The forward direction is from left to right. In COMMAND, the variables
LULL_LEFT_1, LULL_RIGHT_1, LULL_RIGHT_1_V6 and so on are the hosts' addresses, and `ip netns exec
right1 PROGRAM` runs a program on another host. When COMMAND ends, all processes that it started end,
and nothing is left on the machine. Root is not needed where
user namespaces are allowed. The exit code is that of COMMAND, or 128 plus the number of the signal that
ended it; 125 if the emulator failed, and 2 if the arguments are wrong.

As root, with COMMAND or --json, the emulator keeps all processors from idle states until it ends, so that
packets are on time. With a shell alone it does not.

Under red-ecn, ECN-capable packets are marked while RED's average is below its upper threshold,
two thirds of the buffer. Above it, they are dropped like other packets (RFC 3168, section 7).";

/// Run a program over an emulated link, with the kernel's TCP
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Rate of both directions
    #[arg(long, value_name = "RATE", default_value = "10mbit", conflicts_with = "trace")]
    rate: Rate,
    /// Rate of the forward direction, from left to right, if different
    #[arg(long, value_name = "RATE", conflicts_with = "trace_up")]
    rate_up: Option<Rate>,
    /// Recorded link instead of a rate, in mahimahi's format, plain or .gz
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Recorded link of the forward direction, if different
    #[arg(long, value_name = "FILE")]
    trace_up: Option<PathBuf>,
    /// Propagation delay of each direction [default: 25ms]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "rtt")]
    delay: Option<Duration>,
    /// Propagation delay of the forward direction, if different
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "rtt")]
    delay_up: Option<Duration>,
    /// Round-trip time: twice the delay of each direction
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    rtt: Option<Duration>,
    /// Size of the queue: bytes (64kB), packets (100p), or multiples of rate × round-trip time (1bdp), where the rate
    /// is that of the queue's own direction
    #[arg(long, value_name = "SIZE", default_value = "1bdp")]
    buffer: Buffer,
    /// Size of the queue of the forward direction, if different
    #[arg(long, value_name = "SIZE")]
    buffer_up: Option<Buffer>,
    /// Queue discipline: droptail, priority (by DSCP), priority-single (one buffer), red, red-ecn, codel, fq-codel, tins (by
    /// DSCP, the lower class has a sixteenth)
    #[arg(long, value_name = "NAME", default_value = "droptail")]
    queue: Discipline,
    /// Queue discipline of the forward direction, if different
    #[arg(long, value_name = "NAME")]
    queue_up: Option<Discipline>,
    /// Number of hosts on the left side
    #[arg(long, value_name = "N", default_value_t = 1)]
    left: usize,
    /// Number of hosts on the right side
    #[arg(long, value_name = "N", default_value_t = 1)]
    right: usize,
    /// Default congestion control of the hosts [default: cubic, if the kernel allows it]
    #[arg(long, value_name = "NAME")]
    congestion_control: Option<String>,
    /// How packets are captured: auto, tun (needs /dev/net/tun), packet
    #[arg(long, value_name = "NAME", default_value = "auto")]
    backend: Backend,
    /// Interval of the time series in the record, such as 100ms [default: no time series]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = "json")]
    series: Option<Duration>,
    /// File for a record as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Seed of the queues' random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The program to run [default: your shell]
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Args {
    fn topology(&self) -> Result<Topology, Error> {
        let rate = |trace: Option<&PathBuf>, rate: Rate| match trace {
            Some(path) => read_trace(path).map(LinkRate::Trace),
            None => Ok(LinkRate::Fixed(rate)),
        };
        let half = self.rtt.map(|round_trip| round_trip / 2);
        let down = half.or(self.delay).unwrap_or(Link::default().delay);
        let reverse = Link {
            rate: rate(self.trace.as_ref(), self.rate)?,
            delay: down,
            buffer: self.buffer,
            discipline: self.queue,
            seed: self.seed,
        };
        let mut forward = Link {
            delay: half.or(self.delay_up).unwrap_or(down),
            buffer: self.buffer_up.unwrap_or(self.buffer),
            discipline: self.queue_up.unwrap_or(self.queue),
            ..reverse.clone()
        };
        if let Some(fixed) = self.rate_up {
            forward.rate = LinkRate::Fixed(fixed);
        } else if let Some(path) = &self.trace_up {
            forward.rate = rate(Some(path), self.rate)?;
        }
        Ok(Topology {
            left: self.left,
            right: self.right,
            forward,
            reverse,
            backend: self.backend,
            congestion_control: self.congestion_control.clone(),
            series: self.series,
            // A shell may be open for hours without a measurement, and every processor would be awake
            // meanwhile.
            urgent: !self.command.is_empty() || self.json.is_some(),
            ..Topology::default()
        })
    }
}

/// Runs the program and passes its exit code on.
///
/// # Errors
/// None: failures are reported in one line, with the exit code 2 for wrong arguments and 125 for other
/// errors that prevent the start.
pub(crate) fn run(arguments: Args) -> anyhow::Result<ExitCode> {
    let outcome = arguments.topology().and_then(|topology| {
        let Args { command, json, .. } = arguments;
        Session { topology, command, json, asked: crate::program() }.run()
    });
    match outcome {
        Err(error @ (Error::Topology(_) | Error::Trace { .. })) => {
            eprintln!("lull: {error}");
            Ok(ExitCode::from(crate::USAGE))
        }
        Err(error) => {
            crate::print_error(
                &anyhow::Error::new(error).context("the emulator could not be started"),
            );
            Ok(ExitCode::from(FAILED))
        }
        Ok(code) => Ok(ExitCode::from(code)),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Args,
    }

    #[test]
    fn processors_stay_awake_for_measurements_not_for_shells() {
        for (line, urgent) in [
            (&["emulate"][..], false),
            (&["emulate", "--rate", "5mbit", "--rtt", "40ms"], false),
            (&["emulate", "--json", "record.json"], true),
            (&["emulate", "--", "iperf3", "-c", "10.2.0.1"], true),
        ] {
            let Line { arguments } = Line::try_parse_from(line).unwrap();
            assert_eq!(arguments.topology().unwrap().urgent, urgent, "{line:?}");
        }
    }
}
