//! What a commit writes, and what keeps it from writing.

use super::World;
use super::world::{NOON, artifact, event, exchange, into, sent, usage};
use crate::{CancelOutcome, CancelWish, Chore, Committed, JobState, Store, Took, Transition, When};
use longhaul_registry::{Step, Unit, UsageSource};
use serde_json::json;
use std::time::Duration;

fn full(job: crate::Job) -> Transition {
    let id = job.id.clone();
    Transition {
        keep_lease: false,
        adopts: false,
        events: vec![event("state"), event("usage")],
        usage: vec![usage("r1", Unit::Credits, "3.5", UsageSource::Reported, Some("0.035"))],
        artifacts: vec![artifact(&format!("art_{id}"), Some(&id), "aa")],
        raws: vec![exchange("f1", "GET /v1/get_result")],
        chores: vec![Chore::Check { connector: "flux".into() }],
        took: Some(Took { key: "flux".into(), ms: 3_000 }),
        job,
    }
}

/// Everything that a job consists of, for comparing.
async fn picture(store: &dyn Store, id: &str) -> String {
    let record = store.get(id).await.unwrap().unwrap();
    let events = store.events(id, 0, 100).await.unwrap();
    let exchanges = store.exchanges(id).await.unwrap();
    format!("{record:?} {events:?} {exchanges:?} {}", store.last_position().await.unwrap())
}

/// A worker that was taken over changes nothing at all.
pub async fn a_stale_fence_changes_nothing(world: World) {
    let id = world.going("flux", JobState::Running, Step::Poll, 0).await.id;
    let first = world.one().await;
    world.later(15_000);
    let second = world.one().await;
    let before = picture(&*world.store, &id).await;
    let job = into(&first.job, JobState::Succeeded, None);
    for rev in [first.rev, second.rev] {
        let committed = world.store.commit(&first.lease, rev, full(job.clone())).await.unwrap();
        assert!(matches!(committed, Committed::Lost), "{committed:?}");
    }
    let gone = crate::Lease { job: "job_none".into(), fence: 1 };
    assert!(matches!(world.store.commit(&gone, 1, full(job)).await.unwrap(), Committed::Lost));
    assert_eq!(picture(&*world.store, &id).await, before);
    assert!(world.store.claim_chores("w1", 10, Duration::from_secs(5)).await.unwrap().is_empty());
    assert!(world.store.durations().await.unwrap().is_empty());
    assert_eq!(world.store.counts().await.unwrap(), [("flux".into(), JobState::Running, 1)]);
    // The same lease is of no use a second time either.
    world.moved(&second, JobState::Running, Some((Step::Poll, 60_000))).await;
    let again = world.store.commit(&second.lease, second.rev + 1, full(second.job)).await.unwrap();
    assert!(matches!(again, Committed::Lost));
}

/// A lease that ended and was not taken over may still be used: its work was done.
pub async fn late_is_not_lost(world: World) {
    world.going("flux", JobState::Running, Step::Poll, 0).await;
    let claimed = world.one().await;
    world.later(3_600_000);
    let (job, _) = world.moved(&claimed, JobState::Collecting, Some((Step::Outputs, 0))).await;
    assert_eq!(job.kills, 0);
    assert_eq!(world.one().await.job.kills, 0);
}

/// A job that changed since it was read is answered as it is now.
pub async fn an_older_revision_is_answered_changed(world: World) {
    let id = world.going("flux", JobState::Running, Step::Poll, 0).await.id;
    let claimed = world.one().await;
    let mut cancelled = claimed.job.clone();
    let wish = CancelWish {
        requested_at: When::NOW,
        reason: None,
        outcome: CancelOutcome::Pending,
        sent: false,
        tried: false,
        heard: false,
        missing: 0,
        unread: false,
    };
    (cancelled.cancel, cancelled.step) = (Some(wish), Some(Step::Cancel));
    let Committed::Done(signalled, rev) = world.store.apply(&id, claimed.rev, Transition::to(cancelled)).await.unwrap()
    else {
        panic!("a signal is guarded by the revision alone");
    };
    let before = picture(&*world.store, &id).await;
    let late = full(into(&claimed.job, JobState::Collecting, Some((Step::Outputs, 0))));
    match world.store.commit(&claimed.lease, claimed.rev, late.clone()).await.unwrap() {
        Committed::Changed(job, now) => assert_eq!((job, now), (signalled, rev)),
        other => panic!("{other:?}"),
    }
    assert!(matches!(world.store.apply(&id, claimed.rev, late.clone()).await.unwrap(), Committed::Changed(..)));
    assert_eq!(picture(&*world.store, &id).await, before);
    world.done(&claimed.lease, rev, late).await;
}

