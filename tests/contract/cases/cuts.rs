//! The network cut at every place, before and after the vendor has read the request. A paid start counts at most once.

use super::questions::{asking, yes};
use super::stopping::under_way;
use crate::support::{Setup, Vendors, until};
use crate::world::{PACE, World, check_billed};
use longhaul_registry::{LostStart, VendorFile};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// How a connection is cut.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// The vendor did not act on the request.
    Before,
    /// The vendor did, and the answer is lost.
    After,
}

impl Cut {
    fn fault(self) -> &'static str {
        match self {
            Self::Before => "reset",
            Self::After => "drop_after_read",
        }
    }
}

/// What is under way while the connection is cut.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Act {
    /// An ordinary job.
    Hello,
    /// An ordinary job whose start was read and whose answer was lost: it is looked for.
    Find,
    /// The outputs of a finished job are fetched once more.
    Replay,
}

pub async fn after_read_at_every_request(file: Arc<VendorFile>) {
    sweep(&file, Cut::After, Act::Hello).await;
}

pub async fn before_read_at_every_request(file: Arc<VendorFile>) {
    sweep(&file, Cut::Before, Act::Hello).await;
}

pub async fn after_read_at_every_find(file: Arc<VendorFile>) {
    sweep(&file, Cut::After, Act::Find).await;
}

pub async fn before_read_at_every_find(file: Arc<VendorFile>) {
    sweep(&file, Cut::Before, Act::Find).await;
}

pub async fn after_read_at_every_replay(file: Arc<VendorFile>) {
    sweep(&file, Cut::After, Act::Replay).await;
}

pub async fn before_read_at_every_replay(file: Arc<VendorFile>) {
    sweep(&file, Cut::Before, Act::Replay).await;
}

/// The first poll comes when the work is done, so that every run has the same requests.
const CADENCE: &str = "cadence = { first_s = 0.8, factor = 1, ceiling_s = 0.8, jitter = 0 }";
/// Loses the answer to the start before a search; another word for the same fault, so that the cut can be told from it.
const LOSE: &str = "read_request_then_fin";

/// One clean run tells which requests there are; then each of them is cut in a run of its own.
async fn sweep(file: &Arc<VendorFile>, cut: Cut, act: Act) {
    let clean = World::with(file, 1, Setup::new(), CADENCE).await;
    let begun = begin(&clean, 0, act).await;
    let job = go(&clean, 0, act, &begun).await;
    let job = clean.server.job_in(&job, &["succeeded"]).await;
    clean.check_success(0, &job).await;
    let requests = clean.requests();
    let routes: Vec<&str> =
        requests[begun.seen..].iter().filter(|one| one.fault.is_none()).map(|one| one.route.as_str()).collect();
    assert!(!routes.is_empty());

    let world = World::with(file, routes.len(), Setup::new(), CADENCE).await;
    let runs = (0..routes.len()).map(|lane| cut_one(&world, lane, cut, act));
    let hit: BTreeSet<String> = futures::future::join_all(runs).await.into_iter().flatten().collect();
    let all: BTreeSet<String> = routes.iter().map(|route| (*route).to_owned()).collect();
    assert!(hit.is_superset(&all), "cut at {hit:?}, and there are {all:?}");
    world.check_leaks();
}

/// Where an act begins: the finished job it needs, and how many requests came before it.
struct Begun {
    job: Option<String>,
    seen: usize,
}

async fn begin(world: &World, lane: usize, act: Act) -> Begun {
    let mut job = None;
    if act == Act::Replay {
        let id = world.server.submit(world.job_on(lane, "")).await;
        world.server.job_in(&id, &["succeeded"]).await;
        job = Some(id);
    }
    if act == Act::Find {
        world.fault_on(lane, json!({"route": "start", "fault": LOSE})).await;
    }
    Begun { job, seen: world.requests_on(lane).len() }
}

async fn go(world: &World, lane: usize, act: Act, begun: &Begun) -> String {
    match (act, &begun.job) {
        (Act::Replay, Some(id)) => {
            let (status, told) = world
                .server
                .post(&format!("/v1/jobs/{id}/replay"), json!({"from": "outputs", "reason": "again"}))
                .await;
            assert!(status < 300, "{told:#}");
            id.clone()
        }
        _ => world.server.submit(world.job_on(lane, "")).await,
    }
}

/// Cuts the request number `lane` of an act; the route that was hit, if the run had so many requests.
async fn cut_one(world: &World, lane: usize, cut: Cut, act: Act) -> Option<String> {
    let begun = begin(world, lane, act).await;
    world.fault_on(lane, json!({"route": "any", "fault": cut.fault(), "skip": lane})).await;
    let id = go(world, lane, act, &begun).await;
    let hit = || {
        let requests = world.requests_on(lane);
        requests.into_iter().find(|request| request.fault == Some(cut.fault()))
    };
    let lost_start = async || {
        let job = world.server.job(&id).await;
        let done = job["state"] == "succeeded" && !job["finished_at"].is_null();
        match hit() {
            Some(hit) => Some(hit.route == "start"),
            None => done.then_some(false),
        }
    };
    if until("the cut, or the job's end", lost_start).await && act == Act::Hello {
        after_lost_start(world, lane, &id, cut == Cut::After).await;
    } else {
        let job = world.server.job_in(&id, &["succeeded"]).await;
        world.check_success(lane, &job).await;
    }
    hit().map(|request| request.route)
}

