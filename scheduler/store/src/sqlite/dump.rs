//! Telling everything that the file holds, table by table.

use super::fault::{self, Done, Fault, unsigned};
use super::{ledger, read};
use crate::{
    Chore, ChoreRecord, ConnectorRecord, EventRecord, ExchangeRecord, KeptJob, KeyRecord, PathRecord, Record,
    UsageRecord,
};
use rusqlite::types::Value as Sql;
use rusqlite::{Connection, Row, params_from_iter};
use serde_json::{Value, json};

/// Text that one page holds at most, besides its last record: pages of large records are shorter.
const PAGE_BYTES: usize = 8 << 20;

/// One table: its rows after a key, in the order of the key.
struct Table {
    /// The columns after the key's, and where they come from; `?1…` is the key after which to go on.
    sql: &'static str,
    /// Before the first key.
    before: fn() -> Value,
    /// Reads a row whose first columns are the key; answers the record and about how many bytes it has.
    read: fn(&Connection, &Row<'_>) -> Done<(Record, usize)>,
}

/// In an order in which each can be taken in: jobs before what hangs on them.
const TABLES: [Table; 10] = [
    Table {
        sql: "SELECT cid, name, state, last_check FROM connectors WHERE cid > ?1 ORDER BY cid",
        before: || json!([0]),
        read: connector,
    },
    Table { sql: "SELECT id, token FROM tokens WHERE id > ?1 ORDER BY id", before: || json!([""]), read: token },
    Table {
        sql: "SELECT j.n, j.head, j.rev, q.fence, b.body, b.idempotency, b.path, j.id FROM jobs j
              JOIN queue q ON q.n = j.n JOIN bodies b ON b.n = j.n WHERE j.n > ?1 ORDER BY j.n",
        before: || json!([0]),
        read: job,
    },
    Table {
        sql: "SELECT e.pos, j.id, e.seq, e.at_ms, e.kind, e.step, e.attempt, e.data, e.raw FROM events e
              JOIN jobs j ON j.n = e.n WHERE e.pos > ?1 ORDER BY e.pos",
        before: || json!([0]),
        read: event,
    },
    Table {
        sql: "SELECT x.n, x.no, j.id, x.no, x.count, x.first_ms, x.last_ms, x.step, x.route, x.adapter, x.fingerprint,
              t.text FROM exchanges x JOIN jobs j ON j.n = x.n JOIN exchange_texts t ON t.n = x.n AND t.no = x.no
              WHERE (x.n, x.no) > (?1, ?2) ORDER BY x.n, x.no",
        before: || json!([0, 0]),
        read: exchange,
    },
    Table {
        sql: "SELECT at, artifact FROM artifacts WHERE at > ?1 ORDER BY at",
        before: || json!([0]),
        read: artifact,
    },
    Table {
        sql: "SELECT tenant, path, job FROM paths WHERE (tenant, path) > (?1, ?2) ORDER BY tenant, path",
        before: || json!(["", ""]),
        read: path,
    },
    Table {
        sql: "SELECT job, attempt, record, unit, quantity, source, usd, booked_ms, tenant, connector, vendor FROM usage
              WHERE (job, attempt, record, unit) > (?1, ?2, ?3, ?4) ORDER BY job, attempt, record, unit",
        before: || json!(["", 0, "", ""]),
        read: usage,
    },
    Table {
        sql: "SELECT id, run_at, tries, created_ms, chore FROM chores WHERE id > ?1 ORDER BY id",
        before: || json!([0]),
        read: chore,
    },
    Table {
        sql: "SELECT tenant, key, hash, job, created_ms, pruned FROM idempotency WHERE (tenant, key) > (?1, ?2)
              ORDER BY tenant, key",
        before: || json!(["", ""]),
        read: key,
    },
];

/// A page after a cursor, and the next cursor. The cursor is the table and the last key told of it.
pub(super) fn page(conn: &Connection, cursor: Option<&str>, limit: usize) -> Done<(Vec<Record>, Option<String>)> {
    let (mut at, mut after) = match cursor {
        Some(cursor) => read_cursor(cursor)?,
        None => (0, None),
    };
    let (mut records, mut bytes) = (Vec::new(), 0);
    while let Some(table) = TABLES.get(at) {
        let from = after.take().unwrap_or_else(table.before);
        let width = from.as_array().map_or(0, Vec::len);
        let mut select = conn.prepare_cached(table.sql)?;
        let mut rows = select.query(params_from_iter(values(&from)?))?;
        while let Some(row) = rows.next()? {
            let (record, size) = (table.read)(conn, row)?;
            records.push(record);
            bytes += size;
            if records.len() >= limit.max(1) || bytes >= PAGE_BYTES {
                let key = (0..width).map(|column| key_part(row, column)).collect::<Done<Vec<_>>>()?;
                return Ok((records, Some(json!([at, key]).to_string())));
            }
        }
        at += 1;
    }
    records.push(Record::End { position: read::last_position(conn)? });
    Ok((records, None))
}

/// What each table is read with.
#[cfg(test)]
pub(super) fn selects() -> impl Iterator<Item = &'static str> {
    TABLES.iter().map(|table| table.sql)
}

