//! A whole API in a temporary folder, and a caller.

use async_trait::async_trait;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use axum::response::Response;
use axum::{Router, http};
use longhaul_registry::{
    Connector, ConnectorConfig, Failure, FailureKind, JobRequest, Outputs, PollAnswer, Problem, Registry, Retry,
    StartAnswer, Unit, Usage, UsageSource, resolve,
};
use longhaul_scheduler::tokens::{self, Role};
use longhaul_scheduler::{Api, ApiOptions, ApiParts, router};
use longhaul_store::clock::{Clock, ManualClock};
use longhaul_store::storage::ArtifactStorage;
use longhaul_store::{Committed, Job, NewEvent, SqliteOptions, SqliteStore, Store, Transition};
use longhaul_vendors::{Context, JobVendor, JobView, Prepared, Reply as VendorReply};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;
use tower::ServiceExt;

/// 2026-11-30T12:00:00Z.
pub(crate) const NOON: i64 = 1_796_040_000_000;

/// A module whose pure half is small and whose other half is never asked.
struct Paints;

fn never() -> Failure {
    Failure::new(FailureKind::Internal, Retry::Never, "the scheduler calls no vendor")
}

#[async_trait]
impl JobVendor for Paints {
    fn name(&self) -> &'static str {
        "flux"
    }

    fn prepare(&self, request: &JobRequest, _connector: &Connector) -> Result<Prepared, Vec<Problem>> {
        let width = request.media.width.unwrap_or(1024);
        if width > 2048 {
            let problem = Problem::new("media.width", "not_allowed", "at most 2048").allowed(json!({"max": 2048}));
            return Err(vec![problem]);
        }
        let inputs: Vec<Value> = (0..request.inputs.len()).map(|n| json!({"$input": n})).collect();
        let estimate = Usage {
            record: "estimate".to_owned(),
            unit: Unit::Credits,
            quantity: 4.into(),
            source: UsageSource::Estimated,
            usd: None,
        };
        Ok(Prepared {
            request: json!({"prompt": request.instructions, "width": width, "seed": request.media.seed, "images": inputs}),
            model: Some("flux-2-pro".to_owned()),
            estimate: vec![estimate],
            start_silence: None,
        })
    }

    fn classify(&self, _reply: &VendorReply, _paid: bool) -> Failure {
        never()
    }

    async fn start(&self, _cx: &Context<'_>, _job: &JobView<'_>) -> Result<StartAnswer, Failure> {
        Err(never())
    }

    async fn poll(&self, _cx: &Context<'_>, _job: &JobView<'_>) -> Result<PollAnswer, Failure> {
        Err(never())
    }

    async fn outputs(&self, _cx: &Context<'_>, _job: &JobView<'_>) -> Result<Outputs, Failure> {
        Err(never())
    }
}

