//! How sure a mean is.

/// Student's t for 95 % on both sides, by degrees of freedom from 1 on.
const STUDENT: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];
/// The same for more than these.
const NORMAL: f64 = 1.960;

/// Half the width of the 95 % confidence interval of the mean of independent values; none of fewer
/// than two.
pub(crate) fn half_width(values: &[f64]) -> Option<f64> {
    let freedom = values.len().checked_sub(1).filter(|freedom| *freedom > 0)?;
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let student = STUDENT.get(freedom - 1).copied().unwrap_or(NORMAL);
    Some(student * (squares / freedom as f64 / count).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_student_s() {
        // Mean 3, sample variance 2.5: 2.776 · sqrt(2.5 / 5).
        let half = half_width(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert!((half - 1.962_93).abs() < 1e-4, "{half}");
        assert_eq!(half_width(&[7.0, 7.0]), Some(0.0));
        assert_eq!(half_width(&[7.0]), None);
        assert!(half_width(&[0.0, 1.0].repeat(50)).unwrap() < 0.1);
    }
}
