//! Real redis-servers of the bench's own: one, or a Cluster of three primaries, with an append-only file each.

use crate::Outcome;
use crate::machine::{self, Usage};
use crate::server::free_port;
use anyhow::Context;
use longhaul_store::clock::{Clock, SystemClock};
use serde_json::{Map, Value, json};
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// How long servers may take to answer, or to agree on who has which slots.
const PATIENCE: Duration = Duration::from_secs(30);
/// Primaries of the Cluster, the least that Redis makes one of.
const PRIMARIES: usize = 3;

/// When an append-only file is fsynced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fsync {
    /// Once a second, beside the commands: a crash of the machine loses up to that.
    Everysec,
    /// Before the answers of each turn of the server's loop leave.
    Always,
}

impl Fsync {
    /// As redis-server's option has it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Everysec => "everysec",
            Self::Always => "always",
        }
    }
}

/// One redis-server. It dies with this handle.
struct Node {
    port: u16,
    child: Child,
    _folder: TempDir,
}

/// Servers that hold one store.
pub struct Redis {
    nodes: Vec<Node>,
    fsync: Fsync,
}

impl Redis {
    /// One server.
    ///
    /// # Errors
    /// Where redis-server is not installed or does not start.
    pub async fn single(fsync: Fsync) -> Outcome<Self> {
        Ok(Self { nodes: vec![Node::start(fsync, false).await?], fsync })
    }

    /// Three primaries without replicas, on loopback.
    ///
    /// # Errors
    /// Where one does not start, or they do not agree.
    pub async fn cluster(fsync: Fsync) -> Outcome<Self> {
        let mut nodes = Vec::with_capacity(PRIMARIES);
        for _ in 0..PRIMARIES {
            nodes.push(Node::start(fsync, true).await?);
        }
        let mut create = Command::new("redis-cli");
        create.args(["--cluster", "create"]).args(nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)));
        let made = create.args(["--cluster-replicas", "0", "--cluster-yes"]).output().await?;
        anyhow::ensure!(made.status.success(), "no Cluster: {}", String::from_utf8_lossy(&made.stdout));
        let cluster = Self { nodes, fsync };
        let clock = SystemClock::default();
        let begun = clock.monotonic();
        for port in cluster.ports() {
            while !cli(port, &["CLUSTER", "INFO"]).await?.contains("cluster_state:ok") {
                anyhow::ensure!(clock.monotonic() - begun < PATIENCE, "the Cluster does not agree");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(cluster)
    }

    /// Whether every answer waits for the disk.
    pub fn strict(&self) -> bool {
        self.fsync == Fsync::Always
    }

    /// Their ports.
    pub fn ports(&self) -> impl Iterator<Item = u16> {
        self.nodes.iter().map(|node| node.port)
    }

    /// The first one's port.
    pub fn port(&self) -> u16 {
        self.ports().next().unwrap_or_default()
    }

    /// What `[store] url` would say.
    pub fn url(&self) -> String {
        if self.nodes.len() == 1 {
            return format!("redis://127.0.0.1:{}", self.port());
        }
        let hosts: Vec<String> = self.ports().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("redis-cluster://{}", hosts.join(","))
    }

    /// Counts from now on.
    ///
    /// # Errors
    /// Where a server is gone.
    pub async fn begin(&self) -> Outcome<Usage> {
        for port in self.ports() {
            cli(port, &["CONFIG", "RESETSTAT"]).await?;
        }
        self.usage()
    }

    /// What all servers together have used.
    fn usage(&self) -> Outcome<Usage> {
        let mut sum = Usage::default();
        for node in &self.nodes {
            let one = machine::usage(node.child.id().context("redis-server has ended")?)?;
            (sum.cpu, sum.rss, sum.peak) = (sum.cpu + one.cpu, sum.rss + one.rss, sum.peak + one.peak);
        }
        Ok(sum)
    }

    /// `used_memory` of all servers together, in bytes.
    ///
    /// # Errors
    /// Where a server is gone.
    pub async fn used_memory(&self) -> Outcome<u64> {
        let mut sum = 0;
        for port in self.ports() {
            sum += field(&cli(port, &["INFO", "memory"]).await?, "used_memory:").unwrap_or(0);
        }
        Ok(sum)
    }

    /// What the servers did since [`Redis::begin`]: CPU, memory, and calls by command with the microseconds of one. A command
    /// that a script makes counts in its own row and in the script's.
    ///
    /// # Errors
    /// Where a server is gone.
    pub async fn tell(&self, before: Usage, steps: u64) -> Outcome<Value> {
        let cpu = self.usage()?.cpu.saturating_sub(before.cpu).as_secs_f64();
        let mut commands: Map<String, Value> = Map::new();
        let (mut calls, mut micros) = (0, 0);
        for port in self.ports() {
            let stats = cli(port, &["INFO", "commandstats"]).await?;
            for (name, one, took) in stats.lines().filter_map(command) {
                if name == "evalsha" {
                    (calls, micros) = (calls + one, micros + took);
                }
                let row = commands.entry(name).or_insert_with(|| json!([0, 0]));
                let sum = |at: usize, more: u64| row[at].as_u64().unwrap_or(0) + more;
                *row = json!([sum(0, one), sum(1, took)]);
            }
        }
        commands.retain(|_, row| row[0].as_u64().is_some_and(|calls| calls >= steps / 100));
        let server = cli(self.port(), &["INFO", "server"]).await?;
        let version = server.lines().find_map(|line| line.strip_prefix("redis_version:"));
        Ok(json!({
            "version": version.map(str::trim), "servers": self.nodes.len(), "appendfsync": self.fsync.word(),
            "cpu_s": cpu, "cpu_us_per_step": crate::figures::round(cpu * 1e6 / steps as f64),
            "used_memory": self.used_memory().await?,
            "scripts": calls, "scripts_us": micros, "commands_calls_and_us": commands,
        }))
    }
}

