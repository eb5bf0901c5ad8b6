//! Keys of a table as options of the command line: the same names, values and messages.

use std::borrow::Cow;
use std::error::Error as _;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Command, FromArgMatches};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Result, Source};

/// A table and where it begins.
#[derive(Clone, Copy)]
pub(super) struct LocatedTable<'t, 'i> {
    pub(super) table: &'t DeTable<'i>,
    pub(super) at: usize,
}

/// Options whose value is a path, which a file says relative to its folder.
const PATHS: &[&str] = &[
    "access-log",
    "cert",
    "key",
    "log",
    "model",
    "model-key",
    "off-file",
    "token-file",
    "upstream-ca",
];

/// Options of a table so far, as arguments.
#[derive(Default)]
pub(super) struct Options {
    arguments: Vec<String>,
}

fn command<A: Args>() -> Command {
    A::augment_args(Command::new("lull web")).disable_help_flag(true).disable_version_flag(true)
}

impl Options {
    /// Adds a key. `others` are the keys of the table that are not options.
    pub(super) fn add<A: Args>(
        &mut self,
        source: &Source<'_>,
        key: &Spanned<Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
        others: impl Iterator<Item = &'static str>,
    ) -> Result<()> {
        let (name, at) = (key.get_ref().as_ref(), key.span().start);
        let command = command::<A>();
        let known: Vec<&str> = command.get_arguments().filter_map(|one| one.get_long()).collect();
        let aliases = command.get_arguments().filter_map(|one| one.get_all_aliases()).flatten();
        if !known.iter().copied().chain(aliases).any(|one| one == name) {
            let others: Vec<&str> = others.collect();
            return Err(source.error(at, unknown(name, known.iter().chain(&others).copied())));
        }
        let arguments = arguments(source, name, at, value)?;
        let all = std::iter::once("lull web").chain(arguments.iter().map(String::as_str));
        match command.try_get_matches_from(all) {
            // Keys that it requires may come later.
            Err(error) if error.kind() != ErrorKind::MissingRequiredArgument => {
                return Err(source.error(at, invalid_value(name, &error)));
            }
            _ => {}
        }
        self.arguments.extend(arguments);
        Ok(())
    }

    /// All of them.
    pub(super) fn parse<A: Args + FromArgMatches>(
        &self,
        source: &Source<'_>,
        at: usize,
    ) -> Result<A> {
        let all = std::iter::once("lull web").chain(self.arguments.iter().map(String::as_str));
        let matches = command::<A>().try_get_matches_from(all);
        let parsed = matches.and_then(|matches| A::from_arg_matches(&matches));
        parsed.map_err(|error| source.error(at, first_line(&error)))
    }
}

/// A key as command-line arguments.
fn arguments(
    source: &Source<'_>,
    name: &str,
    at: usize,
    value: &Spanned<DeValue<'_>>,
) -> Result<Vec<String>> {
    let with = |text: &str| {
        let is_path = PATHS.contains(&name) && text != "-";
        let text =
            if is_path { source.resolve(text).display().to_string() } else { text.to_owned() };
        vec![format!("--{name}={text}")]
    };
    Ok(match value.get_ref() {
        DeValue::String(text) => with(text),
        DeValue::Integer(number) => with(&number.to_string()),
        DeValue::Float(number) => with(&number.to_string()),
        DeValue::Boolean(true) => vec![format!("--{name}")],
        DeValue::Boolean(false) => Vec::new(),
        DeValue::Array(all) => {
            let mut arguments = Vec::new();
            for one in all.iter() {
                let at = one.span().start;
                if matches!(one.get_ref(), DeValue::Array(_)) {
                    return Err(source.error(at, format!("{name} is a list of single values")));
                }
                arguments.extend(self::arguments(source, name, at, one)?);
            }
            arguments
        }
        DeValue::Table(_) | DeValue::Datetime(_) => {
            return Err(source.error(at, format!("{name} is a single value or a list")));
        }
    })
}

/// The message for a key that does not exist.
pub(super) fn unknown<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> String {
    let close = known
        .map(|one| (strsim::jaro_winkler(name, one), one))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|(one, _), (other, _)| one.total_cmp(other));
    match close {
        Some((_, close)) => format!("there is no key '{name}': did you mean '{close}'?"),
        None => format!("there is no key '{name}': see docs/reference/web-configuration.md"),
    }
}

/// The error in the value of a key.
fn invalid_value(name: &str, error: &clap::Error) -> String {
    let value = match error.get(ContextKind::InvalidValue) {
        Some(ContextValue::String(value)) => value.as_str(),
        _ => "",
    };
    match (error.kind(), error.source()) {
        (ErrorKind::ValueValidation, Some(why)) => format!("{name} = '{value}': {why}"),
        (ErrorKind::InvalidValue, _) if value.is_empty() => {
            format!("{name} needs a value: write {name} = \"…\"")
        }
        (ErrorKind::InvalidValue, _) => match error.get(ContextKind::ValidValue) {
            Some(ContextValue::Strings(valid)) => {
                format!("{name} = '{value}': write {}", valid.join(" or "))
            }
            _ => first_line(error),
        },
        (ErrorKind::TooManyValues, _) => format!("{name} is a switch: write true or false"),
        (ErrorKind::ArgumentConflict, _) => format!("{name} takes a single value, not a list"),
        _ => first_line(error),
    }
}

fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines = text.lines().take_while(|line| !line.is_empty()).map(str::trim);
    let line = lines.collect::<Vec<_>>().join(" ");
    line.strip_prefix("error: ").unwrap_or(&line).to_owned()
}
