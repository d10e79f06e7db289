//! What must be so after a run: the jobs and the ledger against the vendors' own books.

use super::run::{Chaos, PACE, Planned, is_searchable, state};
use crate::support::{RESTS, Server};
use futures::StreamExt;
use longhaul_sandbox::Start;
use rust_decimal::Decimal;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Histories and artifacts read at one time.
const HANDS: usize = 8;

type Jobs = BTreeMap<String, Value>;
/// Vendor and unit.
type Sums = BTreeMap<(String, String), Decimal>;

/// Looks at everything; answers how many jobs ended how.
pub async fn check(run: &Chaos, jobs: &Jobs) -> BTreeMap<String, usize> {
    let server = run.fleet.scheduler();
    let mut tally = BTreeMap::new();
    let mut paid: BTreeMap<String, Vec<Start>> = BTreeMap::new();
    for start in run.vendors.books.starts(None) {
        paid.entry(words_of(&start.marker)).or_default().push(start);
    }
    let none = Vec::new();
    let paid_for = |one: &Planned| paid.get(&one.words).unwrap_or(&none);
    let looks = run.plan.iter().map(|one| look(run, server, one, &jobs[&one.id], paid_for(one)));
    let mut looks = futures::stream::iter(looks).buffer_unordered(HANDS);
    while let Some(word) = looks.next().await {
        *tally.entry(word).or_insert(0) += 1;
    }
    let report = run.vendors.books.starts_report(None);
    assert_eq!(report["started_twice"], json!([]), "{report:#}");
    let paid: usize = paid.values().map(Vec::len).sum();
    let lost = jobs.values().filter(|job| job["state"] != "succeeded").count();
    assert!((run.plan.len() - lost..=run.plan.len()).contains(&paid), "{paid} starts, {lost} lost: {tally:?}");
    assert!(lost == 0 || run.loses_starts, "no start's answer was lost here: {tally:?}");
    assert_eq!(run.vendors.leaks(), 0);
    let vendors = vendors_jobs(run).await;
    for (vendor, places) in &run.limits {
        let most = most_at_once(&vendors[vendor]);
        assert!(most <= *places, "{most} at {vendor} at one time, {places} are allowed");
        *tally.entry(format!("{vendor}, most at once of {places}")).or_insert(0) += most;
    }
    check_ledger(server, jobs, &vendors).await;
    tally
}

/// One job at rest; its vendor and state, with its code where it is parked.
async fn look(run: &Chaos, server: &Server, one: &Planned, job: &Value, paid: &[Start]) -> String {
    let events = server.events(&one.id).await;
    let numbers: Vec<u64> = events.iter().filter_map(|event| event["seq"].as_u64()).collect();
    assert_eq!(numbers, (1..=events.len() as u64).collect::<Vec<_>>(), "history without gaps: {job:#}");
    let moves: Vec<&str> = events
        .iter()
        .filter(|event| event["kind"] == "state")
        .map(|event| event["data"]["to"].as_str().expect("a state"))
        .collect();
    let ends = moves.iter().filter(|to| RESTS.contains(to)).count();
    let vendor = one.vendor;
    match state(job) {
        "succeeded" => {
            assert_eq!(ends, 1, "one end: {events:#?}");
            assert_eq!(moves.iter().filter(|to| **to == "collecting").count(), 1, "one collecting: {events:#?}");
            assert_eq!(job["attempt"], 1, "{job:#}");
            whole(server, job).await;
            let ids: Vec<&str> = paid.iter().filter_map(|start| start.vendor_job_id.as_deref()).collect();
            assert_eq!(ids, [job["vendor_job_id"].as_str().expect("an id")], "its own start, once: {job:#}");
            format!("{vendor} succeeded")
        }
        "parked" => {
            assert_eq!(ends, 1, "one end: {events:#?}");
            let code = job["error"]["code"].as_str().expect("a code");
            assert_eq!(code, "start_unknown", "{job:#}");
            let there = !paid.is_empty();
            assert!(!is_searchable(vendor) || !there, "it is there, and was not found: {job:#}");
            format!("{vendor} parked {code}, {} there", if there { "and is" } else { "not" })
        }
        _ => {
            assert!(run.is_looked_for(one, job), "{job:#}");
            assert_eq!(ends, 0, "no end: {events:#?}");
            format!("{vendor} looked for")
        }
    }
}

