//! A Chromium that does what a test says, by `driver.mjs`.
#![allow(dead_code)]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lull_testing::Missing;
use serde_json::{Value, json};

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(120);
/// What the page at hand has requested.
const REQUESTS: &str = "performance.getEntriesByType('resource').map(one =>
    [one.name, one.initiatorType, one.responseStatus, one.startTime, one.duration].join(' '))";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser")
}

/// Whether there is all that it takes.
pub(crate) fn installed() -> Result<(), Missing> {
    lull_testing::command("chromium")?;
    lull_testing::command("node")?;
    if folder().join("node_modules/playwright-core").exists() {
        Ok(())
    } else {
        Err(Missing::new("no playwright-core: scripts/setup.sh test installs it"))
    }
}

/// One browser with a profile of its own. It ends with its input.
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

    /// One that calls itself by another user agent, in service workers, too.
    pub(crate) fn called(agent: &str) -> Self {
        Self::with(Some(format!("--user-agent={agent}")))
    }

    /// One that takes a certificate, in a file, as if somebody had signed it.
    pub(crate) fn trusting(certificate: &Path) -> Self {
        Self::with(Some(format!("--trust={}", certificate.display())))
    }

    /// One with this feature that is not for everybody yet.
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

    /// Has a visitor ask for the page that the monitor asks for, a whole URL, if nothing has come of its own
    /// questions since `begun` for a while.
    ///
    /// They may take a hundredth of the time, and what a visitor's take costs nothing. On a busy machine the first
    /// ones can take half a second each: then there is no budget for longer than a page goes on asking.
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

    /// Loads the page at hand anew.
    pub(crate) fn reload(&mut self) {
        self.say(&json!({ "reload": true }));
    }

    /// The value of an expression in the page at hand.
    pub(crate) fn run(&mut self, expression: &str) -> Value {
        self.say(&json!({ "run": expression }))
    }

    /// Waits until an expression is true in the page at hand.
    ///
    /// # Panics
    /// If it is still false after [`PATIENCE`].
    pub(crate) fn wait_until(&mut self, expression: &str) {
        let begun = Instant::now();
        while self.run(expression) != true {
            if begun.elapsed() > PATIENCE {
                let requests = self.run(REQUESTS);
                panic!("never true: {expression}; requests of the page: {requests:#}");
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the script of the page at hand has a complete copy of `path`, and the answer whether the page may use
    /// it: a visitor with cookies confirms each copy by a second request (docs/prefetch-safety.md).
    pub(crate) fn wait_for_copy(&mut self, path: &str) {
        self.wait_until(&format!(
            "performance.getEntriesByType('resource').filter(one => one.initiatorType === 'fetch'
                && one.name === location.origin + '{path}').length > (document.cookie ? 1 : 0)"
        ));
    }

    /// Waits until the script of the page at hand has a list of hints.
    pub(crate) fn wait_for_hints(&mut self) {
        self.wait_until(
            "performance.getEntriesByName(location.origin + '/.lull/hints').length > 0",
        );
    }

    /// Runs a script before those of every page to come.
    pub(crate) fn before(&mut self, script: &str) {
        self.say(&json!({ "before": script }));
    }

    /// Does what the developer tools of the browser can do to a page.
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
