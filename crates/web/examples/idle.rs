//! The memory of the proxy for an idle connection of a client, by its protocol:
//! `cargo run --release -p lull-web --example idle`.
//!
//! The proxy runs in this process with its default settings, and its clients in another one. Each connection
//! has had a request before. The kernel's memory for a connection is not included.

#[path = "../tests/it/common/mod.rs"]
mod common;

use std::any::Any;
use std::env;
use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use common::{Proxy, mirror, proxy_with};
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use lull_speculate::model::Model;
use lull_speculate::observe::{ClientHasher, Limits};
use lull_speculate::predict::PpmParameters;
use lull_web::nps::{Nps, Settings};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Memory is measured with each of these numbers of connections. The difference is the memory of the
/// connections, without what exists once.
const FEW: usize = 1_000;
const MANY: usize = 4_000;
/// How long the proxy has to settle: buffers are freed within a second.
const REST: Duration = Duration::from_secs(3);

/// The protocol of a connection: whether HTTP/2, and whether over TLS.
const KINDS: [(&str, bool, bool); 4] = [
    ("HTTP/1.1", false, false),
    ("HTTP/2", true, false),
    ("HTTP/1.1 over TLS", false, true),
    ("HTTP/2 over TLS", true, true),
];

type Failure = Box<dyn Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match &arguments[..] {
        [kind, address, roots] => visit(KINDS[kind.parse::<usize>()?], address.parse()?, roots),
        [kind] => serve(kind.parse()?),
        _ => {
            // Each in a separate process: memory freed by the connections of one kind would be reused by the
            // next.
            for kind in 0..KINDS.len() {
                Command::new(env::current_exe()?).arg(kind.to_string()).status()?;
            }
            Ok(())
        }
    }
}

/// Reports the memory per connection of a kind.
fn serve(kind: usize) -> Result<(), Failure> {
    let (name, _, secure) = KINDS[kind];
    let folder = tempfile::tempdir()?;
    let certificate = common::certificate(folder.path());
    let roots = certificate.certificates.display().to_string();
    let model = Model::new(ClientHasher::new([7; 16]), Limits::default(), PpmParameters::shipped());
    let nps = Arc::new(Nps::new(Settings::default(), model, None));
    let change = |config: &mut lull_web::proxy::Config| {
        config.sites[0].certificate = Some(certificate);
        let scheme = if secure { "https" } else { "http" };
        config.listen = vec![format!("{scheme}://127.0.0.1:0").parse().expect("an address")];
        config.limits.connections_per_address = Some(NonZeroUsize::MAX);
    };
    let proxy = proxy_with(mirror(), change, Some(Arc::clone(&nps) as _));
    let bytes = idle(&proxy, kind, &roots)?;
    println!("{name:<18} {:5.1} kB", bytes as f64 / 1e3);
    nps.stop();
    Ok(())
}

/// The memory of one connection of a kind, in bytes.
fn idle(proxy: &Proxy, kind: usize, roots: &str) -> Result<u64, Failure> {
    let mut clients = Clients::start(kind, proxy.address(), roots)?;
    let mut sizes = Vec::new();
    for count in [FEW, MANY] {
        clients.open(count)?;
        thread::sleep(REST);
        sizes.push(resident()?);
    }
    Ok(sizes[1].saturating_sub(sizes[0]) / (MANY - FEW) as u64)
}

/// The resident memory of this process.
fn resident() -> Result<u64, Failure> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).ok_or("no VmRSS")?;
    Ok(kib.parse::<u64>()? * 1024)
}

/// This program as clients, which end with their input.
struct Clients {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Clients {
    fn start(kind: usize, door: SocketAddr, roots: &str) -> Result<Self, Failure> {
        let mut process = Command::new(env::current_exe()?)
            .args([&kind.to_string(), &door.to_string(), roots])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().ok_or("no output")?);
        Ok(Clients { process, input, output })
    }

    /// Opens idle connections up to this number.
    fn open(&mut self, count: usize) -> Result<(), Failure> {
        writeln!(self.input.as_mut().ok_or("no input")?, "{count}")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        if line.trim() == "open" { Ok(()) } else { Err("the clients have ended".into()) }
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.process.wait();
    }
}

/// Opens as many connections as each line of the input requests.
fn visit(kind: (&str, bool, bool), door: SocketAddr, roots: &str) -> Result<(), Failure> {
    let (_, second, secure) = kind;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tls = connector(roots, second)?;
    let mut kept = Vec::new();
    for line in std::io::stdin().lines() {
        let count: usize = line?.trim().parse()?;
        runtime.block_on(async {
            while kept.len() < count {
                let stream = TcpStream::connect(door).await?;
                stream.set_nodelay(true)?;
                kept.push(if secure {
                    let name = ServerName::try_from("localhost")?;
                    ask(tls.connect(name, stream).await?, second).await?
                } else {
                    ask(stream, second).await?
                });
            }
            Ok::<(), Failure>(())
        })?;
        println!("open");
    }
    Ok(())
}

fn connector(roots: &str, second: bool) -> Result<TlsConnector, Failure> {
    let mut store = rustls::RootCertStore::empty();
    store.add(CertificateDer::from_pem_file(roots)?)?;
    let mut config =
        rustls::ClientConfig::builder().with_root_certificates(store).with_no_client_auth();
    config.alpn_protocols = vec![if second { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// One request and its answer, with the client's end of the connection, which is closed when it is dropped.
async fn ask<S>(stream: S, second: bool) -> Result<Box<dyn Any>, Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let request = |uri: &str| {
        let request = Request::get(uri).header("host", "localhost").header("accept", "text/html");
        request.body(Empty::<Bytes>::new())
    };
    let stream = TokioIo::new(stream);
    let (answer, kept) = if second {
        let (mut sender, driver) = http2::handshake(TokioExecutor::new(), stream).await?;
        tokio::spawn(driver);
        let answer = sender.send_request(request("http://localhost/")?).await?;
        (answer, Box::new(sender) as Box<dyn Any>)
    } else {
        let (mut sender, driver) = http1::handshake(stream).await?;
        tokio::spawn(driver);
        let answer = sender.send_request(request("/")?).await?;
        (answer, Box::new(sender) as Box<dyn Any>)
    };
    if !answer.status().is_success() {
        return Err(format!("the answer is {}", answer.status()).into());
    }
    answer.into_body().collect().await?;
    Ok(kept)
}
