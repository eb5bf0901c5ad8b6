//! `lull origin` and `lull replica` as processes: a real folder is published and read, and no promise is
//! broken while each of them is killed.

use crate::site;
use crate::support;
mod killed;
pub(crate) mod workload;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::site::{Site, TOKEN, request};
use crate::support::{finish, lull};
use lull_testing::{command, needs, root};

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

#[test]
fn published_folder_is_read_at_each_replica() {
    let mut site = Site::new(&["paris", "london"], &[]);
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let said = site.publish(&docs, &["--wait", "paris", "--wait", "london"]);
    let all = files(&docs);
    assert!(said.starts_with(&format!("state 1: {} files put, 0 deleted", all.len())), "{said}");
    for name in ["paris", "london"] {
        for file in &all {
            let path = file.strip_prefix(&docs).unwrap().to_str().unwrap();
            let response = site.get(name, &format!("/{path}"));
            assert_eq!(response.status, 200, "{path}: {response:?}");
            assert!(response.body == fs::read(file).unwrap(), "{path}");
        }
    }
    // A second time there is nothing to do.
    let again = site.publish(&docs, &[]);
    assert!(again.starts_with("state 1: 0 files put, 0 deleted"), "{again}");

    let response = site.get("paris", "/web.md");
    let tag = response.header("etag").unwrap().to_owned();
    assert_eq!(response.header("cache-control"), Some("no-cache, private"));
    assert!(response.header("age").is_some() && response.header("lull-session").is_some());
    let paris = site.addresses["paris"].clone();
    let ask =
        |method: &str, headers: &str| request(&paris, method, "/web.md", headers, b"").unwrap();
    assert_eq!(ask("GET", &format!("If-None-Match: {tag}\r\n")).status, 304);
    let part = ask("GET", "Range: bytes=2-5\r\n");
    assert_eq!((part.status, &part.body[..]), (206, &response.body[2..6]));
    assert_eq!(ask("GET", "Range: bytes=99999999-\r\n").status, 416);
    let head = ask("HEAD", "");
    assert_eq!(head.header("content-length"), Some(&*response.body.len().to_string()));
    assert_eq!(ask("PUT", "").status, 405);
    assert_eq!(ask("GET", "Lull-Session: forged\r\n").status, 400);
    assert_eq!(site.get("paris", "/none").status, 404);
    assert_eq!(site.get("paris", "/../../etc/passwd").status, 404);

    // One file of the tree, by the origin's HTTP.
    let origin = site.addresses["origin"].clone();
    let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
    assert_eq!(request(&origin, "PUT", "/new/page", "", b"1").unwrap().status, 401);
    let put = request(&origin, "PUT", "/new/page", &bearer, b"1").unwrap();
    assert_eq!((put.status, put.header("lull-sequence")), (200, Some("2")), "{put:?}");
    let page = request(&origin, "GET", "/.lull/", &bearer, b"").unwrap();
    assert!(String::from_utf8_lossy(&page.body).contains("paris"), "{page:?}");
    let metrics = request(&origin, "GET", "/.lull/metrics", &bearer, b"").unwrap();
    let metrics = String::from_utf8(metrics.body).unwrap();
    assert!(metrics.contains("lull_origin_sequence 2\n"), "{metrics}");
    support::eventually("the page", || site.get("london", "/new/page").body == b"1");
    // A rollback is one more state, and so is an ordinary deletion of the page.
    let origin = site.path("origin");
    let back = finish(&mut lull(&["rollback", "1", "--origin", &origin, "--wait", "london"])).ok();
    assert_eq!(back, "state 3: as in state 1\n");
    assert_eq!(site.get("london", "/new/page").status, 404);

    let status = site.status("origin");
    assert_eq!(status["replicas"].as_array().unwrap().len(), 2);
    let said = finish(&mut lull(&["status", &site.path("london")])).ok();
    assert!(said.starts_with("state 3, connected; "), "{said}");
    for words in
        ["\n  0 commits wait to be applied, 0 reads wait\n", "\n  received: ", " bytes on demand, "]
    {
        assert!(said.contains(words), "no '{words}' in {said}");
    }
    assert!(!said.contains("lost"), "it was connected since its start: {said}");
    finish(&mut lull(&["origin", "revoke", &origin, "london"])).ok();
    support::eventually("the end", || site.status("london")["refused"].is_string());
    let said = finish(&mut lull(&["status", &site.path("london")])).ok();
    assert!(said.starts_with("state 3, rejected by the origin; "), "{said}");

    // They end on request.
    let mut origin = site.origin.take().unwrap();
    assert!(Command::new("kill").args(["-TERM", &origin.pid()]).status().unwrap().success());
    assert!(origin.0.wait().unwrap().success());
}