/// The words of a plan's job in what its vendor was asked.
fn words_of(marker: &str) -> String {
    let from = marker.find("number ").unwrap_or_else(|| panic!("{marker} is nobody's"));
    marker[from..].split_inclusive('.').next().unwrap_or_default().to_owned()
}

/// Its artifacts' bytes are there and are what was recorded.
async fn whole(server: &Server, job: &Value) {
    let artifacts = job["artifacts"].as_array().expect("artifacts");
    assert!(!artifacts.is_empty(), "{job:#}");
    for artifact in artifacts {
        let bytes = server.bytes(artifact).await;
        let digest = ring::digest::digest(&ring::digest::SHA256, &bytes);
        let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(artifact["sha256"], hex, "{job:#}");
    }
}

/// The jobs as the stand-ins have them, by vendor.
async fn vendors_jobs(run: &Chaos) -> BTreeMap<&'static str, Vec<Value>> {
    let answer = run.http.get(format!("http://{}/_control/jobs", run.vendors.at)).send().await.expect("an answer");
    let told: Value = serde_json::from_str(&answer.text().await.expect("text")).expect("JSON");
    let of = |vendor: &'static str| (vendor, told["jobs"][vendor].as_array().expect("jobs").clone());
    ["flux", "runway", "a2a"].into_iter().map(of).collect()
}

/// The most jobs that a vendor had under way at one time: an ordinary one is so from its start for one pace.
fn most_at_once(jobs: &[Value]) -> usize {
    let pace = i64::try_from(PACE.as_millis()).expect("a number");
    let begins = jobs.iter().map(|job| job["created_ms"].as_i64().expect("a time"));
    let mut moments: Vec<(i64, i8)> = begins.flat_map(|begin| [(begin, 1), (begin + pace, -1)]).collect();
    // One that ends at the moment another begins has made room for it.
    moments.sort_unstable();
    let (mut now, mut most) = (0_i64, 0);
    for (_, step) in moments {
        now += i64::from(step);
        most = most.max(now);
    }
    usize::try_from(most).expect("a number")
}

/// What the vendor billed for a job, by its own account.
fn bill(vendor: &str, job: &Value) -> (&'static str, Decimal) {
    let figure = |name: &str| job[name].to_string().parse::<Decimal>().expect("a figure").normalize();
    match vendor {
        "flux" => ("credits", figure("cost")),
        "runway" => ("credits", figure("charged")),
        // The protocol knows no figure: a task is one request.
        _ => ("requests", Decimal::ONE),
    }
}

/// Each job was billed what its vendor's books say, once, and the ledger is the sum of that.
async fn check_ledger(server: &Server, jobs: &Jobs, vendors: &BTreeMap<&'static str, Vec<Value>>) {
    let mut sums = Sums::new();
    let mut by_id = BTreeMap::new();
    for (vendor, theirs) in vendors {
        by_id.extend(theirs.iter().map(|theirs| ((*vendor, theirs["id"].as_str().expect("an id")), theirs)));
    }
    for job in jobs.values().filter(|job| !job["vendor_job_id"].is_null()) {
        let vendor = job["vendor"].as_str().expect("a vendor");
        let theirs = by_id[&(vendor, job["vendor_job_id"].as_str().expect("an id"))];
        let (unit, quantity) = bill(vendor, theirs);
        let usage: Vec<(&str, Decimal)> = job["usage"]
            .as_array()
            .expect("usage")
            .iter()
            .map(|line| (line["unit"].as_str().expect("a unit"), decimal(&line["quantity"])))
            .collect();
        assert_eq!(usage, [(unit, quantity)], "{job:#}");
        *sums.entry((vendor.to_owned(), unit.to_owned())).or_default() += quantity;
    }
    let ledger = server.get("/v1/usage?by=vendor,unit").await;
    let row = |row: &Value| {
        let name = |key: &str| row[key].as_str().expect("a name").to_owned();
        ((name("vendor"), name("unit")), decimal(&row["quantity"]))
    };
    let ledger: Sums = ledger["usage"].as_array().expect("usage").iter().map(row).collect();
    assert_eq!(ledger, sums, "the ledger is the sum of the vendors' bills");
}

fn decimal(value: &Value) -> Decimal {
    value.as_str().expect("a decimal").parse().expect("a decimal")
}
