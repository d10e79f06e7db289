//! Tokens, roles and tenants.

use crate::support::{World, bearer, painting};
use axum::body::Body;
use axum::http::Request;
use longhaul_scheduler::tokens::{self, Role};
use longhaul_store::Store;
use serde_json::json;
use std::time::Duration;

/// Every call that changes or shows something, with the lowest role that may make it.
const CALLS: [(&str, &str, Role); 21] = [
    ("POST", "/v1/jobs", Role::Submit),
    ("POST", "/v1/jobs/batch", Role::Submit),
    ("POST", "/v1/artifacts", Role::Submit),
    ("GET", "/v1/jobs", Role::Read),
    ("GET", "/v1/jobs/{job}", Role::Read),
    ("GET", "/v1/jobs/{job}/wait?timeout_s=0", Role::Read),
    ("GET", "/v1/jobs/{job}/events", Role::Read),
    ("POST", "/v1/jobs/{job}/answer", Role::Operate),
    ("POST", "/v1/jobs/{job}/cancel", Role::Operate),
    ("POST", "/v1/jobs/{job}/replay", Role::Operate),
    ("POST", "/v1/jobs/{job}/resolve", Role::Operate),
    ("POST", "/v1/jobs/{job}/rerun", Role::Operate),
    ("GET", "/v1/artifacts/art_x", Role::Read),
    ("GET", "/v1/artifacts/art_x/content", Role::Read),
    ("GET", "/v1/usage", Role::Read),
    ("GET", "/v1/vendors", Role::Read),
    ("GET", "/v1/connectors", Role::Read),
    ("GET", "/v1/connectors/flux", Role::Read),
    ("POST", "/v1/connectors/flux/check", Role::Operate),
    ("POST", "/v1/connectors/flux/pause", Role::Operate),
    ("POST", "/v1/connectors/flux/resume", Role::Operate),
];

async fn call(world: &World, method: &str, path: &str, token: Option<&str>) -> crate::support::Reply {
    let mut request = Request::builder().method(method).uri(path);
    if let Some(token) = token {
        request = request.header("authorization", bearer(token));
    }
    world.call(request.body(Body::empty()).unwrap()).await
}

