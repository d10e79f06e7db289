//! What every vendor asks of a job's request. What only one vendor asks, its module checks.

use crate::address::{is_plainly_private, read, read_host};
use crate::connector::{Connector, VendorFile};
use crate::nearest::nearest;
use crate::path::{item, join};
use crate::rules::{Found, MAX_MINUTES, is_name};
use crate::vocabulary::{Input, JobRequest, MediaRequest, Problem, Task};
use rust_decimal::Decimal;
use serde_json::Value;

/// Deliverables that an agent may owe.
pub const EXPECTS: [&str; 5] = ["patch", "pull_request", "file", "report", "text"];
/// Events that an orchestrator may be told of.
pub const NOTIFY_EVENTS: [&str; 2] = ["job.finished", "job.needs_input"];
/// Every code that a [`Problem`] of this crate has.
pub const PROBLEM_CODES: [&str; 11] = [
    "conflict",
    "empty",
    "missing",
    "model_unavailable",
    "not_allowed",
    "not_supported",
    "not_toml",
    "out_of_range",
    "too_long",
    "unknown_key",
    "wrong_type",
];

const MAX_INSTRUCTIONS: usize = 1_000_000;
const MAX_INPUTS: usize = 100;
const MAX_LABELS: usize = 64;
const MAX_PATH_BYTES: usize = 512;
const MAX_URL_BYTES: usize = 8192;
/// A question may stand for a week.
const MAX_QUESTION_MINUTES: u32 = 10_080;

/// What is wrong with a request at an installed connector: all of [`check_request`] and
/// [`crate::check_options`]. Addresses may be http where the connector's `private_hosts`, or its base URL with
/// `allow_private_network`, open exactly that host and port.
#[must_use]
pub fn check_job(request: &JobRequest, connector: &Connector) -> Vec<Problem> {
    let base = connector.allow_private_network.then(|| door(&connector.base_url)).flatten();
    let hosts = connector.private_hosts.iter().filter_map(|host| match read_host(host) {
        Some((host, Some(port))) => Some((host.to_lowercase(), port)),
        _ => None,
    });
    let doors: Vec<_> = hosts.chain(base).collect();
    let mut problems = check_against(request, &connector.vendor, &doors);
    problems.extend(crate::check_options(&connector.vendor, &request.vendor));
    problems
}

/// What is wrong with a request whatever its vendor; [`crate::check_options`] checks the `vendor` part.
#[must_use]
pub fn check_request(request: &JobRequest, vendor: &VendorFile) -> Vec<Problem> {
    check_against(request, vendor, &[])
}

/// A private host and port that were opened by name.
type Door = (String, u16);

fn door(url: &str) -> Option<Door> {
    let address = read(url).ok()?;
    Some((address.host.to_lowercase(), address.port()))
}

fn check_against(request: &JobRequest, vendor: &VendorFile, doors: &[Door]) -> Vec<Problem> {
    let mut found = Found::default();
    check_task(request, vendor, &mut found);
    check_text(request, &mut found);
    check_media(&request.media, vendor, &mut found);
    check_inputs(&request.inputs, doors, &mut found);
    check_limits(request, &mut found);
    if let Some(wrong) = request.output_path.as_deref().and_then(wrong_path) {
        found.0.push(Problem::new("output_path", "not_allowed", wrong));
    }
    check_expect(request, &mut found);
    found.unless((-100..=100).contains(&request.priority), "priority", "out_of_range", "this must be -100 to 100");
    if let Some(tenant) = &request.tenant {
        let message = "a tenant is letters, digits, `_`, `-` and `.`, at most 64, and begins with a letter or digit";
        found.unless(is_tenant(tenant), "tenant", "not_allowed", message);
    }
    check_labels(request, &mut found);
    check_notify(request, doors, &mut found);
    found.0
}

/// Whether a text can be a tenant's name: it becomes a folder below the artifacts root.
#[must_use]
pub fn is_tenant(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
}

fn check_task(request: &JobRequest, vendor: &VendorFile, found: &mut Found) {
    if vendor.tasks.contains(&request.task) {
        return;
    }
    let tasks: Vec<_> = vendor.tasks.iter().map(|task| task.as_str()).collect();
    let message = format!("{} does no {}; it does {}", vendor.title, request.task, tasks.join(", "));
    found.0.push(Problem::new("task", "not_allowed", message).allowed(tasks));
}

