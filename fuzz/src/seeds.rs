//! Valid logs, models, pages, plans and streams of frames, as initial input.

use std::fs;
use std::path::Path as FilePath;
use std::time::Duration;

use lull_cc::{Bytes, Timestamp};
use lull_replication::message::{
    Ask, BelowReport, BodyHeader, Channel, Delivered, Enrol, Enrolled, Frame, FromAuthority,
    NotEnrolled, PROTOCOL, Refusal, Report, Session, Start, ToAuthority, ToOrigin, ToReplica, Tree,
    Vouch,
};
use lull_replication::path::Path;
use lull_replication::subscription::{Pattern, Subscription};
use lull_replication::time::{LocalTime, WallTime};
use lull_replication::types::{
    Change, Content, Digest, Incarnation, Kind, Metadata, Mode, Position, ReplicaId, Sequence,
    Version,
};
use lull_replication::wire::{Attach, BodyPart, Message, Outline, PIECE, Preface, encode};
use lull_speculate::log::Entry;
use lull_speculate::model::Model;
use lull_speculate::observe::Limits;
use lull_speculate::predict::PpmParameters;

/// A short log in each format.
pub const LOGS: [&str; 10] = [
    "192.0.2.7 - - [01/Aug/1995:06:00:00 +0000] \"GET / HTTP/1.0\" 200 1713\n\
     192.0.2.7 - - [01/Aug/1995:06:00:01 +0000] \"GET /a.gif HTTP/1.0\" 304 -\n\
     host.example - bob [01/Aug/1995:06:00:02 -0400] \"GET /b?c=d\" 404 0\n",
    "192.0.2.7 - - [17/May/2015:10:05:00 +0000] \"GET /a HTTP/1.1\" 200 9 \"-\" \"Mozilla/5.0 (X)\"\n\
     2001:db8::7 - - [17/May/2015:10:05:01 +0000] \"GET /\\\"b HTTP/1.1\" 200 9 \"http://a/\" \"bot\"\n",
    "#Version: 1.0\n\
     #Fields: date time c-ip cs-method cs-uri-stem cs-uri-query sc-status sc-bytes cs(User-Agent)\n\
     2015-05-17 10:05:00 192.0.2.7 GET /a b=c 200 1713 \"Mozilla/5.0 (X)\"\n",
    "{\"time_iso8601\":\"2015-05-17T10:05:00+02:00\",\"remote_addr\":\"192.0.2.7\",\
     \"request\":\"GET /a?b=c HTTP/1.1\",\"status\":\"200\",\"body_bytes_sent\":\"1713\",\
     \"http_user_agent\":\"Mozilla\\/5.0\",\"request_time\":\"0.031\"}\n",
    "{\"ts\":1431857100.25,\"request\":{\"client_ip\":\"192.0.2.7\",\"method\":\"GET\",\
     \"uri\":\"/a\",\"headers\":{\"User-Agent\":[\"Mozilla/5.0\"]}},\"duration\":0.031,\
     \"size\":1713,\"status\":200,\"resp_headers\":{\"Cache-Control\":[\"max-age=60\"]}}\n",
    "2024-07-03T09:46:40.123456789Z stdout F 192.0.2.7:4000 - - [03/Jul/2024:09:46:40] \"GET /a HTTP/1.1\" 200\n\
     <133>Jul  3 09:46:40 web01 nginx: www.a.example:80 192.0.2.8 - - [2024-07-03T09:46:40Z] \"GET b.example/c HTTP/1.1\" 200 9 \"-\" \"Mozilla/5.0 (X)\" \"192.0.2.8\"\n",
    "{\"log\":\"192.0.2.7 - - [03/Jul/2024:09:46:40 UTC] \\\"GET /a HTTP/1.1\\\" 200 9\\n\",\"stream\":\"stdout\"}\n\
     2024/07/03 09:46:40.5\tinfo\t{\"remote_addr\":\"[2001:db8::7]:80\",\"request\":\"GET /\\x22 HTTP/1.1\",\"status\":200}\n",
    "h2 2024-07-03T09:46:40.3Z app/web/cb 192.0.2.7:62611 10.0.0.1:443 0.006 0.008 0.000 200 200 498 1000 \"GET https://a.example:443/ HTTP/2.0\" \"Mozilla/5.0 (X)\" x\n",
    "192.0.2.7:54241 [03/Jul/2024:09:46:40.698] https~ web/s1 0/0/1/7/227 200 1000 - - ---- 3/1/1/0/0 0/0 {a|b} \"GET / HTTP/1.1\"\n",
    "1720000000.965    187 192.0.2.7 TCP_MISS/200 1000 GET http://a.example/ - HIER_DIRECT/192.0.2.4 text/html\n\
     192.0.2.7, -, 7/3/2024, 9:46:40, W3SVC1, WEB1, 10.0.0.3, 12, 300, 1000, 200, 0, GET, /, -,\n",
];

