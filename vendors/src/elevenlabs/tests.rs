//! Values are those of the vendor's SDK types, its help pages, and the field cases.

use super::*;
use crate::testing::{Job, ReplyExt, Script, answer, connector, lost, now, raw, request, staged};
use longhaul_registry::Unit;
use std::time::Duration;

/// [`now`] less 90 s, less the 5 s of slack.
const SINCE: &str = "1796032705";

fn eleven() -> Connector {
    let fields = json!({"auth": {"scheme": "header", "name": "xi-api-key"}, "start_silence_s": 600, "unit": "credits"});
    connector("elevenlabs", fields)
}

fn morning() -> Value {
    json!({"task": "speech", "inputs": [{"role": "script", "text": "Good morning."}],
           "media": {"voice": "voiceA", "format": "mp3"}})
}

fn asked(body: Value) -> Result<Prepared, Vec<Problem>> {
    ElevenLabs.prepare(&request(body), &eleven())
}

fn with(media: Value, vendor: Value) -> Value {
    let mut body = morning();
    body["vendor"] = vendor;
    for (field, value) in media.as_object().unwrap() {
        body["media"][field] = value.clone();
    }
    body
}

fn job() -> Job {
    Job::new(request(morning()), asked(morning()).unwrap().request)
}

fn start_call() -> Call {
    Call::post(
        "start",
        "/v1/text-to-speech/voiceA",
        json!({"text": "Good morning.", "model_id": "eleven_multilingual_v2"}),
    )
    .query("output_format", "mp3_44100_128")
    .paid()
    .to_staging()
    .silence(Some(Duration::from_secs(600)))
}

async fn start(reply: Reply) -> Result<StartAnswer, Failure> {
    let script = Script::new().expect(start_call(), reply);
    let connector = eleven();
    let answer = ElevenLabs.start(&script.context(&connector), &job().view()).await;
    script.done();
    answer
}

fn list_call(since: &str) -> Call {
    Call::get("history", "/v1/history")
        .query("page_size", "100")
        .query("voice_id", "voiceA")
        .query("model_id", "eleven_multilingual_v2")
        .query("source", "TTS")
        .query("date_after_unix", since)
}

fn item(id: &str, request: &str, seconds_ago: i64) -> Value {
    json!({"history_item_id": id, "request_id": request, "voice_id": "voiceA", "model_id": "eleven_multilingual_v2",
        "text": "Good morning.", "date_unix": now().timestamp() - seconds_ago, "character_count_change_from": 17189,
        "character_count_change_to": 17202, "content_type": "audio/mpeg", "state": "created", "source": "TTS"})
}

fn page(items: &[Value]) -> Reply {
    answer(200, json!({"history": items, "last_history_item_id": "last", "has_more": false}))
}

async fn find(script: Script, job: Job) -> Finding {
    let connector = eleven();
    let finding = ElevenLabs.find(&script.context(&connector), &job.view()).await.unwrap();
    script.done();
    finding
}

fn booked(record: &str, quantity: &str, source: UsageSource) -> Vec<Usage> {
    let quantity = quantity.parse().unwrap();
    vec![Usage { record: record.to_owned(), unit: Unit::Credits, quantity, source, usd: None }]
}

#[test]
fn speech_maps_to_the_whole_answer_route() {
    let prepared = asked(morning()).unwrap();
    assert_eq!(
        prepared.request,
        json!({"path": "/v1/text-to-speech/voiceA", "query": {"output_format": "mp3_44100_128"},
               "body": {"text": {"$input": 0}, "model_id": "eleven_multilingual_v2"}})
    );
    assert_eq!(prepared.estimate, booked("estimate", "13", UsageSource::Estimated));
    let full = with(
        json!({"seed": 4_294_967_295_u64, "language": "de", "channels": 1, "count": 1}),
        json!({"model_id": "eleven_flash_v2_5", "voice_settings": {"speed": 1.2}, "optimize_streaming_latency": 2,
               "apply_text_normalization": "on"}),
    );
    let prepared = asked(full).unwrap();
    assert_eq!(
        prepared.request,
        json!({"path": "/v1/text-to-speech/voiceA",
               "query": {"optimize_streaming_latency": "2", "output_format": "mp3_44100_128"},
               "body": {"text": {"$input": 0}, "model_id": "eleven_flash_v2_5", "seed": 4_294_967_295_u64, "language_code": "de",
                        "voice_settings": {"speed": 1.2}, "apply_text_normalization": "on"}})
    );
    // The page's own example: half a credit a character with flash.
    assert_eq!(prepared.estimate[0].quantity.to_string(), "6.5");
}

