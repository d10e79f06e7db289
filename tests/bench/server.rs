//! The release binary as processes of their own: `serve`, `sandbox`, and what they answer.

use crate::Outcome;
use crate::redis_server::Redis;
use anyhow::Context;
use longhaul_store::clock::{Clock, SystemClock};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

/// The binary that is measured.
pub const LONGHAUL: &str = env!("CARGO_BIN_EXE_longhaul");
/// A key that the stand-ins take.
pub const KEY: &str = "sandbox-bench";
/// How long a process may take to answer before it is called stuck.
const PATIENCE: Duration = Duration::from_secs(30);

/// An HTTP client of the bench's own.
///
/// # Errors
/// Where it cannot be built.
pub fn http() -> Outcome<reqwest::Client> {
    #[expect(clippy::disallowed_methods, reason = "the bench calls loopback")]
    let builder = reqwest::Client::builder();
    Ok(builder.no_proxy().build()?)
}

/// A free port on loopback, as it was a moment ago.
///
/// # Errors
/// Where there is none.
pub async fn free_port() -> Outcome<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0").await?.local_addr()?)
}

/// Where a server lives: its configuration, database, artifacts and log.
pub struct Home {
    folder: TempDir,
    text: String,
}

impl Home {
    /// A new one below `folder`, or below the system's folder for temporary files.
    ///
    /// # Errors
    /// Where it cannot be made.
    pub fn new(folder: Option<&Path>) -> Outcome<Self> {
        let folder = match folder {
            Some(folder) => tempfile::tempdir_in(folder)?,
            None => tempfile::tempdir()?,
        };
        let at = folder.path().display();
        let text = format!("[store]\nurl = \"sqlite:{at}/longhaul.db\"\n[artifacts]\nurl = \"file:{at}/artifacts\"\n");
        Ok(Self { folder, text })
    }

    /// Keeps its jobs on these servers instead.
    #[must_use]
    pub fn on(mut self, redis: &Redis) -> Self {
        let durability = if redis.strict() { "strict" } else { "everysec" };
        let at = format!("url = \"sqlite:{}/longhaul.db\"", self.folder.path().display());
        self.text = self.text.replace(&at, &format!("url = \"{}\"\ndurability = \"{durability}\"", redis.url()));
        self
    }

    /// One more piece of configuration.
    #[must_use]
    pub fn with(mut self, toml: &str) -> Self {
        self.text.push_str(toml);
        self.text.push('\n');
        self
    }

    /// A connector named like its vendor, to a base URL on loopback.
    #[must_use]
    pub fn connector(self, vendor: &str, base_url: &str, more: &str) -> Self {
        self.with(&format!(
            "[connectors.{vendor}]\nvendor = \"{vendor}\"\ncredential = \"env:BENCH_KEY\"\nbase_url = \"{base_url}\"\n\
             allow_private_network = true\n{more}"
        ))
    }

    /// Its folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Starts `longhaul serve` in it and waits until it is ready.
    ///
    /// # Errors
    /// Where it does not become so.
    pub async fn serve(&self) -> Outcome<Server> {
        let listen = free_port().await?;
        let config = self.folder.path().join("longhaul.toml");
        std::fs::write(&config, &self.text)?;
        let mut command = Command::new(LONGHAUL);
        command.arg("serve").arg("--listen").arg(listen.to_string()).arg("--config").arg(config);
        Server::start(command, self.folder.path(), listen, "/readyz").await
    }

    /// Starts `longhaul sandbox` in it and waits until it answers.
    ///
    /// # Errors
    /// Where it does not.
    pub async fn sandbox(&self) -> Outcome<Server> {
        let listen = free_port().await?;
        let mut command = Command::new(LONGHAUL);
        command.arg("sandbox").arg("--listen").arg(listen.to_string());
        Server::start(command, self.folder.path(), listen, "/").await
    }
}

/// One process. It dies with this handle.
pub struct Server {
    /// `http://127.0.0.1:PORT`.
    pub url: String,
    /// From exec to the first good answer.
    pub ready_in: Duration,
    child: Child,
    http: reqwest::Client,
}