impl Node {
    async fn start(fsync: Fsync, cluster: bool) -> Outcome<Self> {
        // A port that was free may be taken a moment later, a Cluster's bus port (10,000 above) was never asked for.
        for _ in 0..5 {
            let port = loop {
                let port = free_port().await?.port();
                if port < 55_000 {
                    break port;
                }
            };
            let folder = tempfile::tempdir()?;
            // It must not outlive a bench that is killed.
            let mut server = Command::new("setpriv");
            server.args(["--pdeathsig", "KILL", "redis-server", "--port"]).arg(port.to_string());
            server.args(["--bind", "127.0.0.1", "--save", "", "--loglevel", "warning", "--dir"]).arg(folder.path());
            server.args(["--appendonly", "yes", "--appendfsync", fsync.word()]);
            if cluster {
                server.args(["--cluster-enabled", "yes", "--cluster-node-timeout", "5000"]);
            }
            server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
            let mut child = server.spawn().context("redis-server and setpriv (util-linux) must be installed")?;
            let clock = SystemClock::default();
            let begun = clock.monotonic();
            while child.try_wait()?.is_none() && clock.monotonic() - begun < PATIENCE {
                if cli(port, &["PING"]).await.is_ok_and(|answer| answer.trim() == "PONG") {
                    return Ok(Self { port, child, _folder: folder });
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        anyhow::bail!("redis-server does not start")
    }
}

/// One command by redis-cli; its answer as text.
///
/// # Errors
/// Where it fails.
pub async fn cli(port: u16, command: &[&str]) -> Outcome<String> {
    let done = Command::new("redis-cli").arg("-p").arg(port.to_string()).args(command).output().await;
    let done = done.context("redis-cli must be installed (redis-tools)")?;
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    anyhow::ensure!(done.status.success(), "redis-cli {command:?}: {text}");
    Ok(text)
}

/// Requests a second of redis-benchmark with 50 in flight over one connection: the limit of this machine for whoever sends
/// plain commands, or scripts that do next to nothing.
///
/// # Errors
/// Where it is not installed.
pub async fn limit(port: u16) -> Outcome<Value> {
    let script = "redis.call('HSET',KEYS[1],'m',ARGV[1]) redis.call('ZADD',KEYS[2],ARGV[2],ARGV[3]) return 1";
    let sha = cli(port, &["SCRIPT", "LOAD", script]).await?;
    let state = "x".repeat(200);
    let set = benchmark(port, &["SET", "bench:__rand_int__", &state]).await?;
    let eval = ["EVALSHA", sha.trim(), "2", "bench:j:__rand_int__", "bench:z", &state, "1", "__rand_int__"];
    let evalsha = benchmark(port, &eval).await?;
    Ok(json!({
        "tool": "redis-benchmark", "pipeline": 50, "connections": 1, "set_200_bytes_per_s": set,
        "evalsha_hset_zadd_per_s": evalsha,
    }))
}

async fn benchmark(port: u16, command: &[&str]) -> Outcome<f64> {
    let mut tool = Command::new("redis-benchmark");
    tool.arg("-p").arg(port.to_string()).args(["-c", "1", "-P", "50", "-n", "300000", "-r", "100000", "--csv"]);
    let done = tool.args(command).output().await.context("redis-benchmark must be installed (redis-tools)")?;
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let figure = text.lines().last().and_then(|line| line.rsplit("\",\"").nth(6)?.trim_matches('"').parse().ok());
    figure.with_context(|| format!("redis-benchmark said {text:?}"))
}

fn field(info: &str, name: &str) -> Option<u64> {
    info.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
}

/// A row of `INFO commandstats`: name, calls, microseconds of all.
fn command(line: &str) -> Option<(String, u64, u64)> {
    let (name, figures) = line.strip_prefix("cmdstat_")?.split_once(':')?;
    let figure = |key: &str| figures.split(',').find_map(|one| one.strip_prefix(key))?.parse::<u64>().ok();
    Some((name.to_owned(), figure("calls=")?, figure("usec=")?))
}
