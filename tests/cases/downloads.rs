//! Downloads: before the link dies, from the right host, without our key.

use crate::common::{decimal, events_of, exactly, image, one, succeeded, usage};
use crate::support::{Setup, Vendors, hello, until};
use crate::{waits, works};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;

pub(crate) fn cases() -> Vec<Trial> {
    vec![
        works("r31_links_that_die_in_seconds_are_fetched_before_new_starts", dying_links),
        waits("r30_a_redirect_takes_the_key_to_no_stranger", redirects),
        waits("r34_addresses_from_answers_choose_nothing", addresses),
    ]
}

/// All sixty become ready at one moment, their links live four seconds, and two hundred further jobs come just then.
async fn dying_links() {
    let vendors = Vendors::start(Duration::from_millis(1)).await;
    vendors.control("settings", json!({"caps": {"flux": 1000}})).await;
    let more = "limits = { in_flight = 1000 }\ncadence = { first_s = 0.5, factor = 1.2, ceiling_s = 1, jitter = 0.2 }";
    let server = Setup::new()
        .long_leases()
        .connector(&vendors, "flux", more)
        .env("LONGHAUL__WORKER__CONCURRENCY", "4")
        .serve()
        .await;
    // The stand-in holds every result back until the eighth second, and each file takes 0.3 s.
    let pending = json!({"step": "poll", "from_s": 0, "until_s": 8, "status": 200, "body": {"status": "Pending"}});
    vendors.script(json!({"vendor": "flux", "wire": [pending]})).await;
    vendors
        .fault(json!({"vendor": "flux", "route": "download", "fault": "slow", "hold_s": 0.3, "count": 10_000}))
        .await;
    let jobs = |word: &str, count: usize| -> Vec<Value> {
        (0..count).map(|n| image(&format!("{word} {n} sandbox:brief_url"), 512, 512)).collect()
    };
    let beads = server.submit_all(&jobs("bead", 60)).await;
    let ready = until("the first is ready", async || {
        let polls = vendors.requests("flux", "poll");
        polls.iter().find(|poll| !poll.scripted && poll.status.is_some()).map(|poll| poll.at_ms)
    })
    .await;
    assert_eq!(vendors.starts("flux"), 60, "all had started before the first was ready");
    let tempting = server.submit_all(&jobs("lure", 200)).await;
    for id in &beads {
        let job = server.job_in(id, &["succeeded"]).await;
        succeeded(&job);
        assert_eq!(usage(&job).len(), 1, "{job:#}");
        let errors = events_of(&server, id, "error").await;
        assert!(errors.iter().all(|error| error["data"]["code"] != "output_expired"), "{errors:?}");
    }
    let last = vendors.requests("flux", "download").get(59).map(|download| download.at_ms).expect("sixty downloads");
    let before = vendors
        .books
        .starts(Some("flux"))
        .iter()
        .filter(|start| start.marker.starts_with("lure") && start.at_ms < last)
        .count();
    assert!(before < 60, "{before} of 200 new starts went before the results, {} ms after the first", last - ready);
    let report = vendors.books.starts_report(Some("flux"));
    assert_eq!(report["started_twice"], json!([]));
    drop(tempting);
}

/// Polls that are sent elsewhere, by every way of carrying a key.
async fn redirects() {
    let vendors = Vendors::start(Duration::from_millis(300)).await;
    let mut setup = Setup::new();
    for vendor in ["flux", "runway", "elevenlabs", "claude_managed_agents"] {
        setup = setup.connector(&vendors, vendor, "");
    }
    let server = setup.serve().await;
    // The stand-in's own answer follows the redirects, so that each job ends well from the true host.
    let away = json!({"times": 3, "status": 307, "headers": {"location": "{other_host}/elsewhere"}, "then_own": true});
    let step = |step: &str| {
        let mut entry = away.clone();
        entry["step"] = json!(step);
        entry
    };
    let evil = json!({"host": "other", "step": "any", "status": 200, "body": {"id": "x", "status": "completed", "content_url": "{other_host}/evil.mp3"}});
    for (vendor, steps) in [
        ("flux", vec!["poll"]),
        ("runway", vec!["poll"]),
        ("elevenlabs", vec!["find"]),
        ("claude_managed_agents", vec!["poll", "events"]),
    ] {
        let wire: Vec<Value> = steps.into_iter().map(step).chain([evil.clone()]).collect();
        vendors.script(json!({"vendor": vendor, "wire": wire})).await;
    }
    // Speech has no poll: its answer is lost, and it is looked for.
    vendors.fault(json!({"vendor": "elevenlabs", "route": "start", "fault": "drop_after_read", "count": 1})).await;
    let mut ids = Vec::new();
    for vendor in ["flux", "runway", "elevenlabs", "claude_managed_agents"] {
        ids.push((vendor, server.submit(hello(vendor, "")).await));
    }
    for (vendor, id) in ids {
        let job = server.job_in(&id, &["succeeded"]).await;
        assert!(!job["artifacts"].as_array().expect("a list").is_empty(), "{vendor}: {job:#}");
        for artifact in job["artifacts"].as_array().expect("a list") {
            let source = artifact["source"].to_string();
            assert!(!source.contains(&vendors.other), "{vendor}: {artifact}");
        }
        assert_eq!(vendors.starts(vendor), 1, "{vendor}");
        let away =
            vendors.books.requests(Some(vendor)).into_iter().filter(|request| request.status == Some(307)).count();
        assert!(away >= 3, "{vendor} was sent away {away} times");
        let units = usage(&job).iter().map(|(unit, ..)| unit.clone()).collect::<Vec<_>>();
        let mut once = units.clone();
        once.dedup();
        assert_eq!(units, once, "{vendor}: usage once");
    }
    let strange: Vec<_> = vendors.books.requests(None).into_iter().filter(|request| request.host == "other").collect();
    assert!(strange.is_empty(), "a stranger was called: {strange:?}");
    assert_eq!(vendors.leaks(), 0);
    assert!(server.metric("longhaul_guard_refusals_total", &["reason=\"redirect\""]).await >= 12.0);
}

