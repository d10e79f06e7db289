//! What readers ask, on connections of their own.

use super::draft;
use super::fault::{self, Done, Fault, signed, unsigned};
use super::ledger;
use crate::{Artifact, Event, JobFilter, JobRecord, RawExchange, StoredExchange, TokenRow};
use longhaul_registry::Step;
use rusqlite::types::Value as Sql;
use rusqlite::{Connection, OptionalExtension, Row, params_from_iter};
use std::sync::Arc;

/// One job whole.
pub(super) fn get(conn: &Connection, id: &str) -> Done<Option<JobRecord>> {
    let found: Option<Found> = conn
        .prepare_cached("SELECT n, created_ms, rev, head FROM jobs WHERE id = ?1")?
        .query_row([id], Found::read)
        .optional()?;
    found.map(|found| record(conn, found)).transpose()
}

/// Jobs, newest first. The cursor is the last job's creation and row.
pub(super) fn list(
    conn: &Connection,
    filter: &JobFilter,
    cursor: Option<&str>,
    limit: usize,
) -> Done<(Vec<JobRecord>, Option<String>)> {
    let (sql, values) = query(filter, cursor, limit)?;
    let found: Vec<Found> =
        conn.prepare_cached(&sql)?.query_map(params_from_iter(values), Found::read)?.collect::<Result<_, _>>()?;
    // One more than asked for was read: it says whether there is a next page.
    let more = found.len() > limit;
    let next =
        found.get(limit.saturating_sub(1)).filter(|_| more).map(|last| format!("{}.{}", last.created_ms, last.n));
    let records = found.into_iter().take(limit).map(|found| record(conn, found)).collect::<Done<_>>()?;
    Ok((records, next))
}

fn query(filter: &JobFilter, cursor: Option<&str>, limit: usize) -> Done<(String, Vec<Sql>)> {
    let mut sql = String::from("SELECT j.n, j.created_ms, j.rev, j.head FROM jobs j");
    let mut values: Vec<Sql> = Vec::new();
    let mut wheres: Vec<String> = Vec::new();
    let created = if let Some((key, value)) = &filter.label {
        sql.push_str(" JOIN labels l ON l.n = j.n");
        wheres.push("l.key = ? AND l.value = ?".into());
        values.extend([Sql::from(key.clone()), Sql::from(value.clone())]);
        "l.created_ms"
    } else {
        "j.created_ms"
    };
    if !filter.states.is_empty() {
        wheres.push(format!("j.state IN ({})", vec!["?"; filter.states.len()].join(", ")));
        values.extend(filter.states.iter().map(|state| Sql::from(state.as_str().to_owned())));
    }
    for (column, value) in [("j.vendor = ?", &filter.vendor), ("j.tenant = ?", &filter.tenant)] {
        if let Some(value) = value {
            wheres.push(column.into());
            values.push(Sql::from(value.clone()));
        }
    }
    if let Some(connector) = &filter.connector {
        wheres.push("j.cid = (SELECT cid FROM connectors WHERE name = ?)".into());
        values.push(Sql::from(connector.clone()));
    }
    if let Some(error) = &filter.error {
        wheres.push("(j.error_code = ? OR j.error_kind = ?)".into());
        values.extend([Sql::from(error.clone()), Sql::from(error.clone())]);
    }
    for (operator, value) in [(">=", filter.since_ms), ("<", filter.until_ms)] {
        if let Some(value) = value {
            wheres.push(format!("{created} {operator} ?"));
            values.push(Sql::from(value));
        }
    }
    if let Some(cursor) = cursor {
        let (ms, n) = read_cursor(cursor)?;
        wheres.push(format!("({created}, j.n) < (?, ?)"));
        values.extend([Sql::from(ms), Sql::from(n)]);
    }
    if !wheres.is_empty() {
        sql.push_str(" WHERE ");
        sql.push_str(&wheres.join(" AND "));
    }
    sql.push_str(&format!(" ORDER BY {created} DESC, j.n DESC LIMIT ?"));
    values.push(Sql::from(i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1)));
    Ok((sql, values))
}