/// Files and folders.
fn objects(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| 1 + if path.is_dir() { objects(&path) } else { 0 }).sum()
}

#[test]
fn strategy_selects_pushed_bodies() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let all = objects(&docs);
    for (strategy, pushed) in
        [("demand", 0), ("push-all", all), ("threshold=0.5", 0), ("trip", all)]
    {
        let arguments = ["--strategy", strategy];
        let site = Site::with(&["paris"], &arguments, &arguments);
        site.publish(&docs, &["--wait", "paris"]);
        let status = site.status("origin");
        assert_eq!(status["pushed"], pushed, "{strategy}: {status}");
        let file = fs::read(docs.join("web.md")).unwrap();
        assert!(site.get("paris", "/web.md").body == file, "{strategy}");
        let asked = site.status("origin")["demands"].as_u64().unwrap();
        assert_eq!(asked, u64::from(pushed == 0), "{strategy}");
        if strategy != "threshold=0.5" {
            continue;
        }
        // Read objects are pushed, once the origin has the counts of reads.
        (0..20).for_each(|_| assert_eq!(site.get("paris", "/web.md").status, 200));
        let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
        let origin = site.addresses["origin"].clone();
        let is_pushed = |at: &u32| {
            let body = at.to_le_bytes();
            let put = request(&origin, "PUT", "/web.md", &bearer, &body).unwrap();
            assert_eq!(put.status, 200, "{put:?}");
            thread::sleep(Duration::from_millis(300));
            site.status("origin")["pushed"].as_u64() > Some(0)
        };
        assert!((0..30).any(|at| is_pushed(&at)), "{}", site.status("origin"));
    }
    let wrong = lull(&["origin", "run", "x", "--listen", "127.0.0.1:0", "--strategy", "push"])
        .output()
        .unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    let said = String::from_utf8(wrong.stderr).unwrap();
    assert!(said.contains("write demand, push-all, threshold=P"), "{said}");
}

#[test]
fn background_push_uses_the_chosen_control() {
    needs!(root(), command("ss"));
    let usual = fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
    let other = if usual.trim() == "cubic" { "reno" } else { "cubic" };
    let site = Site::with(&["paris"], &[], &["--cc", other]);
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    site.publish(&docs, &["--wait", "paris"]);
    let port = site.listen.rsplit(':').next().unwrap();
    let filter = ["state", "established", "sport", "=", &format!(":{port}")];
    let said = finish(Command::new("ss").arg("-tinH").args(filter)).ok();
    let controls = |name: &str| said.matches(&format!("\t {name} ")).count();
    // The other two, of three, are not background ones.
    assert_eq!((controls(other), controls(usual.trim())), (1, 2), "{said}");
}

