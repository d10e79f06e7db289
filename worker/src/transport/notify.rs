//! Webhooks out: posts to orchestrators' URLs, through the same guard as everything else.

use super::body::Payload;
use super::retry_after;
use super::send::{Outgoing, send};
use crate::guard::{Guard, Policy, WireEvent};
use bytes::Bytes;
use chrono::DateTime;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use longhaul_registry::{Failure, FailureKind, Retry};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The most of an answer that is read before the connection is let go.
const MAX_ANSWER: usize = 64 << 10;

/// What an orchestrator answered. Redirects are not followed: 3xx stands here too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotifyAnswer {
    /// The status code.
    pub status: u16,
    /// `Retry-After`, where it is readable.
    pub retry_after: Option<Duration>,
}

/// Posts notifications.
#[derive(Clone, Debug)]
pub struct Notifier {
    guard: Arc<Guard>,
    policy: Policy,
}

impl Notifier {
    /// A notifier that reaches the public internet over https, and the private `host:port`s listed in
    /// `allow_private_notify` (http allowed).
    ///
    /// # Errors
    /// A failure of kind `internal` where an entry is no `host:port`.
    pub fn new(guard: Arc<Guard>, allow_private_notify: &[String]) -> Result<Self, Failure> {
        Ok(Self { guard, policy: Policy::public(allow_private_notify)? })
    }

    /// Posts a body with its headers. The caller signs, repeats and gives up.
    ///
    /// # Errors
    /// Where no answer came; `address_refused` is final.
    pub async fn post_webhook(
        &self,
        url: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<NotifyAnswer, Failure> {
        let target = self.policy.check(url).map_err(|refused| {
            self.guard.observer.saw("notify", WireEvent::Refused(refused.reason));
            refused.failure()
        })?;
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let header = name.parse::<HeaderName>().ok().zip(HeaderValue::try_from(*value).ok());
            let (name, value) = header.ok_or_else(|| {
                Failure::new(FailureKind::Internal, Retry::Never, format!("{name:?} is no header that can be sent"))
            })?;
            map.insert(name, value);
        }
        let limits = &self.guard.limits;
        let request = Outgoing {
            method: Method::POST,
            target,
            headers: map,
            payload: Payload::bytes(body, HeaderValue::from_static("application/json")),
            once: false,
            silence: limits.silence,
            deadline: Instant::now() + limits.whole,
            vendor: "notify".to_owned(),
        };
        let mut answer = send(&self.guard, &request).await.map_err(|fault| {
            let failure = fault.failure(false);
            if let super::fault::Why::Refused(refused) = &fault.why {
                self.guard.observer.saw("notify", WireEvent::Refused(refused.reason));
            }
            failure
        })?;
        // What it says besides its status is nobody's business here; read, so that the connection can be kept.
        let _ = answer.read(MAX_ANSWER).await;
        let now = DateTime::from_timestamp_millis(self.guard.clock.wall_ms()).unwrap_or_default();
        Ok(NotifyAnswer { status: answer.status, retry_after: retry_after(&answer.headers, now) })
    }
}
