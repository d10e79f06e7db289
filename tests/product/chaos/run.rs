//! One run: a fleet, jobs that come evenly, and what is done to both meanwhile.

#![allow(clippy::print_stdout)]

use super::books;
use crate::support::fleet::{Fleet, Schedulers};
use crate::support::{Setup, Vendors, hello, http, now_ms, within};
use futures::StreamExt;
use longhaul_registry::{LostStart, Registry};
use rand::SeedableRng;
use rand::rngs::StdRng;
use reqwest::Client;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// States that a job leaves by itself.
const MOVING: &str = "queued,starting,running,needs_input,collecting";
/// How long an ordinary job takes at its vendor.
pub const PACE: Duration = Duration::from_secs(1);
/// As `[worker] lease_s` has it.
pub const LEASE: Duration = Duration::from_secs(3);
/// Length and jobs of the short run.
const SHORT: (u64, usize) = (10, 120);
/// The vendors of the jobs, in turn.
const KINDS: [&str; 5] = ["flux", "a2a", "runway", "a2a", "flux"];
/// Submits under way at one time.
const HANDS: usize = 8;
/// A lost start is looked for half a minute (an A2A agent lists late), two at most, then a person has to decide; the rest is
/// for a busy machine.
pub const SETTLED: Duration = Duration::from_secs(300);
/// When all is over every process is ready within this.
const READY: Duration = Duration::from_secs(10);

/// One job of the run.
pub struct Planned {
    pub vendor: &'static str,
    /// What tells it from the others at its vendor.
    pub words: String,
    key: String,
    /// As the API acknowledged it.
    pub id: String,
}

/// A run.
pub struct Chaos {
    pub dice: StdRng,
    /// How long it is disturbed.
    pub length: Duration,
    pub vendors: Vendors,
    pub fleet: Fleet,
    pub setup: Setup,
    pub plan: Vec<Planned>,
    /// Places at the vendors that have a limit.
    pub limits: BTreeMap<&'static str, usize>,
    /// Starts may have been lost with whoever sent them.
    pub loses_starts: bool,
    /// A client of the run's own.
    pub http: Client,
    long: bool,
    what: &'static str,
}

/// A number in the test's own environment.
fn number(name: &str) -> Option<u64> {
    #[expect(clippy::disallowed_methods, reason = "how long a test runs is its own affair")]
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a whole number, not {text}")))
}

/// Whether a lost start can be looked for at a vendor.
pub fn is_searchable(vendor: &str) -> bool {
    let registry = Registry::builtin().expect("a registry");
    registry.vendor(vendor).is_some_and(|file| file.lost_start == LostStart::Find)
}

impl Chaos {
    /// Sets the vendors and the fleet's configuration up; nobody runs yet.
    pub async fn new(what: &'static str, store: &str, durability: &str) -> Self {
        let seconds = number("LONGHAUL_CHAOS_S").unwrap_or(SHORT.0);
        let jobs = number("LONGHAUL_CHAOS_JOBS").map_or(SHORT.1, |jobs| usize::try_from(jobs).expect("a number"));
        let seed = number("LONGHAUL_SEED").unwrap_or_else(rand::random);
        println!("chaos, {what}: {jobs} jobs, {seconds} s, seed {seed} (LONGHAUL_SEED={seed} repeats its choices)");
        let vendors = Vendors::start(PACE).await;
        // More jobs come than places can take: most wait for one.
        let places = (jobs / usize::try_from(2 * seconds).expect("a number")).max(4);
        let limits = BTreeMap::from([("flux", places), ("runway", places.div_ceil(2))]);
        let caps: BTreeMap<&str, usize> = limits.keys().map(|vendor| (*vendor, 10 * places)).collect();
        vendors.control("settings", json!({"caps": caps})).await;
        // A run that is killed takes its processes with it.
        let mut setup = Setup::new().wrapped(&["setpriv", "--pdeathsig", "KILL"]).connector(&vendors, "a2a", "");
        for (vendor, places) in &limits {
            setup = setup.connector(&vendors, vendor, &format!("limits = {{ in_flight = {places} }}"));
        }
        let lease = LEASE.as_secs().to_string();
        let setup = setup.env("LONGHAUL__WORKER__LEASE_S", &lease).env("LONGHAUL__STORE__URL", store);
        let setup = setup.env("LONGHAUL__STORE__DURABILITY", durability);
        let planned = |nth: usize| {
            let vendor = KINDS[nth % KINDS.len()];
            Planned { vendor, words: format!("number {nth:05}."), key: format!("chaos-{nth:05}"), id: String::new() }
        };
        Self {
            dice: StdRng::seed_from_u64(seed),
            length: Duration::from_secs(seconds),
            vendors,
            fleet: Fleet::default(),
            setup,
            plan: (0..jobs).map(planned).collect(),
            limits,
            loses_starts: true,
            http: http(),
            long: seconds > SHORT.0,
            what,
        }
    }

