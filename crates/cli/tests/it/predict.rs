//! `lull predict` from a user's view, on artificial and real logs.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{Kept, LULL, Said, eventually, finish};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

mod samples;

/// A folder with logs.
struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Bench { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).unwrap();
    }

    fn predict(&self, arguments: &[&str]) -> Said {
        self.fed(arguments, Stdio::null())
    }

    fn fed(&self, arguments: &[&str], input: impl Into<Stdio>) -> Said {
        let mut command = Command::new(LULL);
        command.arg("predict").args(arguments).current_dir(self.folder.path()).stdin(input);
        finish(&mut command)
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.predict(arguments).ok()).unwrap()
    }
}

fn line(second: u64, client: &str, target: &str) -> String {
    format!(
        "{client} - - [17/May/2015:{:02}:{:02}:{:02} +0000] \"GET {target} HTTP/1.1\" 200 4000 \"-\" \
         \"Mozilla/5.0 (X11)\"\n",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// Clients one after the other, a minute each, all on the same path.
fn walks(first: u64, clients: u64, path: &[&str]) -> String {
    let mut log = String::new();
    for client in first..first + clients {
        for (at, target) in path.iter().enumerate() {
            log += &line(60 * client + at as u64, &format!("192.0.2.{client}"), target);
        }
    }
    log
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::default());
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

const PATH: [&str; 4] = ["/", "/logo.png", "/docs/", "/docs/a.html"];

#[test]
fn model_is_trained_continued_and_explained() {
    let bench = Bench::new();
    let log = walks(0, 30, &PATH) + "nonsense\n" + &line(2_000, "192.0.2.99", "/own");
    bench.write("access.log", log.as_bytes());
    let shown = bench.predict(&["train", "--model", "site.model", "access.log"]).ok();
    for words in [
        "access.log: combined, 122 lines, 121 requests",
        "1 bad line: no client; line 121: nonsense",
        "learned from 121 visits",
        "site.model: new: 5 URLs, 4 of them public; 4 contexts",
    ] {
        assert!(shown.contains(words), "no '{words}' in {shown}");
    }
    // The file has no address, and no other file is beside it.
    let model = fs::read(bench.path("site.model")).unwrap();
    assert!(!model.windows(8).any(|window| window == b"192.0.2."));
    assert_eq!(fs::read_dir(bench.folder.path()).unwrap().count(), 2);

    let said = bench.json(&["explain", "--model", "site.model", "--json", "/"]);
    assert_eq!(said["contexts"][0]["pages"], 1, "{said}");
    let first = &said["suggested"][0];
    assert_eq!((&first["url"], &first["bytes"]), (&"/docs/".into(), &4000.into()), "{said}");
    assert!(first["probability"].as_f64().unwrap() > 0.8, "{said}");
    assert!(first["clients"].as_u64().unwrap() >= 5 && first["withheld"].is_null(), "{said}");
    for key in ["latency_saved_s", "priority_s_per_byte", "clients_from_here"] {
        assert!(first[key].is_number(), "{key}: {said}");
    }
    let shown = bench.predict(&["explain", "--model", "site.model", "http://site/", "/docs/"]).ok();
    for words in
        ["the last page: 30.0 recent visits", "suggested ", "/docs/a.html", "4.0 kB", " ms"]
    {
        assert!(shown.contains(words), "no '{words}' in {shown}");
    }
    let shown = bench.predict(&["explain", "--model", "site.model", "/nowhere"]).ok();
    assert!(shown.contains("/nowhere: no recent visits"), "{shown}");
    assert!(shown.contains("only the general popularity"), "{shown}");

    // The next day's log: from a pipe, and packed.
    bench.write("next.gz", &gzip(walks(60, 30, &["/docs/", "/new/"]).as_bytes()));
    let train = ["train", "--json", "--model", "site.model", "-"];
    let said = bench.fed(&train, File::open(bench.path("next.gz")).unwrap()).ok();
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&said["visits"], &said["model"]["continued"]), (&60.into(), &true.into()));
    assert_eq!((&said["model"]["urls"], &said["model"]["public_urls"]), (&6.into(), &5.into()));
    let said = bench.json(&["explain", "--model", "site.model", "--json", "/docs/"]);
    let suggested: Vec<&str> = said["suggested"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|one| one["url"].as_str())
        .collect();
    assert!(suggested.contains(&"/docs/a.html") && suggested.contains(&"/new/"), "{said}");

    let said = bench.json(&["train", "--fresh", "--json", "--model", "site.model", "next.gz"]);
    assert_eq!((&said["model"]["continued"], &said["model"]["urls"]), (&false.into(), &2.into()));
}

