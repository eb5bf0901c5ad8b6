//! `lull exec` in network and mount namespaces, on running processes, and with missing features.

use crate::support;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use crate::support::{
    Kept, LULL, Service, Variant, cgroup_of, eventually, finish, lull, private_shell, program,
    shell,
};
use lull_testing::{Missing, PublicCopy, needs};
use serde_json::Value;

/// A network namespace with a name and a loopback, deleted at the end.
struct Namespace(String);

impl Namespace {
    fn make() -> Self {
        let namespace = Namespace(support::unique_name());
        let script = "ip netns add $1 && ip -n $1 link set lo up";
        finish(&mut shell(script, &[&namespace.0])).ok();
        namespace
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "delete", &self.0]).status();
    }
}

/// A program that holds a listener and two ends of a connection, and opens more on request.
struct Peer {
    kept: Kept,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Peer {
    fn start(mut command: Command) -> Self {
        command.arg(program("peer.py")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut kept = Kept::spawn(&mut command);
        let input = kept.0.stdin.take().unwrap();
        let mut lines = BufReader::new(kept.0.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        Peer { kept, input, lines }
    }

    /// Congestion control and TOS byte of its sockets.
    fn ask(&mut self, question: &str) -> Vec<String> {
        writeln!(self.input, "{question}").unwrap();
        self.lines.next().unwrap().unwrap().split(' ').map(str::to_owned).collect()
    }
}

#[test]
fn exec_works_inside_and_outside_ip_netns() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"), lull_testing::command("ip"));
    let namespace = Namespace::make();
    let nice = Variant::unloaded();
    let expected = vec![format!("{}/4", nice.0); 2];
    let exec = [LULL, "exec", "--cc", &nice.0, "--automatic", "--"];
    let netns = ["ip", "netns", "exec", &namespace.0];
    for words in [[&netns[..], &exec[..]].concat(), [&exec[..], &netns[..]].concat()] {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).arg("python3").stderr(Stdio::piped());
        let mut peer = Peer::start(command);
        assert_eq!(peer.ask("state"), expected, "{words:?}");
        // The status sees into the other namespace from here.
        let status = nice.status().expect("it is loaded in sight");
        let there =
            finish(&mut shell("ip netns exec $1 stat -Lc %i /proc/self/ns/net", &[&namespace.0]));
        let there: u64 = there.ok().trim().parse().unwrap();
        let sockets = status["sockets"].as_array().unwrap();
        assert_eq!(sockets.len(), 2, "{status}");
        for socket in sockets {
            assert_eq!(socket["network_namespace"], there);
            assert_eq!(socket["command"], "python3");
        }
        drop(peer.input);
        assert!(peer.kept.0.wait().unwrap().success());
        assert_eq!(nice.cgroups(), Vec::<PathBuf>::new());
        eventually("it is unloaded", || !nice.is_loaded());
    }
}

#[test]
fn running_process_is_moved_and_its_sockets_fixed() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"), lull_testing::command("ip"));
    let namespace = Namespace::make();
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &namespace.0, "python3"]);
    let mut peer = Peer::start(command);
    assert!(peer.ask("state").iter().all(|state| !state.ends_with("/4")));

    let nice = Variant::load(&[]);
    let pid = peer.kept.pid();
    let said = finish(&mut lull(&["exec", "--cc", &nice.0, "--pid", &pid])).ok();
    let expected = format!(
        "process {pid} is in the background now, with 2 open connections and 1 listener\n\
         sockets from before can still be changed by the process itself\n"
    );
    assert_eq!(said, expected);
    let background = format!("{}/4", nice.0);
    assert_eq!(peer.ask("state"), vec![background.clone(); 2]);
    assert_eq!(peer.ask("new"), vec![background; 4]);

    let cgroup = nice.cgroups().pop().unwrap();
    drop(peer.input);
    peer.kept.0.wait().unwrap();
    finish(&mut lull(&["exec", "--cc", "reno", "--", "true"])).ok();
    assert!(!cgroup.exists());
}