#[test]
fn the_connector_fills_in_model_voice_and_retention() {
    let mut connector = eleven();
    for (name, value) in [("model", json!("eleven_v3")), ("voice", json!("voice/B")), ("enable_logging", json!(false))]
    {
        connector.settings.insert(name.to_owned(), value);
    }
    let mut body = morning();
    body["media"] = json!({});
    let prepared = ElevenLabs.prepare(&request(body), &connector).unwrap();
    assert_eq!(prepared.request["path"], json!("/v1/text-to-speech/voice%2FB"));
    assert_eq!(prepared.request["query"], json!({"enable_logging": "false", "output_format": "mp3_44100_128"}));
    assert_eq!(prepared.model.as_deref(), Some("eleven_v3"));
}

#[test]
fn formats_and_rates_are_the_vendors_or_refused_with_the_list() {
    let word =
        |media: Value, vendor: Value| asked(with(media, vendor)).map(|p| p.request["query"]["output_format"].clone());
    for (media, vendor, expected) in [
        (json!({"format": "mp3", "sample_rate": 24_000}), json!({}), "mp3_24000_48"),
        (json!({"format": "mp3", "sample_rate": 22_050}), json!({}), "mp3_22050_32"),
        (json!({"format": "wav"}), json!({}), "wav_24000"),
        (json!({"format": "wav", "sample_rate": 44_100}), json!({}), "wav_44100"),
        (json!({"format": "pcm", "sample_rate": 16_000}), json!({}), "pcm_16000"),
        (json!({"format": "opus"}), json!({}), "opus_48000_128"),
        (json!({"format": "ulaw"}), json!({}), "ulaw_8000"),
        (json!({"format": "alaw", "sample_rate": 8000}), json!({}), "alaw_8000"),
        (json!({"format": "mp3"}), json!({"output_format": "mp3_44100_192"}), "mp3_44100_192"),
    ] {
        assert_eq!(word(media.clone(), vendor).unwrap(), json!(expected), "{media}");
    }
    let rates = json!([8000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000]);
    for (media, vendor, path, allowed) in [
        (json!({"format": "flac"}), json!({}), "media.format", json!(["mp3", "wav", "pcm", "opus", "ulaw", "alaw"])),
        (json!({"format": "wav", "sample_rate": 11_025}), json!({}), "media.sample_rate", rates.clone()),
        (json!({"format": "pcm", "sample_rate": 96_000}), json!({}), "media.sample_rate", rates),
        (
            json!({"format": "mp3", "sample_rate": 48_000}),
            json!({}),
            "media.sample_rate",
            json!([22_050, 24_000, 44_100]),
        ),
        (json!({"format": "opus", "sample_rate": 24_000}), json!({}), "media.sample_rate", json!([48_000])),
        (json!({"format": "wav"}), json!({"output_format": "mp3_44100_128"}), "media.format", json!(["mp3"])),
        (json!({"channels": 2}), json!({}), "media.channels", json!([1])),
    ] {
        let problems = word(media.clone(), vendor).unwrap_err();
        assert_eq!((problems.len(), problems[0].path.as_str()), (1, path), "{media}");
        assert_eq!(problems[0].allowed, Some(allowed), "{media}");
    }
    assert_eq!(word(json!({}), json!({"output_format": "aac_44100"})).unwrap_err()[0].path, "vendor.output_format");
}

