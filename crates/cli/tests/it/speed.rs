//! `lull lab speed`: its counts add up, and it leaves nothing behind. The speed itself is not tested here.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use crate::support::{Kept, eventually_within, finish, finish_within, lull};
use lull_load::opens::OneProcessor;
use lull_testing::{fuse, needs, user_namespaces};
use serde_json::Value;
use tempfile::TempDir;

/// A loaded machine may be slow.
const LIMIT: Duration = Duration::from_secs(180);
/// The limit for a signalled process to end; it takes far less, but the machine may be loaded.
const SOON: Duration = Duration::from_secs(60);

/// Signals in the form of `kill`, with their numbers.
const INTERRUPT: (&str, i32) = ("-INT", 2);
const TERMINATE: (&str, i32) = ("-TERM", 15);

/// The report of a subcommand; nothing is left in its folder.
fn report(arguments: &[&str]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_str().unwrap();
    let mut command = lull(&["lab", "speed"]);
    command.args(arguments).args(["--json", "--folder", place]);
    let said = finish_within(&mut command, LIMIT).ok();
    assert!(is_empty(folder.path()));
    let report: Value = serde_json::from_str(&said).unwrap();
    assert!(report["file_system"].is_string(), "{report}");
    report
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().next().is_none()
}

#[track_caller]
fn number(of: &Value, path: &str) -> f64 {
    let found = of.pointer(path).and_then(Value::as_f64);
    found.unwrap_or_else(|| panic!("no {path}: {of}"))
}

#[track_caller]
fn count(of: &Value, path: &str) -> u64 {
    let found = of.pointer(path).and_then(Value::as_u64);
    found.unwrap_or_else(|| panic!("no {path}: {of}"))
}

#[test]
fn each_relay_gets_one_copy_from_the_origin() {
    needs!(user_namespaces());
    let size = 3_000_000;
    let bytes = size.to_string();
    let report = report(&["relays", "--relays", "2", "--receivers", "4", "--bytes", &bytes]);
    assert_eq!((count(&report, "/relays"), count(&report, "/receivers")), (2, 4));
    // With the hashes of the pieces, and the overhead of the frames.
    let sent = count(&report, "/origin_bytes");
    assert!((2 * size..2 * size + size / 50).contains(&sent), "{report}");
    assert!(number(&report, "/receivers_seconds") >= number(&report, "/relays_seconds"));
}

#[test]
fn each_due_write_is_counted_once() {
    needs!(user_namespaces());
    let report = report(&["writes", "--rates", "40,80", "--settle", "100ms", "--length", "500ms"]);
    assert_eq!((count(&report, "/writers"), count(&report, "/bytes")), (64, 1_024));
    for (place, rate) in [(0, 40), (1, 80)] {
        let point = &report["points"][place];
        assert_eq!(count(point, "/rate"), rate);
        let due = count(point, "/due");
        assert_eq!(due, rate / 2, "{point}");
        let ends = ["/acknowledged", "/refused", "/unanswered"].map(|end| count(point, end));
        assert_eq!(ends.iter().sum::<u64>(), due, "{point}");
        assert_eq!(count(point, "/acknowledgement/count"), due, "{point}");
        assert_eq!(count(point, "/late/count"), due, "{point}");
        assert!(number(point, "/acknowledgement/p50_ms") > 0.0, "{point}");
        let holds = number(point, "/acknowledgement/p99_ms") <= 50.0;
        assert_eq!(point["holds"], holds, "{point}");
    }
    let held = |place: usize| report["points"][place]["holds"].as_bool().unwrap();
    let knee = match (held(0), held(1)) {
        (false, _) => Value::Null,
        (true, false) => 40.into(),
        (true, true) => 80.into(),
    };
    assert_eq!(report["knee"], knee, "{report}");
}

#[test]
fn each_replica_decodes_each_acknowledged_write() {
    needs!(user_namespaces());
    let report = report(&[
        "fan-out",
        "--replicas",
        "2,3",
        "--rates",
        "50",
        "--settle",
        "100ms",
        "--length",
        "400ms",
    ]);
    for (place, replicas) in [(0, 2), (1, 3)] {
        let point = &report["points"][place];
        assert_eq!((count(point, "/replicas"), count(point, "/rate")), (replicas, 50));
        // Those before the counted time are delivered, too.
        assert_eq!((count(point, "/due"), count(point, "/acknowledged")), (20, 20), "{point}");
        assert_eq!(count(point, "/delivered"), replicas * 25, "{point}");
        assert_eq!((count(point, "/undelivered"), count(point, "/decoded/count")), (0, 20));
        assert!(number(point, "/from_due/p50_ms") >= number(point, "/decoded/p50_ms"), "{point}");
        assert!(number(point, "/decoded/max_ms") > 0.0, "{point}");
        for cost in ["/write_cpu_us", "/all_cpu_us"] {
            assert!(number(point, cost) > 0.0, "{point}");
        }
        assert_eq!(count(&report, &format!("/knees/{place}/replicas")), replicas);
    }
}

