//! A full disk affects neither visitors nor saved data.

use std::path::PathBuf;

use tempfile::TempDir;

use super::*;
use crate::support::LULL;

/// A disk in memory, in a separate mount namespace: it ends with the process that holds it.
struct SmallDisk {
    folder: TempDir,
    holder: Kept,
}

impl SmallDisk {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let script = "mount -t tmpfs -o size=64k lull-test \"$1\" && echo ready && exec cat";
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]);
        command.arg(folder.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = Kept::spawn(&mut command);
        let mut said = BufReader::new(holder.0.stdout.take().unwrap()).lines();
        assert_eq!(said.next().unwrap().unwrap(), "ready");
        SmallDisk { folder, holder }
    }

    /// `lull` in the namespace with the disk.
    fn lull(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--user", "--preserve-credentials", "--mount", "--target"]);
        command.args([&self.holder.pid(), "--", LULL]).stdin(Stdio::null());
        command
    }

    /// A file by its name for `lull`.
    fn name(&self, file: &str) -> String {
        self.folder.path().join(file).to_str().unwrap().to_owned()
    }

    /// Its path from outside.
    fn path(&self, file: &str) -> PathBuf {
        format!("/proc/{}/root{}", self.holder.pid(), self.name(file)).into()
    }

    fn read(&self, file: &str) -> Vec<u8> {
        fs::read(self.path(file)).unwrap()
    }

    /// Leaves no space except at the ends of files.
    fn fill(&self) {
        let error = fs::write(self.path("ballast"), vec![0; 1 << 20]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    }

    fn free(&self) {
        fs::remove_file(self.path("ballast")).unwrap();
    }
}

#[test]
fn log_on_a_full_disk_continues_with_whole_lines() {
    lull_testing::needs!(lull_testing::user_namespaces());
    let disk = SmallDisk::start();
    let log = disk.name("access.log");
    let mut web =
        Web::by(&mut disk.lull(), &upstream(Duration::ZERO), &["--plain", "--access-log", &log]);
    let is_logged = |path: &str| String::from_utf8(disk.read("access.log")).unwrap().contains(path);
    for round in 0..2 {
        let (before, full) = (format!("/before-{round}"), format!("/full-{}", "x".repeat(400)));
        web.get(&before);
        support::eventually("a line", || is_logged(&before));
        disk.fill();
        // More than fits into the last page of the log, and longer than lines wait for each other.
        for _ in 0..40 {
            assert!(web.get(&full).ends_with("ok"));
            thread::sleep(Duration::from_millis(20));
        }
        let lost = web.wait_for("log-lost");
        assert!(lost["why"].as_str().unwrap().contains("No space left"), "{lost}");
        disk.free();
        // Data that wait for the next attempt may still be lost with it.
        thread::sleep(Duration::from_millis(300));
        let after = format!("/after-{round}");
        web.get(&after);
        support::eventually("a line again", || is_logged(&after));
    }
    web.signal("-TERM");
    let told = web.rest();
    assert!(told.iter().all(|event| event["event"] != "log-lost"), "{told:?}");
    assert!(web.process.0.wait().unwrap().success());
    let text = String::from_utf8(disk.read("access.log")).unwrap();
    let is_whole = |line: &&str| line.starts_with("127.0.0.1 - - [") && line.ends_with(" \"-\"");
    let halves: Vec<_> = text.lines().filter(|line| !is_whole(line)).collect();
    // The line at which the space ended, each time.
    assert!(halves.len() <= 2 && halves.iter().all(|line| line.contains("127.")), "{halves:?}");
    for round in 0..2 {
        for path in [format!("/before-{round} "), format!("/after-{round} ")] {
            assert!(text.lines().any(|line| is_whole(&line) && line.contains(&path)), "{path}");
        }
    }
}

#[test]
fn model_without_disk_space_is_kept_until_there_is_some() {
    lull_testing::needs!(lull_testing::user_namespaces());
    let (disk, upstream) = (SmallDisk::start(), upstream(Duration::ZERO));
    let logs = tempfile::tempdir().unwrap();
    let path = |name: &str| logs.path().join(name).to_str().unwrap().to_owned();
    let model = disk.name("site.model");
    let start =
        |log: &str| Web::by(&mut disk.lull(), &upstream, &["--model", &model, "--log", &path(log)]);
    fs::write(path("first.log"), log()).unwrap();
    fs::write(path("second.log"), log_of(8, ["/b", "/c"])).unwrap();
    let web = start("first.log");
    support::eventually("a model", || disk.path("site.model").exists());
    drop(web);
    let first = disk.read("site.model");

    disk.fill();
    for has_room_at_the_end in [false, true] {
        let mut web = start("second.log");
        web.wait_for("learned");
        let unsaved = web.wait_for("model-unsaved");
        let why = unsaved["why"].as_str().unwrap();
        assert!(why.contains("site.model") && why.contains("No space left"), "{why}");
        assert!(web.get("/").ends_with("ok"));
        assert_eq!(disk.read("site.model"), first);
        if has_room_at_the_end {
            disk.free();
        }
        web.signal("-TERM");
        let told = web.rest();
        assert!(told.iter().all(|event| event["event"] != "model-unsaved"), "{told:?}");
        assert!(web.process.0.wait().unwrap().success());
        assert_eq!(disk.read("site.model") == first, !has_room_at_the_end);
    }
    // And nothing else is left there.
    assert_eq!(fs::read_dir(disk.path("")).unwrap().count(), 1);
    let web =
        Web::by(&mut disk.lull(), &upstream, &["--model", &model, "--control-group-share", "0"]);
    until_hinted(&web, "/a", "/b");
    until_hinted(&web, "/b", "/c");
}
