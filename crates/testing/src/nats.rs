//! NATS servers with JetStream on loopback, each with its own folder, ports and process.
//!
//! A server syncs each message before it confirms it (`sync_interval: always`). A test that uses one begins with
//! `needs!(lull_testing::command("nats-server"))`.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::free_port;

/// The longest time until a server, or the majority of a cluster, answers.
const START: Duration = Duration::from_secs(60);

/// One server or a cluster. All processes end when it is dropped, by their own ids.
#[derive(Debug)]
pub struct NatsServers {
    folder: TempDir,
    servers: Vec<Server>,
}

#[derive(Debug)]
struct Server {
    configuration: PathBuf,
    clients: SocketAddr,
    monitor: SocketAddr,
    child: Option<Child>,
}

impl NatsServers {
    /// Starts one server.
    ///
    /// # Panics
    /// If it does not start.
    pub fn single() -> Self {
        Self::start(1, true, "")
    }

    /// Starts one server with these lines at the end of its configuration, such as `authorization { … }`.
    ///
    /// # Panics
    /// If it does not start.
    pub fn single_with(lines: &str) -> Self {
        Self::start(1, true, lines)
    }

    /// Starts one server that has no JetStream.
    ///
    /// # Panics
    /// If it does not start.
    pub fn without_jetstream() -> Self {
        Self::start(1, false, "")
    }

    /// Starts a cluster of this many servers. A stream with three replicas needs three.
    ///
    /// # Panics
    /// If it does not start.
    pub fn cluster(count: usize) -> Self {
        Self::start(count, true, "")
    }

    fn start(count: usize, jetstream: bool, lines: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let routes: Vec<_> = (0..count).map(|_| local(free_port())).collect();
        let configure = |at| Server::configure(folder.path(), at, &routes, jetstream, lines);
        let servers: Vec<_> = (0..count).map(configure).collect();
        let mut servers = NatsServers { servers, folder };
        // Together: a cluster is ready when the majority has elected a leader.
        servers.servers.iter_mut().for_each(Server::spawn);
        (0..count).for_each(|at| servers.wait_until_ready(at));
        servers
    }

    /// The number of servers, running or not.
    pub fn count(&self) -> usize {
        self.servers.len()
    }

    /// The addresses of all servers for a client: `nats://HOST:PORT,HOST:PORT`.
    pub fn url(&self) -> String {
        let all: Vec<_> = self.servers.iter().map(|server| server.clients.to_string()).collect();
        format!("nats://{}", all.join(","))
    }

    /// The address of one server for clients.
    pub fn address(&self, at: usize) -> SocketAddr {
        self.servers[at].clients
    }

