//! The simulated visitors of the plan `web-browsers`, `crates/lab/browser`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lull_testing::{Missing, command, needs, root};
use serde_json::Value;
use tempfile::TempDir;

/// Three pages that link to each other; all have a picture, and a closed menu that leads to the first.
const PAGES: [(&str, &[&str]); 3] = [
    ("index.html", &["a/one.html", "a/two.html", "https://elsewhere.example/one.html"]),
    ("a/one.html", &["../index.html", "two.html#part", "missing.html"]),
    ("a/two.html", &["/a/one.html"]),
];

fn browser() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("browser")
}

/// A folder with the site.
fn site() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("a")).unwrap();
    for (name, links) in PAGES {
        let links = links.iter().map(|link| format!("<p><a href=\"{link}\">{link}</a></p>"));
        let text = format!(
            "<!doctype html><html><body><img src=\"/dot.svg\">\
             <details><a href=\"/index.html\">home</a></details>{}</body></html>",
            links.collect::<String>()
        );
        fs::write(folder.path().join(name), text).unwrap();
    }
    fs::write(folder.path().join("dot.svg"), "<svg xmlns=\"http://www.w3.org/2000/svg\"/>")
        .unwrap();
    folder
}

/// The requests of 30 visitors: address, path and referer of each.
fn log(site: &Path, seed: u32) -> Vec<[String; 3]> {
    let output = Command::new("node")
        .arg(browser().join("log.mjs"))
        .arg(site)
        .args(["30", &seed.to_string()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let field =
        |line: &str, at: usize| line.split(' ').nth(at).unwrap().trim_matches('"').to_owned();
    text.lines().map(|line| [field(line, 0), field(line, 6), field(line, 10)]).collect()
}

#[test]
fn visitors_follow_links_and_fetch_each_part_once() {
    needs!(command("node"));
    let site = site();
    let requests = log(site.path(), 1);
    let mut links: BTreeMap<&str, &[&str]> = BTreeMap::new();
    links.insert("/index.html", &["/a/one.html", "/a/two.html"]);
    links.insert("/a/one.html", &["/index.html", "/a/two.html"]);
    // The script does not know that this menu is closed.
    links.insert("/a/two.html", &["/a/one.html", "/index.html"]);
    let mut dots: BTreeMap<&str, u32> = BTreeMap::new();
    let mut clicks = 0;
    for [address, path, referer] in &requests {
        if path == "/dot.svg" {
            *dots.entry(address.as_str()).or_default() += 1;
        } else if referer != "-" {
            assert!(links[referer.as_str()].contains(&path.as_str()), "{referer} → {path}");
            clicks += 1;
        }
    }
    // Three pages: visitors who stay for long read pages again that the browser has cached.
    assert!(clicks > 30, "{clicks} of 30 visitors");
    let visitors: BTreeSet<&str> = requests.iter().map(|[address, ..]| address.as_str()).collect();
    assert_eq!(visitors.len(), 30);
    assert!(dots.len() == 30 && dots.values().all(|&count| count == 1), "{dots:?}");
}

#[test]
fn visitors_depend_on_the_seed_alone() {
    needs!(command("node"));
    let site = site();
    assert_eq!(log(site.path(), 1), log(site.path(), 1));
    assert_ne!(log(site.path(), 1), log(site.path(), 1000));
}

fn installed(name: &str) -> Result<(), Missing> {
    if browser().join("node_modules").join(name).exists() {
        Ok(())
    } else {
        Err(Missing::new(format!("no {name}: scripts/setup.sh test installs it")))
    }
}

/// A program in its own network namespace, with its children. It ends with this.
struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn visitors_in_chromium_find_pages_fetched_by_quicklink() {
    needs!(root(), command("unshare"), command("nginx"), command("chromium"), command("node"));
    needs!(installed("quicklink"), installed("playwright-core"));
    let site = site();
    let scratch = tempfile::tempdir().unwrap();
    let archive = scratch.path().join("site.tar.zst");
    let mut pack = Command::new("tar");
    pack.arg("--zstd").arg("-cf").arg(&archive).arg("-C").arg(site.path()).arg(".");
    assert!(pack.status().unwrap().success());
    // The ports are those of the plan, so this needs its own network; all processes in it end together.
    let script = r#"
        ip link set lo up
        node "$1/serve.mjs" quicklink "$2" & server=$!
        node "$1/visit.mjs" http://127.0.0.1:8080 "$3" 6 1 8
        status=$?
        kill $server
        exit $status
    "#;
    let child = Command::new("unshare")
        .args(["--net", "--pid", "--fork", "--kill-child", "sh", "-c", script, "sh"])
        .arg(browser())
        .arg(&archive)
        .arg(site.path())
        .env("LULL_SCRATCH", scratch.path())
        .env("LULL_HURRY", "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut served = Served(child);
    let mut output = served.0.stdout.take().unwrap();
    let reading = thread::spawn(move || {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut output, &mut text).map(|_| text)
    });
    let begun = Instant::now();
    while !reading.is_finished() {
        assert!(begun.elapsed() < Duration::from_secs(240), "visitors do not end");
        thread::sleep(Duration::from_millis(50));
    }
    let said: Value = serde_json::from_str(&reading.join().unwrap().unwrap()).unwrap();
    let navigations = said["navigations"].as_array().unwrap();
    assert_eq!((&said["done"], navigations.len()), (&6.into(), 6), "{said}");
    // Links in a closed menu cannot be clicked.
    assert_eq!(said["links"], 5, "{said}");
    let ahead = said["nginx"]["ahead"]["pages"].as_u64().unwrap();
    assert!(ahead >= said["hit"]["count"].as_u64().unwrap(), "{said}");
    // Each page shows all of its links, so quicklink has fetched all pages that were read long enough.
    assert!(said["hit"]["count"].as_u64().unwrap_or(0) >= 1, "{said}");
    assert!(said["all"]["load"]["p50_ms"].as_f64().unwrap() > 0.0, "{said}");
}
