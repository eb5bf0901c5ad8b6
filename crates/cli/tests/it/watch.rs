//! `lull origin run --watch`: changes in a folder reach the replicas.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::site::{Daemon, Site, TOKEN, request};
use crate::support::{LULL, eventually, eventually_within, finish, lull};
use lull_testing::{command, needs, user_namespaces};
use serde_json::Value;

fn signal(site: &Site, name: &str) {
    let pid = site.origin.as_ref().unwrap().pid();
    assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
}

/// The status of the origin.
fn ask(site: &Site, path: &str) -> String {
    let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
    let answer = request(&site.addresses["origin"], "GET", path, &bearer, b"").unwrap();
    String::from_utf8(answer.body).unwrap()
}

/// An origin that watches a copy of the documentation, and a replica.
fn watching() -> (Site, String) {
    let mut site = Site::new(&["paris"], &[]);
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let folder = site.path("watched");
    assert!(Command::new("cp").arg("-r").arg(&docs).arg(&folder).status().unwrap().success());
    signal(&site, "-TERM");
    drop(site.origin.take());
    site.start_origin_with(&["--watch", &folder]);
    (site, folder)
}

#[test]
fn changes_in_a_folder_reach_the_replicas() {
    let (site, folder) = watching();
    let page = fs::read(format!("{folder}/web.md")).unwrap();
    eventually("the folder", || site.get("paris", "/web.md").body == page);
    fs::write(format!("{folder}/web.md"), "another").unwrap();
    fs::rename(format!("{folder}/adr"), format!("{folder}/decisions")).unwrap();
    fs::remove_file(format!("{folder}/index.md")).unwrap();
    let status = |path: &str| site.get("paris", path).status;
    eventually("all of it", || {
        site.get("paris", "/web.md").body == b"another"
            && status("/index.md") == 404
            && status("/adr/0001-hooks-live-as-long-as-the-cgroup.md") == 404
            && status("/decisions/0001-hooks-live-as-long-as-the-cgroup.md") == 200
    });
}

#[test]
fn changes_during_an_event_overflow_are_found() {
    needs!(command("kill"));
    let (site, folder) = watching();
    let page = fs::read(format!("{folder}/web.md")).unwrap();
    eventually("the folder", || site.get("paris", "/web.md").body == page);
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    assert!(limit < 1_000_000, "this machine's queue is too long for a test");
    // The daemon does not read events.
    signal(&site, "-STOP");
    for number in 0..=limit {
        fs::write(format!("{folder}/busy-{}", number % 2), number.to_string()).unwrap();
    }
    // The kernel no longer reports events of these.
    fs::remove_file(format!("{folder}/web.md")).unwrap();
    fs::create_dir(format!("{folder}/late")).unwrap();
    fs::write(format!("{folder}/late/file"), "late").unwrap();
    signal(&site, "-CONT");
    eventually("the comparison", || {
        site.get("paris", "/late/file").body == b"late"
            && site.get("paris", "/web.md").status == 404
            && site.get("paris", "/busy-0").body == limit.to_string().into_bytes()
    });
    // The folder that it has found is watched as well.
    fs::write(format!("{folder}/late/file"), "later").unwrap();
    eventually("what is next", || site.get("paris", "/late/file").body == b"later");
    assert!(ask(&site, "/.lull/tree").contains("\"late/file\""));
}

#[test]
fn names_differing_in_case_are_reported_and_skipped() {
    let mut site = Site::new(&[], &[]);
    let folder = site.path("watched");
    fs::create_dir(&folder).unwrap();
    let write = |name: &str| fs::write(format!("{folder}/{name}"), name).unwrap();
    ["README", "readme", "other"].into_iter().for_each(write);
    signal(&site, "-TERM");
    drop(site.origin.take());
    site.start_origin_with(&["--watch", &folder, "--refuse-case-clashes"]);
    let has = |name: &str| ask(&site, "/.lull/tree").contains(&format!("\"{name}\""));
    eventually("what clashes with nothing", || has("other") && has("README"));
    let told = || site.told("origin", "skipped");
    eventually("it is reported", || !told().is_empty());
    write("later");
    eventually("what comes later", || has("later"));
    assert!(!has("readme"));
    let told = told();
    let words = "readme`: it differs from `README` only in case, and is skipped: rename one";
    assert!(told.len() == 1 && told[0].contains(words), "{told:?}");
    // The file is not written when the other one is renamed.
    fs::rename(format!("{folder}/README"), format!("{folder}/first")).unwrap();
    eventually("both", || has("first") && has("readme") && !has("README"));
}

