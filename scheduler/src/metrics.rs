//! What the scheduler counts, and the page that lists it.

mod list;

pub use list::{METRICS, MetricInfo};

use list::{
    BUDGET_SPENT, CIRCUIT_OPEN, CONNECTOR_UP, DURABILITY, DUTY, EXCHANGE_BYTES, EXCHANGE_MOVED, IN_FLIGHT,
    IN_FLIGHT_LIMIT, JOBS, OLDEST_DUE, PACE, PLACES_MENDED, PRUNED, REQUEST_SECONDS, REQUESTS, SEGMENTS,
    SEGMENTS_DELETED, SERVICE_ERRORS, SSE_CLIENTS, SUBMISSIONS,
};
use longhaul_registry::Unit;
use longhaul_store::{ConnectorRow, Durability, JobState, Moved, Swept, TenantRow};
use prometheus_client::encoding::{EncodeLabelSet, prometheus_text, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Content type of the classic text format.
pub(crate) const CLASSIC: &str = prometheus_text::CONTENT_TYPE;
/// Content type of OpenMetrics.
pub(crate) const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Upper bounds of the request histogram's buckets, in seconds.
const SECONDS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 60.0];

/// What became of a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SubmissionOutcome {
    New,
    Replayed,
    Conflict,
    Refused,
    Error,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: String,
    method: String,
    status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    connector: String,
    state: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DurabilityLabels {
    mode: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ConnectorLabels {
    connector: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BudgetLabels {
    tenant: String,
    unit: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ServiceLabels {
    service: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DutyLabels {
    duty: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CircuitLabels {
    connector: String,
    step: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PlaceLabels {
    connector: String,
    change: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

/// A gauge of its own that can be absent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NoLabels {}

type Latency = Family<RouteLabels, Histogram, fn() -> Histogram>;

/// The scheduler's metrics.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    submissions: Family<OutcomeLabels, Counter>,
    requests: Family<RequestLabels, Counter>,
    request_seconds: Latency,
    jobs: Family<StateLabels, Gauge>,
    oldest_due: Family<NoLabels, Gauge<f64, AtomicU64>>,
    durability: Family<DurabilityLabels, Gauge>,
    connector_state: Family<StateLabels, Gauge>,
    in_flight: Family<ConnectorLabels, Gauge>,
    in_flight_limit: Family<ConnectorLabels, Gauge>,
    pace: Family<ConnectorLabels, Gauge<f64, AtomicU64>>,
    circuit_open: Family<CircuitLabels, Gauge>,
    budget_spent: Family<BudgetLabels, Gauge<f64, AtomicU64>>,
    sse_clients: Gauge,
    pruned: Counter,
    service_errors: Family<ServiceLabels, Counter>,
    duties: Family<DutyLabels, Gauge>,
    places_mended: Family<PlaceLabels, Counter>,
    exchange_bytes: Family<NoLabels, Gauge>,
    exchange_moved: Counter,
    segments: Family<NoLabels, Gauge>,
    segments_deleted: Family<ReasonLabels, Counter>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Metrics in a registry of their own.
    #[must_use]
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let metrics = Self {
            registry: Arc::default(),
            submissions: Family::default(),
            requests: Family::default(),
            request_seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            jobs: Family::default(),
            oldest_due: Family::default(),
            durability: Family::default(),
            connector_state: Family::default(),
            in_flight: Family::default(),
            in_flight_limit: Family::default(),
            pace: Family::default(),
            circuit_open: Family::default(),
            budget_spent: Family::default(),
            sse_clients: Gauge::default(),
            pruned: Counter::default(),
            service_errors: Family::default(),
            duties: Family::default(),
            places_mended: Family::default(),
            exchange_bytes: Family::default(),
            exchange_moved: Counter::default(),
            segments: Family::default(),
            segments_deleted: Family::default(),
        };
        add(&mut registry, SUBMISSIONS, metrics.submissions.clone());
        add(&mut registry, REQUESTS, metrics.requests.clone());
        add(&mut registry, REQUEST_SECONDS, metrics.request_seconds.clone());
        add(&mut registry, JOBS, metrics.jobs.clone());
        add(&mut registry, OLDEST_DUE, metrics.oldest_due.clone());
        add(&mut registry, DURABILITY, metrics.durability.clone());
        add(&mut registry, CONNECTOR_UP, metrics.connector_state.clone());
        add(&mut registry, IN_FLIGHT, metrics.in_flight.clone());
        add(&mut registry, IN_FLIGHT_LIMIT, metrics.in_flight_limit.clone());
        add(&mut registry, PACE, metrics.pace.clone());
        add(&mut registry, CIRCUIT_OPEN, metrics.circuit_open.clone());
        add(&mut registry, BUDGET_SPENT, metrics.budget_spent.clone());
        add(&mut registry, SSE_CLIENTS, metrics.sse_clients.clone());
        add(&mut registry, PRUNED, metrics.pruned.clone());
        add(&mut registry, SERVICE_ERRORS, metrics.service_errors.clone());
        add(&mut registry, DUTY, metrics.duties.clone());
        add(&mut registry, PLACES_MENDED, metrics.places_mended.clone());
        add(&mut registry, EXCHANGE_BYTES, metrics.exchange_bytes.clone());
        add(&mut registry, EXCHANGE_MOVED, metrics.exchange_moved.clone());
        add(&mut registry, SEGMENTS, metrics.segments.clone());
        add(&mut registry, SEGMENTS_DELETED, metrics.segments_deleted.clone());
        Self { registry: Arc::new(registry), ..metrics }
    }

    /// The registry, for a role that shows these metrics elsewhere.
    #[must_use]
    pub fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.registry)
    }

    pub(crate) fn submitted(&self, outcome: SubmissionOutcome) {
        let outcome = match outcome {
            SubmissionOutcome::New => "new",
            SubmissionOutcome::Replayed => "replayed",
            SubmissionOutcome::Conflict => "conflict",
            SubmissionOutcome::Refused => "refused",
            SubmissionOutcome::Error => "error",
        };
        self.submissions.get_or_create(&OutcomeLabels { outcome }).inc();
    }

    pub(crate) fn answered(&self, route: &str, method: &str, status: u16, took: Duration) {
        let status = match status {
            500.. => "5xx",
            400.. => "4xx",
            300.. => "3xx",
            _ => "2xx",
        };
        let labels = RequestLabels { route: route.to_owned(), method: method.to_owned(), status };
        self.requests.get_or_create(&labels).inc();
        self.request_seconds.get_or_create(&RouteLabels { route: route.to_owned() }).observe(took.as_secs_f64());
    }

    /// Replaces the numbers of jobs. A count that fell to nothing reads 0, not its last value.
    pub(crate) fn set_jobs(&self, counts: &[(String, JobState, u64)]) {
        let mut by_connector: BTreeMap<&str, BTreeMap<JobState, u64>> = BTreeMap::new();
        for (connector, state, count) in counts {
            *by_connector.entry(connector).or_default().entry(*state).or_default() += count;
        }
        self.jobs.clear();
        for (connector, states) in by_connector {
            for state in JobState::ALL {
                let labels = StateLabels { connector: connector.to_owned(), state: state.as_str().to_owned() };
                let count = states.get(&state).copied().unwrap_or_default();
                self.jobs.get_or_create(&labels).set(i64::try_from(count).unwrap_or(i64::MAX));
            }
        }
    }

    pub(crate) fn set_oldest_due(&self, age: Option<Duration>) {
        self.oldest_due.get_or_create(&NoLabels {}).set(age.unwrap_or_default().as_secs_f64());
    }

    pub(crate) fn set_durability(&self, now: Durability) {
        for durability in Durability::ALL {
            let labels = DurabilityLabels { mode: durability.as_str() };
            self.durability.get_or_create(&labels).set(i64::from(durability == now));
        }
    }

    pub(crate) fn set_connector(&self, connector: &str, now: &str) {
        for state in ["open", "cooling", "parked", "paused"] {
            let labels = StateLabels { connector: connector.to_owned(), state: state.to_owned() };
            self.connector_state.get_or_create(&labels).set(i64::from(state == now));
        }
    }

    /// What a connector has of what it may.
    pub(crate) fn set_limits(&self, row: &ConnectorRow, now_ms: i64) {
        let labels = ConnectorLabels { connector: row.name.clone() };
        self.in_flight.get_or_create(&labels).set(i64::from(row.in_flight));
        match row.limits.in_flight {
            Some(limit) => drop(self.in_flight_limit.get_or_create(&labels).set(i64::from(limit))),
            None => drop(self.in_flight_limit.remove(&labels)),
        }
        match row.pace.as_ref().and_then(|pace| pace.at(now_ms)) {
            Some(rate) => drop(self.pace.get_or_create(&labels).set(f64::from(rate.0) / 60_000.0)),
            None => drop(self.pace.remove(&labels)),
        }
        for (step, circuit) in &row.circuits.steps {
            let labels = CircuitLabels { connector: row.name.clone(), step: step.as_str() };
            self.circuit_open.get_or_create(&labels).set(i64::from(circuit.is_open()));
        }
    }

    /// Replaces the shares of budgets that are spent.
    pub(crate) fn set_budgets(&self, rows: &[TenantRow]) {
        self.budget_spent.clear();
        for row in rows {
            let unit = |unit: &Unit| row.spent.units.get(unit).copied().unwrap_or_default();
            let units = row.limits.budget_units.iter().map(|(of, budget)| (of.as_str(), *budget, unit(of)));
            let money = row.limits.budget_usd.map(|budget| ("usd", budget, row.spent.usd));
            for (unit, budget, spent) in units.chain(money) {
                let labels = BudgetLabels { tenant: row.tenant.clone(), unit: unit.to_owned() };
                self.budget_spent.get_or_create(&labels).set(share(spent, budget));
            }
        }
    }

    pub(crate) fn sse_client(&self) -> SseClient {
        self.sse_clients.inc();
        SseClient(self.sse_clients.clone())
    }

    pub(crate) fn pruned(&self, jobs: usize) {
        self.pruned.inc_by(u64::try_from(jobs).unwrap_or(u64::MAX));
    }

    pub(crate) fn service_failed(&self, service: &'static str) {
        self.service_errors.get_or_create(&ServiceLabels { service }).inc();
    }

    /// Whether this process has a duty.
    pub(crate) fn duty(&self, duty: &'static str, held: bool) {
        self.duties.get_or_create(&DutyLabels { duty }).set(i64::from(held));
    }

    /// What the leak detector put right.
    pub(crate) fn places_mended(&self, connector: &str, given_back: usize, found: usize) {
        for (change, places) in [("given_back", given_back), ("found", found)] {
            let labels = PlaceLabels { connector: connector.to_owned(), change };
            self.places_mended.get_or_create(&labels).inc_by(u64::try_from(places).unwrap_or(u64::MAX));
        }
    }

    /// What became of recorded exchanges.
    pub(crate) fn exchanges_moved(&self, moved: &Moved) {
        let gauge = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        self.exchange_moved.inc_by(moved.bytes);
        self.exchange_bytes.get_or_create(&NoLabels {}).set(gauge(moved.in_memory));
        self.segments.get_or_create(&NoLabels {}).set(gauge(moved.segments));
    }

    pub(crate) fn segments_deleted(&self, swept: &Swept) {
        for (reason, segments) in [("let_go", swept.let_go), ("orphan", swept.orphans)] {
            self.segments_deleted.get_or_create(&ReasonLabels { reason }).inc_by(segments);
        }
    }

    /// Takes away what is read of exchanges: another process tells it now.
    pub(crate) fn clear_exchanges(&self) {
        self.exchange_bytes.clear();
        self.segments.clear();
    }

    /// Takes away what is read from the store: another process tells it now.
    pub(crate) fn clear_readings(&self) {
        self.jobs.clear();
        self.oldest_due.clear();
        self.connector_state.clear();
        self.in_flight.clear();
        self.in_flight_limit.clear();
        self.pace.clear();
        self.circuit_open.clear();
        self.budget_spent.clear();
    }

    /// Every metric of this process as text.
    ///
    /// # Errors
    /// Where a metric cannot be written: a fault of our own.
    pub(crate) fn text(&self, others: &[Arc<Registry>], open_metrics: bool) -> Result<String, std::fmt::Error> {
        let mut page = String::new();
        for registry in std::iter::once(&self.registry).chain(others) {
            if open_metrics {
                text::encode_registry(&mut page, registry)?;
            } else {
                prometheus_text::encode(&mut page, registry)?;
            }
        }
        if open_metrics {
            text::encode_eof(&mut page)?;
        }
        Ok(page)
    }
}

/// A share, divided in decimals so that all of a budget is 1 and not nearly so. Nothing at all is all of no budget.
fn share(spent: Decimal, budget: Decimal) -> f64 {
    spent.checked_div(budget).and_then(|share| share.to_f64()).unwrap_or(1.0)
}

fn add(registry: &mut Registry, info: MetricInfo, metric: impl prometheus_client::registry::Metric) {
    // The encoder puts `_total` after a counter's name by itself.
    let name = if info.kind == "counter" { info.name.trim_end_matches("_total") } else { info.name };
    registry.register(name, info.help, metric);
}

/// An open event stream, counted for as long as it lives.
pub(crate) struct SseClient(Gauge);

impl Drop for SseClient {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// The scheduler's part of docs/METRICS.md.
#[must_use]
pub fn reference() -> String {
    let mut page = String::from("## Scheduler\n\n| metric | type | labels | says |\n|---|---|---|---|\n");
    for MetricInfo { name, kind, labels, help } in METRICS {
        // Writing into a string cannot fail.
        let _ = writeln!(page, "| `{name}` | {kind} | {labels} | {help} |");
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_registry::Step;

    fn filled() -> Metrics {
        let metrics = Metrics::new();
        metrics.submitted(SubmissionOutcome::Replayed);
        metrics.answered("/v1/jobs/{id}", "GET", 404, Duration::from_millis(3));
        metrics.set_jobs(&[("flux".to_owned(), JobState::Running, 3)]);
        metrics.set_connector("flux", "open");
        metrics.set_durability(Durability::Everysec);
        metrics.service_failed("prune");
        metrics.set_limits(&row(), 0);
        metrics.set_budgets(&[spender()]);
        metrics.set_oldest_due(None);
        metrics.duty("gauges", true);
        metrics.places_mended("flux", 1, 0);
        metrics.exchanges_moved(&Moved::default());
        metrics.segments_deleted(&Swept::default());
        metrics
    }

    fn row() -> ConnectorRow {
        let rate = longhaul_store::Rate::per_second(3);
        ConnectorRow {
            name: "flux".to_owned(),
            state: longhaul_store::ConnectorState::Open,
            in_flight: 7,
            queued: 0,
            last_check: None,
            limits: longhaul_registry::ConnectorLimits { in_flight: Some(24), ..Default::default() },
            pace: Some(longhaul_store::Pace {
                rate,
                gain: rate,
                ends: longhaul_store::Rate::per_second(9),
                since_ms: 0,
            }),
            circuits: circuits(),
            requests: longhaul_store::Meter::default(),
            next_start_ms: None,
            next_request_ms: None,
            tenants_waiting: 0,
        }
    }

    fn circuits() -> longhaul_store::Circuits {
        let open = longhaul_store::Circuit::Open { since_ms: 0, tries: 0, next_ms: 0 };
        let steps = [(Step::Start, open), (Step::Poll, longhaul_store::Circuit::default())].into();
        longhaul_store::Circuits { rev: 1, steps }
    }

    fn spender() -> TenantRow {
        let limits = longhaul_store::TenantLimits {
            weight: 1,
            budget_usd: Some("0.30".parse().unwrap()),
            budget_units: [(Unit::Credits, "300".parse().unwrap())].into(),
        };
        let mut spent = longhaul_store::Amounts::default();
        for _ in 0..3 {
            spent.add(Unit::Credits, "10".parse().unwrap(), Some("0.1".parse().unwrap()));
        }
        let reserved = longhaul_store::Amounts::default();
        TenantRow { tenant: "acme".to_owned(), month: longhaul_store::Month(202_611), limits, spent, reserved }
    }

    #[test]
    fn limits_are_told_as_they_stand() {
        let metrics = filled();
        let page = metrics.text(&[], false).unwrap();
        for line in [
            "longhaul_store_durability{mode=\"strict\"} 0",
            "longhaul_store_durability{mode=\"everysec\"} 1",
            "longhaul_connector_in_flight{connector=\"flux\"} 7",
            "longhaul_connector_in_flight_limit{connector=\"flux\"} 24",
            "longhaul_connector_pace_requests_per_second{connector=\"flux\"} 3.0",
            "longhaul_connector_circuit_open{connector=\"flux\",step=\"start\"} 1",
            "longhaul_connector_circuit_open{connector=\"flux\",step=\"poll\"} 0",
            "longhaul_budget_spent_ratio{tenant=\"acme\",unit=\"usd\"} 1.0",
            "longhaul_budget_spent_ratio{tenant=\"acme\",unit=\"credits\"} 0.1",
        ] {
            assert!(page.lines().any(|told| told == line), "{line}: {page}");
        }
        // A pace that is over and a limit that is gone vanish.
        metrics.set_limits(&ConnectorRow { limits: Default::default(), ..row() }, 10 * 60_000);
        metrics.set_budgets(&[]);
        let page = metrics.text(&[], false).unwrap();
        for gone in ["in_flight_limit{", "pace_requests_per_second{", "spent_ratio{"] {
            assert!(!page.contains(gone), "{gone}: {page}");
        }
    }

    #[test]
    fn the_page_lists_exactly_what_is_exported() {
        let page = filled().text(&[], false).unwrap();
        let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let mut exported: Vec<&str> = types.filter_map(|line| line.split(' ').next()).collect();
        let mut listed: Vec<&str> = METRICS.iter().map(|info| info.name).collect();
        exported.sort_unstable();
        listed.sort_unstable();
        assert_eq!(exported, listed);
        for name in listed {
            assert!(reference().contains(&format!("`{name}`")));
        }
    }

    #[test]
    fn states_without_jobs_read_zero_and_connectors_that_are_gone_vanish() {
        let metrics = filled();
        metrics.set_jobs(&[("a2a".to_owned(), JobState::Queued, 1)]);
        let page = metrics.text(&[], false).unwrap();
        assert!(page.contains("longhaul_jobs{connector=\"a2a\",state=\"queued\"} 1"), "{page}");
        assert!(page.contains("longhaul_jobs{connector=\"a2a\",state=\"running\"} 0"), "{page}");
        assert!(!page.contains("longhaul_jobs{connector=\"flux\""), "{page}");
    }

    #[test]
    fn other_registries_stand_on_the_same_page_with_one_end() {
        let mut other = Registry::default();
        let counter: Counter = Counter::default();
        other.register("longhaul_other", "Another role's", counter);
        let page = filled().text(&[Arc::new(other)], true).unwrap();
        assert!(page.contains("longhaul_other_total 0") && page.contains("longhaul_submissions_total"));
        assert_eq!(page.matches("# EOF").count(), 1);
    }

    #[test]
    fn an_open_stream_is_counted_while_it_lives() {
        let metrics = Metrics::new();
        let client = metrics.sse_client();
        assert!(metrics.text(&[], false).unwrap().contains("longhaul_sse_clients 1"));
        drop(client);
        assert!(metrics.text(&[], false).unwrap().contains("longhaul_sse_clients 0"));
    }
}
