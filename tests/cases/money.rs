//! The ledger: every figure once, to its last digit.

use crate::common::{booked_once, decimal, exactly, image, one, ready_at_once, succeeded, usage};
use crate::support::{Setup, Vendors};
use crate::{waits, works};
use libtest_mimic::Trial;
use reqwest::Method;
use rust_decimal::Decimal;
use serde_json::{Value, json};
use std::time::Duration;

pub(crate) fn cases() -> Vec<Trial> {
    vec![
        waits("r07_reading_books_nothing_and_the_last_word_books_once", early_look),
        works("r08_a_thousand_small_charges_add_up_exactly", a_thousand),
        works("r09_sums_have_no_tail_and_a_limit_met_is_met", no_tail),
    ]
}

async fn early_look() {
    let (vendors, server) = one("flux").await;
    vendors
        .script(json!({"vendor": "flux", "wire": [
            {"step": "start", "status": 200, "body": {"id": "p1", "polling_url": "{base}/v1/get_result?id=p1"}},
            {"step": "poll", "times": 6, "status": 200, "body": {"id": "p1", "status": "Pending", "cost": 0}},
            {"step": "poll", "status": 200, "body": {"id": "p1", "status": "Ready", "cost": 71.2, "result": {"sample": "{cdn}/f.png"}}},
            {"step": "download", "file": "png 640x368"},
        ]}))
        .await;
    let id = server.submit(image("clockwork fish", 640, 368)).await;
    let nothing_reported = |job: &Value| {
        let reported = usage(job).into_iter().filter(|(_, _, source)| source == "reported");
        assert!(reported.into_iter().all(|(_, quantity, _)| quantity == exactly("71.2")), "{job:#}");
    };
    for _ in 0..50 {
        nothing_reported(&server.job(&id).await);
    }
    let job = server.job_in(&id, &["succeeded"]).await;
    succeeded(&job);
    for _ in 0..50 {
        booked_once(&server.job(&id).await, "credits", "71.2");
    }
    for n in 1..=3 {
        let replay = json!({"from": "poll", "reason": format!("look {n}")});
        let (status, answer) = server.post(&format!("/v1/jobs/{id}/replay"), replay).await;
        assert_eq!(status, 200, "{answer}");
        let job = server.job_in(&id, &["succeeded"]).await;
        booked_once(&job, "credits", "71.2");
        assert_eq!(job["attempt"], 1);
    }
    let reads = (0..10).map(|_| server.get("/v1/usage?by=vendor,unit"));
    for answer in futures::future::join_all(reads).await {
        let lines = answer["usage"].as_array().expect("usage");
        assert_eq!(lines.len(), 1, "{answer}");
        assert_eq!((&lines[0]["vendor"], decimal(&lines[0]["quantity"])), (&json!("flux"), exactly("71.2")));
    }
    let booked: Vec<Value> = crate::common::events_of(&server, &id, "usage").await;
    assert_eq!(booked.len(), 1, "booked once, however often it was read: {booked:?}");
    assert_eq!(vendors.starts("flux"), 1);
}

async fn a_thousand() {
    let vendors = Vendors::start(Duration::from_millis(100)).await;
    let more = "limits = { in_flight = 1000 }\nprice_override = { credit_usd = \"0.01\" }";
    let server = Setup::new().long_leases().connector(&vendors, "flux", more).serve().await;
    vendors.script(ready_at_once(&json!(0.04), "64x64")).await;
    let jobs: Vec<Value> = (0..1000).map(|n| image(&format!("tile {n}"), 64, 64)).collect();
    let ids = server.submit_all(&jobs).await;
    for id in &ids {
        let job = server.job_in_within(Duration::from_secs(110), id, &["succeeded"]).await;
        succeeded(&job);
        assert_eq!(decimal(&job["cost_usd"]), exactly("0.0004"), "{job:#}");
        booked_once(&job, "credits", "0.04");
    }
    let sums = server.get("/v1/usage?by=vendor,unit").await;
    let lines = sums["usage"].as_array().expect("usage");
    assert_eq!(lines.len(), 1, "{sums}");
    assert_eq!((decimal(&lines[0]["quantity"]), decimal(&lines[0]["usd"])), (exactly("40"), exactly("0.4")), "{sums}");
    let (status, csv) = server.send(Method::GET, "/v1/usage?by=vendor,unit&format=csv", &[], None).await;
    assert_eq!(status, 200);
    assert_eq!(csv_column(&csv, "usd"), [exactly("0.4")], "{csv}");
    assert_eq!(csv_column(&csv, "quantity"), [exactly("40")], "{csv}");
    let report = vendors.books.starts_report(Some("flux"));
    assert_eq!((&report["count"], &report["started_twice"]), (&json!(1000), &json!([])), "bought once each");
}