    /// Nothing that is done takes a start's answer: none may be lost. On a busy machine a process may stand still for longer
    /// than a short lease.
    pub fn loses_no_start(&mut self) {
        self.loses_starts = false;
        self.setup = self.setup.clone().long_leases();
    }

    /// Starts two schedulers and so many workers.
    pub async fn start(&mut self, workers: usize) {
        for nth in 0..2 {
            self.fleet.add(&self.setup, "scheduler", &format!("scheduler-{nth}")).await;
        }
        for nth in 0..workers {
            self.fleet.add(&self.setup, "worker", &format!("worker-{nth}")).await;
        }
    }

    /// Submits all jobs over three quarters of the run while `harm` is done, once every `every`.
    pub async fn disturbed(&mut self, every: Duration, mut harm: impl AsyncFnMut(&mut Fleet, &mut StdRng, usize)) {
        let (length, schedulers) = (self.length, self.fleet.schedulers());
        let Self { plan, fleet, dice, http, .. } = self;
        let began = tokio::time::Instant::now();
        let harming = async {
            let rounds = usize::try_from(length.as_millis() / every.as_millis()).expect("a number");
            for nth in 0..rounds {
                tokio::time::sleep_until(began + every * u32::try_from(nth + 1).expect("a number")).await;
                harm(fleet, dice, nth).await;
            }
        };
        tokio::join!(submit(http, plan, &schedulers, length.mul_f64(0.75)), harming);
    }

    /// Waits until every job rests, and looks at all there is to look at.
    pub async fn settle(mut self) -> Self {
        let scheduler = self.ready().await;
        self.acknowledged(&scheduler).await;
        let began = now_ms();
        let by_id: BTreeMap<&str, &Planned> = self.plan.iter().map(|one| (one.id.as_str(), one)).collect();
        within(SETTLED, "every job ended or parked", async || {
            let under_way = list(&self.http, &scheduler, MOVING).await?;
            let waits = |(id, job): (&String, &Value)| !self.long && self.is_looked_for(by_id[id.as_str()], job);
            under_way.iter().all(waits).then_some(())
        })
        .await;
        let jobs = list(&self.http, &scheduler, "").await.expect("a scheduler answers");
        assert_eq!(jobs.len(), self.plan.len(), "a key is one job, however often it was submitted");
        assert_eq!(self.fleet.fallen(), Vec::<String>::new(), "nothing needed a restart");
        let tally = books::check(&self, &jobs).await;
        let kills: u32 = self.fleet.members.iter().map(|member| member.kills).sum();
        println!("chaos, {}: {kills} killed, at rest after {} ms: {tally:?}", self.what, now_ms() - began);
        self
    }

    /// Stops all, which must end well.
    pub async fn stop(mut self) {
        for member in &mut self.fleet.members {
            assert_eq!(member.server.stop().await, Some(0), "{}", member.server.log_text());
        }
    }

