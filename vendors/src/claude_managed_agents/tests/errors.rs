//! Every row of the error table.

use super::*;
use crate::Reply;
use crate::testing::{ReplyExt, answer, raw};
use longhaul_registry::{FailureKind, Retry};
use std::time::Duration;

fn error(status: u16, kind: &str, code: Option<&str>) -> Reply {
    let details = code.map(|code| json!({"error_code": code}));
    let body = json!({"type": "error", "error": {"type": kind, "message": "said so", "details": details},
        "request_id": "req_FAKE"});
    answer(status, body)
}

fn classify(reply: &Reply) -> (FailureKind, Retry, Retry) {
    let (free, paid) = (ClaudeManagedAgents.classify(reply, false), ClaudeManagedAgents.classify(reply, true));
    assert_eq!(free.kind, paid.kind);
    (free.kind, free.retry, paid.retry)
}

#[test]
fn types_and_statuses() {
    use FailureKind::*;
    use Retry::{Backoff, Never, Unknown};
    let rows = [
        (400, "invalid_request_error", InvalidRequest, Never, Never),
        (401, "authentication_error", Auth, Never, Never),
        (402, "billing_error", Quota, Never, Never),
        (403, "permission_error", Auth, Never, Never),
        (404, "not_found_error", NotFound, Never, Never),
        (409, "conflict_error", InvalidRequest, Never, Never),
        (409, "invalid_request_error", InvalidRequest, Never, Never),
        (413, "invalid_request_error", InvalidRequest, Never, Never),
        (429, "rate_limit_error", RateLimited, Backoff, Backoff),
        (500, "api_error", VendorError, Backoff, Unknown),
        (504, "timeout_error", Network, Backoff, Unknown),
        (529, "overloaded_error", VendorError, Backoff, Unknown),
    ];
    for (status, word, kind, free, paid) in rows {
        assert_eq!(classify(&error(status, word, None)), (kind, free, paid), "{status} {word}");
        assert_eq!(classify(&raw(status, "<html>")), (kind, free, paid), "{status} alone");
    }
    for (status, kind) in [(408, Network), (422, InvalidRequest), (503, VendorError)] {
        assert_eq!(classify(&raw(status, "")).0, kind, "{status}");
    }
    assert_eq!(classify(&error(200, "rate_limit_error", None)).0, RateLimited, "the word rules over the status");
}

#[test]
fn finer_codes_go_before_types() {
    use FailureKind::*;
    let rows = [
        ("enforced_spend_limit_reached", Quota),
        ("contract_spend_limit_reached", Quota),
        ("linked_organization_spend_limit_reached", Quota),
        ("linked_organization_billing_unavailable", Quota),
        ("organization_on_hold", Quota),
        ("storage_quota_exceeded", Quota),
        ("ramp_limit_exceeded", RateLimited),
        ("cmek_key_unreachable", VendorError),
        ("file_expired", OutputExpired),
        ("file_not_downloadable", InvalidRequest),
    ];
    for (code, kind) in rows {
        let failure = ClaudeManagedAgents.classify(&error(400, "invalid_request_error", Some(code)), false);
        assert_eq!((failure.kind, failure.vendor_code.as_deref()), (kind, Some(code)));
    }
}

#[test]
fn waiting_times_are_the_vendors() {
    let after = |reply: Reply| ClaudeManagedAgents.classify(&reply, false).retry;
    let limited = || error(429, "rate_limit_error", None);
    assert_eq!(after(limited().with_retry_after(20)), Retry::After(Duration::from_secs(20)));
    let finer = limited().with_retry_after(20).with_header("retry-after-ms", "1500");
    assert_eq!(after(finer), Retry::After(Duration::from_millis(1500)));
    for odd in ["0", "-5", "soon", "1e400", "NaN"] {
        assert_eq!(after(limited().with_header("retry-after-ms", odd)), Retry::Backoff, "{odd}");
    }
    let soon = ClaudeManagedAgents.classify(&error(402, "billing_error", None).with_retry_after(60), false);
    assert_eq!((soon.kind, soon.retry), (FailureKind::RateLimited, Retry::After(Duration::from_secs(60))));
    let later = ClaudeManagedAgents.classify(&error(402, "billing_error", None).with_retry_after(86_400), false);
    assert_eq!((later.kind, later.retry), (FailureKind::Quota, Retry::After(Duration::from_secs(86_400))));
}

#[test]
fn the_vendors_word_on_retrying() {
    let conflict = error(409, "conflict_error", None).with_header("x-should-retry", "true");
    assert_eq!(classify(&conflict).0, FailureKind::VendorError);
    let stubborn = error(500, "api_error", None).with_header("x-should-retry", "false");
    assert_eq!(classify(&stubborn), (FailureKind::VendorError, Retry::Backoff, Retry::Unknown));
}

#[test]
fn a_failure_says_what_to_do_and_whom_to_ask() {
    let failure = ClaudeManagedAgents.classify(&error(401, "authentication_error", None), false);
    assert_eq!(
        failure.message,
        "the vendor refused the connector's credential (HTTP 401); check the key, and that it may use managed agents \
         in this workspace"
    );
    let plain = ClaudeManagedAgents.classify(&error(413, "invalid_request_error", None), false);
    assert_eq!(plain.message, "said so; mend the request or the connector's settings");
    assert_eq!(failure.vendor_request_id.as_deref(), Some("req_FAKE"));
    let reply = error(400, "invalid_request_error", None).with_header("request-id", "req_HEAD");
    assert_eq!(ClaudeManagedAgents.classify(&reply, false).vendor_request_id.as_deref(), Some("req_HEAD"));
    let version = answer(
        400,
        json!({"type": "error", "error": {"type": "invalid_request_error",
        "message": "anthropic-version: 2020-01-01 is not a valid version"}}),
    );
    assert!(ClaudeManagedAgents.classify(&version, false).holds_connector);
    assert!(!ClaudeManagedAgents.classify(&error(400, "invalid_request_error", None), false).holds_connector);
}
