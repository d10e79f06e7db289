//! What is told: jobs, lists, sums, and everything at once.

use super::commit::KEY_MS;
use super::{ChoreRow, Row, State, refused};
use longhaul_store::{
    ChoreRecord, ConnectorRecord, EventRecord, ExchangeRecord, JobFilter, JobRecord, KeptJob, PathRecord, Record,
    StoreResult, UsageBy, UsageRecord, UsageSum,
};
use rust_decimal::Decimal;
use std::collections::BTreeMap;

impl State {
    pub(super) fn record(&self, row: &Row) -> JobRecord {
        JobRecord {
            job: row.job.clone(),
            rev: row.rev,
            body: row.body.clone(),
            artifacts: row.artifacts.iter().filter_map(|id| self.artifacts.get(id).cloned()).collect(),
            usage: self.lines_of(&row.job.id).map(|record| record.line.clone()).collect(),
        }
    }

    pub(super) fn list(
        &self,
        filter: &JobFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> StoreResult<(Vec<JobRecord>, Option<String>)> {
        let after = match cursor {
            Some(cursor) => {
                let parts = cursor.split_once(':').and_then(|(ms, n)| Some((ms.parse().ok()?, n.parse().ok()?)));
                Some(parts.ok_or_else(|| refused(format!("{cursor} is no cursor of a list")))?)
            }
            None => None,
        };
        let place = |row: &Row| (row.job.created_at.resolve(0), row.n);
        let mut rows: Vec<_> = self.rows.values().filter(|row| fits(filter, row)).collect();
        rows.retain(|row| after.is_none_or(|after: (i64, u64)| place(row) < after));
        rows.sort_by_key(|row| std::cmp::Reverse(place(row)));
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next = rows.last().filter(|_| more).map(|row| format!("{}:{}", row.job.created_at.resolve(0), row.n));
        Ok((rows.into_iter().map(|row| self.record(row)).collect(), next))
    }

    pub(super) fn sum(
        &self,
        by: &[UsageBy],
        tenant: Option<&str>,
        from: Option<&str>,
        to: Option<&str>,
    ) -> StoreResult<Vec<UsageSum>> {
        for day in [from, to].into_iter().flatten() {
            day.parse::<chrono::NaiveDate>().map_err(|_| refused(format!("{day} is no day")))?;
        }
        // Days in this form are ordered as their texts are.
        let within = |day: &str| from.is_none_or(|from| from <= day) && to.is_none_or(|to| day <= to);
        let mut sums: BTreeMap<Vec<String>, UsageSum> = BTreeMap::new();
        for record in self.usage.values().filter(|record| tenant.is_none_or(|tenant| record.tenant == tenant)) {
            let day = day_of(record);
            if !within(&day) {
                continue;
            }
            let group: Vec<String> = by.iter().map(|by| group(record, *by, &day)).collect();
            let line = &record.line;
            let sum = sums.entry(group.clone()).or_insert_with(|| UsageSum {
                group,
                unit: Some(line.unit),
                quantity: Some(Decimal::ZERO),
                usd: Decimal::ZERO,
                lines: 0,
            });
            if sum.unit != Some(line.unit) {
                (sum.unit, sum.quantity) = (None, None);
            }
            sum.quantity = sum.quantity.map(|quantity| quantity + line.quantity);
            sum.usd += line.usd.unwrap_or_default();
            sum.lines += 1;
        }
        Ok(sums.into_values().collect())
    }

    /// Every record, in the order in which stores tell them.
    pub(super) fn whole(&self) -> Vec<Record> {
        let mut rows: Vec<_> = self.rows.values().collect();
        rows.sort_by_key(|row| row.n);
        let connector = |(name, conn): (&String, &super::Conn)| {
            Record::Connector(ConnectorRecord {
                name: name.clone(),
                state: conn.state.clone(),
                last_check: conn.check.clone(),
            })
        };
        let mut all: Vec<Record> = self.conns.iter().map(connector).collect();
        all.extend(self.tokens.iter().cloned().map(Record::Token));
        all.extend(rows.iter().map(|row| Record::Job(Box::new(kept(row)))));
        let mut events: Vec<_> = rows.iter().flat_map(|row| row.events.clone()).collect();
        events.sort_by_key(|(position, _)| *position);
        all.extend(events.into_iter().map(|(position, event)| Record::Event(EventRecord { position, event })));
        for row in &rows {
            let exchange =
                |of: &longhaul_store::StoredExchange| ExchangeRecord { job: row.job.id.clone(), exchange: of.clone() };
            all.extend(row.exchanges.iter().map(exchange).map(Record::Exchange));
        }
        let of_jobs = rows.iter().flat_map(|row| &row.artifacts).filter_map(|id| self.artifacts.get(id));
        let uploads = self.artifacts.values().filter(|artifact| artifact.job.is_none());
        all.extend(of_jobs.chain(uploads).map(|artifact| Record::Artifact(Box::new(artifact.clone()))));
        let path = |((tenant, path), job): (&(String, String), &String)| {
            Record::Path(PathRecord { tenant: tenant.clone(), path: path.clone(), job: job.clone() })
        };
        all.extend(self.paths.iter().map(path));
        all.extend(self.usage.values().cloned().map(Record::Usage));
        let chore = |row: &ChoreRow| {
            let (run_at_ms, tries, created_ms, chore) = (row.run_at, row.tries, row.created_ms, row.chore.clone());
            Record::Chore(ChoreRecord { run_at_ms, tries, created_ms, chore })
        };
        all.extend(self.chores.values().map(chore));
        let young = self.keys.values().filter(|key| key.created_ms > self.last_ms - KEY_MS);
        all.extend(young.cloned().map(Record::Key));
        all.push(Record::End { position: self.position });
        all
    }

    pub(super) fn load(&mut self, record: Record) -> StoreResult<()> {
        self.loading = true;
        match record {
            Record::Connector(record) => {
                let conn = self.conns.entry(record.name).or_default();
                (conn.state, conn.check) = (record.state, record.last_check);
            }
            Record::Token(token) => self.tokens.push(token),
            Record::Job(kept) => {
                let KeptJob { job, rev, fence, body, key, output_path, vendor_ids } = *kept;
                self.conns.entry(job.connector.clone()).or_default();
                let finished_ms = job.finished_at.map(|when| when.resolve(0)).filter(|_| job.state.is_final());
                let vendor_ids = vendor_ids.into_iter().collect();
                self.insert(Row { rev, fence, key, output_path, finished_ms, vendor_ids, ..Row::new(job, body) });
            }
            Record::Event(EventRecord { position, event }) => {
                self.position = self.position.max(position);
                self.of(&event.job.clone())?.events.push((position, event));
            }
            Record::Exchange(ExchangeRecord { job, exchange }) => self.of(&job)?.exchanges.push(exchange),
            Record::Artifact(artifact) => self.keep_artifact(*artifact),
            Record::Path(path) => drop(self.paths.insert((path.tenant, path.path), path.job)),
            Record::Usage(record) => {
                let line = &record.line;
                let key = (record.job.clone(), line.attempt, line.record.clone(), line.unit.as_str().to_owned());
                self.usage.insert(key, record);
            }
            Record::Chore(ChoreRecord { run_at_ms, tries, created_ms, chore }) => {
                self.next_chore += 1;
                let row = ChoreRow { run_at: run_at_ms, fence: 0, tries, created_ms, leased: false, chore };
                self.chores.insert(self.next_chore, row);
            }
            Record::Key(key) => drop(self.keys.insert((key.tenant.clone(), key.key.clone()), key)),
            Record::End { position } => (self.position, self.loading) = (self.position.max(position), false),
        }
        Ok(())
    }

    fn of(&mut self, job: &str) -> StoreResult<&mut Row> {
        self.rows.get_mut(job).ok_or_else(|| refused(format!("what hangs on {job} came before the job itself")))
    }
}

fn fits(filter: &JobFilter, row: &Row) -> bool {
    let job = &row.job;
    let is = |wanted: &Option<String>, found: &String| wanted.as_ref().is_none_or(|wanted| wanted == found);
    let created = job.created_at.resolve(0);
    let failed = |word: &String| {
        job.error.as_ref().is_some_and(|error| error.failure.code == *word || error.failure.kind.as_str() == word)
    };
    (filter.states.is_empty() || filter.states.contains(&job.state))
        && is(&filter.connector, &job.connector)
        && is(&filter.vendor, &job.vendor)
        && is(&filter.tenant, &job.tenant)
        && filter.label.as_ref().is_none_or(|(key, value)| job.labels.get(key) == Some(value))
        && filter.error.as_ref().is_none_or(failed)
        && filter.since_ms.is_none_or(|since| created >= since)
        && filter.until_ms.is_none_or(|until| created < until)
}

fn kept(row: &Row) -> KeptJob {
    KeptJob {
        job: row.job.clone(),
        rev: row.rev,
        fence: row.fence,
        body: (*row.body).clone(),
        key: row.key.clone(),
        output_path: row.output_path.clone(),
        vendor_ids: row.vendor_ids.iter().cloned().collect(),
    }
}

fn day_of(record: &UsageRecord) -> String {
    chrono::DateTime::from_timestamp_millis(record.booked_ms).unwrap_or_default().date_naive().to_string()
}

fn group(record: &UsageRecord, by: UsageBy, day: &str) -> String {
    match by {
        UsageBy::Vendor => record.vendor.clone(),
        UsageBy::Unit => record.line.unit.as_str().to_owned(),
        UsageBy::Tenant => record.tenant.clone(),
        UsageBy::Connector => record.connector.clone(),
        UsageBy::Day => day.to_owned(),
    }
}
