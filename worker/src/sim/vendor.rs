//! The vendor's side: what was bought, by whom, how it goes and what it costs. Its books are what a run is judged by.

use super::chance::Chance;
use longhaul_registry::LostStart;
use longhaul_store::Job;
use longhaul_store::advance::idempotency_key;
use rust_decimal::Decimal;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Until a record is listed, no longer than this.
const LISTED_WITHIN_MS: u64 = 2_000;
/// What the module waits before it believes a list that lacks a start: the list's lag and the way there.
pub(super) const LIST_LAG_MS: i64 = 4_000;

/// A class of vendor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    /// Honours a key; asks; stops at once.
    Keyed,
    /// Can be searched, and absence proves; a cancel erases the record.
    Proven,
    /// Can be searched, and absence proves nothing; a cancel is a wish.
    Unproven,
    /// Neither key nor search, and no cancel.
    Blind,
    /// Two phases: a free session, then the paid run in it; the session tells whether it runs.
    Staged,
    /// The answer to the start carries the outputs; can be searched.
    Synchronous,
}

impl Class {
    pub(super) const ALL: [Class; 6] =
        [Self::Keyed, Self::Proven, Self::Unproven, Self::Blind, Self::Staged, Self::Synchronous];

    /// The connector's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Keyed => "keyed",
            Self::Proven => "proven",
            Self::Unproven => "unproven",
            Self::Blind => "blind",
            Self::Staged => "staged",
            Self::Synchronous => "synchronous",
        }
    }

    pub(super) fn of(connector: &str) -> Self {
        Self::ALL.into_iter().find(|class| class.name() == connector).unwrap_or(Self::Blind)
    }

    pub(super) fn lost_start(self) -> LostStart {
        match self {
            Self::Keyed => LostStart::Key,
            Self::Proven | Self::Unproven | Self::Staged | Self::Synchronous => LostStart::Find,
            Self::Blind => LostStart::None,
        }
    }

    pub(super) fn absence_proves(self) -> bool {
        matches!(self, Self::Proven | Self::Staged)
    }

    pub(super) fn cancels(self) -> bool {
        !matches!(self, Self::Blind | Self::Synchronous)
    }

    pub(super) fn asks(self) -> bool {
        matches!(self, Self::Keyed | Self::Unproven | Self::Staged)
    }
}

/// How a record ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Done,
    /// Done, and nothing to show for it.
    Empty,
    Moderated,
    Failed,
    /// Stopped by itself.
    Stopped,
    /// Stopped because we asked.
    Cancelled,
}

/// One paid start.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) id: String,
    pub(super) job: String,
    pub(super) attempt: u64,
    pub(super) key: String,
    listed_ms: u64,
    /// Not known to the status page before this.
    seen_ms: u64,
    /// Work in milliseconds; `None`: it never ends by itself.
    work_ms: Option<u64>,
    worked_ms: u64,
    last_ms: u64,
    /// Work done when the next questions come.
    asks_at: Vec<u64>,
    asked: usize,
    /// The question that stands.
    question: Option<String>,
    /// Questions that were answered.
    pub(super) answered: Vec<String>,
    ends: End,
    stop_at: Option<u64>,
    pub(super) ended: Option<End>,
    pub(super) erased: bool,
    /// What the whole of it costs.
    price: u64,
}

impl Record {
    /// Brings the record to a moment.
    fn evolve(&mut self, now: u64) {
        while self.ended.is_none() && self.last_ms < now {
            let until = self.stop_at.map_or(now, |stop| stop.clamp(self.last_ms, now));
            if self.question.is_none() {
                let next =
                    self.asks_at.get(self.asked).copied().unwrap_or(u64::MAX).min(self.work_ms.unwrap_or(u64::MAX));
                let step = (until - self.last_ms).min(next.saturating_sub(self.worked_ms));
                self.worked_ms += step;
                self.last_ms += step;
                if Some(self.worked_ms) == self.work_ms {
                    self.ended = Some(self.ends);
                } else if self.worked_ms == next {
                    self.asked += 1;
                    self.question = Some(format!("{}-q{}", self.id, self.asked));
                }
            } else {
                self.last_ms = until;
            }
            if self.ended.is_none() && self.stop_at.is_some_and(|stop| stop <= self.last_ms) {
                self.ended = Some(End::Cancelled);
                self.question = None;
            }
        }
    }

