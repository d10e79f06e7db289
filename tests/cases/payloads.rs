//! Large payloads, and a store that takes no more.

use crate::common::{booked_once, image, succeeded};
use crate::support::{Server, Setup, Vendors, until, within};
use crate::{waits, works};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt;
use libtest_mimic::Trial;
use longhaul_sandbox::media::Media;
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) fn cases() -> Vec<Trial> {
    vec![
        works("r42_pictures_in_jobs_stay_out_of_the_store", pictures),
        waits("r42_a_full_store_takes_no_job_and_starts_none", full),
    ]
}

/// Bytes that look random and are the same for the same number.
fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(bytes + 8);
    while out.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(bytes);
    out
}

/// The most memory a process has held, in megabytes.
fn peak_mb(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("a running process");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("a peak");
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).expect("a number") / 1024
}

async fn pictures() {
    let vendors = Vendors::start(Duration::from_millis(300)).await;
    let setup = Setup::new().long_leases().connector(&vendors, "flux", "");
    let mut server = setup.serve().await;
    vendors
        .script(json!({"vendor": "flux", "wire": [
            {"step": "start", "status": 200, "body": {"id": "{n}", "polling_url": "{base}/v1/get_result?id={n}", "cost": 4}},
            {"step": "poll", "times": 5, "status": 200, "body": {"id": "{id}", "status": "Pending"}},
            {"step": "poll", "status": 200, "body": {"id": "{id}", "status": "Ready", "cost": 4, "result": {"sample": "{cdn}/o.png"}}},
            {"step": "download", "file": "png 512x512"},
        ]}))
        .await;
    let size = 5_000_001;
    // Fifty pictures that differ in their first bytes; base64 goes by threes.
    let same = STANDARD.encode(noise(7, size - 6));
    let submits = (0..50_u8).map(|n| {
        let (server, same) = (&server, &same);
        async move {
            let data = format!("{}{same}", STANDARD.encode([n; 6]));
            let mut job = image(&format!("like this {n}"), 512, 512);
            job["inputs"] = json!([{"role": "reference", "url": format!("data:image/png;base64,{data}")}]);
            server.submit(job).await
        }
    });
    let ids: Vec<String> = futures::stream::iter(submits).buffered(50).collect().await;
    let picture = Media::parse("png 512x512").expect("a medium").bytes();
    for id in &ids {
        let job = server.job_in_within(Duration::from_secs(150), id, &["succeeded"]).await;
        succeeded(&job);
        booked_once(&job, "credits", "4");
        assert_eq!(server.bytes(&job["artifacts"][0]).await, picture, "the vendor's bytes");
    }
    assert!(peak_mb(&server) < 300, "scheduler and worker together held {} MB", peak_mb(&server));
    let starts = vendors.requests("flux", "start");
    assert_eq!(starts.len(), 50);
    assert!(starts.iter().all(|start| start.body_bytes > size * 4 / 3), "each vendor call carries its picture");
    // A piece of a picture as base64 has it, which stands in nothing that is listed or stored.
    let piece = same[300..360].to_owned();
    let whole = server.get("/v1/jobs?limit=100").await.to_string();
    assert!(whole.len() < 50 * 8192 && !whole.contains(&piece), "{} bytes of list", whole.len());
    let events = json!(server.events(&ids[7]).await).to_string();
    assert!(events.len() < 65_536 && !events.contains(&piece), "{} bytes of events", events.len());
    assert!(!server.log_text().contains(&piece));
    too_big(&server).await;
    assert_eq!(server.stop().await, Some(0));
    let store: u64 = ["longhaul.db", "longhaul.db-wal"]
        .iter()
        .filter_map(|name| std::fs::metadata(setup.folder().join(name)).ok())
        .map(|file| file.len())
        .sum();
    assert!(store / 50 < 65_536, "{store} bytes of store for 50 jobs");
}

