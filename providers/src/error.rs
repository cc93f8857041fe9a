//! Errors across the border to DataFusion: out as [`DataFusionError::External`] with the source chain
//! whole, and back through every wrapper that DataFusion, Arrow, Parquet and the object store add.

use std::error::Error as StdError;
use std::sync::Arc;

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use parquet::errors::ParquetError;
use stratagraph::Error;

/// Chains longer than this are cut; real ones have a handful of links.
const DEPTH: usize = 64;

/// An engine error on its way to the host.
pub fn to_datafusion(error: Error) -> DataFusionError {
    match error {
        // What came from DataFusion goes back as it came.
        Error::Source { source } => match source.downcast::<DataFusionError>() {
            Ok(original) => *original,
            Err(source) => DataFusionError::External(Box::new(Error::Source { source })),
        },
        error => DataFusionError::External(Box::new(error)),
    }
}

/// A host error on its way into the engine. An engine error that is owned somewhere inside comes out
/// as it is; everything else is kept whole as [`Error::Source`].
pub fn from_datafusion(error: DataFusionError) -> Error {
    match find_error(&error) {
        Some(_) => unwrap_owned(Box::new(error)),
        None => Error::Source {
            source: Box::new(error),
        },
    }
}

/// Takes wrappers off as long as they own what they wrap.
fn unwrap_owned(error: BoxError) -> Error {
    let error = match error.downcast::<Error>() {
        Ok(engine) => return *engine,
        Err(other) => other,
    };
    let error = match error.downcast::<DataFusionError>() {
        Ok(host) => match *host {
            DataFusionError::External(inner) => return unwrap_owned(inner),
            DataFusionError::Context(_, inner) => return unwrap_owned(inner),
            DataFusionError::ArrowError(inner, _) => return unwrap_owned(inner),
            DataFusionError::ParquetError(inner) => return unwrap_owned(inner),
            other => Box::new(other) as BoxError,
        },
        Err(other) => other,
    };
    let error = match error.downcast::<ArrowError>() {
        Ok(arrow) => match *arrow {
            ArrowError::ExternalError(inner) => return unwrap_owned(inner),
            other => Box::new(other) as BoxError,
        },
        Err(other) => other,
    };
    match error.downcast::<ParquetError>() {
        Ok(parquet) => match *parquet {
            ParquetError::External(inner) => unwrap_owned(inner),
            other => Error::Source {
                source: Box::new(other),
            },
        },
        Err(source) => Error::Source { source },
    }
}

type BoxError = Box<dyn StdError + Send + Sync>;

/// The engine error inside a host error, however deep it is wrapped. One that says what happened is
/// preferred to an [`Error::Source`] around it.
pub fn find_error(error: &DataFusionError) -> Option<&Error> {
    find_in(error, DEPTH)
}

/// As [`find_error`], from any error.
pub fn find_in_std<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Error> {
    find_in(error, DEPTH)
}

fn find_in<'a>(error: &'a (dyn StdError + 'static), depth: usize) -> Option<&'a Error> {
    if depth == 0 {
        return None;
    }
    if let Some(found) = error.downcast_ref::<Error>() {
        let deeper = match found {
            Error::Source { source } => find_in(source.as_ref(), depth - 1),
            _ => None,
        };
        return deeper.or(Some(found));
    }
    if let Some(DataFusionError::Collection(errors)) = error.downcast_ref::<DataFusionError>() {
        return errors.iter().find_map(|e| find_in(e, depth - 1));
    }
    // `source()` of these skips the error that they hold: it answers with that error's own source.
    let held: Option<&'a (dyn StdError + 'static)> =
        if let Some(ArrowError::ExternalError(held)) = error.downcast_ref::<ArrowError>() {
            Some(held.as_ref())
        } else if let Some(ParquetError::External(held)) = error.downcast_ref::<ParquetError>() {
            Some(held.as_ref())
        } else if let Some(object_store::Error::Generic { source, .. }) =
            error.downcast_ref::<object_store::Error>()
        {
            Some(source.as_ref())
        } else if let Some(shared) = error.downcast_ref::<Arc<DataFusionError>>() {
            Some(shared.as_ref())
        } else if let Some(shared) = error.downcast_ref::<Arc<Error>>() {
            return Some(shared.as_ref());
        } else if let Some(io) = error.downcast_ref::<std::io::Error>() {
            io.get_ref().map(|held| held as &(dyn StdError + 'static))
        } else {
            None
        };
    if let Some(found) = held.and_then(|held| find_in(held, depth - 1)) {
        return Some(found);
    }
    find_in(error.source()?, depth - 1)
}

/// Lifts engine results to the host.
pub trait ResultExt<T> {
    /// The same result with the error of the host.
    fn df(self) -> Result<T, DataFusionError>;
}

impl<T> ResultExt<T> for Result<T, Error> {
    fn df(self) -> Result<T, DataFusionError> {
        self.map_err(to_datafusion)
    }
}

/// The refusal of an argument.
pub(crate) fn bad_argument(
    function: &str,
    argument: &str,
    reason: impl Into<String>,
) -> DataFusionError {
    to_datafusion(Error::InvalidArgument {
        function: function.to_owned(),
        argument: argument.to_owned(),
        reason: reason.into(),
    })
}

/// The refusal to serialise a part of a plan: masks, pins and open calls would be lost.
pub(crate) fn not_encoded(what: &str) -> DataFusionError {
    to_datafusion(Error::NotYetSupported {
        feature: format!("encoding {what} for another process"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deep() -> Error {
        Error::corrupt("fragment", "data/x", "1", "2")
    }

    #[test]
    fn an_error_is_found_through_every_wrapper() {
        let store = || object_store::Error::Generic {
            store: "verified",
            source: Box::new(deep()),
        };
        let parquet = ParquetError::External(Box::new(store()));
        let arrow = ArrowError::ExternalError(Box::new(parquet));
        let shared = DataFusionError::Shared(Arc::new(DataFusionError::from(arrow)));
        let whole = DataFusionError::Collection(vec![
            DataFusionError::Plan("other".to_owned()),
            shared.context("while scanning"),
        ]);
        assert_eq!(find_error(&whole).map(Error::code), Some("Corrupt"));

        let parquet = DataFusionError::from(ParquetError::External(Box::new(deep())));
        assert_eq!(find_error(&parquet).map(Error::code), Some("Corrupt"));
        let arrow =
            ArrowError::ExternalError(Box::new(DataFusionError::External(Box::new(deep()))));
        let found = DataFusionError::from(arrow);
        assert_eq!(find_error(&found).map(Error::code), Some("Corrupt"));
        assert!(find_error(&DataFusionError::Plan("x".to_owned())).is_none());
    }

    #[test]
    fn the_round_trip_adds_nothing() {
        let there = to_datafusion(deep());
        assert_eq!(from_datafusion(there).code(), "Corrupt");
        let foreign = from_datafusion(DataFusionError::Plan("p".to_owned()));
        assert_eq!(foreign.code(), "Source");
        assert!(matches!(to_datafusion(foreign), DataFusionError::Plan(p) if p == "p"));
        let wrapped = to_datafusion(Error::Source {
            source: Box::new(DataFusionError::External(Box::new(deep()))),
        });
        assert_eq!(find_error(&wrapped).map(Error::code), Some("Corrupt"));
    }
}
