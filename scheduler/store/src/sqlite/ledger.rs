//! The ledger of usage: booked once, summed exactly.

use super::fault::{self, Done, Fault};
use super::tenants;
use super::writer::Session;
use crate::limits::Month;
use crate::{Job, UsageBy, UsageLine, UsageSum};
use chrono::{DateTime, Days, NaiveDate};
use longhaul_registry::{Unit, UsageSource};
use rusqlite::{Connection, Row};
use rust_decimal::Decimal;
use std::collections::BTreeMap;

pub(super) fn rank(source: UsageSource) -> i64 {
    match source {
        UsageSource::Estimated => 0,
        UsageSource::Computed => 1,
        UsageSource::Reported => 2,
    }
}

fn source(rank: i64) -> UsageSource {
    match rank {
        0 => UsageSource::Estimated,
        1 => UsageSource::Computed,
        _ => UsageSource::Reported,
    }
}

fn unit(text: &str) -> Done<Unit> {
    Unit::ALL
        .into_iter()
        .find(|unit| unit.as_str() == text)
        .ok_or_else(|| Fault::corrupt(format!("the ledger has the unknown unit {text}")))
}

fn decimal(text: &str) -> Done<Decimal> {
    text.parse().map_err(|_| Fault::corrupt(format!("the ledger has a figure that is none: {text}")))
}

fn add(sum: Decimal, figure: Decimal) -> Done<Decimal> {
    sum.checked_add(figure).ok_or_else(|| Fault::refused("the sum has more digits than can be counted; ask for less"))
}

impl Session<'_> {
    /// Books lines of a job and answers its money. A line replaces the one at its key unless that one's
    /// source ranks higher; when it was first booked stays, since that decides the period.
    pub(super) fn book(&mut self, job: &Job, lines: &[UsageLine]) -> Done<Option<Decimal>> {
        for line in lines {
            let before = self.line_at(&job.id, line)?;
            if before.as_ref().is_none_or(|before| rank(line.source) >= before.rank) {
                let booked_ms = before.as_ref().map_or(self.now_ms, |before| before.booked_ms);
                let more = tenants::difference(before.map(|before| (before.quantity, before.usd)), line);
                let tid = self.tid(&job.tenant)?;
                self.spend(tid, Month::of(booked_ms), &more)?;
            }
            self.conn
                .prepare_cached(
                    "INSERT INTO usage
                     (job, attempt, record, unit, quantity, source, usd, booked_ms, tenant, connector, vendor)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
                     ON CONFLICT (job, attempt, record, unit) DO UPDATE
                     SET quantity = excluded.quantity, source = excluded.source, usd = excluded.usd
                     WHERE excluded.source >= usage.source",
                )?
                .execute((
                    &job.id,
                    line.attempt,
                    &line.record,
                    line.unit.as_str(),
                    line.quantity.to_string(),
                    rank(line.source),
                    line.usd.map(|usd| usd.to_string()),
                    self.now_ms,
                    &job.tenant,
                    &job.connector,
                    &job.vendor,
                ))?;
        }
        let mut money = None;
        for usd in lines_of(self.conn, &job.id)?.iter().filter_map(|line| line.usd) {
            money = Some(add(money.unwrap_or(Decimal::ZERO), usd)?);
        }
        Ok(money)
    }
}

/// What stands at a line's key.
struct Booked {
    quantity: Decimal,
    usd: Option<Decimal>,
    rank: i64,
    booked_ms: i64,
}

impl Session<'_> {
    fn line_at(&self, job: &str, line: &UsageLine) -> Done<Option<Booked>> {
        let mut read = self.conn.prepare_cached(
            "SELECT quantity, usd, source, booked_ms FROM usage
             WHERE job = ?1 AND attempt = ?2 AND record = ?3 AND unit = ?4",
        )?;
        let mut rows = read.query((job, line.attempt, &line.record, line.unit.as_str()))?;
        let Some(row) = rows.next()? else { return Ok(None) };
        Ok(Some(Booked {
            quantity: decimal(text(row, 0)?)?,
            usd: maybe_text(row, 1)?.map(decimal).transpose()?,
            rank: row.get(2)?,
            booked_ms: row.get(3)?,
        }))
    }
}

/// A job's lines, in the order of their keys.
pub(super) fn lines_of(conn: &Connection, job: &str) -> Done<Vec<UsageLine>> {
    let mut read = conn.prepare_cached(
        "SELECT attempt, record, unit, quantity, source, usd FROM usage WHERE job = ?1
         ORDER BY attempt, record, unit",
    )?;
    let mut rows = read.query([job])?;
    let mut lines = Vec::new();
    while let Some(row) = rows.next()? {
        lines.push(line(row, 0)?);
    }
    Ok(lines)
}

