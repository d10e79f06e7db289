//! Values are those of the vendor's SDK types, its documentation, its worked example, and the field cases.

use super::*;
use crate::testing::{Job, ReplyExt, Script, answer, connector, lost, raw, request};

const ID: &str = "00000000-fake-4000-8000-000000000001";
const TASK: &str = "/v1/tasks/00000000-fake-4000-8000-000000000001";

fn runway() -> Connector {
    connector("runway", json!({}))
}

fn asked(body: Value) -> Result<Prepared, Vec<Problem>> {
    Runway.prepare(&request(body), &runway())
}

fn video(media: Value, vendor: Value) -> Value {
    json!({"task": "video", "instructions": "well", "media": media, "vendor": vendor})
}

fn from_image(media: Value, vendor: Value, roles: &[&str]) -> Value {
    let mut body = video(media, vendor);
    body["inputs"] = roles.iter().map(|role| json!({"role": role, "artifact": "art"})).collect();
    body
}

fn boat() -> Value {
    json!({"task": "video", "instructions": "a paper boat on a pond", "media": {"aspect": "16:9", "duration_ms": 5000},
           "vendor": {"model": "gen4.5"}})
}

fn start_call() -> Call {
    let body = json!({"model": "gen4.5", "promptText": "a paper boat on a pond", "duration": 5, "ratio": "1280:720"});
    Call::post("start", "/v1/text_to_video", body).paid().silence(Some(Duration::from_secs(60)))
}

async fn start(reply: Reply) -> Result<StartAnswer, Failure> {
    let script = Script::new().expect(start_call(), reply);
    let connector = runway();
    let job = Job::new(request(boat()), asked(boat()).unwrap().request);
    let answer = Runway.start(&script.context(&connector), &job.view()).await;
    script.done();
    answer
}

fn task_job(cancel_sent: bool) -> Job {
    let mut job = Job::new(request(boat()), Value::Null).known_as(ID, Value::Null);
    job.cancel_sent = cancel_sent;
    job
}

async fn poll_of(job: Job, reply: Reply) -> Result<PollAnswer, Failure> {
    let script = Script::new().expect(Call::get("poll", TASK), reply);
    let connector = runway();
    let answer = Runway.poll(&script.context(&connector), &job.view()).await;
    script.done();
    answer
}

async fn poll(reply: Reply) -> Result<PollAnswer, Failure> {
    poll_of(task_job(false), reply).await
}

async fn cancel(cancel_sent: bool, reply: Reply) -> Result<CancelAnswer, Failure> {
    let script = Script::new().expect(Call::delete("cancel", TASK).once(), reply);
    let connector = runway();
    let answer = Runway.cancel(&script.context(&connector), &task_job(cancel_sent).view()).await;
    script.done();
    answer
}

fn booked(text: &str, source: UsageSource) -> Vec<Usage> {
    vec![usage(ID, text.parse().unwrap(), source)]
}

#[test]
fn the_worked_example_maps_to_the_worked_body() {
    let prepared = asked(boat()).unwrap();
    assert_eq!(
        prepared.request,
        json!({"path": "/v1/text_to_video", "body": {"model": "gen4.5", "promptText": "a paper boat on a pond",
               "duration": 5, "ratio": "1280:720"}})
    );
    assert_eq!(prepared.model.as_deref(), Some("gen4.5"));
    // 5 s at 12 credits, as the worked answer estimates.
    assert_eq!(prepared.estimate, vec![usage("estimate", Decimal::from(60), UsageSource::Estimated)]);
}

