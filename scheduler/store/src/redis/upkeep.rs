//! Connectors, chores, tokens, pruning.

use super::Inner;
use super::draft::{apart, chore, label, lines};
use super::value::{Row, int, list, maybe, pack, parse, text, unpack, write};
use crate::{Chore, Circuits, ClaimedChore, ConnectorState, NewEvent, Pace, StoreError, StoreResult, TokenRow};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::time::Duration;

/// What is kept of a connector in one place.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Kept {
    #[serde(default)]
    pub(super) state: ConnectorState,
    #[serde(default)]
    pub(super) check: Option<Json>,
    #[serde(default)]
    pub(super) pace: Option<Pace>,
    #[serde(default)]
    pub(super) circuits: Circuits,
}

impl Inner {
    pub(super) async fn kept(&self) -> StoreResult<BTreeMap<String, Kept>> {
        let mut kept: BTreeMap<String, Kept> = BTreeMap::new();
        let mut flat = list(self.link.run(redis::cmd("HGETALL").arg(self.names.connectors())).await?)?.into_iter();
        while let (Some(name), Some(value)) = (flat.next(), flat.next()) {
            let (name, value) = (text(name)?, text(value)?);
            let Some((part, name)) = name.split_once(':') else { continue };
            let one = kept.entry(name.to_owned()).or_default();
            match part {
                "state" => one.state = parse("a connector's state", &value)?,
                "pace" => one.pace = Some(parse("a connector's pace", &value)?),
                "circuits" => one.circuits = parse("a connector's circuits", &value)?,
                "check" => one.check = Some(parse("a connector's check", &value)?),
                _ => {}
            }
        }
        Ok(kept)
    }

    /// Writes a connector's state where it is read, then tells every shard, whose claims look only there.
    pub(super) async fn set_connector(&self, name: &str, mut state: ConnectorState) -> StoreResult<()> {
        state.resolve(self.now().await?);
        let text = write("a connector's state", &state)?;
        self.link.run(redis::cmd("HSET").arg(self.names.connectors()).arg(format!("state:{name}")).arg(text)).await?;
        self.spread_hold(name, &state).await?;
        self.wake_all().await
    }

    pub(super) async fn spread_hold(&self, name: &str, state: &ConnectorState) -> StoreResult<()> {
        let hold = match state {
            ConnectorState::Open => None,
            ConnectorState::Cooling { until, .. } => Some(format!("c:{}", until.resolve(0))),
            ConnectorState::Parked { .. } => Some("p".to_owned()),
            ConnectorState::Paused { .. } => Some("s".to_owned()),
        };
        for shard in 0..self.names.shards() {
            let key = self.names.at(shard, "hold");
            let cmd = match &hold {
                Some(hold) => redis::cmd("HSET").arg(key).arg(name).arg(hold).to_owned(),
                None => redis::cmd("HDEL").arg(key).arg(name).to_owned(),
            };
            self.link.run(&cmd).await?;
        }
        Ok(())
    }

    /// Makes every shard hold what connectors' states say: whoever set one may have died before it told all of them.
    pub(super) async fn sync_holds(&self) -> StoreResult<()> {
        for (name, kept) in self.kept().await? {
            self.spread_hold(&name, &kept.state).await?;
        }
        Ok(())
    }

    pub(super) async fn set_check(&self, name: &str, result: &Json) -> StoreResult<()> {
        let field = format!("check:{name}");
        self.link.run(redis::cmd("HSET").arg(self.names.connectors()).arg(field).arg(result.to_string())).await?;
        Ok(())
    }

    /// Where a chore lies: with its job, or with its connector's name.
    pub(super) fn chore_shard(&self, chore: &Chore) -> u32 {
        match chore {
            Chore::Notify { job, .. } => self.names.shard_of(job),
            Chore::Check { connector } => self.names.shard_of(connector),
        }
    }

    pub(super) async fn enqueue(&self, one: &Chore, delay_ms: i64) -> StoreResult<()> {
        let (connector, text) = chore(one)?;
        let shard = self.chore_shard(one);
        let args = [self.common(shard, "")?, pack(&(connector, text, delay_ms))?];
        self.on_shard(&self.scripts.enqueue, shard, &args).await?;
        Ok(())
    }