fn read_cursor(cursor: &str) -> Done<(i64, i64)> {
    cursor.split_once('.').and_then(|(ms, n)| Some((ms.parse().ok()?, n.parse().ok()?))).ok_or_else(|| {
        Fault::refused(format!("{cursor} is no cursor of this list; take next_cursor of the page before"))
    })
}

struct Found {
    n: i64,
    created_ms: i64,
    rev: u64,
    head: String,
}

impl Found {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self { n: row.get(0)?, created_ms: row.get(1)?, rev: unsigned(row.get(2)?), head: row.get(3)? })
    }
}

fn record(conn: &Connection, found: Found) -> Done<JobRecord> {
    let job: crate::Job = fault::parse("a job's head", &found.head)?;
    let body: String =
        conn.prepare_cached("SELECT body FROM bodies WHERE n = ?1")?.query_row([found.n], |row| row.get(0))?;
    let mut read = conn.prepare_cached("SELECT artifact FROM artifacts WHERE n = ?1 ORDER BY at")?;
    let artifacts = texts(&mut read.query([found.n])?, "an artifact")?;
    let usage = ledger::lines_of(conn, &job.id)?;
    Ok(JobRecord { job, rev: found.rev, body: Arc::new(fault::parse("a job's body", &body)?), artifacts, usage })
}

fn texts<T: serde::de::DeserializeOwned>(rows: &mut rusqlite::Rows<'_>, what: &str) -> Done<Vec<T>> {
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        all.push(fault::parse(what, row.get_ref(0)?.as_str().map_err(fault::column)?)?);
    }
    Ok(all)
}

const EVENT: &str = "SELECT e.pos, j.id, e.seq, e.at_ms, e.kind, e.step, e.attempt, e.data, e.raw
    FROM events e JOIN jobs j ON j.n = e.n";

/// A job's events after a number.
pub(super) fn events(conn: &Connection, job: &str, after: u64, limit: usize) -> Done<Vec<Event>> {
    let mut read = conn.prepare_cached(&format!("{EVENT} WHERE j.id = ?1 AND e.seq > ?2 ORDER BY e.seq LIMIT ?3"))?;
    let mut rows = read.query((job, signed(after), i64::try_from(limit).unwrap_or(i64::MAX)))?;
    let mut events = Vec::new();
    while let Some(row) = rows.next()? {
        events.push(event(row)?.1);
    }
    Ok(events)
}

/// All events after a position.
pub(super) fn all_events(conn: &Connection, tenant: Option<&str>, after: u64, limit: usize) -> Done<Vec<(u64, Event)>> {
    let only = if tenant.is_some() { "AND e.tenant = ?3" } else { "AND ?3 IS NULL" };
    let mut read = conn.prepare_cached(&format!("{EVENT} WHERE e.pos > ?1 {only} ORDER BY e.pos LIMIT ?2"))?;
    let mut rows = read.query((signed(after), i64::try_from(limit).unwrap_or(i64::MAX), tenant))?;
    let mut events = Vec::new();
    while let Some(row) = rows.next()? {
        events.push(event(row)?);
    }
    Ok(events)
}

/// A line of history with its position.
pub(super) fn event(row: &Row<'_>) -> Done<(u64, Event)> {
    let step: Option<String> = row.get(5)?;
    let event = Event {
        job: row.get(1)?,
        seq: unsigned(row.get(2)?),
        at_ms: row.get(3)?,
        kind: row.get(4)?,
        step: step.map(|step| self::step(&step)).transpose()?,
        attempt: row.get(6)?,
        data: fault::parse("an event's data", row.get_ref(7)?.as_str().map_err(fault::column)?)?,
        raw: row.get::<_, Option<i64>>(8)?.map(unsigned),
    };
    Ok((unsigned(row.get(0)?), event))
}

