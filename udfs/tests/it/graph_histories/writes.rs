//! Random writes of one branch by every way that there is.

use super::draft::{Dice, Draft, Write, columns, json, lines, values};
use super::state::{COLUMNS, KNOWS, LIVES, NULL, PERSON, PLACE, Row, TYPES, ends, number};

/// Any write of a branch.
pub fn write(dice: &mut Dice, branch: &str, draft: Draft) -> Write {
    match dice.below(20) {
        0..3 => insert(dice, branch, draft),
        3 | 4 => replace(dice, branch, draft),
        5 => overwrite(dice, branch, draft),
        6..8 => update(dice, branch, draft),
        8 | 9 => delete(dice, branch, draft),
        10 => merge(dice, branch, draft),
        11..15 => mutate(dice, branch, draft),
        15..17 => load(dice, &format!("branch => '{branch}'"), draft),
        17 | 18 => tag(dice, branch, draft),
        _ => load_table(dice, branch, draft),
    }
}

fn table(branch: &str, of: usize) -> String {
    format!("sg.\"g@{branch}\".\"{}\"", TYPES[of])
}

fn types(dice: &mut Dice) -> usize {
    dice.of(&[PERSON, PERSON, PLACE, KNOWS, KNOWS, KNOWS, LIVES])
}

fn without_ids(rows: &[(String, Row)]) -> Vec<(String, Row)> {
    rows.iter()
        .map(|(_, row)| (String::new(), row.clone()))
        .collect()
}

fn insert(dice: &mut Dice, branch: &str, mut draft: Draft) -> Write {
    let (of, with_id) = (types(dice), dice.below(2) == 0);
    let mut rows = dice.rows(of, 3);
    if !with_id {
        rows = without_ids(&rows);
    }
    for (id, row) in &rows {
        draft.insert(of, id, row);
    }
    let (columns, values) = (columns(of, with_id), values(of, &rows, with_id));
    let sql = format!(
        "INSERT INTO {} ({columns}) VALUES {values}",
        table(branch, of)
    );
    let count = rows.len() as u64;
    draft.end(sql, vec![count])
}

fn replace(dice: &mut Dice, branch: &str, mut draft: Draft) -> Write {
    let of = types(dice);
    // An id may come twice.
    let rows: Vec<(String, Row)> = (0..1 + dice.below(3)).map(|_| dice.row(of)).collect();
    for (id, row) in &rows {
        draft.put(of, id, row);
    }
    let (columns, values) = (columns(of, true), values(of, &rows, true));
    let sql = format!(
        "REPLACE INTO {} ({columns}) VALUES {values}",
        table(branch, of)
    );
    let count = draft.count(&[of]);
    draft.end(sql, vec![count])
}

fn overwrite(dice: &mut Dice, branch: &str, mut draft: Draft) -> Write {
    let of = types(dice);
    let rows = dice.rows(of, 5);
    draft.clear(of);
    for (id, row) in &rows {
        draft.put(of, id, row);
    }
    let (columns, values) = (columns(of, true), values(of, &rows, true));
    let sql = format!(
        "INSERT OVERWRITE {} ({columns}) VALUES {values}",
        table(branch, of)
    );
    draft.end(sql, vec![rows.len() as u64])
}

