//! Connectors' start and request rates: buckets, paces and meters, each with its row.

use super::board::Conn;
use super::fault::{self, Done};
use super::writer::Session;
use crate::limits::{Bucket, Pace, Rate, request_rate, start_rate};
use rusqlite::Connection;

impl Conn {
    fn start_rate(&self, now_ms: i64) -> Option<Rate> {
        start_rate(&self.limits, &self.circuits, now_ms)
    }

    fn request_rate(&self, now_ms: i64) -> Option<Rate> {
        request_rate(&self.limits, self.pace.as_ref(), &self.circuits, now_ms)
    }

    /// Steps that the request rate lets through now.
    pub(super) fn request_tokens(&self, now_ms: i64) -> usize {
        match (self.request_rate(now_ms), self.requests) {
            (None, _) => usize::MAX,
            (Some(rate), bucket) => bucket.unwrap_or_else(|| Bucket::full(rate, now_ms)).tokens(rate, now_ms),
        }
    }

    /// Fresh starts that the start rate lets through now.
    pub(super) fn start_tokens(&self, now_ms: i64) -> usize {
        match (self.start_rate(now_ms), self.starts) {
            (None, _) => usize::MAX,
            (Some(rate), bucket) => bucket.unwrap_or_else(|| Bucket::full(rate, now_ms)).tokens(rate, now_ms),
        }
    }

    /// When the request rate lets a step through.
    pub(super) fn next_request_ms(&self, now_ms: i64) -> i64 {
        let rate = self.request_rate(now_ms);
        rate.zip(self.requests).map_or(now_ms, |(rate, bucket)| bucket.next_ms(rate, now_ms))
    }

    /// When the start rate, or an open circuit, lets a fresh start through.
    pub(super) fn next_start_ms(&self, now_ms: i64) -> i64 {
        let rate = self.start_rate(now_ms);
        let next = rate.zip(self.starts).map_or(now_ms, |(rate, bucket)| bucket.next_ms(rate, now_ms));
        next.max(self.circuits.next_start_ms(self.tried).unwrap_or(now_ms))
    }

    /// Takes one start token.
    pub(super) fn take_start(&mut self, now_ms: i64) {
        self.starts = self
            .start_rate(now_ms)
            .map(|rate| self.starts.unwrap_or_else(|| Bucket::full(rate, now_ms)).less(rate, now_ms, 1));
    }

    /// Takes request tokens, and counts them.
    pub(super) fn take_requests(&mut self, now_ms: i64, count: u32) {
        self.meter = self.meter.plus(now_ms, count);
        let rate = self.request_rate(now_ms);
        self.requests =
            rate.map(|rate| self.requests.unwrap_or_else(|| Bucket::full(rate, now_ms)).less(rate, now_ms, count));
    }
}

/// Takes requests beyond those that claims took.
pub(super) fn charge(s: &mut Session<'_>, connector: &str, requests: u32) -> Done<()> {
    let at = s.board.at_name(s.conn, connector)?;
    s.board.conn_mut(at)?.take_requests(s.now_ms, requests);
    keep(s, at)
}

/// Sets how fast a connector's vendor bears requests.
pub(super) fn set_pace(s: &mut Session<'_>, connector: &str, pace: Pace) -> Done<()> {
    let at = s.board.at_name(s.conn, connector)?;
    s.board.conn_mut(at)?.pace = Some(pace);
    keep(s, at)
}

/// Writes what one connector's rates stand at, so that a restart forgives nothing. A connector without rates has no row.
pub(super) fn keep(s: &mut Session<'_>, at: usize) -> Done<()> {
    let conn = s.board.conn(at)?;
    if conn.starts.is_none() && conn.requests.is_none() && conn.pace.is_none() {
        return Ok(());
    }
    let text = fault::write("a connector's rates", &(conn.starts, conn.requests, conn.pace))?;
    s.conn.prepare_cached("INSERT OR REPLACE INTO rates (cid, rates) VALUES (?1, ?2)")?.execute((conn.cid, text))?;
    Ok(())
}

/// Reads every connector's rates back.
pub(super) fn read(conn: &Connection, mut each: impl FnMut(i64, Rates) -> Done<()>) -> Done<()> {
    let mut rows = conn.prepare_cached("SELECT cid, rates FROM rates")?;
    let mut rows = rows.query([])?;
    while let Some(row) = rows.next()? {
        let rates = fault::parse("a connector's rates", row.get_ref(1)?.as_str().map_err(fault::column)?)?;
        each(row.get(0)?, rates)?;
    }
    Ok(())
}

/// Start tokens, request tokens, pace.
pub(super) type Rates = (Option<Bucket>, Option<Bucket>, Option<Pace>);

impl Conn {
    /// Takes over what was read back.
    pub(super) fn set_rates(&mut self, (starts, requests, pace): Rates) {
        (self.starts, self.requests, self.pace) = (starts, requests, pace);
    }
}