#[test]
fn objects_are_announced_to_all_replicas_and_awaited() {
    needs!(user_namespaces());
    let report = report(&["memory", "--objects", "400", "--replicas", "3", "--bytes", "10000"]);
    assert_eq!((count(&report, "/objects"), count(&report, "/replicas")), (400, 3));
    assert_eq!(count(&report, "/delivered"), 1_200);
    // Bodies of up to 1 MiB are sent to each replica before the origin waits for it, and one more. The last of
    // them may be sent after the waiting ones were counted.
    let most_sent = 3 * ((1 << 20) / 10_000 + 1);
    let waiting = count(&report, "/waiting");
    assert!((1_200 - most_sent..=1_200).contains(&waiting), "{report}");
    assert!(count(&report, "/bodies") <= most_sent, "{report}");
    assert!(count(&report, "/most_resident_bytes") > 1 << 20, "{report}");
    assert!(report["start_seconds"].as_f64() > Some(0.0), "{report}");
}

#[test]
fn files_are_opened_equally_often_in_both_mounts() {
    needs!(fuse(), user_namespaces());
    let report =
        report(&["mount", "--files", "5", "--bytes", "100", "--opens", "50", "--turn", "20"]);
    for within in ["", "/one_processor"] {
        let all = ["measured", "beside", "plain"].map(|mount| format!("{within}/{mount}"));
        assert_eq!(all.each_ref().map(|mount| count(&report, &format!("{mount}/opens"))), [50; 3]);
        let medians = all.map(|mount| number(&report, &format!("{mount}/p50_us")));
        assert!(medians.iter().all(|median| *median > 0.0), "{report}");
        let ratio = number(&report, &format!("{within}/ratio"));
        assert!((ratio - medians[0] / medians[1]).abs() < 0.001, "{report}");
    }
}

#[test]
fn threads_stay_on_one_processor_and_are_released() {
    let allowed = || {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        line.unwrap().trim().to_owned()
    };
    let before = allowed();
    let last = before.rsplit([',', '-']).next().unwrap().to_owned();
    let (ask, asked) = channel::<()>();
    let (tell, told) = channel();
    let thread = thread::spawn(move || asked.iter().for_each(|()| tell.send(allowed()).unwrap()));
    let other = || {
        ask.send(()).unwrap();
        told.recv().unwrap()
    };
    assert_eq!(other(), before);
    let kept = OneProcessor::pin().unwrap();
    assert_eq!((allowed(), other()), (last.clone(), last));
    drop(kept);
    assert_eq!((allowed(), other()), (before.clone(), before));
    drop(ask);
    thread.join().unwrap();
}

#[test]
fn knee_is_printed_for_people() {
    needs!(user_namespaces());
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_str().unwrap();
    let most = ["--rates", "20", "--settle", "50ms", "--length", "200ms", "--within", "60s"];
    let said = finish(lull(&["lab", "speed", "writes", "--folder", place]).args(most)).ok();
    assert!(
        said.ends_with("knee: 20 writes/s or more, p99 is within 60000 ms at all rates\n"),
        "{said}"
    );
    let none = ["--rates", "20", "--settle", "50ms", "--length", "200ms", "--within", "1us"];
    let said =
        finish(lull(&["lab", "speed", "fan-out", "--replicas", "1", "--folder", place]).args(none));
    let said = said.ok();
    assert!(said.contains("knee with 1 replicas: below all of them"), "{said}");
}

/// Starts it, and sends it a signal in the middle. Nothing of it is left soon after.
fn interrupted(
    folder: &TempDir,
    arguments: &[&str],
    signal: (&str, i32),
    is_at_work: impl Fn(&Path, &str) -> bool,
) {
    let place = folder.path().to_str().unwrap();
    let mut command = lull(&["lab", "speed"]);
    command.args(arguments).args(["--folder", place]);
    let mut run = Kept::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()));
    let pid = run.pid();
    eventually_within(LIMIT, "work", || {
        let entry = fs::read_dir(folder.path()).unwrap().next();
        entry.is_some_and(|entry| is_at_work(&entry.unwrap().path(), &pid))
    });
    assert!(Command::new("kill").args([signal.0, &pid]).status().unwrap().success());
    eventually_within(SOON, "the end", || run.0.try_wait().unwrap().is_some());
    assert_eq!(run.0.wait().unwrap().code(), Some(128 + signal.1));
    assert!(is_empty(folder.path()));
}

#[test]
fn interrupted_speed_run_leaves_nothing() {
    needs!(user_namespaces());
    let folder = tempfile::tempdir().unwrap();
    let writes = ["writes", "--rates", "10", "--length", "3600s"];
    interrupted(&folder, &writes, INTERRUPT, |at, _| at.join("writes-10").exists());
    let memory = ["memory", "--objects", "100000000", "--replicas", "2"];
    interrupted(&folder, &memory, INTERRUPT, |at, _| at.join("memory/replica-1").exists());
}

