//! One visitor never counts as many, with any contents of the client's column.

use proptest::prelude::*;

use super::*;
use crate::model::Model;
use crate::observe::{ClientHasher, Limits};
use crate::predict::PpmParameters;

/// The second of a request, as written by each format.
pub(super) const BEGIN: u64 = 1_720_000_000;
pub(super) const AGENT: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0)";

/// `HH:MM:SS` of a second of 3 July 2024, which [`BEGIN`] is of.
pub(super) fn clock(second: u64) -> String {
    let of_day = (BEGIN + second) % 86_400;
    format!("{:02}:{:02}:{:02}", of_day / 3600, of_day / 60 % 60, of_day % 60)
}

fn combined(client: &str, second: u64, target: &str) -> String {
    let time = clock(second);
    format!(
        "{client} - - [03/Jul/2024:{time} +0000] \"GET {target} HTTP/1.1\" 200 1000 \"-\" \"{AGENT}\""
    )
}

/// Prefixes of shippers, with a part that differs for each line.
fn prefixes(second: u64) -> Vec<String> {
    let time = clock(second);
    vec![
        String::new(),
        format!("2024-07-03T{time}.123456789Z stdout F "),
        format!("<133>Jul  3 {time} web01 nginx: "),
        format!("Jul  3 {time} web01 nginx[{second}]: "),
        format!("<133>1 2024-07-03T{time}Z web01 nginx {second} - - "),
        format!("2024-07-03T{time}+0000 web01 nginx: "),
        format!("2024-07-03T{time}.457957+00:00 app[web.{second}]: "),
        format!("{}.123 ", BEGIN + second),
        format!("2024-07-03T{time}Z "),
        format!("nginx-{second}  | "),
        format!("2024-07-03T{time}Z <133>Jul  3 {time} web01 nginx: "),
        // An unknown prefix: the line must not be read.
        format!("{second} "),
        format!("{time} "),
        format!("[{second}] "),
        format!("2024/07/03 {time} "),
        format!("req-{second} "),
        format!("www{second}.example.org stdout {second} "),
        format!("Jul  3 {time} "),
        format!("20240703T{}Z ", time.replace(':', "")),
    ]
}

/// Contents of the client's column for one visitor, with a part that differs for each line.
fn clients(second: u64) -> Vec<String> {
    vec![
        "192.0.2.7".to_owned(),
        format!("192.0.2.7:{}", 20_000 + second),
        format!("[2001:db8::7]:{}", 20_000 + second),
        format!("2001:db8::{second:x}"),
        format!("fe80::7%eth{second}"),
        format!("::ffff:192.0.2.7%{second}"),
        format!("198.51.100.{}, 192.0.2.7", second % 250),
        format!("198.51.100.{}, 192.0.2.{}", second % 250, second % 7),
        format!("203.0.113.9 (198.51.100.{})", second % 250),
        format!("203.0.113.{} (198.51.100.4)", second % 250),
        format!("{:032x}", u128::from(second) * 0x9e37_79b9_7f4a_7c15_f39c_c060),
        format!("req{second}"),
        format!("{second}"),
        format!("{}.123", BEGIN + second),
        clock(second),
        format!("2024-07-03T{}Z", clock(second)),
        format!("0.{second:03}"),
        "-".to_owned(),
        String::new(),
        "HIT".to_owned(),
        format!("192.0.2.{second}."),
        format!("pc{second}.rogue.example"),
    ]
}

/// Whether a URL is public after a log.
fn is_public(lines: &[String], url: &str, reader: Result<Reader, Box<Reader>>) -> bool {
    let Ok(mut reader) = reader else { return false };
    let hasher = ClientHasher::new([7; 16]);
    let mut model = Model::new(hasher, Limits::default(), PpmParameters::shipped());
    for line in lines {
        if let Some(entry) = reader.read(line.as_bytes()) {
            let _ = model.learn(&entry);
        }
    }
    let urls = model.observer().urls();
    model.observer().url(url).is_some_and(|id| urls.is_public(id))
}

pub(super) fn is_public_in(lines: &[String], url: &str) -> bool {
    let reader = Reader::detect_with(lines.iter().map(|line| line.as_bytes()), &Options::default());
    is_public(lines, url, reader)
}

const PRIVATE: &str = "/reset-password/9f3ab77c21d0";

