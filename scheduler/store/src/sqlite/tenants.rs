//! Tenants: their numbers, what they spent this month, and what is set aside for their jobs at vendors.
//!
//! Sums are kept as they change, never added up at a claim. What is set aside stands in the job's own row as well, so
//! that the writer's memory can be read back.

use super::fault::{self, Done, Fault};
use super::writer::Session;
use crate::limits::{Amounts, Estimate, Month, Passed, TenantLimits, TenantRow};
use crate::{JobState, Limits, UsageLine};
use longhaul_registry::Unit;
use rusqlite::{Connection, OptionalExtension};
use rust_decimal::Decimal;
use std::collections::{BTreeMap, HashMap};

/// The unit under which money stands among a month's sums.
const MONEY: &str = "$";

/// One tenant, as the writer remembers it.
#[derive(Debug, Default)]
struct Tenant {
    name: String,
    limits: TenantLimits,
    /// What it booked in a month, once somebody asked.
    spent: Option<(Month, Amounts)>,
    reserved: Amounts,
}

/// Every tenant that has, or had, a job.
#[derive(Debug, Default)]
pub(super) struct Tenants {
    by_name: HashMap<String, i64>,
    by_tid: BTreeMap<i64, Tenant>,
}

impl Tenants {
    /// Reads tenants and what is set aside for them.
    pub(super) fn read(conn: &Connection, limits: &Limits) -> Done<Self> {
        let mut all = Self::default();
        let mut rows = conn.prepare_cached("SELECT tid, name FROM tenants")?;
        let mut rows = rows.query([])?;
        while let Some(row) = rows.next()? {
            all.add(row.get(0)?, row.get(1)?, limits);
        }
        let mut rows = conn.prepare_cached("SELECT tid, held FROM estimates WHERE held IS NOT NULL")?;
        let mut rows = rows.query([])?;
        while let Some(row) = rows.next()? {
            let held: Amounts = fault::parse("what is set aside", row.get_ref(1)?.as_str().map_err(fault::column)?)?;
            if let Some(tenant) = all.by_tid.get_mut(&row.get(0)?) {
                tenant.reserved = tenant.reserved.plus(&held);
            }
        }
        Ok(all)
    }

    fn add(&mut self, tid: i64, name: String, limits: &Limits) {
        let limits = limits.tenants.get(&name).cloned().unwrap_or_default();
        self.by_name.insert(name.clone(), tid);
        self.by_tid.insert(tid, Tenant { name, limits, ..Tenant::default() });
    }

    /// Takes over limits.
    pub(super) fn set_limits(&mut self, limits: &Limits) {
        for tenant in self.by_tid.values_mut() {
            tenant.limits = limits.tenants.get(&tenant.name).cloned().unwrap_or_default();
        }
    }

    /// A tenant's number; its row is made where it has none.
    pub(super) fn tid(&mut self, conn: &Connection, name: &str, limits: &Limits) -> Done<i64> {
        if let Some(tid) = self.by_name.get(name) {
            return Ok(*tid);
        }
        conn.prepare_cached("INSERT INTO tenants (name) VALUES (?1)")?.execute([name])?;
        let tid = conn.last_insert_rowid();
        self.add(tid, name.to_owned(), limits);
        Ok(tid)
    }

    /// A tenant's share of starts.
    pub(super) fn weight(&self, tid: i64) -> u32 {
        self.by_tid.get(&tid).map_or(1, |tenant| tenant.limits.weight)
    }

    /// What the tenant booked in a month: read once, kept from then on.
    fn spent(&mut self, conn: &Connection, tid: i64, month: Month) -> Done<Amounts> {
        let Some(tenant) = self.by_tid.get_mut(&tid) else { return Ok(Amounts::default()) };
        if let Some((known, spent)) = &tenant.spent
            && *known == month
        {
            return Ok(spent.clone());
        }
        let spent = read_month(conn, tid, month)?;
        tenant.spent = Some((month, spent.clone()));
        Ok(spent)
    }

    /// The budget that a further job of the tenant would pass, where it would.
    fn passed(&mut self, conn: &Connection, tid: i64, n: i64, month: Month) -> Done<Option<Passed>> {
        if !self.by_tid.get(&tid).is_some_and(|tenant| tenant.limits.has_budget()) {
            return Ok(None);
        }
        let spent = self.spent(conn, tid, month)?;
        let estimate = estimate(conn, n)?.map(|(estimate, _)| estimate).unwrap_or_default();
        let Some(tenant) = self.by_tid.get(&tid) else { return Ok(None) };
        Ok(tenant.limits.passed(&spent.plus(&tenant.reserved), &estimate))
    }
}