    /// What it has cost so far, in credits.
    pub(super) fn bill(&self) -> Decimal {
        let credits = match (self.ended, self.work_ms) {
            (Some(End::Done | End::Empty), _) => self.price,
            (Some(End::Moderated), _) => 0,
            (_, Some(work)) => self.price * self.worked_ms / work.max(1),
            (_, None) => self.worked_ms / 1_000,
        };
        Decimal::from(credits)
    }
}

/// An answer of the vendor.
pub(super) type Said = (u16, Value);

/// Everything that the vendor knows, of all connectors.
#[derive(Debug, Default)]
pub(super) struct Books {
    pub(super) records: BTreeMap<String, Record>,
    /// Sessions of two-phase starts, by their key.
    sessions: BTreeMap<String, Option<String>>,
    /// What must never be and was seen here.
    pub(super) wrong: Vec<String>,
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

impl Books {
    /// Records at the vendor now, of one connector.
    pub(super) fn running(&mut self, connector: &str, now: u64) -> Vec<&Record> {
        let prefix = format!("{connector}-");
        self.records.values_mut().for_each(|record| record.evolve(now));
        self.records.values().filter(|record| record.ended.is_none() && record.id.starts_with(&prefix)).collect()
    }

    /// The id under which the vendor's list shows a job's present attempt.
    pub(super) fn known_as(&self, job: &Job) -> Option<String> {
        let key = idempotency_key(&job.id, job.attempt);
        let record = self.records.values().find(|record| record.key == key && !record.erased)?;
        let session = self.sessions.iter().find(|(_, run)| run.as_ref() == Some(&record.id));
        Some(session.map_or(&record.id, |(session, _)| session).clone())
    }

    /// Makes a call at the vendor.
    pub(super) fn serve(
        &mut self,
        seed: u64,
        keys_ignored: bool,
        class: Class,
        route: &str,
        body: &Value,
        now: u64,
    ) -> Said {
        match route {
            "stage" => self.stage(),
            "start" => self.start(seed, keys_ignored, class, body, now),
            "find" => self.find(class, body, now),
            "poll" => self.with(body, now, |record| (200, status(record))),
            "answer" => self.answer(body, now),
            "cancel" => self.cancel(class, body, now),
            "outputs" => self.with(body, now, outputs),
            other => (404, json!({"error": format!("no route {other}")})),
        }
    }

    fn stage(&mut self) -> Said {
        let id = format!("session-{}", self.sessions.len() + 1);
        self.sessions.insert(id.clone(), None);
        (200, json!({"id": id}))
    }

    fn start(&mut self, seed: u64, keys_ignored: bool, class: Class, body: &Value, now: u64) -> Said {
        let (key, job, session) = (text(body, "key"), text(body, "job"), text(body, "session"));
        let attempt = body["attempt"].as_u64().unwrap_or_default();
        if let Some(known) = self.records.values().find(|record| record.key == key) {
            if class == Class::Keyed && !keys_ignored {
                return (200, status(known));
            }
            self.wrong.push(format!("attempt {attempt} of {job} was bought twice"));
        }
        let mut chance = Chance::of(seed, &format!("plan {key}"));
        if chance.permille(20) {
            return (422, json!({"error": "the prompt is refused"}));
        }
        let id = format!("{}-{}", class.name(), self.records.len() + 1);
        let record = plan(&mut chance, class, id.clone(), (key, job, attempt), now);
        let said = status(&record);
        self.records.insert(id.clone(), record);
        if class == Class::Staged {
            match self.sessions.get_mut(&session) {
                Some(run) if run.is_none() => *run = Some(id),
                _ => self.wrong.push(format!("a run was sent to session {session:?}, which runs already or is none")),
            }
            return (200, json!({"id": session}));
        }
        if class == Class::Synchronous {
            return self.with(&json!({"id": id}), now, |record| {
                record.worked_ms = record.work_ms.unwrap_or_default();
                record.ended = Some(record.ends);
                outputs(record)
            });
        }
        (200, said)
    }

    fn find(&mut self, class: Class, body: &Value, now: u64) -> Said {
        let (session, key) = (text(body, "session"), text(body, "key"));
        let is_it = |record: &&Record| match class {
            Class::Staged => self.sessions.get(&session).is_some_and(|run| run.as_ref() == Some(&record.id)),
            _ => record.key == key,
        };
        let listed = |record: &&Record| record.listed_ms <= now && !record.erased;
        let found = self.records.values().filter(listed).find(is_it).map(|record| record.id.clone());
        match found {
            Some(id) if class == Class::Synchronous => self.with(&json!({"id": id}), now, outputs),
            Some(_) if class == Class::Staged => (200, json!({"id": session})),
            found => (200, json!({"id": found})),
        }
    }