#[test]
fn one_client_makes_nothing_public_with_any_prefix() {
    for which in 0..prefixes(0).len() {
        for client in 0..clients(0).len() {
            let line = |second: u64, target| {
                prefixes(second)[which].clone()
                    + &combined(&clients(second)[client], second, target)
            };
            let lines: Vec<String> =
                (0..80).flat_map(|at| [line(40 * at, "/"), line(40 * at + 20, PRIVATE)]).collect();
            assert!(!is_public_in(&lines, PRIVATE), "{}", lines[1]);
        }
    }
}

#[test]
fn one_client_makes_nothing_public_in_json() {
    for client in 0..clients(0).len() {
        let forwarded = |second: u64| {
            vec![
                String::new(),
                "-".to_owned(),
                "198.51.100.7".to_owned(),
                format!("198.51.100.{}", second % 250),
                format!("198.51.100.{}, 192.0.2.7", second % 250),
            ]
        };
        for which in 0..forwarded(0).len() {
            for (name, message) in
                [("remote_addr", None), ("client", None), ("ip", None), ("clientip", Some("x"))]
            {
                let line = |second: u64| {
                    let client = &clients(second)[client];
                    let forwarded = &forwarded(second)[which];
                    let message = message.unwrap_or_default();
                    format!(
                        "{{\"message\":\"{message}\",\"time\":{},\"{name}\":\"{client}\",\
                         \"http_x_forwarded_for\":\"{forwarded}\",\
                         \"request\":\"GET {PRIVATE} HTTP/1.1\",\"status\":200}}",
                        BEGIN + second,
                    )
                };
                let other = |second: u64| line(second).replace(PRIVATE, "/");
                let lines: Vec<String> =
                    (0..60).flat_map(|at| [line(40 * at), other(40 * at + 20)]).collect();
                assert!(!is_public_in(&lines, PRIVATE), "{}", lines[0]);
            }
        }
    }
}

#[test]
fn many_clients_make_a_url_public_with_every_known_prefix() {
    for which in 0..11 {
        for wrap in [false, true] {
            let lines: Vec<String> = (0..40)
                .map(|second| {
                    let client = format!("198.51.100.{second}");
                    let line =
                        prefixes(second)[which].clone() + &combined(&client, second, "/docs/");
                    if !wrap {
                        return line;
                    }
                    let log = serde_json::to_string(&(line + "\n")).unwrap();
                    format!(
                        "{{\"log\":{log},\"stream\":\"stdout\",\"time\":\"2024-07-03T09:46:40Z\"}}"
                    )
                })
                .collect();
            assert!(is_public_in(&lines, "/docs/"), "{}", lines[1]);
        }
    }
}

#[test]
fn recurring_pseudonyms_count_as_clients() {
    let lines = |client: &dyn Fn(u64) -> String| -> Vec<String> {
        (0..200).map(|second| combined(&client(second), second, "/docs/")).collect()
    };
    assert!(is_public_in(&lines(&|second| format!("c{:05}", second / 4)), "/docs/"));
    assert!(is_public_in(&lines(&|second| format!("pc.isp{second}.example")), "/docs/"));
    assert!(!is_public_in(&lines(&|second| format!("c{second:05}")), "/docs/"));
    let log = lines(&|second| format!("c{second:05}"));
    let mut reader = Reader::detect(log.iter().map(|line| line.as_bytes())).unwrap();
    log.iter().for_each(|line| drop(reader.read(line.as_bytes())));
    assert_eq!(reader.entries(), 0);
    assert_eq!(reader.bad()[&LineError::OneOff].count, 200);
}

/// The client of a line, with the user's settings for proxies.
fn client_of(line: &str, field: &str, proxies: &[&str]) -> Result<String, LineError> {
    let proxies = proxies.iter().map(|one| one.parse().unwrap()).collect();
    let trust = Trust { field: field.parse().unwrap(), proxies };
    let options = Options { trust, ..Options::default() };
    let reader = Reader::detect_with([line.as_bytes()], &options);
    let mut reader = reader.map_err(|reader| *reader.bad().keys().next().unwrap())?;
    let entry = reader.try_read(line.as_bytes())?.unwrap();
    Ok(entry.client.into_owned())
}

