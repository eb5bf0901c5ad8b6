//! An S3 server on the origin's machine, for the bodies. Every ten seconds it is killed, or a proxy in front of it answers
//! `503 SlowDown`.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lull_emulator::Host;

use super::TortureError;
use super::clients::Shared;
use super::log_servers::wait;

const PROGRAM: &str = "versitygw";
/// The ports of the server and of the proxy.
const SERVER: u16 = 7_480;
const PROXY: u16 = 7_481;
const BUCKET: &str = "bodies";
/// The key in the environment of an origin.
pub(super) const KEY: [(&str, &str); 2] =
    [("AWS_ACCESS_KEY_ID", "lull-lab"), ("AWS_SECRET_ACCESS_KEY", "lull-lab-secret")];
/// Between two faults.
const PERIOD: Duration = Duration::from_secs(10);
/// How long a fault lasts.
const DOWN: Duration = Duration::from_secs(2);
const STEP: Duration = Duration::from_millis(50);
/// The longest start of the server.
const START: Duration = Duration::from_secs(60);

/// The server and its proxy.
#[derive(Debug)]
pub(super) struct BodyServer {
    host: Host,
    folder: PathBuf,
    child: Option<Child>,
    state: Arc<ProxyState>,
    /// How often it was killed, or refused requests.
    pub(super) faults: u64,
}

#[derive(Debug, Default)]
struct ProxyState {
    refuses: AtomicBool,
    stop: AtomicBool,
}

impl Drop for BodyServer {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::Relaxed);
        self.kill();
    }
}

impl BodyServer {
    /// Starts the server with its data in this folder.
    pub(super) fn start(host: &Host, folder: &Path) -> Result<Self, TortureError> {
        let failed = |source| TortureError::Program { what: PROGRAM.to_owned(), source };
        fs::create_dir_all(folder.join("root").join(BUCKET)).map_err(failed)?;
        fs::create_dir_all(folder.join("attributes")).map_err(failed)?;
        let (host, folder, state) = (host.clone(), folder.to_owned(), Arc::default());
        let mut server = BodyServer { host, folder, child: None, state, faults: 0 };
        server.run()?;
        let (at, state) = (server.proxy(), Arc::clone(&server.state));
        let listener = server.host.enter(move || TcpListener::bind(at))?.map_err(failed)?;
        server.host.spawn(move || accept(&listener, &state))?;
        server.wait_until_ready().map_err(failed)?;
        Ok(server)
    }

    fn proxy(&self) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(self.host.v4()), PROXY)
    }

    /// The address of the bucket.
    pub(super) fn url(&self) -> String {
        format!("s3://{BUCKET}/torture?endpoint=http://{}&region=us-east-1", self.proxy())
    }

    fn run(&mut self) -> Result<(), TortureError> {
        let [(_, access), (_, secret)] = KEY;
        let mut command = self.host.command(PROGRAM);
        command
            .args(["--access", access, "--secret", secret, "--region", "us-east-1", "--quiet"])
            .args(["--port", &server().to_string(), "posix", "--sidecar"])
            .args([self.folder.join("attributes"), self.folder.join("root")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let spawned = command.spawn();
        let failed = |source| TortureError::Program { what: PROGRAM.to_owned(), source };
        self.child = Some(spawned.map_err(failed)?);
        Ok(())
    }

    fn wait_until_ready(&self) -> io::Result<()> {
        let begun = Instant::now();
        loop {
            match self.host.enter(|| TcpStream::connect(server())) {
                Ok(Ok(_)) => return Ok(()),
                _ if begun.elapsed() > START => return Err(ErrorKind::TimedOut.into()),
                _ => thread::sleep(STEP),
            }
        }
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have just ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Injects one kind of fault after the other, until the run has ended. Then the server runs.
    pub(super) fn keep_failing(&mut self, shared: &Shared) -> Result<(), TortureError> {
        for refuses in [true, false].into_iter().cycle() {
            if wait(PERIOD - DOWN, shared) {
                return Ok(());
            }
            self.faults += 1;
            if refuses {
                self.state.refuses.store(true, Ordering::Relaxed);
                wait(DOWN, shared);
                self.state.refuses.store(false, Ordering::Relaxed);
            } else {
                self.kill();
                wait(DOWN, shared);
                self.run()?;
            }
        }
        Ok(())
    }
}

fn server() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], SERVER))
}

/// Forwards connections until the run has ended. The threads that it starts are on the same machine.
fn accept(listener: &TcpListener, state: &Arc<ProxyState>) {
    if listener.set_nonblocking(true).is_err() {
        return;
    }
    while !state.stop.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((client, _)) => {
                let state = Arc::clone(state);
                thread::spawn(move || {
                    // Either side may have gone.
                    let _ = forward(client, &state);
                });
            }
            Err(_) => thread::sleep(Duration::from_millis(5)),
        }
    }
}

fn forward(client: TcpStream, state: &Arc<ProxyState>) -> io::Result<()> {
    client.set_nonblocking(false)?;
    if state.refuses.load(Ordering::Relaxed) {
        return refuse(client);
    }
    let server = TcpStream::connect(server())?;
    let (to_server, from_client) = (server.try_clone()?, client.try_clone()?);
    let other = Arc::clone(state);
    thread::spawn(move || copy(from_client, to_server, &other));
    copy(server, client, state);
    Ok(())
}

/// Answers the first request of a connection.
fn refuse(mut client: TcpStream) -> io::Result<()> {
    const ANSWER: &[u8] =
        b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nContent-Length: 38\r\n\
                            Connection: close\r\n\r\n<Error><Code>SlowDown</Code></Error>\r\n";
    client.set_read_timeout(Some(DOWN))?;
    let (mut head, mut byte) = (Vec::new(), [0; 1]);
    while !head.ends_with(b"\r\n\r\n") && head.len() < 64 * 1024 {
        client.read_exact(&mut byte)?;
        head.extend_from_slice(&byte);
    }
    client.write_all(ANSWER)?;
    client.shutdown(Shutdown::Write)?;
    // Bytes of a body that arrive after the close would reset the connection, and lose the answer.
    io::copy(&mut client, &mut io::sink()).map(drop)
}

/// Copies one direction, until either side ends or requests are to be refused.
fn copy(mut from: TcpStream, mut to: TcpStream, state: &ProxyState) {
    let mut bytes = vec![0; 64 * 1024];
    let is_over = || state.refuses.load(Ordering::Relaxed) || state.stop.load(Ordering::Relaxed);
    if from.set_read_timeout(Some(STEP)).is_ok() {
        while !is_over() {
            let count = match from.read(&mut bytes) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    continue;
                }
                Err(_) => break,
            };
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
    }
    for side in [from, to] {
        // It may have ended before.
        let _ = side.shutdown(Shutdown::Both);
    }
}
