//! The fold of what a version holds of its source.

use stratagraph::digest::Digest;
use stratagraph::table::fold::SourceFolder;
use stratagraph::table::manifest::SourceFold;

use super::sink::Refusal;

/// The fold of all source rows less those that were refused for a passing reason: the next refresh
/// must find them missing, and not take an unchanged source for nothing to do.
pub(crate) fn without_passing(
    all: &SourceFolder,
    refusals: &[Refusal],
    unique: bool,
) -> SourceFold {
    let mut passing = SourceFolder::default();
    for refusal in refusals.iter().filter(|r| !r.reason.is_lasting()) {
        passing.add(&refusal.key, &refusal.hash);
    }
    let (all, passing) = (all.finish(unique), passing.finish(unique));
    SourceFold {
        sum: subtract(&all.sum, &passing.sum),
        rows: all.rows.saturating_sub(passing.rows),
        unique,
    }
}

/// Sums of folds are numbers modulo 2^256, least significant byte first.
fn subtract(from: &Digest, what: &Digest) -> Digest {
    let mut out = [0u8; 32];
    let mut borrow = false;
    for (place, (a, b)) in out
        .iter_mut()
        .zip(from.as_bytes().iter().zip(what.as_bytes()))
    {
        let (difference, under) = a.overflowing_sub(*b);
        let (difference, under_borrow) = difference.overflowing_sub(u8::from(borrow));
        (*place, borrow) = (difference, under || under_borrow);
    }
    Digest::from_bytes(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stratagraph::embed::RejectReason;

    #[test]
    fn rows_that_failed_in_passing_leave_the_fold() {
        let rows: Vec<(String, [u8; 32])> = (0..50u8)
            .map(|i| (format!("k{i}"), [i.wrapping_mul(37); 32]))
            .collect();
        let fold = |keep: &dyn Fn(usize) -> bool| {
            let mut folder = SourceFolder::default();
            for (i, (key, hash)) in rows.iter().enumerate().filter(|(i, _)| keep(*i)) {
                let _ = i;
                folder.add(key, hash);
            }
            folder
        };
        let refusal = |i: usize, reason| Refusal {
            key: rows[i].0.clone(),
            hash: rows[i].1,
            reason,
            shadowed: false,
        };
        let refusals = [
            refusal(3, RejectReason::Rejected),
            refusal(7, RejectReason::Empty),
            refusal(31, RejectReason::NonFinite),
        ];
        let left = without_passing(&fold(&|_| true), &refusals, true);
        assert_eq!(left, fold(&|i| i != 3 && i != 31).finish(true));
        let none = without_passing(&fold(&|_| true), &[], false);
        assert_eq!(none, fold(&|_| true).finish(false));
    }
}
