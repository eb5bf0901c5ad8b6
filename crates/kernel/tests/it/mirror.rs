//! The algorithms in C, compiled for this host.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// `bpf/host_<name>.c`, compiled into a separate folder: another run of the tests in the same tree builds the
/// same program.
pub(crate) struct Mirror {
    program: PathBuf,
    _folder: TempDir,
}

/// Compiles `bpf/host_<name>.c`.
pub(crate) fn compile(name: &str) -> Mirror {
    let bpf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bpf");
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let program = folder.path().join(format!("host_{name}"));
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let status = Command::new(&compiler)
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .arg(bpf.join(format!("host_{name}.c")))
        .status()
        .unwrap_or_else(|error| panic!("cannot run the C compiler {compiler}: {error}"));
    assert!(status.success(), "{compiler} cannot compile {name}.h for the host");
    Mirror { program, _folder: folder }
}

impl Mirror {
    /// Its output words for input words.
    pub(crate) fn run(&self, words: &[u64]) -> Vec<u64> {
        let mut child = Command::new(&self.program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the compiled mirror starts");
        let input: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut stdin = child.stdin.take().expect("stdin is piped");
        let writer = std::thread::spawn(move || stdin.write_all(&input));
        let mut output = Vec::new();
        child.stdout.take().expect("stdout is piped").read_to_end(&mut output).expect("output");
        writer.join().expect("the writer ends").expect("the mirror reads all events");
        assert!(child.wait().expect("the mirror ends").success());
        output.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8"))).collect()
    }
}
