//! Media: what was asked against what came.

use crate::common::{artifacts, booked_once, decimal, error_is, exactly, one, usage};
use crate::support::{Server, Vendors};
use crate::waits;
use libtest_mimic::Trial;
use serde_json::{Value, json};

pub(crate) fn cases() -> Vec<Trial> {
    vec![
        waits("r36_a_shape_that_cannot_be_made_is_refused_before_it_costs", impossible),
        waits("r36_what_came_is_compared_and_kept", delivered),
        waits("r38_speech_that_stops_early_is_no_success", cut_speech),
    ]
}

async fn impossible() {
    let (vendors, server) = one("runway").await;
    let job = json!({
        "connector": "runway", "task": "video", "instructions": "well",
        "media": {"aspect": "1:1", "duration_ms": 5000}, "vendor": {"model": "veo3.1"},
    });
    for path in ["/v1/jobs?dry_run=true", "/v1/jobs"] {
        let (status, answer) = server.post(path, job.clone()).await;
        assert_eq!(status, 422, "{path}: {answer}");
        let problems = answer["error"]["problems"].as_array().expect("problems");
        let shape = problems.iter().find(|problem| problem["path"] == "media.aspect");
        let shape = shape.unwrap_or_else(|| panic!("{path}: the field is named: {answer}"));
        let allowed = shape["allowed"].to_string();
        assert!(allowed.contains("16:9") && allowed.contains("9:16"), "{path}: {shape}");
    }
    assert_eq!(server.get("/v1/jobs").await["jobs"], json!([]), "no job");
    assert!(vendors.books.requests(Some("runway")).is_empty(), "nothing was asked of the vendor");
}

async fn play(vendors: &Vendors, server: &Server, deliver: &str, width: u32, height: u32) -> Value {
    vendors
        .script(json!({"vendor": "runway", "wire": [
            {"step": "start", "status": 200, "body": {"id": "a1", "estimatedCost": {"credits": 25}}},
            {"step": "poll", "status": 200, "body": {"id": "a1", "status": "SUCCEEDED", "output": ["{cdn}/w.mp4"], "cost": {"credits": 25}}},
            {"step": "download", "file": deliver},
        ]}))
        .await;
    let job = json!({
        "connector": "runway", "task": "video", "instructions": "well",
        "media": {"width": width, "height": height, "duration_ms": 5000},
    });
    let id = server.submit(job).await;
    let job = server.job_in(&id, &["succeeded"]).await;
    booked_once(&job, "credits", "25");
    assert_eq!(artifacts(&job), 1);
    assert!(!server.bytes(&job["artifacts"][0]).await.is_empty(), "the bytes are kept");
    job["artifacts"][0].clone()
}

fn fields(artifact: &Value) -> Vec<&str> {
    let mismatches = artifact["spec_check"]["mismatches"].as_array().expect("mismatches");
    mismatches.iter().filter_map(|mismatch| mismatch["field"].as_str()).collect()
}

async fn delivered() {
    let (vendors, server) = one("runway").await;
    let shape = play(&vendors, &server, "mp4 5.0s 1280x720", 720, 1280).await;
    assert_eq!((&shape["spec_check"]["ok"], fields(&shape)), (&json!(false), vec!["width", "height"]), "{shape:#}");
    assert_eq!(shape["spec_check"]["mismatches"][0], json!({"field": "width", "asked": 720, "got": 1280}));

    let length = play(&vendors, &server, "mp4 3.0s 1280x720 with audio 3.008s", 1280, 720).await;
    assert_eq!((&length["spec_check"]["ok"], fields(&length)), (&json!(false), vec!["duration_ms"]), "{length:#}");
    let got = length["spec_check"]["mismatches"][0]["got"].as_u64().expect("a length");
    assert!((3000..=3030).contains(&got), "{got}");

    let rotated = play(&vendors, &server, "mp4 5.0s coded 1280x720 rotation 90", 720, 1280).await;
    assert_eq!((&rotated["spec_check"]["ok"], fields(&rotated)), (&json!(true), vec![]), "{rotated:#}");
    assert_eq!(rotated["spec"]["video"]["display_width"], 720, "{rotated:#}");
    assert_eq!(vendors.starts("runway"), 3);
}

async fn cut_speech() {
    let (vendors, server) = one("elevenlabs").await;
    // 1200 characters of plain prose.
    let sentence = "The ferry leaves at nine and the tide is kind to those who wait for it. ";
    let script: String = sentence.repeat(17).chars().take(1199).collect::<String>() + ".";
    assert_eq!(script.chars().count(), 1200);
    let variants = [
        ("cut", "wav 20.0s 24000 mono"),
        ("whole", "wav 81.0s 24000 mono"),
        ("silent", "wav 81.0s 24000 mono of silence"),
        ("cut_max", "wav 40.0s 24000 mono"),
    ];
    for (n, (name, audio)) in variants.into_iter().enumerate() {
        vendors
            .script(json!({"vendor": "elevenlabs", "wire": [
                {"step": "start", "status": 200, "file": audio, "headers": {"character-cost": "500", "request-id": format!("req-{n}")}},
            ]}))
            .await;
        let job = json!({
            "connector": "elevenlabs", "task": "speech", "inputs": [{"role": "script", "text": script}],
            "media": {"format": "wav", "sample_rate": 24000, "voice": "voiceA"},
        });
        let id = server.submit(job).await;
        let job = server.job_at_rest(&id).await;
        assert_eq!(artifacts(&job), 1, "{name}: what came is kept: {job:#}");
        let artifact = &job["artifacts"][0];
        assert!(!server.bytes(artifact).await.is_empty(), "{name}");
        booked_once(&job, "credits", "500");
        assert_eq!(vendors.requests("elevenlabs", "start").len(), n + 1, "{name}: one billed call");
        match name {
            "whole" => {
                assert_eq!(job["state"], "succeeded", "{job:#}");
                assert_eq!(
                    (&artifact["spec"]["duration_ms"], &artifact["spec_check"]["ok"]),
                    (&json!(81_000), &json!(true))
                );
            }
            "silent" => {
                assert_eq!(
                    (&artifact["spec_check"]["ok"], fields(artifact)),
                    (&json!(false), vec!["silence"]),
                    "{job:#}"
                );
            }
            _ => {
                assert_eq!(job["state"], "failed", "{name}: {job:#}");
                error_is(&job, "spec_mismatch");
                assert_eq!(job["error"]["code"], "output_truncated", "{name}: {job:#}");
            }
        }
    }
    let sums = server.get("/v1/usage?by=vendor,unit").await;
    assert_eq!(decimal(&sums["usage"][0]["quantity"]), exactly("2000"), "{sums}");
    let _ = usage;
}
