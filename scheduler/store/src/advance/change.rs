//! The working copy of one transition: the job as it becomes, and what is written along with it.

use super::due;
use crate::pacing::Outlook;
use crate::{
    CancelOutcome, CancelWish, Chore, Ending, Job, JobBody, JobError, JobState, NewEvent, OpenQuestion, Transition,
    UsageLine, When,
};
use longhaul_registry::{Connector, Failure, FailureKind, Note, Report, Step, Usage, UsageSource};
use rust_decimal::Decimal;
use serde_json::{Value, json};
use std::time::Duration;

/// The newest ids of vendor lines that are remembered, so that none is written twice.
const SEEN_NOTES: usize = 128;

/// What the pure functions know besides the job.
#[derive(Clone, Copy)]
pub struct Rules<'a> {
    /// The job's connector.
    pub connector: &'a Connector,
    /// The part of the job that never changes.
    pub body: &'a JobBody,
    /// Store time as the worker knows it, for ages only; what is written are delays.
    pub now_ms: i64,
    /// A throw of the dice, 0 to 1, for jitter.
    pub dice: f64,
    /// What is known of its end; `None`: nothing, and nothing is remembered of it.
    pub outlook: Option<&'a Outlook>,
    /// An open circuit spares what the outcome's call counts for ([`crate::Circuits::spare`], [`super::Outcome::circuit`]): a
    /// fault of the vendor's is charged to no job.
    pub outage: bool,
}

/// A transition being made.
pub(crate) struct Change<'a> {
    pub(crate) rules: Rules<'a>,
    pub(crate) out: Transition,
    pub(crate) step: Step,
}

impl<'a> Change<'a> {
    pub(crate) fn new(job: &Job, step: Step, rules: Rules<'a>) -> Self {
        Self { rules, out: Transition::to(job.clone()), step }
    }

    pub(crate) fn job(&mut self) -> &mut Job {
        &mut self.out.job
    }

    /// Milliseconds since an instant that has passed.
    pub(crate) fn age_ms(&self, when: Option<When>) -> Option<i64> {
        when.map(|when| self.rules.now_ms.saturating_sub(when.resolve(self.rules.now_ms)))
    }

    pub(crate) fn event(&mut self, kind: &str, data: Value) {
        let step = Some(self.step);
        self.out.events.push(NewEvent { kind: kind.to_owned(), step, data });
    }

    pub(crate) fn warn(&mut self, code: &str, message: impl Into<String>) {
        self.event("warning", json!({"code": code, "message": message.into()}));
    }

    /// Moves the job to a state, with its event. Entering the state it is in writes nothing.
    pub(crate) fn enter(&mut self, state: JobState) {
        let from = self.out.job.state;
        if from != state {
            self.out.job.state = state;
            self.event("state", json!({"from": from, "to": state}));
        }
    }

    /// Makes the next step due after a delay, no later than a watchdog that must look first.
    pub(crate) fn due(&mut self, delay: Duration) {
        let now = self.rules.now_ms;
        let job = &mut self.out.job;
        let next = next_step(job);
        if next != job.step {
            // Errors are one step's: another begins with none.
            job.errors = 0;
        }
        job.step = next;
        let mut in_ms = i64::try_from(delay.as_millis()).unwrap_or(i64::MAX / 4);
        let watched = matches!(job.state, JobState::Running | JobState::NeedsInput);
        let grace = super::watch::grace_ends(job, self.rules.connector, now);
        let watchdogs = [
            job.deadline_at.filter(|_| watched && job.ending.is_none()),
            grace.filter(|_| watched),
            job.question.as_ref().filter(|_| watched && awaits_answer(job)).map(|question| question.deadline),
        ];
        for watchdog in watchdogs.into_iter().flatten() {
            in_ms = in_ms.min(watchdog.resolve(now).saturating_sub(now).max(0));
        }
        if job.state == JobState::Collecting {
            let left = |when: Option<When>| {
                let left = when?.resolve(now).saturating_sub(now);
                u64::try_from(left).ok().filter(|left| *left > 0).map(Duration::from_millis)
            };
            let longest = due::collecting(left(job.outputs_expire_at), left(job.deadline_at));
            in_ms = in_ms.min(i64::try_from(longest.as_millis()).unwrap_or(i64::MAX));
        }
        if watched && let Some(lives) = self.rules.connector.vendor.outputs_live_s {
            let longest = due::before_outputs_die(Duration::from_secs(lives));
            in_ms = in_ms.min(i64::try_from(longest.as_millis()).unwrap_or(i64::MAX));
        }
        job.due_at = job.step.map(|_| When::In(in_ms));
    }