/// A start whose answer was lost is never bought twice. What becomes of it, the vendor's file says; the job is given
/// back as it then stands. `acted`: the vendor had taken it.
pub async fn after_lost_start(world: &World, lane: usize, id: &str, acted: bool) -> Value {
    let file = &world.file;
    let findable = file.lost_start == LostStart::Find && (acted || file.absence_proves);
    if findable || file.lost_start == LostStart::Key {
        let job = world.server.job_in(id, &["succeeded"]).await;
        world.check_success(lane, &job).await;
        return job;
    }
    let starts = || world.lanes[lane].starts(&file.vendor);
    if file.lost_start == LostStart::None {
        let job = world.server.job_in(id, &["parked"]).await;
        assert_eq!(job["error"]["code"], "start_unknown", "{job:#}");
        assert_eq!(starts(), usize::from(acted), "{job:#}");
        return job;
    }
    // Not being listed proves nothing there: it is looked for until `find_s` is over, and never sent again.
    let job = until("the lost start is looked for", async || {
        let requests = world.requests_on(lane);
        let after =
            requests.iter().skip_while(|request| request.route != "start").skip(1).any(|one| one.status.is_some());
        let job = world.server.job(id).await;
        (after && !job["error"].is_null()).then_some(job)
    })
    .await;
    assert!(matches!(job["state"].as_str(), Some("starting" | "parked")), "{job:#}");
    assert_eq!(starts(), 0, "{job:#}");
    job
}

pub async fn after_read_at_answer(file: Arc<VendorFile>) {
    cut_answer(&file, Cut::After).await;
}

pub async fn before_read_at_answer(file: Arc<VendorFile>) {
    cut_answer(&file, Cut::Before).await;
}

/// A repeated answer would answer the next question: the vendor takes it once.
async fn cut_answer(file: &Arc<VendorFile>, cut: Cut) {
    let world = World::of(file).await;
    let (id, question) = asking(&world, json!({})).await;
    world.fault(json!({"route": "answer", "fault": cut.fault()})).await;
    let (status, told) = world.server.post(&format!("/v1/jobs/{id}/answer"), yes(&question)).await;
    assert_eq!(status, 200, "{told:#}");
    let job = world.server.job_in(&id, &["succeeded"]).await;
    world.check_success(0, &job).await;
    let calls = world.on_route("answer");
    assert_eq!(calls.iter().filter(|call| call.fault.is_some()).count(), 1, "it was cut: {calls:#?}");
    assert_eq!(calls.len(), if cut == Cut::After { 1 } else { 2 }, "{calls:#?}");
}

pub async fn after_read_at_cancel(file: Arc<VendorFile>) {
    cut_cancel(&file, Cut::After).await;
}

pub async fn before_read_at_cancel(file: Arc<VendorFile>) {
    cut_cancel(&file, Cut::Before).await;
}

async fn cut_cancel(file: &Arc<VendorFile>, cut: Cut) {
    let world = World::slow(file, "").await;
    let id = under_way(&world, "sandbox:slow", json!({})).await;
    world.fault(json!({"route": "cancel", "fault": cut.fault()})).await;
    let (status, told) = world.server.post(&format!("/v1/jobs/{id}/cancel"), json!({})).await;
    assert_eq!(status, 202, "{told:#}");
    let job = world.server.job_in(&id, &["cancelled"]).await;
    assert_eq!(job["cancel"]["outcome"], "confirmed", "{job:#}");
    check_billed(file, &job);
    assert_eq!(world.on_route("cancel").iter().filter(|call| call.fault.is_some()).count(), 1, "it was cut");
    assert_eq!(world.starts(), 1);
}

/// What never reached the vendor is no error and no unknown: it goes again by itself.
pub async fn unreachable_at_start(file: Arc<VendorFile>) {
    let vendors = Vendors::closed(PACE).await;
    let mut world = World::with(&file, 0, Setup::new().connector(&vendors, &file.vendor, ""), "").await;
    world.lanes.push(vendors);
    let id = world.server.submit(world.job("")).await;
    let waiting = until("the job shows why it waits", async || {
        let job = world.server.job(&id).await;
        (!job["error"].is_null()).then_some(job)
    })
    .await;
    assert_eq!((&waiting["state"], &waiting["errors"]), (&json!("queued"), &json!(0)), "{waiting:#}");
    assert_eq!(waiting["error"]["kind"], "network", "{waiting:#}");
    world.vendors().open();
    let job = world.server.job_in(&id, &["succeeded"]).await;
    world.check_success(0, &job).await;
}
