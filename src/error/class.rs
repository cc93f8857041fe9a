//! Codes of errors, and what a caller can do about them.

use super::{Error, Kind};

/// `(code, kind, retryable)` of a variant, in one table so that the three never drift apart.
macro_rules! classify {
    ($self:expr, $($variant:ident => $kind:ident, $retry:literal;)*) => {
        match $self { $(Error::$variant { .. } => (stringify!($variant), Kind::$kind, $retry),)* }
    };
}

impl Error {
    fn class(&self) -> (&'static str, Kind, bool) {
        let class = self.class_of_variant();
        match self {
            // One more shape of the same error.
            Self::LineTooLong { .. } => ("ResourceLimitExceeded", class.1, class.2),
            _ => class,
        }
    }

    fn class_of_variant(&self) -> (&'static str, Kind, bool) {
        classify! { self,
            InvalidIdentifier => Invalid, false;
            InvalidArgument => Invalid, false;
            SchemaInvalid => Invalid, false;
            SchemaChangeRefused => Invalid, false;
            QueryInvalid => Invalid, false;
            RecordsInvalid => Invalid, false;
            NotYetSupported => Invalid, false;
            AlreadyExists => Invalid, false;
            NotFound => NotFound, false;
            SourceNotFound => NotFound, false;
            SourceMismatch => Invalid, false;
            SourceNotAllowed => Refused, false;
            NotRefreshable => Invalid, false;
            DefinitionDrift => Invalid, false;
            NonUniqueKey => Invalid, false;
            InvalidKey => Invalid, false;
            ParentMoved => Conflict, true;
            KeyConflict => Conflict, false;
            ReadSetChanged => Conflict, true;
            MergeConflicts => Conflict, false;
            SchemaDiverged => Invalid, false;
            PreconditionFailed => Conflict, false;
            RequestIdReused => Invalid, false;
            CommitConflict => Conflict, true;
            WriterFenced => Fenced, true;
            CommitUnknown => Unknown, false;
            VersionUnavailable => NotFound, false;
            HistoricalVersionReclaimed => NotFound, false;
            SchemaChanged => Conflict, true;
            MetadataNotLoaded => Unavailable, true;
            ReadOnlyTable => Refused, false;
            Denied => Refused, false;
            WritesNotAllowed => Refused, false;
            Pinned => Refused, false;
            BranchProtected => Refused, false;
            Corrupt => Corrupt, false;
            IncompatibleFormat => Invalid, false;
            ResourceLimitExceeded => Limit, false;
            LineTooLong => Limit, false;
            StoreNotSupported => Unavailable, false;
            ModelFailed => Unavailable, true;
            ModelInvalid => Invalid, false;
            ModelNotFound => NotFound, false;
            Cancelled => Unavailable, true;
            TaskFailed => Unavailable, true;
            Storage => Unavailable, true;
            Parquet => Corrupt, false;
            Arrow => Invalid, false;
            Source => Unavailable, false;
        }
    }

    /// The stable name of the variant, printed in brackets.
    pub fn code(&self) -> &'static str {
        self.class().0
    }

    /// What a caller can do about it.
    pub fn kind(&self) -> Kind {
        self.class().1
    }

    /// Whether the same call may succeed when it is made again.
    pub fn is_retryable(&self) -> bool {
        self.class().2
    }
}
