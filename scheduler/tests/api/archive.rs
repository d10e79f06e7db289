//! Jobs that have left the store: written away, found again.

use crate::services::{ends, first_pass, pass};
use crate::support::{World, bearer, event, painting, storage};
use bytes::Bytes;
use longhaul_registry::{Step, Unit, UsageSource};
use longhaul_scheduler::archive::{Archive, folder};
use longhaul_scheduler::metrics::Metrics;
use longhaul_scheduler::services::{Prune, Retention, Running, start};
use longhaul_scheduler::tokens::Role;
use longhaul_store::{Artifact, Committed, JobState, RawExchange, Store, Transition, UsageBy, UsageLine, When};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

const MONTH: Duration = Duration::from_secs(30 * 86_400 + 1);

fn archive<S: Store>(world: &World<S>) -> Archive {
    Archive::new(storage(world.dir.path()))
}

fn service<S: Store>(world: &World<S>, retention: Retention) -> Running {
    let metrics = Metrics::new();
    start(Prune::new(world.store.clone(), archive(world), retention, metrics.clone()), metrics)
}

/// Makes passes until nothing old is left.
pub(crate) async fn prune<S: Store>(world: &World<S>, retention: Retention) {
    let service = service(world, retention);
    first_pass(&service).await;
    let now = world.store.now_ms().await.unwrap();
    let before = now - i64::from(retention.jobs_days) * 86_400_000;
    while !world.store.ended(before, 1).await.unwrap().is_empty() {
        pass(&service).await;
    }
    service.stop().await;
}

/// Ends a job with an artifact, an exchange and history.
pub(crate) async fn finish<S: Store>(world: &World<S>, id: &str) {
    let record = world.store.get(id).await.unwrap().unwrap();
    let artifact = Artifact {
        id: format!("art_{id}"),
        job: Some(id.to_owned()),
        tenant: record.job.tenant.clone(),
        role: "image".into(),
        name: "cup.png".into(),
        path: format!("{id}/cup.png"),
        mime: "image/png".into(),
        bytes: 3,
        sha256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad".into(),
        spec: None,
        spec_check: None,
        source: json!({"index": 0}),
    };
    let key = format!("{}/{}", artifact.tenant, artifact.path);
    storage(world.dir.path()).put_bytes(&key, Bytes::from_static(b"abc")).await.unwrap();
    let mut last = Transition::to(record.job);
    ends(&mut last.job);
    last.job.state = JobState::Succeeded;
    last.events = vec![event("artifact", json!({"id": artifact.id})), event("state", json!({"to": "succeeded"}))];
    last.artifacts = vec![artifact];
    last.raws = vec![RawExchange {
        step: Step::Poll,
        route: "get_result".into(),
        adapter: "flux 1".into(),
        fingerprint: "f".into(),
        text: "GET /v1/get_result\n\n200\n\n{\"status\": \"Ready\"}".into(),
    }];
    let done = world.store.apply(id, record.rev, last).await.unwrap();
    assert!(matches!(done, Committed::Done(..)), "{done:?}");
}

/// The files of the archive, sorted.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

fn root(world: &World) -> PathBuf {
    world.dir.path().join("artifacts/_archive")
}

