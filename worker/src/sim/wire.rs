//! The way to the vendor, as rough as a run wants it: calls that never leave, never arrive, are never answered.

use super::module::VENDOR;
use super::plant::Plant;
use super::vendor::{Class, Said};
use super::world::{Gate, Pulse, World};
use crate::chores::{ChoreHands, Delivery};
use crate::leases::Fence;
use crate::runner::{Collect, Collecting, Session, Wire};
use crate::transport::Downloaded;
use crate::wire::{changes, lease_ran_out};
use async_trait::async_trait;
use bytes::Bytes;
use http::HeaderMap;
use longhaul_registry::{ArtifactDraft, Collected, Connector, DraftSource, Failure, FailureKind, Retry, Step};
use longhaul_store::advance::derived_uuid;
use longhaul_store::{Artifact, Job, JobBody, RawExchange};
use longhaul_vendors::{BoxFuture, Call, CallBody, InputData, Reply, StagedBody, Transport};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

/// How long a call may stay silent.
const SILENCE: Duration = Duration::from_secs(10);

/// One worker's way out.
pub(super) struct SimWire {
    pub(super) world: Arc<World>,
    pub(super) gate: Arc<Gate>,
}

struct SimSession {
    world: Arc<World>,
    gate: Arc<Gate>,
    class: Class,
    job: String,
    fence: Fence,
    requests: AtomicU32,
}

impl Wire for SimWire {
    fn open(
        &self,
        connector: &Arc<Connector>,
        job: &Job,
        _: &Arc<JobBody>,
        _: Step,
        _: &'static str,
        fence: Fence,
    ) -> Result<Arc<dyn Session>, Failure> {
        Ok(Arc::new(SimSession {
            world: self.world.clone(),
            gate: self.gate.clone(),
            class: Class::of(&connector.name),
            job: job.id.clone(),
            fence,
            requests: AtomicU32::new(0),
        }))
    }
}

/// What becomes of one call on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Good,
    /// No connection.
    Unsent,
    /// Cut before the vendor read it.
    Unread,
    /// Cut after the vendor read it.
    Unanswered,
    /// Read, and answered too late.
    Silent,
    /// The vendor's door refuses it unread, with this status.
    Door(u16),
    /// Read and taken, and something in between answers 502.
    Masked,
}

impl SimSession {
    fn way(&self) -> (Way, Duration, Duration) {
        let mut inner = self.world.inner();
        let rough = inner.rough;
        let chance = &mut inner.network;
        let (there, back) = (chance.ms(5..60), chance.ms(5..200));
        if chance.permille(rough.network) {
            let way = [Way::Unsent, Way::Unread, Way::Unanswered, Way::Unanswered, Way::Silent, Way::Masked];
            let slow = chance.permille(300);
            let there = if slow { chance.ms(100..900) } else { there };
            return (chance.pick(&way).unwrap_or(Way::Good), there, back);
        }
        if chance.permille(rough.vendor) {
            let door = [429, 429, 429, 503, 503, 500, 402, 401].map(Way::Door);
            return (chance.pick(&door).unwrap_or(Way::Good), there, back);
        }
        let slow = chance.permille(rough.network);
        (Way::Good, there, if slow { chance.ms(1_000..8_000) } else { back })
    }

    /// Gives a call to the vendor; it goes on whatever becomes of whoever sent it.
    fn send(
        &self,
        route: &'static str,
        body: Value,
        way: Way,
        there: Duration,
        back: Duration,
    ) -> oneshot::Receiver<Said> {
        let (tell, told) = oneshot::channel();
        let (world, class, job) = (self.world.clone(), self.class, self.job.clone());
        tokio::spawn(async move {
            sleep(there).await;
            let read = !matches!(way, Way::Unsent | Way::Unread | Way::Door(_));
            let said = if read { world.serve(class, route, &body) } else { (502, Value::Null) };
            world.note(|| format!("vendor {route} of {job}: {way:?} {said:?}"));
            let said = match way {
                Way::Door(status) => (status, Value::Null),
                Way::Masked => (502, Value::Null),
                Way::Good | Way::Silent => said,
                // Nobody hears of it.
                Way::Unsent | Way::Unread | Way::Unanswered => return,
            };
            sleep(if way == Way::Silent { SILENCE * 2 } else { back }).await;
            let _ = tell.send(said);
        });
        told
    }

