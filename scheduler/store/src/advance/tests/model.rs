//! Random outcomes, signals, crashes and clock steps, against a vendor that keeps honest books.

use super::*;
use crate::{CancelOutcome, Decision, Signal, UsageLine};
use longhaul_registry::{
    AnswerBody, AnswerGiven, CancelAnswer, Collected, Failure, FailureKind, Finding, PollAnswer, Question,
    QuestionKind, Retry, Usage, UsageSource,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// What may happen next. Numbers choose among what fits.
#[derive(Clone, Debug)]
enum Act {
    /// A worker claims and runs the due step; the vendor answers by these dice.
    Work { dice: u8, kind: usize, retry: u8 },
    /// A worker claims, gets as far as the dice say, and dies.
    Crash { dice: u8 },
    /// Time passes.
    Pass(u32),
    /// The wall clock of the store jumps, forwards or back.
    Step(i32),
    /// A person or program does something.
    Signal(u8),
    /// An answer arrives that belongs to an earlier state of the job.
    Stray { dice: u8 },
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        8 => (any::<u8>(), 0..FailureKind::ALL.len(), any::<u8>()).prop_map(|(dice, kind, retry)| Act::Work { dice, kind, retry }),
        2 => any::<u8>().prop_map(|dice| Act::Crash { dice }),
        3 => (0u32..400_000).prop_map(Act::Pass),
        1 => (-4_000_000i32..4_000_000).prop_map(Act::Step),
        3 => any::<u8>().prop_map(Act::Signal),
        1 => any::<u8>().prop_map(|dice| Act::Stray { dice }),
    ];
    proptest::collection::vec(act, 1..60)
}

/// The vendor: which attempts it accepted, by idempotency key.
#[derive(Default)]
struct Vendor {
    accepted: BTreeMap<String, u32>,
}

/// An entry of the ledger: attempt, record, unit.
type Entry = (u32, String, Unit);

/// What an answer says of the bill, and whether it is the vendor's last word: before that it is an estimate, whoever says so.
fn said(outcome: &Outcome) -> (&[Usage], bool) {
    match outcome {
        Outcome::Start(Ok(answer)) | Outcome::Find(Ok(Finding::Found(answer))) => match answer {
            StartAnswer::Started { report, .. } | StartAnswer::Staged { report, .. } => (&report.usage, false),
            StartAnswer::Finished { report, .. } => (&report.usage, true),
        },
        Outcome::Poll(Ok(PollAnswer::Running(report) | PollAnswer::NeedsInput { report, .. })) => {
            (&report.usage, false)
        }
        Outcome::Poll(Ok(
            PollAnswer::Done { report, .. } | PollAnswer::Stopped { report, .. } | PollAnswer::Failed { report, .. },
        )) => (&report.usage, true),
        Outcome::Answer(Ok(AnswerGiven::Taken(report) | AnswerGiven::Moot(report)))
        | Outcome::Cancel(Ok(CancelAnswer::Requested(report) | CancelAnswer::TooLate(report))) => {
            (&report.usage, false)
        }
        Outcome::Cancel(Ok(CancelAnswer::Confirmed(report))) => (&report.usage, true),
        Outcome::Outputs(Ok(collected)) => (&collected.report.usage, true),
        _ => (&[], false),
    }
}

struct World {
    bench: Bench,
    vendor: Vendor,
    operator_since_final: bool,
    finals: u32,
    /// The ledger, as a store keeps it.
    booked: BTreeMap<Entry, UsageLine>,
    /// The bill as the vendor's answers have it, whatever became of the job.
    told: BTreeMap<Entry, (UsageSource, rust_decimal::Decimal)>,
}

impl World {
    fn new(lost: LostStart, absence_proves: bool, limits: Value) -> Self {
        let mut file = vendor(lost);
        file.absence_proves = absence_proves;
        let bench = Bench::new(connector(file), limits);
        Self {
            bench,
            vendor: Vendor::default(),
            operator_since_final: false,
            finals: 0,
            booked: BTreeMap::new(),
            told: BTreeMap::new(),
        }
    }

