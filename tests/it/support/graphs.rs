//! A small social graph: writes to its branches, and what a state of a branch holds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray, UInt64Array};
use arrow::datatypes::{Int64Type, UInt32Type, UInt64Type};
use futures::TryStreamExt;
use roaring::RoaringBitmap;
use stratagraph::Result;
use stratagraph::catalog::Catalog;
use stratagraph::catalog::graph::{At, GraphSnapshot, graph};
use stratagraph::catalog::slot::CommitKind;
use stratagraph::graph::schema::GraphSchema;
use stratagraph::ident::{BranchName, Name};
use stratagraph::publish::Requester;
use stratagraph::publish::branch::{BranchCommit, CreateBranch, create_branch, delete_branch};
use stratagraph::publish::graph::{
    GraphCommit, GraphWrite, Removed, TableWrite, create_graph, write_graph,
};
use stratagraph::publish::merge::{MergeBranch, MergeOutcome, merge_branch};
use stratagraph::publish::optimize::{OptimizeRequest, Optimized};
use stratagraph::store::Stager;
use stratagraph::table::manifest::Fragment;
use stratagraph::table::read::{ReadOptions, TableReader};
use stratagraph::table::schema::arrow_schema;
use stratagraph::table::writer::FragmentWriter;

pub const SCHEMA: &str = "
node Person { name: String @key  age: I64?  email: String?  @unique(email) }
edge Knows: Person -> Person @card(0..3) { weight: I64? }
";
pub const PERSON: u64 = 1;
pub const KNOWS: u64 = 2;

/// Age and email.
pub type Person = (Option<i64>, Option<String>);
/// Ends and weight.
pub type Knows = (String, String, Option<i64>);

/// What a state holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content {
    pub people: BTreeMap<String, Person>,
    pub knows: BTreeMap<String, Knows>,
}

/// Rows to put, or to delete where there is none; edges of deleted people go too.
#[derive(Debug, Clone, Default)]
pub struct Change {
    pub people: BTreeMap<String, Option<Person>>,
    pub knows: BTreeMap<String, Option<Knows>>,
}

impl Change {
    pub fn person(mut self, name: &str, age: i64) -> Self {
        self.people.insert(name.to_owned(), Some((Some(age), None)));
        self
    }

    pub fn email(mut self, name: &str, email: &str) -> Self {
        let person = (None, Some(email.to_owned()));
        self.people.insert(name.to_owned(), Some(person));
        self
    }

    pub fn without(mut self, name: &str) -> Self {
        self.people.insert(name.to_owned(), None);
        self
    }

    pub fn knows(mut self, id: &str, src: &str, dst: &str, weight: i64) -> Self {
        let edge = (src.to_owned(), dst.to_owned(), Some(weight));
        self.knows.insert(id.to_owned(), Some(edge));
        self
    }

    pub fn unknown(mut self, id: &str) -> Self {
        self.knows.insert(id.to_owned(), None);
        self
    }

    /// The content after the change.
    pub fn on(&self, content: &Content) -> Content {
        let mut next = content.clone();
        for (name, person) in &self.people {
            match person {
                Some(person) => drop(next.people.insert(name.clone(), person.clone())),
                None => drop(next.people.remove(name)),
            }
        }
        for (id, edge) in &self.knows {
            match edge {
                Some(edge) => drop(next.knows.insert(id.clone(), edge.clone())),
                None => drop(next.knows.remove(id)),
            }
        }
        let people = &next.people;
        next.knows
            .retain(|_, (src, dst, _)| people.contains_key(src) && people.contains_key(dst));
        next
    }
}

pub fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

pub fn branch_name(text: &str) -> BranchName {
    BranchName::parse(text).unwrap()
}

/// Creates the graph `g`.
pub async fn create(catalog: &Arc<Catalog>) -> Result<GraphCommit> {
    let schema = Arc::new(GraphSchema::compile(SCHEMA)?);
    let stage = catalog.begin().await?;
    create_graph(catalog, stage, name("g"), schema, Requester::default()).await
}

/// A state of a branch of `g`.
pub async fn state(catalog: &Arc<Catalog>, branch: &str, at: &At) -> Result<GraphSnapshot> {
    let head = catalog.look().await?;
    graph(catalog.store(), &head, &name("g"), &branch_name(branch), at).await
}

pub fn fork_of(branch: &str, from: &str, at: At) -> CreateBranch {
    CreateBranch {
        graph: name("g"),
        branch: branch_name(branch),
        from: branch_name(from),
        at,
        requester: Requester::default(),
    }
}