fn read_month(conn: &Connection, tid: i64, month: Month) -> Done<Amounts> {
    let mut rows = conn.prepare_cached("SELECT unit, amount FROM spend WHERE tid = ?1 AND month = ?2")?;
    let mut rows = rows.query((tid, month.0))?;
    let mut sums = Amounts::default();
    while let Some(row) = rows.next()? {
        let unit = row.get_ref(0)?.as_str().map_err(fault::column)?;
        let amount = decimal(row.get_ref(1)?.as_str().map_err(fault::column)?)?;
        if amount.is_zero() {
            // Booked, and corrected to nothing.
            continue;
        }
        if unit == MONEY {
            sums.usd = amount;
        } else if let Some(unit) = Unit::ALL.into_iter().find(|known| known.as_str() == unit) {
            sums.units.insert(unit, amount);
        }
    }
    Ok(sums)
}

fn decimal(text: &str) -> Done<Decimal> {
    text.parse().map_err(|_| Fault::corrupt(format!("a month's sums have a figure that is none: {text}")))
}

/// What a job is to take, and what of it is set aside now.
fn estimate(conn: &Connection, n: i64) -> Done<Option<(Estimate, Option<Amounts>)>> {
    let found: Option<(String, Option<String>)> = conn
        .prepare_cached("SELECT estimate, held FROM estimates WHERE n = ?1")?
        .query_row([n], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((estimate, held)) = found else { return Ok(None) };
    let held = held.map(|held| fault::parse("what is set aside", &held)).transpose()?;
    Ok(Some((fault::parse("an estimate", &estimate)?, held)))
}

/// Whether something is set aside for a job: from the moment its start is handed out until its outputs are in hand.
pub(super) fn reserves(state: JobState, slot: bool) -> bool {
    slot || state == JobState::Collecting
}

impl Session<'_> {
    /// A tenant's number.
    pub(super) fn tid(&mut self, name: &str) -> Done<i64> {
        let (tenants, limits) = self.board.tenants_and_limits();
        tenants.tid(self.conn, name, limits)
    }

    /// Keeps what a job is to take.
    pub(super) fn expect(&mut self, n: i64, tid: i64, estimate: &Estimate) -> Done<()> {
        if !estimate.is_unknown() {
            let text = fault::write("an estimate", estimate)?;
            self.conn
                .prepare_cached("INSERT INTO estimates (n, tid, estimate) VALUES (?1, ?2, ?3)")?
                .execute((n, tid, text))?;
        }
        Ok(())
    }

    /// A tenant's budgets cover the job.
    pub(super) fn covered(&mut self, tid: i64, n: i64) -> Done<bool> {
        let month = Month::of(self.now_ms);
        let (tenants, _) = self.board.tenants_and_limits();
        Ok(tenants.passed(self.conn, tid, n, month)?.is_none())
    }

    /// Sets aside for a job what it is to take beyond what its attempt booked, or nothing any more (`None`).
    pub(super) fn reserve(&mut self, n: i64, tid: i64, booked: Option<&Amounts>) -> Done<()> {
        let Some((estimate, held)) = estimate(self.conn, n)? else { return Ok(()) };
        let next = booked.map(|booked| estimate.reserve(booked)).filter(|next| !next.is_nothing());
        if next == held {
            return Ok(());
        }
        let text = next.as_ref().map(|next| fault::write("what is set aside", next)).transpose()?;
        self.conn.prepare_cached("UPDATE estimates SET held = ?2 WHERE n = ?1")?.execute((n, text))?;
        let more = next.unwrap_or_default().minus(&held.unwrap_or_default());
        let (tenants, _) = self.board.tenants_and_limits();
        if let Some(tenant) = tenants.by_tid.get_mut(&tid) {
            tenant.reserved = tenant.reserved.plus(&more);
        }
        self.relieve(tid, &more);
        Ok(())
    }

    /// Adds to what a tenant booked in a month; `more` may be below zero.
    pub(super) fn spend(&mut self, tid: i64, month: Month, more: &Amounts) -> Done<()> {
        let mut figures: Vec<(&str, Decimal)> = more.units.iter().map(|(unit, sum)| (unit.as_str(), *sum)).collect();
        figures.push((MONEY, more.usd));
        for (unit, more) in figures.into_iter().filter(|(_, more)| !more.is_zero()) {
            let before: Option<String> = self
                .conn
                .prepare_cached("SELECT amount FROM spend WHERE tid = ?1 AND month = ?2 AND unit = ?3")?
                .query_row((tid, month.0, unit), |row| row.get(0))
                .optional()?;
            let before = before.map_or(Ok(Decimal::ZERO), |text| decimal(&text))?;
            self.conn
                .prepare_cached("INSERT OR REPLACE INTO spend (tid, month, unit, amount) VALUES (?1, ?2, ?3, ?4)")?
                .execute((tid, month.0, unit, before.saturating_add(more).normalize().to_string()))?;
        }
        let (tenants, _) = self.board.tenants_and_limits();
        if let Some((known, spent)) = tenants.by_tid.get_mut(&tid).and_then(|tenant| tenant.spent.as_mut())
            && *known == month
        {
            *spent = spent.plus(more);
        }
        self.relieve(tid, more);
        Ok(())
    }

    /// Where something of a tenant's budget came free, its starts are looked at again.
    fn relieve(&mut self, tid: i64, more: &Amounts) {
        if more.usd < Decimal::ZERO || more.units.values().any(|quantity| *quantity < Decimal::ZERO) {
            *self.wake |= self.board.rejoin(Some(tid));
        }
    }
}

