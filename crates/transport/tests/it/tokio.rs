//! Background streams of Tokio, over loopback.

use std::net::Ipv4Addr;

use lull_cc::NiceParameters;
use lull_testing::{bpf, needs};
use lull_transport::{Background, Carrier, Options};
use nix::sys::socket::{getsockopt, sockopt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn user_space() -> Options {
    Options::new().carrier(Carrier::UserSpace)
}

#[tokio::test]
async fn tokio_stream_is_a_background_stream() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let listener = user_space().listener(listener).unwrap();
    let server = tokio::spawn(async move {
        let (mut stream, _): (Background<TcpStream>, _) = listener.accept().await.unwrap();
        assert_eq!(stream.carrier(), Carrier::UserSpace);
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        stream.write_all(text.to_uppercase().as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
    });
    let mut stream = user_space().connect_tokio(address).await.unwrap();
    assert_eq!(stream.carrier(), Carrier::UserSpace);
    stream.write_all(b"later").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "LATER");
    server.await.unwrap();
}

#[tokio::test]
async fn kernel_carries_tokio_streams_where_nice_is_registered() {
    needs!(bpf());
    let name = format!("lttokio{}", std::process::id() % 1_000_000);
    let _held = lull_kernel::register_control(&name, &NiceParameters::refined()).unwrap();
    let options = Options::new().congestion_control(&name);
    let is_carried = |stream: &Background<TcpStream>| {
        let runs = getsockopt(&**stream, sockopt::TcpCongestion).unwrap();
        assert_eq!((stream.carrier(), runs.to_str().unwrap()), (Carrier::Kernel, name.as_str()));
        assert!(stream.user_space_nice().is_none());
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let listener = options.listener(listener).unwrap();
    assert_eq!(listener.carrier(), Carrier::Kernel);
    let client = async {
        let mut stream = options.connect_tokio(address).await.unwrap();
        is_carried(&stream);
        stream.write_all(&[1; 50_000]).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        answer
    };
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        is_carried(&stream);
        let mut question = Vec::new();
        stream.read_to_end(&mut question).await.unwrap();
        stream.write_all(&[2; 50_000]).await.unwrap();
        stream.shutdown().await.unwrap();
        question
    };
    let (answer, question) = tokio::join!(client, server);
    assert!(question == [1; 50_000] && answer == [2; 50_000]);
}

/// The pacing rate is controlled while the runtime is busy.
#[tokio::test]
async fn busy_runtime_does_not_stop_the_control() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut stream = user_space().connect_tokio(address).await.unwrap();
    let (mut peer, _) = listener.accept().await.unwrap();
    let (reader, mut writer) = tokio::io::split(&mut stream);
    drop(reader);
    let write = async { writer.write_all(&vec![0; 60_000]).await.unwrap() };
    let mut buffer = vec![0; 60_000];
    let read = async { peer.read_exact(&mut buffer).await.unwrap() };
    tokio::join!(write, read);
    let before = stream.user_space_nice().unwrap().poll_timeout();
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert!(stream.user_space_nice().unwrap().poll_timeout() > before);
}
