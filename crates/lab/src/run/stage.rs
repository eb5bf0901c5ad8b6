//! The traffic of a cell, phase by phase.

use std::ffi::CString;
use std::net::IpAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::network::Network;
use super::order::{CellError, Order};
use super::processor::{Reading, Tasks};
use super::watch::{Tick, Watch};
use super::{CellEnvironment, MAX_RETRIES};
use crate::measure::{ObservedPhase, Owners, ends_of};
use crate::plan::{Carrier, Control, Group, Phase, Scenario};
use crate::record::cores;
use lull_emulator::Host;
use lull_emulator::traffic::{Placed, Programs, Scratch, Tally, Traffic, TrafficError, Work};

/// How often an observer of a cell is updated.
const TICK: Duration = Duration::from_millis(500);
/// How often a phase that ends with its groups' work checks whether they have done it.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The part of the processors' time that a hypervisor may take while a phase is measured. On the machine
/// where this was found, it took less than a thousandth most of the time. The emulator then delivered one
/// packet in a hundred 0.3 ms late. For a minute or two it took a twelfth, and the delay was 13 ms.
const MAX_STEAL: f64 = 0.005;

/// Where a group's traffic runs.
#[derive(Clone, Copy, Debug)]
enum Part {
    Sockets(usize),
    Program(usize),
}

/// The traffic of a cell.
pub(super) struct Stage<'a> {
    groups: Vec<Group>,
    /// Where each group's traffic runs.
    parts: Vec<Part>,
    /// The addresses of each group's data, source and destination.
    pub(super) hosts: Vec<(IpAddr, IpAddr)>,
    running: Vec<bool>,
    /// For an observer; updated only if there is one.
    owners: Owners,
    traffic: Traffic,
    // Dropped before the folder of their files.
    programs: Programs,
    _scratch: Option<Scratch>,
    /// All tasks of the machine, if the cell runs alone.
    tasks: Option<&'a Tasks>,
    /// Measure phases again in which a hypervisor took processor time.
    again: bool,
}

/// A group in the form of the emulator's traffic.
fn placed(
    order: &Order,
    scenario: &Scenario,
    network: &Network,
    group: &Group,
) -> Result<Placed, CellError> {
    let host = |name: &str| -> Result<Host, CellError> {
        let found = network.hosts().iter().find(|host| host.name() == name);
        found.cloned().ok_or_else(|| CellError::Scenario(format!("there is no host '{name}'")))
    };
    let user_space = scenario
        .controls
        .get(&group.control)
        .filter(|control| control.carrier == Carrier::UserSpace)
        .map(Control::parameters)
        .transpose()?;
    let known = |name: &str| {
        CString::new(order.controls.get(name).map_or(name, String::as_str))
            .map_err(|_| CellError::Scenario("a control's name holds a NUL".to_owned()))
    };
    let controls = group.kind.controls().map(|name| Ok((name.to_owned(), known(name)?)));
    let work = group.kind.work().cloned().ok_or_else(|| {
        CellError::Scenario(format!("the group '{}' needs the simulator", group.name))
    })?;
    Ok(Placed {
        name: group.name.clone(),
        count: group.count,
        dscp: group.dscp,
        spread: group.spread,
        work,
        from: host(&group.from)?,
        to: host(&group.to)?,
        control: known(&group.control)?,
        controls: controls.collect::<Result<_, CellError>>()?,
        user_space,
    })
}

/// The environment variables of a cell's programs.
fn environment(
    order: &Order,
    network: &Network,
    lull: &Path,
    scratch: Option<&Scratch>,
) -> Vec<(String, String)> {
    let mut environment = addresses(network);
    environment.push(("LULL".to_owned(), lull.display().to_string()));
    let data = std::path::absolute(&order.data).unwrap_or_else(|_| order.data.clone());
    environment.push(("LULL_DATA".to_owned(), data.display().to_string()));
    environment.push(("LULL_SEED".to_owned(), order.seed.to_string()));
    if let Some(scratch) = scratch {
        environment.push(("LULL_SCRATCH".to_owned(), scratch.path().display().to_string()));
    }
    environment
}