/// Makes a branch from the head of another.
pub async fn fork(catalog: &Arc<Catalog>, branch: &str, from: &str) -> Result<BranchCommit> {
    let stage = catalog.begin().await?;
    create_branch(catalog, stage, fork_of(branch, from, At::Head)).await
}

pub async fn delete(catalog: &Arc<Catalog>, branch: &str) -> Result<BranchCommit> {
    let stage = catalog.begin().await?;
    let requester = Requester::default();
    delete_branch(catalog, stage, name("g"), branch_name(branch), requester).await
}

pub fn merge_of(source: &str, into: &str) -> MergeBranch {
    MergeBranch {
        graph: name("g"),
        source: branch_name(source),
        into: branch_name(into),
        delete_source: false,
        dry_run: false,
        requester: Requester::default(),
    }
}

pub async fn merge(catalog: &Arc<Catalog>, request: MergeBranch) -> Result<MergeOutcome> {
    let stage = catalog.begin().await?;
    merge_branch(catalog, catalog.env(), stage, request).await
}

pub async fn optimize(catalog: &Arc<Catalog>, branch: &str) -> Result<Optimized> {
    let request = OptimizeRequest {
        graph: name("g"),
        branch: branch_name(branch),
        requester: Requester::default(),
    };
    let stage = catalog.begin().await?;
    stratagraph::publish::optimize::optimize(catalog, catalog.env(), stage, request).await
}

/// Fragments and dead rows of both tables of the head of a branch.
pub async fn fragments(catalog: &Arc<Catalog>, branch: &str) -> [(u64, u64); 2] {
    let now = state(catalog, branch, &At::Head).await.unwrap();
    let mut counts = [(0, 0); 2];
    for (count, of) in counts.iter_mut().zip([PERSON, KNOWS]) {
        let table = now.table(catalog.store(), of).await.unwrap().table;
        *count = (table.fragments, table.dead_rows);
    }
    counts
}

/// Row ids of the head of a branch by type and id.
pub async fn row_ids(catalog: &Arc<Catalog>, branch: &str) -> BTreeMap<(u64, String), u64> {
    let now = state(catalog, branch, &At::Head).await.unwrap();
    let mut ids = BTreeMap::new();
    for of in [PERSON, KNOWS] {
        let rows = rows(catalog, &now, of).await.unwrap();
        ids.extend(
            rows.batch
                .into_iter()
                .map(|(key, lying)| ((of, key), lying.rid)),
        );
    }
    ids
}

/// A live row: row id, then where it lies.
struct Lying {
    rid: u64,
    entry: u64,
    position: u32,
}

/// Rows of a table with where they lie.
struct Rows {
    batch: Vec<(String, Lying)>,
    content: Vec<RecordBatch>,
}

async fn rows(catalog: &Catalog, state: &GraphSnapshot, type_id: u64) -> Result<Rows> {
    let table = state.table(catalog.store(), type_id).await?.table;
    let reader = TableReader::new(Arc::clone(catalog.store()), catalog.env(), table);
    let options = ReadOptions::default().with_positions();
    let content: Vec<RecordBatch> = reader.scan(&options).await?.try_collect().await?;
    let mut batch = Vec::new();
    for rows in &content {
        let columns = rows.columns();
        let (ids, rids) = (columns[1].as_string::<i32>(), columns[0].as_primitive());
        let rids: &UInt64Array = rids;
        let entries = columns[columns.len() - 2].as_primitive::<UInt64Type>();
        let positions = columns[columns.len() - 1].as_primitive::<UInt32Type>();
        for row in 0..rows.num_rows() {
            let lying = Lying {
                rid: rids.value(row),
                entry: entries.value(row),
                position: positions.value(row),
            };
            batch.push((ids.value(row).to_owned(), lying));
        }
    }
    Ok(Rows { batch, content })
}

fn text(array: &ArrayRef, row: usize) -> Option<String> {
    let texts = array.as_string::<i32>();
    texts.is_valid(row).then(|| texts.value(row).to_owned())
}

fn number(array: &ArrayRef, row: usize) -> Option<i64> {
    let numbers = array.as_primitive::<Int64Type>();
    numbers.is_valid(row).then(|| numbers.value(row))
}