#[test]
fn moved_process_stays_inside_its_cgroup() {
    needs!(lull_testing::bpf());
    let (one, other) = (Service::make(), Service::make());
    let mut command = shell("sleep 30 & echo $!; wait", &[]);
    let mut kept = Kept::spawn(command.stdout(Stdio::piped()));
    let mut line = String::new();
    BufReader::new(kept.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let (shell, sleeper) = (kept.pid(), line.trim());
    one.take(&shell);
    other.take(sleeper);
    // The second time it moves from one background of Lull to another, not to one inside it.
    for congestion in ["reno", "cubic"] {
        let mut command = lull(&["exec", "--cc", congestion, "--children", "--pid", &shell]);
        let said = finish(&mut command).ok();
        assert!(!said.contains("left cgroup"), "{said}");
        for (service, pid) in [(&one, &*shell), (&other, sleeper)] {
            let (home, own) = (service.name(), cgroup_of(pid));
            let inside = own.strip_prefix(&format!("{home}/lull.{congestion}."));
            assert!(inside.is_some_and(|rest| !rest.contains('/')), "{home} {own}");
        }
    }
    finish(&mut support::shell("kill $1", &[sleeper])).ok();
    kept.0.wait().unwrap();
}

#[test]
fn process_that_must_leave_its_cgroup_is_reported() {
    needs!(lull_testing::bpf());
    let service = Service::make();
    let kept = Kept::spawn(&mut shell("exec sleep 30", &[]));
    let pid = kept.pid();
    service.take(&pid);
    fs::write(service.0.join("cgroup.max.descendants"), "0").unwrap();
    let said = finish(&mut lull(&["exec", "--cc", "reno", "--pid", &pid])).ok();
    let told = format!(
        "process {pid} left cgroup {}, whose limits no longer hold: no other can be made inside it",
        service.name()
    );
    assert!(said.lines().any(|line| line.starts_with(&told)), "{said}");
    assert!(cgroup_of(&pid).contains("/lull.reno."));
}

/// The cgroup of `lull` itself, to which the program and the process belong.
#[test]
fn program_that_must_leave_the_cgroup_is_reported() {
    needs!(lull_testing::bpf());
    let service = Service::make();
    let folder = service.0.to_str().unwrap();
    let left = format!("left cgroup {}, whose limits no longer hold: ", service.name());
    let full = "echo $$ >$1/cgroup.procs; echo 0 >$1/cgroup.max.descendants; ";
    let said = finish(&mut shell(&format!("{full} \"$LULL\" exec --cc reno -- true"), &[folder]));
    let told = format!("lull: the program {left}no other can be made inside it: ");
    assert!(said.err.lines().nth(1).is_some_and(|line| line.starts_with(&told)), "{said:?}");
    let json = format!("{full} \"$LULL\" exec --cc reno --json -- true");
    let summary: Value = serde_json::from_str(&finish(&mut shell(&json, &[folder])).err).unwrap();
    assert!(summary["left_its_cgroup"].as_str().unwrap().contains(&left), "{summary}");

    let running = "sleep 30 & \"$LULL\" exec --cc reno --pid $!; kill $!";
    let said = finish(&mut shell(&format!("{full} {running}"), &[folder])).ok();
    assert!(said.lines().any(|line| line.starts_with("process") && line.contains(&left)), "{said}");

    fs::write(service.0.join("cgroup.max.descendants"), "max").unwrap();
    let threaded = "mkdir $1/t; echo $$ >$1/cgroup.procs; echo threaded >$1/t/cgroup.type
        echo $$ >$1/t/cgroup.procs; \"$LULL\" exec --cc reno -- true";
    let said = finish(&mut shell(threaded, &[folder]));
    let told = format!("{}/t, whose limits no longer hold: it is threaded", service.name());
    assert!(said.err.contains(&told), "{said:?}");
}

#[test]
fn children_option_moves_descendants() {
    needs!(lull_testing::bpf());
    let mut command = shell("sh -c 'sleep 30 & echo ready; wait' & wait", &[]);
    let mut kept = Kept::spawn(command.stdout(Stdio::piped()));
    let mut line = String::new();
    BufReader::new(kept.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let pid = kept.pid();
    let nice = Variant::load(&[]);
    let said = finish(&mut lull(&["exec", "--cc", &nice.0, "--json", "--pid", &pid]));
    assert_eq!(said.err, "");
    let report: Value = serde_json::from_str(&said.ok()).unwrap();
    assert_eq!(report["processes"].as_array().unwrap().len(), 1);
    assert!(report["foreground"].to_string().contains("--children"), "{report}");
    let said = finish(&mut lull(&["exec", "--cc", &nice.0, "--children", "--json", "--pid", &pid]));
    let report: Value = serde_json::from_str(&said.ok()).unwrap();
    let processes = report["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 3, "{report}");
    for process in processes {
        finish(&mut shell("kill $1", &[&process.to_string()]));
    }
    kept.0.wait().unwrap();
}

#[test]
fn missing_process_cannot_be_moved() {
    needs!(lull_testing::bpf());
    let nice = Variant::load(&[]);
    let exec = |pid: &str| finish(&mut lull(&["exec", "--cc", &nice.0, "--pid", pid]));
    exec("4194304").fails(125, "there is no process 4194304");
    exec("-1").fails(125, "");
    exec("x").fails(125, "invalid value 'x' for '--pid");
    exec("1").fails(125, "process 1 cannot be moved: it is the first process");
    assert_eq!(nice.cgroups(), Vec::<PathBuf>::new());
}

/// In a PID namespace, such as a container's, there is none.
fn kernel_thread() -> Result<String, Missing> {
    /// PF_KTHREAD of the kernel, in the flags of `/proc/PID/stat`.
    const KERNEL_THREAD: u32 = 0x0020_0000;
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let found = names.find(|name| {
        let stat = fs::read(format!("/proc/{name}/stat")).unwrap_or_default();
        let stat = String::from_utf8_lossy(&stat);
        // The name of the process is in parentheses, and may contain some itself.
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let flags = fields.split_whitespace().nth(6).and_then(|flags| flags.parse::<u32>().ok());
        flags.is_some_and(|flags| flags & KERNEL_THREAD != 0)
    });
    found.ok_or_else(|| Missing::new("no thread of the kernel is in sight"))
}

#[test]
fn kernel_thread_cannot_be_moved() {
    let thread = kernel_thread();
    needs!(lull_testing::bpf(), thread.clone().map(drop));
    let pid = thread.unwrap();
    let said = finish(&mut lull(&["exec", "--cc", "reno", "--pid", &pid]));
    let told = format!("process {pid} cannot be moved: it is a thread of the kernel");
    said.fails(125, &told);
}

#[test]
fn wrong_arguments_are_reported_on_one_line() {
    let exec = |arguments: &[&str]| finish(lull(&["exec"]).args(arguments));
    exec(&[]).fails(125, "PROGRAM");
    exec(&["--dscp", "ef", "true"]).fails(125, "invalid value 'ef' for '--dscp <DSCP>'");
    exec(&["--bogus", "true"]).fails(125, "found; to pass '--bogus' as a value, use '-- --bogus'");
    exec(&["--children", "true"]).fails(125, "'--children' cannot be used with");
    finish(&mut lull(&["bogus"])).fails(2, "unrecognized subcommand 'bogus' (see 'lull --help')");
    finish(&mut lull(&["kernel", "load", "--bogus"])).fails(2, "(see 'lull kernel load --help')");
    let no_text = OsStr::from_bytes(b"--\xff");
    finish(lull(&["kernel", "load"]).arg(no_text))
        .fails(2, "unexpected argument '--\u{fffd}' found");
}

#[test]
fn invalid_control_name_is_rejected_with_known_ones() {
    for name in ["", "a_name_of_16_byt", "a/b"] {
        let said = finish(&mut lull(&["exec", "--cc", name, "--", "true"]));
        let known = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
        let first = known.unwrap().split_whitespace().next().unwrap().to_owned();
        said.fails(125, &format!("'{name}' is not the name of a congestion control"));
        said.fails(125, &format!("this kernel has {first}"));
    }
}

#[test]
fn unknown_control_is_rejected_with_known_ones() {
    needs!(lull_testing::bpf());
    let said = finish(&mut lull(&["exec", "--cc", "bogus", "--", "true"]));
    said.fails(125, "there is no congestion control 'bogus': this kernel has ");
    assert!(said.err.contains("reno"), "{said:?}");
    said.fails(125, "; 'lull kernel load --name bogus' loads TCP Nice under that name");
    assert_eq!(support::cgroups("lull.bogus."), Vec::<PathBuf>::new());
}

/// For any user, and before any other check.
#[test]
fn background_needs_network_that_honours_its_mark() {
    let exec = |arguments: &[&str]| finish(lull(&["exec", "--cc"]).args(arguments));
    exec(&["background", "--", "true"]).fails(125, "'background' does not yield by itself");
    exec(&["background", "--", "true"])
        .fails(125, "Confirm that with --network-honours-le, or use");
    exec(&["background", "--network-honours-le", "--dscp", "none", "--", "true"])
        .fails(125, "leave out --dscp none");
    needs!(lull_testing::bpf());
    let pid = std::process::id().to_string();
    exec(&["background", "--pid", &pid]).fails(125, "'background' does not yield by itself");
    // Under any name; the attempt leaves nothing behind.
    let background = Variant::load(&["--algorithm", "background"]);
    exec(&[&background.0, "--", "true"]).fails(125, "does not yield by itself");
    assert_eq!(background.cgroups(), Vec::<PathBuf>::new());
    let honoured = [&background.0, "--network-honours-le", "--quiet", "--", "true"];
    assert_eq!(exec(&honoured).code(), Some(0));
}

#[test]
fn background_is_loaded_and_unloaded_as_needed() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let script = "import socket
listener = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(listener.getsockname())
print(client.getsockopt(6, 13, 16).rstrip(bytes(1)).decode(), client.getsockopt(0, 1) & 0xfc)";
    let background = Variant::unloaded();
    let exec = ["exec", "--cc", &background.0, "--automatic=background"];
    let run = ["--network-honours-le", "--json", "--", "python3", "-c", script];
    let said = finish(lull(&exec).args(run));
    assert_eq!(said.out, format!("{} 4\n", background.0), "{said:?}");
    let summary: Value = serde_json::from_str(&said.err).unwrap();
    assert_eq!(summary["yielding_seconds"], Value::Null, "it does not yield: {summary}");
    eventually("it is unloaded", || !background.is_loaded());
}

#[test]
fn missing_privilege_is_reported_with_its_remedy() {
    needs!(lull_testing::bpf(), lull_testing::command("setpriv"));
    let public = PublicCopy::of(LULL.as_ref());
    let folder = public.folder().to_str().unwrap();
    let user = "setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all \
        --bounding-set=-all \"$1/lull\" ";
    for words in ["exec -- true", "exec --cc reno -- true", "exec --pid 1"] {
        let said = finish(&mut shell(&format!("{user} {words}"), &[folder]));
        said.fails(125, "needs CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN: run it as root");
    }
    for words in ["load", "unload"] {
        let said = finish(&mut shell(&format!("{user} kernel {words}"), &[folder]));
        said.fails(1, "run it as root");
    }
    // Root of a user namespace looks like root.
    needs!(lull_testing::user_namespaces());
    let said = finish(&mut shell("unshare -Ur \"$1/lull\" exec --cc reno true", &[folder]));
    said.fails(125, "in the initial user namespace: run it as root outside of this user namespace");
}

#[test]
fn cgroup_hierarchy_is_found_or_mounted_privately() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let peer = program("peer.py");
    let run = "echo state | \"$LULL\" exec --cc reno -- python3 \"$1\"";
    let unmount = "while grep -q ' cgroup2 ' /proc/self/mounts; do
        umount \"$(grep -m1 ' cgroup2 ' /proc/self/mounts | cut -d' ' -f2)\"; done";
    let elsewhere = "d=$(mktemp -d); mount -t tmpfs none $d; mkdir \"$d/c g\";
        mount -t cgroup2 none \"$d/c g\"";
    let count = "\"$LULL\" exec --cc reno --quiet true";
    for script in [
        format!("{unmount}; {run}; {count}"),
        format!("{unmount}; {elsewhere}; {run}; ls -d \"$d/c g\"/lull.reno.$$.* 2>/dev/null"),
    ] {
        let said = finish(&mut private_shell(&script, &[peer.to_str().unwrap()]));
        assert_eq!(said.out, "ready\nreno/4 reno/4\n", "{said:?}");
    }
}

/// As in many containers.
#[test]
fn read_only_cgroup_hierarchy_is_remounted_or_reported() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"), lull_testing::command("setpriv"));
    let peer = program("peer.py");
    let lock = "for d in $(grep ' cgroup2 ' /proc/self/mounts | cut -d' ' -f2); do
        mount -o remount,bind,ro $d; ! mkdir $d/lull.test 2>/dev/null || exit 1; done";
    let run = "echo state | \"$LULL\" exec --cc reno --quiet -- python3 \"$1\"";
    let script = format!("{lock}; {run}");
    let said = finish(&mut private_shell(&script, &[peer.to_str().unwrap()])).ok();
    assert_eq!(said, "ready\nreno/4 reno/4\n");

    let run = "setpriv --bounding-set=-sys_admin \"$LULL\" exec --cc reno true";
    let said = finish(&mut private_shell(&format!("{lock}; {run}"), &[]));
    said.fails(125, "cgroup v2 is mounted read-only, as in a container, and no other mount can be");
}

