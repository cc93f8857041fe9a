//! Patterns inside DataFusion plans.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use datafusion::functions_aggregate::expr_fn::sum;
use datafusion::logical_expr::{Extension, LogicalPlan, col, lit};
use datafusion::physical_plan::ExecutionPlanProperties;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::{StreamExt, TryStreamExt};
use stratagraph::graph::query::Direction;
use stratagraph::graph::topology::{EdgeTable, TraversalMode};
use stratagraph_providers::{EdgeHandle, MatchEdge, MatchNode, MatchSpec, find_error};

use super::expand::{bare, build, edge_table, random_edges, scan, session};
use super::world::lines;

/// A chain of `length` variables that follows edges, some of them kept, paths counted.
fn chain(length: usize, closed: bool, kept: &[usize], edges: &EdgeTable) -> MatchSpec {
    let edge = EdgeHandle::new("knows", Arc::new(edges.clone()));
    let mut ends: Vec<(usize, usize)> = (1..length).map(|right| (right - 1, right)).collect();
    if closed {
        ends.push((length - 1, 0));
    }
    let hops = ends.into_iter().map(|(left, right)| MatchEdge {
        left,
        right,
        edge: edge.clone(),
        direction: Direction::Out,
        distinct: true,
    });
    MatchSpec {
        variables: (0..length).map(|v| format!("v{v}")).collect(),
        hops: hops.collect(),
        keys: Vec::new(),
        mode: TraversalMode::Auto,
        kept: kept.iter().map(|v| (*v, format!("v{v}.#"))).collect(),
        count: Some("paths".to_owned()),
        top: None,
    }
}

fn node(inputs: Vec<(usize, LogicalPlan)>, spec: MatchSpec) -> LogicalPlan {
    let node = MatchNode::try_new(inputs, spec).unwrap();
    LogicalPlan::Extension(Extension {
        node: Arc::new(node),
    })
}

/// Row ids of the nodes that are younger than 25.
async fn young(ctx: &SessionContext) -> LogicalPlan {
    let nodes = build(scan(ctx, "n", 100, 2).await);
    let young = nodes.filter(col("n.age").lt(lit(25u64))).unwrap();
    let present = young.filter(col("n.rid").is_not_null()).unwrap();
    present.project([col("n.rid")]).unwrap().build().unwrap()
}

/// All paths, counted on top of the rows.
async fn paths(ctx: &SessionContext, spec: MatchSpec, of: usize) -> datafusion::error::Result<i64> {
    let plan = node(vec![(of, young(ctx).await)], spec);
    let plan = build(plan).aggregate(
        Vec::<datafusion::logical_expr::Expr>::new(),
        [sum(bare("paths"))],
    );
    let frame = ctx
        .execute_logical_plan(plan.unwrap().build().unwrap())
        .await?;
    let batches = frame.collect().await?;
    Ok(batches[0].column(0).as_primitive::<Int64Type>().value(0))
}

#[tokio::test]
async fn counts_are_those_of_the_paths_in_any_number_of_partitions() {
    let (edges, live) = edge_table(&random_edges(100, 900), 3).await;
    let mut near: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (src, dst) in &live {
        near.entry(*src).or_default().push(*dst);
    }
    for list in near.values_mut() {
        list.sort_unstable();
        list.dedup();
    }
    let of = |node: &u64| near.get(node).into_iter().flatten();
    let young = |node: &u64| node % 5 != 4 && node % 50 < 25;
    let (mut open, mut closed) = (0, 0);
    for a in near.keys() {
        for b in of(a).filter(|b| young(b)) {
            for c in of(b) {
                open += 1;
                closed += i64::from(of(c).any(|end| end == a));
            }
        }
    }
    assert!(open > 1_000 && closed > 50, "{open} {closed}");
    for partitions in [1, 2, 7] {
        let config = SessionConfig::new().with_target_partitions(partitions);
        let ctx = session(config, None);
        for kept in [&[][..], &[0], &[1], &[2, 0], &[0, 1, 2]] {
            let found = paths(&ctx, chain(3, false, kept, &edges), 1).await.unwrap();
            assert_eq!(found, open, "{kept:?} {partitions}");
            let found = paths(&ctx, chain(3, true, kept, &edges), 1).await.unwrap();
            assert_eq!(found, closed, "{kept:?} {partitions}");
        }
    }
}

