//! A scripted HTTP/1.1 server over raw sockets: what a well-behaved library would not do is the point.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// One request as it was read.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// Request line and headers, as they came.
    pub(super) head: String,
    pub(super) body: Vec<u8>,
    /// Which connection brought it, from 0.
    pub(super) connection: usize,
    /// Which request of the server it is, from 0.
    pub(super) number: usize,
}

impl Seen {
    pub(super) fn line(&self) -> &str {
        self.head.lines().next().unwrap()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then_some(value)
        })
    }
}

/// What the server does once it has read a request.
pub(super) enum Act {
    /// Answers and keeps the connection.
    Say(Vec<u8>),
    /// Answers and ends the connection, the answer whole or not.
    SayAndClose(Vec<u8>),
    /// Ends the connection.
    Close,
    /// Ends it with a reset.
    Reset,
    /// Says this, then nothing, and keeps the connection.
    SayAndHang(Vec<u8>),
    /// Says these pieces with a pause after each.
    Trickle(Vec<Vec<u8>>, Duration),
}

/// A whole answer.
pub(super) fn answer(status: &str, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let mut out = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        out.push_str(&format!("{name}: {value}\r\n"));
    }
    out.push_str("\r\n");
    let mut out = out.into_bytes();
    out.extend_from_slice(body);
    out
}

/// The server; it ends with the test.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    connections: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub(super) async fn start(script: impl Fn(&Seen) -> Act + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, connections) = (Arc::default(), Arc::new(AtomicUsize::new(0)));
        let (script, log, count) = (Arc::new(script), Arc::clone(&seen), Arc::clone(&connections));
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let connection = count.fetch_add(1, Ordering::SeqCst);
                let (script, log) = (Arc::clone(&script), Arc::clone(&log));
                tokio::spawn(async move { serve(stream, connection, &*script, &log).await });
            }
        });
        Self { address, seen, connections, task }
    }

    /// A listener that nobody may reach.
    pub(super) async fn canary() -> Self {
        Self::start(|_| Act::Say(answer("200 OK", &[], "canary"))).await
    }

    /// Proves that the canary would have noticed, and that nobody was there before.
    pub(super) async fn assert_untouched(&self) {
        assert_eq!(self.connections(), 0, "the canary was reached: {:?}", self.seen());
        drop(TcpStream::connect(self.address).await.unwrap());
        while self.connections() == 0 {
            tokio::task::yield_now().await;
        }
    }

    pub(super) fn base(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn serve(
    mut stream: TcpStream,
    connection: usize,
    script: &(dyn Fn(&Seen) -> Act + Send + Sync),
    log: &Mutex<Vec<Seen>>,
) {
    let mut buffer = Vec::new();
    while let Some((head, body)) = read_request(&mut stream, &mut buffer).await {
        let seen = {
            let mut log = log.lock().unwrap();
            let seen = Seen { head, body, connection, number: log.len() };
            log.push(seen.clone());
            seen
        };
        match script(&seen) {
            Act::Say(bytes) => {
                if stream.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            Act::SayAndClose(bytes) => {
                let _ = stream.write_all(&bytes).await;
                let _ = stream.shutdown().await;
                return;
            }
            Act::Close => {
                let _ = stream.shutdown().await;
                return;
            }
            Act::Reset => {
                stream.set_zero_linger().unwrap();
                return;
            }
            Act::SayAndHang(bytes) => {
                let _ = stream.write_all(&bytes).await;
                std::future::pending::<()>().await;
            }
            Act::Trickle(pieces, pause) => {
                for piece in pieces {
                    if stream.write_all(&piece).await.is_err() {
                        return;
                    }
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }
}

async fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<(String, Vec<u8>)> {
    let end = loop {
        if let Some(at) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break at;
        }
        // A TLS hello (record type 22) is no request: the connection ends.
        if stream.read_buf(buffer).await.ok()? == 0 || buffer.first() == Some(&22) {
            return None;
        }
    };
    let head = String::from_utf8(buffer.drain(..end + 4).collect()).ok()?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().unwrap())
    });
    let length = length.unwrap_or(0);
    while buffer.len() < length {
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    Some((head, buffer.drain(..length).collect()))
}
