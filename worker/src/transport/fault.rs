//! Why no answer came, and whether the request can have been read.

use crate::guard::Refused;
use longhaul_registry::{Failure, FailureKind, Retry};
use std::error::Error;

/// Whether a request can have reached the far end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Certainly not: no connection, or a protocol that vouches for it.
    No,
    /// It may have been read.
    Maybe,
}

/// Why no (whole) answer came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The guard said no.
    Refused(Refused),
    /// No connection: name, TCP or TLS.
    Connect(String),
    /// No connection in time.
    ConnectTimeout,
    /// The far end said nothing for the time allowed.
    Silence,
    /// The whole took longer than allowed.
    Whole,
    /// The connection ended before the answer did.
    Cut(String),
    /// The answer is larger than is taken into memory.
    TooLarge(u64),
    /// The output is larger than may be stored.
    OutputTooLarge(u64),
    /// The answer's encoding cannot be undone.
    Encoding(String),
    /// A redirect, which is never followed with a credential.
    Redirect(u16),
    /// The staging area failed.
    Staging(String),
    /// The request could not be built.
    Build(String),
}

/// A call without a (whole) answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) why: Why,
    pub(crate) sent: Sent,
    /// `host` or `host:port`.
    pub(crate) host: String,
}

impl Fault {
    pub(crate) fn new(host: impl Into<String>, sent: Sent, why: Why) -> Self {
        Self { why, sent, host: host.into() }
    }

    /// The failure a step reports. `paid`: where the request may have been read, nobody knows whether it
    /// was accepted.
    pub(crate) fn failure(&self, paid: bool) -> Failure {
        if let Why::Refused(refused) = &self.why {
            return refused.failure();
        }
        let (kind, code, verdict) = self.verdict();
        let unsent = self.sent == Sent::No;
        let retry = if paid && !unsent { Retry::Unknown } else { verdict };
        let mut failure = Failure::new(kind, retry, self.message()).code(code);
        failure.unsent = unsent;
        failure
    }

    /// Kind, code, and what a free call may do.
    fn verdict(&self) -> (FailureKind, &'static str, Retry) {
        match &self.why {
            Why::Refused(_) => (FailureKind::VendorError, "address_refused", Retry::Never),
            Why::Connect(_) | Why::Cut(_) => (FailureKind::Network, "network", Retry::Backoff),
            Why::ConnectTimeout | Why::Silence | Why::Whole => (FailureKind::Timeout, "timeout", Retry::Backoff),
            Why::TooLarge(_) => (FailureKind::VendorError, "unreadable_answer", Retry::Never),
            Why::OutputTooLarge(_) => (FailureKind::SpecMismatch, "output_too_large", Retry::Never),
            Why::Encoding(_) => (FailureKind::VendorError, "unreadable_answer", Retry::Backoff),
            Why::Redirect(_) => (FailureKind::VendorError, "vendor_error", Retry::Backoff),
            Why::Staging(_) => (FailureKind::Internal, "storage_unavailable", Retry::Backoff),
            Why::Build(_) => (FailureKind::Internal, "internal", Retry::Never),
        }
    }

    fn message(&self) -> String {
        let host = &self.host;
        match &self.why {
            Why::Refused(refused) => refused.to_string(),
            Why::Connect(what) => format!("no connection to {host} ({what}); check the network, the name and the port"),
            Why::ConnectTimeout => format!("no connection to {host} in time; check the network and the host's status"),
            Why::Silence => {
                format!("{host} said nothing for as long as this call may stay silent; check the host's status")
            }
            Why::Whole => format!("the answer of {host} was not whole in time; check the host's status"),
            Why::Cut(what) => {
                format!("the connection to {host} ended before the answer did ({what}); check the host's status")
            }
            Why::TooLarge(limit) => {
                format!("the answer of {host} is larger than the {limit} bytes allowed; ask for less in one answer")
            }
            Why::OutputTooLarge(limit) => {
                format!("the output at {host} is larger than the {limit} bytes allowed; raise [artifacts] max_bytes")
            }
            Why::Encoding(what) => {
                format!("the answer of {host} cannot be decoded ({what}); read the raw exchange in the job's events")
            }
            Why::Redirect(status) => format!(
                "{host} answered with a redirect (HTTP {status}), which is not followed here; check the connector's base_url"
            ),
            Why::Staging(what) => {
                format!("the staging area cannot take what {host} sends ({what}); check the disk's space and rights")
            }
            Why::Build(what) => format!("a call to {host} cannot be built ({what}); report it with the job's id"),
        }
    }
}

