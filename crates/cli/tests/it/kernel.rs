//! `lull kernel load|unload|status` on the real kernel, each test under a unique name.

use crate::support;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::support::{Kept, Variant, eventually, finish, lull, private_shell, program, shell};
use lull_testing::needs;
use serde_json::{Value, json};

fn load(name: &str, arguments: &[&str]) -> support::Said {
    finish(lull(&["kernel", "load", "--name", name]).args(arguments))
}

fn unload(name: &str, arguments: &[&str]) -> support::Said {
    finish(lull(&["kernel", "unload", "--name", name]).args(arguments))
}

#[test]
fn loaded_control_outlives_the_command_with_parameters() {
    needs!(lull_testing::bpf());
    let nice = Variant::unloaded();
    let arguments =
        ["--algorithm", "nice", "--threshold", "0.1", "--fraction", "0.25", "--min-window", "1/10"];
    let said = load(&nice.0, &arguments).ok();
    let parameters = "threshold 0.1, fraction 0.25, minimum window 1/10";
    assert_eq!(said, format!("loaded '{}' ({parameters})\n", nice.0));
    assert!(nice.is_loaded());
    let status = nice.status().unwrap();
    assert_eq!(status["parameters"]["threshold"], 0.1);
    assert_eq!(status["parameters"]["fraction"], 0.25);
    assert_eq!(status["parameters"]["algorithm"], "nice");
    assert_eq!(status["parameters"]["restricted"], false);
    assert_eq!(status["loaded_by"], "load");
    assert_eq!(status["sockets"], json!([]));
    let table = finish(&mut lull(&["kernel", "status"])).ok();
    assert!(table.contains(&format!("{}: {parameters}; loaded at 2", nice.0)), "{table}");
    assert_eq!(unload(&nice.0, &[]).ok(), format!("unloaded '{}'\n", nice.0));
    eventually("it is unloaded", || !nice.is_loaded());
    assert_eq!(nice.status(), None);
}

#[test]
fn name_is_loaded_once_and_unloaded_once() {
    needs!(lull_testing::bpf());
    let nice = Variant::load(&["--algorithm", "nice"]);
    load(&nice.0, &[]).fails(1, "is loaded already (threshold 0.2, fraction 0.5");
    load("reno", &[]).fails(1, "has a congestion control 'reno' that is not Lull's");
    unload(&nice.0, &[]).ok();
    unload(&nice.0, &[]).fails(1, &format!("'{}' is not loaded: ", nice.0));
    unload("reno", &[]).fails(1, "'reno' is not loaded");
}

#[test]
fn name_cannot_leave_the_folder_of_loaded_controls() {
    needs!(lull_testing::bpf());
    let nice = Variant::load(&[]);
    let around = format!("../lull/{}", nice.0);
    for name in [&*around, "..", ".", "", "sixteen_chars_ab"] {
        unload(name, &["--force"]).fails(2, &format!("'{name}' is not a name"));
    }
    let exec = ["exec", "--automatic", "--cc", "..", "--", "true"];
    finish(&mut lull(&exec)).fails(125, "'..' is not a name");
    assert!(nice.is_loaded());
    unload(&nice.0, &[]).ok();
}

#[test]
fn json_reports_the_result() {
    needs!(lull_testing::bpf());
    let nice = Variant::unloaded();
    let said = load(&nice.0, &["--json", "--algorithm", "vegas"]).ok();
    let value: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&value["name"], &value["algorithm"]), (&json!(nice.0), &json!("vegas")));
    assert_eq!(value["threshold"], Value::Null);
    let value: Value = serde_json::from_str(&unload(&nice.0, &["--json"]).ok()).unwrap();
    let none = json!({
        "name": nice.0, "sockets_that_keep_it": 0, "closed_sockets_that_keep_it": 0
    });
    assert_eq!(value, none);
}

