//! The description of the API, made from the handlers themselves.

use crate::submit::DryRun;
use crate::view::{ErrorBody, JobJson};
use longhaul_registry::{MediaRequest, OnUnknownStart, Task};
use serde::Serialize;
use serde_json::{Map, Value};
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

/// A job, as it is asked for.
#[derive(Serialize, ToSchema)]
#[schema(as = JobRequest)]
pub(crate) struct JobRequestDoc {
    /// The connector's name.
    connector: String,
    /// `image, video, speech, sound, music, transcript, agent.code, agent.research, agent.browse, agent.general`.
    #[schema(value_type = String, example = "image")]
    task: Task,
    /// The prompt. Speech reads the `script` input instead.
    #[schema(required = false, max_length = 262144)]
    instructions: String,
    /// `{format, width, height, aspect, duration_ms, fps, sample_rate, channels, count, seed, voice, language}`.
    #[schema(value_type = Object, required = false)]
    media: MediaRequest,
    /// `{role, url | text | artifact | repo}` each. `url` is `https:` or `data:`.
    #[schema(value_type = Vec<Object>, required = false)]
    inputs: Vec<Value>,
    /// Options passed to the vendor.
    #[schema(value_type = Object, required = false)]
    vendor: Map<String, Value>,
    /// `{max_cost_usd, max_minutes, question_minutes}`; money as a decimal string or a number.
    #[schema(value_type = Object, required = false)]
    limits: Value,
    /// Where the first artifact is placed: a relative path.
    output_path: Option<String>,
    /// Deliverables that an agent owes: `patch, pull_request, file, report, text`.
    #[schema(required = false)]
    expect: Vec<String>,
    /// A spec mismatch is a failure.
    #[schema(required = false)]
    strict_spec: bool,
    /// The tenant; the token's own where it has one.
    tenant: Option<String>,
    /// Higher first among a tenant's fresh starts.
    #[schema(required = false, minimum = -100, maximum = 100)]
    priority: i16,
    /// Free labels.
    #[schema(required = false)]
    labels: BTreeMap<String, String>,
    /// `{url, events}`: where to tell of it.
    #[schema(value_type = Option<Object>)]
    notify: Option<Value>,
    /// `park` or `give_up`.
    #[schema(value_type = String, required = false, example = "park")]
    on_unknown_start: OnUnknownStart,
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
#[schema(as = Reason)]
pub(crate) struct CancelDoc {
    /// Goes into the history.
    reason: Option<String>,
}

/// Where to go on from.
#[derive(Serialize, ToSchema)]
#[schema(as = Replay)]
pub(crate) struct ReplayDoc {
    /// `poll`, `outputs` (both free) or `start` (costs money).
    #[schema(example = "outputs")]
    from: String,
    /// Goes into the history.
    reason: String,
    /// Needed for `start`: it is paid again.
    accept_cost: Option<bool>,
}

/// What to change.
#[derive(Serialize, ToSchema)]
#[schema(as = Rerun)]
pub(crate) struct RerunDoc {
    /// Merged into the first request; null removes.
    #[schema(value_type = Option<Object>)]
    changes: Option<Value>,
    /// Goes into both histories.
    reason: String,
}

/// One of `vendor_job_id` and `outcome`.
#[derive(Serialize, ToSchema)]
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
