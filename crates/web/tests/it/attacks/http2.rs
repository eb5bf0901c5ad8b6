//! The same over HTTP/2: its own attacks, and slowness on one of many streams.

use std::sync::mpsc::{Receiver, channel};

use super::common::Client;
use super::*;

/// HTTP/2 by hand, for messages that no library would send.
mod h2 {
    use super::*;

    pub(super) const DATA: u8 = 0;
    pub(super) const HEADERS: u8 = 1;
    pub(super) const RST_STREAM: u8 = 3;
    pub(super) const PING: u8 = 6;
    pub(super) const GOAWAY: u8 = 7;
    pub(super) const WINDOW_UPDATE: u8 = 8;
    pub(super) const CONTINUATION: u8 = 9;
    pub(super) const END_STREAM: u8 = 1;
    pub(super) const END_HEADERS: u8 = 4;

    /// `:method GET`, `:scheme http`, `:path /`, `:authority a` (RFC 7541, appendix A).
    pub(super) const GET: &[u8] = &[0x82, 0x86, 0x84, 0x41, 1, b'a'];

    /// The same for another path.
    pub(super) fn get(path: &str) -> Vec<u8> {
        [&[0x82, 0x86, 4, path.len() as u8][..], path.as_bytes(), &GET[3..]].concat()
    }

    /// The same by `:method POST`.
    pub(super) const POST: &[u8] = &[0x83, 0x86, 0x84, 0x41, 1, b'a'];

    pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        frame
    }

    pub(super) fn field(name: &str, value: &str) -> Vec<u8> {
        let mut field = vec![0, name.len() as u8];
        field.extend(name.bytes());
        field.push(value.len() as u8);
        field.extend(value.bytes());
        field
    }

    pub(super) fn connect(proxy: &common::Proxy) -> Client {
        let mut client = proxy.connect();
        client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        client.send(frame(4, 0, 0, &[]));
        client
    }

    /// The next frame: kind, stream and payload. `None` at the end.
    pub(super) fn read(client: &mut Client) -> Option<(u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        client.0.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut payload = vec![0; length];
        client.0.read_exact(&mut payload).ok()?;
        Some((head[3], stream, payload))
    }
}

