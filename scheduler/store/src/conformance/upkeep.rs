//! Pruning, chores, tokens, and what is told about connectors.

use super::World;
use super::world::{LEASE, NOON, artifact, event, exchange, into, submission, usage};
use crate::{Chore, ConnectorState, JobFilter, JobState, Submission, Submitted, TokenRow, Transition, UsageBy, When};
use longhaul_registry::{Step, Unit, UsageSource};
use serde_json::json;
use std::time::Duration;

/// Ends the one job that is due, with everything that can hang on a job.
pub(super) async fn end(world: &World, state: JobState) -> String {
    let claimed = world.one().await;
    let id = claimed.job.id.clone();
    let mut last = Transition::to(into(&claimed.job, state, None));
    last.events = vec![event("state")];
    last.artifacts = vec![artifact(&format!("art_{id}"), Some(&id), "aa")];
    last.raws = vec![exchange("f", "text")];
    last.usage = vec![usage("v", Unit::Credits, "2", UsageSource::Reported, Some("0.02"))];
    world.done(&claimed.lease, claimed.rev, last).await;
    id
}

/// Ended jobs go, oldest first and no more than asked; the ledger and everything unfinished stays.
pub async fn pruning_takes_old_ends_only(world: World) {
    let mut ended = Vec::new();
    for state in [JobState::Succeeded, JobState::Failed, JobState::Cancelled, JobState::LimitExceeded] {
        let mut one = submission(world.job("flux"));
        one.output_path = Some(format!("{state}.png"));
        one.job.labels = [("batch".to_owned(), "b1".to_owned())].into();
        world.store.submit(vec![one]).await.unwrap();
        ended.push(end(&world, state).await);
        world.later(1_000);
    }
    world.submit(world.job("flux")).await;
    let parked = end(&world, JobState::Parked).await;
    let running = world.going("flux", JobState::Running, Step::Poll, 60_000).await.id;
    world.settle();
    let before = world.store.last_position().await.unwrap();

    // The third ended at exactly this moment: it is not older.
    assert_eq!(world.prune(NOON + 2_000, 1).await, ended[..1]);
    assert_eq!(world.prune(NOON + 2_000, 10).await, ended[1..2]);
    assert_eq!(world.prune(NOON + 1_000_000, 10).await, ended[2..]);
    assert!(world.prune(NOON + 1_000_000, 10).await.is_empty());

    for id in &ended {
        assert!(world.store.get(id).await.unwrap().is_none());
        assert!(world.store.events(id, 0, 10).await.unwrap().is_empty());
        assert!(world.store.exchanges(id).await.unwrap().is_empty());
        assert_eq!(world.store.artifact(&format!("art_{id}")).await.unwrap(), None);
    }
    let label = JobFilter { label: Some(("batch".into(), "b1".into())), ..JobFilter::default() };
    assert!(world.store.list(&label, None, 10).await.unwrap().0.is_empty());
    let left: Vec<_> = world.store.list(&JobFilter::default(), None, 10).await.unwrap().0;
    assert_eq!(left.into_iter().map(|record| record.job.id).collect::<Vec<_>>(), [running, parked]);
    let sums = world.store.usage(&[UsageBy::Unit], None, None, None).await.unwrap();
    assert_eq!((sums[0].quantity, sums[0].lines), (Some(10.into()), 5));
    assert_eq!(
        world.store.counts().await.unwrap(),
        [("flux".into(), JobState::Running, 1), ("flux".into(), JobState::Parked, 1)]
    );
    // The path is free, and no position is used again, though the newest of all went.
    let mut again = submission(world.job("flux"));
    again.output_path = Some("succeeded.png".into());
    assert!(matches!(world.store.submit(vec![again]).await.unwrap()[0], Submitted::New(_)));
    let newest = end(&world, JobState::Succeeded).await;
    assert_eq!(world.prune(NOON + 1_000_000, 10).await, [newest]);
    let world = world.reopen().await;
    let last = world.store.last_position().await.unwrap();
    assert!(if world.ordered() { last == before + 2 } else { last >= before }, "{last} {before}");
    let id = world.submit(world.job("flux")).await.id;
    world.settle();
    let after = world.store.all_events(None, before, 10).await.unwrap();
    assert_eq!(after.iter().map(|(_, event)| event.job.as_str()).collect::<Vec<_>>(), [id]);
    assert!(if world.ordered() { after[0].0 == before + 3 } else { after[0].0 > before }, "{after:?} {before}");
}