/// A column of a CSV text without quoted commas.
fn csv_column(csv: &str, name: &str) -> Vec<Decimal> {
    let mut lines = csv.lines();
    let heads: Vec<&str> = lines.next().expect("a head").split(',').collect();
    let at = heads.iter().position(|head| *head == name).unwrap_or_else(|| panic!("no column {name}: {csv}"));
    lines.map(|line| exactly(line.split(',').nth(at).expect("a cell"))).collect()
}

async fn no_tail() {
    let vendors = Vendors::start(Duration::from_millis(100)).await;
    let setup = Setup::new().long_leases().connector(&vendors, "flux", "limits = { in_flight = 200 }");
    let server = setup.with("[tenants.acme]\nbudget_usd_per_month = \"0.30\"").serve().await;
    vendors.script(ready_at_once(&json!(10), "64x64")).await;
    let dot = |n: usize| {
        let mut job = image(&format!("dot {n}"), 64, 64);
        job["tenant"] = json!("acme");
        job["limits"] = json!({"max_cost_usd": "0.10"});
        job
    };
    for n in 1..=3 {
        let id = server.submit(dot(n)).await;
        let job = server.job_in(&id, &["succeeded"]).await;
        succeeded(&job);
        assert_eq!(decimal(&job["cost_usd"]), exactly("0.1"), "{job:#}");
    }
    let (status, refused) = server.post("/v1/jobs", dot(4)).await;
    assert_eq!((status, &refused["error"]["code"]), (422, &json!("limit_exceeded")), "{refused:#}");
    let said = refused["error"]["message"].as_str().unwrap_or_default();
    assert!(said.contains("budget") && said.contains("0.3 USD"), "the budget is named: {said}");
    assert_eq!(vendors.starts("flux"), 3, "no paid start");
    let spent = ["tenant=\"acme\"", "unit=\"usd\""];
    let all = crate::support::until("the whole budget is spent", || async {
        let share = server.metric("longhaul_budget_spent_ratio", &spent).await;
        (share > 0.9).then_some(share)
    });
    assert!(all.await.to_bits() == 1.0_f64.to_bits(), "1, and nothing near it");
    vendors.script(ready_at_once(&json!(7), "64x64")).await;
    let jobs: Vec<Value> = (0..200)
        .map(|n| {
            let mut job = image(&format!("point {n}"), 64, 64);
            job["tenant"] = json!("second");
            job
        })
        .collect();
    for id in server.submit_all(&jobs).await {
        server.job_in(&id, &["succeeded"]).await;
    }
    let sums = server.get("/v1/usage?by=tenant").await;
    let mut found: Vec<(&str, &str)> = Vec::new();
    for line in sums["usage"].as_array().expect("usage") {
        found.push((line["tenant"].as_str().unwrap_or_default(), line["usd"].as_str().unwrap_or_default()));
    }
    found.sort_unstable();
    let value = |text: &str| exactly(text);
    assert_eq!(found.len(), 2, "{sums}");
    assert_eq!((found[0].0, value(found[0].1)), ("acme", exactly("0.3")), "{sums}");
    assert_eq!((found[1].0, value(found[1].1)), ("second", exactly("14")), "{sums}");
    assert!(found.iter().all(|(_, usd)| usd.len() <= 4), "no digits beyond: {found:?}");
}