/// Every line of every piece, as any zstd tool reads them.
fn lines(world: &World) -> Vec<Vec<Value>> {
    let pieces = files(&root(world)).into_iter().filter(|path| path.extension().is_some_and(|end| end == "zst"));
    let lines = |path: PathBuf| -> Vec<Value> {
        let text = zstd::stream::decode_all(std::fs::File::open(path).unwrap()).unwrap();
        String::from_utf8(text).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    pieces.map(lines).collect()
}

#[tokio::test]
async fn a_job_reads_the_same_from_the_archive() {
    let world = World::open();
    let keyed = [("idempotency-key", "T-12")];
    let body = painting().to_string();
    let id = world.post_as("/v1/jobs", &keyed, &body).await.json()["id"].as_str().unwrap().to_owned();
    finish(&world, &id).await;
    let path = format!("/v1/jobs/{id}");
    let mut before = world.get(&path).await.json();
    let events = world.get(&format!("{path}/events?raw=true")).await.json();
    let stream = world.get_as(&format!("{path}/events"), &[("accept", "text/event-stream")]).await.text();
    // Younger than an idempotency key, so that both can be met.
    world.clock.advance(Duration::from_secs(2 * 86_400));
    prune(&world, Retention { jobs_days: 1, ..Retention::default() }).await;
    assert!(world.store.get(&id).await.unwrap().is_none());

    before["archived"] = json!(true);
    let content = format!("/v1/artifacts/art_{id}/content?job={id}");
    before["artifacts"][0]["content"] = json!(content);
    assert_eq!(world.get(&path).await.json(), before);
    assert_eq!(world.get(&format!("{path}/wait?timeout_s=600")).await.json(), before);
    assert_eq!(world.get(&format!("{path}/events?raw=true")).await.json(), events);
    assert!(events["events"][2]["raw"]["text"].as_str().unwrap().contains("get_result"), "{events:#}");
    let page = world.get(&format!("{path}/events?cursor=1&limit=1")).await.json();
    assert_eq!((page["events"][0]["seq"].clone(), page["next_cursor"].clone()), (json!(2), json!("2")));
    let again = world.get_as(&format!("{path}/events"), &[("accept", "text/event-stream")]).await;
    assert_eq!((again.status.as_u16(), again.text()), (200, stream));
    let last = [("accept", "text/event-stream"), ("last-event-id", "3")];
    assert_eq!(world.get_as(&format!("{path}/events"), &last).await.status, 204);
    assert_eq!(world.get(&content).await.body, b"abc");
    assert_eq!(world.get(content.split('?').next().unwrap()).await.error(), (404, "not_found".to_owned()));
    let same = world.post_as("/v1/jobs", &keyed, &body).await;
    assert_eq!((same.status.as_u16(), same.json()), (200, before));
}

#[tokio::test]
async fn a_job_in_the_archive_can_be_rerun_and_nothing_else() {
    let world = World::open();
    let id = world.job().await;
    finish(&world, &id).await;
    world.clock.advance(MONTH);
    prune(&world, Retention::default()).await;
    let calls = [
        ("cancel", json!({})),
        ("answer", json!({"question_id": "q", "text": "yes"})),
        ("replay", json!({"from": "poll", "reason": "look again"})),
        ("resolve", json!({"outcome": "give_up"})),
    ];
    for (call, body) in calls {
        let reply = world.post(&format!("/v1/jobs/{id}/{call}"), &body).await;
        assert_eq!(reply.error(), (409, "job_archived".to_owned()), "{call}");
    }
    let reply = world.post(&format!("/v1/jobs/{id}/rerun"), &json!({"reason": "once more"})).await;
    assert_eq!((reply.status.as_u16(), &reply.json()["rerun_of"]), (201, &json!(id)));
}

#[tokio::test]
async fn the_archive_keeps_tenants_apart() {
    let world = World::with(|_| {});
    let (acme, other) = (world.token(Role::Submit, Some("acme")).await, world.token(Role::Read, Some("other")).await);
    let made = world.post_as("/v1/jobs", &[("authorization", &bearer(&acme))], &painting().to_string()).await;
    let id = made.json()["id"].as_str().unwrap().to_owned();
    finish(&world, &id).await;
    world.clock.advance(MONTH);
    prune(&world, Retention::default()).await;
    for path in [
        format!("/v1/jobs/{id}"),
        format!("/v1/jobs/{id}/events"),
        format!("/v1/artifacts/art_{id}?job={id}"),
        format!("/v1/artifacts/art_{id}/content?job={id}"),
    ] {
        assert_eq!(world.get_as(&path, &[("authorization", &bearer(&acme))]).await.status, 200, "{path}");
        let refused = world.get_as(&path, &[("authorization", &bearer(&other))]).await;
        assert_eq!(refused.error(), (404, "not_found".to_owned()), "{path}");
    }
    // An unknown job of the same day, and what is no id at all.
    let token = bearer(&acme);
    for unknown in [format!("{}0", &id[..id.len() - 1]), "job_1".to_owned(), "..%2f..%2fetc".to_owned()] {
        if unknown != id {
            let reply = world.get_as(&format!("/v1/jobs/{unknown}"), &[("authorization", &token)]).await;
            assert_eq!(reply.status, 404, "{unknown}");
        }
    }
}

#[tokio::test]
async fn pieces_are_bounded_and_hold_every_job_once() {
    let world = World::open();
    let batch = format!("{}\n", painting()).repeat(450);
    let reply = world.post_text("/v1/jobs/batch", &batch).await.text();
    let mut ids: Vec<String> = reply
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["job"]["id"].as_str().unwrap().to_owned())
        .collect();
    for id in &ids {
        world.change(id, ends, Vec::new()).await;
    }
    world.clock.advance(MONTH);
    prune(&world, Retention::default()).await;
    let pieces = lines(&world);
    assert!(pieces.len() >= 3 && pieces.iter().all(|piece| piece.len() <= 200), "{}", pieces.len());
    let mut found: Vec<String> =
        pieces.concat().iter().map(|line| line["job"]["id"].as_str().unwrap().to_owned()).collect();
    found.sort();
    ids.sort();
    assert_eq!(found, ids);
    let first = &pieces[0][0];
    assert_eq!(first["body"]["request"]["instructions"], "one blue cup");
    assert!(!first["events"].as_array().unwrap().is_empty() && first["usage"].is_array(), "{first}");
    for id in [&ids[0], &ids[199], &ids[200], &ids[449]] {
        let found = archive(&world).find(id).await.unwrap().unwrap();
        assert_eq!(found.job.id, **id);
    }
}

