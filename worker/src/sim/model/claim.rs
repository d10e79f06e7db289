//! Who is handed out, and when the next one may be.

use super::{Row, State};
use longhaul_registry::Step;
use longhaul_store::limits::{Try, stride};
use longhaul_store::{Claimed, JobState, Lease, Month};

impl State {
    /// Ids of the rows that a claim may lease, in an order.
    fn due<K: Ord>(&self, now_ms: i64, of: impl Fn(&Row) -> Option<K>) -> Vec<String> {
        let due = |row: &&Row| row.due_ms().is_some_and(|due| due <= now_ms) && !row.is_leased(now_ms);
        let mut found: Vec<_> =
            self.rows.values().filter(due).filter_map(|row| Some((of(row)?, row.n, &row.job.id))).collect();
        found.sort();
        found.into_iter().map(|(_, _, id)| id.clone()).collect()
    }

    pub(super) fn claim(&mut self, now_ms: i64, worker: &str, most: usize, lease_ms: i64) -> Vec<Claimed> {
        let until = now_ms.saturating_add(lease_ms);
        let outputs = self.due(now_ms, |row| {
            let dies = row.job.outputs_expire_at.map_or(i64::MAX, |when| when.resolve(0));
            (row.job.step == Some(Step::Outputs)).then_some((dies, row.due_ms()))
        });
        let going =
            self.due(now_ms, |row| (row.job.step != Some(Step::Outputs) && !row.is_fresh()).then_some(row.due_ms()));
        let mut claimed = Vec::new();
        for id in outputs.into_iter().chain(going) {
            if claimed.len() < most && self.may_go(&id, now_ms) {
                claimed.extend(self.lease(&id, now_ms, worker, until));
            }
        }
        while claimed.len() < most
            && let Some(id) = self.next_start(now_ms)
        {
            self.tries(&id, now_ms);
            claimed.extend(self.lease(&id, now_ms, worker, until));
        }
        claimed
    }

    /// Where starts are held, this one tries the vendor.
    fn tries(&mut self, id: &str, now_ms: i64) {
        let conn = self.rows.get(id).and_then(|row| self.conns.get_mut(&row.job.connector));
        if let Some(conn) = conn {
            conn.tried = conn.circuits.holds_starts().map(|ticket| Try { ticket, at_ms: now_ms });
        }
    }

    /// Its connector is not parked and has a request token.
    fn may_go(&self, id: &str, now_ms: i64) -> bool {
        self.rows.get(id).and_then(|row| self.conns.get_key_value(&row.job.connector)).is_some_and(|(name, conn)| {
            !conn.is_parked() && conn.next_request_ms(&self.limits_of(name), now_ms) <= now_ms
        })
    }

    /// The start that goes next: of every connector those that have their place, and the first of the tenant whose turn it
    /// is; of those the first by priority and age.
    fn next_start(&self, now_ms: i64) -> Option<String> {
        let mut heads = Vec::new();
        for (name, conn) in &self.conns {
            let limits = self.limits_of(name);
            let open = conn.starts_from().is_some_and(|from| from <= now_ms);
            if !open || conn.next_request_ms(&limits, now_ms) > now_ms {
                continue;
            }
            let waits = |row: &Row| row.job.connector == *name && row.is_fresh();
            let key = |row: &Row| (-i64::from(row.job.priority), row.due_ms(), row.n);
            let placed = self.due(now_ms, |row| (waits(row) && row.takes_place()).then(|| key(row)));
            heads.extend(placed.first().and_then(|id| self.rows.get(id)));
            if self.free(name) == 0 || conn.next_start_ms(&limits, now_ms) > now_ms {
                continue;
            }
            let fresh = self.due(now_ms, |row| (waits(row) && !row.takes_place()).then(|| key(row)));
            let mut first_of: Vec<&Row> = Vec::new();
            for row in fresh.iter().filter_map(|id| self.rows.get(id)) {
                if !first_of.iter().any(|first| first.job.tenant == row.job.tenant) {
                    first_of.push(row);
                }
            }
            let behind = |row: &&Row| {
                let time = conn.times.get(&row.job.tenant).copied().unwrap_or_default();
                (time.max(conn.time), row.job.tenant.clone())
            };
            heads.extend(first_of.into_iter().filter(|row| self.covered(row, now_ms)).min_by_key(behind));
        }
        let first = heads.into_iter().min_by_key(|row| (-i64::from(row.job.priority), row.due_ms(), row.n));
        first.map(|row| row.job.id.clone())
    }