    pub(super) async fn claim_chores(
        &self,
        worker: &str,
        most: usize,
        lease_ms: i64,
    ) -> StoreResult<Vec<ClaimedChore>> {
        let mut claimed = Vec::new();
        for shard in 0..self.names.shards() {
            if claimed.len() >= most {
                break;
            }
            let args = [self.common(shard, worker)?, pack(&(most - claimed.len(), lease_ms))?];
            let answer = self.link.eval(&self.scripts.chores, &[&self.names.shard(shard)], &args).await?;
            let mut row = Row::of(answer)?;
            self.time.heard(row.int()?);
            row.int()?;
            let mut row = Row::of(row.next()?)?;
            while row.left() >= 5 {
                claimed.push(ClaimedChore {
                    id: row.count()?,
                    fence: row.count()?,
                    tries: u32::try_from(row.int()?).unwrap_or(u32::MAX),
                    created_ms: row.int()?,
                    chore: parse("a chore", &row.text()?)?,
                });
            }
        }
        Ok(claimed)
    }

    pub(super) async fn finish_chore(
        &self,
        id: u64,
        fence: u64,
        again: Option<Duration>,
        event: Option<(String, NewEvent)>,
    ) -> StoreResult<bool> {
        let shard = u32::try_from(id % u64::from(self.names.shards())).unwrap_or(0);
        // The line first: a chore that is done twice is better than a delivery that nobody wrote down.
        if let Some((job, event)) = &event
            && self.owns_chore(shard, id, fence).await?
        {
            self.append(job, event, &format!("{id}.{fence}")).await?;
        }
        let again = again.map_or(-1, super::claim::millis);
        let args = [self.common(shard, "")?, pack(&(id.to_string(), fence, again))?];
        Ok(int(&self.on_shard(&self.scripts.finish, shard, &args).await?)? == 1)
    }

    async fn owns_chore(&self, shard: u32, id: u64, fence: u64) -> StoreResult<bool> {
        let key = self.names.at(shard, "cd");
        let redis::Value::BulkString(kept) = self.link.run(redis::cmd("HGET").arg(key).arg(id.to_string())).await?
        else {
            return Ok(false);
        };
        let (known, _, owner, ..): (u64, u64, String, i64, String, String) = unpack("a chore", &kept)?;
        Ok(known == fence && !owner.is_empty())
    }

    async fn append(&self, job: &str, event: &NewEvent, mark: &str) -> StoreResult<()> {
        let Some(head) = self.head_of(job).await? else { return Ok(()) };
        let line = lines(std::slice::from_ref(event), head.attempt)?.pop().unwrap_or_default();
        let shard = self.names.shard_of(job);
        let args = [self.common(shard, "")?, pack(&(job, line, mark))?];
        self.on_shard(&self.scripts.append, shard, &args).await?;
        Ok(())
    }

    pub(super) async fn add_token(&self, token: &TokenRow) -> StoreResult<()> {
        let text = write("a token", token)?;
        let new = self.link.run(redis::cmd("HSETNX").arg(self.names.tokens()).arg(&token.id).arg(text)).await?;
        if int(&new)? == 1 {
            return Ok(());
        }
        Err(StoreError::Refused(format!("a token {} is there already; give each token its own id", token.id)))
    }

    pub(super) async fn tokens(&self) -> StoreResult<Vec<TokenRow>> {
        let mut tokens: Vec<TokenRow> = list(self.link.run(redis::cmd("HVALS").arg(self.names.tokens())).await?)?
            .into_iter()
            .map(|token| parse("a token", &text(token)?))
            .collect::<StoreResult<_>>()?;
        tokens.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(tokens)
    }

    pub(super) async fn revoke_token(&self, id: &str) -> StoreResult<bool> {
        let kept = maybe(self.link.run(redis::cmd("HGET").arg(self.names.tokens()).arg(id)).await?)?;
        let Some(kept) = kept else { return Ok(false) };
        let mut token: TokenRow = parse("a token", &kept)?;
        // Revoking twice keeps the first time.
        token.revoked_ms = token.revoked_ms.or(Some(self.now().await?));
        let text = write("a token", &token)?;
        self.link.run(redis::cmd("HSET").arg(self.names.tokens()).arg(id).arg(text)).await?;
        Ok(true)
    }