#[test]
fn immediate_resets_end_the_connection() {
    let proxy = proxy(mirror());
    let mut client = h2::connect(&proxy);
    let flags = h2::END_STREAM | h2::END_HEADERS;
    let mut flood = Vec::new();
    for number in 0..5000 {
        let stream = 2 * number + 1;
        flood.extend(h2::frame(h2::HEADERS, flags, stream, h2::GET));
        flood.extend(h2::frame(h2::RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
    }
    let mut writer = client.0.get_ref().try_clone().unwrap();
    let writing = thread::spawn(move || writer.write_all(&flood));
    let mut reason = None;
    while let Some((kind, _, payload)) = h2::read(&mut client) {
        if kind == h2::GOAWAY {
            reason = payload.get(4..8).map(<[u8]>::to_vec);
        }
    }
    let _ = writing.join().unwrap();
    // ENHANCE_YOUR_CALM, if it arrived before the reset of the connection.
    assert!(reason.is_none_or(|reason| reason == 11_u32.to_be_bytes()));
    let totals = proxy.wait("end", |totals| totals.open_connections == 0);
    assert!(totals.requests < 2500, "{totals:?}");
}

/// Whether a request reaches the upstream before its client's connection ends.
fn arrives(arrivals: &Receiver<()>, proxy: &common::Proxy) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < common::LIMIT && proxy.totals().open_connections > 0 {
        if arrivals.recv_timeout(Duration::from_millis(50)).is_ok() {
            return true;
        }
    }
    false
}

#[test]
fn resets_after_forwarding_end_the_connection() {
    let (arrived, arrivals) = channel();
    let arrived = Mutex::new(arrived);
    let proxy = proxy(upstream(move |mut peer| {
        if peer.head().is_some() {
            let _ = arrived.lock().unwrap().send(());
            // It has not answered when its client is gone.
            let _ = peer.stream.read(&mut [0]);
        }
    }));
    let mut client = h2::connect(&proxy);
    proxy.wait("the connection", |totals| totals.open_connections == 1);
    let mut sent = 0;
    for number in 0..1000 {
        let stream = 2 * number + 1;
        let flags = h2::END_STREAM | h2::END_HEADERS;
        let head = h2::frame(h2::HEADERS, flags, stream, h2::GET);
        if client.0.get_mut().write_all(&head).is_err() || !arrives(&arrivals, &proxy) {
            break;
        }
        sent += 1;
        let reset = h2::frame(h2::RST_STREAM, 0, stream, &8_u32.to_be_bytes());
        let _ = client.0.get_mut().write_all(&reset);
    }
    let totals = proxy.wait("end", |totals| totals.open_connections == 0);
    // More than the requests of an abandoned page.
    assert!((200..400).contains(&sent), "{sent}");
    assert!(totals.upstream_connections < 400, "{totals:?}");
}

#[test]
fn connection_specific_headers_are_malformed_in_http2() {
    for (name, value) in [
        ("transfer-encoding", "chunked"),
        ("te", "gzip"),
        ("connection", "close"),
        ("upgrade", "websocket"),
        ("keep-alive", "timeout=5"),
        ("Accept", "upper case"),
        (":path", "/after"),
    ] {
        let proxy = proxy(mirror());
        let mut client = h2::connect(&proxy);
        let block = [h2::GET, &h2::field(name, value)].concat();
        client.send(h2::frame(h2::HEADERS, h2::END_STREAM | h2::END_HEADERS, 1, &block));
        let refused = loop {
            match h2::read(&mut client) {
                Some((h2::RST_STREAM, 1, _)) | Some((h2::GOAWAY, _, _)) | None => break true,
                Some((h2::HEADERS, 1, _)) => break false,
                Some(_) => {}
            }
        };
        assert!(refused, "{name}: {value}");
        assert_eq!(proxy.totals().upstream_connections, 0, "{name}: {value}");
    }
}

#[test]
fn host_that_differs_from_authority_is_rejected_in_http2() {
    let proxy = proxy(mirror());
    let mut client = h2::connect(&proxy);
    let block = [h2::GET, &h2::field("host", "b")].concat();
    client.send(h2::frame(h2::HEADERS, h2::END_STREAM | h2::END_HEADERS, 1, &block));
    let totals = proxy.wait("refusal", |totals| totals.responses[4] == 1);
    assert_eq!(totals.failures_of(Failure::Refused), 1);
    assert_eq!(totals.upstream_connections, 0);
}

#[test]
fn endless_head_is_not_buffered_in_http2() {
    let proxy = proxy(mirror());
    let mut client = h2::connect(&proxy);
    client.send(h2::frame(h2::HEADERS, h2::END_STREAM, 1, h2::GET));
    let block = h2::field("a", &"x".repeat(120)).repeat(100);
    let mut writer = client.0.get_ref().try_clone().unwrap();
    let flood = thread::spawn(move || {
        for sent in 0..10_000 {
            if writer.write_all(&h2::frame(h2::CONTINUATION, 0, 1, &block)).is_err() {
                return sent;
            }
        }
        10_000
    });
    assert!(client.is_closed_within(common::LIMIT));
    assert!(flood.join().unwrap() < 10_000);
    assert_eq!(proxy.totals().requests, 0);
}

/// How long clients may make no progress: longer than a busy machine delays a process.
const STALLED: Duration = Duration::from_secs(2);

fn impatient_of_stalls(config: &mut lull_web::proxy::Config) {
    config.timeouts.client_stalled = STALLED;
}

fn pings(client: &Client) {
    dribble(client, h2::frame(h2::PING, 0, 0, &[0; 8]));
}

/// Reads until the first stream is reset, and returns how much of its answer arrived before.
#[track_caller]
fn until_reset(client: &mut Client) -> usize {
    let (begun, mut taken) = (Instant::now(), 0);
    loop {
        assert!(begun.elapsed() < common::LIMIT, "it goes on for as long as something is said");
        match h2::read(client).expect("the connection ends") {
            (h2::DATA, 1, payload) => taken += payload.len(),
            (h2::RST_STREAM, 1, reason) => {
                assert_eq!(reason, 8_u32.to_be_bytes(), "CANCEL");
                return taken;
            }
            _ => {}
        }
    }
}

/// Whether another stream of the connection is answered.
fn goes_on(client: &mut Client) -> bool {
    client.send(h2::frame(h2::HEADERS, h2::END_STREAM | h2::END_HEADERS, 3, h2::GET));
    loop {
        match h2::read(client) {
            Some((h2::HEADERS, 3, _)) => return true,
            Some((h2::GOAWAY, ..)) | None => return false,
            Some(_) => {}
        }
    }
}

/// Requests 16 MiB on the first stream, with room for them on the connection. The stream has its initial
/// window.
fn asking_for_much(proxy: &common::Proxy) -> Client {
    let mut client = h2::connect(proxy);
    client.send(h2::frame(h2::WINDOW_UPDATE, 0, 0, &(1_u32 << 25).to_be_bytes()));
    let flags = h2::END_STREAM | h2::END_HEADERS;
    client.send(h2::frame(h2::HEADERS, flags, 1, &h2::get("/big")));
    client
}

const FIRST_WINDOW: usize = 65_535;

#[test]
fn unread_answer_is_reset_in_http2_despite_other_frames() {
    let proxy = slow_or_big(impatient_of_stalls);
    let mut client = asking_for_much(&proxy);
    pings(&client);
    assert_eq!(until_reset(&mut client), FIRST_WINDOW);
    assert!(goes_on(&mut client));
    let totals = proxy.wait("ends", |totals| totals.responses[2] == 2);
    assert_eq!(totals.failures_of(Failure::Client), 1);
}

#[test]
fn unread_answer_ends_in_http2_while_heads_fill_the_window() {
    let proxy = proxy_with(
        upstream(|mut peer| {
            while let Some(head) = peer.head() {
                let fields = format!("A: {}\r\n", "x".repeat(4_000)).repeat(4);
                peer.send(format!(
                    "HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n",
                    16 << 20
                ));
                if head.starts_with("GET") {
                    peer.send(vec![b'x'; 16 << 20]);
                }
            }
        }),
        impatient_of_stalls,
        None,
    );
    let mut client = proxy.connect();
    socket2::SockRef::from(client.0.get_ref()).set_recv_buffer_size(4 << 10).unwrap();
    client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    // No room for bodies, and heads without compression.
    let settings = [&[0, 1, 0, 0, 0, 0][..], &[0, 4, 0, 0, 0, 0]].concat();
    client.send(h2::frame(4, 0, 0, &settings));
    let flags = h2::END_STREAM | h2::END_HEADERS;
    client.send(h2::frame(h2::HEADERS, flags, 1, &h2::get("/big")));
    // `:method: HEAD`, which no table has.
    let method = [&[2, 4][..], b"HEAD", &h2::GET[1..]].concat();
    for number in 1..100 {
        client.send(h2::frame(h2::HEADERS, flags, 2 * number + 1, &method));
    }
    dribble(&client, h2::frame(h2::WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes()));
    proxy.wait("ends", |totals| totals.failures_of(Failure::Client) >= 1);
    assert_eq!(proxy.totals().open_connections, 1, "it is the stream that ends");
}

#[test]
fn slowly_read_answer_is_kept_in_http2() {
    let proxy = slow_or_big(impatient_of_stalls);
    let mut client = asking_for_much(&proxy);
    let mut room = FIRST_WINDOW;
    // Twice the permitted time without progress.
    for _ in 0..20 {
        let mut taken = 0;
        while taken < room {
            match h2::read(&mut client).expect("the connection ends") {
                (h2::DATA, 1, payload) => taken += payload.len(),
                (kind, ..) => assert!(![h2::RST_STREAM, h2::GOAWAY].contains(&kind)),
            }
        }
        thread::sleep(STALLED / 10);
        room = 1_000;
        client.send(h2::frame(h2::WINDOW_UPDATE, 0, 1, &1_000_u32.to_be_bytes()));
    }
    assert_eq!(proxy.totals().failures, [0; 10]);
}

#[test]
fn unsent_body_is_reset_in_http2_despite_other_frames() {
    for (kind, stream, payload) in [(h2::PING, 0, &[0; 8][..]), (h2::DATA, 1, &b"x"[..])] {
        let proxy = slow_or_big(impatient_of_stalls);
        let mut client = h2::connect(&proxy);
        client.send(h2::frame(h2::HEADERS, h2::END_HEADERS, 1, h2::POST));
        client.send(h2::frame(h2::DATA, 0, 1, b"abc"));
        dribble(&client, h2::frame(kind, 0, stream, payload));
        assert_eq!(until_reset(&mut client), 0);
        assert!(goes_on(&mut client));
        let totals = proxy.wait("ends", |totals| totals.responses[2] == 1);
        assert_eq!(totals.failures_of(Failure::Client), 1, "{kind}");
    }
}

/// Sends data of a body as long as there is room for it.
fn fill(client: &mut Client, stream: u32) {
    const PIECE: usize = 16_384;
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap()) as usize;
    let (mut room, mut in_all) = (FIRST_WINDOW, FIRST_WINDOW);
    client.0.get_ref().set_read_timeout(Some(STALLED)).unwrap();
    while let Some((kind, of, payload)) = h2::read(client) {
        match (kind, of) {
            // SETTINGS: INITIAL_WINDOW_SIZE.
            (4, _) => {
                let window = payload.chunks(6).find(|setting| setting[..2] == [0, 4]);
                if let Some(setting) = window {
                    room += number(&setting[2..]) - FIRST_WINDOW;
                    // It applies once it is acknowledged.
                    client.send(h2::frame(4, 1, 0, &[]));
                }
            }
            (h2::WINDOW_UPDATE, 0) => in_all += number(&payload),
            (h2::WINDOW_UPDATE, _) => room += number(&payload),
            (kind, _) => assert!(![h2::RST_STREAM, h2::GOAWAY].contains(&kind), "{kind}"),
        }
        while room.min(in_all) >= PIECE {
            client.send(h2::frame(h2::DATA, 0, stream, &[b'x'; PIECE]));
            room -= PIECE;
            in_all -= PIECE;
        }
    }
    client.0.get_ref().set_read_timeout(Some(common::LIMIT)).unwrap();
}

