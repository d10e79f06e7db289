//! Lists, one job, waiting, usage, histories as pages.

use crate::support::{World, event, painting};
use longhaul_registry::{Failure, FailureKind, Retry, Step, Unit, UsageSource};
use longhaul_store::{Committed, JobError, JobState, RawExchange, Store, Transition, UsageLine, When};
use serde_json::{Value, json};
use std::time::Duration;

fn ids(list: &Value) -> Vec<String> {
    list["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn lists_are_newest_first_filtered_and_paged() {
    let world = World::open();
    let mut all = Vec::new();
    for n in 0..5 {
        let mut body = painting();
        body["labels"] = json!({"batch": if n < 2 { "b1" } else { "b=2" }});
        body["tenant"] = json!(if n == 4 { "acme" } else { "default" });
        all.push(world.post("/v1/jobs", &body).await.json()["id"].as_str().unwrap().to_owned());
        world.clock.advance(Duration::from_secs(60));
    }
    let error =
        JobError { failure: Failure::new(FailureKind::Auth, Retry::Never, "no").code("auth_x"), step: Step::Start };
    let failed = |job: &mut longhaul_store::Job| {
        job.state = JobState::Failed;
        job.step = None;
        job.due_at = None;
        job.finished_at = Some(When::NOW);
        job.error = Some(error);
    };
    world.change(&all[1], failed, Vec::new()).await;
    all.reverse();
    let list = |query: &'static str| {
        let world = &world;
        async move { ids(&world.get(&format!("/v1/jobs{query}")).await.json()) }
    };
    assert_eq!(list("").await, all);
    assert_eq!(list("?state=failed").await, all[3..4]);
    assert_eq!(list("?state=failed,queued&limit=500").await, all);
    assert_eq!(list("?state=parked").await, all[..0]);
    assert_eq!(list("?label=batch%3Db1").await, all[3..]);
    assert_eq!(list("?label=batch=b=2&tenant=default").await, all[1..3]);
    assert_eq!(list("?error=auth_x").await, all[3..4]);
    assert_eq!(list("?error=auth&vendor=flux&connector=flux").await, all[3..4]);
    assert_eq!(list("?connector=other").await, all[..0]);
    assert_eq!(list("?since=2026-11-30T12:02:00Z&until=2026-11-30T13:04:00%2B01:00").await, all[1..3]);
    assert_eq!(list("?until=2026-11-30").await, all[..0]);
    let first = world.get("/v1/jobs?limit=2").await.json();
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = world.get(&format!("/v1/jobs?limit=3&cursor={cursor}")).await.json();
    assert_eq!([ids(&first), ids(&second)].concat(), all);
    assert_eq!(second["next_cursor"], Value::Null);
}

#[tokio::test]
async fn a_wrong_query_is_told_and_never_ignored() {
    let world = World::open();
    let cases = [
        ("?stat=failed", "stat", "unknown_key"),
        ("?state=faild", "state", "not_allowed"),
        ("?limit=0", "limit", "out_of_range"),
        ("?limit=501", "limit", "out_of_range"),
        ("?limit=x", "limit", "out_of_range"),
        ("?label=x", "label", "not_allowed"),
        ("?since=yesterday", "since", "not_allowed"),
        ("?cursor=rubbish", "cursor", "not_allowed"),
        ("?tenant=a&tenant=b", "tenant", "doubled_key"),
    ];
    for (query, path, code) in cases {
        let reply = world.get(&format!("/v1/jobs{query}")).await;
        assert_eq!(reply.error(), (422, "invalid_request".to_owned()), "{query}");
        assert_eq!(reply.problems(), [(path.to_owned(), code.to_owned())], "{query}");
    }
}

#[tokio::test]
async fn what_is_not_there_is_404_and_other_methods_are_405() {
    let world = World::open();
    for path in [
        "/v1/jobs/job_x",
        "/v1/jobs/job_x/wait",
        "/v1/jobs/job_x/events",
        "/v1/artifacts/art_x",
        "/v1/artifacts/art_x/content",
        "/v1/connectors/x",
        "/v1/nothing",
        "/",
        "/v1/jobs/%FF",
    ] {
        assert_eq!(world.get(path).await.error(), (404, "not_found".to_owned()), "{path}");
    }
    for path in [
        "/v1/jobs/job_x/answer",
        "/v1/jobs/job_x/cancel",
        "/v1/jobs/job_x/replay",
        "/v1/jobs/job_x/rerun",
        "/v1/jobs/job_x/resolve",
        "/v1/connectors/x/check",
        "/v1/connectors/x/pause",
        "/v1/connectors/x/resume",
    ] {
        assert_eq!(world.post(path, &json!({})).await.error(), (404, "not_found".to_owned()), "{path}");
    }
    let reply = world.post("/v1/usage", &json!({})).await;
    assert_eq!(reply.error(), (405, "method_not_allowed".to_owned()));
    assert!(reply.header("allow").contains("GET"));
}

