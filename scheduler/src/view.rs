//! What callers see: jobs, events, artifacts and errors as JSON.

use crate::archive::ArchivedJob;
use crate::error::ApiError;
use crate::openapi::{StateDoc, TaskDoc};
use chrono::{DateTime, SecondsFormat};
use longhaul_registry::{MediaSpec, Problem, QuestionKind, SpecCheck, Step, Task, Unit, UsageSource};
use longhaul_store::{
    Artifact, CancelOutcome, Event, Job, JobError, JobRecord, JobState, UsageLine, WaitReason, Waiting, When,
};
use rust_decimal::Decimal;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// An instant as RFC 3339, UTC, to the millisecond.
#[must_use]
pub fn time(ms: i64) -> String {
    let instant = DateTime::from_timestamp_millis(ms).unwrap_or_default();
    instant.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// An instant that the store has resolved.
fn instant(when: When) -> String {
    time(when.resolve(0))
}

/// A decimal as text: every digit, no exponent, no trailing zeros.
#[must_use]
pub fn decimal(value: Decimal) -> String {
    value.normalize().to_string()
}

/// One job.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Job)]
pub struct JobJson {
    /// `job_…`.
    pub id: String,
    /// Where it stands.
    #[schema(value_type = StateDoc)]
    pub state: JobState,
    /// The connector's name.
    pub connector: String,
    /// The vendor's name.
    pub vendor: String,
    /// The kind of work.
    #[schema(value_type = TaskDoc)]
    pub task: Task,
    /// The tenant.
    pub tenant: String,
    /// Paid starts so far.
    pub attempt: u32,
    /// Polls so far.
    pub polls: u32,
    /// Errors of the current step.
    pub errors: u32,
    /// What is due next; null in a final state and when parked.
    pub step: Option<StepJson>,
    /// What holds the due step back; null where nothing does.
    pub waiting: Option<WaitingJson>,
    /// 0 to 1, where the vendor says it.
    pub progress: Option<f32>,
    /// When it is as likely done as not, by how long such jobs took; null where that is not known, or where it has run longer
    /// than nearly all did.
    pub expected_at: Option<String>,
    /// The vendor's id, once known.
    pub vendor_job_id: Option<String>,
    /// The question that stands.
    pub question: Option<QuestionJson>,
    /// The wish to stop.
    pub cancel: Option<CancelJson>,
    /// What was made.
    pub artifacts: Vec<ArtifactJson>,
    /// What was used, over all attempts.
    pub usage: Vec<UsageJson>,
    /// Money booked so far, as a decimal string.
    #[schema(example = "0.035")]
    pub cost_usd: Option<String>,
    /// Why it failed, is parked, or waits.
    pub error: Option<JobErrorJson>,
    /// Free labels.
    pub labels: BTreeMap<String, String>,
    /// The job that this one re-runs.
    pub rerun_of: Option<String>,
    /// The job that re-runs this one.
    pub rerun_by: Option<String>,
    /// Submit.
    pub created_at: String,
    /// First paid start.
    pub started_at: Option<String>,
    /// Final state.
    pub finished_at: Option<String>,
    /// It has left the store and is read from the archive: it changes no more.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub archived: bool,
}

/// The step that is due next.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = NextStep)]
pub struct StepJson {
    /// `start, poll, answer, cancel, outputs`.
    #[schema(value_type = String, example = "poll")]
    pub kind: Step,
    /// When.
    pub due_at: Option<String>,
}

/// Why a due step is not run yet.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Waiting)]
pub struct WaitingJson {
    /// `in_flight, start_rate, request_rate, circuit, cooling, parked, paused, budget, fair_share`.
    #[schema(value_type = String, example = "in_flight")]
    pub reason: WaitReason,
    /// For people.
    #[schema(example = "24 of 24 at the vendor")]
    pub detail: String,
    /// When that ends by itself, where it is known.
    pub until: Option<String>,
}

impl From<Waiting> for WaitingJson {
    fn from(waiting: Waiting) -> Self {
        Self { reason: waiting.reason, detail: waiting.detail, until: waiting.until_ms.map(time) }
    }
}

/// A question that a vendor asks.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Question)]
pub struct QuestionJson {
    /// The vendor's id of the question: goes back in the answer.
    pub id: String,
    /// `text, choice, approval`.
    #[schema(value_type = String, example = "choice")]
    pub kind: QuestionKind,
    /// What is asked.
    pub prompt: String,
    /// The options of a choice.
    pub options: Vec<String>,
    /// When it times out.
    pub deadline: String,
    /// What a time-out answers.
    pub default: Option<String>,
}

/// A wish to stop.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Cancel)]
pub struct CancelJson {
    /// When it was asked for.
    pub requested_at: String,
    /// Why.
    pub reason: Option<String>,
    /// `pending, confirmed, too_late, unsupported`.
    #[schema(value_type = String, example = "confirmed")]
    pub outcome: CancelOutcome,
}

/// Why a job failed, is parked, or waits.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = JobError)]
pub struct JobErrorJson {
    /// A code with a page in docs/errors.
    pub code: String,
    /// The kind of failure.
    pub kind: String,
    /// One sentence.
    pub message: String,
    /// The next thing to try.
    pub hint: Option<String>,
    /// The code's page.
    pub docs: Option<String>,
    /// The vendor's own code or word.
    pub vendor_code: Option<String>,
    /// The vendor's id of the request.
    pub vendor_request_id: Option<String>,
    /// The step it came from.
    #[schema(value_type = String, example = "start")]
    pub step: Step,
}

/// One unit used, summed over attempts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Usage)]
pub struct UsageJson {
    /// The vendor's unit.
    #[schema(value_type = String, example = "credits")]
    pub unit: Unit,
    /// How much, as a decimal string.
    #[schema(example = "3.5")]
    pub quantity: String,
    /// `reported, computed, estimated`.
    #[schema(value_type = String, example = "reported")]
    pub source: UsageSource,
    /// Money, as a decimal string, where it has a price.
    #[schema(example = "0.035")]
    pub usd: Option<String>,
}

/// One artifact.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Artifact)]
pub struct ArtifactJson {
    /// `art_…`.
    pub id: String,
    /// Its job; null for an uploaded input.
    pub job: Option<String>,
    /// Its part in the job.
    pub role: String,
    /// File name.
    pub name: String,
    /// Path below the artifacts root and the tenant.
    pub path: String,
    /// Media type, as the bytes say.
    pub mime: String,
    /// Size.
    pub bytes: u64,
    /// Hex SHA-256.
    pub sha256: String,
    /// Where the bytes are to be had; null for a link.
    pub content: Option<String>,
    /// What the bytes say; unknown members are null.
    #[schema(value_type = Option<Object>)]
    pub spec: Option<MediaSpec>,
    /// Asked against delivered.
    pub spec_check: Option<SpecCheckJson>,
    /// Where it came from.
    #[schema(value_type = Object)]
    pub source: Value,
}

/// Asked against delivered.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = SpecCheck)]
pub struct SpecCheckJson {
    /// No mismatch.
    pub ok: bool,
    /// `{field, asked, got}` of each field that differs.
    #[schema(value_type = Vec<Object>)]
    pub mismatches: Vec<longhaul_registry::Mismatch>,
}

impl From<&SpecCheck> for SpecCheckJson {
    fn from(check: &SpecCheck) -> Self {
        Self { ok: check.ok, mismatches: check.mismatches.clone() }
    }
}

impl JobJson {
    /// A job whole.
    #[must_use]
    pub fn new(record: &JobRecord) -> Self {
        Self::of(&record.job, &record.artifacts, &record.usage)
    }

    /// A job from its parts.
    #[must_use]
    pub fn of(job: &Job, artifacts: &[Artifact], usage: &[UsageLine]) -> Self {
        Self {
            id: job.id.clone(),
            state: job.state,
            connector: job.connector.clone(),
            vendor: job.vendor.clone(),
            task: job.task,
            tenant: job.tenant.clone(),
            attempt: job.attempt,
            polls: job.polls,
            errors: job.errors,
            step: job.step.map(|kind| StepJson { kind, due_at: job.due_at.map(instant) }),
            waiting: None,
            progress: job.progress,
            expected_at: None,
            vendor_job_id: job.vendor_job_id.clone(),
            question: job.question.as_ref().map(QuestionJson::from),
            cancel: job.cancel.as_ref().map(|wish| CancelJson {
                requested_at: instant(wish.requested_at),
                reason: wish.reason.clone(),
                outcome: wish.outcome,
            }),
            artifacts: artifacts.iter().map(ArtifactJson::from).collect(),
            usage: merged(usage),
            cost_usd: job.cost_usd.map(decimal),
            error: job.error.as_ref().map(JobErrorJson::from),
            labels: job.labels.clone(),
            rerun_of: job.rerun_of.clone(),
            rerun_by: job.rerun_by.clone(),
            created_at: instant(job.created_at),
            started_at: job.started_at.map(instant),
            finished_at: job.finished_at.map(instant),
            archived: false,
        }
    }

    /// A job that is in the archive. Its artifacts' rows are gone: the address of their bytes names the job.
    #[must_use]
    pub fn archived(archived: &ArchivedJob) -> Self {
        let mut whole = Self::of(&archived.job, &archived.artifacts, &archived.usage);
        whole.archived = true;
        for artifact in &mut whole.artifacts {
            if let Some(content) = &mut artifact.content {
                content.push_str(&format!("?job={}", archived.job.id));
            }
        }
        whole
    }
}

/// Lines of all attempts, summed by unit and source. Money is null where no line of a sum has a price.
fn merged(lines: &[UsageLine]) -> Vec<UsageJson> {
    let mut sums: BTreeMap<(Unit, UsageSource), (Decimal, Option<Decimal>)> = BTreeMap::new();
    for line in lines {
        let (quantity, usd) = sums.entry((line.unit, line.source)).or_default();
        *quantity = quantity.saturating_add(line.quantity);
        *usd = match (*usd, line.usd) {
            (Some(sum), Some(more)) => Some(sum.saturating_add(more)),
            (sum, more) => sum.or(more),
        };
    }
    let line = |((unit, source), (quantity, usd)): (_, (Decimal, Option<Decimal>))| UsageJson {
        unit,
        quantity: decimal(quantity),
        source,
        usd: usd.map(decimal),
    };
    sums.into_iter().map(line).collect()
}

impl From<&longhaul_store::OpenQuestion> for QuestionJson {
    fn from(open: &longhaul_store::OpenQuestion) -> Self {
        let question = &open.question;
        Self {
            id: question.id.clone(),
            kind: question.kind,
            prompt: question.prompt.clone(),
            options: question.options.clone(),
            deadline: instant(open.deadline),
            default: question.default.clone(),
        }
    }
}

impl From<&JobError> for JobErrorJson {
    fn from(error: &JobError) -> Self {
        let failure = &error.failure;
        let kind = failure.kind.as_str();
        Self {
            code: failure.code.clone(),
            kind: kind.to_owned(),
            message: failure.message.clone(),
            hint: crate::codes::hint(&failure.code, kind),
            docs: crate::codes::docs(&failure.code, kind),
            vendor_code: failure.vendor_code.clone(),
            vendor_request_id: failure.vendor_request_id.clone(),
            step: error.step,
        }
    }
}

impl From<&Artifact> for ArtifactJson {
    fn from(artifact: &Artifact) -> Self {
        let is_link = artifact.source.get("link").is_some_and(|link| !link.is_null());
        Self {
            id: artifact.id.clone(),
            job: artifact.job.clone(),
            role: artifact.role.clone(),
            name: artifact.name.clone(),
            path: artifact.path.clone(),
            mime: artifact.mime.clone(),
            bytes: artifact.bytes,
            sha256: artifact.sha256.clone(),
            content: (!is_link).then(|| format!("/v1/artifacts/{}/content", artifact.id)),
            spec: artifact.spec.clone(),
            spec_check: artifact.spec_check.as_ref().map(SpecCheckJson::from),
            source: artifact.source.clone(),
        }
    }
}

/// One line of a job's history.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Event)]
pub struct EventJson {
    /// The job, in the stream of all jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Its place in the job's history, from 1.
    pub seq: u64,
    /// When.
    pub at: String,
    /// `state, step, progress, message, tool_call, file_edit, question, answer, usage, artifact, warning,
    /// error, notify, operator`.
    pub kind: String,
    /// The step it belongs to.
    #[schema(value_type = Option<String>, example = "poll")]
    pub step: Option<Step>,
    /// The attempt at the time.
    pub attempt: u32,
    /// The content.
    #[schema(value_type = Value)]
    pub data: Value,
    /// The raw exchange beside it: its number, or the exchange itself where asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub raw: Option<Value>,
}

impl EventJson {
    /// A line of one job's history.
    #[must_use]
    pub fn new(event: Event) -> Self {
        Self {
            job: None,
            seq: event.seq,
            at: time(event.at_ms),
            kind: event.kind,
            step: event.step,
            attempt: event.attempt,
            data: event.data,
            raw: event.raw.map(Value::from),
        }
    }

    /// A line in the stream of all jobs.
    #[must_use]
    pub fn with_job(event: Event) -> Self {
        Self { job: Some(event.job.clone()), ..Self::new(event) }
    }
}

/// The envelope of every error.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Error)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorJson,
}