#[tokio::test]
async fn every_call_wants_a_token_of_the_right_role() {
    let world = World::with(|_| {});
    let admin = world.token(Role::Admin, None).await;
    let made = world.post_as("/v1/jobs", &[("authorization", &bearer(&admin))], &painting().to_string()).await;
    let job = made.json()["id"].as_str().unwrap().to_owned();
    for role in Role::ALL {
        let token = world.token(role, None).await;
        for (method, path, lowest) in CALLS {
            let path = path.replace("{job}", &job);
            let reply = call(&world, method, &path, Some(&token)).await;
            assert_eq!(reply.status == 403, role < lowest, "{role} {method} {path}: {}", reply.text());
            assert_ne!(reply.status, 401, "{role} {method} {path}");
        }
    }
    for (method, path, _) in CALLS {
        let path = path.replace("{job}", &job);
        let reply = call(&world, method, &path, None).await;
        assert_eq!(reply.error(), (401, "unauthenticated".to_owned()), "{method} {path}");
        assert!(reply.header("www-authenticate").starts_with("Bearer"));
    }
    assert_eq!(call(&world, "GET", "/v1/events", None).await.status, 401);
    for path in ["/healthz", "/readyz", "/metrics", "/openapi.json"] {
        assert_eq!(call(&world, "GET", path, None).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn what_is_no_token_of_ours_opens_nothing() {
    let world = World::with(|_| {});
    let token = world.token(Role::Admin, None).await;
    let changed = format!("{}0", &token[..token.len() - 1]);
    let changed = if changed == token { format!("{}1", &token[..token.len() - 1]) } else { changed };
    let basic = format!("Basic {token}");
    let longer = bearer(&format!("{token}0"));
    let unknown = bearer("lh_0_sandbox-secret");
    for header in ["", "Bearer", "Bearer ", "Bearer lh_", &basic, &bearer(&changed), &longer, &unknown] {
        let reply = world.get_as("/v1/jobs", &[("authorization", header)]).await;
        assert_eq!(reply.status, 401, "{header}");
    }
    assert_eq!(world.get_as("/v1/jobs", &[("authorization", &format!("bearer  {token}"))]).await.status, 200);
    // A wrong token is refused even where none is needed.
    let open = World::open();
    assert_eq!(open.get_as("/v1/jobs", &[("authorization", &unknown)]).await.status, 401);
}

#[tokio::test]
async fn only_a_hash_is_kept_and_a_revoked_token_soon_stops_working() {
    let world = World::with(|_| {});
    let made = tokens::create(&*world.store, Role::Read, Some("acme".to_owned()), None).await.unwrap();
    assert!(made.token.starts_with("lh_") && made.id.starts_with("tok_"));
    let rows = world.store.tokens().await.unwrap();
    let secret = made.token.rsplit('_').next().unwrap();
    assert!(secret.len() == 64 && !format!("{rows:?}").contains(secret));
    assert_eq!((rows[0].role.as_str(), rows[0].tenant.as_deref()), ("read", Some("acme")));
    let header = bearer(&made.token);
    let headers = [("authorization", header.as_str())];
    let list = || world.get_as("/v1/jobs", &headers);
    assert_eq!(list().await.status, 200);
    assert!(world.store.revoke_token(&made.id).await.unwrap());
    world.clock.advance(Duration::from_secs(1));
    assert_eq!(list().await.status, 401);
}

#[tokio::test]
async fn a_tenants_token_sees_and_makes_only_what_is_its_own() {
    let world = World::with(|_| {});
    let all = bearer(&world.token(Role::Admin, None).await);
    let acme = bearer(&world.token(Role::Admin, Some("acme")).await);
    let other = bearer(&world.token(Role::Admin, Some("other")).await);
    let make = |token: String, tenant: Option<&str>| {
        let mut body = painting();
        body["tenant"] = json!(tenant);
        let world = &world;
        async move { world.post_as("/v1/jobs", &[("authorization", &token)], &body.to_string()).await }
    };
    assert_eq!(make(acme.clone(), Some("other")).await.error(), (403, "forbidden".to_owned()));
    let job = make(acme.clone(), None).await.json();
    assert_eq!(job["tenant"], "acme");
    assert_eq!(make(all.clone(), None).await.json()["tenant"], "default");
    assert_eq!(make(all.clone(), Some("other")).await.json()["tenant"], "other");
    let id = job["id"].as_str().unwrap();
    for path in ["", "/wait?timeout_s=0", "/events"] {
        let path = format!("/v1/jobs/{id}{path}");
        assert_eq!(world.get_as(&path, &[("authorization", &acme)]).await.status, 200, "{path}");
        assert_eq!(world.get_as(&path, &[("authorization", &all)]).await.status, 200, "{path}");
        assert_eq!(world.get_as(&path, &[("authorization", &other)]).await.status, 404, "{path}");
    }
    let cancel = format!("/v1/jobs/{id}/cancel");
    assert_eq!(world.post_as(&cancel, &[("authorization", &other)], "").await.status, 404);
    let count = |token: String, query: &'static str| {
        let world = &world;
        async move {
            let list = world.get_as(&format!("/v1/jobs{query}"), &[("authorization", &token)]).await;
            (list.status.as_u16(), list.status.is_success().then(|| list.json()["jobs"].as_array().unwrap().len()))
        }
    };
    assert_eq!(count(all.clone(), "").await, (200, Some(3)));
    assert_eq!(count(all, "?tenant=acme").await, (200, Some(1)));
    assert_eq!(count(acme.clone(), "").await, (200, Some(1)));
    assert_eq!(count(acme.clone(), "?tenant=other").await.0, 403);
    assert_eq!(world.get_as("/v1/usage?tenant=other", &[("authorization", &acme)]).await.status, 403);
    // Connectors are shared: one tenant must not stop another's work.
    let pause = world.post_as("/v1/connectors/flux/pause", &[("authorization", &acme)], "").await;
    assert_eq!(pause.error(), (403, "forbidden".to_owned()));
}

#[tokio::test]
async fn a_web_page_cannot_use_a_listener_that_wants_no_token() {
    let world = World::open();
    let post = |headers: Vec<(&'static str, &'static str)>| {
        let world = &world;
        async move { world.post_as("/v1/jobs", &headers, &painting().to_string()).await.status.as_u16() }
    };
    assert_eq!(post(vec![("host", "127.0.0.1:7070"), ("origin", "https://evil.example")]).await, 403);
    assert_eq!(post(vec![("host", "127.0.0.1:7070"), ("origin", "null")]).await, 403);
    assert_eq!(post(vec![("host", "evil.example:7070")]).await, 403, "a name that was rebound to loopback");
    assert_eq!(post(vec![("host", "127.0.0.1:7070"), ("sec-fetch-site", "cross-site")]).await, 403);
    for host in ["127.0.0.1:7070", "localhost:7070", "[::1]:7070", "localhost"] {
        assert_eq!(post(vec![("host", host)]).await, 201, "{host}");
    }
    assert_eq!(post(vec![("host", "127.0.0.1:7070"), ("origin", "http://127.0.0.1:7070")]).await, 201);
}
