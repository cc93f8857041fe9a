//! The smallest commit that references a staged object: for tests of the catalog alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use stratagraph::catalog::Catalog;
use stratagraph::catalog::commit::{Attempt, Edit, Operation};
use stratagraph::catalog::history::History;
use stratagraph::catalog::manifest::BranchManifest;
use stratagraph::catalog::resolve;
use stratagraph::catalog::slot::{
    BranchEntry, CommitKind, CommitRecord, DatasetEntry, DatasetKind, FORMAT,
};
use stratagraph::ident::{BranchName, Name, TxnId};
use stratagraph::store::{ObjRef, PageTree, Stager, format_runs, layout};
use stratagraph::{Error, Result};

/// Adds a version with one new object to a dataset, which it creates if it is not there.
pub struct Append {
    name: Name,
    object: ObjRef,
    /// Version that was committed.
    pub version: u64,
}

impl Append {
    /// Stages the object.
    pub fn new(stage: &mut Stager, name: &str) -> Result<Self> {
        Ok(Self {
            object: stage.add("bin", stage.txn().to_string().into_bytes())?,
            name: Name::parse(name)?,
            version: 0,
        })
    }
}

/// Appends once; the transaction is known whatever the outcome.
pub async fn append(catalog: &Arc<Catalog>, name: &str) -> (Option<TxnId>, Result<u64>) {
    let mut stage = match catalog.begin().await {
        Ok(stage) => stage,
        Err(e) => return (None, Err(e)),
    };
    let txn = stage.txn().clone();
    let run = async {
        let operation = Append::new(&mut stage, name)?;
        Ok::<_, Error>(catalog.commit(stage, operation).await?.operation.version)
    };
    let outcome = run.await;
    (Some(txn), outcome)
}

#[async_trait::async_trait]
impl Operation for Append {
    async fn prepare(&mut self, attempt: &mut Attempt<'_>) -> Result<Option<Edit>> {
        let store = Arc::clone(attempt.store());
        let mark = attempt.stage.mark();
        let known = resolve::dataset(&store, attempt.head, &self.name).await?;
        let mut history = History::default();
        let (mut dataset, branch, parent) = match known {
            Some(dataset) => {
                let head = dataset.main().unwrap().clone();
                let manifest = BranchManifest::load(&store, &head.manifest).await?;
                history = manifest.history.clone();
                history.push(manifest.history_entry(&head, &[]), attempt.stage)?;
                (dataset, head.id, Some(manifest.version))
            }
            None => {
                let dataset = DatasetEntry {
                    id: format!("D{}", attempt.stage.txn()),
                    kind: DatasetKind::Embedding,
                    created_at: 0,
                    next_rids: BTreeMap::new(),
                    branches: BTreeMap::new(),
                    definition: None,
                };
                (dataset, format!("B{}", attempt.stage.txn()), None)
            }
        };
        self.version = parent.map_or(0, |v| v + 1);
        let commit = CommitRecord {
            txn: attempt.stage.txn().clone(),
            id: attempt.catalog.env().ids.unique(),
            dataset: dataset.id.clone(),
            dataset_name: self.name.to_string(),
            branch: "main".to_owned(),
            kind: CommitKind::Load,
            actor: None,
            time: attempt.catalog.env().clock.now_micros(),
            request_id: None,
        };
        let mut written = attempt.stage.written_since(mark)?;
        written.extend(layout::parse_object(&self.object.key).map(|(_, n)| n));
        let manifest = BranchManifest {
            format: FORMAT,
            dataset: dataset.id.clone(),
            branch: branch.clone(),
            version: self.version,
            parent_version: parent,
            commit: commit.clone(),
            counts: BTreeMap::new(),
            parents: Vec::new(),
            catalog_version: attempt.version,
            identity: None,
            descriptor: None,
            // The definition slot carries the object: every version reads it.
            definition: Some(self.object.clone()),
            tables: PageTree::default(),
            delta: Vec::new(),
            history,
            objects: format_runs(&written),
            imports: false,
            ancestry: BTreeMap::new(),
        };
        let manifest = attempt.stage.add_json(&manifest)?;
        let entry = BranchEntry {
            id: branch,
            commit_id: commit.id.clone(),
            version: self.version,
            manifest,
            fork: None,
        };
        dataset.branches.insert(BranchName::main(), entry);
        let mut edit = Edit::new(commit);
        edit.datasets.insert(self.name.to_string(), Some(dataset));
        Ok(Some(edit))
    }
}
