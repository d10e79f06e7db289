//! Submitting one job: what is stored, what is refused, and that a key buys once.

use crate::support::{NOON, Reply, World, bearer, painting};
use longhaul_scheduler::tokens::Role;
use longhaul_store::{JobFilter, Store};
use serde_json::{Value, json};
use std::collections::BTreeSet;

#[tokio::test]
async fn a_job_is_durable_and_looks_as_documented() {
    let world = World::open();
    let mut body = painting();
    body["labels"] = json!({"task": "T-12"});
    body["tenant"] = json!("acme");
    let reply = world.post("/v1/jobs", &body).await;
    assert_eq!(reply.status, 201);
    let job = reply.json();
    let id = job["id"].as_str().unwrap();
    let hex = id.strip_prefix("job_").unwrap();
    assert!(hex.len() == 32 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)), "{id}");
    assert_eq!(reply.header("location"), format!("/v1/jobs/{id}"));
    let expected = json!({
        "id": id, "state": "queued", "connector": "flux", "vendor": "flux", "task": "image", "tenant": "acme",
        "attempt": 0, "polls": 0, "errors": 0, "step": {"kind": "start", "due_at": "2026-11-30T12:00:00.000Z"},
        "progress": null, "vendor_job_id": null, "question": null, "cancel": null, "artifacts": [], "usage": [],
        "cost_usd": null, "error": null, "labels": {"task": "T-12"}, "rerun_of": null, "rerun_by": null,
        "waiting": null, "expected_at": null,
        "created_at": "2026-11-30T12:00:00.000Z", "started_at": null, "finished_at": null,
    });
    assert_eq!(job, expected);
    assert_eq!(world.get(&format!("/v1/jobs/{id}")).await.json(), expected);
    let record = world.store.get(id).await.unwrap().unwrap();
    assert_eq!(record.job.attempts_allowed, 1);
    assert_eq!(record.job.created_at.resolve(0), NOON);
    assert_eq!(record.body.prepared["prompt"], "one blue cup");
    assert_eq!(record.body.model.as_deref(), Some("flux-2-pro"));
    let history = world.get(&format!("/v1/jobs/{id}/events")).await.json();
    let first = json!({"seq": 1, "at": "2026-11-30T12:00:00.000Z", "kind": "state", "step": null, "attempt": 0,
        "data": {"from": null, "to": "queued"}});
    assert_eq!(history, json!({"events": [first], "next_cursor": null}));
}

/// <https://github.com/zonelessdev/zoneless/issues/134>
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_key_buys_one_job_however_many_ask_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_owned();
    let world = std::sync::Arc::new(World::at(dir, Default::default(), |_| {}));
    let token = bearer(&world.token(Role::Submit, Some("one")).await);
    let bodies = [
        r#"{"connector":"flux","task":"image","instructions":"one blue cup","media":{"width":512,"height":512}}"#,
        r#"{"media":{"height":512.0,"width":5.12e2},"instructions":"one \u0062lue cup","task":"image","connector":"flux"}"#,
    ];
    let calls = (0..32).map(|n| {
        let (world, token) = (world.clone(), token.clone());
        tokio::spawn(async move {
            let headers = [("idempotency-key", "k-1"), ("authorization", token.as_str())];
            world.post_as("/v1/jobs", &headers, bodies[n % 2]).await
        })
    });
    let mut ids = BTreeSet::new();
    let mut created = 0;
    for call in calls.collect::<Vec<_>>() {
        let reply = call.await.unwrap();
        assert!(reply.status == 200 || reply.status == 201, "{}", reply.text());
        created += usize::from(reply.status == 201);
        ids.insert(reply.json()["id"].as_str().unwrap().to_owned());
    }
    assert_eq!((ids.len(), created), (1, 1));
    let headers = [("idempotency-key", "k-1"), ("authorization", token.as_str())];
    let other = world.post_as("/v1/jobs", &headers, &bodies[0].replace("one blue", "two blue")).await;
    assert_eq!(other.error(), (409, "idempotency_conflict".to_owned()));
    let stranger = bearer(&world.token(Role::Submit, Some("two")).await);
    let headers = [("idempotency-key", "k-1"), ("authorization", stranger.as_str())];
    let own = world.post_as("/v1/jobs", &headers, bodies[0]).await;
    assert_eq!(own.status, 201);
    assert!(!ids.contains(own.json()["id"].as_str().unwrap()));
    assert!(world.metric("longhaul_submissions_total{outcome=\"replayed\"} 31").await);
    assert!(world.metric("longhaul_submissions_total{outcome=\"new\"} 2").await);
    assert!(world.metric("longhaul_submissions_total{outcome=\"conflict\"} 1").await);

    // After a restart the key still answers the same job.
    let world = std::sync::Arc::into_inner(world).unwrap();
    world.store.close().await;
    let World { dir, api, store, .. } = world;
    drop((api, store));
    let world = World::at(dir, Default::default(), |_| {});
    assert_eq!(world.dir.path(), path);
    let headers = [("idempotency-key", "k-1"), ("authorization", token.as_str())];
    let again = world.post_as("/v1/jobs", &headers, bodies[1]).await;
    assert_eq!(again.status, 200, "{}", again.text());
    assert!(ids.contains(again.json()["id"].as_str().unwrap()));
}

