//! Lines shown as examples, without their addresses.

use super::{Format, client, common};
use crate::address;

/// Characters of a line that are shown, at most.
const LENGTH: usize = 160;
/// Stands for an address.
const REDACTED: &str = "(address)";

/// The beginning of a line without addresses: words that are addresses are removed. The first word is also
/// removed if the format has the client there, which may be a name. If the first word is a site, so is the
/// second.
pub(super) fn redact(line: &[u8], format: Option<Format>) -> String {
    let text = String::from_utf8_lossy(&line[..line.len().min(4 * LENGTH)]);
    let text = text.trim();
    let client_first = matches!(format, None | Some(Format::Common | Format::Combined));
    // In a log of another kind the first word may be any, and few names have no digit and no dot.
    let may_be_name =
        |word: &str| format.is_some() || word.contains(|c: char| c == '.' || c.is_ascii_digit());
    let is_border = |c: char| c.is_whitespace() || "\"'[](){}<>|,;=/@".contains(c);
    let mut sample = String::new();
    let mut is_behind_site = false;
    for (at, piece) in text.split_inclusive(is_border).enumerate() {
        let word = piece.trim_end_matches(is_border);
        let is_client = client_first && (at == 0 || at == 1 && is_behind_site);
        let is_client =
            is_client && word.len() < text.len() && client::is_host_name(word) && may_be_name(word);
        is_behind_site = at == 0 && common::is_site(word);
        if is_client || is_behind_site || is_address(word) {
            sample.push_str(REDACTED);
            sample.push_str(&piece[word.len()..]);
        } else {
            sample.push_str(piece);
        }
        if sample.len() > LENGTH {
            break;
        }
    }
    sample.chars().take(LENGTH).collect()
}

/// An address, with or without a port or a zone, also at the end of a word.
fn is_address(word: &str) -> bool {
    let word = word.trim_end_matches(['.', ':']);
    address::parse(word).is_some()
        || word.rsplit_once(':').is_some_and(|(host, _)| address::parse(host).is_some())
}
