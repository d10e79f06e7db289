//! Values are those of the vendor's OpenAPI, skill text and worked example, and of the field cases.

use super::*;
use crate::testing::{Job, ReplyExt, Script, answer, connector, lost, raw, request};
use longhaul_registry::Connector;

const POLLING_URL: &str = "https://api.eu1.bfl.ai/v1/get_result?id=11111111-fake";

fn bfl() -> Connector {
    let silence = json!({"flux-2-flex": 240});
    let fields =
        json!({"auth": {"scheme": "header", "name": "x-key"}, "start_silence_s": 120, "model_silence_s": silence});
    connector("flux", fields)
}

#[test]
fn a_connector_may_name_the_model_of_jobs_that_name_none() {
    let mut connector = bfl();
    connector.settings.insert("model".to_owned(), json!("flux-dev"));
    let body = json!({"task": "image", "instructions": "x"});
    let prepared = Flux.prepare(&request(body), &connector).unwrap();
    assert_eq!((prepared.model.as_deref(), prepared.estimate.len()), (Some("flux-dev"), 0));
    assert_eq!(prepared.request, json!({"path": "/v1/flux-dev", "body": {"prompt": "x"}}));
}

fn prepared(body: Value) -> Prepared {
    Flux.prepare(&request(body), &bfl()).unwrap()
}

fn problems(body: Value) -> Vec<(String, String)> {
    let problems = Flux.prepare(&request(body), &bfl()).unwrap_err();
    problems.into_iter().map(|problem| (problem.path, problem.code)).collect()
}

fn telescope() -> Value {
    json!({"task": "image", "instructions": "brass telescope",
           "media": {"width": 1536, "height": 864, "seed": 7, "format": "png"}})
}

fn start_call() -> Call {
    let body = json!({"prompt": "brass telescope", "width": 1536, "height": 864, "seed": 7, "output_format": "png"});
    Call::post("start", "/v1/flux-2-pro", body).paid().silence(Some(Duration::from_secs(120)))
}

async fn start(reply: Reply) -> Result<StartAnswer, Failure> {
    let script = Script::new().expect(start_call(), reply);
    let connector = bfl();
    let job = Job::new(request(telescope()), prepared(telescope()).request);
    let answer = Flux.start(&script.context(&connector), &job.view()).await;
    script.done();
    answer
}

fn running_job() -> Job {
    Job::new(request(telescope()), Value::Null).known_as("11111111-fake", json!({ "polling_url": POLLING_URL }))
}

async fn poll(reply: Reply) -> Result<PollAnswer, Failure> {
    let script = Script::new().expect(Call::get("poll", "/v1/get_result").at(POLLING_URL), reply);
    let connector = bfl();
    let answer = Flux.poll(&script.context(&connector), &running_job().view()).await;
    script.done();
    answer
}

fn credits(text: &str, source: UsageSource) -> Vec<Usage> {
    vec![usage("11111111-fake", text.parse().unwrap(), source)]
}

#[test]
fn the_worked_example_maps_to_the_worked_body() {
    let prepared = prepared(telescope());
    assert_eq!(
        prepared.request,
        json!({"path": "/v1/flux-2-pro", "body": {"prompt": "brass telescope", "width": 1536, "height": 864, "seed": 7,
               "output_format": "png"}})
    );
    assert_eq!(prepared.model.as_deref(), Some("flux-2-pro"));
    // 3 + (1.327104 - 1) x 1.5: the page quotes 3.5 for 1.33 MP.
    assert_eq!(prepared.estimate[0].quantity.to_string(), "3.490656");
    assert_eq!((prepared.estimate[0].unit, prepared.estimate[0].source), (Unit::Credits, UsageSource::Estimated));
}

#[test]
fn seeds_are_exact_over_the_whole_range() {
    for seed in [0, 9_007_199_254_740_993, u64::MAX] {
        let body = json!({"task": "image", "instructions": "x", "media": {"seed": seed}});
        assert_eq!(prepared(body).request["body"].to_string(), format!("{{\"prompt\":\"x\",\"seed\":{seed}}}"));
    }
}

