//! Letting go of what is old, and moving everything elsewhere.

use super::World;
use super::upkeep::end;
use super::world::{LEASE, NOON, artifact, event, exchange, into, sent, submission, usage};
use crate::{
    Chore, ConnectorState, CopyProgress, JobFilter, JobState, Record, Store, StoreError, Submission, Submitted,
    TokenRow, Transition, UsageBy, When, copy,
};
use longhaul_registry::{Step, Unit, UsageSource};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

/// Only what is still ended and still old goes, whatever was asked; asking again is harmless.
pub async fn a_job_that_lives_again_is_not_removed(world: World) {
    let mut ids = Vec::new();
    for _ in 0..3 {
        world.submit(world.job("flux")).await;
        ids.push(end(&world, JobState::Failed).await);
        world.later(1_000);
    }
    let asked = world.store.ended(NOON + 3_000, 10).await.unwrap();
    assert_eq!(asked, ids);
    // One is replayed meanwhile, one replayed and ended again, after the time.
    for id in &ids[..2] {
        let record = world.store.get(id).await.unwrap().unwrap();
        let mut again = into(&record.job, JobState::Running, Some((Step::Poll, 0)));
        again.finished_at = None;
        world.store.apply(id, record.rev, Transition::to(again)).await.unwrap();
    }
    let claim = world.claim(1).await;
    let (replayed, running) = (claim.jobs[0].job.id.clone(), claim.jobs[0].job.id == ids[0]);
    world.moved(&claim.jobs[0], JobState::Succeeded, None).await;
    let mut all = asked.clone();
    all.push("job_unknown".to_owned());
    assert_eq!(world.store.remove(&all, NOON + 3_000).await.unwrap(), 1);
    assert_eq!(world.store.remove(&all, NOON + 3_000).await.unwrap(), 0);
    let left: Vec<_> = ids.iter().map(|id| world.store.get(id)).collect();
    let left: Vec<_> = futures::future::join_all(left).await.into_iter().map(|job| job.unwrap().is_some()).collect();
    assert_eq!(left, [true, true, false]);
    assert!(world.store.events(&replayed, 0, 10).await.unwrap().len() > 1);
    assert!(world.store.ended(NOON + 3_000, 10).await.unwrap().is_empty());
    assert_eq!(world.store.ended(NOON + 3_001, 10).await.unwrap(), [ids[usize::from(!running)].clone()]);
}

/// The ledger outlives its jobs, then goes by the time of booking; a job that is here keeps its lines.
pub async fn old_lines_of_gone_jobs_leave_the_ledger(world: World) {
    for _ in 0..3 {
        world.submit(world.job("flux")).await;
        end(&world, JobState::Succeeded).await;
        world.later(1_000);
    }
    world.submit(world.job("flux")).await;
    let kept = end(&world, JobState::Parked).await;
    world.later(1_000);
    let lines = async || world.store.usage(&[UsageBy::Unit], None, None, None).await.unwrap()[0].lines;
    assert_eq!(world.store.prune_usage(NOON + 1_000_000, 10).await.unwrap(), 0, "their jobs are here");
    world.prune(NOON + 1_000_000, 10).await;
    assert_eq!(world.store.prune_usage(NOON + 2_000, 1).await.unwrap(), 1, "no more than asked");
    assert_eq!(lines().await, 3);
    // The third was booked at exactly this moment: it is not older.
    assert_eq!(world.store.prune_usage(NOON + 2_000, 10).await.unwrap(), 1);
    assert_eq!(world.store.prune_usage(NOON + 1_000_000, 10).await.unwrap(), 1);
    assert_eq!(world.store.prune_usage(NOON + 1_000_000, 10).await.unwrap(), 0);
    assert_eq!(lines().await, 1);
    assert_eq!(world.store.get(&kept).await.unwrap().unwrap().usage.len(), 1);
}

/// Keys go after thirty days and not before, at most so many at a time.
pub async fn old_keys_go(world: World) {
    let keyed = |key: &str| Submission { idempotency: Some((key.into(), "h".into())), ..submission(world.job("flux")) };
    world.store.submit(vec![keyed("a"), keyed("b")]).await.unwrap();
    world.later(30 * 24 * 3_600_000 - 1);
    world.store.submit(vec![keyed("c")]).await.unwrap();
    assert_eq!(world.store.prune_keys(10).await.unwrap(), 0);
    assert!(world.store.keyed("acme", "a", "h").await.unwrap().is_some());
    world.later(1);
    assert!(world.store.prune_keys(1).await.unwrap() <= 1);
    world.store.prune_keys(10).await.unwrap();
    let keys = whole(&*world.store, 100).await;
    let keys: Vec<_> = keys.iter().filter(|record| record.kind() == Some("key")).collect();
    assert!(matches!(keys[..], [Record::Key(key)] if key.key == "c"), "{keys:?}");
}

