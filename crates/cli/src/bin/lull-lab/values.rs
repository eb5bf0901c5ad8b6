//! Values of options that several commands share.

/// N and W of a PPM-N/W.
pub(crate) fn order_and_window(text: &str) -> Result<(usize, u32), String> {
    let numbers = text.split_once('/');
    let n = numbers.and_then(|(n, _)| n.parse().ok()).filter(|n| (1..=4).contains(n));
    let w = numbers.and_then(|(_, w)| w.parse().ok()).filter(|w| (1..=16).contains(w));
    n.zip(w).ok_or_else(|| "write n from 1 to 4 and w from 1 to 16, as in ppm=2/10".to_owned())
}

/// A number above 0.
pub(crate) fn positive(text: &str) -> Result<f64, &'static str> {
    let number = text.parse::<f64>().ok().filter(|number| (1e-6..=1e6).contains(number));
    number.ok_or("write a number above 0, such as 2.5")
}
