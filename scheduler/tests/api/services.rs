//! Maintenance: pruning, recovery of connectors, gauges.

use crate::support::{World, storage};
use longhaul_scheduler::archive::Archive;
use longhaul_scheduler::metrics::Metrics;
use longhaul_scheduler::services::{Duty, Gauges, Prune, Recovery, Retention, Running, start, start_all, start_led};
use longhaul_store::{Chore, ConnectorState, Job, JobState, Store, When};
use std::time::Duration;

/// A lease of a duty, whoever asks.
const LEASE: Duration = Duration::from_secs(5);

/// Makes one more pass and waits for it.
pub(crate) async fn pass(service: &Running) {
    let mut passes = service.passes();
    let before = *passes.borrow();
    service.hurry();
    passes.wait_for(|passes| *passes > before).await.unwrap();
}

pub(crate) async fn first_pass(service: &Running) {
    service.passes().wait_for(|passes| *passes > 0).await.unwrap();
}

pub(crate) fn ends(job: &mut Job) {
    job.state = JobState::Cancelled;
    job.step = None;
    job.due_at = None;
    job.finished_at = Some(When::NOW);
}

#[tokio::test]
async fn ended_jobs_go_after_the_retention_time_and_no_others() {
    let world = World::open();
    let old = world.job().await;
    let waiting = world.job().await;
    world.change(&old, ends, Vec::new()).await;
    let metrics = Metrics::new();
    let archive = Archive::new(storage(world.dir.path()));
    let prune = Prune::new(world.store.clone(), archive, Retention::default(), metrics.clone());
    let service = start(prune, metrics.clone());
    first_pass(&service).await;
    world.clock.advance(Duration::from_secs(29 * 86_400));
    let young = world.job().await;
    world.change(&young, ends, Vec::new()).await;
    pass(&service).await;
    assert!(world.store.get(&old).await.unwrap().is_some());
    world.clock.advance(Duration::from_secs(86_400 + 1));
    pass(&service).await;
    assert!(world.store.get(&old).await.unwrap().is_none());
    for id in [&waiting, &young] {
        assert!(world.store.get(id).await.unwrap().is_some());
    }
    service.stop().await;
}

async fn checks(world: &World) -> Vec<String> {
    let mut found = Vec::new();
    for claimed in world.store.claim_chores("test", 10, Duration::from_secs(60)).await.unwrap() {
        if let Chore::Check { connector } = &claimed.chore {
            found.push(connector.clone());
        }
        assert!(world.store.finish_chore(claimed.id, claimed.fence, None, None).await.unwrap());
    }
    found
}

#[tokio::test]
async fn a_parked_connector_is_checked_ever_less_often_until_it_is_open() {
    let world = World::open();
    let since = When::At(world.store.now_ms().await.unwrap());
    let parked = ConnectorState::Parked { since, reason: "401".to_owned() };
    world.store.set_connector("flux", parked).await.unwrap();
    let service = start(Recovery::new(world.store.clone()), Metrics::new());
    first_pass(&service).await;
    assert!(checks(&world).await.is_empty(), "not at once: the refusal is fresh");
    let mut seconds = Vec::new();
    for second in (5..=300).step_by(5) {
        world.clock.advance(Duration::from_secs(5));
        pass(&service).await;
        if checks(&world).await == ["flux"] {
            seconds.push(second);
        }
    }
    assert_eq!(seconds, [15, 45, 105, 225]);
    world.store.set_connector("flux", ConnectorState::Open).await.unwrap();
    world.clock.advance(Duration::from_secs(3_600));
    pass(&service).await;
    assert!(checks(&world).await.is_empty());
    service.stop().await;
}

#[tokio::test]
async fn gauges_say_what_the_store_knows() {
    let world = World::open();
    world.job().await;
    world.clock.advance(Duration::from_secs(90));
    let metrics = world.api.metrics().clone();
    let service = start(Gauges::new(world.store.clone(), metrics.clone()), metrics);
    first_pass(&service).await;
    for line in [
        "longhaul_jobs{connector=\"flux\",state=\"queued\"} 1",
        "longhaul_jobs{connector=\"flux\",state=\"failed\"} 0",
        "longhaul_oldest_due_seconds 90.0",
        "longhaul_connector_state{connector=\"flux\",state=\"open\"} 1",
    ] {
        assert!(world.metric(line).await, "{line}\n{}", world.get("/metrics").await.text());
    }
    service.stop().await;
}

#[tokio::test]
async fn a_failed_pass_is_counted_and_services_stop_when_told() {
    let world = World::open();
    world.store.close().await;
    let services = start_all(&world.api);
    for service in &services {
        first_pass(service).await;
    }
    let page = world.get("/metrics").await.text();
    assert!(page.contains("longhaul_service_errors_total{service=\"prune\"}"), "{page}");
    for service in services {
        service.stop().await;
    }
}

/// Which of these duties this process has, by its metrics.
async fn held(world: &World, duty: &str) -> bool {
    world.metric(&format!("longhaul_duty_held{{duty=\"{duty}\"}} 1")).await
}

#[tokio::test]
async fn of_two_schedulers_one_makes_the_passes_and_the_other_takes_over_when_it_stops() {
    let world = World::open();
    world.job().await;
    let gauges = |owner: &str, metrics: &Metrics| {
        let duty = Duty::new(world.store.clone(), "gauges", owner.to_owned());
        start_led(Gauges::new(world.store.clone(), metrics.clone()), duty, metrics.clone())
    };
    let (mine, theirs) = (world.api.metrics().clone(), Metrics::new());
    let first = gauges("first", &mine);
    first_pass(&first).await;
    assert!(held(&world, "gauges").await);
    let second = gauges("second", &theirs);
    // It asks at once, in vain, and does nothing.
    assert!(!world.store.lead("gauges", "another", LEASE).await.unwrap());
    assert!(world.metric("longhaul_jobs{connector=\"flux\",state=\"queued\"} 1").await);
    assert_eq!(*second.passes().borrow(), 0);
    first.stop().await;
    first_pass(&second).await;
    assert!(!held(&world, "gauges").await);
    second.stop().await;
    assert!(world.store.lead("gauges", "another", LEASE).await.unwrap(), "given up at once");
}

#[tokio::test]
async fn a_scheduler_that_lost_a_duty_stands_by_and_takes_its_readings_back() {
    let world = World::open();
    world.job().await;
    let metrics = world.api.metrics().clone();
    let duty = Duty::new(world.store.clone(), "gauges", "slow".to_owned());
    let service = start_led(Gauges::new(world.store.clone(), metrics.clone()), duty, metrics);
    first_pass(&service).await;
    // It stood still for longer than its lease, and another was there.
    world.clock.advance(Duration::from_secs(60));
    assert!(world.store.lead("gauges", "another", LEASE).await.unwrap());
    service.hurry();
    tokio::time::timeout(Duration::from_secs(10), async {
        while held(&world, "gauges").await {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("it notices");
    let page = world.get("/metrics").await.text();
    assert!(!page.contains("longhaul_jobs{") && !page.contains("longhaul_oldest_due_seconds "), "{page}");
    let passes = *service.passes().borrow();
    world.store.step_down("gauges", "another").await.unwrap();
    service.passes().wait_for(|now| *now > passes).await.unwrap();
    assert!(held(&world, "gauges").await);
    service.stop().await;
}