fn update(dice: &mut Dice, branch: &str, mut draft: Draft) -> Write {
    let (a, b, n) = (dice.name(), dice.name(), dice.below(20));
    let to = |of: usize| table(branch, of);
    let state = draft.state.clone();
    let (of, sql) = match dice.below(4) {
        0 => {
            let older = |age: i64| usize::try_from(age).is_ok_and(|age| age > n);
            draft.update(PERSON, |_, row| {
                let age = number(&row[1]).filter(|age| older(*age))?;
                Some([row[0].clone(), (age + 3).to_string(), row[2].clone()])
            });
            (
                PERSON,
                format!("UPDATE {} SET age = age + 3 WHERE age > {n}", to(PERSON)),
            )
        }
        1 => {
            let known = |id: &str| {
                state.0[KNOWS]
                    .values()
                    .any(|row| row[1] == id && row[2] != NULL)
            };
            draft.update(PERSON, |id, row| {
                let row = [row[0].clone(), n.to_string(), NULL.to_owned()];
                known(id).then_some(row)
            });
            let known = format!("SELECT dst FROM {} WHERE since IS NOT NULL", to(KNOWS));
            (
                PERSON,
                format!(
                    "UPDATE {} SET tag = NULL, age = {n} WHERE id IN ({known})",
                    to(PERSON)
                ),
            )
        }
        2 => {
            draft.update(KNOWS, |_, row| {
                let since =
                    number(&row[2]).map_or(NULL.to_owned(), |since| (since + 1).to_string());
                (row[0] == a).then(|| [a.clone(), b.clone(), since])
            });
            let set = format!("dst = '{b}', since = since + 1");
            (
                KNOWS,
                format!("UPDATE {} SET {set} WHERE src = '{a}'", to(KNOWS)),
            )
        }
        _ => {
            let is_empty = |id: &str| state.0[LIVES].values().all(|row| row[1] != id);
            draft.update(PLACE, |id, row| {
                let row = [format!("{} {id}", row[0]), n.to_string(), NULL.to_owned()];
                is_empty(id).then_some(row)
            });
            let set = format!("title = title || ' ' || id, floor = {n}");
            let lived = format!("SELECT dst FROM {}", to(LIVES));
            (
                PLACE,
                format!("UPDATE {} SET {set} WHERE id NOT IN ({lived})", to(PLACE)),
            )
        }
    };
    let count = draft.count(&[of]);
    draft.end(sql, vec![count])
}

/// A tag for one person, which another one may have.
pub fn tag(dice: &mut Dice, branch: &str, mut draft: Draft) -> Write {
    let (a, tag) = (dice.name(), format!("t{}", dice.below(3)));
    draft.update(PERSON, |id, row| {
        (id == a).then(|| [a.clone(), row[1].clone(), tag.clone()])
    });
    let of = table(branch, PERSON);
    let sql = format!("UPDATE {of} SET tag = '{tag}' WHERE name = '{a}'");
    let count = draft.count(&[PERSON]);
    draft.end(sql, vec![count])
}

fn delete(dice: &mut Dice, branch: &str, mut draft: Draft) -> Write {
    let (a, n) = (dice.name(), dice.below(12) as i64);
    let to = |of: usize| table(branch, of);
    let state = draft.state.clone();
    let (of, sql) = match dice.below(4) {
        0 => {
            draft.delete(PERSON, |_, row| row[0] == a);
            (
                PERSON,
                format!("DELETE FROM {} WHERE name = '{a}'", to(PERSON)),
            )
        }
        1 => {
            let is_young = |row: &Row| number(&row[1]).is_some_and(|age| age < n);
            draft.delete(PERSON, |_, row| is_young(row));
            (
                PERSON,
                format!("DELETE FROM {} WHERE age < {n}", to(PERSON)),
            )
        }
        2 => {
            draft.delete(KNOWS, |_, row| row[2] == NULL || row[1] == a);
            (
                KNOWS,
                format!(
                    "DELETE FROM {} WHERE since IS NULL OR dst = '{a}'",
                    to(KNOWS)
                ),
            )
        }
        _ => {
            draft.delete(PLACE, |id, _| {
                state.0[LIVES].values().all(|row| row[1] != id)
            });
            let lived = format!("SELECT 1 FROM {} l WHERE l.dst = \"Place\".id", to(LIVES));
            (
                PLACE,
                format!("DELETE FROM {} WHERE NOT EXISTS ({lived})", to(PLACE)),
            )
        }
    };
    let count = draft.count(&[of]);
    draft.end(sql, vec![count])
}