fn read_cursor(cursor: &str) -> Done<(usize, Option<Value>)> {
    serde_json::from_str::<(usize, Value)>(cursor)
        .map(|(at, after)| (at, Some(after)))
        .map_err(|_| Fault::refused(format!("{cursor} is no cursor of a dump; begin again without one")))
}

fn values(key: &Value) -> Done<Vec<Sql>> {
    let part = |part: &Value| match part {
        Value::String(text) => Some(Sql::from(text.clone())),
        other => other.as_i64().map(Sql::from),
    };
    let parts = key.as_array().and_then(|parts| parts.iter().map(part).collect::<Option<Vec<_>>>());
    parts.ok_or_else(|| Fault::refused("the cursor of a dump has a part that is no key; begin again without one"))
}

fn key_part(row: &Row<'_>, column: usize) -> Done<Value> {
    Ok(match row.get::<_, Sql>(column)? {
        Sql::Integer(number) => json!(number),
        Sql::Text(text) => json!(text),
        other => return Err(Fault::corrupt(format!("a key is neither number nor text: {other:?}"))),
    })
}

fn text<'a>(row: &'a Row<'_>, column: usize) -> Done<&'a str> {
    row.get_ref(column)?.as_str().map_err(fault::column)
}

fn maybe_text<'a>(row: &'a Row<'_>, column: usize) -> Done<Option<&'a str>> {
    row.get_ref(column)?.as_str_or_null().map_err(fault::column)
}

fn connector(_: &Connection, row: &Row<'_>) -> Done<(Record, usize)> {
    let record = ConnectorRecord {
        name: row.get(1)?,
        state: fault::parse("a connector's state", text(row, 2)?)?,
        last_check: maybe_text(row, 3)?.map(|text| fault::parse("a connector's check", text)).transpose()?,
    };
    Ok((Record::Connector(record), 0))
}

fn token(_: &Connection, row: &Row<'_>) -> Done<(Record, usize)> {
    Ok((Record::Token(fault::parse("a token", text(row, 1)?)?), 0))
}

fn job(conn: &Connection, row: &Row<'_>) -> Done<(Record, usize)> {
    let n: i64 = row.get(0)?;
    let (head, body) = (text(row, 1)?, text(row, 4)?);
    let vendor_ids = conn
        .prepare_cached("SELECT vendor_job_id FROM vendor_ids WHERE n = ?1 ORDER BY vendor_job_id")?
        .query_map([n], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    let kept = KeptJob {
        job: fault::parse(&format!("the head of {}", text(row, 7)?), head)?,
        rev: unsigned(row.get(2)?),
        fence: unsigned(row.get(3)?),
        body: fault::parse(&format!("the body of {}", text(row, 7)?), body)?,
        key: row.get(5)?,
        output_path: row.get(6)?,
        vendor_ids,
    };
    Ok((Record::Job(Box::new(kept)), head.len() + body.len()))
}

fn event(_: &Connection, row: &Row<'_>) -> Done<(Record, usize)> {
    let (position, event) = read::event(row)?;
    Ok((Record::Event(EventRecord { position, event }), text(row, 7)?.len()))
}

fn exchange(_: &Connection, row: &Row<'_>) -> Done<(Record, usize)> {
    let exchange = read::exchange(row, 3)?;
    let size = exchange.exchange.text.len();
    Ok((Record::Exchange(ExchangeRecord { job: row.get(2)?, exchange }), size))
}

fn artifact(_: &Connection, row: &Row<'_>) -> Done<(Record, usize)> {
    let text = text(row, 1)?;
    Ok((Record::Artifact(Box::new(fault::parse("an artifact", text)?)), text.len()))
}

fn path(_: &Connection, row: &Row<'_>) -> Done<(Record, usize)> {
    Ok((Record::Path(PathRecord { tenant: row.get(0)?, path: row.get(1)?, job: row.get(2)? }), 0))
}

fn usage(_: &Connection, row: &Row<'_>) -> Done<(Record, usize)> {
    let record = UsageRecord {
        job: row.get(0)?,
        line: ledger::line(row, 1)?,
        booked_ms: row.get(7)?,
        tenant: row.get(8)?,
        connector: row.get(9)?,
        vendor: row.get(10)?,
    };
    Ok((Record::Usage(record), 0))
}

fn chore(_: &Connection, row: &Row<'_>) -> Done<(Record, usize)> {
    let text = text(row, 4)?;
    let chore: Chore = fault::parse("a chore", text)?;
    let record = ChoreRecord { run_at_ms: row.get(1)?, tries: row.get(2)?, created_ms: row.get(3)?, chore };
    Ok((Record::Chore(record), text.len()))
}

fn key(_: &Connection, row: &Row<'_>) -> Done<(Record, usize)> {
    let pruned = maybe_text(row, 5)?;
    let record = KeyRecord {
        tenant: row.get(0)?,
        key: row.get(1)?,
        hash: row.get(2)?,
        job: row.get(3)?,
        created_ms: row.get(4)?,
        pruned: pruned.map(|head| fault::parse("a pruned job's head", head)).transpose()?,
    };
    Ok((Record::Key(record), pruned.map_or(0, str::len)))
}
