//! A fleet on one real Redis: schedulers and workers that come, go, die and wait.

use crate::support::redis::Redis;
use crate::support::{PATIENCE, Server, Setup, Vendors, hello, http, until, within};
use futures::StreamExt;
use reqwest::Method;
use serde_json::{Value, json};
use std::process::Stdio;
use std::time::Duration;

/// The vendors of one job of each kind.
const KINDS: [&str; 5] = ["flux", "runway", "elevenlabs", "claude_managed_agents", "a2a"];
/// Every maintenance duty.
const DUTIES: [&str; 5] = ["prune", "recovery", "gauges", "recount", "segments"];
/// A dead owner's duty is another's after its lease of five seconds and one more for asking; the rest is for a busy machine.
const TAKEN_OVER: Duration = Duration::from_secs(15);
/// A lease that no test waits for.
const HOURS: (&str, &str) = ("LONGHAUL__WORKER__LEASE_S", "600");

/// A set-up whose processes share this Redis.
fn fleet(redis: &Redis) -> Setup {
    Setup::new().env("LONGHAUL__STORE__URL", &redis.url())
}

async fn submit_flux(server: &Server, jobs: usize) -> Vec<String> {
    let jobs: Vec<Value> = (0..jobs).map(|nth| hello("flux", &format!("number {nth}"))).collect();
    server.submit_all(&jobs).await
}

/// Waits until all succeeded, each bought once and none taken for a killer of workers.
async fn all_succeed(server: &Server, vendors: &Vendors, ids: &[String]) {
    for id in ids {
        let job = server.job_in(id, &["succeeded"]).await;
        assert_eq!(job["attempt"], 1, "{job:#}");
        let seqs: Vec<u64> = server.events(id).await.iter().filter_map(|event| event["seq"].as_u64()).collect();
        assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>(), "history without gaps");
    }
    assert_eq!(vendors.books.starts_report(None)["started_twice"], json!([]));
    assert_eq!(vendors.leaks(), 0);
}

/// Makes so many polls hang, and waits until they do.
async fn hang_polls(vendors: &Vendors, polls: usize) {
    vendors.fault(json!({"vendor": "flux", "route": "poll", "fault": "slow", "hold_s": 240, "count": polls})).await;
    until("polls hang", async || {
        let hanging = vendors.requests("flux", "poll").into_iter().filter(|call| call.status.is_none());
        (hanging.count() >= polls).then_some(())
    })
    .await;
}

async fn holds(server: &Server, duty: &str) -> bool {
    server.metric("longhaul_duty_held", &[&format!("duty=\"{duty}\"")]).await > 0.0
}

/// Waits until this scheduler has every duty.
async fn has_all_duties(server: &Server, bound: Duration) {
    within(bound, "every duty is this one's", async || {
        for duty in DUTIES {
            if !holds(server, duty).await {
                return None;
            }
        }
        Some(())
    })
    .await;
}