/// A body of 300 MB is refused with the cap named, before it is sent by a client that asks first.
async fn too_big(server: &Server) {
    let at = server.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(at).await.expect("a connection");
    let head = format!(
        "POST /v1/jobs HTTP/1.1\r\nhost: {at}\r\ncontent-type: application/json\r\ncontent-length: 300000000\r\n\
         expect: 100-continue\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("a head is taken");
    let mut answer = Vec::new();
    let mut buffer = [0_u8; 4096];
    while !String::from_utf8_lossy(&answer).contains("max_body_bytes") {
        let read = tokio::time::timeout(Duration::from_secs(30), stream.read(&mut buffer)).await;
        let n = read.expect("an answer before the body").expect("an answer");
        assert!(n > 0, "{}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&buffer[..n]);
    }
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("67108864"), "{answer}");
}

/// The operating system refuses the store's file any growth; then there is room again.
async fn full() {
    let vendors = Vendors::start(Duration::from_millis(300)).await;
    // 512-byte blocks: 6 MiB a file, and a write beyond is an error in place of a signal.
    let limit = ["/bin/sh", "-c", "trap '' XFSZ; ulimit -S -f 12288; exec \"$0\" \"$@\""];
    let setup = Setup::new().connector(&vendors, "flux", "limits = { in_flight = 3 }").wrapped(&limit);
    let server = setup.serve().await;
    vendors
        .script(json!({"vendor": "flux", "wire": [
            {"step": "start", "status": 200, "body": {"id": "{n}", "polling_url": "{base}/v1/get_result?id={n}", "cost": 4}},
            {"step": "poll", "until": "switch", "status": 200, "body": {"id": "{id}", "status": "Pending"}},
            {"step": "poll", "status": 200, "body": {"id": "{id}", "status": "Ready", "cost": 4, "result": {"sample": "{cdn}/o.png"}}},
            {"step": "download", "file": "png 64x64"},
            {"step": "switch", "status": 204},
        ], "routes": [{"step": "switch", "path": "/switch"}]}))
        .await;
    let submit = async |words: &str| -> (u16, Value) {
        let (status, text) = server.send(Method::POST, "/v1/jobs", &[], Some(image(words, 64, 64).to_string())).await;
        (status, serde_json::from_str(&text).unwrap_or_default())
    };
    let mut taken = Vec::new();
    let mut refused = 0;
    let mut words = 20_000;
    // Large jobs first, then ever smaller ones, until not even a small one fits.
    for n in 0..2000 {
        let (status, answer) = submit(&format!("{n} {}", "x".repeat(words))).await;
        if status == 201 {
            taken.push(answer["id"].as_str().expect("an id").to_owned());
            refused = 0;
            continue;
        }
        assert_eq!((status, &answer["error"]["code"]), (503, &json!("store_full")), "{answer}");
        words /= 2;
        refused += 1;
        if refused > 20 {
            break;
        }
    }
    assert!(refused > 20, "the store never filled: {} jobs", taken.len());
    until("readiness goes down", async || {
        let (status, _) = server.send(Method::GET, "/readyz", &[], None).await;
        (status == 503).then_some(())
    })
    .await;
    let starts = vendors.starts("flux");
    crate::support::http().get(format!("http://{}/flux/switch", vendors.at)).send().await.expect("the switch");
    let tries = |log: &str| log.matches("the store cannot write").count();
    let before = tries(&server.log_text());
    until("the worker tried to go on", async || (tries(&server.log_text()) >= before + 5).then_some(())).await;
    for _ in 0..10 {
        assert_eq!(submit("small").await.0, 503);
    }
    assert_eq!(vendors.starts("flux"), starts, "nothing is bought while nothing can be written down");

    let room = std::process::Command::new("prlimit")
        .args(["--pid", &server.pid().to_string(), "--fsize=unlimited:unlimited"])
        .status();
    assert!(room.expect("prlimit of util-linux").success());
    let (status, answer) = within(Duration::from_secs(30), "jobs are taken again", async || {
        let answer = submit("room again").await;
        (answer.0 == 201).then_some(answer)
    })
    .await;
    assert_eq!(status, 201);
    taken.push(answer["id"].as_str().expect("an id").to_owned());
    for id in &taken {
        let job = server.job_in_within(Duration::from_secs(120), id, &["succeeded"]).await;
        succeeded(&job);
    }
    let report = vendors.books.starts_report(Some("flux"));
    assert_eq!(report["started_twice"], json!([]), "no acknowledged job was lost or bought twice");
    assert_eq!(report["count"].as_u64(), Some(taken.len() as u64));
}
