//! Numbers and texts that JSON cannot hold.

use crate::common::{booked_once, decimal, exactly, image, one, states, succeeded};
use crate::waits;
use libtest_mimic::Trial;
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;

pub(crate) fn cases() -> Vec<Trial> {
    vec![
        waits("r41_odd_bodies_pass_and_digits_stay", odd_bodies),
        waits("r41_our_own_api_refuses_what_it_cannot_hold", own_api),
    ]
}

async fn odd_bodies() {
    let (vendors, server) = one("flux").await;
    let id = "420000000000000001";
    let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
    let task = |rest: &str| format!("{{\"id\":{id},{rest}}}");
    // Whether a body is JSON that can be read (RFC 8259): no NaN or Infinity, no mark of byte order, no comma before a
    // brace, no key twice, no nesting without end. Any number of digits and any exponent can be read.
    let odd = [
        (false, task("\"status\":\"Pending\",\"eta\":NaN")),
        (false, task("\"status\":\"Pending\",\"progress\":Infinity")),
        (false, format!("\u{feff}{}", task("\"status\":\"Pending\""))),
        (false, "{\"status\":\"Failed\",\"status\":\"Ready\"}".to_owned()),
        (true, task("\"status\":\"Pending\",\"cost\":1e400")),
        (false, "{\"status\":\"Pending\",}".to_owned()),
        (false, deep),
        (true, task("\"status\":\"Pending\",\"seed\":18446744073709551615")),
    ];
    // A good answer between the odd ones, so that the backoff of one is not added to the next.
    let mut wire = vec![json!({"step": "start", "status": 200, "raw": format!("{{\"id\":{id}}}")})];
    for (_, body) in &odd {
        wire.push(json!({"step": "poll", "times": 1, "status": 200, "raw": body}));
        wire.push(json!({"step": "poll", "times": 1, "status": 200, "raw": task("\"status\":\"Pending\"")}));
    }
    let sample = task("\"status\":\"Ready\",\"cost\":5.000000000000000001,\"result\":{\"sample\":\"{cdn}/b.png\"}");
    wire.push(json!({"step": "poll", "status": 200, "raw": sample}));
    wire.push(json!({"step": "download", "file": "png 512x512"}));
    vendors.script(json!({"vendor": "flux", "wire": wire})).await;
    let job = server.submit(image("stone bridge", 512, 512)).await;
    let job_id = job;
    let job = server.job_in_within(Duration::from_secs(110), &job_id, &["succeeded"]).await;
    succeeded(&job);
    assert_eq!(job["vendor_job_id"], json!(id), "ids are text, with every digit");
    for poll in vendors.requests("flux", "poll") {
        assert_eq!(poll.query, format!("id={id}"));
    }
    booked_once(&job, "credits", "5.000000000000000001");
    assert_eq!(states(&server, &job_id).await, ["queued", "starting", "running", "collecting", "succeeded"]);
    assert_eq!(vendors.starts("flux"), 1);
    let counted = server.metric("longhaul_step_failures_total", &["vendor=\"flux\"", "step=\"poll\""]).await;
    let unreadable = odd.iter().filter(|(readable, _)| !readable).map(|_| 1.0).sum::<f64>();
    assert_eq!(counted, unreadable, "unreadable answers are counted, and nothing else");
}

async fn own_api() {
    let (vendors, server) = one("flux").await;
    vendors.script(crate::common::ready_at_once(&json!(4), "512x512")).await;
    let post = async |body: String| -> (u16, Value) {
        let (status, text) = server.send(Method::POST, "/v1/jobs", &[], Some(body)).await;
        (status, serde_json::from_str(&text).unwrap_or_default())
    };
    let job = |rest: &str| {
        format!(
            r#"{{"connector":"flux","task":"image","instructions":"a","media":{{"width":512,"height":512,"format":"png"}}{rest}}}"#
        )
    };
    let path = |answer: &Value| answer["error"]["problems"][0]["path"].as_str().unwrap_or_default().to_owned();
    let (status, answer) = post(job(r#","instructions":"b""#)).await;
    assert_eq!((status, path(&answer).as_str()), (422, "instructions"), "{answer}");
    for nonsense in ["-1", "\"-1\"", "\"NaN\"", "NaN", "\"Infinity\""] {
        let (status, answer) = post(job(&format!(r#","limits":{{"max_cost_usd":{nonsense}}}"#))).await;
        assert_eq!((status, path(&answer).as_str()), (422, "limits.max_cost_usd"), "{nonsense}: {answer}");
    }
    for (n, fits) in ["0.1", "\"0.1\"", "\"1e3\""].into_iter().enumerate() {
        let (status, answer) =
            post(job(&format!(r#","labels":{{"n":"{n}"}},"limits":{{"max_cost_usd":{fits}}}"#))).await;
        assert_eq!(status, 201, "{fits}: {answer}");
        let id = answer["id"].as_str().expect("an id");
        let job = server.job_in(id, &["succeeded"]).await;
        assert_eq!(decimal(&job["cost_usd"]), exactly("0.04"), "{fits}");
    }
    let seeded = |seed: &str| job("").replace("\"format\"", &format!("\"seed\":{seed},\"format\""));
    let (status, answer) = post(seeded("9007199254740993")).await;
    assert_eq!(status, 201, "{answer}");
    server.job_in(answer["id"].as_str().expect("an id"), &["succeeded"]).await;
    let sent = vendors.requests("flux", "start").pop().and_then(|start| start.body).expect("a body");
    let sent: Value = serde_json::from_str(&sent).expect("JSON");
    assert_eq!(sent["seed"].as_u64(), Some(9_007_199_254_740_993), "exact at the vendor: {sent}");
    let (status, answer) = post(seeded("18446744073709551616")).await;
    assert_eq!((status, path(&answer).as_str()), (422, "media.seed"), "{answer}");
    assert!(!answer["error"]["problems"][0]["allowed"].is_null(), "with the range: {answer}");
}
