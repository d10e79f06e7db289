//! How long jobs took: counts of buckets, in two generations a kind of work.

use super::fault::{Done, signed, unsigned};
use super::writer::Session;
use crate::durations::{GENERATION, KINDS};
use crate::{Sketch, Took};
use rusqlite::Connection;

/// Takes a sample in. The generation that it fills becomes the elder, and the elder before it goes.
pub(super) fn teach(s: &Session<'_>, took: &Took) -> Done<()> {
    let (kind, generation, samples): (i64, i64, i64) = s
        .conn
        .prepare_cached(
            "INSERT INTO taught (key, generation, samples, at_ms) VALUES (?1, 0, 1, ?2)
             ON CONFLICT (key) DO UPDATE SET samples = samples + 1, at_ms = max(at_ms, excluded.at_ms)
             RETURNING kind, generation, samples",
        )?
        .query_row((&took.key, s.now_ms), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    s.conn
        .prepare_cached(
            "INSERT INTO durations (kind, generation, bucket, count) VALUES (?1, ?2, ?3, 1)
             ON CONFLICT (kind, generation, bucket) DO UPDATE SET count = count + 1",
        )?
        .execute((kind, generation, took.bucket()))?;
    if samples >= i64::from(GENERATION) {
        let elder = 1 - generation;
        s.conn.prepare_cached("DELETE FROM durations WHERE kind = ?1 AND generation = ?2")?.execute((kind, elder))?;
        s.conn
            .prepare_cached("UPDATE taught SET generation = ?2, samples = 0 WHERE kind = ?1")?
            .execute((kind, elder))?;
    } else if samples == 1 {
        bound(s.conn)?;
    }
    Ok(())
}

/// Drops what was taught the longest ago, where there is more than may be remembered.
fn bound(conn: &Connection) -> Done<()> {
    let known: i64 = conn.prepare_cached("SELECT count(*) FROM taught")?.query_row([], |row| row.get(0))?;
    let most = signed(u64::try_from(KINDS).unwrap_or(u64::MAX));
    for _ in most..known {
        let oldest: i64 = conn
            .prepare_cached("SELECT kind FROM taught ORDER BY at_ms, kind LIMIT 1")?
            .query_row([], |row| row.get(0))?;
        conn.prepare_cached("DELETE FROM durations WHERE kind = ?1")?.execute([oldest])?;
        conn.prepare_cached("DELETE FROM taught WHERE kind = ?1")?.execute([oldest])?;
    }
    Ok(())
}

/// Everything that was taught, by kind of work.
pub(super) fn all(conn: &Connection) -> Done<Vec<(String, Sketch)>> {
    let mut read = conn.prepare_cached(
        "SELECT t.key, d.bucket, d.count FROM taught t JOIN durations d ON d.kind = t.kind ORDER BY t.key",
    )?;
    let mut rows = read.query([])?;
    let mut all: Vec<(String, Sketch)> = Vec::new();
    while let Some(row) = rows.next()? {
        let key: String = row.get(0)?;
        if all.last().is_none_or(|(last, _)| *last != key) {
            all.push((key, Sketch::default()));
        }
        if let Some((_, sketch)) = all.last_mut() {
            sketch.count(row.get(1)?, unsigned(row.get(2)?));
        }
    }
    Ok(all)
}
