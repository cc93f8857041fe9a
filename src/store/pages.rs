//! A persistent sorted map in immutable pages: a B+tree whose root lies inline in its owner.
//!
//! A page holds at most [`limits::PAGE_ENTRIES`] entries and [`limits::PAGE_BYTES`] bytes. A change
//! writes one path of pages and a new root; all other pages are shared with the older tree.

use std::collections::{BTreeMap, VecDeque};

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{ObjRef, Stager, Store};
use crate::digest::{canonical_json, parse_canonical};
use crate::{Error, Result, limits};

/// A value that can live in a page.
pub trait PageEntry: Clone + Send + Sync + Serialize + DeserializeOwned + 'static {
    /// Name of the page's kind in errors.
    const ARTIFACT: &'static str;

    /// Moves what is too large for a page into objects of its own, before the page is written.
    fn settle(_page: &mut [(String, Self)], _stage: &mut Stager) -> Result<()> {
        Ok(())
    }
}

/// A child of an inner node: the largest key below it, its page, and the entries below it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Child {
    last: String,
    page: ObjRef,
    count: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Node<V> {
    Leaf(Vec<(String, V)>),
    Inner(Vec<Child>),
}

/// The inline root of a paged map.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent, bound(deserialize = "V: DeserializeOwned"))]
pub struct PageTree<V>(Node<V>);

impl<V> Default for PageTree<V> {
    fn default() -> Self {
        Self(Node::Leaf(Vec::new()))
    }
}

/// Changes by key: a value to set, or `None` to remove.
type Changes<V> = [(String, Option<V>)];

/// A child while its parent is rewritten.
enum Piece<V> {
    Kept(Child),
    Fresh(Node<V>),
}

impl<V: PageEntry> PageTree<V> {
    /// A map of one entry, inline whatever its size; for owners that hold exactly one.
    pub fn leaf(key: String, value: V) -> Self {
        Self(Node::Leaf(vec![(key, value)]))
    }

    /// Number of entries.
    pub fn len(&self) -> u64 {
        match &self.0 {
            Node::Leaf(entries) => entries.len() as u64,
            Node::Inner(children) => children.iter().map(|c| c.count).sum(),
        }
    }

    /// Whether the map has no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a key.
    pub async fn get(&self, store: &Store, key: &str) -> Result<Option<V>> {
        let mut node = self.0.clone();
        loop {
            match node {
                Node::Leaf(entries) => {
                    return Ok(entries.into_iter().find(|(k, _)| k == key).map(|(_, v)| v));
                }
                Node::Inner(children) => {
                    let Some(child) = children.iter().find(|c| key <= c.last.as_str()) else {
                        return Ok(None);
                    };
                    node = load(store, &child.page).await?;
                }
            }
        }
    }

    /// All entries in key order.
    pub async fn entries(&self, store: &Store) -> Result<Vec<(String, V)>> {
        self.walk(store, &mut |_| {}).await
    }

    /// All entries in key order; `page` is called with every page below the root.
    pub async fn walk(
        &self,
        store: &Store,
        page: &mut (dyn FnMut(&ObjRef) + Send),
    ) -> Result<Vec<(String, V)>> {
        let mut entries = Vec::new();
        let mut queue = VecDeque::from([self.0.clone()]);
        // Breadth-first keeps key order because all leaves have one depth; siblings load together.
        while let Some(node) = queue.pop_front() {
            match node {
                Node::Leaf(leaf) => entries.extend(leaf),
                Node::Inner(children) => {
                    children.iter().for_each(|c| page(&c.page));
                    let loads = children.iter().map(|c| load(store, &c.page));
                    queue.extend(futures::future::try_join_all(loads).await?);
                }
            }
        }
        Ok(entries)
    }

    /// All entries that can be read, past the cache; `page` is called with every page and why it could
    /// not be read, if so. For verification.
    pub async fn survey(
        &self,
        store: &Store,
        page: &mut (dyn FnMut(&ObjRef, Option<&Error>) + Send),
    ) -> Vec<(String, V)> {
        let mut entries = Vec::new();
        let mut queue = VecDeque::from([self.0.clone()]);
        while let Some(node) = queue.pop_front() {
            match node {
                Node::Leaf(leaf) => entries.extend(leaf),
                Node::Inner(children) => {
                    for child in children {
                        let bytes = store.get_uncached(V::ARTIFACT, &child.page).await;
                        let node = bytes.and_then(|b| decode::<V>(&child.page, &b));
                        page(&child.page, node.as_ref().err());
                        queue.extend(node);
                    }
                }
            }
        }
        entries
    }

    /// The map after `changes`; new pages are added to `stage`.
    pub async fn apply(
        &self,
        store: &Store,
        stage: &mut Stager,
        changes: BTreeMap<String, Option<V>>,
    ) -> Result<Self> {
        let changes: Vec<_> = changes.into_iter().collect();
        let mut nodes = rewrite(store, stage, self.0.clone(), &changes).await?;
        while nodes.len() > 1 {
            let children = nodes
                .into_iter()
                .map(|n| write(stage, n))
                .collect::<Result<Vec<_>>>()?;
            nodes = split_inner(children);
        }
        let mut root = nodes.pop().unwrap_or(Node::Leaf(Vec::new()));
        while let Node::Inner(children) = &root
            && let [only] = children.as_slice()
        {
            root = fetch(store, stage, &only.page).await?;
        }
        Ok(Self(root))
    }
}

/// A page that this transaction staged a moment ago may not be on the store yet.
async fn fetch<V: PageEntry>(store: &Store, stage: &Stager, page: &ObjRef) -> Result<Node<V>> {
    match stage.pending(page) {
        Some(bytes) => parse_canonical(V::ARTIFACT, &page.key, bytes),
        None => load(store, page).await,
    }
}

