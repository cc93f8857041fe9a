//! Traversals inside DataFusion plans.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, RecordBatch, StringArray, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema};
use async_trait::async_trait;
use datafusion::catalog::{MemTable, Session};
use datafusion::common::Column;
use datafusion::error::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::{
    Expr, Extension, JoinType, LogicalPlan, LogicalPlanBuilder, col, lit,
};
use datafusion::physical_plan::{ExecutionPlan, collect, displayable};
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::StreamExt;
use stratagraph::env::Env;
use stratagraph::graph::query::Direction;
use stratagraph::graph::topology::{EdgeTable, TraversalMode};
use stratagraph::ident::TxnId;
use stratagraph::store::{PageTree, Stager, Store};
use stratagraph::table::bitmap::DeadRows;
use stratagraph::table::manifest::{Endpoints, Entry, Layout, TableManifest};
use stratagraph::table::schema::graph_schema;
use stratagraph::table::writer::FragmentWriter;
use stratagraph_providers::{
    EdgeHandle, ExpandNode, ExpandPlanner, ExpandSpec, MatchPlanner, find_error,
};

use super::world::lines;

/// Edges as a table of `fragments` fragments whose every tenth row is dead; and the live ones.
pub(super) async fn edge_table(
    edges: &[(u64, u64)],
    fragments: usize,
) -> (EdgeTable, Vec<(u64, u64)>) {
    let (store, env) = (Arc::new(Store::memory()), Env::fixed(1));
    let mut stage = Stager::new(TxnId::new(0, "expand").unwrap());
    let schema = graph_schema(Layout::Edge, 0, &[]).unwrap();
    let (mut entries, mut live) = (BTreeMap::new(), Vec::new());
    let size = edges.len().div_ceil(fragments).max(1);
    for (number, part) in edges.chunks(size).enumerate() {
        let mut part = part.to_vec();
        part.sort_unstable();
        let key = stage.reserve("parquet").unwrap();
        let store = Arc::clone(&store);
        let mut writer = FragmentWriter::new(store, &env, Layout::Edge, &schema, key).unwrap();
        let numbers = |of: fn(&(u64, u64)) -> u64| -> ArrayRef {
            Arc::new(UInt64Array::from_iter_values(part.iter().map(of)))
        };
        let ids = (0..part.len()).map(|i| format!("e{number}.{i:07}"));
        let ids = Arc::new(StringArray::from_iter_values(ids));
        let first = (number * size) as u64;
        let rids = UInt64Array::from_iter_values(first..first + part.len() as u64);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(rids),
            Arc::clone(&ids) as _,
            Arc::clone(&ids) as _,
            ids,
            numbers(|e| e.0),
            numbers(|e| e.1),
        ];
        let batch = RecordBatch::try_new(Arc::clone(writer.schema()), columns).unwrap();
        writer.write(&batch).await.unwrap();
        let mut fragment = writer.finish(&mut stage).await.unwrap().unwrap();
        let dead = (0..part.len() as u32).filter(|p| p % 10 == 3).collect();
        fragment.dead = DeadRows::from_bitmap(&dead).unwrap();
        live.extend(
            (0u32..)
                .zip(&part)
                .filter(|(p, _)| !dead.contains(*p))
                .map(|(_, e)| *e),
        );
        let (stamp, id) = (number as u64, number as u64);
        let (mask, rejects) = (None, None);
        let entry = Entry {
            stamp,
            id,
            fragment: Some(fragment),
            mask,
            rejects,
        };
        entries.insert(Entry::key(stamp, id), Some(entry));
    }
    let count = entries.len() as u64;
    let tree = PageTree::default();
    let tree = tree.apply(&store, &mut stage, entries).await.unwrap();
    stage.flush(&store).await.unwrap();
    let table = TableManifest {
        type_id: 2,
        incarnation_id: "i".to_owned(),
        layout: Layout::Edge,
        endpoints: Some(Endpoints { src: 1, dst: 1 }),
        schemas: vec![schema],
        entries: tree,
        next_entry: count,
        live_rows: live.len() as u64,
        dead_rows: (edges.len() - live.len()) as u64,
        fragments: count,
        rejects: 0,
        mask_digest: None,
        fold: None,
        source_files: None,
    };
    (EdgeTable::new(store, &env, Arc::new(table)).unwrap(), live)
}