/// What a state holds; row ids must be unique and edges must point at the row ids of their ends.
pub async fn content(catalog: &Catalog, state: &GraphSnapshot) -> Result<Content> {
    let (people, knows) = (
        rows(catalog, state, PERSON).await?,
        rows(catalog, state, KNOWS).await?,
    );
    for rows in [&people, &knows] {
        let ids: BTreeSet<u64> = rows.batch.iter().map(|(_, lying)| lying.rid).collect();
        assert_eq!(ids.len(), rows.batch.len(), "row ids repeat");
        let keys: BTreeSet<&str> = rows.batch.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys.len(), rows.batch.len(), "keys repeat");
    }
    let rids: BTreeMap<&str, u64> = people.batch.iter().map(|(k, l)| (&**k, l.rid)).collect();
    let mut content = Content::default();
    for batch in &people.content {
        let columns = batch.columns();
        for row in 0..batch.num_rows() {
            let key = text(&columns[1], row).unwrap();
            assert_eq!(text(&columns[2], row).as_ref(), Some(&key));
            let person = (number(&columns[3], row), text(&columns[4], row));
            content.people.insert(key, person);
        }
    }
    for batch in &knows.content {
        let columns = batch.columns();
        let rid = |column: usize, row| columns[column].as_primitive::<UInt64Type>().value(row);
        for row in 0..batch.num_rows() {
            let key = text(&columns[1], row).unwrap();
            let (src, dst) = (text(&columns[2], row).unwrap(), text(&columns[3], row));
            let dst = dst.unwrap();
            assert_eq!(rids.get(&*src), Some(&rid(4, row)), "src of {key}");
            assert_eq!(rids.get(&*dst), Some(&rid(5, row)), "dst of {key}");
            content
                .knows
                .insert(key, (src, dst, number(&columns[6], row)));
        }
    }
    let counted = |type_id| state.table(catalog.store(), type_id);
    let live = (counted(PERSON).await?.table, counted(KNOWS).await?.table);
    assert_eq!(live.0.live_rows, content.people.len() as u64);
    assert_eq!(live.1.live_rows, content.knows.len() as u64);
    Ok(content)
}

/// The content of the head of a branch.
pub async fn read(catalog: &Arc<Catalog>, branch: &str) -> Result<Content> {
    content(catalog, &state(catalog, branch, &At::Head).await?).await
}

fn texts(values: impl Iterator<Item = Option<String>>) -> ArrayRef {
    Arc::new(values.collect::<StringArray>())
}

fn rids(values: impl Iterator<Item = u64>) -> ArrayRef {
    Arc::new(UInt64Array::from_iter_values(values))
}

fn numbers(values: impl Iterator<Item = Option<i64>>) -> ArrayRef {
    Arc::new(values.collect::<Int64Array>())
}

async fn fragment(
    catalog: &Catalog,
    stage: &mut Stager,
    base: &GraphSnapshot,
    type_id: u64,
    columns: Vec<ArrayRef>,
) -> Result<Vec<Fragment>> {
    let table = base.table(catalog.store(), type_id).await?.table;
    let schema = table.current_schema().unwrap();
    let key = stage.reserve("parquet")?;
    let (store, env) = (Arc::clone(catalog.store()), catalog.env());
    let mut writer = FragmentWriter::new(store, env, table.layout, schema, key)?;
    let batch = RecordBatch::try_new(arrow_schema(schema)?, columns)?;
    writer.write(&batch).await?;
    Ok(writer.finish(stage).await?.into_iter().collect())
}

/// Positions of `gone`, and the row ids of rows to put: their own if they are there, else new ones.
fn place(
    rows: &Rows,
    gone: &BTreeSet<&str>,
    put: &[&str],
    counter: u64,
) -> (BTreeMap<u64, RoaringBitmap>, BTreeMap<String, u64>, u64) {
    let mut positions: BTreeMap<u64, RoaringBitmap> = BTreeMap::new();
    let mut known = BTreeMap::new();
    for (key, lying) in &rows.batch {
        known.insert(key.as_str(), lying.rid);
        if gone.contains(&**key) || put.contains(&&**key) {
            positions
                .entry(lying.entry)
                .or_default()
                .insert(lying.position);
        }
    }
    let (mut given, mut fresh) = (BTreeMap::new(), 0);
    for key in put {
        let rid = known.get(key).copied().unwrap_or_else(|| {
            fresh += 1;
            counter + fresh - 1
        });
        given.insert((*key).to_owned(), rid);
    }
    (positions, given, fresh)
}

