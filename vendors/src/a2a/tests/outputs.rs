//! Artifacts in all their forms, and where they are looked for when there are none.

use super::*;
use crate::testing::answer;
use longhaul_registry::{ArtifactDraft, DraftSource};

async fn outputs_of(job: &Job, body: Value) -> Vec<ArtifactDraft> {
    let connector = vendor();
    let script = Script::new().expect(get_task(50), answer(200, result(body)));
    let outputs = A2a.outputs(&script.context(&connector), &job.view()).await.unwrap();
    script.done();
    outputs.drafts
}

fn completed(artifacts: Value) -> Value {
    let mut body = task(json!("TASK_STATE_COMPLETED"), Value::Null);
    body["artifacts"] = artifacts;
    body
}

fn text(role: &str, name: Option<&str>, text: &str) -> ArtifactDraft {
    let draft = ArtifactDraft::new(role, DraftSource::Text { text: text.to_owned() });
    ArtifactDraft { name: name.map(str::to_owned), ..draft }
}

fn named(role: &str, name: Option<&str>, mime: Option<&str>, source: DraftSource) -> ArtifactDraft {
    let draft = ArtifactDraft::new(role, source);
    ArtifactDraft { name: name.map(str::to_owned), declared_mime: mime.map(str::to_owned), ..draft }
}

fn url(url: &str, with_key: bool) -> DraftSource {
    DraftSource::Url { url: url.to_owned(), with_key }
}

fn base64(data: &str) -> DraftSource {
    DraftSource::Base64 { data: data.to_owned() }
}

/// The artifacts that the server of `a2a-sdk` 1.3.0 answered with, its host put in place.
fn taken() -> Value {
    json!([
        {"artifactId": "t", "name": "story", "parts": [{"text": "one "}, {"text": "two"}]},
        {"artifactId": "r", "parts": [{"raw": "AAFieXRlcw==", "filename": "b.bin", "mediaType": "application/octet-stream"}]},
        {"artifactId": "u", "parts": [{"url": "https://api.example/f.png", "mediaType": "image/png"}]},
        {"artifactId": "d", "parts": [{"data": {"n": 3.0, "d": 1.5}}]}
    ])
}