impl<'a> Stage<'a> {
    pub(super) fn set(
        order: &Order,
        scenario: &Scenario,
        network: &Network,
        surroundings: &'a CellEnvironment<'a>,
    ) -> Result<Self, CellError> {
        let (mut sockets, mut programs) = (Vec::new(), Vec::new());
        let (mut parts, mut hosts) = (Vec::new(), Vec::new());
        for group in &scenario.groups {
            let placed = placed(order, scenario, network, group)?;
            hosts.push((placed.from.v4().into(), placed.to.v4().into()));
            let (part, list) = if let Work::Command { .. } = placed.work {
                (Part::Program(programs.len()), &mut programs)
            } else {
                (Part::Sockets(sockets.len()), &mut sockets)
            };
            list.push(placed);
            parts.push(part);
        }
        let lull = order.lull.clone().unwrap_or_else(|| "lull".into());
        let mut needed = surroundings.needed.clone();
        needed.extend(order.lull.clone());
        needed.push(order.data.clone());
        let scratch = (!programs.is_empty())
            .then(|| Scratch::new(surroundings.container, &needed))
            .transpose()
            .map_err(TrafficError::system("making room for files"))?;
        let environment = environment(order, network, &lull, scratch.as_ref());
        Ok(Stage {
            groups: scenario.groups.clone(),
            running: vec![false; parts.len()],
            owners: Owners::new(&scenario.groups, &hosts),
            parts,
            hosts,
            traffic: Traffic::start(sockets, order.seed)?,
            programs: Programs::start(programs, environment, &lull)?,
            _scratch: scratch,
            tasks: match network {
                Network::Wire(_) => surroundings.tasks.as_ref(),
                Network::Emulated(_) => None,
            },
            again: order.again,
        })
    }

    /// Starts and ends groups, waits until the phase has settled, and measures.
    pub(super) fn phase(
        &mut self,
        network: &Network,
        phase: &Phase,
        watch: &mut dyn Watch,
    ) -> Result<ObservedPhase, CellError> {
        let settling = format!("{}, settling", phase.name);
        network.mark(&settling)?;
        let begin = Instant::now();
        self.change(phase)?;
        let settled = begin + phase.settle.value.0;
        let owners = self.owners.clone();
        let mut audience =
            PhaseObserver { watch, network, phase, begin, settled, last: None, owners, until: &[] };
        audience.wait(self, settled)?;
        let mut again = 0;
        let (measured, before, after, cpu) = loop {
            let measured = match again {
                0 => phase.name.clone(),
                again => format!("{}, again {again}", phase.name),
            };
            network.mark(&measured)?;
            let cpu_before = Reading::now(self.tasks);
            let before = self.tally()?;
            audience.last = None;
            audience.until = &phase.until;
            // Not early, except for a repeated measurement.
            let from = if again == 0 { settled } else { Instant::now() };
            audience.wait(self, from + phase.measure.value.0)?;
            let after = self.tally()?;
            let cpu = Reading::now(self.tasks).since(&cpu_before);
            let seconds = (after.0 - before.0).as_secs_f64();
            // Groups whose work ends a phase do it only once.
            let may_again = self.again && phase.until.is_empty() && again < MAX_RETRIES;
            if !may_again || cpu.stolen_s <= MAX_STEAL * seconds * cores() as f64 {
                break (measured, before, after, cpu);
            }
            again += 1;
        };
        self.owners = audience.owners;
        network.mark("between phases")?;
        let active = self.active();
        Ok(ObservedPhase {
            name: phase.name.clone(),
            title: phase.title.clone(),
            settling,
            measured,
            again,
            begin,
            before,
            after,
            cpu,
            active,
        })
    }

    /// Starts and ends groups. Groups that end do so before others start.
    fn change(&mut self, phase: &Phase) -> Result<(), CellError> {
        let wanted: Vec<bool> =
            self.groups.iter().map(|group| group.phases.contains(&phase.name)).collect();
        for (number, part) in self.parts.iter().enumerate() {
            match part {
                _ if !self.running[number] || wanted[number] => {}
                Part::Sockets(group) => self.traffic.end(*group)?,
                Part::Program(group) => self.programs.end(*group)?,
            }
        }
        for (number, part) in self.parts.iter().enumerate() {
            match part {
                _ if self.running[number] || !wanted[number] => {}
                Part::Sockets(group) => self.traffic.begin(*group)?,
                Part::Program(group) => self.programs.begin(*group)?,
            }
        }
        self.running = wanted;
        Ok(())
    }

    /// The active groups, by number.
    fn active(&self) -> Vec<usize> {
        (0..self.parts.len()).filter(|number| self.running[*number]).collect()
    }