/// Reads an error of the HTTP library. `connected`: a connection was made for this very request.
/// `fresh`: no other connection can have carried it.
pub(crate) fn read(error: &reqwest::Error, host: &str, connected: bool, fresh: bool) -> Fault {
    if let Some(refused) = causes(error).find_map(|error| error.downcast_ref::<Refused>()) {
        return Fault::new(host, Sent::No, Why::Refused(refused.clone()));
    }
    if error.is_builder() {
        return Fault::new(host, Sent::No, Why::Build(innermost(error)));
    }
    let never_connected = error.is_connect() || (fresh && !connected);
    if never_connected {
        let why = if error.is_timeout() { Why::ConnectTimeout } else { Why::Connect(innermost(error)) };
        return Fault::new(host, Sent::No, why);
    }
    let sent = if causes(error).any(proves_unread) { Sent::No } else { Sent::Maybe };
    Fault::new(host, sent, Why::Cut(innermost(error)))
}

/// An error and everything it stems from.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| (*error).source())
}

/// What the protocol itself vouches for:
/// - hyper gives a request back as "cancelled" only if it was never begun on the wire;
/// - RFC 9113 section 6.8: streams above a GOAWAY's last id were not processed. The h2 library fails exactly
///   those with the remote GOAWAY; the ones below it end with the connection, and stay unknown;
/// - RFC 9113 section 8.7: so was a stream reset with REFUSED_STREAM.
fn proves_unread(error: &(dyn Error + 'static)) -> bool {
    if let Some(error) = error.downcast_ref::<hyper::Error>() {
        return error.is_canceled();
    }
    if let Some(error) = error.downcast_ref::<h2::Error>() {
        let refused = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
        return error.is_remote() && (error.is_go_away() || refused);
    }
    false
}

/// The innermost cause in words: the outer layers repeat it, and the outermost may show the URL.
fn innermost(error: &reqwest::Error) -> String {
    let cause = causes(error).last().unwrap_or(error);
    if cause.is::<reqwest::Error>() {
        return "the HTTP library refuses it".to_owned();
    }
    let mut text = cause.to_string();
    if let Some((at, _)) = text.char_indices().nth(200) {
        text.truncate(at);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_have_been_read_is_unknown_for_a_paid_call_and_passing_for_a_free_one() {
        let cut = Fault::new("a.test", Sent::Maybe, Why::Cut("reset".to_owned()));
        let paid = cut.failure(true);
        assert_eq!((paid.kind, paid.retry, paid.unsent), (FailureKind::Network, Retry::Unknown, false));
        let free = cut.failure(false);
        assert_eq!((free.kind, free.retry, free.unsent), (FailureKind::Network, Retry::Backoff, false));
        let silent = Fault::new("a.test", Sent::Maybe, Why::Silence).failure(true);
        assert_eq!((silent.kind, silent.retry), (FailureKind::Timeout, Retry::Unknown));
    }

    #[test]
    fn what_was_never_sent_may_go_again() {
        let fault = Fault::new("a.test", Sent::No, Why::Connect("connection refused".to_owned()));
        for paid in [false, true] {
            let failure = fault.failure(paid);
            assert_eq!((failure.retry, failure.unsent), (Retry::Backoff, true));
        }
    }
}
