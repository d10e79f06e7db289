//! What must hold, by the vendor's books and the store's rows.

use super::model::Row;
use super::vendor::{Class, End, Record, content};
use super::world::World;
use longhaul_registry::UsageSource;
use longhaul_store::advance::idempotency_key;
use longhaul_store::{CancelOutcome, Chore, JobState};
use rust_decimal::Decimal;
use std::collections::BTreeSet;

/// Jobs that one connector may have at its vendor.
pub(super) const IN_FLIGHT: u32 = 2;

/// What an operator's line in the history did.
fn action(row: &Row, at: usize) -> Option<&str> {
    let (_, event) = row.events.get(at).filter(|(_, event)| event.kind == "operator")?;
    event.data["action"].as_str()
}

/// An operator's line begins another life.
fn reopens(row: &Row, at: usize) -> bool {
    let gives_up = row.events.get(at).is_some_and(|(_, event)| event.data["outcome"] == "give_up");
    matches!(action(row, at), Some("replay" | "resolve")) && !gives_up
}

/// An operator's line allows one more purchase.
fn buys(row: &Row, at: usize) -> bool {
    row.events.get(at).is_some_and(|(_, event)| match event.data["action"].as_str() {
        Some("replay") => event.data["from"] == "start",
        Some("resolve") => event.data["outcome"] == "start_again",
        _ => false,
    })
}

impl World {
    /// Counts what runs at the vendor, when something was bought: jobs that somebody waits for, on the attempt they are at.
    pub(super) fn count_in_flight(&self, class: Class) {
        let now = self.ms();
        let running: Vec<(String, u64)> = {
            let mut inner = self.inner();
            let records = inner.books.running(class.name(), now);
            let jobs: Vec<_> = records.iter().map(|record| (record.job.clone(), record.attempt)).collect();
            jobs.into_iter().filter(|(job, _)| !inner.revived.contains(job)).collect()
        };
        let waited_for = |(job, attempt): &&(String, u64)| {
            self.store.look(|state| {
                state.rows.get(job).is_some_and(|row| {
                    let rests = row.job.state.is_final() || row.job.state == JobState::Parked;
                    !rests && u64::from(row.job.attempt.max(1)) == *attempt
                })
            })
        };
        let count = running.iter().filter(waited_for).count();
        if u32::try_from(count).unwrap_or(u32::MAX) > IN_FLIGHT {
            self.wrong(format!("{count} jobs of {} run at the vendor, and {IN_FLIGHT} may: {running:?}", class.name()));
        }
    }

    /// Everything that must hold when all has come to rest.
    pub(super) fn check_all(&self) {
        let (mut found, mut seen) = (Vec::new(), Vec::new());
        let now = self.ms();
        let (acknowledged, cancelled, records, delivered) = {
            let mut inner = self.inner();
            for class in Class::ALL {
                inner.books.running(class.name(), now);
            }
            let books: Vec<Record> = inner.books.records.values().cloned().collect();
            (inner.acknowledged.clone(), inner.cancelled.clone(), books, inner.delivered.clone())
        };
        self.store.look(|state| {
            for (key, job) in &acknowledged {
                if !state.rows.contains_key(job) {
                    found.push(format!("{job}, acknowledged for {key}, is lost"));
                }
            }
            if state.rows.len() != acknowledged.len() {
                found.push(format!("{} keys made {} jobs", acknowledged.len(), state.rows.len()));
            }
            state.rows.values().for_each(|row| seen.extend(corners(row)));
            for record in &records {
                check_owner(record, state.rows.get(&record.job), &mut found);
            }
            for row in state.rows.values() {
                let own: Vec<_> = records.iter().filter(|record| record.job == row.job.id).collect();
                check_history(row, &mut found);
                check_left(row, &own, &mut found);
                check_rest(row, &mut found);
                check_purchases(row, &own, &mut found);
                check_bill(row, &state.lines(&row.job.id), &own, &mut found);
                check_outputs(row, &state.hashes(row), &own, &mut found);
                if let Some(seq) = cancelled.get(&row.job.id) {
                    check_cancel(row, *seq, &own, &mut found);
                }
                let mut told: BTreeSet<String> =
                    delivered.iter().filter(|id| told_of(id, &row.job.id)).cloned().collect();
                told.extend(state.chores().filter_map(|chore| delivery_of(chore, &row.job.id)));
                check_notified(row, told.len(), &mut found);
            }
        });
        seen.into_iter().for_each(|seen| self.saw(seen));
        found.into_iter().for_each(|found| self.wrong(found));
    }
}

