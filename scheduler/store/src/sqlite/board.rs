//! What the writer keeps in memory: connectors' states, their places, and where a claim need not look.
//!
//! Everything here can be read back from the rows; after any failed group it is.

use super::buckets;
use super::circuits;
use super::fault::{self, Done, unsigned};
use super::lane::{Lane, Stand};
use super::tenants::Tenants;
use crate::limits::{Bucket, Circuits, Meter, Month, Pace, Try, Turns};
use crate::{ConnectorState, JobBody, JobState, Limits, StoreError};
use longhaul_registry::ConnectorLimits;
use rusqlite::Connection;
use serde_json::Value;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

/// Bodies kept parsed, so that a poll does not read the same prompt again and again.
const BODY_CACHE_BYTES: usize = 16 << 20;

/// One connector.
#[derive(Debug)]
pub(super) struct Conn {
    /// Its row.
    pub(super) cid: i64,
    /// Its name.
    pub(super) name: String,
    /// How it fares.
    pub(super) state: ConnectorState,
    /// The last free check.
    pub(super) check: Option<Value>,
    /// Places taken.
    pub(super) in_flight: u32,
    /// Jobs in each state, in the order of [`JobState::ALL`].
    pub(super) states: [u64; JobState::ALL.len()],
    /// For each lane, a time before which nothing in it can run; `i64::MAX`: it is empty.
    pub(super) earliest: [i64; Lane::COUNT],
    /// Its caps.
    pub(super) limits: ConnectorLimits,
    /// Start tokens, since it has a start rate.
    pub(super) starts: Option<Bucket>,
    /// Request tokens, since it has a request rate or a pace.
    pub(super) requests: Option<Bucket>,
    /// How fast its vendor bears requests, since it refused some.
    pub(super) pace: Option<Pace>,
    /// Whether its vendor answers.
    pub(super) circuits: Circuits,
    /// The last start that was let through to try its vendor.
    pub(super) tried: Option<Try>,
    /// Its requests as they went out lately.
    pub(super) meter: Meter,
    /// Tenants with a due start that waits for its turn.
    pub(super) turns: Turns<i64>,
    /// Tenants with a due start that their budget does not cover.
    pub(super) over: BTreeSet<i64>,
}

impl Conn {
    fn new(cid: i64, name: String) -> Self {
        Self {
            cid,
            name,
            state: ConnectorState::Open,
            check: None,
            in_flight: 0,
            states: [0; JobState::ALL.len()],
            // Unknown until a claim has looked.
            earliest: [i64::MIN; Lane::COUNT],
            limits: ConnectorLimits::default(),
            starts: None,
            requests: None,
            pace: None,
            circuits: Circuits::default(),
            tried: None,
            meter: Meter::default(),
            turns: Turns::default(),
            over: BTreeSet::new(),
        }
    }

    /// Free places.
    pub(super) fn free(&self) -> usize {
        self.limits.in_flight.map_or(usize::MAX, |cap| cap.saturating_sub(self.in_flight) as usize)
    }

    /// No step is handed out at all.
    pub(super) fn is_parked(&self) -> bool {
        matches!(self.state, ConnectorState::Parked { .. })
    }

    /// Fresh starts are handed out, be it one to try the vendor.
    pub(super) fn takes_starts(&self, now_ms: i64) -> bool {
        self.starts_from(now_ms) <= now_ms
    }

    /// From when on fresh starts are handed out, as far as that is known. A cooling that is over is open.
    pub(super) fn starts_from(&self, now_ms: i64) -> i64 {
        let open = match self.state {
            ConnectorState::Open => i64::MIN,
            ConnectorState::Cooling { until, .. } => until.resolve(now_ms),
            ConnectorState::Parked { .. } | ConnectorState::Paused { .. } => i64::MAX,
        };
        open.max(self.circuits.next_start_ms(self.tried).unwrap_or(i64::MIN))
    }

    /// Jobs in a state.
    pub(super) fn count_mut(&mut self, state: JobState) -> Option<&mut u64> {
        self.states.get_mut(state as usize)
    }
}

/// The writer's memory.
#[derive(Debug, Default)]
pub(super) struct Board {
    conns: Vec<Conn>,
    by_name: HashMap<String, usize>,
    limits: Limits,
    tenants: Tenants,
    /// The month that budgets were last looked at in.
    month: Option<Month>,
    bodies: Bodies,
    /// The moment up to which claimers were told that nothing is due.
    pub(super) promised: i64,
    /// The newest event's position.
    pub(super) position: u64,
}