#[test]
fn shapes_become_ratios_or_are_refused_with_the_allowed() {
    let ratio = |media: Value, model: &str| {
        asked(video(media, json!({"model": model}))).map(|p| p.request["body"]["ratio"].clone())
    };
    for (media, model, expected) in [
        (json!({}), "gen4.5", "1280:720"),
        (json!({"aspect": "9:16"}), "gen4.5", "720:1280"),
        (json!({"width": 720, "height": 1280}), "gen4.5", "720:1280"),
        (json!({"width": 1920, "height": 1080}), "veo3.1", "1920:1080"),
        (json!({"aspect": "16:9"}), "veo3.1_fast", "1280:720"),
        (json!({"aspect": "32:18"}), "veo3.1", "1280:720"),
        (json!({"width": 1920, "height": 1080, "aspect": "16:9"}), "veo3.1", "1920:1080"),
        (json!({"width": 854, "height": 480}), "seedance2_5", "854:480"),
        (json!({"aspect": "1:1"}), "hailuo3", "1:1"),
    ] {
        assert_eq!(ratio(media.clone(), model).unwrap(), json!(expected), "{media} {model}");
    }
    // R36: a square from veo3.1 is refused before anything is spent, with what it does make.
    for (media, model, path, allowed) in [
        (json!({"aspect": "1:1", "duration_ms": 4000}), "veo3.1", "media.aspect", json!(["16:9", "9:16"])),
        (json!({"aspect": "1:1"}), "gen4.5", "media.aspect", json!(["16:9", "9:16"])),
        (json!({"width": 1920, "height": 1080}), "gen4.5", "media.width", json!(["1280x720", "720x1280"])),
        (
            json!({"width": 1280, "height": 720, "aspect": "9:16"}),
            "gen4.5",
            "media.width",
            json!(["1280x720", "720x1280"]),
        ),
    ] {
        let problems = ratio(media.clone(), model).unwrap_err();
        assert_eq!((problems.len(), problems[0].path.as_str()), (1, path), "{media}");
        assert_eq!(problems[0].allowed, Some(allowed), "{media}");
    }
    let square = asked(from_image(json!({"aspect": "1:1"}), json!({}), &["first_frame"])).unwrap();
    assert_eq!(square.request["body"]["ratio"], json!("960:960"));
    let wide = asked(from_image(json!({"width": 1584, "height": 672}), json!({"model": "gen4_turbo"}), &["reference"]))
        .unwrap();
    assert_eq!(wide.request["body"]["ratio"], json!("1584:672"));
}

#[test]
fn lengths_are_whole_seconds_of_the_model() {
    let length = |ms: u64, model: &str| asked(video(json!({ "duration_ms": ms }), json!({"model": model})));
    for (ms, model) in [(2000, "gen4.5"), (10_000, "gen4.5"), (4000, "veo3.1"), (8000, "veo3.1_fast"), (15_000, "wan3")]
    {
        assert_eq!(length(ms, model).unwrap().request["body"]["duration"], json!(ms / 1000), "{ms} {model}");
    }
    for (ms, model, allowed) in [
        (1000, "gen4.5", json!({"min": 2000, "max": 10_000, "multiple_of": 1000})),
        (11_000, "gen4.5", json!({"min": 2000, "max": 10_000, "multiple_of": 1000})),
        (5500, "gen4.5", json!({"min": 2000, "max": 10_000, "multiple_of": 1000})),
        (5000, "veo3.1", json!([4000, 6000, 8000])),
        (0, "wan3", json!({"multiple_of": 1000})),
    ] {
        let problems = length(ms, model).unwrap_err();
        assert_eq!(problems[0].path, "media.duration_ms", "{ms} {model}");
        assert_eq!(problems[0].allowed, Some(allowed), "{ms} {model}");
    }
    // gen4.5 must be told; veo chooses by itself, and the estimate is the most it may choose.
    assert_eq!(asked(video(json!({}), json!({}))).unwrap().request["body"]["duration"], json!(5));
    let veo = |vendor: Value| asked(video(json!({}), vendor)).unwrap();
    assert_eq!(veo(json!({"model": "veo3.1"})).request["body"].get("duration"), None);
    for (vendor, credits) in [
        (json!({"model": "veo3.1"}), 320),
        (json!({"model": "veo3.1", "audio": false}), 160),
        (json!({"model": "veo3.1_fast"}), 120),
        (json!({"model": "gen4.5", "outputFormat": "prores"}), 85),
        (json!({"model": "gen4.5", "outputFormat": "hdr10"}), 160),
    ] {
        assert_eq!(veo(vendor.clone()).estimate[0].quantity, Decimal::from(credits), "{vendor}");
    }
    assert_eq!(veo(json!({"model": "kling_4"})).estimate, vec![]);
}

#[test]
fn prompts_are_counted_in_utf16_units() {
    let words = |text: String, model: &str| {
        let mut body = video(json!({}), json!({"model": model}));
        body["instructions"] = json!(text);
        asked(body)
    };
    assert!(words("\u{1f600}".repeat(500), "gen4.5").is_ok());
    let problems = words("\u{1f600}".repeat(501), "gen4.5").unwrap_err();
    assert_eq!((problems[0].path.as_str(), problems[0].code.as_str()), ("instructions", "too_long"));
    assert_eq!(problems[0].allowed, Some(json!({"max_utf16_units": 1000})));
    assert!(words("x".repeat(3000), "seedance2_5").is_ok());
    assert_eq!(words(" ".to_owned(), "veo3.1").unwrap_err()[0].code, "missing");
    let mut wordless = from_image(json!({}), json!({"model": "gen4_turbo"}), &["first_frame"]);
    wordless["instructions"] = json!("");
    assert_eq!(asked(wordless.clone()).unwrap().request["body"].get("promptText"), None);
    wordless["vendor"]["model"] = json!("gen4.5");
    assert_eq!(asked(wordless).unwrap_err()[0].path, "instructions");
}