/// What a job went through.
fn corners(row: &Row) -> Vec<String> {
    let mut all = vec![format!("state {}", row.job.state)];
    if let Some(error) = &row.job.error {
        all.push(format!("rests with {}", error.failure.code));
    }
    if let Some(cancel) = &row.job.cancel {
        all.push(format!("cancel {:?}", cancel.outcome));
    }
    for (_, event) in &row.events {
        let word = |key: &str| event.data[key].as_str().map(|word| format!("{} {word}", event.kind));
        all.extend(match event.kind.as_str() {
            "step" => word("did"),
            "error" | "warning" => word("code"),
            "operator" => word("action"),
            "answer" => word("by"),
            _ => None,
        });
    }
    all
}

fn told_of(delivery: &str, job: &str) -> bool {
    let id = delivery.strip_prefix("msg_").and_then(|rest| rest.rsplit_once('_'));
    id.is_some_and(|(of, _)| job.strip_prefix("job_") == Some(of))
}

/// The delivery of a job's end that still waits, by the id it will have.
fn delivery_of(chore: &Chore, of: &str) -> Option<String> {
    match chore {
        Chore::Notify { job, event, seq, .. } if job == of && event == "job.finished" => {
            Some(format!("msg_{}_{seq}", job.trim_start_matches("job_")))
        }
        _ => None,
    }
}

fn check_owner(record: &Record, row: Option<&Row>, found: &mut Vec<String>) {
    match row {
        None => found.push(format!("{} was bought for {}, which no store knows", record.id, record.job)),
        Some(row) => {
            let attempts = 1..=u64::from(row.job.attempts_allowed);
            if !attempts.contains(&record.attempt) {
                found.push(format!("{} is attempt {} of {}", record.id, record.attempt, record.job));
            }
        }
    }
}

/// Lines are numbered from 1 without gaps, each state follows the one before, and each life ends once.
fn check_history(row: &Row, found: &mut Vec<String>) {
    let id = &row.job.id;
    let numbers: Vec<u64> = row.events.iter().map(|(_, event)| event.seq).collect();
    let expected: Vec<u64> = (1..=row.job.seq).collect();
    if numbers != expected {
        found.push(format!("the history of {id} has lines {numbers:?} and should end at {}", row.job.seq));
    }
    let (mut state, mut ended) = ("queued".to_owned(), false);
    for (at, (_, event)) in row.events.iter().enumerate() {
        ended &= !reopens(row, at);
        if event.kind != "state" || event.seq == 1 {
            continue;
        }
        if ended {
            found.push(format!("{id} changes its state after its end, at line {}", event.seq));
        }
        if event.data["from"] != state.as_str() {
            found.push(format!("{id} was {state} and line {} says {}", event.seq, event.data));
        }
        state = event.data["to"].as_str().unwrap_or_default().to_owned();
        ended = JobState::ALL.into_iter().any(|known| known.as_str() == state && known.is_final());
    }
    if state != row.job.state.as_str() || ended != row.job.state.is_final() {
        found.push(format!("{id} is {} and its history says {state}", row.job.state));
    }
}

/// A job that rests has ended, or waits for a person for a reason that only a person can settle.
fn check_rest(row: &Row, found: &mut Vec<String>) {
    let code = row.job.error.as_ref().map(|error| error.failure.code.as_str());
    let fine = match row.job.state {
        state if state.is_final() => true,
        JobState::Parked => matches!(code, Some("start_unknown" | "poison")),
        _ => false,
    };
    if !fine {
        let job = &row.job;
        found.push(format!("{} rests as {} ({code:?}), step {:?} due {:?}", job.id, job.state, job.step, job.due_at));
    }
}

fn check_purchases(row: &Row, own: &[&Record], found: &mut Vec<String>) {
    let id = &row.job.id;
    let allowed = 1 + (0..row.events.len()).filter(|at| buys(row, *at)).count();
    if own.len() > allowed {
        found.push(format!("{id} was bought {} times, and {allowed} were allowed", own.len()));
    }
    if usize::try_from(row.job.attempts_allowed).unwrap_or(0) > allowed {
        found.push(format!("{id} may be bought {} times, and people allowed {allowed}", row.job.attempts_allowed));
    }
    for record in own {
        let attempt = u32::try_from(record.attempt).unwrap_or(0);
        if idempotency_key(id, attempt) != record.key {
            found.push(format!("{} was bought under a key that is not that of attempt {attempt}", record.id));
        }
        let attempts_it = u64::from(row.job.attempt.max(1)) == record.attempt;
        if row.job.state == JobState::Succeeded && attempts_it && record.ended != Some(End::Done) {
            found.push(format!("{id} succeeded with {}, which the vendor calls {:?}", record.id, record.ended));
        }
    }
}

