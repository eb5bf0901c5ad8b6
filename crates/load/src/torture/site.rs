//! The machines: an origin and replicas, their network, disks and clocks, and their faults.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use super::body_server::BodyServer;
use super::clients::{self, Shared};
use super::daemon::{Clock, Daemon, Program};
use super::disk::LabDisk;
use super::history::{Bounds, Fault, Happened, History, Read, SINGLES, Skews, TOGETHER, Write};
use super::log_servers::LogServers;
use super::schedule::{Planned, Rounds, Schedule};
use super::{Progress, Torture, TortureError};
use crate::http_client::{Client, block_on};
use lull_emulator::{Emulator, Host};

/// The ports for replicas, for writes to the origin, and for reads of replicas.
pub(super) const LISTEN: u16 = 7_070;
pub(super) const WRITES: u16 = 7_071;
pub(super) const READS: u16 = 7_080;
/// A client that shows it may write.
pub(super) const TOKEN: &str = "a token that is no secret";
/// The share of the lying disk's confirmed writes that are not kept.
pub(super) const KEPT_SYNC_ONE_IN: u64 = 64;
/// Clients of each kind: sessions that change replicas, and programs in each mount.
const SESSIONS: u32 = 3;
const MOUNT_READERS: u64 = 1;
/// The number of writers of single objects.
const WRITERS: u64 = 2;
/// Sessions of mounts have the numbers from here, one for each replica.
pub(super) const MOUNTS: u32 = 100;
/// How long the system may take to come to rest after all faults: replicas try to connect at least every 30
/// s.
const REST: Duration = Duration::from_secs(90);
/// The interval of checks for events.
const STEP: Duration = Duration::from_millis(20);

/// A replica, and its special settings.
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) bounds: Bounds,
    /// Parts per million by which its clocks run fast: replicas allow for 1,000 at most, of which 500 are for
    /// a wall clock that follows a step.
    pub(super) rate: i64,
    pub(super) more: &'static [&'static str],
}

pub(super) const REPLICAS: [Kind; 3] = [
    Kind {
        name: "paris",
        bounds: Bounds { connected: Duration::from_secs(2), disconnected: Duration::from_secs(8) },
        rate: -450,
        more: &[],
    },
    // Its reads may pass each other.
    Kind {
        name: "london",
        bounds: Bounds { connected: Duration::from_secs(2), disconnected: Duration::from_secs(8) },
        rate: 450,
        more: &["--aggressive"],
    },
    // It keeps only some of the bodies, and promises the same with and without a connection.
    Kind {
        name: "tokyo",
        bounds: Bounds { connected: Duration::from_secs(3), disconnected: Duration::from_secs(3) },
        rate: 0,
        more: &["--quota", "2"],
    },
];
/// The origin's clocks run fast by this.
pub(super) const ORIGIN_RATE: i64 = 300;
/// Wall clocks that are further apart are not used.
pub(super) const MAX_SKEW: Duration = Duration::from_millis(500);
/// Half speed.
pub(super) const SABOTAGED_RATE: i64 = -500_000;
/// The replica with the broken clock: one that has one Δ for all cases.
pub(super) const SABOTAGED: usize = 2;

pub(super) fn system(what: &'static str) -> impl Fn(std::io::Error) -> TortureError {
    move |source| TortureError::System { what, source }
}

/// A machine with its processes.
#[derive(Debug)]
pub(super) struct Machine {
    /// 0 is the origin, the replica n is n + 1; [`STANDBY`] is the second origin.
    pub(super) number: u8,
    // Before the disk: a daemon has files open there.
    pub(super) daemon: Daemon,
    pub(super) disk: LabDisk,
    pub(super) clock: Clock,
    /// It is one of two origins: when the other has taken over, it ends, and is started again.
    pub(super) may_be_replaced: bool,
}

/// The machines and their links.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) origin: Machine,
    pub(super) replicas: Vec<Machine>,
    /// The second origin.
    pub(super) standby: Option<Machine>,
    pub(super) emulator: Emulator,
    pub(super) program: Program,
    pub(super) shared: Shared,
    pub(super) mounts: Vec<PathBuf>,
    pub(super) publish: PathBuf,
    /// The folders of the origins, on their machines.
    pub(super) stores: Vec<(Host, String)>,
    /// The servers of the log, if it is not in the origin's folder.
    pub(super) log: Option<LogServers>,
    /// The server of the bodies, if they are not there.
    pub(super) bodies: Option<BodyServer>,
    /// The machine of the relay by the replica that it serves.
    pub(super) relays: BTreeMap<u8, u8>,
}

