//! One place where a failed answer becomes a failure: the protocol's own error first, then the HTTP status.

use super::wire::{HttpError, RpcAnswer};
use crate::Reply;
use crate::failures::{quota, vendor_words};
use longhaul_registry::{Failure, FailureKind, Retry};
use serde_json::Value;

/// The protocol's own errors: by number over JSON-RPC, by reason over HTTP+JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    TaskNotFound,
    TaskNotCancelable,
    PushNotSupported,
    UnsupportedOperation,
    ContentTypeNotSupported,
    InvalidAgentResponse,
    ExtendedCardNotConfigured,
    ExtensionRequired,
    VersionNotSupported,
    Parse,
    InvalidRequest,
    MethodNotFound,
    InvalidParams,
    Internal,
}

/// Number, reason and error: the table of the protocol's errors.
const FAULTS: [(i64, &str, Fault); 14] = [
    (-32001, "TASK_NOT_FOUND", Fault::TaskNotFound),
    (-32002, "TASK_NOT_CANCELABLE", Fault::TaskNotCancelable),
    (-32003, "PUSH_NOTIFICATION_NOT_SUPPORTED", Fault::PushNotSupported),
    (-32004, "UNSUPPORTED_OPERATION", Fault::UnsupportedOperation),
    (-32005, "CONTENT_TYPE_NOT_SUPPORTED", Fault::ContentTypeNotSupported),
    (-32006, "INVALID_AGENT_RESPONSE", Fault::InvalidAgentResponse),
    (-32007, "EXTENDED_AGENT_CARD_NOT_CONFIGURED", Fault::ExtendedCardNotConfigured),
    (-32008, "EXTENSION_SUPPORT_REQUIRED", Fault::ExtensionRequired),
    (-32009, "VERSION_NOT_SUPPORTED", Fault::VersionNotSupported),
    (-32700, "PARSE_ERROR", Fault::Parse),
    (-32600, "INVALID_REQUEST", Fault::InvalidRequest),
    (-32601, "METHOD_NOT_FOUND", Fault::MethodNotFound),
    (-32602, "INVALID_PARAMS", Fault::InvalidParams),
    (-32603, "INTERNAL_ERROR", Fault::Internal),
];

impl Fault {
    fn by_number(number: i64) -> Option<Self> {
        FAULTS.iter().find(|(known, ..)| *known == number).map(|(_, _, fault)| *fault)
    }

    fn by_reason(reason: &str) -> Option<Self> {
        FAULTS.iter().find(|(_, known, _)| *known == reason).map(|(_, _, fault)| *fault)
    }

    /// The error behind a failure that [`classify`] made.
    pub(super) fn of(failure: &Failure) -> Option<Self> {
        let code = failure.vendor_code.as_deref()?;
        code.parse().ok().and_then(Self::by_number).or_else(|| Self::by_reason(code))
    }

    fn kind(self) -> FailureKind {
        match self {
            Self::TaskNotFound => FailureKind::NotFound,
            Self::PushNotSupported
            | Self::UnsupportedOperation
            | Self::ExtendedCardNotConfigured
            | Self::ExtensionRequired
            | Self::VersionNotSupported
            | Self::MethodNotFound => FailureKind::CapabilityMissing,
            Self::TaskNotCancelable
            | Self::ContentTypeNotSupported
            | Self::Parse
            | Self::InvalidRequest
            | Self::InvalidParams => FailureKind::InvalidRequest,
            Self::InvalidAgentResponse | Self::Internal => FailureKind::VendorError,
        }
    }

    fn next(self) -> &'static str {
        match self {
            Self::VersionNotSupported => "; the agent wants another version of A2A than 1.0",
            Self::ExtensionRequired => "; the agent requires an extension that Longhaul does not have",
            Self::ContentTypeNotSupported => "; give the inputs in a form that the agent's card lists",
            Self::MethodNotFound => "; check that base_url or `endpoint` is an A2A 1.0 address",
            Self::TaskNotFound => "; the agent may have been restarted and have lost it",
            _ => "",
        }
    }
}

/// What an answer says went wrong.
struct Said {
    code: String,
    fault: Option<Fault>,
    message: String,
}

