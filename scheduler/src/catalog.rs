//! What exists and what is installed, as a submission meets it.

use crate::api::Api;
use longhaul_registry::{Connector, JobRequest, Problem, Task, Usage, check_job, nearest};
use longhaul_vendors::Prepared;
use rust_decimal::Decimal;
use serde_json::json;
use url::Url;

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

/// Says what may stand where connector or task is missing.
pub(crate) fn name_what_there_is(api: &Api, problems: &mut [Problem]) {
    for problem in problems.iter_mut().filter(|problem| problem.code == "missing") {
        problem.allowed = match problem.path.as_str() {
            "connector" => Some(json!(api.connectors.keys().collect::<Vec<_>>())),
            "task" => Some(json!(Task::ALL.map(Task::as_str))),
            _ => continue,
        };
    }
}

/// Checks a request against the registry and the vendor's module, and maps it.
pub(crate) fn prepare(
    api: &Api,
    request: &JobRequest,
    connector: &Connector,
    problems: &mut Vec<Problem>,
) -> Option<Prepared> {
    let file = &connector.vendor;
    let was_read = problems.is_empty();
    let found = check_job(request, connector).into_iter();
    let opened = request.notify.as_ref().is_some_and(|notify| opens_notify(api, &notify.url));
    // What hangs on a value that could not be read is no news.
    let found: Vec<Problem> = found
        .filter(|one| !(opened && one.path == "notify.url"))
        .filter(|one| !problems.iter().any(|known| related(&known.path, &one.path)))
        .collect();
    problems.extend(found);
    if !was_read || !file.tasks.contains(&request.task) {
        return None;
    }
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

/// One path is the other, or lies below it.
fn related(one: &str, other: &str) -> bool {
    let below = |inner: &str, outer: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    below(one, other) || below(other, one)
}

/// Whether the API's settings open the private host that is to be told.
fn opens_notify(api: &Api, url: &str) -> bool {
    let Some(url) = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https")) else {
        return false;
    };
    let host = format!("{}:{}", url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or_default());
    url.username().is_empty() && url.password().is_none() && api.options.notify_private_hosts.contains(&host)
}

/// Money for a quantity, or `None` where nobody names a price.
pub(crate) fn price(connector: &Connector, usage: &Usage, model: Option<&str>) -> Option<Decimal> {
    longhaul_registry::price(connector, model, usage.unit, usage.quantity)
}
