//! One place where a failed answer, or an error inside a session, becomes a failure.

use super::api::request_id;
use super::wire::{ErrorBody, SessionError};
use crate::Reply;
use crate::failures::{quota, vendor_words};
use longhaul_registry::{Failure, FailureKind, Retry};
use std::time::Duration;

/// Reads a failed answer: the finer code first, then the type, then the HTTP status.
///
/// `x-should-retry: true` makes a state conflict a passing one. `x-should-retry: false` changes nothing: it
/// says nothing about whether a paid request was taken, and must not end a job over one poll.
pub(super) fn classify(reply: &Reply, paid: bool) -> Failure {
    let body: Option<ErrorBody> = serde_json::from_slice(&reply.body).ok();
    let request = request_id(reply).or_else(|| body.as_ref().and_then(|body| body.request_id.clone()));
    let error = body.map(|body| body.error);
    let code = error.as_ref().and_then(|error| error.details.as_ref()?.error_code.as_deref());
    let word = error.as_ref().and_then(|error| error.kind.as_deref());
    let kind =
        code.and_then(kind_of_code).or_else(|| word.and_then(kind_of_type)).unwrap_or(kind_of_status(reply.status));
    let kind = match kind {
        FailureKind::InvalidRequest if reply.status == 409 && reply.header("x-should-retry") == Some("true") => {
            FailureKind::VendorError
        }
        other => other,
    };
    let said = error.as_ref().and_then(|error| error.message.as_deref()).unwrap_or_default();
    let (kind, retry) = verdict(kind, reply, paid);
    let failure = Failure::new(kind, retry, sentence(kind, reply.status, said)).request_id(request);
    let failure = match code.or(word) {
        Some(code) => failure.vendor_code(code),
        None => failure.vendor_code(format!("http_{}", reply.status)),
    };
    let names_a_version = said.contains("anthropic-version") || said.contains("anthropic-beta");
    if kind == FailureKind::InvalidRequest && names_a_version { failure.holding_connector() } else { failure }
}

/// The kinds behind `error.details.error_code`; `None` for a code that tells no more than the type does.
fn kind_of_code(code: &str) -> Option<FailureKind> {
    Some(match code {
        "enforced_spend_limit_reached"
        | "contract_spend_limit_reached"
        | "linked_organization_spend_limit_reached"
        | "linked_organization_billing_unavailable"
        | "organization_on_hold"
        | "storage_quota_exceeded" => FailureKind::Quota,
        "ramp_limit_exceeded" => FailureKind::RateLimited,
        "cmek_key_unreachable" | "cmek_context_unavailable" => FailureKind::VendorError,
        "file_expired" => FailureKind::OutputExpired,
        _ => return None,
    })
}

/// The kinds behind `error.type`.
fn kind_of_type(word: &str) -> Option<FailureKind> {
    Some(match word {
        "invalid_request_error" | "conflict_error" => FailureKind::InvalidRequest,
        "authentication_error" | "permission_error" => FailureKind::Auth,
        "billing_error" => FailureKind::Quota,
        "not_found_error" => FailureKind::NotFound,
        "rate_limit_error" => FailureKind::RateLimited,
        "timeout_error" => FailureKind::Network,
        "api_error" | "overloaded_error" => FailureKind::VendorError,
        _ => return None,
    })
}

/// The kinds behind an HTTP status alone.
fn kind_of_status(status: u16) -> FailureKind {
    match status {
        401 | 403 => FailureKind::Auth,
        402 => FailureKind::Quota,
        404 => FailureKind::NotFound,
        408 | 504 => FailureKind::Network,
        429 => FailureKind::RateLimited,
        400..=499 => FailureKind::InvalidRequest,
        _ => FailureKind::VendorError,
    }
}

/// What may be done. A paid request that met a fault of the vendor's may have been taken all the same; a quota
/// that frees itself soon is a rate limit.
fn verdict(kind: FailureKind, reply: &Reply, paid: bool) -> (FailureKind, Retry) {
    let passing = || match retry_after(reply) {
        Some(after) => Retry::After(after),
        None => Retry::Backoff,
    };
    match kind {
        FailureKind::VendorError | FailureKind::Network if paid => (kind, Retry::Unknown),
        FailureKind::VendorError | FailureKind::Network | FailureKind::RateLimited => (kind, passing()),
        FailureKind::Quota => quota(retry_after(reply)),
        _ => (kind, Retry::Never),
    }
}

/// `retry-after-ms` is finer than `Retry-After` and goes before it; unreadable or not above zero counts as
/// not given.
fn retry_after(reply: &Reply) -> Option<Duration> {
    let millis = reply.header("retry-after-ms").and_then(|text| text.trim().parse::<f64>().ok());
    millis
        .filter(|millis| *millis > 0.0)
        .and_then(|millis| Duration::try_from_secs_f64(millis / 1000.0).ok())
        .or(reply.retry_after)
}

/// One sentence: the vendor's words, and what to try. Those on a refused key are left out: they may repeat it.
fn sentence(kind: FailureKind, status: u16, said: &str) -> String {
    let said = if kind == FailureKind::Auth { String::new() } else { vendor_words(said) };
    let said = if said.is_empty() { format!("HTTP {status} without an explanation") } else { said };
    let next = match kind {
        FailureKind::Auth => {
            return format!(
                "the vendor refused the connector's credential (HTTP {status}); check the key, and that it may use \
                 managed agents in this workspace"
            );
        }
        FailureKind::Quota => "settle the account or raise its spend limit in the vendor's console",
        FailureKind::NotFound => "check that the record still exists at the vendor",
        FailureKind::InvalidRequest => "mend the request or the connector's settings",
        _ => return said,
    };
    format!("{said}; {next}")
}

/// The failure of a session that stopped after an error of its own: the vendor's last word.
pub(super) fn session_failure(error: Option<&SessionError>, otherwise: &str) -> Failure {
    let Some(error) = error else {
        return Failure::new(FailureKind::VendorError, Retry::Never, format!("{otherwise}; submit the job again"));
    };
    let word = error.kind.as_deref().unwrap_or("unknown_error");
    let (kind, next) = kind_of_session_error(word);
    let said = vendor_words(error.message.as_deref().unwrap_or(otherwise));
    Failure::new(kind, Retry::Never, format!("{said}; {next}")).vendor_code(word)
}

/// The kinds behind `session.error`, with the next thing to try.
fn kind_of_session_error(word: &str) -> (FailureKind, &'static str) {
    match word {
        "model_rate_limited_error" => (FailureKind::RateLimited, "submit the job again when the rate allows"),
        "billing_error" => (FailureKind::Quota, "settle the account or raise its spend limit in the vendor's console"),
        "mcp_authentication_failed_error" => {
            (FailureKind::InvalidRequest, "renew the MCP server's credential in the vault that the connector names")
        }
        "repository_authentication_error" | "repository_forbidden_error" | "repository_not_found_error" => (
            FailureKind::InvalidRequest,
            "check the repository's name; a private one must be reached through the agent's own GitHub server",
        ),
        "repository_checkout_error" => {
            (FailureKind::InvalidRequest, "check that the branch or commit exists in the repository")
        }
        "tool_use_limit_reached_error" | "compaction_limit_reached_error" => {
            (FailureKind::VendorError, "give the agent a smaller piece of work")
        }
        _ => (FailureKind::VendorError, "submit the job again"),
    }
}