/// Reads a failed answer.
///
/// For a paid call these are definite rejections: every error of the protocol but `-32006`, `-32603` and
/// numbers of the server's own; HTTP 4xx but 408; 503 that says when to come back; redirects. Anything else
/// may have started a task.
pub(super) fn classify(reply: &Reply, paid: bool) -> Failure {
    match said(reply) {
        Some(said) => {
            // A server's own number tells no more than that it failed.
            let kind = said.fault.map_or_else(|| beside(reply.status), Fault::kind);
            let (kind, retry) = verdict(kind, reply, paid, false);
            let next = said.fault.map_or("", Fault::next);
            let failure = Failure::new(kind, retry, format!("{}{next}", vendor_words(&said.message)));
            let failure = failure.vendor_code(said.code);
            if said.fault == Some(Fault::VersionNotSupported) { failure.holding_connector() } else { failure }
        }
        None => outside(reply, paid),
    }
}

/// The protocol's own error in a body, over either binding.
fn said(reply: &Reply) -> Option<Said> {
    if let Ok(RpcAnswer { error: Some(error), .. }) = serde_json::from_slice::<RpcAnswer>(&reply.body)
        && error.code < 0
    {
        // A reason beside the number is the finer word: servers put their own numbers before known reasons.
        let fault = Fault::by_number(error.code)
            .or_else(|| error.data.as_ref().and_then(reason).and_then(|reason| Fault::by_reason(&reason)));
        let message = error.message.unwrap_or_else(|| format!("JSON-RPC error {}", error.code));
        return Some(Said { code: error.code.to_string(), fault, message });
    }
    let HttpError { error } = serde_json::from_slice(&reply.body).ok()?;
    let code = error.details.as_ref().and_then(reason)?;
    let message = error.message.unwrap_or_else(|| code.clone());
    Some(Said { fault: Fault::by_reason(&code), code, message })
}

/// The reason of the first `google.rpc.ErrorInfo` in a list of details.
fn reason(details: &Value) -> Option<String> {
    let details = details.as_array()?;
    details.iter().find_map(|detail| detail["reason"].as_str()).map(str::to_owned)
}

/// The kind of an error whose number or reason is the server's own.
fn beside(status: u16) -> FailureKind {
    if (400..500).contains(&status) { kind_of_status(status) } else { FailureKind::VendorError }
}

/// An answer from outside the protocol: a proxy, a login page, a framework.
fn outside(reply: &Reply, paid: bool) -> Failure {
    let comes_back = reply.status == 503 && reply.retry_after.is_some();
    let (kind, retry) = verdict(kind_of_status(reply.status), reply, paid, comes_back);
    let body = String::from_utf8_lossy(&reply.body);
    let body = body.trim();
    // A page says nothing in one line, and words on a refused key may repeat it.
    let shown = !body.is_empty() && !body.starts_with('<') && kind != FailureKind::Auth;
    let said = if shown { format!(": {}", vendor_words(body)) } else { String::new() };
    let next = match (kind, reply.status) {
        (FailureKind::Auth, _) => "; check the connector's credential",
        (FailureKind::NotFound, _) => "; check base_url, `card_url` and `endpoint`",
        (_, 300..=399) => "; name the final address in base_url or `endpoint`",
        _ => "",
    };
    Failure::new(kind, retry, format!("the agent's host answered HTTP {}{said}{next}", reply.status))
        .vendor_code(format!("http_{}", reply.status))
}

fn kind_of_status(status: u16) -> FailureKind {
    match status {
        401 | 403 => FailureKind::Auth,
        402 => FailureKind::Quota,
        404 => FailureKind::NotFound,
        405 | 501 => FailureKind::CapabilityMissing,
        408 => FailureKind::Network,
        429 => FailureKind::RateLimited,
        300..=499 => FailureKind::InvalidRequest,
        _ => FailureKind::VendorError,
    }
}

/// What may be done. `refused`: a 5xx that says when to come back was not taken.
fn verdict(kind: FailureKind, reply: &Reply, paid: bool, refused: bool) -> (FailureKind, Retry) {
    match kind {
        FailureKind::VendorError | FailureKind::Network if paid && !refused => (kind, Retry::Unknown),
        FailureKind::VendorError | FailureKind::Network | FailureKind::RateLimited => {
            (kind, reply.retry_after.map_or(Retry::Backoff, Retry::After))
        }
        FailureKind::Quota => quota(reply.retry_after),
        // 501 comes from the same places as 502: it proves nothing about a paid call.
        FailureKind::CapabilityMissing if paid && reply.status == 501 => (kind, Retry::Unknown),
        _ => (kind, Retry::Never),
    }
}
