//! `lull exec` acts for the program that it runs: exit codes, signals, input, terminal, and the leftovers
//! when one of the two is killed.

use crate::support;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use crate::support::{
    Kept, LULL, Variant, cgroups, eventually, finish, lull, program, runs, shell,
};
use lull_testing::needs;
use serde_json::Value;

/// The cgroups made by a `lull` with this id.
fn cgroups_of(pid: &str) -> Vec<std::path::PathBuf> {
    cgroups(&format!("lull.reno.{pid}."))
}

#[test]
fn exit_code_is_that_of_the_program() {
    needs!(lull_testing::bpf());
    for code in [0, 1, 7, 125, 255] {
        let script = format!("exit {code}");
        let said = finish(&mut lull(&["exec", "--cc", "reno", "--", "sh", "-c", &script]));
        assert_eq!(said.code(), Some(code));
        assert_eq!(
            said.err,
            "lull: sent 0 B over TCP in 0 connections; 0 B over UDP, not slowed\n"
        );
    }
}

/// A system-call filter forbids listing the open connections.
#[test]
fn exit_code_is_kept_if_nothing_can_be_counted() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let run = |how: &[&str]| {
        let mut command = Command::new("python3");
        command.arg(program("denied.py")).args(["to count", LULL, "exec", "--cc", "reno"]);
        finish(command.args(how).args(["--", "sh", "-c", "exit 7"]).stdin(Stdio::null()))
    };
    let said = run(&[]);
    assert_eq!(said.code(), Some(7), "{said:?}");
    assert!(said.err.starts_with("lull: the sent bytes are unknown: to list open"), "{said:?}");
    let said = run(&["--json"]);
    let summary: Value = serde_json::from_str(&said.err).unwrap();
    assert_eq!((&summary["exit_code"], &summary["tcp_bytes"]), (&7.into(), &Value::Null));
    assert!(summary["not_counted"].as_str().unwrap().starts_with("to list open"), "{summary}");
}

#[test]
fn program_that_cannot_be_supervised_is_killed() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let mut command = Command::new("python3");
    command.arg(program("denied.py")).args(["to watch others", LULL, "exec", "--cc", "reno", "--"]);
    command.args(["sleep", "20"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut kept = Kept::spawn(&mut command);
    assert_eq!(kept.0.wait().unwrap().code(), Some(125));
    assert_eq!(cgroups_of(&kept.pid()), Vec::<std::path::PathBuf>::new());
}

#[test]
fn quiet_run_is_silent_and_json_run_prints_one_line() {
    needs!(lull_testing::bpf());
    let said = finish(&mut lull(&["exec", "--quiet", "--cc", "reno", "true"]));
    assert_eq!((said.code(), said.err.as_str()), (Some(0), ""));
    let said = finish(&mut lull(&["exec", "--json", "--cc", "reno", "--", "sh", "-c", "exit 3"]));
    assert_eq!(said.err.lines().count(), 1);
    let summary: Value = serde_json::from_str(&said.err).unwrap();
    assert_eq!((&summary["exit_code"], &summary["signal"]), (&3.into(), &Value::Null));
    assert_eq!((&summary["congestion"], &summary["dscp"]), (&"reno".into(), &"le".into()));
    let file = std::env::temp_dir().join(support::unique_name());
    let argument = format!("--json={}", file.display());
    let said = finish(&mut lull(&["exec", &argument, "--cc", "reno", "true"]));
    let text = fs::read_to_string(&file).unwrap();
    fs::remove_file(&file).unwrap();
    assert_eq!(said.err, "");
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["exit_code"], 0);
}

#[test]
fn death_by_signal_is_passed_on() {
    needs!(lull_testing::bpf());
    for signal in [1, 2, 3, 6, 9, 11, 15, 34, 64] {
        let script = format!("kill -{signal} $$; sleep 5");
        let said = finish(&mut lull(&["exec", "--cc", "reno", "--", "sh", "-c", &script]));
        assert_eq!(said.status.signal(), Some(signal), "{said:?}");
        assert!(!said.status.core_dumped());
        assert!(said.err.starts_with("lull: sent"), "{said:?}");
    }
}

