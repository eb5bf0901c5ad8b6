//! Logs and models that are as they should be, to begin with.

use lull_cc::Timestamp;
use lull_speculate::log::Entry;
use lull_speculate::model::Model;
use lull_speculate::observe::Limits;
use lull_speculate::predict::PpmParameters;

/// A short log in each format.
pub const LOGS: [&str; 5] = [
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
];

/// Some models, in little and in much room, each with something in all of its tables.
pub fn models() -> Vec<Model> {
    let (limits, parameters) = super::tight();
    let both = [(limits, parameters), (Limits::default(), PpmParameters::shipped())];
    let learned = both.map(|(limits, parameters)| {
        let mut model = Model::new(super::hasher(), limits, parameters);
        for client in 0..12 {
            for (second, target) in (0..).zip(["/", "/a.png", "/b", "/c", "/a.png", "/long/path"]) {
                let at =
                    Timestamp::from_nanos((1_000 + 100 * client as u64 + second) * 1_000_000_000);
                // Whether it is learned from does not matter here.
                let _ = model.learn(&entry(at, client, target));
            }
        }
        model
    });
    learned.into_iter().collect()
}

/// A page that a client got.
pub(crate) fn entry(at: Timestamp, client: usize, target: &str) -> Entry<'_> {
    Entry::page(at, format!("192.0.2.{client}"), target)
}