#[test]
fn authority_is_replaced_in_two_steps() {
    let mut site = Site::new(&["paris", "london"], &[]);
    let (origin, oslo) = (site.path("origin"), site.path("oslo"));
    let rotate = |more: &[&str]| finish(lull(&["origin", "rotate", &origin]).args(more));
    rotate(&["--finish"]).fails(1, "`lull origin rotate DIR` begins that");
    drop(site.replicas.remove("london"));
    let ticket = finish(&mut lull(&["origin", "ticket", &origin, "oslo"])).ok();
    assert!(rotate(&[]).ok().starts_with("a new CA is in use"));
    rotate(&[]).fails(1, "`lull origin rotate DIR --finish` ends that");
    support::eventually("paris has renewed", || {
        let mut command = lull(&["origin", "rotate", &origin, "--finish"]);
        let said = command.output().unwrap();
        assert!(!said.status.success(), "london has not");
        let said = String::from_utf8(said.stderr).unwrap();
        assert!(said.contains("would be rejected afterwards"), "{said}");
        !said.contains("paris")
    });
    site.start_replica("london", &[]);
    let mut said = String::new();
    support::eventually("london has renewed", || {
        let output = lull(&["origin", "rotate", &origin, "--finish"]).output().unwrap();
        said = String::from_utf8(output.stdout).unwrap();
        output.status.success()
    });
    assert!(said.contains("neither are unused tickets"), "{said}");
    finish(&mut lull(&["replica", "join", ticket.trim(), &oslo])).fails(1, "ask for a new ticket");
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    site.publish(&docs, &["--wait", "paris", "--wait", "london"]);
    for name in ["paris", "london"] {
        assert_eq!(site.get(name, "/web.md").status, 200, "{name}");
    }
}

#[test]
fn awaited_replicas_are_known_before_publication() {
    let site = Site::new(&["paris"], &[]);
    let (origin, empty) = (site.path("origin"), site.path("empty"));
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let docs = docs.to_str().unwrap();
    finish(&mut lull(&["origin", "ticket", &origin, "london"])).ok();
    let publish = |source: &str, more: &[&str]| {
        finish(lull(&["publish", source, "--origin", &origin]).args(more))
    };
    publish(docs, &["--wait", "pariss"]).fails(1, "there is no replica `pariss`");
    publish(docs, &["--wait", "london"]).fails(1, "has not joined");
    assert_eq!(site.status("origin")["sequence"], 0);
    let said = publish(docs, &["--wait", "paris", "--timeout", "30"]).ok();
    assert!(said.starts_with("state 1: "), "{said}");
    support::eventually("it has said how it is", || {
        let paris = &site.status("origin")["replicas"][0];
        paris["valid_objects"].as_u64() > Some(0) && paris["skew_seconds"].is_array()
    });
    // Committed states are reported, on any replica.
    let mut site = site;
    drop(site.replicas.remove("paris"));
    fs::create_dir(&empty).unwrap();
    publish(&empty, &[]).fails(1, "use --delete-all");
    let late = publish(&empty, &["--delete-all", "--wait", "paris", "--timeout", "0.2"]);
    late.fails(3, "not all of these replicas have it after 0.2 s");
    assert!(late.out.starts_with("state 2: 0 files put, "), "{late:?}");
    let back = finish(lull(&["rollback", "1", "--origin", &origin]).args([
        "--wait",
        "paris",
        "--timeout",
        "0.2",
    ]));
    back.fails(3, "not all of these replicas have it");
    assert_eq!(back.out, "state 3: as in state 1\n");
    let said = finish(&mut lull(&["status", &origin])).ok();
    for words in ["% of the objects", "sent: ", "on demand", "no message for", "its clock"] {
        assert!(said.contains(words), "no '{words}' in {said}");
    }
}

#[test]
fn status_reports_past_cuts_and_absent_replicas() {
    let mut site = Site::new(&["paris", "london"], &[]);
    support::eventually("connected", || site.status("paris")["connected"] == true);
    drop(site.replicas.remove("london"));
    site.origin = None;
    support::eventually("it is noticed", || site.status("paris")["connected"] == false);
    site.start_origin();
    support::eventually("it is over", || site.status("paris")["last_outage"].is_object());
    let said = finish(&mut lull(&["status", &site.path("paris")])).ok();
    assert!(said.contains("\n  a connection was lost "), "{said}");
    assert!(said.contains(" s of that all reads were answered\n"), "{said}");
    let said = finish(&mut lull(&["status", &site.path("origin")])).ok();
    let london = said.lines().find(|line| line.starts_with("  london: ")).unwrap_or_default();
    for words in [
        "away; 0 behind at least, ",
        " s at least, no message for ",
        " s at least, reads answered for all of that at most",
    ] {
        assert!(london.contains(words), "no '{words}' in {said}");
    }
}

