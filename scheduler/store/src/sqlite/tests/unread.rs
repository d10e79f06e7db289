//! Rows that one binary cannot read and the next one can.

use super::*;
use rusqlite::Connection;

const LEASE: Duration = Duration::from_secs(15);

/// A file with one paid job, whose worker is gone.
async fn left_behind(file: &Path, clock: &Arc<ManualClock>) {
    let store = SqliteStore::open(file, SqliteOptions::default(), clock.clone()).unwrap();
    let mut job = job("job_1");
    (job.state, job.step) = (crate::JobState::Running, Some(longhaul_registry::Step::Poll));
    store.submit(vec![crate::conformance::submission(job)]).await.unwrap();
    assert_eq!(store.claim("gone", 1, LEASE).await.unwrap().jobs.len(), 1);
    store.close().await;
    clock.advance(LEASE * 2);
}

/// Opens the file, claims, closes it: ids with their kills.
async fn claimed(file: &Path, clock: &Arc<ManualClock>) -> Vec<(String, u32)> {
    let store = SqliteStore::open(file, SqliteOptions::default(), clock.clone()).unwrap();
    let jobs = store.claim("next", 10, LEASE).await.unwrap().jobs;
    store.close().await;
    jobs.into_iter().map(|claimed| (claimed.job.id, claimed.job.kills)).collect()
}

/// Replaces the one row's text and answers the old one.
fn swap(file: &Path, table: &str, column: &str, with: &str) -> String {
    let conn = Connection::open(file).unwrap();
    let old = conn.query_row(&format!("SELECT {column} FROM {table}"), [], |row| row.get(0)).unwrap();
    conn.execute(&format!("UPDATE {table} SET {column} = ?1"), [with]).unwrap();
    old
}

#[tokio::test]
async fn a_job_that_did_not_read_is_claimed_once_it_does() {
    for (table, column) in [("jobs", "head"), ("bodies", "body")] {
        let (_folder, file) = folder();
        let clock = ManualClock::at(1_796_000_000_000);
        left_behind(&file, &clock).await;
        let good = swap(&file, table, column, r#"{"of":"another time"}"#);
        for _ in 0..3 {
            assert_eq!(claimed(&file, &clock).await, [], "{column}: it does not read");
        }
        swap(&file, table, column, &good);
        let once = [("job_1".to_owned(), 1)];
        assert_eq!(claimed(&file, &clock).await, once, "{column}: it reads again, and one worker was lost over it");
    }
}

#[tokio::test]
async fn what_rests_is_not_put_back() {
    let (_folder, file) = folder();
    let clock = ManualClock::at(1_796_000_000_000);
    let store = SqliteStore::open(&file, SqliteOptions::default(), clock.clone()).unwrap();
    let rests = crate::JobState::ALL.into_iter().filter(|state| state.is_final() || *state == crate::JobState::Parked);
    for state in rests {
        let mut job = job(&format!("job_{state}"));
        (job.state, job.step, job.due_at) = (state, None, None);
        store.submit(vec![crate::conformance::submission(job)]).await.unwrap();
    }
    store.close().await;
    drop(store);
    drop(SqliteStore::open(&file, SqliteOptions::default(), clock).unwrap());
    let conn = Connection::open(&file).unwrap();
    let lanes = "SELECT count(*), count(lane) FROM queue";
    let counted = conn.query_row(lanes, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    assert_eq!(counted, (5, 0));
}
