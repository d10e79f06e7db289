//! What the whole-product tests stand on: the stand-ins in this process, and the real binary beside it.
//!
//! Nothing here sleeps for a fixed time to let something happen: it waits for a condition, looked at again and again,
//! within a bound.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    dead_code,
    unreachable_pub,
    reason = "each test binary uses its part"
)]

pub mod cluster;
pub mod fleet;
pub mod redis;
mod server;
mod setup;
mod vendors;

pub use server::Server;
pub use setup::Setup;
pub use vendors::Vendors;

use longhaul_sandbox::{Books, Options, Request, Sandbox};
use reqwest::Method;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, Once};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpSocket};
use tokio::process::{Child, Command};

/// The binary under test.
pub const LONGHAUL: &str = env!("CARGO_BIN_EXE_longhaul");
/// A key that the stand-ins take; it must turn up in nothing that Longhaul writes.
pub const KEY: &str = "sandbox-CANARY-51f0c2";
/// How long anything may take before a test calls it stuck.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// States that a job leaves only when told to.
pub const RESTS: [&str; 5] = ["succeeded", "failed", "cancelled", "limit_exceeded", "parked"];

/// The wall clock, in milliseconds since 1970.
pub fn now_ms() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "the vendors' wall clock")]
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(0)
}

/// An HTTP client of the tests' own.
pub fn http() -> reqwest::Client {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
    #[expect(clippy::disallowed_methods, reason = "tests call loopback")]
    let builder = reqwest::Client::builder();
    builder.no_proxy().timeout(Duration::from_secs(90)).build().expect("a client")
}

/// Waits until a condition gives a value; panics with `what` after `PATIENCE`.
pub async fn until<T, F: Future<Output = Option<T>>>(what: &str, look: impl FnMut() -> F) -> T {
    within(PATIENCE, what, look).await
}

/// The same with another bound.
pub async fn within<T, F: Future<Output = Option<T>>>(bound: Duration, what: &str, mut look: impl FnMut() -> F) -> T {
    #[expect(clippy::disallowed_methods, reason = "a bound on waiting")]
    let began = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(began.elapsed() < bound, "not within {bound:?}: {what}");
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
}

/// A port that no other server of this process was told and nobody is given by the system: one that was only free a
/// moment ago may be another's by the time the server binds it.
pub async fn free_port() -> u16 {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    loop {
        let nth =
            NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed).wrapping_add(std::process::id().wrapping_mul(97));
        let port = u16::try_from(20_000 + nth % 12_000).expect("a port");
        if TcpListener::bind(("127.0.0.1", port)).await.is_ok() {
            return port;
        }
    }
}

/// A job for a vendor that its stand-in makes in one pace; `words` go into what is asked, for `sandbox:<scenario>`.
pub fn hello(vendor: &str, words: &str) -> Value {
    match vendor {
        "flux" => json!({
            "connector": "flux", "task": "image", "instructions": format!("a grey pebble on slate {words}"),
            "media": {"width": 512, "height": 512, "format": "png"},
        }),
        "runway" => json!({
            "connector": "runway", "task": "video", "instructions": format!("a kite over dunes {words}"),
            "media": {"aspect": "16:9", "duration_ms": 5000},
        }),
        "elevenlabs" => json!({
            "connector": "elevenlabs", "task": "speech",
            "inputs": [{"role": "script", "text": format!("Good morning. {words}")}],
            "media": {"voice": "voiceA", "format": "mp3"},
        }),
        "claude_managed_agents" => json!({
            "connector": "claude_managed_agents", "task": "agent.code",
            "instructions": format!("Make the retry test deterministic. {words}"),
        }),
        "a2a" => json!({
            "connector": "a2a", "task": "agent.research", "instructions": format!("How are tides predicted? {words}"),
        }),
        other => panic!("no hello job for {other}"),
    }
}

/// Where the request that carries an answer says it, and what it must say there, by the vendor's wire page.
pub fn answer_on_the_wire(vendor: &str, answer: &Value) -> (&'static str, Value) {
    match vendor {
        // `user.tool_confirmation`: `result` is "allow" or "deny".
        "claude_managed_agents" => {
            let approve = answer["approve"].as_bool().expect("a yes or a no");
            ("/events/0/result", json!(if approve { "allow" } else { "deny" }))
        }
        // `SendMessage` to the task: the person's words are a text part.
        "a2a" => ("/params/message/parts/0/text", answer["text"].clone()),
        other => panic!("no wire of an answer for {other}"),
    }
}
