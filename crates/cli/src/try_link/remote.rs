//! Commands at the other end.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, bail};

/// The line that a command prints first: what ssh, or a shell's start-up file, prints before it is ignored.
const READY: &str = "lull-ready";

/// Most lines before that one.
const MAX_LINES: usize = 100;

/// A host, and the program that runs commands there.
#[derive(Debug)]
pub(super) struct Remote {
    words: Vec<OsString>,
}

impl Remote {
    pub(super) fn new(rsh: &str, host: &str) -> anyhow::Result<Self> {
        if host.is_empty() || host.starts_with('-') {
            bail!("'{host}' is not a host");
        }
        let mut words: Vec<OsString> = rsh.split_whitespace().map(OsString::from).collect();
        let Some(first) = words.first() else { bail!("--rsh is empty: name a program") };
        if Path::new(first).file_name().is_some_and(|name| name == "ssh") {
            // A shared connection would carry both, and compressed zeros are no load.
            let options = ["-o", "ControlPath=none", "-o", "Compression=no"];
            words.extend(options.map(OsString::from));
        }
        words.push(host.into());
        Ok(Remote { words })
    }

    /// Starts a script of sh there, behind `prefix`, and waits until it runs. Its output follows.
    pub(super) fn start(
        &self,
        prefix: &[OsString],
        script: &str,
    ) -> anyhow::Result<(Child, BufReader<ChildStdout>)> {
        debug_assert!(!script.contains('\''));
        let words: Vec<&OsString> = prefix.iter().chain(&self.words).collect();
        let shown = self.words[0].to_string_lossy().into_owned();
        let mut child = Command::new(words[0])
            .args(&words[1..])
            .arg(format!("sh -c 'echo {READY}; {script}'"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {shown}"))?;
        let mut output = BufReader::new(child.stdout.take().expect("it is a pipe"));
        let mut line = String::new();
        for _ in 0..MAX_LINES {
            line.clear();
            if output.read_line(&mut line).with_context(|| format!("cannot read from {shown}"))?
                == 0
            {
                break;
            }
            if line.trim_end() == READY {
                return Ok((child, output));
            }
        }
        drop(output);
        let status = child.wait().context("cannot wait")?;
        bail!("'{}' cannot run a command there ({status})", self.shown());
    }

    fn shown(&self) -> String {
        let words: Vec<_> = self.words.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }
}

/// The words before a program that put it into the background.
pub(super) fn exec_prefix() -> anyhow::Result<Vec<OsString>> {
    let own = std::env::current_exe().context("cannot find the program lull")?;
    let exec = [own.into(), "exec".into(), "--quiet".into(), "--".into()];
    let sudo = (!lull_kernel::may_exec()).then(|| OsString::from("sudo"));
    Ok(sudo.into_iter().chain(exec).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ssh_gets_a_connection_of_its_own() {
        let remote = Remote::new("/usr/bin/ssh -p 22", "me@host").unwrap();
        let shown = "/usr/bin/ssh -p 22 -o ControlPath=none -o Compression=no me@host";
        assert_eq!(remote.shown(), shown);
        assert_eq!(Remote::new("rsh", "host").unwrap().shown(), "rsh host");
        assert!(Remote::new("ssh", "-oProxyCommand=x").is_err());
        assert!(Remote::new(" ", "host").is_err());
    }

    #[test]
    fn output_before_the_command_is_ignored() {
        use std::io::Read;
        let remote = Remote::new("sh -c", "echo welcome; eval \"$0\"").unwrap();
        let (mut child, mut output) = remote.start(&[], "cat").unwrap();
        drop(child.stdin.take());
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "");
        assert!(child.wait().unwrap().success());
        let error = Remote::new("sh -c", "exit 3").unwrap().start(&[], "cat").unwrap_err();
        assert!(
            error.to_string().contains("cannot run a command there (exit status: 3)"),
            "{error}"
        );
    }
}
