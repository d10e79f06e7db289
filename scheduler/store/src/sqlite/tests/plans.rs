//! What a claim costs does not hang on what cannot run.

use super::*;
use crate::conformance::into;
use crate::sqlite::claim::{DUE, FIRST, IN_ORDER};
use crate::sqlite::starts::OF_TENANT;
use crate::{JobState, Transition, When};
use longhaul_registry::Step;
use rusqlite::{Connection, StatementStatus};

fn plan(conn: &Connection, sql: &str) -> String {
    let mut explain = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let count = explain.parameter_count();
    let rows =
        explain.query_map(rusqlite::params_from_iter(vec![1_i64; count]), |row| row.get::<_, String>(3)).unwrap();
    rows.collect::<Result<Vec<_>, _>>().unwrap().join("; ")
}

#[tokio::test]
async fn every_look_of_a_claim_is_one_search_of_the_partial_index() {
    let (_folder, file) = folder();
    let store = open(&file).unwrap();
    store.submit((0..200).map(|at| submission(&format!("job_{at}"))).collect()).await.unwrap();
    let conn = Connection::open(&file).unwrap();
    for sql in [IN_ORDER, DUE, FIRST, OF_TENANT] {
        let plan = plan(&conn, sql);
        assert!(plan.contains("USING COVERING INDEX queue_due (cid=? AND lane=? AND turn=?"), "{sql}: {plan}");
        assert!(!plan.contains("SCAN") && !plan.contains("TEMP B-TREE"), "{sql}: {plan}");
    }
    let index: String =
        conn.query_row("SELECT sql FROM sqlite_schema WHERE name = 'queue_due'", [], |row| row.get(0)).unwrap();
    assert!(index.ends_with("WHERE lane IS NOT NULL"), "{index}");
}

/// Steps of the engine's machine for each look that a claim makes.
fn steps(file: &Path) -> i64 {
    let conn = Connection::open(file).unwrap();
    let now = SystemClock::default().wall_ms();
    let mut steps = 0;
    // The lanes ordered by something else than time hold only what is due; the others are asked for what is.
    for (lane, sql) in [(0, IN_ORDER), (1, DUE), (2, OF_TENANT), (3, DUE), (4, DUE), (5, IN_ORDER)] {
        let mut look = conn.prepare(sql).unwrap();
        let key = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
        if lane == 2 {
            // The tenants whose turn it is are known; each look is for one of them.
            assert_eq!(look.query_map((1, 1, 50), key).unwrap().count(), 50);
            steps += i64::from(look.get_status(StatementStatus::VmStep));
            continue;
        }
        if sql == DUE {
            look.query_map((1, lane, 50, now), key).unwrap().for_each(drop);
        } else {
            look.query_map((1, lane, 50), key).unwrap().for_each(drop);
        }
        let mut first = conn.prepare(FIRST).unwrap();
        first.query_row((1, lane), |row| row.get::<_, Option<i64>>(0)).unwrap();
        steps += i64::from(look.get_status(StatementStatus::VmStep));
        steps += i64::from(first.get_status(StatementStatus::VmStep));
    }
    steps
}

#[tokio::test]
async fn a_backlog_and_finished_jobs_cost_a_claim_nothing() {
    let (_folder, file) = folder();
    let store = open(&file).unwrap();
    store.submit((0..100).map(|at| submission(&format!("due_{at}"))).collect()).await.unwrap();
    let before = steps(&file);
    // Fifty times as many: due starts, starts and polls that lie ahead, and ended jobs.
    let more = (0..5_000).map(|at| {
        let mut one = submission(&format!("more_{at}"));
        match at % 4 {
            0 => {}
            1 => one.job.due_at = Some(When::In(3_600_000)),
            2 => {
                let poll = Some((Step::Poll, 3_600_000));
                one.job = into(&one.job, JobState::Running, poll);
            }
            _ => one.job = into(&one.job, JobState::Succeeded, None),
        }
        one
    });
    store.submit(more.collect()).await.unwrap();
    let after = steps(&file);
    assert!(before > 500 && after <= before + before / 10, "{before} steps before, {after} after");
    // And the claim itself hands out what is due.
    assert_eq!(store.claim("w", 50, Duration::from_secs(5)).await.unwrap().jobs.len(), 50);
}

