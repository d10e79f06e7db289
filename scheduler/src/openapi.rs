//! The description of the API, made from the handlers themselves.

use crate::submit::DryRun;
use crate::view::{ErrorBody, JobJson};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, ContentBuilder, InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder, Ref, RefOr, Response,
    ResponseBuilder, SecurityRequirement,
};
use utoipa::{PartialSchema, ToSchema};

/// The OpenAPI 3.1 document, as `/openapi.json` answers it and `docs/openapi.json` keeps it.
#[must_use]
pub fn openapi() -> String {
    let (_, mut document) = crate::router::described().split_for_parts();
    add_common_answers(&mut document);
    // The document is plain data: writing it cannot fail.
    let mut text = document.to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}

/// What the document begins with.
pub(crate) fn head() -> OpenApi {
    let about = "Submit jobs that run long at somebody else's API, follow them, answer their questions, and get \
                 their outputs. Errors have one shape everywhere; money and usage are decimal strings; times are \
                 RFC 3339 in UTC.";
    let licence = LicenseBuilder::new().name("Apache-2.0").identifier(Some("Apache-2.0")).build();
    let info = InfoBuilder::new()
        .title("Longhaul")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(about))
        .license(Some(licence))
        .build();
    let token = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    let components = ComponentsBuilder::new()
        .security_scheme("token", token)
        .schema(ErrorBody::name().into_owned(), ErrorBody::schema())
        .build();
    OpenApiBuilder::new()
        .info(info)
        .components(Some(components))
        .security(Some([SecurityRequirement::new::<_, [String; 0], String>("token", [])]))
        .build()
}

/// Answers that every call may give.
fn add_common_answers(document: &mut OpenApi) {
    for (path, item) in &mut document.paths.paths {
        let operations: [&mut Option<Operation>; 4] = [&mut item.get, &mut item.post, &mut item.put, &mut item.delete];
        for operation in operations.into_iter().flatten() {
            let answers = &mut operation.responses.responses;
            let mut add = |status: &str, about: &str| {
                answers.entry(status.to_owned()).or_insert_with(|| RefOr::T(error_answer(about)));
            };
            add("500", "A fault of the server");
            if path.starts_with("/v1/") {
                add("401", "No token, or an unknown one");
                add("403", "The token's role or tenant does not allow it");
                add("422", "The request is wrong: `problems` lists every place");
                add("503", "The store or the storage cannot take it now; send it again");
            }
        }
    }
}

fn error_answer(about: &str) -> Response {
    let schema = Ref::from_schema_name(ErrorBody::name());
    let content = ContentBuilder::new().schema(Some(schema)).build();
    ResponseBuilder::new().description(about).content("application/json", content).build()
}

/// Where a job stands.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = JobState)]
#[expect(dead_code, reason = "only described, never made")]
pub(crate) enum StateDoc {
    Queued,
    Starting,
    Running,
    NeedsInput,
    Collecting,
    Succeeded,
    Failed,
    Cancelled,
    LimitExceeded,
    Parked,
}

/// The kind of work.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Task)]
#[expect(dead_code, reason = "only described, never made")]
pub(crate) enum TaskDoc {
    Image,
    Video,
    Speech,
    Sound,
    Music,
    Transcript,
    #[serde(rename = "agent.code")]
    AgentCode,
    #[serde(rename = "agent.research")]
    AgentResearch,
    #[serde(rename = "agent.browse")]
    AgentBrowse,
    #[serde(rename = "agent.general")]
    AgentGeneral,
}

/// A job, as it is asked for.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = JobRequest)]
pub(crate) struct JobRequestDoc {
    /// The connector's name.
    #[schema(example = "flux")]
    connector: String,
    task: TaskDoc,
    /// The prompt. Speech reads the `script` input instead.
    #[schema(max_length = 1_000_000)]
    instructions: Option<String>,
    media: Option<MediaDoc>,
    #[schema(max_items = 100)]
    inputs: Option<Vec<InputDoc>>,
    /// Options passed to the vendor: `GET /v1/vendors` lists them.
    #[schema(value_type = Option<Object>)]
    vendor: Option<Value>,
    limits: Option<LimitsDoc>,
    /// Where the first artifact is placed, below the tenant's part of the artifacts root: a relative path.
    #[schema(max_length = 512, example = "assets/hero.png")]
    output_path: Option<String>,
    /// Deliverables that an agent owes: `patch, pull_request, file, report, text`.
    expect: Option<Vec<String>>,
    /// A spec mismatch is a failure.
    strict_spec: Option<bool>,
    /// The tenant; the token's own where it has one.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
    tenant: Option<String>,
    /// Higher first among a tenant's fresh starts.
    #[schema(minimum = -100, maximum = 100)]
    priority: Option<i16>,
    /// Free labels, at most 64.
    labels: Option<BTreeMap<String, String>>,
    notify: Option<NotifyDoc>,
    /// What becomes of a start whose acceptance nobody can tell: `park` (the default) or `give_up`.
    #[schema(pattern = "^(park|give_up)$")]
    on_unknown_start: Option<String>,
}