#[test]
fn pictures_choose_the_route_and_stand_where_the_model_takes_them() {
    let prepared = |vendor: Value, roles: &[&str]| asked(from_image(json!({}), vendor, roles));
    let one = prepared(json!({}), &["first_frame"]).unwrap().request;
    assert_eq!(one["path"], json!("/v1/image_to_video"));
    assert_eq!(one["body"]["promptImage"], json!({"$input": 0}));
    let two = prepared(json!({"model": "veo3.1"}), &["last_frame", "first_frame"]).unwrap().request;
    assert_eq!(
        two["body"]["promptImage"],
        json!([{"uri": {"$input": 1}, "position": "first"}, {"uri": {"$input": 0}, "position": "last"}])
    );
    for (model, roles, path) in [
        // The SDK's types know `first` alone for these two.
        ("gen4.5", &["first_frame", "last_frame"][..], "inputs[1].role"),
        ("gen4_turbo", &["first_frame", "last_frame"][..], "inputs[1].role"),
        ("veo3.1", &["first_frame", "reference"][..], "inputs[1]"),
        ("veo3.1", &["audio"][..], "inputs[0].role"),
        ("gen4_turbo", &[][..], "inputs"),
    ] {
        let problems = prepared(json!({ "model": model }), roles).unwrap_err();
        assert_eq!(problems[0].path, path, "{model} {roles:?}");
        assert!(problems[0].allowed.is_some());
    }
}

#[test]
fn formats_are_packings_of_the_model() {
    let packed = |media: Value, vendor: Value| {
        asked(video(media, vendor)).map(|p| p.request["body"].get("outputFormat").cloned())
    };
    for (media, vendor, expected) in [
        (json!({"format": "mp4"}), json!({}), None),
        (json!({"format": "mov"}), json!({}), Some("prores")),
        (json!({"format": "zip"}), json!({}), Some("png_sequence")),
        (json!({"format": "mov"}), json!({"outputFormat": "hdr_pq_12bit_master"}), Some("hdr_pq_12bit_master")),
        (json!({}), json!({"outputFormat": "hlg"}), Some("hlg")),
        (json!({"format": "mp4"}), json!({"model": "veo3.1"}), None),
        (json!({"format": "mov"}), json!({"model": "seedance2_5", "outputFormat": "mov"}), Some("mov")),
    ] {
        assert_eq!(
            packed(media.clone(), vendor.clone()).unwrap(),
            expected.map(|word| json!(word)),
            "{media} {vendor}"
        );
    }
    for (media, vendor, path) in [
        (json!({"format": "webm"}), json!({}), "media.format"),
        (json!({"format": "mp4"}), json!({"outputFormat": "prores"}), "media.format"),
        (json!({}), json!({"outputFormat": "gif"}), "vendor.outputFormat"),
        (json!({"format": "mov"}), json!({"model": "veo3.1"}), "media.format"),
        (json!({"format": "webm"}), json!({"model": "wan3"}), "media.format"),
        (json!({}), json!({"outputFormat": "hlg", "proresProfile": "422"}), "vendor.proresProfile"),
    ] {
        let problems = packed(media.clone(), vendor.clone()).unwrap_err();
        assert_eq!(problems[0].path, path, "{media} {vendor}");
        assert!(problems[0].allowed.is_some());
    }
}

#[test]
fn every_problem_is_told_at_once() {
    let body = json!({"task": "image", "instructions": "",
        "media": {"count": 2, "fps": 24, "seed": 4_294_967_296_u64, "width": 100},
        "vendor": {"audio": true, "ratio": "1:1", "resolution": "2k"}});
    let mut found: Vec<_> = asked(body).unwrap_err().into_iter().map(|problem| problem.path).collect();
    found.sort();
    assert_eq!(
        found,
        [
            "instructions",
            "media.count",
            "media.fps",
            "media.height",
            "media.seed",
            "task",
            "vendor.audio",
            "vendor.ratio",
            "vendor.resolution"
        ]
    );
    let seed = asked(video(json!({"seed": 4_294_967_295_u64}), json!({}))).unwrap();
    assert_eq!(seed.request["body"]["seed"], json!(4_294_967_295_u64));
}

