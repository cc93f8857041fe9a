//! What one state of the graph holds, the rules that hold over it, and what a pattern finds in it.

use std::collections::{BTreeMap, BTreeSet};

pub const SCHEMA: &str = r#"
node Person { name: String @key  age: I32? @range(0..50)  tag: String? @unique }
node Place { title: String  floor: I32? }
edge Knows: Person -> Person @card(0..2) { since: I32? }
edge Lives: Person -> Place
"#;

pub const TYPES: [&str; 4] = ["Person", "Place", "Knows", "Lives"];
pub const PERSON: usize = 0;
pub const PLACE: usize = 1;
pub const KNOWS: usize = 2;
pub const LIVES: usize = 3;

/// Columns of a type beside `id`, and whether they are numbers.
pub const COLUMNS: [&[(&str, bool)]; 4] = [
    &[("name", false), ("age", true), ("tag", false)],
    &[("title", false), ("floor", true)],
    &[("src", false), ("dst", false), ("since", true)],
    &[("src", false), ("dst", false)],
];

pub const NULL: &str = "NULL";

/// The columns of a row as text; there are always three.
pub type Row = [String; 3];
/// Rows by id.
pub type Rows = BTreeMap<String, Row>;

/// The rows of all types.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State(pub [Rows; 4]);

/// Types of the two ends of an edge type.
pub fn ends(of: usize) -> Option<[usize; 2]> {
    match of {
        KNOWS => Some([PERSON, PERSON]),
        LIVES => Some([PERSON, PLACE]),
        _ => None,
    }
}

pub fn number(cell: &str) -> Option<i64> {
    cell.parse().ok()
}

/// Whether the row can be one of its type.
pub fn row_fits(of: usize, row: &Row) -> bool {
    of != PERSON || number(&row[1]).is_none_or(|age| (0..=50).contains(&age))
}

impl State {
    /// The statement that reads all rows of a branch, at its head or as a hint says.
    pub fn select(branch: &str, hint: &str) -> String {
        let part = |of: usize| {
            let mut columns: Vec<String> = COLUMNS[of]
                .iter()
                .map(|(name, is_number)| match is_number {
                    true => format!("CAST({name} AS VARCHAR)"),
                    false => (*name).to_owned(),
                })
                .collect();
            columns.resize(3, "CAST(NULL AS VARCHAR)".to_owned());
            let (columns, of) = (columns.join(", "), TYPES[of]);
            format!("SELECT '{of}', id, {columns} FROM sg.\"g@{branch}\".\"{of}\" {hint}")
        };
        [PERSON, PLACE, KNOWS, LIVES].map(part).join(" UNION ALL ")
    }

    /// Of the rows that [`State::select`] gives.
    pub fn of_rows(rows: Vec<Vec<String>>) -> Self {
        let mut state = Self::default();
        for row in rows {
            let [of, id, a, b, c]: [String; 5] = row.try_into().unwrap();
            let of = TYPES.iter().position(|name| *name == of).unwrap();
            let twice = state.0[of].insert(id.clone(), [a, b, c]);
            assert_eq!(twice, None, "{} {id} is there twice", TYPES[of]);
        }
        state
    }

    /// Gives the rows whose ids begin with `?` the ids of equal rows that only `found` has.
    pub fn name(&mut self, found: &Self) {
        for (rows, found) in self.0.iter_mut().zip(&found.0) {
            let made = rows.keys().filter(|id| id.starts_with('?')).cloned();
            for made in made.collect::<Vec<_>>() {
                let row = rows.remove(&made).unwrap();
                let mut new = found.iter().filter(|(id, _)| !rows.contains_key(*id));
                let id = new
                    .find(|(_, other)| **other == row)
                    .map_or(&made, |(id, _)| id);
                rows.insert(id.clone(), row);
            }
        }
    }

    pub fn has(&self, of: usize, id: &str) -> bool {
        self.0[of].contains_key(id)
    }

    /// Takes a row out, of nodes with its edges; what went.
    pub fn remove(&mut self, of: usize, id: &str) -> Vec<(usize, String)> {
        if self.0[of].remove(id).is_none() {
            return Vec::new();
        }
        let mut gone = vec![(of, id.to_owned())];
        for edge in [KNOWS, LIVES].into_iter().filter(|_| ends(of).is_none()) {
            let types = ends(edge).unwrap();
            self.0[edge].retain(|edge_id, row| {
                let stays = (0..2).all(|end| types[end] != of || row[end] != id);
                if !stays {
                    gone.push((edge, edge_id.clone()));
                }
                stays
            });
        }
        gone
    }

    /// Whether the rules over several rows hold.
    pub fn is_valid(&self) -> bool {
        let tags = self.0[PERSON].values().map(|row| &row[2]);
        let tags: Vec<&String> = tags.filter(|tag| *tag != NULL).collect();
        let distinct: BTreeSet<&&String> = tags.iter().collect();
        let ends_exist = |of: usize| {
            let types = ends(of).unwrap();
            let mut rows = self.0[of].values();
            rows.all(|row| (0..2).all(|end| self.has(types[end], &row[end])))
        };
        let sources = self.0[PERSON].keys();
        let few = sources.map(|id| self.0[KNOWS].values().filter(|row| row[0] == *id).count());
        distinct.len() == tags.len()
            && [KNOWS, LIVES].into_iter().all(ends_exist)
            && few.into_iter().all(|count| count <= 2)
    }

    /// Who lives where, and whom they are one or two steps from.
    pub fn found(&self) -> Vec<Vec<String>> {
        let mut found = BTreeSet::new();
        for a in self.0[PERSON].keys() {
            for b in self.within_two(a) {
                let homes = self.0[LIVES].values().filter(|row| row[0] == b);
                found.extend(homes.map(|row| vec![a.clone(), b.clone(), row[1].clone()]));
            }
        }
        found.into_iter().collect()
    }

    /// What is one or two steps from a person; they themselves only by an edge to themselves.
    fn within_two(&self, from: &str) -> BTreeSet<String> {
        let next = |of: &str| -> BTreeSet<String> {
            let edges = self.0[KNOWS].values().filter(|row| row[0] == of);
            edges.map(|row| row[1].clone()).collect()
        };
        let first = next(from);
        let second = first.iter().flat_map(|id| next(id));
        let second: BTreeSet<String> = second.filter(|id| id != from).collect();
        first.into_iter().chain(second).collect()
    }

    /// The query that [`State::found`] answers.
    pub const QUERY: &str = "query q() { match { $a knows{1,2} $b $b lives $c } \
        return { $a.id as a, $b.id as b, $c.id as c } }";

    /// Type, id and change of each row that another state has otherwise.
    pub fn changes(&self, to: &Self) -> Vec<Vec<String>> {
        let mut changes = BTreeSet::new();
        for (of, (old, new)) in TYPES.iter().zip(self.0.iter().zip(&to.0)) {
            for id in old.keys().chain(new.keys()) {
                let change = match (old.get(id), new.get(id)) {
                    (None, _) => "added",
                    (_, None) => "deleted",
                    (a, b) if a != b => "changed",
                    _ => continue,
                };
                changes.insert(vec![(*of).to_owned(), id.clone(), change.to_owned()]);
            }
        }
        changes.into_iter().collect()
    }
}
