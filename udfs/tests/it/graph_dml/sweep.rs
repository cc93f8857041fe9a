//! Every store call of DML x faults, and every await cancelled: the old state or the new one.

use crate::graph_sweep::{Case, cancellations, faults};

/// One statement of each kind.
const STATEMENTS: [&str; 6] = [
    "INSERT INTO sg.g.\"Person\" (name, age) VALUES ('c', 3), ('d', NULL)",
    "REPLACE INTO sg.g.\"Person\" (name, age) SELECT name, age + 1 FROM sg.g.\"Person\"",
    "INSERT OVERWRITE sg.g.\"Knows\" (id, src, dst) VALUES ('k1', 'b', 'a')",
    "UPDATE sg.g.\"Person\" SET age = 7 WHERE id IN (SELECT dst FROM sg.g.\"Knows\")",
    "DELETE FROM sg.g.\"Person\" WHERE EXISTS (SELECT 1 FROM sg.g.\"Lives\" l WHERE l.src = \"Person\".id)",
    "MERGE INTO sg.g.\"Person\" p USING (VALUES ('a', 5), ('z', 6)) s(k, v) ON p.name = s.k \
     WHEN MATCHED THEN UPDATE SET age = s.v \
     WHEN NOT MATCHED THEN INSERT (name, age) VALUES (s.k, s.v) \
     WHEN NOT MATCHED BY SOURCE THEN DELETE",
];

fn cases() -> Vec<Case> {
    STATEMENTS.map(|sql| Case::sql(sql, true)).into()
}

#[test]
fn every_call_of_a_statement_meets_every_fault() {
    faults(&cases());
}

#[test]
fn a_statement_is_dropped_at_every_await() {
    cancellations(&cases());
}
