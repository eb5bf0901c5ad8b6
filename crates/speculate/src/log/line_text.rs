//! The text of a line, for any bytes that the server has logged.

use std::borrow::Cow;

use core::fmt::Write as _;

use super::{LineError, MAX_LINE_BYTES};

/// The text of a line without blanks around it.
///
/// Bytes that are not UTF-8 become `%E9`, as browsers send them in a URL: old servers log the path as in the
/// file system. A leading byte order mark is removed.
///
/// # Errors
/// If the line is too long, or has bytes that text cannot contain.
pub(super) fn decode(line: &[u8]) -> Result<Cow<'_, str>, LineError> {
    if line.len() > MAX_LINE_BYTES {
        return Err(LineError::TooLong);
    }
    // Without a branch, which is several times as fast.
    if line.iter().fold(false, |found, byte| found | (*byte == 0)) {
        return Err(LineError::NotText);
    }
    Ok(match core::str::from_utf8(line) {
        Ok(text) => {
            let text = text.trim().trim_start_matches('\u{feff}');
            repaired(text)
        }
        Err(_) => Cow::Owned(percent_encoded(line).trim().to_owned()),
    })
}

/// A line with invalid JSON escapes, replaced by valid ones; other lines unchanged. A prefix may precede the
/// object.
pub(super) fn repaired(text: &str) -> Cow<'_, str> {
    if !text.contains("\\x") {
        return Cow::Borrowed(text);
    }
    match text.split_once('"') {
        Some((before, _)) if before.trim_end().ends_with('{') => {
            Cow::Owned(with_json_escapes(text))
        }
        _ => Cow::Borrowed(text),
    }
}

fn percent_encoded(line: &[u8]) -> String {
    let mut text = String::with_capacity(line.len());
    for chunk in line.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // Writing into a text cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// nginx without `escape=json` writes `\x22`, which is not an escape of JSON.
fn with_json_escapes(text: &str) -> String {
    let mut whole = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        whole.push_str(&rest[..at]);
        let escape = &rest[at..];
        let hex = escape.strip_prefix("\\x").and_then(|digits| digits.get(..2));
        let byte = hex.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let length = match byte {
            Some(byte) => {
                let _ = if byte.is_ascii() {
                    write!(whole, "\\u{byte:04x}")
                } else {
                    write!(whole, "%{byte:02X}")
                };
                4
            }
            // Any other escape has two characters, of which the second does not begin another one.
            None => {
                let length = 1 + escape[1..].chars().next().map_or(0, char::len_utf8);
                whole.push_str(&escape[..length]);
                length
            }
        };
        rest = &escape[length..];
    }
    whole.push_str(rest);
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn non_utf8_bytes_are_percent_encoded() {
        for (line, text) in [
            (&b" a\r"[..], "a"),
            (b"\xef\xbb\xbf{}", "{}"),
            (b"GET /caf\xe9 x", "GET /caf%E9 x"),
            ("GET /caf\u{e9} x".as_bytes(), "GET /caf\u{e9} x"),
            (br#"{"a":"\x22K\xe9\\x41\"\x4"}"#, r#"{"a":"\u0022K%E9\\x41\"\x4"}"#),
            (
                br#"2024-07-03T09:46:40Z stdout F {"a":"\x22"}"#,
                r#"2024-07-03T09:46:40Z stdout F {"a":"\u0022"}"#,
            ),
            (br#"192.0.2.7 "GET /\x22" 200"#, r#"192.0.2.7 "GET /\x22" 200"#),
            (br#"{"a":"\n"}"#, r#"{"a":"\n"}"#),
        ] {
            assert_eq!(decode(line).unwrap(), text);
        }
        assert_eq!(decode(b"a\0b"), Err(LineError::NotText));
        assert_eq!(decode(&vec![b'a'; MAX_LINE_BYTES + 1]), Err(LineError::TooLong));
    }
}