    /// Sends a request to one server, such as `$JS.API.STREAM.DELETE.NAME`, and returns its answer.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn request(&self, at: usize, subject: &str, payload: &str) -> String {
        const PATIENCE: Duration = Duration::from_secs(10);
        let mut stream = TcpStream::connect(self.address(at)).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let length = payload.len();
        let text = format!(
            "CONNECT {{\"verbose\":false}}\r\nSUB answer 1\r\nPUB {subject} answer {length}\r\n{payload}\r\n"
        );
        stream.write_all(text.as_bytes()).expect("the server reads");
        let mut lines = BufReader::new(stream).lines().map(|line| line.expect("an answer"));
        lines.find(|line| line.starts_with("MSG answer")).expect("an answer");
        lines.next().expect("its payload")
    }

    /// The folder that has the data and the logs of the servers.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The process of one server; none if it does not run.
    pub fn process(&self, at: usize) -> Option<u32> {
        self.servers[at].child.as_ref().map(Child::id)
    }

    /// Kills one server with SIGKILL. Its folder stays.
    pub fn kill(&mut self, at: usize) {
        self.servers[at].end();
    }

    /// Starts a killed server again, with its folder and ports. Does not wait until it is ready.
    ///
    /// # Panics
    /// If the program does not start.
    pub fn restart(&mut self, at: usize) {
        self.servers[at].end();
        self.servers[at].spawn();
    }

    /// Stops the process of one server with SIGSTOP, as a machine that hangs.
    ///
    /// # Panics
    /// If it does not run.
    pub fn pause(&self, at: usize) {
        self.signal(at, Signal::SIGSTOP);
    }

    /// Lets a paused process continue.
    ///
    /// # Panics
    /// If it does not run.
    pub fn resume(&self, at: usize) {
        self.signal(at, Signal::SIGCONT);
    }

    fn signal(&self, at: usize, signal: Signal) {
        let process = self.process(at).expect("the server runs");
        let process = Pid::from_raw(i32::try_from(process).expect("a process id"));
        kill(process, signal).expect("it is a child of this process");
    }

    /// Waits until one server is ready: it has JetStream, and in a cluster all that it knows of each stream.
    ///
    /// # Panics
    /// If it is not ready after a minute, with the ends of all logs.
    pub fn wait_until_ready(&self, at: usize) {
        let server = &self.servers[at];
        let begun = Instant::now();
        while !server.is_ready() {
            // Another server may be the cause.
            let logs = || self.servers.iter().map(Server::log).collect::<String>();
            assert!(begun.elapsed() < START, "nats-server {at} is not ready:\n{}", logs());
            sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for NatsServers {
    fn drop(&mut self) {
        self.servers.iter_mut().for_each(Server::end);
    }
}

fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

impl Server {
    fn configure(
        folder: &Path,
        at: usize,
        routes: &[SocketAddr],
        jetstream: bool,
        lines: &str,
    ) -> Self {
        let (clients, monitor) = (local(free_port()), local(free_port()));
        let data = folder.join(format!("data{at}"));
        let mut text = format!(
            "server_name: n{at}\nlisten: \"{clients}\"\nhttp: \"{monitor}\"\nlogfile: \"{}\"\n{lines}\n",
            folder.join(format!("n{at}.log")).display(),
        );
        if jetstream {
            let data = data.display();
            let _ = writeln!(text, "jetstream {{ store_dir: \"{data}\", sync_interval: always }}");
        }
        if routes.len() > 1 {
            let all: Vec<_> = routes.iter().map(|to| format!("nats-route://{to}")).collect();
            // Servers refuse routes to a cluster of another name. So a server that looks for a killed one never joins
            // the cluster of another test, whose servers have the same names.
            let _ = writeln!(
                text,
                "cluster {{ name: lull-{}, listen: \"{}\", routes: [{}] }}",
                routes[0].port(),
                routes[at],
                all.join(", ")
            );
        }
        let configuration = folder.join(format!("n{at}.conf"));
        fs::write(&configuration, text).expect("the folder can be written");
        Server { configuration, clients, monitor, child: None }
    }

    fn spawn(&mut self) {
        let child = Command::new("nats-server")
            .arg("--config")
            .arg(&self.configuration)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.child = Some(child.expect("nats-server starts"));
    }

    fn end(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// The answer of its monitor to `/healthz`.
    fn is_ready(&self) -> bool {
        let answer = TcpStream::connect(self.monitor).and_then(|mut stream| {
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        });
        answer.is_ok_and(|answer| answer.split(' ').nth(1) == Some("200"))
    }

    fn log(&self) -> String {
        let text = fs::read_to_string(self.configuration.with_extension("log"));
        let text = text.unwrap_or_else(|error| error.to_string());
        let lines: Vec<_> = text.lines().rev().take(20).collect();
        let title = format!("{}:\n", self.configuration.display());
        lines.into_iter().rev().fold(title, |all, line| all + line + "\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::needs;

    #[test]
    fn killed_nats_server_restarts_on_its_port() {
        needs!(crate::command("nats-server"));
        let mut servers = NatsServers::single();
        let address = servers.address(0);
        TcpStream::connect(address).expect("it listens");
        servers.kill(0);
        TcpStream::connect(address).expect_err("it was killed");
        servers.restart(0);
        servers.wait_until_ready(0);
        TcpStream::connect(address).expect("it listens again");
    }

    #[test]
    fn nats_cluster_is_ready_without_one_of_three() {
        needs!(crate::command("nats-server"));
        let mut servers = NatsServers::cluster(3);
        servers.kill(1);
        servers.wait_until_ready(0);
        servers.wait_until_ready(2);
    }
}
