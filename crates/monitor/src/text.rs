//! Numbers in few characters, for columns.

/// A number with three digits and a prefix of the SI: `9.42M`, `512`, `0`. At most five characters.
pub(crate) fn si(value: f64) -> String {
    const PREFIXES: [&str; 6] = ["", "k", "M", "G", "T", "P"];
    let mut value = value.max(0.0);
    let mut prefix = 0;
    // 999.5 is shown with three digits as 1000.
    while value >= 999.5 && prefix + 1 < PREFIXES.len() {
        value /= 1000.0;
        prefix += 1;
    }
    let decimals = match value {
        _ if prefix == 0 => 0,
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}{}", PREFIXES[prefix])
}

/// A window in packets: `1/48`, `2.00`, `12.5`, `1234`.
pub(crate) fn window(packets: f64) -> String {
    match packets {
        packets if packets <= 0.0 => "0".to_owned(),
        packets if packets < 0.095 => format!("1/{:.0}", 1.0 / packets),
        packets if packets < 9.995 => format!("{packets:.2}"),
        packets if packets < 99.95 => format!("{packets:.1}"),
        packets if packets < 9_999.5 => format!("{packets:.0}"),
        packets => format!("{:.0}k", packets / 1000.0),
    }
}

/// A time: `0.4ms`, `12ms`, `1.2s`.
pub(crate) fn delay(micros: u64) -> String {
    match micros {
        0..9_950 => format!("{:.1}ms", micros as f64 / 1e3),
        9_950..999_500 => format!("{:.0}ms", micros as f64 / 1e3),
        _ => format!("{:.1}s", micros as f64 / 1e6),
    }
}

/// A part of a whole, in percent.
pub(crate) fn percent(part: f64) -> String {
    format!("{:.0}%", 100.0 * part)
}

/// A rate in words: `9.42 Mbit/s`. `-` if it is not known.
pub(crate) fn bits_per_second(bytes_per_second: Option<f64>) -> String {
    let Some(bytes) = bytes_per_second else { return "-".to_owned() };
    let text = si(8.0 * bytes);
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    format!("{digits} {}bit/s", &text[digits.len()..])
}

/// At most so many characters; a `~` replaces what is cut off.
pub(crate) fn shorten(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    kept + "~"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fit_their_columns() {
        for (value, text) in [
            (0.0, "0"),
            (999.4, "999"),
            (999.6, "1.00k"),
            (9_421_000.0, "9.42M"),
            (94_210_000.0, "94.2M"),
            (942_100_000.0, "942M"),
            (999_600_000.0, "1.00G"),
            (-1.0, "0"),
        ] {
            assert_eq!(si(value), text);
        }
        for exponent in 0..16 {
            for digit in 1..10 {
                assert!(si(f64::from(digit) * 9.999 * 10f64.powi(exponent)).len() <= 5);
            }
        }
        let windows = [1.0 / 48.0, 0.5, 2.0, 12.5, 100.0, 1234.4, 12_000.0].map(window);
        assert_eq!(windows, ["1/48", "0.50", "2.00", "12.5", "100", "1234", "12k"]);
        let delays = [0, 400, 9_949, 12_300, 999_499, 1_234_000].map(delay);
        assert_eq!(delays, ["0.0ms", "0.4ms", "9.9ms", "12ms", "999ms", "1.2s"]);
        assert_eq!(bits_per_second(Some(1_177_500.0)), "9.42 Mbit/s");
        assert_eq!(bits_per_second(Some(0.0)), "0 bit/s");
        assert_eq!(percent(0.764), "76%");
    }

    #[test]
    fn long_text_is_shortened_with_a_mark() {
        assert_eq!(shorten("restic", 6), "restic");
        assert_eq!(shorten("restic backup", 6), "resti~");
        assert_eq!(shorten("€€€", 2), "€~");
    }
}
