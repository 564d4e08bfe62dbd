//! Medians and quantiles.

/// The middle value; the mean of the two middle ones when there is an even number. NaN of nothing.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// The value that the fraction `q` of the sorted values does not exceed. NaN of nothing.
pub fn quantile(sorted: &[u32], q: f64) -> f64 {
    if sorted.is_empty() {
        return f64::NAN;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index"
    )]
    let index = ((sorted.len() as f64 * q).ceil() as usize).clamp(1, sorted.len()) - 1;
    f64::from(sorted[index])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < f64::EPSILON);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn quantiles_are_values_that_occurred() {
        let values: Vec<u32> = (1..=100).collect();
        assert!((quantile(&values, 0.5) - 50.0).abs() < f64::EPSILON);
        assert!((quantile(&values, 0.99) - 99.0).abs() < f64::EPSILON);
        assert!((quantile(&values, 1.0) - 100.0).abs() < f64::EPSILON);
        assert!((quantile(&[7], 0.01) - 7.0).abs() < f64::EPSILON);
    }
}