    /// The next step runs now, by the same worker under the same lease.
    pub(crate) fn go_on(&mut self) {
        self.due(Duration::ZERO);
        self.out.keep_lease = self.out.job.step.is_some();
    }

    /// The next poll by cadence, or by the vendor's hint, which wins.
    pub(crate) fn due_poll(&mut self, hint: Option<Duration>) {
        let cadence = self.rules.connector.cadence;
        let (grown, mut delay) = self.foreseen().unwrap_or_else(|| {
            let grown = due::grown(&cadence, self.out.job.poll_delay);
            (grown, due::jittered(&cadence, grown, self.rules.dice))
        });
        self.out.job.poll_delay = Some(grown);
        if self.goes_by_itself() && self.rules.outlook.is_some_and(|outlook| outlook.announced) {
            delay = due::announced(delay);
        }
        if self.out.job.state == JobState::NeedsInput {
            // A waiting vendor seldom moves by itself: ask at the slow end, so that the answer is the event.
            delay = delay.max(Duration::try_from_secs_f64(cadence.ceiling_s).unwrap_or(delay));
        }
        if let Some(hint) = hint {
            delay = due::hinted(hint, self.rules.dice);
        }
        self.due(delay);
    }

    /// The vendor works on it, and nobody waits for anything but its end.
    fn goes_by_itself(&self) -> bool {
        let job = &self.out.job;
        job.state == JobState::Running && job.cancel.is_none() && job.ending.is_none()
    }

    /// The delay to the next poll before and after jitter, where its end can be foreseen.
    fn foreseen(&self) -> Option<(Duration, Duration)> {
        let job = &self.out.job;
        let plan = self.rules.outlook?.plan.as_ref()?;
        let age = self.age_ms(job.runs_at.and(job.accepted_at)).filter(|_| self.goes_by_itself())?;
        let age = Duration::from_millis(u64::try_from(age).unwrap_or(0));
        let (cadence, asks) = (&self.rules.connector.cadence, self.rules.connector.vendor.asks);
        let (delay, jittered) = due::foreseen(cadence, plan, age, asks, self.rules.dice)?;
        let ceiling = Duration::try_from_secs_f64(cadence.ceiling_s).unwrap_or(delay);
        Some((delay.min(ceiling), jittered))
    }