    /// An answer of the vendor's: into its own books, then to the job.
    fn take(&mut self, outcome: Outcome) -> Transition {
        let attempt = self.bench.job.attempt.max(1);
        let (lines, last) = said(&outcome);
        for line in lines {
            let source = if last { line.source } else { UsageSource::Estimated };
            let entry = self.told.entry((attempt, line.record.clone(), line.unit)).or_insert((source, line.quantity));
            if source >= entry.0 {
                *entry = (source, line.quantity);
            }
        }
        advance(&self.bench.job, outcome, self.bench.rules())
    }

    fn apply(&mut self, transition: Transition) {
        let mut once = BTreeSet::new();
        for line in &transition.usage {
            let entry = (line.attempt, line.record.clone(), line.unit);
            assert!(once.insert((entry.clone(), line.source)), "one answer is booked once: {line:?}");
            if self.booked.get(&entry).is_none_or(|old| old.source <= line.source) {
                self.booked.insert(entry, line.clone());
            }
        }
        for event in &transition.events {
            match (event.kind.as_str(), event.data["to"].as_str()) {
                ("operator", _) => self.operator_since_final = true,
                ("state", Some(to)) if JobState::ALL.iter().any(|s| s.is_final() && s.as_str() == to) => {
                    self.finals += 1;
                    assert!(self.finals == 1 || self.operator_since_final, "a second final state in one life");
                    self.operator_since_final = false;
                }
                _ => {}
            }
        }
        self.bench.apply(transition);
        self.bench.job.cost_usd = self.booked.values().filter_map(|line| line.usd).reduce(|sum, usd| sum + usd);
        self.check();
    }

    /// The ledger says what the vendor said, entry by entry: nothing is left out or made up, no last word is written over by
    /// what was said on the way, and every figure has the price of its unit.
    fn check_bill(&self) {
        let booked: BTreeMap<&Entry, _> =
            self.booked.iter().map(|(entry, line)| (entry, (line.source, line.quantity))).collect();
        let told: BTreeMap<&Entry, _> = self.told.iter().map(|(entry, told)| (entry, *told)).collect();
        assert_eq!(booked, told, "the ledger against the vendor's answers");
        for line in self.booked.values() {
            // A cent a credit: the bench's connector.
            assert_eq!(line.usd, Some(line.quantity / rust_decimal::Decimal::ONE_HUNDRED), "{line:?}");
        }
    }

    /// What must hold after every transition.
    fn check(&self) {
        let job = &self.bench.job;
        let rests = job.state.is_final() || job.state == JobState::Parked;
        assert_eq!(job.step.is_none(), rests, "a step is due in every state that does not rest: {:?}", job.state);
        assert_eq!(job.step.is_some(), job.due_at.is_some());
        assert!(!self.bench.last.keep_lease || job.step.is_some(), "a lease is kept for a step only");
        assert_eq!(job.step, next_step(job));
        assert_eq!(job.finished_at.is_some(), job.state.is_final());
        assert!(job.attempt <= job.attempts_allowed, "attempts are capped");
        let cancelled = job.cancel.as_ref().map(|cancel| cancel.outcome);
        assert!(!job.state.is_final() || cancelled != Some(CancelOutcome::Pending), "no wish stays open after the end");
        assert!(job.state != JobState::Succeeded || job.error.is_none());
        assert!(!matches!(job.state, JobState::Failed | JobState::LimitExceeded) || job.error.is_some());
        assert!(!matches!(job.state, JobState::Running | JobState::NeedsInput) || job.vendor_job_id.is_some());
        assert!(job.question.is_some() || job.state != JobState::NeedsInput, "needs_input has a question");
        let paid: u32 = self.vendor.accepted.values().sum();
        assert!(paid <= job.attempts_allowed, "{paid} paid starts, {} allowed", job.attempts_allowed);
        self.check_bill();
    }

    /// A claim: the watchdogs, then one step. `true` where the lease is kept.
    fn work(&mut self, dice: u8, kind: usize, retry: u8, die_before: Option<u8>) {
        let mut rounds = 0;
        loop {
            rounds += 1;
            if rounds > 6 || self.bench.job.step.is_none() {
                return;
            }
            if let Some(transition) = on_claim(&self.bench.job, self.bench.rules()) {
                self.apply(transition);
                if !self.bench.last.keep_lease {
                    return;
                }
                continue;
            }
            if die_before == Some(0) {
                return;
            }
            let Some(outcome) = self.call(dice.wrapping_add(rounds * 37), kind, retry, die_before) else { return };
            let transition = self.take(outcome);
            self.apply(transition);
            if !self.bench.last.keep_lease {
                return;
            }
        }
    }