/// Pages with their input bytes: coding, policy and pieces, then the page.
pub const PAGES: [&[u8]; 7] = [
    b"\0\xff<!DOCTYPE html><html lang=en><head><meta charset=utf-8><title>A</title></head>\
      <body><p>B</p></body></html>\n",
    b"\0\x03<html><head><!-- <head> --><script>'<body>'</script></head><body></body></html>",
    b"\0\0<p>no head<textarea></head></textarea><svg><title></svg>",
    b"\x15\x07<html><head><meta http-equiv=content-security-policy content=\"script-src *\"></head>",
    b"\x1e\x40<html><head><meta name=robots content=nofollow><base href=/a></head><body></body>",
    b"\x3f\x0bscript-src 'nonce-YWJj'; connect-src *\n<html><head></head><body></body></html>",
    b"\xd0\x05<html><head><meta http-equiv=content-security-policy content=\"script-src *\"></head>",
];

/// The plans that Lull comes with, in the order of their names.
pub fn plans() -> Vec<String> {
    let folder = FilePath::new(env!("CARGO_MANIFEST_DIR")).join("../plans");
    let paths = fs::read_dir(folder).expect("the folder is part of the project");
    let mut paths: Vec<_> = paths.map(|entry| entry.expect("it can be listed").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.sort();
    paths.iter().map(|path| fs::read_to_string(path).expect("it is a text")).collect()
}

/// Some models, with low and high limits, each with entries in all of its tables.
pub fn models() -> Vec<Model> {
    let (limits, parameters) = super::tight();
    let both = [(limits, parameters), (Limits::default(), PpmParameters::shipped())];
    let learned = both.map(|(limits, parameters)| {
        let mut model = Model::new(super::hasher(), limits, parameters);
        for client in 0..12 {
            for (second, target) in (0..).zip(["/", "/a.png", "/b", "/c", "/a.png", "/long/path"]) {
                let at =
                    Timestamp::from_nanos((1_000 + 100 * client as u64 + second) * 1_000_000_000);
                // Whether it is learned does not matter here.
                let _ = model.learn(&entry(at, client, target));
            }
        }
        model
    });
    learned.into_iter().collect()
}

/// A page that a client received.
pub(crate) fn entry(at: Timestamp, client: usize, target: &str) -> Entry<'_> {
    Entry::page(at, format!("192.0.2.{client}"), target)
}

/// A stream for each channel and direction, with every message, and their first bytes.
pub fn streams() -> Vec<Vec<u8>> {
    let (questions, answers) = enrolment();
    vec![
        stream(&to_origin()),
        stream(&to_replica()),
        stream(&bodies()),
        stream(&[Attach]),
        stream(&questions),
        stream(&answers),
        Preface::ours(Channel::Speculative).encode().to_vec(),
    ]
}

const SEQUENCE: Sequence = Sequence(7);
const SMALL: &[u8] = b"body";

fn path() -> Path {
    Path::new("a/ä.html").expect("a path")
}

fn stamp() -> WallTime {
    WallTime::from_nanos(1_700_000_000_000_000_000)
}

fn position() -> Position {
    Position { sequence: SEQUENCE, chain: Digest([3; 32]) }
}

fn content(body: &[u8]) -> Content {
    let metadata = Metadata { kind: Kind::default(), modified: stamp(), mode: Mode::new(0o750) };
    Content { digest: Digest::of(body), size: Bytes(body.len() as u64), metadata }
}

fn version(body: &[u8]) -> Version {
    Version { sequence: SEQUENCE, content: content(body) }
}

fn subscription() -> Subscription {
    Subscription::new(vec![Pattern::new(b"docs/**").unwrap()]).unwrap()
}

fn to_origin() -> Vec<ToOrigin> {
    let hello = |position| ToOrigin::Hello {
        protocol: PROTOCOL,
        replica: ReplicaId(2),
        position,
        committed: Sequence(5),
        only: subscription(),
    };
    let ask = |part| ToOrigin::Ask { of: SEQUENCE, part };
    vec![
        hello(None),
        hello(Some(position())),
        ToOrigin::Ping { sent: LocalTime::from_nanos(-9) },
        ToOrigin::Ack(SEQUENCE),
        ToOrigin::Taken(3),
        ToOrigin::Fetched(2),
        ToOrigin::Reads(vec![(path(), 4)]),
        ToOrigin::Demand(path()),
        ToOrigin::Withdraw(path()),
        ToOrigin::Lacking(vec![path()]),
        ask(Ask::Branches),
        ask(Ask::Leaves(vec![1, 255])),
        ask(Ask::Entries(vec![1, 65_535])),
        ToOrigin::Resynced(SEQUENCE),
        ToOrigin::Report(Report { skew: Some((-1, 2)), ..Report::default() }),
        ToOrigin::Relays(vec![ReplicaId(2), ReplicaId(3)]),
        ToOrigin::Vouch(Vouch {
            question: 7,
            replica: ReplicaId(4),
            certificate: Digest([8; 32]),
            position: Some(position()),
        }),
        ToOrigin::Below(vec![BelowReport {
            replica: ReplicaId(4),
            relay: ReplicaId(2),
            connected: true,
            committed: SEQUENCE,
            delivered: Delivered::new(SEQUENCE, [Sequence(1)]),
            waiting: 6,
            report: Some((Duration::from_secs(1), Report::default())),
        }]),
    ]
}

