//! The browser's scripts in their served form: minified from `script/` by `script/build.mjs`.

use std::io::Write as _;
use std::sync::LazyLock;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};

use crate::protocol::WORKER_PATH;

/// The script of pages, with the two ways to prefetch a page.
const BY_FETCH: &str = include_str!("../script/served/by-fetch.js");
const BY_WORKER: &str = include_str!("../script/served/by-worker.js");
/// The service worker.
const WORKER: &str = include_str!("../script/served/worker.js");

/// Its name is derived from its contents, so it may be cached permanently.
pub const CACHE_CONTROL: &str = "public, max-age=31536000, immutable";
/// The service worker's name does not: browsers request it again after each navigation.
pub const WORKER_CACHE_CONTROL: &str = "no-cache";
/// Its media type.
pub const CONTENT_TYPE: &str = "text/javascript; charset=utf-8";

/// The script, with the data of its tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// The served bytes.
    pub body: String,
    /// The same, compressed by gzip.
    pub packed: Bytes,
    /// The path, which no other version has.
    pub path: String,
    /// `sha256-…`, as in the tag's `integrity` and, in quotes, in a content security policy.
    pub integrity: String,
    /// Whether it leaves the rest to a service worker.
    pub by_worker: bool,
}

impl Script {
    fn of(body: String) -> Self {
        let digest: [u8; 32] = Sha256::digest(body.as_bytes()).into();
        let name: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Script {
            packed: packed(body.as_bytes(), Compression::best()),
            body,
            path: format!("/.lull/lull-{name}.js"),
            integrity: format!("sha256-{}", STANDARD.encode(digest)),
            by_worker: false,
        }
    }
}

/// The same in gzip.
pub(crate) fn packed(body: &[u8], level: Compression) -> Bytes {
    let mut packed = GzEncoder::new(Vec::new(), level);
    packed.write_all(body).expect("a vector takes everything");
    packed.finish().expect("a vector takes everything").into()
}

/// The script of this version.
pub fn script() -> &'static Script {
    static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::of(BY_FETCH.to_owned()));
    &SCRIPT
}

/// The one for browsers that need a service worker.
pub fn script_by_worker() -> &'static Script {
    static SCRIPT: LazyLock<Script> =
        LazyLock::new(|| Script { by_worker: true, ..Script::of(BY_WORKER.to_owned()) });
    &SCRIPT
}

/// The service worker, which fetches from `port`, and stays for `life` without a message from a page. Without
/// a port it removes itself immediately, with all its data.
pub fn service_worker(port: Option<u16>, life: Duration) -> Script {
    let (port, life) = (port.unwrap_or(0), life.as_millis());
    let body = format!("const PORT={port},LIFE={life};\n{WORKER}");
    Script { path: WORKER_PATH.into(), ..Script::of(body) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use lull_testing::{Missing, command, needs};

    use super::*;

    /// The tool that minifies the scripts, which `npm ci` installs.
    fn esbuild() -> Result<(), Missing> {
        let folder =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser/node_modules/esbuild");
        if folder.exists() { Ok(()) } else { Err(Missing::new("no esbuild: run make test")) }
    }

    #[test]
    fn served_scripts_are_current() {
        needs!(command("node"), esbuild());
        let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("script/build.mjs");
        let checked = Command::new("node").arg(build).arg("--check").output().unwrap();
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    }

    #[test]
    fn scripts_weigh_no_more_than_documented() {
        let worker = service_worker(Some(8443), Duration::from_secs(3600));
        for script in [script(), script_by_worker(), &worker] {
            let bytes = script.packed.len();
            assert!(bytes <= 2176, "{bytes} bytes gzipped: {}", script.path);
        }
    }

    #[test]
    fn worker_keeps_as_many_copies_as_hints_list() {
        let kept = format!("const MOST = {};", crate::protocol::MAX_COPIES);
        assert!(include_str!("../script/worker.js").contains(&kept), "{kept}");
    }

    #[test]
    fn each_prefetch_method_has_its_own_script() {
        let of = |script: &Script, word: &str| script.body.contains(word);
        assert!(of(script(), "X-Lull") && !of(script(), "worker.js"));
        assert!(of(script_by_worker(), "worker.js") && !of(script_by_worker(), "X-Lull"));
        assert!(service_worker(None, Duration::ZERO).body.starts_with("const PORT=0,LIFE=0;"));
    }

    #[test]
    fn path_changes_with_the_contents() {
        let [one, other] = ["a()", "b()"].map(|body| Script::of(body.to_owned()));
        assert_ne!(one.path, other.path);
        assert!(script().path.starts_with("/.lull/lull-"));
    }
}
