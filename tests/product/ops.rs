//! What an operator meets: places that are taken, full or broken, missing keys, tokens, and stopping.

use crate::support::{KEY, PATIENCE, Server, Setup, Vendors, hello, http, until};
use reqwest::Method;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// Starts `serve` where it must refuse to: what it says.
async fn refuses(setup: &Setup, listen: &str) -> String {
    let mut command = setup.command(&["serve", "--listen", listen]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let output = tokio::time::timeout(PATIENCE, child.wait_with_output()).await.expect("it ends").unwrap();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(!err.contains("panicked"), "{err}");
    err
}

fn config_with_store(setup: Setup, store: &Path) -> Setup {
    setup.env("LONGHAUL__STORE__URL", &format!("sqlite:{}", store.display()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_serve_on_the_same_database_or_port_refuses_and_the_first_goes_on() {
    let vendors = Vendors::start(Duration::from_millis(50)).await;
    let setup = Setup::new().connector(&vendors, "flux", "");
    let server = setup.serve().await;
    let said = refuses(&setup, "127.0.0.1:0").await;
    assert!(said.contains("longhaul.db") && said.contains("another process"), "{said}");

    // By another name of the same file, too.
    std::os::unix::fs::symlink(setup.folder().join("longhaul.db"), setup.folder().join("link.db")).unwrap();
    let linked = Setup::new();
    let linked = config_with_store(linked, &setup.folder().join("link.db"));
    let said = refuses(&linked, "127.0.0.1:0").await;
    assert!(said.contains("link.db") && said.contains("another process"), "{said}");

    let taken = server.url.trim_start_matches("http://").to_owned();
    let said = refuses(&Setup::new(), &taken).await;
    assert!(said.contains(&taken) && said.contains("--listen"), "{said}");
    let id = server.submit(hello("flux", "")).await;
    server.job_in(&id, &["succeeded"]).await;
}

#[tokio::test]
async fn a_database_that_is_damaged_foreign_or_in_no_folder_is_refused_untouched() {
    let setup = Setup::new();
    let garbage = setup.folder().join("garbage.db");
    std::fs::write(&garbage, "this was never a database\n".repeat(400)).unwrap();
    let setup = config_with_store(setup, &garbage);
    let said = refuses(&setup, "127.0.0.1:0").await;
    assert!(said.contains("garbage.db") && said.contains("backup"), "{said}");
    assert_eq!(std::fs::read(&garbage).unwrap(), "this was never a database\n".repeat(400).into_bytes());
    let (code, out, _) = setup.run(&["doctor", "-o", "json"]).await;
    let found: Value = serde_json::from_str(&out).unwrap();
    let store = found["checks"].as_array().unwrap().iter().find(|check| check["check"] == "store").unwrap();
    assert_eq!((code, &store["ok"]), (1, &json!(false)), "{found:#}");

    let setup = config_with_store(Setup::new(), Path::new("/nowhere/at/all/longhaul.db"));
    let said = refuses(&setup, "127.0.0.1:0").await;
    assert!(said.contains("/nowhere/at/all") && said.contains("[store] url"), "{said}");

    // Pages of a real database, overwritten in the middle.
    let setup = Setup::new();
    let mut server = setup.serve().await;
    assert_eq!(server.stop().await, Some(0));
    let file = setup.folder().join("longhaul.db");
    let mut bytes = std::fs::read(&file).unwrap();
    let page = usize::from(u16::from_be_bytes([bytes[16], bytes[17]]));
    bytes[page * 2..page * 4].fill(0x5a);
    std::fs::write(&file, &bytes).unwrap();
    let said = refuses(&setup, "127.0.0.1:0").await;
    assert!(said.contains("longhaul.db") && said.contains("backup"), "{said}");
    assert_eq!(std::fs::read(&file).unwrap(), bytes, "nothing was written into it");
}

/// Writes of the server beyond this many bytes of a file fail, as on a disk that is full.
fn room(server: &Server, bytes: &str) {
    let pid = server.pid().to_string();
    let status =
        std::process::Command::new("prlimit").args(["--pid", &pid, &format!("--fsize={bytes}:unlimited")]).status();
    assert!(status.expect("prlimit is there").success());
}

/// Whether the stand-in of flux would hand out the picture by now.
async fn vendor_is_done(vendors: &Vendors, id: &str) -> bool {
    let call = http().get(format!("http://{}/flux/v1/get_result?id={id}", vendors.at)).header("x-key", KEY);
    let told = call.send().await.unwrap().text().await.unwrap();
    let told: Value = serde_json::from_str(&told).unwrap();
    told["status"] == "Ready"
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_loses_nothing_and_work_goes_on_by_itself_when_there_is_room() {
    let vendors = Vendors::start(Duration::from_millis(1500)).await;
    // A write beyond the limit is answered with an error, not with a signal.
    let setup =
        Setup::new().connector(&vendors, "flux", "").wrapped(&["/bin/sh", "-c", "trap '' XFSZ; exec \"$@\"", "sh"]);
    let server = setup.serve().await;
    let mut under_way = Vec::new();
    for _ in 0..3 {
        under_way.push(server.submit(hello("flux", "")).await);
    }
    for id in &under_way {
        server.job_in(id, &["running"]).await;
    }
    room(&server, "4096");
    let (status, refused) = server.post("/v1/jobs", hello("flux", "too much")).await;
    assert_eq!((status, &refused["error"]["code"]), (503, &json!("store_full")), "{refused}");
    assert!(!refused["error"]["hint"].as_str().unwrap().is_empty(), "{refused}");
    let (status, ready) = server.call(Method::GET, "/readyz", None).await;
    let store = ready["checks"].as_array().unwrap().iter().find(|check| check["name"] == "store").unwrap();
    assert_eq!((status, &store["ok"]), (503, &json!(false)), "{ready}");
    assert!(store["message"].as_str().unwrap().contains("room"), "{ready}");
    assert_eq!(server.get("/v1/jobs").await["jobs"].as_array().unwrap().len(), 3, "it can still be looked at");
    // The vendor's work is done meanwhile, and cannot be taken in.
    for start in vendors.books.starts(Some("flux")) {
        let id = start.vendor_job_id.expect("an id");
        until("the vendor is done", async || vendor_is_done(&vendors, &id).await.then_some(())).await;
    }
    let tries = || server.log_text().matches("the store cannot write").count();
    let before = tries();
    until("it tried to go on", async || (tries() >= before + 5).then_some(())).await;

    room(&server, "unlimited");
    until("it is ready again", async || (server.call(Method::GET, "/readyz", None).await.0 == 200).then_some(())).await;
    for id in &under_way {
        let job = server.job_in(id, &["succeeded"]).await;
        assert_eq!((&job["attempt"], server.bytes(&job["artifacts"][0]).await.len() > 100), (&json!(1), true));
    }
    assert_eq!(vendors.starts("flux"), 3, "nothing was bought again, and nothing for the refused one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_artifact_folder_that_cannot_be_written_is_named_and_work_waits_for_it() {
    let vendors = Vendors::start(Duration::from_millis(50)).await;
    let setup = Setup::new().connector(&vendors, "flux", "");
    // Where the folder should be, there is a file: root is stopped by that too.
    let folder = setup.folder().join("artifacts");
    std::fs::write(&folder, "").unwrap();
    let said = refuses(&setup, "127.0.0.1:0").await;
    assert!(said.contains("artifacts") && said.contains("[artifacts] url"), "{said}");
    std::fs::remove_file(&folder).unwrap();

    let server = setup.serve().await;
    let away = setup.folder().join("away");
    std::fs::rename(&folder, &away).unwrap();
    std::fs::write(&folder, "").unwrap();
    let id = server.submit(hello("flux", "")).await;
    let told = until("the job says why it waits", async || {
        let job = server.job(&id).await;
        assert!(job["state"] != "failed" && job["state"] != "parked", "{job:#}");
        let events = server.events(&id).await;
        events.into_iter().find(|event| event.to_string().contains("storage_un"))
    })
    .await;
    assert!(told.to_string().contains("cannot be written"), "{told:#}");
    assert_eq!(server.job(&id).await["state"], "collecting");
    std::fs::remove_file(&folder).unwrap();
    std::fs::rename(&away, &folder).unwrap();
    let job = server.job_in(&id, &["succeeded"]).await;
    assert_eq!((&job["attempt"], vendors.starts("flux")), (&json!(1), 1));
    assert!(folder.join("default").read_dir().unwrap().count() > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_key_parks_the_connector_and_its_jobs_go_on_once_it_is_there() {
    let vendors = Vendors::start(Duration::from_millis(50)).await;
    let base = |vendor: &str| format!("base_url = \"http://{}/{vendor}\"\nallow_private_network = true\n", vendors.at);
    let setup = Setup::new();
    let later = setup.folder().join("later").display().to_string();
    let cdn = &vendors.cdn;
    let setup = setup
        .with(&format!(
            "[connectors.by_file]\nvendor = \"flux\"\ncredential = \"file:{later}\"\n{}private_hosts = [\"{cdn}\"]\n",
            base("flux")
        ))
        .with(&format!(
            "[connectors.by_env]\nvendor = \"flux\"\ncredential = \"env:FLUX_KEY_OF_TEST\"\n{}private_hosts = [\"{cdn}\"]\n",
            base("flux")
        ));
    let mut server = setup.serve().await;
    let submit = async |server: &Server, connector: &str| {
        let mut job = hello("flux", "");
        job["connector"] = json!(connector);
        server.submit(job).await
    };
    let (by_file, by_env) = (submit(&server, "by_file").await, submit(&server, "by_env").await);
    for (name, id, reference) in [("by_file", &by_file, later.as_str()), ("by_env", &by_env, "FLUX_KEY_OF_TEST")] {
        let connector = until("the connector is parked", async || {
            let connector = server.get(&format!("/v1/connectors/{name}")).await;
            (connector["state"] == "parked").then_some(connector)
        })
        .await;
        let reason = connector["reason"].as_str().unwrap();
        assert!(reason.contains(reference) && !reason.contains("refused"), "{connector:#}");
        // The connector is told of first, the job a moment later.
        let job = until("the job waits with the reason", async || {
            let job = server.job(id).await;
            (job["state"] == "queued" && job["error"]["code"] == "credential_missing").then_some(job)
        })
        .await;
        assert!(job["error"]["message"].as_str().unwrap().contains(reference), "{job:#}");
    }
    assert_eq!(vendors.starts("flux"), 0, "nothing was sent");

    // The file is put right: a check finds out, and the job goes on.
    let speaking = |server: &Server| vec!["--url".to_owned(), server.url.clone()];
    std::fs::write(&later, "sandbox-there-now\n").unwrap();
    let url = speaking(&server);
    let (code, _, err) = setup.run(&["connectors", "check", "by_file", &url[0], &url[1]]).await;
    assert_eq!(code, 0, "{err}");
    server.job_in(&by_file, &["succeeded"]).await;

    // The variable is set: a restart, and a check.
    assert_eq!(server.stop().await, Some(0));
    let setup = setup.env("FLUX_KEY_OF_TEST", "sandbox-in-the-environment");
    let server = setup.serve().await;
    let url = speaking(&server);
    let (code, _, err) = setup.run(&["connectors", "check", "by_env", &url[0], &url[1]]).await;
    assert_eq!(code, 0, "{err}");
    assert_eq!(server.job_in(&by_env, &["succeeded"]).await["attempt"], 1, "what was never sent is no attempt");
    assert_eq!(vendors.starts("flux"), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_under_load_it_hands_everything_back_and_the_next_start_goes_on_at_once() {
    let vendors = Vendors::start(Duration::from_secs(1)).await;
    // A lease left behind would hold its job back for longer than this test waits.
    let setup = Setup::new().connector(&vendors, "flux", "").env("LONGHAUL__WORKER__LEASE_S", "600");
    let mut server = setup.serve().await;
    let mut ids = Vec::new();
    for _ in 0..40 {
        ids.push(server.submit(hello("flux", "")).await);
    }
    until("some run", async || (vendors.starts("flux") >= 10).then_some(())).await;
    assert_eq!(server.stop().await, Some(0), "{}", server.log_text());
    assert!(server.log_text().contains("stopping"), "it says so");
    let server = setup.serve().await;
    for id in &ids {
        server.job_in(id, &["succeeded"]).await;
    }
    assert_eq!(vendors.starts("flux"), 40, "each was bought once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_ends_it_at_once() {
    let vendors = Vendors::start(Duration::from_millis(50)).await;
    let setup = Setup::new().connector(&vendors, "flux", "").env("LONGHAUL__WORKER__DRAIN_S", "300");
    let mut server = setup.serve().await;
    // A start that the vendor answers only after minutes keeps the worker waiting.
    vendors.fault(json!({"vendor": "flux", "route": "start", "fault": "slow", "hold_s": 240, "count": 1})).await;
    let id = server.submit(hello("flux", "")).await;
    server.job_in(&id, &["starting"]).await;
    until("the vendor has read it", async || (vendors.starts("flux") == 1).then_some(())).await;
    server.signal("TERM");
    until("it is stopping", async || server.log_text().contains("stopping").then_some(())).await;
    server.signal("TERM");
    assert_eq!(server.ended().await, Some(128 + 15));
}

/// A call with a token: the status.
async fn status(server: &Server, token: &str, method: Method, path: &str, body: Option<Value>) -> u16 {
    let header = format!("Bearer {token}");
    server.send(method, path, &[("authorization", &header)], body.map(|body| body.to_string())).await.0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beyond_loopback_a_token_is_wanted_and_roles_and_tenants_bound_what_it_does() {
    let vendors = Vendors::start(Duration::from_millis(50)).await;
    let setup = Setup::new().connector(&vendors, "flux", "");
    let said = refuses(&setup, "0.0.0.0:0").await;
    assert!(said.contains("longhaul tokens create"), "{said}");

    // Beside a running server, from then on at once.
    let server = setup.serve().await;
    let create = async |args: &[&str]| {
        let (code, out, err) = setup.run(&[&["tokens", "create", "-o", "json"], args].concat()).await;
        assert_eq!(code, 0, "{err}");
        let made: Value = serde_json::from_str(&out).unwrap();
        (made["id"].as_str().unwrap().to_owned(), made["token"].as_str().unwrap().to_owned())
    };
    let (_, read) = create(&["--role", "read"]).await;
    let (submit_id, submit) = create(&["--role", "submit", "--tenant", "acme", "--name", "orchestrator"]).await;
    let (_, operate) = create(&["--role", "operate", "--tenant", "other"]).await;
    let (_, admin) = create(&["--role", "admin"]).await;

    assert_eq!(status(&server, "lh_wrong_token", Method::GET, "/v1/jobs", None).await, 401);
    assert_eq!(status(&server, &read, Method::GET, "/v1/jobs", None).await, 200);
    assert_eq!(status(&server, &read, Method::POST, "/v1/jobs", Some(hello("flux", ""))).await, 403);
    let mut other = hello("flux", "");
    other["tenant"] = json!("other");
    assert_eq!(status(&server, &submit, Method::POST, "/v1/jobs", Some(other)).await, 403, "another tenant");
    let header = format!("Bearer {submit}");
    let (code, text) =
        server.send(Method::POST, "/v1/jobs", &[("authorization", &header)], Some(hello("flux", "").to_string())).await;
    assert_eq!(code, 201, "{text}");
    let job: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(job["tenant"], "acme");
    let path = format!("/v1/jobs/{}", job["id"].as_str().unwrap());
    assert_eq!(status(&server, &operate, Method::GET, &path, None).await, 404, "another tenant's job is not there");
    assert_eq!(status(&server, &submit, Method::POST, &format!("{path}/cancel"), Some(json!({}))).await, 403);
    assert_eq!(status(&server, &operate, Method::POST, "/v1/connectors/flux/pause", Some(json!({}))).await, 403);
    assert_eq!(status(&server, &admin, Method::POST, "/v1/connectors/flux/pause", Some(json!({}))).await, 200);
    assert_eq!(status(&server, &admin, Method::GET, &path, None).await, 200);

    // The list shows no secret; a revoked token stops working.
    let (code, out, _) = setup.run(&["tokens", "list", "-o", "json"]).await;
    let rows: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, rows["tokens"].as_array().map(Vec::len)), (0, Some(4)));
    assert!(!out.contains(submit.rsplit('_').next().unwrap()), "{out}");
    let (code, _, err) = setup.run(&["tokens", "revoke", &submit_id]).await;
    assert_eq!(code, 0, "{err}");
    until("the token works no longer", async || {
        (status(&server, &submit, Method::GET, "/v1/jobs", None).await == 401).then_some(())
    })
    .await;
    let (code, _, err) = setup.run(&["tokens", "revoke", "tok_nowhere"]).await;
    assert_eq!(code, 3, "{err}");
    drop(server);

    beyond_loopback(&setup, &admin).await;
}

/// Where others can reach it, every call wants a token; health does not.
async fn beyond_loopback(setup: &Setup, admin: &str) {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = setup.command(&["serve", "--listen", &format!("0.0.0.0:{port}")]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let http = http();
    let url = |path: &str| format!("http://127.0.0.1:{port}{path}");
    let health = || async { http.get(url("/healthz")).send().await.ok().filter(|answer| answer.status() == 200) };
    until("it answers", health).await;
    let without = http.get(url("/v1/jobs")).send().await.unwrap();
    assert_eq!(without.status(), 401);
    let told: Value = serde_json::from_str(&without.text().await.unwrap()).unwrap();
    assert_eq!(told["error"]["code"], "unauthenticated");
    assert_eq!(http.get(url("/v1/jobs")).bearer_auth(admin).send().await.unwrap().status(), 200);
    let (code, _, err) = setup.run(&["jobs", "list", "--url", &url(""), "--token", admin]).await;
    assert_eq!(code, 0, "{err}");
    let (code, _, err) = setup.run(&["jobs", "list", "--url", &url("")]).await;
    assert!(code == 1 && err.contains("unauthenticated") && err.contains("tokens create"), "{err}");
    child.kill().await.unwrap();
}
