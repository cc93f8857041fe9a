//! Puts the plugin on a session that the host already has.

use std::sync::Arc;

use datafusion::common::config::ConfigExtension;
use datafusion::prelude::SessionContext;
use object_store::ObjectStore;
use object_store::path::Path;
use stratagraph::Result;
use stratagraph::catalog::Catalog;
use stratagraph::embed::{ModelPolicy, ModelRegistry};
use stratagraph::env::{Env, Progress};
use stratagraph::store::{Store, redact_url};
use stratagraph_providers::{
    LateralRule, Metadata, NearestRule, PinRule, PlainFunction, Settings, StratagraphCatalog,
    StratagraphRelations,
};

use crate::authorize::{Authorizer, GraphAccess};
use crate::dml::Dml;
use crate::engine::Engine;
use crate::handle::Stratagraph;
use crate::{root, scalar, verbs};

/// Name of the catalog that `install` registers.
pub const CATALOG: &str = "sg";

/// Tables whose columns are known from the start; the others are looked up when they are named.
const KNOWN_TABLES: usize = 256;

/// Where the store is, and what the host offers.
#[derive(Debug, Clone)]
pub struct Options {
    root: String,
    store: Option<(Arc<dyn ObjectStore>, Path, bool)>,
    env: Env,
    models: ModelRegistry,
    policy: ModelPolicy,
    authorizer: Authorizer,
}

impl Options {
    /// The store at `root`: a directory, or a URL (`file`, `memory`, or a scheme whose object store
    /// the host has registered in its runtime). It is made on the first write.
    pub fn new(root: impl Into<String>) -> Self {
        Self {
            root: root.into(),
            store: None,
            env: Env::system(),
            models: ModelRegistry::default(),
            policy: ModelPolicy::default(),
            authorizer: Authorizer::default(),
        }
    }

    /// This object store, whatever the root says. `atomic_list` says that one LIST is one view of all
    /// names, as object stores promise and local directories do not.
    pub fn with_object_store(
        self,
        store: Arc<dyn ObjectStore>,
        prefix: Path,
        atomic_list: bool,
    ) -> Self {
        Self {
            store: Some((store, prefix, atomic_list)),
            ..self
        }
    }

    /// Clock, ids and progress. Memory is always the session's.
    pub fn with_env(self, env: Env) -> Self {
        Self { env, ..self }
    }

    /// Reports of long work.
    pub fn with_progress(mut self, progress: Arc<dyn Progress>) -> Self {
        self.env.progress = progress;
        self
    }

    /// Models that SQL can name.
    pub fn with_models(self, models: ModelRegistry) -> Self {
        Self { models, ..self }
    }

    /// What else SQL may name as a model. By default no paths and no URLs.
    pub fn with_model_policy(self, policy: ModelPolicy) -> Self {
        Self { policy, ..self }
    }

    /// Asks `hook` before any effect of a verb or of DML that changes a graph, its branches or its
    /// schema. What it refuses is `Denied` with the reason that it gives. By default all is allowed.
    pub fn authorize(
        self,
        hook: impl Fn(&GraphAccess<'_>) -> std::result::Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            authorizer: Authorizer::new(hook),
            ..self
        }
    }
}

/// What an installation leaves on its session.
struct Installed(Arc<Engine>);

/// Installs the plugin on a session: the catalog `sg`, the functions, the settings and the planning
/// rules. Uses what a live session offers to register and to add, and sets one option of DataFusion:
/// `datafusion.optimizer.enable_join_dynamic_filter_pushdown` becomes false, since those filters lose rows
/// of joins in DataFusion 55.2.
///
/// The same root again is the same installation; another root takes the place of the first.
///
/// # Errors
/// `StoreNotSupported` for a root that cannot be opened; the store's own when its head cannot be
/// read. A store that can only be read opens.
pub async fn install(ctx: &SessionContext, options: Options) -> Result<Stratagraph> {
    let known = ctx.state_ref().read().config().get_extension::<Installed>();
    if let Some(known) = known.filter(|known| known.0.root == redact_url(&options.root)) {
        let engine = Arc::clone(&known.0);
        engine.load_metadata(KNOWN_TABLES).await?;
        return Ok(Stratagraph::new(engine, ctx.clone()));
    }
    let root = redact_url(&options.root);
    let store = match options.store {
        Some((store, prefix, atomic)) => Store::new(store, prefix, root.clone(), atomic),
        None => root::open(&options.root, &ctx.runtime_env())?,
    };
    let catalog = Catalog::new(Arc::new(store), options.env);
    let metadata = Metadata::new(catalog);
    let engine = Arc::new(Engine {
        metadata,
        models: options.models,
        policy: options.policy,
        authorizer: options.authorizer,
        root,
    });
    engine.load_metadata(KNOWN_TABLES).await?;
    register(ctx, &engine);
    Ok(Stratagraph::new(engine, ctx.clone()))
}

fn register(ctx: &SessionContext, engine: &Arc<Engine>) {
    let metadata = &engine.metadata;
    let first = {
        let state = ctx.state_ref();
        let mut state = state.write();
        let config = state.config_mut();
        let first = config.get_extension::<Installed>().is_none();
        if first {
            // DataFusion 55.2 gives the filter that a running join makes to the first column of its name
            // below, so rows are lost where several of the joined tables have an `id`, as all tables of
            // graphs have.
            let optimizer = &mut config.options_mut().optimizer;
            optimizer.enable_join_dynamic_filter_pushdown = false;
        }
        config.set_extension(Arc::new(Installed(Arc::clone(engine))));
        let extensions = &mut config.options_mut().extensions;
        // A host's own settings stay.
        if extensions.get::<Settings>().is_none() {
            extensions.insert(Settings::default());
        }
        first
    };
    let functions = Arc::new(verbs::registry(engine));
    for function in functions.iter() {
        let plain = PlainFunction::new(Arc::clone(function), Arc::clone(metadata));
        ctx.register_udtf(function.spec().name, Arc::new(plain));
    }
    let settings = Settings::of(ctx.state_ref().read().config_options());
    for function in scalar::all(engine, &settings) {
        ctx.register_udf(function);
    }
    let hooks = Arc::new(Dml::new(Arc::clone(engine)));
    let catalog = StratagraphCatalog::new(Arc::clone(metadata)).with_hooks(hooks);
    ctx.register_catalog(CATALOG, Arc::new(catalog));
    // Fails only where DataFusion was built without SQL, where there is nothing to plan.
    let relations = StratagraphRelations::new(functions, Arc::clone(metadata));
    if let Err(error) = ctx.register_relation_planner(Arc::new(relations)) {
        tracing::warn!(%error, "named arguments and versions are not available in SQL");
    }
    if first {
        ctx.add_analyzer_rule(Arc::new(PinRule));
        ctx.add_optimizer_rule(Arc::new(scalar::RemoteCalls));
        ctx.add_optimizer_rule(Arc::new(NearestRule));
        ctx.add_optimizer_rule(Arc::new(LateralRule));
    }
    tracing::debug!(root = %engine.root, prefix = Settings::PREFIX, "installed");
}