/// The processes whose command lines contain these words.
fn processes(words: [&str; 2]) -> Vec<u32> {
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_one = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        words.iter().all(|word| line.contains(word))
    };
    pids.filter(is_one).collect()
}

#[test]
fn interrupted_mount_run_leaves_nothing() {
    needs!(fuse(), user_namespaces());
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_str().unwrap();
    let mount = ["mount", "--opens", "1000000000"];
    let begins = |at: &Path, _: &str| at.join("replica").exists();
    // Many files have been opened: at any moment one waits for an answer.
    let measures = |_: &Path, pid: &str| {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let process = Path::new("/proc").join(children.unwrap_or_default().trim());
        ["lull-mount", "fuser-"].iter().all(|name| reads(&process, name) > 1_000)
    };
    // If one process opens and answers, half of the signals are survived.
    let rounds = [INTERRUPT, TERMINATE].repeat(3);
    let rounds =
        rounds.into_iter().map(|signal| (signal, &measures as &dyn Fn(&Path, &str) -> bool));
    for (signal, is_at_work) in rounds.chain([(INTERRUPT, &begins as &dyn Fn(&Path, &str) -> bool)])
    {
        interrupted(&folder, &mount, signal, is_at_work);
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!table.contains(place), "{table}");
        assert_eq!(processes(["speed", place]), [0; 0]);
    }
}

/// The options of the mount at `path`, in the namespace of the mounting process: those of the mount, and
/// those of the file system.
fn options(process: &Path, path: &Path) -> Option<[BTreeSet<String>; 2]> {
    let table = fs::read_to_string(process.join("mountinfo")).ok()?;
    let mut lines = table.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let line = lines.find(|fields| fields.get(4) == path.to_str().as_ref())?;
    let set = |at: usize| line[at].split(',').map(str::to_owned).collect();
    Some([set(5), set(line.len() - 1)])
}

/// How often threads whose names have this prefix have read.
fn reads(process: &Path, name: &str) -> u64 {
    let threads = fs::read_dir(process.join("task")).into_iter().flatten().flatten();
    let of = |thread: fs::DirEntry| {
        let named = fs::read_to_string(thread.path().join("comm")).ok()?;
        let counts = fs::read_to_string(thread.path().join("io")).ok()?;
        let count = counts.lines().find_map(|line| line.strip_prefix("syscr: "))?;
        named.starts_with(name).then(|| count.parse::<u64>().unwrap())
    };
    threads.filter_map(of).sum()
}

#[test]
fn both_mounts_have_equal_options_and_ours_less_requests() {
    needs!(fuse(), user_namespaces());
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_str().unwrap();
    let mut command = lull(&["lab", "speed", "mount", "--files", "5", "--opens", "2000"]);
    command.args(["--turn", "1", "--folder", place]).stdout(Stdio::null());
    let mut run = Kept::spawn(&mut command);
    let mut seen = None;
    eventually_within(LIMIT, "the end", || {
        let pid = run.pid();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let process = Path::new("/proc").join(children.unwrap_or_default().trim());
        // One before and after the other: both are used meanwhile.
        let counts = ["lull-mount", "fuser-", "lull-mount"].map(|name| reads(&process, name));
        let scratch = fs::read_dir(folder.path()).unwrap().flatten().next();
        if let Some(scratch) = scratch.filter(|_| counts[0] > 1_000) {
            // If both are still there, so are all counted ones.
            let of = |name: &str| options(&process, &scratch.path().join(name));
            if let (Some(replica), Some(plain)) = (of("mount"), of("beside")) {
                seen = Some((replica, plain, counts));
            }
        }
        run.0.try_wait().unwrap().is_some()
    });
    let (replica, plain, [least, passed, most]) = seen.expect("it takes some time");
    assert_eq!(replica, plain);
    assert!(replica[1].contains("allow_other"), "{replica:?}");
    // Each open of the other one costs three requests. Names of a replica are cached by Linux 6.16 and later.
    let range = least * 9 / 10..=most * 2;
    assert!(range.contains(&passed), "{passed}, beside {least} to {most}");
}

#[test]
fn invalid_torture_options_are_rejected() {
    for (arguments, code, words) in [
        (&["writes", "--rates", "0"][..], 2, "0 is not in 1..=1000000"),
        (&["writes", "--length", "0s"], 2, "write a time above zero"),
        (&["fan-out", "--replicas", "0"], 2, "0 is not in 1..=10000"),
        (
            &["memory", "--folder", "/nowhere"],
            1,
            "`/nowhere` cannot be used: name another --folder",
        ),
    ] {
        finish(lull(&["lab", "speed"]).args(arguments)).fails(code, words);
    }
}