/// Retention shorter than a key's life must not buy a job again.
pub async fn a_pruned_jobs_key_still_buys_nothing(world: World) {
    let keyed =
        |hash: &str| Submission { idempotency: Some(("k".into(), hash.into())), ..submission(world.job("flux")) };
    world.store.submit(vec![keyed("h")]).await.unwrap();
    let id = end(&world, JobState::Succeeded).await;
    world.later(1_000);
    assert_eq!(world.prune(NOON + 500, 10).await, std::slice::from_ref(&id));
    let again = world.store.submit(vec![keyed("h"), keyed("other")]).await.unwrap();
    assert!(matches!(&again[0], Submitted::Same(job) if job.id == id && job.state == JobState::Succeeded));
    assert_eq!(again[1], Submitted::KeyConflict(id));
    world.later(30 * 24 * 3_600_000);
    assert!(matches!(world.store.submit(vec![keyed("h")]).await.unwrap()[0], Submitted::New(_)));
}

fn notify(job: &str) -> Chore {
    Chore::Notify {
        job: job.into(),
        event: "job.finished".into(),
        url: "https://orchestrator.example/hooks".into(),
        seq: 2,
        data: json!({"id": job}),
    }
}

/// A chore is one worker's at a time, comes back when that one dies, and its line lands in the history.
pub async fn chores_are_leased_and_retried(world: World) {
    let id = world.going("flux", JobState::Running, Step::Poll, 60_000).await.id;
    let mut poll = world.store.get(&id).await.unwrap().unwrap();
    let mut signal = Transition::to(poll.job.clone());
    signal.chores = vec![notify(&id)];
    world.store.apply(&id, poll.rev, signal).await.unwrap();
    world.store.enqueue(notify("later"), Duration::from_secs(60)).await.unwrap();
    let claim = |worker: &'static str| {
        let store = world.store.clone();
        async move { store.claim_chores(worker, 10, LEASE).await.unwrap() }
    };
    let first = claim("w1").await.remove(0);
    assert_eq!((first.tries, first.created_ms, &first.chore), (0, NOON, &notify(&id)));
    assert!(claim("w2").await.is_empty());
    world.later(15_000);
    let second = claim("w2").await.remove(0);
    assert_eq!((second.id, second.tries), (first.id, 1));
    assert!(!world.store.finish_chore(first.id, first.fence, None, None).await.unwrap(), "it was taken over");
    let line = Some((id.clone(), event("notify")));
    let again = Some(Duration::from_secs(30));
    assert!(world.store.finish_chore(second.id, second.fence, again, line.clone()).await.unwrap());
    assert!(!world.store.finish_chore(second.id, second.fence, None, line.clone()).await.unwrap());
    world.later(29_999);
    assert!(claim("w1").await.is_empty());
    world.later(1);
    let third = claim("w1").await.remove(0);
    assert_eq!(third.tries, 2);
    assert!(world.store.finish_chore(third.id, third.fence, None, line).await.unwrap());

    world.later(15_000);
    // The lines came in between a worker's claim and its commit and disturb neither.
    poll = world.store.get(&id).await.unwrap().unwrap();
    assert_eq!(poll.job.seq, 3);
    let claimed = world.claim(10).await.jobs.remove(0);
    world.store.enqueue(notify(&id), Duration::ZERO).await.unwrap();
    let chores = claim("w1").await;
    assert_eq!(chores.len(), 2, "the one enqueued for later is due too");
    for chore in chores {
        let line = Some((id.clone(), event("notify")));
        assert!(world.store.finish_chore(chore.id, chore.fence, None, line).await.unwrap());
    }
    let mut step = Transition::to(into(&claimed.job, JobState::Running, Some((Step::Poll, 0))));
    step.events = vec![event("progress")];
    let (job, _) = world.done(&claimed.lease, claimed.rev, step).await;
    assert_eq!(job.seq, 6);
    let events = world.store.events(&id, 0, 100).await.unwrap();
    assert_eq!(events.iter().map(|e| e.seq).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    assert!(claim("w1").await.is_empty());
}

