//! What all functions of one installation share: the store, the models, the host's services.

use std::sync::Arc;

use datafusion::execution::TaskContext;
use datafusion::execution::session_state::SessionStateBuilder;
use futures::{StreamExt, stream};
use stratagraph::catalog::commit::back_off;
use stratagraph::catalog::graph::{self, At, GraphSnapshot};
use stratagraph::catalog::resolve::{self, TableSnapshot};
use stratagraph::catalog::slot::{CommitKind, DatasetKind};
use stratagraph::catalog::{Catalog, SnapshotPin};
use stratagraph::embed::{
    Embedder, Handshake, ModelPolicy, ModelRegistry, ModelSpec, differences, parse_spec,
};
use stratagraph::ident::{BranchName, Name};
use stratagraph::publish::Requester;
use stratagraph::publish::definition::{Definition, ModelRef};
use stratagraph::store::Stager;
use stratagraph::table::manifest::Layout;
use stratagraph::{Error, NotRefreshableReason, Result};
use stratagraph_providers::{Metadata, RunContext, StatementPin};

use crate::authorize::{Authorizer, GraphAction};
use crate::host::Host;

/// Tables whose columns are read at once.
const CONCURRENT_LOADS: usize = 16;

/// Shared by the handle and by every registered function.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) metadata: Arc<Metadata>,
    pub(crate) models: ModelRegistry,
    pub(crate) policy: ModelPolicy,
    pub(crate) authorizer: Authorizer,
    /// The store's root as it was given, without secrets.
    pub(crate) root: String,
}

impl Engine {
    pub(crate) fn catalog(&self) -> &Arc<Catalog> {
        self.metadata.catalog()
    }

    /// Looks at the head and learns the columns of up to `tables` tables, for planning hooks that
    /// cannot wait. A table that cannot be read fails the statements that name it, not this.
    pub(crate) async fn load_metadata(&self, tables: usize) -> Result<()> {
        self.metadata.refresh().await?;
        let datasets = self.metadata.datasets();
        let known = datasets.iter();
        let names = known.filter_map(|(name, kind)| Some((Name::parse(name).ok()?, *kind)));
        let loads = stream::iter(names.take(tables)).map(|(name, kind)| async move {
            let loaded = match kind {
                DatasetKind::Embedding => self.metadata.table(&name).await.map(drop),
                DatasetKind::Graph => {
                    let main = BranchName::main();
                    self.metadata.graph(&name, &main).await.map(drop)
                }
            };
            if let Err(error) = loaded {
                tracing::warn!(dataset = %name, %error, "its columns could not be read");
            }
        });
        loads
            .buffer_unordered(CONCURRENT_LOADS)
            .collect::<()>()
            .await;
        Ok(())
    }

    /// The model of a text, and the text under which a table remembers it: the name of a model, else
    /// the canonical spec.
    pub(crate) async fn model(
        &self,
        text: &str,
        handshake: Handshake,
    ) -> Result<(String, Arc<dyn Embedder>)> {
        let env = self.catalog().env();
        let model = self.models.resolve(text, &self.policy, env, handshake);
        let model = model.await?;
        let recorded = match parse_spec(text) {
            Ok(ModelSpec::Name(name)) => name,
            _ => model.spec().to_owned(),
        };
        Ok((recorded, model))
    }

