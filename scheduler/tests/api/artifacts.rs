//! Uploads and downloads.

use crate::support::{Reply, World, bearer, painting, storage};
use axum::body::{Body, Bytes};
use axum::http::Request;
use longhaul_scheduler::tokens::Role;
use longhaul_store::{Artifact, Committed, Store, Transition};
use serde_json::{Value, json};

const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

async fn upload(world: &World, query: &str, mime: &str, body: &[u8]) -> Reply {
    let request = Request::post(format!("/v1/artifacts{query}")).header("content-type", mime);
    world.call(request.body(Body::from(body.to_vec())).unwrap()).await
}

#[tokio::test]
async fn an_upload_is_hashed_kept_and_given_back() {
    let world = World::open();
    let reply = upload(&world, "?name=a%20b.txt", "text/plain; charset=utf-8", b"abc").await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    let artifact = reply.json();
    assert_eq!(
        (&artifact["sha256"], &artifact["bytes"], &artifact["name"]),
        (&json!(ABC), &json!(3), &json!("a b.txt"))
    );
    assert_eq!((&artifact["job"], &artifact["role"], &artifact["spec"]), (&Value::Null, &json!("input"), &Value::Null));
    let id = artifact["id"].as_str().unwrap();
    assert_eq!(world.get(reply.header("location")).await.json(), artifact);
    assert_eq!(upload(&world, "?name=a%20b.txt", "text/plain; charset=utf-8", b"abc").await.json()["id"], id);
    let content = world.get(artifact["content"].as_str().unwrap()).await;
    assert_eq!((content.status.as_u16(), content.body.as_slice()), (200, &b"abc"[..]));
    assert_eq!(content.header("content-type"), "text/plain; charset=utf-8");
    assert_eq!(content.header("etag"), format!("\"{ABC}\""));
    assert_eq!((content.header("content-length"), content.header("accept-ranges")), ("3", "bytes"));
    assert_eq!(content.header("x-content-type-options"), "nosniff");
    let mut body = painting();
    body["inputs"] = json!([{"role": "reference", "artifact": id}]);
    assert_eq!(world.post("/v1/jobs", &body).await.status, 201);
    body["tenant"] = json!("other");
    assert_eq!(
        world.post("/v1/jobs", &body).await.problems(),
        [("inputs[0].artifact".to_owned(), "not_found".to_owned())]
    );
    assert!(std::fs::read_dir(world.dir.path().join("artifacts/.staging")).unwrap().next().is_none());
}

#[tokio::test]
async fn parts_and_conditions_follow_rfc_9110() {
    let world = World::open();
    let bytes: Vec<u8> = (0..1_000_u32).map(|n| (n % 251) as u8).collect();
    let reply = upload(&world, "", "video/mp4", &bytes).await.json();
    let path = reply["content"].as_str().unwrap().to_owned();
    let etag = format!("\"{}\"", reply["sha256"].as_str().unwrap());
    let part = world.get_as(&path, &[("range", "bytes=100-199")]).await;
    assert_eq!((part.status.as_u16(), part.header("content-range")), (206, "bytes 100-199/1000"));
    assert_eq!((part.header("content-length"), part.body.as_slice()), ("100", &bytes[100..200]));
    let tail = world.get_as(&path, &[("range", "bytes=-10")]).await;
    assert_eq!((tail.header("content-range"), tail.body.as_slice()), ("bytes 990-999/1000", &bytes[990..]));
    let past = world.get_as(&path, &[("range", "bytes=1000-")]).await;
    assert_eq!(past.error(), (416, "range_not_satisfiable".to_owned()));
    assert_eq!(past.header("content-range"), "bytes */1000");
    let fresh = world.get_as(&path, &[("range", "bytes=0-0"), ("if-range", &etag)]).await;
    assert_eq!(fresh.status, 206);
    let stale = world.get_as(&path, &[("range", "bytes=0-0"), ("if-range", "\"x\"")]).await;
    assert_eq!((stale.status.as_u16(), stale.body.len()), (200, 1_000));
    let known = world.get_as(&path, &[("if-none-match", &format!("\"x\", W/{etag}"))]).await;
    assert_eq!((known.status.as_u16(), known.body.len()), (304, 0));
    let head = world.call(Request::head(&path).body(Body::empty()).unwrap()).await;
    assert_eq!((head.status.as_u16(), head.header("content-length"), head.body.len()), (200, "1000", 0));
}

