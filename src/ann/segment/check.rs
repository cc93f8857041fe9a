//! Checks of what sections hold.

use super::{Checked, ensure};

/// Offsets rise from 0 to the number of targets, and targets are below `bound`.
pub(super) fn check_adjacency(
    offsets: &[u32],
    targets: &[u32],
    nodes: usize,
    bound: u32,
) -> Checked<()> {
    ensure(
        offsets.len().checked_sub(1) == Some(nodes),
        "an offset a node",
        offsets.len(),
    )?;
    let ends = (
        offsets.first().copied(),
        offsets.last().map(|last| *last as usize),
    );
    ensure(
        ends == (Some(0), Some(targets.len())),
        "offsets of all targets",
        targets.len(),
    )?;
    ensure(offsets.is_sorted(), "offsets that rise", "one that falls")?;
    let highest = targets.iter().copied().max();
    ensure(
        highest.is_none_or(|t| t < bound),
        "targets in range",
        highest.unwrap_or(0),
    )
}

/// Rows rise strictly and stay below `bound`.
pub(super) fn check_ascending(rows: &[u32], bound: u32) -> Checked<()> {
    let rises = rows.is_sorted_by(|a, b| a < b);
    ensure(rises, "rows that rise", "one that does not")?;
    ensure(
        rows.last().is_none_or(|last| *last < bound),
        "rows in range",
        rows.len(),
    )
}

/// No row, each below `bound`, occurs twice.
pub(super) fn check_distinct(rows: &[u32], bound: u32) -> Checked<()> {
    let mut seen = vec![false; bound as usize];
    for row in rows {
        let new = !std::mem::replace(&mut seen[*row as usize], true);
        ensure(new, "each row once", row)?;
    }
    Ok(())
}

/// Every number is finite.
pub(super) fn check_finite(floats: &[f32]) -> Checked<()> {
    let finite = floats.iter().all(|x| x.is_finite());
    ensure(finite, "finite numbers", "one that is not")
}