    async fn exchange(&self, call: Call) -> Result<Reply, Failure> {
        self.gate.pass().await;
        if call.route == "poll" && self.world.inner().poison.is_some_and(|poison| self.job.starts_with(poison)) {
            self.world.note(|| format!("{} dies of {}", self.gate.name, self.job));
            self.gate.set(Pulse::Dead);
            self.gate.pass().await;
        }
        if changes(&call) {
            if !self.fence.holds() && !self.world.has(Plant::FenceUnchecked) {
                return Err(lease_ran_out());
            }
            self.world.leaves(&self.gate.name, &self.job);
        }
        self.requests.fetch_add(1, Ordering::Relaxed);
        let changes_free = changes(&call) && !call.paid;
        let CallBody::Json(body) = call.body else {
            return Err(Failure::new(FailureKind::Internal, Retry::Never, "every call here has a JSON body"));
        };
        let (way, mut there, back) = self.way();
        if changes_free {
            // What is still on its way when its lease ends is beyond anybody's reach: an answer must not be for long.
            there = there.min(Duration::from_millis(50));
        }
        if way == Way::Unsent {
            sleep(there).await;
            self.gate.pass().await;
            let mut failure = Failure::new(FailureKind::Network, Retry::Backoff, "no connection");
            failure.unsent = true;
            return Err(failure);
        }
        let told = self.send(call.route, body, way, there, back);
        let heard = timeout(SILENCE, told).await;
        self.gate.pass().await;
        let lost = |kind, why: &str| Failure::new(kind, if call.paid { Retry::Unknown } else { Retry::Backoff }, why);
        match heard {
            Ok(Ok((status, body))) => Ok(reply(status, &body)),
            Ok(Err(_)) => Err(lost(FailureKind::Network, "the connection was cut")),
            Err(_) => Err(lost(FailureKind::Timeout, "the vendor stayed silent")),
        }
    }
}

fn reply(status: u16, body: &Value) -> Reply {
    let body = Bytes::from(body.to_string());
    let retry_after = matches!(status, 429 | 402).then_some(Duration::from_secs(3));
    Reply { status, headers: HeaderMap::new(), body, staged: None, retry_after }
}

impl World {
    /// The vendor reads a call.
    fn serve(&self, class: Class, route: &str, body: &Value) -> Said {
        let now = self.ms();
        let (said, wrong) = {
            let mut inner = self.inner();
            let said = inner.books.serve(self.seed, self.has(Plant::KeysIgnored), class, route, body, now);
            (said, std::mem::take(&mut inner.books.wrong))
        };
        wrong.into_iter().for_each(|wrong| self.wrong(wrong));
        if route == "start" {
            self.count_in_flight(class);
        }
        said
    }

    /// A call that changes something leaves a worker: the lease must be its own in the store too.
    fn leaves(&self, worker: &str, job: &str) {
        let now_ms = self.now_ms();
        let held = self.store.look(|state| {
            state.rows.get(job).is_some_and(|row| row.owner.as_deref() == Some(worker) && row.lease_until > now_ms)
        });
        if !held {
            self.wrong(format!("a call for {job} left {worker}, whose lease had ended"));
        }
    }
}

impl Transport for SimSession {
    fn call<'a>(&'a self, call: Call) -> BoxFuture<'a, Result<Reply, Failure>> {
        Box::pin(self.exchange(call))
    }

    fn input<'a>(&'a self, _: usize) -> BoxFuture<'a, Result<InputData, Failure>> {
        Box::pin(async { Err(Failure::new(FailureKind::Internal, Retry::Never, "jobs have no inputs here")) })
    }
}

