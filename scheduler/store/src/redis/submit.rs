//! Taking jobs in: a key and a path are claimed first, the job is one script on its shard.

use super::draft::{Entry, Stand, book, label, lines, state_code};
use super::value::{Row, int, list, pack, parse, text, write};
use super::{Inner, amounts, names};
use crate::limits::Amounts;
use crate::{Job, JobBody, StoreError, StoreResult, Submission, Submitted};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// How long an idempotency key is kept.
pub(super) const KEY_MS: i64 = 30 * 24 * 3600 * 1000;
/// Jobs that one call takes in.
const CHUNK: usize = 64;
/// A path whose job never came is another's after this long.
const STALE_MS: i64 = 60_000;

/// What an idempotency key says.
pub(super) enum Known {
    /// It is this job's from now on.
    Mine,
    /// Another body came with it.
    Conflict(String),
    /// This job came with it; it may not have arrived.
    Job(String),
    /// The job came with it and was pruned: its last head.
    Pruned(Box<Job>),
}

/// One submission on its way.
struct Going {
    submission: Submission,
    body_text: String,
    answer: Option<Submitted>,
    /// The key's own job, where this one only repeats it.
    repeats: bool,
    path_claimed: bool,
}

impl Inner {
    /// Claims a key for a job, or tells whose it is.
    pub(super) async fn claim_key(&self, tenant: &str, key: &str, hash: &str, job: &str) -> StoreResult<Known> {
        let name = self.names.idempotency(tenant, key);
        let args = [self.time.argument().to_string(), KEY_MS.to_string(), hash.to_owned(), job.to_owned()];
        let args = args.map(String::into_bytes);
        // Of several primaries the one that has the key is another's business than the job's.
        let answer = match self.link.is_cluster() {
            true => self.sealed(&self.scripts.key, &name, &args).await?,
            false => self.twice(&self.scripts.key, &name, &args).await?,
        };
        let mut row = Row::of(answer)?;
        if row.left() == 0 {
            return Ok(Known::Mine);
        }
        let (known, holder, pruned) = (row.text()?, row.text()?, row.text()?);
        read_key(hash, &known, holder, &pruned)
    }

    /// What a key says, without claiming it.
    pub(super) async fn look_key(&self, tenant: &str, key: &str, hash: &str) -> StoreResult<Option<Known>> {
        let name = self.names.idempotency(tenant, key);
        let mut row =
            Row::of(self.link.run(redis::cmd("HMGET").arg(name).arg(&["hash", "job", "at", "pruned"])).await?)?;
        let (Some(known), Some(holder)) = (row.maybe()?, row.maybe()?) else { return Ok(None) };
        let at = row.int()?;
        if at <= self.now().await? - KEY_MS {
            return Ok(None);
        }
        let pruned = row.maybe()?.unwrap_or_default();
        read_key(hash, &known, holder, &pruned).map(Some)
    }

    /// Takes jobs in; answers in order.
    pub(super) async fn submit_all(&self, jobs: Vec<Submission>) -> StoreResult<Vec<Submitted>> {
        let now = self.time.now_ms();
        let mut all = Vec::with_capacity(jobs.len());
        for mut submission in jobs {
            submission.job.resolve(now);
            let body_text = write("a job's body", &submission.body)?;
            all.push(Going { submission, body_text, answer: None, repeats: false, path_claimed: false });
        }
        self.claim_names(&mut all).await?;
        self.insert_all(&mut all, now).await?;
        let mut answers = Vec::with_capacity(all.len());
        for one in all {
            answers.push(match one.answer {
                Some(answer) => answer,
                // The key's job came in this very batch.
                None => Submitted::Same(Box::new(self.head_of(&one.submission.job.id).await?.ok_or_else(gone)?)),
            });
        }
        Ok(answers)
    }

    /// Keys, then paths. In a batch the first of a key is the one.
    async fn claim_names(&self, all: &mut [Going]) -> StoreResult<()> {
        let mut here: HashMap<(String, String), (String, String)> = HashMap::new();
        for one in all.iter_mut() {
            let job = &one.submission.job;
            if let Some((key, hash)) = one.submission.idempotency.clone() {
                let at = (job.tenant.clone(), key.clone());
                if let Some((first, holder)) = here.get(&at) {
                    if *first == hash {
                        one.submission.job.id.clone_from(holder);
                        one.repeats = true;
                    } else {
                        one.answer = Some(Submitted::KeyConflict(holder.clone()));
                    }
                    continue;
                }
                match self.claim_key(&job.tenant, &key, &hash, &job.id).await? {
                    Known::Mine => {}
                    Known::Conflict(holder) => one.answer = Some(Submitted::KeyConflict(holder)),
                    Known::Pruned(job) => one.answer = Some(Submitted::Same(job)),
                    Known::Job(holder) => {
                        if let Some(job) = self.head_of(&holder).await? {
                            one.answer = Some(Submitted::Same(Box::new(job)));
                        } else {
                            // Whoever claimed the key did not get to its job, or is about to: it is the same job.
                            one.submission.job.id = holder;
                        }
                    }
                }
                if one.answer.is_none() {
                    here.insert(at, (hash, one.submission.job.id.clone()));
                }
            }
            if one.answer.is_some() {
                continue;
            }
            let job = &one.submission.job;
            if let Some(path) = &one.submission.output_path {
                let holder = self.claim_path(&job.tenant, path, &job.id).await?;
                if holder == job.id {
                    one.path_claimed = true;
                } else {
                    if let Some((key, _)) = &one.submission.idempotency {
                        here.remove(&(job.tenant.clone(), key.clone()));
                        self.link.run(redis::cmd("DEL").arg(self.names.idempotency(&job.tenant, key))).await?;
                    }
                    one.answer = Some(Submitted::PathTaken(holder));
                }
            }
        }
        Ok(())
    }