    /// Ids of final jobs that ended before a time, oldest first.
    pub(super) async fn ended(&self, before_ms: i64, limit: usize) -> StoreResult<Vec<String>> {
        let mut ended = Vec::new();
        for shard in 0..self.names.shards() {
            let mut cmd = redis::cmd("ZRANGEBYSCORE");
            cmd.arg(self.names.at(shard, "fin")).arg("-inf").arg(format!("({before_ms}")).arg("WITHSCORES");
            let mut flat = list(self.link.run(cmd.arg("LIMIT").arg(0).arg(limit)).await?)?.into_iter();
            while let (Some(id), Some(at)) = (flat.next(), flat.next()) {
                ended.push((int(&at)?, text(id)?));
            }
        }
        ended.sort();
        ended.truncate(limit);
        Ok(ended.into_iter().map(|(_, id)| id).collect())
    }

    /// Removes jobs that are final and ended before a time. A key of theirs that is still young keeps the last head first: a
    /// repeated submit must not buy it again.
    pub(super) async fn remove(&self, ids: &[String], ended_before_ms: i64) -> StoreResult<Vec<String>> {
        let mut gone = Vec::new();
        for id in ids {
            let Some(record) = self.records(std::slice::from_ref(id)).await?.into_iter().next().flatten() else {
                continue;
            };
            let job = &record.job;
            if !job.state.is_final() || job.finished_at.is_none_or(|at| at.resolve(0) >= ended_before_ms) {
                continue;
            }
            let mut row =
                Row::of(self.link.run(redis::cmd("HMGET").arg(self.names.job(id)).arg(&["i", "p", "v"])).await?)?;
            let key = row.maybe()?;
            let paths: Vec<String> = match row.next()? {
                redis::Value::BulkString(paths) => unpack("a job's paths", &paths)?,
                _ => Vec::new(),
            };
            let ids = apart(row.maybe()?.as_deref());
            if let Some(key) = &key {
                let name = self.names.idempotency(&job.tenant, key);
                let holder = maybe(self.link.run(redis::cmd("HGET").arg(&name).arg("job")).await?)?;
                if holder.as_deref() == Some(id) {
                    let head = write("a job's head", job)?;
                    self.link.run(redis::cmd("HSET").arg(&name).arg("pruned").arg(head)).await?;
                }
            }
            let labels: Vec<String> = job.labels.iter().map(|(key, value)| label(key, value)).collect();
            let shard = self.names.shard_of(id);
            let args = [self.common(shard, "")?, pack(&(ended_before_ms, id, labels))?];
            if list(self.on_shard(&self.scripts.remove, shard, &args).await?)?.is_empty() {
                continue;
            }
            self.cache().forget(id);
            self.let_go(&record, &paths, &ids).await?;
            gone.push(id.clone());
        }
        Ok(gone)
    }

    /// What lay on other slots for a job that is gone.
    async fn let_go(&self, record: &crate::JobRecord, paths: &[String], ids: &[String]) -> StoreResult<()> {
        let job = &record.job;
        let mut names: Vec<String> = paths.iter().map(|path| self.names.path(&job.tenant, path)).collect();
        names.extend(ids.iter().map(|id| self.names.vendor_id(&job.connector, id)));
        names.extend(record.artifacts.iter().map(|artifact| self.names.artifact(&artifact.id)));
        for name in names {
            if maybe(self.link.run(redis::cmd("GET").arg(&name)).await?)?.as_deref() == Some(&job.id) {
                self.link.run(redis::cmd("UNLINK").arg(&name)).await?;
            }
        }
        let hash = super::submit::request_hash(&record.body)?;
        for artifact in &record.artifacts {
            let key = self.names.bytes(&artifact.tenant, &artifact.sha256);
            self.link.run(redis::cmd("ZREM").arg(key).arg(format!("{}\u{1f}{hash}", job.id))).await?;
        }
        Ok(())
    }
}
