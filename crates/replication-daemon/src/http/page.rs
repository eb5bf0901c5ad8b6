//! The status of an origin as a page.

use core::fmt::Write;

use super::figures::share;
use crate::daemon::{OriginStatus, PeerStatus};

const STYLE: &str = "\
         body{font:16px/1.5 system-ui;max-width:75rem;margin:2rem auto;padding:0 1rem;\
         color:#223;background:#fbfbf9}h1{font-weight:500}table{border-collapse:collapse;\
         width:100%}th,td{text-align:right;padding:.4rem .6rem;border-bottom:1px solid #dde}\
         th:first-child,td:nth-child(2){text-align:left}td:nth-child(2){font-weight:600}\
         .here td:nth-child(2){color:#287a3e}.late td:nth-child(2){color:#9a6700}\
         p.away,.away td:nth-child(2),.off td:nth-child(2){color:#b3261e}\
         @media(prefers-color-scheme:dark){body{color:#dde;background:#181a1f}\
         th,td{border-color:#334}.here td:nth-child(2){color:#6fce8a}\
         .late td:nth-child(2){color:#e3b341}\
         p.away,.away td:nth-child(2),.off td:nth-child(2){color:#ff8a80}}";

/// The activity of a replica, in words.
fn state_of(one: &PeerStatus) -> (&'static str, String) {
    let (class, mut text) = match one {
        one if !one.admitted => ("off", "not admitted".to_owned()),
        one if !one.connected => {
            let least = if one.never_connected { " at least" } else { "" };
            let since =
                one.silent_seconds.map_or_else(String::new, |time| format!(" for {time:.0} s"));
            ("away", format!("away{since}{least}"))
        }
        one if one.lag == Some(0) => ("here", "up to date".to_owned()),
        _ => ("late", "catching up".to_owned()),
    };
    if let Some(relay) = &one.below {
        let _ = write!(text, " below {}", of_html(relay));
    }
    if let Some(time) = one.served_while_disconnected_seconds.filter(|_| one.admitted) {
        // A lower bound has no upper bound.
        let _ = if one.never_connected {
            write!(text, ", reads answered for all of that at most")
        } else {
            write!(text, ", reads answered for {time:.0} s at most")
        };
    }
    if one.to_renew {
        text += ", needs a new certificate";
    }
    if let Some(at) = one.to_reach {
        let _ = write!(text, ", old session tokens stay valid until it reaches state {at}");
    }
    (class, text)
}

/// A value that is only a lower bound.
fn at_least(so: bool, figure: String) -> String {
    if so { format!("≥ {figure}") } else { figure }
}

/// The error of a clock.
fn skew_of((least, most): (f64, f64)) -> String {
    format!("{:+.0} to {:+.0} ms", 1e3 * least, 1e3 * most)
}

/// The page of an origin.
pub(super) fn page(status: &OriginStatus) -> String {
    let (rows, troubles) = (rows(status), troubles(status));
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content=2>\
         <meta name=viewport content='width=device-width'><title>Lull origin</title><style>{STYLE}</style>\
         <h1>State @{}</h1><p>{} objects, {}; {} more for rollbacks. {} bodies pushed, {} read on demand, \
         {} overtaken in the queue.</p>{troubles}<table><thead><tr><th scope=col>Replica\
         <th scope=col>State<th scope=col>Commits behind<th scope=col>Stale by\
         <th scope=col>Objects here<th scope=col>Bytes here<th scope=col>Clock ahead by\
         <th scope=col>Bodies queued<th scope=col>Control\
         <th scope=col>On demand<th scope=col>Background<tbody>{rows}</table>\n",
        status.sequence,
        status.objects,
        amount(status.bytes),
        amount(status.overwritten_bytes),
        status.pushed,
        status.demands,
        status.absorbed,
    )
}