/// Everything that a store tells of itself, in pieces of a size.
async fn whole(store: &dyn Store, limit: usize) -> Vec<Record> {
    let (mut records, mut cursor) = (Vec::new(), None);
    loop {
        let (some, next) = store.dump(cursor.as_deref(), limit).await.unwrap();
        let ends = some.iter().filter(|record| matches!(record, Record::End { .. })).count();
        assert_eq!((ends, next.is_none()), (usize::from(next.is_none()), ends == 1), "the end is told once, last");
        records.extend(some);
        cursor = next;
        if cursor.is_none() {
            return records;
        }
    }
}

/// A store with one of everything.
async fn furnished(world: &World) {
    // One pruned, its key kept and its path let go; the newest position went with it.
    let mut gone = submission(world.job("flux"));
    gone.idempotency = Some(("gone".into(), "h".into()));
    world.store.submit(vec![gone]).await.unwrap();
    end(world, JobState::Succeeded).await;
    // One ended with everything that hangs on a job.
    let mut full = submission(world.job("flux"));
    (full.idempotency, full.output_path) = (Some(("k".into(), "h".into())), Some("hero.png".into()));
    full.job.labels = [("batch".to_owned(), "b1".to_owned()), ("take".to_owned(), "2".to_owned())].into();
    full.usage = vec![usage("estimate", Unit::Credits, "3.50", UsageSource::Estimated, Some("0.0350"))];
    world.later(1_000);
    world.store.submit(vec![full]).await.unwrap();
    let ended = end(world, JobState::Succeeded).await;
    assert!(world.store.hold_paths("acme", &ended, &["hero-2.png".to_owned()]).await.unwrap().is_empty());
    // One at the vendor, with its id, under a lease; one in flight on another connector; two that wait.
    world.submit(world.job("flux")).await;
    let claimed = world.one().await;
    let mut running = into(&sent(&claimed.job), JobState::Running, Some((Step::Poll, 0)));
    (running.vendor_job_id, running.vendor_state) = (Some("v-1".into()), json!({"page": 2}));
    let mut step = Transition::to(running);
    step.raws = vec![exchange("a", "first"), exchange("a", "first"), exchange("b", "second \u{1f980}")];
    step.events = vec![event("progress")];
    step.chores = vec![Chore::Notify {
        job: claimed.job.id.clone(),
        event: "job.needs_input".into(),
        url: "https://orchestrator.example/hooks".into(),
        seq: 2,
        data: json!({"id": claimed.job.id}),
    }];
    world.done(&claimed.lease, claimed.rev, step).await;
    assert_eq!(world.claim(1).await.jobs.len(), 1);
    world.going("runway", JobState::NeedsInput, Step::Poll, 60_000).await;
    for priority in [0, 5] {
        let mut job = world.job("flux");
        job.priority = priority;
        world.submit(job).await;
    }
    world.store.put_artifact(artifact("art_up", None, "bb")).await.unwrap();
    world.store.enqueue(Chore::Check { connector: "flux".into() }, Duration::from_secs(60)).await.unwrap();
    let paused = ConnectorState::Paused { since: When::In(0), reason: "maintenance".into() };
    world.store.set_connector("a2a", paused).await.unwrap();
    world.store.set_check("runway", json!({"at_ms": NOON, "ok": true})).await.unwrap();
    let token = TokenRow {
        id: "tok_1".into(),
        hash: "hash".into(),
        role: "read".into(),
        tenant: Some("acme".into()),
        name: Some("ci".into()),
        created_ms: NOON,
        revoked_ms: None,
    };
    world.store.add_token(token).await.unwrap();
    assert_eq!(world.prune(NOON + 500, 10).await.len(), 1);
}

fn sorted(records: &[Record]) -> Vec<String> {
    let mut texts: Vec<_> = records.iter().map(|record| serde_json::to_string(record).unwrap()).collect();
    texts.sort();
    texts
}

/// A store that took in another's dump tells the same, whatever the size of the pieces, and works on from there.
pub async fn a_dump_taken_in_elsewhere_is_the_same(world: World) {
    furnished(&world).await;
    let records = whole(&*world.store, 100).await;
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for kind in records.iter().filter_map(Record::kind) {
        *kinds.entry(kind).or_default() += 1;
    }
    let expected = [
        ("artifact", 2),
        ("chore", 2),
        ("connector", 3),
        ("event", 7),
        ("exchange", 3),
        ("job", 5),
        ("key", 2),
        ("path", 2),
        ("token", 1),
        ("usage", 3),
    ];
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), expected);
    for limit in [1, 3] {
        assert_eq!(sorted(&whole(&*world.store, limit).await), sorted(&records));
    }
    // What is told survives being written down.
    for record in &records {
        let text = serde_json::to_string(record).unwrap();
        assert_eq!(&serde_json::from_str::<Record>(&text).unwrap(), record);
    }
    let other = world.another().await;
    for piece in records.chunks(4) {
        other.store.load(piece.to_vec()).await.unwrap();
    }
    assert_eq!(sorted(&whole(&*other.store, 100).await), sorted(&records));
    let other = other.reopen().await;
    assert_eq!(sorted(&whole(&*other.store, 100).await), sorted(&records));
    same_answers(&world, &other).await;
    goes_on(&world, &other).await;
}