#[tokio::test]
async fn waiting_ends_with_the_change_or_with_the_time() {
    let world = World::open();
    let id = world.job().await;
    let at_once = world.get(&format!("/v1/jobs/{id}/wait?timeout_s=0")).await.json();
    assert_eq!(at_once["state"], "queued");
    assert_eq!(world.get(&format!("/v1/jobs/{id}/wait?timeout_s=601")).await.status, 422);
    let path = format!("/v1/jobs/{id}/wait?timeout_s=600");
    let waited = world.get(&path);
    let changed = async {
        world.change(&id, |job| job.state = JobState::Running, Vec::new()).await;
        let parked = |job: &mut longhaul_store::Job| {
            job.state = JobState::Parked;
            job.step = None;
            job.due_at = None;
        };
        world.change(&id, parked, Vec::new()).await;
    };
    let (waited, ()) = futures::join!(waited, changed);
    assert_eq!(waited.json()["state"], "parked");
}

#[tokio::test]
async fn histories_are_paged_and_carry_the_exchange_when_asked() {
    let world = World::open();
    let id = world.job().await;
    let record = world.store.get(&id).await.unwrap().unwrap();
    let mut transition = Transition::to(record.job);
    transition.events = vec![event("step", json!({"n": 1}))];
    transition.raws = vec![RawExchange {
        step: Step::Poll,
        route: "get_result".to_owned(),
        adapter: "flux/1".to_owned(),
        fingerprint: "f".to_owned(),
        text: "GET /v1/get_result".to_owned(),
    }];
    let done = world.store.apply(&id, record.rev, transition).await.unwrap();
    assert!(matches!(done, Committed::Done(..)));
    let first = world.get(&format!("/v1/jobs/{id}/events?limit=1")).await.json();
    assert_eq!(first["events"][0]["seq"], 1);
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = world.get(&format!("/v1/jobs/{id}/events?limit=5&cursor={cursor}")).await.json();
    assert_eq!(second["events"][0]["data"], json!({"n": 1}));
    assert!(second["events"][0]["raw"].is_u64(), "{second}");
    assert_eq!(second["next_cursor"], Value::Null);
    let raw = world.get(&format!("/v1/jobs/{id}/events?raw=true&cursor={cursor}")).await.json();
    let exchange = &raw["events"][0]["raw"];
    assert_eq!(exchange["text"], "GET /v1/get_result");
    assert_eq!((&exchange["count"], &exchange["first_at"]), (&json!(1), &json!("2026-11-30T12:00:00.000Z")));
}

#[tokio::test]
async fn the_ledger_is_summed_as_asked() {
    let world = World::open();
    for (n, (quantity, usd)) in [("4.0", "0.04"), ("3.5", "0.035"), ("7", "0.07")].into_iter().enumerate() {
        let mut body = painting();
        body["tenant"] = json!(if n == 2 { "acme" } else { "default" });
        let id = world.post("/v1/jobs", &body).await.json()["id"].as_str().unwrap().to_owned();
        let record = world.store.get(&id).await.unwrap().unwrap();
        let mut transition = Transition::to(record.job);
        transition.usage = vec![UsageLine {
            attempt: 1,
            record: "i-1".to_owned(),
            unit: Unit::Credits,
            quantity: quantity.parse().unwrap(),
            source: UsageSource::Reported,
            usd: Some(usd.parse().unwrap()),
        }];
        world.store.apply(&id, record.rev, transition).await.unwrap();
        let job = world.get(&format!("/v1/jobs/{id}")).await.json();
        assert_eq!(job["cost_usd"], usd);
        assert_eq!(job["usage"][0]["source"], "reported");
    }
    let usage = world.get("/v1/usage").await.json();
    let row = json!({"vendor": "flux", "unit": "credits", "quantity": "14.5", "usd": "0.145", "lines": 3});
    assert_eq!(usage, json!({"usage": [row], "next_cursor": null}));
    let by = world.get("/v1/usage?by=tenant,day&from=2026-11-30&to=2026-11-30").await.json();
    assert_eq!(by["usage"].as_array().unwrap().len(), 2);
    let acme = by["usage"].as_array().unwrap().iter().find(|row| row["tenant"] == "acme").unwrap();
    assert_eq!((&acme["day"], &acme["usd"]), (&json!("2026-11-30"), &json!("0.07")));
    assert_eq!(world.get("/v1/usage?from=2026-12-01").await.json()["usage"], json!([]));
    let csv = world.get("/v1/usage?by=tenant,unit&tenant=acme&format=csv").await;
    assert_eq!(csv.header("content-type"), "text/csv; charset=utf-8");
    assert_eq!(csv.text(), "tenant,unit,quantity,usd,lines\r\nacme,credits,7,0.07,1\r\n");
    for (query, path) in [("by=colour", "by"), ("from=today", "from"), ("format=xml", "format")] {
        assert_eq!(world.get(&format!("/v1/usage?{query}")).await.problems()[0].0, path);
    }
}