#[tokio::test]
async fn what_was_written_and_not_removed_is_written_again_and_the_last_counts() {
    let world = World::open();
    let mut ids = vec![world.job().await, world.job().await];
    ids.sort();
    for id in &ids {
        finish(&world, id).await;
    }
    // The process ended between writing and removing.
    let written = archive(&world).write(&*world.store, &ids).await.unwrap();
    assert_eq!((written.jobs, written.seen), (ids.clone(), 2));
    let before = files(&root(&world));
    assert_eq!(before.len(), 2);
    let again = archive(&world).write(&*world.store, &ids).await.unwrap();
    assert_eq!((again.jobs.len(), files(&root(&world))), (2, before.clone()), "the same piece, no other");
    // One is replayed meanwhile: it is in the archive and in the store, and the store's is the true one.
    let replays = |job: &mut longhaul_store::Job| {
        (job.state, job.step, job.due_at, job.finished_at) =
            (JobState::Running, Some(Step::Poll), Some(When::NOW), None);
    };
    world.change(&ids[0], replays, vec![event("operator", json!({"action": "replay"}))]).await;
    assert_eq!(world.get(&format!("/v1/jobs/{}", ids[0])).await.json()["state"], "running");
    assert_eq!(archive(&world).write(&*world.store, &ids[..1]).await.unwrap().jobs.len(), 0, "it lives");
    world.clock.advance(MONTH);
    prune(&world, Retention::default()).await;
    assert!(world.store.get(&ids[0]).await.unwrap().is_some() && world.store.get(&ids[1]).await.unwrap().is_none());
    world.change(&ids[0], ends, vec![event("state", json!({"to": "cancelled"}))]).await;
    world.clock.advance(MONTH);
    prune(&world, Retention::default()).await;
    let shown = world.get(&format!("/v1/jobs/{}", ids[0])).await.json();
    assert_eq!((&shown["state"], &shown["archived"]), (&json!("cancelled"), &json!(true)), "the copy written last");
    assert!(before.iter().all(|file| file.exists()), "nothing that was written is replaced by less");
}

