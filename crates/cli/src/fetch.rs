//! `lull fetch`: gets files once, without a replica.

use std::io::{self, BufRead, Write};
use std::path::{Path as FilePath, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::Context;
use lull_replication::path::Path;
use lull_replication_daemon::daemon::{FetchError, FetchProgress, Fetched, Fetcher, MachineClock};
use lull_replication_daemon::identity::Ticket;
use lull_replication_daemon::service::runtime;
use serde_json::json;

use crate::publish::progress;

/// The exit code for a name that does not exist.
const UNKNOWN: u8 = 3;

const EXAMPLES: &str = "\
Examples:
  lull fetch origin.example:7070 images/debian.iso --ticket ticket
      get one file into this folder, with a ticket of lull origin ticket DIR NAME --fetch; the same command continues
      after an interruption
  lull fetch relay.example:7071 docs --ticket ticket --output manual
      get all below docs from a relay, into the folder manual
  lull fetch origin.example:7070 backup.tar --ticket ticket --output - | tar -x
      write a file to standard output
  lull fetch origin.example:7070 . --ticket ticket --output all --json
      get all files, and report their digests as JSON

The exit code is 0 on success; 1 if the files cannot be fetched or written; 2 if the arguments are wrong; and 3 if
there is no such name.";

/// Fetch files once from an origin or a relay, in the background
///
/// The files yield to other traffic, as those for replicas do. The digest of each file is verified. A fetch that was
/// interrupted continues behind the last whole piece of 64 KiB.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Address of lull origin run --listen or lull replica run --relay
    #[arg(value_name = "ADDRESS")]
    address: String,
    /// Name of a file, or of a folder with all below it; . for all files
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
    /// File with a ticket of lull origin ticket --fetch, or - to read it from standard input
    #[arg(long, value_name = "FILE")]
    ticket: PathBuf,
    /// Where to put it: a file, a folder, or - for standard output. With several names, a folder
    /// [default: the last part of the name, in this folder]
    #[arg(long, short, value_name = "PATH")]
    output: Option<PathBuf>,
    /// Report the files as JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    fn to_stream(&self) -> bool {
        self.output.as_deref() == Some(FilePath::new("-"))
    }

    /// The names; none stands for all.
    fn names(&self) -> anyhow::Result<Vec<Option<Path>>> {
        let usage = |text: String| Err(crate::UsageError(text).into());
        if self.to_stream() && (self.names.len() > 1 || self.json) {
            return usage("--output - takes one name, and no --json".to_owned());
        }
        if self.names.iter().any(|name| name == ".") && self.output.is_none() {
            return usage("the name . needs --output FOLDER".to_owned());
        }
        let mut names = Vec::new();
        for name in &self.names {
            names.push(match name.as_str() {
                "." => None,
                name => match Path::parse(name.trim_end_matches('/')) {
                    Ok(path) => Some(path),
                    Err(why) => return usage(format!("{name}: {why}")),
                },
            });
        }
        Ok(names)
    }

    fn ticket(&self) -> anyhow::Result<Ticket> {
        let text = if self.ticket == FilePath::new("-") {
            let mut line = String::new();
            io::stdin().lock().read_line(&mut line).map(|_| line)
        } else {
            std::fs::read_to_string(&self.ticket)
        };
        let text = text.with_context(|| {
            format!(
                "cannot read the ticket in `{}`: print one with `lull origin ticket DIR NAME --fetch`",
                self.ticket.display()
            )
        })?;
        Ok(text.parse()?)
    }

    /// Where the objects of a name belong. A single file goes into a folder that exists.
    fn destination(&self, name: Option<&Path>, is_file: bool) -> PathBuf {
        let last = name.and_then(|name| FilePath::new(os(name)).file_name());
        match (&self.output, last) {
            (Some(output), Some(last)) if self.names.len() > 1 || is_file && output.is_dir() => {
                output.join(last)
            }
            (Some(output), _) => output.clone(),
            (None, last) => last.map_or_else(|| ".".into(), PathBuf::from),
        }
    }
}

fn os(name: &Path) -> &std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(name.as_bytes())
}

async fn fetch(
    args: &Args,
    names: &[Option<Path>],
    ticket: Ticket,
    progress: &FetchProgress,
) -> Result<Vec<Fetched>, FetchError> {
    let fetcher = Fetcher::enrol(ticket, &args.address, Arc::new(MachineClock)).await?;
    let mut wanted = Vec::new();
    for name in names {
        wanted.push((name.as_ref(), fetcher.find(name.as_ref()).await?));
    }
    let mut all = Vec::new();
    for (name, objects) in &wanted {
        if args.to_stream() {
            all.push(fetcher.write_to(objects, io::stdout().lock(), progress).await?);
            continue;
        }
        let is_file = matches!(&objects[..], [(path, _)] if Some(path) == *name);
        let destination = args.destination(*name, is_file);
        let took = |fetched| all.push(fetched);
        fetcher.place((*name, objects), &destination, progress, took).await?;
    }
    Ok(all)
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let names = match args.names() {
        Err(error) if error.is::<crate::UsageError>() => {
            crate::print_error(&error);
            return Ok(ExitCode::from(crate::USAGE));
        }
        names => names?,
    };
    if args.output.as_deref().is_some_and(|output| names.len() > 1 && !output.is_dir()) {
        let output = args.output.as_deref().unwrap_or(FilePath::new("."));
        std::fs::create_dir_all(output)
            .with_context(|| format!("cannot make the folder `{}`", output.display()))?;
    }
    let (ticket, progress, begun) = (args.ticket()?, FetchProgress::default(), Instant::now());
    let work = async { progress::fetch(&progress, fetch(args, &names, ticket, &progress)).await };
    match runtime()?.block_on(work) {
        Err(error @ FetchError::Unknown { .. }) => {
            crate::print_error(&error.into());
            Ok(ExitCode::from(UNKNOWN))
        }
        Err(error) => Err(error.into()),
        Ok(_) if args.to_stream() => Ok(ExitCode::SUCCESS),
        Ok(all) => {
            report(args, &all, &progress, begun)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn report(
    args: &Args,
    all: &[Fetched],
    progress: &FetchProgress,
    begun: Instant,
) -> anyhow::Result<()> {
    let bytes: u64 = all.iter().map(|one| one.version.content.size.0).sum();
    let received = progress.received.load(Ordering::Relaxed);
    let seconds = begun.elapsed().as_secs_f64();
    let text = if args.json {
        let of = |one: &Fetched| {
            json!({
                "name": one.name.to_string(),
                "digest": one.version.content.digest.to_string(),
                "bytes": one.version.content.size.0,
                "resumed_bytes": one.resumed,
                "file": one.file.as_ref().map(|file| file.to_string_lossy()),
            })
        };
        let objects: Vec<_> = all.iter().map(of).collect();
        json!({
            "address": args.address,
            "objects": objects,
            "bytes": bytes,
            "received_bytes": received,
            "seconds": seconds,
        })
        .to_string()
    } else {
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        let what = match all {
            [one] => format!("{} with the digest {}", one.name, one.version.content.digest),
            all => format!("{} objects", all.len()),
        };
        format!(
            "{what}: {:.1} MB, of which {:.1} MB came now, in {seconds:.1} s",
            megabytes(bytes),
            megabytes(received)
        )
    };
    writeln!(io::stdout(), "{text}").context("cannot write")
}
