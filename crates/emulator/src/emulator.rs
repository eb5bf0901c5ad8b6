//! The emulator as its users see it: hosts, and the thread that moves their packets.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::commands::{Command, Commands};
use crate::engine::{Engine, Outcome};
use crate::error::Error;
use crate::host::{self, Host, Hosts};
use crate::statistics::{Record, Series, TopologyDescription, Window, WindowTally};
use crate::sys;
use crate::topology::Topology;

/// A running emulator. Dropping it ends it.
#[derive(Debug)]
pub struct Emulator {
    description: TopologyDescription,
    interval_s: Option<f64>,
    hosts: Vec<Host>,
    left: usize,
    commands: Arc<Commands>,
    wake: Arc<EventFd>,
    thread: Option<JoinHandle<Result<Outcome, Error>>>,
}

impl Emulator {
    /// Makes the hosts and begins to move packets.
    ///
    /// # Errors
    /// [`Error::Topology`] before anything is made, [`Error::Permission`] and [`Error::Tun`] if this process
    /// may not make hosts, [`Error::Sysctl`] if the kernel does not have the topology's congestion control.
    /// After an error nothing is left behind.
    pub fn start(topology: &Topology) -> Result<Self, Error> {
        topology.validate()?;
        sys::raise_open_files();
        let Hosts { hosts, ports, backend, congestion_control } = Hosts::make(topology)?;
        let commands = Arc::new(Commands::new());
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .map_err(|error| Error::system("making an event descriptor", error))?;
        let wake = Arc::new(wake);
        let engine = Engine::new(topology, &hosts, ports);
        let thread = {
            let (commands, wake) = (Arc::clone(&commands), Arc::clone(&wake));
            thread::Builder::new()
                .name("emulator".to_owned())
                .spawn(move || engine.run(&commands, &wake))
                .map_err(|error| Error::system("starting a thread", error))?
        };
        Ok(Emulator {
            description: TopologyDescription::new(topology, backend, congestion_control),
            interval_s: topology.series.map(|interval| interval.as_secs_f64()),
            hosts,
            left: topology.left,
            commands,
            wake,
            thread: Some(thread),
        })
    }

    /// The host number `index` of the left side, counted from 0.
    ///
    /// # Panics
    /// If there are fewer hosts.
    pub fn left(&self, index: usize) -> &Host {
        &self.hosts[..self.left][index]
    }

    /// The host number `index` of the right side, counted from 0.
    ///
    /// # Panics
    /// If there are fewer hosts.
    pub fn right(&self, index: usize) -> &Host {
        &self.hosts[self.left..][index]
    }

    /// All hosts, left ones first.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The emulated topology, with the defaults of [`Topology`] filled in.
    pub fn description(&self) -> &TopologyDescription {
        &self.description
    }

    fn command(&self, command: Command) -> Result<(), Error> {
        self.commands.ask(command)?;
        self.wake.write(1).map_err(|error| Error::system("waking the emulator", error))?;
        Ok(())
    }

    /// The counts since the last mark, or since the start.
    ///
    /// # Errors
    /// [`Error::Stopped`] if the emulator has failed.
    pub fn statistics(&self) -> Result<Window, Error> {
        let (answer, answered) = channel();
        self.command(Command::Snapshot(answer))?;
        let (window, flows) = answered.recv().map_err(|_| Error::Stopped)?;
        Ok(window.window(&flows))
    }

    /// Ends the current window of the statistics and begins one called `name`.
    ///
    /// # Errors
    /// [`Error::Stopped`] if the emulator has failed.
    pub fn mark(&self, name: impl Into<String>) -> Result<(), Error> {
        let (answer, answered) = channel();
        self.command(Command::Mark(name.into(), answer))?;
        answered.recv().map_err(|_| Error::Stopped)
    }

    /// Unplugs the cable of a host, or plugs it in again. Its packets and those to it are lost silently,
    /// including packets in flight to it. Packets that it had sent before arrive.
    ///
    /// # Errors
    /// [`Error::Stopped`] if the emulator has failed.
    pub fn set_cut(&self, host: &Host, is_cut: bool) -> Result<(), Error> {
        let Some(port) = self.hosts.iter().position(|one| one.name() == host.name()) else {
            return Ok(());
        };
        let (answer, answered) = channel();
        self.command(Command::Cut(port, is_cut, answer))?;
        answered.recv().map_err(|_| Error::Stopped)
    }

    /// Ends the emulator and returns all counts.
    ///
    /// # Errors
    /// Any error that ended the emulator's thread early.
    pub fn finish(mut self) -> Result<Record, Error> {
        let mut outcome = self.stop().ok_or(Error::Stopped)??;
        for host in &self.hosts {
            outcome.overruns += host::device_drops(host)?;
        }
        Ok(self.record(outcome))
    }

    fn record(&self, outcome: Outcome) -> Record {
        let mut total = outcome.windows.first().cloned().unwrap_or_default();
        outcome.windows[1..].iter().for_each(|window| total.merge(window));
        total.name = "total".to_owned();
        let finished = |window: &WindowTally| window.window(&outcome.flows);
        let [forward, reverse] = outcome.series;
        Record {
            topology: self.description.clone(),
            total: finished(&total),
            windows: outcome.windows.iter().map(finished).collect(),
            series: self.interval_s.map(|interval_s| Series {
                interval_s,
                flows: outcome.flows.clone(),
                forward,
                reverse,
            }),
            cpu_s: outcome.cpu.as_secs_f64(),
            overruns: outcome.overruns,
            unroutable: outcome.unroutable,
        }
    }

    /// Ends the thread, and waits for it; none if that has been done already.
    fn stop(&mut self) -> Option<Result<Outcome, Error>> {
        let thread = self.thread.take()?;
        // If the thread has ended already, its result says why.
        let _ = self.command(Command::Stop);
        Some(thread.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload)))
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = self.command(Command::Stop);
            // A panic of the thread has been printed; a second one here would abort.
            let _ = thread.join();
        }
    }
}