#[test]
fn every_problem_is_told_at_once() {
    let body = json!({"task": "sound", "instructions": "say hello",
        "media": {"duration_ms": 1000, "count": 3, "seed": 4_294_967_296_u64, "language": "de", "format": "aac"},
        "inputs": [{"role": "audio", "url": "https://a.example/a.mp3"}],
        "vendor": {"text": "x", "voice_settings": {"speed": 2}}});
    let mut found: Vec<_> = asked(body).unwrap_err().into_iter().map(|problem| problem.path).collect();
    found.sort();
    assert_eq!(
        found,
        [
            "inputs",
            "inputs[0].role",
            "media.count",
            "media.duration_ms",
            "media.format",
            "media.language",
            "media.seed",
            "media.voice",
            "task",
            "vendor.text",
            "vendor.voice_settings.speed"
        ]
    );
    let with_script = |text: &str, model: &str| {
        let mut body = with(json!({}), json!({"model_id": model}));
        body["inputs"][0]["text"] = json!(text);
        asked(body)
    };
    for (model, cap) in [("eleven_multilingual_v2", 10_000), ("eleven_flash_v2", 30_000), ("eleven_turbo_v2_5", 40_000)]
    {
        assert!(with_script(&"ä".repeat(cap), model).is_ok(), "{model}");
        let problems = with_script(&"ä".repeat(cap + 1), model).unwrap_err();
        assert_eq!((problems[0].path.as_str(), problems[0].code.as_str()), ("inputs[0].text", "too_long"));
        assert_eq!(problems[0].allowed, Some(json!({ "max_chars": cap })), "{model}");
    }
    assert!(with_script(&"x".repeat(50_000), "eleven_v4").is_ok());
    assert_eq!(with_script(" \n", "eleven_v3").unwrap_err()[0].code, "missing");
}

#[tokio::test]
async fn the_answer_is_the_speech_with_its_exact_charge() {
    let reply = staged("staging-1", 20_480)
        .with_header("request-id", "req-1")
        .with_header("character-cost", "13")
        .with_header("history-item-id", "item-1")
        .with_header("content-type", "audio/mpeg");
    let StartAnswer::Finished { vendor_job_id, outputs, report } = start(reply).await.unwrap() else { panic!() };
    assert_eq!(vendor_job_id.as_deref(), Some("req-1"));
    assert_eq!(report.usage, booked("req-1", "13", UsageSource::Reported));
    assert_eq!(
        report.vendor_state,
        Some(json!({"history_item_id": "item-1", "record": "req-1", "charge_reported": true, "characters": 13}))
    );
    assert_eq!(outputs[0].source, DraftSource::Staged { token: "staging-1".to_owned() });
    assert_eq!((outputs[0].role.as_str(), outputs[0].declared_mime.as_deref()), ("audio", Some("audio/mpeg")));
    // Without the headers the charge is reckoned, and the record is the job.
    for reply in [staged("s", 1), staged("s", 1).with_header("character-cost", "-1")] {
        let StartAnswer::Finished { vendor_job_id: None, report, .. } = start(reply).await.unwrap() else { panic!() };
        assert_eq!(report.usage, booked("job_1", "13", UsageSource::Computed));
    }
    let StartAnswer::Finished { outputs, .. } = start(raw(200, "ID3")).await.unwrap() else { panic!() };
    assert_eq!(outputs[0].source, DraftSource::Base64 { data: "SUQz".to_owned() });
}

#[test]
fn bytes_without_a_header_say_what_they_are() {
    for (word, declared, expected) in [
        ("pcm_24000", "audio/mpeg", "audio/pcm;rate=24000;channels=1"),
        ("ulaw_8000", "", "audio/basic"),
        ("alaw_8000", "", "audio/PCMA;rate=8000;channels=1"),
        ("wav_44100", "", "audio/wav"),
        ("opus_48000_64", "audio/opus", "audio/opus"),
    ] {
        assert_eq!(mime(word, Some(declared)).as_deref(), Some(expected), "{word}");
    }
}

#[tokio::test]
async fn a_script_from_storage_is_read_and_measured_before_anything_is_sent() {
    let mut body = morning();
    body["inputs"][0] = json!({"role": "script", "artifact": "art_1"});
    let prepared = asked(body.clone()).unwrap();
    assert_eq!(prepared.estimate, vec![]);
    let connector = eleven();
    let job = Job::new(request(body), prepared.request);
    let script = Script::new().expect(start_call(), staged("s", 1)).input(0, "text/plain", "Good morning.");
    ElevenLabs.start(&script.context(&connector), &job.view()).await.unwrap();
    script.done();
    for bad in ["x".repeat(10_001), " ".to_owned()] {
        let script = Script::new().input(0, "text/plain", bad);
        let failure = ElevenLabs.start(&script.context(&connector), &job.view()).await.unwrap_err();
        assert_eq!((failure.kind, failure.retry, failure.unsent), (FailureKind::InvalidRequest, Retry::Never, true));
    }
}

