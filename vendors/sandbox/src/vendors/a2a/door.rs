//! What stands before every call: which operation it is, whose key it carries, which version it speaks.

use axum::http::{HeaderMap, Method};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::card::Agent;
use super::errors::{Error, Kind};
use crate::standin::key_is_good;

/// One operation, as both bindings name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Send,
    Get,
    List,
    Cancel,
    Stream,
    Push,
    ExtendedCard,
}

impl Operation {
    /// The operation of a JSON-RPC method.
    pub(super) fn of_method(method: &str) -> Option<Self> {
        Some(match method {
            "SendMessage" => Self::Send,
            "GetTask" => Self::Get,
            "ListTasks" => Self::List,
            "CancelTask" => Self::Cancel,
            "SendStreamingMessage" | "SubscribeToTask" => Self::Stream,
            "CreateTaskPushNotificationConfig"
            | "GetTaskPushNotificationConfig"
            | "ListTaskPushNotificationConfigs"
            | "DeleteTaskPushNotificationConfig" => Self::Push,
            "GetExtendedAgentCard" => Self::ExtendedCard,
            _ => return None,
        })
    }

    /// The operation of an HTTP+JSON request, and the task that its path names.
    pub(super) fn of_path<'a>(method: &Method, parts: &[&'a str]) -> Option<(Self, &'a str)> {
        Some(match (method.as_str(), parts) {
            ("POST", ["message:send"]) => (Self::Send, ""),
            ("POST", ["message:stream"]) => (Self::Stream, ""),
            ("GET", ["tasks"]) => (Self::List, ""),
            ("GET", ["extendedAgentCard"]) => (Self::ExtendedCard, ""),
            (_, ["tasks", id, "pushNotificationConfigs", ..]) => (Self::Push, id),
            ("POST", ["tasks", named]) if named.ends_with(":cancel") => {
                (Self::Cancel, named.trim_end_matches(":cancel"))
            }
            ("GET" | "POST", ["tasks", named]) if named.ends_with(":subscribe") => {
                (Self::Stream, named.trim_end_matches(":subscribe"))
            }
            ("GET", ["tasks", id]) => (Self::Get, id),
            _ => return None,
        })
    }
}

/// The version, then the tenant.
pub(super) fn admit(agent: Agent, headers: &HeaderMap, tenant: Option<&str>) -> Result<(), Error> {
    let version = headers.get("a2a-version").and_then(|value| value.to_str().ok()).filter(|text| !text.is_empty());
    let version = version.unwrap_or("0.3");
    if version.split('.').next() != Some("1") {
        let words = format!("A2A version '{version}' is not supported by this handler. Expected version '1.0'.");
        return Err(Error::new(Kind::VersionNotSupported, words));
    }
    match (agent.tenant(), tenant.filter(|tenant| !tenant.is_empty())) {
        (wanted, have) if wanted == have => Ok(()),
        (Some(_), _) => Err(Error::new(Kind::InvalidParams, "the tenant of the agent's card is required")),
        (None, _) => Err(Error::new(Kind::InvalidParams, "this agent has no tenants")),
    }
}

/// A key by any of the ways in which agents take one.
pub(super) fn carries_good_key(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let basic = |code: &str| {
        let pair = String::from_utf8(STANDARD.decode(code).ok()?).ok()?;
        pair.split_once(':').map(|(_, password)| key_is_good(password))
    };
    match (text("authorization"), text("x-api-key")) {
        (Some(value), _) => match value.split_once(' ') {
            Some(("Bearer", key)) => key_is_good(key),
            Some(("Basic", code)) => basic(code).unwrap_or(false),
            _ => false,
        },
        (None, Some(key)) => key_is_good(key),
        (None, None) => false,
    }
}
