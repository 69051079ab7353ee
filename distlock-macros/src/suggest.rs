//! Guesses what was meant by a name that doesn't exist.

/// The candidate that differs from `name` in the fewest letters, unless it differs in more than a third of them. Two
/// letters that were swapped count once.
pub(crate) fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let furthest = (name.chars().count() / 3).max(1);
    candidates
        .map(|candidate| (strsim::osa_distance(name, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= furthest && *distance < candidate.chars().count())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_slip_of_the_fingers_is_guessed() {
        for (name, meant) in [("tlt", "ttl"), ("kye", "key"), ("retyr", "retry"), ("wachdog", "watchdog")] {
            assert_eq!(nearest(name, ["key", "ttl", "retry", "watchdog"].into_iter()), Some(meant));
        }
    }

    #[test]
    fn a_name_of_one_letter_is_no_guess_for_another() {
        assert_eq!(nearest("x", ["y", "id"].into_iter()), None);
    }
}
