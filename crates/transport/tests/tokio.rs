//! Background streams of Tokio, over loopback.

use std::net::Ipv4Addr;

use lull_transport::{Background, Carrier, Options};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn user_space() -> Options {
    Options::new().carrier(Carrier::UserSpace)
}

#[tokio::test]
async fn a_tokio_stream_is_a_background_stream() {
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

/// The pace is looked after while the runtime does something else.
#[tokio::test]
async fn a_busy_runtime_does_not_stop_the_control() {
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