    fn lease(&mut self, id: &str, now_ms: i64, worker: &str, until: i64) -> Option<Claimed> {
        let row = self.rows.get_mut(id)?;
        if row.owner.is_some() {
            row.job.kills = row.job.kills.saturating_add(1);
            row.rev += 1;
        }
        row.fence += 1;
        (row.owner, row.lease_until) = (Some(worker.to_owned()), until);
        let takes_turn = row.is_fresh() && !row.takes_place();
        row.placed |= takes_turn;
        let (connector, tenant) = (row.job.connector.clone(), row.job.tenant.clone());
        let lease = Lease { job: id.to_owned(), fence: row.fence };
        let claimed = Claimed { job: row.job.clone(), rev: row.rev, body: row.body.clone(), lease };
        let limits = self.limits_of(&connector);
        let weight = self.limits.tenants.get(&tenant).map_or(1, |limits| limits.weight);
        let conn = self.conns.entry(connector).or_default();
        conn.take_requests(&limits, now_ms, 1);
        if takes_turn {
            conn.take_start(&limits, now_ms);
            let time = conn.times.get(&tenant).copied().unwrap_or_default().max(conn.time);
            conn.time = time;
            conn.times.insert(tenant, time.saturating_add(stride(weight)));
        }
        Some(claimed)
    }

    /// When a claim may bring something, as far as rows and limits tell; `None` where nothing waits for time alone.
    pub(super) fn next_due(&self, now_ms: i64) -> Option<i64> {
        let next = self.rows.values().filter_map(|row| self.ready_ms(row, now_ms)).min()?;
        Some(next.max(now_ms))
    }

    /// When a row may be handed out.
    pub(super) fn ready_ms(&self, row: &Row, now_ms: i64) -> Option<i64> {
        let due = row.due_ms()?;
        let conn = self.conns.get(&row.job.connector)?;
        if conn.is_parked() {
            return None;
        }
        let limits = self.limits_of(&row.job.connector);
        let mut ready = due.max(conn.next_request_ms(&limits, now_ms));
        if row.owner.is_some() {
            ready = ready.max(row.lease_until);
        }
        if !row.is_fresh() || row.is_leased(now_ms) {
            return Some(ready);
        }
        ready = ready.max(conn.starts_from()?);
        if row.takes_place() {
            return Some(ready);
        }
        if self.free(&row.job.connector) == 0 {
            return None;
        }
        ready = ready.max(conn.next_start_ms(&limits, now_ms));
        Some(if self.covered(row, now_ms) { ready } else { ready.max(Month::of(now_ms).ends_ms()) })
    }

    /// How long the oldest step that could run has been due.
    pub(super) fn oldest_due(&self, now_ms: i64) -> Option<i64> {
        let could_run =
            |row: &&Row| !row.is_leased(now_ms) && self.ready_ms(row, now_ms).is_some_and(|at| at <= now_ms);
        let since = |row: &Row| {
            let due = row.due_ms().unwrap_or(now_ms);
            if row.owner.is_some() { due.max(row.lease_until) } else { due }
        };
        let answers =
            |row: &&Row| self.conns.get(&row.job.connector).is_none_or(|conn| !conn.circuits.hold_back(now_ms));
        self.rows.values().filter(could_run).filter(answers).map(|row| now_ms - since(row)).max()
    }

    pub(super) fn renew(&mut self, lease: &Lease, until: i64) -> bool {
        let row = self.rows.get_mut(&lease.job).filter(|row| row.fence == lease.fence && row.owner.is_some());
        row.map(|row| row.lease_until = until).is_some()
    }

    pub(super) fn release(&mut self, lease: &Lease) {
        if let Some(row) = self.rows.get_mut(&lease.job).filter(|row| row.fence == lease.fence) {
            (row.owner, row.lease_until, row.placed) = (None, 0, false);
        }
    }

    pub(super) fn queued(&self, connector: &str) -> u64 {
        let queued = |row: &&Row| row.job.connector == connector && row.job.state == JobState::Queued;
        u64::try_from(self.rows.values().filter(queued).count()).unwrap_or(u64::MAX)
    }

    /// Tenants with a due start that waits at a connector and that their budget covers.
    pub(super) fn tenants_waiting(&self, connector: &str, now_ms: i64) -> u32 {
        let waits = self
            .due(now_ms, |row| (row.job.connector == connector && row.is_fresh() && !row.takes_place()).then_some(()));
        let rows = waits.iter().filter_map(|id| self.rows.get(id)).filter(|row| self.covered(row, now_ms));
        let tenants: std::collections::BTreeSet<_> = rows.map(|row| &row.job.tenant).collect();
        u32::try_from(tenants.len()).unwrap_or(u32::MAX)
    }
}
