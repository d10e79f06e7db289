//! The protocol's errors, in the form of each binding.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    TaskNotFound,
    TaskNotCancelable,
    PushNotificationNotSupported,
    UnsupportedOperation,
    ExtendedAgentCardNotConfigured,
    VersionNotSupported,
    Parse,
    InvalidRequest,
    MethodNotFound,
    InvalidParams,
    Internal,
}

impl Kind {
    /// JSON-RPC code, HTTP status, its word, and the reason in the details.
    fn row(self) -> (i32, u16, &'static str, &'static str) {
        match self {
            Self::TaskNotFound => (-32001, 404, "NOT_FOUND", "TASK_NOT_FOUND"),
            Self::TaskNotCancelable => (-32002, 400, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE"),
            Self::PushNotificationNotSupported => {
                (-32003, 400, "FAILED_PRECONDITION", "PUSH_NOTIFICATION_NOT_SUPPORTED")
            }
            Self::UnsupportedOperation => (-32004, 400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION"),
            Self::ExtendedAgentCardNotConfigured => {
                (-32007, 400, "FAILED_PRECONDITION", "EXTENDED_AGENT_CARD_NOT_CONFIGURED")
            }
            Self::VersionNotSupported => (-32009, 400, "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED"),
            Self::Parse => (-32700, 400, "INVALID_ARGUMENT", "INVALID_REQUEST"),
            Self::InvalidRequest => (-32600, 400, "INVALID_ARGUMENT", "INVALID_REQUEST"),
            Self::MethodNotFound => (-32601, 404, "NOT_FOUND", "METHOD_NOT_FOUND"),
            Self::InvalidParams => (-32602, 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
            Self::Internal => (-32603, 500, "INTERNAL", "INTERNAL_ERROR"),
        }
    }
}

/// One error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Error {
    pub(super) kind: Kind,
    message: String,
    /// Fields that are wrong, each with what is wrong.
    fields: Vec<(String, String)>,
}

impl Error {
    pub(super) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), fields: Vec::new() }
    }

    /// Parameters that break the rules.
    pub(super) fn fields(fields: Vec<(String, String)>) -> Self {
        Self { kind: Kind::InvalidParams, message: "Validation failed".to_owned(), fields }
    }

    fn details(&self) -> Value {
        let (_, _, _, reason) = self.kind.row();
        let named = |word: &str| -> Vec<Value> {
            self.fields.iter().map(|(field, text)| json!({"field": field, word: text})).collect()
        };
        let metadata = if self.fields.is_empty() { json!({}) } else { json!({"errors": named("message")}) };
        let mut details = vec![json!({
            "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "a2a-protocol.org",
            "metadata": metadata,
        })];
        if !self.fields.is_empty() {
            let kind = "type.googleapis.com/google.rpc.BadRequest";
            details.push(json!({"@type": kind, "fieldViolations": named("description")}));
        }
        Value::Array(details)
    }

    /// As JSON-RPC shows it: always with status 200.
    pub(super) fn rpc(&self, id: &Value) -> Response {
        let (code, ..) = self.kind.row();
        let mut error = json!({"code": code, "message": self.message});
        if !matches!(self.kind, Kind::Parse | Kind::MethodNotFound) {
            error["data"] = self.details();
        }
        Json(json!({"jsonrpc": "2.0", "id": id, "error": error})).into_response()
    }

    /// As HTTP+JSON shows it.
    pub(super) fn rest(&self) -> Response {
        let (_, status, word, _) = self.kind.row();
        let error = json!({"code": status, "status": word, "message": self.message, "details": self.details()});
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(json!({"error": error}))).into_response()
    }
}
