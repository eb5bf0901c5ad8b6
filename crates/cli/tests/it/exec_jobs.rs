//! `lull jobs`, and the names of `lull exec --name`.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use crate::support::{Kept, eventually, finish, lull, program, unique_name};
use lull_testing::needs;
use serde_json::Value;

fn job(name: &str) -> Option<Value> {
    let text = finish(&mut lull(&["jobs", "list", "--json"])).ok();
    let jobs: Value = serde_json::from_str(&text).unwrap();
    jobs.as_array().unwrap().iter().find(|job| job["name"] == name).cloned()
}

#[test]
fn job_is_listed_paused_and_moved_to_the_foreground() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let name = unique_name();
    let exec = ["exec", "--cc", "reno", "--name", &name, "--", "python3"];
    let mut command = lull(&exec);
    command.arg(program("peer.py")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut kept = Kept::spawn(command.stderr(Stdio::piped()));
    let mut lines = BufReader::new(kept.0.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");

    let found = job(&name).expect("it is listed");
    assert_eq!(found["job"], format!("{}.0", kept.pid()));
    assert_eq!((&found["state"], &found["congestion"]), (&"running".into(), &"reno".into()));
    assert_eq!(found["tcp_bytes"], 0);
    assert!(found["command"].as_str().unwrap().ends_with("peer.py"), "{found}");
    let table = finish(&mut lull(&["jobs"])).ok();
    let is_it = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(1..3) == Some(&[name.as_str(), "running"])
    };
    assert!(table.lines().any(is_it), "{table}");

    let said = finish(&mut lull(&["jobs", "pause", &name])).ok();
    assert_eq!(said, format!("job {name} is paused\n"));
    assert_eq!(job(&name).unwrap()["state"], "paused");
    let events = crate::support::cgroup_root()
        .join(found["cgroup"].as_str().unwrap().trim_start_matches('/'))
        .join("cgroup.events");
    eventually("it is frozen", || fs::read_to_string(&events).unwrap().contains("frozen 1"));
    writeln!(kept.0.stdin.as_mut().unwrap(), "state").unwrap();
    finish(&mut lull(&["jobs", "resume", found["job"].as_str().unwrap()])).ok();
    assert_eq!(lines.next().unwrap().unwrap(), "reno/4 reno/4");

    let said = finish(&mut lull(&["jobs", "foreground", &name])).ok();
    assert_eq!(said, format!("job {name} is in the foreground now\n"));
    assert_eq!(job(&name), None);
    writeln!(kept.0.stdin.as_mut().unwrap(), "new").unwrap();
    let default = fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
    let expected = vec![format!("{}/0", default.trim()); 4].join(" ");
    assert_eq!(lines.next().unwrap().unwrap(), expected);
}

#[test]
fn job_names_are_unique_and_plain() {
    needs!(lull_testing::bpf());
    let name = unique_name();
    let exec = |name: &str, words: &[&str]| {
        let mut command = lull(&["exec", "--quiet", "--cc", "reno", "--name", name, "--"]);
        command.args(words);
        command
    };
    let mut command = exec(&name, &["sh", "-c", "echo; read line"]);
    let mut kept = Kept::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let mut lines = BufReader::new(kept.0.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "");
    let told = format!("a job named '{name}' is running (process ");
    finish(&mut exec(&name, &["true"])).fails(125, &told);
    drop(kept.0.stdin.take());
    kept.0.wait().unwrap();
    finish(&mut exec(&name, &["true"])).ok();
    finish(&mut exec("a b", &["true"])).fails(125, "'a b' is not a name of a job");
    finish(&mut lull(&["jobs", "pause", &name])).fails(1, &format!("there is no job '{name}'"));
}
