//! Three NATS servers on the origin's machine, for its log. One of them is killed every ten seconds.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use lull_emulator::Host;

use super::TortureError;
use super::clients::Shared;

/// The servers: a stream has as many replicas, and needs most of them.
const COUNT: u16 = 3;
/// The ports for clients and for the other servers; each server has the next one.
const CLIENTS: u16 = 4_222;
const ROUTES: u16 = 6_222;
/// Between two kills.
const PERIOD: Duration = Duration::from_secs(10);
/// How long a killed server does not run.
const DOWN: Duration = Duration::from_secs(3);
const STEP: Duration = Duration::from_millis(50);

/// The servers.
#[derive(Debug)]
pub(super) struct LogServers {
    host: Host,
    folder: PathBuf,
    servers: Vec<Option<Child>>,
    /// How often one was killed.
    pub(super) kills: u64,
}

impl Drop for LogServers {
    fn drop(&mut self) {
        (0..self.servers.len()).for_each(|at| self.kill(at));
    }
}

impl LogServers {
    /// Starts the servers with their data in this folder.
    pub(super) fn start(host: &Host, folder: &Path) -> Result<Self, TortureError> {
        let servers = (0..COUNT).map(|_| None).collect();
        let mut all =
            LogServers { host: host.clone(), folder: folder.to_owned(), servers, kills: 0 };
        for at in 0..all.servers.len() {
            all.run(at)?;
        }
        Ok(all)
    }

    /// The address of the log.
    pub(super) fn url(&self) -> String {
        let address = self.host.v4();
        let all: Vec<_> = (0..COUNT).map(|at| format!("{address}:{}", CLIENTS + at)).collect();
        format!("nats://{}/torture", all.join(","))
    }

    fn run(&mut self, at: usize) -> Result<(), TortureError> {
        let failed = |source| TortureError::Program { what: "nats-server".to_owned(), source };
        let number = at as u16;
        let routes: Vec<_> =
            (0..COUNT).map(|to| format!("nats-route://127.0.0.1:{}", ROUTES + to)).collect();
        let text = format!(
            "server_name: n{number}\nlisten: \"{}:{}\"\njetstream {{ store_dir: \"{}\", sync_interval: always }}\n\
             cluster {{ name: lull, listen: \"127.0.0.1:{}\", routes: [{}] }}\n",
            self.host.v4(),
            CLIENTS + number,
            self.folder.join(format!("data{number}")).display(),
            ROUTES + number,
            routes.join(", "),
        );
        let configuration = self.folder.join(format!("n{number}.conf"));
        fs::write(&configuration, text).map_err(failed)?;
        let mut command = self.host.command("nats-server");
        command.arg("--config").arg(configuration);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.servers[at] = Some(command.spawn().map_err(failed)?);
        Ok(())
    }

    fn kill(&mut self, at: usize) {
        if let Some(mut child) = self.servers[at].take() {
            // It may have just ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Kills one after the other, until the run has ended. Then all run.
    pub(super) fn keep_killing(&mut self, shared: &Shared) -> Result<(), TortureError> {
        for at in (0..self.servers.len()).cycle() {
            if wait(PERIOD - DOWN, shared) {
                return Ok(());
            }
            self.kill(at);
            self.kills += 1;
            wait(DOWN, shared);
            self.run(at)?;
        }
        Ok(())
    }
}

/// Waits, but not beyond the end of the run. Whether that has come.
pub(super) fn wait(length: Duration, shared: &Shared) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < length && !shared.has_ended() {
        std::thread::sleep(STEP);
    }
    shared.has_ended()
}
