//! What identifies a statement where no analyzer rule has marked it.

use datafusion::catalog::Session;

use crate::metadata::StatementKey;

/// Session and start stamp: one per planning of a statement.
pub(crate) fn key_of(state: &dyn Session) -> StatementKey {
    let started = state.execution_props().query_execution_start_time;
    let stamp = started.and_then(|time| time.timestamp_nanos_opt());
    (state.session_id().to_owned(), stamp)
}