async fn load<V: PageEntry>(store: &Store, page: &ObjRef) -> Result<Node<V>> {
    let bytes = store.get(V::ARTIFACT, page).await?;
    decode(page, &bytes)
}

fn decode<V: PageEntry>(page: &ObjRef, bytes: &[u8]) -> Result<Node<V>> {
    let node: Node<V> = parse_canonical(V::ARTIFACT, &page.key, bytes)?;
    let sorted = match &node {
        Node::Leaf(entries) => entries.windows(2).all(|w| w[0].0 < w[1].0),
        Node::Inner(children) => children.windows(2).all(|w| w[0].last < w[1].last),
    };
    if !sorted {
        return Err(Error::corrupt(
            V::ARTIFACT,
            &page.key,
            "entries in key order",
            "another order",
        ));
    }
    Ok(node)
}

fn write<V: PageEntry>(stage: &mut Stager, node: Node<V>) -> Result<Child> {
    let (last, count) = match &node {
        Node::Leaf(entries) => (entries.last().map(|e| e.0.clone()), entries.len() as u64),
        Node::Inner(children) => (
            children.last().map(|c| c.last.clone()),
            children.iter().map(|c| c.count).sum(),
        ),
    };
    let page = stage.add_json(&node)?;
    Ok(Child {
        last: last.unwrap_or_default(),
        page,
        count,
    })
}

fn rewrite<'a, V: PageEntry>(
    store: &'a Store,
    stage: &'a mut Stager,
    node: Node<V>,
    changes: &'a Changes<V>,
) -> BoxFuture<'a, Result<Vec<Node<V>>>> {
    Box::pin(async move {
        match node {
            Node::Leaf(entries) => split_leaf(stage, merge(entries, changes)),
            Node::Inner(children) => {
                let pieces = rewrite_children(store, stage, children, changes).await?;
                let mut out = Vec::with_capacity(pieces.len());
                for piece in join_fresh(stage, pieces)? {
                    out.push(match piece {
                        Piece::Kept(child) => child,
                        Piece::Fresh(node) => write(stage, node)?,
                    });
                }
                Ok(split_inner(out))
            }
        }
    })
}

async fn rewrite_children<V: PageEntry>(
    store: &Store,
    stage: &mut Stager,
    children: Vec<Child>,
    changes: &Changes<V>,
) -> Result<Vec<Piece<V>>> {
    let mut pieces = Vec::with_capacity(children.len());
    let (mut rest, last) = (changes, children.len().saturating_sub(1));
    for (i, child) in children.into_iter().enumerate() {
        let cut = if i == last {
            rest.len()
        } else {
            rest.partition_point(|c| c.0 <= child.last)
        };
        let (mine, later) = rest.split_at(cut);
        rest = later;
        if mine.is_empty() {
            pieces.push(Piece::Kept(child));
        } else {
            let node = fetch(store, stage, &child.page).await?;
            let nodes = rewrite(store, stage, node, mine).await?;
            pieces.extend(nodes.into_iter().map(Piece::Fresh));
        }
    }
    Ok(pieces)
}

fn merge<V: PageEntry>(entries: Vec<(String, V)>, changes: &Changes<V>) -> Vec<(String, V)> {
    let mut map: BTreeMap<String, V> = entries.into_iter().collect();
    for (key, change) in changes {
        match change {
            Some(value) => map.insert(key.clone(), value.clone()),
            None => map.remove(key),
        };
    }
    map.into_iter().collect()
}

/// Joins neighbouring pages that this change rewrites anyway, if they fit into one.
fn join_fresh<V: PageEntry>(stage: &mut Stager, pieces: Vec<Piece<V>>) -> Result<Vec<Piece<V>>> {
    let mut out: Vec<Piece<V>> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        match (out.last_mut(), piece) {
            (Some(Piece::Fresh(Node::Leaf(left))), Piece::Fresh(Node::Leaf(right))) => {
                let mut both = std::mem::take(left);
                both.extend(right);
                out.pop();
                out.extend(split_leaf(stage, both)?.into_iter().map(Piece::Fresh));
            }
            (Some(Piece::Fresh(Node::Inner(left))), Piece::Fresh(Node::Inner(right))) => {
                let mut both = std::mem::take(left);
                both.extend(right);
                out.pop();
                out.extend(split_inner(both).into_iter().map(Piece::Fresh));
            }
            (_, piece) => out.push(piece),
        }
    }
    Ok(out)
}

fn split_leaf<V: PageEntry>(
    stage: &mut Stager,
    mut entries: Vec<(String, V)>,
) -> Result<Vec<Node<V>>> {
    let mut nodes = Vec::new();
    while !entries.is_empty() {
        let mut page: Vec<_> = entries
            .drain(..entries.len().min(limits::PAGE_ENTRIES))
            .collect();
        V::settle(&mut page, stage)?;
        let mut size = 0;
        let mut fits = 0;
        for entry in &page {
            size += canonical_json(entry)?.len() + 1;
            if fits > 0 && size > limits::PAGE_BYTES {
                break;
            }
            fits += 1;
        }
        let spill = page.split_off(fits);
        entries.splice(0..0, spill);
        nodes.push(Node::Leaf(page));
    }
    Ok(nodes)
}

fn split_inner<V>(children: Vec<Child>) -> Vec<Node<V>> {
    children
        .chunks(limits::PAGE_ENTRIES)
        .map(|c| Node::Inner(c.to_vec()))
        .collect()
}