    /// Does something with a record; sessions are known by their own id.
    fn with(&mut self, body: &Value, now: u64, then: impl FnOnce(&mut Record) -> Said) -> Said {
        let asked = text(body, "id");
        let id = self.sessions.get(&asked).cloned().flatten().unwrap_or(asked);
        match self.records.get_mut(&id).filter(|record| record.seen_ms <= now && !record.erased) {
            Some(record) => {
                record.evolve(now);
                then(record)
            }
            None => (404, json!({"error": "no such job"})),
        }
    }

    /// Whatever stands is answered, as with vendors that take a message for an answer.
    fn answer(&mut self, body: &Value, now: u64) -> Said {
        let meant = text(body, "question");
        let mut wrong = None;
        let said = self.with(body, now, |record| match record.question.take() {
            Some(question) => {
                if question != meant {
                    wrong = Some(format!("the answer to {meant} went to {question}"));
                }
                record.answered.push(question);
                (200, status(record))
            }
            None => (409, json!({"error": "nothing is asked"})),
        });
        self.wrong.extend(wrong);
        said
    }

    fn cancel(&mut self, class: Class, body: &Value, now: u64) -> Said {
        self.with(body, now, |record| {
            if record.ended.is_some() {
                return (409, json!({"error": "it has ended"}));
            }
            match class {
                Class::Unproven => {
                    record.stop_at = record.stop_at.or(Some(now + 500 + record.price * 40));
                    (202, status(record))
                }
                Class::Proven => {
                    (record.ended, record.erased) = (Some(End::Cancelled), true);
                    (200, status(record))
                }
                _ => {
                    (record.ended, record.question) = (Some(End::Cancelled), None);
                    (200, status(record))
                }
            }
        })
    }
}

fn plan(chance: &mut Chance, class: Class, id: String, of: (String, String, u64), now: u64) -> Record {
    let (key, job, attempt) = of;
    let ends = match chance.from(0..20) {
        0 => End::Failed,
        1 => End::Moderated,
        2 => End::Stopped,
        3 => End::Empty,
        _ => End::Done,
    };
    let ends = if class == Class::Synchronous && ends != End::Empty { End::Done } else { ends };
    let work = chance.from(500..25_000);
    let never = class != Class::Synchronous && chance.permille(50);
    let asks = if class.asks() && chance.permille(400) { chance.from(1..5) } else { 0 };
    // One question soon leads to the next.
    let asks_at = (1..=asks).map(|nth| work / 3 + nth * 300).take_while(|at| *at < work).collect();
    Record {
        id,
        job,
        attempt,
        key,
        listed_ms: now + chance.from(0..LISTED_WITHIN_MS),
        seen_ms: if class != Class::Synchronous && chance.permille(100) { now + chance.from(500..4_000) } else { now },
        work_ms: (!never).then_some(work),
        worked_ms: 0,
        last_ms: now,
        asks_at,
        asked: 0,
        question: None,
        answered: Vec::new(),
        ends,
        stop_at: None,
        ended: None,
        erased: false,
        price: chance.from(1..100),
    }
}

/// A record as the status page shows it.
fn status(record: &Record) -> Value {
    let word = match (record.ended, &record.question) {
        (None, None) => "running",
        (None, Some(_)) => "waiting",
        (Some(End::Done | End::Empty), _) => "done",
        (Some(End::Moderated), _) => "moderated",
        (Some(End::Failed), _) => "failed",
        (Some(End::Stopped | End::Cancelled), _) => "stopped",
    };
    json!({"id": record.id, "status": word, "question": record.question, "credits": record.bill()})
}

fn outputs(record: &mut Record) -> Said {
    let made = record.ended == Some(End::Done);
    let files: Vec<String> = made.then(|| content(&record.id)).into_iter().collect();
    (200, json!({"id": record.id, "files": files, "credits": record.bill(), "ended": record.ended.is_some()}))
}

/// What a record's output consists of.
pub(super) fn content(record: &str) -> String {
    format!("bytes of {record}")
}
