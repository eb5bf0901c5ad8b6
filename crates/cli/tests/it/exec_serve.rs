//! `lull exec` without root, by `lull kernel serve`.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::exec_window::window_that_ends_in;
use crate::support::{
    Kept, LULL, Said, cgroups, eventually, eventually_within, finish, lull, runs, shell,
    unique_name,
};
use lull_testing::{PublicCopy, needs};

/// A server for the group nogroup, in a folder that all users may read.
pub(crate) struct Server {
    folder: tempfile::TempDir,
    kept: Kept,
    public: PublicCopy,
}

impl Server {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let socket = folder.path().join("socket");
        let mut command = lull(&["kernel", "serve", "--group", "nogroup", "--socket"]);
        let kept = Kept::spawn(command.arg(&socket));
        let is_ready = |path: &Path| {
            path.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o777 == 0o660)
        };
        eventually("it listens", || is_ready(&socket));
        Server { folder, kept, public: PublicCopy::of(LULL.as_ref()) }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// A shell script of the user nobody in a group, with `$LULL`.
    pub(crate) fn shell(&self, group: &str, script: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", &format!("--regid={group}"), "--clear-groups"]);
        command.args(["--inh-caps=-all", "--bounding-set=-all", "sh", "-c", script]);
        command.env("LULL", self.public.program()).env("LULL_SOCKET", self.socket());
        command.current_dir("/").stdin(Stdio::null());
        command
    }

    fn cgroups(&self) -> Vec<PathBuf> {
        cgroups(&format!("lull.lull.{}.", self.kept.pid()))
    }
}

const SENDS: &str = "import os, socket
listener = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(listener.getsockname())
client.sendall(bytes(2000))
name = client.getsockopt(6, 13, 16).rstrip(bytes(1)).decode()
print(name, client.getsockopt(0, 1) & 0xfc, os.getuid(), os.getgroups())";

#[test]
fn group_member_runs_program_in_background_without_root() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"), lull_testing::command("setpriv"));
    let server = Server::start();
    let script = format!("\"$LULL\" exec -- sh -c 'python3 -c \"$1\"; exit 7' sh \"{SENDS}\"");
    let said = finish(&mut server.shell("nogroup", &script));
    assert_eq!((said.code(), said.out.as_str()), (Some(7), "lull 4 65534 []\n"), "{said:?}");
    // How long they yielded is unknown while a container on this machine has loaded 'lull', as other tests do.
    let sentence = "lull: sent 2.0 kB over TCP in 2 connections";
    assert!(said.err.starts_with(sentence) && said.err.lines().count() == 1, "{said:?}");
    eventually("the cgroup is removed", || server.cgroups().is_empty());

    let said = finish(&mut server.shell("nogroup", "\"$LULL\" doctor"));
    let line = "ok       privilege                   none needed: 'lull kernel serve' at ";
    assert_eq!(said.code(), Some(0), "{said:?}");
    assert!(said.out.lines().any(|found| found.starts_with(line)), "{said:?}");
    assert!(!said.out.contains("not tried"), "{said:?}");

    let said = finish(&mut server.shell("daemon", "\"$LULL\" doctor"));
    assert_eq!(said.code(), Some(1), "{said:?}");
    let remedy = "-> sudo usermod -aG nogroup nobody, then log in again\n";
    assert!(
        said.out.contains("does not accept this user\n") && said.out.contains(remedy),
        "{said:?}"
    );

    let script = format!("\"$LULL\" exec --dscp none --quiet -- python3 -c \"{SENDS}\"");
    let said = finish(&mut server.shell("nogroup", &script));
    assert_eq!(said.ok(), "lull 0 65534 []\n");
}

/// The server is not asked for more than it grants.
#[test]
fn server_refuses_others_and_other_controls() {
    needs!(lull_testing::bpf(), lull_testing::command("setpriv"));
    let server = Server::start();
    let exec = |group: &str, words: &str| -> Said {
        finish(&mut server.shell(group, &format!("\"$LULL\" exec {words} -- true")))
    };
    exec("1", "").fails(125, "this user may not use the server at ");
    exec("nogroup", "--cc cubic").fails(125, "it has no congestion control but 'nice'");
    exec("nogroup", "--user root").fails(125, "cannot run a program as 'root'");
    let script = "LULL_SOCKET=/nonexistent \"$LULL\" exec -- true";
    finish(&mut server.shell("nogroup", script)).fails(125, "needs CAP_BPF");
    let start = ["kernel", "serve", "--group", "no-such-group", "--socket", "/nonexistent/socket"];
    finish(&mut lull(&start)).fails(1, "there is no group 'no-such-group': create it with");
}

/// It connects as a user and has other rights by then, for example after running a program like passwd(1).
#[test]
fn server_moves_no_process_with_rights_of_another_user() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let server = Server::start();
    let script = "import os, socket, sys
os.setegid(65534)
os.seteuid(65534)
client = socket.socket(socket.AF_UNIX)
client.connect(sys.argv[1])
os.seteuid(0)
client.sendall(sys.argv[2].encode() + b'\\n')
print(client.makefile().readline(), end='')
print('/lull.' in open('/proc/self/cgroup').read())";
    let ask = |line: &str| {
        let mut command = Command::new("python3");
        command.args(["-c", script]).arg(server.socket()).arg(line).stdin(Stdio::null());
        finish(&mut command).ok()
    };
    let answer = ask("background 1 le");
    assert!(answer.starts_with("no process "), "{answer}");
    assert!(answer.ends_with("it has the rights of another user\nFalse\n"), "{answer}");
    for line in ["background 2 le", "background 1 1", "x"] {
        let answer = ask(line);
        assert!(answer.contains("its protocol has another version"), "{answer}");
        assert!(answer.ends_with("\nFalse\n"), "{answer}");
    }
    eventually("no cgroup is left", || server.cgroups().is_empty());
}