/// Waits until the time is over, or until the run was ended.
fn run_for(
    shared: &Shared,
    from: Duration,
    length: Duration,
    mut on_progress: impl FnMut(Progress),
) {
    while !shared.has_ended() {
        let elapsed = shared.now() - from;
        let count = |of: &std::sync::atomic::AtomicU64| of.load(Ordering::Relaxed);
        let (reads, writes) = (count(&shared.reads), count(&shared.writes));
        on_progress(Progress { elapsed, reads, writes, faults: count(&shared.faults) });
        if elapsed >= length {
            shared.end();
        }
        thread::sleep(Duration::from_millis(200));
    }
}

/// Shared by all clients.
#[derive(Clone, Copy)]
struct Clients<'a> {
    shared: &'a Shared,
    program: &'a Program,
    origins: &'a [Host],
    replicas: &'a [Host],
    mounts: &'a [PathBuf],
    publish: &'a Path,
    stores: &'a [(Host, String)],
}

/// The outcome of a client's thread.
type Work<'scope, T> = ScopedJoinHandle<'scope, std::io::Result<T>>;

/// Clients that run.
struct Running<'scope> {
    writing: Vec<Work<'scope, Vec<Write>>>,
    publishing: Work<'scope, Vec<Write>>,
    reading: Vec<Work<'scope, Vec<Read>>>,
    looking: Vec<ScopedJoinHandle<'scope, Vec<Read>>>,
    asking: Work<'scope, Skews>,
}

impl<'scope> Clients<'scope> {
    fn start(self, scope: &'scope Scope<'scope, '_>) -> Running<'scope> {
        let Clients { shared, program, origins, replicas, mounts, publish, stores } = self;
        let writing = (0..WRITERS).map(|client| {
            let work = clients::write(shared, origins, WRITES, TOKEN, client);
            scope.spawn(move || block_on(work))
        });
        let reading = (0..SESSIONS).map(|session| {
            let work = clients::read(shared, replicas, READS, 10 + session);
            scope.spawn(move || block_on(work))
        });
        let looking = (0..MOUNT_READERS * mounts.len() as u64).map(|client| {
            let replica = client % mounts.len() as u64;
            let folder = &mounts[replica as usize];
            let session = MOUNTS + replica as u32;
            scope.spawn(move || {
                clients::read_mounts(shared, folder, session, replica as u8, 100 + client)
            })
        });
        Running {
            writing: writing.collect(),
            publishing: scope.spawn(move || clients::publish(shared, program, stores, publish, 50)),
            reading: reading.collect(),
            looking: looking.collect(),
            asking: scope
                .spawn(move || block_on(clients::ask_for_skews(shared, replicas, READS, MAX_SKEW))),
        }
    }
}

impl Running<'_> {
    fn join(self, history: &mut History) -> Result<(), TortureError> {
        let client = system("running a client");
        for one in self.writing.into_iter().chain([self.publishing]) {
            history.writes.extend(joined(one).map_err(&client)?);
        }
        for one in self.reading {
            history.reads.extend(joined(one).map_err(&client)?);
        }
        for one in self.looking {
            history.reads.extend(joined(one));
        }
        history.skews = joined(self.asking).map_err(&client)?;
        Ok(())
    }
}