/// A signal takes no lease away and gives none.
pub async fn a_signal_leaves_the_lease(world: World) {
    let id = world.submit(world.job("flux")).await.id;
    let claimed = world.one().await;
    let over = Transition::to(into(&claimed.job, JobState::Cancelled, None));
    let Committed::Done(_, rev) = world.store.apply(&id, claimed.rev, over).await.unwrap() else { panic!() };
    assert!(world.ids(10).await.is_empty());
    let stale = Transition::to(sent(&claimed.job));
    assert!(matches!(world.store.commit(&claimed.lease, claimed.rev, stale).await.unwrap(), Committed::Changed(..)));
    world.later(60_000);
    let replay = Transition::to(into(&claimed.job, JobState::Queued, Some((Step::Start, 0))));
    let Committed::Done(..) = world.store.apply(&id, rev, replay).await.unwrap() else { panic!() };
    assert_eq!(world.one().await.job.kills, 0, "a job that had nothing to do killed nobody");
}

/// What is stored and handed out holds no delay, and all instants count from the commit.
pub async fn delays_become_instants(world: World) {
    world.going("flux", JobState::Running, Step::Poll, 0).await;
    world.later(250);
    let claimed = world.one().await;
    assert_eq!(claimed.job.created_at, When::At(NOON));
    world.later(750);
    let mut job = into(&claimed.job, JobState::Collecting, Some((Step::Outputs, 730)));
    job.outputs_expire_at = Some(When::In(600_000));
    job.collecting_since = Some(When::NOW);
    let (job, _) = world.done(&claimed.lease, claimed.rev, Transition::to(job)).await;
    assert_eq!(job.due_at, Some(When::At(NOON + 1_730)));
    assert_eq!(job.outputs_expire_at, Some(When::At(NOON + 601_000)));
    assert_eq!(job.collecting_since, Some(When::At(NOON + 1_000)));
    assert_eq!(world.store.get(&job.id).await.unwrap().unwrap().job, job);
}