#[test]
fn log_from_process_substitution_is_read_whole() {
    let bench = Bench::new();
    // Longer than the part that is read to put logs into order.
    let day = walks(0, 250, &PATH).repeat(4);
    bench.write("a.log", day.as_bytes());
    bench.write("b.log", day.replace("17/May", "18/May").as_bytes());
    let by_shell = |script: &str| {
        let script = format!("exec {LULL} predict {script}");
        let mut command = Command::new("bash");
        command.args(["-c", &script]).current_dir(bench.folder.path());
        let said = finish(&mut command).ok();
        serde_json::from_str::<Value>(&said).unwrap()
    };
    let said = by_shell("train --json --model m <(cat b.log) <(gzip -c a.log)");
    assert_eq!(said["visits"], 8_000, "{said}");
    let said = by_shell("eval --json <(cat a.log)");
    assert_eq!(said["predictors"], bench.json(&["eval", "--json", "a.log"])["predictors"]);
}

#[test]
fn logs_learned_by_a_model_are_not_learned_again() {
    let bench = Bench::new();
    let train = ["train", "--json", "--model", "m", "access.log"];
    let learned = |arguments: &[&str]| {
        let said = bench.json(arguments);
        (said["visits"].as_u64().unwrap(), said["known_already"].as_u64().unwrap())
    };
    let (yesterday, today) = (walks(0, 30, &PATH), walks(60, 30, &PATH));
    bench.write("access.log", yesterday.as_bytes());
    assert_eq!(learned(&train), (120, 0));
    // The log has grown.
    bench.write("access.log", (yesterday + &today).as_bytes());
    assert_eq!(learned(&train), (120, 120));
    assert_eq!(learned(&train), (0, 240));
    let shown = bench.predict(&["train", "--model", "m", "access.log"]).ok();
    assert!(shown.contains("240 requests are not later than those that the model has"), "{shown}");
    let again = [&train[..], &["--again"]].concat();
    assert_eq!(learned(&again), (240, 0));
}

#[test]
fn one_of_several_sites_in_a_log_can_be_selected() {
    let bench = Bench::new();
    let of = |site: &str, path: &[&str]| -> String {
        walks(0, 30, path).lines().map(|line| format!("{site}:443 {line}\n")).collect()
    };
    let log = of("intranet.example", &["/", "/payroll"]) + &of("www.example", &["/", "/docs/"]);
    bench.write("log", log.as_bytes());
    let shown = bench.predict(&["train", "--model", "all", "log"]).ok();
    let sites = "  of several sites: intranet.example (60), www.example (60)\n";
    assert!(shown.contains(sites) && shown.contains("--site NAME skips the other"), "{shown}");
    let said = bench.json(&["train", "--json", "--model", "m", "--site", "www.example", "log"]);
    assert_eq!((&said["visits"], &said["logs"][0]["of_other_sites"]), (&60.into(), &60.into()));
    let said = bench.json(&["explain", "--json", "--model", "m", "/"]);
    assert_eq!(said["suggested"][0]["url"], "/docs/", "{said}");
    assert!(!said.to_string().contains("payroll"), "{said}");
    // A site without requests leaves nothing, and no model.
    let misspelt = ["train", "--model", "none", "--site", "ww.example", "log"];
    bench.predict(&misspelt).fails(
        1,
        "no request is for ww.example: the logs belong to other \
                                       sites",
    );
    assert!(!bench.path("none").exists());
}