/// A row for each replica.
fn rows(status: &OriginStatus) -> String {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
    let percent = |share: Option<f64>| or_dash(share.map(|one| format!("{:.1} %", 100.0 * one)));
    let mut rows = String::new();
    for one in &status.replicas {
        let (class, state) = state_of(one);
        let _ = write!(
            rows,
            "<tr class={class}><th scope=row>{}<td>{state}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}\
             <td>{}<td>{}",
            of_html(&one.name),
            or_dash(one.lag.map(|lag| at_least(one.never_connected, lag.to_string()))),
            or_dash(
                one.staleness_seconds
                    .map(|time| { at_least(one.stale_at_least, format!("{time:.1} s")) })
            ),
            percent(share(one.valid_objects, one.subscribed_objects())),
            percent(share(one.valid_bytes, one.subscribed_bytes())),
            or_dash(one.skew_seconds.map(skew_of)),
            or_dash(one.queue.map(|queue| queue.to_string())),
            amount(one.control_bytes),
            amount(one.demand_bytes),
            amount(one.speculative_bytes),
        );
    }
    if rows.is_empty() {
        rows.push_str(
            "<tr><td colspan=11>No replica so far: <code>lull origin ticket</code> prints a \
             ticket for one.",
        );
    }
    rows
}

/// Messages about what an operator has to do.
fn troubles(status: &OriginStatus) -> String {
    let mut troubles = String::new();
    if status.lost > 0 {
        let _ = write!(
            troubles,
            "<p class=away>{} bodies are missing or corrupt: publish their files again.",
            status.lost
        );
    }
    if status.disk_full {
        troubles += "<p class=away>The disk was full within the last minute: writes are rejected \
                     until there is space.";
    }
    if let Some(why) = &status.store_away {
        let why = of_html(why);
        let _ = write!(
            troubles,
            "<p class=away>{why}: files over 16 KiB are refused until it answers."
        );
    }
    if let Some(why) = status.log.as_ref().and_then(|log| log.away.as_ref()) {
        let why = of_html(why);
        let _ = write!(troubles, "<p class=away>{why}: writes are refused until it answers.");
    }
    if status.rotating {
        troubles += "<p>The certificate authority is being replaced: when no replica needs a new \
                     certificate, run <code>lull origin rotate --finish</code>.";
    }
    troubles
}

fn amount(bytes: u64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1_000.0 && unit + 1 < units.len() {
        value /= 1_000.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", units[unit]) }
}

fn of_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::sample;
    use super::*;

    #[test]
    fn replica_names_are_escaped_in_html() {
        assert_eq!(of_html("<b>&\""), "&lt;b>&amp;&quot;");
    }

    #[test]
    fn origin_page_shows_all_values_of_each_replica() {
        let page = page(&sample());
        for words in [
            "<td>catching up<td>3<td>1.3 s<td>100.0 %<td>95.7 %<td>-12 to +3 ms<td>77\
             <td>1.1 kB<td>2.2 kB<td>3.3 kB",
            "away for 40 s, reads answered for 30 s at most, needs a new certificate, old session \
             tokens stay valid until it reaches state 7<td>–<td>–<td>–<td>–<td>–<td>0",
            "away for 50 s at least, reads answered for all of that at most<td>≥ 2<td>≥ 50.0 \
             s<td>–<td>–<td>–<td>–<td>",
            "4.4 kB more for rollbacks",
            "2 bodies are missing or corrupt",
            "The disk was full",
            "refuses &lt;access>: files over 16 KiB are refused until it answers",
            "<code>lull origin rotate --finish</code>",
        ] {
            assert!(page.contains(words), "no {words} in {page}");
        }
    }

    #[test]
    fn amounts_have_three_or_four_digits() {
        for (bytes, expected) in
            [(0, "0 B"), (999, "999 B"), (1_500, "1.5 kB"), (2_000_000, "2.0 MB")]
        {
            assert_eq!(amount(bytes), expected);
        }
    }
}