#[test]
fn sizes_that_a_model_cannot_make_are_refused_with_the_rule() {
    let asked = |model: &str, media: Value| json!({"task": "image", "instructions": "x", "media": media, "vendor": {"model": model}});
    for (model, w, h, path) in [
        ("flux-2-pro", 1000, 1008, "media.width"),
        ("flux-2-pro", 1024, 1000, "media.height"),
        ("flux-2-max", 48, 64, "media.width"),
        ("flux-2-flex", 2064, 2048, "media.height"),
        ("flux-pro-1.1", 1472, 1024, "media.width"),
        ("flux-pro-1.1", 1040, 1024, "media.width"),
        ("flux-dev", 512, 224, "media.height"),
        ("flux-kontext-pro", 1024, 1024, "media.width"),
    ] {
        let refused = Flux.prepare(&request(asked(model, json!({"width": w, "height": h}))), &bfl()).unwrap_err();
        assert_eq!((refused[0].path.as_str(), refused.len()), (path, 1), "{model} {w}x{h}");
        assert!(refused[0].allowed.is_some(), "{model} {w}x{h}");
    }
    for (model, w, h) in [("flux-2-pro", 64, 64), ("flux-2-pro", 2048, 2048), ("flux-pro-1.1", 1440, 256)] {
        let body = prepared(asked(model, json!({"width": w, "height": h}))).request["body"].clone();
        assert_eq!((body["width"].as_u64(), body["height"].as_u64()), (Some(w), Some(h)), "{model}");
    }
    let rule = Flux.prepare(&request(asked("flux-2-pro", json!({"width": 1000, "height": 1000}))), &bfl()).unwrap_err();
    assert_eq!(rule[0].allowed, Some(json!({"multiple_of": 16, "min": 64, "max_pixels": 4_194_304})));
}

#[test]
fn an_aspect_becomes_a_ratio_or_an_exact_size() {
    let body = |model: &str, aspect: &str| {
        prepared(json!({"task": "image", "instructions": "x", "media": {"aspect": aspect}, "vendor": {"model": model}}))
            .request["body"]
            .clone()
    };
    assert_eq!(body("flux-kontext-max", "21:9"), json!({"prompt": "x", "aspect_ratio": "21:9"}));
    assert_eq!(body("flux-pro-1.1-ultra", "9:21"), json!({"prompt": "x", "aspect_ratio": "9:21"}));
    assert_eq!(body("flux-2-pro", "16:9"), json!({"prompt": "x", "width": 1280, "height": 720}));
    assert_eq!(body("flux-pro-1.1", "3:4"), json!({"prompt": "x", "width": 864, "height": 1152}));
    for (model, aspect) in [("flux-kontext-pro", "22:9"), ("flux-2-pro", "1:3"), ("flux-2-pro", "997:991")] {
        let body =
            json!({"task": "image", "instructions": "x", "media": {"aspect": aspect}, "vendor": {"model": model}});
        assert_eq!(problems(body)[0].0, "media.aspect", "{model} {aspect}");
    }
}

#[test]
fn every_problem_is_told_at_once() {
    let body = json!({"task": "video", "instructions": " ",
        "media": {"width": 1024, "format": "gif", "count": 2, "duration_ms": 5000, "voice": "v", "aspect": "x"},
        "inputs": [{"role": "audio", "url": "https://a.example/a.mp3"}, {"role": "reference", "text": "t"}],
        "vendor": {"safety_tolerance": 6, "guidance": 3, "raw": true, "transparent_bg": true, "seed": 3}});
    let found = problems(body);
    for expected in [
        ("task", "not_allowed"),
        ("media.duration_ms", "not_supported"),
        ("media.voice", "not_supported"),
        ("media.count", "out_of_range"),
        ("instructions", "missing"),
        ("media.height", "missing"),
        ("media.aspect", "not_allowed"),
        ("inputs[0].role", "not_allowed"),
        ("inputs[1]", "wrong_type"),
        ("vendor.guidance", "not_allowed"),
        ("vendor.raw", "not_allowed"),
        ("vendor.safety_tolerance", "out_of_range"),
        ("media.format", "conflict"),
        ("media.format", "not_allowed"),
        ("vendor.seed", "conflict"),
    ] {
        assert!(found.contains(&(expected.0.to_owned(), expected.1.to_owned())), "{expected:?} in {found:?}");
    }
    assert_eq!(found.len(), 15, "{found:?}");
    for model in ["../v1/credits", "", "flux 2", "flux-3-image"] {
        let body = json!({"task": "image", "instructions": "x", "vendor": {"model": model}});
        assert_eq!(problems(body)[0].0, "vendor.model", "{model}");
    }
}

