//! What `lull web` is told of prefetching.

use std::path::PathBuf;

use http::HeaderValue;
use lull_speculate::model::Model;
use lull_web::nps::{MonitorSettings, Nps, Save, Settings};
use lull_web::policy::{self, Harmless, OwnersRules, Pattern};

use crate::durable::Replacement;
use crate::predict;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Prefetching")]
pub(super) struct PrefetchArgs {
    /// Carry requests and nothing else: no script in pages, no hints
    #[arg(long)]
    plain: bool,
    /// The site's name, as it stands in the address bar; requests for other hosts pass as they are
    /// [default: all hosts are the same site]
    #[arg(long, value_name = "HOST", conflicts_with = "plain")]
    site: Option<HeaderValue>,
    /// Learn from this access log before anybody comes: what is later than what the model has
    /// learned already. May be repeated
    #[arg(long, value_name = "LOG", conflicts_with = "plain")]
    log: Vec<PathBuf>,
    /// Keep what is learned in this file, every minute and at the end
    #[arg(long, value_name = "FILE", conflicts_with = "plain")]
    model: Option<PathBuf>,
    /// A secret that clients are counted by, made if it is not there; without it counts begin anew
    /// at each start
    #[arg(long, value_name = "FILE", conflicts_with = "plain")]
    model_key: Option<PathBuf>,
    /// Never fetch ahead what matches: * is any text, $ the end. May be repeated
    #[arg(long, value_name = "PATTERN", conflicts_with = "plain")]
    deny: Vec<String>,
    /// Fetch ahead what matches although it looks like an action
    #[arg(long, value_name = "PATTERN", conflicts_with = "plain")]
    allow: Vec<String>,
    /// Fetch ahead what matches although it has a query
    #[arg(long, value_name = "PATTERN", conflicts_with = "plain")]
    allow_query: Vec<String>,
    /// A cookie that says nothing of who somebody is, instead of the usual ones of analytics; *
    /// stands at the end. May be repeated; an empty one leaves none
    #[arg(long, value_name = "NAME", conflicts_with = "plain")]
    harmless_cookie: Vec<String>,
    /// The path of a public object that the monitor asks for. May be repeated [default: the page
    /// and the part of pages that visitors want most]
    #[arg(long, value_name = "PATH", conflicts_with = "plain")]
    probe: Vec<String>,
}

impl PrefetchArgs {
    /// Prefetching as it is wanted; none if it is not.
    ///
    /// # Errors
    /// If a log, the model or the key cannot be used.
    pub(super) fn nps(&self, trust_forwarded: bool) -> anyhow::Result<Option<Nps>> {
        if self.plain {
            return Ok(None);
        }
        if let Some(path) = self.probe.iter().find(|path| !path.starts_with('/')) {
            let text = format!("'{path}' is no path to probe: it begins with /");
            return Err(crate::Misuse(text).into());
        }
        let model =
            predict::of_a_site(self.model.as_deref(), self.model_key.as_deref(), &self.log)?;
        let patterns = |texts: &[String]| texts.iter().map(|text| Pattern::new(text)).collect();
        let harmless = if self.harmless_cookie.is_empty() {
            Harmless::default()
        } else {
            Harmless::new(self.harmless_cookie.iter().map(String::as_str))
        };
        let settings = Settings {
            rules: policy::Settings {
                harmless,
                urls: OwnersRules {
                    deny: patterns(&self.deny),
                    allow: patterns(&self.allow),
                    allow_query: patterns(&self.allow_query),
                },
            },
            host: self.site.clone(),
            trust_forwarded,
            monitor: MonitorSettings { objects: self.probe.clone(), parameters: None },
        };
        Ok(Some(Nps::new(settings, model, self.model.clone().map(save))))
    }
}

/// Saves into a file that is there whole or not at all. A failure is told once, until it works
/// again.
fn save(path: PathBuf) -> Save {
    let mut is_told = false;
    Box::new(move |model: &Model| {
        let saved = Replacement::begin(&path).and_then(|file| file.finish(|to| model.write(to)));
        if let Err(error) = &saved
            && !is_told
        {
            let path = path.display();
            crate::complain(&anyhow::anyhow!("the model {path} cannot be written ({error})"));
        }
        is_told = saved.is_err();
    })
}
