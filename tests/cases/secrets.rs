//! What must not leak: our calls into a proxy, our key into anything that is written.

use crate::common::{image, succeeded};
use crate::support::{KEY, Server, Setup, Vendors, hello, http, until};
use crate::{waits, works};
use axum::Router;
use axum::routing::post;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt;
use libtest_mimic::Trial;
use reqwest::Method;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;

pub(crate) fn cases() -> Vec<Trial> {
    vec![
        works("r24_no_call_follows_a_proxy_from_the_environment", proxies),
        waits("r28_the_key_stands_in_nothing_that_is_written", nowhere),
        waits("r28_a_base_url_with_a_key_in_it_is_refused_without_being_repeated", base_url),
    ]
}

/// A listener that counts who calls it.
async fn counting() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = listener.local_addr().expect("an address").to_string();
    let count = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&count);
    tokio::spawn(async move {
        while listener.accept().await.is_ok() {
            seen.fetch_add(1, Ordering::SeqCst);
        }
    });
    (at, count)
}

async fn proxies() {
    let (canary, connections) = counting().await;
    let (notified, notify) = {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = listener.local_addr().expect("an address").to_string();
        let count = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&count);
        let heard = move || {
            let seen = Arc::clone(&seen);
            async move { seen.fetch_add(1, Ordering::SeqCst).to_string() }
        };
        tokio::spawn(async move { axum::serve(listener, Router::new().route("/hooks", post(heard))).await });
        (count, at)
    };
    let vendors = Vendors::start(Duration::from_millis(300)).await;
    let mut setup =
        Setup::new().connector(&vendors, "flux", "").with(&format!("[notify]\nprivate_hosts = [\"{notify}\"]"));
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"] {
        setup = setup.env(name, &format!("http://{canary}"));
    }
    setup = setup
        .env("ALL_PROXY", &format!("socks5://{canary}"))
        .env("all_proxy", &format!("socks5://{canary}"))
        .env("NO_PROXY", "");

    let out = setup.folder().join("demo").display().to_string();
    let (code, shown, err) = setup.run(&["demo", "--json", "--out", &out]).await;
    assert_eq!(code, 0, "{err}");
    let jobs: Vec<Value> = shown.lines().map(|line| serde_json::from_str(line).expect("a job a line")).collect();
    assert!(jobs.len() >= 3, "{shown}");
    assert!(jobs.iter().all(|job| job["state"] == "succeeded"), "{shown}");

    let server = setup.serve().await;
    let mut job = hello("flux", "");
    job["notify"] = json!({"url": format!("http://{notify}/hooks"), "events": ["job.finished"]});
    std::fs::write(setup.folder().join("job.json"), job.to_string()).expect("a job file");
    let (code, shown, err) =
        setup.run(&["jobs", "submit", "job.json", "--wait", "-o", "json", "--url", &server.url]).await;
    assert_eq!(code, 0, "{err}");
    let shown: Value = serde_json::from_str(&shown).unwrap_or_else(|_| panic!("one job: {shown}"));
    succeeded(&server.job(shown["id"].as_str().expect("an id")).await);
    let (code, _, err) = setup.run(&["connectors", "check", "flux", "--url", &server.url]).await;
    assert_eq!(code, 0, "{err}");
    until("the checks and the notification went out", async || {
        let checked = vendors.requests("flux", "check").iter().any(|check| check.status == Some(200));
        (checked && notified.load(Ordering::SeqCst) == 1).then_some(())
    })
    .await;
    assert_eq!(connections.load(Ordering::SeqCst), 0, "the proxy of the environment was called");
}

/// The key in the forms in which it could be written.
fn forms() -> Vec<String> {
    // Percent-encoding leaves this key as it is.
    let mut forms = vec!["CANARY".to_owned()];
    for shift in 0..3 {
        let encoded = STANDARD.encode(format!("{}{KEY}", &"xxx"[..shift]));
        // The characters at both ends hang on what stands beside it.
        forms.push(encoded[4..encoded.len() - 4].to_owned());
    }
    forms
}

