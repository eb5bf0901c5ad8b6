//! `lull predict explain`: a model's suggestions after some pages, and why there are no others.

use std::path::PathBuf;

use anyhow::bail;
use lull_cc::Bytes;
use lull_speculate::model::Model;
use lull_speculate::observe::{ClientHasher, DISTINCT_CLIENTS, Kind, UrlId};
use lull_speculate::predict::{Explained, Explanation, Question, Withheld};
use serde_json::{Value, json};

use super::{count, plain, print_line, table};
use crate::UsageError;

const EXAMPLES: &str = "\
Examples:
  lull predict explain --model site.model /
      show the hints for visitors of the home page
  lull predict explain --model site.model /docs/ /docs/install.html
      show the hints for visitors who came from another page: the current page is the last argument
  lull predict explain --model site.model --json /docs/
      print everything as JSON

Columns: the probability that the page is among the next ones; its bytes; the time that a prefetch saves;
the priority, in milliseconds saved on average per prefetched kilobyte; the clients that went there from
these pages, counted up to 16; and all clients that got it, counted up to 32. Popular pages without a
transition have a - there.

The exit code is 1 if the model cannot be read, and 2 if the arguments are wrong.";

/// Rows shown of each part.
const ROWS: usize = 20;

/// Show the hints for a page, and why other pages are not among them
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The last pages of a client, oldest first, as paths or whole URLs
    #[arg(required = true, value_name = "URL")]
    pages: Vec<String>,
    /// A model of 'lull predict train'
    #[arg(long, value_name = "FILE")]
    model: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    for page in &args.pages {
        if !page.starts_with('/') && !page.contains("://") {
            let text = format!("'{page}' is not a URL: write its path, such as /{page}");
            return Err(UsageError(text).into());
        }
        if Kind::of(page.split(['?', '#']).next().unwrap_or(page)) == Kind::Embedded {
            let text = format!("'{page}' is a part of pages, which are not predicted from it");
            return Err(UsageError(format!("{text}: name the page")).into());
        }
    }
    // Nothing is learned, so any key works.
    let Some(model) = super::read_model(&args.model, ClientHasher::new([0; 16]))? else {
        bail!(
            "there is no model {0}: create one with 'lull predict train --model {0} LOG'",
            args.model.display()
        );
    };
    let answer = Answer::new(&model, &args.pages);
    if args.json {
        print_line(&format!("{}\n", serde_json::to_string_pretty(&answer.json())?))
    } else {
        print_line(&answer.text())
    }
}

struct Answer<'a> {
    model: &'a Model,
    /// Pages without recent requests, which are not contexts.
    unknown: Vec<&'a str>,
    told: Explanation,
}

impl<'a> Answer<'a> {
    fn new(model: &'a Model, pages: &'a [String]) -> Self {
        let observer = model.observer();
        let found: Vec<Option<UrlId>> = pages.iter().map(|page| observer.url(page)).collect();
        let unknown = pages.iter().zip(&found).filter(|(_, id)| id.is_none());
        // No context reaches back beyond an unknown page.
        let behind = found.iter().rposition(Option::is_none).map_or(0, |at| at + 1);
        let context: Vec<UrlId> = found[behind..].iter().flatten().copied().collect();
        let mut held: Vec<UrlId> = found.iter().flatten().copied().collect();
        held.sort_unstable();
        let question =
            Question { at: model.latest(), pages: &context, learned: false, held: &held };
        Answer {
            model,
            unknown: unknown.map(|(page, _)| page.as_str()).collect(),
            told: model.predictor().explain(&question, observer.urls()),
        }
    }

    /// In milliseconds saved on average per kilobyte fetched, which are seconds per byte times a million.
    fn priority(&self, one: &Explained) -> f64 {
        f64::from(self.model.observer().urls().priority(one.url, one.probability)) * 1e6
    }

