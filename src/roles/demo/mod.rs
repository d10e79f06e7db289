//! `longhaul demo`: five jobs of five kinds, against the stand-ins, on the embedded store; no keys, no servers.

mod jobs;
mod show;

use crate::cli::args::DemoArgs;
use crate::cli::client::Client;
use crate::cli::exit::Exit;
use crate::cli::output;
use crate::config::{self, Role};
use crate::product::{Door, Product, on_signals, shown};
use crate::roles::sandbox::{free_port, make};
use anyhow::Context;
use jobs::DemoJob;
use serde_json::Value;
use show::Screen;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// How long an ordinary job takes at the stand-ins.
const PACE: Duration = Duration::from_secs(2);
/// The demo is over by then, whatever happens.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks at a job.
const LOOK: Duration = Duration::from_millis(200);

/// Runs the demo.
///
/// # Errors
/// Where something stands in the way, or a job did not succeed.
pub async fn run(args: DemoArgs) -> anyhow::Result<()> {
    let out = &args.out;
    std::fs::create_dir_all(out)
        .with_context(|| format!("the folder {} cannot be made; name another with --out", out.display()))?;
    let scratch = Scratch::new()?;
    // Ctrl-C ends it in order too: the listeners and the temporary files go.
    let stop = on_signals()?;

    let sandbox_at = free_port().await?;
    let sandbox_address = sandbox_at.local_addr()?;
    let sandbox = make(sandbox_address, PACE);
    let served = tokio::spawn({
        let stop = stop.clone();
        async move { sandbox.serve(sandbox_at, async move { stop.cancelled().await }).await }
    });

    let config = config::parse("demo", &settings(&scratch.path, out, sandbox_address), &[])?;
    let api_at = free_port().await?;
    let api = format!("http://{}", api_at.local_addr()?);
    let product = Product::open(config, Role::Serve).await?;
    let door = Door::of(api_at, &stop)?;
    let running = tokio::spawn(product.serve(door, stop.clone()));

    let client = Client::new(&api, None)?;
    let screen = Screen::new(sandbox_address, &api);
    let finished = tokio::select! {
        finished = tokio::time::timeout(PATIENCE, follow_all(&client, &screen)) => {
            finished.unwrap_or_else(|_| Err(Exit::failed(format!("the demo was not done after {} s", PATIENCE.as_secs())).into()))
        }
        () = stop.cancelled() => Err(Exit { code: 130, message: "stopped; what was made so far is kept".to_owned() }.into()),
    };
    screen.clear();
    stop.cancel();
    running.await??;
    served.await??;
    let jobs = finished?;

    if args.json {
        jobs.iter().for_each(|(_, job)| output::line(&job.to_string()));
    } else {
        show::table(&jobs);
        output::say(&format!("\nthe artifacts are in {}", shown(&out.join("default")).display()));
    }
    let failed: Vec<String> = jobs.iter().filter(|(_, job)| job["state"] != "succeeded").map(show::failure).collect();
    if failed.is_empty() {
        return Ok(());
    }
    Err(Exit::failed(format!("{} of {} jobs did not succeed\n{}", failed.len(), jobs.len(), failed.join("\n"))).into())
}

async fn follow_all(client: &Client, screen: &Screen) -> anyhow::Result<Vec<(DemoJob, Value)>> {
    let wanted = jobs::all();
    let following = wanted.into_iter().map(|job| follow(client, screen, job));
    futures::future::try_join_all(following).await
}

/// Submits a job and follows it to its end; a question is answered on the way.
async fn follow(client: &Client, screen: &Screen, wanted: DemoJob) -> anyhow::Result<(DemoJob, Value)> {
    let line = screen.line(wanted.title);
    let submitted = client.post("/v1/jobs", &wanted.request).await?;
    let id = submitted["id"].as_str().unwrap_or_default().to_owned();
    let mut answered = String::new();
    loop {
        let job = client.get(&format!("/v1/jobs/{id}"), &[]).await?;
        line.job(&job);
        let question = &job["question"];
        let question_id = question["id"].as_str().unwrap_or_default();
        if job["state"] == "needs_input" && !question_id.is_empty() && answered != question_id {
            question_id.clone_into(&mut answered);
            let (answer, words) = jobs::answer_to(question);
            screen.say(&format!("{} asks: {}", wanted.title, question["prompt"].as_str().unwrap_or_default()));
            screen.say(&format!("{} is answered: {words}", wanted.title));
            client.post(&format!("/v1/jobs/{id}/answer"), &answer).await?;
        }
        if job["step"].is_null() {
            line.done(&job);
            return Ok((wanted, job));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The demo's configuration: every connector points at its stand-in, with a key that only works there.
fn settings(scratch: &Path, out: &Path, sandbox: SocketAddr) -> String {
    let quoted = |text: String| toml::Value::String(text).to_string();
    let key = quoted(format!("file:{}", scratch.join("key").display()));
    let mut text = format!(
        "[store]\nurl = {}\n[artifacts]\nurl = {}\n[worker]\nstaging = {}\ndrain_s = 2\n",
        quoted(format!("sqlite:{}", scratch.join("demo.db").display())),
        quoted(format!("file:{}", out.display())),
        quoted(scratch.join("staging").display().to_string()),
    );
    for (vendor, more) in jobs::CONNECTORS {
        text.push_str(&format!(
            "[connectors.{vendor}]\nvendor = \"{vendor}\"\ncredential = {key}\nbase_url = \"http://{sandbox}/{vendor}\"\n\
             allow_private_network = true\ncadence = {{ first_s = 0.3, factor = 1.3, ceiling_s = 1, jitter = 0.1 }}\n{more}\n"
        ));
    }
    text
}

/// A folder that is gone when the demo is.
struct Scratch {
    path: std::path::PathBuf,
}

impl Scratch {
    fn new() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("longhaul-demo-{}", uuid::Uuid::now_v7().simple()));
        std::fs::create_dir_all(&path).context("the folder for temporary files cannot be used; set TMPDIR")?;
        let scratch = Self { path };
        std::fs::write(scratch.path.join("key"), "sandbox-demo-key\n")?;
        Ok(scratch)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            tracing::warn!(error = %error, "temporary files were left in {}", self.path.display());
        }
    }
}
