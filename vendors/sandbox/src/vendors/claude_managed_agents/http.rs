//! Headers in, errors out, and the list parameters that every list of this API shares.

use axum::Json;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Value, json};

use crate::standin::key_is_good;

/// The beta that the agents, sessions and environments routes are behind.
const BETA: &str = "managed-agents-2026-04-01";
/// API versions that are served.
const VERSIONS: [&str; 3] = ["2023-01-01", "2023-06-01", "2026-10-21"];

/// An answer that refuses.
pub(super) type Refusal = Box<Response>;

/// A new id of the vendor's form.
pub(super) fn fresh_id(prefix: &str) -> String {
    let id = uuid::Uuid::new_v4().simple().to_string();
    format!("{prefix}_01{}", id.get(..22).unwrap_or_default())
}

/// A time as the API writes it.
pub(super) fn time(ms: i64) -> String {
    DateTime::<Utc>::from_timestamp_millis(ms).unwrap_or_default().to_rfc3339_opts(SecondsFormat::Millis, true)
}

fn request_id(id: &str) -> HeaderValue {
    HeaderValue::from_str(id).unwrap_or(HeaderValue::from_static("req_0"))
}

fn build(status: StatusCode, error: Value) -> Refusal {
    let id = fresh_id("req");
    let mut response = (status, Json(json!({"type": "error", "error": error, "request_id": id}))).into_response();
    response.headers_mut().insert("request-id", request_id(&id));
    Box::new(response)
}

/// An error without a code.
pub(super) fn error(status: StatusCode, kind: &str, message: &str) -> Refusal {
    build(status, json!({"type": kind, "message": message}))
}

/// An error whose cause has a code.
pub(super) fn coded(status: StatusCode, kind: &str, message: &str, code: &str) -> Refusal {
    build(status, json!({"type": kind, "message": message, "details": {"error_code": code}}))
}

/// A request that does not read as it should.
pub(super) fn invalid(message: &str) -> Refusal {
    error(StatusCode::BAD_REQUEST, "invalid_request_error", message)
}

/// Something that is not there.
pub(super) fn not_found(message: &str) -> Refusal {
    error(StatusCode::NOT_FOUND, "not_found_error", message)
}

/// A state that does not allow the request.
pub(super) fn conflict(message: &str) -> Refusal {
    error(StatusCode::CONFLICT, "invalid_request_error", message)
}

/// Ends a handler: refusals become answers, and every answer has its request id.
pub(super) fn finish(answer: Result<Response, Refusal>) -> Response {
    let mut response = answer.unwrap_or_else(|refusal| *refusal);
    if !response.headers().contains_key("request-id") {
        response.headers_mut().insert("request-id", request_id(&fresh_id("req")));
    }
    response
}

/// Key, version, then beta: in this order.
pub(super) fn admit(headers: &HeaderMap, beta: bool) -> Result<(), Refusal> {
    let unauthorised = |message: &str| Err(error(StatusCode::UNAUTHORIZED, "authentication_error", message));
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let key = match (text("x-api-key"), text(header::AUTHORIZATION.as_str())) {
        (Some(_), Some(_)) => return unauthorised("x-api-key and authorization must not both be set"),
        (None, None) => return unauthorised("one of x-api-key and authorization is required"),
        (Some(key), None) => key,
        (None, Some(value)) => match value.strip_prefix("Bearer ") {
            Some(key) => key,
            None => return unauthorised("authorization must be a bearer token"),
        },
    };
    if !key_is_good(key) {
        return unauthorised("invalid x-api-key");
    }
    match text("anthropic-version") {
        None => return Err(invalid("anthropic-version: header is required")),
        Some(version) if !VERSIONS.contains(&version) => {
            return Err(invalid(&format!("anthropic-version: \"{version}\" is not a valid version")));
        }
        Some(_) => {}
    }
    let has_beta = headers
        .get_all("anthropic-beta")
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|list| list.split(','))
        .any(|name| name.trim() == BETA);
    if beta && !has_beta { Err(not_found("Not Found")) } else { Ok(()) }
}

