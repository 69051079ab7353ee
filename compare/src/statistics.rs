//! Medians and their spread.

/// The middle of some measurements, and where the middle half of them lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    /// The lower quartile.
    pub(crate) low: f64,
    /// The upper quartile.
    pub(crate) high: f64,
}

impl Spread {
    /// `None` without measurements.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let values = sorted(values);
        let at = |part| quantile(&values, part);
        Some(Spread { median: at(0.5)?, low: at(0.25)?, high: at(0.75)? })
    }

    /// Of ratios, round by round: the machine's moods hit both sides of a round.
    pub(crate) fn of_ratios(above: &[f64], below: &[f64]) -> Option<Spread> {
        Spread::of(above.iter().zip(below).filter(|(_, below)| **below > 0.0).map(|(above, below)| above / below))
    }
}

pub(crate) fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The value that this part of the sorted values doesn't exceed; between two of them it is interpolated.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index, not negative")]
pub(crate) fn quantile(sorted: &[f64], part: f64) -> Option<f64> {
    let at = sorted.len().checked_sub(1)? as f64 * part.clamp(0.0, 1.0);
    let (below, above) = (*sorted.get(at.floor() as usize)?, *sorted.get(at.ceil() as usize)?);
    Some(below + (above - below) * at.fract())
}

#[cfg(test)]
mod tests {
    use super::{Spread, quantile};

    #[test]
    fn nothing_has_no_median() {
        assert_eq!(Spread::of([]), None);
        assert_eq!(quantile(&[], 0.99), None);
    }

    #[test]
    fn one_value_is_its_own_spread() {
        assert_eq!(Spread::of([3.0]), Some(Spread { median: 3.0, low: 3.0, high: 3.0 }));
    }

    #[test]
    fn the_middle_half_lies_between_the_quartiles() {
        let spread = Spread::of([5.0, 1.0, 4.0, 2.0, 3.0]).unwrap();
        assert_eq!(spread, Spread { median: 3.0, low: 2.0, high: 4.0 });
        assert_eq!(Spread::of([1.0, 2.0]), Some(Spread { median: 1.5, low: 1.25, high: 1.75 }));
    }

    #[test]
    fn ratios_are_made_within_a_round() {
        // The second round was twice as slow for both.
        let spread = Spread::of_ratios(&[1.0, 2.0], &[2.0, 4.0]).unwrap();
        assert_eq!(spread, Spread { median: 0.5, low: 0.5, high: 0.5 });
    }

    #[test]
    fn a_round_without_time_gives_no_ratio() {
        assert_eq!(Spread::of_ratios(&[1.0], &[0.0]), None);
    }

    #[test]
    fn the_ends_are_the_smallest_and_the_largest() {
        assert_eq!((quantile(&[1.0, 2.0, 9.0], 0.0), quantile(&[1.0, 2.0, 9.0], 1.0)), (Some(1.0), Some(9.0)));
    }
}
