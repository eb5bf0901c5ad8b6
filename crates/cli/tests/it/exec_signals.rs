//! Signals to `lull exec` before the program's beginning or after its end, and stops.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use crate::support::{Kept, LULL, Variant, eventually, finish, lull, program, shell};
use lull_testing::needs;

/// Blocks all set-ups and removals of a background until it is dropped.
fn lock_what_is_loaded() -> File {
    let directory = File::open("/sys/fs/bpf/lull").unwrap();
    directory.lock().unwrap();
    directory
}

/// Bit 14 is SIGTERM's, which is blocked first.
fn blocks_signals(pid: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << 14) != 0)
}

fn send(signal: &str, kept: &Kept) {
    finish(&mut shell("kill -s $1 $2", &[signal, &kept.pid()])).ok();
}

/// Its end, and its output about it.
fn end_of(mut kept: Kept) -> (ExitStatus, String) {
    let mut told = String::new();
    kept.0.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    (kept.0.wait().unwrap(), told)
}

#[test]
fn signal_during_set_up_reaches_the_program() {
    needs!(lull_testing::bpf());
    let nice = Variant::load(&[]);
    for (name, number, told_first) in [
        ("USR1", 10, "lull: sent 0 B"),
        ("34", 34, "lull: sent 0 B"),
        ("TERM", 15, "lull: ended by signal 15 before the program was started"),
    ] {
        let lock = lock_what_is_loaded();
        let mut command = lull(&["exec", "--cc", &nice.0, "--", "sleep", "20"]);
        let kept = Kept::spawn(command.stderr(Stdio::piped()));
        eventually("it blocks signals", || blocks_signals(&kept.pid()));
        send(name, &kept);
        drop(lock);
        let (status, told) = end_of(kept);
        assert_eq!(status.signal(), Some(number), "{name}: {told}");
        assert!(told.starts_with(told_first), "{name}: {told}");
    }
}

#[test]
fn signal_after_the_end_keeps_the_exit_code() {
    needs!(lull_testing::bpf());
    let nice = Variant::load(&[]);
    let script = "echo $$; read line; exit 7";
    let mut command = lull(&["exec", "--cc", &nice.0, "--", "sh", "-c", script]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut kept = Kept::spawn(&mut command);
    let input = kept.0.stdin.take().unwrap();
    let mut lines = BufReader::new(kept.0.stdout.take().unwrap()).lines();
    let program = format!("/proc/{}", lines.next().unwrap().unwrap());
    let lock = lock_what_is_loaded();
    drop(input);
    eventually("the program has been waited for", || !Path::new(&program).exists());
    for signal in ["TERM", "INT", "USR1"] {
        send(signal, &kept);
    }
    drop(lock);
    let (status, told) = end_of(kept);
    assert_eq!(status.code(), Some(7), "{status} {told}");
    assert!(told.starts_with("lull: sent 0 B"), "{told}");
}

#[test]
fn terminal_stop_during_set_up_reaches_the_program() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let nice = Variant::load(&[]);
    let mut command = Command::new("python3");
    command.arg("-B").arg(program("stopping.py")).args(["early", &nice.0]).env("LULL", LULL);
    assert_eq!(finish(&mut command).ok(), "ok\n");
}

/// Like bash with `suspend`.
#[test]
fn suspended_shell_returns_and_regains_the_terminal() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let mut command = Command::new("python3");
    command.arg("-B").arg(program("stopping.py")).arg("suspend").env("LULL", LULL);
    assert_eq!(finish(&mut command).ok(), "ok\n");
}