    /// The model that a table was made with, which must be the one that this environment has under
    /// its name.
    ///
    /// # Errors
    /// `DefinitionDrift` names what differs. A model whose files can no longer be used has drifted
    /// too: the table was made when they could.
    pub(crate) async fn model_of(
        &self,
        table: &Name,
        definition: &Definition,
        handshake: Handshake,
    ) -> Result<Arc<dyn Embedder>> {
        let drift = |current: String, reason: String| Error::DefinitionDrift {
            table: table.to_string(),
            recorded: definition.hash().to_string(),
            current,
            reason,
        };
        let model = match self.model(&definition.model.spec, handshake).await {
            Ok((_, model)) => model,
            Err(error @ Error::ModelInvalid { .. }) => {
                return Err(drift("none".to_owned(), error.to_string()));
            }
            // Sizes in its files; of a server it is an answer that is too long.
            Err(error @ Error::ResourceLimitExceeded { .. })
                if !is_served(&definition.model.spec) =>
            {
                return Err(drift("none".to_owned(), error.to_string()));
            }
            Err(error) => return Err(error),
        };
        let current = Definition {
            model: model_ref(&definition.model.spec, model.as_ref()),
            dimensions: model.dimensions() as u64,
            ..definition.clone()
        };
        if definition.hash() != current.hash() {
            let mut differ = differences(&definition.model.definition, &current.model.definition);
            if differ.is_empty() {
                differ.push("dimensions".to_owned());
            }
            let reason = format!("the models differ in {}", differ.join(", "));
            return Err(drift(current.hash().to_string(), reason));
        }
        Ok(model)
    }

    /// The definition of a version. An embedding table without one was not made from a source.
    pub(crate) async fn definition(&self, snapshot: &TableSnapshot) -> Result<Option<Definition>> {
        let own = snapshot.table.layout == Layout::Embedding;
        match snapshot.manifest.definition.as_ref().filter(|_| own) {
            None => Ok(None),
            Some(object) => Definition::load(self.catalog().store(), object)
                .await
                .map(Some),
        }
    }
}

/// Whether no key of a version occurs twice. A refresh makes sure of it; a first version may repeat
/// keys, and its fold says whether it does.
pub(crate) fn has_unique_keys(snapshot: &TableSnapshot) -> bool {
    let kind = snapshot.manifest.commit.kind;
    matches!(kind, CommitKind::Refresh | CommitKind::Import)
        || snapshot.table.fold.is_some_and(|fold| fold.unique)
}

/// Refuses a table that holds no embeddings, such as a neighbour graph.
pub(crate) fn check_embeddings(snapshot: &TableSnapshot) -> Result<()> {
    match snapshot.table.layout {
        Layout::Embedding => Ok(()),
        _ => Err(Error::NotRefreshable {
            table: snapshot.name.to_string(),
            reason: NotRefreshableReason::NotEmbeddingTable,
        }),
    }
}

/// Whether a recorded model computes on a server.
fn is_served(spec: &str) -> bool {
    let spec = parse_spec(spec);
    matches!(spec, Ok(ModelSpec::OpenAi { .. } | ModelSpec::Tei { .. }))
}

/// What a definition records of a model.
pub(crate) fn model_ref(spec: &str, model: &dyn Embedder) -> ModelRef {
    ModelRef {
        spec: spec.to_owned(),
        definition: model.definition().canonical().to_owned(),
    }
}

/// One run of a verb or a read: the engine, the session it works for, and the statement's snapshot.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) engine: Arc<Engine>,
    pub(crate) host: Host,
    pin: Arc<StatementPin>,
}

impl Run {
    /// A run for a session, with a pin of its own.
    pub(crate) fn new(engine: Arc<Engine>, host: Host) -> Self {
        let pin = Arc::default();
        Self { engine, host, pin }
    }

    /// A run inside a SQL statement.
    pub(crate) fn of_statement(engine: Arc<Engine>, context: &RunContext) -> Self {
        let state = match &context.session {
            Some(session) => session.as_ref().clone(),
            None => foreign_session(&context.task),
        };
        Self {
            engine,
            host: Host::new(state),
            pin: Arc::clone(&context.pin),
        }
    }

    pub(crate) fn catalog(&self) -> &Arc<Catalog> {
        self.engine.catalog()
    }

    /// The same run on the head as it is now: verbs read that, whatever the statement may reuse.
    pub(crate) async fn fresh(&self) -> Result<Self> {
        let head = Arc::new(self.catalog().pin().await?);
        Ok(Self {
            pin: StatementPin::resolved(head),
            ..self.clone()
        })
    }

