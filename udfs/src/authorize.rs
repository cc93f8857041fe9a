//! What a host lets whom do to its graphs.

use std::fmt;
use std::sync::Arc;

use stratagraph::ident::{BranchName, Name};
use stratagraph::{Error, Result};

/// What somebody wants to do to a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GraphAction {
    /// Change rows: loads, mutations and DML.
    Change,
    /// Make the branch.
    BranchCreate,
    /// Delete the branch.
    BranchDelete,
    /// Merge another branch into the branch.
    BranchMerge,
    /// Make or drop the graph, or change its schema.
    SchemaApply,
}

impl GraphAction {
    fn words(self) -> &'static str {
        match self {
            Self::Change => "change",
            Self::BranchCreate => "make the branch",
            Self::BranchDelete => "delete the branch",
            Self::BranchMerge => "merge into",
            Self::SchemaApply => "change the schema of",
        }
    }
}

/// A question to the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GraphAccess<'a> {
    /// Who asks, as the call or `SET stratagraph.actor` says. SQL text may say anything: a host that
    /// runs the statements of others knows better who a session belongs to.
    pub actor: Option<&'a str>,
    /// What for.
    pub action: GraphAction,
    /// The graph.
    pub graph: &'a str,
    /// The branch.
    pub branch: &'a str,
}

type Hook = dyn Fn(&GraphAccess<'_>) -> std::result::Result<(), String> + Send + Sync;

/// The host's answer; without a hook everything is allowed.
#[derive(Clone, Default)]
pub(crate) struct Authorizer(Option<Arc<Hook>>);

impl fmt::Debug for Authorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Authorizer({})", self.0.is_some())
    }
}

impl Authorizer {
    pub(crate) fn new(
        hook: impl Fn(&GraphAccess<'_>) -> std::result::Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Arc::new(hook)))
    }

    /// Asks the host.
    ///
    /// # Errors
    /// `Denied` with what the host says.
    pub(crate) fn check(
        &self,
        actor: Option<&str>,
        action: GraphAction,
        graph: &Name,
        branch: &BranchName,
    ) -> Result<()> {
        let Some(hook) = &self.0 else {
            return Ok(());
        };
        let access = GraphAccess {
            actor,
            action,
            graph: graph.as_str(),
            branch: branch.as_str(),
        };
        hook(&access).map_err(|reason| Error::Denied {
            actor: actor.unwrap_or_default().to_owned(),
            action: action.words(),
            graph: format!("{graph}@{branch}"),
            reason,
        })
    }
}
