//! A Redis Cluster of a test's own on loopback: three primaries, a replica each.

use super::{PATIENCE, free_port, within};
use std::process::Stdio;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

/// Nodes, half of them replicas at first.
const NODES: usize = 6;
/// A node that does not answer for so long has failed.
const NODE_TIMEOUT_MS: &str = "1500";

struct Node {
    port: u16,
    folder: TempDir,
    child: Option<Child>,
}

/// The Cluster.
pub struct Cluster {
    nodes: Vec<Node>,
}

impl Cluster {
    /// Starts one and waits until every primary has its replica.
    pub async fn start() -> Self {
        let mut nodes = Vec::new();
        for _ in 0..NODES {
            let mut node = Node { port: port().await, folder: tempfile::tempdir().expect("a folder"), child: None };
            node.start().await;
            nodes.push(node);
        }
        let places: Vec<String> = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        let mut create = Command::new("redis-cli");
        create.args(["--cluster", "create"]).args(&places).args(["--cluster-replicas", "1", "--cluster-yes"]);
        let made = create.stdin(Stdio::null()).output().await.expect("redis-cli is there (tests/run setup)");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stdout));
        let cluster = Self { nodes };
        cluster.whole().await;
        cluster
    }

    /// As `[store] url` has it.
    pub fn url(&self) -> String {
        let places: Vec<String> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        format!("redis-cluster://{}", places.join(","))
    }

    /// The nodes that are primaries now.
    pub async fn primaries(&self) -> Vec<usize> {
        let mut found = Vec::new();
        for (nth, node) in self.nodes.iter().enumerate() {
            if node.child.is_some() && node.ask(&["role"]).await.starts_with("master") {
                found.push(nth);
            }
        }
        found
    }

    /// Waits until every primary has a replica that is up to date and every node calls the Cluster sound.
    pub async fn whole(&self) {
        within(PATIENCE, "every primary has its replica", async || {
            for node in &self.nodes {
                if !node.ask(&["cluster", "info"]).await.contains("cluster_state:ok") {
                    return None;
                }
                let told = node.ask(&["info", "replication"]).await;
                let follows = told.contains("role:slave") && told.contains("master_link_status:up");
                let leads = told.contains("role:master") && told.contains("state=online");
                if !follows && !leads {
                    return None;
                }
            }
            Some(())
        })
        .await;
    }

    /// `kill -9` of a node.
    pub async fn kill(&mut self, nth: usize) {
        let mut child = self.nodes[nth].child.take().expect("it runs");
        child.start_kill().expect("kill");
        child.wait().await.expect("it ends");
    }

    /// Waits until there are three primaries again and all slots are served.
    pub async fn healed(&self) {
        within(PATIENCE, "a replica takes over", async || {
            let primaries = self.primaries().await;
            for nth in &primaries {
                if !self.nodes[*nth].ask(&["cluster", "info"]).await.contains("cluster_state:ok") {
                    return None;
                }
            }
            (primaries.len() == NODES / 2).then_some(())
        })
        .await;
    }

    /// Starts a node again with what lies in its folder.
    pub async fn again(&mut self, nth: usize) {
        self.nodes[nth].start().await;
    }
}

impl Node {
    async fn start(&mut self) {
        // A test that is killed takes the server with it.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "redis-server", "--port", &self.port.to_string()]);
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "yes", "--appendfsync", "everysec"]);
        command.args(["--cluster-enabled", "yes", "--cluster-node-timeout", NODE_TIMEOUT_MS]);
        command.args(["--loglevel", "warning", "--dir"]).arg(self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        self.child = Some(command.spawn().expect("redis-server and setpriv are there (tests/run setup)"));
        within(PATIENCE, "a node answers", async || (self.ask(&["ping"]).await.contains("PONG")).then_some(())).await;
    }

    async fn ask(&self, words: &[&str]) -> String {
        let mut command = Command::new("redis-cli");
        command.args(["-p", &self.port.to_string()]).args(words).stdin(Stdio::null());
        let told = command.output().await.expect("redis-cli is there (tests/run setup)");
        String::from_utf8_lossy(&told.stdout).into_owned()
    }
}

/// A port with a free one ten thousand above it, where nodes talk.
async fn port() -> u16 {
    loop {
        let port = free_port().await;
        if TcpListener::bind(("127.0.0.1", port + 10_000)).await.is_ok() {
            return port;
        }
    }
}
