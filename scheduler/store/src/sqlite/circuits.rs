//! Connectors' circuits. What was counted is kept in memory; what claims go by has a row.

use super::fault::{self, Done};
use super::writer::Session;
use crate::limits::Circuits;
use rusqlite::Connection;
use std::collections::BTreeMap;

/// The circuits of every connector that has any.
pub(super) fn all(s: &mut Session<'_>) -> BTreeMap<String, Circuits> {
    let some = s.board.conns().iter().filter(|conn| conn.circuits.rev > 0);
    some.map(|conn| (conn.name.clone(), conn.circuits.clone())).collect()
}

/// Sets a connector's circuits after those of the revision before.
pub(super) fn set(s: &mut Session<'_>, connector: &str, circuits: &Circuits) -> Done<bool> {
    let at = s.board.at_name(s.conn, connector)?;
    let conn = s.board.conn_mut(at)?;
    if conn.circuits.rev.checked_add(1) != Some(circuits.rev) {
        return Ok(false);
    }
    if !conn.circuits.act_alike(circuits) {
        let text = fault::write("a connector's circuits", circuits)?;
        s.conn
            .prepare_cached("INSERT OR REPLACE INTO circuits (cid, circuits) VALUES (?1, ?2)")?
            .execute((conn.cid, text))?;
        *s.wake = true;
    }
    conn.circuits = circuits.clone();
    Ok(true)
}

/// Reads every connector's circuits back.
pub(super) fn read(conn: &Connection, mut each: impl FnMut(i64, Circuits) -> Done<()>) -> Done<()> {
    let mut rows = conn.prepare_cached("SELECT cid, circuits FROM circuits")?;
    let mut rows = rows.query([])?;
    while let Some(row) = rows.next()? {
        let text = row.get_ref(1)?.as_str().map_err(fault::column)?;
        each(row.get(0)?, fault::parse("a connector's circuits", text)?)?;
    }
    Ok(())
}
