//! docs/OPERATIONS.md's backup and restore, with the very command that it gives.

use crate::support::{Setup, Vendors, hello, until};
use serde_json::json;
use std::path::Path;
use std::time::Duration;

/// The page's command that copies the store of a running service.
fn backup_command() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/OPERATIONS.md");
    let page = std::fs::read_to_string(page).unwrap();
    page.lines().find(|line| line.starts_with("python3 -c")).expect("docs/OPERATIONS.md says how").to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_backup_buys_nothing_before_somebody_has_looked() {
    let vendors = Vendors::start(Duration::from_secs(2)).await;
    let setup = Setup::new().connector(&vendors, "flux", "limits = { in_flight = 1 }");
    let mut server = setup.serve().await;
    let mut jobs = Vec::new();
    for n in 0..4 {
        jobs.push(server.submit(hello("flux", &format!("number {n}"))).await);
    }
    until("one job is at the vendor", async || (vendors.starts("flux") == 1).then_some(())).await;
    server.job_in(&jobs[0], &["running"]).await;
    let copied = std::process::Command::new("sh").args(["-c", &backup_command()]).current_dir(setup.folder()).status();
    assert!(copied.unwrap().success());
    for job in &jobs {
        assert_eq!(server.job_at_rest(job).await["state"], "succeeded");
    }
    assert_eq!(vendors.starts("flux"), 4);
    assert_eq!(server.stop().await, Some(0));

    let file = |name: &str| setup.folder().join(name);
    for name in ["longhaul.db", "longhaul.db-wal", "longhaul.db-shm"] {
        let _ = std::fs::remove_file(file(name));
    }
    std::fs::copy(file("backup.db"), file("longhaul.db")).unwrap();
    let key = format!("file:{}", file("key").display());
    let setup = setup.env("LONGHAUL__CONNECTORS__FLUX__CREDENTIAL", "file:/nowhere");
    let mut server = setup.serve().await;
    until("the connector is parked", async || {
        (server.get("/v1/connectors/flux").await["state"] == "parked").then_some(())
    })
    .await;
    let page = server.get("/v1/jobs?state=queued").await;
    let queued: Vec<&str> = page["jobs"].as_array().unwrap().iter().filter_map(|job| job["id"].as_str()).collect();
    assert!(!queued.is_empty(), "the backup is of a moment at which jobs waited");
    for job in &queued {
        server.post(&format!("/v1/jobs/{job}/cancel"), json!({"reason": "ran after the backup"})).await;
        assert_eq!(server.job_at_rest(job).await["state"], "cancelled");
    }
    assert_eq!(server.stop().await, Some(0));

    let setup = setup.env("LONGHAUL__CONNECTORS__FLUX__CREDENTIAL", &key);
    let server = setup.serve().await;
    server.post("/v1/connectors/flux/check", json!({})).await;
    for job in jobs.iter().filter(|job| !queued.contains(&job.as_str())) {
        // What was at the vendor when the backup was made is polled and collected; a start under way, nobody can tell.
        let job = server.job_at_rest(job).await;
        let known = job["state"] == "succeeded" || job["error"]["code"] == "start_unknown";
        assert!(known, "{job:#}");
    }
    assert_eq!(vendors.starts("flux"), 4, "the restored store bought something again");
}
