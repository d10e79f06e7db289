//! Many jobs in one call.

use crate::support::{World, painting};
use axum::body::{Body, Bytes};
use axum::http::Request;
use longhaul_store::{JobFilter, Store};
use serde_json::Value;

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn results_come_in_order_and_one_bad_line_stops_no_other() {
    let world = World::open();
    let good = painting().to_string();
    let named = |name: &str| good.replace("one blue cup", name);
    let body = [
        named("first"),
        "{\"connector\":\"flux\",\"task\":\"image\",\"task\":\"image\"}".to_owned(),
        String::new(),
        named("third"),
        "not json".to_owned(),
        named("fifth").replace("512", "9999"),
        named("sixth"),
    ]
    .join("\r\n");
    let reply = world.post_text("/v1/jobs/batch", &body).await;
    assert_eq!((reply.status.as_u16(), reply.header("content-type")), (200, "application/x-ndjson"));
    let results = lines(&reply.text());
    let kinds: Vec<&str> = results
        .iter()
        .map(
            |line| {
                if line.get("job").is_some() { "job" } else { line["error"]["problems"][0]["path"].as_str().unwrap() }
            },
        )
        .collect();
    assert_eq!(kinds, ["job", "task", "job", "", "media.width", "job"]);
    for (line, name) in [(0, "first"), (2, "third"), (5, "sixth")] {
        let record = world.store.get(results[line]["job"]["id"].as_str().unwrap()).await.unwrap().unwrap();
        assert_eq!(record.body.request.instructions, name);
    }
    assert_eq!(world.store.list(&JobFilter::default(), None, 10).await.unwrap().0.len(), 3);
}

#[tokio::test]
async fn chunks_cut_anywhere_and_many_lines_keep_their_order() {
    let world = World::open();
    let good = painting().to_string();
    let body: String = (0..1_000).map(|n| good.replace("one blue cup", &format!("cup {n}")) + "\n").collect();
    let pieces: Vec<_> =
        body.as_bytes().chunks(777).map(|piece| Ok::<_, std::io::Error>(Bytes::copy_from_slice(piece))).collect();
    let request = Request::post("/v1/jobs/batch")
        .header("idempotency-key", "b")
        .body(Body::from_stream(futures::stream::iter(pieces)))
        .unwrap();
    let results = lines(&world.call(request).await.text());
    assert_eq!(results.len(), 1_000);
    let ids: Vec<String> = results.iter().map(|line| line["job"]["id"].as_str().unwrap().to_owned()).collect();
    for n in [0, 127, 128, 500, 999] {
        let record = world.store.get(&ids[n]).await.unwrap().unwrap();
        assert_eq!(record.body.request.instructions, format!("cup {n}"));
    }
    // The same batch under the same key is the same jobs.
    let again = world.post_as("/v1/jobs/batch", &[("idempotency-key", "b")], &body).await;
    let same: Vec<String> =
        lines(&again.text()).iter().map(|line| line["job"]["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(same, ids);
}

#[tokio::test]
async fn lines_beyond_the_cap_end_the_call_with_the_reason() {
    let world = World::with(|options| {
        options.require_token = false;
        options.max_body_bytes = 2_000;
    });
    let body = format!("{}\n{}\n{}", painting(), " ".repeat(100), "x".repeat(3_000));
    let results = lines(&world.post_text("/v1/jobs/batch", &body).await.text());
    assert!(results[0].get("job").is_some());
    assert_eq!(results[1]["error"]["code"], "too_large");
    assert_eq!(results.len(), 2);
}

#[tokio::test]
async fn a_broken_body_is_told_after_what_was_stored() {
    let world = World::open();
    let pieces = vec![Ok(Bytes::from(format!("{}\n{}", painting(), "{\"conn"))), Err(std::io::Error::other("cut"))];
    let request = Request::post("/v1/jobs/batch").body(Body::from_stream(futures::stream::iter(pieces))).unwrap();
    let results = lines(&world.call(request).await.text());
    assert_eq!(results.len(), 2);
    assert!(results[0].get("job").is_some());
    assert_eq!(results[1]["error"]["code"], "invalid_request");
    assert!(results[1]["error"]["message"].as_str().unwrap().contains("broke off"));
}