#[test]
fn replica_finds_an_origin_that_moved() {
    let mut site = Site::new(&["paris"], &[]);
    site.origin = None;
    site.listen = "127.0.0.1:0".to_owned();
    site.start_origin();
    let moved = site.listen.clone();
    for arguments in [&["--origin", &*moved][..], &[]] {
        drop(site.replicas.remove("paris"));
        site.start_replica("paris", arguments);
        support::eventually("connected", || site.status("paris")["connected"] == true);
    }
}

#[test]
fn ticket_may_come_from_a_file() {
    let site = Site::new(&[], &[]);
    let (origin, file) = (site.path("origin"), site.path("ticket"));
    let ticket = ["origin", "ticket", &origin, "oslo"];
    let nowhere = ["--address", "origin.example"];
    finish(lull(&ticket).args(nowhere)).fails(1, "write HOST:PORT");
    let ticket = finish(&mut lull(&ticket)).ok();
    fs::write(&file, ticket).unwrap();
    let join = |input: &str| {
        let input = fs::File::open(input).unwrap();
        finish(lull(&["replica", "join", "-", &site.path("oslo")]).stdin(input))
    };
    join("/dev/null").fails(1, "this is not a ticket");
    assert!(join(&file).ok().contains("is now a replica of the origin"));
}

#[test]
fn replica_metrics_may_have_a_separate_port() {
    let mut site = Site::new(&["paris"], &[]);
    drop(site.replicas.remove("paris"));
    let folder = site.path("paris");
    let ports = ["--http", "127.0.0.1:0", "--metrics", "127.0.0.1:0"];
    let run: Vec<&str> = ["replica", "run", &folder].into_iter().chain(ports).collect();
    let mut daemon = site::Daemon::start(&run);
    let mut port = |name: &str| daemon.wait_for(name)["address"].as_str().unwrap().to_owned();
    let (files, figures) = (port("http"), port("metrics"));
    let ask = |address: &str| request(address, "GET", "/.lull/metrics", "", b"").unwrap().status;
    assert_eq!((ask(&files), ask(&figures)), (404, 200));
}

/// How many descriptors a process may have, and how many it may permit itself.
fn descriptors(pid: &str) -> (String, String) {
    let shown = ["--nofile", "--output=SOFT,HARD", "--noheadings", "--raw"];
    let said = finish(Command::new("prlimit").args(["--pid", pid]).args(shown)).ok();
    let (soft, hard) = said.trim().split_once(' ').unwrap();
    (soft.to_owned(), hard.trim().to_owned())
}

fn allow(pid: &str, descriptors: &str) {
    let limit = format!("--nofile={descriptors}:");
    finish(Command::new("prlimit").args(["--pid", pid, &limit])).ok();
}

