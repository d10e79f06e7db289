//! A real redis-server of a test's own, which can be killed and started again.

use super::{PATIENCE, free_port, within};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::sync::watch;

/// One server with an append-only file.
pub struct Redis {
    port: u16,
    folder: TempDir,
    child: Option<Child>,
    fsync: &'static str,
}

impl Redis {
    /// Starts one.
    pub async fn start() -> Self {
        let mut redis = Self::away().await;
        redis.again().await;
        redis
    }

    /// One that writes its file to disk every second.
    pub async fn everysec() -> Self {
        let mut redis = Self { fsync: "everysec", ..Self::away().await };
        redis.again().await;
        redis
    }

    /// One that is not started yet.
    pub async fn away() -> Self {
        Self { port: free_port().await, folder: tempfile::tempdir().expect("a folder"), child: None, fsync: "always" }
    }

    /// As `[store] url` has it.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// `kill -9`.
    pub async fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.start_kill().expect("kill");
        child.wait().await.expect("it ends");
    }

    /// Starts it, with what its file holds.
    pub async fn again(&mut self) {
        // A test that is killed takes the server with it.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "redis-server", "--port", &self.port.to_string()]);
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "yes", "--appendfsync", self.fsync]);
        command.args(["--loglevel", "warning", "--dir"]).arg(self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        self.child = Some(command.spawn().expect("redis-server and setpriv are there (tests/run setup)"));
        within(PATIENCE, "redis-server answers", async || (self.ask("PING").await? == "+PONG").then_some(())).await;
    }

    /// Another way to it, on which answers can be held up.
    pub async fn slow_way(&self) -> SlowWay {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("redis://{}", listener.local_addr().expect("an address"));
        let way = SlowWay { url, holding: watch::channel(false).0, long: Arc::new(AtomicUsize::new(usize::MAX)) };
        let (port, holding, long) = (self.port, way.holding.clone(), way.long.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { continue };
                let ((asks, answered), (answers, asked)) = (client.into_split(), server.into_split());
                tokio::spawn(pass(asks, asked, None));
                tokio::spawn(pass(answers, answered, Some((holding.clone(), long.clone()))));
            }
        });
        way
    }

    /// One command in one line; the first line of the answer.
    pub async fn ask(&self, command: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.ok()?;
        stream.write_all(format!("{command}\r\n").as_bytes()).await.ok()?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n") {
            answer.push(stream.read_u8().await.ok()?);
        }
        Some(String::from_utf8_lossy(&answer).trim_end().to_owned())
    }
}

/// A way to the server on which requests pass and answers may not.
pub struct SlowWay {
    /// As `[store] url` has it.
    pub url: String,
    holding: watch::Sender<bool>,
    /// Bytes of an answer that is held up.
    long: Arc<AtomicUsize>,
}

impl SlowWay {
    /// The next answer of so many bytes, and every one after it, is held up.
    pub fn hold_at(&self, bytes: usize) {
        self.long.store(bytes, Ordering::Relaxed);
    }

    /// Whether answers are held up now.
    pub fn holds(&self) -> bool {
        *self.holding.borrow()
    }

    /// Answers pass again, those held up first.
    pub fn let_go(&self) {
        self.long.store(usize::MAX, Ordering::Relaxed);
        self.holding.send_replace(false);
    }
}

/// Passes bytes on until one side ends, gathering them while they are held up.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, gate: Option<(watch::Sender<bool>, Arc<AtomicUsize>)>) {
    let (mut gathered, mut piece) = (Vec::new(), vec![0; 16 << 10]);
    let mut holding = gate.as_ref().map(|(holding, _)| holding.subscribe());
    loop {
        let open = async {
            match &mut holding {
                Some(holding) => holding.wait_for(|holding| !holding).await.is_ok(),
                None => true,
            }
        };
        tokio::select! {
            true = open, if !gathered.is_empty() => {
                if to.write_all(&gathered).await.is_err() {
                    return;
                }
                gathered.clear();
            }
            read = from.read(&mut piece) => match read {
                Ok(read) if read > 0 => {
                    gathered.extend_from_slice(&piece[..read]);
                    if let Some((holding, long)) = &gate && read >= long.load(Ordering::Relaxed) {
                        holding.send_replace(true);
                    }
                }
                _ => return,
            },
        }
    }
}
