//! Time as everything on this machine has it: the operator's log, the API server and this program.

use std::time::{Duration, SystemTime};

use k8s_openapi::jiff::Timestamp;

/// Seconds from one moment to another; 0 when it was before.
pub(crate) fn seconds(from: SystemTime, to: SystemTime) -> f64 {
    to.duration_since(from).unwrap_or_default().as_secs_f64()
}

/// A moment as logs write it.
pub(crate) fn moment(text: &str) -> Option<SystemTime> {
    let stamp: Timestamp = text.parse().ok()?;
    Some(SystemTime::from(stamp))
}

/// The value that a fraction `q` of the values does not exceed.
pub(crate) fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index"
    )]
    let index = (sorted.len() as f64 * q).ceil() as usize;
    sorted
        .get(index.clamp(1, sorted.len().max(1)) - 1)
        .copied()
        .unwrap_or(f64::NAN)
}

/// Beats of a loop that looks again and again.
pub(crate) fn beat(every: Duration) -> tokio::time::Interval {
    let mut beat = tokio::time::interval(every);
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    beat
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_occurred() {
        let values: Vec<f64> = (1..=20).rev().map(f64::from).collect();
        assert!((quantile(&values, 0.95) - 19.0).abs() < f64::EPSILON);
        assert!((quantile(&values, 1.0) - 20.0).abs() < f64::EPSILON);
        assert!(quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn moments_are_read_from_logs() {
        let one = moment("2026-11-30T09:00:00.250000Z").unwrap();
        let two = moment("2026-11-30T09:00:01.500000Z").unwrap();
        assert!((seconds(one, two) - 1.25).abs() < 1e-9);
        assert!(seconds(two, one).abs() < f64::EPSILON);
        assert_eq!(moment("yesterday"), None);
    }
}
