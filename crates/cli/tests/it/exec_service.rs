//! `lull exec` with a service manager: what that passes to a process by its id, and programs that it moves to
//! other cgroups.

use std::process::{Command, Stdio};

use crate::support::{LULL, Service, finish, lull, shell};
use lull_testing::needs;
use serde_json::{Value, json};

/// The program acts like sd_listen_fds(3).
#[test]
fn systemd_sockets_reach_the_program() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let activated = "import os, socket
for name in 'LISTEN_PID', 'WATCHDOG_PID', 'SYSTEMD_EXEC_PID':
    assert os.environ[name] == str(os.getpid()), name
assert 'LISTEN_PIDFDID' not in os.environ
listener = socket.socket(fileno=3)
client = socket.create_connection(listener.getsockname())
server, _ = listener.accept()
print(os.environ['LISTEN_FDS'], os.environ['LISTEN_FDNAMES'], os.environ['EMPTY'] == '',
    server.getsockopt(6, 13, 16).rstrip(bytes(1)).decode(), server.getsockopt(0, 1) & 0xfc)";
    let systemd = "import os, socket, sys
listener = socket.create_server(('127.0.0.1', 0))
os.dup2(listener.fileno(), 3)
os.set_inheritable(3, True)
own = str(os.getpid())
os.environ.update(LISTEN_FDS='1', LISTEN_FDNAMES='a=b', LISTEN_PID=own, LISTEN_PIDFDID='1')
os.environ.update(EMPTY='', WATCHDOG_PID=own, SYSTEMD_EXEC_PID=own)
os.execv(sys.argv[1], ['lull', 'exec', '--quiet', '--cc', 'reno', '--', *sys.argv[2:]])";
    let mut command = Command::new("python3");
    command.args(["-c", systemd, LULL, "python3", "-c", activated]).stdin(Stdio::null());
    assert_eq!(finish(&mut command).ok(), "1 a=b True reno 4\n");
}

#[test]
fn environment_for_another_process_is_unchanged() {
    needs!(lull_testing::bpf());
    let script = "export WATCHDOG_PID=$$ LISTEN_PID=1 LISTEN_PIDFDID=2 LISTEN_FDS=3
        exec \"$LULL\" exec --quiet --cc reno -- \
            sh -c '[ $WATCHDOG_PID = $$ ]; echo $? $LISTEN_PID $LISTEN_PIDFDID $LISTEN_FDS'";
    assert_eq!(finish(&mut shell(script, &[])).ok(), "0 1 2 3\n");
}

/// Like su, whose session gets its own cgroup from systemd.
#[test]
fn program_moved_out_of_background_is_reported() {
    needs!(lull_testing::bpf());
    let service = Service::make();
    let folder = service.0.to_str().unwrap();
    let run = |how: &[&str]| {
        let mut command = lull(&["exec", "--cc", "reno"]);
        command.args(how).args(["--", "sh", "-c", "echo $$ | tee $1/cgroup.procs", "sh", folder]);
        finish(&mut command)
    };
    let told =
        |out: &str| format!("process {}, which was moved to cgroup {}", out.trim(), service.name());
    let said = run(&[]);
    let lines: Vec<_> = said.err.lines().skip(1).collect();
    assert_eq!(lines, [format!("lull: in the foreground stays: {}", told(&said.out))], "{said:?}");
    let said = run(&["--json"]);
    let summary: Value = serde_json::from_str(&said.err).unwrap();
    assert_eq!(summary["foreground"], json!([told(&said.out)]), "{said:?}");
}

/// Another `lull` puts it into a separate cgroup, where it is in the background as before.
#[test]
fn program_moved_to_another_background_is_recognised() {
    needs!(lull_testing::bpf());
    let script = "\"$LULL\" exec --cc reno -- \
        sh -c '\"$LULL\" exec --quiet --cc cubic --pid $$ && grep -c /lull.cubic. /proc/$$/cgroup'";
    let said = finish(&mut shell(script, &[]));
    assert_eq!((said.code(), said.out.as_str()), (Some(0), "1\n"), "{said:?}");
    assert_eq!(said.err.lines().count(), 1, "{said:?}");
}

/// systemd takes a process whose parent has ended for the main process of a forking service.
#[test]
fn no_process_stays_behind_in_unit_of_systemd() {
    needs!(lull_testing::bpf());
    let service = Service::make();
    let script = "echo $$ >$1/cgroup.procs; export SYSTEMD_EXEC_PID=$$
        exec \"$LULL\" exec --quiet --cc reno -- sh -c 'sleep 30 </dev/null >/dev/null 2>&1 & echo $!'";
    let folder = service.0.to_str().unwrap();
    let sleeper = finish(&mut shell(script, &[folder])).ok().trim().to_owned();
    let processes = || std::fs::read_to_string(service.0.join("cgroup.procs")).unwrap();
    assert_eq!(processes(), "");
    finish(&mut shell("kill $1", &[&sleeper])).ok();
    finish(&mut lull(&["exec", "--quiet", "--cc", "reno", "--", "true"])).ok();
}
