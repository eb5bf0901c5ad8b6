//! Publications to many replicas by a deadline, as processes.

use std::fs;
use std::path::PathBuf;

use lull_replication::types::Digest;
use serde_json::Value;

use crate::gate::free_address;
use crate::site::Site;
use crate::support::{Said, eventually, finish, lull};

/// A folder with files, among them a large one.
fn source(site: &Site) -> PathBuf {
    let source = site.folder.path().join("source");
    fs::create_dir_all(source.join("docs")).unwrap();
    fs::write(source.join("docs/a"), b"one").unwrap();
    fs::write(source.join("large"), vec![b'x'; 2_000_000]).unwrap();
    source
}

fn publish(site: &Site, arguments: &[&str]) -> Said {
    let (source, origin) = (site.path("source"), site.path("origin"));
    finish(lull(&["publish", &source, "--origin", &origin]).args(arguments))
}

/// What the origin knows of a replica.
fn replica(site: &Site, name: &str) -> Value {
    let status = site.status("origin");
    let all = status["replicas"].as_array().unwrap();
    all.iter().find(|one| one["name"] == name).expect(name).clone()
}

fn events(said: &Said) -> Vec<Value> {
    said.out.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

/// The digest that `b3sum` would give for the files.
fn digest() -> String {
    let line = |bytes: &[u8], name: &str| format!("{}  {name}\n", Digest::of(bytes));
    let lines = line(b"one", "docs/a") + &line(&vec![b'x'; 2_000_000], "large");
    Digest::of(lines.as_bytes()).to_string()
}

#[test]
fn report_lists_each_replica_with_its_digest() {
    let site = Site::new(&["paris", "london"], &[]);
    source(&site);
    let said = publish(&site, &["--to", "*", "--by", "90m"]);
    let out = &said.out;
    assert!(said.status.success(), "{said:?}");
    assert!(out.contains(&format!("digest {} of 2 files with 2000003 bytes", digest())), "{out}");
    for name in ["london", "paris"] {
        let line = out.lines().find(|line| line.trim_start().starts_with(name));
        let line = line.unwrap_or_else(|| panic!("{out}"));
        assert!(line.contains(&format!("state 1, digest {}, done 2", digest())), "{line}");
        assert_eq!(site.get(name, "/large").body.len(), 2_000_000);
        assert_eq!(replica(&site, name)["urgent_bytes"], 0);
    }
    // Once more, as JSON: nothing is new.
    let said = publish(&site, &["--to", "paris", "--to", "lon*", "--json"]);
    let events = events(&said);
    assert!(said.status.success(), "{said:?}");
    assert_eq!(events[0]["event"], "published", "{events:?}");
    let report = events.last().unwrap();
    assert_eq!((&report["event"], &report["state"]), (&"report".into(), &1.into()), "{report}");
    assert_eq!(report["digest"], digest().as_str());
    let hosts = report["hosts"].as_array().unwrap();
    assert!(hosts.len() == 2 && hosts.iter().all(|host| host["digest"] == report["digest"]));
    let changes = events.iter().filter(|event| event["event"] == "host");
    assert!(changes.count() >= 2, "{events:?}");
}

#[test]
fn missed_deadline_ends_with_exit_code_3_and_files_still_arrive() {
    let mut site = Site::new(&["paris", "london"], &[]);
    source(&site);
    let none = publish(&site, &["--to", "berlin*", "--by", "1h"]);
    assert_eq!(none.status.code(), Some(1), "{none:?}");
    assert!(none.err.contains("no replica matches `berlin*`"), "{none:?}");
    for (arguments, words) in [
        (&["--by", "1h"][..], "--to"),
        (&["--to", "*", "--by", "yesterday"], "a time of day such as 06:00"),
        (&["--to", "*", "--wait", "paris"], "cannot be used with"),
        (&["--timeout", "1"], "--wait or --to"),
    ] {
        let refused = publish(&site, arguments);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(refused.err.contains(words), "{refused:?}");
    }
    assert_eq!(site.status("origin")["sequence"], 0, "nothing was published");
    drop(site.replicas.remove("london"));
    eventually("its end", || replica(&site, "london")["connected"] == false);
    // --timeout ends the wait before the deadline.
    let limited = publish(&site, &["--to", "*", "--by", "1h", "--timeout", "1"]);
    assert_eq!(limited.status.code(), Some(3), "{limited:?}");
    let late = publish(&site, &["--to", "*", "--by", "3s"]);
    assert_eq!(late.status.code(), Some(3), "{late:?}");
    assert!(late.err.contains("london: not connected"), "{late:?}");
    let line = late.out.lines().find(|line| line.contains("london")).expect("a line");
    assert!(line.contains("away, 3 files with 2000003 bytes are missing"), "{line}");
    assert!(late.out.contains("paris") && late.out.contains(", done 2"), "{late:?}");
    // It is late, so its files leave the background.
    eventually("urgency", || replica(&site, "london")["urgent"] == true);
    site.start_replica("london", &[]);
    // No read fetches them.
    eventually("all files", || replica(&site, "london")["valid_bytes"] == 2_000_003);
    let urgent = replica(&site, "london")["urgent_bytes"].as_u64().unwrap();
    assert!(urgent > 2_000_000, "{urgent}");
    let text = finish(&mut lull(&["status", &site.path("origin")])).ok();
    assert!(text.contains("to meet a deadline"), "{text}");
}

#[test]
fn publication_ends_for_replicas_below_a_relay() {
    let mut site = Site::new(&["london"], &[]);
    let relay = free_address();
    site.add_relay("relay", &["--relay", &relay]);
    site.add_replica("paris", &["--via", &relay]);
    source(&site);
    let said = publish(&site, &["--to", "*", "--by", "90m"]);
    assert!(said.status.success(), "{said:?}");
    for name in ["london", "paris", "relay"] {
        let line = said.out.lines().find(|line| line.trim_start().starts_with(name));
        let line = line.unwrap_or_else(|| panic!("{said:?}"));
        assert!(line.contains(&format!("state 1, digest {}, done 2", digest())), "{line}");
        assert_eq!(site.get(name, "/large").body.len(), 2_000_000);
    }
}

#[test]
fn late_replica_below_a_relay_is_urgent_there() {
    let mut site = Site::new(&[], &[]);
    let relay = free_address();
    site.add_relay("relay", &["--relay", &relay]);
    site.add_replica("paris", &["--via", &relay]);
    source(&site);
    eventually("a report", || replica(&site, "paris")["below"] == "relay");
    drop(site.replicas.remove("paris"));
    eventually("its end", || replica(&site, "paris")["connected"] == false);
    let late = publish(&site, &["--to", "paris", "--by", "3s"]);
    assert_eq!(late.status.code(), Some(3), "{late:?}");
    eventually("urgency", || replica(&site, "paris")["urgent"] == true);
    // The relay has all files, so nothing is urgent on the way to it.
    eventually("the relay's files", || replica(&site, "relay")["valid_bytes"] == 2_000_003);
    eventually("its rest", || replica(&site, "relay")["urgent"] == false);
    site.start_replica("paris", &["--via", &relay]);
    eventually("all files", || replica(&site, "paris")["valid_bytes"] == 2_000_003);
    for name in ["paris", "relay"] {
        eventually("the end", || replica(&site, name)["urgent"] == false);
    }
}
