//! ElevenLabs, by the routes of its wire page.

use std::time::Duration;

use crate::support::{Answer, Rig, START_MS};
use serde_json::{Value, json};

const KEY: (&str, &str) = ("xi-api-key", "sandbox-eleven");

async fn rig() -> Rig {
    Rig::paced(Duration::ZERO).await
}

async fn speak(rig: &Rig, voice: &str, query: &str, body: Value) -> Answer {
    rig.ask("POST", &format!("/elevenlabs/v1/text-to-speech/{voice}{query}"), &[KEY], body).await
}

async fn history(rig: &Rig, query: &str) -> Value {
    rig.get(&format!("/elevenlabs/v1/history{query}"), &[KEY]).await.json()
}

fn texts(page: &Value) -> Vec<&str> {
    page["history"].as_array().unwrap().iter().map(|item| item["text"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn speech_comes_in_the_answer_and_stands_in_the_history() {
    let rig = rig().await;
    let spoken = speak(
        &rig,
        "voiceA",
        "?output_format=mp3_44100_128",
        json!({"text": "Hello.", "model_id": "eleven_flash_v2_5"}),
    )
    .await;
    assert_eq!((spoken.status, spoken.header("content-type")), (200, Some("audio/mpeg")));
    assert_eq!(spoken.header("character-cost"), Some("3"));
    // MPEG-1 layer III, no CRC, 128 kbit/s at 44.1 kHz.
    assert_eq!(spoken.body[..3], [0xff, 0xfb, 0x90]);
    let page = history(&rig, "?page_size=10&source=TTS").await;
    let item = &page["history"][0];
    assert_eq!(
        (&item["text"], &item["voice_id"], &item["model_id"]),
        (&json!("Hello."), &json!("voiceA"), &json!("eleven_flash_v2_5"))
    );
    assert_eq!(item["request_id"].as_str(), spoken.header("request-id"));
    assert_eq!((&item["character_count_change_from"], &item["character_count_change_to"]), (&json!(0), &json!(3)));
    assert_eq!((&item["output_format"], &item["content_type"]), (&json!("mp3_44100_128"), &json!("audio/mpeg")));
    assert_eq!(item["date_unix"], START_MS / 1000);
    let id = item["history_item_id"].as_str().unwrap();
    let again = rig.get(&format!("/elevenlabs/v1/history/{id}/audio"), &[KEY]).await;
    assert_eq!((again.status, &again.body), (200, &spoken.body));
    let subscription = rig.get("/elevenlabs/v1/user/subscription", &[KEY]).await.json();
    assert_eq!((&subscription["character_count"], &subscription["status"]), (&json!(3), &json!("active")));
}

#[tokio::test]
async fn the_history_is_filtered_and_paged() {
    let rig = rig().await;
    for n in 0..5 {
        let voice = if n % 2 == 0 { "voiceA" } else { "voiceB" };
        speak(&rig, voice, "", json!({"text": format!("Line {n}")})).await;
        rig.advance(1000);
    }
    let at = START_MS / 1000;
    assert_eq!(texts(&history(&rig, "").await), ["Line 4", "Line 3", "Line 2", "Line 1", "Line 0"]);
    assert_eq!(texts(&history(&rig, "?sort_direction=asc&voice_id=voiceB").await), ["Line 1", "Line 3"]);
    assert_eq!(texts(&history(&rig, &format!("?date_after_unix={}", at + 3)).await), ["Line 4", "Line 3"], "inclusive");
    assert_eq!(texts(&history(&rig, &format!("?date_before_unix={}", at + 1)).await), ["Line 0"], "exclusive");
    assert_eq!(texts(&history(&rig, "?search=line%202&source=TTS").await), ["Line 2"]);
    assert!(texts(&history(&rig, "?source=STS").await).is_empty());
    let page = history(&rig, "?page_size=2").await;
    assert_eq!((texts(&page), &page["has_more"]), (vec!["Line 4", "Line 3"], &json!(true)));
    let next = format!("?page_size=3&start_after_history_item_id={}", page["last_history_item_id"].as_str().unwrap());
    let page = history(&rig, &next).await;
    assert_eq!((texts(&page), &page["has_more"]), (vec!["Line 2", "Line 1", "Line 0"], &json!(false)));
    assert_eq!(rig.get("/elevenlabs/v1/history?page_size=1001", &[KEY]).await.status, 422);
    assert_eq!(rig.get("/elevenlabs/v1/history?search=x", &[KEY]).await.status, 422);
}

#[tokio::test]
async fn zero_retention_leaves_no_history() {
    let rig = rig().await;
    assert_eq!(speak(&rig, "voiceA", "?enable_logging=false", json!({"text": "Secret."})).await.status, 200);
    assert!(texts(&history(&rig, "").await).is_empty());
}

#[tokio::test]
async fn every_format_begins_as_it_should() {
    let rig = rig().await;
    let text = json!({"text": "Fifteen letters"});
    let wav = speak(&rig, "voiceA", "?output_format=wav_24000", text.clone()).await;
    assert_eq!(
        (&wav.body[..4], wav.body.len()),
        (b"RIFF".as_slice(), 44 + 48_000),
        "a second at 15 characters a second"
    );
    let pcm = speak(&rig, "voiceA", "?output_format=pcm_16000", text.clone()).await;
    assert_eq!(pcm.body.len(), 32_000);
    let ulaw = speak(&rig, "voiceA", "?output_format=ulaw_8000", text.clone()).await;
    assert_eq!(ulaw.body.len(), 8000);
    let opus = speak(&rig, "voiceA", "?output_format=opus_48000_64", text).await;
    assert_eq!(&opus.body[..4], b"OggS");
}

#[tokio::test]
async fn refusals_have_the_vendors_codes() {
    let rig = rig().await;
    let code = |answer: Answer| {
        let detail = answer.json()["detail"].clone();
        assert_eq!(detail["status"], detail["code"]);
        (answer.status, detail["status"].as_str().unwrap().to_owned())
    };
    let hello = json!({"text": "Hello."});
    let bad =
        rig.ask("POST", "/elevenlabs/v1/text-to-speech/voiceA", &[("xi-api-key", "sk_real")], hello.clone()).await;
    assert_eq!(code(bad), (401, "invalid_api_key".to_owned()));
    assert_eq!(code(speak(&rig, "nosuchvoice", "", hello.clone()).await), (404, "voice_not_found".to_owned()));
    let cases = [
        ("quota", 401, "quota_exceeded"),
        ("moderated", 400, "content_against_policy"),
        ("rate_limited", 429, "too_many_concurrent_requests"),
        ("busy", 429, "system_busy"),
        ("unusual_activity", 401, "detected_unusual_activity"),
        ("server_error", 500, "internal_error"),
    ];
    for (scenario, status, word) in cases {
        let answer = speak(&rig, "voiceA", "", json!({"text": format!("sandbox:{scenario}")})).await;
        assert_eq!(code(answer), (status, word.to_owned()));
    }
    rig.books().set_cap("elevenlabs", 0);
    assert_eq!(code(speak(&rig, "voiceA", "", hello).await), (429, "too_many_concurrent_requests".to_owned()));
    assert!(rig.books().starts(None).is_empty());
}

#[tokio::test]
async fn a_lost_answer_is_found_in_the_history() {
    let rig = rig().await;
    rig.control(
        "PUT",
        "faults",
        json!({"vendor": "elevenlabs", "route": "start", "fault": "drop_after_read", "count": 1}),
    )
    .await;
    let body = json!({"text": "Good morning."}).to_string();
    let lost = rig.send("POST", "/elevenlabs/v1/text-to-speech/voiceA", &[KEY], body.as_bytes()).await;
    assert_eq!(lost.unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
    let page = history(&rig, &format!("?date_after_unix={}&voice_id=voiceA", START_MS / 1000 - 5)).await;
    assert_eq!(texts(&page), ["Good morning."]);
    let starts = rig.books().starts(Some("elevenlabs"));
    assert_eq!((starts.len(), starts[0].answered), (1, false));
}

#[tokio::test]
async fn a_model_list_serves_as_the_second_check() {
    let rig = rig().await;
    let models = rig.get("/elevenlabs/v1/models", &[KEY]).await.json();
    let flash = models.as_array().unwrap().iter().find(|model| model["model_id"] == "eleven_flash_v2_5").unwrap();
    assert_eq!(flash["maximum_text_length_per_request"], 40_000);
    assert_eq!(flash["model_rates"]["character_cost_multiplier"], 0.5);
}