#[tokio::test]
async fn one_plan_gives_the_same_each_time_also_at_the_same_time() {
    let (edges, _) = edge_table(&random_edges(3_000, 9_000), 2).await;
    let ctx = session(SessionConfig::new().with_target_partitions(3), None);
    for (closed, kept) in [(true, &[0usize, 1][..]), (false, &[]), (false, &[0])] {
        let plan = node(Vec::new(), chain(3, closed, kept, &edges));
        let frame = ctx.execute_logical_plan(plan).await.unwrap();
        let plan = frame.create_physical_plan().await.unwrap();
        let parts = plan.output_partitioning().partition_count();
        // Two executions whose parts are started in turn, then one more.
        let mut executions = vec![Vec::new(), Vec::new(), Vec::new()];
        for (part, number) in (0..parts).flat_map(|part| [(part, 0), (part, 1)]) {
            executions[number].push(plan.execute(part, ctx.task_ctx()).unwrap());
        }
        let mut found: Vec<Vec<String>> = Vec::new();
        for mut streams in executions {
            if streams.is_empty() {
                let start = |part| plan.execute(part, ctx.task_ctx()).unwrap();
                streams = (0..parts).map(start).collect();
            }
            let mut batches = Vec::new();
            for stream in streams {
                batches.extend(stream.try_collect::<Vec<_>>().await.unwrap());
            }
            let mut rows = lines(&batches);
            rows.sort_unstable();
            found.push(rows);
        }
        assert!(!found[0].is_empty());
        assert!(found[0] == found[1] && found[1] == found[2]);
    }
}

#[tokio::test]
async fn the_best_nodes_come_with_all_that_equal_the_last() {
    // Node i has i edges; the last two have as many as each other.
    let edges = (1..8).flat_map(|i| (0..i).map(move |j| (i, 100 + j)));
    let edges: Vec<(u64, u64)> = edges.chain((0..7).map(|j| (9, 100 + j))).collect();
    let (edges, live) = edge_table(&edges, 1).await;
    let ctx = session(SessionConfig::new().with_target_partitions(2), None);
    let mut degrees: BTreeMap<u64, i64> = BTreeMap::new();
    live.iter()
        .for_each(|(src, _)| *degrees.entry(*src).or_default() += 1);
    let mut order: Vec<i64> = degrees.values().copied().collect();
    order.sort_unstable_by(|a, b| b.cmp(a));
    for top in 1..=degrees.len() + 1 {
        let spec = MatchSpec {
            top: Some(top),
            ..chain(2, false, &[0], &edges)
        };
        let frame = ctx
            .execute_logical_plan(node(Vec::new(), spec))
            .await
            .unwrap();
        let batches = frame.collect().await.unwrap();
        let counts = batches
            .iter()
            .flat_map(|b| b.column(1).as_primitive::<Int64Type>().values());
        let mut counts: Vec<i64> = counts.copied().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let least = order[top.min(order.len()) - 1];
        let expected: Vec<i64> = order.iter().copied().filter(|n| *n >= least).collect();
        assert_eq!(counts, expected, "{top}");
    }
}

#[tokio::test]
async fn too_little_memory_is_a_typed_error_and_is_given_back() {
    let (edges, _) = edge_table(&random_edges(20_000, 60_000), 1).await;
    let mut found = Vec::new();
    for limit in [1 << 28, 200_000, 0] {
        let config = SessionConfig::new().with_target_partitions(2);
        let ctx = session(config, Some(limit));
        edges.store().cache().clear();
        edges.store().indexes().clear();
        let answer = paths(&ctx, chain(3, true, &[0], &edges), 1).await;
        assert_eq!(ctx.runtime_env().memory_pool.reserved(), 0);
        found.push(match answer {
            Ok(_) => true,
            Err(error) => {
                let text = error.to_string();
                assert!(find_error(&error).is_some() || text.contains("Resources exhausted"));
                false
            }
        });
    }
    assert_eq!(found, [true, false, false]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_query_stops_and_gives_its_memory_back() {
    let (edges, _) = edge_table(&random_edges(2_000, 200_000), 1).await;
    let config = SessionConfig::new().with_target_partitions(2);
    let ctx = session(config, Some(1 << 28));
    // A path of five hops in a graph of degree 90: far more than is waited for.
    let plan = node(Vec::new(), chain(6, false, &[0, 1, 2, 3, 4, 5], &edges));
    let frame = ctx.execute_logical_plan(plan).await.unwrap();
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
