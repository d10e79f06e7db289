//! A sandbox on loopback with a clock that is turned by hand, and a small HTTP client that shows what the wire did.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use longhaul_sandbox::{Books, Options, Sandbox};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// 2026-11-30T10:00:00Z.
pub(crate) const START_MS: i64 = 1_796_032_800_000;

pub(crate) struct Rig {
    pub(crate) sandbox: Sandbox,
    pub(crate) base: String,
    pub(crate) address: String,
    clock: Arc<AtomicI64>,
    stop: Option<oneshot::Sender<()>>,
}

impl Rig {
    pub(crate) async fn new() -> Self {
        Self::paced(Duration::from_secs(2)).await
    }

    pub(crate) async fn paced(pace: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let base = format!("http://{address}");
        let clock = Arc::new(AtomicI64::new(START_MS));
        let hands = Arc::clone(&clock);
        let mut options = Options::new(&base, Arc::new(move || hands.load(Ordering::SeqCst)));
        options.pace = pace;
        let sandbox = Sandbox::new(options);
        let (stop, stopped) = oneshot::channel::<()>();
        let server = sandbox.clone();
        tokio::spawn(async move { server.serve(listener, async { drop(stopped.await) }).await });
        Self { sandbox, base, address, clock, stop: Some(stop) }
    }

    pub(crate) fn advance(&self, by_ms: i64) {
        self.clock.fetch_add(by_ms, Ordering::SeqCst);
    }

    pub(crate) fn books(&self) -> Books {
        self.sandbox.books()
    }

    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
    }

    pub(crate) async fn connect(&self) -> Connection {
        Connection { stream: TcpStream::connect(&self.address).await.unwrap(), left: Vec::new() }
    }

    /// One request on a connection of its own. `target` is a path or a whole URL of this sandbox.
    pub(crate) async fn send(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Answer> {
        let mut connection = self.connect().await;
        let path = target.strip_prefix(&self.base).unwrap_or(target);
        connection.send(method, path, headers, body).await
    }

    pub(crate) async fn ask(&self, method: &str, target: &str, headers: &[(&str, &str)], body: Value) -> Answer {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        self.send(method, target, headers, &body).await.unwrap()
    }

    pub(crate) async fn get(&self, target: &str, headers: &[(&str, &str)]) -> Answer {
        self.ask("GET", target, headers, Value::Null).await
    }

    pub(crate) async fn control(&self, method: &str, path: &str, body: Value) -> Answer {
        self.ask(method, &format!("/_control/{path}"), &[("content-type", "application/json")], body).await
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(have, _)| have == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }
}

/// One kept connection.
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    left: Vec<u8>,
}

impl Connection {
    pub(crate) async fn write(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<()> {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: sandbox\r\ncontent-length: {}\r\n", body.len());
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        self.stream.write_all(&[head.as_bytes(), body].concat()).await
    }

    pub(crate) async fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Answer> {
        self.write(method, path, headers, body).await?;
        self.read().await
    }

    async fn more(&mut self) -> io::Result<usize> {
        let mut piece = vec![0; 64 * 1024];
        let count = self.stream.read(&mut piece).await?;
        self.left.extend_from_slice(&piece[..count]);
        Ok(count)
    }

    async fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.left.windows(2).position(|pair| pair == b"\r\n") {
                let line: Vec<u8> = self.left.drain(..end + 2).collect();
                return Ok(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            if self.more().await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    async fn exactly(&mut self, count: usize) -> io::Result<Vec<u8>> {
        while self.left.len() < count {
            if self.more().await? == 0 {
                let have = self.left.len();
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("{have} of {count} bytes")));
            }
        }
        Ok(self.left.drain(..count).collect())
    }

    pub(crate) async fn read(&mut self) -> io::Result<Answer> {
        let status = self.line().await?;
        let status = status.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap();
        let mut headers = Vec::new();
        loop {
            let line = self.line().await?;
            let Some((name, value)) = line.split_once(": ") else { break };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let mut answer = Answer { status, headers, body: Vec::new() };
        if answer.header("transfer-encoding").is_some() {
            loop {
                let size = usize::from_str_radix(self.line().await?.trim(), 16).unwrap();
                answer.body.extend(self.exactly(size).await?);
                self.line().await?;
                if size == 0 {
                    break;
                }
            }
        } else if let Some(length) = answer.header("content-length").and_then(|text| text.parse().ok()) {
            answer.body = self.exactly(length).await?;
        }
        Ok(answer)
    }
}
