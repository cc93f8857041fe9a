//! The text that a model sees of a row.

use std::fmt::Write as _;

use arrow::array::{Array, ArrayRef, StringArray, StringBuilder};

use super::cells::{Cells, common_rows};
use crate::{Error, Result};

/// The version of [`assemble`] and of [`super::render`] together, part of every model definition.
/// Raise it when either gives another text for the same row.
pub const TEXT_RULE: u32 = 1;

/// One text per row: the parts of `columns` in their order, joined by one space.
///
/// A NULL part is skipped together with its space, an empty part is kept. A row whose parts are all
/// NULL or empty is NULL: local models refuse it, HTTP models are sent "".
///
/// Columns are strings of any layout and of one length; others come from [`super::render`]. More
/// than 2 GiB of text in one call is [`Error::ResourceLimitExceeded`].
pub fn assemble(columns: &[ArrayRef]) -> Result<StringArray> {
    let rows = common_rows("text", columns)?;
    let cells = columns
        .iter()
        .map(|column| Cells::new("text", column))
        .collect::<Result<Vec<_>>>()?;
    if let Some(binary) = cells.iter().position(|cells| !cells.is_text()) {
        return Err(Error::InvalidArgument {
            function: "text".to_owned(),
            argument: "columns".to_owned(),
            reason: format!(
                "a model reads text, not {}; choose another column or decode it",
                columns[binary].data_type()
            ),
        });
    }
    let mut out = StringBuilder::with_capacity(rows, 0);
    let mut total = 0usize;
    for row in 0..rows {
        let parts = || cells.iter().filter_map(|cells| cells.text(row));
        if parts().all(str::is_empty) {
            out.append_null();
            continue;
        }
        let bytes: usize = parts().map(|part| part.len() + 1).sum();
        total = total.saturating_add(bytes);
        check_total(total)?;
        for (i, part) in parts().enumerate() {
            let space = if i == 0 { "" } else { " " };
            // Writing to the builder's own buffer cannot fail.
            let _ = out.write_str(space).and_then(|()| out.write_str(part));
        }
        out.append_value("");
    }
    Ok(out.finish())
}

/// The offsets of a [`StringArray`] are i32, and its builder panics beyond them.
fn check_total(total: usize) -> Result<()> {
    const LIMIT: usize = i32::MAX as usize;
    if total > LIMIT {
        return Err(Error::ResourceLimitExceeded {
            what: "bytes of text in one batch",
            value: total as u64,
            limit: LIMIT as u64,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_texts_is_bounded() {
        assert!(check_total(i32::MAX as usize).is_ok());
        let above = check_total(i32::MAX as usize + 1).unwrap_err();
        assert_eq!(above.code(), "ResourceLimitExceeded");
    }
}
