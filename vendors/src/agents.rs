//! What the modules of hosted agents share: the checks every agent's request goes through, and the reading
//! of deliverables out of texts and file names.

use longhaul_registry::{ArtifactDraft, DraftSource, JobRequest, MediaRequest, Problem, Task};
use serde_json::{Value, json};

/// The tasks of agents.
pub(crate) const TASKS: [Task; 4] = [Task::AgentCode, Task::AgentResearch, Task::AgentBrowse, Task::AgentGeneral];

/// The deliverables that `expect` may name.
pub(crate) const EXPECTABLE: [&str; 5] = ["patch", "pull_request", "file", "report", "text"];

/// Checks what is the same for every hosted agent: an agent's task, instructions, no media, known deliverables.
pub(crate) fn check_request(request: &JobRequest, problems: &mut Vec<Problem>) {
    if !TASKS.contains(&request.task) {
        let allowed: Vec<_> = TASKS.iter().map(|task| task.as_str()).collect();
        let message = format!("an agent does not do the task `{}`; name one of an agent's tasks", request.task);
        problems.push(Problem::new("task", "not_allowed", message).allowed(json!(allowed)));
    }
    if request.instructions.trim().is_empty() {
        problems.push(Problem::new("instructions", "missing", "an agent needs instructions: say what it shall do"));
    }
    for field in media_fields(&request.media) {
        let message = "an agent takes no media settings: say it in the instructions and leave this out";
        problems.push(Problem::new(format!("media.{field}"), "not_allowed", message));
    }
    for (index, expected) in request.expect.iter().enumerate() {
        if !EXPECTABLE.contains(&expected.as_str()) {
            let message = format!("`{expected}` is no deliverable of an agent");
            problems.push(
                Problem::new(format!("expect[{index}]"), "not_allowed", message).allowed(json!(EXPECTABLE.as_slice())),
            );
        }
    }
}

/// The names of the media fields that are set.
fn media_fields(media: &MediaRequest) -> Vec<String> {
    match serde_json::to_value(media) {
        Ok(Value::Object(fields)) => fields.into_iter().map(|(name, _)| name).collect(),
        _ => Vec::new(),
    }
}

/// Whether `expect` names a deliverable.
pub(crate) fn expects(request: &JobRequest, deliverable: &str) -> bool {
    request.expect.iter().any(|expected| expected == deliverable)
}

/// A text as drafts: under each of `report` and `text` that is expected, as `text` where neither is.
pub(crate) fn text_drafts(request: &JobRequest, name: Option<&str>, text: &str) -> Vec<ArtifactDraft> {
    let mut roles: Vec<&str> = ["report", "text"].into_iter().filter(|role| expects(request, role)).collect();
    if roles.is_empty() {
        roles.push("text");
    }
    roles
        .into_iter()
        .map(|role| {
            let mut draft = ArtifactDraft::new(role, DraftSource::Text { text: text.to_owned() });
            draft.name = name.map(str::to_owned);
            draft
        })
        .collect()
}

/// The role of an agent's file: `patch` by its name or media type, else `file`.
pub(crate) fn file_role(name: Option<&str>, mime: Option<&str>) -> &'static str {
    let name = name.unwrap_or_default().to_ascii_lowercase();
    let mime = mime.unwrap_or_default();
    let is_patch = name.ends_with(".patch")
        || name.ends_with(".diff")
        || mime.starts_with("text/x-diff")
        || mime.starts_with("text/x-patch");
    if is_patch { "patch" } else { "file" }
}

/// Puts the expected deliverables first, in the order in which they are expected: the first output takes
/// the job's `output_path`.
pub(crate) fn order(request: &JobRequest, drafts: &mut [ArtifactDraft]) {
    let rank = |draft: &ArtifactDraft| request.expect.iter().position(|role| *role == draft.role).unwrap_or(usize::MAX);
    drafts.sort_by_key(rank);
}

/// The pull requests a text names, each once, in order. Where the job has repositories, only theirs: an
/// agent may mention others.
pub(crate) fn pull_requests(request: &JobRequest, text: &str) -> Vec<String> {
    let repos: Vec<&str> = request.inputs.iter().filter_map(|input| input.repo.as_deref()).collect();
    let mut found: Vec<String> = Vec::new();
    for (start, _) in text.match_indices("https://") {
        let rest = &text[start..];
        let end = rest.find(|c: char| c.is_whitespace() || "<>()[]{}\"'`,;|".contains(c)).unwrap_or(rest.len());
        let Some(link) = pull_request(&rest[..end]) else { continue };
        let ours = repos.is_empty() || repos.iter().any(|repo| link.contains(&format!("/{repo}/")));
        if ours && !found.contains(&link) {
            found.push(link);
        }
    }
    found
}

/// The link up to its number, where it is a pull or merge request's.
fn pull_request(link: &str) -> Option<String> {
    for mark in ["/pull/", "/-/merge_requests/"] {
        if let Some((front, back)) = link.split_once(mark) {
            let number: String = back.chars().take_while(char::is_ascii_digit).collect();
            return (!number.is_empty()).then(|| format!("{front}{mark}{number}"));
        }
    }
    None
}

/// A text of at most so many characters; what is left out is shown as an ellipsis.
pub(crate) fn clip(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::request;

    #[test]
    fn pull_requests_are_those_of_the_jobs_repositories() {
        let text = "Like https://github.com/acme/other/pull/3, see [PR](https://github.com/acme/demo/pull/41/files). \
                    Again: https://github.com/acme/demo/pull/41. Docs: https://github.com/acme/demo/pulls";
        let mut body = json!({"task": "agent.code", "inputs": [{"role": "repo", "repo": "acme/demo"}]});
        assert_eq!(pull_requests(&request(body.clone()), text), ["https://github.com/acme/demo/pull/41"]);
        body["inputs"] = json!([]);
        let any = pull_requests(&request(body), text);
        assert_eq!(any, ["https://github.com/acme/other/pull/3", "https://github.com/acme/demo/pull/41"]);
        let gitlab = "done: https://gitlab.example/a/b/-/merge_requests/7!";
        let open = request(json!({"task": "agent.code"}));
        assert_eq!(pull_requests(&open, gitlab), ["https://gitlab.example/a/b/-/merge_requests/7"]);
    }

    #[test]
    fn patches_are_told_by_name_or_type() {
        assert_eq!(file_role(Some("changes.PATCH"), None), "patch");
        assert_eq!(file_role(Some("a.txt"), Some("text/x-diff; charset=utf-8")), "patch");
        assert_eq!(file_role(Some("a.txt"), Some("text/plain")), "file");
        assert_eq!(file_role(None, None), "file");
    }

    #[test]
    fn clipping_counts_characters_not_bytes() {
        assert_eq!(clip("äöü", 3), "äöü");
        assert_eq!(clip("äöüß", 3), "äöü…");
    }

    #[test]
    fn every_fault_of_a_request_is_named() {
        let mut problems = Vec::new();
        let body = json!({"task": "image", "media": {"width": 1, "seed": 2}, "expect": ["patch", "poem"]});
        check_request(&request(body), &mut problems);
        let paths: Vec<_> = problems.iter().map(|problem| problem.path.as_str()).collect();
        assert_eq!(paths, ["task", "instructions", "media.seed", "media.width", "expect[1]"]);
        assert_eq!(problems[0].allowed, Some(json!(["agent.code", "agent.research", "agent.browse", "agent.general"])));
        assert_eq!(problems[4].allowed, Some(json!(["patch", "pull_request", "file", "report", "text"])));
    }
}
