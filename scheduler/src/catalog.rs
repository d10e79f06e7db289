//! What exists and what is installed, as a submission meets it.

use crate::api::Api;
use longhaul_registry::{Connector, JobRequest, Problem, Usage, check_options, nearest};
use longhaul_vendors::Prepared;
use rust_decimal::Decimal;
use serde_json::json;

/// The problem of a connector that is not installed, naming the nearest one that is. A service that has no
/// legitimate API gets its alternative named.
pub(crate) fn unknown_connector(api: &Api, name: &str) -> Problem {
    let installed: Vec<&str> = api.connectors.keys().map(String::as_str).collect();
    let shown: String = name.chars().take(64).collect();
    let message = if let Some(service) = api.registry.unsupported_named(name) {
        format!("{} has no API that a program may use; instead: {}", service.title, service.instead)
    } else if let Some(near) = nearest(name, installed.iter().copied()) {
        format!("no connector {shown:?} is installed; did you mean `{near}`?")
    } else if api.registry.vendor(name).is_some() {
        format!("no connector {shown:?} is installed; add [connectors.{name}] to longhaul.toml and restart")
    } else {
        format!("no connector {shown:?} is installed; `longhaul connectors list` shows those that are")
    };
    Problem::new("connector", "not_allowed", message).allowed(json!(installed))
}

/// Checks a request against the registry and the vendor's module, and maps it.
pub(crate) fn prepare(
    api: &Api,
    request: &JobRequest,
    connector: &Connector,
    problems: &mut Vec<Problem>,
) -> Option<Prepared> {
    let file = &connector.vendor;
    if !file.tasks.contains(&request.task) {
        let tasks: Vec<&str> = file.tasks.iter().map(|task| task.as_str()).collect();
        let message = format!("{} does {}, not {}", file.title, tasks.join(", "), request.task);
        problems.push(Problem::new("task", "not_allowed", message).allowed(json!(tasks)));
        return None;
    }
    problems.extend(check_options(file, &request.vendor));
    let Some(module) = api.vendors.get(&file.vendor) else {
        let message = format!("this build has no module for vendor {:?}; use a build that has", file.vendor);
        problems.push(Problem::new("connector", "not_allowed", message));
        return None;
    };
    match module.prepare(request, connector) {
        Ok(prepared) => Some(prepared),
        Err(found) => {
            problems.extend(found);
            None
        }
    }
}

/// Money for a quantity, or `None` where nobody names a price.
pub(crate) fn price(connector: &Connector, usage: &Usage, model: Option<&str>) -> Option<Decimal> {
    longhaul_registry::price(connector, model, usage.unit, usage.quantity)
}