#[tokio::test]
async fn every_error_row_of_the_page() {
    let old = |status: &str| json!({"detail": {"status": status, "message": "words sk_fakefakefake"}});
    let new =
        |kind: &str, code: &str| json!({"detail": {"type": kind, "code": code, "message": "words", "param": "text"}});
    for (status, body, kind, retry) in [
        (401, old("invalid_api_key"), FailureKind::Auth, Retry::Never),
        (401, old("missing_permissions"), FailureKind::Auth, Retry::Never),
        (403, json!({"detail": "no"}), FailureKind::Auth, Retry::Never),
        (401, old("detected_unusual_activity"), FailureKind::Auth, Retry::Never),
        (401, old("quota_exceeded"), FailureKind::Quota, Retry::Never),
        (402, old("quota_exceeded"), FailureKind::Quota, Retry::Never),
        (401, new("authentication_error", "quota_exceeded"), FailureKind::Quota, Retry::Never),
        (400, old("max_character_limit_exceeded"), FailureKind::InvalidRequest, Retry::Never),
        (400, old("voice_not_found"), FailureKind::InvalidRequest, Retry::Never),
        (404, new("not_found", "voice_not_found"), FailureKind::InvalidRequest, Retry::Never),
        (403, old("output_format_not_allowed"), FailureKind::InvalidRequest, Retry::Never),
        (400, old("model_not_found"), FailureKind::ModelUnavailable, Retry::Never),
        (
            422,
            json!({"detail": [{"loc": ["body", "text"], "msg": "words", "type": "missing"}]}),
            FailureKind::InvalidRequest,
            Retry::Never,
        ),
        (400, old("content_moderated"), FailureKind::ContentPolicy, Retry::Never),
        (500, new("server_error", "moderated"), FailureKind::ContentPolicy, Retry::Never),
        (409, old("already_running"), FailureKind::RateLimited, Retry::Backoff),
        (425, json!({}), FailureKind::RateLimited, Retry::Backoff),
        (429, old("too_many_concurrent_requests"), FailureKind::RateLimited, Retry::Backoff),
        (429, old("system_busy"), FailureKind::VendorError, Retry::Backoff),
        (429, json!({}), FailureKind::RateLimited, Retry::Backoff),
        (503, old("system_busy"), FailureKind::VendorError, Retry::Unknown),
        (500, json!({}), FailureKind::VendorError, Retry::Unknown),
        (502, json!("<html>"), FailureKind::VendorError, Retry::Unknown),
        (408, json!({}), FailureKind::VendorError, Retry::Unknown),
    ] {
        let failure = start(answer(status, body.clone())).await.unwrap_err();
        assert_eq!((failure.kind, failure.retry), (kind, retry), "{status} {body}");
        assert!(!failure.message.contains("sk_"), "{}", failure.message);
    }
    let failure = start(answer(429, old("too_many_concurrent_requests")).with_retry_after(4)).await.unwrap_err();
    assert_eq!(failure.retry, Retry::After(Duration::from_secs(4)));
    assert_eq!(failure.vendor_code.as_deref(), Some("too_many_concurrent_requests"));
    // R01 and R02: the request was read and no answer came.
    let script = Script::new().expect_lost(start_call(), lost());
    let connector = eleven();
    assert_eq!(ElevenLabs.start(&script.context(&connector), &job().view()).await.unwrap_err(), lost());
    assert_eq!(ElevenLabs.classify(&answer(503, json!({})), false).retry, Retry::Backoff);
    assert_eq!(ElevenLabs.classify(&answer(404, json!({})), false).kind, FailureKind::NotFound);
}