#[test]
fn parameters_outside_their_range_are_rejected() {
    for (name, arguments, words) in [
        ("t", ["--threshold", "0"], "--threshold 0 is out of range: above 0 and below 1"),
        ("t", ["--threshold", "1"], "--threshold 1 is out of range"),
        ("t", ["--threshold", "nan"], "--threshold NaN is out of range"),
        (
            "t",
            ["--threshold", "x"],
            "'x' for '--threshold <THRESHOLD>': write a number such as 0.2",
        ),
        ("t", ["--fraction", "-0.5"], "--fraction -0.5 is out of range: above 0, 1 at most"),
        ("t", ["--fraction", "1.5"], "--fraction 1.5 is out of range"),
        ("t", ["--min-window", "1/49"], "--min-window '1/49' is out of range"),
        ("t", ["--min-window", "2"], "from 1/48 to 1"),
        ("t", ["--algorithm", "bbr"], "invalid value 'bbr'"),
        ("a-b", ["--fraction", "0.5"], "'a-b' is not a name"),
        ("../../etc", ["--fraction", "0.5"], "'../../etc' is not a name"),
        ("sixteen_chars_ab", ["--fraction", "0.5"], "use 1 to 15 of a-z, 0-9 and '_'"),
        ("", ["--fraction", "0.5"], "'' is not a name"),
    ] {
        let nice = ["--algorithm", "nice"];
        let algorithm = if arguments[0] == "--algorithm" { &[][..] } else { &nice };
        load(name, &[algorithm, &arguments].concat()).fails(2, words);
    }
}

#[test]
fn options_of_nice_are_rejected_for_other_controls() {
    for algorithm in ["vegas", "background", "lull"] {
        for option in ["--threshold", "--fraction", "--min-window"] {
            // Also the default, since it would have no effect.
            let words = format!(
                "{option} is a parameter of nice, and {algorithm} does not have \
                                 it: leave"
            );
            load("t", &["--algorithm", algorithm, option, "0.5"]).fails(2, &words);
        }
    }
}

/// Two ends of a connection, one of which sends.
#[test]
fn status_of_background_has_windows_without_yielding() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let background = Variant::unloaded();
    let said = load(&background.0, &["--algorithm", "background"]).ok();
    let what = "background, which needs a network's lower class";
    assert_eq!(said, format!("loaded '{}' ({what})\n", background.0));
    let exec = ["exec", "--quiet", "--network-honours-le", "--cc", &background.0, "--", "python3"];
    let mut command = lull(&exec);
    command.arg(program("peer.py")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut kept = Kept::spawn(&mut command);
    let mut lines = BufReader::new(kept.0.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let status = background.status().unwrap();
    assert_eq!(status["parameters"]["algorithm"], "background");
    assert_eq!(status["parameters"]["threshold"], Value::Null);
    let sockets = status["sockets"].as_array().unwrap();
    assert_eq!(sockets.len(), 2, "{status}");
    for socket in sockets {
        assert!(socket["window_packets"].as_f64().unwrap() >= 1.0, "{socket}");
        assert!(socket["srtt_us"].as_u64().unwrap() > 0, "{socket}");
        assert_eq!(socket["rounds"], Value::Null, "{socket}");
        assert_eq!(socket["yielding_seconds"], Value::Null, "{socket}");
    }
    let table = finish(&mut lull(&["kernel", "status"])).ok();
    assert!(table.contains(&format!("{}: {what}; loaded at 2", background.0)), "{table}");
    drop(kept.0.stdin.take());
    assert!(kept.0.wait().unwrap().success());
}

#[test]
fn unrestricted_control_is_open_to_all_users() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"), lull_testing::command("setpriv"));
    let choose = "import socket, sys; socket.socket().setsockopt(6, 13, sys.argv[1].encode())";
    let user = "cd /; exec setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all \
        /usr/bin/env PATH=/usr/bin:/bin python3 -c \"$1\" $2";
    let open = Variant::load(&[]);
    finish(&mut shell(user, &[choose, &open.0])).ok();
    let restricted = Variant::load(&["--restrict"]);
    let said = finish(&mut shell(user, &[choose, &restricted.0]));
    assert!(said.err.contains("PermissionError"), "{said:?}");
    assert_eq!(restricted.status().unwrap()["parameters"]["restricted"], true);
}