#[test]
fn wrong_date_does_not_move_the_evaluation() {
    let bench = Bench::new();
    let log = walks(0, 240, &PATH);
    bench.write("right", log.as_bytes());
    let right = bench.json(&["eval", "--json", "right"]);
    let wrong = |year: &str| line(0, "192.0.2.250", "/").replace("2015", year);
    for year in ["1970", "2099"] {
        bench.write("wrong", format!("{log}{}", wrong(year)).as_bytes());
        let said = bench.json(&["eval", "--json", "wrong"]);
        let pages = |said: &Value| said["predictors"]["markov"]["pages"].as_u64().unwrap();
        // It may be from the last part itself.
        assert!((pages(&right)..=pages(&right) + 1).contains(&pages(&said)), "{year}: {said}");
        let rate = said["predictors"]["markov"]["page_hit_rate"].as_f64().unwrap();
        assert!((rate - 2.0 / 3.0).abs() < 0.01, "{year}: {rate}");
    }
}

#[test]
fn withheld_urls_are_reported_with_their_reason() {
    let bench = Bench::new();
    let log = walks(0, 30, &["/", "/docs/"])
        + &walks(30, 20, &["/blog/"])
        + &walks(50, 2, &["/", "/blog/"])
        + &walks(52, 1, &["/", "/own"])
        + &walks(53, 9, &["/docs/", "/", "/docs/"]);
    bench.write("access.log", log.as_bytes());
    bench.predict(&["train", "--model", "m", "access.log"]).ok();
    let reason = |said: &Value, url: &str| -> Option<String> {
        let all = said["withheld"].as_array().unwrap();
        let one = all.iter().find(|one| one["url"] == url)?;
        Some(one["withheld"].as_str().unwrap().to_owned())
    };
    let said = bench.json(&["explain", "--model", "m", "--json", "/docs/", "/"]);
    assert!(reason(&said, "/own").unwrap().starts_with("not public: 1 distinct client"), "{said}");
    assert_eq!(reason(&said, "/docs/").unwrap(), "the client has it", "{said}");
    let shown = bench.predict(&["explain", "--model", "m", "/docs/", "/"]).ok();
    assert!(shown.contains("not suggested") && shown.contains("5 are needed"), "{shown}");
}

