//! Guesses what was meant by a name that doesn't exist.

/// The candidate that differs from `name` in the fewest letters, unless it differs in more than a third of them.
pub(crate) fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let furthest = (name.chars().count() / 3).max(1);
    candidates
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= furthest && *distance < candidate.chars().count())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// How many letters must be added, removed, replaced or swapped with their neighbour (Damerau and Levenshtein,
/// in the restricted form that never edits a swapped pair again).
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut above: Option<(char, Vec<usize>)> = None;
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for letter in from.chars() {
        let next = next_row(letter, &to, &row, above.as_ref());
        above = Some((letter, std::mem::replace(&mut row, next)));
    }
    row.last().copied().unwrap_or_default()
}

fn next_row(letter: char, to: &[char], row: &[usize], above: Option<&(char, Vec<usize>)>) -> Vec<usize> {
    let at = |row: &[usize], column: usize| row.get(column).copied().unwrap_or(usize::MAX - 1);
    let mut next = vec![at(row, 0) + 1];
    for (column, &other) in to.iter().enumerate() {
        let replaced = at(row, column) + usize::from(letter != other);
        let mut best = replaced.min(at(row, column + 1) + 1).min(at(&next, column) + 1);
        if let (Some((earlier, above)), Some(before)) = (above, column.checked_sub(1))
            && *earlier == other
            && to.get(before) == Some(&letter)
        {
            best = best.min(at(above, before) + 1);
        }
        next.push(best);
    }
    next
}

#[cfg(test)]
mod tests {
    use super::{distance, nearest};

    #[test]
    fn a_swap_of_neighbours_is_one_edit() {
        assert_eq!(distance("tlt", "ttl"), 1);
        assert_eq!(distance("kye", "key"), 1);
        assert_eq!(distance("", "key"), 3);
        assert_eq!(distance("retry", "retry"), 0);
    }

    #[test]
    fn a_name_of_one_letter_is_no_guess_for_another() {
        assert_eq!(nearest("x", ["y", "id"].into_iter()), None);
    }
}