    /// Whether all groups of these names have done their work.
    fn are_done(&self, names: &[String]) -> Result<bool, CellError> {
        for (group, part) in self.groups.iter().zip(&self.parts) {
            let is_done = match part {
                _ if !names.contains(&group.name) => true,
                Part::Sockets(group) => self.traffic.is_done(*group)?,
                Part::Program(group) => self.programs.completed(*group).is_some(),
            };
            if !is_done {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The counts of all groups so far; empty for programs, which are not counted.
    fn tally(&self) -> Result<(Instant, Vec<Tally>), CellError> {
        let (at, tallies) = self.traffic.tally()?;
        let of = |part: &Part| match part {
            Part::Sockets(group) => tallies[*group].clone(),
            Part::Program(group) => {
                let completed = self.programs.completed(*group);
                let report = self.programs.report(*group);
                Tally { completed, report, ..Tally::default() }
            }
        };
        Ok((at, self.parts.iter().map(of).collect()))
    }

    /// Ends all traffic, and reports errors in it.
    pub(super) fn close(&mut self) -> Result<(), CellError> {
        self.traffic.finish()?;
        for part in &self.parts {
            if let Part::Program(group) = part {
                self.programs.end(*group)?;
            }
        }
        Ok(())
    }
}

/// The observer of a phase.
struct PhaseObserver<'a> {
    watch: &'a mut dyn Watch,
    network: &'a Network,
    phase: &'a Phase,
    begin: Instant,
    settled: Instant,
    /// When the observer was last updated, and what each group had sent by then.
    last: Option<(f64, Vec<u64>)>,
    owners: Owners,
    /// The groups that end the wait when all of them have done their work.
    until: &'a [String],
}

impl PhaseObserver<'_> {
    fn wait(&mut self, stage: &Stage<'_>, until: Instant) -> Result<(), CellError> {
        let mut told = Instant::now();
        loop {
            let now = Instant::now();
            let left = until.saturating_duration_since(now);
            let is_over = !self.until.is_empty() && stage.are_done(self.until)?;
            if left.is_zero() || is_over {
                return Ok(());
            }
            let mut sleep = left;
            if self.watch.is_watching() {
                sleep = sleep.min((told + TICK).saturating_duration_since(now));
            }
            if !self.until.is_empty() {
                sleep = sleep.min(CHECK_INTERVAL);
            }
            thread::sleep(sleep);
            if self.watch.is_watching() && told.elapsed() >= TICK {
                self.report_progress(stage)?;
                told = Instant::now();
            }
        }
    }

    fn report_progress(&mut self, stage: &Stage<'_>) -> Result<(), CellError> {
        let Some(window) = self.network.statistics()? else { return Ok(()) };
        let tallies = stage.tally()?.1;
        let active = stage.active();
        self.owners.learn(&window, &tallies, &active);
        let sent: Vec<u64> = active
            .iter()
            .map(|group| {
                let flows = window.forward.flows.iter().chain(&window.reverse.flows);
                let own =
                    flows.filter(|statistics| self.owners.is_of(*group, ends_of(&statistics.flow)));
                own.map(|statistics| statistics.counts.goodput_bytes).sum()
            })
            .collect();
        let start = (window.start_s, vec![0; sent.len()]);
        let (last_s, last) = self.last.take().unwrap_or_else(|| start.clone());
        let rate = |bytes: u64, before: u64, seconds: f64| {
            bytes.saturating_sub(before) as f64 * 8.0 / 1e6 / seconds.max(1e-3)
        };
        let groups = active.iter().zip(sent.iter().zip(&last)).map(|(group, (bytes, before))| {
            (
                stage.groups[*group].name.as_str(),
                rate(*bytes, *before, window.end_s - last_s),
                rate(*bytes, 0, window.seconds()),
            )
        });
        self.watch.tick(&Tick {
            phase: self.phase,
            since: self.begin.elapsed(),
            is_measured: Instant::now() >= self.settled,
            groups: groups.collect(),
            queueing_ms: window.forward.all.queueing_delay.map(|delay| delay.p50_ms),
        });
        self.last = Some((window.end_s, sent));
        Ok(())
    }
}

/// The addresses of the hosts, as `lull lab emulate` gives them to programs.
fn addresses(network: &Network) -> Vec<(String, String)> {
    network.hosts().iter().flat_map(Host::variables).collect()
}