/// A repeat is no new wish: it gets its job although today it would be refused.
#[tokio::test]
async fn a_key_answers_its_job_after_the_connector_is_gone() {
    let world = World::open();
    let headers = [("idempotency-key", "k-1")];
    let body = painting().to_string();
    let id = |reply: &Reply| reply.json()["id"].as_str().unwrap().to_owned();
    let first = id(&world.post_as("/v1/jobs", &headers, &body).await);
    let lines = format!("{body}\n{body}\n");
    let job_of = |line: &str| serde_json::from_str::<Value>(line).unwrap()["job"]["id"].clone();
    let batch = world.post_as("/v1/jobs/batch", &headers, &lines).await.text();
    let batch: Vec<_> = batch.lines().map(job_of).collect();
    assert_eq!(batch.iter().filter(|id| id.is_string()).count(), 2);
    let path = format!("/v1/jobs/{first}/rerun");
    let wish = json!({"reason": "another"}).to_string();
    let rerun = id(&world.post_as(&path, &[("idempotency-key", "k-2")], &wish).await);

    world.store.close().await;
    let World { dir, api, store, .. } = world;
    drop((api, store));
    let world = World::with_connectors(dir, Default::default(), |options| options.require_token = false, &["other"]);
    let again = world.post_as("/v1/jobs", &headers, &body).await;
    assert_eq!((again.status.as_u16(), id(&again)), (200, first));
    // A third line is a new job, and refused as one.
    let again = world.post_as("/v1/jobs/batch", &headers, &format!("{lines}{body}\n")).await.text();
    let again: Vec<_> = again.lines().map(job_of).collect();
    assert_eq!((&again[..2], &again[2..]), (&batch[..], &[Value::Null][..]));
    let again = world.post_as(&path, &[("idempotency-key", "k-2")], &wish).await;
    assert_eq!((again.status.as_u16(), id(&again)), (200, rerun));
    for (headers, body) in [
        (&[][..], body.clone()),
        (&[("idempotency-key", "k-9")][..], body.clone()),
        (&headers[..], body.replace("one blue", "two blue")),
    ] {
        let refused = world.post_as("/v1/jobs", headers, &body).await;
        assert_eq!(refused.error(), (422, "invalid_request".to_owned()), "{headers:?}");
    }
    let tried = world.post_as("/v1/jobs?dry_run=true", &headers, &body).await;
    assert_eq!(tried.error(), (422, "invalid_request".to_owned()), "a dry run tells of today");
}

