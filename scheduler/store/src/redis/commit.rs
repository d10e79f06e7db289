//! Transitions: what lies on other slots is claimed, the rest is one script.

use super::draft::{self, Change, More, Reserve, Stand, artifacts, book, lines, some, state_code};
use super::value::{Row, maybe, pack, parse, write};
use super::{Inner, amounts, quiet, submit};
use crate::{Committed, Job, JobBody, JobState, Lease, StoreError, StoreResult, Transition};
use std::sync::Arc;

/// Exchanges kept a job.
const EXCHANGES: u32 = 128;
/// Compressed bytes of exchanges kept a job: they lie in memory.
const EXCHANGE_BYTES: u32 = 256 << 10;

/// Tells the script to look at the guards and to write nothing.
const CHECK_ONLY: i8 = -2;

/// Whose a vendor's id is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IdClaim {
    /// This job's, as before, or none.
    Known,
    /// This job's, from this call on.
    New,
    /// This job's, since a commit that may not have arrived.
    Mine,
    /// Another job's, which has adopted it or was told it.
    Another,
}

/// A commit that failed inside its script, for a reason of the server's or one of ours.
fn failed(why: &str) -> StoreError {
    let why = why.trim_start_matches('-');
    let full = ["OOM", "MISCONF", "NOREPLICAS"].iter().any(|code| why.starts_with(code));
    let text = format!("a commit failed: {why}; see what the server's log and memory say");
    if full { StoreError::Full(text) } else { StoreError::Unavailable(text) }
}

impl Inner {
    pub(super) async fn commit(
        self: &Arc<Self>,
        lease: &Lease,
        rev: u64,
        transition: Transition,
    ) -> StoreResult<Committed> {
        // One lease commits a revision once: sent again, it is the same commit.
        let nonce = format!("{}.{rev}", lease.fence);
        let fence = i64::try_from(lease.fence).unwrap_or(i64::MAX);
        self.transition(&lease.job, fence, rev, &nonce, transition).await
    }

    pub(super) async fn apply(self: &Arc<Self>, job: &str, rev: u64, transition: Transition) -> StoreResult<Committed> {
        let nonce = self.nonce();
        self.transition(job, -1, rev, &nonce, transition).await
    }

    async fn transition(
        self: &Arc<Self>,
        id: &str,
        fence: i64,
        rev: u64,
        nonce: &str,
        transition: Transition,
    ) -> StoreResult<Committed> {
        let now = self.time.now_ms();
        let Transition { mut job, keep_lease, events, usage, artifacts: found, raws, chores, adopts, took } =
            transition;
        if job.id != id {
            if self.head_of(id).await?.is_none() {
                return Ok(Committed::Lost);
            }
            return Err(StoreError::Refused(format!("a transition of {} was committed as {id}", job.id)));
        }
        job.resolve(now);
        job.seq = job.seq.saturating_add(u64::try_from(events.len()).unwrap_or(0));
        let (mut fields, mut ledger, mut spend) = (Vec::new(), Vec::new(), Vec::new());
        // Something is set aside from the moment a start is handed out until the outputs are in hand.
        let reserves = job.holds_slot() || job.state == JobState::Collecting;
        let mut reserve = if reserves { Reserve::Same } else { Reserve::Now(Vec::new()) };
        // A signal may bring a job back to its vendor that has booked before.
        if !usage.is_empty() || (fence < 0 && reserves) {
            let standing = maybe(self.link.run(redis::cmd("HGET").arg(self.names.job(id)).arg("u")).await?)?;
            let books = book(&job, standing.as_deref().unwrap_or_default(), &usage, now)?;
            if reserves && let Some(body) = self.body_of(id).await? {
                reserve = Reserve::Now(amounts::written(&body.estimate.reserve(&books.booked)));
            }
            if !usage.is_empty() {
                job.cost_usd = books.cost;
                (ledger, spend) = (books.changed, books.spend);
                fields.extend(["u".to_owned(), books.all]);
            }
        }
        let ids = artifacts(&found, &mut fields)?;
        let claimed = self.claim_id(&job, adopts).await?;
        let adds = matches!(claimed, IdClaim::New | IdClaim::Mine);
        self.claim_artifacts(&job, &found, now).await?;
        let stand = Stand::of(&job, now);
        let before = if fence < 0 { None } else { self.cache().job(id, rev) };
        let quiet = before.map(|before| quiet::change(&before, &job)).transpose()?.flatten();
        let head = if quiet.is_some() { String::new() } else { write("a job's head", &job)? };
        let mut told = Vec::with_capacity(chores.len() * 2);
        for one in &chores {
            let (connector, text) = draft::chore(one)?;
            told.extend([connector, text]);
        }
        let (exchanges, texts): (Vec<_>, Vec<_>) =
            raws.into_iter().map(draft::exchange).collect::<StoreResult<Vec<_>>>()?.into_iter().unzip();
        // A correction that lowers what was booked gives something of the budget back.
        let lowers = spend.chunks(3).any(|sum| sum.iter().skip(1).any(|figure: &String| figure.starts_with('-')));
        let vendor_job_id = job.vendor_job_id.clone().filter(|_| adds);
        let more = More { chores: told, ledger, artifacts: ids, spend, took: self.lesson(took), vendor_job_id };
        let change = Change {
            id,
            fence,
            rev,
            nonce,
            head: &head,
            state: state_code(job.state),
            kind: stand.kind,
            due: stand.due,
            dies: stand.dies,
            priority: job.priority,
            slot: stand.slot,
            keep: match claimed {
                IdClaim::Another => CHECK_ONLY,
                _ if fence < 0 => -1,
                _ => i8::from(keep_lease),
            },
            finished: stand.finished,
            kills: job.kills,
            events: some(lines(&events, job.attempt)?),
            exchanges: some(exchanges),
            fields: some(fields),
            reserve,
            more: Some(more).filter(|more| *more != More::default()),
            quiet,
        };
        let shard = self.names.shard_of(id);
        let mut parts = vec![pack(&change)?];
        parts.extend(texts);
        // What a person is told, and what goes before a paid start.
        let lasting = fence < 0 || (job.state == JobState::Starting && job.start_sent.is_some());
        let one = if lasting && self.sealer.waits() {
            parts.insert(0, self.common(shard, "")?);
            let answer = self.on_shard_sealed(&self.scripts.commit, shard, &parts).await?;
            super::value::list(answer)?.into_iter().next().ok_or_else(|| super::value::strange("a commit"))?
        } else {
            self.commit_grouped(shard, parts).await?
        };
        if lowers {
            self.relieve(&job.tenant).await?;
        }
        let claim = job.vendor_job_id.clone().filter(|_| claimed == IdClaim::New);
        let connector = job.connector.clone();
        let committed = self.read_outcome(one, job).await?;
        if let (Some(vendor_job_id), Committed::Changed(..) | Committed::Lost) = (claim, &committed) {
            // It is not this job's after all, or not yet.
            self.link.run(redis::cmd("DEL").arg(self.names.vendor_id(&connector, &vendor_job_id))).await?;
        }
        Ok(committed)
    }

