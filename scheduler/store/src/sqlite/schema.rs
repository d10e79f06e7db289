//! The tables, and how an older file becomes a newer one.
//!
//! Migrations expand first and contract a release later, so that a file can be opened by the version
//! before as long as nothing was contracted. A file from the future is refused.

use super::fault::Fault;
use crate::{StoreError, StoreResult};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

/// Marks the file as ours (`LHQ1`), so that another program's database is refused rather than filled.
const APPLICATION_ID: i64 = 0x4c48_5131;

/// The migrations, in order. The version of a file is how many it has seen.
const MIGRATIONS: [&str; 4] = [FIRST, LIMITS, DURATIONS, CIRCUITS];

/// How the queue is found without looking at what cannot run: `queue.lane` says which line a job stands
/// in, `k1` and `k2` order that line, and the one partial index holds nothing else. Finished jobs have no
/// lane, so neither they nor a backlog in another lane cost a claim anything. [`super::lane`] owns the
/// meaning of the numbers.
///
/// The moving numbers (`queue`) stand apart from the head, so that a claim rewrites sixty bytes.
const FIRST: &str = "
CREATE TABLE connectors (
  cid INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, state TEXT NOT NULL, last_check TEXT
);
CREATE TABLE jobs (
  n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, rev INTEGER NOT NULL, seq INTEGER NOT NULL,
  cid INTEGER NOT NULL, tenant TEXT NOT NULL, vendor TEXT NOT NULL, state TEXT NOT NULL,
  created_ms INTEGER NOT NULL, finished_ms INTEGER, error_code TEXT, error_kind TEXT, head TEXT NOT NULL
);
CREATE INDEX jobs_created ON jobs (created_ms);
CREATE INDEX jobs_state ON jobs (state, created_ms);
CREATE INDEX jobs_tenant ON jobs (tenant, created_ms);
CREATE INDEX jobs_connector ON jobs (cid, created_ms);
CREATE INDEX jobs_finished ON jobs (finished_ms) WHERE finished_ms IS NOT NULL;
CREATE INDEX jobs_error_code ON jobs (error_code, created_ms) WHERE error_code IS NOT NULL;
CREATE INDEX jobs_error_kind ON jobs (error_kind, created_ms) WHERE error_kind IS NOT NULL;
CREATE TABLE queue (
  n INTEGER PRIMARY KEY, cid INTEGER NOT NULL, state INTEGER NOT NULL, slot INTEGER NOT NULL,
  lane INTEGER, k1 INTEGER NOT NULL, k2 INTEGER NOT NULL,
  fence INTEGER NOT NULL, owner TEXT, lease_until INTEGER NOT NULL
);
CREATE INDEX queue_due ON queue (cid, lane, k1, k2) WHERE lane IS NOT NULL;
CREATE TABLE bodies (
  n INTEGER PRIMARY KEY, request_hash TEXT NOT NULL, path TEXT, idempotency TEXT, body TEXT NOT NULL
);
CREATE TABLE labels (
  key TEXT NOT NULL, value TEXT NOT NULL, created_ms INTEGER NOT NULL, n INTEGER NOT NULL,
  PRIMARY KEY (key, value, created_ms, n)
) WITHOUT ROWID;
CREATE TABLE events (
  pos INTEGER PRIMARY KEY, n INTEGER NOT NULL, seq INTEGER NOT NULL, at_ms INTEGER NOT NULL,
  kind TEXT NOT NULL, step TEXT, attempt INTEGER NOT NULL, tenant TEXT NOT NULL, raw INTEGER, data TEXT NOT NULL
);
CREATE UNIQUE INDEX events_job ON events (n, seq);
CREATE INDEX events_tenant ON events (tenant, pos);
CREATE TABLE exchanges (
  n INTEGER NOT NULL, no INTEGER NOT NULL, count INTEGER NOT NULL, first_ms INTEGER NOT NULL,
  last_ms INTEGER NOT NULL, step TEXT NOT NULL, route TEXT NOT NULL, adapter TEXT NOT NULL,
  fingerprint TEXT NOT NULL, size INTEGER NOT NULL, PRIMARY KEY (n, no)
) WITHOUT ROWID;
CREATE TABLE exchange_texts (
  n INTEGER NOT NULL, no INTEGER NOT NULL, text BLOB NOT NULL
);
CREATE UNIQUE INDEX exchange_texts_no ON exchange_texts (n, no);
CREATE TABLE artifacts (
  at INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, n INTEGER, tenant TEXT NOT NULL, sha256 TEXT NOT NULL,
  artifact TEXT NOT NULL
);
CREATE INDEX artifacts_job ON artifacts (n, at) WHERE n IS NOT NULL;
CREATE INDEX artifacts_bytes ON artifacts (tenant, sha256);
CREATE TABLE vendor_ids (
  cid INTEGER NOT NULL, vendor_job_id TEXT NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (cid, vendor_job_id, n)
) WITHOUT ROWID;
CREATE INDEX vendor_ids_job ON vendor_ids (n);
CREATE TABLE paths (
  tenant TEXT NOT NULL, path TEXT NOT NULL, job TEXT NOT NULL, PRIMARY KEY (tenant, path)
) WITHOUT ROWID;
CREATE INDEX paths_job ON paths (job);
CREATE TABLE usage (
  job TEXT NOT NULL, attempt INTEGER NOT NULL, record TEXT NOT NULL, unit TEXT NOT NULL,
  quantity TEXT NOT NULL, source INTEGER NOT NULL, usd TEXT, booked_ms INTEGER NOT NULL,
  tenant TEXT NOT NULL, connector TEXT NOT NULL, vendor TEXT NOT NULL,
  PRIMARY KEY (job, attempt, record, unit)
) WITHOUT ROWID;
CREATE INDEX usage_booked ON usage (booked_ms);
CREATE TABLE chores (
  id INTEGER PRIMARY KEY AUTOINCREMENT, connector TEXT, run_at INTEGER NOT NULL, owner TEXT,
  fence INTEGER NOT NULL, tries INTEGER NOT NULL, created_ms INTEGER NOT NULL, chore TEXT NOT NULL
);
CREATE INDEX chores_due ON chores (run_at);
CREATE INDEX chores_connector ON chores (connector) WHERE connector IS NOT NULL;
CREATE TABLE idempotency (
  tenant TEXT NOT NULL, key TEXT NOT NULL, hash TEXT NOT NULL, job TEXT NOT NULL, created_ms INTEGER NOT NULL,
  pruned TEXT, PRIMARY KEY (tenant, key)
) WITHOUT ROWID;
CREATE INDEX idempotency_created ON idempotency (created_ms);
CREATE TABLE tokens (
  id TEXT PRIMARY KEY, hash TEXT NOT NULL UNIQUE, token TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
";

/// Limits. Fresh starts of one connector are told apart by tenant (`turn`, 0 in every other lane), so that whose turn it is
/// is found by one look, however many wait. `estimates` holds what a job is to take, and what of that is set aside for it
/// while it is at its vendor; `spend` what each tenant has booked in each month, money under the unit `$`.
const LIMITS: &str = "
CREATE TABLE rates (cid INTEGER PRIMARY KEY, rates TEXT NOT NULL);
CREATE TABLE tenants (tid INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
INSERT INTO tenants (name) SELECT tenant FROM jobs UNION SELECT tenant FROM usage;
ALTER TABLE jobs ADD COLUMN tid INTEGER NOT NULL DEFAULT 0;
UPDATE jobs SET tid = (SELECT tid FROM tenants WHERE name = jobs.tenant);
ALTER TABLE queue ADD COLUMN turn INTEGER NOT NULL DEFAULT 0;
UPDATE queue SET turn = (SELECT tid FROM jobs WHERE jobs.n = queue.n) WHERE lane = 2;
DROP INDEX queue_due;
CREATE INDEX queue_due ON queue (cid, lane, turn, k1, k2) WHERE lane IS NOT NULL;
CREATE TABLE estimates (
  n INTEGER PRIMARY KEY, tid INTEGER NOT NULL, estimate TEXT NOT NULL, held TEXT
);
CREATE INDEX estimates_held ON estimates (tid) WHERE held IS NOT NULL;
CREATE TABLE spend (
  tid INTEGER NOT NULL, month INTEGER NOT NULL, unit TEXT NOT NULL, amount TEXT NOT NULL,
  PRIMARY KEY (tid, month, unit)
) WITHOUT ROWID;
";

/// How long jobs took, counted in buckets. Of each kind of work there are two generations: `taught` says which takes samples in
/// and how many it has.
const DURATIONS: &str = "
CREATE TABLE taught (
  kind INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, generation INTEGER NOT NULL, samples INTEGER NOT NULL,
  at_ms INTEGER NOT NULL
);
CREATE INDEX taught_at ON taught (at_ms);
CREATE TABLE durations (
  kind INTEGER NOT NULL, generation INTEGER NOT NULL, bucket INTEGER NOT NULL, count INTEGER NOT NULL,
  PRIMARY KEY (kind, generation, bucket)
) WITHOUT ROWID;
";

/// Whether vendors answer, by connector.
const CIRCUITS: &str = "
CREATE TABLE circuits (cid INTEGER PRIMARY KEY, circuits TEXT NOT NULL);
";

/// Brings a file to the newest schema, in one transaction.
pub(super) fn migrate(conn: &mut Connection, shown: &str, now_ms: i64) -> StoreResult<()> {
    let version = version(conn, shown)?;
    if version == MIGRATIONS.len() {
        return Ok(());
    }
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(Fault::read)?;
    // Another process may have done it while this one waited for the lock.
    let version = self::version(&tx, shown)?;
    if version == 0 {
        tx.execute_batch("CREATE TABLE schema_version (version INTEGER PRIMARY KEY, applied_ms INTEGER NOT NULL);")
            .map_err(Fault::read)?;
        tx.pragma_update(None, "application_id", APPLICATION_ID).map_err(Fault::read)?;
    }
    for (at, step) in MIGRATIONS.iter().enumerate().skip(version) {
        tx.execute_batch(step).map_err(Fault::read)?;
        if *step == LIMITS {
            super::tenants::fill(&tx)?;
        }
        let number = i64::try_from(at + 1).unwrap_or(i64::MAX);
        tx.execute("INSERT INTO schema_version (version, applied_ms) VALUES (?1, ?2)", (number, now_ms))
            .map_err(Fault::read)?;
    }
    tx.commit().map_err(|error| Fault::read(error).into())
}

/// How many migrations a file has seen; 0 for an empty one.
fn version(conn: &Connection, shown: &str) -> StoreResult<usize> {
    let count = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(Fault::read);
    let known = MIGRATIONS.len();
    if count("SELECT count(*) FROM sqlite_schema WHERE name = 'schema_version'")? == 0 {
        if count("SELECT count(*) FROM sqlite_schema")? > 0 {
            return Err(StoreError::Refused(format!(
                "{shown} is another program's database; name a file of its own in [store] url"
            )));
        }
        return Ok(0);
    }
    let version: Option<i64> = conn
        .query_row("SELECT max(version) FROM schema_version", [], |row| row.get(0))
        .optional()
        .map_err(Fault::read)?
        .flatten();
    let version = usize::try_from(version.unwrap_or(0)).unwrap_or(usize::MAX);
    if version > known {
        return Err(StoreError::Refused(format!(
            "{shown} was written by a newer longhaul (schema {version}, this one knows {known}); \
             run that version, or restore a backup made before the upgrade"
        )));
    }
    Ok(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of the first schema, with what the second reads from it.
    fn first() -> Connection {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch("CREATE TABLE schema_version (version INTEGER PRIMARY KEY, applied_ms INTEGER NOT NULL);")
            .unwrap();
        conn.execute_batch(FIRST).unwrap();
        conn.execute_batch(
            "INSERT INTO schema_version VALUES (1, 0);
             INSERT INTO connectors (cid, name, state) VALUES (1, 'flux', '{}');
             INSERT INTO jobs (n, id, rev, seq, cid, tenant, vendor, state, created_ms, head) VALUES
               (1, 'job_1', 1, 0, 1, 'acme', 'flux', 'queued', 5, '{}'),
               (2, 'job_2', 1, 0, 1, 'other', 'flux', 'running', 5, '{}');
             INSERT INTO queue (n, cid, state, slot, lane, k1, k2, fence, lease_until) VALUES
               (1, 1, 0, 0, 2, 0, 5, 0, 0), (2, 1, 2, 1, 1, 9, 0, 0, 0);
             INSERT INTO usage (job, attempt, record, unit, quantity, source, usd, booked_ms, tenant, connector, vendor)
             VALUES
               ('job_0', 1, 'a', 'credits', '10', 2, '0.1', 1796083199999, 'acme', 'flux', 'flux'),
               ('job_0', 1, 'b', 'credits', '20', 2, '0.2', 1796083199999, 'acme', 'flux', 'flux'),
               ('job_0', 1, 'c', 'credits', '7', 2, NULL, 1796083200000, 'acme', 'flux', 'flux'),
               ('job_9', 1, 'a', 'seconds', '3', 2, '5', 1796083199999, 'pruned', 'flux', 'flux');",
        )
        .unwrap();
        conn
    }

    #[test]
    fn the_second_schema_takes_over_tenants_turns_and_what_they_spent() {
        let mut conn = first();
        migrate(&mut conn, "t.db", 7).unwrap();
        let rows = |sql: &str| -> Vec<String> {
            let mut read = conn.prepare(sql).unwrap();
            read.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
        };
        assert_eq!(rows("SELECT name FROM tenants ORDER BY name"), ["acme", "other", "pruned"]);
        let turns =
            "SELECT q.n || ' ' || coalesce(t.name, '-') FROM queue q LEFT JOIN tenants t ON t.tid = q.turn ORDER BY 1";
        assert_eq!(rows(turns), ["1 acme", "2 -"], "only a waiting start takes turns");
        let owners = "SELECT j.id || ' ' || t.name FROM jobs j JOIN tenants t ON t.tid = j.tid ORDER BY 1";
        assert_eq!(rows(owners), ["job_1 acme", "job_2 other"]);
        let spend = "SELECT t.name || ' ' || month || ' ' || unit || ' ' || amount FROM spend JOIN tenants t USING (tid) ORDER BY 1";
        let booked = [
            "acme 202611 $ 0.3",
            "acme 202611 credits 30",
            "acme 202612 $ 0",
            "acme 202612 credits 7",
            "pruned 202611 $ 5",
            "pruned 202611 seconds 3",
        ];
        assert_eq!(rows(spend), booked);
        // A second opening finds nothing to do.
        migrate(&mut conn, "t.db", 8).unwrap();
    }
}