#[tokio::test]
async fn a_job_stays_until_it_can_be_archived() {
    let world = World::open();
    let id = world.job().await;
    finish(&world, &id).await;
    world.clock.advance(MONTH);
    // A file stands where the archive's folder should be.
    std::fs::write(root(&world), b"in the way").unwrap();
    let metrics = Metrics::new();
    let prune = Prune::new(world.store.clone(), archive(&world), Retention::default(), world.api.metrics().clone());
    let service = start(prune, metrics);
    first_pass(&service).await;
    assert!(world.store.get(&id).await.unwrap().is_some());
    let page = world.get("/metrics").await.text();
    assert!(page.contains("longhaul_service_errors_total{service=\"prune\"} 1"), "{page}");
    std::fs::remove_file(root(&world)).unwrap();
    pass(&service).await;
    assert!(world.store.get(&id).await.unwrap().is_none());
    assert_eq!(world.get(&format!("/v1/jobs/{id}")).await.json()["archived"], true);
    service.stop().await;
}

#[tokio::test]
async fn without_export_a_job_is_gone() {
    let world = World::open();
    let id = world.job().await;
    finish(&world, &id).await;
    world.clock.advance(MONTH);
    prune(&world, Retention { export: false, ..Retention::default() }).await;
    assert_eq!(world.get(&format!("/v1/jobs/{id}")).await.error(), (404, "not_found".to_owned()));
    assert!(!root(&world).exists());
}

#[tokio::test]
async fn a_damaged_piece_says_so() {
    let world = World::open();
    let id = world.job().await;
    finish(&world, &id).await;
    world.clock.advance(MONTH);
    prune(&world, Retention::default()).await;
    let piece = files(&root(&world)).into_iter().find(|path| path.extension().is_some_and(|end| end == "zst")).unwrap();
    let length = usize::try_from(std::fs::metadata(&piece).unwrap().len()).unwrap();
    std::fs::write(&piece, vec![0; length]).unwrap();
    let reply = world.get(&format!("/v1/jobs/{id}")).await;
    assert_eq!(reply.error(), (500, "internal".to_owned()));
    assert!(reply.text().contains("backup") && reply.text().contains("_archive/"), "{}", reply.text());
}

#[tokio::test]
async fn the_ledger_is_kept_longer_than_its_jobs() {
    let world = World::open();
    let id = world.job().await;
    finish(&world, &id).await;
    let lines = async || world.store.usage(&[UsageBy::Unit], None, None, None).await.unwrap().len();
    let record = world.store.get(&id).await.unwrap().unwrap();
    let mut booked = Transition::to(record.job);
    booked.usage = vec![UsageLine {
        attempt: 1,
        record: "v".into(),
        unit: Unit::Credits,
        quantity: 4.into(),
        source: UsageSource::Reported,
        usd: None,
    }];
    world.store.apply(&id, record.rev, booked).await.unwrap();
    let service = service(&world, Retention { jobs_days: 30, usage_days: 400, export: true });
    first_pass(&service).await;
    world.clock.advance(MONTH);
    pass(&service).await;
    assert!(world.store.get(&id).await.unwrap().is_none());
    world.clock.advance(Duration::from_secs(369 * 86_400));
    pass(&service).await;
    assert_eq!(lines().await, 1);
    world.clock.advance(Duration::from_secs(2 * 86_400));
    pass(&service).await;
    assert_eq!(lines().await, 0);
    service.stop().await;
}

#[test]
fn a_job_stands_in_the_folder_of_its_day() {
    // RFC 9562, appendix A.6: a version 7 UUID of 2022-02-22T19:22:22Z.
    assert_eq!(folder("job_017f22e279b07cc398c4dc0c0c07398f"), "_archive/2022/02/22");
    // Appendix A.3 is of version 4: no time in it.
    assert_eq!(folder("job_919108f752d133205bacf847db4148a8"), "_archive/undated");
    assert_eq!(folder("job_1"), "_archive/undated");
}
