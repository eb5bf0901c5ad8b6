//! `lull lab documents`: the documents of a log, as files.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use lull_load::replay::files;
use lull_load::replay::trace::{Reading, Section};
use serde_json::json;

use lull_cli::logs::Contents;
use lull_cli::logs::{LogArgs, Logs};

const EXAMPLES: &str = "\
Examples:
  lull lab documents --into site access.log*
      write one file per path of the log; nginx serves them with
      root site; location / { try_files $uri/=.html $uri/=.bin =404; }
  lull lab documents --into site --json access.log | jq .bytes
      print their total size

Each path becomes a folder with one file, because a log may have /a and /a/b. The content is synthetic.
Paths that are not valid in a file system are counted. The exit code is 1 if a log cannot be read or a file
cannot be written.";

/// Write files with the lengths in a log, for a server to replay the log against
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DocumentsArgs {
    /// Folder to write into; it is created if needed
    #[arg(long, value_name = "DIR")]
    into: PathBuf,
    /// Access logs, plain or compressed; - is standard input
    #[arg(required = true, value_name = "LOG")]
    logs: Vec<PathBuf>,
    #[command(flatten)]
    how: LogArgs,
    /// Print the counts as JSON
    #[arg(long)]
    json: bool,
}

/// Writes the documents of logs.
pub(crate) fn documents(args: &DocumentsArgs) -> anyhow::Result<ExitCode> {
    lull_cli::message::usage_error(|| {
        let mut reading = Reading::new(Section::default());
        let mut logs = Logs::find(&args.logs, &args.how)?;
        let contents = logs.read_shown("reading", |entry| {
            reading.take(entry);
        })?;
        if reading.documents().all().is_empty() {
            bail!("there is nothing to write: no log holds a request that was answered");
        }
        let written = files::write(reading.documents(), &args.into)?;
        let text = if args.json {
            let value = json!({
                "logs": contents.iter().map(Contents::json).collect::<Vec<_>>(),
                "files": written.files,
                "bytes": written.bytes,
                "left_out": written.left_out,
            });
            format!("{}\n", serde_json::to_string_pretty(&value)?)
        } else {
            let mut text: String = contents.iter().map(Contents::text).collect();
            text += &format!(
                "{}: {} files, {}",
                args.into.display(),
                written.files,
                lull_cc::Bytes(written.bytes)
            );
            if written.left_out > 0 {
                text += &format!("; {} paths that no folder can have", written.left_out);
            }
            text + "\n"
        };
        io::stdout().write_all(text.as_bytes()).context("cannot write")
    })
}