#[test]
fn clients_are_counted_across_runs_only_with_one_key() {
    let clients = |arguments: &[&str]| {
        let bench = Bench::new();
        for client in 0..20 {
            bench.write("day", walks(client, 1, &["/page"]).as_bytes());
            bench.predict(&[&["train", "--model", "m", "day"], arguments].concat()).ok();
        }
        let said = bench.json(&["explain", "--model", "m", "--json", "/"]);
        assert_eq!(said["unknown"][0], "/");
        (said["suggested"].as_array().unwrap().len(), bench)
    };
    let (with_key, bench) = clients(&["--key", "secret"]);
    let mode = fs::metadata(bench.path("secret")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!((with_key, clients(&[]).0), (1, 0));
}

#[test]
fn unwritable_key_is_an_error() {
    let bench = Bench::new();
    bench.write("day", walks(0, 20, &["/page"]).as_bytes());
    // As on a full disk, files can be made here, but not filled.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$@\"", "sh", LULL, "predict", "train"]);
    command.args(["--model", "m", "--key", "secret", "day"]).current_dir(bench.folder.path());
    finish(&mut command).fails(1, "the key secret cannot be written");
    assert!(!bench.path("secret").exists() && !bench.path("m").exists());
    bench.predict(&["train", "--model", "m", "--key", "secret", "day"]).ok();
}

#[test]
fn killed_training_keeps_the_old_model() {
    let bench = Bench::new();
    bench.write("good", walks(0, 30, &PATH).as_bytes());
    bench.predict(&["train", "--model", "m", "good"]).ok();
    let before = fs::read(bench.path("m")).unwrap();
    let mut command = Command::new(LULL);
    command.args(["predict", "train", "--model", "m", "-"]).current_dir(bench.folder.path());
    let mut training = Kept::spawn(command.stdin(Stdio::piped()).stdout(Stdio::null()));
    let mut input = training.0.stdin.take().unwrap();
    input.write_all(walks(60, 5, &PATH).as_bytes()).unwrap();
    // Locks are listed by the inode of their file.
    let inode = format!(":{} ", fs::metadata(bench.path("m")).unwrap().ino());
    eventually("a lock of the model", || {
        fs::read_to_string("/proc/locks").unwrap().contains(&inode)
    });
    // A concurrent one would lose what the other learns.
    bench.predict(&["train", "--model", "m", "good"]).fails(1, "another program is writing it");
    training.0.kill().unwrap();
    training.0.wait().unwrap();
    assert_eq!(fs::read(bench.path("m")).unwrap(), before);
    let files = || fs::read_dir(bench.folder.path()).unwrap().count();
    assert_eq!(files(), 2, "the logs and the model");
    bench.write("next", walks(90, 30, &PATH).as_bytes());
    bench.predict(&["train", "--model", "m", "next"]).ok();
    assert_ne!(fs::read(bench.path("m")).unwrap(), before);
    assert_eq!(files(), 3);
}

#[test]
fn rotated_logs_are_read_in_time_order() {
    let bench = Bench::new();
    bench.write("access.log", b"");
    bench.write("access.log.1", walks(40, 20, &["/", "/c"]).as_bytes());
    bench.write("access.log.2.gz", &gzip(walks(0, 20, &["/", "/b"]).as_bytes()));
    let said = bench.json(&[
        "train",
        "--model",
        "m",
        "--json",
        "access.log",
        "access.log.1",
        "access.log.2.gz",
    ]);
    let logs: Vec<&str> =
        said["logs"].as_array().unwrap().iter().map(|log| log["log"].as_str().unwrap()).collect();
    assert_eq!(logs, ["access.log", "access.log.2.gz", "access.log.1"]);
    assert_eq!((&said["visits"], &said["logs"][0]["format"]), (&80.into(), &Value::Null));
}

#[test]
fn logs_of_several_servers_are_merged() {
    // One goes to / by one server, to /b by another, and so on. A wrong date delays nothing.
    let path = ["/", "/b", "/c", "/d"];
    let mut logs = [String::new(), String::new()];
    for client in 0..30 {
        for (at, target) in path.iter().enumerate() {
            let (address, second) = (format!("192.0.2.{client}"), 60 * client + at as u64);
            logs[at % 2] += &line(second, &address, target);
        }
        if client == 10 {
            logs[0] += &line(80_000, "198.51.100.1", "/");
        }
    }
    let bench = Bench::new();
    bench.write("one", logs[0].as_bytes());
    bench.write("two", &gzip(logs[1].as_bytes()));
    let said = bench.json(&["train", "--model", "m", "--json", "two", "one"]);
    let read: Vec<_> = (0..2).map(|log| &said["logs"][log]["requests"]).collect();
    assert_eq!((read, &said["visits"]), (vec![&61.into(), &60.into()], &121.into()), "{said}");
    let said = bench.json(&["explain", "--model", "m", "--json", "/c"]);
    assert_eq!(said["suggested"][0]["url"], "/d", "{said}");
    let said = bench.json(&["explain", "--model", "m", "--json", "/"]);
    let first = said["suggested"].as_array().unwrap();
    let of =
        |url: &str| first.iter().find(|one| one["url"] == url).unwrap()["probability"].as_f64();
    assert!(of("/b").unwrap() > 0.9, "{said}");
}

#[test]
fn unreadable_log_does_not_stop_the_others() {
    let bench = Bench::new();
    bench.write("late", ("starting up\n".repeat(500) + &walks(0, 20, &["/", "/b"])).as_bytes());
    bench.write("good", walks(30, 20, &["/", "/c"]).as_bytes());
    bench.write("nonsense", "no log\nat all\n".as_bytes());
    let train = ["train", "--model", "m", "--json", "late", "nonsense", "good"];
    let said = bench.json(&train);
    assert_eq!(said["visits"], 80, "{said}");
    let bad: Vec<&Value> = (0..3).map(|log| &said["logs"][log]["bad"][0]["lines"]).collect();
    assert_eq!(bad, [&Value::from(2), &500.into(), &Value::Null], "{said}");
    let shown = bench.predict(&["train", "--model", "m", "nonsense", "good"]).ok();
    assert!(shown.contains("nonsense has no usable line"), "{shown}");
    // The intact part of a damaged file is read, and only its whole lines.
    let log: String =
        (0..3_000).map(|at| line(at, &format!("10.{}.2.{}", at % 7, at % 251), "/")).collect();
    let packed = gzip(log.as_bytes());
    bench.write("cut.gz", &packed[..packed.len() / 2]);
    let said = bench.json(&["train", "--fresh", "--model", "m", "--json", "cut.gz", "good"]);
    let cut = said["logs"].as_array().unwrap().iter().find(|log| log["log"] == "cut.gz").unwrap();
    assert!(cut["damage"].is_string() && cut["bad"] == Value::Array(Vec::new()), "{cut}");
    assert!((100..3_000).contains(&cut["requests"].as_u64().unwrap()), "{cut}");
    let shown = bench.predict(&["train", "--fresh", "--model", "m", "cut.gz"]).ok();
    assert!(
        shown.contains("damaged after line") && shown.contains("copy the file again"),
        "{shown}"
    );
}

#[test]
fn predictors_are_measured_and_drawn() {
    let bench = Bench::new();
    bench.write("access.log", walks(0, 240, &PATH).as_bytes());
    let said = bench.json(&["eval", "--split", "0.5", "--json", "--plot", "p.svg", "access.log"]);
    let predictors = said["predictors"].as_object().unwrap();
    let mut names: Vec<&str> = predictors.keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["default", "markov", "ppm", "top_n"]);
    for (name, one) in predictors {
        for key in ["hit_rate", "precision", "recall", "wasted_bytes"] {
            assert!(one[key].is_number(), "{name} has no {key}: {one}");
        }
        // Each rate is between the ends of its interval.
        let headline = [&one["page_hit_rate"], &one["page_hit_interval"]];
        let equal = one["at_equal_bytes"].as_array().unwrap().iter();
        let equal = equal.map(|at| [&at["page_hit_rate"], &at["page_hit_interval"]]);
        for [rate, interval] in equal.chain([headline]) {
            let [rate, low, high] =
                [rate, &interval["low"], &interval["high"]].map(|one| one.as_f64().unwrap());
            assert!(low - 1e-9 <= rate && rate <= high + 1e-9, "{name}: {rate}, {interval}");
        }
        for point in one["by_length"].as_array().unwrap() {
            assert!(point["length"].is_u64() && point["hit_rate"].is_number(), "{point}");
        }
    }
    assert!(said["default_less_markov_interval"]["low"].is_number(), "{said}");
    // Of each walk's three pages and an image, the two pages after the first are predicted.
    let markov = &predictors["markov"];
    assert_eq!((&markov["recall"], &markov["hit_rate"]), (&1.0.into(), &0.5.into()), "{markov}");
    assert!((markov["page_hit_rate"].as_f64().unwrap() - 2.0 / 3.0).abs() < 1e-9, "{markov}");
    assert_eq!(markov["wasted_bytes"], 0, "{markov}");
    let grid = said["ppm_grid"].as_object().unwrap();
    for order in 1..=3 {
        for window in [1, 5, 10] {
            assert!(grid[&format!("{order}/{window}")]["hit_rate"].is_number());
        }
    }
    assert_eq!(grid["1/1"], predictors["markov"]);
    assert!(said["validation"]["predictors"]["default"]["hit_rate"].is_number());
    assert_eq!(said["slices"]["train"][1], 0.5);
    let svg = fs::read_to_string(bench.path("p.svg")).unwrap();
    for words in ["<svg", "default", "markov", "top-N", "PPM-2/10", "page hit rate", "kB"] {
        assert!(svg.contains(words), "no {words} in the plot");
    }
    // The same again, from a pipe and as text.
    let shown = bench.fed(&["eval", "-"], File::open(bench.path("access.log")).unwrap()).ok();
    for words in ["default", "PPM-3/10", "precision", "the last 33 % of the time"] {
        assert!(shown.contains(words), "no '{words}' in {shown}");
    }
    let again = bench.json(&["eval", "--json", "access.log"]);
    assert_eq!(again["predictors"], said["predictors"]);
}

