//! Every error code, closed: what it means, what to try next, and its page.

use crate::vocabulary::FailureKind;
use crate::vocabulary::FailureKind::{
    Auth, CapabilityMissing, ContentPolicy, Internal, InvalidRequest, LimitExceeded, ModelUnavailable, Network,
    NotFound, OutputEmpty, OutputExpired, Quota, RateLimited, SpecMismatch, StartUnknown, Timeout, VendorError,
};
use serde::Serialize;

/// One error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Code {
    /// The code, as `error.code` carries it.
    pub code: &'static str,
    /// The kind of failure that a job with this code has, as a rule; `None` where no job has it.
    pub kind: Option<FailureKind>,
    /// The HTTP status with which our API answers it; `None` where it does not.
    pub http: Option<u16>,
    /// One line.
    pub title: &'static str,
    /// The next thing to try.
    pub hint: &'static str,
    /// The page, Markdown.
    #[serde(skip)]
    pub page: &'static str,
}

impl Code {
    /// Where its page stands in the source tree: what `error.docs` carries.
    #[must_use]
    pub fn docs(&self) -> String {
        docs(self.code)
    }
}

/// Where a code's page stands in the source tree: `docs/errors/<code>.md`.
#[must_use]
pub fn docs(code: &str) -> String {
    format!("docs/errors/{code}.md")
}

/// Every code: the kinds first, then finer codes of jobs, then those of the API and of the command line.
#[must_use]
pub fn all() -> &'static [Code] {
    CODES
}

/// One code.
#[must_use]
pub fn get(code: &str) -> Option<&'static Code> {
    CODES.iter().find(|known| known.code == code)
}

/// A code's page, Markdown.
#[must_use]
pub fn page(code: &str) -> Option<&'static str> {
    get(code).map(|code| code.page)
}

/// The next thing to try: the code's own hint, else its kind's.
#[must_use]
pub fn hint(code: &str, kind: FailureKind) -> &'static str {
    get(code).or_else(|| get(kind.as_str())).map_or("", |code| code.hint)
}

macro_rules! codes {
    ($($code:literal, $kind:expr, $http:expr, $title:literal, $hint:literal;)*) => {
        &[$(Code {
            code: $code,
            kind: $kind,
            http: $http,
            title: $title,
            hint: $hint,
            page: include_str!(concat!("../../docs/errors/", $code, ".md")),
        }),*]
    };
}

