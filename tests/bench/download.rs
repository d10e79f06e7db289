//! One large output: fetched, hashed, probed and placed by `longhaul serve`, beside what curl reaches with the same
//! address. The vendor is a server of this program's own: Runway's wire in three routes, and a playable video with
//! a gigabyte of padding behind it.

use crate::Outcome;
use crate::figures::{mib, round};
use crate::machine;
use crate::server::{Home, Server};
use anyhow::Context;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use clap::Args;
use longhaul_sandbox::media::Media;
use longhaul_store::clock::{Clock, SystemClock};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::process::Command;

/// What can be chosen.
#[derive(Args, Debug)]
pub struct Options {
    /// Bytes of the output
    #[arg(long, default_value_t = 1 << 30)]
    bytes: u64,
    /// Folder for staging and artifacts [default: the system's for temporary files]
    #[arg(long)]
    folder: Option<PathBuf>,
}

/// Bytes handed to the socket at once.
const PIECE: usize = 256 << 10;

struct Vendor {
    at: SocketAddr,
    head: Bytes,
    bytes: u64,
    clock: SystemClock,
    /// When each fetch of the output began.
    fetches: Mutex<Vec<Duration>>,
}

/// Runs it.
///
/// # Errors
/// Whatever stood in the way.
pub async fn run(options: Options) -> Outcome<Value> {
    let vendor = serve_vendor(options.bytes).await?;
    let url = format!("http://{}/big.mp4", vendor.at);
    let home = Home::new(options.folder.as_deref())?;
    let to_nothing = curl(&url, Path::new("/dev/null")).await?;
    let file = home.path().join("curl.mp4");
    let to_disk = synced(&vendor.clock, &url, &file).await?;
    std::fs::remove_file(&file)?;

    let cadence = "cadence = { first_s = 0.2, factor = 1, ceiling_s = 0.2, jitter = 0 }";
    let home = home.connector("runway", &format!("http://{}", vendor.at), cadence);
    let server = home.serve().await?;
    let before = machine::usage(server.pid()?)?;
    let took = fetch(&server, &vendor).await?;
    let after = machine::usage(server.pid()?)?;
    let rate = |took: Duration| options.bytes as f64 / took.as_secs_f64() / f64::from(1 << 20);
    Ok(json!({
        "bench": "download", "bytes": options.bytes, "seconds": round(took.as_secs_f64()),
        "seconds_are": "from the request of the output to the job's success: fetched, hashed, probed, fsynced, placed",
        "mib_per_s": round(rate(took)), "curl_mib_per_s": round(rate(to_nothing)),
        "percent_of_curl": round(rate(took) * 100.0 / rate(to_nothing)),
        "curl_to_disk_mib_per_s": round(rate(to_disk)), "curl_to_disk_is": "curl to a file of the same folder, and fsync",
        "percent_of_curl_to_disk": round(rate(took) * 100.0 / rate(to_disk)),
        "rss_before_mib": mib(before.rss), "rss_peak_mib": mib(after.peak), "rss_after_mib": mib(after.rss),
        "serve_cpu_s": round(after.cpu.saturating_sub(before.cpu).as_secs_f64()),
    }))
}

/// What curl needs for the whole.
async fn curl(url: &str, to: &Path) -> Outcome<Duration> {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--fail", "--noproxy", "*", "--write-out", "%{time_total}", url, "--output"]).arg(to);
    let output = curl.kill_on_drop(true).output().await.context("curl does not start")?;
    anyhow::ensure!(output.status.success(), "curl ended with {}", output.status);
    let seconds: f64 = String::from_utf8_lossy(&output.stdout).trim().parse()?;
    Ok(Duration::from_secs_f64(seconds))
}

/// What curl needs for the whole and the disk to have it: what a durable download can reach at best.
async fn synced(clock: &SystemClock, url: &str, to: &Path) -> Outcome<Duration> {
    let begun = clock.monotonic();
    curl(url, to).await?;
    std::fs::File::open(to)?.sync_all()?;
    Ok(clock.monotonic().saturating_sub(begun))
}