#[test]
fn client_is_the_last_address_outside_the_known_proxies() {
    let peer = "10.0.0.5";
    let with = |list: &str| combined(peer, 0, "/") + &format!(" \"{list}\"");
    let client = |list: &str, proxies: &[&str]| client_of(&with(list), "auto", proxies);
    assert_eq!(client("-", &[]).unwrap(), peer);
    assert_eq!(client("198.51.100.1", &[]), Err(LineError::Proxied));
    assert_eq!(client("198.51.100.1", &[peer]).unwrap(), "198.51.100.1");
    // Earlier entries may be forged.
    assert_eq!(client("192.0.2.1, 198.51.100.1", &["10.0.0.0/8"]).unwrap(), "198.51.100.1");
    let two = ["10.0.0.0/8", "203.0.113.0/24"];
    assert_eq!(client("198.51.100.1, 203.0.113.9", &two).unwrap(), "198.51.100.1");
    assert_eq!(client("203.0.113.1, 10.0.0.7", &two), Err(LineError::Proxied));
    assert_eq!(client("-", &two), Err(LineError::Proxied));
    // The peer is no proxy, so its header is not used.
    assert_eq!(client("198.51.100.1", &["10.0.0.9"]).unwrap(), peer);
    // The server has done this already.
    let done = combined("198.51.100.1", 0, "/") + " \"192.0.2.1, 198.51.100.1\"";
    assert_eq!(client_of(&done, "auto", &[]).unwrap(), "198.51.100.1");
    for name in ["x-forwarded-for", "X-Forwarded-For", "http_x_forwarded_for"] {
        assert_eq!(client_of(&with("198.51.100.1"), name, &[]).unwrap(), "198.51.100.1");
        assert_eq!(client_of(&with("-"), name, &[]), Err(LineError::Missing(Part::Client)));
        let forged = with("192.0.2.1, 198.51.100.1");
        assert_eq!(client_of(&forged, name, &[]), Err(LineError::Proxied));
        assert_eq!(client_of(&forged, name, &[peer]).unwrap(), "198.51.100.1");
    }
    assert_eq!(client_of(&with("198.51.100.1"), "remote_addr", &[]).unwrap(), peer);
    let list = combined("198.51.100.1, 203.0.113.7", 0, "/");
    assert_eq!(client_of(&list, "auto", &[]), Err(LineError::Proxied));
    assert_eq!(client_of(&list, "auto", &["203.0.113.7"]).unwrap(), "198.51.100.1");
    let list = format!("www.example.org:443 {list}");
    assert_eq!(client_of(&list, "auto", &["203.0.113.7"]).unwrap(), "198.51.100.1");
}

#[test]
fn networks_of_proxies_are_parsed() {
    for text in ["10.0.0.5", "10.0.0.0/8", "0.0.0.0/0", "2001:db8::/32", "::/0"] {
        assert!(text.parse::<Network>().is_ok(), "{text}");
    }
    for text in ["", "10.0.0", "10.0.0.0/33", "10.0.0.0/", "::/129", "proxy", "10.0.0.0/-1"] {
        assert!(text.parse::<Network>().is_err(), "{text}");
    }
    let anywhere =
        client_of(&(combined("192.0.2.1", 0, "/") + " \"2001:db8::1\""), "auto", &["0.0.0.0/0"]);
    assert_eq!(anywhere.unwrap(), "2001:db8::1");
}

proptest! {
    /// One visitor with one address makes nothing public, with any text in front of it.
    #[test]
    fn one_visitor_makes_nothing_public(
        before in prop::collection::vec("[ -~]{0,12}", 1..3),
        numbered in any::<bool>(),
        port in any::<bool>(),
    ) {
        let line = |second: u64| {
            let number = if numbered { second.to_string() } else { String::new() };
            let port = if port { format!(":{}", 2_000 + second) } else { String::new() };
            let before = before.join(&number);
            format!("{before}{number} {}", combined(&format!("192.0.2.7{port}"), second, PRIVATE))
        };
        let other = |second: u64| line(second).replace(PRIVATE, "/");
        let lines: Vec<String> = (0..40).flat_map(|at| [line(40 * at), other(40 * at + 20)]).collect();
        prop_assert!(!is_public_in(&lines, PRIVATE), "{}", lines[1]);
    }
}

