//! `lull lab emulate` from a user's view.

use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lull_emulator::process_exists;
use lull_testing::{
    Missing, PublicCopy, bound, command, enter_own_namespaces, needs, root, user_namespaces,
};

/// The user and group `nobody` of most systems; any that is not root does.
const NOBODY: u32 = 65_534;

fn emulate(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lull"));
    command.args(["lab", "emulate"]).args(arguments).stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    emulate(arguments).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Makes networks as root or in a user namespace.
fn networks() -> Result<(), Missing> {
    root().or_else(|_| user_namespaces())
}

#[test]
fn invalid_options_are_rejected_with_a_remedy() {
    for (arguments, way_out) in [
        (&["--rate", "10"][..], "write a number and bit, kbit, mbit or gbit"),
        (&["--delay", "5"], "write a number and us, ms or s"),
        (&["--buffer", "3q"], "write 1bdp, 64kB or 100p"),
        (
            &["--queue", "fifo"],
            "write droptail, priority, priority-single, red, red-ecn, codel, fq-codel or tins",
        ),
        (&["--backend", "tap"], "write auto, tun or packet"),
        (&["--buffer", "100B"], "holds no packet of 1500 B: give it more"),
        (&["--left", "0"], "1 to 1000 are allowed"),
        (&["--rtt", "0ms"], "give the buffer in bytes (64kB) or packets (100p)"),
        (&["--trace", "/no/such/file"], "/no/such/file cannot be read"),
        (&["--rtt", "10ms", "--delay", "5ms"], "cannot be used with"),
    ] {
        let output = run(&[arguments, &["--", "true"]].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = stderr(&output);
        let first = said.lines().next().unwrap_or_default();
        assert!(first.contains(way_out), "{arguments:?}: {said}");
    }
}

#[test]
fn exit_code_is_that_of_the_program() {
    needs!(networks());
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)] {
        assert_eq!(run(&["--", "sh", "-c", script]).status.code(), Some(code), "{script}");
    }
    let missing = run(&["--", "/no/such/program"]);
    assert_eq!(missing.status.code(), Some(127));
    assert!(stderr(&missing).contains("/no/such/program cannot be run"), "{}", stderr(&missing));
    assert_eq!(run(&["--", "/etc/passwd"]).status.code(), Some(126));
}

#[test]
fn emulator_that_cannot_start_has_its_own_exit_code() {
    needs!(user_namespaces(), command("unshare"), command("setpriv"));
    // No user namespace may be made here any more.
    let script = "echo 0 >/proc/sys/user/max_user_namespaces &&
                  exec setpriv --bounding-set=-sys_admin \"$1\" lab emulate -- true";
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "sh", "-c", script, "sh"])
        .arg(env!("CARGO_BIN_EXE_lull"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125), "{}", stderr(&output));
    assert!(stderr(&output).starts_with("lull: the emulator could not be started: "));
    assert_eq!(stderr(&output).lines().count(), 1);
}

#[test]
fn program_finds_other_hosts_by_address_and_name() {
    needs!(networks(), command("ip"));
    let script = "echo $LULL_LEFT_1 $LULL_RIGHT_2 $LULL_RIGHT_2_V6
                  ip netns exec right2 ip -o -4 address show dev lull0";
    let output = run(&["--right", "2", "--", "sh", "-c", script]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.starts_with("10.1.0.1 10.2.0.2 fd6c:756c:6c00:2::2\n"), "{said}");
    assert!(said.contains("inet 10.2.0.2/32"), "{said}");
}