fn taken_drafts() -> Vec<ArtifactDraft> {
    vec![
        text("text", Some("story"), "one two"),
        named("file", Some("b.bin"), Some("application/octet-stream"), base64("AAFieXRlcw==")),
        named("file", None, Some("image/png"), url("https://api.example/f.png", true)),
        named(
            "file",
            Some("d.json"),
            Some("application/json"),
            DraftSource::Text { text: r#"{"d":1.5,"n":3.0}"#.to_owned() },
        ),
    ]
}

#[tokio::test]
async fn a_real_servers_artifacts() {
    assert_eq!(outputs_of(&running(), completed(taken())).await, taken_drafts());
    let script = Script::new().expect(get_task(0), answer(200, result(completed(taken()))));
    let answer_ = polled(&running(), &script).await.unwrap();
    let PollAnswer::Done { outputs: Some(outputs), .. } = answer_ else { panic!("{answer_:?}") };
    assert_eq!(outputs, taken_drafts(), "the poll that sees the end takes them along");
}

#[tokio::test]
async fn parts_in_the_older_form_and_in_none() {
    let artifacts = json!([{"artifactId": "a", "name": "", "parts": [
        {"kind": "text", "text": "words", "filename": "", "mediaType": ""},
        {"kind": "file", "file": {"bytes": "AAE", "mimeType": "image/png", "name": "p.png"}},
        {"kind": "file", "file": {"uri": "https://cdn.example/v.mp4?sig=1"}},
        {"file": {"fileWithUri": "https://cdn.example/w.mp4", "mimeType": "video/mp4", "name": "w.mp4"}},
        {"file": {"fileWithBytes": "_-8=", "name": "x"}},
        {"kind": "data", "data": {"id": 18446744073709551615u64}},
        {"hologram": true},
        7,
        {"url": "data:text/csv;base64,YSxi"}
    ]}]);
    let json_text = |text: &str| DraftSource::Text { text: text.to_owned() };
    assert_eq!(
        outputs_of(&running(), completed(artifacts)).await,
        [
            text("text", None, "words"),
            named("file", Some("p.png"), Some("image/png"), base64("AAE")),
            named("file", None, None, url("https://cdn.example/v.mp4?sig=1", false)),
            named("file", Some("w.mp4"), Some("video/mp4"), url("https://cdn.example/w.mp4", false)),
            named("file", Some("x"), None, base64("_-8=")),
            named("file", Some("a.json"), Some("application/json"), json_text(r#"{"id":18446744073709551615}"#)),
            named("file", Some("a.json"), Some("application/json"), json_text(r#"{"hologram":true}"#)),
            named("file", Some("a.json"), Some("application/json"), json_text("7")),
            named("file", None, Some("text/csv"), base64("YSxi")),
        ]
    );
}

#[tokio::test]
async fn texts_that_name_a_file_are_that_file() {
    let artifacts = json!([{"artifactId": "a", "parts": [
        {"text": "--- a\n", "filename": "fix.patch"},
        {"text": "aside"},
        {"text": "+++ b\n", "filename": "fix.patch"},
        {"text": "", "filename": "empty.txt"}
    ]}, {"artifactId": "b", "name": "change.diff", "parts": [{"text": "--- c", "mediaType": "text/x-diff"}]}]);
    assert_eq!(
        outputs_of(&running(), completed(artifacts)).await,
        [
            named("patch", Some("fix.patch"), None, DraftSource::Text { text: "--- a\n+++ b\n".to_owned() }),
            text("text", None, "aside"),
            named("patch", Some("change.diff"), Some("text/x-diff"), DraftSource::Text { text: "--- c".to_owned() }),
        ]
    );
}

#[tokio::test]
async fn without_artifacts_the_last_words_are_the_output() {
    let mut body = task(json!("TASK_STATE_COMPLETED"), said("m2", json!([{"text": "the answer"}])));
    body["artifacts"] = json!([{"artifactId": "e", "parts": []}, {"artifactId": "f", "parts": [{"text": "  "}]}]);
    assert_eq!(outputs_of(&running(), body.clone()).await, [text("text", None, "the answer")]);
    body["status"]["message"] = Value::Null;
    assert_eq!(outputs_of(&running(), body.clone()).await, []);
    body["history"] = json!([
        {"messageId": "m0", "role": "agent", "parts": [{"text": "first"}]},
        {"messageId": "m1", "role": "ROLE_AGENT", "parts": [{"text": "last"}]},
        {"messageId": "m2", "role": "ROLE_USER", "parts": [{"text": "thanks"}]},
        {"role": null}
    ]);
    assert_eq!(outputs_of(&running(), body.clone()).await, [text("text", None, "last")]);
    let script = Script::new().expect(get_task(0), answer(200, result(task(json!("completed"), Value::Null))));
    let answer_ = polled(&running(), &script).await.unwrap();
    assert!(matches!(answer_, PollAnswer::Done { outputs: None, .. }), "the history is asked for: {answer_:?}");
}

#[tokio::test]
async fn expected_deliverables_come_first_and_texts_are_found() {
    let mut body = hello();
    body["expect"] = json!(["pull_request", "report"]);
    body["inputs"] = json!([]);
    let job = job(body).known_as(TASK, kept());
    let said = said("m2", json!([{"text": "Done, see https://github.com/acme/demo/pull/7"}]));
    let mut answer = task(json!("TASK_STATE_COMPLETED"), said);
    answer["artifacts"] = json!([{"artifactId": "r", "parts": [{"raw": "AAE=", "filename": "b.bin"}]}]);
    let link = DraftSource::Link { url: "https://github.com/acme/demo/pull/7".to_owned() };
    assert_eq!(
        outputs_of(&job, answer).await,
        [
            ArtifactDraft::new("pull_request", link),
            text("report", None, "Done, see https://github.com/acme/demo/pull/7"),
            named("file", Some("b.bin"), None, base64("AAE=")),
        ]
    );
}