fn merge(dice: &mut Dice, branch: &str, mut draft: Draft) -> Write {
    let rows = dice.rows(PERSON, 4);
    for (name, row) in &rows {
        let age = row[1].clone();
        match draft.state.0[PERSON].get(name).cloned() {
            Some(_) if age == NULL => draft.delete(PERSON, |id, _| id == name),
            Some(was) => draft.put(PERSON, name, &[name.clone(), age, was[2].clone()]),
            None => draft.put(PERSON, name, &[name.clone(), age, NULL.to_owned()]),
        }
    }
    let values = values(PERSON, &rows, false);
    let sql = format!(
        "MERGE INTO {} p USING (VALUES {values}) s(name, age, tag) ON p.name = s.name \
         WHEN MATCHED AND s.age IS NULL THEN DELETE \
         WHEN MATCHED THEN UPDATE SET age = s.age \
         WHEN NOT MATCHED THEN INSERT (name, age) VALUES (s.name, s.age)",
        table(branch, PERSON)
    );
    let count = draft.count(&[PERSON]);
    draft.end(sql, vec![count])
}

/// A statement of a mutation.
fn statement(dice: &mut Dice, draft: &mut Draft) -> String {
    let (a, b, n) = (dice.name(), dice.name(), dice.small());
    match dice.below(8) {
        0 => {
            let (name, row) = dice.row(PERSON);
            draft.put(PERSON, &name, &row);
            let cells = row.iter().zip(COLUMNS[PERSON]);
            let cells = cells.map(|(cell, (column, n))| format!("{column}: {}", json(cell, *n)));
            format!(
                "insert Person {{ {} }}",
                cells.collect::<Vec<_>>().join(", ")
            )
        }
        1 => {
            let was = draft.state.0[PERSON].get(&a).cloned();
            let tag = was.map_or(NULL.to_owned(), |was| was[2].clone());
            draft.put(PERSON, &a, &[a.clone(), n.clone(), tag]);
            format!(
                "upsert Person partial {{ name: \"{a}\", age: {} }}",
                json(&n, true)
            )
        }
        2 | 6 | 7 => {
            let row = [a.clone(), b.clone(), n.clone()];
            draft.put(KNOWS, "", &row);
            let since = json(&n, true);
            format!("insert Knows {{ from: \"{a}\", to: \"{b}\", since: {since} }}")
        }
        3 => {
            draft.update(PERSON, |_, row| {
                let row = [row[0].clone(), n.clone(), row[2].clone()];
                (row[0] == a || row[2] == NULL).then_some(row)
            });
            let set = json(&n, true);
            format!("update Person set {{ age: {set} }} where name = \"{a}\" or tag is null")
        }
        4 => {
            draft.update(KNOWS, |_, row| {
                (row[0] == a).then(|| [a.clone(), b.clone(), row[2].clone()])
            });
            format!("update Knows set {{ to: \"{b}\" }} where from = \"{a}\"")
        }
        _ => {
            let (title, floor) = (dice.of(&["Home", "Hut"]), n);
            draft.put(
                PLACE,
                "",
                &[title.to_owned(), floor.clone(), NULL.to_owned()],
            );
            format!(
                "insert Place {{ title: \"{title}\", floor: {} }}",
                json(&floor, true)
            )
        }
    }
}

fn mutate(dice: &mut Dice, branch: &str, mut draft: Draft) -> Write {
    let deletes = dice.below(3) == 0;
    let mut body = String::new();
    if deletes {
        let name = dice.name();
        draft.delete(PERSON, |id, _| id == name);
        body += &format!("delete Person where name = \"{name}\" ");
        if dice.below(2) == 0 {
            let since = dice.below(4).to_string();
            draft.delete(KNOWS, |_, row| row[2] == since);
            body += &format!("delete Knows where since = {since} ");
        }
    }
    let mixed = dice.below(3) == 0;
    if !deletes || mixed {
        for _ in 0..1 + dice.below(3) {
            body += &(statement(dice, &mut draft) + " ");
        }
    }
    let sql = format!(
        "SELECT affected_nodes, affected_edges, commit_id FROM graph_mutate('g', \
         'query m() {{ {body}}}', branch => '{branch}', mixed => {mixed})"
    );
    let counts = draft.counts();
    draft.end(sql, counts)
}