#[tokio::test]
async fn pictures_go_as_addresses_or_as_data_up_to_five_megabytes() {
    let mut body = from_image(json!({}), json!({"model": "veo3.1"}), &["first_frame"]);
    body["inputs"] =
        json!([{"role": "first_frame", "artifact": "art"}, {"role": "last_frame", "url": "https://f.example/z.png"}]);
    let prepared = asked(body.clone()).unwrap();
    let wire = json!({"model": "veo3.1", "promptText": "well", "ratio": "1280:720", "promptImage": [
        {"uri": "data:image/png;base64,cG5n", "position": "first"}, {"uri": "https://f.example/z.png", "position": "last"}]});
    let call = Call::post("start", "/v1/image_to_video", wire).paid().silence(Some(Duration::from_secs(60)));
    let script = Script::new().expect(call, answer(200, json!({"id": "t"}))).input(0, "image/png", &b"png"[..]);
    let connector = runway();
    let job = Job::new(request(body), prepared.request);
    Runway.start(&script.context(&connector), &job.view()).await.unwrap();
    script.done();
    let large = Script::new().input(0, "image/png", vec![0; 4_000_000]);
    let failure = Runway.start(&large.context(&connector), &job.view()).await.unwrap_err();
    assert_eq!((failure.kind, failure.retry, failure.unsent), (FailureKind::InvalidRequest, Retry::Never, true));
}

#[tokio::test]
async fn a_start_is_estimated_or_its_acceptance_is_unknown() {
    let started = start(answer(200, json!({"id": ID, "estimatedCost": {"credits": 60}}))).await.unwrap();
    let StartAnswer::Started { vendor_job_id, report } = started else { panic!() };
    assert_eq!((vendor_job_id.as_str(), report.usage), (ID, booked("60", UsageSource::Estimated)));
    // A cost of another make spoils nothing: the id is what was paid for.
    for odd in [json!(60), json!({"credits": "many"}), json!({"credits": -1}), json!({}), json!(null)] {
        let started = start(answer(200, json!({"id": 7, "estimatedCost": odd}))).await.unwrap();
        let StartAnswer::Started { vendor_job_id, report } = started else { panic!() };
        assert_eq!((vendor_job_id.as_str(), report.usage), ("7", vec![]), "{odd}");
    }
    // R45: success without an id.
    for body in [json!({}), json!({"id": ""}), json!({"id": null, "estimatedCost": {"credits": 1}})] {
        let failure = start(answer(200, body)).await.unwrap_err();
        assert_eq!((failure.kind, failure.retry), (FailureKind::StartUnknown, Retry::Unknown));
    }
    for status in [408, 409, 500, 502, 503, 504, 307] {
        assert_eq!(start(answer(status, json!({"error": "x"}))).await.unwrap_err().retry, Retry::Unknown, "{status}");
    }
    // R02: the request was read and no answer came.
    let script = Script::new().expect_lost(start_call(), lost());
    let connector = runway();
    let job = Job::new(request(boat()), asked(boat()).unwrap().request);
    assert_eq!(Runway.start(&script.context(&connector), &job.view()).await.unwrap_err(), lost());
    let found = Runway.find(&Script::new().context(&connector), &job.sent(90).view()).await.unwrap();
    assert_eq!(found, longhaul_registry::Finding::Unsupported);
}

