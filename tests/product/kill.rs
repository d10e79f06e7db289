//! `kill -9` of `longhaul serve` at random moments: nothing is lost, nothing is bought twice, nothing is billed twice.
//!
//! Twenty kills by default. `LONGHAUL_KILLS=200` is the long run (tests/README.md); `LONGHAUL_SEED` repeats one. The long
//! run waits for the end of every job. The short one lets a start be that never arrived and is looked for at its vendor,
//! which takes up to five minutes (`find_s`) before a person is asked.

use crate::support::{RESTS, Server, Setup, Vendors, hello, http, now_ms, within};
use longhaul_registry::LostStart;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rust_decimal::Decimal;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Longest a life of the server lasts before it is killed.
const LONGEST_LIFE_MS: u64 = 1_400;
/// Kills of the short run.
const SHORT: u64 = 20;
/// A lost start is searched for up to five minutes (`find_s` of the slowest vendor), then a person has to decide.
const SETTLED: Duration = Duration::from_secs(360);

/// One job of the run.
struct Planned {
    key: String,
    request: Value,
    words: String,
    kind: (String, bool),
    id: Option<String>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_random_moments_nothing_is_lost_bought_twice_or_billed_twice() {
    let kills: u64 = number("LONGHAUL_KILLS").unwrap_or(SHORT);
    let seed = number("LONGHAUL_SEED").unwrap_or_else(rand::random);
    println!("kill: {kills} kills, seed {seed} (LONGHAUL_KILLS and LONGHAUL_SEED repeat it)");
    let mut dice = StdRng::seed_from_u64(seed);
    let vendors = Vendors::start(Duration::from_secs(1)).await;
    let setup = Setup::new().all_connectors(&vendors);
    let mut plan = planned(&vendors, usize::try_from(kills.max(40)).unwrap());
    let bills = bills(&setup, &vendors).await;

    for nth in 0..kills {
        let server = setup.serve().await;
        let due = plan.len() * usize::try_from(nth + 1).unwrap() / usize::try_from(kills).unwrap();
        live(server, &mut plan[..due], Duration::from_millis(dice.random_range(20..LONGEST_LIFE_MS))).await;
    }

    let mut server = setup.serve().await;
    submit(&server.url, &mut plan).await;
    let at_rest = async || {
        answer(&server.url, &plan).await;
        let mut jobs = Vec::new();
        for one in &plan {
            let job = server.job(one.id.as_ref()?).await;
            let rests = RESTS.contains(&job["state"].as_str().unwrap_or_default());
            if !rests && (kills > SHORT || !is_looked_for(&vendors, one, &job)) {
                return None;
            }
            jobs.push(job);
        }
        Some(jobs)
    };
    let jobs = within(SETTLED, "every job ended or parked", at_rest).await;

    let mut tally: BTreeMap<String, usize> = BTreeMap::new();
    for (one, job) in plan.iter().zip(&jobs) {
        let word = check(&server, &vendors, one, job, &bills).await;
        *tally.entry(format!("{} {word}", one.kind.0)).or_default() += 1;
    }
    check_books(&server, &vendors, &plan, &jobs).await;
    println!("kill: {kills} kills over {} jobs: {tally:?}", plan.len());
    assert_eq!(server.stop().await, Some(0));
}

/// A start that never arrived: its vendor does not have it, and the next look is some seconds off.
fn is_looked_for(vendors: &Vendors, one: &Planned, job: &Value) -> bool {
    let due = job["step"]["due_at"].as_str().and_then(|at| chrono::DateTime::parse_from_rfc3339(at).ok());
    let later = due.is_some_and(|due| due.timestamp_millis() > now_ms() + 3_000);
    job["state"] == "starting" && later && is_searchable(&one.kind.0) && !is_there(vendors, one)
}

/// Whether a lost start can be looked for at a vendor.
fn is_searchable(vendor: &str) -> bool {
    let registry = longhaul_registry::Registry::builtin().expect("a registry");
    registry.vendor(vendor).is_some_and(|file| file.lost_start == LostStart::Find)
}

/// Whether the vendor's books have a job.
fn is_there(vendors: &Vendors, one: &Planned) -> bool {
    vendors.books.starts(Some(&one.kind.0)).iter().any(|start| start.marker.contains(&one.words))
}

/// A number in the test's own environment.
fn number(name: &str) -> Option<u64> {
    #[expect(clippy::disallowed_methods, reason = "how long a test runs is its own affair")]
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a whole number, not {text}")))
}

/// Jobs of every vendor in turn; every second one of those that ask asks. Words of one length cost the same.
fn planned(vendors: &Vendors, jobs: usize) -> Vec<Planned> {
    let names = vendors.names();
    let asks = ["a2a", "claude_managed_agents"];
    let one = |nth: usize| {
        let vendor = names[nth % names.len()];
        let asking = asks.contains(&vendor) && (nth / names.len()) % 2 == 1;
        request(vendor, asking, nth + 1)
    };
    (0..jobs).map(one).collect()
}

fn request(vendor: &str, asking: bool, nth: usize) -> Planned {
    let words = format!("number {nth:04}{}", if asking { " sandbox:asks" } else { "" });
    let key = format!("kill-{vendor}-{nth:04}");
    Planned { key, request: hello(vendor, &words), words, kind: (vendor.to_owned(), asking), id: None }
}

/// What each kind of job is billed when nothing happens to it.
async fn bills(setup: &Setup, vendors: &Vendors) -> BTreeMap<(String, bool), Value> {
    let mut server = setup.serve().await;
    let mut control: Vec<Planned> = vendors.names().into_iter().map(|vendor| request(vendor, false, 0)).collect();
    control.extend(["a2a", "claude_managed_agents"].map(|vendor| request(vendor, true, 9999)));
    submit(&server.url, &mut control).await;
    let mut bills = BTreeMap::new();
    for one in &control {
        let id = one.id.as_ref().expect("submitted");
        let job = within(Duration::from_secs(60), "the control job", async || {
            answer(&server.url, &control).await;
            let job = server.job(id).await;
            RESTS.contains(&job["state"].as_str().unwrap_or_default()).then_some(job)
        })
        .await;
        assert_eq!(job["state"], "succeeded", "{job:#}");
        bills.insert(one.kind.clone(), billed(&job));
    }
    assert_eq!(server.stop().await, Some(0));
    bills
}

/// Units and quantities of a job. Seconds of work are the vendor's own stopwatch, which no two runs agree on.
fn billed(job: &Value) -> Value {
    let lines = job["usage"].as_array().expect("usage").iter().filter(|line| line["unit"] != "seconds");
    lines.map(|line| json!([line["unit"], line["quantity"]])).collect()
}

/// One life: submits and answers as it goes, until it is killed in the middle of whatever it does.
async fn live(mut server: Server, plan: &mut [Planned], length: Duration) {
    let url = server.url.clone();
    let work = async {
        submit(&url, plan).await;
        loop {
            answer(&url, plan).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let _ = tokio::time::timeout(length, work).await;
    server.kill().await;
}

/// Submits what has no id yet. The same key again is the same job, however the first try ended.
async fn submit(url: &str, plan: &mut [Planned]) {
    for one in plan.iter_mut().filter(|one| one.id.is_none()) {
        let call = http().post(format!("{url}/v1/jobs")).header("idempotency-key", &one.key);
        let call = call.header("content-type", "application/json").body(one.request.to_string());
        let Ok(answer) = call.send().await else { return };
        let status = answer.status();
        let Ok(text) = answer.text().await else { return };
        assert!(status.is_success(), "{status} {text}");
        let job: Value = serde_json::from_str(&text).expect("a job");
        one.id = Some(job["id"].as_str().expect("an id").to_owned());
    }
}

/// Answers every question that stands. An answer that came already is a conflict and no harm.
async fn answer(url: &str, plan: &[Planned]) {
    for one in plan.iter().filter(|one| one.kind.1) {
        let Some(id) = &one.id else { continue };
        let Ok(job) = http().get(format!("{url}/v1/jobs/{id}")).send().await else { return };
        let Ok(text) = job.text().await else { return };
        let job: Value = serde_json::from_str(&text).expect("a job");
        let question = &job["question"];
        if job["state"] != "needs_input" || question.is_null() {
            continue;
        }
        let answer = match question["kind"].as_str() {
            Some("approval") => json!({"question_id": question["id"], "approve": true}),
            _ => json!({"question_id": question["id"], "text": "Two days."}),
        };
        let call = http().post(format!("{url}/v1/jobs/{id}/answer")).header("content-type", "application/json");
        let Ok(told) = call.body(answer.to_string()).send().await else { return };
        assert!(matches!(told.status().as_u16(), 200 | 409), "{:?}", told.text().await);
    }
}

/// One job at rest; its state, with its code where it is parked.
async fn check(
    server: &Server,
    vendors: &Vendors,
    one: &Planned,
    job: &Value,
    bills: &BTreeMap<(String, bool), Value>,
) -> String {
    let id = job["id"].as_str().expect("an id");
    let events = server.events(id).await;
    let numbers: Vec<u64> = events.iter().filter_map(|event| event["seq"].as_u64()).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>(), "history without gaps: {job:#}");
    let ends = events
        .iter()
        .filter(|event| event["kind"] == "state" && RESTS.contains(&event["data"]["to"].as_str().unwrap_or_default()));
    let looked_for = job["state"] == "starting";
    assert_eq!(ends.count(), usize::from(!looked_for), "one end: {events:#?}");
    for artifact in job["artifacts"].as_array().expect("artifacts") {
        let bytes = server.bytes(artifact).await;
        assert_eq!(artifact["bytes"].as_u64(), Some(bytes.len() as u64), "{job:#}");
        let digest = ring::digest::digest(&ring::digest::SHA256, &bytes);
        let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(artifact["sha256"], hex, "{job:#}");
    }
    if looked_for {
        return "looked for".to_owned();
    }
    if job["state"] == "parked" {
        let code = job["error"]["code"].as_str().expect("a code");
        assert!(matches!(code, "start_unknown" | "poison"), "{job:#}");
        assert!(!is_searchable(&one.kind.0) || !is_there(vendors, one), "it is there, and was not found: {job:#}");
        return format!("parked {code}");
    }
    assert_eq!(job["state"], "succeeded", "{job:#}");
    assert!(!job["artifacts"].as_array().expect("artifacts").is_empty(), "{job:#}");
    assert_eq!(billed(job), bills[&one.kind], "billed as without a kill: {job:#}");
    let mine = |start: &&longhaul_sandbox::Start| start.vendor_job_id.as_deref() == job["vendor_job_id"].as_str();
    let starts = vendors.books.starts(Some(&one.kind.0)).iter().filter(mine).count();
    // Speech has two ids, the request's and the record's: there the words alone tell.
    assert!(starts == 1 || one.kind.0 == "elevenlabs", "{job:#}");
    "succeeded".to_owned()
}

/// The vendors' books, and the ledger against the jobs.
async fn check_books(server: &Server, vendors: &Vendors, plan: &[Planned], jobs: &[Value]) {
    let report = vendors.books.starts_report(None);
    assert_eq!(report["started_twice"], json!([]), "{report:#}");
    let lost = jobs.iter().filter(|job| job["state"] != "succeeded").count();
    let control = vendors.names().len() + 2;
    let starts = vendors.books.starts(None).len();
    assert!((plan.len() - lost..=plan.len()).contains(&(starts - control)), "{starts} starts, {lost} lost: {report:#}");
    assert_eq!(vendors.leaks(), 0);

    let asked = plan.iter().zip(jobs).filter(|(one, job)| one.kind.1 && job["state"] == "succeeded").count();
    let requests = vendors.books.requests(None);
    let answers = requests.iter().filter(|call| call.route == "answer" && call.status.is_some_and(|code| code < 300));
    // The control run asked twice.
    assert_eq!(answers.count(), asked + 2, "each question was answered once");

    let page = server.get("/v1/jobs?limit=500").await;
    let all = page["jobs"].as_array().expect("jobs");
    assert_eq!(all.len(), plan.len() + control, "a key is one job, however often it was submitted");
    let mut sums: BTreeMap<(String, String), Decimal> = BTreeMap::new();
    for job in all {
        for line in job["usage"].as_array().expect("usage") {
            let key = (job["vendor"].as_str().unwrap().to_owned(), line["unit"].as_str().unwrap().to_owned());
            *sums.entry(key).or_default() += line["quantity"].as_str().unwrap().parse::<Decimal>().unwrap();
        }
    }
    let ledger = server.get("/v1/usage?by=vendor,unit").await;
    let ledger: BTreeMap<(String, String), Decimal> = ledger["usage"]
        .as_array()
        .expect("usage")
        .iter()
        .map(|row| {
            let key = (row["vendor"].as_str().unwrap().to_owned(), row["unit"].as_str().unwrap().to_owned());
            (key, row["quantity"].as_str().unwrap().parse().unwrap())
        })
        .collect();
    assert_eq!(ledger, sums, "the ledger is the sum of the jobs");
}
