//! What a caller is told when it did not work: one envelope, everywhere.

use crate::archive::ArchiveError;
use crate::view::ErrorBody;
use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use longhaul_registry::Problem;
use longhaul_store::storage::StorageError;
use longhaul_store::{Refusal, StoreError};

/// Problems listed at most: a body of a million unknown keys gets a short answer too.
const MAX_PROBLEMS: usize = 100;

/// An answer that is no success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// The HTTP status.
    pub status: StatusCode,
    /// A code with a page in docs/errors.
    pub code: String,
    /// What is wrong, in one sentence.
    pub message: String,
    /// The next thing to try.
    pub hint: String,
    /// Everything wrong with the request, each with its place.
    pub problems: Vec<Problem>,
}

/// Shorthand.
pub type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    /// An error with its hint and no list of problems.
    pub fn new(
        status: StatusCode,
        code: impl Into<String>,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { status, code: code.into(), message: message.into(), hint: hint.into(), problems: Vec::new() }
    }

    /// 422 for a request with these problems.
    #[must_use]
    pub fn invalid(mut problems: Vec<Problem>) -> Self {
        let message = match problems.as_slice() {
            [one] if one.path.is_empty() => one.message.clone(),
            [one] => format!("{}: {}", one.path, one.message),
            many if many.len() > MAX_PROBLEMS => {
                format!("{} problems; the first {MAX_PROBLEMS} are listed", many.len())
            }
            many => format!("{} problems; each is listed with its place", many.len()),
        };
        problems.truncate(MAX_PROBLEMS);
        let hint = "correct what `problems` lists and send it again; nothing was stored or spent";
        Self { problems, ..Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_request", message, hint) }
    }

    /// 422 for one problem.
    #[must_use]
    pub fn problem(problem: Problem) -> Self {
        Self::invalid(vec![problem])
    }

    /// 404 for something that is not there, or not the caller's to see.
    #[must_use]
    pub fn not_found(what: &str, id: &str) -> Self {
        let id: String = id.chars().take(80).collect();
        let hint = "check the id; jobs of other tenants and pruned jobs answer the same";
        Self::new(StatusCode::NOT_FOUND, "not_found", format!("there is no {what} {id:?}"), hint)
    }

    /// 409 for what only a job that is still in the store can do.
    #[must_use]
    pub fn archived(id: &str) -> Self {
        let message = format!("{id} ended long ago and is in the archive: it can be read and rerun, nothing else");
        let hint = "`longhaul jobs rerun JOB --reason WHY` makes a new job of its request";
        Self::new(StatusCode::CONFLICT, "job_archived", message, hint)
    }

    /// 403 for what the caller's role or tenant does not allow.
    #[must_use]
    pub fn forbidden(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", message, hint)
    }

    /// 401 for a missing or unknown token.
    #[must_use]
    pub fn unauthenticated(message: impl Into<String>) -> Self {
        let hint = "send `Authorization: Bearer <token>`; `longhaul tokens create --role …` makes one";
        Self::new(StatusCode::UNAUTHORIZED, "unauthenticated", message, hint)
    }

    /// 413 for a body beyond a cap, which it names.
    #[must_use]
    pub fn too_large(what: &str, cap: u64, setting: &str) -> Self {
        let hint = format!("send less, upload large inputs by POST /v1/artifacts, or raise {setting}");
        let message = format!("{what} is larger than {setting} = {cap} bytes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message, hint)
    }

    /// 500 for a fault of our own.
    #[must_use]
    pub fn internal(message: impl Into<String>) -> Self {
        let hint = "the log has the details; `longhaul doctor` checks the installation";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message, hint)
    }

    /// The envelope.
    #[must_use]
    pub fn body(&self) -> ErrorBody {
        ErrorBody::new(self)
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        let (status, code) = match &error {
            StoreError::Unavailable(_) => (StatusCode::SERVICE_UNAVAILABLE, "store_unavailable"),
            StoreError::Full(_) => (StatusCode::SERVICE_UNAVAILABLE, "store_full"),
            StoreError::InUse(_) => (StatusCode::SERVICE_UNAVAILABLE, "store_in_use"),
            StoreError::Corrupt(_) => (StatusCode::INTERNAL_SERVER_ERROR, "store_damaged"),
            StoreError::Refused(_) => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        };
        let hint = "nothing was changed; send it again when GET /readyz answers 200";
        Self::new(status, code, error.to_string(), hint)
    }
}

impl From<StorageError> for ApiError {
    fn from(error: StorageError) -> Self {
        let status = match &error {
            StorageError::NotFound { .. } => StatusCode::NOT_FOUND,
            StorageError::Range { .. } => StatusCode::RANGE_NOT_SATISFIABLE,
            StorageError::Key { .. } | StorageError::Settings { .. } => StatusCode::INTERNAL_SERVER_ERROR,
            StorageError::Unwritable { .. } | StorageError::Unavailable { .. } => StatusCode::SERVICE_UNAVAILABLE,
        };
        let code = match status {
            StatusCode::NOT_FOUND => "not_found",
            StatusCode::RANGE_NOT_SATISFIABLE => "range_not_satisfiable",
            StatusCode::SERVICE_UNAVAILABLE => "storage_unavailable",
            _ => "internal",
        };
        Self::new(status, code, error.to_string(), "check [artifacts] url and GET /readyz")
    }
}

impl From<ArchiveError> for ApiError {
    fn from(error: ArchiveError) -> Self {
        match error {
            ArchiveError::Store(error) => error.into(),
            ArchiveError::Storage(error) => error.into(),
            damaged => Self::internal(damaged.to_string()),
        }
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let status = if refusal.invalid { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::CONFLICT };
        Self::new(status, refusal.code, refusal.message, refusal.hint)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        if self.status.is_server_error() {
            tracing::error!(code = %self.code, status = self.status.as_u16(), "answered {}: {}", self.code, self.message);
        }
        let mut response = (self.status, Json(self.body())).into_response();
        let headers = response.headers_mut();
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"longhaul\""));
        }
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("2"));
        }
        response
    }
}
