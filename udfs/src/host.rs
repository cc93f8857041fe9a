//! The session that a verb works for: where its source is looked up, whose memory it takes, and the
//! private sessions in which its own plans run.

use std::sync::Arc;

use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::session_state::SessionState;
use datafusion::prelude::SessionContext;
use stratagraph::env::Env;
use stratagraph::{Error, Result};
use stratagraph_providers::{PoolBudget, Settings};

/// Memory of a bounded pool that one partition of a private plan should have.
const PARTITION_BYTES: usize = 32 * 1024 * 1024;
/// Batches that fit into a bounded pool: sorts and merges hold some of each input at a time.
const POOL_BATCHES: usize = 64;
/// Rows of a batch below which nothing is gained.
const LEAST_ROWS: usize = 16;
/// What a sort keeps in reserve to be able to spill, at most.
const SORT_RESERVE_BYTES: usize = 10 * 1024 * 1024;

/// A snapshot of a host's session.
#[derive(Clone)]
pub(crate) struct Host {
    state: SessionState,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Host({})", self.state.session_id())
    }
}

/// How a private plan joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Joins {
    /// The build side is held in memory.
    Hash,
    /// Both sides are sorted, and can spill.
    SortMerge,
}

impl Host {
    pub(crate) fn new(state: SessionState) -> Self {
        Self { state }
    }

    /// The session's settings of this plugin.
    pub(crate) fn settings(&self) -> Settings {
        Settings::of(self.state.config_options())
    }

    /// The session as it is now.
    pub(crate) fn state(&self) -> &SessionState {
        &self.state
    }

    /// A context with the host's tables, functions, rules and planner: for reading its sources.
    ///
    /// DataFusion keeps listings of external tables for ever by default, sizes included. A source
    /// is read as it is now, so what the session remembers of listings is dropped first.
    pub(crate) fn context(&self) -> SessionContext {
        if let Some(listings) = self.runtime().cache_manager.get_list_files_cache() {
            listings.clear();
        }
        SessionContext::new_with_state(self.state.clone())
    }

    /// A context of our own on the host's memory, disk and configuration, without its tables, rules
    /// and planner: what runs here reads values of this process, which no other node can see.
    ///
    /// In a small pool it works on fewer partitions and on smaller batches of rows, which have
    /// `row_bytes` each.
    pub(crate) fn private(&self, joins: Joins, row_bytes: usize) -> SessionContext {
        let mut config = self
            .state
            .config()
            .clone()
            .with_batch_size(self.batch_rows(row_bytes));
        let options = config.options_mut();
        options.optimizer.prefer_hash_join = joins == Joins::Hash;
        options.catalog = Default::default();
        options.sql_parser = Default::default();
        if let Some(limit) = self.memory_limit() {
            options.execution.target_partitions = self.workers();
            let reserve = &mut options.execution.sort_spill_reservation_bytes;
            *reserve = (*reserve).min(SORT_RESERVE_BYTES).min(limit / 16);
        }
        SessionContext::new_with_config_rt(config, self.runtime())
    }

    /// Rows of a batch of which a bounded pool can hold many.
    pub(crate) fn batch_rows(&self, row_bytes: usize) -> usize {
        let most = self.state.config().batch_size();
        match self.memory_limit() {
            Some(limit) => {
                (limit / POOL_BATCHES / row_bytes.max(1)).clamp(LEAST_ROWS.min(most), most)
            }
            None => most,
        }
    }

    /// The host's runtime: object stores, memory pool, disk.
    pub(crate) fn runtime(&self) -> Arc<RuntimeEnv> {
        Arc::clone(self.state.runtime_env())
    }

    /// Partitions that have room beside each other: those of the host's plans, fewer in a small pool.
    pub(crate) fn workers(&self) -> usize {
        let room = self.memory_limit().map(|limit| limit / PARTITION_BYTES);
        self.parallelism().min(room.unwrap_or(usize::MAX).max(1))
    }

    /// Partitions of the host's plans.
    pub(crate) fn parallelism(&self) -> usize {
        self.state.config().target_partitions().max(1)
    }

    /// Bytes of the host's memory pool, if it has an end.
    pub(crate) fn memory_limit(&self) -> Option<usize> {
        match self.state.runtime_env().memory_pool.memory_limit() {
            MemoryLimit::Finite(bytes) => Some(bytes),
            MemoryLimit::Infinite | MemoryLimit::Unknown => None,
        }
    }

    /// An empty reservation in the host's pool.
    pub(crate) fn memory(&self, consumer: &str) -> MemoryReservation {
        let pool: &Arc<dyn MemoryPool> = &self.state.runtime_env().memory_pool;
        MemoryConsumer::new(format!("stratagraph {consumer}")).register(pool)
    }

    /// The engine's environment with the host's memory behind it.
    pub(crate) fn env(&self, env: &Env) -> Env {
        let pool = &self.state.runtime_env().memory_pool;
        Env {
            budget: PoolBudget::of(pool, "engine"),
            ..env.clone()
        }
    }

    /// Refuses a write that the session does not allow.
    pub(crate) fn check_writes(&self, verb: &str) -> Result<()> {
        if self.settings().allow_writes {
            return Ok(());
        }
        Err(Error::WritesNotAllowed {
            verb: verb.to_owned(),
        })
    }
}
