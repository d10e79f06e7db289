//! One server with one vendor's stand-ins, for one case.

use crate::support::{Server, Setup, Vendors, hello, until};
use longhaul_registry::{Unit, VendorFile};
use longhaul_sandbox::Request;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// An ordinary job of a stand-in takes this long.
pub const PACE: Duration = Duration::from_millis(400);

/// A server with one vendor installed, as one connector a lane. Each lane has stand-ins of its own, so that a fault
/// in one is met by nobody else.
pub struct World {
    pub file: Arc<VendorFile>,
    pub lanes: Vec<Vendors>,
    pub setup: Setup,
    pub server: Server,
}

impl World {
    /// One lane.
    pub async fn of(file: &Arc<VendorFile>) -> Self {
        Self::with(file, 1, Setup::new(), "").await
    }

    /// Several lanes, in a set-up, with further TOML in each connector's section.
    pub async fn with(file: &Arc<VendorFile>, lanes: usize, setup: Setup, more: &str) -> Self {
        Self::build(file, lanes, setup, more, PACE).await
    }

    /// One lane whose jobs take long enough to do something meanwhile, on a busy machine too.
    pub async fn slow(file: &Arc<VendorFile>, more: &str) -> Self {
        Self::build(file, 1, Setup::new(), more, PACE * 5).await
    }

    async fn build(file: &Arc<VendorFile>, lanes: usize, setup: Setup, more: &str, pace: Duration) -> Self {
        let mut setup = setup;
        let mut started = Vec::with_capacity(lanes);
        for lane in 0..lanes {
            let vendors = Vendors::start(pace).await;
            let more = format!("{}\n{more}", price(file));
            setup = setup.connector_named(&name(file, lane), &vendors, &file.vendor, &more);
            started.push(vendors);
        }
        let server = setup.serve().await;
        Self { file: file.clone(), lanes: started, setup, server }
    }

    /// The stand-ins of the first lane.
    pub fn vendors(&self) -> &Vendors {
        &self.lanes[0]
    }

    /// The connector of a lane.
    pub fn connector(&self, lane: usize) -> String {
        name(&self.file, lane)
    }

    /// A job that a stand-in makes in one pace, on the first lane.
    pub fn job(&self, words: &str) -> Value {
        self.job_on(0, words)
    }

    /// The same on any lane.
    pub fn job_on(&self, lane: usize, words: &str) -> Value {
        let mut job = hello(&self.file.vendor, words);
        job["connector"] = json!(self.connector(lane));
        job
    }

    /// Paid starts of the first lane.
    pub fn starts(&self) -> usize {
        self.vendors().starts(&self.file.vendor)
    }

    /// The requests of the first lane.
    pub fn requests(&self) -> Vec<Request> {
        self.requests_on(0)
    }

    /// The requests of a lane.
    pub fn requests_on(&self, lane: usize) -> Vec<Request> {
        self.lanes[lane].books.requests(Some(&self.file.vendor))
    }

    /// The requests of one route, first lane.
    pub fn on_route(&self, route: &str) -> Vec<Request> {
        self.requests().into_iter().filter(|request| request.route == route).collect()
    }

    /// Injects a fault into the first lane.
    pub async fn fault(&self, fault: Value) {
        self.fault_on(0, fault).await;
    }

    /// Injects a fault into a lane.
    pub async fn fault_on(&self, lane: usize, mut fault: Value) {
        fault["vendor"] = json!(self.file.vendor);
        self.lanes[lane].fault(fault).await;
    }

    /// Submits and waits for success.
    pub async fn succeed(&self, job: Value) -> Value {
        let id = self.server.submit(job).await;
        self.server.job_in(&id, &["succeeded"]).await
    }

    /// Waits until a route of the first lane was called more than `before` times.
    pub async fn called(&self, route: &str, before: usize) -> Vec<Request> {
        until(&format!("{route} is called more than {before} times"), async || {
            let calls = self.on_route(route);
            (calls.len() > before).then_some(calls)
        })
        .await
    }

    /// What a job that went well must show: bytes in hand as recorded, one paid start in its lane, its bill.
    pub async fn check_success(&self, lane: usize, job: &Value) {
        let artifacts = job["artifacts"].as_array().expect("artifacts");
        assert!(!artifacts.is_empty(), "{job:#}");
        for artifact in artifacts {
            let bytes = self.server.bytes(artifact).await;
            assert!(!bytes.is_empty(), "{artifact:#}");
            assert_eq!(artifact["bytes"].as_u64(), Some(bytes.len() as u64), "{artifact:#}");
            assert_eq!(artifact["sha256"], sha256(&bytes), "{artifact:#}");
        }
        assert_eq!(self.lanes[lane].starts(&self.file.vendor), 1, "{job:#}");
        check_usage(&self.file, job);
    }

    /// Nothing with a key in it went where no key may go.
    pub fn check_leaks(&self) {
        assert!(self.lanes.iter().all(|vendors| vendors.leaks() == 0));
    }
}

/// The bill in the vendor's own unit, once; an estimate where the vendor never told.
pub fn check_billed(file: &VendorFile, job: &Value) -> Value {
    let usage = job["usage"].as_array().expect("usage");
    let lines: Vec<&Value> = usage.iter().filter(|line| line["unit"] == file.unit.as_str()).collect();
    assert_eq!(lines.len(), 1, "one line of {}: {job:#}", file.unit);
    let quantity: f64 = lines[0]["quantity"].as_str().expect("a decimal string").parse().expect("a decimal");
    assert!(quantity > 0.0, "{job:#}");
    lines[0].clone()
}

/// The same as the vendor told it, or as its own rule computes it.
pub fn check_usage(file: &VendorFile, job: &Value) {
    assert_ne!(check_billed(file, job)["source"], "estimated", "{job:#}");
}

/// Hex SHA-256.
pub fn sha256(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn name(file: &VendorFile, lane: usize) -> String {
    if lane == 0 { file.vendor.clone() } else { format!("{}_{lane}", file.vendor) }
}

/// A price for vendors whose file names none, so that limits of money mean something everywhere.
fn price(file: &VendorFile) -> String {
    if !file.prices.is_empty() || file.unit == Unit::Usd {
        return String::new();
    }
    let unit = file.unit.as_str();
    format!("price_override = {{ {}_usd = \"0.02\" }}", unit.strip_suffix('s').unwrap_or(unit))
}