fn to_replica() -> Vec<ToReplica> {
    let (sequence, stamp, position, root) = (SEQUENCE, stamp(), position(), Digest([4; 32]));
    let changes = vec![
        Change { path: path(), content: Some(content(SMALL)) },
        Change { path: Path::new("b").expect("a path"), content: None },
    ];
    let tree = |part| ToReplica::Tree { of: sequence, part };
    vec![
        ToReplica::Welcome { start: Start::Log, eager: false },
        ToReplica::Welcome { start: Start::Resync { position, stamp, root }, eager: true },
        ToReplica::Refused(Refusal::Protocol(2)),
        ToReplica::Refused(Refusal::Ahead(sequence)),
        ToReplica::Refused(Refusal::Diverged),
        ToReplica::Refused(Refusal::Forgotten(sequence)),
        ToReplica::Invalidation { sequence, stamp, changes, more: true },
        ToReplica::Heartbeat { stamp, committed: sequence, echo: None },
        ToReplica::Heartbeat { stamp, committed: sequence, echo: Some(LocalTime::from_nanos(8)) },
        tree(Tree::Branches(vec![(1, Digest([5; 32]))])),
        tree(Tree::Leaves(1, vec![(257, Digest([6; 32]))])),
        tree(Tree::Entries { leaf: 257, entries: vec![(path(), version(SMALL))], more: true }),
        tree(Tree::Entries { leaf: 257, entries: Vec::new(), more: false }),
        ToReplica::Renew,
        ToReplica::Withdrawn(path()),
        ToReplica::Vouched { question: 7, refusal: None },
        ToReplica::Vouched { question: 8, refusal: Some(Refusal::Loop) },
    ]
}

fn bodies() -> Vec<BodyPart> {
    let large = vec![b'l'; 2 * PIECE + 5];
    let header =
        |version| BodyHeader { path: path(), version, at: SEQUENCE, demand: true, lost: false };
    let begins = BodyPart::Header(header(Some(version(SMALL))));
    let lane = begins.lane();
    let whole = [begins.clone(), BodyPart::Piece { lane, number: 0, bytes: SMALL.to_vec() }];
    let mut bodies = vec![BodyPart::Header(header(None))];
    bodies.extend(whole.clone());
    let longer = BodyPart::Header(header(Some(version(&large))));
    let of_longer = longer.lane();
    bodies.push(longer);
    bodies.extend(Outline::of(large.chunks(PIECE)).parts(of_longer));
    for (number, bytes) in (0..).zip(large.chunks(PIECE)) {
        // A short one exceeds it.
        bodies.extend(whole.clone());
        bodies.push(BodyPart::Piece { lane: of_longer, number, bytes: bytes.to_vec() });
    }
    bodies.push(begins);
    bodies.push(BodyPart::Broken { lane });
    bodies.push(BodyPart::Header(BodyHeader { lost: true, ..header(Some(version(&large))) }));
    bodies
}

fn enrolment() -> (Vec<ToAuthority>, Vec<FromAuthority>) {
    let (replica, request) = (ReplicaId(2), vec![0x30; 40]);
    let questions = vec![
        ToAuthority::Enrol(Enrol { replica, secret: [8; 32], request: request.clone() }),
        ToAuthority::Renew(request.clone()),
    ];
    let answers = vec![
        FromAuthority::Enrolled(Enrolled {
            replica,
            certificate: request.clone(),
            authorities: vec![request.clone(), request],
            token_key: [9; 32],
            other_token_key: Some([10; 32]),
        }),
        FromAuthority::Refused(NotEnrolled::Expired),
    ];
    (questions, answers)
}

fn stream<M: Message + Clone>(messages: &[M]) -> Vec<u8> {
    let session = Session { origin: Incarnation(1), replica: Incarnation(2), connection: 3 };
    let mut bytes = Vec::new();
    for message in messages {
        let frame = Frame { session, message: message.clone() };
        encode(&frame, &mut bytes).expect("within the limits");
    }
    bytes
}
