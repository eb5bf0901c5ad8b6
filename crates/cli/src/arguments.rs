//! Values of options that several commands share.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use lull_transport::{Dscp, Options};

/// Parses a number of seconds above 0.
///
/// # Errors
/// The valid form.
pub fn seconds(text: &str) -> Result<Duration, &'static str> {
    const HELP: &str = "write a number of seconds above 0, such as 30 or 0.5";
    let seconds: f64 = text.parse().map_err(|_| HELP)?;
    Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero()).ok_or(HELP)
}

/// Parses the class of packets: `le` or `none`.
///
/// # Errors
/// The valid form.
pub fn dscp(text: &str) -> Result<Dscp, &'static str> {
    match text {
        "le" => Ok(Dscp::Le),
        "none" => Ok(Dscp::None),
        _ => Err("it is le or none"),
    }
}

/// How a service sends in the background: by a congestion control, or the best one of Lull that the kernel has.
pub fn background(congestion_control: Option<String>, dscp: Dscp) -> Options {
    let options = Options::new().dscp(dscp);
    match congestion_control {
        Some(name) => options.congestion_control(name),
        None => options,
    }
}

/// Reads a token: the first line of a file.
///
/// # Errors
/// If the file cannot be read, or the token is so short that it can be guessed.
pub fn token(path: &Path) -> anyhow::Result<String> {
    let shown = path.display();
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
    let token = text.lines().next().unwrap_or_default().trim();
    if token.len() < MIN_TOKEN_BYTES {
        bail!("the token in {shown} is too short: write {MIN_TOKEN_BYTES} characters or more");
    }
    Ok(token.to_owned())
}

/// The least length of a token, in characters.
const MIN_TOKEN_BYTES: usize = 16;
