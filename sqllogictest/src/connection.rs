//! A connection of a suite: a session of its own over the suite's store.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use datafusion::error::DataFusionError;
use datafusion::prelude::{SessionConfig, SessionContext};
use sqllogictest::{AsyncDB, DBOutput};
use stratagraph_udfs::Options;

use crate::codes::Codes;
use crate::render::{self, Letter};

/// What a suite writes for its directory, and what results show instead of it.
pub const TEST_DIR: &str = "$__TEST_DIR__";

/// A statement that takes longer hangs.
const STATEMENT_TIME: Duration = Duration::from_secs(300);

/// The directory of one run of one suite, with the store and whatever the suite puts beside it.
#[derive(Debug, Clone)]
pub struct Place {
    directory: PathBuf,
}

impl Place {
    /// The place at `directory`.
    pub fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
        }
    }

    /// `text` with the directory for its name.
    pub fn fill(&self, text: &str) -> String {
        text.replace(TEST_DIR, &self.directory.to_string_lossy())
    }

    /// `text` with the name for the directory, of which plans leave the first slash out.
    pub fn hide(&self, text: &str) -> String {
        let path = self.directory.to_string_lossy();
        let text = text.replace(path.as_ref(), TEST_DIR);
        text.replace(path.trim_start_matches('/'), TEST_DIR)
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
        stratagraph_udfs::install(&ctx, Options::new(place.store()))
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
