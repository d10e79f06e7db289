//! Those who submit jobs and send signals.

use super::chance::Chance;
use super::module::VENDOR;
use super::shaky::ShakyStore;
use super::vendor::Class;
use super::world::{Gate, World};
use longhaul_registry::{AnswerBody, Connector, JobRequest, Step};
use longhaul_store::{
    Committed, Decision, Estimate, Job, JobBody, JobState, NewEvent, Rules, Signal, Store, Submission, Submitted,
    receive,
};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// Tries of a signal whose answer is lost.
const TRIES: u32 = 5;

/// A client of the API.
pub(super) struct People {
    world: Arc<World>,
    store: Arc<ShakyStore>,
    connectors: Arc<BTreeMap<String, Arc<Connector>>>,
}

impl People {
    pub(super) fn new(world: &Arc<World>, connectors: &Arc<BTreeMap<String, Arc<Connector>>>) -> Self {
        let store = ShakyStore::new(world, &Gate::new("people", 0));
        Self { world: world.clone(), store, connectors: connectors.clone() }
    }

    /// Submits a job under a key until that is acknowledged.
    pub(super) async fn submit(&self, nth: u64, class: Class, chance: &mut Chance) {
        let unknown = if chance.permille(200) { "give_up" } else { "park" };
        let mut request = json!({
            "connector": class.name(), "task": "image", "instructions": format!("picture {nth}"),
            "limits": {"max_minutes": chance.from(1..4), "question_minutes": 1}, "on_unknown_start": unknown,
        });
        if chance.permille(500) {
            request["notify"] = json!({"url": "https://orchestrator.example/hooks", "events": ["job.finished"]});
        }
        let Ok(request) = serde_json::from_value::<JobRequest>(request) else {
            self.world.wrong("the request of the simulation is none");
            return;
        };
        let key = format!("key-{nth}");
        for again in 0.. {
            let job = Job::queued(format!("job_{nth}_{again}"), "default".to_owned(), VENDOR.to_owned(), &request);
            let body = JobBody {
                request: request.clone(),
                prepared: json!({"n": nth}),
                model: None,
                start_silence: None,
                estimate: Estimate::default(),
            };
            let events = vec![NewEvent { kind: "state".to_owned(), step: None, data: json!({"to": "queued"}) }];
            let idempotency = Some((key.clone(), "hash".to_owned()));
            let one = Submission { job, body, idempotency, output_path: None, events, usage: Vec::new() };
            match self.store.submit(vec![one]).await.map(|mut all| all.pop()) {
                Ok(Some(Submitted::New(job) | Submitted::Same(job))) => {
                    self.world.note(|| format!("{} is taken in for {key}", job.id));
                    self.world.inner().acknowledged.insert(key, job.id.clone());
                    return;
                }
                Ok(other) => return self.world.wrong(format!("a submit was answered {other:?}")),
                Err(_) => sleep(Duration::from_millis(300)).await,
            }
        }
    }

    /// Sends one signal that fits a job, or does not.
    pub(super) async fn meddle(&self, chance: &mut Chance) {
        let jobs: Vec<Job> = self.world.store.look(|state| state.rows.values().map(|row| row.job.clone()).collect());
        let Some(job) = chance.pick(&jobs) else { return };
        let Some(signal) = self.fitting(&job, chance) else { return };
        self.signal(&job.id, signal).await;
    }

    /// Answers every question that stands.
    pub(super) async fn answer_all(&self) {
        let jobs: Vec<Job> = self.world.store.look(|state| state.rows.values().map(|row| row.job.clone()).collect());
        for job in jobs {
            if let Some(answer) = answer(&job) {
                self.signal(&job.id, answer).await;
            }
        }
    }

    async fn signal(&self, id: &str, signal: Signal) {
        let revives = matches!(
            signal,
            Signal::Replay { from: Step::Poll, .. } | Signal::Resolve { decision: Decision::Ran { .. }, .. }
        );
        for _ in 0..TRIES {
            let Ok(Some(record)) = self.store.get(id).await else { continue };
            let Some(connector) = self.connectors.get(&record.job.connector) else { return };
            let now_ms = self.world.now_ms();
            let rules =
                Rules { connector, body: &record.body, now_ms, dice: crate::dice(), outlook: None, outage: false };
            let transition = match receive(&record.job, signal.clone(), rules) {
                Ok(transition) => transition,
                Err(refusal) => {
                    self.world.note(|| format!("{signal:?} to {id}: refused, {}", refusal.code));
                    return;
                }
            };
            if revives {
                self.world.inner().revived.insert(id.to_owned());
            }
            match self.store.apply(id, record.rev, transition).await {
                Ok(Committed::Done(job, _)) => {
                    self.world.note(|| format!("{signal:?} to {id} is acknowledged"));
                    if matches!(signal, Signal::Cancel { .. }) {
                        self.world.inner().cancelled.insert(id.to_owned(), job.seq);
                    }
                    return;
                }
                Ok(Committed::Lost | Committed::Taken) => return,
                Ok(Committed::Changed(..)) | Err(_) => {}
            }
        }
    }
}

fn by() -> String {
    "a person".to_owned()
}

fn answer(job: &Job) -> Option<Signal> {
    let open = job.question.as_ref()?;
    let body = AnswerBody::Text("that one".to_owned());
    Some(Signal::Answer { question_id: open.question.id.clone(), body, by: by() })
}

fn replay(from: Step, accept_cost: bool) -> Signal {
    Signal::Replay { from, reason: "again".to_owned(), accept_cost, by: by() }
}

impl People {
    /// What somebody might do about a job now.
    fn fitting(&self, job: &Job, chance: &mut Chance) -> Option<Signal> {
        let cancel = || Signal::Cancel { reason: None, by: by() };
        match job.state {
            JobState::NeedsInput if chance.permille(700) => answer(job),
            JobState::Queued | JobState::Starting | JobState::Running | JobState::NeedsInput | JobState::Collecting => {
                Some(if chance.permille(800) { cancel() } else { Signal::Hint })
            }
            JobState::Parked => {
                let decision = match chance.from(0..6) {
                    // What the vendor's own list shows a person.
                    5 => Decision::Ran { vendor_job_id: self.world.inner().books.known_as(job)? },
                    0 => Decision::GiveUp,
                    1 => Decision::StartAgain { accept_cost: true },
                    2 => Decision::StartAgain { accept_cost: false },
                    3 => return Some(cancel()),
                    _ => return Some(replay(Step::Poll, false)),
                };
                Some(Signal::Resolve { decision, by: by() })
            }
            JobState::Succeeded | JobState::Failed | JobState::Cancelled | JobState::LimitExceeded => {
                let from = chance.pick(&[Step::Poll, Step::Outputs, Step::Start])?;
                chance.permille(300).then(|| replay(from, chance.permille(700)))
            }
        }
    }
}
