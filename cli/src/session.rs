//! The session that statements run in: datafusion-cli's, with the plugin installed.

use std::num::NonZeroUsize;
use std::sync::Arc;

use datafusion::common::config::ConfigNonZeroUsize;
use datafusion::config::ConfigOptions;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{
    FairSpillPool, GreedyMemoryPool, MemoryPool, TrackConsumersPool,
};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::logical_expr::ExplainFormat;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_cli::catalog::DynamicObjectStoreCatalog;
use datafusion_cli::functions::{
    ListFilesCacheFunc, MetadataCacheFunc, ParquetMetadataFunc, StatisticsCacheFunc,
};
use datafusion_cli::object_storage::StdinCarriesCommands;
use datafusion_cli::object_storage::instrumented::InstrumentedObjectStoreRegistry;
use datafusion_cli::pool_type::PoolType;
use stratagraph::embed::ModelPolicy;
use stratagraph::env::Progress;
use stratagraph_udfs::Options;

use crate::args::Args;
use crate::catalogs::Catalogs;

/// Makes the session over the store at `store`.
pub(crate) async fn open(
    args: &Args,
    store: &str,
    stores: Arc<InstrumentedObjectStoreRegistry>,
    progress: Arc<dyn Progress>,
) -> Result<SessionContext> {
    let ctx = SessionContext::new_with_config_rt(config(args)?, runtime(args, stores)?);
    let plain = Arc::clone(ctx.state().catalog_list());
    let ctx = ctx.enable_url_table();
    ctx.refresh_catalogs().await?;
    let dynamic = Arc::new(DynamicObjectStoreCatalog::new(
        Arc::clone(ctx.state().catalog_list()),
        ctx.state_weak_ref(),
    ));
    ctx.register_catalog_list(Arc::new(Catalogs { plain, dynamic }));
    register_table_functions(&ctx);

    // Whoever starts the program may read these files and URLs anyway.
    let policy = ModelPolicy {
        allow_paths_and_urls: true,
        ..ModelPolicy::default()
    };
    let options = Options::new(store)
        .with_progress(progress)
        .with_model_policy(policy);
    stratagraph_udfs::install(&ctx, options)
        .await
        .map_err(|error| DataFusionError::External(Box::new(error)))?;
    Ok(ctx)
}

/// The functions that datafusion-cli adds to DataFusion's.
fn register_table_functions(ctx: &SessionContext) {
    let caches = Arc::clone(&ctx.runtime_env().cache_manager);
    ctx.register_udtf("parquet_metadata", Arc::new(ParquetMetadataFunc {}));
    ctx.register_udtf(
        "metadata_cache",
        Arc::new(MetadataCacheFunc::new(Arc::clone(&caches))),
    );
    ctx.register_udtf(
        "statistics_cache",
        Arc::new(StatisticsCacheFunc::new(Arc::clone(&caches))),
    );
    ctx.register_udtf(
        "list_files_cache",
        Arc::new(ListFilesCacheFunc::new(caches)),
    );
}

fn config(args: &Args) -> Result<SessionConfig> {
    let mut options = ConfigOptions::from_env()?;
    if let Some(rows) = args.batch_size {
        options.execution.batch_size = ConfigNonZeroUsize::try_new(rows)?;
    }
    // Defaults for people who read results, which the environment can still change.
    if std::env::var_os("DATAFUSION_EXPLAIN_FORMAT").is_none() {
        options.explain.format = ExplainFormat::Tree;
    }
    if std::env::var_os("DATAFUSION_FORMAT_NULL").is_none() {
        options.format.null = "NULL".to_owned();
    }
    let config = SessionConfig::from(options).with_information_schema(true);
    if args.reads_sql_from_stdin() {
        return Ok(config.with_extension(Arc::new(StdinCarriesCommands)));
    }
    Ok(config)
}

fn runtime(args: &Args, stores: Arc<InstrumentedObjectStoreRegistry>) -> Result<Arc<RuntimeEnv>> {
    let mut builder = RuntimeEnvBuilder::new().with_object_store_registry(stores);
    if let Some(bytes) = args.memory_limit {
        builder = builder.with_memory_pool(memory_pool(args, bytes));
    }
    if let Some(bytes) = args.disk_limit {
        let disk = DiskManagerBuilder::default()
            .with_mode(DiskManagerMode::OsTmpDirectory)
            .with_max_temp_directory_size(bytes as u64);
        builder = builder.with_disk_manager_builder(disk);
    }
    builder.build_arc()
}

fn memory_pool(args: &Args, bytes: usize) -> Arc<dyn MemoryPool> {
    let named = NonZeroUsize::new(args.top_memory_consumers);
    match (&args.mem_pool_type, named) {
        (PoolType::Fair, None) => Arc::new(FairSpillPool::new(bytes)),
        (PoolType::Fair, Some(named)) => {
            Arc::new(TrackConsumersPool::new(FairSpillPool::new(bytes), named))
        }
        (PoolType::Greedy, None) => Arc::new(GreedyMemoryPool::new(bytes)),
        (PoolType::Greedy, Some(named)) => {
            Arc::new(TrackConsumersPool::new(GreedyMemoryPool::new(bytes), named))
        }
    }
}
