//! Failure on two axes: what kind it is, and what to do about it.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// What kind of failure it is: a closed set, fit for a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The credential was refused.
    Auth,
    /// The account has run out of credit or of a long allowance.
    Quota,
    /// Too many requests or too many jobs for the moment.
    RateLimited,
    /// The vendor refuses the request as it stands.
    InvalidRequest,
    /// The vendor refuses the content, asked or made.
    ContentPolicy,
    /// The vendor does not know the record.
    NotFound,
    /// The model does not exist or is withdrawn.
    ModelUnavailable,
    /// The vendor cannot do what is asked of it.
    CapabilityMissing,
    /// The vendor failed on its side.
    VendorError,
    /// The network failed between us and the vendor.
    Network,
    /// A deadline of ours passed.
    Timeout,
    /// The output's link is dead.
    OutputExpired,
    /// Success was said and nothing usable was there.
    OutputEmpty,
    /// What came is not what was asked.
    SpecMismatch,
    /// Nobody can say whether the paid start was accepted.
    StartUnknown,
    /// A limit of the job was passed.
    LimitExceeded,
    /// A fault of our own.
    Internal,
}

impl FailureKind {
    /// Every kind, in the order of the design page's table.
    pub const ALL: [FailureKind; 17] = [
        Self::Auth,
        Self::Quota,
        Self::RateLimited,
        Self::InvalidRequest,
        Self::ContentPolicy,
        Self::NotFound,
        Self::ModelUnavailable,
        Self::CapabilityMissing,
        Self::VendorError,
        Self::Network,
        Self::Timeout,
        Self::OutputExpired,
        Self::OutputEmpty,
        Self::SpecMismatch,
        Self::StartUnknown,
        Self::LimitExceeded,
        Self::Internal,
    ];

    /// The word on the wire, in metrics and in docs/errors.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::Quota => "quota",
            Self::RateLimited => "rate_limited",
            Self::InvalidRequest => "invalid_request",
            Self::ContentPolicy => "content_policy",
            Self::NotFound => "not_found",
            Self::ModelUnavailable => "model_unavailable",
            Self::CapabilityMissing => "capability_missing",
            Self::VendorError => "vendor_error",
            Self::Network => "network",
            Self::Timeout => "timeout",
            Self::OutputExpired => "output_expired",
            Self::OutputEmpty => "output_empty",
            Self::SpecMismatch => "spec_mismatch",
            Self::StartUnknown => "start_unknown",
            Self::LimitExceeded => "limit_exceeded",
            Self::Internal => "internal",
        }
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What may be done about a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    /// It will fail again: do not.
    Never,
    /// The vendor named a time (already made relative to now).
    After(#[serde(with = "super::millis")] Duration),
    /// A passing fault: our own backoff decides.
    Backoff,
    /// A paid call whose acceptance is not known: never sent again blindly.
    Unknown,
}

/// One failed call, or one job that a vendor ended badly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The kind: a metric label.
    pub kind: FailureKind,
    /// The finer code with a page in docs/errors; the kind's own word where nothing finer is known.
    pub code: String,
    /// What may be done.
    pub retry: Retry,
    /// One sentence for a person, never with a URL's query, a header or a key in it.
    pub message: String,
    /// The vendor's own code or word, as it came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor_code: Option<String>,
    /// The vendor's id of the request, for its support desk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor_request_id: Option<String>,
    /// Holds the whole connector's queue (a refused API version or region), not just this job.
    #[serde(default)]
    pub holds_connector: bool,
    /// No byte of the request can have been read by the vendor: no strike, and a start may go again.
    #[serde(default)]
    pub unsent: bool,
}

impl Failure {
    /// A failure with the kind's own word as its code.
    #[must_use]
    pub fn new(kind: FailureKind, retry: Retry, message: impl Into<String>) -> Self {
        Self {
            kind,
            code: kind.as_str().to_owned(),
            retry,
            message: message.into(),
            vendor_code: None,
            vendor_request_id: None,
            holds_connector: false,
            unsent: false,
        }
    }

    /// The same with a finer code (one that has a page in docs/errors).
    #[must_use]
    pub fn code(mut self, code: impl Into<String>) -> Self {
        self.code = code.into();
        self
    }

    /// The same with the vendor's own code or word.
    #[must_use]
    pub fn vendor_code(mut self, code: impl Into<String>) -> Self {
        self.vendor_code = Some(code.into());
        self
    }

    /// The same with the vendor's request id.
    #[must_use]
    pub fn request_id(mut self, id: Option<String>) -> Self {
        self.vendor_request_id = id.or(self.vendor_request_id);
        self
    }

    /// The same, holding the connector's whole queue.
    #[must_use]
    pub fn holding_connector(mut self) -> Self {
        self.holds_connector = true;
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for Failure {}
