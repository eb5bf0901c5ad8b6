//! Confidence intervals of means and slopes.

/// Student's t for 95 % on both sides, by degrees of freedom from 1 on.
const STUDENT: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];
/// The same for more than these.
const NORMAL: f64 = 1.960;

/// Half the width of the 95 % confidence interval of the mean of independent values; none for fewer than two.
pub(crate) fn half_width(values: &[f64]) -> Option<f64> {
    let freedom = values.len().checked_sub(1).filter(|freedom| *freedom > 0)?;
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let student = STUDENT.get(freedom - 1).copied().unwrap_or(NORMAL);
    Some(student * (squares / freedom as f64 / count).sqrt())
}

/// The slope of values over places, `(place, value)`, by least squares, and half the width of its 95 %
/// confidence interval. None for fewer than three points, or for one place only.
pub(crate) fn slope(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let freedom = points.len().checked_sub(2).filter(|freedom| *freedom > 0)?;
    let count = points.len() as f64;
    let mean = |pick: fn(&(f64, f64)) -> f64| points.iter().map(pick).sum::<f64>() / count;
    let (place, value) = (mean(|point| point.0), mean(|point| point.1));
    let squares: f64 = points.iter().map(|(x, _)| (x - place).powi(2)).sum();
    if squares == 0.0 {
        return None;
    }
    let slope = points.iter().map(|(x, y)| (x - place) * (y - value)).sum::<f64>() / squares;
    let residue = |(x, y): &(f64, f64)| (y - value - slope * (x - place)).powi(2);
    let residues: f64 = points.iter().map(residue).sum();
    let student = STUDENT.get(freedom - 1).copied().unwrap_or(NORMAL);
    Some((slope, student * (residues / freedom as f64 / squares).sqrt()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_follows_the_t_distribution() {
        // Mean 3, sample variance 2.5: 2.776 · sqrt(2.5 / 5).
        let half = half_width(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert!((half - 1.962_93).abs() < 1e-4, "{half}");
        assert_eq!(half_width(&[7.0, 7.0]), Some(0.0));
        assert_eq!(half_width(&[7.0]), None);
        assert!(half_width(&[0.0, 1.0].repeat(50)).unwrap() < 0.1);
    }

    #[test]
    fn slope_is_least_squares_with_a_t_interval() {
        let (exact, half) = slope(&[(0.0, 1.0), (1.0, 3.0), (3.0, 7.0)]).unwrap();
        assert!((exact - 2.0).abs() < 1e-12 && half.abs() < 1e-9, "{exact} ± {half}");
        // Slope 0.6; residues −0.2, 0.2, 0.6, −1, 0.4 of which the squares are 1.6; 3.182 for three
        // degrees of freedom; the places' squares are 10.
        let points = [(1.0, 1.0), (2.0, 2.0), (3.0, 3.0), (4.0, 2.0), (5.0, 4.0)];
        let (slope_of_five, half) = slope(&points).unwrap();
        assert!((slope_of_five - 0.6).abs() < 1e-12, "{slope_of_five}");
        assert!((half - 3.182 * (1.6f64 / 3.0 / 10.0).sqrt()).abs() < 1e-9, "{half}");
        assert_eq!(slope(&points[..2]), None);
        assert_eq!(slope(&[(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)]), None);
    }
}