#[tokio::test]
async fn lists_do_not_scan() {
    let (_folder, file) = folder();
    let store = open(&file).unwrap();
    let claim = |id: &str| submission(id);
    store.submit(vec![claim("job_1")]).await.unwrap();
    let claimed = store.claim("w", 1, Duration::from_secs(5)).await.unwrap().jobs.remove(0);
    let end = Transition::to(into(&claimed.job, JobState::Failed, None));
    store.commit(&claimed.lease, claimed.rev, end).await.unwrap();
    let conn = Connection::open(&file).unwrap();
    for (sql, index) in [
        ("SELECT n FROM jobs WHERE state = ? ORDER BY created_ms DESC, n DESC LIMIT 10", "jobs_state"),
        ("SELECT n FROM jobs WHERE tenant = ? ORDER BY created_ms DESC, n DESC LIMIT 10", "jobs_tenant"),
        ("SELECT n FROM jobs WHERE cid = ? ORDER BY created_ms DESC, n DESC LIMIT 10", "jobs_connector"),
        ("SELECT n FROM jobs WHERE finished_ms < ? ORDER BY finished_ms LIMIT 10", "jobs_finished"),
        ("SELECT pos FROM events WHERE tenant = ? AND pos > ? ORDER BY pos LIMIT 10", "events_tenant"),
        ("SELECT id FROM chores WHERE run_at <= ? ORDER BY run_at, id LIMIT 10", "chores_due"),
        ("SELECT job FROM usage WHERE booked_ms >= ? AND booked_ms < ?", "usage_booked"),
    ] {
        let plan = plan(&conn, sql);
        assert!(plan.contains(index) && !plan.contains("TEMP B-TREE"), "{sql}: {plan}");
    }
}

/// A page of a dump and a piece of retention cost what they bring, wherever they begin.
#[tokio::test]
async fn telling_and_pruning_do_not_scan() {
    let (_folder, file) = folder();
    drop(open(&file).unwrap());
    let conn = Connection::open(&file).unwrap();
    for sql in crate::sqlite::dump::selects() {
        let plan = plan(&conn, &format!("{sql} LIMIT 10"));
        assert!(!plan.contains("SCAN") && !plan.contains("TEMP B-TREE"), "{sql}: {plan}");
    }
    for (sql, index) in
        [(crate::sqlite::retain::ENDED, "jobs_finished"), (crate::sqlite::ledger::PRUNE, "usage_booked (booked_ms<?)")]
    {
        let plan = plan(&conn, sql);
        assert!(plan.contains(index) && !plan.contains("SCAN") && !plan.contains("TEMP B-TREE"), "{sql}: {plan}");
    }
}

/// These numbers stand in files: a new state or lane takes a new number, and none is given twice.
#[test]
fn stored_numbers_are_never_renumbered() {
    let states = JobState::ALL.map(|state| (state.as_str(), state as i64));
    let stored = [
        ("queued", 0),
        ("starting", 1),
        ("running", 2),
        ("needs_input", 3),
        ("collecting", 4),
        ("succeeded", 5),
        ("failed", 6),
        ("cancelled", 7),
        ("limit_exceeded", 8),
        ("parked", 9),
    ];
    assert_eq!(states, stored);
    use crate::sqlite::lane::Lane;
    let lanes = [Lane::Outputs, Lane::Going, Lane::Fresh, Lane::Later, Lane::Leased, Lane::Placed];
    assert_eq!(lanes.map(Lane::code), [0, 1, 2, 3, 4, 5]);
}