/// The media asked for. A value that the vendor cannot make is refused.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = MediaRequest)]
pub(crate) struct MediaDoc {
    /// `png, jpeg, webp, mp4, mp3, wav, …`.
    format: Option<String>,
    /// Pixels.
    #[schema(minimum = 1)]
    width: Option<u32>,
    /// Pixels.
    #[schema(minimum = 1)]
    height: Option<u32>,
    /// `W:H`.
    #[schema(example = "16:9")]
    aspect: Option<String>,
    /// Milliseconds.
    #[schema(minimum = 1)]
    duration_ms: Option<u64>,
    /// Frames a second.
    #[schema(minimum = 1)]
    fps: Option<u32>,
    /// Hertz.
    #[schema(minimum = 1)]
    sample_rate: Option<u32>,
    /// Audio channels.
    #[schema(minimum = 1)]
    channels: Option<u16>,
    /// How many outputs.
    #[schema(minimum = 1)]
    count: Option<u32>,
    /// Exact over the whole 64-bit range.
    seed: Option<u64>,
    /// A voice id of the vendor.
    voice: Option<String>,
    /// A language code.
    #[schema(example = "en")]
    language: Option<String>,
}

/// One input: exactly one of `url`, `text`, `artifact` and `repo` stands in it.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Input)]
pub(crate) struct InputDoc {
    /// `reference, first_frame, last_frame, mask, audio, script, repo, file, …`.
    #[schema(example = "reference")]
    role: String,
    /// `https:` or `data:`.
    url: Option<String>,
    /// A text.
    text: Option<String>,
    /// The id of an uploaded or earlier artifact.
    artifact: Option<String>,
    /// `owner/name` of a repository.
    repo: Option<String>,
}

/// Limits of one job.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Limits)]
pub(crate) struct LimitsDoc {
    /// Money: a decimal string, or a number read by its own digits. A breach cancels at the vendor.
    #[schema(value_type = Value, example = "0.50")]
    max_cost_usd: Option<Value>,
    /// Wall-clock minutes from the first paid start. A breach cancels at the vendor.
    #[schema(minimum = 1)]
    max_minutes: Option<u32>,
    /// How long a question may stand; 10 by default.
    #[schema(minimum = 1)]
    question_minutes: Option<u32>,
}

/// Where to tell of it.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Notify)]
pub(crate) struct NotifyDoc {
    /// An `https:` address.
    url: String,
    /// `job.finished`, `job.needs_input`; both where left out.
    events: Option<Vec<String>>,
}

/// What a submission answers with 200.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only described, never made")]
pub(crate) enum SubmitAnswer {
    /// The job that came with the key before.
    Job(Box<JobJson>),
    /// What a dry run found.
    DryRun(DryRun),
}

/// An answer to a question: one of `text`, `choice` and `approve`.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Answer)]
pub(crate) struct AnswerDoc {
    /// Which question.
    question_id: String,
    /// Free text.
    text: Option<String>,
    /// One of the options.
    choice: Option<String>,
    /// Yes or no.
    approve: Option<bool>,
}

/// A reason.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Reason)]
pub(crate) struct CancelDoc {
    /// Goes into the history.
    #[schema(min_length = 1, max_length = 2000, pattern = "[^ ]")]
    reason: Option<String>,
}

/// Where to go on from.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Replay)]
pub(crate) struct ReplayDoc {
    /// `poll`, `outputs` (both free) or `start` (costs money); the cheapest that can help where left out.
    #[schema(example = "outputs", min_length = 1)]
    from: Option<String>,
    /// Goes into the history.
    #[schema(min_length = 1, max_length = 2000, pattern = "[^ ]")]
    reason: String,
    /// Needed for `start`: it is paid again.
    accept_cost: Option<bool>,
}

/// What to change.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Rerun)]
pub(crate) struct RerunDoc {
    /// Merged into the first request; null removes.
    #[schema(value_type = Option<Object>)]
    changes: Option<Value>,
    /// Goes into both histories.
    #[schema(min_length = 1, max_length = 2000, pattern = "[^ ]")]
    reason: String,
}

/// One of `vendor_job_id` and `outcome`.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Resolve)]
pub(crate) struct ResolveDoc {
    /// It ran: the vendor's id of the job.
    vendor_job_id: Option<String>,
    /// `start_again` or `give_up`.
    outcome: Option<String>,
    /// Needed for `start_again`: it may be paid twice.
    accept_cost: Option<bool>,
}

/// Sums of the ledger.
#[derive(Serialize, ToSchema)]
#[schema(as = UsageList)]
pub(crate) struct UsageDoc {
    /// The groups asked for, then `unit`, `quantity`, `usd` and `lines`.
    #[schema(value_type = Vec<Object>)]
    usage: Vec<Value>,
    /// Always null: there is one page.
    next_cursor: Option<String>,
}