/// A line whose six columns begin at one.
pub(super) fn line(row: &Row<'_>, at: usize) -> Done<UsageLine> {
    Ok(UsageLine {
        attempt: row.get(at)?,
        record: row.get(at + 1)?,
        unit: unit(text(row, at + 2)?)?,
        quantity: decimal(text(row, at + 3)?)?,
        source: source(row.get(at + 4)?),
        usd: maybe_text(row, at + 5)?.map(decimal).transpose()?,
    })
}

/// Lines booked before a time whose job is gone, at most so many.
pub(super) const PRUNE: &str = "DELETE FROM usage WHERE (job, attempt, record, unit) IN
    (SELECT u.job, u.attempt, u.record, u.unit FROM usage u WHERE u.booked_ms < ?1
     AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.id = u.job) ORDER BY u.booked_ms LIMIT ?2)";

/// Removes old lines whose job is gone.
pub(super) fn prune(conn: &Connection, booked_before_ms: i64, limit: usize) -> Done<usize> {
    let mut remove = conn.prepare_cached(PRUNE)?;
    Ok(remove.execute((booked_before_ms, i64::try_from(limit).unwrap_or(i64::MAX)))?)
}

fn text<'a>(row: &'a Row<'_>, at: usize) -> Done<&'a str> {
    row.get_ref(at)?.as_str().map_err(fault::column)
}

fn maybe_text<'a>(row: &'a Row<'_>, at: usize) -> Done<Option<&'a str>> {
    row.get_ref(at)?.as_str_or_null().map_err(fault::column)
}

struct Sum {
    unit: Option<Unit>,
    mixed: bool,
    quantity: Decimal,
    usd: Decimal,
    lines: u64,
}

/// The ledger, summed by what was asked. Days are UTC and both inclusive.
pub(super) fn sum(
    conn: &Connection,
    by: &[UsageBy],
    tenant: Option<&str>,
    from: Option<&str>,
    to: Option<&str>,
) -> Done<Vec<UsageSum>> {
    let from = from.map(|day| midnight(day, 0)).transpose()?.unwrap_or(i64::MIN);
    let to = to.map(|day| midnight(day, 1)).transpose()?.unwrap_or(i64::MAX);
    let mut read = conn.prepare_cached(
        "SELECT vendor, unit, tenant, connector, booked_ms, quantity, usd FROM usage
         WHERE booked_ms >= ?1 AND booked_ms < ?2 AND (?3 IS NULL OR tenant = ?3)",
    )?;
    let mut rows = read.query((from, to, tenant))?;
    let mut sums: BTreeMap<Vec<String>, Sum> = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let unit = unit(text(row, 1)?)?;
        let key = by.iter().map(|by| group(row, *by)).collect::<Done<Vec<_>>>()?;
        let fresh = || Sum { unit: Some(unit), mixed: false, quantity: Decimal::ZERO, usd: Decimal::ZERO, lines: 0 };
        let sum = sums.entry(key).or_insert_with(fresh);
        sum.mixed |= sum.unit != Some(unit);
        if !sum.mixed {
            sum.quantity = add(sum.quantity, decimal(text(row, 5)?)?)?;
        }
        if let Some(usd) = maybe_text(row, 6)? {
            sum.usd = add(sum.usd, decimal(usd)?)?;
        }
        sum.lines += 1;
    }
    let rows = sums.into_iter().map(|(group, sum)| UsageSum {
        group,
        unit: sum.unit.filter(|_| !sum.mixed),
        quantity: (!sum.mixed).then_some(sum.quantity),
        usd: sum.usd,
        lines: sum.lines,
    });
    Ok(rows.collect())
}

fn group(row: &Row<'_>, by: UsageBy) -> Done<String> {
    let at = match by {
        UsageBy::Vendor => 0,
        UsageBy::Unit => 1,
        UsageBy::Tenant => 2,
        UsageBy::Connector => 3,
        UsageBy::Day => {
            let ms: i64 = row.get(4)?;
            let day = DateTime::from_timestamp_millis(ms).map(|at| at.date_naive().to_string());
            return day.ok_or_else(|| Fault::corrupt(format!("the ledger has no day for {ms} ms")));
        }
    };
    Ok(text(row, at)?.to_owned())
}

/// Midnight UTC of a day, `later` days on.
fn midnight(day: &str, later: u64) -> Done<i64> {
    NaiveDate::parse_from_str(day, "%Y-%m-%d")
        .ok()
        .and_then(|date| date.checked_add_days(Days::new(later)))
        .and_then(|date| date.and_hms_opt(0, 0, 0))
        .map(|at| at.and_utc().timestamp_millis())
        .ok_or_else(|| Fault::refused(format!("{day} is no day; write it as 2026-11-30")))
}
