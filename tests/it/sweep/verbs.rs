//! Every transaction of the engine as a verb that a sweep can run, interrupt and run again.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use object_store::memory::InMemory;
use stratagraph::catalog::{Catalog, Expire, resolve};
use stratagraph::ident::{BranchName, Name, TxnId};
use stratagraph::publish::Deletes;
use stratagraph::{Error, Result};

use crate::support::audit::{objects, process};
use crate::support::embedding::{
    Source, compact, compact_tiered, content, expected, generate, index, refresh, restore,
    table_name,
};

/// What a verb answered, with its transaction where it has one of its own.
pub type Answer = (Option<TxnId>, Result<()>);

/// What a store holds, as far as a verb can change it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    pub table: Option<BTreeMap<String, [u8; 32]>>,
    pub version: Option<u64>,
    pub versions: Vec<u64>,
    pub pins: Vec<String>,
    /// Indexes of the current version.
    pub segments: usize,
}

/// A verb with the store and the source that it meets.
#[derive(Clone, Copy)]
pub struct Verb {
    pub name: &'static str,
    /// Refreshes before the verb, so that there is history to expire and fragments to merge.
    depth: u64,
    /// Changes of the source that the verb finds.
    change: fn(&Source),
    run: for<'a> fn(&'a Arc<Catalog>, &'a Source) -> BoxFuture<'a, Answer>,
    /// Codes of a second run that found the first one done.
    done: &'static [&'static str],
}

/// A store ready for a verb.
pub struct Stage {
    pub base: InMemory,
    pub source: Source,
    pub before: State,
    pub after: State,
}

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn told(answer: (Option<TxnId>, Result<impl Sized>)) -> Answer {
    (answer.0, answer.1.map(drop))
}

/// A refresh that found nothing to do has committed nothing, so its transaction is in no history.
fn run_refresh<'a>(catalog: &'a Arc<Catalog>, source: &'a Source) -> BoxFuture<'a, Answer> {
    async move {
        let (txn, outcome) = refresh(catalog, source, Deletes::Tombstone).await;
        let nothing = matches!(&outcome, Ok(ran) if ran.published.is_none());
        (txn.filter(|_| !nothing), outcome.map(drop))
    }
    .boxed()
}

pub async fn expire(catalog: &Arc<Catalog>) -> Result<()> {
    let (name, branch) = (table_name(), BranchName::main());
    let expired = Vec::new();
    catalog
        .expire(Expire {
            name,
            branch,
            branch_id: None,
            before: u64::MAX,
            include_base: true,
            dataset: None,
            expired,
        })
        .await
        .map(drop)
}

async fn pin(catalog: &Arc<Catalog>) -> Result<()> {
    let head = catalog.look().await?;
    let table = resolve::table(catalog.store(), &head, &table_name(), Some(0)).await?;
    catalog.create_pin(name("p"), &table, None).await.map(drop)
}

/// Verbs that change rows.
fn data_verbs() -> Vec<Verb> {
    let verb = |name, change| Verb {
        name,
        depth: 2,
        change,
        run: run_refresh,
        done: &[],
    };
    let generate = Verb {
        name: "generate",
        depth: 0,
        change: |s| s.set("e", ""),
        run: |c, s| async move { told(generate(c, s).await) }.boxed(),
        done: &["AlreadyExists"],
    };
    vec![
        generate,
        verb("refresh added", |s| s.set("n", "new text")),
        verb("refresh changed", |s| s.set("a", "changed text")),
        verb("refresh deleted", |s| s.remove("a")),
        verb("refresh to empty", |s| s.set("a", "")),
        verb("refresh no change", |_| {}),
    ]
}

/// A verb that changes no row of the source.
fn admin(
    name: &'static str,
    depth: u64,
    run: for<'a> fn(&'a Arc<Catalog>, &'a Source) -> BoxFuture<'a, Answer>,
    done: &'static [&'static str],
) -> Verb {
    Verb {
        name,
        depth,
        change: |_| {},
        run,
        done,
    }
}

/// Verbs that make versions, or better indexes of one.
fn version_verbs() -> Vec<Verb> {
    vec![
        admin(
            "compact",
            3,
            |c, _| async move { told(compact(c, None).await) }.boxed(),
            &[],
        ),
        admin(
            "compact tiered",
            3,
            |c, _| async move { told(compact_tiered(c).await) }.boxed(),
            &[],
        ),
        admin(
            "build index",
            3,
            |c, _| async move { told(index(c).await) }.boxed(),
            &[],
        ),
        admin(
            "restore",
            3,
            |c, _| async move { told(restore(c, 0).await) }.boxed(),
            &[],
        ),
    ]
}