/// Has a job fetch the output; answers how long that took from the request of it to the job's success.
async fn fetch(server: &Server, vendor: &Vendor) -> Outcome<Duration> {
    let begun = vendor.fetches.lock().unwrap_or_else(PoisonError::into_inner).len();
    let job = json!({
        "connector": "runway", "task": "video", "instructions": "a brass telescope on a windowsill",
        "media": {"duration_ms": 5000, "aspect": "16:9"},
    });
    let ids = server.batch(format!("{job}\n")).await?;
    let path = format!("/v1/jobs/{}", ids.first().context("no id")?);
    let patience = vendor.clock.monotonic() + Duration::from_secs(180);
    let job = loop {
        let job = server.json(&path).await?;
        if job["state"] == "succeeded" {
            break job;
        }
        let open = ["queued", "starting", "running", "collecting"];
        let state = job["state"].as_str().unwrap_or_default();
        anyhow::ensure!(
            open.contains(&state) && vendor.clock.monotonic() < patience,
            "the job does not succeed: {job}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    let ended = vendor.clock.monotonic();
    let artifact = &job["artifacts"][0];
    anyhow::ensure!(artifact["bytes"] == vendor.bytes, "not all bytes came: {artifact}");
    anyhow::ensure!(artifact["spec"]["container"] == "mp4", "the probe did not read it: {artifact}");
    let fetches = vendor.fetches.lock().unwrap_or_else(PoisonError::into_inner).clone();
    anyhow::ensure!(fetches.len() == begun + 1, "it was fetched {} times", fetches.len() - begun);
    Ok(ended.saturating_sub(fetches.last().copied().unwrap_or(ended)))
}

async fn serve_vendor(bytes: u64) -> Outcome<Arc<Vendor>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let at = listener.local_addr()?;
    let video = Media::video(1280, 720, 5000, "bench").bytes();
    // A `free` box of zeros fills the file up: its header says how long it is.
    let padding = bytes.checked_sub(video.len() as u64).context("the output is smaller than the video in it")?;
    let padding = u32::try_from(padding).context("a padding of 4 GiB or more has no 32-bit size")?;
    anyhow::ensure!(padding >= 8, "the output is smaller than the video in it");
    let mut head = video.to_vec();
    head.extend_from_slice(&padding.to_be_bytes());
    head.extend_from_slice(b"free");
    let vendor =
        Arc::new(Vendor { at, head: head.into(), bytes, clock: SystemClock::default(), fetches: Mutex::default() });
    let router = Router::new()
        .route("/v1/text_to_video", post(|| async { Json(json!({"id": "5f0c2a4e-bench"})) }))
        .route("/v1/tasks/{id}", get(task))
        .route("/big.mp4", get(output))
        .with_state(vendor.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(vendor)
}

async fn task(State(vendor): State<Arc<Vendor>>) -> Json<Value> {
    let output = format!("http://{}/big.mp4", vendor.at);
    Json(json!({"id": "5f0c2a4e-bench", "status": "SUCCEEDED", "output": [output]}))
}

async fn output(State(vendor): State<Arc<Vendor>>) -> Response {
    vendor.fetches.lock().unwrap_or_else(PoisonError::into_inner).push(vendor.clock.monotonic());
    let zeros = Bytes::from(vec![0u8; PIECE]);
    let rest = vendor.bytes - vendor.head.len() as u64;
    let padding = futures::stream::unfold(rest, move |left| {
        let piece = zeros.slice(..PIECE.min(usize::try_from(left).unwrap_or(PIECE)));
        std::future::ready((left > 0).then(|| {
            let len = piece.len() as u64;
            (Ok::<_, Infallible>(piece), left - len)
        }))
    });
    let head = vendor.head.clone();
    let first = futures::stream::once(std::future::ready(Ok::<_, Infallible>(head)));
    let headers = [(header::CONTENT_TYPE, "video/mp4".to_owned()), (header::CONTENT_LENGTH, vendor.bytes.to_string())];
    (headers, Body::from_stream(futures::StreamExt::chain(first, padding))).into_response()
}
