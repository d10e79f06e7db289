//! The sockets: an accept loop whose connections can be cut on purpose.
//!
//! A fault such as "the request was read and then the connection died" is only worth testing against when the
//! socket really dies. Every accepted connection carries a [`Wire`] handle; a handler that wants its connection
//! cut says so there, and the next write fails, which makes the HTTP server drop the socket without an answer.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll};

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The peer sees an orderly end of the stream (FIN).
    Fin,
    /// The peer sees a reset (RST).
    Reset,
}

const OPEN: u8 = 0;
const FIN: u8 = 1;
const RESET: u8 = 2;

#[derive(Debug)]
struct Shared {
    number: u64,
    requests: AtomicU32,
    cut: AtomicU8,
    written: AtomicU64,
    moved: Notify,
}

/// A handle on one accepted connection, found in the request's `ConnectInfo`.
#[derive(Debug, Clone)]
pub(crate) struct Wire(Arc<Shared>);

impl Wire {
    fn new(number: u64) -> Self {
        Self(Arc::new(Shared {
            number,
            requests: AtomicU32::new(0),
            cut: AtomicU8::new(OPEN),
            written: AtomicU64::new(0),
            moved: Notify::new(),
        }))
    }

    /// The number of this connection, counted from 1 for each listener.
    #[must_use]
    pub(crate) fn number(&self) -> u64 {
        self.0.number
    }

    /// Counts one more request on this connection and says which it is, from 1.
    pub(crate) fn next_request(&self) -> u32 {
        self.0.requests.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Makes every further write fail, so that the server drops the socket.
    pub(crate) fn cut(&self, how: Cut) {
        let state = match how {
            Cut::Fin => FIN,
            Cut::Reset => RESET,
        };
        self.0.cut.store(state, Ordering::SeqCst);
        self.0.moved.notify_waiters();
    }

    /// Bytes handed to the kernel on this connection so far.
    #[must_use]
    pub(crate) fn written(&self) -> u64 {
        self.0.written.load(Ordering::SeqCst)
    }

    /// Waits until at least `bytes` have been handed to the kernel on this connection.
    pub(crate) async fn wait_written(&self, bytes: u64) {
        loop {
            let moved = self.0.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            if self.written() >= bytes || self.0.cut.load(Ordering::SeqCst) != OPEN {
                return;
            }
            moved.await;
        }
    }
}

impl Connected<IncomingStream<'_, FaultListener>> for Wire {
    fn connect_info(stream: IncomingStream<'_, FaultListener>) -> Self {
        stream.io().wire.clone()
    }
}

/// A TCP listener whose connections can be cut.
#[derive(Debug)]
pub(crate) struct FaultListener {
    inner: TcpListener,
    accepted: u64,
}

impl FaultListener {
    /// Wraps a bound listener.
    #[must_use]
    pub(crate) fn new(inner: TcpListener) -> Self {
        Self { inner, accepted: 0 }
    }
}

impl Listener for FaultListener {
    type Io = FaultIo;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (FaultIo, SocketAddr) {
        // The wrapped listener's own accept logs and waits on passing errors such as too many open files.
        let (stream, address) = Listener::accept(&mut self.inner).await;
        let _ = stream.set_nodelay(true);
        self.accepted += 1;
        (FaultIo { stream, wire: Wire::new(self.accepted) }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }
}

/// One accepted connection.
#[derive(Debug)]
pub(crate) struct FaultIo {
    stream: TcpStream,
    wire: Wire,
}

impl FaultIo {
    fn check_cut(&self) -> io::Result<()> {
        match self.wire.0.cut.load(Ordering::SeqCst) {
            OPEN => Ok(()),
            FIN => Err(io::Error::new(io::ErrorKind::BrokenPipe, "cut on purpose")),
            _ => {
                // With a linger of zero the close that follows sends RST instead of FIN.
                self.stream.set_zero_linger()?;
                Err(io::Error::new(io::ErrorKind::ConnectionReset, "reset on purpose"))
            }
        }
    }

    fn count(&self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(n)) = written {
            self.wire.0.written.fetch_add(u64::try_from(*n).unwrap_or(0), Ordering::SeqCst);
            self.wire.0.moved.notify_waiters();
        }
    }
}

impl AsyncRead for FaultIo {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for FaultIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.check_cut()?;
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.count(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check_cut()?;
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.count(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check_cut()?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check_cut()?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