/// Fails where a text holds the key.
fn clean(place: &str, text: &[u8]) {
    for form in forms() {
        let found = text.windows(form.len()).position(|window| window == form.as_bytes());
        let around = found
            .map(|at| String::from_utf8_lossy(&text[at.saturating_sub(80)..(at + 60).min(text.len())]).into_owned());
        assert!(found.is_none(), "{place} holds the key as {form}: …{}…", around.unwrap_or_default());
    }
}

/// Every file below a folder but the key's own.
fn clean_files(folder: &Path) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            clean_files(&path);
        } else if path.file_name().is_some_and(|name| name != "key") {
            clean(&path.display().to_string(), &std::fs::read(&path).expect("a file"));
        }
    }
}

/// Every surface of a server.
async fn clean_surfaces(server: &Server, setup: &Setup, ids: &[String]) {
    for id in ids {
        clean(id, server.job(id).await.to_string().as_bytes());
        clean("events", server.get(&format!("/v1/jobs/{id}/events?limit=1000&raw=true")).await.to_string().as_bytes());
        let stream = http().get(format!("{}/v1/jobs/{id}/events", server.url)).header("accept", "text/event-stream");
        let mut stream = stream.send().await.expect("a stream").bytes_stream();
        let mut told = Vec::new();
        while let Ok(Some(Ok(piece))) = tokio::time::timeout(Duration::from_millis(200), stream.next()).await {
            told.extend_from_slice(&piece);
        }
        clean("the stream of events", &told);
    }
    for path in [
        "/v1/jobs",
        "/v1/connectors",
        "/v1/vendors",
        "/v1/usage",
        "/v1/usage?format=csv",
        "/metrics",
        "/openapi.json",
        "/readyz",
    ] {
        let (status, text) = server.send(Method::GET, path, &[], None).await;
        // A page that is not there would hold no key either.
        assert_eq!(status, 200, "{path}: {text}");
        clean(path, text.as_bytes());
    }
    for args in [
        &["doctor", "-o", "json"][..],
        &["doctor"],
        &["connectors", "list", "--url", &server.url],
        &["jobs", "list", "--url", &server.url],
    ] {
        let (code, out, err) = setup.run(args).await;
        assert_eq!(code, 0, "{args:?}: {out}{err}");
        clean(&args.join(" "), format!("{out}{err}").as_bytes());
    }
    clean_files(setup.folder());
}