/// A job's events are numbered from 1 without gaps; all events have growing positions.
pub async fn history_has_no_gaps(world: World) {
    let first = world.going("flux", JobState::Running, Step::Poll, 0).await.id;
    let mut other = world.job("flux");
    other.tenant = "zenith".into();
    let other = world.submit(other).await.id;
    let claim = world.claim(10).await;
    let (poll, start) = (&claim.jobs[0], &claim.jobs[1]);
    let mut step = Transition::to(into(&poll.job, JobState::Running, Some((Step::Poll, 0))));
    step.events = vec![event("progress"), event("message")];
    step.raws = vec![exchange("f1", "GET /a")];
    let (job, rev) = world.done(&poll.lease, poll.rev, step).await;
    assert_eq!(job.seq, 3);
    let mut signal = Transition::to(into(&job, JobState::Running, Some((Step::Poll, 0))));
    signal.events = vec![event("operator")];
    assert!(matches!(world.store.apply(&first, rev, signal).await.unwrap(), Committed::Done(..)));
    let mut end = Transition::to(into(&start.job, JobState::Failed, None));
    end.events = vec![event("state")];
    world.done(&start.lease, start.rev, end).await;

    let events = world.store.events(&first, 0, 100).await.unwrap();
    assert_eq!(events.iter().map(|e| e.seq).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(
        events.iter().map(|e| (e.kind.as_str(), e.raw)).collect::<Vec<_>>(),
        [("state", None), ("progress", Some(1)), ("message", Some(1)), ("operator", None)]
    );
    assert!(events.iter().all(|e| e.at_ms == NOON && e.step == Some(Step::Poll) && e.job == first));
    assert_eq!(events[1].data, json!({"kind": "progress"}));
    assert_eq!(world.store.events(&first, 1, 2).await.unwrap(), events[1..3]);

    world.settle();
    let all = world.store.all_events(None, 0, 100).await.unwrap();
    assert_eq!(all.len(), 6);
    assert!(all.windows(2).all(|pair| pair[0].0 < pair[1].0));
    assert_eq!(all.last().unwrap().0, world.store.last_position().await.unwrap());
    assert_eq!(world.store.all_events(None, all[2].0, 2).await.unwrap(), all[3..5]);
    let zenith = world.store.all_events(Some("zenith"), 0, 100).await.unwrap();
    assert_eq!(
        zenith.iter().map(|(_, e)| (e.job.clone(), e.seq)).collect::<Vec<_>>(),
        [(other.clone(), 1), (other, 2)]
    );
}

/// Under `keep_lease` the job stays with its worker, whose next commit counts.
pub async fn a_kept_lease_goes_on(world: World) {
    world.submit(world.job("flux")).await;
    let claimed = world.one().await;
    let keep = Transition { keep_lease: true, ..Transition::to(sent(&claimed.job)) };
    let (job, rev) = world.done(&claimed.lease, claimed.rev, keep).await;
    assert!(world.ids(10).await.is_empty());
    assert_eq!(world.store.renew(std::slice::from_ref(&claimed.lease), Duration::from_secs(15)).await.unwrap(), [true]);
    world.done(&claimed.lease, rev, Transition::to(into(&job, JobState::Running, Some((Step::Poll, 0))))).await;
    assert_eq!(world.store.renew(&[claimed.lease], Duration::from_secs(15)).await.unwrap(), [false]);
    assert_eq!(world.ids(10).await, [job.id]);
}

/// Recording an artifact again replaces it; equal bytes elsewhere are found.
pub async fn artifacts_are_recorded_by_id(world: World) {
    let mut ids = Vec::new();
    for sha in ["aa", "aa", "bb"] {
        let id = world.going("flux", JobState::Collecting, Step::Outputs, 0).await.id;
        let claimed = world.one().await;
        let mut step = Transition::to(into(&claimed.job, JobState::Collecting, Some((Step::Outputs, 0))));
        step.artifacts =
            vec![artifact(&format!("{id}_2"), Some(&id), "cc"), artifact(&format!("{id}_1"), Some(&id), sha)];
        world.done(&claimed.lease, claimed.rev, step).await;
        let claimed = world.one().await;
        let mut renamed = artifact(&format!("{id}_2"), Some(&id), "dd");
        renamed.name = "second.png".into();
        let mut step = Transition::to(into(&claimed.job, JobState::Succeeded, None));
        step.artifacts = vec![renamed.clone()];
        world.done(&claimed.lease, claimed.rev, step).await;
        let record = world.store.get(&id).await.unwrap().unwrap();
        assert_eq!(record.artifacts, [renamed.clone(), artifact(&format!("{id}_1"), Some(&id), sha)]);
        assert_eq!(world.store.artifact(&renamed.id).await.unwrap(), Some(renamed));
        ids.push(id);
    }
    // Reckoned apart: printf '{"prompt":"a brass telescope"}' | sha256sum
    let hash = "2fb9e4e0fb4e1e3df566ce309ba24cc9af7383bddd1c655990bd7dad05adb879".to_owned();
    let same = world.store.same_bytes("acme", "aa", &ids[0]).await.unwrap();
    assert_eq!(same, [(ids[1].clone(), hash)]);
    assert!(world.store.same_bytes("zenith", "aa", &ids[0]).await.unwrap().is_empty());
    assert!(world.store.same_bytes("acme", "cc", "").await.unwrap().is_empty(), "it was replaced");
}

/// A search for a lost start can tell which records other jobs of the connector hold.
pub async fn a_vendors_id_is_known_as_anothers(world: World) {
    let first = world.going("flux", JobState::Starting, Step::Start, 0).await.id;
    let claimed = world.one().await;
    let mut job = into(&claimed.job, JobState::Running, Some((Step::Poll, 60_000)));
    job.vendor_job_id = Some("v-1".into());
    world.done(&claimed.lease, claimed.rev, Transition::to(job)).await;
    let ids = ["v-1".to_owned(), "v-2".to_owned()];
    let taken = async |connector: &str, not_job: &str| world.store.taken_ids(connector, &ids, not_job).await.unwrap();
    assert_eq!(taken("flux", "job_other").await, ["v-1"]);
    assert!(taken("flux", &first).await.is_empty(), "its own is not another's");
    assert!(taken("runway", "job_other").await.is_empty());
}

/// Of two jobs that found the same record, or were told it is theirs, the second gets nothing written and may say what else
/// became of it under the same lease.
pub async fn a_record_is_adopted_once(world: World) {
    let adopts = |job: &crate::Job, state, id: &str| {
        let mut transition = full(into(job, state, Some((Step::Poll, 60_000))));
        transition.job.vendor_job_id = Some(id.to_owned());
        transition.adopts = true;
        transition
    };
    let taken = |committed: Committed| assert!(matches!(committed, Committed::Taken), "{committed:?}");
    for _ in 0..3 {
        world.going("flux", JobState::Starting, Step::Start, 0).await;
    }
    world.going("runway", JobState::Starting, Step::Start, 0).await;
    let claim = world.claim(10).await;
    let [first, second, third, elsewhere] = claim.jobs.as_slice() else { panic!("{claim:?}") };
    // Without a change of state too: a start of two phases stays where it is.
    let (job, rev) = world.done(&first.lease, first.rev, adopts(&first.job, JobState::Starting, "v-1")).await;
    let before = picture(&*world.store, &second.job.id).await;
    let late = adopts(&second.job, JobState::Running, "v-1");
    taken(world.store.commit(&second.lease, second.rev, late.clone()).await.unwrap());
    taken(world.store.apply(&second.job.id, second.rev, late.clone()).await.unwrap());
    assert_eq!(picture(&*world.store, &second.job.id).await, before);
    // What was told before is told first.
    assert!(matches!(world.store.commit(&second.lease, 99, late.clone()).await.unwrap(), Committed::Changed(..)));
    let stale = crate::Lease { fence: 99, ..second.lease.clone() };
    assert!(matches!(world.store.commit(&stale, second.rev, late).await.unwrap(), Committed::Lost));
    world.done(&second.lease, second.rev, adopts(&second.job, JobState::Running, "v-2")).await;
    // An answer of the vendor's own is not doubted; another connector's ids are others; its own stays its own.
    let answered = Transition { adopts: false, ..adopts(&third.job, JobState::Running, "v-1") };
    world.done(&third.lease, third.rev, answered).await;
    world.done(&elsewhere.lease, elsewhere.rev, adopts(&elsewhere.job, JobState::Running, "v-1")).await;
    let named = adopts(&job, JobState::Running, "v-2");
    taken(world.store.apply(&first.job.id, rev, named).await.unwrap());
    world.later(60_000);
    let world = world.reopen().await;
    let again = world.claim(10).await.jobs.into_iter().find(|claimed| claimed.job.id == second.job.id).unwrap();
    taken(world.store.commit(&again.lease, again.rev, adopts(&again.job, JobState::Running, "v-1")).await.unwrap());
    world.done(&again.lease, again.rev, adopts(&again.job, JobState::Running, "v-2")).await;
}

/// An exchange like the one before is counted; anything else is kept as it came.
pub async fn equal_exchanges_are_counted(world: World) {
    world.going("flux", JobState::Running, Step::Poll, 0).await;
    let long = "Grüße 🛰 ".repeat(20_000);
    let texts = [("a", "first"), ("a", "never read"), ("a", "never read"), ("b", long.as_str()), ("a", "again")];
    let mut id = String::new();
    for (fingerprint, text) in texts {
        let claimed = world.one().await;
        let mut step = Transition::to(into(&claimed.job, JobState::Running, Some((Step::Poll, 0))));
        step.raws = vec![exchange(fingerprint, text)];
        world.done(&claimed.lease, claimed.rev, step).await;
        world.later(1_000);
        id = claimed.job.id;
    }
    let kept = world.store.exchanges(&id).await.unwrap();
    let shape = |x: &crate::StoredExchange| (x.n, x.count, x.first_ms - NOON, x.last_ms - NOON);
    assert_eq!(
        kept.iter().map(shape).collect::<Vec<_>>(),
        [(1, 3, 0, 2_000), (2, 1, 3_000, 3_000), (3, 1, 4_000, 4_000)]
    );
    assert_eq!(kept[0].exchange, exchange("a", "first"));
    assert_eq!(kept[1].exchange.text, long);
}

/// However long a job runs, what is kept of it is bounded: the beginning and the newest, with the gap told
/// by the numbers.
pub async fn exchanges_are_bounded(world: World) {
    world.going("flux", JobState::Running, Step::Poll, 0).await;
    let claimed = world.one().await;
    let mut step = Transition::to(into(&claimed.job, JobState::Running, Some((Step::Poll, 0))));
    step.raws = (1..=1_000).map(|at| exchange(&at.to_string(), &format!("poll {at}"))).collect();
    world.done(&claimed.lease, claimed.rev, step).await;
    let kept = world.store.exchanges(&claimed.job.id).await.unwrap();
    assert!(kept.len() < 1_000 && kept.len() > 10, "{}", kept.len());
    assert_eq!((kept[0].n, kept.last().unwrap().n), (1, 1_000));
    assert!(kept.iter().all(|x| x.exchange.text == format!("poll {}", x.n)));
}

/// Watchers hear of a change that they can then read, and never of one that did not happen.
pub async fn watchers_are_told_after_the_commit(world: World) {
    let mut changes = world.store.changes();
    let id = world.going("flux", JobState::Running, Step::Poll, 0).await.id;
    let heard = changes.recv().await.unwrap();
    assert_eq!(
        (heard.job.as_str(), heard.tenant.as_str(), heard.seq, heard.state),
        (id.as_str(), "acme", 1, JobState::Running)
    );
    let claimed = world.one().await;
    let stale = Transition::to(into(&claimed.job, JobState::Failed, None));
    assert!(matches!(world.store.apply(&id, claimed.rev + 1, stale).await.unwrap(), Committed::Changed(..)));
    let mut end = Transition::to(into(&claimed.job, JobState::Succeeded, None));
    end.events = vec![event("state")];
    world.done(&claimed.lease, claimed.rev, end).await;
    let heard = changes.recv().await.unwrap();
    assert_eq!((heard.seq, heard.state), (2, JobState::Succeeded));
    assert!(changes.try_recv().is_err());
}