    /// How long it took at the vendor, as far as that can be told now that the vendor says it is done: some time between the
    /// last word that it runs and this one, or when the webhook came. Drawn evenly, so that what is learned from draws
    /// has the shape of what happened and not of when it was looked at. `None` where it tells nothing: a job bound for
    /// another end, or one that was looked at much later than it was due.
    pub(crate) fn took_ms(&self) -> Option<u64> {
        let job = &self.out.job;
        let counts = self.rules.outlook.is_some_and(|outlook| outlook.learns);
        if !counts || !self.goes_by_itself() || job.error.is_some() || job.errors > 0 {
            return None;
        }
        let (age, unseen) = (self.age_ms(job.accepted_at)?, self.age_ms(job.runs_at)?.max(0));
        let late = self.age_ms(job.due_at)?.max(0);
        if job.hinted {
            return u64::try_from(age.saturating_sub(late)).ok();
        }
        let since = Duration::from_millis(u64::try_from(unseen).ok()?).mul_f64(self.rules.dice.clamp(0.0, 1.0));
        let ms = age.saturating_sub(i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
        if late > unseen / 2 { None } else { u64::try_from(ms).ok() }
    }

    /// Its time at the vendor tells nothing any more.
    pub(crate) fn untimed(&mut self) {
        let job = self.job();
        (job.runs_at, job.took_ms, job.hinted) = (None, None, false);
    }

    /// A wait that is no error: what the vendor named, else a growing delay of our own.
    pub(crate) fn due_unpunished(&mut self, named: Option<Duration>) {
        let delay = match named {
            Some(named) => due::hinted(named, self.rules.dice),
            None => {
                // A vendor that answers is asked again sooner than one that is away.
                let answers = self.out.job.error.as_ref().map(|error| error.failure.kind);
                let ceiling =
                    if answers == Some(FailureKind::RateLimited) { due::REFUSED_CEILING } else { due::BACKOFF_CEILING };
                let grown = self.out.job.poll_delay.unwrap_or(Duration::from_millis(1500)).mul_f64(2.0);
                let grown = grown.clamp(due::FLOOR * 3, ceiling);
                self.out.job.poll_delay = Some(grown);
                (grown / 2 + (grown / 2).mul_f64(self.rules.dice)).max(due::FLOOR)
            }
        };
        self.due(delay);
    }

    /// Counts an error of the step; answers how many stand in a row.
    pub(crate) fn erred(&mut self) -> u32 {
        let job = self.job();
        job.errors = job.errors.saturating_add(1);
        job.errors
    }

    /// This is an outage's fault, which the circuit knows, and no error of the job's. Not where the job has no time left: what it
    /// meets then is charged as ever, so that it ends.
    pub(crate) fn in_outage(&self, failure: &Failure) -> bool {
        let in_time = self.out.job.deadline_at.is_none_or(|when| when.resolve(self.rules.now_ms) > self.rules.now_ms);
        self.rules.outage && super::is_the_vendors(failure) && in_time
    }

    /// A good answer: errors of the step and the reason to wait are gone.
    pub(crate) fn cleared(&mut self) {
        let job = self.job();
        job.errors = 0;
        job.error = None;
        job.kills = 0;
    }

    /// The job waits, fails or is parked because of this. Repeats of one code are written at every power of two.
    pub(crate) fn blame(&mut self, failure: &Failure) {
        let step = self.step;
        let same = self.out.job.error.as_ref().is_some_and(|error| error.failure.code == failure.code);
        let errors = self.out.job.errors;
        if !same || errors.is_power_of_two() {
            let data = json!({
                "code": failure.code, "kind": failure.kind, "message": failure.message,
                "vendor_code": failure.vendor_code, "vendor_request_id": failure.vendor_request_id, "errors": errors,
            });
            self.event("error", data);
        }
        self.job().error = Some(JobError { failure: failure.clone(), step });
    }

    /// Takes in what was told before the vendor's last word: what it says of the cost is an estimate, whoever says it.
    pub(crate) fn take_so_far(&mut self, mut report: Report) {
        so_far(&mut report.usage);
        self.take(report);
    }

    /// Books what was told before the vendor's last word, and takes in nothing else.
    pub(crate) fn book_so_far(&mut self, mut usage: Vec<Usage>) {
        so_far(&mut usage);
        self.book(usage);
    }

    /// Takes in what an answer told besides its main word.
    pub(crate) fn take(&mut self, report: Report) {
        let Report {
            progress,
            vendor_status,
            unknown_status,
            hint: _,
            usage,
            notes,
            vendor_state,
            vendor_request_id: _,
        } = report;
        if let Some(state) = vendor_state {
            self.job().vendor_state = state;
        }
        if let Some(word) = vendor_status {
            let changed = self.out.job.vendor_status.as_ref() != Some(&word);
            if unknown_status && changed {
                let message = format!("the vendor's word {word:?} is not one we know; it is read as running");
                self.event("warning", json!({"code": "unknown_status", "message": message, "word": word}));
            }
            self.job().vendor_status = Some(word);
        }
        if let Some(progress) = progress.filter(|value| value.is_finite()) {
            let progress = progress.clamp(0.0, 1.0);
            if self.out.job.progress.is_none_or(|before| (progress - before).abs() >= 0.01) {
                self.job().progress = Some(progress);
                // Thousandths, so that no reader sees the noise of a binary fraction.
                let shown = (f64::from(progress) * 1000.0).round() / 1000.0;
                self.event("progress", json!({"progress": shown}));
            }
        }
        for note in notes {
            self.take_note(note);
        }
        self.book(usage);
    }

    fn take_note(&mut self, note: Note) {
        if let Some(id) = &note.id {
            if self.out.job.seen_notes.contains(id) {
                return;
            }
            let seen = &mut self.out.job.seen_notes;
            seen.push(id.clone());
            if seen.len() > SEEN_NOTES {
                seen.drain(..seen.len() - SEEN_NOTES);
            }
        }
        self.event(&note.kind, note.data);
    }

    /// Turns a module's usage into ledger lines of this attempt.
    pub(crate) fn book(&mut self, usage: Vec<Usage>) {
        let attempt = self.out.job.attempt.max(1);
        let connector = self.rules.connector;
        for line in usage {
            let Usage { record, unit, quantity, source, usd } = line;
            let usd = usd.or_else(|| {
                (unit == connector.vendor.unit)
                    .then(|| {
                        longhaul_registry::pricing::price(connector, self.rules.body.model.as_deref(), unit, quantity)
                    })
                    .flatten()
            });
            let known =
                self.out.usage.iter().any(|line| line.record == record && line.unit == unit && line.source >= source);
            if known {
                continue;
            }
            if source != UsageSource::Estimated {
                let data = json!({"unit": unit, "quantity": quantity.normalize(), "source": source, "record": record, "usd": usd});
                if !self.out.job.last_usage.contains(&data) {
                    self.event("usage", data.clone());
                    self.remember_usage(data);
                }
            }
            self.out.usage.push(UsageLine { attempt, record, unit, quantity, source, usd });
        }
    }

    fn remember_usage(&mut self, data: Value) {
        let kept = &mut self.out.job.last_usage;
        kept.retain(|old| old["unit"] != data["unit"] || old["record"] != data["record"]);
        kept.push(data);
    }

    /// Money known to be spent after this transition: what stood booked, or what this answer adds up to.
    pub(crate) fn spent(&self) -> Decimal {
        let told: Decimal = self.out.usage.iter().filter_map(|line| line.usd).sum();
        self.out.job.cost_usd.unwrap_or_default().max(told)
    }

    /// The wish to stop, whoever has it.
    pub(crate) fn wish_stop(&mut self, reason: Option<String>) {
        if self.out.job.cancel.is_none() {
            self.job().cancel = Some(CancelWish {
                requested_at: When::NOW,
                reason,
                outcome: CancelOutcome::Pending,
                sent: false,
                tried: false,
                heard: false,
                missing: 0,
                unread: false,
            });
        }
    }

    /// Decides how the job will end; the first decision stands.
    pub(crate) fn bind(&mut self, state: JobState, failure: Option<Failure>) {
        let step = self.step;
        if self.out.job.ending.is_none() {
            let error = failure.map(|failure| JobError { failure, step });
            self.job().ending = Some(Ending { state, error, since: When::NOW });
        }
    }

    pub(crate) fn set_cancel_outcome(&mut self, outcome: CancelOutcome) {
        if let Some(cancel) = &mut self.out.job.cancel {
            cancel.outcome = outcome;
        }
    }

    /// Opens a question and tells of it.
    pub(crate) fn ask(&mut self, question: longhaul_registry::Question) {
        let minutes = self.rules.body.request.limits.question_minutes.unwrap_or(10);
        let deadline = When::after(Duration::from_secs(u64::from(minutes) * 60));
        self.enter(JobState::NeedsInput);
        self.untimed();
        let data = json!({
            "question_id": question.id, "kind": question.kind, "prompt": question.prompt,
            "options": question.options, "default": question.default, "answer_within_s": u64::from(minutes) * 60,
        });
        self.event("question", data.clone());
        self.job().question = Some(OpenQuestion { question, asked_at: When::NOW, deadline });
        self.notify("job.needs_input", data);
    }

    /// Ends this life of the job: the last event is the final state.
    pub(crate) fn finish(&mut self, state: JobState, error: Option<JobError>) {
        let settled = match state {
            JobState::Cancelled | JobState::LimitExceeded => CancelOutcome::Confirmed,
            _ => CancelOutcome::TooLate,
        };
        if self.out.job.cancel.as_ref().is_some_and(|cancel| cancel.outcome == CancelOutcome::Pending) {
            self.set_cancel_outcome(settled);
        }
        let job = self.job();
        job.error = error;
        job.step = None;
        job.due_at = None;
        job.question = None;
        job.answer = None;
        job.ending = None;
        job.outputs_expire_at = None;
        job.drafts = Vec::new();
        job.errors = 0;
        job.kills = 0;
        job.finished_at = Some(When::NOW);
        self.out.keep_lease = false;
        self.untimed();
        self.enter(state);
        let error = self.out.job.error.as_ref().map(
            |error| json!({"code": error.failure.code, "kind": error.failure.kind, "message": error.failure.message}),
        );
        self.notify("job.finished", json!({"state": state, "error": error}));
    }

    pub(crate) fn fail(&mut self, failure: Failure) {
        let step = self.step;
        self.blame(&failure);
        self.finish(JobState::Failed, Some(JobError { failure, step }));
    }

    /// Stops until a person decides. What was sent stays written down.
    pub(crate) fn park(&mut self, failure: Failure) {
        let step = self.step;
        self.blame(&failure);
        let job = self.job();
        job.error = Some(JobError { failure, step });
        job.step = None;
        job.due_at = None;
        self.out.keep_lease = false;
        self.untimed();
        self.enter(JobState::Parked);
    }

    fn notify(&mut self, event: &str, data: Value) {
        let Some(notify) = &self.rules.body.request.notify else { return };
        if !notify.events.iter().any(|wanted| wanted == event) {
            return;
        }
        let job = self.out.job.id.clone();
        // The event just written is the last one of this transition: its number identifies the delivery.
        let seq = self.out.job.seq + u64::try_from(self.out.events.len()).unwrap_or(u64::MAX);
        let chore = Chore::Notify { job, event: event.to_owned(), url: notify.url.clone(), seq, data };
        self.out.chores.push(chore);
    }
}

/// A question stands that a time-out would answer: no answer is on its way, and the job is not bound for its end.
pub(crate) fn awaits_answer(job: &Job) -> bool {
    job.question.is_some() && job.answer.is_none() && job.cancel.is_none() && job.ending.is_none()
}

/// The step that a job's state and wishes call for.
pub(crate) fn next_step(job: &Job) -> Option<Step> {
    match job.state {
        JobState::Queued | JobState::Starting => Some(Step::Start),
        JobState::Running | JobState::NeedsInput => Some(if job.cancel.as_ref().is_some_and(|cancel| !cancel.sent) {
            Step::Cancel
        } else if job.answer.is_some() && job.cancel.is_none() && job.ending.is_none() {
            Step::Answer
        } else {
            Step::Poll
        }),
        JobState::Collecting => Some(Step::Outputs),
        JobState::Succeeded | JobState::Failed | JobState::Cancelled | JobState::LimitExceeded | JobState::Parked => {
            None
        }
    }
}

fn so_far(usage: &mut [Usage]) {
    usage.iter_mut().for_each(|line| line.source = UsageSource::Estimated);
}
