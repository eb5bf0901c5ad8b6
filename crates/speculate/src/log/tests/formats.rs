//! Each format in small, so that it is tested without the sample logs, too.

use super::clients::{AGENT, BEGIN, clock, is_public_in};
use super::*;

/// A request in each format that is detected, and the format's name.
fn lines(client: &str, second: u64, target: &str) -> Vec<(&'static str, String)> {
    let time = clock(second);
    let port = 20_000 + second;
    let clf = format!("[03/Jul/2024:{time} +0000] \"GET {target} HTTP/1.1\" 200 1713");
    let iso = format!("2024-07-03T{time}Z");
    let epoch = BEGIN + second;
    let combined = format!("{client} - - {clf} \"-\" \"{AGENT}\"");
    let caddy = format!(
        "\"request\":{{\"remote_ip\":\"{client}\",\"method\":\"GET\",\"host\":\"www.example.org\",\
         \"uri\":\"{target}\",\"headers\":{{\"User-Agent\":[\"{AGENT}\"]}}}},\"size\":1713,\"status\":200}}"
    );
    vec![
        ("common", format!("{client} - - {clf}")),
        ("common", format!("{client} - - {}", clf.trim_end_matches(" 1713"))),
        ("combined", combined.clone()),
        ("combined", format!("www.example.org:80  {combined}")),
        ("combined", combined.replace("03/Jul/2024", "03/JUL/2024")),
        ("combined", combined.replace(" +0000", "")),
        ("combined", combined.replace("+0000", "UTC")),
        ("combined", combined.replace(&format!("03/Jul/2024:{time} +0000"), &iso)),
        ("combined", combined.replace("- - [", "0.012 HIT [").replace("] ", "] www.example.org ")),
        ("combined", combined.replace("HTTP/1.1\"", "HTTP/2.0\" to: 192.0.2.1:80")),
        (
            "combined",
            combined.replace(&format!("GET {target}"), &format!("GET www.example.org{target}")),
        ),
        (
            "combined",
            format!(
                "{} \"{AGENT}\"",
                clf.replace("] ", &format!("] [www.example.org:443] [client {client}] "))
            ),
        ),
        (
            "common",
            format!(
                "{client} - - {clf} \"\" \"\" {port} 698 \"https~\" \"web\" 0 0 1 ---- \"\" \"\""
            ),
        ),
        (
            "HAProxy",
            format!(
                "{client}:{port} [03/Jul/2024:{time}.698] https~ web/s1 0/0/1/7/227 200 1713 - - ---- \
                 33/15/1/0/0 0/0 \"GET {target} HTTP/1.1\""
            ),
        ),
        (
            "AWS load balancer",
            format!(
                "h2 {iso} app/web/cb {client}:{port} 10.0.0.1:443 0.006 0.008 0.000 200 200 498 1713 \
                 \"GET https://www.example.org:443{target} HTTP/2.0\" \"{AGENT}\" ECDHE TLSv1.2 arn \"Root=1-{second}\""
            ),
        ),
        (
            "AWS load balancer",
            format!(
                "{iso} my-elb {client}:{port} 10.0.0.2:80 0.0007 0.0008 0.00002 200 200 0 1713 \
                 \"GET http://www.example.org:80{target} HTTP/1.1\" \"{AGENT}\" - -"
            ),
        ),
        (
            "Squid",
            format!(
                "{epoch}.965    187 {client} TCP_MISS/200 1713 GET http://www.example.org{target} - \
                 HIER_DIRECT/10.0.0.4 text/html"
            ),
        ),
        (
            "IIS",
            format!(
                "{client}, -, 7/3/2024, {time}, W3SVC1, WEB1, 10.0.0.3, 12, 300, 1713, 200, 0, GET, {target}, -,"
            ),
        ),
        (
            "Envoy",
            format!(
                "[{iso}] \"GET {target} HTTP/2\" 200 - 0 1713 26 24 \"{client}\" \"{AGENT}\" \"r{second}\" \
                 \"www.example.org\" \"10.0.2.1:80\""
            ),
        ),
        (
            "Envoy",
            format!(
                "[{iso}] \"GET {target} HTTP/1.1\" 200 - via_upstream - \"-\" 0 1713 3 1 \"-\" \"{AGENT}\" \
                 \"r{second}\" \"www.example.org\" \"10.0.2.1:80\" inbound|80|| 127.0.0.1:{port} 10.0.2.1:80 \
                 {client}:{port} - default"
            ),
        ),
        (
            "logfmt",
            format!(
                "{iso} heroku[router]: at=info method=GET path=\"{target}\" host=www.example.org \
                 request_id=r{second} fwd=\"{client}\" dyno=web.1 service=18ms status=200 bytes=1713"
            ),
        ),
        (
            "logfmt",
            format!(
                "time={iso} level=info msg=\"handled request\" method=GET path={target} status=200 \
                 remote_ip={client} size=1713 user_agent=\"{AGENT}\" host=www.example.org"
            ),
        ),
        (
            "JSON lines",
            format!(
                "{{\"timestamp\":{epoch}000000000,\"client_ip\":\"{client}\",\"method\":\"GET\",\
                 \"url\":\"{target}\",\"status\":200,\"bytes\":1713,\"user_agent\":\"{AGENT}\"}}"
            ),
        ),
        (
            "JSON lines",
            format!(
                "{{\"@timestamp\":\"{iso}\",\"clientip\":\"{client}\",\"request\":\"GET {target} HTTP/1.1\",\
                 \"http_user_agent\":\"Mozilla/5.0 (\\x22K\\x22)\",\"size\":1713,\"status\":\"200\"}}"
            ),
        ),
        (
            "JSON lines",
            format!(
                "{{\"@timestamp\":\"{iso}\",\"clientip\":\"{client}\",\"verb\":\"GET\",\"request\":\"{target}\",\
                 \"response\":\"200\",\"bytes\":\"1713\",\"agent\":\"\\\"{AGENT}\\\"\"}}"
            ),
        ),
        (
            "JSON lines",
            format!(
                "{{\"@timestamp\":\"{iso}\",\"source\":{{\"address\":\"{client}\",\"ip\":\"{client}\"}},\
                 \"http\":{{\"request\":{{\"method\":\"GET\"}},\"response\":{{\"status_code\":200,\
                 \"body\":{{\"bytes\":1713}}}}}},\"url\":{{\"original\":\"{target}\"}},\
                 \"user_agent\":{{\"original\":\"{AGENT}\"}}}}"
            ),
        ),
        (
            "JSON lines",
            format!(
                "{{\"httpRequest\":{{\"remoteIp\":\"{client}\",\"requestMethod\":\"GET\",\
                 \"requestUrl\":\"https://www.example.org{target}\",\"responseSize\":\"1713\",\"status\":200,\
                 \"userAgent\":\"{AGENT}\"}},\"insertId\":\"x{second}\",\"timestamp\":\"{iso}\"}}"
            ),
        ),
        (
            "JSON lines",
            format!(
                "{{\"ClientIP\":\"{client}\",\"ClientRequestMethod\":\"GET\",\"ClientRequestURI\":\"{target}\",\
                 \"ClientRequestUserAgent\":\"{AGENT}\",\"EdgeResponseBytes\":1713,\"EdgeResponseStatus\":200,\
                 \"EdgeStartTimestamp\":{epoch}000000000}}"
            ),
        ),
        (
            "JSON lines",
            format!(
                "{{\"ClientAddr\":\"{client}:{port}\",\"ClientHost\":\"{client}\",\"ClientUsername\":\"-\",\
                 \"DownstreamContentSize\":1713,\"DownstreamStatus\":200,\"Duration\":1811271,\
                 \"RequestMethod\":\"GET\",\"RequestPath\":\"{target}\",\"StartUTC\":\"{iso}\",\
                 \"request_User-Agent\":\"{AGENT}\"}}"
            ),
        ),
        (
            "JSON lines",
            format!(
                "{{\"start_time\":\"{iso}\",\"method\":\"GET\",\"path\":\"{target}\",\"response_code\":200,\
                 \"bytes_sent\":1713,\"duration\":14,\"user_agent\":\"{AGENT}\",\
                 \"downstream_remote_address\":\"{client}:{port}\",\"x_forwarded_for\":\"{client}\"}}"
            ),
        ),
        ("Caddy", format!("{{\"ts\":{epoch}.5,{caddy}")),
        (
            "Caddy behind a console prefix",
            format!("2024/07/03 {time}.541\tinfo\tx\thandled\t{{{caddy}"),
        ),
        (
            "combined within JSON",
            format!(
                "{{\"log\":{},\"stream\":\"stdout\",\"time\":\"{iso}\"}}",
                serde_json::to_string(&(combined.clone() + "\n")).unwrap()
            ),
        ),
        (
            "JSON lines behind a CRI prefix",
            format!(
                "{iso} stdout F {{\"ts\":{epoch},\"ip\":\"{client}\",\"request\":\"GET {target} HTTP/1.1\",\"status\":200,\"size\":1713}}"
            ),
        ),
    ]
}