/// An API with everything around it.
pub(crate) struct World<S = SqliteStore> {
    pub(crate) dir: TempDir,
    pub(crate) store: Arc<S>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) api: Arc<Api>,
    router: Router,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| panic!("no JSON: {} {}", self.status, String::from_utf8_lossy(&self.body)))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The error's code, after checking that the whole envelope is there.
    #[track_caller]
    pub(crate) fn error(&self) -> (u16, String) {
        let error = self.json()["error"].clone();
        for member in ["code", "message", "hint"] {
            assert!(error[member].as_str().is_some_and(|text| !text.is_empty()), "{member}: {error}");
        }
        assert!(error["problems"].is_array(), "{error}");
        let page = format!("docs/errors/{}.md", error["code"].as_str().unwrap());
        assert_eq!(error["docs"], page.as_str(), "every code has a page");
        assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(&page).is_file(), "{page}");
        (self.status.as_u16(), error["code"].as_str().unwrap().to_owned())
    }

    /// Paths and codes of the problems, in order.
    pub(crate) fn problems(&self) -> Vec<(String, String)> {
        let problems = self.json()["error"]["problems"].as_array().unwrap().clone();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        problems.iter().map(|problem| (text(&problem["path"]), text(&problem["code"]))).collect()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

impl World {
    /// No token needed, as on loopback.
    pub(crate) fn open() -> Self {
        Self::with(|options| options.require_token = false)
    }

    pub(crate) fn with(set: impl FnOnce(&mut ApiOptions)) -> Self {
        Self::at(tempfile::tempdir().unwrap(), SqliteOptions::default(), set)
    }

    pub(crate) fn at(dir: TempDir, sqlite: SqliteOptions, set: impl FnOnce(&mut ApiOptions)) -> Self {
        Self::with_connectors(dir, sqlite, set, &["flux"])
    }

    /// With flux under each of these names, and no other connector.
    pub(crate) fn with_connectors(
        dir: TempDir,
        sqlite: SqliteOptions,
        set: impl FnOnce(&mut ApiOptions),
        names: &[&str],
    ) -> Self {
        let clock = ManualClock::at(NOON);
        let as_clock: Arc<dyn Clock> = clock.clone();
        let store = SqliteStore::open(dir.path().join("longhaul.db"), sqlite, Arc::clone(&as_clock)).unwrap();
        Self::with_store(dir, clock, Arc::new(store), set, names)
    }
}

impl<S: Store> World<S> {
    /// On a store that is there.
    pub(crate) fn with_store(
        dir: TempDir,
        clock: Arc<ManualClock>,
        store: Arc<S>,
        set: impl FnOnce(&mut ApiOptions),
        names: &[&str],
    ) -> Self {
        let mut options = ApiOptions { staging: dir.path().join("artifacts/.staging"), ..ApiOptions::default() };
        set(&mut options);
        let registry = Arc::new(Registry::builtin().unwrap());
        let config: ConnectorConfig =
            serde_json::from_value(json!({"vendor": "flux", "credential": "env:SANDBOX_KEY"})).unwrap();
        let connectors: BTreeMap<_, _> = names
            .iter()
            .map(|name| ((*name).to_owned(), Arc::new(resolve(name, &config, &registry).unwrap())))
            .collect();
        let paints: Arc<dyn JobVendor> = Arc::new(Paints);
        let api = Api::new(ApiParts {
            store: store.clone(),
            registry,
            vendors: BTreeMap::from([("flux".to_owned(), paints)]),
            connectors: Arc::new(connectors),
            storage: storage(dir.path()),
            clock: clock.clone(),
            options,
            metrics_sources: Vec::new(),
            worker: None,
        });
        let router = router(Arc::clone(&api));
        Self { dir, store, clock, api, router }
    }

    pub(crate) async fn token(&self, role: Role, tenant: Option<&str>) -> String {
        let token = tokens::create(&*self.store, role, tenant.map(str::to_owned), Some("test".to_owned())).await;
        token.unwrap().token
    }

    /// Sends a request; the answer's body is still to be read.
    pub(crate) async fn send(&self, request: Request<Body>) -> Response {
        self.router.clone().oneshot(request).await.unwrap()
    }

    pub(crate) async fn call(&self, request: Request<Body>) -> Reply {
        let response = self.send(request).await;
        let (parts, body) = response.into_parts();
        let body = to_bytes(body, usize::MAX).await.unwrap().to_vec();
        Reply { status: parts.status, headers: parts.headers, body }
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.call(Request::get(path).body(Body::empty()).unwrap()).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Reply {
        self.post_text(path, &body.to_string()).await
    }

    pub(crate) async fn post_text(&self, path: &str, body: &str) -> Reply {
        self.call(Request::post(path).body(Body::from(body.to_owned())).unwrap()).await
    }

    /// With a token, a key, or both.
    pub(crate) async fn post_as(&self, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let mut request = Request::post(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.call(request.body(Body::from(body.to_owned())).unwrap()).await
    }

    pub(crate) async fn get_as(&self, path: &str, headers: &[(&str, &str)]) -> Reply {
        let mut request = Request::get(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.call(request.body(Body::empty()).unwrap()).await
    }

    /// Submits a plain job and answers its id.
    pub(crate) async fn job(&self) -> String {
        let reply = self.post("/v1/jobs", &painting()).await;
        assert_eq!(reply.status, http::StatusCode::CREATED, "{}", reply.text());
        reply.json()["id"].as_str().unwrap().to_owned()
    }

    /// Changes a job as an engine would, with its history.
    pub(crate) async fn change(&self, id: &str, change: impl FnOnce(&mut Job), events: Vec<NewEvent>) {
        let record = self.store.get(id).await.unwrap().unwrap();
        let mut transition = Transition::to(record.job);
        change(&mut transition.job);
        transition.events = events;
        let done = self.store.apply(id, record.rev, transition).await.unwrap();
        assert!(matches!(done, Committed::Done(..)), "{done:?}");
    }

    pub(crate) async fn metric(&self, line: &str) -> bool {
        let page = self.get("/metrics").await.text();
        page.lines().any(|one| one == line)
    }
}

pub(crate) fn storage(dir: &Path) -> ArtifactStorage {
    ArtifactStorage::open(&format!("file:{}", dir.join("artifacts").display()), |_| None).unwrap()
}

/// A job that flux can do.
pub(crate) fn painting() -> Value {
    json!({"connector": "flux", "task": "image", "instructions": "one blue cup", "media": {"width": 512, "height": 512}})
}

pub(crate) fn event(kind: &str, data: Value) -> NewEvent {
    NewEvent { kind: kind.to_owned(), step: None, data }
}

pub(crate) fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}
