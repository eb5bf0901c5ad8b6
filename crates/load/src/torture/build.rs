//! Building the machines.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lull_cc::Rate;
use lull_emulator::{Emulator, Host, Link, LinkRate, Topology};

use super::body_server::{self, BodyServer};
use super::clients::Shared;
use super::daemon::{Clock, Daemon, Program};
use super::disk::LabDisk;
use super::history::STANDBY;
use super::log_servers::LogServers;
use super::private_folder::PrivateFolder;
use super::site::{
    KEPT_SYNC_ONE_IN, Kind, LISTEN, MAX_SKEW, Machine, ORIGIN_RATE, READS, REPLICAS, SABOTAGED,
    SABOTAGED_RATE, Site, TOKEN, WRITES, system,
};
use super::{Sabotage, Torture, TortureError};

/// The port of a relay for replicas.
const RELAY: u16 = 7_072;
/// The replica that is a relay, and the one below it. That one has one Δ for all cases: it may be without a parent after
/// faults of either machine, and of the origin's.
const RELAYING: usize = 0;
const BELOW: usize = 2;
/// The clocks of the origin that stands by.
const STANDBY_RATE: i64 = -300;

/// The parts that the machines are built from.
struct Builder<'a> {
    folder: &'a PrivateFolder,
    torture: &'a Torture,
    emulator: Emulator,
    program: Program,
    shared: Shared,
    token: String,
    log: Option<LogServers>,
    bodies: Option<BodyServer>,
}

fn topology(torture: &Torture) -> Topology {
    let link = Link {
        rate: LinkRate::Fixed(Rate::from_bits_per_second(50_000_000)),
        delay: Duration::from_millis(5),
        ..Link::default()
    };
    let left = if torture.parts.standby { 2 } else { 1 };
    // Nothing is measured here: the daemons get the processors.
    Topology { left, right: REPLICAS.len(), urgent: false, ..Topology::symmetric(link) }
}

impl Site {
    /// Builds everything, and starts it when it is on the disks.
    pub(super) fn build(folder: &PrivateFolder, torture: &Torture) -> Result<Self, TortureError> {
        let program = Program { file: torture.program.clone() };
        let shared = Shared::new(torture.seed);
        let emulator = Emulator::start(&topology(torture))?;
        let token = folder.text("token");
        fs::write(&token, TOKEN).map_err(system("writing the token"))?;
        let host = emulator.left(0);
        let parts = torture.parts;
        let log =
            parts.nats.then(|| LogServers::start(host, &folder.folder("nats")?)).transpose()?;
        let bodies =
            parts.s3.then(|| BodyServer::start(host, &folder.folder("bucket")?)).transpose()?;
        let builder = Builder { folder, torture, emulator, program, shared, token, log, bodies };
        builder.site()
    }
}

