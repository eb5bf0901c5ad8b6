//! The tutorials in docs/tutorials, run as published: each block of commands is run, and the shown output
//! must appear.
//!
//! A block is marked `sh`. With `sh,terminal-N` it runs in a separate terminal, until the tutorial has ended.
//! With `sh,example` it is not run. A block `text` shows lines of the output of the block before it; `…` is
//! any text.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use lull_testing::{bpf, command, needs};

use crate::support::{LULL, finish_within};

const LIMIT: Duration = Duration::from_secs(120);

/// Functions for the script of a tutorial. `shows OUTPUT PATTERNS` waits until each pattern is a line of the
/// output. `started SOCKETS` waits until the sockets change: the program in the other terminal listens or has
/// connected, as a reader would notice.
const FUNCTIONS: &str = r#"
set -u
ip link set lo up
fail() { echo "FAILED: $*"; exit 1; }
sockets() { ss --tcp --all --numeric --no-header; }
started() {
    for _ in $(seq 600); do
        [ "$(sockets)" != "$1" ] && break
        sleep 0.1
    done
    sleep 0.5
}
has_all() {
    while IFS= read -r pattern; do
        grep -Eqx -- "$pattern" "$1" || return 1
    done <"$2"
}
shows() {
    for _ in $(seq 400); do
        has_all "$1" "$2" && return
        sleep 0.2
    done
    echo "expected:"; cat "$2"; echo "but the output is:"; cat "$1"; fail "$1 does not show it"
}
"#;

/// The fenced blocks of a page: their marks, and their text.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    page.split("\n```").skip(1).step_by(2).filter_map(|block| block.split_once('\n')).collect()
}

/// The script of a page, in the folder `out` for outputs.
fn script(page: &str, out: &Path) -> String {
    let mut script = FUNCTIONS.to_owned();
    let mut last = String::new();
    for (number, (mark, text)) in blocks(page).into_iter().enumerate() {
        let file = out.join(format!("block-{number}")).display().to_string();
        match mark {
            "sh" => {
                let _ = write!(
                    script,
                    "{{\n{text}\n}} >{file} 2>&1 || {{ cat {file}; fail block {number}; }}\n"
                );
                last = file;
            }
            "sh,example" => {}
            "text" => {
                fs::write(&file, patterns(text)).unwrap();
                let _ = writeln!(script, "shows {last} {file}");
            }
            other if other.starts_with("sh,terminal-") => {
                let _ = write!(
                    script,
                    "before=$(sockets)\n(\n{text}\n) >{file} 2>&1 &\nstarted \"$before\"\n"
                );
                last = file;
            }
            other => panic!("a block is marked {other}"),
        }
    }
    script + "kill $(jobs -p) 2>/dev/null\necho DONE\n"
}

/// Lines of output as regular expressions.
fn patterns(text: &str) -> String {
    let line = |line: &str| {
        let escape = |c: char| match c {
            '…' => ".*".to_owned(),
            c if r"\.*+?^$()[]{}|".contains(c) => format!("\\{c}"),
            c => c.to_string(),
        };
        line.chars().map(escape).collect::<String>() + "\n"
    };
    text.lines().map(line).collect()
}

/// Runs a tutorial in a separate folder and network.
fn done(name: &str) {
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tutorials");
    let page = fs::read_to_string(pages.join(name)).unwrap();
    let home = tempfile::tempdir().unwrap();
    let out = tempfile::tempdir().unwrap();
    let bin = tempfile::tempdir().unwrap();
    // The test is root already. Other effects of `sudo` are not part of the tutorial.
    fs::write(bin.path().join("sudo"), "#!/bin/sh\nexec \"$@\"\n").unwrap();
    Command::new("chmod").arg("755").arg(bin.path().join("sudo")).status().unwrap();
    let beside = Path::new(LULL).parent().unwrap().display();
    let path = format!("{}:{beside}:{}", bin.path().display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("unshare");
    command
        .args(["--net", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .args(["bash", "-c", &script(&page, out.path())])
        .env("PATH", path)
        .env("HOME", home.path())
        .current_dir(home.path())
        .stdin(Stdio::null());
    let said = finish_within(&mut command, LIMIT);
    assert!(said.out.ends_with("DONE\n"), "{name}: {}{}", said.out, said.err);
    let left: Vec<_> =
        fs::read_dir(home.path()).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(left.is_empty(), "{name} leaves {left:?}");
}

#[test]
fn tutorial_first_backup_works_word_by_word() {
    needs!(bpf(), command("rsync"), command("ss"));
    done("first-backup.md");
}

#[test]
fn tutorial_first_site_works_word_by_word() {
    needs!(lull_testing::root(), command("python3"), command("curl"), command("ss"));
    done("first-site.md");
}

#[test]
fn tutorial_first_replica_works_word_by_word() {
    needs!(lull_testing::root(), command("curl"), command("ss"));
    done("first-replica.md");
}

#[test]
fn failing_tutorial_is_found() {
    needs!(lull_testing::root());
    let out = tempfile::tempdir().unwrap();
    for (page, fails) in [
        ("\n```sh\necho one two\n```\n\n```text\none …\n```\n", false),
        ("\n```sh\nfalse\n```\n", true),
        ("\n```sh,example\nfalse\n```\n", false),
    ] {
        let mut command = Command::new("unshare");
        command.args(["--net", "bash", "-c", &script(page, out.path())]).stdin(Stdio::null());
        let said = finish_within(&mut command, LIMIT);
        assert_eq!(said.out.ends_with("DONE\n"), !fails, "{page}: {}", said.out);
    }
    assert_eq!(patterns("a.b …\n"), "a\\.b .*\n");
}