/// What tenants spent and set aside.
pub(super) fn rows(s: &mut Session<'_>, names: &[String]) -> Done<Vec<TenantRow>> {
    let month = Month::of(s.now_ms);
    let mut rows = Vec::new();
    let limits = s.board.limits().clone();
    let (tenants, _) = s.board.tenants_and_limits();
    let mut all: Vec<String> = names.to_vec();
    if names.is_empty() {
        all.extend(tenants.by_name.keys().chain(limits.tenants.keys()).cloned());
    }
    all.sort_unstable();
    all.dedup();
    for tenant in all {
        let own = limits.tenants.get(&tenant);
        let tid = tenants.by_name.get(&tenant).copied();
        let spent = tid.map(|tid| tenants.spent(s.conn, tid, month)).transpose()?.unwrap_or_default();
        let reserved = tid.and_then(|tid| tenants.by_tid.get(&tid)).map(|known| known.reserved.clone());
        let row = TenantRow {
            tenant,
            month,
            limits: own.cloned().unwrap_or_default(),
            spent,
            reserved: reserved.unwrap_or_default(),
        };
        if !names.is_empty() || own.is_some() || !row.used().is_nothing() {
            rows.push(row);
        }
    }
    Ok(rows)
}

/// The difference that one line of the ledger makes where it replaces another.
pub(super) fn difference(before: Option<(Decimal, Option<Decimal>)>, line: &UsageLine) -> Amounts {
    let mut more = Amounts::default();
    more.add(line.unit, line.quantity, line.usd);
    if let Some((quantity, usd)) = before {
        more.add(line.unit, -quantity, usd.map(|usd| -usd));
    }
    more
}

/// Adds up the ledger of a file that was written before months had sums.
pub(super) fn fill(conn: &Connection) -> Done<()> {
    let mut sums: BTreeMap<(i64, Month), Amounts> = BTreeMap::new();
    let mut rows = conn.prepare(
        "SELECT t.tid, u.booked_ms, u.unit, u.quantity, u.usd FROM usage u JOIN tenants t ON t.name = u.tenant",
    )?;
    let mut rows = rows.query([])?;
    while let Some(row) = rows.next()? {
        let unit = row.get_ref(2)?.as_str().map_err(fault::column)?;
        let Some(unit) = Unit::ALL.into_iter().find(|known| known.as_str() == unit) else { continue };
        let quantity = decimal(row.get_ref(3)?.as_str().map_err(fault::column)?)?;
        let usd = row.get_ref(4)?.as_str_or_null().map_err(fault::column)?.map(decimal).transpose()?;
        sums.entry((row.get(0)?, Month::of(row.get(1)?))).or_default().add(unit, quantity, usd);
    }
    let mut write = conn.prepare("INSERT INTO spend (tid, month, unit, amount) VALUES (?1, ?2, ?3, ?4)")?;
    for ((tid, month), sums) in sums {
        write.execute((tid, month.0, MONEY, sums.usd.normalize().to_string()))?;
        for (unit, sum) in sums.units {
            write.execute((tid, month.0, unit.as_str(), sum.normalize().to_string()))?;
        }
    }
    Ok(())
}