#[test]
fn program_that_outlives_its_client_stays_in_background() {
    needs!(lull_testing::bpf(), lull_testing::command("setpriv"));
    let server = Server::start();
    let script = "\"$LULL\" exec -- sh -c 'sleep 30 </dev/null >/dev/null 2>&1 & echo $!'";
    let said = finish(&mut server.shell("nogroup", script));
    assert!(said.err.contains("; 1 process goes on in the background\n"), "{said:?}");
    let sleeper = said.ok().trim().to_owned();
    let cgroup = crate::support::cgroup_of(&sleeper);
    assert!(cgroup.contains("/lull.lull."), "{cgroup}");
    finish(&mut shell("kill $1", &[&sleeper])).ok();
    eventually("it ends", || !runs(&sleeper));
    eventually("the cgroup is removed", || server.cgroups().is_empty());
}

/// Including traffic that only the server can see.
#[test]
fn server_reports_delegated_traffic() {
    needs!(lull_testing::bpf(), lull_testing::command("tmux"), lull_testing::command("setpriv"));
    let server = Server::start();
    let name = crate::support::unique_name();
    let script = format!(
        "export TMUX_TMPDIR=$(mktemp -d) TERM=dumb SHELL=/bin/sh
        tmux -L {name} -f /dev/null new-session -d 'sleep 20'
        \"$LULL\" exec -- tmux -L {name} new-window true
        tmux -L {name} kill-server; rm -r $TMUX_TMPDIR"
    );
    let said = finish(&mut server.shell("nogroup", &script));
    let line = "lull: in the foreground stays: programs in windows of 'tmux: server' (process ";
    assert!(said.err.lines().any(|found| found.starts_with(line)), "{said:?}");
}

/// Ends a job, whose `lull` passes the signal on.
fn end(job: &mut Kept) {
    finish(Command::new("kill").arg(job.pid())).ok();
    job.0.wait().unwrap();
}

/// The state of a job as any user sees it.
fn state(name: &str) -> Option<String> {
    let text = finish(&mut lull(&["jobs", "list", "--json"])).ok();
    let jobs: serde_json::Value = serde_json::from_str(&text).unwrap();
    let job = jobs.as_array().unwrap().iter().find(|job| job["name"] == name)?;
    Some(job["state"].as_str().unwrap().to_owned())
}

#[test]
fn user_names_and_pauses_a_job_without_root() {
    needs!(lull_testing::bpf(), lull_testing::command("setpriv"));
    let server = Server::start();
    let name = unique_name();
    let exec = format!("exec \"$LULL\" exec --quiet --name {name} --weight 5 -- sleep 50");
    let mut job = Kept::spawn(&mut server.shell("nogroup", &exec));
    eventually("it runs", || state(&name).as_deref() == Some("running"));
    let jobs = |group: &str, verb: &str| {
        finish(&mut server.shell(group, &format!("\"$LULL\" jobs {verb} {name}")))
    };
    assert_eq!(jobs("nogroup", "pause").ok(), format!("job {name} is paused\n"));
    assert_eq!(state(&name).as_deref(), Some("paused"));
    assert_eq!(jobs("nogroup", "resume").ok(), format!("job {name} continues\n"));
    assert_eq!(state(&name).as_deref(), Some("running"));
    // Another user of the machine may not use the server.
    jobs("daemon", "pause").fails(1, "needs");
    let again = format!("\"$LULL\" exec --name {name} -- true");
    finish(&mut server.shell("nogroup", &again)).fails(125, "is running (process ");
    end(&mut job);
}

#[test]
fn server_pauses_no_job_of_another_user() {
    needs!(lull_testing::bpf(), lull_testing::command("setpriv"));
    let server = Server::start();
    let name = unique_name();
    let mut command =
        lull(&["exec", "--quiet", "--cc", "reno", "--name", &name, "--", "sleep", "50"]);
    let mut job = Kept::spawn(&mut command);
    eventually("it runs", || state(&name).is_some());
    let pause = format!("\"$LULL\" jobs pause {name}");
    finish(&mut server.shell("nogroup", &pause)).fails(1, "has processes of another user");
    assert_eq!(state(&name).as_deref(), Some("running"));
    end(&mut job);
}

#[test]
fn server_pauses_a_job_at_the_end_of_its_window() {
    needs!(lull_testing::bpf(), lull_testing::command("setpriv"));
    let server = Server::start();
    let name = unique_name();
    let (window, zone) = window_that_ends_in(20);
    let exec = format!("exec \"$LULL\" exec --quiet --name {name} --between {window} -- sleep 50");
    let mut job = Kept::spawn(server.shell("nogroup", &exec).env("TZ", zone));
    eventually_within(Duration::from_secs(60), "it runs, or is paused by now", || {
        state(&name).is_some()
    });
    eventually_within(Duration::from_secs(60), "it is paused", || {
        state(&name).as_deref() == Some("paused")
    });
    finish(&mut lull(&["jobs", "resume", &name])).ok();
    end(&mut job);
}
