//! `lull kernel slice`: a cgroup whose processes are in the background without `lull exec`, as a slice of systemd.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use lull_testing::needs;
use serde_json::Value;

use crate::support::{Kept, LULL, Service, Variant, eventually, finish, lull, shell};

const REPORTS: &str = "import socket
listener = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(listener.getsockname())
client.sendall(bytes(2000))
print(client.getsockopt(6, 13, 16).rstrip(bytes(1)).decode(), client.getsockopt(0, 1) & 0xfc)";

/// As systemd does for a unit with `Slice=`, and a container engine with a parent cgroup: a process comes into a
/// cgroup inside the slice before its program starts.
#[test]
fn unit_of_a_slice_is_in_the_background() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let control = Variant::load(&[]);
    let slice = Service::make();
    let said = finish(&mut lull(&["kernel", "slice", "--cc", &control.0, &slice.name()])).ok();
    assert_eq!(said, format!("processes of {} are now in the background\n", slice.name()));
    let unit = slice.0.join("unit.service");
    fs::create_dir(&unit).unwrap();
    let script = "echo $$ >$1/cgroup.procs && exec python3 -c \"$2\"";
    let mut run = shell(script, &[unit.to_str().unwrap(), REPORTS]);
    assert_eq!(finish(run.stdin(Stdio::null())).ok(), format!("{} 4\n", control.0));
    let listed = || {
        let text = finish(&mut lull(&["jobs", "list", "--json"])).ok();
        let jobs: Value = serde_json::from_str(&text).unwrap();
        jobs.as_array().unwrap().iter().find(|job| job["job"] == slice.name().as_str()).cloned()
    };
    let job = listed().expect("it is listed without processes");
    assert_eq!((&job["is_slice"], &job["state"]), (&true.into(), &"empty".into()), "{job}");
    assert_eq!(job["name"], &slice.name()[1..], "{job}");
    assert_eq!(job["congestion"], control.0.as_str(), "{job}");
    assert_eq!(
        (&job["tcp_bytes"], &job["tcp_bytes_received"]),
        (&2000.into(), &2000.into()),
        "{job}"
    );
    // The second time changes nothing.
    let said = finish(&mut lull(&["kernel", "slice", "--cc", &control.0, &slice.name()])).ok();
    assert_eq!(said, format!("processes of {} were in the background before\n", slice.name()));
}

/// The congestion control of the slice was loaded by `lull exec`, which unloads it when its program ends.
#[test]
fn slice_keeps_the_control_of_a_job_that_ends() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let control = Variant::unloaded();
    let slice = Service::make();
    let mut job = lull(&["exec", "--quiet", "--cc", &control.0, "--automatic", "--", "sh", "-c"]);
    job.args(["\"$0\" kernel slice --cc \"$1\" \"$2\"", LULL, &control.0, &slice.name()]);
    finish(&mut job).ok();
    let script = "echo $$ >$1/cgroup.procs && exec python3 -c \"$2\"";
    let mut run = shell(script, &[slice.0.to_str().unwrap(), REPORTS]);
    assert_eq!(finish(run.stdin(Stdio::null())).ok(), format!("{} 4\n", control.0));
    // Without the slice, the next job that ends unloads it.
    drop(slice);
    let other = Variant::unloaded();
    finish(&mut lull(&["exec", "--quiet", "--cc", &other.0, "--automatic", "--", "true"])).ok();
    let loaded = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    assert!(!loaded.split_whitespace().any(|name| name == control.0), "{loaded}");
}

#[test]
fn slice_needs_a_path_of_a_cgroup() {
    needs!(lull_testing::bpf());
    for path in ["relative", "/", "/a/../b"] {
        finish(&mut lull(&["kernel", "slice", path])).fails(1, "write its path below the mount");
    }
}

#[test]
fn slice_is_paused_as_a_job_and_stays_in_the_background() {
    needs!(lull_testing::bpf());
    let control = Variant::load(&[]);
    let slice = Service::make();
    finish(&mut lull(&["kernel", "slice", "--cc", &control.0, &slice.name()])).ok();
    let script = "echo $$ >$1/cgroup.procs && exec sleep 60";
    let kept = Kept::spawn(&mut shell(script, &[slice.0.to_str().unwrap()]));
    let frozen = |is_frozen| {
        let events = fs::read_to_string(slice.0.join("cgroup.events")).unwrap();
        events.contains(if is_frozen { "frozen 1" } else { "frozen 0" })
    };
    let name = &slice.name()[1..];
    eventually("the unit is in the slice", || {
        let table = finish(&mut lull(&["jobs"])).ok();
        let words = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        words.into_iter().any(|words| {
            words.starts_with(&["slice", name, "running"]) && words.ends_with(&["1", "sleep", "60"])
        })
    });
    finish(&mut lull(&["jobs", "pause", name])).ok();
    eventually("it is frozen", || frozen(true));
    finish(&mut lull(&["jobs", "resume", &slice.name()])).ok();
    eventually("it goes on", || frozen(false));
    let said = finish(&mut lull(&["jobs", "foreground", name]));
    said.fails(1, "start its units or containers in another slice");
    drop(kept);
}

/// The counters of the job are its own, and its connections are not those of the slice.
#[test]
fn job_inside_a_slice_is_listed_beside_it() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let control = Variant::load(&[]);
    let slice = Service::make();
    finish(&mut lull(&["kernel", "slice", "--cc", &control.0, &slice.name()])).ok();
    let script = "echo $$ >$1/cgroup.procs && python3 -c \"$2\" &&
        exec \"$LULL\" exec --quiet --cc $3 --name inner.$4 -- python3 -c \"$2; print('sent', flush=True); input()\"";
    let arguments = [slice.0.to_str().unwrap(), REPORTS, &control.0, &slice.name()[1..]];
    let mut command = shell(script, &arguments);
    let mut kept = Kept::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let mut lines = BufReader::new(kept.0.stdout.take().unwrap()).lines();
    assert!(lines.by_ref().map_while(Result::ok).any(|line| line == "sent"));
    let text = finish(&mut lull(&["jobs", "list", "--json"])).ok();
    let jobs: Value = serde_json::from_str(&text).unwrap();
    let bytes = |name: &str| {
        let mut jobs = jobs.as_array().unwrap().iter();
        jobs.find(|job| job["name"] == name).map(|job| job["tcp_bytes"].clone())
    };
    assert_eq!(bytes(&format!("inner.{}", &slice.name()[1..])), Some(2000.into()), "{jobs}");
    assert_eq!(bytes(&slice.name()[1..]), Some(4000.into()), "{jobs}");
    drop(kept.0.stdin.take());
    kept.0.wait().unwrap();
}