#[tokio::test]
async fn references_go_as_addresses_or_as_base64() {
    let body = json!({"task": "image", "instructions": "x", "vendor": {"model": "flux-2-flex", "steps": 20},
        "inputs": [{"role": "reference", "url": "https://files.example/a.png"}, {"role": "reference", "artifact": "art_1"}]});
    let prepared = prepared(body.clone());
    assert_eq!(prepared.request["body"]["input_image_2"], json!({"$input": 1}));
    let wire =
        json!({"prompt": "x", "steps": 20, "input_image": "https://files.example/a.png", "input_image_2": "cG5n"});
    let call = Call::post("start", "/v1/flux-2-flex", wire).paid().silence(Some(Duration::from_secs(240)));
    let script = Script::new().expect(call, answer(200, json!({"id": "t"}))).input(1, "image/png", &b"png"[..]);
    let connector = bfl();
    let job = Job::new(request(body), prepared.request);
    Flux.start(&script.context(&connector), &job.view()).await.unwrap();
    script.done();

    let pictures = |model: &str, count: usize| {
        let inputs = vec![json!({"role": "reference", "artifact": "art"}); count];
        Flux.prepare(
            &request(json!({"task": "image", "instructions": "x", "inputs": inputs, "vendor": {"model": model}})),
            &bfl(),
        )
    };
    for (model, most) in
        [("flux-2-pro", 8), ("flux-2-klein-9b", 5), ("flux-2-klein-4b", 4), ("flux-kontext-pro", 4), ("flux-dev", 0)]
    {
        assert!(pictures(model, most).is_ok(), "{model}");
        assert_eq!(pictures(model, most + 1).unwrap_err()[0].allowed, Some(json!({ "reference": most })), "{model}");
    }
    let fill = json!({"task": "image", "vendor": {"model": "flux-pro-1.0-fill"},
        "inputs": [{"role": "mask", "artifact": "m"}, {"role": "reference", "artifact": "a"}]});
    assert_eq!(
        self::prepared(fill).request["body"],
        json!({"prompt": "", "mask": {"$input": 0}, "image": {"$input": 1}})
    );
}

#[tokio::test]
async fn a_start_is_quoted_and_keeps_its_whole_polling_address() {
    let body =
        json!({"id": "11111111-fake", "polling_url": POLLING_URL, "cost": 3.5, "input_mp": 0.0, "output_mp": 1.33});
    let StartAnswer::Started { vendor_job_id, report } = start(answer(200, body)).await.unwrap() else { panic!() };
    assert_eq!(vendor_job_id, "11111111-fake");
    assert_eq!(report.usage, credits("3.5", UsageSource::Estimated));
    assert_eq!(report.vendor_state, Some(json!({ "polling_url": POLLING_URL })));
    // R41: ids are text, figures keep their digits, and what no figure can be is not booked.
    let odd = r#"{"id":420000000000000001,"polling_url":"https://api.bfl.ai/x?id=1","cost":1e400}"#;
    let StartAnswer::Started { vendor_job_id, report } = start(raw(200, odd)).await.unwrap() else { panic!() };
    assert_eq!((vendor_job_id.as_str(), report.usage), ("420000000000000001", vec![]));
}

#[tokio::test]
async fn a_start_without_a_polling_address_is_polled_on_its_own_host() {
    let body = json!({"id": "x3", "status": "Pending", "webhook_url": "https://hooks.example/h"});
    let StartAnswer::Started { vendor_job_id, report } = start(answer(200, body)).await.unwrap() else { panic!() };
    assert_eq!((vendor_job_id.as_str(), report.vendor_state), ("x3", None));
    let odd = json!({"id": "x3", "polling_url": null, "cost": {"credits": 4}});
    let StartAnswer::Started { report, .. } = start(answer(200, odd)).await.unwrap() else { panic!() };
    assert_eq!((report.vendor_state, report.usage), (None, vec![]));
    // The same after a person named the id (R01), and for an address that lost its id.
    let connector = bfl();
    let lame = "https://api.eu1.bfl.ai/v1/get_result";
    for (state, call) in [
        (Value::Null, Call::get("poll", "/v1/get_result").query("id", "x3")),
        (json!({ "polling_url": lame }), Call::get("poll", "/v1/get_result").at(lame).query("id", "x3")),
    ] {
        let script = Script::new().expect(call, answer(200, json!({"status": "Pending"})));
        let job = Job::new(request(telescope()), Value::Null).known_as("x3", state);
        let polled = Flux.poll(&script.context(&connector), &job.view()).await.unwrap();
        assert!(matches!(polled, PollAnswer::Running(_)), "{polled:?}");
    }
}