#[test]
fn control_in_use_is_unloaded_only_with_force() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let nice = Variant::load(&[]);
    let mut command = lull(&["exec", "--quiet", "--cc", &nice.0, "--", "python3"]);
    command.arg(program("peer.py")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut kept = Kept::spawn(&mut command);
    let mut input = kept.0.stdin.take().unwrap();
    let mut lines = BufReader::new(kept.0.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");

    unload(&nice.0, &[]).fails(1, "is in use by 2 sockets, 1 program: wait for them, or unload");
    assert!(nice.is_loaded());
    let said = unload(&nice.0, &["--force"]).ok();
    assert_eq!(said, format!("unloaded '{}'; 2 open connections keep it\n", nice.0));
    eventually("it is unloaded", || !nice.is_loaded());
    // The open ones still work, and are unchanged.
    writeln!(input, "state").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), format!("{0}/4 {0}/4", nice.0));
    drop(input);
    assert!(kept.0.wait().unwrap().success());
}

/// In a cgroup namespace the programs of the machine are not visible.
#[test]
fn unload_with_hidden_users_needs_force() {
    needs!(lull_testing::bpf());
    let nice = Variant::load(&[]);
    let script = "unshare --cgroup \"$LULL\" kernel unload --name $1 $2";
    let said = finish(&mut shell(script, &[&nice.0, ""]));
    said.fails(1, &format!("programs may use '{}' in cgroups that are not visible here", nice.0));
    assert!(nice.is_loaded());
    finish(&mut shell(script, &[&nice.0, "--force"])).ok();
    eventually("it is unloaded", || !nice.is_loaded());
}

/// Two ends of a connection in another network namespace, which carry data for a moment.
#[test]
fn status_sees_sockets_in_every_network_namespace() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"), lull_testing::command("ip"));
    let nice = Variant::load(&["--algorithm", "nice"]);
    let script = "import os, socket, sys
for family, address in (socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::1'):
    listener = socket.socket(family)
    listener.setsockopt(6, 13, sys.argv[1].encode())
    listener.bind((address, 0))
    listener.listen()
    client = socket.socket(family)
    client.connect(listener.getsockname()[:2])
    server, _ = listener.accept()
    server.sendall(b'x' * 5000)
    got = 0
    while got < 5000:
        got += len(client.recv(1 << 16))
    server.sendall(b'x'); client.recv(1); client.sendall(b'x'); server.recv(1)
    globals()[address] = (listener, client, server)
    print(server.getsockname()[1], client.getsockname()[1])
print(os.stat('/proc/self/ns/net').st_ino, os.getpid(), flush=True)
sys.stdin.read()";
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", "ip link set lo up; exec \"$@\"", "sh", "python3", "-c"]);
    command.args([script, &nice.0]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut kept = Kept::spawn(&mut command);
    let mut lines = BufReader::new(kept.0.stdout.take().unwrap()).lines();
    let mut numbers = || -> Vec<u64> {
        let line = lines.next().unwrap().unwrap();
        line.split(' ').map(|number| number.parse().unwrap()).collect()
    };
    let (v4, v6, who) = (numbers(), numbers(), numbers());

    let status = nice.status().unwrap();
    let sockets = status["sockets"].as_array().unwrap();
    // The clients never chose it.
    assert_eq!(sockets.len(), 2, "{status}");
    for (ports, local) in [(v4, "127.0.0.1"), (v6, "[::1]")] {
        let name = format!("{local}:{}", ports[0]);
        let socket = sockets.iter().find(|socket| socket["local"] == name.as_str()).unwrap();
        assert_eq!(socket["remote"], format!("{local}:{}", ports[1]));
        assert_eq!(socket["state"], "ESTAB");
        assert_eq!(socket["network_namespace"], who[0]);
        assert_eq!(socket["pid"], who[1]);
        assert_eq!(socket["command"], "python3");
        assert_eq!(socket["bytes_acked"], 5001);
        assert!(socket["window_packets"].as_f64().unwrap() >= 1.0 / 48.1, "{socket}");
        let micros = |name: &str| socket[name].as_u64().unwrap();
        assert!(micros("srtt_us") > 0, "{socket}");
        assert!(micros("min_rtt_us") <= micros("max_rtt_us"), "{socket}");
        assert!(micros("rounds_congested") <= micros("rounds"), "{socket}");
    }
    let table = finish(&mut lull(&["kernel", "status"])).ok();
    assert!(table.contains(&format!("python3 ({})", who[1])), "{table}");
}

