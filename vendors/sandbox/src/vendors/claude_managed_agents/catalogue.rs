//! What exists beside sessions and files: models, one agent, one environment.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::http::{Query, Refusal, coded, not_found};
use super::request;

/// `GET /v1/models`.
pub(super) fn models(query: Vec<(String, String)>) -> Result<Response, Refusal> {
    let query = Query::new(query, &["limit", "after_id", "before_id"])?;
    let limit = query.limit(20, 1000)?;
    let all = [("claude-opus-4-8", "Claude Opus 4.8", "opus"), ("claude-haiku-4-5", "Claude Haiku 4.5", "haiku")];
    let after = query.one("after_id");
    let start = after.map_or(0, |id| all.iter().position(|(have, _, _)| *have == id).map_or(all.len(), |at| at + 1));
    let rest = all.get(start..).unwrap_or_default();
    let data: Vec<Value> = rest
        .iter()
        .take(limit)
        .map(|(id, name, line)| {
            json!({
                "type": "model", "id": id, "display_name": name, "created_at": "2026-01-01T00:00:00Z",
                "lifecycle": "active", "line": line, "max_input_tokens": 1_000_000, "max_tokens": 128_000,
            })
        })
        .collect();
    let ends = |item: Option<&Value>| item.map_or(Value::Null, |item| item["id"].clone());
    let (first, last, more) = (ends(data.first()), ends(data.last()), rest.len() > limit);
    Ok(Json(json!({"data": data, "has_more": more, "first_id": first, "last_id": last})).into_response())
}

/// `GET /v1/agents/{id}`.
pub(super) fn agent(id: &str, query: Vec<(String, String)>) -> Result<Response, Refusal> {
    let query = Query::new(query, &["version"])?;
    let version = query.one("version").map_or(Some(request::VERSION), |text| text.parse().ok());
    match version {
        Some(version) if id == request::AGENT && (1..=request::VERSION).contains(&version) => {
            let mut agent = request::agent_at(version);
            agent["archived_at"] = Value::Null;
            agent["metadata"] = json!({});
            agent["created_at"] = json!("2026-01-01T00:00:00Z");
            agent["updated_at"] = json!("2026-01-01T00:00:00Z");
            Ok(Json(agent).into_response())
        }
        _ => Err(not_found(&format!("no agent {id}"))),
    }
}

/// `GET /v1/environments/{id}`.
pub(super) fn environment(id: &str) -> Result<Response, Refusal> {
    if id != request::ENVIRONMENT {
        return Err(coded(
            StatusCode::NOT_FOUND,
            "not_found_error",
            &format!("no environment {id}"),
            "environment_not_found",
        ));
    }
    let packages = json!({"type": "packages", "apt": [], "cargo": [], "gem": [], "go": [], "npm": [], "pip": []});
    Ok(Json(json!({
        "type": "environment", "id": id, "name": "Sandbox environment", "description": null, "metadata": {},
        "archived_at": null, "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z",
        "scope": "organization",
        "config": {"type": "cloud", "networking": {"type": "unrestricted"}, "packages": packages},
    }))
    .into_response())
}
