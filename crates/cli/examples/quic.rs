//! A sender and a receiver over QUIC, for the tests of `lull exec --udp yield`.
//!
//! `quic receive ADDRESS:PORT CERTIFICATE` writes its certificate to a file, accepts one connection, and prints its bytes.
//! `quic send ADDRESS:PORT CERTIFICATE SECONDS` sends for that time.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{env, fs};

use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use quinn::{ClientConfig, Connection, Endpoint, ServerConfig, TransportConfig};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const NAME: &str = "localhost";
const CHUNK: usize = 64 * 1024;
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["receive", at, certificate] => receive(at.parse()?, certificate).await,
        ["send", to, certificate, seconds] => {
            send(to.parse()?, certificate, Duration::from_secs_f64(seconds.parse()?)).await
        }
        _ => Err("usage: quic receive|send ADDRESS:PORT CERTIFICATE [SECONDS]".into()),
    }
}

async fn receive(at: SocketAddr, certificate: &str) -> Result<()> {
    let own = rcgen::generate_simple_self_signed(vec![NAME.to_owned()])?;
    let key = PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
    let mut config = ServerConfig::with_single_cert(vec![own.cert.der().clone()], key.into())?;
    // Ends soon if the sender's close is lost.
    let mut transport = TransportConfig::default();
    transport.max_idle_timeout(Some(IDLE_TIMEOUT.try_into()?));
    config.transport_config(Arc::new(transport));
    let endpoint = Endpoint::server(config, at)?;
    fs::write(certificate, own.cert.der())?;
    let connection = endpoint.accept().await.ok_or("the endpoint is closed")?.await?;
    println!("{}", count(&connection).await);
    Ok(())
}

/// The bytes of the streams of a connection, to its end.
async fn count(connection: &Connection) -> u64 {
    let mut total = 0;
    while let Ok(mut stream) = connection.accept_uni().await {
        while let Ok(Some(chunk)) = stream.read_chunk(usize::MAX, false).await {
            total += chunk.bytes.len() as u64;
        }
    }
    total
}

async fn send(to: SocketAddr, certificate: &str, time: Duration) -> Result<()> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(fs::read(certificate)?))?;
    let from = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let mut endpoint = Endpoint::client(from.parse()?)?;
    endpoint.set_default_client_config(ClientConfig::with_root_certificates(Arc::new(roots))?);
    let connection = endpoint.connect(to, NAME)?.await?;
    let mut stream = connection.open_uni().await?;
    let begin = Instant::now();
    let data = [0; CHUNK];
    let mut written = 0;
    while let Some(left) = time.checked_sub(begin.elapsed()) {
        match tokio::time::timeout(left, stream.write(&data)).await {
            Ok(bytes) => written += bytes?,
            Err(_) => break,
        }
    }
    let path = connection.stats().path;
    println!(
        "written {written}, lost {} packets of {} bytes, {} congestion events, RTT {:?}",
        path.lost_packets, path.lost_bytes, path.congestion_events, path.rtt
    );
    // A connection that has failed would show here.
    match connection.close_reason() {
        Some(reason) => Err(reason.into()),
        None => {
            connection.close(0u32.into(), b"");
            endpoint.wait_idle().await;
            Ok(())
        }
    }
}
