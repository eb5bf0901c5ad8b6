//! `lull predict`: likely next pages of a site's visitors, learned from its access logs.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail};
use lull_cc::{Bytes, Timestamp};
use lull_speculate::log::Entry;
use lull_speculate::model::{MAGIC, Model, ReadError};
use lull_speculate::observe::{ClientHasher, Limits};
use lull_speculate::predict::PpmParameters;
use lull_web::nps::Learn;
use lull_web::proxy::Event;

use lull_cli::logs::{Contents, LogArgs, Logs};
use lull_cli::text::{count, plain, print_line, table};
use lull_durable::Replacement;

mod eval;
mod explain;
mod train;

/// The memory limit of a model.
const MAX_MODEL_BYTES: Bytes = Bytes(1 << 30);

pub(crate) const EXAMPLES: &str = "\
Examples:
  lull predict eval access.log
      check whether the visitors of a site are predictable
  lull predict train --model site.model access.log
      learn which pages they request next
  lull predict explain --model site.model /docs/
      show the hints for a page, and why other pages are not among them";

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Train(train::Args),
    Eval(eval::Args),
    Explain(explain::Args),
}

pub(crate) fn run(command: Command) -> anyhow::Result<ExitCode> {
    let result = match command {
        Command::Train(args) => train::run(&args),
        Command::Eval(args) => eval::run(&args),
        Command::Explain(args) => explain::run(&args),
    };
    match result {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) if error.is::<crate::UsageError>() => {
            crate::print_error(&error);
            Ok(ExitCode::from(crate::USAGE))
        }
        Err(error) => Err(error),
    }
}

/// The model with which a running site continues to learn: that of a file, if it exists, and the later part
/// of logs, for these sites, or for all if there are none. `is_named_by_query` says for which targets the
/// query is part of the name. The logs are read when the returned function is called, because that may take
/// long and the site is served meanwhile. Their errors are reported then, and they are skipped.
///
/// # Errors
/// If the file, the key or a log cannot be opened, or the file cannot be written.
pub(crate) fn learn_site(
    file: Option<&Path>,
    key: Option<&Path>,
    (logs, how): (&[PathBuf], &LogArgs),
    sites: &[String],
    is_named_by_query: impl Fn(&str) -> bool + Send + 'static,
) -> anyhow::Result<Learn> {
    let hasher = ClientHasher::new(key.map_or_else(random_key, key_of)?);
    if let Some(path) = file {
        if is_foreign(path) {
            bail!("{} exists and is not a model: name another file", path.display());
        }
        // The check runs at the start, so that an operator sees the error at once.
        Replacement::begin(path)
            .with_context(|| format!("the model {} cannot be written", path.display()))?;
        if let Err(error) = File::open(path)
            && error.kind() != ErrorKind::NotFound
        {
            return Err(error).with_context(|| format!("{} cannot be read", path.display()));
        }
    }
    let has_logs = !logs.is_empty();
    let logs = Logs::named(logs, how)?.of_sites(sites);
    logs.check()?;
    let file = file.map(Path::to_owned);
    let learn: Learn = Box::new(move |on_event: &dyn Fn(&Event), is_ending: &AtomicBool| {
        let before =
            file.as_deref().and_then(|path| read_previous_model(path, hasher.clone(), on_event));
        let mut model = before
            .unwrap_or_else(|| Model::new(hasher, Limits::default(), PpmParameters::shipped()));
        if has_logs {
            let known = LearnedRange::of(model.latest());
            let mut learned = 0;
            let goes_on = || !is_ending.load(Ordering::Relaxed);
            let read = logs.in_order().and_then(|logs| {
                logs.read_while(&goes_on, |entry| {
                    if known.has(entry.at) {
                        return;
                    }
                    let named_by_query = is_named_by_query(&entry.target);
                    let entry = Entry { named_by_query, ..entry.clone() };
                    // `lull predict train` reports why some requests are not learned.
                    learned += u64::from(model.learn(&entry).is_ok());
                })
            });
            if !goes_on() {
                return None;
            }
            on_event(&match read {
                Ok(contents) => {
                    let several = |log: &Contents| {
                        let sites = log.several_sites()?;
                        Some(format!("{} is {sites}; --site NAME skips the others", log.name))
                    };
                    let unread = contents.iter().filter_map(Contents::unread);
                    let unread = unread.chain(contents.iter().filter_map(several)).collect();
                    Event::Learned { requests: learned, unread }
                }
                Err(error) => Event::NotLearned { why: error_line(&error) },
            });
        }
        Some(model)
    });
    Ok(learn)
}

/// Which lines of a log a model has learned.
struct LearnedRange {
    second: u64,
}

impl LearnedRange {
    /// The entries until `latest`. The model knows its latest second, but no fraction of it; a log may have
    /// milliseconds.
    fn of(latest: Timestamp) -> Self {
        LearnedRange { second: latest.as_nanos() / 1_000_000_000 }
    }

    fn has(&self, at: Timestamp) -> bool {
        at.as_nanos() / 1_000_000_000 <= self.second
    }
}

/// The model in a file; none if there is none, or it is unreadable. Such a file is moved aside: a missing
/// model must not stop a site, and the operator can still recover it.
fn read_previous_model(
    path: &Path,
    hasher: ClientHasher,
    on_event: &dyn Fn(&Event),
) -> Option<Model> {
    let why = match read_model(path, hasher) {
        Ok(before) => return before,
        Err(error) => error_line(&error),
    };
    let mut aside = path.as_os_str().to_owned();
    aside.push(".aside");
    let aside = PathBuf::from(aside);
    let outcome = match fs::rename(path, &aside) {
        Ok(()) => format!("it is {} now", aside.display()),
        Err(error) => format!("it cannot be moved aside ({error}) and will be overwritten"),
    };
    on_event(&Event::ModelAside { why: format!("{why}; {outcome}") });
    None
}

