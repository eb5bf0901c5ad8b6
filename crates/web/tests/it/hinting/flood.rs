//! Clients over their rate, with any contents.

use std::io::BufRead;

use super::*;

const JSON: &str = "Content-Type: application/json\r\n";

#[test]
fn client_over_its_rate_is_deferred_without_a_503() {
    let site = site();
    site.go(1..25, &["/a", "/b"]);
    let replies: Vec<Value> = (0..120).map(|_| site.ask(9, "/a", &[], false)).collect();
    let put_off = replies.iter().filter(|reply| reply["wait"] == 30.0).count();
    assert!(put_off > 20, "{put_off}");
    assert_ne!(site.ask(10, "/a", &[], false)["wait"], 30.0);
}

#[test]
fn requests_over_the_rate_are_not_parsed() {
    let site = site();
    for (path, refusal, put_off) in [("/.lull/hints", 200, true), ("/.lull/beacon", 204, false)] {
        let begun = Instant::now();
        let answers: Vec<_> = (0..120).map(|_| site.post(9, path, JSON, "what is none")).collect();
        let read = answers.iter().filter(|answer| answer.status() == 400).count();
        let most = 50.0 + begun.elapsed().as_secs_f64() * 5.0 + 1.0;
        // The earlier requests have used up the burst.
        let least = if put_off { 50 } else { 0 };
        assert!((least..=most as usize).contains(&read), "{path}: {read} of {most}");
        let refused = answers.iter().filter(|answer| answer.status() == refusal);
        for answer in refused.clone().filter(|_| put_off) {
            let reply: Value = serde_json::from_slice(&answer.body).unwrap();
            assert_eq!([&reply["mark"], &reply["wait"]], [&json!("1"), &json!(30.0)], "{reply}");
        }
        assert_eq!(refused.count() + read, answers.len(), "{path}");

        // It is not waited for, either, when there has just been no room for another one.
        let begun = Instant::now();
        let is_answered = || {
            while site.post(9, path, JSON, "what is none").status() == 400 {
                assert!(begun.elapsed() < LIMIT, "{path} is never refused");
            }
            let mut client = site.proxy.connect();
            client.send(format!(
                "POST {path} HTTP/1.1\r\nHost: site.example\r\nUser-Agent: {CHROME}\r\n\
                 X-Forwarded-For: 192.0.2.9\r\n{JSON}Content-Length: 70000\r\n\r\n"
            ));
            client.0.get_ref().set_read_timeout(Some(Duration::from_secs(1))).unwrap();
            let mut line = String::new();
            client.0.read_line(&mut line).is_ok_and(|length| length > 0)
        };
        while !is_answered() {
            assert!(begun.elapsed() < LIMIT, "{path} waits for what it does not read");
        }
    }
    // Others are heard.
    assert_eq!(site.post(10, "/.lull/hints", JSON, "what is none").status(), 400);
}