#[test]
fn each_format_is_detected_and_parsed() {
    for (name, line) in lines("198.51.100.1", 0, "/docs/") {
        let reader = Reader::detect([line.as_bytes()]);
        let mut reader = reader.unwrap_or_else(|| panic!("not read: {line}"));
        let entry = reader.try_read(line.as_bytes()).unwrap().unwrap();
        assert_eq!(reader.shape().to_string(), name, "{line}");
        assert_eq!(
            (&*entry.client, &*entry.method, entry.status),
            ("198.51.100.1", "GET", 200),
            "{line}"
        );
        assert!(entry.target.ends_with("/docs/"), "{line}");
        assert_eq!(entry.at.as_nanos() / SECOND, BEGIN, "{line}");
        let ends_with_status = line.ends_with(" 200");
        assert_eq!(entry.bytes, Bytes(if ends_with_status { 0 } else { 1713 }), "{line}");
        assert!(!entry.private, "{line}");
        assert!(entry.agent.is_none_or(|agent| agent.starts_with("Mozilla/5.0 (")), "{line}");
        let site = entry.site.as_deref();
        assert_eq!(site.is_some(), line.contains("www.example.org"), "{line}");
    }
}

#[test]
fn one_client_makes_nothing_public_in_any_format() {
    const PRIVATE: &str = "/reset-password/9f3ab77c21d0";
    for which in 0..lines("", 0, "").len() {
        let one = |client: &str, second, target| lines(client, second, target)[which].1.clone();
        let own: Vec<String> = (0..60)
            .flat_map(|at| {
                [one("192.0.2.7", 40 * at, "/"), one("192.0.2.7", 40 * at + 20, PRIVATE)]
            })
            .collect();
        assert!(!is_public_in(&own, PRIVATE), "{}", own[1]);
        let of_many: Vec<String> =
            (0..60).map(|at| one(&format!("198.51.100.{at}"), 40 * at, "/docs/")).collect();
        assert!(is_public_in(&of_many, "/docs/"), "{}", of_many[1]);
    }
}