/// Asking twice for a check makes one, at the earlier time.
pub async fn a_waiting_check_is_moved_up(world: World) {
    let check = |name: &str| Chore::Check { connector: name.into() };
    for (name, delay) in [("flux", 60), ("flux", 10), ("flux", 30), ("runway", 10)] {
        world.store.enqueue(check(name), Duration::from_secs(delay)).await.unwrap();
    }
    world.later(9_999);
    assert!(world.store.claim_chores("w1", 10, LEASE).await.unwrap().is_empty());
    world.later(1);
    let claimed = world.store.claim_chores("w1", 10, LEASE).await.unwrap();
    let chores: Vec<_> = claimed.iter().map(|claimed| claimed.chore.clone()).collect();
    assert_eq!(chores, [check("flux"), check("runway")]);
    // One that is being done was asked for before whatever made the caller ask now.
    world.store.enqueue(check("flux"), Duration::ZERO).await.unwrap();
    assert_eq!(world.store.claim_chores("w1", 10, LEASE).await.unwrap().len(), 1);
}

/// Tokens are stored as they are; a revoked one says since when.
pub async fn tokens_are_kept_and_revoked(world: World) {
    let token = |id: &str, tenant: Option<&str>| TokenRow {
        id: id.into(),
        hash: format!("hash of {id}"),
        role: "submit".into(),
        tenant: tenant.map(str::to_owned),
        name: None,
        created_ms: NOON,
        revoked_ms: None,
    };
    world.store.add_token(token("tok_1", None)).await.unwrap();
    world.store.add_token(token("tok_2", Some("acme"))).await.unwrap();
    assert!(world.store.add_token(token("tok_1", None)).await.is_err(), "an id is one token's");
    world.later(5_000);
    assert!(world.store.revoke_token("tok_1").await.unwrap());
    world.later(5_000);
    assert!(world.store.revoke_token("tok_1").await.unwrap());
    assert!(!world.store.revoke_token("tok_9").await.unwrap());
    let revoked = TokenRow { revoked_ms: Some(NOON + 5_000), ..token("tok_1", None) };
    assert_eq!(world.store.tokens().await.unwrap(), [revoked, token("tok_2", Some("acme"))]);
}

/// Connectors with their states, places, queues and checks; jobs by state.
pub async fn connectors_and_counts_are_told(world: World) {
    assert!(world.store.connectors().await.unwrap().is_empty());
    for _ in 0..3 {
        world.submit(world.job("flux")).await;
    }
    world.going("runway", JobState::Running, Step::Poll, 60_000).await;
    let claimed = world.claim(1).await.jobs.remove(0);
    world.moved(&claimed, JobState::Succeeded, None).await;
    let paused = ConnectorState::Paused { since: When::In(0), reason: "maintenance".into() };
    world.store.set_connector("a2a", paused).await.unwrap();
    let check = json!({"at_ms": NOON, "ok": false, "code": "auth"});
    world.store.set_check("flux", check.clone()).await.unwrap();
    let world = world.reopen().await;
    let rows = world.store.connectors().await.unwrap();
    let row = |at: usize| (rows[at].name.as_str(), rows[at].in_flight, rows[at].queued);
    assert_eq!((row(0), row(1), row(2)), (("a2a", 0, 0), ("flux", 0, 2), ("runway", 1, 0)));
    assert_eq!(rows[0].state, ConnectorState::Paused { since: When::At(NOON), reason: "maintenance".into() });
    assert_eq!((&rows[1].state, &rows[1].last_check), (&ConnectorState::Open, &Some(check)));
    let counts = world.store.counts().await.unwrap();
    let expected = [("flux", JobState::Queued, 2), ("flux", JobState::Succeeded, 1), ("runway", JobState::Running, 1)];
    assert_eq!(counts, expected.map(|(name, state, count)| (name.to_owned(), state, count)));
    world.store.ready().await.unwrap();
}

/// An uploaded input belongs to no job and is never pruned with one.
pub async fn uploads_are_artifacts_without_a_job(world: World) {
    let upload = artifact("art_up", None, "aa");
    world.store.put_artifact(upload.clone()).await.unwrap();
    assert_eq!(world.store.artifact("art_up").await.unwrap(), Some(upload));
    assert_eq!(world.store.artifact("art_none").await.unwrap(), None);
    assert!(world.store.same_bytes("acme", "aa", "").await.unwrap().is_empty());
}
