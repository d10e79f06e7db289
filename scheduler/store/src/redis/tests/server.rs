//! A real redis-server of this test run's own.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

/// A port that is free now, with the one ten thousand above it, where nodes of a Cluster talk.
fn free_port() -> u16 {
    loop {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        if port < 55_000 && TcpListener::bind(("127.0.0.1", port + 10_000)).is_ok() {
            return port;
        }
    }
}

/// Starts a server that ends with this process; answers its port.
pub(super) fn start(args: &[&str]) -> u16 {
    start_with(None, &[&["--save", ""], args].concat())
}

fn start_with(file: Option<&Path>, args: &[&str]) -> u16 {
    let folder = tempfile::tempdir().unwrap().keep();
    for _ in 0..5 {
        let port = free_port();
        let (folder, args) = (folder.clone(), args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>());
        let file = file.map(Path::to_owned);
        // The server is told to die with the thread that started it: that thread must last as long as the tests.
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut server = Command::new("setpriv");
            server.args(["--pdeathsig", "KILL", "redis-server"]).args(file).arg("--port").arg(port.to_string());
            server.args(["--bind", "127.0.0.1", "--loglevel", "warning", "--dir"]).arg(&folder);
            server.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let mut child = server.spawn().expect("redis-server and setpriv are installed (tests/run setup)");
            tell.send(()).unwrap();
            child.wait().unwrap();
        });
        told.recv().unwrap();
        for _ in 0..500 {
            if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return port;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    panic!("redis-server did not start");
}

/// The URL of the server that most tests share.
pub(super) fn shared() -> &'static str {
    static URL: OnceLock<String> = OnceLock::new();
    URL.get_or_init(|| {
        let port = start(&["--appendonly", "yes", "--appendfsync", "everysec"]);
        format!("redis://127.0.0.1:{port}")
    })
}

/// The URL of a Cluster of three primaries that the tests share.
pub(in crate::redis) fn cluster() -> &'static str {
    static URL: OnceLock<String> = OnceLock::new();
    URL.get_or_init(|| {
        let nodes = make_cluster(0);
        format!("redis-cluster://{}", nodes.join(","))
    })
}

/// Three primaries with so many replicas each; all addresses, primaries first.
pub(super) fn make_cluster(replicas: usize) -> Vec<String> {
    let args = ["--appendonly", "yes", "--cluster-enabled", "yes", "--cluster-node-timeout", "2000"];
    let more = ["--repl-diskless-sync-delay", "0"];
    let args = [&args[..], &more].concat();
    let nodes: Vec<String> = (0..3 * (1 + replicas)).map(|_| format!("127.0.0.1:{}", start(&args))).collect();
    let mut create = Command::new("redis-cli");
    create.args(["--cluster", "create"]).args(&nodes).arg("--cluster-replicas").arg(replicas.to_string());
    let made = create.arg("--cluster-yes").stdin(Stdio::null()).output();
    let made = made.expect("redis-cli is installed (tests/run setup)");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stdout));
    for node in &nodes {
        until_ok(node);
    }
    nodes
}

/// Waits until a node knows the whole Cluster.
fn until_ok(node: &str) {
    let (host, port) = node.split_once(':').unwrap();
    for _ in 0..500 {
        let asked = Command::new("redis-cli").args(["-h", host, "-p", port, "cluster", "info"]).output().unwrap();
        if String::from_utf8_lossy(&asked.stdout).contains("cluster_state:ok") {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{node} does not join its Cluster");
}

/// A server of one test's own, which may be killed and started again in its folder.
pub(super) struct Own {
    folder: tempfile::TempDir,
    port: u16,
    child: std::sync::Mutex<Option<std::process::Child>>,
    args: &'static [&'static str],
}

impl Own {
    pub(super) fn start(args: &'static [&'static str]) -> Self {
        let own =
            Self { folder: tempfile::tempdir().unwrap(), port: free_port(), child: std::sync::Mutex::new(None), args };
        own.again();
        own
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Starts it with what lies in its folder.
    pub(super) fn again(&self) {
        let mut server = Command::new("redis-server");
        server.args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--save", "", "--loglevel", "warning"]);
        server.arg("--dir").arg(self.folder.path()).args(self.args);
        server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        *self.child.lock().unwrap() = Some(server.spawn().expect("redis-server is installed (tests/run setup)"));
        for _ in 0..500 {
            if self.cli(&["ping"]).contains("PONG") {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("redis-server did not start");
    }

    /// Ends it at once, as a power cut does.
    pub(super) fn kill(&self) {
        if let Some(mut child) = self.child.lock().unwrap().take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    pub(super) fn cli(&self, args: &[&str]) -> String {
        let port = self.port.to_string();
        let asked = Command::new("redis-cli").args(["-p", &port]).args(args).output();
        String::from_utf8_lossy(&asked.expect("redis-cli is installed (tests/run setup)").stdout).into_owned()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What a server answers to a command.
pub(super) fn cli(port: u16, args: &[&str]) -> String {
    let mut cli = Command::new("redis-cli");
    let answer = cli.arg("-p").arg(port.to_string()).args(args).stdin(Stdio::null()).output().unwrap();
    String::from_utf8(answer.stdout).unwrap().trim().to_owned()
}

/// Waits until a server's answer holds a text.
pub(super) async fn until_says(port: u16, args: &[&str], text: &str) {
    let mut said = String::new();
    for _ in 0..500 {
        said = cli(port, args);
        if said.contains(text) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("no {text} in {said}");
}

/// Starts a sentinel that watches a primary; answers its port.
pub(super) fn start_sentinel(primary: u16, name: &str, password: &str) -> u16 {
    let folder = tempfile::tempdir().unwrap().keep();
    let file = folder.join("sentinel.conf");
    let text = format!(
        "sentinel monitor {name} 127.0.0.1 {primary} 1\nsentinel auth-pass {name} {password}\n\
         sentinel down-after-milliseconds {name} 500\nsentinel failover-timeout {name} 5000\n"
    );
    std::fs::write(&file, text).unwrap();
    start_with(Some(&file), &["--sentinel"])
}
