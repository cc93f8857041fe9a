//! The fold of what a version holds of its source.

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
    let mut lasting = all.clone();
    for refusal in refusals.iter().filter(|r| !r.reason.is_lasting()) {
        lasting.remove(&refusal.key, &refusal.mark);
    }
    lasting.finish(unique)
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
            hash: [0; 32],
            mark: rows[i].1,
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