/// The check of this name of `/readyz`, with the status.
async fn check(server: &Server, name: &str) -> (u16, Value) {
    let (status, body) = server.call(Method::GET, "/readyz", None).await;
    let checks = body["checks"].as_array().cloned().unwrap_or_default();
    (status, checks.into_iter().find(|check| check["name"] == name).unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_scheduler_and_two_workers_run_every_kind_of_job() {
    let (vendors, redis) = (Vendors::start(Duration::from_millis(300)).await, Redis::start().await);
    let setup = fleet(&redis).all_connectors(&vendors);
    let mut scheduler = setup.role("scheduler", "scheduler").await;
    let (mut one, mut two) = (setup.role("worker", "one").await, setup.role("worker", "two").await);
    let jobs: Vec<Value> = (0..40).map(|nth| hello(KINDS[nth % 5], &format!("number {nth}"))).collect();
    let ids = scheduler.submit_all(&jobs).await;
    all_succeed(&scheduler, &vendors, &ids).await;
    assert_eq!(vendors.books.starts(None).len(), 40);
    for worker in [&one, &two] {
        assert!(worker.metric("longhaul_steps_total", &[]).await > 0.0, "both had a part in it");
        assert_eq!(worker.call(Method::GET, "/v1/jobs", None).await.0, 404, "a worker is no API");
    }
    for process in [&mut one, &mut two, &mut scheduler] {
        assert_eq!(process.stop().await, Some(0), "{}", process.log_text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_told_to_stop_hands_everything_to_the_others_at_once() {
    let (vendors, redis) = (Vendors::start(Duration::from_secs(1)).await, Redis::start().await);
    // A lease left behind would hold its job back for longer than this test waits.
    let setup = fleet(&redis).connector(&vendors, "flux", "").env(HOURS.0, HOURS.1);
    let setup = setup.env("LONGHAUL__WORKER__DRAIN_S", "1");
    let scheduler = setup.role("scheduler", "scheduler").await;
    let mut first = setup.role("worker", "first").await;
    let ids = submit_flux(&scheduler, 40).await;
    until("all run", async || (vendors.starts("flux") == 40).then_some(())).await;
    // Steps in the middle of a call that does not end within the drain.
    hang_polls(&vendors, 3).await;
    let _second = setup.role("worker", "second").await;
    assert_eq!(first.stop().await, Some(0), "{}", first.log_text());
    all_succeed(&scheduler, &vendors, &ids).await;
    assert_eq!(vendors.starts("flux"), 40);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_claim_brings_after_the_stop_is_handed_back_too() {
    let (vendors, redis) = (Vendors::start(Duration::from_millis(50)).await, Redis::start().await);
    let slow = redis.slow_way().await;
    // Both set-ups speak of one Redis, and the first worker's way to it can be held up.
    let setup = |url: &str| Setup::new().connector(&vendors, "flux", "").env("LONGHAUL__STORE__URL", url);
    let (held_up, straight) = (setup(&slow.url).env(HOURS.0, HOURS.1), setup(&redis.url()).env(HOURS.0, HOURS.1));
    let scheduler = straight.role("scheduler", "scheduler").await;
    let mut first = held_up.role("worker", "first").await;
    // Jobs with their requests are longer than anything else that is answered here, wake-ups for all of them included.
    slow.hold_at(8_000);
    let ids = submit_flux(&scheduler, 20).await;
    until("the answer of a claim is on its way", async || slow.holds().then_some(())).await;
    first.signal("TERM");
    until("it stops", async || first.log_text().contains("stopping").then_some(())).await;
    slow.let_go();
    assert_eq!(first.ended().await, Some(0), "{}", first.log_text());
    assert!(first.log_text().contains("leases handed back leases=20"), "{}", first.log_text());
    assert_eq!(vendors.starts("flux"), 0, "it began none of them");
    let _second = straight.role("worker", "second").await;
    all_succeed(&scheduler, &vendors, &ids).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_workers_jobs_are_taken_over_after_one_lease() {
    let (vendors, redis) = (Vendors::start(Duration::from_secs(1)).await, Redis::start().await);
    let setup = fleet(&redis).connector(&vendors, "flux", "");
    let scheduler = setup.role("scheduler", "scheduler").await;
    let mut first = setup.role("worker", "first").await;
    let ids = submit_flux(&scheduler, 20).await;
    until("all run", async || (vendors.starts("flux") == 20).then_some(())).await;
    // It is killed in the middle of polls whose answers it never sees.
    hang_polls(&vendors, 5).await;
    let _second = setup.role("worker", "second").await;
    first.kill().await;
    all_succeed(&scheduler, &vendors, &ids).await;
    assert_eq!(vendors.starts("flux"), 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duties_move_on_when_a_scheduler_stops_and_when_it_dies() {
    let redis = Redis::start().await;
    let setup = fleet(&redis);
    let mut first = setup.role("scheduler", "first").await;
    has_all_duties(&first, PATIENCE).await;
    let mut second = setup.role("scheduler", "second").await;
    for duty in DUTIES {
        assert!(!holds(&second, duty).await && holds(&first, duty).await, "{duty} has one owner");
    }
    assert_eq!(first.stop().await, Some(0), "{}", first.log_text());
    assert_eq!(first.log_text().matches("is given up").count(), DUTIES.len());
    has_all_duties(&second, TAKEN_OVER).await;

    let third = setup.role("scheduler", "third").await;
    second.kill().await;
    has_all_duties(&third, TAKEN_OVER).await;
}

/// A job's stream, read to its end: the events' numbers.
async fn follow(url: String) -> Vec<u64> {
    let answer = http().get(url).header("accept", "text/event-stream").send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let mut chunks = answer.bytes_stream();
    let mut text = String::new();
    while let Some(chunk) = chunks.next().await {
        text.push_str(std::str::from_utf8(&chunk.unwrap()).unwrap());
    }
    text.lines().filter_map(|line| line.strip_prefix("id:")?.trim().parse().ok()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_dies_and_comes_back_needs_no_restart_and_loses_nothing() {
    let (vendors, mut redis) = (Vendors::start(Duration::from_secs(2)).await, Redis::start().await);
    let setup = fleet(&redis).connector(&vendors, "flux", "");
    let scheduler = setup.role("scheduler", "scheduler").await;
    let (one, two) = (setup.role("worker", "one").await, setup.role("worker", "two").await);
    let ids = submit_flux(&scheduler, 30).await;
    until("some run", async || (vendors.starts("flux") >= 15).then_some(())).await;
    let job = format!("{}/v1/jobs/{}", scheduler.url, ids[29]);
    let stream = tokio::spawn(follow(format!("{job}/events")));
    let waiting = tokio::spawn(async move { http().get(format!("{job}/wait?timeout_s=80")).send().await.unwrap() });
    // Both are under way: the server counts streams, and answers no wait before its end.
    until("the stream is open", async || (scheduler.metric("longhaul_sse_clients", &[]).await > 0.0).then_some(()))
        .await;

    redis.kill().await;
    let (status, body) = scheduler.call(Method::GET, "/v1/jobs", None).await;
    assert_eq!((status, &body["error"]["code"]), (503, &json!("store_unavailable")), "{body}");
    for process in [&scheduler, &one, &two] {
        until("it says that the store is away", async || {
            let (status, store) = check(process, "store").await;
            (status == 503 && store["ok"] == false).then_some(())
        })
        .await;
        assert_eq!(process.call(Method::GET, "/healthz", None).await.0, 200, "it lives");
    }
    until("the duties are let go", async || (!holds(&scheduler, "gauges").await).then_some(())).await;

    redis.again().await;
    all_succeed(&scheduler, &vendors, &ids).await;
    assert_eq!(vendors.starts("flux"), 30);
    let told = stream.await.unwrap();
    assert_eq!(told, (1..=told.len() as u64).collect::<Vec<_>>(), "the stream went on where it was");
    assert_eq!(told.len(), scheduler.events(&ids[29]).await.len(), "to the very end");
    let waited = waiting.await.unwrap();
    assert_eq!(waited.status(), 200);
    assert!(waited.text().await.unwrap().contains("succeeded"));
    has_all_duties(&scheduler, TAKEN_OVER).await;
    for process in [&scheduler, &one, &two] {
        assert_eq!(process.call(Method::GET, "/readyz", None).await.0, 200, "{}", process.log_text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_that_starts_before_its_redis_waits_for_it() {
    let (vendors, mut redis) = (Vendors::start(Duration::from_millis(50)).await, Redis::away().await);
    let setup = fleet(&redis).connector(&vendors, "flux", "");
    let mut scheduler = setup.launch("scheduler", "scheduler").await;
    let mut worker = setup.launch("worker", "worker").await;
    for process in [&scheduler, &worker] {
        let (http, url) = (http(), process.url.clone());
        until("it lives", async || http.get(format!("{url}/healthz")).send().await.ok()).await;
        until("it says what it waits for", async || {
            let (status, store) = check(process, "store").await;
            let told = store["message"].as_str().is_some_and(|told| told.contains(&redis.url()));
            (status == 503 && told).then_some(())
        })
        .await;
        until("so does its log", async || process.log_text().contains("waiting for redis://").then_some(())).await;
    }
    let (status, body) = scheduler.call(Method::GET, "/v1/jobs", None).await;
    assert_eq!((status, &body["error"]["code"]), (503, &json!("store_unavailable")), "{body}");
    // One that is told to stop while it waits stops.
    let mut stopped = setup.launch("worker", "stopped").await;
    until("it waits", async || stopped.log_text().contains("waiting for").then_some(())).await;
    assert_eq!(stopped.stop().await, Some(0));

    redis.again().await;
    scheduler.ready().await;
    worker.ready().await;
    let ids = submit_flux(&scheduler, 3).await;
    all_succeed(&scheduler, &vendors, &ids).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_takes_nothing_while_work_is_due_turns_unready_and_lives() {
    let (vendors, redis) = (Vendors::start(Duration::from_millis(50)).await, Redis::start().await);
    // Four leases are eight seconds.
    let setup = fleet(&redis).connector(&vendors, "flux", "");
    let setup = setup.env("LONGHAUL__WORKER__LEASE_S", "2").env("LONGHAUL__WORKER__CONCURRENCY", "1");
    let scheduler = setup.role("scheduler", "scheduler").await;
    let worker = setup.role("worker", "worker").await;
    vendors.fault(json!({"vendor": "flux", "route": "start", "fault": "slow", "hold_s": 20, "count": 1})).await;
    let ids = submit_flux(&scheduler, 2).await;
    let told = until("it is unready", async || {
        let (status, check) = check(&worker, "worker").await;
        (status == 503 && check["ok"] == false).then(|| check["message"].as_str().unwrap_or_default().to_owned())
    })
    .await;
    assert!(told.contains("has taken no step") && told.contains("[worker] concurrency"), "{told}");
    assert_eq!(worker.call(Method::GET, "/healthz", None).await.0, 200);
    until("it is ready again", async || (check(&worker, "worker").await.0 == 200).then_some(())).await;
    for id in &ids {
        scheduler.job_in(id, &["succeeded"]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_fleet_cannot_use_is_refused_or_said() {
    let refused = async |setup: &Setup, role: &str| {
        let mut command = setup.command(&[role]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let output = tokio::time::timeout(PATIENCE, child.wait_with_output()).await.expect("it ends").unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        said
    };
    let embedded = Setup::new();
    for role in ["scheduler", "worker"] {
        let said = refused(&embedded, role).await;
        for word in [role, "sqlite:", "longhaul serve", "redis://", "store copy"] {
            assert!(said.contains(word), "{word}: {said}");
        }
    }
    let redis = Redis::start().await;
    let wrong = Setup::new().env("LONGHAUL__STORE__URL", &format!("{}?prefx=a", redis.url()));
    assert!(refused(&wrong, "worker").await.contains("prefx"), "a setting that is wrong is not waited for");
    // Each host has its own folder, as far as one of them can tell.
    let setup = fleet(&redis);
    let worker = setup.role("worker", "worker").await;
    assert!(worker.log_text().contains("must find the same folder"), "{}", worker.log_text());
    let (code, out, err) = setup.run(&["doctor", "-o", "json"]).await;
    let found: Value = serde_json::from_str(&out).unwrap();
    let checks = found["checks"].as_array().unwrap();
    let store = checks.iter().find(|check| check["check"] == "store").unwrap();
    assert_eq!((code, &store["ok"]), (0, &json!(true)), "{found:#} {err}");
    let warned = |check: &&Value| check["check"] == "artifacts" && check["warning"] == true;
    assert!(checks.iter().find(warned).is_some_and(|check| check.to_string().contains("same folder")), "{found:#}");
}