#[tokio::test]
async fn keys_are_visible_ascii_of_bounded_length() {
    let world = World::open();
    for key in ["", &"k".repeat(256), "a b", "é"] {
        let reply = world.post_as("/v1/jobs", &[("idempotency-key", key)], &painting().to_string()).await;
        assert_eq!(reply.problems(), [("Idempotency-Key".to_owned(), "not_allowed".to_owned())], "{key:?}");
    }
    let two = [("idempotency-key", "a"), ("idempotency-key", "b")];
    assert_eq!(world.post_as("/v1/jobs", &two, &painting().to_string()).await.status, 422);
}

#[tokio::test]
async fn a_path_belongs_to_one_job() {
    let world = World::open();
    let mut body = painting();
    body["output_path"] = json!("assets/hero.png");
    let first = world.post("/v1/jobs", &body).await.json();
    let second = world.post("/v1/jobs", &body).await;
    assert_eq!(second.error(), (409, "path_taken".to_owned()));
    assert!(second.text().contains(first["id"].as_str().unwrap()));
    body["tenant"] = json!("other");
    assert_eq!(world.post("/v1/jobs", &body).await.status, 201);
}

#[tokio::test]
async fn a_dry_run_shows_request_estimate_and_limits_and_stores_nothing() {
    let world = World::open();
    let mut body = painting();
    body["media"]["seed"] = json!(9_007_199_254_740_993_u64);
    body["limits"] = json!({"max_cost_usd": "0.04"});
    let reply = world.post("/v1/jobs?dry_run=true", &body).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let expected = json!({
        "request": {"prompt": "one blue cup", "width": 512, "seed": 9_007_199_254_740_993_u64, "images": []},
        "model": "flux-2-pro",
        "estimate": [{"unit": "credits", "quantity": "4", "usd": "0.04"}],
        "cost_usd": "0.04",
        "limits": {"max_cost_usd": "0.04", "max_minutes": 30, "question_minutes": 10},
    });
    assert_eq!(reply.json(), expected);
    let (jobs, _) = world.store.list(&JobFilter::default(), None, 10).await.unwrap();
    assert!(jobs.is_empty());
}

#[tokio::test]
async fn what_would_cost_too_much_is_refused_and_a_limit_met_exactly_is_met() {
    let world = World::open();
    let with = |max: Value| {
        let mut body = painting();
        body["limits"] = json!({"max_cost_usd": max});
        body
    };
    for path in ["/v1/jobs", "/v1/jobs?dry_run=true"] {
        let reply = world.post(path, &with(json!("0.0399999999999999999999"))).await;
        assert_eq!(reply.error(), (422, "limit_exceeded".to_owned()));
    }
    assert_eq!(world.post("/v1/jobs", &with(json!(0.04))).await.status, 201);
}

#[tokio::test]
async fn the_vendors_own_refusal_comes_with_everything_else_wrong() {
    let world = World::open();
    let body = json!({
        "connector": "flux", "task": "image", "instructions": "cup", "media": {"width": 4096}, "vendor": {"safety_tolerence": 2},
        "notify": {"url": "http://orchestrator.example/"}, "inputs": [{"role": "reference", "url": "ftp://x/y"},
        {"role": "mask", "artifact": "art_missing"}],
    });
    for path in ["/v1/jobs", "/v1/jobs?dry_run=true"] {
        let reply = world.post(path, &body).await;
        assert_eq!(reply.error(), (422, "invalid_request".to_owned()));
        let mut problems = reply.problems();
        problems.sort();
        let paths: Vec<&str> = problems.iter().map(|(path, _)| path.as_str()).collect();
        let expected = ["inputs[0].url", "inputs[1].artifact", "media.width", "notify.url", "vendor.safety_tolerence"];
        assert_eq!(paths, expected);
        let width =
            reply.json()["error"]["problems"].as_array().unwrap().iter().find(|p| p["path"] == "media.width").cloned();
        assert_eq!(width.unwrap()["allowed"], json!({"max": 2048}));
    }
    let (jobs, _) = world.store.list(&JobFilter::default(), None, 10).await.unwrap();
    assert!(jobs.is_empty());
    assert!(world.metric("longhaul_submissions_total{outcome=\"refused\"} 2").await);
}