/// Forms of logs in which one visitor looks like many.
fn disguises(second: u64) -> Vec<String> {
    let time = clock(second);
    let (iso, edge) = (format!("2024-07-03T{time}Z"), second / 20 % 50);
    let clf = format!("[03/Jul/2024:{time} +0000] \"GET {PRIVATE} HTTP/1.1\" 200 1000");
    let of = |client: &str| format!("{client} - - {clf} \"-\" \"{AGENT}\"");
    let router = |fwd: &str| {
        format!(
            "{iso} heroku[router]: at=info method=GET path=\"{PRIVATE}\" host=a.example \
             request_id=r{second} fwd=\"{fwd}\" dyno=web.{edge} service=18ms status=200 bytes=13"
        )
    };
    let envoy = |forwarded: &str, behind: &str| {
        format!(
            "[{iso}] \"GET {PRIVATE} HTTP/2\" 200 - 0 1713 26 24 \"{forwarded}\" \"{AGENT}\" \
             \"r{second}\" \"a.example\" \"10.0.2.{edge}:80\"{behind}"
        )
    };
    let istio = format!(" inbound|80|| 127.0.0.1:80 10.0.2.1:80 203.0.113.{edge}:4711 - default");
    let json = |clients: &str| {
        format!(
            "{{\"time\":\"{iso}\",{clients},\"request\":\"GET {PRIVATE} HTTP/1.1\",\"status\":200}}"
        )
    };
    vec![
        // Load balancers or nodes of a cluster in front of one visitor.
        format!("{iso} stdout F {}", of(&format!("10.1.{edge}.3"))),
        format!("{iso} app[web.1]: {}", of(&format!("10.1.{edge}.3"))),
        format!("web-1  | {}", of(&format!("100.64.{edge}.3"))),
        json(&format!(
            "\"log\":\"x\",\"remote_addr\":\"203.0.113.{edge}\",\"client_ip\":\"192.0.2.7\""
        )),
        json(&format!("\"ip\":\"203.0.113.{edge}\",\"remote_addr\":\"192.0.2.7\"")),
        // A CDN's edges after the visitor.
        router(&format!("192.0.2.7,203.0.113.{edge}")),
        envoy(&format!("192.0.2.7,203.0.113.{edge}"), ""),
        envoy("192.0.2.7", &istio),
        // Headers that the visitor wrote.
        format!("{} \"for=198.51.100.{edge};proto=https\"", of("192.0.2.7")),
        format!("{} \"for=\\\"[2001:db8:{edge}::1]\\\", for=192.0.2.7\"", of("192.0.2.7")),
        // Pairs in the visitor's own text.
        of("192.0.2.7").replace(
            AGENT,
            &format!(
                "method=GET path={PRIVATE} status=200 ip=198.51.100.{edge} ts={}",
                BEGIN + second
            ),
        ),
        format!(
            "method=GET path={PRIVATE} status=200 remote_ip=req-{second} ts={}",
            BEGIN + second
        ),
        format!(
            "method=GET path={PRIVATE} status=200 ip=192.0.2.7:{} ts={}",
            2_000 + second,
            BEGIN + second
        ),
        format!("x{second} method=GET path={PRIVATE} status=200 ip=198.51.100.{edge} ts=1"),
    ]
}

#[test]
fn one_disguised_visitor_makes_nothing_public() {
    for which in 0..disguises(0).len() {
        let line = |second: u64| disguises(second)[which].clone();
        let other = |second: u64| line(second).replace(PRIVATE, "/");
        let lines: Vec<String> =
            (0..80).flat_map(|at| [line(40 * at), other(40 * at + 20)]).collect();
        assert!(!is_public_in(&lines, PRIVATE), "{}", lines[0]);
    }
}

#[test]
fn forwarded_header_names_the_client_of_a_known_proxy() {
    let with = |header: &str| combined("10.0.0.5", 0, "/") + &format!(" \"{header}\"");
    for (header, client) in [
        ("for=198.51.100.1;proto=https", "198.51.100.1"),
        ("for=192.0.2.1, for=198.51.100.1;by=10.0.0.5", "198.51.100.1"),
        ("for=\\\"[2001:db8::1]:4711\\\"", "2001:db8::1"),
    ] {
        assert_eq!(client_of(&with(header), "auto", &["10.0.0.5"]).unwrap(), client, "{header}");
        assert_eq!(client_of(&with(header), "auto", &[]), Err(LineError::Proxied), "{header}");
    }
    let one = with("for=198.51.100.1;proto=https");
    assert_eq!(client_of(&one, "forwarded", &[]).unwrap(), "198.51.100.1");
}
