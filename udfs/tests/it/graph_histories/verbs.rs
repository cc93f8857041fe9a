//! Verbs of branches, pins and upkeep, against the model.

use std::collections::BTreeSet;

use super::graph::{Before, Branch};
use super::{History, NAMES, seen, writes};

impl History {
    /// From a branch, a commit or a catalog version of the main branch.
    pub(super) async fn fork(&mut self) -> Option<String> {
        let (new, source) = (self.dice.of(&NAMES).to_owned(), self.some());
        let (from, found) = match self.dice.below(4) {
            0 => {
                let at = self.dice.below(self.graph.commits.len());
                let id = self.graph.commits[at].id.clone();
                (
                    format!("'{id}'"),
                    self.graph.commit_of(&id).ok_or("NotFound"),
                )
            }
            1 => {
                let version = self.dice.below(self.graph.commits.len() * 2) as u64;
                let main = &self.graph.branches["main"];
                (version.to_string(), self.graph.at_version(main, version))
            }
            _ => (
                format!("'{source}'"),
                self.graph.branch(&source).map(Branch::head),
            ),
        };
        self.forked(&new, &from, found).await;
        Some(new)
    }

    pub(super) async fn forked(
        &mut self,
        new: &str,
        from: &str,
        found: Result<usize, &'static str>,
    ) {
        let sql =
            format!("SELECT commit_id, outcome FROM graph_branch_create('g', '{new}', {from})");
        let expected = found.and_then(|at| match self.graph.branches.contains_key(new) {
            true => Err("AlreadyExists"),
            false => Ok(at),
        });
        match (self.run(&sql).await, expected) {
            (Ok(rows), Ok(at)) => {
                assert_eq!(rows[0][1], "created");
                let state = self.graph.commits[at].state.clone();
                self.made(new, rows[0][0].clone(), vec![at], state).await;
            }
            (Err(found), Err(expected)) => assert_eq!(found, expected, "{sql}"),
            (found, expected) => panic!("{sql}\n{found:?}, not {expected:?}"),
        }
    }

    pub(super) async fn delete(&mut self) -> Option<String> {
        let name = self.some();
        let expected = self.graph.deletable(&name);
        let sql = format!("SELECT outcome FROM graph_branch_delete('g', '{name}')");
        let found = self
            .run(&sql)
            .await
            .map(|rows| assert_eq!(rows, [["deleted"]]));
        assert_eq!(found, expected, "{sql}");
        match expected {
            Ok(()) => _ = self.graph.branches.remove(&name),
            Err(code) => seen(code),
        }
        None
    }

    /// The dry run first: it says how many conflicts there are, and of which kinds.
    pub(super) async fn merge(&mut self) -> Option<String> {
        let (mut from, into, delete) = (self.some(), self.some(), self.dice.below(10) == 0);
        if from == into {
            from = self.some();
        }
        if from != into && self.dice.below(4) == 0 {
            // Both sides may give one tag to two people.
            for branch in [&from, &into] {
                self.write_by(branch, writes::tag).await;
            }
        }
        let expected = self.graph.merged(&from, &into, delete);
        if let Ok(merged) = &expected {
            let dry = "dry_run => true";
            let sql = format!(
                "SELECT type, id, kind FROM graph_branch_merge('g', '{from}', '{into}', {dry})"
            );
            let found = self.rows(&sql).await.into_iter();
            let found: BTreeSet<_> = found
                .map(|row| <[String; 3]>::try_from(row).unwrap().into())
                .collect();
            let conflicts = merged.as_ref().err().cloned().unwrap_or_default();
            conflicts.iter().for_each(|(_, _, kind)| seen(kind));
            assert_eq!(found, conflicts, "{sql}");
        }
        let sql = format!(
            "SELECT outcome, commit_id FROM graph_branch_merge('g', '{from}', '{into}', delete_source => {delete})"
        );
        let expected = expected.and_then(|merged| merged.map_err(|_| "MergeConflicts"));
        match (self.run(&sql).await, expected) {
            (Ok(rows), Ok((kind, state))) => {
                assert_eq!(rows[0][0], kind, "{sql}");
                seen(kind);
                let heads = [&into, &from].map(|name| self.graph.branches[name].head());
                match kind {
                    "already_up_to_date" => assert_eq!(rows[0][1], self.graph.commits[heads[0]].id),
                    _ => {
                        self.made(&into, rows[0][1].clone(), heads.to_vec(), state)
                            .await
                    }
                }
                if delete {
                    self.graph.branches.remove(&from);
                }
            }
            (Err(found), Err(expected)) => {
                assert_eq!(found, expected, "{sql}");
                seen(found);
            }
            (found, expected) => panic!("{sql}\n{found:?}, not {expected:?}"),
        }
        Some(into)
    }

    pub(super) async fn expire(&mut self) -> Option<String> {
        let name = self.some();
        let version = self.graph.commits.iter().map(|c| c.version).max().unwrap();
        let before = match self.dice.below(3) {
            0 => {
                let at = self.dice.below(self.graph.commits.len());
                Before::Commit(self.graph.commits[at].id.clone())
            }
            _ => Before::Version(self.dice.below(version as usize + 2) as u64),
        };
        let shown = match &before {
            Before::Commit(id) => format!("'{id}'"),
            Before::Version(version) => version.to_string(),
        };
        let expected = self.graph.expire(&name, &before);
        let sql = format!("SELECT expired FROM graph_expire('g', {shown}, branch => '{name}')");
        let found = self
            .run(&sql)
            .await
            .map(|rows| rows.concat().concat().parse().unwrap());
        assert_eq!(found, expected, "{sql}");
        if found.is_ok_and(|expired: usize| expired > 0) {
            seen("expired");
        }
        Some(name)
    }

    /// Whether there is anything to do is a matter of fragments, which the model has not.
    pub(super) async fn optimize(&mut self) -> Option<String> {
        let name = self.known();
        let sql = format!(
            "SELECT fragments_before, fragments_after, commit_id FROM graph_optimize('g', '{name}')"
        );
        let rows = self.rows(&sql).await;
        let at = self.graph.branches[&name].head();
        let head = &self.graph.commits[at];
        let (id, is_new) = (rows[0][2].clone(), rows[0][2] != head.id);
        for row in &rows {
            assert!(row[2] == id && (row[1] == "0" || row[1] == "1"), "{rows:?}");
            assert!(is_new || row[0] == row[1], "{rows:?}");
        }
        assert!(!(is_new && head.is_optimal), "{name} was optimised before");
        match is_new {
            true => {
                let state = head.state.clone();
                self.made(&name, id, vec![at], state).await;
                self.graph.commits.last_mut().unwrap().is_optimal = true;
                seen("optimised");
            }
            false => self.graph.commits[at].is_optimal = true,
        }
        Some(name)
    }

    pub(super) async fn pin(&mut self) -> Option<String> {
        let name = self.known();
        self.pins += 1;
        let pin = format!("pin{}", self.pins);
        let branch = &self.graph.branches[&name];
        self.graph
            .pins
            .insert(pin.clone(), (branch.uid, branch.head()));
        self.rows(&format!("SELECT * FROM create_pin('g@{name}', '{pin}')"))
            .await;
        Some(name)
    }

    pub(super) async fn unpin(&mut self) -> Option<String> {
        let pins: Vec<String> = self.graph.pins.keys().cloned().collect();
        if !pins.is_empty() {
            let pin = self.dice.of(&pins);
            self.graph.pins.remove(&pin);
            self.rows(&format!("SELECT * FROM drop_pin('{pin}')")).await;
        }
        None
    }
}
