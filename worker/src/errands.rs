//! Chores over the guarded client: signed notifications, and connectors' free checks.

use crate::chores::{ChoreHands, Delivery};
use crate::credentials::Credentials;
use crate::guard::Guard;
use crate::leases::Fence;
use crate::runner::Wire;
use crate::transport::Notifier;
use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use longhaul_registry::{Connector, Failure, FailureKind, Input, JobRequest, Retry, Step, Task};
use longhaul_store::{Estimate, Job, JobBody};
use longhaul_vendors::{Call, JobVendor};
use ring::hmac;
use secrecy::ExposeSecret;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Performs chores.
pub struct Errands {
    /// Posts notifications.
    pub notifier: Notifier,
    /// Resolves the signing secret.
    pub credentials: Credentials,
    /// The secret's reference; empty: unsigned.
    pub secret: String,
    /// Opens sessions, for checks.
    pub wire: Arc<dyn Wire>,
    /// Vendor modules by name, which read failed answers.
    pub vendors: BTreeMap<&'static str, Arc<dyn JobVendor>>,
}

impl Errands {
    /// Chore hands over a guard.
    ///
    /// # Errors
    /// Where an entry of `private_hosts` is no `host:port`.
    pub fn new(
        guard: Arc<Guard>,
        private_hosts: &[String],
        credentials: Credentials,
        secret: String,
        wire: Arc<dyn Wire>,
        vendors: &[Arc<dyn JobVendor>],
    ) -> Result<Self, Failure> {
        let notifier = Notifier::new(guard, private_hosts)?;
        let vendors = vendors.iter().map(|vendor| (vendor.name(), vendor.clone())).collect();
        Ok(Self { notifier, credentials, secret, wire, vendors })
    }
}

/// The signature of Standard Webhooks: `v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body`. A secret
/// that begins with `whsec_` is base64 behind it; any other is taken as it is.
#[must_use]
pub fn sign(secret: &str, id: &str, timestamp: i64, body: &str) -> String {
    let decoded = secret.strip_prefix("whsec_").and_then(|rest| STANDARD.decode(rest).ok());
    let key = hmac::Key::new(hmac::HMAC_SHA256, decoded.as_deref().unwrap_or(secret.as_bytes()));
    let tag = hmac::sign(&key, format!("{id}.{timestamp}.{body}").as_bytes());
    format!("v1,{}", STANDARD.encode(tag.as_ref()))
}

#[async_trait]
impl ChoreHands for Errands {
    async fn deliver(&self, delivery: &Delivery) -> Result<(), Failure> {
        let timestamp = delivery.timestamp.to_string();
        let mut headers = vec![("webhook-id", delivery.id.as_str()), ("webhook-timestamp", timestamp.as_str())];
        let signature;
        if !self.secret.is_empty() {
            let secret = self.credentials.resolve(&self.secret).await.map_err(|error| {
                Failure::new(FailureKind::Internal, Retry::Backoff, format!("[notify] secret: {error}"))
            })?;
            signature = sign(secret.expose_secret(), &delivery.id, delivery.timestamp, &delivery.body);
            headers.push(("webhook-signature", signature.as_str()));
        }
        let answer = self.notifier.post_webhook(&delivery.url, &headers, Bytes::from(delivery.body.clone())).await?;
        match answer.status {
            200..=299 => Ok(()),
            410 => {
                Err(Failure::new(FailureKind::VendorError, Retry::Never, "the receiver answered 410: gone for good"))
            }
            status => {
                let retry = answer.retry_after.map_or(Retry::Backoff, Retry::After);
                Err(Failure::new(FailureKind::VendorError, retry, format!("the receiver answered {status}")))
            }
        }
    }

    async fn check(&self, connector: &Arc<Connector>) -> Result<(), Failure> {
        let Some(vendor) = self.vendors.get(connector.vendor.vendor.as_str()) else {
            let message = format!("no module speaks for vendor {}", connector.vendor.vendor);
            return Err(Failure::new(FailureKind::Internal, Retry::Never, message));
        };
        let (job, body) = nobody(connector);
        let adapter = vendor.adapter();
        let session = self.wire.open(connector, &job, &Arc::new(body), Step::Poll, adapter, Fence::none())?;
        let mut last = None;
        for path in connector.check_urls() {
            let method = connector.vendor.check.method.parse().unwrap_or(http::Method::GET);
            let mut call = Call::new("check", method, path.clone());
            if path.starts_with("http") {
                call = call.at(path);
            }
            for (name, value) in &connector.vendor.check.headers {
                call = call.header(name.clone(), value.clone());
            }
            let reply = session.as_transport().call(call).await?;
            if reply.is_success() {
                return Ok(());
            }
            last = Some(vendor.classify(&reply, false));
        }
        Err(last.unwrap_or_else(|| Failure::new(FailureKind::Internal, Retry::Never, "this vendor has no free check")))
    }
}

/// A check belongs to no job; the session wants one all the same.
fn nobody(connector: &Connector) -> (Job, JobBody) {
    let request = JobRequest {
        connector: connector.name.clone(),
        task: connector.vendor.tasks.first().copied().unwrap_or(Task::AgentGeneral),
        instructions: String::new(),
        media: Default::default(),
        inputs: Vec::<Input>::new(),
        vendor: serde_json::Map::new(),
        limits: Default::default(),
        output_path: None,
        expect: Vec::new(),
        strict_spec: false,
        tenant: None,
        priority: 0,
        labels: BTreeMap::new(),
        notify: None,
        on_unknown_start: Default::default(),
    };
    let job = Job::queued("check".to_owned(), "default".to_owned(), connector.vendor.vendor.clone(), &request);
    let body = JobBody {
        request,
        prepared: serde_json::Value::Null,
        model: None,
        start_silence: None,
        estimate: Estimate::default(),
    };
    (job, body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_the_one_that_the_standards_own_libraries_give() {
        // The vector of the Standard Webhooks reference libraries' tests.
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let signed = sign(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, "{\"test\": 2432232314}");
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }
}
