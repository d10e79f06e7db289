//! The ledger, summed.

use crate::api::Shared;
use crate::auth::{Caller, Need};
use crate::body::Params;
use crate::error::ApiResult;
use crate::view::decimal;
use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use chrono::NaiveDate;
use longhaul_registry::Problem;
use longhaul_store::{UsageBy, UsageSum};
use serde_json::{Map, Value, json};

const GROUPS: [(&str, UsageBy); 5] = [
    ("vendor", UsageBy::Vendor),
    ("unit", UsageBy::Unit),
    ("tenant", UsageBy::Tenant),
    ("connector", UsageBy::Connector),
    ("day", UsageBy::Day),
];

/// The ledger, summed.
///
/// One row a group. `quantity` is null where a group mixes units; `day` is the UTC day of booking.
#[utoipa::path(
    get,
    path = "/v1/usage",
    tag = "usage",
    params(
        ("by" = Option<String>, Query, pattern = "^((vendor|unit|tenant|connector|day)(,(vendor|unit|tenant|connector|day))*)?$", description = "Any of `vendor,unit,tenant,connector,day`; `vendor,unit` by default"),
        ("tenant" = Option<String>, Query, description = "Only this tenant"),
        ("from" = Option<String>, Query, pattern = "^([0-9]{4}-[0-9]{2}-[0-9]{2})?$", description = "First UTC day, `YYYY-MM-DD`"),
        ("to" = Option<String>, Query, pattern = "^([0-9]{4}-[0-9]{2}-[0-9]{2})?$", description = "Last UTC day, `YYYY-MM-DD`"),
        ("format" = Option<String>, Query, pattern = "^(json|csv)?$", description = "`json` or `csv`"),
    ),
    responses((status = 200, description = "The sums", content(
        (crate::openapi::UsageDoc = "application/json"),
        (String = "text/csv"),
    )))
)]
pub(crate) async fn usage(State(api): State<Shared>, caller: Caller, mut params: Params) -> ApiResult<Response> {
    caller.may(Need::Read)?;
    params.known(&["by", "tenant", "from", "to", "format"]);
    let by = groups(&mut params);
    let [from, to] = ["from", "to"].map(|key| day(&mut params, key));
    let csv = match params.text("format").as_deref() {
        None | Some("json") => false,
        Some("csv") => true,
        Some(_) => {
            let problem = Problem::new("format", "not_allowed", "must be `json` or `csv`");
            params.problem(problem.allowed(json!(["json", "csv"])));
            false
        }
    };
    let tenant = params.text("tenant");
    params.finish()?;
    let tenant = caller.tenant_filter(tenant)?;
    let groups: Vec<UsageBy> = by.iter().map(|(_, group)| *group).collect();
    let sums = api.store.usage(&groups, tenant.as_deref(), from.as_deref(), to.as_deref()).await?;
    let names: Vec<&str> = by.iter().map(|(name, _)| *name).collect();
    if csv {
        let headers = [
            (header::CONTENT_TYPE, "text/csv; charset=utf-8"),
            (header::CONTENT_DISPOSITION, "attachment; filename=\"usage.csv\""),
        ];
        return Ok((headers, table(&names, &sums)).into_response());
    }
    let rows: Vec<Value> = sums.iter().map(|sum| row(&names, sum)).collect();
    Ok(Json(json!({"usage": rows, "next_cursor": null})).into_response())
}

fn groups(params: &mut Params) -> Vec<(&'static str, UsageBy)> {
    let text = params.text("by").unwrap_or_else(|| "vendor,unit".to_owned());
    let mut by: Vec<(&'static str, UsageBy)> = Vec::new();
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        match GROUPS.into_iter().find(|(name, _)| *name == word) {
            Some(group) if by.contains(&group) => {}
            Some(group) => by.push(group),
            None => {
                let all = GROUPS.map(|(name, _)| name);
                let message = format!("holds a word that is none of {}", all.join(", "));
                params.problem(Problem::new("by", "not_allowed", message).allowed(json!(all)));
            }
        }
    }
    by
}

fn day(params: &mut Params, key: &str) -> Option<String> {
    let text = params.text(key)?;
    let found = NaiveDate::parse_from_str(&text, "%Y-%m-%d").ok().map(|day| day.format("%Y-%m-%d").to_string());
    if found.is_none() {
        params.problem(Problem::new(key, "not_allowed", "must be a day as YYYY-MM-DD"));
    }
    found
}

fn row(names: &[&str], sum: &UsageSum) -> Value {
    let mut row: Map<String, Value> =
        names.iter().zip(&sum.group).map(|(name, value)| ((*name).to_owned(), Value::from(value.as_str()))).collect();
    row.insert("unit".to_owned(), json!(sum.unit));
    row.insert("quantity".to_owned(), json!(sum.quantity.map(decimal)));
    row.insert("usd".to_owned(), json!(decimal(sum.usd)));
    row.insert("lines".to_owned(), json!(sum.lines));
    Value::Object(row)
}

/// RFC 4180. `unit` stands once, whether it was grouped by or not.
fn table(names: &[&str], sums: &[UsageSum]) -> String {
    let keys: Vec<&str> = names.iter().copied().filter(|name| *name != "unit").collect();
    let mut text = keys.iter().copied().chain(["unit", "quantity", "usd", "lines"]).collect::<Vec<_>>().join(",");
    text.push_str("\r\n");
    for sum in sums {
        let groups = names.iter().zip(&sum.group).filter(|(name, _)| **name != "unit").map(|(_, value)| cell(value));
        let unit = sum.unit.map_or_else(String::new, |unit| unit.as_str().to_owned());
        let quantity = sum.quantity.map(decimal).unwrap_or_default();
        let line: Vec<String> = groups.chain([unit, quantity, decimal(sum.usd), sum.lines.to_string()]).collect();
        text.push_str(&line.join(","));
        text.push_str("\r\n");
    }
    text
}

/// Quoted where it must be. A spreadsheet takes a cell that begins with `=` for a formula: it gets a quote.
fn cell(text: &str) -> String {
    let text = if text.starts_with(['=', '+', '-', '@']) { format!("'{text}") } else { text.to_owned() };
    if text.contains(['"', ',', '\r', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_registry::Unit;

    #[test]
    fn rows_and_tables_show_the_same() {
        let sum = UsageSum {
            group: vec!["a,\"b\"".to_owned(), "credits".to_owned()],
            unit: Some(Unit::Credits),
            quantity: Some("14.50".parse().unwrap()),
            usd: "0.30".parse().unwrap(),
            lines: 3,
        };
        let names = ["tenant", "unit"];
        let expected = json!({"tenant": "a,\"b\"", "unit": "credits", "quantity": "14.5", "usd": "0.3", "lines": 3});
        assert_eq!(row(&names, &sum), expected);
        assert_eq!(table(&names, &[sum]), "tenant,unit,quantity,usd,lines\r\n\"a,\"\"b\"\"\",credits,14.5,0.3,3\r\n");
        assert_eq!(cell("=1+1"), "'=1+1");
    }
}