#[tokio::test]
async fn a_lost_start_is_found_by_its_exact_text() {
    let other = |field: &str, value: Value| {
        let mut other = item("no", "no", 80);
        other[field] = value;
        other
    };
    let items = [
        item("item-3", "req-3", 70),
        other("text", json!("Good morning")),
        other("voice_id", json!("voiceB")),
        other("model_id", json!("eleven_v3")),
        other("output_format", json!("pcm_24000")),
        other("date_unix", json!(now().timestamp() - 96)),
        other("state", json!("deleted")),
        item("item-2", "req-2", 80),
        item("item-1", "req-1", 85),
    ];
    let script = Script::new().expect(list_call(SINCE), page(&items)).taken("req-1");
    let Finding::Found(StartAnswer::Finished { vendor_job_id, outputs, report }) = find(script, job().sent(90)).await
    else {
        panic!()
    };
    assert_eq!(vendor_job_id.as_deref(), Some("req-2"));
    let url = "/v1/history/item-2/audio".to_owned();
    assert_eq!(outputs[0].source, DraftSource::Url { url, with_key: true });
    assert_eq!(report.usage, booked("req-2", "13", UsageSource::Reported));
    assert_eq!(
        report.vendor_state,
        Some(json!({"history_item_id": "item-2", "record": "req-2", "charge_reported": true}))
    );
}

/// A job of the morning's text with more asked for.
fn job_with(media: Value, vendor: Value) -> Job {
    let body = with(media, vendor);
    Job::new(request(body.clone()), asked(body).unwrap().request)
}

fn spoken(id: &str, settings: Value) -> Value {
    let mut item = item(id, &format!("req-{id}"), 80);
    item["settings"] = settings;
    item
}

/// The item that a job adopts, if it adopts one.
async fn adopted(script: Script, job: Job, items: &[Value]) -> Option<String> {
    match find(script.expect(list_call(SINCE), page(items)), job.sent(90)).await {
        Finding::Found(StartAnswer::Finished { vendor_job_id, .. }) => vendor_job_id,
        Finding::Unsure { look_again: Some(_) } => None,
        finding => panic!("{finding:?}"),
    }
}

#[tokio::test]
async fn speech_of_other_settings_is_not_this_jobs() {
    let settings =
        |stability: f64| json!({"stability": stability, "use_speaker_boost": true, "style": 0, "speed": 1.0});
    let calm =
        || job_with(json!({}), json!({"voice_settings": {"stability": 0.9, "style": 0.0, "use_speaker_boost": null}}));
    let lively = spoken("lively", settings(0.2));
    assert_eq!(adopted(Script::new(), calm(), std::slice::from_ref(&lively)).await, None);
    // The vendor keeps fewer digits, or does not show them.
    let both = [lively.clone(), spoken("calm", settings(0.900_000_036))];
    assert_eq!(adopted(Script::new(), calm(), &both).await.as_deref(), Some("req-calm"));
    let unshown = [spoken("unshown", Value::Null)];
    assert_eq!(adopted(Script::new(), calm(), &unshown).await.as_deref(), Some("req-unshown"));
    // Each of two lost starts gets its own.
    let other = || job_with(json!({}), json!({"voice_settings": {"stability": 0.2}}));
    let script = Script::new().other_start(other(), 90);
    assert_eq!(adopted(script, calm(), &both).await.as_deref(), Some("req-calm"));
    let script = Script::new().other_start(calm(), 90);
    assert_eq!(adopted(script, other(), &both).await.as_deref(), Some("req-lively"));
    // Where the job leaves them open, nothing says which of two is its own.
    assert_eq!(adopted(Script::new(), job(), &both).await, None);
    let script = Script::new().other_start(calm(), 90);
    assert_eq!(adopted(script, job(), &both).await.as_deref(), Some("req-lively"));
}