#[test]
fn formats_may_change_from_line_to_line() {
    let log: Vec<String> = (0..90)
        .flat_map(|second| lines(&format!("198.51.100.{second}"), second, "/docs/"))
        .map(|(_, line)| line)
        .collect();
    let mut reader = Reader::detect(log.iter().map(|line| line.as_bytes())).unwrap();
    log.iter().for_each(|line| drop(reader.read(line.as_bytes())));
    assert_eq!((reader.entries(), reader.bad().len()), (log.len() as u64, 0), "{:?}", reader.bad());
}

#[test]
fn lines_without_date_or_status_are_rejected_with_the_reason() {
    for (line, error) in [
        (
            "INFO:     198.51.100.1:58964 - \"GET / HTTP/1.1\" 200 OK",
            LineError::Missing(Part::Date),
        ),
        (
            "Started GET \"/\" for 198.51.100.1 at 2024-07-03 09:46:40 +0000",
            LineError::Missing(Part::Status),
        ),
        (
            "10.0.0.1 (198.51.100.1) - - [03/Jul/2024:09:46:40 +0000] \"GET / HTTP/1.1\" 200 1",
            LineError::Proxied,
        ),
    ] {
        let reader = Reader::detect_with([line.as_bytes()], &Options::default()).unwrap_err();
        let (reason, bad) = reader.bad().iter().next().unwrap();
        assert_eq!(*reason, error, "{line}");
        assert!(!bad.sample.contains("198.51.100.1"), "{}", bad.sample);
    }
}