#[test]
fn bad_input_is_reported_on_one_line_with_a_remedy() {
    let bench = Bench::new();
    let log = walks(0, 30, &PATH);
    bench.write("good", log.as_bytes());
    bench.write("nonsense", "no log\nat all\n".as_bytes());
    bench.write("empty", b"\n\n");
    bench.write("cut.gz", &gzip(log.as_bytes())[..12]);
    let mut archive = vec![b'a'; 1_024];
    archive[257..262].copy_from_slice(b"ustar");
    bench.write("a.tar", &archive);
    bench.write("one", line(1, "192.0.2.1", "/").as_bytes());
    let late = line(1, "192.0.2.1", "/") + &line(9, "192.0.2.1", "/a.png");
    bench.write("late", late.as_bytes());
    bench.predict(&["train", "--model", "model", "good"]).ok();
    let model = fs::read(bench.path("model")).unwrap();
    bench.write("short", &model[..model.len() - 3]);
    let mut damaged = model.clone();
    damaged[150] ^= 1;
    bench.write("damaged", &damaged);
    let mut newer = model.clone();
    newer[8] = 9;
    bench.write("newer", &newer);
    for (arguments, code, words) in [
        (&["train", "--model", "m", "missing"][..], 1, &["missing", "No such file"][..]),
        (&["train", "--model", "m", "."], 1, &["folder", "name the logs"]),
        (
            &["train", "--model", "m", "nonsense"],
            1,
            &["nonsense has no usable line", "no date", "--format"],
        ),
        (&["train", "--model", "m", "empty", "nonsense"], 1, &["nonsense", "line 1: no log"]),
        (&["train", "--model", "m", "empty"], 1, &["no request"]),
        (&["train", "--model", "m", "cut.gz"], 1, &["cut.gz cannot be unpacked", "copy it"]),
        (&["train", "--model", "m", "a.tar"], 1, &["a.tar is a tar archive", "tar -xOf a.tar"]),
        (&["train", "--model", "m", "--format", "$status", "good"], 2, &["no client", "%h"]),
        (&["train", "--model", "m", "--trusted-proxy", "x", "good"], 2, &["10.0.0.0/8"]),
        (&["train", "--model", "good", "good"], 1, &["good", "not a model", "another file"]),
        (&["train", "--fresh", "--model", "good", "good"], 1, &["good", "not a model"]),
        (&["train", "--model", "short", "good"], 1, &["short", "truncated", "--fresh"]),
        (&["train", "--model", "damaged", "good"], 1, &["damaged", "--fresh"]),
        (&["train", "--model", "newer", "good"], 1, &["version 9", "--fresh"]),
        (&["train", "--model", "nowhere/m", "good"], 1, &["nowhere/m"]),
        (&["train", "--model", "m", "--key", "good", "good"], 1, &["is not a key", "16 bytes"]),
        (&["train", "--model", "m", "-", "-"], 2, &["twice"]),
        (&["train", "good"], 2, &["--model"]),
        (&["train", "--model", "m"], 2, &["LOG"]),
        (&["eval", "missing"], 1, &["missing", "No such file"]),
        (&["eval", "nonsense"], 1, &["nonsense", "no date", "--format"]),
        (&["eval", "empty"], 1, &["no request"]),
        (&["eval", "one"], 1, &["one second", "more logs"]),
        (&["eval", "late"], 1, &["last part", "--split"]),
        (&["eval", "--split", "1.5", "good"], 2, &["1.5", "between 0 and 1"]),
        (&["eval", "--split", "-1", "good"], 2, &["-1", "between 0 and 1"]),
        (&["eval", "--split", "half", "good"], 2, &["half", "such as 0.5"]),
        (&["eval", "--plot", "nowhere/p.svg", "good"], 1, &["nowhere/p.svg"]),
        (&["explain", "--model", "missing", "/"], 1, &["no model missing", "lull predict train"]),
        (&["explain", "--model", "good", "/"], 1, &["is not a model"]),
        (&["explain", "--model", ".", "/"], 1, &["directory"]),
        (&["explain", "--model", "short", "/"], 1, &["truncated"]),
        (&["explain", "--model", "model", "docs"], 2, &["'docs'", "/docs"]),
        (&["explain", "--model", "model", "/logo.png"], 2, &["a part of pages"]),
        (&["explain", "--model", "model"], 2, &["URL"]),
    ] {
        let said = bench.predict(arguments);
        for word in words {
            said.fails(code, word);
        }
        assert_eq!(said.out, "", "{arguments:?}");
    }
    // Failed commands made and changed nothing.
    assert!(!bench.path("m").exists());
    assert_eq!(fs::read_to_string(bench.path("good")).unwrap(), log);
    assert_eq!(fs::read(bench.path("short")).unwrap(), &model[..model.len() - 3]);
}