fn person_columns(after: &Content, put: &[&str], given: &BTreeMap<String, u64>) -> Vec<ArrayRef> {
    let of = |key: &&str| after.people[*key].clone();
    vec![
        rids(put.iter().map(|k| given[*k])),
        texts(put.iter().map(|k| Some((*k).to_owned()))),
        texts(put.iter().map(|k| Some((*k).to_owned()))),
        numbers(put.iter().map(|k| of(k).0)),
        texts(put.iter().map(|k| of(k).1)),
    ]
}

fn edge_columns(
    after: &Content,
    edges: &[(u64, u64, &str)],
    given: &BTreeMap<String, u64>,
) -> Vec<ArrayRef> {
    let of = |key: &str| after.knows[key].clone();
    vec![
        rids(edges.iter().map(|(_, _, k)| given[*k])),
        texts(edges.iter().map(|(_, _, k)| Some((*k).to_owned()))),
        texts(edges.iter().map(|(_, _, k)| Some(of(k).0))),
        texts(edges.iter().map(|(_, _, k)| Some(of(k).1))),
        rids(edges.iter().map(|(src, _, _)| *src)),
        rids(edges.iter().map(|(_, dst, _)| *dst)),
        numbers(edges.iter().map(|(_, _, k)| of(k).2)),
    ]
}

fn table_write(
    type_id: u64,
    positions: BTreeMap<u64, RoaringBitmap>,
    fragments: Vec<Fragment>,
    new_rids: u64,
) -> TableWrite {
    TableWrite {
        type_id,
        removed: Removed::Positions(positions),
        fragments,
        rows: Vec::new(),
        new_rids,
        insert_only: false,
    }
}

/// A write of `change` on the state `base`.
pub async fn prepare(
    catalog: &Catalog,
    stage: &mut Stager,
    base: &GraphSnapshot,
    change: &Change,
) -> Result<GraphWrite> {
    let counter = |type_id| base.dataset.next_rids.get(&type_id).copied().unwrap_or(0);
    let (people, knows) = (
        rows(catalog, base, PERSON).await?,
        rows(catalog, base, KNOWS).await?,
    );
    let before = content(catalog, base).await?;
    let after = change.on(&before);
    let put: Vec<&str> = change
        .people
        .iter()
        .filter(|(_, p)| p.is_some())
        .map(|(k, _)| &**k)
        .collect();
    let gone = before.people.keys().map(|k| &**k);
    let gone = gone.filter(|k| !after.people.contains_key(*k)).collect();
    let (positions, given, new_rids) = place(&people, &gone, &put, counter(PERSON));
    let mut tables = Vec::new();
    let fragments = match put.is_empty() {
        true => Vec::new(),
        false => {
            let columns = person_columns(&after, &put, &given);
            fragment(catalog, stage, base, PERSON, columns).await?
        }
    };
    tables.push(table_write(PERSON, positions, fragments, new_rids));
    let mut ends: BTreeMap<String, u64> = people
        .batch
        .iter()
        .map(|(k, l)| (k.clone(), l.rid))
        .collect();
    ends.extend(given);
    let gone = before.knows.keys().map(|k| &**k);
    let gone = gone.filter(|k| !after.knows.contains_key(*k)).collect();
    let put = change
        .knows
        .keys()
        .map(|k| &**k)
        .filter(|k| after.knows.contains_key(*k));
    let put: Vec<&str> = put.collect();
    let (positions, given, new_rids) = place(&knows, &gone, &put, counter(KNOWS));
    let mut edges: Vec<(u64, u64, &str)> = put
        .iter()
        .map(|k| (ends[&after.knows[*k].0], ends[&after.knows[*k].1], *k))
        .collect();
    edges.sort_unstable();
    let fragments = match edges.is_empty() {
        true => Vec::new(),
        false => {
            let columns = edge_columns(&after, &edges, &given);
            fragment(catalog, stage, base, KNOWS, columns).await?
        }
    };
    tables.push(table_write(KNOWS, positions, fragments, new_rids));
    Ok(GraphWrite {
        base: base.clone(),
        fork: None,
        kind: CommitKind::Load,
        tables,
        counts: BTreeMap::new(),
        requester: Requester::default(),
    })
}

/// Commits a change of a branch.
pub async fn change(catalog: &Arc<Catalog>, branch: &str, change: &Change) -> Result<GraphCommit> {
    let mut stage = catalog.begin().await?;
    let base = state(catalog, branch, &At::Head).await?;
    let write = prepare(catalog, &mut stage, &base, change).await?;
    write_graph(catalog, stage, write).await
}