/// One request on a persistent connection.
fn say(stream: &mut TcpStream, request: &[u8]) -> Vec<u8> {
    let is_all = |answer: &[u8]| {
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
        end.is_some_and(|end| {
            let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            answer.len() >= end + 4 + length.unwrap().parse::<usize>().unwrap()
        })
    };
    stream.write_all(request).unwrap();
    let (mut answer, mut some) = (Vec::new(), vec![0; 65_536]);
    while !is_all(&answer) {
        let count = stream.read(&mut some).unwrap();
        assert!(count > 0, "it ended: {}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&some[..count]);
    }
    answer
}

#[test]
fn daemon_without_descriptors_waits_and_continues() {
    needs!(command("prlimit"));
    let site = Site::new(&["paris"], &[]);
    let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
    let origin = site.addresses["origin"].clone();
    // Larger than the bodies in the database.
    let large = vec![b'.'; 200_000];
    assert_eq!(request(&origin, "PUT", "/large", &bearer, &large).unwrap().status, 200);
    support::eventually("it is there", || site.get("paris", "/large").body == large);
    let pids = [site.replicas["paris"].pid(), site.origin.as_ref().unwrap().pid()];
    let head = |method: &str, path: &str, length: usize| {
        format!("{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n{bearer}\r\n")
    };
    // A body that is stored already would need no file.
    let other = vec![b','; 200_000];
    let put = [head("PUT", "/other", other.len()).as_bytes(), &other].concat();
    let requests = [
        ("paris", head("GET", "/none", 0), head("GET", "/large", 0).into_bytes()),
        ("origin", head("DELETE", "/none", 0), put),
    ];
    for (pid, (name, first, second)) in pids.iter().zip(requests) {
        let mut stream = TcpStream::connect(&site.addresses[name]).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        // Accepted, and answered: it needs no more descriptors for itself.
        say(&mut stream, first.as_bytes());
        let (raised, most) = descriptors(pid);
        assert_eq!(raised, most, "it takes all that it may have");
        // Those of the earlier connections are released.
        thread::sleep(Duration::from_millis(300));
        let is_free =
            |number: &u32| fs::symlink_metadata(format!("/proc/{pid}/fd/{number}")).is_err();
        let lowest = (0..).find(is_free).unwrap().to_string();
        allow(pid, &lowest);
        let asking = thread::spawn(move || say(&mut stream, &second));
        thread::sleep(Duration::from_millis(500));
        assert!(!asking.is_finished(), "{name} waits");
        allow(pid, &raised);
        let answer = asking.join().unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    }
    support::eventually("the other one", || site.get("paris", "/other").body == other);
}

#[test]
fn impossible_web_set_up_is_reported_in_one_line() {
    const LONG: &str = "a-name-too-long-";
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (there, none) = (path("origin"), path("none"));
    finish(&mut lull(&["origin", "init", &there])).ok();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (arguments, code, words) in [
        (&["origin", "init", &there][..], 1, "name another folder"),
        (&["origin", "run", &none, "--listen", "127.0.0.1:0"], 1, "no identity"),
        (&["origin", "run", &there, "--listen", "nowhere"], 1, "cannot listen on nowhere"),
        (&["origin", "run", &there, "--listen", &address], 1, "end it or name another port"),
        (&["origin", "run", &there, "--listen", "192.0.2.1:1"], 1, "has no such address"),
        (&["origin", "run", &there, "--listen", "a:1", "--http", "b:1"], 2, "--token-file"),
        (&["origin", "run", &there, "--listen", "a:1", "--cc", ""], 2, "1 to 15 characters"),
        (&["origin", "run", &there, "--listen", "a:1", "--cc", LONG], 2, "1 to 15 characters"),
        (&["origin", "ticket", &there, "paris"], 1, "start it first"),
        (&["publish", &none, "--origin", &there], 1, "cannot be read"),
        (&["publish", &there, "--origin", &there, "--into", "../x"], 2, "--into"),
        (&["rollback", "1", "--origin", &none], 1, "start it first"),
        (&["status", &none], 1, "start it first"),
        (&["replica", "join", "lull1abc", &none], 1, "ticket"),
        (&["replica", "run", &none], 1, "no identity"),
        (&["replica", "run", &none, "--mount", &there], 1, "name an empty folder"),
        (&["replica", "run", &none, "--blocked", "never"], 2, "write wait, error"),
        (
            &["replica", "run", &none, "--blocked", "http://a/?b=c"],
            2,
            "leave out query and fragment",
        ),
        (&["replica", "run", &none, "--blocked", "http://a/#b"], 2, "leave out query and fragment"),
        (&["replica", "run", &none, "--delta-disconnected", "1"], 2, "the larger one"),
        (&["replica", "run", &none, "--delta", "86400"], 1, "no identity"),
        (&["publish", &there, "--origin", &there, "--timeout", "1"], 2, "--wait"),
    ] {
        finish(&mut lull(arguments)).fails(code, words);
    }
}