    /// Claims a path for a job; answers who holds it.
    pub(super) async fn claim_path(&self, tenant: &str, path: &str, job: &str) -> StoreResult<String> {
        let name = self.names.path(tenant, path);
        let claim = async |gone: &str| {
            let args = [job.as_bytes().to_vec(), gone.as_bytes().to_vec()];
            text(self.twice(&self.scripts.path, &name, &args).await?)
        };
        let holder = claim("").await?;
        if holder == job || !self.never_came(&holder).await? {
            return Ok(holder);
        }
        claim(&holder).await
    }

    /// A job that is not there although it was made more than a minute ago, by the time in its id.
    async fn never_came(&self, job: &str) -> StoreResult<bool> {
        let Some(made) = names::made_ms(job) else { return Ok(false) };
        Ok(self.time.now_ms() - made > STALE_MS && self.head_of(job).await?.is_none())
    }

    async fn insert_all(&self, all: &mut [Going], now: i64) -> StoreResult<()> {
        let mut shards: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (at, one) in all.iter().enumerate() {
            if one.answer.is_none() && !one.repeats {
                shards.entry(self.names.shard_of(&one.submission.job.id)).or_default().push(at);
            }
        }
        let mut calls = Vec::new();
        for (shard, ats) in shards {
            for chunk in ats.chunks(CHUNK) {
                let mut args = vec![self.common(shard, "")?];
                let mut jobs = Vec::with_capacity(chunk.len());
                for at in chunk {
                    let Some(one) = all.get(*at) else { continue };
                    let (job, entry) = entry(one, now)?;
                    args.push(entry);
                    jobs.push((*at, job));
                }
                calls.push(async move {
                    let answer = self.on_shard_sealed(&self.scripts.submit, shard, &args).await?;
                    StoreResult::Ok((jobs, list(answer)?))
                });
            }
        }
        let taken = futures::future::try_join_all(calls).await?;
        for one in all.iter().filter(|one| one.answer.is_none() && one.submission.job.holds_slot()) {
            self.hold_place(&one.submission.job.connector, &one.submission.job.id).await?;
        }
        for (jobs, new) in taken {
            for ((at, job), new) in jobs.into_iter().zip(new) {
                let Some(one) = all.get_mut(at) else { continue };
                let body = Arc::new(one.submission.body.clone());
                self.cache().keep(&job.id, &body, one.body_text.len() * 2);
                self.look_again(Some(&job.connector), &job.tenant);
                one.answer = Some(if int(&new)? == 1 {
                    Submitted::New(Box::new(job))
                } else {
                    Submitted::Same(Box::new(self.head_of(&job.id).await?.ok_or_else(gone)?))
                });
            }
        }
        Ok(())
    }
}

fn gone() -> StoreError {
    StoreError::Unavailable("a job that had just come is not there; send it again with the same key".to_owned())
}

fn read_key(hash: &str, known: &str, holder: String, pruned: &str) -> StoreResult<Known> {
    if known != hash {
        return Ok(Known::Conflict(holder));
    }
    if pruned.is_empty() {
        return Ok(Known::Job(holder));
    }
    Ok(Known::Pruned(Box::new(parse("a job's head", pruned)?)))
}

/// A submission as the script reads it, and the job as it will stand.
fn entry(one: &Going, now: i64) -> StoreResult<(Job, Vec<u8>)> {
    let Submission { job, body, idempotency, output_path, events, usage } = &one.submission;
    let mut job = job.clone();
    job.seq = u64::try_from(events.len()).unwrap_or(0);
    let (mut fields, mut ledger, mut spend) = (Vec::new(), Vec::new(), Vec::new());
    if !usage.is_empty() {
        let books = book(&job, "", usage, now)?;
        job.cost_usd = books.cost;
        ledger = books.changed;
        spend = books.spend;
        fields.extend(["u".to_owned(), books.all]);
    }
    if let Some((key, _)) = idempotency {
        fields.extend(["i".to_owned(), key.clone()]);
    }
    // What the request says of the path is with the body.
    if *output_path != one.submission.body.request.output_path {
        fields.extend(["o".to_owned(), output_path.clone().unwrap_or_default()]);
    }
    let stand = Stand::of(&job, now);
    let entry = Entry {
        id: &job.id,
        state: state_code(job.state),
        kind: stand.kind,
        due: stand.due,
        dies: stand.dies,
        priority: job.priority,
        slot: stand.slot,
        connector: &job.connector,
        tenant: &job.tenant,
        created: job.created_at.resolve(now),
        head: write("a job's head", &job)?,
        body: &one.body_text,
        fields,
        events: lines(events, job.attempt)?,
        labels: job.labels.iter().map(|(key, value)| label(key, value)).collect(),
        ledger,
        finished: stand.finished,
        path: output_path.as_deref().unwrap_or_default(),
        estimate: amounts::written(&body.estimate.reserve(&Amounts::default())),
        spend,
    };
    let entry = pack(&entry)?;
    Ok((job, entry))
}

/// Hex SHA-256 of a mapped request: its members are sorted, so equal requests have equal hashes.
pub(super) fn request_hash(body: &JobBody) -> StoreResult<String> {
    let text = write("a mapped request", &body.prepared)?;
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    Ok(digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect())
}
