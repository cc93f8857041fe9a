//! `graph_reach`: all nodes that seeds reach along one edge type, with their distances.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::physical_plan::ExecutionPlan;
use stratagraph::graph::query::Direction;
use stratagraph::{Error, Result, limits};
use stratagraph_providers::{
    ArgSpec, ArgType, ArgValue, BoundArgs, FunctionSpec, GraphReach, Metadata, PlannedArgs,
    RunContext, Seeds, TableFunction, Wanted, from_datafusion,
};

use super::query::state_of;
use crate::engine::{Engine, Run};

const VERB: &str = "graph_reach";

#[derive(Debug)]
struct Function {
    engine: Arc<Engine>,
    spec: FunctionSpec,
}

fn direction_of(args: &BoundArgs) -> Result<Direction> {
    match args.opt_text("direction") {
        None | Some("out") => Ok(Direction::Out),
        Some("in") => Ok(Direction::In),
        Some("both") => Ok(Direction::Both),
        Some(_) => Err(args.invalid("direction", "expected out, in or both")),
    }
}

fn hops_of(args: &BoundArgs) -> Result<(u32, u32)> {
    let bound = |name: &str| {
        let hops = args.opt_unsigned(name)?.and_then(|n| u32::try_from(n).ok());
        let fits = hops.filter(|n| (1..=limits::HOPS).contains(n));
        let reason = format!("expected a number of hops from 1 to {}", limits::HOPS);
        fits.ok_or_else(|| args.invalid(name, reason))
    };
    let (min, max) = (bound("min_hops")?, bound("max_hops")?);
    match min <= max {
        true => Ok((min, max)),
        false => Err(args.invalid("max_hops", "is below min_hops")),
    }
}

fn seeds_of(args: &BoundArgs) -> Result<Seeds> {
    match args.get("seeds") {
        ArgValue::Names(ids) => Ok(Seeds::Ids(ids.clone())),
        ArgValue::Plan(plan) if plan.schema().fields().len() == 1 => {
            Ok(Seeds::Plan(Arc::clone(plan)))
        }
        _ => Err(args.invalid(
            "seeds",
            "expected a list of ids, an id, or a query of one column",
        )),
    }
}

#[async_trait]
impl TableFunction for Function {
    fn spec(&self) -> &FunctionSpec {
        &self.spec
    }

    fn schema(&self, _: &PlannedArgs<'_>, _: &Arc<Metadata>) -> Result<SchemaRef> {
        Ok(GraphReach::schema())
    }

    fn owns_filters(&self) -> bool {
        true
    }

    async fn scan(
        &self,
        args: &BoundArgs,
        state: &dyn Session,
        wanted: Wanted<'_>,
        context: &RunContext,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let run = Run::of_statement(Arc::clone(&self.engine), context);
        let snapshot = state_of(&run, args).await?;
        let edge = args.text("edge")?;
        let missing = || Error::NotFound {
            what: "edge type",
            name: format!("{}.{edge}", snapshot.name),
        };
        let of = snapshot.schema.edge(edge).ok_or_else(missing)?;
        let (min, max) = hops_of(args)?;
        let reach = GraphReach {
            edge: of.id,
            seeds: seeds_of(args)?,
            min,
            max,
            direction: direction_of(args)?,
            mode: run.host.settings().traversal,
        };
        let same = of.edge.as_ref().is_some_and(|ends| ends.from == ends.to);
        if !same && (max > 1 || reach.direction == Direction::Both) {
            let reason = format!("{edge} joins two types: it has one hop, out or in");
            return Err(args.invalid("max_hops", reason));
        }
        let plan = reach.plan(state, &context.metadata, &snapshot, run.pin(), wanted);
        plan.await.map_err(from_datafusion)
    }

    async fn run(self: Arc<Self>, args: BoundArgs, _: RunContext) -> Result<Vec<RecordBatch>> {
        // Every call is planned.
        Err(args.invalid("graph", "cannot run without a plan"))
    }
}

/// The SQL function.
pub(crate) fn function(engine: &Arc<Engine>) -> Arc<dyn TableFunction> {
    let args = vec![
        ArgSpec::required("graph", ArgType::Name),
        ArgSpec::required("edge", ArgType::Name),
        ArgSpec::required("seeds", ArgType::Ids),
        ArgSpec::required("min_hops", ArgType::Int),
        ArgSpec::required("max_hops", ArgType::Int),
        ArgSpec::optional("direction", ArgType::Name),
        ArgSpec::optional("branch", ArgType::Name),
        ArgSpec::optional("snapshot", ArgType::Snapshot),
    ];
    Arc::new(Function {
        engine: Arc::clone(engine),
        spec: FunctionSpec::read(VERB, args),
    })
}
