//! `create_pin`, `drop_pin`, `pins` and `collect_garbage`: what stays, and what goes.

use std::sync::Arc;

use stratagraph::catalog::slot::Pin;
use stratagraph::ident::{Name, VersionedName};
use stratagraph::{Error, Result};
use stratagraph_providers::{ArgSpec, ArgType, ArgValue, FunctionSpec, TableFunction};
use tracing::Instrument;

use crate::engine::{Engine, Run};
use crate::function::{ReportFunction, answer};
use crate::report::{GarbageReport, Micros, PinRow};

const CREATE: &str = "create_pin";
const DROP: &str = "drop_pin";
const COLLECT: &str = "collect_garbage";

/// A pin to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatePin {
    /// Table and version; the current version without.
    pub table: VersionedName,
    /// Name of the pin; a new one without.
    pub name: Option<Name>,
    /// Seconds after which expiry and garbage collection may drop it.
    pub ttl_seconds: Option<u64>,
}

fn row(name: String, pin: Pin) -> PinRow {
    PinRow {
        pin: name,
        table: pin.dataset_name.to_string(),
        version: pin.version,
        expires_at: pin.expires_at.map(Micros),
    }
}

/// Pins a version durably: expiry keeps it, and the table cannot be dropped.
pub(crate) async fn create_pin(run: &Run, pin: CreatePin) -> Result<PinRow> {
    let span = tracing::info_span!("create_pin", table = %pin.table.name);
    let work = async {
        run.host.check_writes(CREATE)?;
        let env = run.catalog().env();
        let name = match pin.name {
            Some(name) => name,
            None => Name::parse(&format!("pin-{}", env.ids.unique()))?,
        };
        let head = run.catalog().pin().await?;
        let (store, version) = (run.catalog().store(), pin.table.version);
        let table =
            stratagraph::catalog::resolve::table(store, &head, &pin.table.name, version).await?;
        let end = pin.ttl_seconds.map(|seconds| {
            let micros = i64::try_from(seconds.saturating_mul(1_000_000)).unwrap_or(i64::MAX);
            env.clock.now_micros().saturating_add(micros)
        });
        let made = run.catalog().create_pin(name.clone(), &table, end).await?;
        Ok(row(name.to_string(), made))
    };
    work.instrument(span).await
}

/// Drops a pin; what it kept goes with the next expiry or garbage collection.
pub(crate) async fn drop_pin(run: &Run, name: &Name) -> Result<PinRow> {
    let span = tracing::info_span!("drop_pin", pin = %name);
    let work = async {
        run.host.check_writes(DROP)?;
        let pins = run.catalog().pins().await?;
        let missing = || Error::NotFound {
            what: "pin",
            name: name.to_string(),
        };
        let known = pins.into_iter().find(|(known, _)| known == name.as_str());
        let (known, pin) = known.ok_or_else(missing)?;
        run.catalog().drop_pin(name.clone()).await?;
        Ok(row(known, pin))
    };
    work.instrument(span).await
}

/// All pins of the statement's snapshot, by name.
pub(crate) async fn pins(run: &Run) -> Result<Vec<PinRow>> {
    let head = run.snapshot().await?;
    let pins = head.body.pins.entries(run.catalog().store()).await?;
    Ok(pins.into_iter().map(|(name, pin)| row(name, pin)).collect())
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
                if ttl_seconds == Some(0) {
                    return Err(call.args.invalid("ttl", "expected at least one second"));
                }
                let table = VersionedName::parse(call.args.text("table")?)?;
                let pin = CreatePin {
                    table,
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