async fn same_answers(here: &World, there: &World) {
    let all = JobFilter::default();
    let labelled = JobFilter { label: Some(("batch".into(), "b1".into())), ..JobFilter::default() };
    for filter in [&all, &labelled] {
        let list = async |world: &World| format!("{:?}", world.store.list(filter, None, 10).await.unwrap().0);
        assert_eq!(list(here).await, list(there).await);
    }
    let events = async |world: &World| world.store.all_events(None, 0, 100).await.unwrap();
    assert_eq!(events(here).await, events(there).await);
    assert_eq!(here.store.last_position().await.unwrap(), there.store.last_position().await.unwrap());
    assert_eq!(here.store.counts().await.unwrap(), there.store.counts().await.unwrap());
    assert_eq!(here.store.tokens().await.unwrap(), there.store.tokens().await.unwrap());
    let usage =
        async |world: &World| world.store.usage(&[UsageBy::Day, UsageBy::Unit], None, None, None).await.unwrap();
    assert_eq!(usage(here).await, usage(there).await);
    let acme = async |world: &World| world.store.tenants(&["acme".to_owned()]).await.unwrap().remove(0);
    assert!(!acme(here).await.used().is_nothing());
    assert_eq!(acme(here).await, acme(there).await);
    for record in here.store.list(&all, None, 10).await.unwrap().0 {
        let exchanges = async |world: &World| world.store.exchanges(&record.job.id).await.unwrap();
        assert_eq!(exchanges(here).await, exchanges(there).await);
    }
    assert_eq!(there.store.taken_ids("flux", &["v-1".into()], "").await.unwrap(), ["v-1"]);
    let bytes = async |world: &World| world.store.same_bytes("acme", "aa", "").await.unwrap();
    assert_eq!((bytes(here).await, bytes(there).await.len()), (bytes(there).await, 1));
    let rows = there.store.connectors().await.unwrap();
    let rows: Vec<_> = rows.iter().map(|row| (row.name.as_str(), row.in_flight, row.queued)).collect();
    assert_eq!(rows, [("a2a", 0, 0), ("flux", 1, 2), ("runway", 1, 0)]);
}

/// Leases did not come along and count no kill, fences grow on, keys and paths are held, chores are due.
async fn goes_on(here: &World, there: &World) {
    let jobs = there.claim(10).await.jobs;
    let order: Vec<_> = jobs.iter().map(|claimed| (claimed.job.state, claimed.job.priority)).collect();
    assert_eq!(order, [(JobState::Running, 0), (JobState::Queued, 5), (JobState::Queued, 0)]);
    assert!(jobs.iter().all(|claimed| claimed.job.kills == 0));
    assert_eq!(jobs[0].lease.fence, 3, "two were given out before the move");
    there.moved(&jobs[0], JobState::Collecting, Some((Step::Outputs, 0))).await;
    let keyed = |key: &str, hash: &str| Submission {
        idempotency: Some((key.into(), hash.into())),
        ..submission(there.job("flux"))
    };
    let answers = there.store.submit(vec![keyed("gone", "h"), keyed("k", "h"), keyed("k", "other")]).await.unwrap();
    assert!(matches!(&answers[0], Submitted::Same(job) if job.state == JobState::Succeeded), "{answers:?}");
    assert!(matches!(&answers[1], Submitted::Same(_)) && matches!(&answers[2], Submitted::KeyConflict(_)));
    let mut taken = submission(there.job("flux"));
    taken.output_path = Some("hero-2.png".into());
    assert!(matches!(there.store.submit(vec![taken]).await.unwrap()[0], Submitted::PathTaken(_)));
    assert_eq!(there.store.claim_chores("w1", 10, LEASE).await.unwrap().len(), 1);
    there.later(60_000);
    let check = there.store.claim_chores("w1", 10, LEASE).await.unwrap();
    assert!(check.iter().any(|claimed| claimed.chore == Chore::Check { connector: "flux".into() }), "{check:?}");
    let before = here.store.last_position().await.unwrap();
    there.submit(there.job("flux")).await;
    let after = there.store.all_events(None, before, 10).await.unwrap();
    assert!(after.iter().all(|(position, _)| *position > before) && !after.is_empty());
}

/// A copy is compared with its source, and goes only where nothing is.
pub async fn a_copy_agrees_and_wants_an_empty_place(world: World) {
    furnished(&world).await;
    let other = world.another().await;
    let mut told = Vec::new();
    let copied = copy(&*world.store, &*other.store, |progress| told.push(progress)).await.unwrap();
    assert!(copied.agrees() && copied.from.count() == 30, "{copied:?}");
    assert!(told.contains(&CopyProgress::Copied(30)), "{told:?}");
    assert_eq!(told.last(), Some(&CopyProgress::Verified(30)));
    let other = other.reopen().await;
    let again = copy(&*world.store, &*other.store, |_| {}).await;
    assert!(matches!(&again, Err(StoreError::Refused(why)) if why.contains("not empty")), "{again:?}");
}

/// An empty store says so in one record.
pub async fn an_empty_store_tells_its_end_only(world: World) {
    assert_eq!(world.store.dump(None, 10).await.unwrap(), (vec![Record::End { position: 0 }], None));
    assert!(world.store.dump(Some("nonsense"), 10).await.is_err());
}