    async fn read_outcome(&self, answer: redis::Value, mut job: Job) -> StoreResult<Committed> {
        let mut row = Row::of(answer)?;
        match row.int()? {
            1 => {
                let rev = row.count()?;
                job.seq = row.count()?;
                let (freed, relieved, took) = (row.text()?, row.int()? == 1, row.int()? == 1);
                self.cache().saw(&job, rev);
                if !freed.is_empty() {
                    self.free(&freed, &job.id).await?;
                }
                if took {
                    self.hold_place(&job.connector, &job.id).await?;
                }
                if relieved {
                    self.relieve(&job.tenant).await?;
                }
                Ok(Committed::Done(Box::new(job), rev))
            }
            2 => {
                let mut now: Job = quiet::head(&row.text()?)?;
                let rev = row.count()?;
                now.seq = row.count()?;
                now.kills = u32::try_from(row.int()?).unwrap_or(u32::MAX);
                Ok(Committed::Changed(Box::new(now), rev))
            }
            4 => Ok(Committed::Taken),
            5 => Err(failed(&row.text()?)),
            _ => Ok(Committed::Lost),
        }
    }

    /// What lies on other slots names this job before the job names it: whoever reads it looks at the job too.
    async fn claim_id(&self, job: &Job, adopts: bool) -> StoreResult<IdClaim> {
        let Some(vendor_job_id) = &job.vendor_job_id else { return Ok(IdClaim::Known) };
        if !adopts && (job.step.is_none() || self.cache().holds_id(&job.id).as_ref() == Some(vendor_job_id)) {
            return Ok(IdClaim::Known);
        }
        let name = self.names.vendor_id(&job.connector, vendor_job_id);
        let holder = maybe(self.link.run(redis::cmd("SET").arg(name).arg(&job.id).arg("NX").arg("GET")).await?)?;
        match holder {
            Some(holder) if holder != job.id && adopts => Ok(IdClaim::Another),
            Some(holder) => {
                self.cache().held_id(&job.id, vendor_job_id);
                Ok(if holder == job.id { IdClaim::Mine } else { IdClaim::Known })
            }
            None => {
                self.cache().held_id(&job.id, vendor_job_id);
                Ok(IdClaim::New)
            }
        }
    }

    async fn claim_artifacts(&self, job: &Job, found: &[crate::Artifact], now: i64) -> StoreResult<()> {
        if found.is_empty() {
            return Ok(());
        }
        let Some(body) = self.body_of(&job.id).await? else { return Ok(()) };
        let mark = format!("{}\u{1f}{}", job.id, submit::request_hash(&body)?);
        for artifact in found {
            self.link.run(redis::cmd("SET").arg(self.names.artifact(&artifact.id)).arg(&job.id)).await?;
            let bytes = self.names.bytes(&artifact.tenant, &artifact.sha256);
            self.link.run(redis::cmd("ZADD").arg(bytes).arg("NX").arg(now).arg(&mark)).await?;
        }
        Ok(())
    }

    /// A job's body, from here or from the server; `None` where there is no job.
    async fn body_of(&self, id: &str) -> StoreResult<Option<Arc<JobBody>>> {
        let known = self.cache().body(id);
        if known.is_some() {
            return Ok(known);
        }
        let body = maybe(self.link.run(redis::cmd("HGET").arg(self.names.job(id)).arg("b")).await?)?;
        body.map(|body| parse("a job's body", &body).map(Arc::new)).transpose()
    }

    /// The bounds that scripts keep, with what every script is told.
    pub(super) fn common(&self, shard: u32, worker: &str) -> StoreResult<Vec<u8>> {
        let channel = self.names.channel();
        pack(&(self.time.argument(), worker, self.names.shards(), shard, channel, EXCHANGES, EXCHANGE_BYTES, &self.me))
    }
}