pub(super) fn random_edges(nodes: u64, count: u64) -> Vec<(u64, u64)> {
    let edge = |i: u64| {
        let mix = (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ((mix >> 11) % nodes, (mix >> 37) % nodes)
    };
    (0..count).map(edge).collect()
}

/// Destinations of a node at their distances.
fn reach(live: &[(u64, u64)], source: u64, max: u32) -> BTreeMap<u64, u32> {
    let mut near: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for (src, dst) in live {
        near.entry(*src).or_default().insert(*dst);
    }
    let (mut found, mut frontier) = (BTreeMap::new(), BTreeSet::from([source]));
    for distance in 1..=max {
        let ends = frontier
            .iter()
            .flat_map(|n| near.get(n).into_iter().flatten());
        let next: BTreeSet<u64> = ends.copied().collect();
        if distance == 1 && next.contains(&source) {
            found.insert(source, 1);
        }
        frontier = next
            .into_iter()
            .filter(|n| *n != source && !found.contains_key(n))
            .collect();
        found.extend(frontier.iter().map(|n| (*n, distance)));
    }
    found
}

#[derive(Debug)]
struct Planner;

#[async_trait]
impl QueryPlanner for Planner {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let planner = DefaultPhysicalPlanner::with_extension_planners(vec![
            Arc::new(ExpandPlanner),
            Arc::new(MatchPlanner),
        ]);
        planner.create_physical_plan(plan, session).await
    }
}

pub(super) fn session(config: SessionConfig, pool: Option<usize>) -> SessionContext {
    let mut runtime = RuntimeEnvBuilder::new();
    if let Some(bytes) = pool {
        runtime = runtime.with_memory_pool(Arc::new(GreedyMemoryPool::new(bytes)));
    }
    let state = SessionStateBuilder::new()
        .with_default_features()
        .with_config(config)
        .with_runtime_env(runtime.build_arc().unwrap())
        .with_query_planner(Arc::new(Planner));
    SessionContext::new_with_state(state.build())
}

/// Node `i` as (rid, name, age): rid is NULL for every fifth.
fn nodes(count: u64) -> RecordBatch {
    let schema = Schema::new(vec![
        Field::new("rid", DataType::UInt64, true),
        Field::new("name", DataType::Utf8, false),
        Field::new("age", DataType::UInt64, false),
    ]);
    let rids = (0..count).map(|i| (i % 5 != 4).then_some(i));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(UInt64Array::from_iter(rids)),
        Arc::new(StringArray::from_iter_values(
            (0..count).map(|i| format!("n{i:04}")),
        )),
        Arc::new(UInt64Array::from_iter_values((0..count).map(|i| i % 50))),
    ];
    RecordBatch::try_new(Arc::new(schema), columns).unwrap()
}

/// The nodes as table `name`, in batches of 7 rows over `partitions`.
pub(super) async fn scan(
    ctx: &SessionContext,
    name: &str,
    count: u64,
    partitions: usize,
) -> LogicalPlan {
    let whole = nodes(count);
    let mut parts: Vec<Vec<RecordBatch>> = vec![Vec::new(); partitions];
    for (n, start) in (0..count as usize).step_by(7).enumerate() {
        let rows = 7.min(count as usize - start);
        parts[n % partitions].push(whole.slice(start, rows));
    }
    let table = MemTable::try_new(whole.schema(), parts).unwrap();
    ctx.deregister_table(name).unwrap();
    ctx.register_table(name, Arc::new(table)).unwrap();
    ctx.table(name).await.unwrap().into_unoptimized_plan()
}

fn expand(input: LogicalPlan, src: Expr, edges: &EdgeTable, spec: ExpandSpec) -> LogicalPlan {
    let handle = EdgeHandle::new("knows", Arc::new(edges.clone()));
    let node = ExpandNode::try_new(input, src, handle, spec).unwrap();
    LogicalPlan::Extension(Extension {
        node: Arc::new(node),
    })
}

async fn rows(ctx: &SessionContext, plan: LogicalPlan) -> Vec<String> {
    let batches = ctx
        .execute_logical_plan(plan)
        .await
        .unwrap()
        .collect()
        .await
        .unwrap();
    assert!(
        batches
            .iter()
            .all(|b| b.num_rows() <= ctx.state().config().batch_size())
    );
    let mut found = lines(&batches);
    found.sort();
    found
}

pub(super) fn bare(name: &str) -> Expr {
    Expr::Column(Column::new_unqualified(name))
}

pub(super) fn build(plan: LogicalPlan) -> LogicalPlanBuilder {
    LogicalPlanBuilder::from(plan)
}