#[test]
fn kernel_without_cgroup_v2_is_reported() {
    needs!(lull_testing::bpf());
    // The command regards it as one: the list of file systems lacks cgroup2.
    let script = "d=$(mktemp); grep -v cgroup2 /proc/filesystems >$d
        mount --bind $d /proc/filesystems; rm $d; \"$LULL\" exec --cc reno true";
    finish(&mut private_shell(script, &[])).fails(125, "this kernel has no cgroup v2");
}

#[test]
fn unreachable_cgroup_hierarchy_is_reported() {
    needs!(lull_testing::bpf(), lull_testing::command("setpriv"));
    let script = "while grep -q ' cgroup2 ' /proc/self/mounts; do
        umount \"$(grep -m1 ' cgroup2 ' /proc/self/mounts | cut -d' ' -f2)\"; done
        setpriv --bounding-set=-sys_admin \"$LULL\" exec --cc reno true";
    finish(&mut private_shell(script, &[]))
        .fails(125, "cgroup v2 is mounted nowhere and cannot be mounted");
}

#[test]
fn bpf_file_system_is_mounted_or_reported_missing() {
    needs!(lull_testing::bpf(), lull_testing::command("setpriv"));
    let unmount = "while grep -q ' bpf ' /proc/self/mounts; do
        umount \"$(grep -m1 ' bpf ' /proc/self/mounts | cut -d' ' -f2)\"; done";
    let nice = Variant::unloaded();
    let script = format!(
        "{unmount}; \"$LULL\" kernel load --name $1 && \"$LULL\" kernel status &&
        ls /sys/fs/bpf/lull && \"$LULL\" kernel unload --name $1 &&
        ! ls -d /sys/fs/bpf/lull 2>/dev/null &&
        \"$LULL\" exec --quiet --cc $1 --automatic -- grep -c ' bpf ' /proc/mounts | grep -qx 1 &&
        ! grep ' bpf ' /proc/mounts"
    );
    let said = finish(&mut private_shell(&script, &[&nice.0])).ok();
    assert!(said.ends_with(&format!("\n{0}\nunloaded '{0}'\n", nice.0)), "{said}");

    // An empty /sys has no mount point for it.
    let script = format!(
        "{unmount}; mount -t tmpfs none /sys/fs; \"$LULL\" exec --cc $1 --automatic -- true"
    );
    let said = finish(&mut private_shell(&script, &[&nice.0]));
    said.fails(125, "the BPF file system is mounted nowhere and cannot be mounted");
    eventually("it is unloaded", || !nice.is_loaded());
}

