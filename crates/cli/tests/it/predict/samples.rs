//! Sample logs in the formats of servers, load balancers and log shippers.

use std::fs;

use super::{Bench, line};
use crate::support;

/// The expected result of a sample log.
enum Sample {
    /// 120 visits of 30 clients, four public URLs.
    Read,
    /// The same with options.
    With(&'static [&'static str]),
    /// This many visits and public URLs, and words of the output.
    Differs(u64, u64, &'static [&'static str]),
    /// One line with these words, and the exit code 1.
    Refused(&'static [&'static str]),
}

/// The names of sample logs without `.log.gz`, and their expected results. A log that needs an option is
/// listed twice: without and with it.
const SAMPLES: &[(&str, Sample)] = {
    use Sample::{Differs, Read, Refused, With};
    const PROXIED: Sample =
        Refused(&["came through a proxy", "(address)", "--trusted-proxy", "--client-field"]);
    &[
        ("apache-client-bracket", Read),
        ("apache-tail-us", Differs(120, 4, &["3 bad lines: the client cannot be read"])),
        ("apache-xff-list", PROXIED),
        ("apache-xff-list", With(&["--trusted-proxy", "203.0.113.7"])),
        ("apache-xff-paren", PROXIED),
        ("apache-xff-paren", With(&["--trusted-proxy", "10.0.0.1"])),
        ("apache-xff-paren", With(&["--client-field", "x-forwarded-for"])),
        ("aws-alb", Read),
        ("aws-elb", Read),
        ("bom-json", Read),
        ("bytes-missing", Read),
        ("caddy-console", Read),
        ("cloudflare-logpush", Read),
        ("cri-prefix", Read),
        ("date-iso-clf", Read),
        ("date-lower", Read),
        ("date-no-zone", Read),
        ("date-zone-utc", Read),
        ("docker-json", Read),
        ("ecs-json", Read),
        ("envoy-json", Read),
        ("format-change-late", Differs(240, 4, &["240 requests"])),
        ("gcp-lb", Read),
        ("gz-trailing-garbage", Differs(120, 4, &["damaged after line 120"])),
        ("gz-trunc-long", Differs(5_300, 4, &["damaged after line 5300"])),
        ("haproxy-clf", Read),
        ("haproxy-http", Read),
        ("heroku-app-prefix", Read),
        ("iis-advanced", Read),
        ("iis-native", Read),
        ("iis-utf16", Read),
        ("json-nanos", Read),
        // One in ten requests /caf\xe9 instead of /.
        ("latin1-path", Differs(120, 5, &["120 requests"])),
        ("leak-cri", Differs(80, 0, &["CRI", "0 of them public"])),
        ("logstash-json", Read),
        ("mixed-format", Read),
        ("nginx-iso-first", Refused(&["no client", "(address)", "--format"])),
        (
            "nginx-iso-first",
            With(&[
                "--format",
                "[$time_iso8601] - $host - $remote_addr - $status - - - $request_method - $server_protocol - \
                 $body_bytes_sent - $request_time - \"$http_referer\" - \"$http_user_agent\" - \"$request_uri\"",
            ]),
        ),
        ("nginx-json-msec-x", PROXIED),
        ("nginx-json-msec-x", With(&["--trusted-proxy", "10.0.0.0/8"])),
        ("nginx-json-x22", Read),
        ("nginx-proxy-xff-only", PROXIED),
        ("nginx-proxy-xff-only", With(&["--client-field", "x-forwarded-for"])),
        ("nginx-rt-cache", Read),
        ("nginx-to-upstream", Read),
        ("rails", Refused(&["no status", "(address)", "in one line"])),
        ("squid-native", Read),
        ("syslog-clf", Read),
        ("tgz.tgz", Refused(&["a tar archive", "tar -xOf"])),
        ("traefik-json", Read),
        ("url-host-in-path", Read),
        ("uvicorn", Refused(&["no date", "(address)", "in one line"])),
        ("xz.log.xz", Read),
        ("zst.log.zst", Read),
    ]
};

#[test]
fn sample_logs_are_read_or_rejected_with_the_reason() {
    let bench = Bench::new();
    for (name, expected) in SAMPLES {
        let file = if name.contains('.') { (*name).to_owned() } else { format!("{name}.log.gz") };
        let path = support::sample("predict", &file);
        // The name of a sample must not match the expected words.
        fs::copy(path, bench.path("log")).unwrap();
        let train = ["train", "--fresh", "--model", "m", "log"];
        let (more, visits, public, words) = match expected {
            Sample::Read => (&[][..], 120, 4, &[][..]),
            Sample::With(more) => (*more, 120, 4, &[][..]),
            Sample::Differs(visits, public, words) => (&[][..], *visits, *public, *words),
            Sample::Refused(words) => {
                let said = bench.predict(&train);
                for word in *words {
                    said.fails(1, word);
                }
                assert!(!said.err.contains("198.51.100."), "{name}: {}", said.err);
                continue;
            }
        };
        let shown = bench.predict(&[&train[..], more].concat()).ok();
        for word in words {
            assert!(shown.contains(word), "{name}: no '{word}' in {shown}");
        }
        let said = bench.json(&[&train[..], more, &["--json"]].concat());
        let counts =
            (said["visits"].as_u64().unwrap(), said["model"]["public_urls"].as_u64().unwrap());
        assert_eq!(counts, (visits, public), "{name}: {said}");
        assert!(!shown.contains("198.51.100."), "{name}: {shown}");
        if *name != "leak-cri" {
            assert_eq!(said["logs"][0]["one_client"], false, "{name}");
            // Each client continues, so there are contexts.
            assert!(said["model"]["contexts"].as_u64().unwrap() >= 3, "{name}: {said}");
        }
    }
}

#[test]
fn log_with_one_address_is_recognised_as_that_of_a_proxy() {
    let bench = Bench::new();
    let log: String =
        (0..200).map(|at| line(20 * at, "192.0.2.7", &format!("/{}", at % 9))).collect();
    bench.write("log", log.as_bytes());
    let shown = bench.predict(&["train", "--model", "m", "log"]).ok();
    for words in [
        "all 200 requests come from one address",
        "is it a proxy?",
        "--client-field",
        " 0 of them public",
    ] {
        assert!(shown.contains(words), "no '{words}' in {shown}");
    }
    assert!(!shown.contains("192.0.2.7"), "{shown}");
}
