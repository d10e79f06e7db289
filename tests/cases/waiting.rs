//! Waiting and polling: what the vendor asks for, and faults that pass.

use crate::common::{booked_once, error_is, events_of, image, one, succeeded, video};
use crate::support::{Server, Vendors, within};
use crate::waits;
use libtest_mimic::Trial;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

pub(crate) fn cases() -> Vec<Trial> {
    vec![
        waits("r18_a_retry_after_of_years_ends_at_the_jobs_own_deadline", years),
        waits("r18_readable_retry_after_is_honoured_by_the_vendors_clock", readable),
        waits("r18_unreadable_retry_after_never_means_at_once", unreadable),
        waits("r18_a_long_row_of_unreadable_refusals_is_outlived", long_row),
        waits("r19_unreadable_answers_to_polls_end_nothing", unreadable_answers),
    ]
}

/// A runway job of this name that is refused with each of these headers in turn, then ends well.
fn refused(name: &str, headers: &[Value]) -> Vec<Value> {
    let start = json!({"step": "start", "match": {"body": name}, "status": 200, "body": {"id": name}});
    let path = json!({"path": name});
    let refusals = headers.iter().map(|headers| {
        json!({"step": "poll", "match": path, "times": 1, "status": 429, "headers": headers, "body": {"error": "Too many requests"}})
    });
    let done = json!({"step": "poll", "match": path, "status": 200, "body":
        {"id": name, "status": "SUCCEEDED", "output": ["{cdn}/o.mp4"], "cost": {"credits": 1}}});
    std::iter::once(start).chain(refusals).chain([done]).collect()
}

async fn play(vendors: &Vendors, wire: impl IntoIterator<Item = Value>) {
    let mut wire: Vec<Value> = wire.into_iter().collect();
    wire.push(json!({"step": "download", "file": "mp4 5.0s 1280x720"}));
    vendors.script(json!({"vendor": "runway", "wire": wire})).await;
}

/// Seconds after each refusal until one job is asked for again.
fn gaps(vendors: &Vendors, name: &str) -> Vec<f64> {
    let polls: Vec<_> =
        vendors.requests("runway", "poll").into_iter().filter(|poll| poll.path.ends_with(name)).collect();
    let refused = polls.windows(2).filter(|pair| pair[0].status == Some(429));
    refused.map(|pair| (pair[1].at_ms - pair[0].at_ms) as f64 / 1000.0).collect()
}

async fn ends_well(server: &Server, id: &str) {
    let job = server.job_in_within(Duration::from_secs(150), id, &["succeeded"]).await;
    succeeded(&job);
    booked_once(&job, "credits", "1");
    assert_eq!(job["errors"], 0);
    let errors = events_of(server, id, "error").await;
    assert!(errors.iter().all(|error| error["data"]["errors"] == 0), "a refusal spends no error: {errors:?}");
}

async fn readable() {
    let (vendors, server) = one("runway").await;
    let plain = ["3", "1.5", "{http_date:+4s}", "{rfc850_date:+4s}", "{asctime_date:+4s}"];
    let ours: Vec<Value> = plain.iter().map(|value| json!({"retry-after": value})).collect();
    let ahead = ["{http_date:+604s}", "{rfc850_date:+604s}", "{asctime_date:+604s}"];
    let theirs: Vec<Value> =
        ahead.iter().map(|value| json!({"retry-after": value, "date": "{http_date:+600s}"})).collect();
    play(&vendors, refused("chalk", &ours).into_iter().chain(refused("ahead", &theirs))).await;
    let (first, twin) = (server.submit(video("chalk circle")).await, server.submit(video("ahead of us")).await);
    ends_well(&server, &first).await;
    ends_well(&server, &twin).await;
    let asked = [3.0, 1.5, 4.0, 4.0, 4.0];
    let found = gaps(&vendors, "chalk");
    assert_eq!(found.len(), asked.len());
    for (gap, asked) in found.iter().zip(asked) {
        // Dates are cut to their second: by the vendor's clock they are 3 to 4 s away.
        let least = if asked == 4.0 { 3.0 } else { asked };
        assert!(*gap >= least && *gap < asked + 3.0, "asked for {asked}, waited {gap}: {found:?}");
    }
    let found = gaps(&vendors, "ahead");
    assert_eq!(found.len(), 3);
    assert!(found.iter().all(|gap| (3.9..7.0).contains(gap)), "4 s by the vendor's clock: {found:?}");
    assert_eq!(server.metric("longhaul_retry_after_total", &["vendor=\"runway\""]).await, 8.0);
    assert_eq!(server.metric("longhaul_step_failures_total", &["kind=\"rate_limited\""]).await, 8.0);
}

async fn unreadable() {
    let (vendors, server) = one("runway").await;
    let rows: [(&str, &[&str]); 4] = [
        ("past", &["{http_date:-60s}", "-5"]),
        ("nonsense", &["Wed, 99 Foo 2026 07:28:00 GMT", "soon"]),
        ("empty", &["", "0"]),
        ("words", &["NaN", "4, 9"]),
    ];
    let wire = rows.iter().flat_map(|(name, values)| {
        let headers: Vec<Value> = values.iter().map(|value| json!({"retry-after": value})).collect();
        refused(name, &headers)
    });
    play(&vendors, wire).await;
    let mut ids = Vec::new();
    for (name, _) in rows {
        ids.push(server.submit(video(name)).await);
    }
    for (id, (name, values)) in ids.iter().zip(rows) {
        ends_well(&server, id).await;
        let found = gaps(&vendors, name);
        assert_eq!(found.len(), values.len(), "{name}");
        assert!(found.iter().all(|gap| *gap >= 1.0), "{name}: {found:?}");
    }
    assert_eq!(server.metric("longhaul_retry_after_total", &["vendor=\"runway\""]).await, 0.0);
}