/// Three connections, two of them to one network, while there is room for one path.
#[test]
fn status_shows_paths_and_connections_without_one() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let lull_cc = Variant::load(&["--algorithm", "lull", "--paths", "1"]);
    let script = "import socket, sys
kept = []
for address in '127.0.77.1', '127.0.77.2', '127.0.78.1':
    listener = socket.socket()
    listener.bind((address, 0))
    listener.listen()
    client = socket.socket()
    client.setsockopt(6, 13, sys.argv[1].encode())
    client.connect(listener.getsockname())
    server, _ = listener.accept()
    client.sendall(b'x' * 5000)
    got = 0
    while got < 5000:
        got += len(server.recv(1 << 16))
    kept.append((listener, client, server))
print('ready', flush=True)
sys.stdin.read()";
    let mut command = Command::new("python3");
    command.args(["-c", script, &lull_cc.0]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut kept = Kept::spawn(&mut command);
    let mut lines = BufReader::new(kept.0.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");

    let status = lull_cc.status().unwrap();
    assert_eq!(status["sockets"].as_array().unwrap().len(), 3, "{status}");
    assert_eq!(status["sockets_without_path"], 1, "{status}");
    let [path] = &status["paths"].as_array().unwrap()[..] else { panic!("{status}") };
    assert_eq!(path["destination"], "127.0.77.0/24");
    assert_eq!(path["connections"], 2);
    assert!(path["window_packets"].as_f64().unwrap() >= 2.0, "{path}");
    assert!(path["base_rtt_us"].as_u64().unwrap() > 0, "{path}");
    let text = finish(&mut lull(&["kernel", "status"])).ok();
    let line = "1 of 3 background connections use per-connection Nice: table of paths is full\n";
    assert!(text.contains(line), "{text}");
    assert!(text.contains("127.0.77.0/24"), "{text}");
    drop(kept.0.stdin.take());
    assert!(kept.0.wait().unwrap().success());
}

#[test]
fn old_kernel_is_reported() {
    needs!(lull_testing::bpf(), lull_testing::command("setarch"));
    let nice = Variant::unloaded();
    // A kernel that reports an old version number to programs that ask for one.
    let script = "setarch --uname-2.6 \"$LULL\" kernel load --name $1";
    finish(&mut shell(script, &[&nice.0])).fails(1, "too old: loading a congestion control needs");
    eventually("it is unloaded", || !nice.is_loaded());
}

#[test]
fn kernel_without_btf_is_reported() {
    needs!(lull_testing::bpf());
    let nice = Variant::unloaded();
    let script = "mount -t tmpfs none /sys/kernel/btf; \"$LULL\" kernel load --name $1";
    finish(&mut private_shell(script, &[&nice.0])).fails(1, "/sys/kernel/btf/vmlinux is missing");
    let script = "mount -t tmpfs none /sys/kernel/btf; \"$LULL\" exec --cc reno true";
    finish(&mut private_shell(script, &[])).fails(125, "/sys/kernel/btf/vmlinux is missing");
    for command in ["status", "unload"] {
        let script = format!("mount -t tmpfs none /sys/kernel/btf; \"$LULL\" kernel {command}");
        finish(&mut private_shell(&script, &[])).fails(1, "/sys/kernel/btf/vmlinux is missing");
    }
    eventually("it is unloaded", || !nice.is_loaded());
}

#[test]
fn missing_capability_is_reported() {
    needs!(lull_testing::bpf(), lull_testing::command("setpriv"));
    let nice = Variant::unloaded();
    for (dropped, named) in [
        ("-net_admin", "needs CAP_NET_ADMIN: root lacks that here, as in a container"),
        ("-sys_admin,-cap_39", "needs CAP_BPF: root lacks that here"),
        ("-sys_admin,-cap_38,-cap_39", "needs CAP_BPF, CAP_PERFMON: root lacks that here"),
    ] {
        let script = "setpriv --bounding-set=$2 \"$LULL\" kernel load --name $1";
        finish(&mut shell(script, &[&nice.0, dropped])).fails(1, named);
        let script = "setpriv --bounding-set=$2 \"$LULL\" kernel status";
        finish(&mut shell(script, &[&nice.0, dropped])).fails(1, named);
    }
    eventually("it is unloaded", || !nice.is_loaded());
}

/// A variant that is not loaded, and the place of its pins.
fn unloaded_with_pins() -> (Variant, String) {
    // With it, the BPF file system is mounted if it was not.
    let nice = Variant::load(&[]);
    let folder = finish(&mut shell("grep -m1 ' bpf ' /proc/self/mounts | cut -d' ' -f2", &[])).ok();
    unload(&nice.0, &[]).ok();
    assert_ne!(folder.trim(), "");
    let pins = format!("{}/lull/{}", folder.trim(), nice.0);
    (nice, pins)
}

/// Interrupts a load as soon as it makes pins.
#[test]
fn interrupted_load_is_completed() {
    needs!(lull_testing::bpf());
    let (nice, pins) = unloaded_with_pins();
    let script = "\"$LULL\" kernel load --algorithm nice --name $1 >/dev/null & lull=$!
        looks=0
        while [ ! -d \"$2\" ] && [ $looks -lt 3000000 ]; do looks=$((looks + 1)); done
        kill -TERM $lull
        wait $lull
        [ -e \"$2/link\" ] && echo whole";
    for _ in 0..20 {
        let said = finish(&mut shell(script, &[&nice.0, &pins]));
        assert_eq!(said.out, "whole\n", "{said:?}");
        assert!(nice.is_loaded());
        unload(&nice.0, &[]).ok();
    }
}

/// Kills a load at a different moment each time, half of them while its pins are made; the next command
/// cleans up any leftovers.
#[test]
fn killed_load_leaves_nothing_half_done() {
    needs!(lull_testing::bpf());
    let (nice, pins) = unloaded_with_pins();
    let mut halves = 0;
    for round in 0..60u64 {
        let mut command = lull(&["kernel", "load", "--algorithm", "nice", "--name", &nice.0]);
        let mut kept = Kept::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()));
        if round % 2 == 0 {
            thread::sleep(Duration::from_millis(round));
        } else {
            while !fs::exists(&pins).unwrap() && kept.0.try_wait().unwrap().is_none() {}
            thread::sleep(Duration::from_micros(10 * round));
        }
        kept.0.kill().unwrap();
        kept.0.wait().unwrap();
        halves +=
            u32::from(fs::exists(&pins).unwrap() && !fs::exists(format!("{pins}/link")).unwrap());
        let loaded = nice.status().is_some();
        if loaded {
            assert!(nice.is_loaded());
            unload(&nice.0, &[]).ok();
        }
        eventually("it is gone", || !nice.is_loaded());
        assert!(!fs::exists(&pins).unwrap());
    }
    assert!(halves > 0, "no kill came while its pins were made");
}

/// Sockets that chose a name keep the congestion control that had it.
#[test]
fn status_shows_sockets_of_unloaded_controls() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let nice = Variant::load(&[]);
    let mut command = lull(&["exec", "--quiet", "--cc", &nice.0, "--", "python3"]);
    command.arg(program("peer.py")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut kept = Kept::spawn(&mut command);
    let mut lines = BufReader::new(kept.0.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    assert_eq!(nice.status().unwrap()["sockets"].as_array().unwrap().len(), 2);
    unload(&nice.0, &["--force"]).ok();
    eventually("it is unloaded", || !nice.is_loaded());

    let status = nice.status().unwrap();
    assert_eq!((&status["loaded_by"], &status["since"]), (&Value::Null, &Value::Null), "{status}");
    let sockets = status["sockets"].as_array().unwrap();
    assert_eq!(sockets.len(), 2, "{status}");
    assert!(sockets.iter().all(|socket| socket["command"] == "python3"), "{status}");
    let table = finish(&mut lull(&["kernel", "status"])).ok();
    let line = format!("{}: unloaded; 2 sockets keep it until they are closed\n", nice.0);
    assert!(table.contains(&line), "{table}");
    // Another one with that name is not theirs.
    finish(&mut lull(&["kernel", "load", "--algorithm", "nice", "--name", &nice.0])).ok();
    let text = finish(&mut lull(&["kernel", "status", "--json"])).ok();
    let all: Value = serde_json::from_str(&text).unwrap();
    let counts: Vec<_> = all
        .as_array()
        .unwrap()
        .iter()
        .filter(|status| status["name"] == nice.0.as_str())
        .map(|status| (status["loaded_by"].clone(), status["sockets"].as_array().unwrap().len()))
        .collect();
    assert_eq!(counts, [(json!("load"), 0), (Value::Null, 2)]);
    drop(kept.0.stdin.take());
    assert!(kept.0.wait().unwrap().success());
    unload(&nice.0, &[]).ok();
    eventually("no socket keeps it", || nice.status().is_none());
}

/// Their program has ended; the other side takes nothing, so they stay for minutes.
#[test]
fn closed_sockets_do_not_block_unload() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let nice = Variant::load(&[]);
    let script = "import os, socket, sys
listener = socket.create_server(('127.0.0.1', 0))
if not os.fork():
    client = socket.socket()
    client.setsockopt(6, 13, sys.argv[1].encode())
    client.connect(listener.getsockname())
    client.setblocking(False)
    try:
        while True:
            client.send(bytes(1 << 16))
    except BlockingIOError:
        os._exit(0)
os.wait()
print('ready', flush=True)
sys.stdin.readline()";
    let mut command = Command::new("python3");
    command.args(["-c", script, &nice.0]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut kept = Kept::spawn(&mut command);
    let mut lines = BufReader::new(kept.0.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let sockets = nice.status().unwrap()["sockets"].clone();
    assert_eq!((&sockets[0]["state"], &sockets[0]["inode"]), (&json!("FIN-WAIT-1"), &json!(0)));
    let said = unload(&nice.0, &[]).ok();
    assert_eq!(said, format!("unloaded '{}'; 1 closed connection keeps it\n", nice.0));
}

#[test]
fn broken_output_ends_like_other_programs() {
    needs!(lull_testing::bpf());
    let nice = Variant::load(&[]);
    // The reader has ended before anything is written.
    let script = "exec 3>&1; { sleep 0.3; \"$LULL\" kernel status; echo $? >&3; } | true";
    let said = finish(&mut shell(script, &[]));
    assert_eq!((said.out.as_str(), said.err.as_str()), ("141\n", ""), "{said:?}");
    drop(nice);
}

/// With capabilities of the file, as by setcap(8), and /sys/fs/bpf for root alone.
#[test]
fn closed_bpf_file_system_is_reported() {
    needs!(lull_testing::bpf(), lull_testing::command("setpriv"));
    let nice = Variant::load(&[]);
    let public = lull_testing::PublicCopy::of(support::LULL.as_ref());
    let script =
        "mount -t bpf -o mode=0700 bpf /sys/fs/bpf; capabilities=+net_admin,+cap_38,+cap_39
        setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=$capabilities \
            --ambient-caps=$capabilities \"$1/lull\" kernel $2";
    for command in ["status", "load", "unload"] {
        let arguments = [public.folder().to_str().unwrap(), command];
        let said = finish(&mut private_shell(script, &arguments));
        said.fails(
            1,
            "the BPF file system at /sys/fs/bpf cannot be used by this user: run it as \
                       root",
        );
    }
    drop(nice);
}

#[test]
fn load_over_automatic_one_reports_its_end() {
    needs!(lull_testing::bpf());
    let nice = Variant::unloaded();
    let exec = ["exec", "--quiet", "--cc", &nice.0, "--automatic", "--"];
    let mut command = lull(&exec);
    let mut kept = Kept::spawn(
        command.args(["sh", "-c", "echo; read line"]).stdin(Stdio::piped()).stdout(Stdio::piped()),
    );
    let mut lines = BufReader::new(kept.0.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "");
    let words = "by lull exec): wait until the programs of lull exec have ended, or take another";
    load(&nice.0, &["--algorithm", "nice", "--threshold", "0.1"]).fails(1, words);
    drop(kept.0.stdin.take());
    kept.0.wait().unwrap();
    eventually("it is unloaded", || !nice.is_loaded());
    load(&nice.0, &["--algorithm", "nice", "--threshold", "0.1"]).ok();
}