fn step(text: &str) -> Done<Step> {
    Step::ALL
        .into_iter()
        .find(|step| step.as_str() == text)
        .ok_or_else(|| Fault::corrupt(format!("an unknown step is stored: {text}")))
}

/// The newest event's position.
pub(super) fn last_position(conn: &Connection) -> Done<u64> {
    let mut read = conn.prepare_cached(
        "SELECT max(coalesce((SELECT max(pos) FROM events), 0),
                    coalesce((SELECT value FROM meta WHERE key = 'position'), 0))",
    )?;
    Ok(unsigned(read.query_row([], |row| row.get(0))?))
}

/// A job's raw exchanges, in order.
pub(super) fn exchanges(conn: &Connection, job: &str) -> Done<Vec<StoredExchange>> {
    let mut read = conn.prepare_cached(
        "SELECT x.no, x.count, x.first_ms, x.last_ms, x.step, x.route, x.adapter, x.fingerprint, t.text
         FROM jobs j JOIN exchanges x ON x.n = j.n JOIN exchange_texts t ON t.n = x.n AND t.no = x.no
         WHERE j.id = ?1 ORDER BY x.no",
    )?;
    let mut rows = read.query([job])?;
    let mut exchanges = Vec::new();
    while let Some(row) = rows.next()? {
        exchanges.push(exchange(row, 0)?);
    }
    Ok(exchanges)
}

/// An exchange whose nine columns begin at one.
pub(super) fn exchange(row: &Row<'_>, at: usize) -> Done<StoredExchange> {
    Ok(StoredExchange {
        n: unsigned(row.get(at)?),
        count: unsigned(row.get(at + 1)?),
        first_ms: row.get(at + 2)?,
        last_ms: row.get(at + 3)?,
        exchange: RawExchange {
            step: step(row.get_ref(at + 4)?.as_str().map_err(fault::column)?)?,
            route: row.get(at + 5)?,
            adapter: row.get(at + 6)?,
            fingerprint: row.get(at + 7)?,
            text: draft::unpack(row.get_ref(at + 8)?.as_blob().map_err(fault::column)?)?,
        },
    })
}

/// One artifact.
pub(super) fn artifact(conn: &Connection, id: &str) -> Done<Option<Artifact>> {
    let text: Option<String> = conn
        .prepare_cached("SELECT artifact FROM artifacts WHERE id = ?1")?
        .query_row([id], |row| row.get(0))
        .optional()?;
    text.map(|text| fault::parse("an artifact", &text)).transpose()
}

/// Other jobs of the tenant with the same bytes.
pub(super) fn same_bytes(conn: &Connection, tenant: &str, sha256: &str, not_job: &str) -> Done<Vec<(String, String)>> {
    let mut read = conn.prepare_cached(
        "SELECT DISTINCT j.id, b.request_hash FROM artifacts a JOIN jobs j ON j.n = a.n JOIN bodies b ON b.n = j.n
         WHERE a.tenant = ?1 AND a.sha256 = ?2 AND j.id <> ?3 ORDER BY j.n LIMIT 100",
    )?;
    let rows = read.query_map((tenant, sha256, not_job), |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Those of these vendor ids that another job of the connector holds.
pub(super) fn taken_ids(conn: &Connection, connector: &str, ids: &[String], not_job: &str) -> Done<Vec<String>> {
    let mut read = conn.prepare_cached(
        "SELECT 1 FROM connectors c JOIN vendor_ids v ON v.cid = c.cid JOIN jobs j ON j.n = v.n
         WHERE c.name = ?1 AND v.vendor_job_id = ?2 AND j.id <> ?3 LIMIT 1",
    )?;
    let mut taken = Vec::new();
    for id in ids {
        if read.exists((connector, id, not_job))? {
            taken.push(id.clone());
        }
    }
    Ok(taken)
}

/// Every token.
pub(super) fn tokens(conn: &Connection) -> Done<Vec<TokenRow>> {
    let mut read = conn.prepare_cached("SELECT token FROM tokens ORDER BY id")?;
    texts(&mut read.query([])?, "a token")
}