#[tokio::test]
async fn a_wrong_connector_or_task_names_what_there_is() {
    let world = World::open();
    let reply = world.post("/v1/jobs", &json!({"task": "image"})).await;
    assert_eq!(reply.json()["error"]["problems"][0]["allowed"], json!(["flux"]));
    let reply = world.post("/v1/jobs", &json!({"connector": "flux"})).await;
    assert!(reply.json()["error"]["problems"][0]["allowed"].as_array().unwrap().contains(&json!("image")));
    let reply = world.post("/v1/jobs", &json!({"connector": "fluxx", "task": "image"})).await;
    assert_eq!(reply.problems(), [("connector".to_owned(), "not_allowed".to_owned())]);
    assert!(reply.text().contains("`flux`"));
    let reply = world.post("/v1/jobs", &json!({"connector": "midjourney", "task": "image"})).await;
    assert!(reply.json()["error"]["message"].as_str().unwrap().contains("instead"), "{}", reply.text());
    let reply = world.post("/v1/jobs", &json!({"connector": "runway", "task": "video"})).await;
    assert!(reply.text().contains("[connectors.runway]"), "{}", reply.text());
    let reply = world.post("/v1/jobs", &json!({"connector": "flux", "task": "video", "instructions": "a cup"})).await;
    assert_eq!(reply.problems(), [("task".to_owned(), "not_allowed".to_owned())]);
    assert_eq!(reply.json()["error"]["problems"][0]["allowed"], json!(["image"]));
}

/// <https://github.com/brian7704/OpenTAKServer/issues/291>, the part about our own API.
#[tokio::test]
async fn doubled_keys_and_numbers_that_json_cannot_hold_are_refused_with_their_place() {
    let world = World::open();
    let refused = [
        (r#"{"connector":"flux","task":"image","instructions":"a","instructions":"b"}"#, "instructions"),
        (
            r#"{"connector":"flux","task":"image","instructions":"cup","media":{"seed":18446744073709551616}}"#,
            "media.seed",
        ),
        (
            r#"{"connector":"flux","task":"image","instructions":"cup","limits":{"max_cost_usd":"-1"}}"#,
            "limits.max_cost_usd",
        ),
        (
            r#"{"connector":"flux","task":"image","instructions":"cup","limits":{"max_cost_usd":"NaN"}}"#,
            "limits.max_cost_usd",
        ),
        (
            r#"{"connector":"flux","task":"image","instructions":"cup","limits":{"max_cost_usd":NaN}}"#,
            "limits.max_cost_usd",
        ),
        (r#"{"connector":"flux","task":"image","instructions":"cup","vendor":{"a":{"b":1,"b":2}}}"#, "vendor.a.b"),
    ];
    for (body, path) in refused {
        let reply = world.post_text("/v1/jobs", body).await;
        assert_eq!(reply.status, 422, "{body}");
        assert!(reply.problems().iter().any(|(at, _)| at == path), "{body}: {}", reply.text());
    }
    for (money, kept) in [("0.1", "0.1"), ("\"0.1\"", "0.1"), ("\"1e3\"", "1000")] {
        let body = format!(
            r#"{{"connector":"flux","task":"image","instructions":"cup","media":{{"seed":9007199254740993}},"limits":{{"max_cost_usd":{money}}}}}"#
        );
        let reply = world.post_text("/v1/jobs", &body).await;
        assert_eq!(reply.status, 201, "{}", reply.text());
        let record = world.store.get(reply.json()["id"].as_str().unwrap()).await.unwrap().unwrap();
        assert_eq!(record.body.request.limits.max_cost_usd.unwrap().to_string(), kept);
        assert_eq!(record.body.prepared["seed"].as_u64(), Some(9_007_199_254_740_993));
    }
}
