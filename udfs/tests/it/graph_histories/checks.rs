//! What is there, against the model.

use stratagraph::catalog::graph::{At, graph};
use stratagraph::ident::{BranchName, Name};

use super::state::State;
use super::{Answer, History, seen};
use crate::graph_load::support::assert_sound;

impl History {
    /// By turns a pattern, a state of the past, and what became of one since.
    pub(super) async fn check(&mut self, name: &str) {
        let branch = self.graph.branches[name].clone();
        match self.dice.below(5) {
            0 => self.check_query(name, branch.head()).await,
            1 | 2 => {
                let past = self.dice.of(&branch.all);
                self.check_past(name, past).await;
            }
            3 => {
                let retained: Vec<usize> = branch.retained.iter().copied().collect();
                let (from, to) = (self.dice.of(&retained), self.dice.of(&retained));
                self.check_changes(name, from, to).await;
            }
            _ => {}
        }
    }

    pub(super) async fn check_changes(&mut self, name: &str, from: usize, to: usize) {
        let [from, to] = [from, to].map(|at| &self.graph.commits[at]);
        let ids = format!("'{}', '{}'", from.id, to.id);
        let sql = format!("SELECT * FROM graph_changes('g', {ids}, '{name}')");
        let changes = from.state.changes(&to.state);
        let mut found = self.rows(&sql).await;
        found.sort();
        assert_eq!(found, changes, "{sql}");
    }

    pub(super) async fn check_state(&mut self, name: &str, hint: &str, at: usize) {
        let found = State::of_rows(self.rows(&State::select(name, hint)).await);
        assert_eq!(found, self.graph.commits[at].state, "{name} {hint}");
    }

    pub(super) async fn check_query(&mut self, name: &str, at: usize) {
        let commit = &self.graph.commits[at];
        let (id, expected) = (commit.id.clone(), commit.state.found());
        let call = format!(
            "'g', '{}', branch => '{name}', snapshot => '{id}'",
            State::QUERY
        );
        let sql = format!("SELECT * FROM graph_query({call}) ORDER BY a, b, c");
        if !expected.is_empty() {
            seen("paths");
        }
        assert_eq!(self.rows(&sql).await, expected, "{sql}");
    }

    /// All retained commits are listed with their parents; of others only the log tells.
    pub(super) fn check_commits(&self, name: &str, listed: Answer) {
        let graph = &self.graph;
        let mut expected: Answer = Vec::new();
        for at in graph.branches[name].retained.iter().rev() {
            let commit = &graph.commits[*at];
            let parents = commit
                .parents
                .iter()
                .map(|at| graph.commits[*at].id.as_str());
            let parents = parents.collect::<Vec<_>>().join(",");
            expected.push(vec![commit.version.to_string(), commit.id.clone(), parents]);
        }
        let is_known = |row: &Vec<String>| expected.iter().any(|known| known[1] == row[1]);
        let (known, others): (Answer, Answer) = listed.into_iter().partition(is_known);
        assert_eq!(known, expected, "commits of {name}");
        assert!(others.iter().all(|row| row[2].is_empty()), "{others:?}");
    }

    /// A state of the past by its commit, or by a catalog version from then on; forgotten ones are said
    /// to be so.
    pub(super) async fn check_past(&mut self, name: &str, at: usize) {
        let branch = self.graph.branches[name].clone();
        let commit = &self.graph.commits[at];
        let (hint, expected) = match self.dice.below(2) {
            0 => {
                let known = branch.retained.contains(&at).then_some(at);
                (format!("'{}'", commit.id), known.ok_or("NotFound"))
            }
            _ => {
                let version = commit.version + self.dice.below(3) as u64;
                (version.to_string(), self.graph.at_version(&branch, version))
            }
        };
        let hint = format!("WITH (snapshot = {hint})");
        match expected {
            Ok(at) if self.dice.below(2) == 0 => self.check_query(name, at).await,
            Ok(at) => self.check_state(name, &hint, at).await,
            Err(code) => {
                seen("forgotten");
                let sql = State::select(name, &hint);
                assert_eq!(self.run(&sql).await, Err(code), "{sql}");
            }
        }
    }

    /// All that is left of all branches, and nothing else.
    pub(super) async fn finish(mut self) {
        let names: Vec<String> = self.graph.branches.keys().cloned().collect();
        for name in &names {
            let sql = format!("SELECT version, commit_id, parent_ids FROM commits('g', '{name}')");
            let listed = self.rows(&sql).await;
            self.check_commits(name, listed);
            self.check(name).await;
            let mut retained: Vec<usize> =
                self.graph.branches[name].retained.iter().copied().collect();
            if std::env::var_os("SOAK").is_none() {
                // The oldest, and another one.
                retained = vec![
                    retained[0],
                    self.dice.of(&retained),
                    self.dice.of(&retained),
                ];
            }
            for at in retained {
                let hint = format!("WITH (snapshot = '{}')", self.graph.commits[at].id);
                self.check_state(name, &hint, at).await;
            }
        }
        self.rows("SELECT * FROM collect_garbage()").await;
        let left = self
            .rows("SELECT objects FROM collect_garbage(dry_run => true)")
            .await;
        assert_eq!(left, [["0"]]);
        let fresh = self.process().await;
        let head = fresh.sg.catalog().look().await.unwrap();
        for name in &names {
            let (of, branch) = (Name::parse("g").unwrap(), BranchName::parse(name).unwrap());
            let store = fresh.sg.catalog().store();
            let now = graph(store, &head, &of, &branch, &At::Head);
            assert_sound(&fresh.sg, &now.await.unwrap()).await;
        }
    }
}
