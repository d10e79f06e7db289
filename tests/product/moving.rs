//! From the embedded store to Redis and back, on the command line; and Redis over TLS.

use crate::support::{Server, Setup, Vendors, hello, until};
use reqwest::Method;
use serde_json::{Value, json};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// A redis-server of one test.
struct Redis {
    port: u16,
    child: Child,
    _folder: TempDir,
}

impl Redis {
    /// Starts one that writes every second; `more` are further arguments.
    async fn start(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut server = Command::new("redis-server");
        server.arg("--port").arg(port.to_string()).args(["--bind", "127.0.0.1", "--save", "", "--dir"]);
        server.arg(folder.path()).args(["--appendonly", "yes", "--loglevel", "warning"]).args(more);
        let child = server.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let child = child.expect("redis-server is installed (tests/run setup)");
        until("redis-server answers", async || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok().then_some(()))
            .await;
        Self { port, child, _folder: folder }
    }

    fn url(&self, rest: &str) -> String {
        format!("redis://127.0.0.1:{}{rest}", self.port)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Of each kind how many there were and their hash, as they came and as they were read back.
fn kinds(told: &Value) -> Vec<(String, u64, String)> {
    let row = |row: &Value| {
        assert_eq!((&row["from"], &row["from_sha256"]), (&row["to"], &row["to_sha256"]), "{row}");
        let text = |name: &str| row[name].as_str().unwrap().to_owned();
        (text("kind"), row["from"].as_u64().unwrap(), text("from_sha256"))
    };
    told["kinds"].as_array().unwrap().iter().map(row).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_moves_to_redis_and_back_with_all_it_holds() {
    let vendors = Vendors::start(Duration::from_millis(1_500)).await;
    let redis = Redis::start(&[]).await;
    let setup = Setup::new().all_connectors(&vendors);
    let mut server = setup.serve().await;
    let mut done = Vec::new();
    for vendor in vendors.names() {
        done.push(server.submit(hello(vendor, "one")).await);
    }
    for id in &done {
        server.job_in(id, &crate::support::RESTS).await;
    }
    let mut keyed = hello("flux", "keyed");
    keyed["output_path"] = json!("moved/hero.png");
    let submit = async |server: &Server| {
        let key = [("idempotency-key", "moving-1")];
        let (status, text) = server.send(Method::POST, "/v1/jobs", &key, Some(keyed.to_string())).await;
        assert!(status < 300, "{status} {text}");
        json_of(&text)["id"].as_str().unwrap().to_owned()
    };
    let held = submit(&server).await;
    server.job_in(&held, &["succeeded"]).await;
    server.post("/v1/connectors/elevenlabs/pause", json!({"reason": "the move"})).await;
    let queued = server.submit(hello("elevenlabs", "later")).await;
    let cancelled = server.submit(hello("elevenlabs", "never")).await;
    server.post(&format!("/v1/jobs/{cancelled}/cancel"), json!({})).await;
    server.job_in(&cancelled, &["cancelled"]).await;
    let (code, _, err) = setup.run(&["tokens", "create", "--role", "read"]).await;
    assert_eq!(code, 0, "{err}");
    let running = server.submit(hello("flux", "two")).await;
    server.job_in(&running, &["running"]).await;
    let before: Vec<_> = futures::future::join_all(done.iter().map(|id| server.events(id))).await;
    let shown = server.job(&done[0]).await;
    // Killed, so that leases are left behind.
    server.kill().await;
    let (starts, at) = (vendors.starts("flux"), setup.folder().display().to_string());
    let sqlite = format!("sqlite:{at}/longhaul.db");

    // Four shards, so that nothing lies where its neighbour does.
    let fleet = redis.url("?prefix=moved&shards=4");
    let (code, out, err) = setup.run(&["store", "copy", &sqlite, &fleet, "-o", "json"]).await;
    assert_eq!(code, 0, "{err}");
    let there = kinds(&json_of(&out));
    let count = |kind: &str| there.iter().find(|(name, ..)| name == kind).unwrap().1;
    assert_eq!(count("job"), u64::try_from(done.len()).unwrap() + 4);
    assert_eq!((count("key"), count("path"), count("token")), (1, 1, 1), "{there:?}");
    for kind in ["connector", "event", "exchange", "artifact", "usage"] {
        assert!(count(kind) > 0, "no {kind} was moved: {there:?}");
    }
    let (code, _, err) = setup.run(&["store", "copy", &sqlite, &fleet]).await;
    assert!(code == 1 && err.contains("not empty"), "{code} {err}");
    let (code, _, err) = setup.run(&["store", "copy", &redis.url("?prefix=nobody"), &fleet]).await;
    assert!(code == 1 && err.contains("there is no store"), "{code} {err}");

    let back = format!("sqlite:{at}/back.db");
    let (code, out, err) = setup.run(&["store", "copy", &fleet, &back, "-o", "json"]).await;
    assert_eq!(code, 0, "{err}");
    assert_eq!(kinds(&json_of(&out)), there, "what went round is what it was");

    let everysec = setup.env("LONGHAUL__STORE__URL", &fleet).env("LONGHAUL__STORE__DURABILITY", "everysec");
    let server = everysec.serve().await;
    let after: Vec<_> = futures::future::join_all(done.iter().map(|id| server.events(id))).await;
    assert_eq!(after, before);
    assert_eq!(server.job(&done[0]).await, shown);
    let ended = server.job_in(&running, &["succeeded"]).await;
    assert_eq!((&ended["attempt"], vendors.starts("flux")), (&json!(1), starts), "nothing was bought again");
    assert_eq!(submit(&server).await, held, "the key still tells its job");
    assert_eq!(server.job(&queued).await["state"], "queued", "its connector is still paused");
    server.post("/v1/connectors/elevenlabs/resume", json!({})).await;
    server.job_in(&queued, &["succeeded"]).await;
    assert_eq!(server.job(&cancelled).await["state"], "cancelled");
    let ready = server.get("/readyz").await;
    let store = ready["checks"].as_array().unwrap().iter().find(|check| check["name"] == "store").unwrap();
    assert!(store["message"].as_str().unwrap().contains("everysec"), "{ready}");
    // While somebody works on it nobody copies it.
    let (code, _, err) = everysec.run(&["store", "copy", &fleet, &format!("sqlite:{at}/third.db")]).await;
    assert!(code == 1 && err.contains("is using redis://") && err.contains("process"), "{code} {err}");
    let (_, out, err) = everysec.run(&["doctor", "--url", &server.url]).await;
    for said in ["prefix moved: 4 shards", "appendfsync everysec", "policy noeviction", "everysec: a server that dies"]
    {
        assert!(out.contains(said), "{said}: {out} {err}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_strict_store_on_a_server_that_writes_later_is_not_served() {
    let redis = Redis::start(&[]).await;
    let setup = Setup::new().env("LONGHAUL__STORE__URL", &redis.url(""));
    let (code, _, err) = setup.run(&["serve", "--listen", "127.0.0.1:0"]).await;
    assert!(code == 1 && err.contains("appendfsync always") && err.contains("everysec"), "{code} {err}");
    let (code, out, _) = setup.run(&["doctor"]).await;
    assert!(code == 1 && out.contains("FAIL") && out.contains("store durability"), "{code} {out}");
}

/// Makes an authority of its own and a certificate for 127.0.0.1 by it.
fn certify(folder: &Path) {
    let run = |args: &[&str]| {
        let done = Command::new("openssl").args(args).current_dir(folder).output().expect("openssl is installed");
        assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    };
    let new = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
    run(&[&new[..], &["-x509", "-days", "2", "-subj", "/CN=test authority", "-keyout", "ca.key", "-out", "ca.crt"]]
        .concat());
    run(&[&new[..], &["-subj", "/CN=redis", "-keyout", "server.key", "-out", "server.csr"]].concat());
    std::fs::write(folder.join("names"), "subjectAltName=IP:127.0.0.1,DNS:localhost\n").unwrap();
    let sign =
        ["x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2"];
    run(&[&sign[..], &["-extfile", "names", "-out", "server.crt"]].concat());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_behind_tls_is_one_whose_certificate_is_trusted() {
    let folder = tempfile::tempdir().unwrap();
    certify(folder.path());
    let file = |name: &str| folder.path().join(name).display().to_string();
    let tls = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (port, ca) = (tls.to_string(), file("ca.crt"));
    let args = ["--tls-port", &port, "--tls-cert-file", &file("server.crt"), "--tls-key-file", &file("server.key")];
    let more = ["--tls-ca-cert-file", &ca, "--tls-auth-clients", "no", "--requirepass", "sandbox-secret"];
    let _redis = Redis::start(&[&args[..], &more].concat()).await;
    let url = format!("rediss://:sandbox-secret@127.0.0.1:{tls}");
    let of = |setup: Setup| setup.env("LONGHAUL__STORE__URL", &url).env("LONGHAUL__STORE__DURABILITY", "everysec");

    let trusting = of(Setup::new().env("SSL_CERT_FILE", &ca));
    let (code, out, err) = trusting.run(&["tokens", "create", "--role", "read", "-o", "json"]).await;
    assert_eq!(code, 0, "{err}");
    let made = json_of(&out)["id"].as_str().unwrap().to_owned();
    let (code, out, err) = trusting.run(&["tokens", "list"]).await;
    assert!(code == 0 && out.contains(&made), "{out} {err}");
    let mut server = trusting.serve().await;
    assert_eq!(server.get("/readyz").await["status"], "ready");
    assert_eq!(server.stop().await, Some(0));

    let (code, _, err) = of(Setup::new()).run(&["tokens", "list"]).await;
    assert!(code != 0 && err.to_lowercase().contains("certificate"), "{code} {err}");
    assert!(!err.contains("sandbox-secret"), "{err}");
}