/// The hooks of the inner cgroup run first, those of the outer one override them.
#[test]
fn outermost_of_nested_runs_decides() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let peer = program("peer.py");
    let nice = Variant::load(&[]);
    let script = "echo state | \"$LULL\" exec --quiet --cc $1 -- \
        \"$LULL\" exec --quiet --cc reno -- python3 \"$2\"";
    let said = finish(&mut shell(script, &[&nice.0, peer.to_str().unwrap()]));
    assert_eq!(said.ok(), format!("ready\n{0}/4 {0}/4\n", nice.0));
    eventually("both are gone", || nice.cgroups().is_empty());
}

/// Mapped and MPTCP connections can be changed, waiting ones cannot before they are accepted.
#[test]
fn old_sockets_are_fixed_and_exceptions_reported() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let script = "import socket, sys
def pair(family, bind, address, protocol=0):
    listener = socket.socket(family, socket.SOCK_STREAM, protocol)
    listener.bind((bind, 0))
    listener.listen()
    client = socket.socket(family, socket.SOCK_STREAM, protocol)
    client.connect((address, listener.getsockname()[1]))
    return listener, client
mapped, client = pair(socket.AF_INET6, '::', '::ffff:127.0.0.1')
server, _ = mapped.accept()
late = pair(socket.AF_INET, '127.0.0.1', '127.0.0.1')
multi = pair(socket.AF_INET, '127.0.0.1', '127.0.0.1', 262)
multi = (*multi, multi[0].accept()[0])
print('ready', flush=True)
sys.stdin.readline()
for sock in mapped, client, server, *late, *multi:
    name = sock.getsockopt(6, 13, 16).rstrip(bytes(1)).decode()
    print(name, sock.getsockopt(0, 1) & 0xfc, end=' ')