    /// Why it is not hinted.
    fn reason(&self, one: &Explained) -> Option<String> {
        let urls = self.model.observer().urls();
        Some(match one.withheld? {
            Withheld::Held => "the client has it".to_owned(),
            Withheld::Gone => "it had to make room for other URLs".to_owned(),
            Withheld::NotPublic => format!(
                "not public: {} got it without signing in, {DISTINCT_CLIENTS} are needed",
                count(urls.clients(one.url).into(), "distinct client", "distinct clients")
            ),
            Withheld::Unlikely => "too unlikely".to_owned(),
            Withheld::Costly => "too large for its low probability".to_owned(),
            Withheld::FewClients => format!(
                "too few clients followed this link: {}, {} are needed",
                count(one.clients.unwrap_or(0).into(), "distinct client", "distinct clients"),
                self.model.predictor().parameters().clients
            ),
        })
    }

    fn json(&self) -> Value {
        let urls = self.model.observer().urls();
        let one = |one: &Explained| {
            json!({
                "url": urls.path(one.url),
                "probability": one.probability,
                "bytes": urls.bytes(one.url).0,
                "latency_saved_s": urls.latency(one.url).as_secs_f64(),
                "priority_s_per_byte": urls.priority(one.url, one.probability),
                "clients_from_here": one.clients,
                "clients": urls.clients(one.url),
                "withheld": self.reason(one),
            })
        };
        let (suggested, withheld): (Vec<_>, Vec<_>) =
            self.told.candidates.iter().partition(|one| one.withheld.is_none());
        let contexts = self.told.contexts.iter().map(|context| {
            json!({
                "pages": context.pages,
                "occurrences": context.occurrences,
                "followers": context.followers,
            })
        });
        json!({
            "unknown": self.unknown,
            "contexts": contexts.collect::<Vec<Value>>(),
            "suggested": suggested.into_iter().map(one).collect::<Vec<Value>>(),
            "withheld": withheld.into_iter().map(one).collect::<Vec<Value>>(),
        })
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for page in &self.unknown {
            text += &format!("{}: no recent visits\n", plain(page));
        }
        for context in &self.told.contexts {
            text += &format!(
                "the last {}: {:.1} recent visits, followed by {}\n",
                if context.pages == 1 { "page".into() } else { format!("{} pages", context.pages) },
                context.occurrences,
                count(context.followers as u64, "URL", "URLs"),
            );
        }
        if self.told.contexts.is_empty() {
            text += "no page is known to follow, so only the general popularity counts\n";
        }
        let (suggested, withheld): (Vec<&Explained>, Vec<&Explained>) =
            self.told.candidates.iter().partition(|one| one.withheld.is_none());
        if suggested.is_empty() {
            text += "there are no hints\n";
        }
        for (heading, all) in [("suggested", suggested), ("not suggested", withheld)] {
            if all.is_empty() {
                continue;
            }
            let columns =
                [heading, "probability", "bytes", "saved", "priority", "clients", "of all", ""];
            let mut rows = vec![columns.map(str::to_owned).to_vec()];
            rows.extend(all.iter().take(ROWS).map(|one| self.row(one)));
            text += &format!("\n{}", table(&rows));
            if all.len() > ROWS {
                text += &format!("and {} more (all: --json)\n", all.len() - ROWS);
            }
        }
        text
    }

    fn row(&self, one: &Explained) -> Vec<String> {
        let urls = self.model.observer().urls();
        vec![
            plain(urls.path(one.url).unwrap_or("(gone)")),
            format!("{:.3}", one.probability),
            Bytes(urls.bytes(one.url).0).to_string(),
            format!("{:.0} ms", urls.latency(one.url).as_secs_f64() * 1e3),
            format!("{:.3}", self.priority(one)),
            one.clients.map_or("-".to_owned(), |clients| clients.to_string()),
            urls.clients(one.url).to_string(),
            self.reason(one).unwrap_or_default(),
        ]
    }
}
