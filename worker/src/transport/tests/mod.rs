//! The transport against real sockets on loopback: scripted servers, and a canary that nobody may touch.

mod calls;
mod downloads;
mod guarding;
mod paid;
mod secrets;
mod server;
mod tls;

use super::*;
use crate::guard::{GuardConfig, Limits, Lookup, Observer};
use crate::testing::connector;
use async_trait::async_trait;
use longhaul_registry::Step;
use longhaul_store::RawExchange;
use longhaul_store::clock::{Clock, ManualClock};
use server::{Act, Seen, Server, answer};
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const KEY: &str = "sandbox-CANARY-51f0c2";

/// 2026-11-30 07:28:00 UTC.
const NOW_MS: i64 = 1_796_023_680_000;

#[derive(Default)]
struct Events(Mutex<Vec<(String, WireEvent)>>);

impl Events {
    fn count(&self, event: WireEvent) -> usize {
        self.0.lock().unwrap().iter().filter(|(_, seen)| *seen == event).count()
    }
}

impl Observer for Events {
    fn saw(&self, vendor: &str, event: WireEvent) {
        self.0.lock().unwrap().push((vendor.to_owned(), event));
    }
}

/// A name service with a table; unknown names do not exist. It counts the questions.
#[derive(Default)]
struct Names {
    table: HashMap<&'static str, Vec<IpAddr>>,
    asked: AtomicUsize,
}

impl Lookup for Names {
    fn lookup<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let found = self.table.get(name).cloned();
        Box::pin(async move { found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such name")) })
    }
}

struct NoArtifacts;

#[async_trait]
impl ArtifactInputs for NoArtifacts {
    async fn artifact(&self, id: &str) -> Result<InputData, Failure> {
        Ok(InputData { mime: "image/png".to_owned(), name: Some(format!("{id}.png")), data: "picture".into() })
    }
}

/// What a test sets before its transport is built.
struct Setup {
    connector: Connector,
    limits: Limits,
    names: Arc<Names>,
    max_bytes: u64,
    inputs: Vec<Input>,
    key: String,
    h2_only: bool,
    roots: Vec<rustls::pki_types::CertificateDer<'static>>,
}

impl Setup {
    /// A connector of a base URL on loopback that is opened to it.
    fn at(base: &str) -> Self {
        let mut connector = connector(base);
        connector.allow_private_network = true;
        Self {
            connector,
            limits: Limits::default(),
            names: Arc::default(),
            max_bytes: 1 << 30,
            inputs: Vec::new(),
            key: KEY.to_owned(),
            h2_only: false,
            roots: Vec::new(),
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn build(self) -> Kit {
        let events = Arc::new(Events::default());
        let observer: Arc<dyn Observer> = Arc::clone(&events) as _;
        let clock: Arc<dyn Clock> = ManualClock::at(NOW_MS);
        let config = GuardConfig {
            limits: self.limits,
            lookup: self.names,
            observer,
            h2_only: self.h2_only,
            extra_roots: self.roots,
        };
        let guard = Arc::new(Guard::new(config, clock).unwrap());
        let folder = tempfile::tempdir().unwrap();
        let fixed = self.connector.vendor.headers.keys().cloned().collect::<Vec<_>>();
        let recorder = Arc::new(Recorder::new(Step::Poll, "1", fixed));
        let key = self.key;
        let transport = WorkerTransport::new(TransportParts {
            guard: Arc::clone(&guard),
            connector: Arc::new(self.connector),
            credentials: Credentials::new(Arc::new(move |name| (name == "KEY").then(|| key.clone()))),
            recorder: Arc::clone(&recorder),
            staging: Arc::new(FolderStaging { folder: folder.path().to_owned() }),
            max_bytes: self.max_bytes,
            inputs: self.inputs,
            artifacts: Arc::new(NoArtifacts),
        });
        Kit { transport: transport.unwrap(), recorder, events, guard, folder }
    }
}

/// A transport and what a test looks at afterwards.
struct Kit {
    transport: WorkerTransport,
    recorder: Arc<Recorder>,
    events: Arc<Events>,
    guard: Arc<Guard>,
    folder: tempfile::TempDir,
}

impl Kit {
    fn at(base: &str) -> Self {
        Setup::at(base).build()
    }

    async fn call(&self, call: Call) -> Result<Reply, Failure> {
        self.transport.call(call).await
    }

    fn staged(&self, staged: &StagedBody) -> Vec<u8> {
        std::fs::read(self.folder.path().join(&staged.token)).unwrap()
    }

    fn staged_files(&self) -> usize {
        std::fs::read_dir(self.folder.path()).unwrap().count()
    }

    fn exchanges(&self) -> Vec<RawExchange> {
        self.recorder.take()
    }
}

fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Deadlines for tests in which one is to pass.
fn short(limits: &mut Limits) {
    *limits =
        Limits { connect: millis(300), silence: millis(150), whole: millis(600), transfer: millis(2000), ..*limits };
}
