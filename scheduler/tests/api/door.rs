//! Bytes at the door: caps, inline inputs, full disks.

use crate::support::{World, painting, storage};
use axum::body::{Body, Bytes};
use axum::http::Request;
use longhaul_store::{JobFilter, SqliteOptions, Store};
use ring_digest::sha256_hex;
use serde_json::{Value, json};

mod ring_digest {
    /// Hex SHA-256 by another road than the product's.
    pub(super) fn sha256_hex(bytes: &[u8]) -> String {
        ring::digest::digest(&ring::digest::SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Bytes without a pattern, the same every time.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

fn with_picture(picture: &[u8]) -> Value {
    use base64::Engine;
    let data = base64::engine::general_purpose::STANDARD.encode(picture);
    let mut body = painting();
    body["inputs"] = json!([{"role": "reference", "url": format!("data:image/png;base64,{data}")}]);
    body
}

/// <https://github.com/anurag3407/career-pilot/issues/4380>
#[tokio::test]
async fn pictures_go_to_storage_and_rows_hold_references() {
    let world = World::open();
    let picture = noise(5 << 20);
    let before = database_bytes(&world);
    let mut ids = Vec::new();
    for n in 0..3 {
        let mut body = with_picture(&picture);
        body["instructions"] = json!(format!("like this {n}"));
        let reply = world.post("/v1/jobs", &body).await;
        assert_eq!(reply.status, 201, "{}", reply.text());
        ids.push(reply.json()["id"].as_str().unwrap().to_owned());
    }
    assert!(database_bytes(&world) - before < 3 * 65_536, "{}", database_bytes(&world) - before);
    let record = world.store.get(&ids[0]).await.unwrap().unwrap();
    let input = &record.body.request.inputs[0];
    assert_eq!(input.url, None);
    let artifact = world.store.artifact(input.artifact.as_ref().unwrap()).await.unwrap().unwrap();
    assert_eq!((artifact.sha256.as_str(), artifact.bytes), (sha256_hex(&picture).as_str(), 5 << 20));
    assert_eq!(artifact.mime, "image/png");
    let kept = storage(world.dir.path()).head(&format!("{}/{}", artifact.tenant, artifact.path)).await.unwrap();
    assert_eq!(kept, 5 << 20);
    let list = world.get("/v1/jobs?limit=100").await.text();
    assert!(list.len() < 10_000 && !list.contains("base64"));
}

fn database_bytes(world: &World) -> u64 {
    let size = |name: &str| std::fs::metadata(world.dir.path().join(name)).map_or(0, |about| about.len());
    size("longhaul.db") + size("longhaul.db-wal")
}

#[tokio::test]
async fn a_dry_run_and_a_refused_request_store_no_bytes() {
    let world = World::open();
    let mut body = with_picture(&noise(100));
    assert_eq!(world.post("/v1/jobs?dry_run=true", &body).await.status, 200);
    body["media"]["width"] = json!(9_999);
    assert_eq!(world.post("/v1/jobs", &body).await.status, 422);
    assert!(!world.dir.path().join("artifacts/default").exists());
}

#[tokio::test]
async fn a_long_text_becomes_an_artifact_and_a_short_one_stays() {
    let world = World::open();
    let mut body = painting();
    body["inputs"] = json!([{"role": "script", "text": "x".repeat(300_000)}, {"role": "script", "text": "short"}]);
    let id = world.post("/v1/jobs", &body).await.json()["id"].as_str().unwrap().to_owned();
    let request = world.store.get(&id).await.unwrap().unwrap().body.request.clone();
    assert!(request.inputs[0].text.is_none() && request.inputs[0].artifact.is_some());
    assert_eq!(request.inputs[1].text.as_deref(), Some("short"));
}

#[tokio::test]
async fn what_is_too_large_is_told_the_cap() {
    let world = World::with(|options| {
        options.require_token = false;
        options.max_body_bytes = 10_000;
        options.max_artifact_bytes = 20_000;
    });
    let declared = Request::post("/v1/jobs").header("content-length", 300_000_000_u64).body(Body::from("{")).unwrap();
    let streamed = |path: &str, bytes: usize| {
        let pieces = (0..4).map(move |_| Ok::<_, std::io::Error>(Bytes::from(vec![b' '; bytes / 4])));
        Request::post(path).body(Body::from_stream(futures::stream::iter(pieces))).unwrap()
    };
    for (request, cap) in [
        (declared, "10000"),
        (streamed("/v1/jobs", 12_000), "10000"),
        (streamed("/v1/artifacts", 24_000), "20000"),
        (streamed("/v1/jobs/x/cancel", 12_000), "10000"),
    ] {
        let path = request.uri().path().to_owned();
        let reply = world.call(request).await;
        if path.ends_with("cancel") {
            assert_eq!(reply.status, 404, "the job is looked for first");
            continue;
        }
        assert_eq!(reply.error(), (413, "too_large".to_owned()), "{path}");
        assert!(reply.json()["error"]["message"].as_str().unwrap().contains(cap));
    }
    assert!(std::fs::read_dir(world.dir.path().join("artifacts/.staging")).unwrap().next().is_none());
    let id = world.job().await;
    let reply = world.call(streamed(&format!("/v1/jobs/{id}/cancel"), 12_000)).await;
    assert_eq!(reply.error(), (413, "too_large".to_owned()));
}

#[tokio::test]
async fn a_body_that_breaks_off_is_the_callers_fault() {
    let world = World::open();
    let pieces = vec![Ok(Bytes::from("{\"connector\"")), Err(std::io::Error::other("cut"))];
    let request = Request::post("/v1/jobs").body(Body::from_stream(futures::stream::iter(pieces))).unwrap();
    assert_eq!(world.call(request).await.error(), (422, "invalid_request".to_owned()));
}

#[tokio::test]
async fn a_full_store_answers_503_and_loses_nothing_it_acknowledged() {
    let sqlite = SqliteOptions { max_pages: Some(120), ..SqliteOptions::default() };
    let world = World::at(tempfile::tempdir().unwrap(), sqlite, |options| options.require_token = false);
    let mut accepted = Vec::new();
    let mut body = painting();
    body["instructions"] = json!("x".repeat(20_000));
    let refused = loop {
        let reply = world.post("/v1/jobs", &body).await;
        if reply.status != 201 {
            break reply;
        }
        accepted.push(reply.json()["id"].as_str().unwrap().to_owned());
        assert!(accepted.len() < 1_000, "the store never filled");
    };
    assert_eq!(refused.error(), (503, "store_full".to_owned()));
    assert_eq!(refused.header("retry-after"), "2");
    let (jobs, _) = world.store.list(&JobFilter::default(), None, 1_000).await.unwrap();
    let mut kept: Vec<String> = jobs.into_iter().map(|record| record.job.id).collect();
    kept.sort();
    accepted.sort();
    assert_eq!(kept, accepted);
}
