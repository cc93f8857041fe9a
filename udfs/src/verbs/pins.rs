//! `create_pin`, `drop_pin`, `pins` and `collect_garbage`: what stays, and what goes.

use std::sync::Arc;

use stratagraph::catalog::Head;
use stratagraph::catalog::graph::{At, graph};
use stratagraph::catalog::resolve::{self, TableSnapshot};
use stratagraph::catalog::slot::{DatasetEntry, DatasetKind, Pin};
use stratagraph::ident::{BranchName, Name, VersionedName};
use stratagraph::{Error, Result};
use stratagraph_providers::{
    ArgSpec, ArgType, ArgValue, FunctionSpec, TableFunction, split_branch,
};
use tracing::Instrument;

use crate::engine::{Engine, Run};
use crate::function::{ReportFunction, answer};
use crate::report::{GarbageReport, Micros, PinRow};

const CREATE: &str = "create_pin";
const DROP: &str = "drop_pin";
const COLLECT: &str = "collect_garbage";

/// Looks that a pin takes at most: an expiry or an index writes the manifest of a version anew, which the
/// commit of a pin that was prepared before it then misses.
const LOOKS: u32 = 16;

/// A pin to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatePin {
    /// `t` or `t@3` for a table, `g` or `g@branch` for a graph.
    pub table: String,
    /// Name of the pin; a new one without.
    pub name: Option<Name>,
    /// Seconds after which expiry and garbage collection may drop it.
    pub ttl_seconds: Option<u64>,
}

/// Seconds that a pin may last: a hundred years.
const TTL_SECONDS: u64 = 100 * 366 * 86_400;

/// The row of a pin. Tables are renamed; `names` has the names that datasets have now.
fn row(name: String, pin: Pin, names: &[(String, DatasetEntry)]) -> PinRow {
    let now = names.iter().find(|(_, dataset)| dataset.id == pin.dataset);
    let table = match now {
        None => pin.dataset_name.to_string(),
        Some((name, dataset)) => {
            let mut branches = dataset.branches.iter();
            let branch = branches.find(|(_, entry)| entry.id == pin.branch);
            match branch.filter(|(branch, _)| **branch != BranchName::main()) {
                Some((branch, _)) => format!("{name}@{branch}"),
                None => name.clone(),
            }
        }
    };
    PinRow {
        pin: name,
        table,
        version: pin.version,
        expires_at: pin.expires_at.map(Micros),
    }
}

/// Pins a version durably: expiry keeps it, and the table or the branch cannot be dropped.
pub(crate) async fn create_pin(run: &Run, pin: CreatePin) -> Result<PinRow> {
    let span = tracing::info_span!("create_pin", table = %pin.table);
    let work = async {
        run.host.check_writes(CREATE)?;
        let env = run.catalog().env();
        let name = match pin.name {
            Some(name) => name,
            None => Name::parse(&format!("pin-{}", env.ids.unique()))?,
        };
        let end = pin.ttl_seconds.map(|seconds| {
            let micros = i64::try_from(seconds.saturating_mul(1_000_000)).unwrap_or(i64::MAX);
            env.clock.now_micros().saturating_add(micros)
        });
        let mut look = 1;
        let (names, made) = loop {
            match once(run, &pin.table, &name, end).await {
                // Another manifest of the same version, if it is still there.
                Err(Error::HistoricalVersionReclaimed { .. }) if look < LOOKS => look += 1,
                other => break other?,
            }
        };
        Ok(row(name.to_string(), made, &names))
    };
    work.instrument(span).await
}

/// One look, and the pin of what it found; with the dataset by its name.
async fn once(
    run: &Run,
    table: &str,
    name: &Name,
    end: Option<i64>,
) -> Result<([(String, DatasetEntry); 1], Pin)> {
    let head = run.catalog().pin().await?;
    let store = run.catalog().store();
    let of = Name::parse(table.split_once('@').map_or(table, |(of, _)| of))?;
    let dataset = resolve::dataset(store, &head, &of).await?;
    let is_graph = dataset.is_some_and(|dataset| dataset.kind == DatasetKind::Graph);
    let found = match is_graph {
        true => branch_head(run, &head, table).await?,
        false => {
            let table = VersionedName::parse(table)?;
            resolve::table(store, &head, &table.name, table.version).await?
        }
    };
    let pin = run.catalog().create_pin(name.clone(), &found, end).await?;
    Ok(([(of.to_string(), found.dataset)], pin))
}