#[tokio::test]
async fn speech_that_may_be_another_lost_starts_is_nobodys() {
    let seeded = |seed: u64| job_with(json!({"seed": seed}), json!({}));
    let one = [item("item-1", "req-1", 80)];
    let two = [item("item-2", "req-2", 70), item("item-1", "req-1", 80)];
    for items in [&one[..], &two] {
        for other in [seeded(2), job(), job_with(json!({}), json!({"previous_text": "Hush."}))] {
            assert_eq!(adopted(Script::new().other_start(other, 90), seeded(1), items).await, None);
        }
        // Of two requests that are the same either may have either.
        let script = Script::new().other_start(seeded(1), 90);
        assert_eq!(adopted(script, seeded(1), items).await.as_deref(), Some("req-1"));
    }
    // What the other job got is known to be its own.
    let script = Script::new().other_start(seeded(2), 90).taken("req-1");
    assert_eq!(adopted(script, seeded(1), &one).await, None);
    // Starts that cannot have made it are in nobody's way.
    let text = |text: &str| {
        let mut other = seeded(2);
        other.request.inputs[0].text = Some(text.to_owned());
        other
    };
    for (other, ago) in [
        (text("Good evening."), 90),
        (job_with(json!({"voice": "voiceB"}), json!({})), 90),
        (job_with(json!({}), json!({"model": "eleven_v3"})), 90),
        (job_with(json!({"seed": 2}), json!({"enable_logging": false})), 90),
        (seeded(2), 70),
        (seeded(2), 2 * 3600),
    ] {
        let script = Script::new().other_start(other, ago);
        assert_eq!(adopted(script, seeded(1), &one).await.as_deref(), Some("req-1"));
    }
    // A script that lies elsewhere may say the same, and surely does where it is the same artifact.
    let stored = |seed: u64, artifact: &str| {
        let mut job = seeded(seed);
        (job.request.inputs[0].text, job.request.inputs[0].artifact) = (None, Some(artifact.to_owned()));
        job
    };
    assert_eq!(adopted(Script::new().other_start(stored(1, "art_1"), 90), seeded(1), &one).await, None);
    let script = || Script::new().input(0, "text/plain", "Good morning.");
    assert_eq!(adopted(script().other_start(stored(1, "art_2"), 90), stored(1, "art_1"), &one).await, None);
    let same = script().other_start(stored(1, "art_1"), 90);
    assert_eq!(adopted(same, stored(1, "art_1"), &one).await.as_deref(), Some("req-1"));
    // However long it is looked for, it is there: never absent.
    let since = (now().timestamp() - 305).to_string();
    let script = Script::new().expect(list_call(&since), page(&one)).other_start(seeded(2), 300);
    assert!(matches!(find(script, seeded(1).sent(300)).await, Finding::Unsure { .. }));
}

#[tokio::test]
async fn what_is_not_in_the_history_is_unsure_for_five_minutes_then_absent() {
    for (ago, expected) in [
        (10, Finding::Unsure { look_again: Some(Duration::from_secs(50)) }),
        (90, Finding::Unsure { look_again: Some(Duration::from_secs(30)) }),
        (299, Finding::Unsure { look_again: Some(Duration::from_secs(30)) }),
        (300, Finding::Absent),
    ] {
        let since = (now().timestamp() - ago - 5).to_string();
        let script = Script::new().expect(list_call(&since), page(&[])).taken("x");
        assert_eq!(find(script, job().sent(ago)).await, expected, "{ago}");
    }
    // The only match belongs to another job.
    let script = Script::new().expect(list_call(SINCE), page(&[item("item-1", "req-1", 80)])).taken("item-1");
    assert!(matches!(find(script, job().sent(90)).await, Finding::Unsure { .. }));
    // The second page has it.
    let first = answer(200, json!({"history": [], "last_history_item_id": "z", "has_more": true}));
    let second = list_call(SINCE).query("start_after_history_item_id", "z");
    let script = Script::new().expect(list_call(SINCE), first).expect(second, page(&[item("item-1", "req-1", 80)]));
    assert!(matches!(find(script, job().sent(90)).await, Finding::Found(_)));
    // A list that does not end proves nothing.
    let since = (now().timestamp() - 305).to_string();
    let endless = answer(200, json!({"history": [], "has_more": true}));
    let script = Script::new().expect(list_call(&since), endless);
    assert!(matches!(find(script, job().sent(300)).await, Finding::Unsure { .. }));
    assert_eq!(find(Script::new(), job()).await, Finding::Unsure { look_again: None });
}

