//! SQLite's errors in the store's words.

use crate::StoreError;
use rusqlite::ErrorCode;

/// An error inside the engine, before it is told to anybody.
#[derive(Debug)]
pub(super) struct Fault(StoreError);

/// Shorthand.
pub(super) type Done<T> = Result<T, Fault>;

impl Fault {
    /// Reads an engine error.
    pub(super) fn read(error: rusqlite::Error) -> Self {
        Self(classify(&error))
    }

    /// A call that cannot be carried out as it was made.
    pub(super) fn refused(message: impl Into<String>) -> Self {
        Self(StoreError::Refused(message.into()))
    }

    /// Stored data that does not read.
    pub(super) fn corrupt(message: impl Into<String>) -> Self {
        Self(StoreError::Corrupt(message.into()))
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::read(error)
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        fault.0
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self(error)
    }
}

fn classify(error: &rusqlite::Error) -> StoreError {
    let text = error.to_string();
    match error {
        rusqlite::Error::SqliteFailure(inner, _) => match inner.code {
            ErrorCode::DiskFull
            | ErrorCode::ReadOnly
            | ErrorCode::SystemIoFailure
            | ErrorCode::PermissionDenied
            | ErrorCode::CannotOpen
            | ErrorCode::TooBig => StoreError::Full(text),
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => StoreError::Corrupt(text),
            ErrorCode::ConstraintViolation => StoreError::Refused(format!(
                "{text}: the same id was given to two things; give each job, token and artifact its own"
            )),
            _ => StoreError::Unavailable(text),
        },
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::Utf8Error(..)
        | rusqlite::Error::InvalidColumnType(..) => StoreError::Corrupt(text),
        _ => StoreError::Unavailable(text),
    }
}

/// The same error once more, for the next waiter.
pub(super) fn again(error: &StoreError) -> StoreError {
    match error {
        StoreError::Unavailable(text) => StoreError::Unavailable(text.clone()),
        StoreError::Full(text) => StoreError::Full(text.clone()),
        StoreError::Corrupt(text) => StoreError::Corrupt(text.clone()),
        StoreError::InUse(text) => StoreError::InUse(text.clone()),
        StoreError::Refused(text) => StoreError::Refused(text.clone()),
    }
}

/// Reads stored JSON.
pub(super) fn parse<T: serde::de::DeserializeOwned>(what: &str, text: &str) -> Done<T> {
    serde_json::from_str(text).map_err(|error| Fault::corrupt(format!("{what} does not read: {error}")))
}

/// Writes JSON for storing.
pub(super) fn write<T: serde::Serialize>(what: &str, value: &T) -> Done<String> {
    serde_json::to_string(value).map_err(|error| Fault::refused(format!("{what} cannot be stored: {error}")))
}

/// An engine integer as a counter of ours.
pub(super) fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// A counter of ours as an engine integer.
pub(super) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A column that is not text.
pub(super) fn column(error: rusqlite::types::FromSqlError) -> Fault {
    Fault::corrupt(format!("a column has the wrong type: {error}"))
}
