//! What the optimizer may know of a scan.
//!
//! Live row counts are exact, so `count(*)` needs no I/O. Bounds of a masked fragment are bounds of
//! rows that may be dead, so they are never exact: `min` and `max` would lie.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, StringViewArray, UInt64Array};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::stats::Precision;
use datafusion::common::{Column, ColumnStatistics, DFSchema, ScalarValue, Statistics};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::utils::conjunction;
use datafusion::physical_optimizer::pruning::PruningPredicateBuilder;
use datafusion_datasource::PartitionedFile;
use stratagraph::table::manifest::{Fragment, KeyRange, Layout};

use crate::Session;

/// The column that a table's key ranges are of.
pub(crate) fn key_column(layout: Layout) -> &'static str {
    match layout {
        Layout::Embedding | Layout::Neighbors => "_row_id",
        Layout::Node | Layout::Edge => "id",
    }
}

/// Live rows of a fragment.
pub(crate) fn live_rows(fragment: &Fragment) -> u64 {
    fragment.rows.saturating_sub(fragment.dead.rows)
}

/// Whether a bound is the key itself: a longer one was cut, at most three bytes below the limit.
fn is_whole(bound: &str) -> bool {
    bound.len() < KeyRange::CUT - 3
}

/// A text that every key of the range is smaller than or equal to.
fn upper_bound(keys: &KeyRange) -> Option<String> {
    if is_whole(&keys.max) {
        return Some(keys.max.clone());
    }
    // Everything that starts with the cut bound is below the bound with its last character raised.
    let mut prefix: Vec<char> = keys.max.chars().collect();
    while let Some(last) = prefix.pop() {
        let next = match u32::from(last) {
            0xD7FF => Some('\u{E000}'),
            code => char::from_u32(code + 1),
        };
        if let Some(next) = next {
            prefix.push(next);
            return Some(prefix.into_iter().collect());
        }
    }
    None
}

/// Statistics of one fragment for a planned schema.
pub(crate) fn of_fragment(schema: &Schema, fragment: &Fragment, key: Option<&str>) -> Statistics {
    let live = live_rows(fragment);
    let mut statistics = Statistics::new_unknown(schema);
    statistics.num_rows = Precision::Exact(live as usize);
    let share = live as f64 / fragment.rows.max(1) as f64;
    let bytes = (fragment.file.object.size as f64 * share) as usize;
    statistics.total_byte_size = Precision::Inexact(bytes);
    for (field, column) in schema
        .fields()
        .iter()
        .zip(&mut statistics.column_statistics)
    {
        if !field.is_nullable() {
            column.null_count = Precision::Exact(0);
        }
        if Some(field.name().as_str()) == key {
            let exact = fragment.dead.rows == 0;
            set_bounds(column, &fragment.keys, exact);
        }
    }
    statistics
}

fn set_bounds(column: &mut ColumnStatistics, keys: &KeyRange, unmasked: bool) {
    let bound = |text: &str, exact: bool| {
        let value = ScalarValue::Utf8View(Some(text.to_owned()));
        if exact {
            Precision::Exact(value)
        } else {
            Precision::Inexact(value)
        }
    };
    column.min_value = bound(&keys.min, unmasked && is_whole(&keys.min));
    if let Some(max) = upper_bound(keys) {
        column.max_value = bound(&max, unmasked && is_whole(&keys.max));
    }
}

/// Statistics of a whole scan.
pub(crate) fn of_files(schema: &SchemaRef, files: &[PartitionedFile]) -> Statistics {
    let known = files.iter().filter_map(|f| f.statistics.as_deref());
    Statistics::try_merge_iter(known, schema).unwrap_or_else(|_| Statistics::new_unknown(schema))
}

/// Key ranges of fragments, for pruning by predicates on the key.
struct KeyRanges<'a> {
    key: &'a str,
    fragments: &'a [&'a Fragment],
}

impl PruningStatistics for KeyRanges<'_> {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        let values = self.fragments.iter().map(|f| Some(f.keys.min.as_str()));
        (column.name == self.key).then(|| Arc::new(values.collect::<StringViewArray>()) as ArrayRef)
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        let values = self.fragments.iter().map(|f| upper_bound(&f.keys));
        (column.name == self.key).then(|| Arc::new(values.collect::<StringViewArray>()) as ArrayRef)
    }

    fn num_containers(&self) -> usize {
        self.fragments.len()
    }

    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        let zeros = UInt64Array::from(vec![0; self.fragments.len()]);
        (column.name == self.key).then(|| Arc::new(zeros) as ArrayRef)
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        let rows: UInt64Array = self.fragments.iter().map(|f| Some(f.rows)).collect();
        Some(Arc::new(rows))
    }

    fn contained(&self, _: &Column, _: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}

/// Which fragments can hold a row that `filters` keep. Anything that cannot be decided keeps all:
/// the filters are evaluated again above the scan.
pub(crate) fn prune_by_key(
    state: &dyn Session,
    schema: &SchemaRef,
    key: &str,
    filters: &[Expr],
    fragments: &[&Fragment],
) -> Vec<bool> {
    let all = || vec![true; fragments.len()];
    let on_key = |filter: &&Expr| {
        let columns = filter.column_refs();
        !columns.is_empty() && columns.iter().all(|c| c.name == key)
    };
    let Some(predicate) = conjunction(filters.iter().filter(on_key).cloned()) else {
        return all();
    };
    let decided = DFSchema::try_from(Arc::clone(schema))
        .and_then(|df| state.create_physical_expr(predicate, &df))
        .and_then(|expr| {
            let builder = PruningPredicateBuilder::new();
            builder.with_file_schema(Arc::clone(schema)).try_build(expr)
        })
        .and_then(|pruning| pruning.prune(&KeyRanges { key, fragments }));
    decided.unwrap_or_else(|error| {
        tracing::debug!(%error, "fragments are not pruned by this predicate");
        all()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_bound_is_raised() {
        let long = |c: &str| c.repeat(80 / c.len());
        for (last, whole) in [
            ("abc".to_owned(), true),
            (long("z"), false),
            (long("\u{D7FF}"), false),
            (format!("{}\u{10FFFF}\u{10FFFF}", "a".repeat(57)), false),
        ] {
            let keys = KeyRange::new("", &last);
            let bound = upper_bound(&keys).unwrap();
            assert_eq!(bound == last, whole, "{last:?}");
            assert!(
                bound >= last && bound >= format!("{last}\u{10FFFF}") || whole,
                "{last:?}"
            );
        }
        assert_eq!(upper_bound(&KeyRange::new("", &long("\u{10FFFF}"))), None);
    }
}