impl Server {
    async fn start(mut command: Command, folder: &Path, listen: SocketAddr, ready: &str) -> Outcome<Self> {
        let log = folder.join(format!("{}.log", listen.port()));
        command.current_dir(folder).env_clear().env("PATH", "/usr/bin:/bin").env("HOME", folder);
        command.env("BENCH_KEY", KEY).kill_on_drop(true).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(std::fs::File::create(&log)?);
        let (http, clock) = (http()?, SystemClock::default());
        let begun = clock.monotonic();
        let mut child = command.spawn().context("the binary does not start")?;
        let url = format!("http://{listen}");
        loop {
            let answer = http.get(format!("{url}{ready}")).send().await;
            let ready_in = clock.monotonic().saturating_sub(begun);
            if answer.is_ok_and(|answer| answer.status().is_success()) {
                return Ok(Self { url, ready_in, child, http });
            }
            let ended = child.try_wait()?;
            if ended.is_some() || ready_in > PATIENCE {
                let told = std::fs::read_to_string(&log).unwrap_or_default();
                anyhow::bail!("it is not ready after {ready_in:?} (ended: {ended:?}):\n{told}");
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Its process id.
    ///
    /// # Errors
    /// Where it has ended.
    pub fn pid(&self) -> Outcome<u32> {
        self.child.id().context("the process has ended")
    }

    /// A `GET` that must succeed, as text.
    ///
    /// # Errors
    /// Where it does not.
    pub async fn text(&self, path: &str) -> Outcome<String> {
        let answer = self.http.get(format!("{}{path}", self.url)).send().await?;
        let status = answer.status();
        let text = answer.text().await?;
        anyhow::ensure!(status.is_success(), "{path}: {status} {text}");
        Ok(text)
    }

    /// A `GET` that must succeed, as JSON.
    ///
    /// # Errors
    /// Where it does not.
    pub async fn json(&self, path: &str) -> Outcome<Value> {
        Ok(serde_json::from_str(&self.text(path).await?)?)
    }

    /// Sends a body, which must succeed; the answer's text.
    ///
    /// # Errors
    /// Where it does not.
    pub async fn send(&self, method: reqwest::Method, path: &str, kind: &str, body: String) -> Outcome<String> {
        let request = self.http.request(method, format!("{}{path}", self.url)).header("content-type", kind).body(body);
        let answer = request.send().await?;
        let status = answer.status();
        let text = answer.text().await?;
        anyhow::ensure!(status.is_success(), "{path}: {status} {text}");
        Ok(text)
    }

    /// Submits jobs in one batch; every one must be taken. Answers their ids.
    ///
    /// # Errors
    /// Where one is refused.
    pub async fn batch(&self, lines: String) -> Outcome<Vec<String>> {
        let wanted = lines.lines().count();
        let answer = self.send(reqwest::Method::POST, "/v1/jobs/batch", "application/x-ndjson", lines).await?;
        let mut ids = Vec::with_capacity(wanted);
        for line in answer.lines() {
            let result: Value = serde_json::from_str(line)?;
            let id = result.pointer("/job/id").and_then(Value::as_str);
            ids.push(id.with_context(|| format!("a job was refused: {line}"))?.to_owned());
        }
        anyhow::ensure!(ids.len() == wanted, "{} of {wanted} jobs were answered", ids.len());
        Ok(ids)
    }

    /// The metrics, as they are now.
    ///
    /// # Errors
    /// Where they cannot be had.
    pub async fn metrics(&self) -> Outcome<Metrics> {
        Ok(Metrics(self.text("/metrics").await?))
    }
}

/// One reading of `/metrics`.
pub struct Metrics(String);

impl Metrics {
    /// The sum over the series of a name that carry all of these pairs (as `name="value"`).
    #[must_use]
    pub fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        self.series(name, labels).map(|(_, value)| value).sum()
    }

    /// The cumulative buckets of a histogram, by upper bound; the last is infinite.
    #[must_use]
    pub fn buckets(&self, name: &str, labels: &[&str]) -> Vec<(f64, f64)> {
        let bucket = format!("{name}_bucket");
        let series = self.series(&bucket, labels).filter_map(|(line, value)| {
            let bound = line.split("le=\"").nth(1)?.split('"').next()?;
            Some((if bound == "+Inf" { f64::INFINITY } else { bound.parse().ok()? }, value))
        });
        series.collect()
    }

    fn series<'a>(&'a self, name: &'a str, labels: &'a [&'a str]) -> impl Iterator<Item = (&'a str, f64)> {
        let named = self.0.lines().filter(move |line| line.split(['{', ' ']).next() == Some(name));
        let chosen = named.filter(|line| labels.iter().all(|label| line.contains(label)));
        chosen.filter_map(|line| Some((line, line.rsplit(' ').next()?.parse().ok()?)))
    }
}
