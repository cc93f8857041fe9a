//! The effect of one write, row by row, and whether it is allowed.

use std::collections::BTreeSet;

use stratagraph::sim::Rng;

use super::state::{COLUMNS, KNOWS, LIVES, NULL, PERSON, PLACE, Row, State, TYPES, ends, row_fits};

/// A write of one branch.
#[derive(Debug)]
pub struct Write {
    pub sql: String,
    /// What is in the file of a load, whose path stands for `{file}`.
    pub file: String,
    /// What it does, or the codes with one of which it is refused.
    pub outcome: Result<Done, &'static [&'static str]>,
}

#[derive(Debug)]
pub struct Done {
    /// The first columns of the answer.
    pub answer: Vec<u64>,
    /// Ids that the write makes begin with `?`.
    pub state: State,
    pub makes_commit: bool,
}

/// Rows while they are changed.
#[derive(Debug, Clone)]
pub struct Draft {
    pub state: State,
    touched: BTreeSet<(usize, String)>,
    /// New rows whose ids are there.
    clashes: Vec<(usize, String, Row)>,
    is_broken: bool,
    minted: usize,
}

impl Draft {
    pub fn of(state: &State) -> Self {
        Self {
            state: state.clone(),
            touched: BTreeSet::new(),
            clashes: Vec::new(),
            is_broken: false,
            minted: 0,
        }
    }

    /// The given id, or a new one where the type makes it.
    fn id(&mut self, of: usize, id: &str, row: &Row) -> String {
        match (of, id) {
            (PERSON, _) => row[0].clone(),
            (_, "") => {
                self.minted += 1;
                format!("?{}", self.minted)
            }
            (_, id) => id.to_owned(),
        }
    }

    fn write(&mut self, of: usize, id: String, row: &Row) {
        self.is_broken |= !row_fits(of, row);
        self.touched.insert((of, id.clone()));
        self.state.0[of].insert(id, row.clone());
    }

    /// A row, whether its id is there or not.
    pub fn put(&mut self, of: usize, id: &str, row: &Row) {
        let id = self.id(of, id, row);
        self.write(of, id, row);
    }

    /// A new row, whose id may not be there.
    pub fn insert(&mut self, of: usize, id: &str, row: &Row) {
        let id = self.id(of, id, row);
        match self.state.has(of, &id) {
            true => {
                self.is_broken |= !row_fits(of, row);
                self.clashes.push((of, id, row.clone()));
            }
            false => self.write(of, id, row),
        }
    }

    pub fn delete(&mut self, of: usize, which: impl Fn(&str, &Row) -> bool) {
        let rows = self.state.0[of].iter();
        let ids: Vec<String> = rows
            .filter(|(id, row)| which(id, row))
            .map(|(id, _)| id.clone())
            .collect();
        for id in ids {
            let gone = self.state.remove(of, &id);
            self.touched.extend(gone);
        }
    }

    /// Takes all rows of a type out; edges stay, so that the rows have to come again.
    pub fn clear(&mut self, of: usize) {
        let gone = std::mem::take(&mut self.state.0[of]);
        self.touched.extend(gone.into_keys().map(|id| (of, id)));
    }

    /// Other values for some rows.
    pub fn update(&mut self, of: usize, change: impl Fn(&str, &Row) -> Option<Row>) {
        let rows = self.state.0[of].iter();
        let changed = rows.filter_map(|(id, row)| Some((id.clone(), change(id, row)?)));
        for (id, row) in changed.collect::<Vec<_>>() {
            self.put(of, &id, &row);
        }
    }

    /// Rows of some types that were written or deleted.
    pub fn count(&self, of: &[usize]) -> u64 {
        self.touched.iter().filter(|(t, _)| of.contains(t)).count() as u64
    }

    pub fn counts(&self) -> Vec<u64> {
        vec![self.count(&[PERSON, PLACE]), self.count(&[KNOWS, LIVES])]
    }

    /// The write is done: it answers this.
    pub fn end(self, sql: String, answer: Vec<u64>) -> Write {
        let mut replaced = self.state.clone();
        for (of, id, row) in &self.clashes {
            replaced.0[*of].insert(id.clone(), row.clone());
        }
        let (is_valid, would_be) = (self.state.is_valid(), replaced.is_valid());
        let outcome = match (self.is_broken, self.clashes.is_empty()) {
            (false, true) if is_valid => Ok(Done {
                answer,
                makes_commit: !self.touched.is_empty(),
                state: self.state,
            }),
            // Nothing else is wrong, whatever becomes of the row that is there.
            (false, false) if is_valid && would_be => Err(&["KeyConflict"][..]),
            (false, false) => Err(&["KeyConflict", "RecordsInvalid"][..]),
            _ => Err(&["RecordsInvalid"][..]),
        };
        Write {
            sql,
            file: String::new(),
            outcome,
        }
    }
}

