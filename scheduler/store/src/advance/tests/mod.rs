//! What `advance`, `on_claim` and `receive` promise: by example, and against a model.

mod examples;
mod model;
mod outages;
mod pacing;
mod reports;
mod signals;
mod stops;

use super::*;
use crate::{Estimate, JobBody, NewEvent, When};
use longhaul_registry::{
    AuthScheme, Cadence, Connector, ConnectorLimits, JobRequest, LostStart, Report, Task, Unit, VendorFile,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// 2026-11-30T00:00:00Z.
const T0: i64 = 1_795_996_800_000;

fn vendor(lost_start: LostStart) -> VendorFile {
    let file = json!({
        "vendor": "acme", "title": "Acme", "docs": "https://acme.example/docs", "verified": "2026-11-30",
        "base_url": "https://api.acme.example", "auth": {"scheme": "bearer"},
        "check": {"method": "GET", "path": "/v1/me"}, "tasks": ["image"], "lost_start": "none",
        "start_silence_s": 60, "max_minutes": 60, "unit": "credits",
        "cadence": {"first_s": 1.0, "factor": 2.0, "ceiling_s": 10.0, "jitter": 0.0},
    });
    let mut file: VendorFile = serde_json::from_value(file).unwrap();
    assert_eq!((file.auth.clone(), file.unit), (AuthScheme::Bearer, Unit::Credits));
    file.lost_start = lost_start;
    file.find_s = 60;
    file.cancels = true;
    file
}

fn connector(vendor: VendorFile) -> Connector {
    Connector {
        name: "acme".to_owned(),
        base_url: vendor.base_url.clone(),
        credential: Some("env:ACME_KEY".to_owned()),
        allow_private_network: false,
        private_hosts: Vec::new(),
        limits: ConnectorLimits::default(),
        settings: BTreeMap::new(),
        price_override: BTreeMap::from([(Unit::Credits, "0.01".parse().unwrap())]),
        cadence: Cadence { first_s: 1.0, factor: 2.0, ceiling_s: 10.0, jitter: 0.0 },
        vendor: Arc::new(vendor),
    }
}

fn body(extra: Value) -> JobBody {
    let mut request = json!({"connector": "acme", "task": "image", "instructions": "a kite"});
    request.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    let request: JobRequest = serde_json::from_value(request).unwrap();
    assert_eq!(request.task, Task::Image);
    JobBody {
        request,
        prepared: json!({"prompt": "a kite"}),
        model: None,
        start_silence: None,
        estimate: Estimate::default(),
    }
}

/// A bench: one job, its rules, and a clock; it applies transitions as a store does.
struct Bench {
    connector: Connector,
    body: JobBody,
    job: Job,
    now_ms: i64,
    outlook: Option<crate::Outlook>,
    outage: bool,
    events: Vec<NewEvent>,
    last: Transition,
}

impl Bench {
    fn new(connector: Connector, extra: Value) -> Self {
        let body = body(extra);
        let mut job = Job::queued("job_1".to_owned(), "default".to_owned(), "acme".to_owned(), &body.request);
        job.resolve(T0);
        let last = Transition::to(job.clone());
        Self { connector, body, job, now_ms: T0, outlook: None, outage: false, events: Vec::new(), last }
    }

    fn simple() -> Self {
        Self::new(connector(vendor(LostStart::None)), json!({}))
    }

    fn rules(&self) -> Rules<'_> {
        Rules {
            connector: &self.connector,
            body: &self.body,
            now_ms: self.now_ms,
            dice: 0.5,
            outlook: self.outlook.as_ref(),
            outage: self.outage,
        }
    }

    fn apply(&mut self, transition: Transition) {
        let mut job = transition.job.clone();
        job.resolve(self.now_ms);
        job.seq += u64::try_from(transition.events.len()).unwrap();
        let told: rust_decimal::Decimal = transition.usage.iter().filter_map(|line| line.usd).sum();
        if !told.is_zero() {
            job.cost_usd = Some(told);
        }
        self.job = job;
        self.events.extend(transition.events.clone());
        self.last = transition;
    }

    fn outcome(&mut self, outcome: Outcome) -> &mut Self {
        let transition = advance(&self.job, outcome, self.rules());
        self.apply(transition);
        self
    }

    fn signal(&mut self, signal: crate::Signal) -> Result<&mut Self, crate::Refusal> {
        let transition = crate::receive(&self.job, signal, self.rules())?;
        self.apply(transition);
        Ok(self)
    }

    fn watch(&mut self) -> bool {
        let Some(transition) = on_claim(&self.job, self.rules()) else { return false };
        self.apply(transition);
        true
    }

    fn pass(&mut self, time: Duration) -> &mut Self {
        self.now_ms += i64::try_from(time.as_millis()).unwrap();
        self
    }

    fn sending(&mut self) -> &mut Self {
        self.outcome(Outcome::Sending { request_hash: "h".to_owned() })
    }

    fn started(&mut self) -> &mut Self {
        let answer = StartAnswer::Started { vendor_job_id: "v-1".to_owned(), report: Report::default() };
        self.sending().outcome(Outcome::Start(Ok(answer)))
    }

    fn due_in(&self) -> Option<Duration> {
        let due = self.job.due_at?.resolve(self.now_ms);
        Some(Duration::from_millis(u64::try_from(due - self.now_ms).unwrap()))
    }

    fn code(&self) -> Option<&str> {
        self.job.error.as_ref().map(|error| error.failure.code.as_str())
    }

    fn states(&self) -> Vec<String> {
        let states = self.events.iter().filter(|event| event.kind == "state");
        states.map(|event| event.data["to"].as_str().unwrap().to_owned()).collect()
    }
}