#[async_trait]
impl Session for SimSession {
    fn take_exchanges(&self) -> Vec<RawExchange> {
        Vec::new()
    }

    fn take_requests(&self) -> u32 {
        self.requests.swap(0, Ordering::Relaxed)
    }

    fn as_transport(&self) -> &dyn Transport {
        self
    }

    async fn download(&self, url: &str, _: bool) -> Result<Downloaded, Failure> {
        self.gate.pass().await;
        let (way, there, back) = self.way();
        sleep(there + back).await;
        self.gate.pass().await;
        match way {
            Way::Good | Way::Silent => {}
            Way::Door(status) => {
                let failure = Failure::new(FailureKind::OutputExpired, Retry::Backoff, "the link is dead");
                return Err(failure.vendor_code(status.to_string()));
            }
            Way::Unsent | Way::Unread | Way::Unanswered | Way::Masked => {
                return Err(Failure::new(FailureKind::Network, Retry::Backoff, "the download was cut"));
            }
        }
        let bytes = u64::try_from(url.len()).unwrap_or(0);
        Ok(Downloaded {
            staged: StagedBody { token: url.to_owned(), bytes },
            content_type: None,
            content_disposition: None,
            sha256: url.to_owned(),
            host: "files.acme.test".to_owned(),
        })
    }
}

/// Fetches outputs; an artifact's hash is its content here.
pub(super) struct SimCollect {
    pub(super) world: Arc<World>,
}

#[async_trait]
impl Collect for SimCollect {
    async fn collect(&self, session: Arc<dyn Session>, what: Collecting<'_>) -> Result<Collected<Artifact>, Failure> {
        let mut artifacts = Vec::new();
        for (nth, draft) in what.drafts.iter().enumerate() {
            let sha256 = match &draft.source {
                DraftSource::Url { .. } if self.world.has(Plant::OutputsUnfetched) => "a link".to_owned(),
                DraftSource::Url { url, with_key } => session.download(url, *with_key).await?.sha256,
                DraftSource::Text { text } => text.clone(),
                other => format!("{other:?}"),
            };
            artifacts.push(artifact(what.job, nth, draft, sha256));
        }
        let nothing = || Failure::new(FailureKind::OutputEmpty, Retry::Backoff, "nothing to show for it");
        let failure = artifacts.is_empty().then(nothing);
        Ok(Collected { artifacts, failure, report: what.report })
    }
}

fn artifact(job: &Job, nth: usize, draft: &ArtifactDraft, sha256: String) -> Artifact {
    Artifact {
        id: format!("art_{}", derived_uuid(&format!("{}/{}/{nth}", job.id, job.attempt)).replace('-', "")),
        job: Some(job.id.clone()),
        tenant: job.tenant.clone(),
        role: draft.role.clone(),
        name: "image".to_owned(),
        path: format!("jobs/{}/{nth}", job.id),
        mime: "image/png".to_owned(),
        bytes: u64::try_from(sha256.len()).unwrap_or(0),
        sha256,
        spec: None,
        spec_check: None,
        source: json!({"vendor": VENDOR, "index": nth}),
    }
}

/// Performs chores.
pub(super) struct SimHands {
    pub(super) world: Arc<World>,
    pub(super) gate: Arc<Gate>,
}

#[async_trait]
impl ChoreHands for SimHands {
    async fn deliver(&self, delivery: &Delivery) -> Result<(), Failure> {
        self.gate.pass().await;
        let lost = {
            let mut inner = self.world.inner();
            let rough = inner.rough.network;
            inner.network.permille(rough)
        };
        if lost {
            return Err(Failure::new(FailureKind::Network, Retry::Backoff, "the receiver is away"));
        }
        self.world.note(|| format!("notified {}", delivery.id));
        if delivery.body.contains("\"job.finished\"") {
            self.world.inner().delivered.insert(delivery.id.clone());
        }
        self.gate.pass().await;
        Ok(())
    }

    async fn check(&self, _: &Arc<Connector>) -> Result<(), Failure> {
        self.gate.pass().await;
        Ok(())
    }
}
