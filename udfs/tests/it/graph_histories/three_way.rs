//! What a merge must give, from the contents of three states.

use std::collections::BTreeSet;

use super::state::{KNOWS, LIVES, NULL, PERSON, Row, Rows, State, TYPES, ends};

/// Type, id and kind.
pub type Conflict = (String, String, String);

/// Whose row the merged state has.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Side {
    Source,
    Target,
    Neither(&'static str),
}

fn side(base: Option<&Row>, source: Option<&Row>, target: Option<&Row>) -> Side {
    if source == target || source == base {
        return Side::Target;
    }
    if target == base {
        return Side::Source;
    }
    Side::Neither(match (base, source.and(target)) {
        (None, _) => "divergent_insert",
        (_, Some(_)) => "divergent_update",
        _ => "delete_vs_update",
    })
}

/// One type in the three states.
struct Three<'a> {
    base: &'a Rows,
    source: &'a Rows,
    target: &'a Rows,
}

impl<'a> Three<'a> {
    fn ids(&self) -> BTreeSet<&'a String> {
        let all = [self.base, self.source, self.target];
        all.into_iter().flat_map(|rows| rows.keys()).collect()
    }

    fn side(&self, id: &str) -> Side {
        let (base, source) = (self.base.get(id), self.source.get(id));
        side(base, source, self.target.get(id))
    }

    fn merged(&self, id: &str) -> Option<&'a Row> {
        match self.side(id) {
            Side::Source => self.source.get(id),
            Side::Target => self.target.get(id),
            Side::Neither(_) => None,
        }
    }

    /// Whether the merged state lacks the row, and both sides agree on that.
    fn is_gone(&self, id: &str) -> bool {
        self.merged(id).is_none() && !matches!(self.side(id), Side::Neither(_))
    }

    /// People of the source whose tag somebody has whom the target changed.
    fn same_tags(&self) -> Vec<&'a str> {
        let changed = self
            .target
            .iter()
            .filter(|(id, row)| self.base.get(*id) != Some(*row));
        let stay = changed.filter(|(id, _)| self.side(id) != Side::Source);
        let held: Vec<(&String, &Row)> = stay.collect();
        let taken = self.source.iter().filter(|(id, row)| {
            let has = |(other, held): &(&String, &Row)| other != id && held[2] == row[2];
            self.side(id) == Side::Source && row[2] != NULL && held.iter().any(has)
        });
        taken.map(|(id, _)| id.as_str()).collect()
    }

    /// Sources of edges that both sides changed and that have too many now. Of what the sides do not
    /// agree on, the target's counts.
    fn crowded(&self) -> Vec<String> {
        let ids = self.ids().into_iter();
        let rows = ids.filter_map(|id| match self.side(id) {
            Side::Source => self.source.get(id),
            _ => self.target.get(id),
        });
        let rows: Vec<&Row> = rows.collect();
        let both = &self.touched(self.source) & &self.touched(self.target);
        let count = |src: &String| rows.iter().filter(|row| row[0] == *src).count();
        both.into_iter().filter(|src| count(src) > 2).collect()
    }

    /// Sources of the edges that a side changed.
    fn touched(&self, side: &Rows) -> BTreeSet<String> {
        let ids = self.ids().into_iter();
        let changed = ids.filter(|id| self.base.get(*id) != side.get(*id));
        let rows = changed.flat_map(|id| [self.base.get(id), side.get(id)]);
        rows.flatten().map(|row| row[0].clone()).collect()
    }
}

/// The merged content, or all conflicts.
pub fn merge(base: &State, source: &State, target: &State) -> Result<State, BTreeSet<Conflict>> {
    let three = |of: usize| Three {
        base: &base.0[of],
        source: &source.0[of],
        target: &target.0[of],
    };
    let mut conflicts = BTreeSet::new();
    let mut add = |of: usize, id: &str, kind: &str| {
        conflicts.insert((TYPES[of].to_owned(), id.to_owned(), kind.to_owned()));
    };
    let mut merged = State::default();
    for of in 0..TYPES.len() {
        for id in three(of).ids() {
            match (three(of).side(id), three(of).merged(id)) {
                (Side::Neither(kind), _) => add(of, id, kind),
                (_, Some(row)) => _ = merged.0[of].insert(id.clone(), row.clone()),
                (_, None) => {}
            }
        }
    }
    for of in [KNOWS, LIVES] {
        let types = ends(of).unwrap();
        for (id, row) in &merged.0[of] {
            let is_gone = |end: usize| three(types[end]).is_gone(&row[end]);
            if is_gone(0) || is_gone(1) {
                add(of, id, "orphan_edge");
            }
        }
    }
    for id in three(PERSON).same_tags() {
        add(PERSON, id, "unique_violation");
    }
    for id in three(KNOWS).crowded() {
        add(KNOWS, &id, "cardinality_violation");
    }
    match conflicts.is_empty() {
        true => Ok(merged),
        false => Err(conflicts),
    }
}