    /// Begins a transaction on the head as it is now: one that begins on an older head would be fenced
    /// by a garbage collection that came before it.
    pub(crate) async fn begin(&self) -> Result<Stager> {
        self.catalog().look().await?;
        self.catalog().begin().await
    }

    /// Who asks, where the call does not say it: the actor of the session.
    pub(crate) fn requester(&self) -> Requester {
        self.named(Requester::default())
    }

    /// The same, with the actor of the session if it names none.
    pub(crate) fn named(&self, requester: Requester) -> Requester {
        let actor = requester.actor;
        Requester {
            actor: actor.or_else(|| self.host.settings().actor),
            ..requester
        }
    }

    /// Asks the host before anything is changed.
    ///
    /// # Errors
    /// `Denied`.
    pub(crate) fn authorize(
        &self,
        requester: &Requester,
        action: GraphAction,
        graph: &Name,
        branch: &BranchName,
    ) -> Result<()> {
        let actor = requester.actor.as_deref();
        let authorizer = &self.engine.authorizer;
        authorizer.check(actor, action, graph, branch)
    }

    /// Waits before another try of a write that others outran.
    pub(crate) async fn back_off(&self, attempt: u32) {
        let env = self.catalog().env();
        let wait = back_off(attempt, env.ids.jitter());
        env.clock.sleep(wait).await;
    }

    /// The statement's pin.
    pub(crate) fn pin(&self) -> &Arc<StatementPin> {
        &self.pin
    }

    /// The snapshot that this statement reads.
    pub(crate) async fn snapshot(&self) -> Result<Arc<SnapshotPin>> {
        let staleness = self.host.settings().max_staleness;
        self.pin.snapshot(&self.engine.metadata, staleness).await
    }

    /// A version of a table in that snapshot; the current one without `version`.
    pub(crate) async fn table(&self, name: &Name, version: Option<u64>) -> Result<TableSnapshot> {
        let head = self.snapshot().await?;
        resolve::table(self.catalog().store(), &head, name, version).await
    }

    /// A state of a branch of a graph in that snapshot; the current one without `at`.
    pub(crate) async fn graph(
        &self,
        name: &Name,
        branch: &BranchName,
        at: Option<&At>,
    ) -> Result<GraphSnapshot> {
        let head = self.snapshot().await?;
        let store = self.catalog().store();
        graph::graph(store, &head, name, branch, at.unwrap_or(&At::Head)).await
    }

    /// Learns what a commit of this process has made of a graph. The commit stands whatever happens
    /// here.
    pub(crate) async fn learn_graph(&self, name: &Name) {
        self.learn_branch(name, &BranchName::main()).await;
    }

    /// Learns what a commit of this process has made of a branch of a graph. The commit stands whatever
    /// happens here.
    pub(crate) async fn learn_branch(&self, name: &Name, branch: &BranchName) {
        let learn = async {
            self.engine.metadata.refresh().await?;
            self.engine.metadata.graph(name, branch).await
        };
        if let Err(error) = learn.await {
            tracing::warn!(%error, "the catalog could not be read after a commit");
        }
    }

    /// Learns the names and columns that a commit of this process has changed. The commit stands
    /// whatever happens here.
    pub(crate) async fn learn(&self, table: &Name) {
        let learn = async {
            self.engine.metadata.refresh().await?;
            self.engine.metadata.table(table).await
        };
        if let Err(error) = learn.await {
            tracing::warn!(%error, "the catalog could not be read after a commit");
        }
    }
}

/// A session with the settings, memory and stores of a task: for hosts whose own session cannot be
/// read. It has no tables, so a source is not found there.
fn foreign_session(task: &Arc<TaskContext>) -> datafusion::execution::session_state::SessionState {
    SessionStateBuilder::new()
        .with_config(task.session_config().clone())
        .with_runtime_env(task.runtime_env())
        .with_default_features()
        .build()
}