#[test]
fn signals_are_forwarded_to_the_program() {
    needs!(lull_testing::bpf());
    let script = "for s in HUP INT TERM USR1 USR2 WINCH; do trap \"echo $s\" $s; done
        trap 'echo ALRM; exit 9' ALRM
        echo ready; while :; do sleep 0.02; done";
    let mut command = lull(&["exec", "--cc", "reno", "--", "sh", "-c", script]);
    let mut kept = Kept::spawn(command.stdout(Stdio::piped()));
    let mut lines = BufReader::new(kept.0.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert_eq!(next(), "ready");
    for signal in ["HUP", "INT", "TERM", "USR1", "USR2", "WINCH", "ALRM"] {
        let pid = kept.pid();
        finish(&mut shell("kill -$1 $2", &[signal, &pid])).ok();
        assert_eq!(next(), signal);
    }
    assert_eq!(kept.0.wait().unwrap().code(), Some(9));
}

#[test]
fn signals_to_the_process_group_arrive_once() {
    needs!(lull_testing::bpf());
    let script = "for s in TERM USR1; do trap \"echo $s\" $s; done; trap 'exit 9' ALRM
        turns=$(seq 1000); echo ready; for i in $turns; do sleep 0.02; done";
    // Distinguishing one from two needs a timely processor.
    let mut command = lull(&["exec", "--cc", "reno", "--", "sh", "-c", script]);
    command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut kept = Kept::spawn(&mut command);
    let mut lines = BufReader::new(kept.0.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert_eq!(next(), "ready");
    let pid = kept.pid();
    let send = |signal, to: &str| finish(&mut shell("kill -s $1 -- $2", &[signal, to])).ok();
    // The same signal repeatedly: none is taken for an earlier one.
    for _ in 0..3 {
        send("TERM", &format!("-{pid}"));
        assert_eq!(next(), "TERM");
        // A second one would come first.
        thread::sleep(Duration::from_millis(200));
        send("USR1", &pid);
        assert_eq!(next(), "USR1");
        send("TERM", &pid);
        assert_eq!(next(), "TERM");
    }
    send("ALRM", &pid);
    assert_eq!(kept.0.wait().unwrap().code(), Some(9));
    // No process of the group is left.
    let said = finish(&mut shell("kill -s 0 -- -$1", &[&pid]));
    assert!(said.err.contains("No such process"), "{said:?}");
}

#[test]
fn masks_and_ignored_signals_are_inherited() {
    needs!(lull_testing::bpf());
    let script = "grep -E '^Sig(Blk|Ign)' /proc/self/status";
    // systemd ignores SIGPIPE for services, and the standard library for this program.
    for ignored in ["HUP USR1", "HUP USR1 PIPE"] {
        let run = |program: &str| {
            let whole = format!("trap '' {ignored}; exec {program} sh -c \"$1\"");
            finish(&mut shell(&whole, &[script])).ok()
        };
        assert_eq!(run("\"$LULL\" exec --cc reno --"), run(""), "{ignored}");
    }
}

/// As under nohup, or for a shell's background job. The signals come from its first moment on, and so while
/// the background is set up.
#[test]
fn ignored_signal_does_not_stop_the_start() {
    needs!(lull_testing::bpf());
    let script = "trap '' HUP INT
        \"$LULL\" exec --quiet --cc reno -- sh -c 'echo; sleep 0.1; exit 7' >\"$1\" & lull=$!
        signals=0
        while [ ! -s \"$1\" ] && [ $signals -lt 1000000 ] && kill -HUP $lull; do
            kill -INT $lull
            signals=$((signals + 1))
        done
        wait $lull
        code=$?
        echo $signals
        exit $code";
    let started = tempfile::NamedTempFile::new().unwrap();
    let said = finish(&mut shell(script, &[started.path().to_str().unwrap()]));
    assert_eq!((said.code(), said.err.as_str()), (Some(7), ""));
    assert!(said.out.trim().parse::<u32>().unwrap() > 100, "so few signals: {}", said.out);
}

#[test]
fn standard_input_passes_through() {
    needs!(lull_testing::bpf());
    let mut command = lull(&["exec", "--cc", "reno", "--", "wc", "-c"]);
    let mut kept = Kept::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let mut input = kept.0.stdin.take().unwrap();
    input.write_all(&vec![b'x'; 300_000]).unwrap();
    drop(input);
    let mut line = String::new();
    BufReader::new(kept.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line.trim(), "300000");
}

#[test]
fn terminal_works_with_its_control_characters() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let mut command = Command::new("python3");
    let said = finish(command.arg("-B").arg(program("terminal.py")).env("LULL", LULL));
    assert_eq!(said.ok(), "ok\n");
}

#[test]
fn program_that_cannot_start_has_exit_codes_of_env() {
    needs!(lull_testing::bpf());
    let run = |program: &str| finish(&mut lull(&["exec", "--cc", "reno", "--", program]));
    run("/nonexistent/program").fails(127, "cannot find '/nonexistent/program'");
    run("lull-no-such-program").fails(127, "cannot find 'lull-no-such-program'");
    run("/etc/passwd").fails(126, "cannot run '/etc/passwd': Permission denied");
    run("/").fails(126, "cannot run '/'");
}

/// As at a limit of processes.
#[test]
fn fork_failure_is_not_blamed_on_the_program() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let mut command = Command::new("python3");
    command.arg(program("denied.py")).args(["to fork", LULL, "exec", "--cc", "reno", "--", "true"]);
    let said = finish(command.stdin(Stdio::null()));
    said.fails(125, "cannot start 'true': Resource temporarily unavailable");
}

#[test]
fn help_shows_both_usages() {
    let said = finish(&mut lull(&["exec", "--help"])).ok();
    let usages = "Usage: lull exec [OPTIONS] -- PROGRAM [ARGS]...\n       \
        lull exec [OPTIONS] --pid PID [--children]\n";
    assert!(said.contains(usages), "{said}");
}

#[test]
fn nothing_is_left_after_any_kind_of_end() {
    needs!(lull_testing::bpf());
    for program in ["true", "/nonexistent/program", "/etc/passwd"] {
        let mut command = lull(&["exec", "--quiet", "--cc", "reno", "--", program]);
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        child.wait().unwrap();
        assert_eq!(cgroups_of(&child.id().to_string()), Vec::<std::path::PathBuf>::new());
    }
}

/// `lull` is killed; the program's later connections are background ones, and its cgroup is removed by the
/// next run after its end.
#[test]
fn program_that_outlives_lull_stays_in_background() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let nice = Variant::unloaded();
    let mut command = lull(&["exec", "--cc", &nice.0, "--automatic", "--", "python3"]);
    command.arg(program("peer.py")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut kept = Kept::spawn(&mut command);
    let mut input = kept.0.stdin.take().unwrap();
    let mut lines = BufReader::new(kept.0.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert_eq!(next(), "ready");
    let cgroup = nice.cgroups().pop().expect("there is a cgroup");
    let program = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap().trim().to_owned();
    kept.0.kill().unwrap();
    kept.0.wait().unwrap();

    // Other runs do not affect it.
    finish(&mut lull(&["exec", "--cc", "reno", "--", "true"])).ok();
    assert!(nice.is_loaded() && cgroup.exists());
    writeln!(input, "new").unwrap();
    let expected = vec![format!("{}/4", nice.0); 4].join(" ");
    assert_eq!(next(), expected);

    drop(input);
    eventually("the program ends", || !runs(&program));
    finish(&mut lull(&["exec", "--cc", "reno", "--", "true"])).ok();
    assert!(!cgroup.exists());
    assert!(!nice.is_loaded(), "no program needs it any more");
}

#[test]
fn surviving_children_are_reported() {
    needs!(lull_testing::bpf());
    let mut command = lull(&["exec", "--cc", "reno", "--", "sh", "-c", "sleep 30 & echo $!"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut kept = Kept::spawn(&mut command);
    let mut line = String::new();
    BufReader::new(kept.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let sleeper = line.trim().to_owned();
    let mut told = String::new();
    BufReader::new(kept.0.stderr.take().unwrap()).read_line(&mut told).unwrap();
    assert_eq!(kept.0.wait().unwrap().code(), Some(0));
    assert!(told.ends_with("; 1 process goes on in the background\n"), "{told}");
    let cgroup = cgroups_of(&kept.pid()).pop().expect("the cgroup stays");
    finish(&mut shell("kill $1", &[&sleeper])).ok();
    eventually("the child ends", || !runs(&sleeper));
    eventually("the cgroup is removed", || !cgroup.exists());
}

/// Without another run of `lull`: a process stays behind for that. The pipes of `lull` are closed meanwhile.
#[test]
fn background_of_ended_daemon_is_removed() {
    needs!(lull_testing::bpf());
    let nice = Variant::unloaded();
    let mut command = lull(&["exec", "--quiet", "--cc", &nice.0, "--automatic", "--", "sh", "-c"]);
    command.arg("sleep 30 </dev/null >/dev/null 2>&1 & echo $!");
    let sleeper = finish(&mut command).ok().trim().to_owned();
    assert!(nice.is_loaded() && nice.cgroups().len() == 1);
    finish(&mut shell("kill $1", &[&sleeper])).ok();
    eventually("the cgroup is removed", || nice.cgroups().is_empty());
    eventually("it is unloaded", || !nice.is_loaded());

    // The same for a process that was moved.
    let mut kept = Kept::spawn(&mut shell("exec sleep 30", &[]));
    let exec = ["exec", "--quiet", "--cc", &nice.0, "--automatic", "--pid", &kept.pid()];
    finish(&mut lull(&exec)).ok();
    assert!(nice.is_loaded() && nice.cgroups().len() == 1);
    kept.0.kill().unwrap();
    kept.0.wait().unwrap();
    eventually("the cgroup is removed", || nice.cgroups().is_empty());
    eventually("it is unloaded", || !nice.is_loaded());
}

/// Kills at a different moment each time, from before the first system call to after the end. `LULL_KILLS` sets how
/// many.
#[test]
fn kills_at_any_moment_leave_nothing() {
    needs!(lull_testing::bpf());
    let kills = std::env::var("LULL_KILLS").ok();
    let kills: u32 = kills.map_or(30, |number| number.parse().expect("LULL_KILLS is a number"));
    let nice = Variant::unloaded();
    let mut command = lull(&["exec", "--cc", &nice.0, "--automatic", "--", "sleep", "0.02"]);
    command.stderr(Stdio::null());
    let mut run = || {
        let started = Instant::now();
        Kept::spawn(&mut command).0.wait().unwrap();
        started.elapsed()
    };
    // The first one has cold caches.
    let whole = (0..3).map(|_| run()).min().unwrap();
    let (mut in_time, mut with_something) = (0, 0);
    for round in 0..kills {
        let mut kept = Kept::spawn(&mut command);
        thread::sleep(whole * round / (kills - 1));
        in_time += u32::from(kept.0.try_wait().unwrap().is_none());
        kept.0.kill().unwrap();
        kept.0.wait().unwrap();
        with_something += u32::from(!nice.cgroups().is_empty() || nice.is_loaded());
    }
    // Otherwise there would be nothing to leave behind.
    assert!(
        in_time > kills / 2 && with_something > kills / 10,
        "{in_time} in time, {with_something} with something"
    );
    eventually("the last program ends", || {
        nice.cgroups().iter().all(|cgroup| {
            fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default().is_empty()
        })
    });
    finish(&mut lull(&["exec", "--cc", "reno", "--", "true"])).ok();
    assert_eq!(nice.cgroups(), Vec::<std::path::PathBuf>::new());
    eventually("it is unloaded", || !nice.is_loaded());
    assert_eq!(nice.status(), None);
    // The process that watches signals is a fork, with the same arguments.
    let of_ours = |pid: &str| {
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        arguments.split(|&byte| byte == 0).any(|argument| argument == nice.0.as_bytes())
    };
    eventually("no process is left", || {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        !processes.into_iter().any(|process| process.file_name().to_str().is_some_and(of_ours))
    });
}

#[test]
fn nice_is_loaded_and_unloaded_as_needed() {
    needs!(lull_testing::bpf());
    let nice = Variant::unloaded();
    let arguments = ["exec", "--cc", &nice.0, "--automatic", "--", "sleep", "30"];
    let first = Kept::spawn(lull(&arguments).stderr(Stdio::null()));
    eventually("it is loaded", || nice.is_loaded() && nice.cgroups().len() == 1);
    assert_eq!(nice.status().unwrap()["loaded_by"], "exec");
    let second = Kept::spawn(lull(&arguments).stderr(Stdio::null()));
    eventually("both run", || nice.cgroups().len() == 2);
    let end = |kept: &Kept| finish(&mut shell("kill -TERM $1", &[&kept.pid()])).ok();
    let mut first = first;
    let mut second = second;
    end(&first);
    assert_eq!(first.0.wait().unwrap().signal(), Some(15));
    assert!(nice.is_loaded(), "the other still needs it");
    end(&second);
    second.0.wait().unwrap();
    eventually("it is unloaded", || !nice.is_loaded());

    // A permanently loaded control stays.
    let mut third = Kept::spawn(lull(&arguments).stderr(Stdio::null()));
    eventually("it is loaded", || nice.is_loaded() && nice.cgroups().len() == 1);
    let said =
        finish(&mut lull(&["kernel", "load", "--algorithm", "nice", "--name", &nice.0])).ok();
    assert!(said.contains("stays now"), "{said}");
    end(&third);
    third.0.wait().unwrap();
    assert!(nice.is_loaded());
    assert_eq!(nice.status().unwrap()["loaded_by"], "load");
}