    /// One call to the vendor, as the runner makes it. `None`: the worker died before it could commit the answer.
    fn call(&mut self, dice: u8, kind: usize, retry: u8, die: Option<u8>) -> Option<Outcome> {
        let failure = scripted(kind, retry);
        match self.bench.job.step? {
            Step::Start => self.start(dice, failure, die),
            Step::Poll => Some(Outcome::Poll(poll_answer(dice, failure))),
            Step::Answer => {
                let again = self.bench.job.answer.as_ref()?.sent;
                if !again {
                    let transition = advance(&self.bench.job, Outcome::SendingAnswer, self.bench.rules());
                    self.apply(transition);
                }
                (die != Some(1)).then(|| {
                    Outcome::Answer(match dice % 3 {
                        0 => Ok(AnswerGiven::Taken(Report::default())),
                        1 => Ok(AnswerGiven::Moot(Report::default())),
                        _ => Err(failure),
                    })
                })
            }
            Step::Cancel => Some(Outcome::Cancel(match dice % 5 {
                0 => Ok(CancelAnswer::Confirmed(Report::default())),
                1 => Ok(CancelAnswer::Requested(Report::default())),
                2 => Ok(CancelAnswer::TooLate(Report::default())),
                3 => Ok(CancelAnswer::Unsupported),
                _ => Err(failure),
            })),
            Step::Outputs => Some(Outcome::Outputs(match dice % 3 {
                0 => Ok(Collected { artifacts: Vec::new(), failure: None, report: Report::default() }),
                1 => Ok(Collected { artifacts: Vec::new(), failure: Some(failure), report: Report::default() }),
                _ => Err(failure),
            })),
        }
    }

    /// One claim at a vendor that now answers as everybody hopes.
    fn well(&mut self) {
        for _ in 0..6 {
            if let Some(transition) = on_claim(&self.bench.job, self.bench.rules()) {
                self.apply(transition);
            } else {
                let Some(outcome) = self.hoped() else { return };
                let transition = self.take(outcome);
                self.apply(transition);
            }
            if !self.bench.last.keep_lease {
                return;
            }
        }
    }

    fn hoped(&mut self) -> Option<Outcome> {
        let failure = scripted(0, 0);
        Some(match self.bench.job.step? {
            Step::Start if self.bench.job.start_sent.is_some() => {
                let sent = self.bench.job.start_sent.clone()?;
                if self.bench.connector.vendor.lost_start == LostStart::Key {
                    return self.send(3, failure, None);
                }
                let started =
                    StartAnswer::Started { vendor_job_id: sent.idempotency_key.clone(), report: Report::default() };
                Outcome::Find(Ok(match self.vendor.accepted.contains_key(&sent.idempotency_key) {
                    _ if self.bench.connector.vendor.lost_start == LostStart::None => Finding::Unsupported,
                    true => Finding::Found(started),
                    false => Finding::Absent,
                }))
            }
            Step::Start => return self.start(3, failure, None),
            Step::Poll => Outcome::Poll(Ok(PollAnswer::Done { outputs: None, report: Report::default() })),
            Step::Answer => Outcome::Answer(Ok(AnswerGiven::Taken(Report::default()))),
            Step::Cancel => Outcome::Cancel(Ok(CancelAnswer::Confirmed(Report::default()))),
            Step::Outputs => {
                Outcome::Outputs(Ok(Collected { artifacts: Vec::new(), failure: None, report: Report::default() }))
            }
        })
    }