#[tokio::test]
async fn nothing_that_could_run_is_shown_inline() {
    let world = World::open();
    for (mime, how) in [
        ("text/html", "attachment"),
        ("image/svg+xml", "attachment"),
        ("application/xhtml+xml", "attachment"),
        ("application/octet-stream", "attachment"),
        ("text/xml", "attachment"),
        ("image/png", "inline"),
        ("audio/mpeg", "inline"),
    ] {
        let reply = upload(&world, "?name=%22r%C3%A9sum%C3%A9%22.x", mime, b"<script>").await.json();
        let content = world.get(reply["content"].as_str().unwrap()).await;
        let disposition = content.header("content-disposition").to_owned();
        assert!(disposition.starts_with(how), "{mime}: {disposition}");
        assert!(disposition.contains("filename=\"_r_sum__.x\""), "{disposition}");
        assert!(disposition.contains("filename*=UTF-8''%22r%C3%A9sum%C3%A9%22%2Ex"), "{disposition}");
        assert!(content.header("content-security-policy").contains("sandbox"));
    }
}

#[tokio::test]
async fn bad_uploads_are_refused() {
    let world = World::open();
    for (query, mime, path) in [
        ("?name=..%2Fx", "text/plain", "name"),
        ("?name=.x", "text/plain", "name"),
        ("?name=a%00b", "text/plain", "name"),
        ("?tenant=a%2Fb", "text/plain", "tenant"),
        ("?nam=x", "text/plain", "nam"),
        ("", "text", "Content-Type"),
    ] {
        assert_eq!(upload(&world, query, mime, b"abc").await.problems()[0].0, path, "{query} {mime}");
    }
    assert_eq!(upload(&world, "", "text/plain", b"").await.problems(), [(String::new(), "missing".to_owned())]);
    let pieces = vec![Ok(Bytes::from("abc")), Err(std::io::Error::other("cut"))];
    let request = Request::post("/v1/artifacts").body(Body::from_stream(futures::stream::iter(pieces))).unwrap();
    assert_eq!(world.call(request).await.status, 422);
    assert!(std::fs::read_dir(world.dir.path().join("artifacts/.staging")).unwrap().next().is_none());
}

#[tokio::test]
async fn another_tenants_artifact_is_not_there() {
    let world = World::with(|_| {});
    let acme = bearer(&world.token(Role::Submit, Some("acme")).await);
    let other = bearer(&world.token(Role::Admin, Some("other")).await);
    let reply = world.post_as("/v1/artifacts", &[("authorization", &acme)], "abc").await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    let path = reply.header("location").to_owned();
    for path in [path.clone(), format!("{path}/content")] {
        assert_eq!(world.get_as(&path, &[("authorization", &acme)]).await.status, 200, "{path}");
        assert_eq!(world.get_as(&path, &[("authorization", &other)]).await.status, 404, "{path}");
    }
    let reply = world.post_as("/v1/artifacts?tenant=other", &[("authorization", &acme)], "abc").await;
    assert_eq!(reply.status, 403);
}

#[tokio::test]
async fn outputs_links_and_lost_files_are_told_apart() {
    let world = World::open();
    let id = world.job().await;
    let artifact = |n: &str, source: Value| Artifact {
        id: format!("art_{n}"),
        job: Some(id.clone()),
        tenant: "default".to_owned(),
        role: "image".to_owned(),
        name: format!("{n}.png"),
        path: format!("jobs/{n}.png"),
        mime: "image/png".to_owned(),
        bytes: 3,
        sha256: ABC.to_owned(),
        spec: None,
        spec_check: Some(longhaul_registry::SpecCheck::default()),
        source,
    };
    let record = world.store.get(&id).await.unwrap().unwrap();
    let mut transition = Transition::to(record.job);
    transition.artifacts = vec![
        artifact("here", json!({"url_host": "cdn.example"})),
        artifact("lost", json!({})),
        artifact("link", json!({"link": "https://example.com/pr/1"})),
    ];
    let done = world.store.apply(&id, record.rev, transition).await.unwrap();
    assert!(matches!(done, Committed::Done(..)));
    storage(world.dir.path()).put_bytes("default/jobs/here.png", Bytes::from("abc")).await.unwrap();
    let job = world.get(&format!("/v1/jobs/{id}")).await.json();
    let shown = &job["artifacts"];
    assert_eq!(shown[0]["content"], "/v1/artifacts/art_here/content");
    assert_eq!(shown[0]["spec_check"], json!({"ok": true, "mismatches": []}));
    assert_eq!(shown[0]["source"]["url_host"], "cdn.example");
    assert_eq!(shown[2]["content"], Value::Null);
    assert_eq!(world.get("/v1/artifacts/art_here/content").await.body, b"abc");
    assert_eq!(world.get("/v1/artifacts/art_lost/content").await.error(), (404, "not_found".to_owned()));
    let link = world.get("/v1/artifacts/art_link/content").await;
    assert_eq!(link.error(), (404, "not_found".to_owned()));
    assert!(link.text().contains("source.link"));
}