/// What went wrong.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = ErrorDetail)]
pub struct ErrorJson {
    /// A code with a page in docs/errors.
    pub code: String,
    /// One sentence.
    pub message: String,
    /// The next thing to try.
    pub hint: String,
    /// The code's page.
    pub docs: Option<String>,
    /// Everything wrong with the request.
    pub problems: Vec<ProblemJson>,
}

/// One thing wrong with a request.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub struct ProblemJson {
    /// Where, as `media.width` or `inputs[0].url`.
    pub path: String,
    /// A short word.
    pub code: String,
    /// What is wrong and what would be right.
    pub message: String,
    /// The allowed values or ranges, where they can be listed.
    #[schema(value_type = Value)]
    pub allowed: Option<Value>,
}

impl From<&Problem> for ProblemJson {
    fn from(problem: &Problem) -> Self {
        Self {
            path: problem.path.clone(),
            code: problem.code.clone(),
            message: problem.message.clone(),
            allowed: problem.allowed.clone(),
        }
    }
}

impl ErrorBody {
    /// The envelope of an error.
    #[must_use]
    pub fn new(error: &ApiError) -> Self {
        let error = ErrorJson {
            code: error.code.clone(),
            message: error.message.clone(),
            hint: error.hint.clone(),
            docs: crate::codes::docs(&error.code, ""),
            problems: error.problems.iter().map(ProblemJson::from).collect(),
        };
        Self { error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_utc_to_the_millisecond() {
        assert_eq!(time(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(time(1_000_000_000_123), "2001-09-09T01:46:40.123Z");
    }

    #[test]
    fn usage_of_attempts_is_summed_by_unit_and_source() {
        let line = |attempt, unit, quantity: &str, source, usd: Option<&str>| UsageLine {
            attempt,
            record: "r".to_owned(),
            unit,
            quantity: quantity.parse().unwrap(),
            source,
            usd: usd.map(|usd| usd.parse().unwrap()),
        };
        let lines = [
            line(1, Unit::Credits, "3.50", UsageSource::Reported, Some("0.035")),
            line(2, Unit::Credits, "1", UsageSource::Reported, Some("0.01")),
            line(2, Unit::Credits, "9", UsageSource::Estimated, None),
            line(1, Unit::Seconds, "0.1", UsageSource::Computed, None),
        ];
        let sums = merged(&lines);
        let text: Vec<_> =
            sums.iter().map(|sum| (sum.unit.as_str(), sum.quantity.as_str(), sum.usd.as_deref())).collect();
        assert_eq!(text, [("credits", "9", None), ("credits", "4.5", Some("0.045")), ("seconds", "0.1", None)]);
    }
}