#[tokio::test]
async fn a_start_whose_acceptance_nobody_can_tell_is_unknown() {
    // R45: success without an id; R01 and R02: no answer; unreadable answers; faults of the server.
    for body in [json!({}), json!({"id": "", "polling_url": POLLING_URL}), json!({"id": null, "cost": 3})] {
        let failure = start(answer(200, body)).await.unwrap_err();
        assert_eq!((failure.kind, failure.retry), (FailureKind::StartUnknown, Retry::Unknown));
    }
    for reply in [
        raw(200, "<html>"),
        raw(200, ""),
        answer(500, json!({"detail": "oops"})),
        answer(503, json!({})),
        raw(502, "bad"),
    ] {
        assert_eq!(start(reply).await.unwrap_err().retry, Retry::Unknown);
    }
    let script = Script::new().expect_lost(start_call(), lost());
    let connector = bfl();
    let job = Job::new(request(telescope()), prepared(telescope()).request);
    let failure = Flux.start(&script.context(&connector), &job.view()).await.unwrap_err();
    assert_eq!(failure, lost());
    let found = Flux.find(&Script::new().context(&connector), &job.sent(90).view()).await.unwrap();
    assert_eq!(found, longhaul_registry::Finding::Unsupported);
}

#[tokio::test]
async fn every_error_row_of_the_page() {
    let detail = json!({"detail": [{"loc": ["body", "width"], "msg": "not a multiple of 16", "type": "value_error", "input": 1001}]});
    for (status, body, kind, retry, words) in [
        (
            400,
            json!({"error": "Bad Request", "message": "no prompt"}),
            FailureKind::InvalidRequest,
            Retry::Never,
            "no prompt",
        ),
        (422, detail, FailureKind::InvalidRequest, Retry::Never, "body.width: not a multiple of 16"),
        (401, json!({"detail": "Not authenticated"}), FailureKind::Auth, Retry::Never, "credential"),
        (403, json!({"detail": "Not authenticated - bfl_secretkey"}), FailureKind::Auth, Retry::Never, "credential"),
        (402, json!({"detail": "Insufficient credits"}), FailureKind::Quota, Retry::Never, "Insufficient credits"),
        (404, json!({"detail": "Not Found"}), FailureKind::ModelUnavailable, Retry::Never, "Not Found"),
        (429, json!({"detail": "24 active tasks"}), FailureKind::RateLimited, Retry::Backoff, "24 active tasks"),
        (
            429,
            json!({"error": "rate", "message": "slow", "retry_after": 7}),
            FailureKind::RateLimited,
            Retry::After(Duration::from_secs(7)),
            "slow",
        ),
        (429, json!({"retry_after": 0}), FailureKind::RateLimited, Retry::Backoff, "429"),
        (500, json!({"detail": "Request Moderated"}), FailureKind::ContentPolicy, Retry::Never, "Request Moderated"),
        (500, json!({"status": "Request Moderated"}), FailureKind::ContentPolicy, Retry::Never, "Request Moderated"),
        (307, json!({}), FailureKind::VendorError, Retry::Unknown, "307"),
    ] {
        let failure = start(answer(status, body)).await.unwrap_err();
        assert_eq!((failure.kind, failure.retry), (kind, retry), "{status} {words}");
        assert!(failure.message.contains(words) && !failure.message.contains("bfl_"), "{}", failure.message);
    }
    let named = answer(429, json!({"retry_after": 7})).with_retry_after(3).with_header("x-request-id", "rq-1");
    let failure = start(named).await.unwrap_err();
    assert_eq!(failure.retry, Retry::After(Duration::from_secs(3)));
    assert_eq!(failure.vendor_request_id.as_deref(), Some("rq-1"));
    for (status, body, kind) in [
        (404, json!({"detail": "Task not found"}), FailureKind::NotFound),
        (404, json!({}), FailureKind::NotFound),
        (500, json!({"detail": "Task not found"}), FailureKind::NotFound),
        (503, json!({"detail": "busy"}), FailureKind::VendorError),
        (429, json!({}), FailureKind::RateLimited),
        (307, json!({}), FailureKind::VendorError),
    ] {
        let failure = poll(answer(status, body)).await.unwrap_err();
        assert_eq!(failure.kind, kind, "{status}");
        assert!(failure.retry != Retry::Unknown, "{status}");
    }
}

