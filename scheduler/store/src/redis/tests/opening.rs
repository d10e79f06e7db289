//! What a server must be like, and who is let in.

use super::server::{cli, shared, start};
use crate::clock::SystemClock;
use crate::conformance::{job, submission};
use crate::{
    Access, Durability, Finding, OpenOptions, RedisOptions, RedisStore, Store, StoreError, StoreResult, examine, open,
};
use std::sync::Arc;

fn clock() -> Arc<SystemClock> {
    Arc::new(SystemClock::default())
}

fn fresh() -> String {
    format!("t{:016x}", rand::random::<u64>())
}

async fn opened(url: &str, durability: Durability, access: Access) -> StoreResult<RedisStore> {
    RedisStore::open(url, RedisOptions { durability, access, ..RedisOptions::default() }, clock()).await
}

async fn refused(url: &str, durability: Durability) -> String {
    let opened = opened(url, durability, Access::Serve).await;
    let error = opened.err().unwrap_or_else(|| panic!("{url} opens"));
    assert!(matches!(error, StoreError::Refused(_)), "{error:?}");
    error.to_string()
}

fn all(findings: &[Finding]) -> String {
    let told = |finding: &Finding| match &finding.outcome {
        Ok(said) => format!("{}{}: {said}\n", if finding.warning { "warn " } else { "" }, finding.about),
        Err(said) => format!("FAIL {}: {said}\n", finding.about),
    };
    findings.iter().map(told).collect()
}

#[tokio::test]
async fn a_server_that_forgets_is_refused_unless_that_is_meant() {
    let port = start(&["--appendonly", "no"]);
    let url = format!("redis://127.0.0.1:{port}");
    let why = refused(&url, Durability::Everysec).await;
    assert!(why.contains("CONFIG SET appendonly yes") && why.contains("volatile=allowed"), "{why}");
    let meant = format!("{url}?volatile=allowed");
    assert!(refused(&meant, Durability::Strict).await.contains("durability = \"everysec\""));
    opened(&meant, Durability::Everysec, Access::Serve).await.unwrap();
    let told = all(&examine(&meant, Durability::Everysec, clock()).await);
    assert!(
        told.contains("appendonly no: all since its last snapshot") && told.contains("warn store durability"),
        "{told}"
    );
    // Looking founds nothing.
    let told = all(&examine(&format!("{url}?prefix=other"), Durability::Strict, clock()).await);
    assert!(told.contains("will be founded") && told.contains("FAIL store durability"), "{told}");
    assert_eq!(cli(port, &["EXISTS", "other:meta"]), "0");
}

