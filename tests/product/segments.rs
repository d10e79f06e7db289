//! A fleet's recorded exchanges, moved out of Redis into artifact storage.

use crate::support::redis::Redis;
use crate::support::{Setup, Vendors, hello, until};
use serde_json::Value;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exchanges_leave_redis_and_are_read_and_copied_as_before() {
    let (vendors, redis) = (Vendors::start(Duration::from_millis(300)).await, Redis::start().await);
    let setup = Setup::new().all_connectors(&vendors).env("LONGHAUL__STORE__URL", &redis.url());
    let setup = setup.env("LONGHAUL__STORE__SEGMENTS_EVERY_S", "1");
    let mut server = setup.serve().await;
    let mut before = Vec::new();
    for vendor in vendors.names() {
        let id = server.submit(hello(vendor, "one")).await;
        server.job_in(&id, &["succeeded"]).await;
        let history = server.events_with_exchanges(&id).await;
        assert!(history.iter().any(|event| event["raw"]["text"].is_string()), "{history:#?}");
        before.push((id, history));
    }
    // As if they had waited for minutes.
    for (id, _) in &before {
        redis.ask(&format!("ZADD lh{{0}}:xq XX 0 {id}")).await;
    }
    until("all texts have moved", async || {
        (server.metric("longhaul_exchange_memory_bytes", &[]).await == 0.0).then_some(())
    })
    .await;
    assert!(server.metric("longhaul_exchange_moved_bytes_total", &[]).await > 0.0);
    for (id, history) in &before {
        assert_eq!(&server.events_with_exchanges(id).await, history);
    }
    assert_eq!(server.stop().await, Some(0), "{}", server.log_text());

    let copy = async |name: &str| -> Value {
        let to = format!("sqlite:{}/{name}", setup.folder().display());
        let (code, out, err) = setup.run(&["store", "copy", &redis.url(), &to, "-o", "json"]).await;
        assert_eq!(code, 0, "{err}");
        assert_eq!(err.contains("lost their texts"), name == "poorer.db", "{err}");
        serde_json::from_str(&out).unwrap()
    };
    let whole = copy("whole.db").await;
    assert_eq!((&whole["same"], &whole["lost"]), (&true.into(), &0.into()));
    let folder = setup.folder().join("artifacts/_exchanges");
    std::fs::rename(&folder, setup.folder().join("elsewhere")).unwrap();
    let poorer = copy("poorer.db").await;
    let exchanges = whole["kinds"].as_array().unwrap().iter().find(|row| row["kind"] == "exchange").unwrap();
    assert_eq!((&poorer["same"], &poorer["lost"]), (&true.into(), &exchanges["from"]));
}