impl Site {
    /// Injects faults for the given time, while clients write and read; then repairs all, and checks whether
    /// everything comes to rest.
    pub(super) fn torture(
        &mut self,
        torture: &Torture,
        on_progress: impl FnMut(Progress),
    ) -> Result<History, TortureError> {
        let mut history = History {
            bounds: REPLICAS.iter().map(|kind| kind.bounds).collect(),
            relays: self.relays.clone(),
            ..History::default()
        };
        let hosts: Vec<Host> = self.emulator.hosts().to_vec();
        let (origins, at_replicas) = hosts.split_at(hosts.len() - REPLICAS.len());
        let Site { origin, replicas, standby, emulator, program, shared, .. } = self;
        let Site { mounts, publish, stores, log, bodies, .. } = self;
        let rounds = Rounds::of(torture.length);
        let from = shared.now();
        thread::scope(|scope| {
            let (shared, program, emulator) = (&*shared, &*program, &*emulator);
            let machines = [origin].into_iter().chain(replicas).chain(standby);
            let keeping: Vec<_> = machines
                .map(|machine| {
                    let schedule = Schedule::new(shared.seed, machine.number);
                    scope.spawn(move || {
                        run_schedule(machine, schedule, rounds, shared, program, emulator)
                    })
                })
                .collect();
            let killing = log.as_mut().map(|log| scope.spawn(|| log.keep_killing(shared)));
            let failing = bodies.as_mut().map(|bodies| scope.spawn(|| bodies.keep_failing(shared)));
            let replicas = at_replicas;
            let clients = Clients { shared, program, origins, replicas, mounts, publish, stores };
            let clients = clients.start(scope);
            run_for(shared, from, torture.length, on_progress);
            for one in keeping {
                let (faults, failure) = joined(one);
                history.faults.extend(faults);
                history.failures.extend(failure.map(|error| lull_emulator::chain(&error)));
            }
            killing.map_or(Ok(()), joined)?;
            failing.map_or(Ok(()), joined)?;
            clients.join(&mut history)
        })?;
        history.last_reads = history.reads.len();
        if history.failures.is_empty() {
            let rest = block_on(self.wait_until_settled(origins, &mut history));
            rest.map_err(system("running a client"))?;
        }
        history.bodies = self.shared.bodies.load(Ordering::Relaxed);
        let replicas = &self.replicas;
        history.connections = replicas.iter().map(|one| one.daemon.connections()).collect();
        history.skews.told = replicas.iter().map(|one| one.daemon.skews()).sum();
        Ok(history)
    }

    /// Writes once more, waits until every replica shows that write, and reads everything everywhere.
    async fn wait_until_settled(&self, origins: &[Host], history: &mut History) {
        let shared = &self.shared;
        let begun = Instant::now();
        let mut origins: Vec<_> = origins.iter().map(|host| Client::new(host, WRITES)).collect();
        let last = loop {
            let written = clients::write_one(shared, &mut origins[0], TOKEN, 0, false).await;
            if let Some(write) = written {
                break write;
            }
            origins.rotate_left(1);
            if begun.elapsed() > REST {
                history.failures.push("the origin accepts no writes without faults".into());
                return;
            }
            tokio::time::sleep(STEP).await;
        };
        let Write { position, .. } = last;
        history.writes.push(last);
        for (replica, machine) in self.replicas.iter().enumerate() {
            let mut client = Client::new(&machine.daemon.host, READS);
            let name = machine.daemon.name;
            let shows = loop {
                // Before its state is checked: with that number it may mean a state that the origin has lost.
                if machine.daemon.is_refused() {
                    break false;
                }
                let status = clients::status(&mut client).await;
                let at = status.as_ref().and_then(|status| status["sequence"].as_u64());
                if at.is_some_and(|at| at >= position) {
                    break true;
                }
                if begun.elapsed() > REST {
                    break false;
                }
                tokio::time::sleep(STEP).await;
            };
            let refused = || if machine.daemon.is_refused() { ", and is rejected" } else { "" };
            if !shows {
                let why = refused();
                history.failures.push(format!("{name} does not come to state {position}{why}"));
                continue;
            }
            let asked =
                (0..SINGLES + TOGETHER).flat_map(|object| [(object, false), (object, true)]);
            let reading = Instant::now();
            for (object, by_mount) in asked {
                let give_up = || machine.daemon.is_refused() || reading.elapsed() > REST;
                match self.read_last(&mut client, replica, object, by_mount, give_up).await {
                    Some(read) => history.reads.push(read),
                    None => {
                        let why = refused();
                        history.failures.push(format!(
                            "{name} does not answer for object {object} without faults{why}"
                        ));
                        // Nor would it for the others, and each would be waited for.
                        break;
                    }
                }
            }
        }
    }

    /// Reads an object repeatedly until there is an answer, or a limit is reached.
    async fn read_last(
        &self,
        client: &mut Client,
        replica: usize,
        object: u8,
        by_mount: bool,
        give_up: impl Fn() -> bool,
    ) -> Option<Read> {
        let (shared, number) = (&self.shared, replica as u8);
        let session = MOUNTS + 50 + replica as u32;
        loop {
            let read = if by_mount {
                clients::read_mount(shared, &self.mounts[replica], session, number, object).ok()
            } else {
                clients::read_one(shared, client, session, number, object, &mut None).await
            };
            if read.is_some() {
                return read;
            }
            if give_up() {
                return None;
            }
            tokio::time::sleep(STEP).await;
        }
    }