fn is_agent(task: Task) -> bool {
    matches!(task, Task::AgentCode | Task::AgentResearch | Task::AgentBrowse | Task::AgentGeneral)
}

/// What the task must be given: a script, audio, or words.
fn check_text(request: &JobRequest, found: &mut Found) {
    let inputs_of = |role: &str| request.inputs.iter().filter(|input| input.role == role).count();
    let is_blank = request.instructions.trim().is_empty();
    match request.task {
        Task::Speech => match inputs_of("script") {
            0 => {
                let message = "speech speaks the input with role `script`, never the instructions: give one";
                found.0.push(Problem::new("inputs", "missing", message));
            }
            1 => {}
            _ => {
                found.0.push(Problem::new("inputs", "conflict", "speech speaks one input with role `script`, not more"))
            }
        },
        Task::Transcript => {
            let message = "a transcript needs an input with role `audio`";
            found.unless(inputs_of("audio") > 0, "inputs", "missing", message);
        }
        // A picture to work on may say enough.
        Task::Image | Task::Video => {
            let says_something = !is_blank || !request.inputs.is_empty();
            found.unless(says_something, "instructions", "missing", "say what is to be made");
        }
        Task::Sound | Task::Music => {
            found.unless(!is_blank, "instructions", "missing", "say what is to be made");
        }
        Task::AgentCode | Task::AgentResearch | Task::AgentBrowse | Task::AgentGeneral => {
            found.unless(!is_blank, "instructions", "missing", "say what is to be done");
        }
    }
    check_length("instructions", &request.instructions, MAX_INSTRUCTIONS, found);
    found.unless(
        !request.instructions.contains('\0'),
        "instructions",
        "not_allowed",
        "this must hold no NUL character",
    );
}

fn check_length(path: &str, text: &str, max: usize, found: &mut Found) {
    // Counting the characters of a long text is only needed where its bytes do not settle it.
    let chars = if text.len() <= max { return } else { text.chars().count() };
    if chars > max {
        let message = format!("{chars} characters are too many; at most {max} are taken");
        found.0.push(Problem::new(path, "too_long", message).allowed(format!("at most {max} characters")));
    }
}

fn check_media(media: &MediaRequest, vendor: &VendorFile, found: &mut Found) {
    if let Some(format) = &media.format {
        check_format(format, vendor, found);
    }
    let numbers = [
        ("width", media.width.map(u64::from), 65_535),
        ("height", media.height.map(u64::from), 65_535),
        ("duration_ms", media.duration_ms, 86_400_000),
        ("fps", media.fps.map(u64::from), 1000),
        ("sample_rate", media.sample_rate.map(u64::from), 768_000),
        ("channels", media.channels.map(u64::from), 64),
        ("count", media.count.map(u64::from), 1000),
    ];
    for (key, number, max) in numbers {
        let fits = number.is_none_or(|number| (1..=max).contains(&number));
        if !fits {
            let range = format!("1 to {max}");
            let problem = Problem::new(join("media", key), "out_of_range", format!("this must be {range}"));
            found.0.push(problem.allowed(range));
        }
    }
    if let Some(aspect) = &media.aspect {
        found.unless(
            is_aspect(aspect),
            "media.aspect",
            "not_allowed",
            "this must be W:H in whole numbers, such as 16:9",
        );
    }
    if let Some(language) = &media.language {
        let is_code = (2..=35).contains(&language.len())
            && language.split('-').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric()));
        found.unless(is_code, "media.language", "not_allowed", "this must be a language code, such as en or pt-BR");
    }
    if let Some(voice) = &media.voice {
        let is_id = !voice.trim().is_empty() && voice.len() <= 200 && !voice.chars().any(char::is_control);
        found.unless(is_id, "media.voice", "not_allowed", "this must be a voice id of the vendor, at most 200 bytes");
    }
}

