use std::borrow::Cow;

use core::time::Duration;

use lull_cc::{Bytes, Timestamp};
use proptest::prelude::*;

use super::*;

mod clients;
mod formats;

const SECOND: u64 = 1_000_000_000;

const COMMON: &str =
    r#"c1 - - [01/Aug/1995:06:00:00 +0000] "GET /images/logo.gif HTTP/1.0" 200 1713"#;
const COMBINED: &str = r#"192.0.2.7 - - [17/May/2015:10:05:00 +0000] "GET /a?b=c HTTP/1.1" 200 1713 "http://x/" "Mozilla/5.0 (X11; \"q\")""#;
const FIELDS: &str = "#Fields: date time s-ip cs-method cs-uri-stem cs-uri-query cs-username c-ip cs(User-Agent) sc-status sc-bytes time-taken";
const EXTENDED: &str =
    "2015-05-17 10:05:00 10.0.0.1 GET /a b=c - 192.0.2.7 Mozilla/5.0+(X11) 200 1713 31";
const FLAT: &str = r#"{"time_iso8601":"2015-05-17T10:05:00+00:00","remote_addr":"192.0.2.7","remote_user":"","request":"GET /a?b=c HTTP/1.1","status":"200","body_bytes_sent":"1713","http_referer":"","http_user_agent":"Mozilla/5.0","request_time":"0.031"}"#;
const CADDY: &str = r#"{"level":"info","ts":1431857100.25,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"10.0.0.1","remote_port":"41342","client_ip":"192.0.2.7","proto":"HTTP/2.0","method":"GET","host":"localhost","uri":"/a?b=c","headers":{"User-Agent":["Mozilla/5.0"],"Accept":["*/*"]},"tls":{"resumed":false,"version":772}},"bytes_read":0,"user_id":"","duration":0.031,"size":1713,"status":200,"resp_headers":{"Server":["Caddy"],"Cache-Control":["max-age=60"]}}"#;

/// The same request in all formats except the common one.
fn entry() -> Entry<'static> {
    Entry {
        at: Timestamp::from_nanos(1_431_857_100 * SECOND),
        client: Cow::Borrowed("192.0.2.7"),
        method: Cow::Borrowed("GET"),
        target: Cow::Borrowed("/a?b=c"),
        status: 200,
        site: None,
        bytes: Bytes(1713),
        referer: None,
        agent: Some(Cow::Borrowed("Mozilla/5.0")),
        took: Some(Duration::from_millis(31)),
        prefetch: false,
        private: false,
        named_by_query: false,
    }
}

fn read(format: Format, line: &str) -> Result<Entry<'_>, LineError> {
    Reader::new(format).try_read(line.as_bytes()).map(Option::unwrap)
}

fn extended<'a>(fields: &str, line: &'a str) -> Result<Option<Entry<'a>>, LineError> {
    let mut reader = Reader::new(Format::Extended);
    assert_eq!(reader.try_read(fields.as_bytes()), Ok(None));
    reader.try_read(line.as_bytes())
}

#[test]
fn common_format_is_parsed() {
    let entry = read(Format::Common, COMMON).unwrap();
    assert_eq!(entry.at, Timestamp::from_nanos(807_256_800 * SECOND));
    assert_eq!((&*entry.client, entry.status, entry.bytes), ("c1", 200, Bytes(1713)));
    assert_eq!((&*entry.method, &*entry.target), ("GET", "/images/logo.gif"));
    assert_eq!((entry.agent, entry.referer, entry.private), (None, None, false));
}