/// The thirteen rows one after another are over within the report's three minutes, without a tight loop.
async fn long_row() {
    let (vendors, server) = one("runway").await;
    let values = [
        "3",
        "1.5",
        "{http_date:+4s}",
        "{rfc850_date:+4s}",
        "{asctime_date:+4s}",
        "{http_date:-60s}",
        "Wed, 99 Foo 2026 07:28:00 GMT",
        "-5",
        "",
        "soon",
        "NaN",
        "0",
        "4, 9",
    ];
    let headers: Vec<Value> = values.iter().map(|value| json!({"retry-after": value})).collect();
    play(&vendors, refused("thirteen", &headers)).await;
    let id = server.submit(video("thirteen circles")).await;
    ends_well(&server, &id).await;
    let found = gaps(&vendors, "thirteen");
    assert_eq!(found.len(), 13);
    assert!(found.iter().all(|gap| *gap >= 1.0), "{found:?}");
}

async fn years() {
    let (vendors, server) = one("runway").await;
    let wire = [
        json!({"step": "start", "status": 200, "body": {"id": "twin"}}),
        json!({"step": "poll", "status": 429, "headers": {"retry-after": "86400000", "date": "{now}"}, "body": {"error": "Too many requests"}}),
        json!({"step": "cancel", "status": 204}),
    ];
    play(&vendors, wire).await;
    let mut job = video("chalk circle, twin");
    job["limits"] = json!({"max_minutes": 1});
    let id = server.submit(job).await;
    let job = server.job_in_within(Duration::from_secs(90), &id, &["limit_exceeded"]).await;
    error_is(&job, "limit_exceeded");
    assert_eq!(job["artifacts"], json!([]));
    let at =
        |field: &str| chrono::DateTime::parse_from_rfc3339(job[field].as_str().expect("a time")).expect("RFC 3339");
    let lasted = (at("finished_at") - at("started_at")).num_milliseconds();
    assert!((60_000..75_000).contains(&lasted), "ended after {lasted} ms");
    assert_eq!(vendors.starts("runway"), 1);
    assert_eq!(vendors.requests("runway", "cancel").len(), 1, "it was stopped at the vendor");
}

async fn unreadable_answers() {
    let (vendors, server) = one("flux").await;
    vendors
        .script(json!({"vendor": "flux", "wire": [
            {"step": "start", "status": 200, "body": {"id": "dr1", "polling_url": "{base}/v1/get_result?id=dr1"}},
            {"step": "poll", "each": [
                {"status": 502, "raw": "<html><h1>502</h1></html>", "content_type": "text/html"},
                {"status": 200, "raw": ""},
                {"status": 200, "raw": "<html>login</html>", "content_type": "text/html"},
                {"status": 200, "raw": "{\"id\":\"dr1\",\"sta", "content_type": "application/json"}]},
            {"step": "poll", "times": 4, "status": 200, "body": {"id": "dr1", "status": "Pending"}},
            {"step": "poll", "each": [{"fault": "reset", "times": 2}, {"status": 408}, {"status": 429}, {"status": 503}]},
            {"step": "poll", "status": 200, "body": {"id": "dr1", "status": "Ready", "cost": 9, "result": {"sample": "{cdn}/o.png"}}},
            {"step": "download", "file": "png 512x512"},
        ]}))
        .await;
    let id = server.submit(image("compare three tide tables", 512, 512)).await;
    let seen = RefCell::new(BTreeSet::new());
    let job = within(Duration::from_secs(100), "the job ends", async || {
        let job = server.job(&id).await;
        seen.borrow_mut().insert((job["polls"].as_u64(), job["errors"].as_u64()));
        let state = job["state"].as_str().unwrap_or_default();
        assert!(["queued", "starting", "running", "collecting", "succeeded"].contains(&state), "{job:#}");
        (state == "succeeded").then_some(job)
    })
    .await;
    let seen = seen.into_inner();
    succeeded(&job);
    booked_once(&job, "credits", "9");
    assert_eq!(vendors.starts("flux"), 1);
    assert!(seen.contains(&(Some(4), Some(4))), "four faults: {seen:?}");
    assert!(seen.iter().any(|(polls, errors)| matches!(polls, Some(5..=8)) && *errors == Some(0)), "cleared: {seen:?}");
    for kind in ["vendor_error", "network", "rate_limited"] {
        let label = format!("kind=\"{kind}\"");
        let count = server.metric("longhaul_step_failures_total", &["vendor=\"flux\"", "step=\"poll\"", &label]).await;
        assert!(count >= 1.0, "{kind}: {count}");
    }
    assert_eq!(server.metric("longhaul_steps_total", &["vendor=\"flux\"", "outcome=\"job_failed\""]).await, 0.0);
}