/// Random choices.
#[derive(Debug)]
pub struct Dice(pub Rng);

impl Dice {
    pub fn below(&mut self, end: usize) -> usize {
        self.0.below(end as u64) as usize
    }

    pub fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }

    pub fn name(&mut self) -> String {
        format!("p{}", self.below(5))
    }

    pub fn small(&mut self) -> String {
        match self.below(5) {
            4 => NULL.to_owned(),
            n => n.to_string(),
        }
    }

    /// A row of a type with its id; edges and places may get one when they are written.
    pub fn row(&mut self, of: usize) -> (String, Row) {
        let place = |dice: &mut Self| format!("h{}", dice.below(3));
        let null = NULL.to_owned();
        match of {
            PERSON => {
                let name = self.name();
                let age = match self.below(12) {
                    0 => null,
                    // Beyond the range, now and then.
                    _ => self.below(53).to_string(),
                };
                let tag = match self.below(2) {
                    0 => format!("t{}", self.below(3)),
                    _ => NULL.to_owned(),
                };
                (name.clone(), [name, age, tag])
            }
            PLACE => {
                let title = self.of(&["Home", "Work"]).to_owned();
                (place(self), [title, self.small(), null])
            }
            KNOWS => {
                let row = [self.name(), self.name(), self.small()];
                (format!("k{}", self.below(9)), row)
            }
            _ => {
                let row = [self.name(), place(self), null];
                (format!("l{}", self.below(5)), row)
            }
        }
    }

    /// Some rows of a type, each id once; at least one.
    pub fn rows(&mut self, of: usize, most: usize) -> Vec<(String, Row)> {
        let mut rows: Vec<(String, Row)> = Vec::new();
        for _ in 0..1 + self.below(most) {
            let (id, row) = self.row(of);
            if rows.iter().all(|(known, _)| *known != id) {
                rows.push((id, row));
            }
        }
        rows
    }
}

/// A cell as a literal of SQL.
pub fn sql(cell: &str, is_number: bool) -> String {
    match (cell, is_number) {
        (NULL, _) => "NULL".to_owned(),
        (_, true) => cell.to_owned(),
        (_, false) => format!("'{cell}'"),
    }
}

/// A cell as a literal of JSON and of mutations.
pub fn json(cell: &str, is_number: bool) -> String {
    match (cell, is_number) {
        (NULL, _) => "null".to_owned(),
        (_, true) => cell.to_owned(),
        (_, false) => format!("\"{cell}\""),
    }
}

/// Columns of a type in SQL; ids of people are their names.
pub fn columns(of: usize, with_id: bool) -> String {
    let id = (with_id && of != PERSON).then_some("id");
    let names = id
        .into_iter()
        .chain(COLUMNS[of].iter().map(|(name, _)| *name));
    names.collect::<Vec<_>>().join(", ")
}

/// Rows behind VALUES, in the order of [`columns`].
pub fn values(of: usize, rows: &[(String, Row)], with_id: bool) -> String {
    let one = |(id, row): &(String, Row)| {
        let id = (with_id && of != PERSON).then(|| sql(id, false));
        let cells = row
            .iter()
            .zip(COLUMNS[of])
            .map(|(cell, (_, n))| sql(cell, *n));
        format!(
            "({})",
            id.into_iter().chain(cells).collect::<Vec<_>>().join(", ")
        )
    };
    rows.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Rows as lines of a load.
pub fn lines(of: usize, rows: &[(String, Row)]) -> String {
    let one = |(id, row): &(String, Row)| {
        let id = (of != PERSON && !id.is_empty()).then(|| format!("\"id\": {}", json(id, false)));
        let cells = row.iter().zip(COLUMNS[of]);
        let cells = cells.filter(|(_, (name, _))| !matches!(*name, "src" | "dst"));
        let cells = cells.map(|(cell, (name, n))| format!("\"{name}\": {}", json(cell, *n)));
        let data = id.into_iter().chain(cells).collect::<Vec<_>>().join(", ");
        let head = match ends(of) {
            None => format!("\"type\": \"{}\"", TYPES[of]),
            Some(_) => format!(
                "\"edge\": \"{}\", \"from\": \"{}\", \"to\": \"{}\"",
                TYPES[of], row[0], row[1]
            ),
        };
        format!("{{{head}, \"data\": {{{data}}}}}\n")
    };
    rows.iter().map(one).collect()
}