#[tokio::test]
async fn zero_retention_and_scoped_keys_cannot_be_searched() {
    let mut connector = eleven();
    connector.settings.insert("enable_logging".to_owned(), json!(false));
    let nothing = Script::new();
    let finding = ElevenLabs.find(&nothing.context(&connector), &job().sent(90).view()).await.unwrap();
    assert_eq!(finding, Finding::Unsupported);
    let failure = ElevenLabs.outputs(&nothing.context(&connector), &job().sent(90).view()).await.unwrap_err();
    assert_eq!((failure.kind, failure.retry), (FailureKind::NotFound, Retry::Never));
    let scoped = || answer(401, json!({"detail": {"status": "missing_permissions", "message": "history_read"}}));
    assert_eq!(find(Script::new().expect(list_call(SINCE), scoped()), job().sent(90)).await, Finding::Unsupported);
    let script = Script::new().expect(list_call(SINCE), scoped());
    let job = job().sent(90).known_as("req-1", Value::Null);
    let failure = ElevenLabs.outputs(&script.context(&eleven()), &job.view()).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::CapabilityMissing);
}

#[tokio::test]
async fn outputs_and_polls_read_the_history_again() {
    let connector = eleven();
    let one = Call::get("history_item", "/v1/history/item-1");
    // The charge was reported with the answer: it is not booked from the history too.
    let known = job().sent(90).known_as("req-1", json!({"history_item_id": "item-1", "charge_reported": true}));
    let script = Script::new().expect(one.clone(), answer(200, item("item-1", "req-1", 80)));
    let outputs = ElevenLabs.outputs(&script.context(&connector), &known.view()).await.unwrap();
    assert_eq!((outputs.drafts.len(), outputs.report.usage), (1, vec![]));
    // A person named the request, or the item itself, perhaps of another day.
    for id in ["req-1", "item-1"] {
        let named = job().sent(90).known_as(id, Value::Null);
        let script =
            Script::new().expect(list_call(SINCE), page(&[item("item-2", "req-2", 80), item("item-1", "req-1", 80)]));
        let polled = ElevenLabs.poll(&script.context(&connector), &named.view()).await.unwrap();
        let PollAnswer::Done { outputs: Some(drafts), report } = polled else { panic!() };
        let url = "/v1/history/item-1/audio".to_owned();
        assert_eq!(drafts[0].source, DraftSource::Url { url, with_key: true });
        assert_eq!(report.usage, booked(id, "13", UsageSource::Reported));
    }
    let named = job().sent(90).known_as("item-1", Value::Null);
    let script = Script::new()
        .expect(list_call(SINCE), page(&[]))
        .expect(one.clone(), answer(200, item("item-1", "req-1", 9000)));
    assert!(ElevenLabs.poll(&script.context(&connector), &named.view()).await.is_ok());
    script.done();
    for gone in
        [answer(404, json!({})), answer(400, json!({"detail": {"status": "history_item_not_found", "message": "x"}}))]
    {
        let script = Script::new().expect(list_call(SINCE), page(&[])).expect(one.clone(), gone);
        let failure = ElevenLabs.poll(&script.context(&connector), &named.view()).await.unwrap_err();
        assert_eq!((failure.kind, failure.retry), (FailureKind::NotFound, Retry::Never));
    }
    // An answer without any id: the text finds it, and the line that was reckoned then is corrected.
    let mut nameless = job().sent(90);
    nameless.vendor_state =
        json!({"history_item_id": null, "record": "job_1", "charge_reported": false, "characters": 13});
    let script = Script::new().expect(list_call(SINCE), page(&[item("item-1", "req-1", 80)]));
    let outputs = ElevenLabs.outputs(&script.context(&connector), &nameless.view()).await.unwrap();
    assert_eq!(outputs.report.usage, booked("job_1", "13", UsageSource::Reported));
    // R41: odd numbers are no charge, ids are text.
    let odd = r#"{"history_item_id":420000000000000001,"character_count_change_from":9,"character_count_change_to":1}"#;
    let script = Script::new().expect(one, raw(200, odd));
    let known = job().known_as("req-1", json!({"history_item_id": "item-1"}));
    let outputs = ElevenLabs.outputs(&script.context(&connector), &known.view()).await.unwrap();
    let url = "/v1/history/420000000000000001/audio".to_owned();
    assert_eq!(outputs.drafts[0].source, DraftSource::Url { url, with_key: true });
    assert_eq!(outputs.report.usage, vec![]);
}
