//! `lull top` with real jobs.

use std::time::Duration;

use lull_testing::needs;
use serde_json::Value;

use crate::exec_serve::Server;
use crate::support::{Kept, Variant, eventually_within, finish, lull, shell};

/// Sends and receives 1 MB/s over loopback, which each of its connections shows in another direction, until standard
/// input ends.
pub(crate) const TRANSFERS: &str = "import os, socket, sys, threading, time
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
listener = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(listener.getsockname())
server, _ = listener.accept()
print('ready', flush=True)
for _ in range(1200):
    client.sendall(bytes(50_000))
    count = 50_000
    while count:
        count -= len(server.recv(count))
    time.sleep(0.05)";

/// A job that transfers, until it is dropped.
pub(crate) fn start_job(control: &str, algorithm: &str, name: &str) -> Kept {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    let mut command = lull(&["exec", "--quiet", "--cc", control]);
    command.args([&format!("--automatic={algorithm}"), "--name", name, "--"]);
    command.args(["python3", "-c", TRANSFERS]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut kept = Kept::spawn(&mut command);
    let mut line = String::new();
    BufReader::new(kept.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    kept
}

/// The rows of a job, read once.
fn rows(job: &str, options: &[&str]) -> Vec<Value> {
    let mut command = lull(&["top", "--once", "--json", "--interval", "0.5", "--filter", job]);
    let text = finish(command.args(options)).ok();
    let view: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(view["scope"], "all", "{view}");
    view["connections"].as_array().unwrap().clone()
}

#[test]
fn top_shows_a_job_of_lull_with_rates_and_its_path() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let control = Variant::unloaded();
    let _job = start_job(&control.0, "lull", "t-backup");
    eventually_within(Duration::from_secs(120), "both directions are seen", || {
        let rows = rows("t-backup", &[]);
        assert_eq!(rows.len(), 2, "{rows:?}");
        let of = |direction: &str| rows.iter().find(|row| row["direction"] == direction);
        let (Some(sends), Some(receives)) = (of("send"), of("receive")) else { return false };
        for row in [sends, receives] {
            assert_eq!((&row["name"], &row["process"]), (&"t-backup".into(), &"python3".into()));
            assert!(row["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{row}");
        }
        let rate = |row: &Value| row["bytes_per_second"].as_f64().unwrap();
        assert!(sends["window_packets"].as_f64().unwrap() > 0.0, "{sends}");
        assert!(sends["foreground_per_second"].is_number(), "{sends}");
        rate(sends) > 10_000.0 && rate(receives) > 10_000.0
    });
    let text = finish(&mut lull(&["top", "--once", "--jobs", "--filter", "t-backup"])).ok();
    let [_, foreground, header, row] = text.lines().collect::<Vec<_>>()[..] else {
        panic!("{text}");
    };
    assert!(foreground.starts_with("host's foreground "), "{text}");
    assert!(header.starts_with("job  ") && header.ends_with(" fg"), "{text}");
    assert!(row.starts_with("t-backup  ") && row.contains(" 2 connections "), "{text}");
}

#[test]
fn top_shows_when_a_job_is_paused() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let control = Variant::unloaded();
    let _job = start_job(&control.0, "nice", "t-paused");
    finish(&mut lull(&["jobs", "pause", "t-paused"])).ok();
    assert!(rows("t-paused", &[]).iter().all(|row| row["activity"] == "paused"));
    finish(&mut lull(&["jobs", "resume", "t-paused"])).ok();
    assert!(rows("t-paused", &[]).iter().all(|row| row["activity"] != "paused"));
}

/// As CI runs it, with neither terminal nor user.
#[test]
fn top_without_a_terminal_names_the_options() {
    let mut command = lull(&["top"]);
    finish(command.env_clear()).fails(1, "needs a terminal: use --once or --json");
    finish(&mut lull(&["top", "--sort", "x"])).fails(2, "invalid value 'x'");
    finish(&mut lull(&["top", "--interval", "0"])).fails(2, "write a number of seconds above 0");
}

/// The screen in a real terminal: its content, that keys work, and that the terminal is as before at the end.
#[test]
fn top_in_a_terminal_follows_keys_and_restores_it() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"), lull_testing::command("tmux"));
    let control = Variant::unloaded();
    let _job = start_job(&control.0, "lull", "t-screen");
    let name = crate::support::unique_name();
    let script = "export TMUX_TMPDIR=$(mktemp -d) TERM=dumb SHELL=/bin/sh
        name=$1
        run() { tmux -L \"$name\" -f /dev/null \"$@\"; }
        shown() { run capture-pane -p; }
        wait_for() {
            for _ in $(seq 1000); do shown | grep -q \"$1\" && return; sleep 0.1; done
            echo \"never: $1\"; shown; run kill-server; exit 1
        }
        run new-session -d -x 80 -y 12 \"sh\"
        run send-keys \"'$LULL' top --interval 0.2; echo left-\\$?\" Enter
        wait_for 't-screen .*python3 .*127.0.0.1.* send '
        shown | head -3
        run send-keys j
        wait_for '2 connections'
        run send-keys / n o n e Enter
        wait_for \"filter 'none'\"
        run send-keys q
        wait_for 'left-0'
        run send-keys \"sh -c 'echo \\$\\$ >$TMUX_TMPDIR/pid; exec $LULL top'; echo right-\\$?\" Enter
        wait_for 'q quit'
        kill -TERM $(cat $TMUX_TMPDIR/pid)
        wait_for 'right-0'
        run send-keys \"clear; sh -c 'echo \\$\\$ >$TMUX_TMPDIR/pid; exec $LULL top'\" Enter
        wait_for 'q quit'
        run kill-server
        for _ in $(seq 1000); do kill -0 $(cat $TMUX_TMPDIR/pid) 2>&- || break; sleep 0.1; done
        kill -KILL $(cat $TMUX_TMPDIR/pid) 2>&- && echo 'it outlives its terminal' && exit 1
         rm -r $TMUX_TMPDIR";
    let said = finish(&mut shell(script, &[&name])).ok();
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("lull top: "), "{said}");
    assert!(lines[2].starts_with("job      process   peer            dir  bit/s  win"), "{said}");
}