#[test]
fn log_cannot_send_control_codes_to_the_terminal() {
    let bench = Bench::new();
    let evil = r#"{"ts":1431857100,"remote_addr":"192.0.2.%","request":"GET /\u001b[2J HTTP/1.1","status":200}"#;
    let log: String = (0..30).map(|n| evil.replace('%', &n.to_string()) + "\n").collect();
    bench.write("log", (log + "\u{1b}[31m not JSON\n").as_bytes());
    let shown = bench.predict(&["train", "--model", "m", "log"]).ok()
        + &bench.predict(&["explain", "--model", "m", "/x"]).ok();
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
    assert!(shown.contains("/\\u{1b}[2J"), "{shown}");
}

#[test]
fn report_help_has_examples() {
    for command in ["train", "eval", "explain"] {
        let shown = Bench::new().predict(&[command, "--help"]).ok();
        for words in ["Examples:", "--json", "exit code"] {
            assert!(shown.contains(words), "{command}: no {words} in {shown}");
        }
    }
}

/// A file of the folders beside this checkout or one around it.
fn shared(folder: &str, name: &str) -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = here.ancestors().map(|above| above.join("shared").join(folder).join(name));
    folders.find(|path| path.is_file())
}

fn data(name: &str) -> Option<PathBuf> {
    shared("data", name)
}