impl Builder<'_> {
    fn site(self) -> Result<Site, TortureError> {
        let mut origin = self.origin("origin", 0)?;
        origin.daemon.start(&self.program)?;
        let standby = self.torture.parts.standby.then(|| self.standby()).transpose()?;
        let mut replicas = Vec::new();
        for at in 0..REPLICAS.len() {
            replicas.push(self.replica(at)?);
        }
        for machine in [&mut origin].into_iter().chain(&mut replicas) {
            // The power is not cut while a machine is being set up.
            machine.disk.sync();
            if machine.number > 0 {
                machine.daemon.start(&self.program)?;
            }
        }
        if self.torture.sabotage == Some(Sabotage::Disk) {
            origin.disk.drop_syncs(KEPT_SYNC_ONE_IN);
        }
        let publish = self.folder.folder("publish")?;
        let stores = (0..=usize::from(standby.is_some()))
            .map(|at| (self.emulator.left(at).clone(), self.store(at)));
        let (stores, mounts) = (stores.collect(), self.mounts());
        let relays = self.torture.parts.relay.then_some((BELOW as u8, RELAYING as u8 + 1));
        let Builder { emulator, program, shared, log, bodies, .. } = self;
        let relays = relays.into_iter().collect();
        Ok(Site {
            origin,
            replicas,
            standby,
            emulator,
            program,
            shared,
            mounts,
            publish,
            stores,
            log,
            bodies,
            relays,
        })
    }

    /// The store of an origin.
    fn store(&self, at: usize) -> String {
        self.folder.text(if at == 0 { "origin/store" } else { "standby/store" })
    }

    fn mounts(&self) -> Vec<PathBuf> {
        REPLICAS.iter().map(|kind| self.folder.path(&format!("{}-files", kind.name))).collect()
    }

    /// One of the origins, which does not run so far.
    fn origin(&self, name: &'static str, at: usize) -> Result<Machine, TortureError> {
        let (host, store) = (self.emulator.left(at), self.store(at));
        let disk = LabDisk::mount(&self.folder.folder(name)?)?;
        if at == 0 {
            self.program.finish(host, &["origin", "init", &store])?;
        }
        let rate = if at == 0 { ORIGIN_RATE } else { STANDBY_RATE };
        let clock = Clock::new(&self.folder.path(&format!("{name}.clock")), rate)?;
        let listen = listen(host);
        let http = format!("127.0.0.1:{WRITES}");
        let clock_path = clock.path().to_string_lossy().into_owned();
        let arguments = ["origin", "run", &store, "--json", "--listen", &listen, "--http", &http];
        let more = ["--token-file", &self.token, "--lab-clock", &clock_path];
        let mut arguments: Vec<String> =
            arguments.iter().chain(&more).map(|one| (*one).to_owned()).collect();
        for (option, url) in [
            ("--log", self.log.as_ref().map(LogServers::url)),
            ("--store", self.bodies.as_ref().map(BodyServer::url)),
        ] {
            arguments.extend(url.into_iter().flat_map(|url| [option.to_owned(), url]));
        }
        let daemon = Daemon::new(name, host, arguments, self.shared.begun);
        let daemon = daemon.with(&body_server::KEY);
        let (number, may_be_replaced) =
            (if at == 0 { 0 } else { STANDBY }, self.torture.parts.standby);
        Ok(Machine { number, daemon, disk, clock, may_be_replaced })
    }

    /// The second origin, which stands by. It has the identity of the first one.
    fn standby(&self) -> Result<Machine, TortureError> {
        let mut machine = self.origin("standby", 1)?;
        let copied = fs::create_dir(self.store(1)).and_then(|()| {
            let identity = |at| Path::new(&self.store(at)).join("identity.json");
            fs::copy(identity(0), identity(1))
        });
        copied.map_err(system("copying the origin's identity"))?;
        machine.disk.sync();
        machine.daemon.start(&self.program)?;
        Ok(machine)
    }

    /// A replica that has joined, and does not run so far.
    fn replica(&self, at: usize) -> Result<Machine, TortureError> {
        let kind = &REPLICAS[at];
        let name = kind.name;
        let relays = self.torture.parts.relay;
        let origins = 0..=usize::from(self.torture.parts.standby);
        let both: Vec<String> = origins.map(|at| listen(self.emulator.left(at))).collect();
        let (origin, addresses) = (self.store(0), both.join(","));
        let mut ticket = vec!["origin", "ticket", &origin, name, "--address", &addresses];
        if relays && at == RELAYING {
            ticket.push("--relay");
        }
        let ticket = self.program.finish(self.emulator.left(0), &ticket)?;
        let (host, store) = (self.emulator.right(at), self.folder.text(&format!("{name}/store")));
        let disk = LabDisk::mount(&self.folder.folder(name)?)?;
        self.program.finish(host, &["replica", "join", ticket.trim(), &store])?;
        let bent = self.torture.sabotage == Some(Sabotage::Clock) && at == SABOTAGED;
        let rate = if bent { SABOTAGED_RATE } else { kind.rate };
        let clock = Clock::new(&self.folder.path(&format!("{name}.clock")), rate)?;
        let mount = self.folder.folder(&format!("{name}-files"))?;
        let mut arguments = arguments_of(kind, &store, &mount, clock.path());
        let relay = format!("{}:{RELAY}", self.emulator.right(RELAYING).v4());
        let more = match at {
            RELAYING if relays => vec!["--relay".to_owned(), relay],
            BELOW if relays => vec!["--via".to_owned(), relay, "--or-origin".to_owned()],
            _ => Vec::new(),
        };
        arguments.extend(more);
        let daemon = Daemon::new(name, host, arguments, self.shared.begun);
        Ok(Machine { number: at as u8 + 1, daemon, disk, clock, may_be_replaced: false })
    }
}

/// The address of an origin for replicas.
fn listen(host: &Host) -> String {
    format!("{}:{LISTEN}", host.v4())
}

fn arguments_of(kind: &Kind, store: &str, mount: &Path, clock: &Path) -> Vec<String> {
    let [delta, disconnected] =
        [kind.bounds.connected, kind.bounds.disconnected].map(|one| one.as_secs_f64().to_string());
    let max_skew = MAX_SKEW.as_secs_f64().to_string();
    let (mount, clock) = (mount.to_string_lossy(), clock.to_string_lossy());
    let http = format!("127.0.0.1:{READS}");
    let all = [
        "replica",
        "run",
        store,
        "--json",
        "--http",
        &http,
        "--mount",
        &mount,
        "--lab-clock",
        &clock,
        "--delta",
        &delta,
        "--delta-disconnected",
        &disconnected,
        "--max-skew",
        &max_skew,
        "--keep",
        "5",
        "--blocked",
        "error",
        "--patience",
        "0.3",
    ];
    all.iter().chain(kind.more).map(|one| (*one).to_owned()).collect()
}
