//! The agents of the stand-in and their cards.

use axum::Json;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ring::digest;
use serde_json::{Value, json};

/// One agent. All share their tasks; they differ in their card and in what they ask of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Agent {
    /// Both bindings, a key needed.
    Usual,
    /// HTTP+JSON alone.
    Rest,
    /// Both bindings, for the tenant `acme`.
    Tenant,
    /// No key needed.
    Open,
    /// Does not list tasks.
    Unlisted,
    /// Speaks 0.3 alone.
    Old,
}

impl Agent {
    /// The agent that a path is for, and what is left of the path.
    pub(super) fn of<'a, 'b>(parts: &'b [&'a str]) -> (Self, &'b [&'a str]) {
        let agent = match parts.first() {
            Some(&"rest_only") => Self::Rest,
            Some(&"tenanted") => Self::Tenant,
            Some(&"open") => Self::Open,
            Some(&"unlisted") => Self::Unlisted,
            Some(&"old") => Self::Old,
            _ => return (Self::Usual, parts),
        };
        (agent, parts.get(1..).unwrap_or_default())
    }

    fn folder(self) -> &'static str {
        match self {
            Self::Usual => "",
            Self::Rest => "/rest_only",
            Self::Tenant => "/tenanted",
            Self::Open => "/open",
            Self::Unlisted => "/unlisted",
            Self::Old => "/old",
        }
    }

    /// The tenant that every request has to name.
    pub(super) fn tenant(self) -> Option<&'static str> {
        (self == Self::Tenant).then_some("acme")
    }

    /// The agent's card.
    pub(super) fn card(self, base: &str) -> Value {
        let base = format!("{base}{}", self.folder());
        let mut card = json!({
            "name": "Sandbox agent", "description": "Writes short reports about tides and draws charts.",
            "version": "1.0.0", "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/markdown", "image/png"],
            "capabilities": {"streaming": false, "pushNotifications": false},
            "skills": [{"id": "tides", "name": "Tides", "description": "Reports on tides.", "tags": ["report"]}],
        });
        if self == Self::Old {
            card["protocolVersion"] = json!("0.3.0");
            card["url"] = json!(format!("{base}/rpc"));
            card["preferredTransport"] = json!("JSONRPC");
            return card;
        }
        let face = |binding: &str, path: &str| {
            let mut face = json!({
                "url": format!("{base}/{path}"), "protocolBinding": binding, "protocolVersion": "1.0",
            });
            if let Some(tenant) = self.tenant() {
                face["tenant"] = json!(tenant);
            }
            face
        };
        card["supportedInterfaces"] = match self {
            Self::Rest => json!([face("HTTP+JSON", "rest")]),
            _ => json!([face("JSONRPC", "rpc"), face("HTTP+JSON", "rest")]),
        };
        if self != Self::Open {
            card["securitySchemes"] = json!({
                "bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
                "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}},
            });
            card["securityRequirements"] = json!([{"schemes": {"bearer": {}}}, {"schemes": {"key": {}}}]);
        }
        card
    }

    /// The answer to a request for the card: public, with a tag to revalidate by.
    pub(super) fn answer(self, base: &str, headers: &HeaderMap) -> Response {
        let card = self.card(base);
        let hash = crate::hex(digest::digest(&digest::SHA256, card.to_string().as_bytes()).as_ref());
        let tag = format!("W/\"{hash}\"");
        let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
        let same = known.is_some_and(|list| list.split(',').any(|have| have.trim() == tag || have.trim() == "*"));
        let headers = [(header::ETAG, tag)];
        if same { (StatusCode::NOT_MODIFIED, headers).into_response() } else { (headers, Json(card)).into_response() }
    }
}
