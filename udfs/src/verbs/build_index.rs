//! `build_index`: an index over a column of each fragment that has none.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::DataType;
use stratagraph::publish::{AttachRequest, Requester, attach};
use stratagraph::search::build::{Index, VectorKind, build};
use stratagraph::table::manifest::Segment;
use stratagraph::{Result, limits};
use stratagraph_providers::{ArgSpec, ArgType, FunctionSpec, TableFunction};
use tracing::Instrument;

use super::finished;
use crate::engine::{Engine, Run};
use crate::function::{ReportFunction, answer};
use crate::report::IndexReport;
use crate::search::Target;

const VERB: &str = "build_index";

/// An index to build.
#[derive(Debug, Clone, PartialEq)]
pub struct BuildIndex {
    /// The table: `t`, or `g.Type` of a graph.
    pub table: String,
    /// The column: vectors or texts.
    pub column: String,
    /// `hnsw`, `ivf` or `text`; what suits the column without one.
    pub kind: Option<String>,
    /// The metric, which must be the column's own.
    pub metric: Option<String>,
    /// Rows with a vector below which a fragment gets no index over vectors.
    pub least_rows: u64,
}

impl BuildIndex {
    /// The index that suits a column.
    pub fn new(table: impl Into<String>, column: impl Into<String>) -> Self {
        Self {
            table: table.into(),
            column: column.into(),
            kind: None,
            metric: None,
            least_rows: limits::INDEX_ROWS,
        }
    }

    /// An index of a kind.
    pub fn kind(self, kind: impl Into<String>) -> Self {
        Self {
            kind: Some(kind.into()),
            ..self
        }
    }

    /// Over smaller fragments too.
    pub fn least_rows(self, least_rows: u64) -> Self {
        Self { least_rows, ..self }
    }
}

/// Builds the index and attaches it. Rows, versions and identities stay as they are.
pub(crate) async fn build_index(run: &Run, wanted: BuildIndex) -> Result<IndexReport> {
    let span = tracing::info_span!("build_index", table = wanted.table, column = wanted.column);
    let work = async {
        run.host.check_writes(VERB)?;
        let run = run.fresh().await?;
        let target = Target::find(&run, VERB, &wanted.table, None).await?;
        if !target.snapshot.is_current() {
            let reason = "indexes are attached to the current version alone; name no other";
            return Err(target.invalid("table", reason));
        }
        let index = index_of(&target, &wanted)?;
        let reader = target.reader();
        let mut stage = run.begin().await?;
        let env = run.host.env(run.catalog().env());
        let mut segments: BTreeMap<String, Vec<Segment>> = BTreeMap::new();
        let mut report = IndexReport {
            table: wanted.table.clone(),
            column: wanted.column.clone(),
            kind: "exact".to_owned(),
            rows: 0,
            bytes: 0,
        };
        for entry in reader.entries().await?.iter() {
            let Some(fragment) = &entry.fragment else {
                continue;
            };
            let known = fragment.segment(index.column(), index.of());
            let known = known.filter(|segment| segment.kind == index.kind());
            let segment = match known {
                Some(known) => Some(known.clone()),
                None => {
                    let least = wanted.least_rows;
                    let built = build(&reader, entry, &index, least, &env, &mut stage).await?;
                    let key = fragment.file.object.key.clone();
                    segments.entry(key).or_default().extend(built.clone());
                    built
                }
            };
            if let Some(segment) = segment {
                report.kind = segment.kind.as_str().to_owned();
                report.rows += segment.rows;
                report.bytes += segment.file.object.size;
            }
        }
        segments.retain(|_, built| !built.is_empty());
        if !segments.is_empty() {
            let snapshot = &target.snapshot;
            let request = AttachRequest {
                name: snapshot.name.clone(),
                dataset: snapshot.dataset.id.clone(),
                branch: target.branch.clone(),
                type_id: snapshot.table.type_id,
                segments,
                requester: Requester::default(),
            };
            attach(run.catalog(), stage, request).await?;
            target.learn().await;
        }
        Ok(finished(report))
    };
    work.instrument(span).await
}

/// What to build over a column.
fn index_of(target: &Target, wanted: &BuildIndex) -> Result<Index> {
    let column = target.column("column", &wanted.column)?;
    let is_text = column.field.data_type() == &DataType::Utf8View;
    let kind = wanted.kind.as_deref().unwrap_or("auto");
    let declared = target
        .declared(column.id, "kind")
        .filter(|_| kind == "auto");
    match (is_text, declared.unwrap_or(kind)) {
        (true, "auto" | "text") => {
            if wanted.metric.is_some() {
                return Err(target.invalid("metric", "texts have none"));
            }
            target
                .text_column("column", &wanted.column)
                .map(Index::Text)
        }
        (false, kind @ ("auto" | "hnsw" | "ivf")) => {
            let column = target.vector_column("column", &wanted.column)?;
            let own = column.metric.as_str();
            if wanted.metric.as_deref().is_some_and(|metric| metric != own) {
                let reason = format!("the column's own is {own}; searches use no other");
                return Err(target.invalid("metric", reason));
            }
            let kind = match kind {
                "hnsw" => VectorKind::Hnsw,
                _ => VectorKind::Ivf,
            };
            Ok(Index::Vector { column, kind })
        }
        (true, other) => Err(target.invalid("kind", format!("expected text, not {other:?}"))),
        (false, other) => {
            let reason = format!("expected auto, hnsw or ivf, not {other:?}");
            Err(target.invalid("kind", reason))
        }
    }
}

/// The SQL function.
pub(crate) fn function(engine: &Arc<Engine>) -> Arc<dyn TableFunction> {
    let args = vec![
        ArgSpec::required("table", ArgType::Name),
        ArgSpec::required("column", ArgType::Name),
        ArgSpec::optional("kind", ArgType::Text),
        ArgSpec::optional("metric", ArgType::Text),
    ];
    ReportFunction::of::<IndexReport>(engine, FunctionSpec::verb(VERB, args), |call| {
        Box::pin(async move {
            let args = &call.args;
            let text = |name: &str| args.opt_text(name).map(str::to_owned);
            let wanted = BuildIndex {
                kind: text("kind"),
                metric: text("metric"),
                ..BuildIndex::new(args.text("table")?, args.text("column")?)
            };
            answer(&[build_index(&call.run, wanted).await?])
        })
    })
}