    /// Every process is ready within seconds; answers where a scheduler is.
    async fn ready(&mut self) -> String {
        for member in &self.fleet.members {
            let what = format!("{} is ready", member.name);
            within(READY, &what, async || {
                let answer = self.http.get(format!("{}/readyz", member.server.url)).send().await.ok()?;
                answer.status().is_success().then_some(())
            })
            .await;
        }
        self.fleet.scheduler().url.clone()
    }

    /// Every key names the job that it was acknowledged with.
    async fn acknowledged(&self, url: &str) {
        let again = futures::stream::iter(&self.plan).map(|one| async move {
            let (id, status) = post(&self.http, url, one).await.expect("an answer");
            (one, id, status)
        });
        let mut again = again.buffer_unordered(HANDS);
        while let Some((one, id, status)) = again.next().await {
            assert_eq!((&id, status), (&one.id, 200), "{}: a job that was acknowledged is there", one.key);
        }
    }

    /// A start that never arrived: its vendor does not have it, and the next look is some seconds off.
    pub fn is_looked_for(&self, one: &Planned, job: &Value) -> bool {
        let due = job["step"]["due_at"].as_str().and_then(|at| chrono::DateTime::parse_from_rfc3339(at).ok());
        let later = due.is_some_and(|due| due.timestamp_millis() > now_ms() + 1_000);
        job["state"] == "starting" && later && is_searchable(one.vendor) && !self.is_there(one)
    }

    /// Whether the vendor's books have a job.
    pub fn is_there(&self, one: &Planned) -> bool {
        self.vendors.books.starts(Some(one.vendor)).iter().any(|start| start.marker.contains(&one.words))
    }
}

/// A job's state.
pub fn state(job: &Value) -> &str {
    job["state"].as_str().unwrap_or_default()
}

/// Submits every job until it is acknowledged, evenly over a time.
async fn submit(http: &Client, plan: &mut [Planned], schedulers: &Schedulers, over: Duration) {
    let pause = over / u32::try_from(plan.len()).expect("a number");
    let began = tokio::time::Instant::now();
    let submits = plan.iter_mut().enumerate().map(|(nth, one)| async move {
        tokio::time::sleep_until(began + pause * u32::try_from(nth).expect("a number")).await;
        let mut turns = nth..;
        let known = &*one;
        let what = format!("{} is acknowledged", known.key);
        let id = within(SETTLED, &what, || {
            let url = schedulers.pick(turns.next().unwrap_or_default());
            async move { post(http, &url, known).await.map(|(id, _)| id) }
        });
        one.id = id.await;
    });
    futures::stream::iter(submits).buffer_unordered(HANDS).collect::<Vec<()>>().await;
}

/// Submits once: the job's id and the status, or nothing where nobody could answer.
async fn post(http: &Client, url: &str, one: &Planned) -> Option<(String, u16)> {
    let call = http.post(format!("{url}/v1/jobs")).header("idempotency-key", &one.key);
    let call = call.header("content-type", "application/json").body(hello(one.vendor, &one.words).to_string());
    let answer = call.timeout(Duration::from_secs(20)).send().await.ok()?;
    let status = answer.status().as_u16();
    let text = answer.text().await.ok()?;
    if status == 503 {
        return None;
    }
    assert!(matches!(status, 200 | 201), "{status} {text}");
    let job: Value = serde_json::from_str(&text).expect("a job");
    Some((job["id"].as_str().expect("an id").to_owned(), status))
}

/// The jobs in these states (all where none is named) by their id; `None` where nobody could answer.
pub async fn list(http: &Client, url: &str, states: &str) -> Option<BTreeMap<String, Value>> {
    let (mut jobs, mut cursor) = (BTreeMap::new(), String::new());
    loop {
        let answer = http.get(format!("{url}/v1/jobs?state={states}&limit=500{cursor}")).send().await.ok()?;
        let page: Value = serde_json::from_str(&answer.text().await.ok()?).ok()?;
        for job in page["jobs"].as_array()? {
            jobs.insert(job["id"].as_str()?.to_owned(), job.clone());
        }
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return Some(jobs),
        }
    }
}