/// The query of a list.
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Refuses parameters that the list does not have.
    pub(super) fn new(pairs: Vec<(String, String)>, allowed: &[&str]) -> Result<Self, Refusal> {
        match pairs.iter().find(|(name, _)| !allowed.contains(&name.as_str())) {
            Some((name, _)) => Err(invalid(&format!("{name}: Extra inputs are not permitted"))),
            None => Ok(Self(pairs)),
        }
    }

    pub(super) fn one(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(have, _)| have == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn all(&self, name: &str) -> Vec<&str> {
        self.0.iter().filter(|(have, _)| have == name).map(|(_, value)| value.as_str()).collect()
    }

    pub(super) fn flag(&self, name: &str) -> Result<bool, Refusal> {
        match self.one(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(invalid(&format!("{name}: Input should be a valid boolean"))),
        }
    }

    pub(super) fn limit(&self, own: usize, most: usize) -> Result<usize, Refusal> {
        let Some(text) = self.one("limit") else { return Ok(own) };
        let limit = text.parse().ok().filter(|limit| (1..=most).contains(limit));
        limit.ok_or_else(|| invalid(&format!("limit: Input should be between 1 and {most}")))
    }

    /// Whether the newest come first.
    pub(super) fn descending(&self, own: bool) -> Result<bool, Refusal> {
        match self.one("order") {
            None => Ok(own),
            Some("asc") => Ok(false),
            Some("desc") => Ok(true),
            Some(_) => Err(invalid("order: Input should be 'asc' or 'desc'")),
        }
    }

    /// Whether a time passes the `created_at[...]` filters; something without a time passes only without filters.
    pub(super) fn window(&self) -> Result<impl Fn(Option<i64>) -> bool + use<>, Refusal> {
        let mut bounds = Vec::new();
        for (word, name) in
            [("gt", "created_at[gt]"), ("gte", "created_at[gte]"), ("lt", "created_at[lt]"), ("lte", "created_at[lte]")]
        {
            let Some(text) = self.one(name) else { continue };
            let Ok(at) = DateTime::parse_from_rfc3339(text) else {
                return Err(invalid(&format!("{name}: Input should be a valid datetime")));
            };
            bounds.push((word, at.timestamp_micros()));
        }
        Ok(move |ms: Option<i64>| {
            bounds.iter().all(|(word, bound)| {
                let Some(at) = ms.map(|ms| ms.saturating_mul(1000)) else { return false };
                match *word {
                    "gt" => at > *bound,
                    "gte" => at >= *bound,
                    "lt" => at < *bound,
                    _ => at <= *bound,
                }
            })
        })
    }

    /// Cuts one page out of a list that stands in its order; `prev_page` only where the list has one.
    pub(super) fn page(
        &self,
        items: Vec<(usize, Value)>,
        limit: usize,
        descending: bool,
        both_ways: bool,
    ) -> Result<Value, Refusal> {
        let after = |key: usize, anchor: usize| if descending { key < anchor } else { key > anchor };
        let (from, to) = match self.one("page").filter(|text| !text.is_empty()).map(read_cursor) {
            None => (0, limit),
            Some(Some((true, anchor))) => {
                let from = items.iter().position(|(key, _)| after(*key, anchor)).unwrap_or(items.len());
                (from, from.saturating_add(limit))
            }
            Some(Some((false, anchor))) if both_ways => {
                let to = items.iter().take_while(|(key, _)| *key != anchor && !after(*key, anchor)).count();
                (to.saturating_sub(limit), to)
            }
            Some(_) => return Err(invalid("page: the cursor is not one of this list")),
        };
        let (count, to) = (items.len(), to.min(items.len()));
        let page = items.get(from..to).unwrap_or_default();
        let next = page.last().filter(|_| to < count).map(|(key, _)| cursor(true, *key));
        let prev = page.first().filter(|_| from > 0).map(|(key, _)| cursor(false, *key));
        let data: Vec<&Value> = page.iter().map(|(_, value)| value).collect();
        let mut answer = json!({"data": data, "next_page": next});
        if both_ways {
            answer["prev_page"] = json!(prev);
        }
        Ok(answer)
    }
}

fn cursor(forward: bool, anchor: usize) -> String {
    format!("page_{}", URL_SAFE_NO_PAD.encode(format!("{}:{anchor}", if forward { 'n' } else { 'p' })))
}

fn read_cursor(text: &str) -> Option<(bool, usize)> {
    let bytes = URL_SAFE_NO_PAD.decode(text.strip_prefix("page_")?).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let (way, anchor) = text.split_once(':')?;
    Some((way == "n", anchor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(pairs: &[(&str, &str)]) -> Query {
        Query(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    fn walk(descending: bool) -> Vec<Vec<i64>> {
        let items = || {
            let list = (0..5_usize).map(|n| (n, json!(n)));
            if descending { list.rev().collect() } else { list.collect::<Vec<_>>() }
        };
        let mut pages = Vec::new();
        let mut at = String::new();
        loop {
            let page = query(&[("page", &at)]).page(items(), 2, descending, true).unwrap();
            pages.push(page["data"].as_array().unwrap().iter().map(|n| n.as_i64().unwrap()).collect());
            match page["next_page"].as_str() {
                Some(next) => at = next.to_owned(),
                None => return pages,
            }
        }
    }

    #[test]
    fn pages_follow_on_in_both_orders() {
        assert_eq!(walk(false), [vec![0, 1], vec![2, 3], vec![4]]);
        assert_eq!(walk(true), [vec![4, 3], vec![2, 1], vec![0]]);
    }

    #[test]
    fn a_page_leads_back_to_the_one_before() {
        let items = || (0..5_usize).map(|n| (n, json!(n))).collect::<Vec<_>>();
        let first = query(&[]).page(items(), 2, false, true).unwrap();
        assert_eq!(first["prev_page"], Value::Null);
        let second = query(&[("page", first["next_page"].as_str().unwrap())]).page(items(), 2, false, true).unwrap();
        let back = query(&[("page", second["prev_page"].as_str().unwrap())]).page(items(), 2, false, true).unwrap();
        assert_eq!(back["data"], first["data"]);
        assert!(query(&[("page", "page_x")]).page(items(), 2, false, true).is_err());
    }

    #[test]
    fn windows_compare_instants_and_leave_out_what_has_no_time() {
        let window = query(&[("created_at[gt]", "1970-01-01T01:00:01+01:00")]).window().unwrap();
        assert!(!window(Some(1000)));
        assert!(window(Some(1001)));
        assert!(!window(None));
        assert!(query(&[]).window().unwrap()(None));
        assert!(query(&[("created_at[lt]", "yesterday")]).window().is_err());
    }
}