#[tokio::test]
async fn every_error_row_of_the_page() {
    let hour = Retry::After(Duration::from_secs(3600));
    for (status, body, kind, retry, holds) in [
        (
            400,
            json!({"error": "Validation of body failed", "issues": [{"message": "ratio"}]}),
            FailureKind::InvalidRequest,
            Retry::Never,
            false,
        ),
        (
            400,
            json!({"error": "You do not have enough credits to run this task."}),
            FailureKind::Quota,
            Retry::Never,
            false,
        ),
        (
            400,
            json!({"error": "X-Runway-Version 2024-11-06 is no longer supported"}),
            FailureKind::InvalidRequest,
            Retry::Never,
            true,
        ),
        (
            400,
            json!({"error": "refused", "failureCode": "SAFETY.INPUT.TEXT"}),
            FailureKind::ContentPolicy,
            Retry::Never,
            false,
        ),
        (
            500,
            json!({"error": "refused", "code": "SAFETY.INPUT.TEXT"}),
            FailureKind::ContentPolicy,
            Retry::Never,
            false,
        ),
        (401, json!({"error": "key_fakefake is not valid"}), FailureKind::Auth, Retry::Never, false),
        (403, json!({"error": "forbidden"}), FailureKind::Auth, Retry::Never, false),
        (
            403,
            json!({"error": "This model is not available to you"}),
            FailureKind::ModelUnavailable,
            Retry::Never,
            false,
        ),
        (404, json!({"error": "no such route"}), FailureKind::InvalidRequest, Retry::Never, false),
        (405, json!({"error": "method"}), FailureKind::InvalidRequest, Retry::Never, false),
        (422, json!({"error": "unprocessable"}), FailureKind::InvalidRequest, Retry::Never, false),
        (429, json!({"error": "Too many requests"}), FailureKind::Quota, hour, false),
    ] {
        let failure = start(answer(status, body.clone())).await.unwrap_err();
        assert_eq!((failure.kind, failure.retry, failure.holds_connector), (kind, retry, holds), "{status} {body}");
        assert!(!failure.message.contains("key_fakefake"), "{}", failure.message);
    }
    let hinted = answer(429, json!({"error": "x"})).with_retry_after(9);
    let failure = start(hinted.clone()).await.unwrap_err();
    assert_eq!((failure.kind, failure.retry), (FailureKind::RateLimited, Retry::After(Duration::from_secs(9))));
    let finer = start(hinted.with_header("retry-after-ms", "1500")).await.unwrap_err();
    assert_eq!(finer.retry, Retry::After(Duration::from_millis(1500)));
    for unreadable in ["0", "-5", "soon"] {
        let failure = poll(answer(429, json!({})).with_header("retry-after-ms", unreadable)).await.unwrap_err();
        assert_eq!((failure.kind, failure.retry), (FailureKind::RateLimited, Retry::Backoff), "{unreadable}");
    }
    for status in [500, 502, 503, 504, 307] {
        assert_eq!(poll(answer(status, json!({}))).await.unwrap_err().retry, Retry::Backoff, "{status}");
    }
}

