//! A Chromium under a test's control, by `driver.mjs`.
#![allow(dead_code)]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lull_testing::Missing;
use serde_json::{Value, json};

/// How long a test waits for a required event.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The requests of the present page.
const REQUESTS: &str = "performance.getEntriesByType('resource').map(one =>
    [one.name, one.initiatorType, one.responseStatus, one.startTime, one.duration].join(' '))";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser")
}

/// Whether all requirements are met.
pub(crate) fn installed() -> Result<(), Missing> {
    lull_testing::command("chromium")?;
    lull_testing::command("node")?;
    if folder().join("node_modules/playwright-core").exists() {
        Ok(())
    } else {
        Err(Missing::new("no playwright-core: scripts/setup.sh test installs it"))
    }
}

/// One browser with a separate profile. It ends with its input.
pub(crate) struct Chromium {
    driver: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    _profile: tempfile::TempDir,
}

impl Chromium {
    pub(crate) fn start() -> Self {
        Self::with(None)
    }

    /// One with another user agent, in service workers, too.
    pub(crate) fn called(agent: &str) -> Self {
        Self::with(Some(format!("--user-agent={agent}")))
    }

    /// One that trusts the self-signed certificate in a file.
    pub(crate) fn trusting(certificate: &Path) -> Self {
        Self::with(Some(format!("--trust={}", certificate.display())))
    }

    /// One with this experimental feature.
    pub(crate) fn with_feature(feature: &str) -> Self {
        Self::with(Some(format!("--enable-blink-features={feature}")))
    }

    fn with(argument: Option<String>) -> Self {
        let profile = tempfile::tempdir().unwrap();
        let mut driver = Command::new("node")
            .arg(folder().join("driver.mjs"))
            .arg("/usr/bin/chromium")
            .arg(profile.path())
            .args(argument)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = driver.stdin.take();
        let output = BufReader::new(driver.stdout.take().unwrap());
        let mut chromium = Chromium { driver, input, output, _profile: profile };
        assert_eq!(chromium.answer(), "ready");
        chromium
    }

    pub(crate) fn goto(&mut self, url: &str) {
        self.say(&json!({ "goto": url }));
    }

    /// Clicks, and waits until that has led to `url`.
    pub(crate) fn click(&mut self, selector: &str, url: &str) {
        self.say(&json!({ "click": selector, "to": url }));
    }

    /// Makes a visitor request the monitored page, a full URL, if its own probes have had no result since
    /// `begun` for a while.
    ///
    /// They may take one percent of the time, and a visitor's request costs nothing. On a busy machine the
    /// first probes can take half a second each: then there is no budget for longer than a page continues to
    /// ask.
    pub(crate) fn go_on(&mut self, begun: Instant, page: &str) {
        if begun.elapsed() > Duration::from_secs(5) {
            let ask = format!("fetch('{page}', {{mode: 'no-cors', cache: 'no-store'}})");
            self.run(&format!("{ask}.then(() => 0, () => 0)"));
            thread::sleep(Duration::from_millis(250));
        }
    }

    /// Goes back in the history of the tab.
    pub(crate) fn back(&mut self) {
        self.say(&json!({ "back": true }));
    }

    /// Reloads the present page.
    pub(crate) fn reload(&mut self) {
        self.say(&json!({ "reload": true }));
    }

    /// The value of an expression in the current page.
    pub(crate) fn run(&mut self, expression: &str) -> Value {
        self.say(&json!({ "run": expression }))
    }

    /// Waits until an expression is true in the current page.
    ///
    /// # Panics
    /// If it is still false after [`TIMEOUT`].
    pub(crate) fn wait_until(&mut self, expression: &str) {
        let begun = Instant::now();
        while self.run(expression) != true {
            if begun.elapsed() > TIMEOUT {
                let requests = self.run(REQUESTS);
                panic!("never true: {expression}; requests of the page: {requests:#}");
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the script of the current page has a complete copy of `path`, and the answer whether the
    /// page may use it. A visitor with cookies confirms each copy by a second request
    /// (docs/prefetch-safety.md).
    pub(crate) fn wait_for_copy(&mut self, path: &str) {
        self.wait_until(&format!(
            "performance.getEntriesByType('resource').filter(one => one.initiatorType === 'fetch'
                && one.name === location.origin + '{path}').length > (document.cookie ? 1 : 0)"
        ));
    }

    /// Waits until the script of the current page has a list of hints.
    pub(crate) fn wait_for_hints(&mut self) {
        self.wait_until(
            "performance.getEntriesByName(location.origin + '/.lull/hints').length > 0",
        );
    }

    /// Runs a script before those of every following page.
    pub(crate) fn before(&mut self, script: &str) {
        self.say(&json!({ "before": script }));
    }

    /// Calls a method of the browser's developer tools.
    pub(crate) fn devtools(&mut self, method: &str, parameters: Value) {
        self.say(&json!({ "devtools": method, "with": parameters }));
    }

    fn say(&mut self, command: &Value) -> Value {
        let input = self.input.as_mut().expect("it is open until the drop");
        writeln!(input, "{command}").unwrap();
        self.answer()
    }

    fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).expect("the driver answers in JSON");
        assert!(answer.get("error").is_none(), "{answer}");
        answer["value"].clone()
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.driver.wait();
    }
}