#[tokio::test]
async fn a_server_that_throws_away_is_refused() {
    let port = start(&["--appendonly", "yes", "--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"]);
    let url = format!("redis://127.0.0.1:{port}");
    let why = refused(&url, Durability::Everysec).await;
    assert!(why.contains("maxmemory-policy allkeys-lru") && why.contains("noeviction"), "{why}");
    let told = all(&examine(&url, Durability::Everysec, clock()).await);
    assert!(told.contains("of 64 MiB used, policy allkeys-lru"), "{told}");
    cli(port, &["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    opened(&url, Durability::Everysec, Access::Serve).await.unwrap();
}

#[tokio::test]
async fn strict_wants_a_server_that_writes_before_it_answers() {
    let url = format!("{}?prefix={}", shared(), fresh());
    let why = refused(&url, Durability::Strict).await;
    for way in ["appendfsync is everysec", "appendfsync always", "replica", "durability = \"everysec\""] {
        assert!(why.contains(way), "{why}");
    }
    let port = start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let store = opened(&format!("redis://127.0.0.1:{port}"), Durability::Strict, Access::Serve).await.unwrap();
    assert_eq!(store.durability(), Durability::Strict);
    store.submit(vec![submission(job("job_1", "flux"))]).await.unwrap();
    assert!(store.get("job_1").await.unwrap().is_some());
}

#[tokio::test]
async fn a_user_may_have_our_keys_only() {
    let port = start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let rules = ["~lh*", "&lh*", "+@all", "-@admin", "-@dangerous", "+info"];
    let user = |name: &str, more: &[&str]| {
        let rules = [&["ACL", "SETUSER", name, "on", ">sandbox-secret"][..], &rules[..], more].concat();
        assert_eq!(cli(port, &rules), "OK");
    };
    user("fleet", &["+config|get"]);
    let url = format!("redis://fleet:sandbox-secret@127.0.0.1:{port}");
    let store = opened(&url, Durability::Strict, Access::Serve).await.unwrap();
    store.submit(vec![submission(job("job_1", "flux"))]).await.unwrap();
    let claim = store.claim("w1", 1, std::time::Duration::from_secs(15)).await.unwrap();
    assert_eq!(claim.jobs.len(), 1);
    assert!(store.dump(None, 10).await.unwrap().0.len() > 2);
    store.close().await;

    let elsewhere = refused(&format!("{url}?prefix=mine"), Durability::Strict).await;
    assert!(elsewhere.contains("may use these keys") && !elsewhere.contains("sandbox-secret"), "{elsewhere}");
    let wrong = refused(&format!("redis://fleet:sandbox-wrong@127.0.0.1:{port}"), Durability::Strict).await;
    assert!(wrong.contains("a user and a password") && !wrong.contains("sandbox-wrong"), "{wrong}");

    user("blind", &[]);
    let url = format!("redis://blind:sandbox-secret@127.0.0.1:{port}");
    let why = refused(&url, Durability::Strict).await;
    assert!(why.contains("CONFIG GET appendfsync") && why.contains("unchecked=allowed"), "{why}");
    opened(&format!("{url}?unchecked=allowed"), Durability::Strict, Access::Serve).await.unwrap();
}

#[tokio::test]
async fn a_store_in_use_is_not_copied() {
    let url = format!("{}?prefix={}", shared(), fresh());
    let options =
        RedisOptions { durability: Durability::Everysec, name: "scheduler".into(), ..RedisOptions::default() };
    let store = RedisStore::open(&url, options, clock()).await.unwrap();
    for access in [Access::CopyFrom, Access::CopyInto] {
        let error = opened(&url, Durability::Everysec, access).await.unwrap_err();
        assert!(matches!(&error, StoreError::InUse(who) if who.contains("scheduler, process")), "{error}");
    }
    // Beside whoever uses it is where tokens are made.
    opened(&url, Durability::Strict, Access::Beside).await.unwrap();
    store.close().await;
    opened(&url, Durability::Everysec, Access::CopyFrom).await.unwrap();
    let nowhere = format!("{}?prefix={}", shared(), fresh());
    let error = opened(&nowhere, Durability::Everysec, Access::CopyFrom).await.unwrap_err();
    assert!(error.to_string().contains("there is no store"), "{error}");
}

#[tokio::test]
async fn half_a_copy_opens_for_nobody() {
    let prefix = fresh();
    let url = format!("{}?prefix={prefix}", shared());
    let store = opened(&url, Durability::Everysec, Access::CopyInto).await.unwrap();
    store.load(Vec::new()).await.unwrap();
    for access in [Access::Serve, Access::Beside, Access::CopyFrom, Access::CopyInto] {
        let error = opened(&url, Durability::Everysec, access).await.unwrap_err();
        assert!(error.to_string().contains("holds a part only"), "{error}");
    }
    assert!(all(&examine(&url, Durability::Everysec, clock()).await).contains("FAIL store: "));
    store.load(vec![crate::Record::End { position: 0 }]).await.unwrap();
    opened(&url, Durability::Everysec, Access::Serve).await.unwrap();
}

#[tokio::test]
async fn a_copy_goes_nowhere_where_others_keys_are() {
    let port: u16 = shared().rsplit_once(':').unwrap().1.parse().unwrap();
    let prefix = fresh();
    cli(port, &["SET", &format!("{prefix}:cache"), "theirs"]);
    let url = format!("{}?prefix={prefix}", shared());
    let error = opened(&url, Durability::Everysec, Access::CopyInto).await.unwrap_err();
    assert!(error.to_string().contains("not empty") && error.to_string().contains(":cache"), "{error}");
    assert_eq!(cli(port, &["EXISTS", &format!("{prefix}:meta")]), "0", "it founded nothing");
}

#[tokio::test]
async fn urls_name_their_engine() {
    for (url, wanted) in [
        ("postgres://user:sandbox-secret@db/longhaul", "sqlite:PATH"),
        ("redis:", "redis-cluster://"),
        ("sqlite:", "name a file"),
        ("redis://127.0.0.1?shard=2", "no such parameter"),
        ("redis://127.0.0.1?volatile=yes", "write allowed"),
        ("redis://127.0.0.1?shards=0", "from 1 to 64"),
        ("redis+sentinel://127.0.0.1", "names no primary"),
    ] {
        let error = open(url, OpenOptions::default(), clock()).await.err().unwrap();
        let said = error.to_string();
        assert!(matches!(error, StoreError::Refused(_)) && said.contains(wanted), "{url}: {said}");
        assert!(!said.contains("sandbox-secret"), "{said}");
    }
}