async fn nowhere() {
    let vendors = Vendors::start(Duration::from_millis(300)).await;
    let closed = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("an address").to_string();
    let (plain, _) = counting().await;
    let open = |base: &str| {
        format!(
            "base_url = \"{base}\"\nallow_private_network = true\ncadence = {{ first_s = 0.1, factor = 1.2, ceiling_s = 0.5, jitter = 0.1 }}\n"
        )
    };
    let base = format!("http://{}/flux", vendors.at);
    let mut setup = Setup::new()
        .connector_elsewhere("nowhere", "flux", "base_url = \"https://vendor-b.invalid\"\n")
        .connector_elsewhere("refused", "flux", &open(&format!("http://{closed}")))
        .connector_elsewhere("no_tls", "flux", &open(&format!("https://{plain}")));
    for name in ["said_401", "said_302", "said_500", "polled", "linked"] {
        setup =
            setup.connector_elsewhere(name, "flux", &format!("{}private_hosts = [\"{}\"]\n", open(&base), vendors.cdn));
    }
    let mut server = setup.serve().await;
    let encoded = STANDARD.encode(KEY);
    let basic = STANDARD.encode(format!("user:{KEY}"));
    let echo = json!({"detail": format!("Invalid key {KEY}, {encoded}, Basic {basic}"), "headers": {"Authorization": format!("Bearer {KEY}"), "x-key": KEY}});
    let polled = json!({"query": "id=polled"});
    vendors
        .script(json!({"vendor": "flux", "wire": [
            {"step": "start", "match": {"body": "said_401"}, "status": 401, "body": echo, "headers": {"www-authenticate": format!("x-key {KEY}")}},
            {"step": "start", "match": {"body": "said_302"}, "status": 302, "headers": {"location": format!("https://user:{KEY}@elsewhere.invalid/?key={KEY}&b={encoded}")}},
            {"step": "start", "match": {"body": "said_500"}, "status": 500, "body": echo},
            {"step": "start", "match": {"body": "polled"}, "status": 200, "body": {"id": "polled", "polling_url": "{base}/v1/get_result?id=polled"}},
            {"step": "start", "match": {"body": "linked"}, "status": 200, "body": {"id": "linked", "polling_url": format!("{{base}}/v1/get_result?id=linked&key={KEY}")}},
            {"step": "poll", "match": polled, "times": 1, "status": 500, "body": echo},
            {"step": "poll", "match": polled, "times": 2, "status": 200, "body": {"id": "polled", "status": format!("Warming {KEY}")}},
            {"step": "poll", "match": polled, "status": 200, "body": {"id": "polled", "status": "Error", "details": echo}},
            {"step": "poll", "match": {"query": "id=linked"}, "status": 200, "body": {"id": "linked", "status": "Ready", "cost": 4, "result": {"sample": format!("{{cdn}}/{encoded}.png?sig={KEY}")}}},
            {"step": "download", "status": 403, "raw": format!("<Error><Key>{KEY}</Key></Error>"), "headers": {"content-type": "application/xml", "x-echo": KEY}},
            {"step": "check", "status": 401, "body": echo},
        ]}))
        .await;
    // Whether it must have failed by network or by key, or rests for another reason.
    let rows = [
        ("nowhere", Some("network")),
        ("refused", Some("network")),
        ("no_tls", None),
        ("said_401", Some("auth")),
        ("said_302", None),
        ("said_500", None),
        ("polled", None),
        ("linked", None),
    ];
    let mut ids = Vec::new();
    for (name, _) in rows {
        let mut job = image(&format!("paper crane, {name}"), 512, 512);
        job["connector"] = json!(name);
        ids.push(server.submit(job).await);
    }
    for ((name, kind), id) in rows.iter().zip(&ids) {
        let job = until(&format!("{name} met its fault"), async || {
            let job = server.job(id).await;
            (!job["error"].is_null()).then_some(job)
        })
        .await;
        if let Some(kind) = kind {
            assert_eq!((&job["error"]["kind"], &job["state"]), (&json!(kind), &json!("queued")), "{name}: {job:#}");
            assert_eq!(job["error"]["step"], "start", "{name}");
        }
        assert_eq!(job["artifacts"], json!([]), "{name}");
    }
    for id in &ids[5..] {
        server.job_at_rest(id).await;
    }
    for ((name, host), id) in [("nowhere", "vendor-b.invalid"), ("refused", closed.as_str())].iter().zip(&ids) {
        let job = server.job(id).await;
        assert!(job["error"]["message"].to_string().contains(host), "{name} names its host: {job:#}");
    }
    clean_surfaces(&server, &setup, &ids).await;
    // Stopped in the middle of it all, and started again.
    assert_eq!(server.stop().await, Some(0));
    assert!(!server.log_text().contains("panicked"));
    let server = setup.serve().await;
    clean_surfaces(&server, &setup, &ids).await;
}

async fn base_url() {
    let setup = Setup::new().connector_elsewhere(
        "b",
        "flux",
        "base_url = \"http://user:CANARYPW@vendor-b.test:1/v1?key=sandbox-CANARY-51f0c2\"\n",
    );
    for args in [&["serve", "--listen", "127.0.0.1:0"][..], &["doctor"], &["doctor", "-o", "json"]] {
        let (code, out, err) = setup.run(args).await;
        assert_ne!(code, 0, "{args:?}: {out}{err}");
        let told = format!("{out}{err}");
        assert!(told.contains("base_url"), "{args:?} names what is wrong: {told}");
        clean(&args.join(" "), told.as_bytes());
    }
}