#[tokio::test]
async fn pending_and_words_that_nobody_knows_are_running() {
    let body = json!({"id": "11111111-fake", "status": "Pending", "progress": 0.4, "result": null});
    let PollAnswer::Running(report) = poll(answer(200, body)).await.unwrap() else { panic!() };
    assert_eq!(
        (report.progress, report.unknown_status, report.vendor_status.as_deref()),
        (Some(0.4), false, Some("Pending"))
    );
    // R12: with new fields, odd progress and a cost that is no bill yet.
    let body = json!({"status": "warming_pool", "progress": "40%", "result": "soon", "cost": 0, "new": {"deep": [1]}});
    let PollAnswer::Running(report) = poll(answer(200, body)).await.unwrap() else { panic!() };
    assert_eq!(
        (report.progress, report.unknown_status, report.vendor_status.as_deref()),
        (None, true, Some("warming_pool"))
    );
    assert_eq!(report.usage, credits("0", UsageSource::Estimated));
    assert!(matches!(poll(answer(200, json!({"status": "ready"}))).await.unwrap(), PollAnswer::Running(_)));
}

#[tokio::test]
async fn ready_brings_the_picture_and_the_settled_cost() {
    let sample = "https://delivery.example/x.png?sig=fake";
    let result = json!({"sample": sample, "seed": 7, "duration": 4.2});
    for (cost, text) in [(json!(3.5), "3.5"), (json!(0), "0"), (json!(0.04), "0.04")] {
        let body = json!({"id": "11111111-fake", "status": "Ready", "cost": cost, "result": result});
        let PollAnswer::Done { outputs: Some(drafts), report } = poll(answer(200, body)).await.unwrap() else {
            panic!()
        };
        assert_eq!(report.usage, credits(text, UsageSource::Reported));
        assert_eq!(drafts.len(), 1);
        assert_eq!(drafts[0].role, "image");
        assert_eq!(drafts[0].source, DraftSource::Url { url: sample.to_owned(), with_key: false });
        assert_eq!(drafts[0].expires_in, Some(Duration::from_secs(600)));
        let registry = longhaul_registry::Registry::builtin().unwrap();
        assert_eq!(registry.vendor("flux").unwrap().outputs_live_s, Some(600), "the file of facts says the same");
    }
    // A terminal word without its bytes: the engine asks again before it calls it empty.
    for result in [json!(null), json!({}), json!({"sample": null}), json!({"sample": ""}), json!("x")] {
        let body = json!({"status": "Ready", "result": result});
        let done = poll(answer(200, body)).await.unwrap();
        assert!(matches!(done, PollAnswer::Done { outputs: None, .. }), "{result} {done:?}");
    }
}

#[tokio::test]
async fn a_moderated_or_failed_task_is_final() {
    for (word, kind) in [
        ("Request Moderated", FailureKind::ContentPolicy),
        ("Content Moderated", FailureKind::ContentPolicy),
        ("Error", FailureKind::VendorError),
        ("Failed", FailureKind::VendorError),
    ] {
        let body = json!({"status": word, "cost": 0, "details": {"Moderation Reasons": ["Derivative Works Filter"]}});
        let PollAnswer::Failed { failure, outputs, report } = poll(answer(200, body)).await.unwrap() else { panic!() };
        assert_eq!((failure.kind, failure.retry, failure.vendor_code.as_deref()), (kind, Retry::Never, Some(word)));
        assert!(failure.message.contains("Derivative Works Filter"));
        assert_eq!((outputs, report.usage), (None, credits("0", UsageSource::Reported)));
    }
}

#[tokio::test]
async fn a_task_that_is_not_found_and_answers_that_say_nothing() {
    let failure = poll(answer(200, json!({"status": "Task not found"}))).await.unwrap_err();
    assert_eq!((failure.kind, failure.vendor_code.as_deref()), (FailureKind::NotFound, Some("Task not found")));
    for odd in ["{}", r#"{"detail":"x"}"#, "<html>", r#"{"status":"Ready","status":"Error"}"#, r#"{"status":NaN}"#] {
        let failure = poll(raw(200, odd)).await.unwrap_err();
        assert_eq!((failure.code.as_str(), failure.retry), ("unreadable_answer", Retry::Backoff), "{odd}");
    }
}

#[tokio::test]
async fn outputs_ask_again_for_a_fresh_address() {
    let connector = bfl();
    for (body, count) in [
        (json!({"status": "Ready", "result": {"sample": "https://delivery.example/y.png?sig=2"}}), 1),
        (json!({"status": "Ready", "result": {}}), 0),
        (json!({"status": "Pending"}), 0),
    ] {
        let script = Script::new().expect(Call::get("poll", "/v1/get_result").at(POLLING_URL), answer(200, body));
        let outputs = Flux.outputs(&script.context(&connector), &running_job().view()).await.unwrap();
        assert_eq!(outputs.drafts.len(), count);
        script.done();
    }
    let cancelled = Flux.cancel(&Script::new().context(&connector), &running_job().view()).await.unwrap();
    assert_eq!(cancelled, longhaul_registry::CancelAnswer::Unsupported);
}