#[test]
fn real_logs_give_hit_rates_above_the_baselines() {
    let bench = Bench::new();
    // At 1, 2, 5, 10, 20, 50 and 100 kB prefetched per page the default is at or above all baselines.
    for (name, requests, page) in [
        ("nasa-1995-08-01.clf.gz", 30_969, "/shuttle/missions/missions.html"),
        ("semicomplete-2015-05.combined.gz", 10_000, "/projects/xdotool/"),
    ] {
        // The logs are not part of the project, so not every machine has them.
        let Some(path) = data(name) else {
            lull_testing::skip(
                "real_logs_give_hit_rates_above_the_baselines",
                &format!("no {name} beside the tree"),
            );
            continue;
        };
        let path = path.to_str().unwrap();
        let said = bench.json(&["train", "--fresh", "--json", "--model", "m", path]);
        assert_eq!(said["logs"][0]["requests"], requests, "{said}");
        let said = bench.json(&["explain", "--model", "m", "--json", page]);
        assert!(!said["suggested"].as_array().unwrap().is_empty(), "{said}");
        let said = bench.json(&["eval", "--split", "0.5", "--json", path]);
        let rates = |one: &Value| -> Vec<f64> {
            let equal = one["at_equal_bytes"].as_array().unwrap().iter();
            equal.map(|at| at["page_hit_rate"].as_f64().unwrap()).collect()
        };
        let default = rates(&said["predictors"]["default"]);
        assert_eq!(default.len(), 7);
        let grid = said["ppm_grid"].as_object().unwrap().iter();
        let top_n = ("top-N".to_owned(), said["predictors"]["top_n"].clone());
        for (baseline, one) in grid.map(|(name, one)| (name.clone(), one.clone())).chain([top_n]) {
            for (own, other) in default.iter().zip(rates(&one)) {
                assert!(*own >= other, "{baseline} has {other}: {name}, {default:?}");
            }
        }
    }
}
