//! Fixtures of this crate's tests.

use longhaul_registry::{Connector, JobRequest, VendorFile};
use longhaul_store::{Estimate, Job, JobBody, Submission};
use serde_json::json;
use std::cell::RefCell;
use std::sync::Arc;

/// Throws of dice, in their order.
pub(crate) type Dice = Box<dyn FnMut() -> f64>;

thread_local! {
    static DICE: RefCell<Option<Dice>> = const { RefCell::new(None) };
}

/// From now on every throw on this thread is one of these; chance's own where `None`.
pub(crate) fn load_dice(dice: Option<Dice>) {
    DICE.with(|loaded| *loaded.borrow_mut() = dice);
}

/// The next throw of the dice that this thread's test loaded.
pub(crate) fn loaded_dice() -> Option<f64> {
    DICE.with(|loaded| loaded.borrow_mut().as_mut().map(|throw| throw()))
}

/// A connector of an invented vendor with a base URL of its own and a credential in `env:KEY`.
pub(crate) fn connector(base_url: &str) -> Connector {
    let file = json!({
        "vendor": "acme", "title": "Acme", "docs": "https://acme.test/docs", "verified": "2026-11-30",
        "base_url": base_url, "auth": {"scheme": "header", "name": "x-key"}, "headers": {"acme-version": "7"},
        "check": {"method": "GET", "path": "/v1/credits"}, "tasks": ["image"], "lost_start": "none",
        "start_silence_s": 60, "max_minutes": 30, "unit": "credits",
        "cadence": {"first_s": 1.0, "factor": 1.5, "ceiling_s": 10.0, "jitter": 0.2}
    });
    let vendor: VendorFile = serde_json::from_value(file).unwrap();
    Connector {
        name: "acme".to_owned(),
        credential: Some("env:KEY".to_owned()),
        base_url: base_url.to_owned(),
        allow_private_network: false,
        private_hosts: Vec::new(),
        limits: vendor.limits,
        settings: Default::default(),
        price_override: Default::default(),
        cadence: vendor.cadence,
        vendor: Arc::new(vendor),
    }
}

/// A queued job with a fresh start.
pub(crate) fn submission(id: &str, connector: &str) -> Submission {
    let request = json!({"connector": connector, "task": "image", "instructions": "a kite"});
    let request: JobRequest = serde_json::from_value(request).unwrap();
    let job = Job::queued(id.to_owned(), "default".to_owned(), "flux".to_owned(), &request);
    let estimate = Estimate::default();
    let body = JobBody { request, prepared: json!({}), model: None, start_silence: None, estimate };
    Submission { job, body, idempotency: None, output_path: None, events: Vec::new(), usage: Vec::new() }
}