fn check_format(format: &str, vendor: &VendorFile, found: &mut Found) {
    if vendor.formats.iter().any(|known| known == format) {
        return;
    }
    let formats: Vec<_> = vendor.formats.iter().map(String::as_str).collect();
    let message = if formats.is_empty() {
        format!("{} makes no media of a format that can be asked for: leave it out", vendor.title)
    } else {
        let format = format.to_lowercase();
        let alias = if format == "jpg" { "jpeg" } else { format.as_str() };
        let near = nearest(alias, formats.iter().copied());
        let hint = near.map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
        format!("{} does not make this format; {hint}it makes {}", vendor.title, formats.join(", "))
    };
    found.0.push(Problem::new("media.format", "not_allowed", message).allowed(formats));
}

fn is_aspect(text: &str) -> bool {
    let is_side = |side: &str| {
        (1..=5).contains(&side.len()) && side.bytes().all(|b| b.is_ascii_digit()) && side.bytes().any(|b| b != b'0')
    };
    text.split_once(':').is_some_and(|(w, h)| is_side(w) && is_side(h))
}

fn check_inputs(inputs: &[Input], doors: &[Door], found: &mut Found) {
    let message = format!("{} inputs are too many; at most {MAX_INPUTS} are taken", inputs.len());
    found.unless(inputs.len() <= MAX_INPUTS, "inputs", "too_long", message);
    for (index, input) in inputs.iter().enumerate() {
        let path = item("inputs", index);
        let message = "a role is a word of small letters, digits and `_`, such as reference, first_frame or script";
        found.unless(is_name(&input.role), &join(&path, "role"), "not_allowed", message);
        check_source(&path, input, doors, found);
    }
}

fn check_source(path: &str, input: &Input, doors: &[Door], found: &mut Found) {
    let sources = [("url", &input.url), ("text", &input.text), ("artifact", &input.artifact), ("repo", &input.repo)];
    let given: Vec<_> = sources.iter().filter_map(|(key, value)| Some((*key, value.as_deref()?))).collect();
    let keys: Vec<_> = sources.iter().map(|(key, _)| Value::from(*key)).collect();
    match given.as_slice() {
        [] => {
            let problem = Problem::new(path, "missing", "an input has one of url, text, artifact and repo");
            found.0.push(problem.allowed(keys));
        }
        [("url", url)] => {
            if let Some(wrong) = wrong_input_url(url, doors) {
                found.0.push(Problem::new(join(path, "url"), "not_allowed", wrong));
            }
        }
        [("text", text)] => found.text(&join(path, "text"), text),
        [("artifact", id)] => {
            let is_id = id.strip_prefix("art_").is_some_and(|rest| {
                (1..=64).contains(&rest.len())
                    && rest.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            });
            let message = "this must be the id of an artifact, art_…: upload with POST /v1/artifacts";
            found.unless(is_id, &join(path, "artifact"), "not_allowed", message);
        }
        [("repo", repo)] => {
            let message = "this must be owner/name of a repository";
            found.unless(is_repo(repo), &join(path, "repo"), "not_allowed", message);
        }
        _ => {
            let problem = Problem::new(path, "conflict", "an input has exactly one of url, text, artifact and repo");
            found.0.push(problem.allowed(keys));
        }
    }
}

/// What is wrong with an input's address: one that may be fetched, or `data:`.
fn wrong_input_url(url: &str, doors: &[Door]) -> Option<&'static str> {
    if url.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:")) {
        return (!url.contains(',')).then_some("a data: address is data:<type>;base64,<bytes>");
    }
    wrong_url(url, doors)
}

/// What is wrong with an address of the orchestrator's.
fn wrong_url(url: &str, doors: &[Door]) -> Option<&'static str> {
    if url.len() > MAX_URL_BYTES {
        return Some("this address is longer than 8192 bytes");
    }
    let address = match read(url) {
        Err(wrong) => return Some(wrong),
        Ok(address) => address,
    };
    let is_open = doors.iter().any(|(host, port)| address.host.eq_ignore_ascii_case(host) && address.port() == *port);
    if is_open {
        None
    } else if !address.is_https {
        Some("this must begin with https://; http is for a host in the connector's private_hosts")
    } else if is_plainly_private(address.host) {
        Some("this address is private: name its host:port in the connector's private_hosts if it is meant")
    } else {
        None
    }
}