    fn start(&mut self, dice: u8, mut failure: Failure, die: Option<u8>) -> Option<Outcome> {
        if let Some(sent) = self.bench.job.start_sent.clone() {
            if self.bench.connector.vendor.lost_start == LostStart::Key {
                return self.send(dice, failure, die);
            }
            let there = self.vendor.accepted.contains_key(&sent.idempotency_key);
            let started = StartAnswer::Started { vendor_job_id: sent.idempotency_key, report: Report::default() };
            return Some(Outcome::Find(match dice % 4 {
                _ if self.bench.connector.vendor.lost_start == LostStart::None => Ok(Finding::Unsupported),
                0 | 1 if there => Ok(Finding::Found(started)),
                0 | 1 => Ok(Finding::Absent),
                2 => Ok(Finding::Unsure { look_again: None }),
                _ => {
                    if failure.retry == Retry::Unknown {
                        failure.retry = Retry::Backoff;
                    }
                    Err(failure)
                }
            }));
        }
        let sending = Outcome::Sending { request_hash: "h".to_owned() };
        let transition = advance(&self.bench.job, sending, self.bench.rules());
        self.apply(transition);
        let mine = self.bench.job.state == JobState::Starting && self.bench.job.start_sent.is_some();
        (mine && die != Some(1)).then(|| self.send(dice, failure, die)).flatten()
    }

    /// The request leaves. An honest vendor: a key is bought once where keys are honoured; a definite refusal never buys.
    fn send(&mut self, dice: u8, mut failure: Failure, die: Option<u8>) -> Option<Outcome> {
        let key = self.bench.job.start_sent.clone()?.idempotency_key;
        let accepts = dice % 3 != 2;
        if accepts {
            let bought = self.vendor.accepted.entry(key.clone()).or_insert(0);
            if *bought == 0 || self.bench.connector.vendor.lost_start != LostStart::Key {
                *bought += 1;
            }
        }
        if die.is_some() {
            return None;
        }
        let usage = vec![Usage {
            record: key.clone(),
            unit: Unit::Credits,
            quantity: 4.into(),
            source: UsageSource::Estimated,
            usd: None,
        }];
        let report = Report { usage, ..Report::default() };
        Some(Outcome::Start(match (accepts, dice % 7) {
            (true, 0) => Ok(StartAnswer::Finished { vendor_job_id: Some(key), outputs: Vec::new(), report }),
            (true, 1) => {
                (failure.retry, failure.unsent) = (Retry::Unknown, false);
                Err(failure)
            }
            (true, _) => Ok(StartAnswer::Started { vendor_job_id: key, report }),
            (false, 0) => {
                failure.retry = Retry::Unknown;
                Err(failure)
            }
            (false, _) => {
                if failure.retry == Retry::Unknown || failure.kind == FailureKind::StartUnknown {
                    failure = Failure::new(FailureKind::VendorError, Retry::Backoff, "refused");
                }
                Err(failure)
            }
        }))
    }

    fn signal(&mut self, dice: u8) {
        let by = "model".to_owned();
        let question_id = self.bench.job.question.as_ref().map_or_else(String::new, |open| open.question.id.clone());
        let replay =
            |from, accept_cost| Signal::Replay { from, reason: "model".to_owned(), accept_cost, by: by.clone() };
        let signal = match dice % 12 {
            0 | 1 => Signal::Cancel { reason: None, by },
            2 | 3 => Signal::Answer { question_id, body: AnswerBody::Approve(dice > 100), by },
            4 => replay(Step::Poll, false),
            5 => replay(Step::Outputs, false),
            6 => replay(Step::Start, dice > 128),
            7 => Signal::Resolve { decision: Decision::Ran { vendor_job_id: "by-hand".to_owned() }, by },
            8 => Signal::Resolve { decision: Decision::StartAgain { accept_cost: dice > 128 }, by },
            9 => Signal::Resolve { decision: Decision::GiveUp, by },
            10 => Signal::RerunBy { job: "job_2".to_owned(), reason: "model".to_owned(), by },
            _ => Signal::Hint,
        };
        let before = self.bench.job.clone();
        match crate::receive(&before, signal, self.bench.rules()) {
            Ok(transition) => self.apply(transition),
            Err(refusal) => assert!(!refusal.code.is_empty() && !refusal.hint.is_empty()),
        }
    }