const CODES: &[Code] = codes! {
    "auth", Some(Auth), None, "The vendor refused the credential",
        "put the right key where the reference points, then `longhaul connectors check NAME` and `resume NAME`";
    "quota", Some(Quota), None, "The account has run out of credit or allowance",
        "top up or raise the plan at the vendor, then `longhaul connectors check NAME`";
    "rate_limited", Some(RateLimited), Some(429), "Too many requests or jobs for the moment",
        "wait as Retry-After says; if it comes back, set the connector's limits to what the plan allows";
    "invalid_request", Some(InvalidRequest), Some(422), "The request is refused as it stands",
        "correct what is listed and submit again; `longhaul vendors show VENDOR` lists what is possible";
    "content_policy", Some(ContentPolicy), None, "The vendor refuses the content",
        "reword the instructions or change the inputs, then `longhaul jobs rerun JOB`";
    "not_found", Some(NotFound), Some(404), "There is nothing by that id",
        "check the id and the token's tenant; pruned records answer the same";
    "model_unavailable", Some(ModelUnavailable), None, "The model or service is not there",
        "name another model; `longhaul vendors show VENDOR` lists retirements";
    "capability_missing", Some(CapabilityMissing), None, "The vendor cannot do what is asked",
        "choose a vendor that can, or mend the setting; `longhaul vendors show VENDOR` lists abilities";
    "vendor_error", Some(VendorError), None, "The vendor failed on its side",
        "look at the vendor's status page, then `longhaul jobs replay JOB --from poll`";
    "network", Some(Network), None, "The network failed on the way",
        "mend the way from the worker to the host, then `longhaul connectors check NAME`";
    "timeout", Some(Timeout), Some(408), "Something took longer than its deadline",
        "nothing if it passes; send large inputs to POST /v1/artifacts first";
    "output_expired", Some(OutputExpired), None, "The output's link is dead",
        "ask again, free: `longhaul jobs replay JOB --from outputs`";
    "same_bytes", Some(OutputExpired), None, "A link led to another job's output",
        "compare both artifacts; ask again, free: `longhaul jobs replay JOB --from outputs`";
    "output_lost", Some(Internal), None, "Bytes that had come are gone",
        "ask again, free: `longhaul jobs replay JOB --from outputs`";
    "storage_unwritable", Some(Internal), None, "Files under way cannot be written",
        "make room on the staging folder's disk or mend its permissions; work goes on by itself";
    "lease_ran_out", Some(Timeout), None, "A call was held back in time",
        "nothing: it goes again by itself; if it comes often, give the worker more CPU or a longer lease";
    "vendor_job_taken", None, Some(409), "That record is another job's",
        "look the id up again at the vendor; one record is one job's";
    "not_cancellable", None, Some(409), "Nobody knows what to cancel",
        "resolve the job first: `longhaul jobs resolve JOB --vendor-job-id ID` or `--outcome give_up`";
    "output_empty", Some(OutputEmpty), None, "The vendor said success and nothing usable was there",
        "look again, free: `longhaul jobs replay JOB --from outputs`";
    "spec_mismatch", Some(SpecMismatch), None, "What came is not what was asked",
        "ask for what the model really makes, or drop strict_spec, then `longhaul jobs rerun JOB`";
    "start_unknown", Some(StartUnknown), None, "Nobody can say whether the paid start was accepted",
        "look at the vendor's console, then decide with `longhaul jobs resolve JOB`";
    "limit_exceeded", Some(LimitExceeded), Some(422), "A limit was passed",
        "raise the job's limits, then `longhaul jobs rerun JOB`";
    "internal", Some(Internal), Some(500), "A fault of our own",
        "report it with the log lines and the job's events; `longhaul doctor` checks the installation";
    "credential_missing", Some(Auth), None, "The credential's reference leads nowhere",
        "set the variable or the file that `credential` names, then `longhaul connectors check NAME`";
    "unreadable_answer", Some(VendorError), None, "The vendor's answer cannot be read",
        "look at the raw answer in the job's events: a proxy's page, or a base_url that is no API?";
    "address_refused", Some(VendorError), None, "An address is not one that may be called",
        "if the host is yours and meant, open it by name in the connector's private_hosts";
    "lost_at_vendor", Some(NotFound), None, "The vendor no longer knows the job",
        "look in the vendor's console, then `longhaul jobs replay JOB --from poll` (free)";
    "journal_unwritable", Some(Internal), None, "A paid start could not be written down, so it was not sent",
        "make room in the worker's staging folder or mend its permissions; the job goes on by itself";
    "start_forgotten", None, None, "The store had forgotten that this start was sent",
        "nothing, unless the job is parked with start_unknown: `longhaul jobs show JOB`";
    "question_timeout", Some(Timeout), None, "Nobody answered the vendor's question in time",
        "give `limits.question_minutes` more, notify on job.needs_input, then `longhaul jobs rerun JOB`";
    "output_truncated", Some(SpecMismatch), None, "The output was cut short",
        "divide the text or take a model with a higher limit, then `longhaul jobs rerun JOB`";
    "output_too_large", Some(SpecMismatch), None, "The output is larger than may be stored",
        "raise `[artifacts] max_bytes`, then `longhaul jobs replay JOB --from outputs` (free)";
    "download_cut", Some(Network), None, "The download broke off",
        "mend the way to the file's host, then `longhaul jobs replay JOB --from outputs` (free)";
    "download_refused", Some(VendorError), None, "The file's host refused the download",
        "see which host refused, then `longhaul jobs replay JOB --from outputs` (free)";
    "input_unreachable", Some(InvalidRequest), None, "An input cannot be had",
        "open the address from the worker's network, or upload the bytes by POST /v1/artifacts";
    "poison", Some(Internal), None, "The job ended several workers in a row",
        "see why the workers died, then `longhaul jobs replay JOB --from poll`";
    "unauthenticated", None, Some(401), "No valid token came with the request",
        "send `Authorization: Bearer <token>`; `longhaul tokens create --role …` makes one";
    "forbidden", None, Some(403), "The token may not do this",
        "use a token with the role and tenant that the message names";
    "method_not_allowed", None, Some(405), "This address does not take this method",
        "use a method that the Allow header lists";
    "idempotency_conflict", None, Some(409), "The Idempotency-Key came before with another body",
        "send a new Idempotency-Key for a new job, or the first body again";
    "path_taken", None, Some(409), "Another job holds this output path",
        "choose another output_path";
    "connector_missing", None, Some(409), "The job's connector is not configured any more",
        "put the connector's section back into longhaul.toml and restart";
    "not_asked", None, Some(409), "The job asks nothing",
        "see what the job does now: `longhaul jobs show JOB`";
    "already_answered", None, Some(409), "The question has its answer",
        "nothing: the first answer stands; `longhaul jobs show JOB`";
    "wrong_question", None, Some(409), "The answer is for another question",
        "read the open question with `longhaul jobs show JOB` and answer that";
    "already_final", None, Some(409), "The job has ended",
        "`longhaul jobs replay JOB` goes on from an ended job, `rerun JOB` makes a new one";
    "job_archived", None, Some(409), "The job is in the archive",
        "`longhaul jobs rerun JOB --reason WHY` makes a new job of its request";
    "not_replayable", None, Some(409), "The job cannot go on from there",
        "replay an ended or parked job; without a vendor_job_id only from start";
    "not_parked", None, Some(409), "The job waits for no decision",
        "see who decided: `longhaul jobs show JOB`";
    "too_large", None, Some(413), "The body is larger than is taken",
        "send less, upload by POST /v1/artifacts, or raise the setting that the message names";
    "range_not_satisfiable", None, Some(416), "The range lies outside the artifact",
        "ask for less, or without Range";
    "invalid_answer", None, Some(422), "The answer does not fit the question",
        "answer with one of the question's options, yes or no, or a text, as its kind says";
    "cost_not_accepted", None, Some(422), "A paid start needs consent",
        "try `--from poll` or `--from outputs` first; if the cost is meant, accept_cost: true";
    "store_damaged", None, Some(500), "The store holds what Longhaul did not write",
        "stop, keep the file, restore a backup (docs/OPERATIONS.md)";
    "busy", None, Some(503), "The job changed again and again while this was tried",
        "send it again";
    "store_unavailable", None, Some(503), "The store does not answer",
        "bring the store back; send it again with the same Idempotency-Key when /readyz answers 200";
    "store_full", None, Some(503), "The store cannot write",
        "make room or mend the permissions; work goes on by itself";
    "store_in_use", None, Some(503), "Another process has this database",
        "stop the other process, or give this one a database of its own";
    "storage_unavailable", None, Some(503), "The artifact storage does not answer",
        "bring the artifact storage back; `longhaul doctor` checks it";
    "config_invalid", None, None, "The configuration has mistakes",
        "correct what is listed; `longhaul vendors show VENDOR` lists a connector's settings";
};
