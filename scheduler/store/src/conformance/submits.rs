//! Taking jobs in, and finding them.

use super::World;
use super::world::{NOON, into, submission};
use crate::{JobFilter, JobState, Submission, Submitted, Transition, When};
use std::collections::HashSet;

fn keyed(world: &World, key: &str, hash: &str) -> Submission {
    Submission { idempotency: Some((key.into(), hash.into())), ..submission(world.job("flux")) }
}

/// 32 submits of one key at once make one job.
pub async fn one_key_one_job_under_a_race(world: World) {
    let submits = (0..32).map(|_| {
        let (store, job) = (world.store.clone(), keyed(&world, "k1", "h1"));
        tokio::spawn(async move { store.submit(vec![job]).await.unwrap().remove(0) })
    });
    let (mut new, mut ids) = (0, HashSet::new());
    for submit in submits.collect::<Vec<_>>() {
        match submit.await.unwrap() {
            Submitted::New(job) => {
                new += 1;
                ids.insert(job.id);
            }
            Submitted::Same(job) => drop(ids.insert(job.id)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((new, ids.len()), (1, 1));
    assert_eq!(world.ids(100).await.len(), 1);
    assert_eq!(world.store.list(&JobFilter::default(), None, 100).await.unwrap().0.len(), 1);
}

/// Another body under the key names the job that has it; another tenant has keys of its own.
pub async fn the_same_key_with_another_body(world: World) {
    let first = keyed(&world, "k1", "h1");
    let id = first.job.id.clone();
    let mut other = keyed(&world, "k1", "h2");
    other.job.tenant = "zenith".into();
    // In one batch as well as one after the other.
    let answers = world.store.submit(vec![first, keyed(&world, "k1", "h2"), other, keyed(&world, "k1", "h1")]).await;
    let answers = answers.unwrap();
    assert!(matches!(&answers[0], Submitted::New(job) if job.id == id));
    assert_eq!(answers[1], Submitted::KeyConflict(id.clone()));
    assert!(matches!(answers[2], Submitted::New(_)));
    assert!(matches!(&answers[3], Submitted::Same(job) if job.id == id));
    // The same job, as it stands now.
    let claim = world.claim(10).await;
    let claimed = claim.jobs.iter().find(|claimed| claimed.job.id == id).unwrap();
    world.moved(claimed, JobState::Succeeded, None).await;
    let again = world.store.submit(vec![keyed(&world, "k1", "h1")]).await.unwrap().remove(0);
    assert!(matches!(again, Submitted::Same(job) if job.state == JobState::Succeeded));
}

/// A key may be used anew after thirty days, not sooner.
pub async fn keys_live_thirty_days(world: World) {
    let day = 24 * 3_600_000;
    assert!(matches!(world.store.submit(vec![keyed(&world, "k", "h")]).await.unwrap()[0], Submitted::New(_)));
    world.later(30 * day - 1);
    assert!(matches!(world.store.submit(vec![keyed(&world, "k", "h")]).await.unwrap()[0], Submitted::Same(_)));
    world.later(1);
    assert!(matches!(world.store.submit(vec![keyed(&world, "k", "h2")]).await.unwrap()[0], Submitted::New(_)));
    assert!(matches!(world.store.submit(vec![keyed(&world, "k", "h2")]).await.unwrap()[0], Submitted::Same(_)));
}

/// A key is asked for without submitting: its job with the same body of the same tenant, and nothing else.
pub async fn a_key_tells_its_job(world: World) {
    let made = world.store.submit(vec![keyed(&world, "k", "h")]).await.unwrap().remove(0);
    let Submitted::New(made) = made else { panic!("{made:?}") };
    let tenant = made.tenant.clone();
    let asked = async |tenant: &str, key: &str, hash: &str| {
        world.store.keyed(tenant, key, hash).await.unwrap().map(|job| job.id)
    };
    assert_eq!(asked(&tenant, "k", "h").await, Some(made.id));
    for (tenant, key, hash) in [(tenant.as_str(), "k", "h2"), (&tenant, "k2", "h"), ("zenith", "k", "h")] {
        assert_eq!(asked(tenant, key, hash).await, None, "{tenant} {key} {hash}");
    }
    world.later(30 * 24 * 3600 * 1000);
    assert_eq!(asked(&tenant, "k", "h").await, None);
}

/// A path belongs to one job of a tenant; who comes second leaves nothing behind.
pub async fn a_path_has_one_holder(world: World) {
    let at = |tenant: &str, path: &str| {
        let mut one = submission(world.job("flux"));
        (one.job.tenant, one.output_path) = (tenant.into(), Some(path.into()));
        one
    };
    let first = at("acme", "assets/hero.png");
    let id = first.job.id.clone();
    let mut second = at("acme", "assets/hero.png");
    second.idempotency = Some(("k".into(), "h".into()));
    let answers =
        world.store.submit(vec![first, second, at("zenith", "assets/hero.png"), at("acme", "hero.png")]).await;
    let answers = answers.unwrap();
    assert_eq!(answers[1], Submitted::PathTaken(id));
    assert!([0, 2, 3].iter().all(|at| matches!(answers[*at], Submitted::New(_))));
    assert_eq!(world.store.list(&JobFilter::default(), None, 100).await.unwrap().0.len(), 3);
    // Its key was not used up.
    let mut retry = at("acme", "elsewhere.png");
    retry.idempotency = Some(("k".into(), "h2".into()));
    assert!(matches!(world.store.submit(vec![retry]).await.unwrap()[0], Submitted::New(_)));
}

/// The paths of further artifacts are held as the first's is, and let go with their job.
pub async fn paths_are_held_until_their_job_is_pruned(world: World) {
    let at = |path: &str| {
        let mut one = submission(world.job("flux"));
        (one.job.tenant, one.output_path) = ("acme".into(), Some(path.into()));
        one
    };
    let first = at("hero.png");
    let (one, two) = (first.job.id.clone(), "job_other".to_owned());
    world.store.submit(vec![first]).await.unwrap();
    let hold = async |tenant: &str, job: &str, paths: &[&str]| {
        let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
        world.store.hold_paths(tenant, job, &paths).await.unwrap()
    };
    let wanted = ["hero.png", "hero-2.png", "hero-3.png"];
    assert!(hold("acme", &two, &wanted[2..]).await.is_empty());
    assert_eq!(hold("acme", &one, &wanted).await, ["hero-3.png"]);
    assert_eq!(hold("acme", &one, &wanted).await, ["hero-3.png"], "its own are its own again");
    assert_eq!(hold("acme", &two, &wanted).await, ["hero.png", "hero-2.png"]);
    assert!(hold("zenith", &two, &wanted).await.is_empty(), "each tenant has paths of its own");
    let answer = world.store.submit(vec![at("hero-2.png")]).await.unwrap().remove(0);
    assert_eq!(answer, Submitted::PathTaken(one.clone()));
    assert_eq!(super::upkeep::end(&world, JobState::Succeeded).await, one);
    world.later(1_000);
    assert_eq!(world.prune(NOON + 500, 10).await, [one]);
    assert!(matches!(world.store.submit(vec![at("hero-2.png")]).await.unwrap()[0], Submitted::New(_)));
    assert!(hold("acme", &two, &wanted[..1]).await.is_empty());
}

/// A large batch answers line by line, and all of it is there.
pub async fn batches_answer_in_order(world: World) {
    let batch: Vec<_> = (0..1_000).map(|_| submission(world.job("flux"))).collect();
    let ids: Vec<_> = batch.iter().map(|one| one.job.id.clone()).collect();
    let answers = world.store.submit(batch).await.unwrap();
    let answered: Vec<_> = answers
        .into_iter()
        .map(|answer| match answer {
            Submitted::New(job) => job.id,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(answered, ids);
    assert_eq!(world.ids(2_000).await, ids, "equal jobs run in the order they came");
}

/// Newest first, page by page, by every filter.
pub async fn lists_page_and_filter(world: World) {
    let mut ids = Vec::new();
    for at in 0..25_u32 {
        let mut job = world.job(if at % 2 == 0 { "flux" } else { "runway" });
        job.vendor = job.connector.clone();
        job.tenant = if at % 5 == 0 { "zenith".into() } else { "acme".into() };
        job.labels = [("batch".to_owned(), format!("b{}", at % 3)), ("all".to_owned(), "yes".to_owned())].into();
        ids.push(world.submit(job).await.id);
        // Some share a millisecond.
        world.later(u64::from(at % 2));
    }
    let newest: Vec<String> = ids.iter().rev().cloned().collect();
    let (mut pages, mut cursor) = (Vec::new(), None);
    loop {
        let (page, next) = world.store.list(&JobFilter::default(), cursor.as_deref(), 10).await.unwrap();
        pages.extend(page.into_iter().map(|record| record.job.id));
        // A job that comes meanwhile is on no later page.
        world.submit(world.job("late")).await;
        let Some(next) = next else { break };
        cursor = Some(next);
    }
    assert_eq!(pages, newest);

    for claimed in world.claim(100).await.jobs {
        if claimed.job.id == ids[4] {
            let mut job = into(&claimed.job, JobState::Failed, None);
            let failure = longhaul_registry::Failure::new(
                longhaul_registry::FailureKind::SpecMismatch,
                longhaul_registry::Retry::Never,
                "cut short",
            );
            job.error = Some(crate::JobError {
                failure: failure.code("output_truncated"),
                step: longhaul_registry::Step::Outputs,
            });
            world.done(&claimed.lease, claimed.rev, Transition::to(job)).await;
        }
    }
    let some = |keep: &dyn Fn(usize) -> bool| -> Vec<String> {
        (0..25).rev().filter(|at| keep(*at)).map(|at| ids[at].clone()).collect()
    };
    let created = |at: usize| world.store.get(&ids[at]);
    let since = created(10).await.unwrap().unwrap().job.created_at.resolve(0);
    assert_eq!(created(11).await.unwrap().unwrap().job.created_at, When::At(since));
    let f = JobFilter::default;
    let cases: Vec<(JobFilter, Vec<String>)> = vec![
        (JobFilter { connector: Some("runway".into()), ..f() }, some(&|at| at % 2 == 1)),
        (
            JobFilter { vendor: Some("runway".into()), tenant: Some("acme".into()), ..f() },
            some(&|at| at % 2 == 1 && at % 5 != 0),
        ),
        (JobFilter { tenant: Some("zenith".into()), ..f() }, some(&|at| at % 5 == 0)),
        (JobFilter { label: Some(("batch".into(), "b2".into())), ..f() }, some(&|at| at % 3 == 2)),
        (JobFilter { label: Some(("batch".into(), "b9".into())), ..f() }, Vec::new()),
        (JobFilter { states: vec![JobState::Failed, JobState::Parked], ..f() }, some(&|at| at == 4)),
        (JobFilter { error: Some("output_truncated".into()), ..f() }, some(&|at| at == 4)),
        (JobFilter { error: Some("spec_mismatch".into()), ..f() }, some(&|at| at == 4)),
        (JobFilter { error: Some("timeout".into()), ..f() }, Vec::new()),
        (JobFilter { until_ms: Some(since), ..f() }, some(&|at| at < 10)),
        (JobFilter { since_ms: Some(since), label: Some(("all".into(), "yes".into())), ..f() }, some(&|at| at >= 10)),
    ];
    for (filter, expected) in cases {
        let (mut found, mut cursor) = (Vec::new(), None);
        loop {
            let (page, next) = world.store.list(&filter, cursor.as_deref(), 4).await.unwrap();
            found.extend(page.into_iter().map(|record| record.job.id));
            cursor = next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(found, expected, "{filter:?}");
    }
    assert!(world.store.list(&f(), Some("nonsense"), 4).await.is_err());
}
