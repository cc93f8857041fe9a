//! The name that a misspelt one probably means.

/// The candidate with the fewest edits, if they are at most a third of `name`.
pub(super) fn nearest<'a>(
    name: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    // A name is at most this long; a longer text is no misspelt name.
    if name.len() > crate::limits::NAME_BYTES {
        return None;
    }
    let most = name.chars().count().div_ceil(3);
    candidates
        .map(|candidate| (edits(name, candidate), candidate))
        .filter(|(edits, _)| *edits <= most)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Levenshtein distance without regard to ASCII case.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().map(|c| c.to_ascii_lowercase()).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (at, left) in a.chars().map(|c| c.to_ascii_lowercase()).enumerate() {
        let mut corner = at;
        row[0] = at + 1;
        for (column, right) in b.iter().enumerate() {
            let replaced = corner + usize::from(left != *right);
            corner = row[column + 1];
            row[column + 1] = replaced.min(corner + 1).min(row[column] + 1);
        }
    }
    row[b.len()]
}

/// `; did you mean "..."?`, or nothing.
pub(super) fn hint<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> String {
    nearest(name, candidates).map_or_else(String::new, |near| format!("; did you mean {near:?}?"))
}