/// The head of a branch of a graph as one of its tables, whose manifest is that of all.
async fn branch_head(run: &Run, head: &Head, text: &str) -> Result<TableSnapshot> {
    let store = run.catalog().store();
    let (name, branch) = split_branch(text)?;
    let state = graph(store, head, &name, &branch, &At::Head).await?;
    match state.schema.types.first() {
        Some(of) => state.table(store, of.id).await,
        None => Err(Error::NotFound {
            what: "type of the graph",
            name: name.to_string(),
        }),
    }
}

/// Drops a pin; what it kept goes with the next expiry or garbage collection.
pub(crate) async fn drop_pin(run: &Run, name: &Name) -> Result<PinRow> {
    let span = tracing::info_span!("drop_pin", pin = %name);
    let work = async {
        run.host.check_writes(DROP)?;
        let head = run.catalog().look().await?;
        let store = run.catalog().store();
        let pins = head.body.pins.entries(store).await?;
        let names = resolve::datasets(store, &head).await?;
        let missing = || Error::NotFound {
            what: "pin",
            name: name.to_string(),
        };
        let known = pins.into_iter().find(|(known, _)| known == name.as_str());
        let (known, pin) = known.ok_or_else(missing)?;
        run.catalog().drop_pin(name.clone()).await?;
        Ok(row(known, pin, &names))
    };
    work.instrument(span).await
}

/// All pins of the statement's snapshot, by name.
pub(crate) async fn pins(run: &Run) -> Result<Vec<PinRow>> {
    let head = run.snapshot().await?;
    let store = run.catalog().store();
    let pins = head.body.pins.entries(store).await?;
    let names = resolve::datasets(store, &head).await?;
    let rows = pins.into_iter().map(|(name, pin)| row(name, pin, &names));
    Ok(rows.collect())
}

/// Deletes what nothing references: objects of transactions that never committed, of dropped tables
/// and of expired versions. Transactions that are open meanwhile are refused when they commit.
pub(crate) async fn collect_garbage(run: &Run, dry_run: bool) -> Result<GarbageReport> {
    let span = tracing::info_span!("collect_garbage", dry_run);
    let work = async {
        if !dry_run {
            run.host.check_writes(COLLECT)?;
        }
        let swept = run.catalog().collect_garbage(0, dry_run).await?;
        Ok(GarbageReport {
            objects: swept.objects,
            bytes: swept.bytes,
        })
    };
    work.instrument(span).await
}

/// The SQL functions.
pub(crate) fn functions(engine: &Arc<Engine>) -> [Arc<dyn TableFunction>; 4] {
    let create = vec![
        ArgSpec::required("table", ArgType::Name),
        ArgSpec::optional("name", ArgType::Name),
        ArgSpec::optional("ttl", ArgType::Int),
    ];
    let dry_run = ArgSpec::or("dry_run", ArgType::Bool, ArgValue::Bool(false));
    let drop = vec![ArgSpec::required("name", ArgType::Name)];
    [
        ReportFunction::of::<PinRow>(engine, FunctionSpec::verb(CREATE, create), |call| {
            Box::pin(async move {
                let name = call.args.opt_text("name").map(Name::parse).transpose()?;
                let ttl_seconds = call.args.opt_unsigned("ttl")?;
                if ttl_seconds.is_some_and(|ttl| !(1..=TTL_SECONDS).contains(&ttl)) {
                    let reason = format!("expected 1 to {TTL_SECONDS} seconds");
                    return Err(call.args.invalid("ttl", reason));
                }
                let pin = CreatePin {
                    table: call.args.text("table")?.to_owned(),
                    name,
                    ttl_seconds,
                };
                answer(&[create_pin(&call.run, pin).await?])
            })
        }),
        ReportFunction::of::<PinRow>(engine, FunctionSpec::verb(DROP, drop), |call| {
            Box::pin(async move { answer(&[drop_pin(&call.run, &call.name("name")?).await?]) })
        }),
        ReportFunction::of::<PinRow>(engine, FunctionSpec::read("pins", Vec::new()), |call| {
            Box::pin(async move { answer(&pins(&call.run).await?) })
        }),
        ReportFunction::of::<GarbageReport>(
            engine,
            FunctionSpec::verb(COLLECT, vec![dry_run]),
            |call| {
                Box::pin(async move {
                    let dry_run = call.args.flag("dry_run");
                    answer(&[collect_garbage(&call.run, dry_run).await?])
                })
            },
        ),
    ]
}