impl Board {
    /// Reads everything back from the rows; limits stay, and so do turns and meters, which no row keeps.
    pub(super) fn reload(&mut self, conn: &Connection) -> Done<()> {
        let mut fresh = Self { limits: std::mem::take(&mut self.limits), ..Self::default() };
        let read = fresh.read(conn, std::mem::take(&mut self.conns));
        *self = fresh;
        read
    }

    fn read(&mut self, conn: &Connection, before: Vec<Conn>) -> Done<()> {
        self.tenants = Tenants::read(conn, &self.limits)?;
        let mut before = before.into_iter();
        let mut rows = conn.prepare_cached("SELECT cid, name, state, last_check FROM connectors ORDER BY cid")?;
        let mut rows = rows.query([])?;
        while let Some(row) = rows.next()? {
            let mut one = Conn::new(row.get(0)?, row.get(1)?);
            one.state = fault::parse("a connector's state", row.get_ref(2)?.as_str().map_err(fault::column)?)?;
            let check: Option<String> = row.get(3)?;
            one.check = check.map(|text| fault::parse("a connector's check", &text)).transpose()?;
            if let Some(mut before) = before.next().filter(|before| before.name == one.name) {
                before.turns.clear();
                (one.turns, one.meter, one.tried) = (before.turns, before.meter, before.tried);
            }
            one.limits = self.limits.connectors.get(&one.name).copied().unwrap_or_default();
            self.by_name.insert(one.name.clone(), self.conns.len());
            self.conns.push(one);
        }
        buckets::read(conn, |cid, rates| {
            let at = self.at_cid(cid)?;
            self.conn_mut(at)?.set_rates(rates);
            Ok(())
        })?;
        circuits::read(conn, |cid, circuits| {
            let at = self.at_cid(cid)?;
            self.conn_mut(at)?.circuits = circuits;
            Ok(())
        })?;
        let mut rows = conn.prepare_cached("SELECT cid, state, slot, turn FROM queue")?;
        let mut rows = rows.query([])?;
        let mut joined = (0, 0);
        while let Some(row) = rows.next()? {
            let (cid, state, slot, turn): (i64, i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
            if turn != 0 && joined != (cid, turn) {
                let at = self.at_cid(cid)?;
                self.conn_mut(at)?.turns.join(turn);
                joined = (cid, turn);
            }
            let at = self.at_cid(cid)?;
            let conn = self.conn_mut(at)?;
            conn.in_flight += u32::from(slot != 0);
            if let Some(count) = usize::try_from(state).ok().and_then(|state| conn.states.get_mut(state)) {
                *count += 1;
            }
        }
        let last = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, Option<i64>>(0));
        let newest = last("SELECT max(pos) FROM events")?.unwrap_or(0);
        let pruned = last("SELECT max(value) FROM meta WHERE key = 'position'")?.unwrap_or(0);
        self.position = unsigned(newest.max(pruned));
        // Nothing was promised: whoever waits looks again.
        self.promised = i64::MAX;
        Ok(())
    }

    /// Something may stand in a lane.
    pub(super) fn has(&self, at: usize, lane: Lane) -> Done<bool> {
        Ok(self.conn(at)?.earliest.get(lane.at()).is_some_and(|earliest| *earliest < i64::MAX))
    }

    /// Every connector.
    pub(super) fn conns(&self) -> &[Conn] {
        &self.conns
    }

    /// How many connectors there are.
    pub(super) fn len(&self) -> usize {
        self.conns.len()
    }

    /// A connector by its place.
    pub(super) fn conn(&self, at: usize) -> Done<&Conn> {
        self.conns.get(at).ok_or_else(missing)
    }

    /// A connector by its place.
    pub(super) fn conn_mut(&mut self, at: usize) -> Done<&mut Conn> {
        self.conns.get_mut(at).ok_or_else(missing)
    }

    /// The place of a row: rows are numbered from 1 and never removed.
    pub(super) fn at_cid(&self, cid: i64) -> Done<usize> {
        usize::try_from(cid - 1).ok().filter(|at| *at < self.conns.len()).ok_or_else(missing)
    }

    /// A connector's place by its name; its row is made where it has none.
    pub(super) fn at_name(&mut self, conn: &Connection, name: &str) -> Done<usize> {
        if let Some(at) = self.by_name.get(name) {
            return Ok(*at);
        }
        let at = self.conns.len();
        let cid = i64::try_from(at + 1).unwrap_or(i64::MAX);
        let open = fault::write("a connector's state", &ConnectorState::Open)?;
        conn.prepare_cached("INSERT INTO connectors (cid, name, state) VALUES (?1, ?2, ?3)")?
            .execute((cid, name, open))?;
        let limits = self.limits.connectors.get(name).copied().unwrap_or_default();
        self.conns.push(Conn { limits, ..Conn::new(cid, name.to_owned()) });
        self.by_name.insert(name.to_owned(), at);
        Ok(at)
    }

