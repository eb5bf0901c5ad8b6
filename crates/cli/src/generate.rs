//! Files of packages beside the programs: completions of shells, and manual pages.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap_complete::Shell;

const EXAMPLES: &str = "\
Examples:
  lull completions bash | sudo tee /usr/share/bash-completion/completions/lull
      for bash
  lull completions zsh | sudo tee /usr/local/share/zsh/site-functions/_lull
      for zsh
  lull completions fish | tee ~/.config/fish/completions/lull.fish
      for fish";

/// Print the completion script of a shell
///
/// The packages contain the scripts of bash, zsh and fish. The exit code is 0 on success, 1 on failure, and 2 if the
/// arguments are wrong.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Write the manual pages, one for each command
#[derive(Debug, clap::Args)]
pub(crate) struct ManualPages {
    /// The folder for them; it is made if it is missing
    folder: PathBuf,
}

pub(crate) fn completions(args: &Completions, mut root: clap::Command) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut root, "lull", &mut script);
    io::stdout().write_all(&script).context("cannot write")?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn manual_pages(args: &ManualPages, root: clap::Command) -> anyhow::Result<ExitCode> {
    let what = || format!("cannot write to {}", args.folder.display());
    fs::create_dir_all(&args.folder).with_context(what)?;
    clap_mangen::generate_to(root, &args.folder).with_context(what)?;
    Ok(ExitCode::SUCCESS)
}