#[test]
fn client_may_be_in_a_field_of_another_name() {
    for (name, line) in [
        (
            "http_cf_connecting_ip",
            FLAT.replace("{\"time", "{\"http_cf_connecting_ip\":\"198.51.100.9\",\"time"),
        ),
        ("peer.ip", FLAT.replace("{\"time", "{\"peer\":{\"ip\":\"198.51.100.9\"},\"time")),
        ("peer", FLAT.replace("{\"time", "{\"peer\":[\"10.0.0.1\",\"198.51.100.9\"],\"time")),
    ] {
        let trust = Trust { field: name.parse().unwrap(), proxies: Vec::new() };
        let options = Options { trust, ..Options::default() };
        let mut reader = Reader::detect_with([line.as_bytes()], &options).unwrap();
        assert_eq!(reader.read(line.as_bytes()).unwrap().client, "198.51.100.9", "{name}");
    }
    let trust = Trust { field: "cs(X-Real)".parse().unwrap(), proxies: Vec::new() };
    let options = Options { trust, ..Options::default() };
    let fields = FIELDS.replace("s-ip", "cs(X-Real)");
    let log = [fields.as_bytes(), EXTENDED.as_bytes()];
    let mut reader = Reader::detect_with(log, &options).unwrap();
    assert_eq!(log.iter().find_map(|line| reader.read(line)).unwrap().client, "10.0.0.1");
}

#[test]
fn template_is_parsed_after_a_prefix() {
    let template = "$remote_addr|$time_iso8601|$request|$status|$http_x_forwarded_for";
    let line = |list: &str| format!("203.0.113.5|2024-07-03T09:46:40Z|GET /a HTTP/1.1|200|{list}");
    let client = |line: &str, field: &str| {
        let trust = Trust { field: field.parse().unwrap(), proxies: Vec::new() };
        let options = Options { template: Some(template.parse().unwrap()), trust };
        let mut reader = Reader::detect_with([line.as_bytes()], &options)
            .map_err(|reader| *reader.bad().keys().next().unwrap())?;
        reader.try_read(line.as_bytes()).map(|entry| entry.unwrap().client.into_owned())
    };
    assert_eq!(client(&line("-"), "auto").unwrap(), "203.0.113.5");
    assert_eq!(client(&line("198.51.100.1"), "auto"), Err(LineError::Proxied));
    assert_eq!(client(&line("198.51.100.1"), "x-forwarded-for").unwrap(), "198.51.100.1");
    let behind = format!("2024-07-03T09:46:40Z stdout F {}", line("-"));
    assert_eq!(client(&behind, "auto").unwrap(), "203.0.113.5");
    // The peer of a container may be one of several load balancers.
    let internal = behind.replace("203.0.113.5", "10.0.0.5");
    assert_eq!(client(&internal, "auto"), Err(LineError::Internal));
    assert_eq!(client(&internal, "client").unwrap(), "10.0.0.5");
    assert_eq!(client("10.0.0.5|x", "auto"), Err(LineError::Shape));
}