#[test]
fn unwatchable_folder_is_reported_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (own, none) = (path("origin"), path("none"));
    finish(&mut lull(&["origin", "init", &own])).ok();
    let all = path("");
    for (watched, words) in
        [(&none, "is not a readable folder"), (&own, "contain each other"), (&all, "move one")]
    {
        let arguments = ["origin", "run", &own, "--listen", "127.0.0.1:0", "--watch", watched];
        finish(&mut lull(&arguments)).fails(1, words);
    }
    // Its messages have names.
    fs::create_dir(&none).unwrap();
    fs::write(path("none/.lull"), "mine").unwrap();
    let arguments = ["origin", "run", &own, "--listen", "127.0.0.1:0", "--watch", &none];
    let mut daemon = Daemon::start(&arguments);
    let skipped = daemon.wait_for("skipped")["text"].as_str().unwrap().to_owned();
    assert!(skipped.contains("reserved for Lull: rename the file"), "{skipped}");
    daemon.wait_for("watching");
}

/// `lull` with a limit on the kernel's inotify resources. The limit is that of a separate namespace, so it
/// affects no other process.
fn limited(what: &str, most: u32, arguments: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    let script = "echo \"$1\" >\"/proc/sys/user/max_inotify_$0\" && shift && exec \"$LULL\" \"$@\"";
    command.args(["--user", "--map-root-user", "sh", "-c", script, what, &most.to_string()]);
    command.args(arguments).env("LULL", LULL).stdin(Stdio::null());
    command
}

#[test]
fn changes_in_unwatched_folders_are_found() {
    needs!(user_namespaces(), command("unshare"));
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (own, watched, token) = (path("origin"), path("watched"), path("token"));
    finish(&mut lull(&["origin", "init", &own])).ok();
    fs::write(&token, TOKEN).unwrap();
    let write = |name: &str, bytes: &str| fs::write(path(&format!("watched/{name}")), bytes);
    const FOLDERS: [&str; 4] = ["one", "two", "three", "two/below"];
    for inside in FOLDERS {
        fs::create_dir_all(path(&format!("watched/{inside}"))).unwrap();
        write(&format!("{inside}/first"), inside).unwrap();
    }
    let arguments = ["origin", "run", &own, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    let more = ["--token-file", &token, "--watch", &watched];
    // The folder itself, and one in it.
    let mut daemon = Daemon::spawn(limited("watches", 2, &[&arguments[..], &more].concat()));
    let http = daemon.wait_for("http")["address"].as_str().unwrap().to_owned();
    let has = |name: &str| {
        let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
        let answer = request(&http, "GET", "/.lull/tree", &bearer, b"").unwrap();
        String::from_utf8(answer.body).unwrap().contains(&format!("\"{name}\""))
    };
    // It is reported once, for all of them.
    let mut told = Vec::new();
    for line in &mut daemon.told {
        let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
        match event["event"].as_str().unwrap() {
            "skipped" => told.push(event["text"].as_str().unwrap().to_owned()),
            "watching" => break,
            _ => {}
        }
    }
    assert_eq!(told.len(), 1, "{told:?}");
    let words = "only compared once a minute: raise fs.inotify.max_user_watches, and restart the \
                 origin";
    assert!(told[0].contains(words), "{told:?}");
    let all_have = |name: &str| FOLDERS.iter().all(|inside| has(&format!("{inside}/{name}")));
    assert!(all_have("first"));
    for inside in FOLDERS {
        write(&format!("{inside}/later"), inside).unwrap();
    }
    fs::remove_file(path("watched/two/below/first")).unwrap();
    // It is checked once a minute.
    eventually_within(Duration::from_secs(150), "what came later", || {
        all_have("later") && !has("two/below/first")
    });
}

#[test]
fn origin_without_events_reports_and_ends() {
    needs!(user_namespaces(), command("unshare"));
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (own, watched) = (path("origin"), path("watched"));
    finish(&mut lull(&["origin", "init", &own])).ok();
    fs::create_dir(&watched).unwrap();
    let arguments = ["origin", "run", &own, "--listen", "127.0.0.1:0", "--watch", &watched];
    let said = finish(&mut limited("instances", 0, &arguments));
    assert_eq!(said.code(), Some(1), "{said:?}");
    let words = "lull: the kernel gives no events: raise fs.inotify.max_user_instances: ";
    // The other line is the address for replicas.
    let lines: Vec<&str> = said.err.lines().collect();
    assert!(lines.len() == 2 && lines[1].starts_with(words), "{said:?}");
}
