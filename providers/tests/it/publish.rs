//! Publishing by hand: a version is whatever a test says it is.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use roaring::RoaringBitmap;
use stratagraph::Result;
use stratagraph::catalog::commit::{Attempt, Edit, Operation};
use stratagraph::catalog::manifest::{BranchManifest, type_key};
use stratagraph::catalog::resolve::{EMBEDDING_TYPE, dataset};
use stratagraph::catalog::slot::{
    BranchEntry, CommitKind, CommitRecord, DatasetEntry, DatasetKind, FORMAT,
};
use stratagraph::ident::{BranchName, Name};
use stratagraph::store::PageTree;
use stratagraph::table::bitmap::DeadRows;
use stratagraph::table::manifest::{
    Entry, Fragment, Layout, SchemaVersion, TableManifest, TableRoot,
};

pub struct Publish {
    pub name: Name,
    pub schema: SchemaVersion,
    pub fragments: Vec<Fragment>,
    pub kill: BTreeMap<u64, RoaringBitmap>,
}

impl Publish {
    async fn table(&self, attempt: &mut Attempt<'_>, old: Option<TableManifest>) -> TableManifest {
        let store = Arc::clone(attempt.store());
        let mut table = old.unwrap_or_else(|| TableManifest {
            type_id: EMBEDDING_TYPE,
            incarnation_id: "i1".to_owned(),
            layout: Layout::Embedding,
            endpoints: None,
            schemas: vec![self.schema.clone()],
            entries: PageTree::default(),
            next_entry: 0,
            live_rows: 0,
            dead_rows: 0,
            fragments: 0,
            rejects: 0,
            fold: None,
            source_files: None,
            mask_digest: None,
        });
        if table.current_schema() != Some(&self.schema) {
            table.schemas.push(self.schema.clone());
        }
        let mut changes: BTreeMap<String, Option<Entry>> = BTreeMap::new();
        for (key, mut entry) in table.entries.entries(&store).await.unwrap() {
            if let Some(dead) = self.kill.get(&entry.id) {
                let fragment = entry.fragment.as_mut().unwrap();
                let known = fragment.dead.load(&store, fragment.rows).await.unwrap();
                fragment.dead = DeadRows::from_bitmap(&(known | dead)).unwrap();
                changes.insert(key, Some(entry));
            }
        }
        for fragment in &self.fragments {
            let id = table.next_entry;
            table.next_entry += 1;
            let entry = Entry {
                stamp: attempt.version,
                id,
                fragment: Some(fragment.clone()),
                mask: None,
                rejects: None,
            };
            changes.insert(Entry::key(attempt.version, id), Some(entry));
        }
        table.entries = table
            .entries
            .apply(&store, attempt.stage, changes)
            .await
            .unwrap();
        table
    }
}

#[async_trait]
impl Operation for Publish {
    async fn prepare(&mut self, attempt: &mut Attempt<'_>) -> Result<Option<Edit>> {
        let store = Arc::clone(attempt.store());
        let mark = attempt.stage.mark();
        let entry = dataset(&store, attempt.head, &self.name).await?;
        let old = match entry.as_ref().and_then(DatasetEntry::main) {
            Some(branch) => Some((
                branch.clone(),
                BranchManifest::load(&store, &branch.manifest).await?,
            )),
            None => None,
        };
        let before = match &old {
            Some((_, manifest)) => manifest.table(&store, EMBEDDING_TYPE).await?,
            None => None,
        };
        let mut history = old
            .as_ref()
            .map(|(_, m)| m.history.clone())
            .unwrap_or_default();
        if let (Some((branch, manifest)), Some(table)) = (&old, &before) {
            let entry = manifest.history_entry(branch, std::slice::from_ref(table));
            history.push(entry, attempt.stage)?;
        }
        let version = old.as_ref().map_or(0, |(_, m)| m.version + 1);
        let id = entry
            .as_ref()
            .map_or_else(|| format!("d{}", attempt.version), |e| e.id.clone());
        let record = CommitRecord {
            txn: attempt.stage.txn().clone(),
            id: format!("c{}", attempt.version),
            dataset: id.clone(),
            dataset_name: self.name.to_string(),
            branch: "main".to_owned(),
            kind: CommitKind::Refresh,
            actor: None,
            time: 0,
            request_id: None,
        };
        let table = self.table(attempt, before).await;
        let roots = BTreeMap::from([(
            type_key(EMBEDDING_TYPE),
            Some(TableRoot::Inline(Box::new(table))),
        )]);
        let tables = PageTree::default()
            .apply(&store, attempt.stage, roots)
            .await?;
        let manifest = BranchManifest {
            format: FORMAT,
            dataset: id.clone(),
            branch: "b1".to_owned(),
            version,
            parent_version: version.checked_sub(1),
            commit: record.clone(),
            counts: BTreeMap::new(),
            parents: old.iter().map(|(b, _)| b.commit_id.clone()).collect(),
            catalog_version: attempt.version,
            identity: None,
            descriptor: None,
            definition: None,
            tables,
            delta: Vec::new(),
            history,
            objects: stratagraph::store::format_runs(&attempt.stage.written_since(mark)?),
            imports: false,
            ancestry: BTreeMap::new(),
        };
        let branch = BranchEntry {
            id: "b1".to_owned(),
            commit_id: record.id.clone(),
            version,
            manifest: attempt.stage.add_json(&manifest)?,
            fork: None,
        };
        let mut changed = entry.unwrap_or_else(|| DatasetEntry {
            id,
            kind: DatasetKind::Embedding,
            created_at: 0,
            next_rids: BTreeMap::new(),
            branches: BTreeMap::new(),
            definition: None,
        });
        changed.branches.insert(BranchName::main(), branch);
        let mut edit = Edit::new(record);
        edit.datasets.insert(self.name.to_string(), Some(changed));
        Ok(Some(edit))
    }
}
