//! The table of the certificate authority.

use lull_web::proxy::AcmeConfig;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{ACME, names};
use super::options::unknown;
use super::{Result, Source, in_order};

/// Reads `[acme]`, which begins at `at`.
pub(super) fn read(
    source: &Source<'_>,
    at: usize,
    value: &Spanned<DeValue<'_>>,
) -> Result<AcmeConfig> {
    let DeValue::Table(table) = value.get_ref() else {
        return Err(source.error(at, "acme is a table: write [acme]"));
    };
    let mut folder = None;
    let mut acme = AcmeConfig {
        directory: AcmeConfig::LETS_ENCRYPT.to_owned(),
        roots: None,
        contact: Vec::new(),
        folder: source.resolve("."),
    };
    take(source, table, &mut acme, &mut folder)?;
    let Some(folder) = folder else {
        let why = "acme needs a folder for account and keys: write folder = \"/var/lib/lull-web\"";
        return Err(source.error(at, why));
    };
    acme.folder = source.resolve(&folder);
    Ok(acme)
}

fn take(
    source: &Source<'_>,
    table: &DeTable<'_>,
    acme: &mut AcmeConfig,
    folder: &mut Option<String>,
) -> Result<()> {
    for (key, value) in in_order(table) {
        let (name, at) = (key.get_ref().as_ref(), key.span().start);
        match (name, value.get_ref()) {
            ("directory", DeValue::String(url)) if url.starts_with("https://") => {
                acme.directory = url.clone().into_owned();
            }
            ("directory", _) => {
                return Err(source.error(at, "the directory is a URL that begins with https://"));
            }
            ("contact", DeValue::String(url)) if url.starts_with("mailto:") => {
                acme.contact = vec![url.clone().into_owned()];
            }
            ("contact", _) => return Err(source.error(at, "write contact = \"mailto:NAME@HOST\"")),
            ("folder", DeValue::String(path)) => *folder = Some(path.clone().into_owned()),
            ("ca", DeValue::String(path)) => acme.roots = Some(source.resolve(path)),
            ("folder" | "ca", _) => return Err(source.error(at, format!("{name} is a text"))),
            _ => {
                return Err(source.error(at, unknown(name, names(ACME))));
            }
        }
    }
    Ok(())
}