fn check_bill(row: &Row, lines: &[longhaul_store::UsageLine], own: &[&Record], found: &mut Vec<String>) {
    let id = &row.job.id;
    for line in lines {
        let fits = |record: &&&Record| record.id == line.record && record.attempt == u64::from(line.attempt);
        if own.iter().find(fits).is_none() {
            found.push(format!("{id} is charged for {} (attempt {}), which is not its own", line.record, line.attempt));
        }
    }
    let read = row.job.state == JobState::Succeeded
        || row.job.error.as_ref().is_some_and(|error| {
            row.job.state == JobState::Failed
                && matches!(error.failure.vendor_code.as_deref(), Some("moderated" | "failed"))
        });
    for record in own.iter().filter(|record| read && record.attempt == u64::from(row.job.attempt)) {
        let line = lines.iter().find(|line| line.record == record.id);
        let booked = line.map(|line| (line.quantity, line.source));
        if booked != Some((record.bill(), UsageSource::Reported)) {
            found.push(format!("{id} cost {} by the vendor's books, and {booked:?} is booked", record.bill()));
        }
    }
    let money: Decimal = lines.iter().filter_map(|line| line.usd).sum();
    if row.job.cost_usd.unwrap_or_default() != money {
        found.push(format!("{id} cost {:?} and its lines add up to {money}", row.job.cost_usd));
    }
}

fn check_outputs(row: &Row, hashes: &[String], own: &[&Record], found: &mut Vec<String>) {
    let id = &row.job.id;
    let made: BTreeSet<String> = own.iter().map(|record| content(&record.id)).collect();
    if let Some(foreign) = hashes.iter().find(|hash| !made.contains(*hash)) {
        found.push(format!("{id} has {foreign:?} in hand, which is not its own"));
    }
    let current = own.iter().find(|record| record.attempt == u64::from(row.job.attempt));
    let in_hand = current.is_some_and(|record| hashes.contains(&content(&record.id)));
    if row.job.state == JobState::Succeeded && !in_hand {
        found.push(format!("{id} succeeded and has {hashes:?} in hand"));
    }
}

/// A cancel that was acknowledged stands until a person decides otherwise, and something became of it.
fn check_cancel(row: &Row, seq: u64, own: &[&Record], found: &mut Vec<String>) {
    let taken_back = |at: usize| reopens(row, at) && row.events.get(at).is_some_and(|(_, event)| event.seq > seq);
    if (0..row.events.len()).any(taken_back) {
        return;
    }
    let id = &row.job.id;
    let Some(cancel) = &row.job.cancel else {
        found.push(format!("the cancel of {id}, acknowledged at line {seq}, is forgotten"));
        return;
    };
    if row.job.state.is_final() && cancel.outcome == CancelOutcome::Pending {
        found.push(format!("{id} has ended and its cancel is still pending"));
    }
    let runs = |record: &&&Record| record.ended.is_none() && record.attempt == u64::from(row.job.attempt.max(1));
    if row.job.state == JobState::Cancelled
        && cancel.outcome == CancelOutcome::Confirmed
        && let Some(record) = own.iter().find(runs)
    {
        found.push(format!("{id} is cancelled, confirmed, and {} runs on", record.id));
    }
}

/// A job that ended leaves nothing running at a vendor that can stop it, unless it says that it may.
fn check_left(row: &Row, own: &[&Record], found: &mut Vec<String>) {
    let job = &row.job;
    let code = job.error.as_ref().map(|error| error.failure.code.as_str());
    let says_so = matches!(code, Some("start_unknown" | "lost_at_vendor"))
        || row.events.iter().any(|(_, event)| event.data["code"] == "end_unconfirmed");
    if !job.state.is_final() || says_so || !Class::of(&job.connector).cancels() {
        return;
    }
    let current = u64::from(job.attempt.max(1));
    for record in own.iter().filter(|record| record.ended.is_none() && record.attempt == current) {
        found.push(format!("{} is {} ({code:?}) and {} runs on", job.id, job.state, record.id));
    }
}

fn check_notified(row: &Row, told: usize, found: &mut Vec<String>) {
    let to_final = |word: &str| JobState::ALL.into_iter().any(|known| known.as_str() == word && known.is_final());
    let ends =
        row.events.iter().filter(|(_, event)| event.kind == "state" && event.data["to"].as_str().is_some_and(to_final));
    let expected = if row.body.request.notify.is_some() { ends.count() } else { 0 };
    if told != expected {
        found.push(format!("{} ended {expected} times for its orchestrator, which hears of {told}", row.job.id));
    }
}