/// Root sees everything, a member of the group the own job alone, and another user the jobs.
#[test]
fn top_hides_other_users_from_members_of_the_group() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"), lull_testing::command("setpriv"));
    let control = Variant::unloaded();
    let _job = start_job(&control.0, "lull", "t-other");
    let server = Server::start();
    let script = format!(
        "folder=$(mktemp -d); cd $folder; mkfifo input
        \"$LULL\" exec --quiet -- python3 -c \"{TRANSFERS}\" <input >/dev/null &
        exec 3>input
        for _ in $(seq 500); do
            \"$LULL\" top --once --json --interval 0.1 >view && grep -q '\"pid\":[0-9]' view && break
            sleep 0.1
        done
        cat view; exec 3>&-; wait; rm -r $folder"
    );
    let said = finish(server.shell("nogroup", &script).env("TMPDIR", "/tmp"));
    let view: Value = serde_json::from_str(said.out.lines().last().unwrap()).unwrap();
    assert_eq!(view["scope"], "user", "{view}");
    let rows = view["connections"].as_array().unwrap();
    let (other, own): (Vec<&Value>, Vec<&Value>) =
        rows.iter().partition(|row| row["name"] == "t-other");
    assert_eq!(other.len(), 2, "{view}");
    for row in other {
        assert!(row["peer"].is_null() && row["pid"].is_null() && row["process"].is_null(), "{row}");
        assert!(row["bytes"].as_u64().unwrap() > 0, "{row}");
    }
    assert!(own.iter().any(|row| row["peer"].as_str().is_some()), "{view}");

    let said = finish(
        &mut server.shell("1", "LULL_SOCKET=/nonexistent \"$LULL\" top --once --interval 0.1"),
    );
    assert!(said.out.contains("t-other"), "{said:?}");
    assert!(
        said.out.ends_with("connections need root, or a running 'lull kernel serve'\n"),
        "{said:?}"
    );
}