    fn stray(&mut self, dice: u8) {
        let failure = scripted(usize::from(dice), dice);
        let outcome = match dice % 5 {
            0 => Outcome::Poll(poll_answer(dice / 5, failure)),
            1 => Outcome::Answer(Ok(AnswerGiven::Taken(Report::default()))),
            2 => Outcome::Cancel(Ok(CancelAnswer::Confirmed(Report::default()))),
            3 => Outcome::Outputs(Err(failure)),
            _ => Outcome::Find(Ok(Finding::Absent)),
        };
        // Only outcomes of another step than the one the job is at are strays; the others are plain work.
        if Some(outcome.step()) != self.bench.job.step {
            let transition = self.take(outcome);
            let state = self.bench.job.state;
            let moves = matches!((state, &transition.job.state), (JobState::Running | JobState::NeedsInput, _));
            assert!(moves || transition.job.state == state, "a stray outcome moves nothing");
            self.apply(transition);
        }
    }
}

fn scripted(kind: usize, retry: u8) -> Failure {
    let kind = FailureKind::ALL[kind % FailureKind::ALL.len()];
    let verdict = match retry % 4 {
        0 => Retry::Never,
        1 => Retry::After(Duration::from_secs(u64::from(retry))),
        2 => Retry::Backoff,
        _ => Retry::Unknown,
    };
    let mut failure = Failure::new(kind, verdict, "scripted");
    failure.unsent = retry.is_multiple_of(11) && verdict != Retry::Unknown;
    failure.holds_connector = retry.is_multiple_of(13);
    failure
}

fn poll_answer(dice: u8, failure: Failure) -> Result<PollAnswer, Failure> {
    let usage = Usage {
        record: "r".to_owned(),
        unit: Unit::Credits,
        quantity: u64::from(dice).into(),
        source: UsageSource::Reported,
        usd: None,
    };
    let report = Report { progress: Some(f32::from(dice) / 200.0), usage: vec![usage], ..Report::default() };
    match dice % 8 {
        0..=2 => Ok(PollAnswer::Running(report)),
        3 => {
            let kind = [QuestionKind::Text, QuestionKind::Choice, QuestionKind::Approval][usize::from(dice / 8) % 3];
            let question = Question {
                id: format!("q{}", dice / 64),
                kind,
                prompt: "?".to_owned(),
                options: Vec::new(),
                default: dice.is_multiple_of(2).then(|| "d".to_owned()),
                polls_go_on: false,
            };
            Ok(PollAnswer::NeedsInput { question, report })
        }
        4 => Ok(PollAnswer::Done { outputs: None, report }),
        5 => Ok(PollAnswer::Stopped { outputs: None, report }),
        6 => Ok(PollAnswer::Failed { failure, outputs: None, report }),
        _ => Err(failure),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn no_history_breaks_a_promise(
        acts in acts(),
        lost in prop_oneof![Just(LostStart::None), Just(LostStart::Find), Just(LostStart::Key)],
        proves in any::<bool>(),
        limited in any::<bool>(),
    ) {
        let limits = if limited { json!({"limits": {"max_cost_usd": "0.5", "max_minutes": 5}}) } else { json!({}) };
        let mut world = World::new(lost, proves, limits);
        for act in acts {
            match act {
                Act::Work { dice, kind, retry } => world.work(dice, kind, retry, None),
                Act::Crash { dice } => {
                    world.work(dice, 0, 2, Some(dice % 3));
                    world.bench.job.kills += 1;
                }
                Act::Pass(ms) => { world.bench.pass(Duration::from_millis(u64::from(ms))); }
                Act::Step(ms) => world.bench.now_ms += i64::from(ms),
                Act::Signal(dice) => world.signal(dice),
                Act::Stray { dice } => world.stray(dice),
            }
        }
        // A vendor that answers "done" from now on, and a person who lets it run on, bring every job to rest.
        for _ in 0..40 {
            if world.bench.job.state == JobState::Parked || world.bench.job.state.is_final() { break }
            let due = world.bench.job.due_at.map_or(world.bench.now_ms, |due| due.resolve(world.bench.now_ms));
            world.bench.now_ms = world.bench.now_ms.max(due).saturating_add(70_000);
            world.bench.job.kills = 0;
            world.well();
        }
        let state = world.bench.job.state;
        prop_assert!(state.is_final() || state == JobState::Parked, "still {state} after all was well");
    }
}
