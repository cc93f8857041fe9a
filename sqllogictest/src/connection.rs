//! A connection of a suite: a session of its own over the suite's store.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use datafusion::error::DataFusionError;
use datafusion::prelude::{SessionConfig, SessionContext};
use sqllogictest::{AsyncDB, DBOutput};
use stratagraph::embed::ModelPolicy;
use stratagraph_udfs::Options;

use crate::codes::Codes;
use crate::render::{self, Letter};

/// What a suite writes for its directory, and what results show instead of it.
pub const TEST_DIR: &str = "$__TEST_DIR__";

/// What a suite writes for the address of a server of vectors, and what results show instead of it.
/// Only a suite that writes it has one.
pub const SERVER: &str = "$__SERVER__";

/// The actor whom the sessions of suites let change nothing: `SET stratagraph.actor = 'guest'`.
const GUEST: &str = "guest";

/// A statement that takes longer hangs.
const STATEMENT_TIME: Duration = Duration::from_secs(300);

/// The directory of one run of one suite, with the store and whatever the suite puts beside it, and
/// the server of that run.
#[derive(Debug, Clone)]
pub struct Place {
    directory: PathBuf,
    server: Option<String>,
}

impl Place {
    /// The place at `directory`, with a server at the address `server`.
    pub fn new(directory: &Path, server: Option<String>) -> Self {
        Self {
            directory: directory.to_owned(),
            server,
        }
    }

    /// `text` with the directory and the server for their names.
    pub fn fill(&self, text: &str) -> String {
        let text = text.replace(TEST_DIR, &self.directory.to_string_lossy());
        match &self.server {
            Some(server) => text.replace(SERVER, server),
            None => text,
        }
    }

    /// `text` with the names for the server and the directory, of which plans leave the first slash
    /// out.
    pub fn hide(&self, text: &str) -> String {
        let path = self.directory.to_string_lossy();
        let text = text.replace(path.as_ref(), TEST_DIR);
        let text = text.replace(path.trim_start_matches('/'), TEST_DIR);
        match &self.server {
            Some(server) => text.replace(server, SERVER),
            None => text,
        }
    }

    /// Only who has a server may name it.
    fn policy(&self) -> ModelPolicy {
        ModelPolicy {
            allow_paths_and_urls: self.server.is_some(),
            ..ModelPolicy::default()
        }
    }

    fn store(&self) -> String {
        self.directory.join("store").to_string_lossy().into_owned()
    }
}

/// A failure as a suite sees it.
#[derive(Debug)]
pub struct Failure(String);

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

/// One session.
pub struct Connection {
    ctx: SessionContext,
    place: Place,
    codes: Arc<Codes>,
}

impl Connection {
    /// Installs the plugin on a new session.
    ///
    /// # Errors
    /// The store cannot be opened.
    pub async fn open(
        config: SessionConfig,
        place: Place,
        codes: Arc<Codes>,
    ) -> Result<Self, Failure> {
        let ctx = SessionContext::new_with_config(config);
        let options = Options::new(place.store()).with_model_policy(place.policy());
        let options = options.authorize(|access| match access.actor {
            Some(GUEST) => Err("guests only read".to_owned()),
            _ => Ok(()),
        });
        stratagraph_udfs::install(&ctx, options)
            .await
            .map_err(|error| Failure(error.to_string()))?;
        Ok(Self { ctx, place, codes })
    }

    async fn query(&self, sql: &str) -> Result<DBOutput<Letter>, DataFusionError> {
        let frame = self.ctx.sql(sql).await?;
        let plan = frame.create_physical_plan().await?;
        let letters = render::letters(&plan.schema());
        let batches = datafusion::physical_plan::collect(plan, self.ctx.task_ctx()).await?;
        let mut rows = render::rows(&batches)?;
        if letters.is_empty() && rows.is_empty() {
            return Ok(DBOutput::StatementComplete(0));
        }
        for cell in rows.iter_mut().flatten() {
            *cell = self.place.hide(cell);
        }
        Ok(DBOutput::Rows {
            types: letters,
            rows,
        })
    }
}

#[async_trait]
impl AsyncDB for Connection {
    type Error = Failure;
    type ColumnType = Letter;

    async fn run(&mut self, sql: &str) -> Result<DBOutput<Letter>, Failure> {
        let Ok(result) = tokio::time::timeout(STATEMENT_TIME, self.query(sql)).await else {
            return Err(Failure(format!("no answer after {STATEMENT_TIME:?}")));
        };
        result.map_err(|error| {
            self.codes.note(&error);
            Failure(self.place.hide(&error.strip_backtrace()))
        })
    }

    async fn shutdown(&mut self) {}

    fn engine_name(&self) -> &str {
        "stratagraph"
    }

    async fn sleep(duration: Duration) {
        tokio::time::sleep(duration).await;
    }

    async fn run_command(command: Command) -> std::io::Result<Output> {
        tokio::task::block_in_place(|| {
            let mut command = command;
            command.output()
        })
    }
}