#[test]
fn record_names_command_seed_and_flows() {
    needs!(networks());
    let script = "echo x > /dev/udp/$LULL_RIGHT_1/9; sleep 0.2";
    let output = run(&["--seed", "42", "--json", "-", "--", "bash", "-c", script]);
    assert!(output.status.success(), "{}", stderr(&output));
    let record: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    // It begins like all records.
    let command: Vec<_> = record["command"].as_array().unwrap().iter().take(5).collect();
    assert_eq!(command, ["lull", "lab", "emulate", "--seed", "42"]);
    assert!(record["commit"].is_string() || record["commit"].is_null());
    assert_eq!(record["program"][0], "bash");
    assert_eq!(record["seed"], 42);
    assert_eq!(record["exit_code"], 0);
    assert_eq!(record["overruns"], 0);
    assert_eq!(record["topology"]["forward"]["buffer"]["bytes"], 62_500);
    let flow = &record["total"]["forward"]["flows"][0];
    assert!(flow["flow"].as_str().unwrap().ends_with("> 10.2.0.1:9 udp"), "{flow}");
    assert_eq!((&flow["payload_bytes"], &flow["goodput_bytes"]), (&2.into(), &2.into()));
    assert!(stderr(&output).contains("left > right"), "{}", stderr(&output));
}

#[test]
fn emulator_runs_within_itself() {
    needs!(networks());
    let inner = [env!("CARGO_BIN_EXE_lull"), "lab", "emulate", "--", "sh", "-c", "exit 9"];
    assert_eq!(run(&[&["--"][..], &inner].concat()).status.code(), Some(9));
}

#[test]
fn unprivileged_user_gets_the_same_link() {
    needs!(root(), user_namespaces(), command("ip"), command("iperf3"));
    let copy = PublicCopy::of(Path::new(env!("CARGO_BIN_EXE_lull-lab")));
    let script = "ip netns exec right1 iperf3 -s -1 >/dev/null & sleep 0.5
                  iperf3 -c $LULL_RIGHT_1 -C reno -t 3 -O 1 -J";
    let output = Command::new(copy.program())
        .args(["emulate", "--", "sh", "-c", script])
        .current_dir("/")
        .stdin(Stdio::null())
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let received = report["end"]["sum_received"]["bits_per_second"].as_f64().unwrap();
    eprintln!("{:.3} Mbit/s", received / 1e6);
    assert!(
        (bound(0.2, 0.95)..bound(1.5, 1.05)).contains(&(received / (10e6 * 1448.0 / 1500.0))),
        "{received}"
    );
}

/// The processes below `parent`, at any depth.
fn descendants(parent: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let mut all = Vec::new();
    for child in children.unwrap_or_default().split_whitespace() {
        let child = child.parse().unwrap();
        all.push(child);
        all.extend(descendants(child));
    }
    all
}

/// Starts an emulator with programs on both hosts, one of them a daemon with its own session.
fn busy() -> Child {
    let script = "ip netns exec right1 sleep 60 & setsid sleep 60 & echo ready; sleep 60";
    let mut child = emulate(&["--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    // The daemon changes its session just after that.
    thread::sleep(Duration::from_millis(200));
    child
}

fn signal(name: &str, process: u32) {
    let status = Command::new("kill").args([name, &process.to_string()]).status().unwrap();
    assert!(status.success());
}

#[test]
fn killed_emulator_leaves_no_mount_device_or_namespace() {
    needs!(root(), command("ip"), command("kill"));
    enter_own_namespaces();
    let mounts = fs::read_to_string("/proc/thread-self/mounts").unwrap();
    let devices = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    // The outer process waits, the inner one moves the packets.
    for (inner, name, code) in
        [(false, "-KILL", None), (true, "-KILL", Some(137)), (false, "-TERM", Some(143))]
    {
        let mut child = busy();
        let processes = descendants(child.id());
        assert!(processes.len() >= 5, "{processes:?}");
        signal(name, if inner { processes[0] } else { child.id() });
        assert_eq!(child.wait().unwrap().code(), code, "{name}");
        // The kernel removes them; the namespaces end with their last process.
        let end = Instant::now() + Duration::from_secs(5);
        while processes.iter().any(|&process| process_exists(process)) {
            assert!(Instant::now() < end, "{name}: one of {processes:?} is still there");
            thread::sleep(Duration::from_millis(10));
        }
    }
    assert_eq!(fs::read_to_string("/proc/thread-self/mounts").unwrap(), mounts);
    assert_eq!(fs::read_to_string("/proc/thread-self/net/dev").unwrap(), devices);
    assert!(!Path::new("/run/netns").exists());
}