#[tokio::test]
async fn every_status_word() {
    for (word, progress) in [("PENDING", None), ("THROTTLED", None), ("RUNNING", Some(0.42))] {
        let body = json!({"id": ID, "status": word, "progress": progress, "estimatedCost": {"credits": 60}});
        let PollAnswer::Running(report) = poll(answer(200, body)).await.unwrap() else { panic!("{word}") };
        assert_eq!((report.unknown_status, report.vendor_status.as_deref()), (false, Some(word)));
        assert_eq!(
            (report.progress.is_some(), report.usage),
            (progress.is_some(), booked("60", UsageSource::Estimated))
        );
    }
    // R12: an unknown word is running, and is counted; the vendor's wish for the next poll is kept.
    let odd = json!({"status": "WARMING", "output": {"node": []}, "failureCode": 7, "progress": 42});
    let PollAnswer::Running(report) = poll(answer(200, odd).with_retry_after(30)).await.unwrap() else { panic!() };
    assert_eq!((report.unknown_status, report.progress, report.hint), (true, None, Some(Duration::from_secs(30))));
    let body = json!({"id": ID, "status": "CANCELLED", "cost": {"credits": 0}});
    let PollAnswer::Stopped { outputs: None, report } = poll(answer(200, body)).await.unwrap() else { panic!() };
    assert_eq!(report.usage, booked("0", UsageSource::Reported));
    for odd in
        ["{}", "<html>", r#"{"status":"RUNNING","status":"SUCCEEDED"}"#, r#"{"status":"RUNNING","progress":NaN}"#]
    {
        assert_eq!(poll(raw(200, odd)).await.unwrap_err().code, "unreadable_answer", "{odd}");
    }
}

#[tokio::test]
async fn success_brings_addresses_and_the_settled_cost() {
    let body = json!({"status": "SUCCEEDED", "cost": {"credits": 60}, "estimatedCost": {"credits": 90},
        "output": ["https://fake.cloudfront.example/o.mp4?_jwt=FAKE", "https://fake.cloudfront.example/o.WAV?_jwt=a.zip"]});
    let PollAnswer::Done { outputs: Some(drafts), report } = poll(answer(200, body)).await.unwrap() else { panic!() };
    assert_eq!(report.usage, booked("60", UsageSource::Reported));
    assert_eq!(drafts.iter().map(|draft| draft.role.as_str()).collect::<Vec<_>>(), ["video", "audio"]);
    let url = "https://fake.cloudfront.example/o.mp4?_jwt=FAKE".to_owned();
    assert_eq!(drafts[0].source, DraftSource::Url { url, with_key: false });
    assert_eq!(drafts[0].expires_in, Some(Duration::from_secs(86_400)));
    // Without the settled figure the estimate stands, as an estimate.
    let body = json!({"status": "SUCCEEDED", "estimatedCost": {"credits": 60}, "output": []});
    let PollAnswer::Done { outputs: None, report } = poll(answer(200, body)).await.unwrap() else { panic!() };
    assert_eq!(report.usage, booked("60", UsageSource::Estimated));
    let connector = runway();
    for (output, count) in [(json!([]), 0), (json!(null), 0), (json!(["https://c.example/v.mp4"]), 1)] {
        let body = json!({"status": "SUCCEEDED", "cost": {"credits": 60}, "output": output});
        let script = Script::new().expect(Call::get("poll", TASK), answer(200, body));
        let outputs = Runway.outputs(&script.context(&connector), &task_job(false).view()).await.unwrap();
        assert_eq!(outputs.drafts.len(), count);
    }
}

#[tokio::test]
async fn every_failure_family() {
    for (code, kind) in [
        (json!("SAFETY.INPUT.TEXT"), FailureKind::ContentPolicy),
        (json!("SAFETY.OUTPUT.VIDEO"), FailureKind::ContentPolicy),
        (json!("INPUT_PREPROCESSING.SAFETY.TEXT"), FailureKind::ContentPolicy),
        (json!("INPUT_PREPROCESSING.DURATION"), FailureKind::InvalidRequest),
        (json!("INPUT_PREPROCESSING.INTERNAL"), FailureKind::VendorError),
        (json!("ASSET.INVALID"), FailureKind::InvalidRequest),
        (json!("INTERNAL.BAD_OUTPUT.CODE01"), FailureKind::VendorError),
        (json!("INTERNAL"), FailureKind::VendorError),
        (json!("THIRD_PARTY.UNAVAILABLE"), FailureKind::VendorError),
        (json!("SOMETHING.NEW"), FailureKind::VendorError),
        (json!(null), FailureKind::VendorError),
    ] {
        let body = json!({"status": "FAILED", "failure": "The output was rejected.", "failureCode": code, "cost": {"credits": 0}});
        let PollAnswer::Failed { failure, report, .. } = poll(answer(200, body)).await.unwrap() else { panic!() };
        assert_eq!((failure.kind, failure.retry), (kind, Retry::Never), "{code}");
        assert_eq!(failure.vendor_code.as_deref(), code.as_str());
        assert!(failure.message.contains("The output was rejected."));
        assert_eq!(report.usage, booked("0", UsageSource::Reported));
    }
}

#[tokio::test]
async fn a_cancel_is_confirmed_and_may_be_repeated() {
    assert!(matches!(cancel(false, raw(204, "")).await.unwrap(), CancelAnswer::Confirmed(_)));
    assert!(matches!(cancel(true, raw(204, "")).await.unwrap(), CancelAnswer::Confirmed(_)));
    // Gone: after our own wish that is the confirmation, before it nobody knows such a task.
    assert!(matches!(cancel(true, answer(404, json!({}))).await.unwrap(), CancelAnswer::Confirmed(_)));
    assert_eq!(cancel(false, answer(404, json!({}))).await.unwrap_err().kind, FailureKind::NotFound);
    assert_eq!(cancel(true, answer(500, json!({}))).await.unwrap_err().retry, Retry::Backoff);
    assert_eq!(cancel(true, answer(429, json!({}))).await.unwrap_err().kind, FailureKind::RateLimited);
    // The engine, which knows what became of the cancel, reads a record that is gone.
    let gone = poll_of(task_job(true), answer(404, json!({}))).await.unwrap_err();
    assert_eq!(gone.kind, FailureKind::NotFound);
    assert_eq!(poll(answer(404, json!({}))).await.unwrap_err().kind, FailureKind::NotFound);
}

#[tokio::test]
async fn a_task_id_from_a_person_cannot_leave_its_place() {
    let connector = runway();
    for id in ["..", "", "."] {
        let job = Job::new(request(boat()), Value::Null).known_as(id, Value::Null);
        let failure = Runway.poll(&Script::new().context(&connector), &job.view()).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::InvalidRequest);
    }
}