fn error_line(error: &anyhow::Error) -> String {
    format!("{error:#}")
}

/// A random secret.
pub(crate) fn random_key() -> anyhow::Result<[u8; 16]> {
    let mut key = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut key))
        .context("no key can be read from /dev/urandom")?;
    Ok(key)
}

/// The key in a file that only its owner may read; it is made if it does not exist.
pub(crate) fn key_of(path: &Path) -> anyhow::Result<[u8; 16]> {
    let shown = path.display();
    let key = random_key()?;
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match made {
        Ok(mut file) => {
            let written = file.write_all(&key).and_then(|()| file.sync_all());
            if written.is_err() {
                // A part of a key would be rejected the next time.
                let _ = fs::remove_file(path);
            }
            written.with_context(|| format!("the key {shown} cannot be written"))?;
            return Ok(key);
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error).context(format!("the key {shown} cannot be made")),
    }
    let mut there = Vec::new();
    File::open(path)
        .and_then(|file| file.take(17).read_to_end(&mut there))
        .with_context(|| format!("the key {shown} cannot be read"))?;
    match <[u8; 16]>::try_from(there) {
        Ok(key) => Ok(key),
        Err(_) => bail!("{shown} is not a key of 16 bytes: name a file that does not exist"),
    }
}

/// Whether the path has another file than a model, which must not be replaced.
fn is_foreign(path: &Path) -> bool {
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(8).read_to_end(&mut head));
    read.is_ok() && !head.is_empty() && head != MAGIC
}

/// The model in a file; none if the file does not exist.
fn read_model(path: &Path, hasher: ClientHasher) -> anyhow::Result<Option<Model>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        result => result.with_context(|| format!("{} cannot be read", path.display()))?,
    };
    match Model::read(file, hasher, MAX_MODEL_BYTES) {
        Ok(model) => Ok(Some(model)),
        Err(ReadError::NoModel) => bail!(
            "{} is not a model: create one with 'lull predict train --model FILE LOG'",
            path.display()
        ),
        Err(error) => Err(error).with_context(|| format!("{} cannot be read", path.display())),
    }
}

/// A part of the whole.
fn share(text: &str) -> Result<f64, &'static str> {
    let share = text.parse::<f64>().ok().filter(|share| *share > 0.0 && *share < 1.0);
    share.ok_or("write a share of the time between 0 and 1, such as 0.5")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn key_is_made_once_and_readable_by_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let key = key_of(&path).unwrap();
        assert_eq!(key_of(&path).unwrap(), key);
        assert_ne!(key, random_key().unwrap());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        for wrong in [15, 17] {
            std::fs::write(&path, vec![0; wrong]).unwrap();
            assert!(key_of(&path).unwrap_err().to_string().contains("is not a key"));
        }
    }

    #[test]
    fn lines_known_to_a_model_are_not_learned_again() {
        let folder = tempfile::tempdir().unwrap();
        let [file, key, log] = ["model", "key", "log"].map(|name| folder.path().join(name));
        let line = |client, second| {
            format!(
                "{{\"ts\":{second},\"remote_addr\":\"192.0.2.{client}\",\
                 \"request\":\"GET /{client} HTTP/1.1\",\"status\":200}}\n"
            )
        };
        let lines = line(1, "1431857100.25") + "nonsense\n" + &line(2, "1431857107.75");
        fs::write(&log, &lines).unwrap();
        let learn = || {
            let told = std::cell::RefCell::new(Vec::new());
            let logs = std::slice::from_ref(&log);
            let learn =
                learn_site(Some(&file), Some(&key), (logs, &LogArgs::default()), &[], |_| false)
                    .unwrap();
            let on_event = |event: &Event| match event {
                Event::Learned { requests, unread } => {
                    told.borrow_mut().push((*requests, unread.clone()));
                }
                other => panic!("{other}"),
            };
            let model = learn(&on_event, &AtomicBool::new(false)).unwrap();
            model.write(File::create(&file).unwrap()).unwrap();
            told.into_inner().swap_remove(0)
        };
        let (requests, unread) = learn();
        assert_eq!((requests, unread.len()), (2, 1));
        for words in ["has 1 line that cannot be read", "as line 2", "JSON", ": nonsense"] {
            assert!(unread[0].contains(words), "no '{words}' in {unread:?}");
        }
        assert_eq!(learn().0, 0);
        fs::write(&log, lines + &line(3, "1431857108.5")).unwrap();
        assert_eq!(learn().0, 1);
    }

    #[test]
    fn share_is_between_zero_and_one() {
        assert_eq!(share("0.5"), Ok(0.5));
        for text in ["0", "1", "-0.5", "1.5", "NaN", "half", ""] {
            assert!(share(text).is_err(), "{text}");
        }
    }

    #[test]
    fn control_characters_of_a_log_never_reach_the_terminal() {
        assert_eq!(plain("/a\u{1b}[2J/é\n\u{9b}"), "/a\\u{1b}[2J/é\\n\\u{9b}");
    }

    #[test]
    fn columns_are_aligned() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        assert_eq!(
            table(&[row(["a", "10", "x y"]), row(["bb", "1", ""])]),
            "a   10  x y\nbb   1\n"
        );
    }
}