    /// Ends all daemons, cuts the origin's power once more, and returns its store. With a log elsewhere the origin
    /// starts once more, and reads it.
    pub(super) fn recovered_store(&mut self) -> Result<PathBuf, TortureError> {
        let others = self.replicas.iter_mut().chain(&mut self.standby);
        others.for_each(|machine| machine.daemon.kill());
        let origin = &mut self.origin;
        origin.daemon.kill();
        origin.disk.cut(None);
        if self.log.is_some() {
            origin.daemon.start(&self.program)?;
            origin.daemon.wait_until_open()?;
            origin.daemon.kill();
        }
        Ok(PathBuf::from(&self.stores[0].1))
    }

    /// How often a server of the log was killed.
    pub(super) fn log_server_kills(&self) -> Option<u64> {
        self.log.as_ref().map(|log| log.kills)
    }

    /// How often the server of the bodies was killed, or refused requests.
    pub(super) fn body_server_faults(&self) -> Option<u64> {
        self.bodies.as_ref().map(|bodies| bodies.faults)
    }
}

/// The result of a thread, which does not panic.
fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload))
}

/// Injects faults into one machine by its schedule until the end, and leaves it repaired. A failure of that
/// ends the run.
fn run_schedule(
    machine: &mut Machine,
    mut schedule: Schedule,
    rounds: Rounds,
    shared: &Shared,
    program: &Program,
    emulator: &Emulator,
) -> (Vec<Happened>, Option<TortureError>) {
    let from = shared.now();
    let mut happened = Vec::new();
    loop {
        let planned = schedule.next();
        let put_off = rounds.put_off(shared.now() - from + planned.pause, planned.lasts);
        let waited = wait(machine, shared, program, planned.pause + put_off);
        if waited.is_ok() && shared.has_ended() {
            return (happened, machine.clock.set(0).err());
        }
        let begun = shared.now();
        let struck = waited.and_then(|()| {
            inject_fault(machine, planned, &mut schedule, shared, program, emulator)
        });
        if let Err(error) = struck {
            shared.end();
            return (happened, Some(error));
        }
        shared.faults.fetch_add(1, Ordering::Relaxed);
        let (machine, fault) = (machine.number, planned.fault);
        happened.push(Happened { machine, fault, from: begun, to: shared.now() });
    }
}

/// Injects a fault, waits, and repairs it.
fn inject_fault(
    machine: &mut Machine,
    planned: Planned,
    schedule: &mut Schedule,
    shared: &Shared,
    program: &Program,
    emulator: &Emulator,
) -> Result<(), TortureError> {
    match planned.fault {
        Fault::LinkCut => {
            emulator.set_cut(&machine.daemon.host, true)?;
            let waited = wait(machine, shared, program, planned.lasts);
            emulator.set_cut(&machine.daemon.host, false)?;
            waited?;
        }
        Fault::ClockSkew => {
            machine.clock.set(planned.ahead)?;
            wait(machine, shared, program, planned.lasts)?;
        }
        Fault::Kill | Fault::PowerCut | Fault::TornPowerCut => {
            machine.daemon.kill();
            match planned.fault {
                Fault::PowerCut => drop(machine.disk.cut(None)),
                Fault::TornPowerCut => drop(machine.disk.cut(Some(schedule.random()))),
                _ => {}
            }
            wait(machine, shared, program, planned.lasts)?;
            machine.daemon.start(program)?;
        }
    }
    Ok(())
}

/// Waits, but not beyond the end of the run.
fn wait(
    machine: &mut Machine,
    shared: &Shared,
    program: &Program,
    time: Duration,
) -> Result<(), TortureError> {
    let begun = Instant::now();
    while begun.elapsed() < time && !shared.has_ended() {
        if let Some(why) = machine.daemon.ended_by_itself() {
            if machine.may_be_replaced && why.contains("has taken over the log") {
                machine.daemon.start(program)?;
                continue;
            }
            return Err(TortureError::Daemon { name: machine.daemon.name, why });
        }
        thread::sleep(STEP.min(time));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::torture::history::RECONNECTING;

    #[test]
    fn isolated_replica_answers_shorter_than_a_reconnect() {
        for Kind { name, bounds, .. } in REPLICAS {
            assert!(bounds.disconnected + Duration::from_secs(2) <= RECONNECTING, "{name}");
        }
    }

    #[test]
    fn seed_of_the_slow_clock_test_has_a_long_cut() {
        // `crates/cli/tests/it/torture.rs` makes a run of 20 s with it.
        let first = Schedule::new(4_576, SABOTAGED as u8 + 1).next();
        assert_eq!(first.fault, Fault::LinkCut, "{first:?}");
        let lease = REPLICAS[SABOTAGED].bounds.connected;
        assert!(first.pause < lease && first.lasts > 3 * lease, "{first:?}");
    }
}