/// A listener that should stay silent.
async fn canary() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port().to_string();
    let count = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&count);
    tokio::spawn(async move {
        while listener.accept().await.is_ok() {
            seen.fetch_add(1, Ordering::SeqCst);
        }
    });
    (port, count)
}

async fn addresses() {
    let (vendors, server) = one("flux").await;
    let (port, connections) = canary().await;
    // The last three hosts are names: one that resolves to this machine, one that only means something here, and one
    // that begins like the vendor's.
    let bad: Vec<(String, &str)> = vec![
        ("http://169.254.169.254/latest/meta-data/".to_owned(), "169.254.169.254"),
        (format!("http://[::ffff:127.0.0.1]:{port}/"), "ffff"),
        (format!("http://2130706433:{port}/"), "127.0.0.1"),
        (format!("http://0x7f.1:{port}/"), "127.0.0.1"),
        (format!("http://[64:ff9b::7f00:1]:{port}/"), "64:ff9b"),
        (format!("https://127.0.0.1:{port}/"), "127.0.0.1"),
        ("file:///etc/hostname".to_owned(), ""),
        (format!("http://localhost.:{port}/"), "localhost"),
        (format!("https://localhost:{port}/"), "localhost"),
        ("https://bfl.ai.evil.test/".to_owned(), "bfl.ai.evil.test"),
    ];
    let ways = ["polling", "sample", "redirect"];
    let (mut wire, mut jobs) = (Vec::new(), Vec::new());
    for (n, (address, host)) in bad.iter().enumerate() {
        for way in ways {
            let id = format!("{way}-{n}");
            // A name that does not resolve is no refusal; only the key's rule can refuse it.
            if *host == "bfl.ai.evil.test" && way != "polling" {
                continue;
            }
            let polled = if way == "polling" { address.clone() } else { format!("{{base}}/v1/get_result?id={id}") };
            let sample = if way == "sample" { address.clone() } else { format!("{{cdn}}/{id}.png") };
            wire.push(json!({"step": "start", "match": {"body": format!("kettle {id} ")}, "status": 200, "body": {"id": id, "polling_url": polled, "cost": 4}}));
            wire.push(json!({"step": "poll", "match": {"query": id}, "status": 200, "body": {"id": id, "status": "Ready", "cost": 4, "result": {"sample": sample}}}));
            wire.push(json!({"step": "download", "match": {"path": format!("/{id}.png")}, "status": 302, "headers": {"location": address}}));
            jobs.push((id, *host, way));
        }
    }
    vendors.script(json!({"vendor": "flux", "wire": wire})).await;
    let mut ids = Vec::new();
    for (name, host, way) in &jobs {
        ids.push((server.submit(image(&format!("copper kettle {name} "), 512, 512)).await, name, *host, *way));
    }
    for (id, name, host, way) in ids {
        let job = server.job_in(&id, &["failed", "parked"]).await;
        assert_eq!(job["error"]["code"], "address_refused", "{name}: {job:#}");
        let message = job["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(host) && !message.contains("meta-data"), "{name} names the host alone: {message}");
        assert_eq!(job["vendor_job_id"].as_str(), Some(name.as_str()), "it was paid: {job:#}");
        assert_eq!(job["artifacts"], json!([]), "{name}");
        let lines = usage(&job);
        assert_eq!(lines.len(), 1, "{name}: {job:#}");
        let source = if way == "polling" { "estimated" } else { "reported" };
        assert_eq!((lines[0].1, lines[0].2.as_str()), (exactly("4"), source), "{name}: {job:#}");
        assert_eq!(decimal(&job["cost_usd"]), exactly("0.04"), "{name}");
    }
    assert_eq!(vendors.starts("flux"), jobs.len(), "one start each reached the vendor");
    assert_eq!(connections.load(Ordering::SeqCst), 0, "nobody was called");
    assert_eq!(vendors.leaks(), 0);
    assert!(server.metric("longhaul_guard_refusals_total", &[]).await >= jobs.len() as f64);
}
