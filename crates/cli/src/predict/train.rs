//! `lull predict train`: learns a model from logs.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, bail};
use lull_cc::Bytes;
use lull_speculate::model::Model;
use lull_speculate::observe::{ClientHasher, Ignored, Limits};
use lull_speculate::predict::PpmParameters;
use serde_json::json;

use super::{LearnedRange, count, print_line};
use lull_cli::logs::contents::{self, Contents};
use lull_cli::logs::{LogArgs, Logs};
use lull_durable::Replacement;

const EXAMPLES: &str = "\
Examples:
  lull predict train --model site.model access.log.2.gz access.log.1 access.log
      learn from all logs; Lull sorts rotated logs, and the lines of several servers, by time
  lull predict train --model site.model access.log
      the next day: the model keeps what it knows, and requests that it has learned are left out
  kubectl logs deploy/web | lull predict train --model site.model -
      a log from another program
  lull predict train --model site.model --trusted-proxy 10.0.0.0/8 access.log
      the server is behind a proxy that appends the client to X-Forwarded-For
  lull predict train --model site.model --client-field http_cf_connecting_ip access.json
      the client is in another field
  lull predict train --model site.model access.log --format \\
      '$remote_addr [$time_iso8601] \"$request\" $status $body_bytes_sent'
      a format of your own, as in nginx.conf; or as in httpd.conf: '%h %t \"%r\" %>s %b'
  lull predict train --model site.model access.json --format \\
      json:client=net.peer,time=when,method=verb,url=path,status=code
      JSON with names of your own; a dot leads into an object
  lull predict train --model site.model --key site.key access.log
      count distinct clients over all days; otherwise each run counts from zero

Formats: Common and Combined (Apache, nginx), W3C extended (IIS, CloudFront), IIS, JSON lines (nginx,
Elastic, Logstash, Envoy, Traefik, Google, Cloudflare), Caddy, AWS load balancers, HAProxy, Squid,
Envoy's and Istio's text, and logfmt (Heroku's router).
Prefixes of CRI, Docker, Compose, syslog, journald and Heroku are stripped. Files may be packed by
gzip, zstd, xz or bzip2, and be UTF-16. Of a damaged file Lull reads the readable part, and reports it.

A line is learned from only if its client is known: one visitor that counts as many would make a
private link public. Lines that cannot be read are counted, and one is shown with its addresses
blotted out. The model holds no address and nothing that leads to one. It is replaced as a whole at
the end, so that a failure does not damage the model that is there.

Exit codes: 1 if a log, the model or the key cannot be read or written, or no log holds a request;
2 if the arguments are wrong. The exit code is 0 otherwise.";

/// Learn from access logs which pages visitors request next
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Access logs; - is standard input
    #[arg(required = true, value_name = "LOG")]
    logs: Vec<PathBuf>,
    #[command(flatten)]
    how: LogArgs,
    /// Use only requests for this site, if the log has several, as those of Caddy and Apache may. May be
    /// repeated
    #[arg(long, value_name = "HOST")]
    site: Vec<String>,
    /// The model. An existing model continues to learn
    #[arg(long, value_name = "FILE")]
    model: PathBuf,
    /// Start with an empty model
    #[arg(long)]
    fresh: bool,
    /// Also learn from lines that are not later than those in the model: from the log of another server
    #[arg(long)]
    again: bool,
    /// File with a secret for counting clients; it is created if needed. With this file and the model, one
    /// can test whether an address visited a page: protect it like the logs
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Print a summary as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let key = args.key.as_deref().map_or_else(super::random_key, super::key_of)?;
    let hasher = ClientHasher::new(key);
    if super::is_foreign(&args.model) {
        bail!("{} exists and is not a model: name another file", args.model.display());
    }
    let unwritten = || format!("the model {} cannot be written", args.model.display());
    // From here on no other process trains this model: the results of one of them would be lost.
    let replacement = Replacement::begin(&args.model).with_context(unwritten)?;
    let before = if args.fresh {
        None
    } else {
        super::read_model(&args.model, hasher.clone()).map_err(|error| {
            // A user who trains can also start without the earlier model.
            let text = format!("{error:#} (--fresh starts a new model)");
            error.context(text)
        })?
    };
    let continued = before.is_some();
    let mut model =
        before.unwrap_or_else(|| Model::new(hasher, Limits::default(), PpmParameters::shipped()));
    let mut logs = Logs::find(&args.logs, &args.how)?.of_sites(&args.site);
    let known = LearnedRange::of(model.latest());
    let (mut visits, mut ignored, mut left_out) = (0, BTreeMap::new(), 0);
    let contents = logs.read_shown("training", |entry| {
        if continued && !args.again && known.has(entry.at) {
            left_out += 1;
            return;
        }
        match model.learn(entry) {
            Ok(_) => visits += 1,
            Err(why) => *ignored.entry(why).or_insert(0u64) += 1,
        }
    })?;
    if contents.iter().all(|log| log.entries() == 0) {
        bail!("there is no request to learn from: all logs are empty");
    }
    replacement.finish(|to| model.write(to)).with_context(unwritten)?;
    let learned = Learned { model: &model, contents, visits, ignored, left_out, continued, args };
    if args.json { learned.json() } else { learned.text() }
}

struct Learned<'a> {
    model: &'a Model,
    contents: Vec<Contents>,
    visits: u64,
    ignored: BTreeMap<Ignored, u64>,
    /// Requests that are not later than the model's latest.
    left_out: u64,
    continued: bool,
    args: &'a Args,
}

impl Learned<'_> {
    fn file_bytes(&self) -> u64 {
        fs::metadata(&self.args.model).map_or(0, |metadata| metadata.len())
    }

    fn json(&self) -> anyhow::Result<()> {
        let urls = self.model.observer().urls();
        let value = json!({
            "logs": self.contents.iter().map(Contents::json).collect::<Vec<_>>(),
            "visits": self.visits,
            "ignored": self.ignored,
            "known_already": self.left_out,
            "model": {
                "file": self.args.model,
                "continued": self.continued,
                "urls": urls.len(),
                "public_urls": urls.public(),
                "contexts": self.model.predictor().contexts(),
                "followers": self.model.predictor().followers(),
                "resident_bytes": self.model.resident().0,
                "file_bytes": self.file_bytes(),
            },
        });
        print_line(&format!("{}\n", serde_json::to_string_pretty(&value)?))
    }

    fn text(&self) -> anyhow::Result<()> {
        let mut text = contents::text(&self.contents);
        text += &format!("learned from {}", count(self.visits, "visit", "visits"));
        let mut separator = "; not from";
        for (why, number) in &self.ignored {
            text += &format!("{separator} {number} {why}");
            separator = ",";
        }
        if self.left_out > 0 {
            let requests = count(self.left_out, "request", "requests");
            text += &format!(
                "\n{requests} are not later than those that the model has learned, and skipped \
                 (--again learns them)"
            );
        }
        let urls = self.model.observer().urls();
        text += &format!(
            "\n{}: {}: {}, {} of them public; {}; {} of memory, {} on disk\n",
            self.args.model.display(),
            if self.continued { "goes on" } else { "new" },
            count(urls.len() as u64, "URL", "URLs"),
            urls.public(),
            count(self.model.predictor().contexts() as u64, "context", "contexts"),
            self.model.resident(),
            Bytes(self.file_bytes()),
        );
        print_line(&text)
    }
}
