//! Recorded exchanges of a fleet's store, in artifact storage.

use crate::archive::{finish, prune};
use crate::services::{first_pass, pass};
use crate::support::{World, storage};
use longhaul_scheduler::services::{Retention, Segments, start};
use longhaul_store::clock::ManualClock;
use longhaul_store::{Durability, RedisOptions, RedisStore, Store};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(86_400);

/// A redis-server of one test.
struct Redis(u16, Child);

impl Redis {
    async fn start(folder: &Path) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut server = Command::new("redis-server");
        server.arg("--port").arg(port.to_string()).args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "yes"]);
        server.args(["--loglevel", "warning", "--dir"]).arg(folder).stdin(Stdio::null()).stdout(Stdio::null());
        let child = server.spawn().expect("redis-server is installed (tests/run setup)");
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            tokio::task::yield_now().await;
        }
        Self(port, child)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        drop(self.1.kill());
        drop(self.1.wait());
    }
}

async fn world(redis: &Redis, dir: tempfile::TempDir) -> World<RedisStore> {
    let clock = ManualClock::at(1_796_040_000_000);
    let options = RedisOptions {
        told_time: true,
        durability: Durability::Everysec,
        artifacts: Some(storage(dir.path())),
        ..RedisOptions::default()
    };
    let url = format!("redis://127.0.0.1:{}", redis.0);
    let store = RedisStore::open(&url, options, clock.clone()).await.unwrap();
    World::with_store(dir, clock, Arc::new(store), |options| options.require_token = false, &["flux"])
}

/// What this metric of the page says; `None` where it is absent.
async fn metric<S: Store>(world: &World<S>, name: &str) -> Option<u64> {
    let page = world.get("/metrics").await.text();
    page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

#[tokio::test]
async fn exchanges_move_away_and_are_read_archived_and_let_go_of_as_before() {
    let dir = tempfile::tempdir().unwrap();
    let redis = Redis::start(dir.path()).await;
    let world = world(&redis, dir).await;
    let id = world.job().await;
    finish(&world, &id).await;
    let events = format!("/v1/jobs/{id}/events?raw=true");
    let before = world.get(&events).await.json();
    assert_eq!(before["events"][2]["raw"]["text"], "GET /v1/get_result\n\n200\n\n{\"status\": \"Ready\"}");

    let metrics = world.api.metrics().clone();
    let service = start(Segments::new(world.store.clone(), Duration::from_secs(10), metrics.clone()), metrics);
    first_pass(&service).await;
    assert_eq!(metric(&world, "longhaul_exchange_moved_bytes_total").await, Some(0), "it came just now");
    let waited = metric(&world, "longhaul_exchange_memory_bytes").await.unwrap();
    assert!(waited > 0);
    world.clock.advance(Duration::from_secs(300));
    pass(&service).await;
    assert_eq!(metric(&world, "longhaul_exchange_moved_bytes_total").await, Some(waited));
    assert_eq!(metric(&world, "longhaul_exchange_memory_bytes").await, Some(0));
    assert_eq!(metric(&world, "longhaul_exchange_segments").await, Some(1));
    let segments = world.dir.path().join("artifacts/_exchanges");
    assert!(segments.is_dir());
    assert_eq!(world.get(&events).await.json(), before);

    world.clock.advance(2 * DAY);
    prune(&world, Retention { jobs_days: 1, ..Retention::default() }).await;
    assert!(world.store.get(&id).await.unwrap().is_none());
    service.stop().await;
    world.clock.advance(DAY + Duration::from_secs(1));
    let metrics = world.api.metrics().clone();
    let service = start(Segments::new(world.store.clone(), Duration::from_secs(10), metrics.clone()), metrics);
    first_pass(&service).await;
    assert_eq!(metric(&world, "longhaul_exchange_segments").await, Some(0));
    assert_eq!(metric(&world, "longhaul_exchange_segments_deleted_total{reason=\"let_go\"}").await, Some(1));
    assert_eq!(world.get(&events).await.json(), before, "the archive took the text along");
    service.stop().await;
}

#[tokio::test]
async fn a_store_in_a_file_moves_nothing() {
    let world = World::open();
    let metrics = world.api.metrics().clone();
    let service = start(Segments::new(world.store.clone(), Duration::from_secs(10), metrics.clone()), metrics);
    first_pass(&service).await;
    assert_eq!(metric(&world, "longhaul_exchange_memory_bytes").await, None);
    let page = world.get("/metrics").await.text();
    assert!(!page.contains("longhaul_service_errors_total{service=\"segments\"}"), "{page}");
    service.stop().await;
}