/// Plans of many shapes over a traversal of one or two hops, with what they must return.
async fn check_shapes(ctx: &SessionContext, partitions: usize, mode: TraversalMode) {
    const NODES: u64 = 60;
    let (edges, live) = edge_table(&random_edges(NODES, 150), 3).await;
    let near = |i: u64, max| reach(&live, i, max);
    let known = || (0..NODES).filter(|i| i % 5 != 4);
    let spec = || {
        ExpandSpec::bounded(Direction::Out, 1, 2, "x_dst")
            .with_hops("x_hops")
            .with_mode(mode)
    };
    let source = || scan(ctx, "n", NODES, partitions);
    let one = async || expand(source().await, col("n.rid"), &edges, spec());
    let mut all: Vec<(u64, u64, u32)> = Vec::new();
    for i in known() {
        all.extend(near(i, 2).into_iter().map(|(dst, d)| (i, dst, d)));
    }
    let sorted = |mut lines: Vec<String>| {
        lines.sort();
        lines
    };

    let found = rows(ctx, one().await).await;
    let expected = all
        .iter()
        .map(|(i, dst, d)| format!("{i}|n{i:04}|{}|{dst}|{d}", i % 50));
    assert_eq!(found, sorted(expected.collect()), "plain");

    let filter = col("n.age")
        .gt(lit(12u64))
        .and(bare("x_hops").eq(lit(2u32)));
    let plan = build(one().await).filter(filter).unwrap();
    let found = rows(
        ctx,
        plan.project([col("n.name"), bare("x_dst")])
            .unwrap()
            .build()
            .unwrap(),
    );
    let kept = all.iter().filter(|(i, _, d)| i % 50 > 12 && *d == 2);
    let expected = kept.map(|(i, dst, _)| format!("n{i:04}|{dst}"));
    assert_eq!(
        found.await,
        sorted(expected.collect()),
        "filters on both sides"
    );

    let plan = build(one().await)
        .project([bare("x_dst")])
        .unwrap()
        .build()
        .unwrap();
    let expected = all.iter().map(|(_, dst, _)| dst.to_string());
    assert_eq!(
        rows(ctx, plan).await,
        sorted(expected.collect()),
        "destinations only"
    );

    let plan = build(one().await)
        .aggregate(Vec::<Expr>::new(), [count(lit(1))])
        .unwrap();
    assert_eq!(
        rows(ctx, plan.build().unwrap()).await,
        [all.len().to_string()],
        "count"
    );

    let order = [
        col("n.name").sort(false, true),
        bare("x_dst").sort(true, true),
    ];
    let plan = build(one().await).sort_with_limit(order, Some(5)).unwrap();
    let plan = plan
        .project([col("n.name"), bare("x_dst")])
        .unwrap()
        .build()
        .unwrap();
    let mut top: Vec<_> = all
        .iter()
        .map(|(i, dst, _)| (std::cmp::Reverse(*i), *dst))
        .collect();
    top.sort();
    let expected = top
        .iter()
        .take(5)
        .map(|(i, dst)| format!("n{:04}|{dst}", i.0));
    assert_eq!(
        rows(ctx, plan).await,
        sorted(expected.collect()),
        "top rows"
    );

    let plan = build(one().await)
        .limit(2, Some(9))
        .unwrap()
        .build()
        .unwrap();
    assert_eq!(rows(ctx, plan).await.len(), 9, "limit");

    let target = scan(ctx, "t", NODES, partitions).await;
    let on = (
        vec![bare("x_dst")],
        vec![Column::from_qualified_name("t.rid")],
    );
    let on = (
        on.0.iter()
            .map(|e| e.to_string())
            .map(Column::new_unqualified)
            .collect(),
        on.1,
    );
    let plan = build(one().await)
        .join(target, JoinType::Inner, on, None)
        .unwrap();
    let plan = plan.filter(col("t.age").lt(lit(20u64))).unwrap();
    let plan = plan
        .project([col("n.name"), col("t.name")])
        .unwrap()
        .build()
        .unwrap();
    let joined = all
        .iter()
        .filter(|(_, dst, _)| dst % 5 != 4 && dst % 50 < 20);
    let expected = joined.map(|(i, dst, _)| format!("n{i:04}|n{dst:04}"));
    assert_eq!(
        rows(ctx, plan).await,
        sorted(expected.collect()),
        "join with targets"
    );

    let second = ExpandSpec::hop(Direction::In, "y_dst").with_mode(mode);
    let plan = expand(one().await, bare("x_dst"), &edges, second);
    let plan = build(plan)
        .filter(bare("y_dst").not_eq(col("n.rid")))
        .unwrap();
    let plan = plan
        .project([col("n.rid"), bare("y_dst"), bare("x_hops")])
        .unwrap();
    let mut expected = Vec::new();
    let backs: BTreeSet<(u64, u64)> = live.iter().map(|(src, dst)| (*dst, *src)).collect();
    for (i, dst, d) in &all {
        let back = backs
            .range((*dst, 0)..(*dst + 1, 0))
            .filter(|(_, src)| src != i);
        expected.extend(back.map(|(_, src)| format!("{i}|{src}|{d}")));
    }
    assert_eq!(
        rows(ctx, plan.build().unwrap()).await,
        sorted(expected),
        "two traversals"
    );

    let without = build(source().await);
    let on = (
        vec![Column::from_qualified_name("n.rid")],
        vec![Column::from_qualified_name("m.rid")],
    );
    let inner = expand(
        scan(ctx, "m", NODES, partitions).await,
        col("m.rid"),
        &edges,
        spec(),
    );
    let plan = without.join(inner, JoinType::LeftAnti, on, None).unwrap();
    let plan = plan.project([col("n.name")]).unwrap().build().unwrap();
    let lonely = (0..NODES).filter(|i| i % 5 == 4 || near(*i, 2).is_empty());
    assert_eq!(
        rows(ctx, plan).await,
        lonely.map(|i| format!("n{i:04}")).collect::<Vec<_>>(),
        "anti join"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plans_of_every_shape_agree_with_the_model() {
    for partitions in [1, 2, 7] {
        for (mode, pushdown, hash) in [
            (TraversalMode::Auto, true, true),
            (TraversalMode::Index, false, false),
            (TraversalMode::Adjacency, true, false),
        ] {
            let mut config = SessionConfig::new()
                .with_target_partitions(partitions)
                .with_batch_size(16);
            config.options_mut().execution.parquet.pushdown_filters = pushdown;
            config.options_mut().optimizer.prefer_hash_join = hash;
            let ctx = session(config, None);
            check_shapes(&ctx, partitions, mode).await;
        }
    }
}

async fn physical(ctx: &SessionContext, plan: LogicalPlan) -> Arc<dyn ExecutionPlan> {
    let state = ctx.state();
    let plan = state.optimize(&plan).unwrap();
    let physical = Planner.create_physical_plan(&plan, &state).await;
    physical.unwrap()
}

#[tokio::test]
async fn explain_shows_the_traversal_between_its_filters() {
    let (edges, _) = edge_table(&random_edges(60, 150), 2).await;
    let ctx = session(SessionConfig::new().with_target_partitions(1), None);
    let spec = ExpandSpec::bounded(Direction::Both, 1, 3, "x_dst").with_hops("x_hops");
    let plan = expand(scan(&ctx, "n", 60, 1).await, col("n.rid"), &edges, spec);
    let filter = col("n.age")
        .gt(lit(12u64))
        .and(bare("x_hops").eq(lit(2u32)));
    let plan = build(plan).filter(filter).unwrap();
    let plan = plan.project([bare("x_dst")]).unwrap().build().unwrap();
    let logical = ctx
        .state()
        .optimize(&plan)
        .unwrap()
        .display_indent()
        .to_string();
    let shown = "Expand: edge=knows, src=n.rid, direction=both, hops={1,3}, path=auto, \
                 output=[x_dst, x_hops]";
    assert!(logical.contains(shown), "{logical}");
    let plan = physical(&ctx, plan).await;
    let text = displayable(plan.as_ref()).indent(false).to_string();
    let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
    let above = place("FilterExec: x_hops@");
    let at = place("ExpandExec: edge=knows, src=rid@0, direction=both, hops={1,3}, path=auto");
    let below = place("FilterExec: age@1 > 12, projection=[rid@0]");
    assert!(above < at && at < below, "{text}");
    assert!(!text.contains("name"), "{text}");
    collect(Arc::clone(&plan), ctx.task_ctx()).await.unwrap();
    let analyzed =
        datafusion::physical_plan::display::DisplayableExecutionPlan::with_metrics(plan.as_ref());
    let analyzed = analyzed.indent(false).to_string();
    for metric in [
        "hop_1_frontier=",
        "hop_1_edges=",
        "hop_1_adjacency=",
        "hop_3_frontier=",
        "topology_cache_misses=4",
        "bytes_read=",
        "output_rows=",
    ] {
        assert!(analyzed.contains(metric), "{metric}: {analyzed}");
    }
}

#[tokio::test]
async fn what_cannot_be_expanded_is_refused_when_planned() {
    let (edges, _) = edge_table(&[(0, 1)], 1).await;
    let ctx = session(SessionConfig::new(), None);
    let input = scan(&ctx, "n", 5, 1).await;
    let handle = EdgeHandle::new("knows", Arc::new(edges));
    let make = |src: Expr, spec| ExpandNode::try_new(input.clone(), src, handle.clone(), spec);
    let hop = ExpandSpec::hop(Direction::Out, "x_dst");
    for (src, spec, says) in [
        (col("n.name"), hop.clone(), "expected UInt64"),
        (col("n.rid") + lit(1u64), hop.clone(), "is not a column"),
        (
            col("n.rid"),
            ExpandSpec::bounded(Direction::Out, 0, 1, "x"),
            "InvalidArgument",
        ),
        (
            col("n.rid"),
            ExpandSpec::bounded(Direction::Out, 1, 65, "x"),
            "ResourceLimitExceeded",
        ),
        (col("n.rid"), hop.clone().with_hops("x_dst"), "duplicate"),
    ] {
        let error = make(src, spec).unwrap_err().to_string();
        assert!(error.contains(says), "{says}: {error}");
    }
    // Two traversals are equal if all of them is.
    let one = make(col("n.rid"), hop.clone()).unwrap();
    assert_eq!(one, make(col("n.rid"), hop.clone()).unwrap());
    let other = make(col("n.age"), hop.clone()).unwrap();
    assert!(
        one != other && one != make(col("n.rid"), hop.with_mode(TraversalMode::Index)).unwrap()
    );
}

#[tokio::test]
async fn too_little_memory_is_a_typed_error_and_is_given_back() {
    let (edges, _) = edge_table(&random_edges(20_000, 60_000), 1).await;
    let mut finished = 0;
    for (limit, fits) in [(1 << 28, true), (200_000, false), (0, false)] {
        let config = SessionConfig::new().with_target_partitions(2);
        let ctx = session(config, Some(limit));
        let spec = ExpandSpec::bounded(Direction::Both, 1, 6, "x_dst");
        let plan = expand(scan(&ctx, "n", 100, 2).await, col("n.rid"), &edges, spec);
        let plan = build(plan)
            .project([bare("x_dst")])
            .unwrap()
            .build()
            .unwrap();
        // A cold store each time, as the first one warms it.
        let found = match fits {
            true => {
                ctx.execute_logical_plan(plan)
                    .await
                    .unwrap()
                    .collect()
                    .await
            }
            false => {
                edges.store().cache().clear();
                edges.store().indexes().clear();
                ctx.execute_logical_plan(plan)
                    .await
                    .unwrap()
                    .collect()
                    .await
            }
        };
        assert_eq!(ctx.runtime_env().memory_pool.reserved(), 0);
        match found {
            Ok(batches) => finished = batches.iter().map(RecordBatch::num_rows).sum(),
            Err(error) => {
                assert!(!fits, "{error}");
                assert!(
                    find_error(&error).is_some()
                        || error.to_string().contains("Resources exhausted"),
                    "{error}"
                );
            }
        }
        assert!(fits || limit < 1 << 20);
    }
    assert!(finished > 100_000, "{finished}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_query_stops_and_gives_its_memory_back() {
    let (edges, _) = edge_table(&random_edges(20_000, 200_000), 1).await;
    let ctx = session(
        SessionConfig::new().with_target_partitions(2),
        Some(1 << 28),
    );
    let spec = ExpandSpec::bounded(Direction::Both, 1, 6, "x_dst").with_hops("x_hops");
    let plan = expand(scan(&ctx, "n", 5_000, 2).await, col("n.rid"), &edges, spec);
    let frame = ctx.execute_logical_plan(plan).await.unwrap();
    // 4,000 sources reach 20,000 nodes each: far more than is waited for.
    let mut streams = frame.execute_stream_partitioned().await.unwrap();
    let first = streams[0].next().await.unwrap().unwrap();
    assert!(first.num_rows() > 0);
    let task = tokio::spawn(async move {
        let mut all = futures::stream::select_all(streams);
        while let Some(batch) = all.next().await {
            batch.unwrap();
        }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!task.is_finished() && ctx.runtime_env().memory_pool.reserved() > 0);
    task.abort();
    let stopped = tokio::time::timeout(Duration::from_secs(5), task).await;
    assert!(stopped.unwrap().unwrap_err().is_cancelled());
    assert_eq!(ctx.runtime_env().memory_pool.reserved(), 0);
}
