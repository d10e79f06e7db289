//! Every row of the error table, in both bindings, and the answers from outside the protocol.

use super::*;
use crate::Reply;
use crate::testing::{ReplyExt, answer, raw};
use longhaul_registry::{FailureKind, Retry};
use std::time::Duration;

fn classify(reply: &Reply) -> (FailureKind, Retry, Retry) {
    let (free, paid) = (A2a.classify(reply, false), A2a.classify(reply, true));
    assert_eq!(free.kind, paid.kind);
    (free.kind, free.retry, paid.retry)
}

fn over_http(status: u16, reason: &str) -> Reply {
    answer(
        status,
        json!({"error": {"code": status, "status": "X", "message": "no", "details": [
            {"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": []},
            {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "a2a-protocol.org"}]}}),
    )
}

#[test]
fn the_protocols_own_errors() {
    use FailureKind::*;
    use Retry::{Backoff, Never, Unknown};
    let rows = [
        (-32001, 404, "TASK_NOT_FOUND", NotFound, Never, Never),
        (-32002, 400, "TASK_NOT_CANCELABLE", InvalidRequest, Never, Never),
        (-32003, 400, "PUSH_NOTIFICATION_NOT_SUPPORTED", CapabilityMissing, Never, Never),
        (-32004, 400, "UNSUPPORTED_OPERATION", CapabilityMissing, Never, Never),
        (-32005, 400, "CONTENT_TYPE_NOT_SUPPORTED", InvalidRequest, Never, Never),
        (-32006, 500, "INVALID_AGENT_RESPONSE", VendorError, Backoff, Unknown),
        (-32007, 400, "EXTENDED_AGENT_CARD_NOT_CONFIGURED", CapabilityMissing, Never, Never),
        (-32008, 400, "EXTENSION_SUPPORT_REQUIRED", CapabilityMissing, Never, Never),
        (-32009, 400, "VERSION_NOT_SUPPORTED", CapabilityMissing, Never, Never),
        (-32600, 400, "INVALID_REQUEST", InvalidRequest, Never, Never),
        (-32601, 404, "METHOD_NOT_FOUND", CapabilityMissing, Never, Never),
        (-32602, 400, "INVALID_PARAMS", InvalidRequest, Never, Never),
        (-32603, 500, "INTERNAL_ERROR", VendorError, Backoff, Unknown),
    ];
    for (code, status, reason, kind, free, paid) in rows {
        assert_eq!(classify(&answer(200, error(code, reason))), (kind, free, paid), "{code}");
        let plain = json!({"jsonrpc": "2.0", "id": null, "error": {"code": code, "message": "no"}});
        assert_eq!(classify(&answer(200, plain)), (kind, free, paid), "{code} without data");
        assert_eq!(classify(&over_http(status, reason)), (kind, free, paid), "{reason}");
        let failure = A2a.classify(&over_http(status, reason), false);
        assert_eq!(failure.vendor_code.as_deref(), Some(reason));
        assert_eq!(failure.holds_connector, code == -32009);
    }
    let parse = json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32700, "message": "no"}});
    assert_eq!(classify(&answer(400, parse)), (InvalidRequest, Never, Never));
    assert_eq!(classify(&over_http(409, "TASK_NOT_CANCELABLE")).0, InvalidRequest);
}

#[test]
fn a_servers_own_numbers_tell_that_it_failed() {
    let own =
        |status: u16| answer(status, json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32042, "message": "odd"}}));
    assert_eq!(classify(&own(200)), (FailureKind::VendorError, Retry::Backoff, Retry::Unknown));
    assert_eq!(classify(&own(429)), (FailureKind::RateLimited, Retry::Backoff, Retry::Backoff));
    assert_eq!(A2a.classify(&own(200), false).vendor_code.as_deref(), Some("-32042"));
    let named = json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32042, "message": "odd",
        "data": [{"reason": "TASK_NOT_FOUND"}]}});
    assert_eq!(classify(&answer(200, named)).0, FailureKind::NotFound);
}

#[test]
fn answers_from_outside_the_protocol() {
    use FailureKind::*;
    use Retry::{Backoff, Never, Unknown};
    let rows = [
        (302, InvalidRequest, Never, Never),
        (400, InvalidRequest, Never, Never),
        (401, Auth, Never, Never),
        (402, Quota, Never, Never),
        (403, Auth, Never, Never),
        (404, NotFound, Never, Never),
        (405, CapabilityMissing, Never, Never),
        (408, Network, Backoff, Unknown),
        (413, InvalidRequest, Never, Never),
        (415, InvalidRequest, Never, Never),
        (422, InvalidRequest, Never, Never),
        (429, RateLimited, Backoff, Backoff),
        (500, VendorError, Backoff, Unknown),
        (501, CapabilityMissing, Never, Unknown),
        (502, VendorError, Backoff, Unknown),
        (503, VendorError, Backoff, Unknown),
        (504, VendorError, Backoff, Unknown),
    ];
    for (status, kind, free, paid) in rows {
        for body in ["", "<html>busy</html>", "nope", r#"{"message": "as in 0.3"}"#] {
            assert_eq!(classify(&raw(status, body)), (kind, free, paid), "{status} {body}");
        }
    }
    let after = Retry::After(Duration::from_secs(20));
    assert_eq!(classify(&raw(503, "").with_retry_after(20)), (VendorError, after, after), "it was not taken");
    assert_eq!(classify(&raw(500, "").with_retry_after(20)), (VendorError, after, Unknown));
    assert_eq!(classify(&raw(429, "").with_retry_after(20)), (RateLimited, after, after));
}

#[test]
fn the_first_words_are_kept_for_the_operator() {
    let failure = A2a.classify(&raw(401, "your key is sandbox-1234567"), false);
    assert_eq!(failure.message, "the agent's host answered HTTP 401; check the connector's credential");
    assert_eq!(failure.vendor_code.as_deref(), Some("http_401"));
    let failure = A2a.classify(&raw(415, "give me\nJSON"), false);
    assert_eq!(failure.message, "the agent's host answered HTTP 415: give me JSON");
    let page = A2a.classify(&raw(404, "<html>long page</html>"), false);
    assert_eq!(page.message, "the agent's host answered HTTP 404; check base_url, `card_url` and `endpoint`");
    let long = A2a.classify(&raw(500, "x".repeat(5_000)), false);
    assert!(long.message.chars().count() < 400);
}