print()";
    let (mut kept, mut lines) = Kept::ready(script);
    let nice = Variant::load(&[]);
    let said = finish(&mut lull(&["exec", "--cc", &nice.0, "--pid", &kept.pid()])).ok();
    assert!(said.contains("with 5 open connections and 3 listeners\n"), "{said}");
    let waiting = "in the foreground stays: 1 connection that a listener has not accepted yet\n";
    assert!(said.contains(waiting), "{said}");
    writeln!(kept.0.stdin.as_mut().unwrap()).unwrap();
    let states = lines.next().unwrap().unwrap();
    assert_eq!(states.trim(), vec![format!("{} 4", nice.0); 8].join(" "));
}

/// Like those of nginx, which all have its listener.
#[test]
fn shared_socket_counts_once() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let script = "import os, socket, sys
listener = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(listener.getsockname())
workers = []
for _ in range(3):
    told, wanted = os.pipe()
    if not os.fork():
        os.close(wanted)
        os.read(told, 1)
        os._exit(0)
    os.close(told)
    workers.append(wanted)
print('ready', flush=True)
sys.stdin.readline()";
    let (kept, _lines) = Kept::ready(script);
    let mut command = lull(&["exec", "--cc", "reno", "--children", "--pid", &kept.pid()]);
    let said = finish(&mut command).ok();
    assert!(said.contains("with 1 open connection and 1 listener\n"), "{said}");
    let waiting = "in the foreground stays: 1 connection that a listener has not accepted yet\n";
    assert!(said.contains(waiting), "{said}");
}

/// BPF_F_ALLOW_OVERRIDE: the kernel no longer runs it in a cgroup that has its own program.
#[test]
fn overridable_firewall_of_outer_cgroup_still_drops() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let (cgroup_skb, override_flag, drop) = (8, 1, 0);
    let connect = "import socket
listener = socket.create_server(('127.0.0.1', 0))
client = socket.socket()
client.settimeout(0.5)
try:
    client.connect(listener.getsockname())
    print('connected')
except OSError:
    print('dropped')";
    for direction in [0, 1] {
        let service = Service::make();
        service.attach(cgroup_skb, direction, override_flag, drop);
        let folder = service.0.to_str().unwrap();
        for around in ["", "\"$LULL\" exec --quiet --cc reno --"] {
            let script = format!("echo $$ >$1/cgroup.procs; exec {around} python3 -c \"$2\"");
            let said = finish(&mut shell(&script, &[folder, connect]));
            assert_eq!(said.out, "dropped\n", "{direction} {around}: {said:?}");
        }
    }
}
