//! Statistics of lists of numbers.

/// The mean; none without values.
pub(crate) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The middle value, or the mean of the two in the middle.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// Filler, equation 1, with the mean below the bar. With the sum, as printed there, nothing above
/// 0.447 is possible for five flows, and tables 5 and 14 have such values.
pub(crate) fn sharing(goodputs: &[f64]) -> Option<f64> {
    let count = goodputs.len() as f64;
    let mean = goodputs.iter().sum::<f64>() / count;
    let squares: f64 = goodputs.iter().map(|goodput| (goodput - mean).powi(2)).sum();
    (goodputs.len() > 1 && mean > 0.0).then(|| (squares / (count - 1.0)).sqrt() / mean)
}