/// Puts rows as a load in this mode does.
fn take(draft: &mut Draft, mode: &str, of: usize, rows: &[(String, Row)]) {
    if mode == "overwrite" {
        draft.clear(of);
    }
    for (id, row) in rows {
        match mode {
            "append" => draft.insert(of, id, row),
            _ => draft.put(of, id, row),
        }
    }
}

const MODES: [&str; 4] = ["append", "merge", "merge", "overwrite"];

/// A load of a file; `branch` says of which branch.
pub fn load(dice: &mut Dice, branch: &str, mut draft: Draft) -> Write {
    let mode = dice.of(&MODES);
    let (mut file, mut counts) = (String::new(), vec![0, 0]);
    let all = dice.below(3) == 0;
    let some = types(dice);
    for of in [LIVES, PERSON, KNOWS, PLACE] {
        if all || of == some {
            let mut rows = dice.rows(of, 4);
            if of != PERSON && mode != "overwrite" && dice.below(3) == 0 {
                rows = without_ids(&rows);
            }
            take(&mut draft, mode, of, &rows);
            file += &lines(of, &rows);
            counts[of / 2] += rows.len() as u64;
        }
    }
    let sql = format!(
        "SELECT nodes_loaded, edges_loaded, commit_id FROM graph_load('g', '{{file}}', '{mode}', {branch})"
    );
    let mut write = draft.end(sql, counts);
    write.file = file;
    write
}

/// People, places and edges to begin with.
pub fn first(dice: &mut Dice, mut draft: Draft) -> Write {
    let null = || NULL.to_owned();
    let people = (0..5).map(|n| (String::new(), [format!("p{n}"), dice.small(), null()]));
    let people: Vec<(String, Row)> = people.collect();
    let places = ["h0", "h1"].map(|id| (id.to_owned(), [id.to_owned(), dice.small(), null()]));
    let mut file = lines(PERSON, &people) + &lines(PLACE, &places);
    take(&mut draft, "append", PERSON, &people);
    take(&mut draft, "append", PLACE, &places);
    let mut counts = vec![7, 0];
    for of in [KNOWS, LIVES] {
        let (mut rows, types) = (dice.rows(of, 4), ends(of).unwrap());
        rows.retain(|(_, row)| (0..2).all(|end| draft.state.has(types[end], &row[end])));
        take(&mut draft, "append", of, &rows);
        file += &lines(of, &rows);
        counts[1] += rows.len() as u64;
    }
    let sql =
        "SELECT nodes_loaded, edges_loaded, commit_id FROM graph_load('g', '{file}', 'append')";
    let mut write = draft.end(sql.to_owned(), counts);
    write.file = file;
    write
}

fn load_table(dice: &mut Dice, branch: &str, mut draft: Draft) -> Write {
    let (mode, of) = (dice.of(&MODES), types(dice));
    let rows = dice.rows(of, 4);
    take(&mut draft, mode, of, &rows);
    let cast = |(name, is_number): &(&str, bool)| {
        let to = if *is_number { "INT" } else { "VARCHAR" };
        format!("CAST({name} AS {to}) AS {name}")
    };
    let id = (of != PERSON).then(|| "id".to_owned());
    let casts = id.into_iter().chain(COLUMNS[of].iter().map(cast));
    let (casts, columns) = (casts.collect::<Vec<_>>().join(", "), columns(of, true));
    let rows_of = format!("(VALUES {}) v({columns})", values(of, &rows, true));
    let sql = format!(
        "SELECT nodes_loaded, edges_loaded, commit_id FROM graph_load_table('g', '{}', \
         (SELECT {casts} FROM {rows_of}), '{mode}', branch => '{branch}')",
        TYPES[of]
    );
    let mut counts = vec![0, 0];
    counts[of / 2] = rows.len() as u64;
    draft.end(sql, counts)
}
