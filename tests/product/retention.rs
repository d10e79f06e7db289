//! Old jobs leave the store and can still be read; everything moves from one store to another.

use crate::support::{Setup, Vendors, hello, until};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// Makes every ended job of a database that nobody uses older than it is.
fn age(file: &Path, days: i64) {
    let conn = rusqlite::Connection::open(file).unwrap();
    let aged = conn
        .execute("UPDATE jobs SET finished_ms = finished_ms - ?1 WHERE finished_ms IS NOT NULL", [days * 86_400_000]);
    assert!(aged.unwrap() > 0);
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_job_is_archived_and_shown_as_before() {
    let vendors = Vendors::start(Duration::from_millis(50)).await;
    // The former name of the key still says how long.
    let setup = Setup::new().connector(&vendors, "flux", "").with("[api]\nretention_days = 2");
    let mut server = setup.serve().await;
    let id = server.submit(hello("flux", "")).await;
    let mut shown = server.job_in(&id, &["succeeded"]).await;
    let events = server.events(&id).await;
    let bytes = server.bytes(&shown["artifacts"][0]).await;
    assert_eq!(server.stop().await, Some(0));
    age(&setup.folder().join("longhaul.db"), 3);

    let server = setup.serve().await;
    until("it left the store", async || {
        server.get("/v1/jobs").await["jobs"].as_array().unwrap().is_empty().then_some(())
    })
    .await;
    let url = ["--url", &server.url];
    let (code, out, err) = setup.run(&[&["jobs", "show", &id, "-o", "json"][..], &url].concat()).await;
    assert_eq!(code, 0, "{err}");
    let archived = json_of(&out);
    shown["archived"] = json!(true);
    shown["artifacts"][0]["content"] = archived["artifacts"][0]["content"].clone();
    assert_eq!(archived, shown);
    assert_eq!(server.bytes(&archived["artifacts"][0]).await, bytes);
    let (code, out, err) = setup.run(&[&["jobs", "show", &id, "--events", "-o", "ndjson"][..], &url].concat()).await;
    assert_eq!(code, 0, "{err}");
    assert_eq!(out.lines().map(json_of).collect::<Vec<_>>(), events);
    let (code, out, _) = setup.run(&[&["jobs", "show", &id][..], &url].concat()).await;
    assert!(code == 0 && out.lines().any(|line| line.starts_with("archived") && line.ends_with("yes")), "{out}");
    let cancel = [&["jobs", "cancel", &id][..], &url].concat();
    let (code, _, err) = setup.run(&cancel).await;
    assert!(code == 1 && err.contains("archive"), "{code} {err}");
    // What was used is still in the ledger.
    assert!(!server.get("/v1/usage?by=vendor").await["usage"].as_array().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_moves_with_all_it_holds_and_works_on() {
    let vendors = Vendors::start(Duration::from_millis(1_500)).await;
    let setup = Setup::new().connector(&vendors, "flux", "");
    let mut server = setup.serve().await;
    let done = server.submit(hello("flux", "one")).await;
    server.job_in(&done, &["succeeded"]).await;
    let running = server.submit(hello("flux", "two")).await;
    server.job_in(&running, &["running"]).await;
    let (before, events) = (server.job(&done).await, server.events(&done).await);
    let at = setup.folder().display().to_string();
    let (from, to) = (format!("sqlite:{at}/longhaul.db"), format!("sqlite:{at}/moved.db"));
    let copy = ["store", "copy", &from, &to, "-o", "json"];

    let (code, _, err) = setup.run(&copy).await;
    assert!(code == 1 && err.contains("another process is using"), "it is in use: {code} {err}");
    // Killed, so that a lease may be left behind.
    server.kill().await;
    let (code, out, err) = setup.run(&copy).await;
    assert_eq!(code, 0, "{err}");
    let told = json_of(&out);
    let kinds = told["kinds"].as_array().unwrap();
    let jobs = kinds.iter().find(|row| row["kind"] == "job").unwrap();
    assert_eq!((&jobs["from"], &jobs["to"], &told["same"]), (&json!(2), &json!(2), &json!(true)));
    assert_eq!(told["from_sha256"], told["to_sha256"]);
    assert!(told["from_sha256"].as_str().unwrap().len() == 64 && err.contains("agrees"), "{err}");

    let (code, out, err) = setup.run(&copy).await;
    assert!(code == 1 && out.is_empty() && err.contains("not empty"), "{code} {out} {err}");
    let (code, _, err) = setup.run(&["store", "copy", "sqlite:nowhere.db", &to]).await;
    assert!(code == 1 && err.contains("no database at nowhere.db"), "{code} {err}");
    assert!(!setup.folder().join("nowhere.db").exists());
    let (code, _, err) = setup.run(&["store", "copy", &from, &from]).await;
    assert!(code == 2 && err.contains("itself"), "{code} {err}");

    let setup = setup.env("LONGHAUL__STORE__URL", &to);
    let server = setup.serve().await;
    assert_eq!((server.job(&done).await, server.events(&done).await), (before, events));
    let after = server.job_in(&running, &["succeeded"]).await;
    assert_eq!((&after["attempt"], vendors.starts("flux")), (&json!(1), 2), "nothing was bought again");
}

#[tokio::test]
async fn half_a_copy_is_not_served() {
    let setup = Setup::new();
    let mut server = setup.serve().await;
    assert_eq!(server.stop().await, Some(0));
    let file = setup.folder().join("longhaul.db");
    let conn = rusqlite::Connection::open(&file).unwrap();
    conn.execute("INSERT INTO meta (key, value) VALUES ('loading', 1)", []).unwrap();
    drop(conn);
    let (code, _, err) = setup.run(&["serve", "--listen", "127.0.0.1:0"]).await;
    assert!(code == 1 && err.contains("copy again"), "{code} {err}");
}