fn is_repo(repo: &str) -> bool {
    let is_part = |part: &str| {
        (1..=100).contains(&part.len())
            && part != "."
            && part != ".."
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
    };
    repo.split_once('/').is_some_and(|(owner, name)| is_part(owner) && is_part(name))
}

fn check_limits(request: &JobRequest, found: &mut Found) {
    let limits = &request.limits;
    let is_money = limits.max_cost_usd.is_none_or(|usd| usd > Decimal::ZERO);
    found.unless(is_money, "limits.max_cost_usd", "out_of_range", "this must be above 0");
    let minutes = [
        ("limits.max_minutes", limits.max_minutes, MAX_MINUTES),
        ("limits.question_minutes", limits.question_minutes, MAX_QUESTION_MINUTES),
    ];
    for (path, minutes, max) in minutes {
        if minutes.is_some_and(|minutes| !(1..=max).contains(&minutes)) {
            let range = format!("1 to {max}");
            found.0.push(Problem::new(path, "out_of_range", format!("this must be {range} minutes")).allowed(range));
        }
    }
}

/// What is wrong with an output path.
fn wrong_path(path: &str) -> Option<&'static str> {
    let has_drive = path.as_bytes().get(1) == Some(&b':');
    if path.is_empty() || path.len() > MAX_PATH_BYTES {
        return Some("this must be 1 to 512 bytes long");
    }
    if path.starts_with('/') || has_drive {
        return Some("this must be relative: it lies below the tenant's part of the artifacts root");
    }
    if path.chars().any(|c| c.is_control() || c == '\\') {
        return Some("this must have no backslashes and no control characters; folders are divided by `/`");
    }
    if path.split('/').any(|part| matches!(part, "" | "." | "..") || part.len() > 255 || part.trim() != part) {
        return Some("each part must be a name of at most 255 bytes, not `.` or `..`, without spaces around it");
    }
    None
}

fn check_expect(request: &JobRequest, found: &mut Found) {
    let is_owed = request.expect.is_empty() || is_agent(request.task);
    found.unless(
        is_owed,
        "expect",
        "conflict",
        "deliverables are owed by agents; media jobs owe what `media` asks for",
    );
    check_words("expect", &request.expect, &EXPECTS, found);
}

fn check_words(path: &str, words: &[String], known: &[&str], found: &mut Found) {
    for (index, word) in words.iter().enumerate() {
        let path = item(path, index);
        if !known.contains(&word.as_str()) {
            let near = nearest(word, known.iter().copied());
            let hint = near.map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
            let message = format!("this word is not known; {hint}allowed are {}", known.join(", "));
            found.0.push(Problem::new(path, "not_allowed", message).allowed(Value::from(known.to_vec())));
        } else if words.iter().take(index).any(|earlier| earlier == word) {
            found.0.push(Problem::new(path, "conflict", "this stands here twice"));
        }
    }
}

fn check_labels(request: &JobRequest, found: &mut Found) {
    let count = request.labels.len();
    let message = format!("{count} labels are too many; at most {MAX_LABELS} are kept");
    found.unless(count <= MAX_LABELS, "labels", "too_long", message);
    for (key, value) in request.labels.iter().take(MAX_LABELS) {
        let path = join("labels", key);
        let is_key = (1..=64).contains(&key.len())
            && key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'/'));
        let message = "a label's key is letters, digits, `_`, `-`, `.` and `/`, at most 64";
        found.unless(is_key, &path, "not_allowed", message);
        let is_value = value.len() <= 256 && !value.chars().any(char::is_control);
        let message = "a label's value is at most 256 bytes without control characters";
        found.unless(is_value, &path, "not_allowed", message);
    }
}

fn check_notify(request: &JobRequest, doors: &[Door], found: &mut Found) {
    let Some(notify) = &request.notify else { return };
    if let Some(wrong) = wrong_url(&notify.url, doors) {
        found.0.push(Problem::new("notify.url", "not_allowed", wrong));
    }
    let message = "this list is empty: name an event or leave `events` out for both";
    found.unless(!notify.events.is_empty(), "notify.events", "empty", message);
    check_words("notify.events", &notify.events, &NOTIFY_EVENTS, found);
}