    /// Every limit.
    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The tenants, with the limits that new ones get.
    pub(super) fn tenants_and_limits(&mut self) -> (&mut Tenants, &Limits) {
        (&mut self.tenants, &self.limits)
    }

    /// A tenant's share of starts.
    pub(super) fn weight(&self, tid: i64) -> u32 {
        self.tenants.weight(tid)
    }

    /// A new month begins with its budgets whole.
    pub(super) fn enter_month(&mut self, month: Month) {
        if self.month != Some(month) {
            self.month = Some(month);
            self.rejoin(None);
        }
    }

    /// Looks again at the starts of a tenant, or of every tenant, that its budget did not cover; `true` where there are any.
    pub(super) fn rejoin(&mut self, tid: Option<i64>) -> bool {
        let mut any = false;
        for conn in &mut self.conns {
            let again: Vec<i64> = match tid {
                Some(tid) => conn.over.take(&tid).into_iter().collect(),
                None => std::mem::take(&mut conn.over).into_iter().collect(),
            };
            any |= !again.is_empty();
            again.into_iter().for_each(|tid| conn.turns.join(tid));
        }
        any
    }

    /// Sets every limit.
    pub(super) fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
        self.tenants.set_limits(&self.limits);
        self.rejoin(None);
        for conn in &mut self.conns {
            conn.limits = self.limits.connectors.get(&conn.name).copied().unwrap_or_default();
        }
    }

    /// Notes that something stands in a lane; `true` where a waiting claimer should look again.
    pub(super) fn note(&mut self, at: usize, tid: i64, stand: Stand, now_ms: i64) -> Done<bool> {
        let promised = self.promised;
        let conn = self.conn_mut(at)?;
        if stand.lane == Lane::Fresh {
            // The first of a tenant's starts may be another now, which its budget covers.
            conn.over.remove(&tid);
            conn.turns.join(tid);
        }
        let earliest = stand.earliest();
        if let Some(hint) = conn.earliest.get_mut(stand.lane.at()) {
            *hint = (*hint).min(earliest);
        }
        let conn = self.conn(at)?;
        if conn.is_parked() || earliest.max(conn.next_request_ms(now_ms)) >= promised {
            return Ok(false);
        }
        Ok(match stand.lane {
            Lane::Fresh => conn.takes_starts(now_ms) && conn.free() > 0 && conn.next_start_ms(now_ms) < promised,
            Lane::Placed => conn.takes_starts(now_ms),
            Lane::Outputs | Lane::Going | Lane::Later | Lane::Leased => true,
        })
    }

    /// A parsed body.
    pub(super) fn body(&mut self, conn: &Connection, n: i64) -> Done<Arc<JobBody>> {
        if let Some(body) = self.bodies.map.get(&n) {
            return Ok(Arc::clone(body));
        }
        let text: String =
            conn.prepare_cached("SELECT body FROM bodies WHERE n = ?1")?.query_row([n], |row| row.get(0))?;
        let body: Arc<JobBody> = Arc::new(fault::parse("a job's body", &text)?);
        self.bodies.keep(n, text.len(), &body);
        Ok(body)
    }

    /// Keeps a body that was just written.
    pub(super) fn keep_body(&mut self, n: i64, bytes: usize, body: &Arc<JobBody>) {
        self.bodies.keep(n, bytes, body);
    }

    /// Forgets a body.
    pub(super) fn drop_body(&mut self, n: i64) {
        self.bodies.map.remove(&n);
    }
}

fn missing() -> fault::Fault {
    StoreError::Corrupt("a job's connector has no row".into()).into()
}

#[derive(Debug, Default)]
struct Bodies {
    map: HashMap<i64, Arc<JobBody>>,
    order: VecDeque<(i64, usize)>,
    bytes: usize,
}

impl Bodies {
    fn keep(&mut self, n: i64, bytes: usize, body: &Arc<JobBody>) {
        // A parsed value takes about twice its text.
        let bytes = bytes.saturating_mul(2);
        if bytes > BODY_CACHE_BYTES / 16 || self.map.insert(n, Arc::clone(body)).is_some() {
            return;
        }
        self.order.push_back((n, bytes));
        self.bytes += bytes;
        while self.bytes > BODY_CACHE_BYTES {
            let Some((oldest, size)) = self.order.pop_front() else { return };
            self.bytes -= size;
            self.map.remove(&oldest);
        }
    }
}
