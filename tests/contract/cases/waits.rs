//! Rate limits and server errors: the vendor's word on when to come back is kept, measured in its own journal.

use crate::support::now_ms;
use crate::world::World;
use longhaul_registry::{LostStart, VendorFile};
use longhaul_sandbox::Request;
use serde_json::json;
use std::sync::Arc;

/// Seconds that the vendor asks for.
const ASKED_S: i64 = 3;
/// Our own spread of a tenth, and a busy machine.
const LATE_MS: i64 = 300 + 3_000;

enum Form {
    Seconds,
    Date,
}

pub async fn seconds_at_start(file: Arc<VendorFile>) {
    rate_limited(file, "start", &Form::Seconds).await;
}

pub async fn date_at_start(file: Arc<VendorFile>) {
    rate_limited(file, "start", &Form::Date).await;
}

pub async fn seconds_at_poll(file: Arc<VendorFile>) {
    rate_limited(file, "poll", &Form::Seconds).await;
}

pub async fn date_at_poll(file: Arc<VendorFile>) {
    rate_limited(file, "poll", &Form::Date).await;
}

async fn rate_limited(file: Arc<VendorFile>, route: &str, form: &Form) {
    let world = World::of(&file).await;
    // An HTTP date has whole seconds: one more, so that it is never less than what was asked.
    let back_s = now_ms().div_euclid(1000) + ASKED_S + 1;
    let word = match form {
        Form::Seconds => ASKED_S.to_string(),
        Form::Date => {
            chrono::DateTime::from_timestamp(back_s, 0).expect("a time").format("%a, %d %b %Y %H:%M:%S GMT").to_string()
        }
    };
    world.fault(json!({"route": route, "fault": "429", "retry_after": word})).await;
    let job = world.succeed(world.job("")).await;
    world.check_success(0, &job).await;
    let calls = world.on_route(route);
    let refused = calls.iter().position(|call| call.status == Some(429)).expect("the refusal");
    let (refused, next) = (&calls[refused], &calls[refused + 1]);
    let (earliest, latest) = match form {
        Form::Seconds => (refused.at_ms + ASKED_S * 1000, refused.at_ms + ASKED_S * 1000 + LATE_MS),
        Form::Date => (back_s * 1000, back_s * 1000 + LATE_MS),
    };
    let came = next.at_ms;
    assert!((earliest..=latest).contains(&came), "{route} came {} ms off", came - earliest);
    let between = world.requests().into_iter().filter(|call| (refused.seq + 1..next.seq).contains(&call.seq));
    let early: Vec<Request> = between.filter(|call| call.at_ms < earliest).collect();
    assert!(early.is_empty(), "nothing else is asked of the vendor for this job meanwhile: {early:#?}");
    assert_eq!(world.server.metric("longhaul_retry_after_total", &[]).await, 1.0);
    // A refusal is no error of the job's.
    assert_eq!((&job["errors"], &job["attempt"]), (&json!(0), &json!(1)), "{job:#}");
}

pub async fn server_errors_at_poll(file: Arc<VendorFile>) {
    let world = World::of(&file).await;
    for status in [500, 502, 503] {
        world.fault(json!({"route": "poll", "fault": "5xx", "status": status})).await;
    }
    let job = world.succeed(world.job("")).await;
    world.check_success(0, &job).await;
    let polls = world.on_route("poll");
    let failed: Vec<&Request> = polls.iter().filter(|poll| poll.status >= Some(500)).collect();
    assert_eq!(failed.len(), 3);
    // Backed off: at least a second after the first and after the second.
    for pair in failed.windows(2) {
        assert!(pair[1].at_ms - pair[0].at_ms >= 1000, "{pair:#?}");
    }
}

/// Nobody can tell from a 5xx whether a paid start was accepted: it is looked for, or a person decides.
pub async fn server_errors_at_start(file: Arc<VendorFile>) {
    let world = World::of(&file).await;
    for status in [500, 503] {
        world.fault(json!({"route": "start", "fault": "5xx", "status": status})).await;
    }
    let id = world.server.submit(world.job("")).await;
    let job = super::cuts::after_lost_start(&world, 0, &id, false).await;
    let again = world.on_route("start").len();
    if file.lost_start == LostStart::None || !file.absence_proves {
        assert!(again == 1 || job["state"] == "succeeded", "not sent again by itself: {job:#}");
    }
}