#[test]
fn combined_format_is_parsed() {
    assert_eq!(
        read(Format::Combined, COMBINED).unwrap(),
        Entry {
            referer: Some(Cow::Borrowed("http://x/")),
            agent: Some(Cow::Borrowed(r#"Mozilla/5.0 (X11; \"q\")"#)),
            took: None,
            ..entry()
        }
    );
}

#[test]
fn line_may_begin_with_a_site_name() {
    let expected = read(Format::Combined, COMBINED).unwrap();
    for site in ["example.com:80", "example.com:443", "[2001:db8::1]:80", "example.com"] {
        let line = format!("{site} {COMBINED}");
        let expected = Entry { site: Some(site.into()), ..expected.clone() };
        assert_eq!(read(Format::Combined, &line).unwrap(), expected, "{site}");
        let signed_in = line.replace("- - [", "- bob [");
        assert!(read(Format::Combined, &signed_in).unwrap().private, "{site}");
    }
    let named = format!("example.com:80 {}", COMBINED.replace("192.0.2.7", "c1"));
    assert_eq!(read(Format::Combined, &named).unwrap().client, "c1");
    // A user's name with a blank is not a user, nor is an address.
    for (client, user) in [("192.0.2.7", "bob smith"), ("2001:db8::80", "bob"), ("c1", "-")] {
        let line = COMBINED.replace("192.0.2.7", client).replace("- - [", &format!("- {user} ["));
        assert_eq!(read(Format::Combined, &line).unwrap().client, client, "{user}");
    }
    let mut reader = Reader::new(Format::Combined);
    reader.read(b"example.com:80 pc-of-bob - - [nonsense");
    let samples: Vec<_> = reader.bad().values().map(|bad| bad.sample.as_str()).collect();
    assert_eq!(samples, ["(address) (address) - - [nonsense"]);
}

#[test]
fn extended_format_is_parsed() {
    assert_eq!(
        extended(FIELDS, EXTENDED).unwrap().unwrap(),
        Entry { agent: Some(Cow::Borrowed("Mozilla/5.0+(X11)")), ..entry() }
    );
    // CloudFront separates by tabs and counts in seconds; the draft has quoted strings.
    let line = "2015-05-17\t10:05:00\t192.0.2.7\tGET\t/a?b=c\t200\t1713\t\"Mozilla/5.0\"\t0.031";
    let fields =
        "#Fields: date time c-ip cs-method cs-uri sc-status sc-bytes cs(User-Agent) time-taken";
    assert_eq!(extended(fields, line).unwrap().unwrap(), entry());
}

#[test]
fn flat_json_line_is_parsed() {
    assert_eq!(read(Format::JsonLines, FLAT).unwrap(), entry());
    let line = r#"{"timestamp":1431857100000,"client_ip":"192.0.2.7","method":"GET","url":"/a?b=c","status":200,"bytes":1713,"user_agent":"Mozilla\/5.0","duration":0.031,"extra":{"a":[1,{"b":null}]}}"#;
    assert_eq!(read(Format::JsonLines, line).unwrap(), entry());
}

#[test]
fn original_request_precedes_the_rewritten_one() {
    let line =
        FLAT.replace(r#""request":"#, r#""request_method":"GET","uri":"/index.php","request":"#);
    assert_ne!(line, FLAT);
    assert_eq!(read(Format::JsonLines, &line).unwrap(), entry());
    // A name that others use for another field.
    let line = r#"{"timestamp":1431857100000,"client_ip":"192.0.2.7","method":"GET","url":"/a?b=c","request":"4f1c","status":200,"bytes":1713,"user_agent":"Mozilla/5.0","duration":0.031}"#;
    assert_eq!(read(Format::JsonLines, line).unwrap(), entry());
}

#[test]
fn caddy_line_is_parsed() {
    let at = Timestamp::from_nanos(1_431_857_100 * SECOND + SECOND / 4);
    let site = Some(Cow::Borrowed("localhost"));
    assert_eq!(read(Format::Caddy, CADDY).unwrap(), Entry { at, site, ..entry() });
}

#[test]
fn line_belongs_to_the_site_named_in_its_log() {
    let of_nginx = |name: &str, value: &str| {
        FLAT.replace("{\"time", &format!("{{\"{name}\":\"{value}\",\"time"))
    };
    let (named, nameless) = (of_nginx("host", "www.example"), of_nginx("server_name", "_"));
    let vhost = COMBINED.replace("192.0.2.7 -", "www.example:443 192.0.2.7 -");
    let fields = FIELDS.replace("s-ip", "cs-host");
    let of_iis = EXTENDED.replace("10.0.0.1", "WWW.example");
    let entries = [
        (read(Format::JsonLines, &named).unwrap(), true),
        (read(Format::Combined, &vhost).unwrap(), true),
        (extended(&fields, &of_iis).unwrap().unwrap(), true),
        (read(Format::JsonLines, &nameless).unwrap(), false),
        (read(Format::Combined, COMBINED).unwrap(), false),
    ];
    let sites = |all: &[&str]| all.iter().map(|&one| one.to_owned()).collect::<Vec<_>>();
    for (entry, is_named) in entries {
        assert!(entry.is_of(&sites(&["other.example", "www.example"])), "{entry:?}");
        assert!(entry.is_of(&sites(&["www.example.:8443"])) && entry.is_of(&[]), "{entry:?}");
        assert_eq!(entry.is_of(&sites(&["example", "intranet"])), !is_named, "{entry:?}");
    }
}

#[test]
fn request_may_contain_quotes_or_be_malformed() {
    for (request, method, target) in [
        (r#"GET /a"b HTTP/1.1"#, "GET", r#"/a"b"#),
        (r#"GET /a" 1 HTTP/1.1"#, "GET", r#"/a" 1"#),
        ("GET /a", "GET", "/a"),
        ("GET /a b HTTP/1.0", "GET", "/a b"),
        ("-", "", "-"),
        (r"\x16\x03\x01", "", r"\x16\x03\x01"),
        ("", "", ""),
    ] {
        let line = COMMON.replace("GET /images/logo.gif HTTP/1.0", request);
        let entry = read(Format::Common, &line).unwrap();
        assert_eq!((&*entry.method, &*entry.target), (method, target), "{request}");
    }
}

#[test]
fn client_cannot_inject_a_status() {
    let forged = r#"GET /logout HTTP/1.1\" 200 5 \"-\" \"x\" HTTP/1.1"#;
    let line = COMBINED.replace("GET /a?b=c HTTP/1.1", forged).replace("\" 200 1713", "\" 400 226");
    let entry = read(Format::Combined, &line).unwrap();
    assert_eq!(entry.status, 400, "{entry:?}");
    // For a server that marks nothing.
    for request in [r"GET /a\", r"GET /a\\"] {
        let line = COMMON.replace("GET /images/logo.gif HTTP/1.0", request);
        assert_eq!(read(Format::Common, &line).unwrap().status, 200, "{request}");
    }
}

#[test]
fn prefetches_are_recognized_if_the_log_has_the_mark() {
    let with_field = |name: &str, value: &str| {
        FLAT.replace("{\"time", &format!("{{\"{name}\":\"{value}\",\"time"))
    };
    for (name, value, expected) in [
        ("http_sec_purpose", "prefetch;prerender", true),
        ("http_purpose", "prefetch", true),
        ("http_x_moz", "prefetch", true),
        ("http_sec_purpose", "", false),
        ("http_accept", "prefetch", false),
    ] {
        let line = with_field(name, value);
        assert_eq!(read(Format::JsonLines, &line).unwrap().prefetch, expected, "{name}: {value}");
    }
    let caddy = CADDY.replace("\"Accept\":[\"*/*\"]", "\"Sec-Purpose\":[\"prefetch\"]");
    assert!(read(Format::Caddy, &caddy).unwrap().prefetch);
    let fields = FIELDS.replace("s-ip", "cs(Sec-Purpose)");
    let line = EXTENDED.replace("10.0.0.1", "prefetch");
    assert!(extended(&fields, &line).unwrap().unwrap().prefetch);
    assert!(!extended(&fields, &EXTENDED.replace("10.0.0.1", "-")).unwrap().unwrap().prefetch);
}

#[test]
fn personal_answers_are_private() {
    let signed_in = COMMON.replace("- - [", "- bob [");
    assert!(read(Format::Common, &signed_in).unwrap().private);
    assert!(extended(FIELDS, &EXTENDED.replace(" - 192", " bob 192")).unwrap().unwrap().private);
    let flat = FLAT.replace("\"remote_user\":\"\"", "\"remote_user\":\"bob\"");
    assert!(read(Format::JsonLines, &flat).unwrap().private);
    for (name, value, private) in [
        ("sent_http_set_cookie", "session=1; Path=/", true),
        ("upstream_http_set_cookie", "session=1", true),
        ("sent_http_cache_control", "max-age=60, private", true),
        ("upstream_http_cache_control", "no-store", true),
        ("http_authorization", "Bearer x", true),
        ("sent_http_set_cookie", "-", false),
        ("upstream_http_set_cookie", "", false),
        ("sent_http_cache_control", "public, max-age=60", false),
        ("http_authorization", "-", false),
        ("http_x", "private", false),
    ] {
        let line = FLAT.replace("{\"time", &format!("{{\"{name}\":\"{value}\",\"time"));
        assert_eq!(read(Format::JsonLines, &line).unwrap().private, private, "{name}: {value}");
    }
    // Applications log numbers, or data of the user.
    for (name, value, private) in [
        ("user_id", "42", true),
        ("user_id", "0", false),
        ("user_id", "null", false),
        ("user", r#"{"id":42,"name":"bob"}"#, true),
        ("user", "{}", false),
        ("other", r#"{"user":"bob"}"#, false),
    ] {
        let line = FLAT.replace("{\"time", &format!("{{\"{name}\":{value},\"time"));
        assert_eq!(read(Format::JsonLines, &line).unwrap().private, private, "{name}: {value}");
    }
    for (from, to) in [
        ("\"user_id\":\"\"", "\"user_id\":\"bob\""),
        ("max-age=60", "max-age=60, Private"),
        ("max-age=60", "no-store"),
        ("[\"max-age=60\"]", "[\"max-age=60\",\"private\"]"),
        ("\"Server\":[\"Caddy\"]", "\"Set-Cookie\":[\"REDACTED\"]"),
        ("\"Accept\":[\"*/*\"]", "\"Authorization\":[\"REDACTED\"]"),
    ] {
        assert!(read(Format::Caddy, &CADDY.replace(from, to)).unwrap().private, "{to}");
    }
}

#[test]
fn format_is_detected() {
    let extended = format!("#Version: 1.0\n{FIELDS}\n{EXTENDED}");
    for (log, format) in [
        (COMMON, Format::Common),
        (COMBINED, Format::Combined),
        (&extended, Format::Extended),
        (FLAT, Format::JsonLines),
        (CADDY, Format::Caddy),
        (&format!("\n{{\"ts\":\n{COMBINED}\n{COMBINED}\n{COMMON}"), Format::Combined),
    ] {
        let reader = Reader::detect(log.split('\n').map(str::as_bytes));
        assert_eq!(reader.map(|reader| reader.format()), Some(format), "{log}");
    }
    let late = |count| "starting up\n".repeat(count) + COMBINED;
    let reader = Reader::detect(late(9_999).split('\n').map(str::as_bytes));
    assert_eq!(reader.map(|reader| reader.format()), Some(Format::Combined));
    for log in ["", "nonsense\nand more", EXTENDED, FIELDS, &late(10_000)] {
        assert!(Reader::detect(log.split('\n').map(str::as_bytes)).is_none(), "{log}");
    }
}

#[test]
fn columns_may_change_within_a_log() {
    let mut reader = Reader::new(Format::Extended);
    let log = format!(
        "{EXTENDED}\n{FIELDS}\n{EXTENDED}\n#Fields: time date c-ip cs-method cs-uri-stem sc-status\n\
         10:05:00 2015-05-17 192.0.2.7 GET /b 200\n{EXTENDED}"
    );
    let targets: Vec<_> =
        log.lines().filter_map(|line| reader.read(line.as_bytes())).map(|e| e.target).collect();
    assert_eq!(targets, ["/a?b=c", "/b"]);
    let reasons: Vec<_> = reader.bad().keys().copied().collect();
    assert_eq!(reasons, [LineError::NoFields, LineError::Columns]);
}

#[test]
fn each_bad_line_has_its_reason() {
    let bad = |format, line: &str, error| {
        assert_eq!(read(format, line), Err(error), "{line}");
    };
    for (line, error) in [
        ("nonsense".to_owned(), LineError::Missing(Part::Client)),
        ("not a line".to_owned(), LineError::Missing(Part::Date)),
        (COMMON.replace("Aug", "Foo"), LineError::Invalid(Part::Date)),
        (COMMON[..45].to_owned(), LineError::Missing(Part::Status)),
        (COMMON.replace(" 200 1713", ""), LineError::Missing(Part::Status)),
        (COMMON.replace("c1", "-"), LineError::Invalid(Part::Client)),
        (COMMON.replace("200 1713", "200 many"), LineError::Invalid(Part::Length)),
    ] {
        bad(Format::Common, &line, error);
    }
    for (line, error) in [
        (&FLAT[1..], LineError::NotJson),
        (&FLAT[..60], LineError::NotJson),
        ("[1]", LineError::NotJson),
        ("{}", LineError::Missing(Part::Date)),
        (&FLAT.replace("remote_addr", "x"), LineError::Missing(Part::Client)),
        (&FLAT.replace("\"request\"", "\"x\""), LineError::Missing(Part::Request)),
        (&FLAT.replace("\"200\"", "\"-1\""), LineError::Invalid(Part::Status)),
        (&FLAT.replace("\"1713\"", "\"-1\""), LineError::Invalid(Part::Length)),
        (&format!("{FLAT} {FLAT}"), LineError::NotJson),
    ] {
        bad(Format::JsonLines, line, error);
    }
    let line = |with: &str| EXTENDED.replace("GET", with);
    for (line, error) in [
        (line("-"), LineError::Missing(Part::Request)),
        (line("GET x"), LineError::Columns),
        (EXTENDED.replace("2015-05", "2015-15"), LineError::Invalid(Part::Date)),
    ] {
        assert_eq!(extended(FIELDS, &line), Err(error), "{line}");
    }
    let long = "x".repeat(MAX_LINE_BYTES + 1);
    assert_eq!(Reader::new(Format::Common).try_read(long.as_bytes()), Err(LineError::TooLong));
    assert_eq!(Reader::new(Format::Common).try_read(b"a \0"), Err(LineError::NotText));
}

#[test]
fn sample_of_a_bad_line_identifies_no_client() {
    let mut reader = Reader::new(Format::Combined);
    let cut = &COMBINED[..60];
    for line in [COMBINED, cut, "", cut, "192.0.2.9 x [nonsense] 2001:db8::1 [::1] 10.0.0.1:80"] {
        reader.read(line.as_bytes());
    }
    assert_eq!((reader.lines(), reader.entries()), (5, 1));
    let bad: Vec<_> = reader.bad().iter().map(|(why, bad)| (*why, bad.count, bad.first)).collect();
    assert_eq!(
        bad,
        [(LineError::Missing(Part::Status), 2, 2), (LineError::Invalid(Part::Date), 1, 5)]
    );
    let samples: Vec<_> = reader.bad().values().map(|bad| bad.sample.as_str()).collect();
    assert_eq!(samples[0], format!("(address){}", &cut[9..]));
    assert_eq!(samples[1], "(address) x [nonsense] (address) [(address)] (address)");
}

proptest! {
    /// No line panics, in any format; repeated reads give the same result.
    #[test]
    fn any_bytes_give_an_entry_or_an_error(lines in prop::collection::vec(
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..200),
            "[ -~é\"\\[\\]{}:,]{0,120}".prop_map(String::into_bytes),
            mutated(COMMON), mutated(COMBINED), mutated(FIELDS), mutated(EXTENDED),
            mutated(FLAT), mutated(CADDY),
        ], 0..20)
    ) {
        use Format::{Caddy, Combined, Common, Extended, JsonLines};
        let _ = Reader::detect(lines.iter().map(Vec::as_slice));
        for format in [Common, Combined, Extended, JsonLines, Caddy] {
            let mut reader = Reader::new(format);
            let mut again = reader.clone();
            for line in &lines {
                prop_assert_eq!(reader.try_read(line), again.try_read(line));
            }
            let bad: u64 = reader.bad().values().map(|bad| bad.count).sum();
            prop_assert!(bad + reader.entries() <= reader.lines());
        }
    }
}

/// A good line with some of its bytes changed or cut off.
fn mutated(line: &'static str) -> impl Strategy<Value = Vec<u8>> {
    (prop::collection::vec((0..line.len(), any::<u8>()), 0..4), 0..=line.len()).prop_map(
        move |(changes, end)| {
            let mut bytes = line.as_bytes().to_vec();
            for (at, byte) in changes {
                bytes[at] = byte;
            }
            bytes.truncate(end);
            bytes
        },
    )
}