#[test]
fn unsent_body_is_reset_in_http2_with_a_stalled_upstream() {
    let proxy = proxy_with(
        upstream(|mut peer| {
            peer.head().unwrap();
            // It reads no body.
            thread::sleep(2 * common::LIMIT);
        }),
        impatient_of_stalls,
        None,
    );
    let mut client = h2::connect(&proxy);
    client.send(h2::frame(h2::HEADERS, h2::END_HEADERS, 3, h2::POST));
    fill(&mut client, 3);
    client.send(h2::frame(h2::HEADERS, h2::END_HEADERS, 5, h2::POST));
    dribble(&client, h2::frame(h2::PING, 0, 0, &[0; 8]));
    let begun = Instant::now();
    let ended = loop {
        assert!(begun.elapsed() < common::LIMIT, "it goes on for as long as something is said");
        let (kind, stream, _) = h2::read(&mut client).expect("the connection ends");
        if kind == h2::RST_STREAM {
            break stream;
        }
    };
    assert_eq!(ended, 5);
}

#[test]
fn answered_unsent_body_frees_its_upstream_connection() {
    let (gone, told) = channel();
    let gone = Mutex::new(gone);
    let proxy = proxy_with(
        upstream(move |mut peer| {
            peer.head().unwrap();
            peer.ok("early");
            let _ = peer.stream.read_to_end(&mut Vec::new());
            let _ = gone.lock().unwrap().send(());
        }),
        impatient_of_stalls,
        None,
    );
    let mut client = h2::connect(&proxy);
    client.send(h2::frame(h2::HEADERS, h2::END_HEADERS, 1, h2::POST));
    pings(&client);
    while !matches!(h2::read(&mut client).expect("an answer"), (h2::DATA, 1, _)) {}
    told.recv_timeout(common::LIMIT).unwrap();
    assert_eq!(proxy.totals().open_connections, 1);
}