/// All verbs.
pub fn verbs() -> Vec<Verb> {
    let mut verbs = data_verbs();
    verbs.extend(version_verbs());
    verbs.extend([
        admin(
            "expire",
            3,
            |c, _| async move { (None, expire(c).await) }.boxed(),
            &[],
        ),
        admin(
            "collect garbage",
            3,
            |c, _| async move { (None, c.collect_garbage(0, false).await.map(drop)) }.boxed(),
            &[],
        ),
        admin(
            "create pin",
            3,
            |c, _| async move { (None, pin(c).await) }.boxed(),
            &["AlreadyExists"],
        ),
        admin(
            "drop pin",
            1,
            |c, _| async move { (None, c.drop_pin(name("q")).await) }.boxed(),
            &["NotFound"],
        ),
        admin(
            "drop",
            2,
            |c, _| async move { (None, c.drop_dataset(&table_name()).await) }.boxed(),
            &["NotFound"],
        ),
        admin(
            "commit status",
            3,
            |c, _| {
                let txn = TxnId::new(0, "S0001N000001").unwrap();
                async move { (None, c.commit_status(&txn, None).await.map(drop)) }.boxed()
            },
            &[],
        ),
    ]);
    verbs
}

impl Verb {
    /// Runs it once.
    pub async fn run(&self, catalog: &Arc<Catalog>, source: &Source) -> Answer {
        (self.run)(catalog, source).await
    }

    /// Runs it again: finding it done is fine.
    pub async fn finish(&self, catalog: &Arc<Catalog>, source: &Source) -> Result<()> {
        match self.run(catalog, source).await.1 {
            Err(e) if self.done.contains(&e.code()) => Ok(()),
            other => other,
        }
    }

    /// A store ready for the verb, and what it holds before and after.
    pub async fn stage(&self) -> Stage {
        let base = InMemory::new();
        let shared: Arc<dyn object_store::ObjectStore> = Arc::new(base.fork());
        let source = Source::new(&[("a", "red apple"), ("b", "blue sky"), ("d", "green grass")]);
        let catalog = process(Arc::clone(&shared), 1);
        if self.depth > 0 {
            generate(&catalog, &source).await.1.unwrap();
            for i in 1..self.depth {
                source.set("b", &format!("blue {i}"));
                refresh(&catalog, &source, Deletes::Tombstone)
                    .await
                    .1
                    .unwrap();
            }
        }
        if self.name == "drop pin" {
            let head = catalog.look().await.unwrap();
            let table = resolve::table(catalog.store(), &head, &table_name(), None)
                .await
                .unwrap();
            catalog.create_pin(name("q"), &table, None).await.unwrap();
        }
        let base = copy(&shared).await;
        let before = state(&process(Arc::new(base.fork()), 2)).await.unwrap();
        (self.change)(&source);
        let done: Arc<dyn object_store::ObjectStore> = Arc::new(base.fork());
        self.run(&process(Arc::clone(&done), 3), &source)
            .await
            .1
            .unwrap();
        let after = state(&process(done, 4)).await.unwrap();
        if self.name.starts_with("refresh") || self.name == "generate" {
            assert_eq!(after.table, Some(expected(&source.rows())));
        }
        Stage {
            base,
            source,
            before,
            after,
        }
    }
}

async fn copy(from: &Arc<dyn object_store::ObjectStore>) -> InMemory {
    use object_store::ObjectStore;
    let to = InMemory::new();
    for (key, bytes) in objects(from).await {
        to.put_opts(&key, bytes.into(), Default::default())
            .await
            .unwrap();
    }
    to
}

/// What a store holds.
pub async fn state(catalog: &Arc<Catalog>) -> Result<State> {
    let head = catalog.look().await?;
    let pins = catalog
        .pins()
        .await?
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    let table = match resolve::table(catalog.store(), &head, &table_name(), None).await {
        Ok(table) => table,
        Err(Error::NotFound { .. }) => {
            return Ok(State {
                table: None,
                version: None,
                versions: Vec::new(),
                pins,
                segments: 0,
            });
        }
        Err(e) => return Err(e),
    };
    let history = table
        .current
        .history
        .walk(catalog.store(), &mut |_| {})
        .await?;
    let entries = table.table.entries.entries(catalog.store()).await?;
    let fragments = entries.iter().filter_map(|(_, e)| e.fragment.as_ref());
    Ok(State {
        table: Some(content(catalog, None).await?),
        version: Some(table.version()),
        versions: history.iter().map(|e| e.version).collect(),
        pins,
        segments: fragments.map(|f| f.segments.len()).sum(),
    })
}
