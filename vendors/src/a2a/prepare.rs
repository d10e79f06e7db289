//! A request as it will be sent: the parts of the first message, and what is asked of its answer.

use super::card::Binding;
use crate::Prepared;
use crate::agents::check_request;
use longhaul_registry::{Connector, Input, JobRequest, Problem};
use serde_json::{Value, json};
use url::Url;

/// The forms an input may take.
const INPUT_FORMS: [&str; 3] = ["text", "url", "artifact"];

/// Checks and maps a request. The result holds `parts`, `configuration`, and `metadata` where the job gives
/// any; the ids of message and context come with the attempt.
pub(super) fn prepare(request: &JobRequest, connector: &Connector) -> Result<Prepared, Vec<Problem>> {
    let mut problems = Vec::new();
    check_request(request, &mut problems);
    check_settings(connector, &mut problems);
    let mut parts = vec![json!({"text": request.instructions})];
    for (index, input) in request.inputs.iter().enumerate() {
        match map_input(index, input) {
            Ok(part) => parts.push(part),
            Err(problem) => problems.push(problem),
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    if let Some(data) = request.vendor.get("data") {
        parts.push(json!({"data": data}));
    }
    // Always said: without it an agent holds the call until the work is done.
    let mut configuration = json!({"returnImmediately": true});
    if let Some(modes) = request.vendor.get("accepted_output_modes") {
        configuration["acceptedOutputModes"] = modes.clone();
    }
    let mut mapped = json!({"parts": parts, "configuration": configuration});
    if let Some(metadata) = request.vendor.get("metadata") {
        mapped["metadata"] = metadata.clone();
    }
    Ok(Prepared { request: mapped, model: None, estimate: Vec::new(), start_silence: None })
}

fn check_settings(connector: &Connector, problems: &mut Vec<Problem>) {
    let mut wrong = |key: &str, message: String| {
        problems.push(Problem::new(format!("connector.{key}"), "not_allowed", message));
    };
    if connector.base_url.is_empty() {
        wrong("base_url", format!("set base_url of [connectors.{}] to the agent's address", connector.name));
    }
    for key in ["card_url", "endpoint"] {
        if let Some(url) = connector.setting_str(key)
            && !Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "https" | "http"))
        {
            wrong(&format!("settings.{key}"), format!("`{url}` is no absolute http address"));
        }
    }
    if let Some(binding) = connector.setting_str("binding")
        && Binding::read(binding).is_none()
    {
        wrong("settings.binding", format!("`{binding}` is not spoken; use JSONRPC or HTTP+JSON"));
    }
    if let Some(pointer) = connector.setting_str("usage_pointer")
        && !pointer.starts_with('/')
    {
        wrong("settings.usage_pointer", format!("`{pointer}` is no JSON pointer; write one such as `/usage/units`"));
    }
}

/// An input as a part; its role goes along as metadata.
fn map_input(index: usize, input: &Input) -> Result<Value, Problem> {
    let mut part = match input {
        Input { text: Some(text), .. } => json!({"text": text}),
        Input { url: Some(url), .. } => {
            let name = Url::parse(url).ok().and_then(|url| url.path_segments()?.next_back().map(str::to_owned));
            match name.filter(|name| !name.is_empty()) {
                Some(name) => json!({"url": url, "filename": name}),
                None => json!({"url": url}),
            }
        }
        Input { artifact: Some(_), .. } => json!({"raw": {"$input": index}}),
        _ => {
            let message = "an A2A message has no place for this input; give a text, a url or an artifact, and name a \
                           repository in the instructions";
            let problem = Problem::new(format!("inputs[{index}]"), "not_allowed", message);
            return Err(problem.allowed(json!(INPUT_FORMS.as_slice())));
        }
    };
    part["metadata"] = json!({"role": input.role});
    Ok(part)
}
