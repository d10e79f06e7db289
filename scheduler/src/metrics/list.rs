//! Which metrics there are: names, labels and what each says.

/// One metric as docs/METRICS.md lists it.
#[derive(Clone, Copy, Debug)]
pub struct MetricInfo {
    /// Its name, as scraped.
    pub name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Its labels with their values; empty where it has none.
    pub labels: &'static str,
    /// What it says, in one sentence.
    pub help: &'static str,
}

pub(super) const SUBMISSIONS: MetricInfo = MetricInfo {
    name: "longhaul_submissions_total",
    kind: "counter",
    labels: "outcome: new, replayed, conflict, refused, error",
    help: "Job submissions; replayed ones were answered from their idempotency key",
};
pub(super) const REQUESTS: MetricInfo = MetricInfo {
    name: "longhaul_http_requests_total",
    kind: "counter",
    labels: "route: the path's template; method; status: 2xx, 3xx, 4xx, 5xx",
    help: "HTTP requests answered",
};
pub(super) const REQUEST_SECONDS: MetricInfo = MetricInfo {
    name: "longhaul_http_request_seconds",
    kind: "histogram",
    labels: "route: the path's template",
    help: "Time from a request's head to the answer's head",
};
pub(super) const JOBS: MetricInfo = MetricInfo {
    name: "longhaul_jobs",
    kind: "gauge",
    labels: "connector; state",
    help: "Jobs in the store, by connector and state",
};
pub(super) const OLDEST_DUE: MetricInfo = MetricInfo {
    name: "longhaul_oldest_due_seconds",
    kind: "gauge",
    labels: "",
    help: "How long the oldest due step that could run has waited; 0 where nothing is late",
};
pub(super) const DURABILITY: MetricInfo = MetricInfo {
    name: "longhaul_store_durability",
    kind: "gauge",
    labels: "mode: strict, everysec",
    help: "1 for what an acknowledged change is worth; a server of an everysec store that dies may forget its last second",
};
pub(super) const CONNECTOR_UP: MetricInfo = MetricInfo {
    name: "longhaul_connector_state",
    kind: "gauge",
    labels: "connector; state: open, cooling, parked, paused",
    help: "1 for the state that a connector is in",
};
pub(super) const IN_FLIGHT: MetricInfo = MetricInfo {
    name: "longhaul_connector_in_flight",
    kind: "gauge",
    labels: "connector",
    help: "Jobs that a connector has at its vendor",
};
pub(super) const IN_FLIGHT_LIMIT: MetricInfo = MetricInfo {
    name: "longhaul_connector_in_flight_limit",
    kind: "gauge",
    labels: "connector",
    help: "Jobs that a connector may have at its vendor; absent where it has no limit",
};
pub(super) const PACE: MetricInfo = MetricInfo {
    name: "longhaul_connector_pace_requests_per_second",
    kind: "gauge",
    labels: "connector",
    help: "Requests a second that a connector is kept to since its vendor refused some; absent where nothing slows it",
};
pub(super) const CIRCUIT_OPEN: MetricInfo = MetricInfo {
    name: "longhaul_connector_circuit_open",
    kind: "gauge",
    labels: "connector; step: start, poll, answer, cancel, outputs",
    help: "1 where the vendor does not answer a step: most calls failed and the circuit is open; 0 where it does again",
};
pub(super) const BUDGET_SPENT: MetricInfo = MetricInfo {
    name: "longhaul_budget_spent_ratio",
    kind: "gauge",
    labels: "tenant; unit: a unit, or usd for money",
    help: "Share of a tenant's monthly budget that is booked; 1 is all of it",
};
pub(super) const SSE_CLIENTS: MetricInfo =
    MetricInfo { name: "longhaul_sse_clients", kind: "gauge", labels: "", help: "Open event streams" };
pub(super) const PRUNED: MetricInfo = MetricInfo {
    name: "longhaul_pruned_jobs_total",
    kind: "counter",
    labels: "",
    help: "Jobs removed after the retention time",
};
pub(super) const SERVICE_ERRORS: MetricInfo = MetricInfo {
    name: "longhaul_service_errors_total",
    kind: "counter",
    labels: "service: prune, recovery, gauges, recount, segments",
    help: "Passes of a maintenance service that failed and will be repeated",
};
pub(super) const DUTY: MetricInfo = MetricInfo {
    name: "longhaul_duty_held",
    kind: "gauge",
    labels: "duty: prune, recovery, gauges, recount, segments",
    help: "1 where this process has a maintenance duty; of all schedulers on a store one has each. Whoever has gauges tells what is read from the store",
};
pub(super) const PLACES_MENDED: MetricInfo = MetricInfo {
    name: "longhaul_places_mended_total",
    kind: "counter",
    labels: "connector; change: given_back, found",
    help: "Places at a vendor that the leak detector put right: given back where no job held them, found where a job had none",
};

pub(super) const EXCHANGE_BYTES: MetricInfo = MetricInfo {
    name: "longhaul_exchange_memory_bytes",
    kind: "gauge",
    labels: "",
    help: "Packed texts of recorded exchanges in Redis: those that wait to be moved and the newest of each job; told by whoever has the duty segments",
};
pub(super) const EXCHANGE_MOVED: MetricInfo = MetricInfo {
    name: "longhaul_exchange_moved_bytes_total",
    kind: "counter",
    labels: "",
    help: "Packed texts of recorded exchanges moved from Redis into segments on artifact storage",
};
pub(super) const SEGMENTS: MetricInfo = MetricInfo {
    name: "longhaul_exchange_segments",
    kind: "gauge",
    labels: "",
    help: "Segments on artifact storage that hold any exchange of a job; told by whoever has the duty segments",
};
pub(super) const SEGMENTS_DELETED: MetricInfo = MetricInfo {
    name: "longhaul_exchange_segments_deleted_total",
    kind: "counter",
    labels: "reason: let_go, orphan",
    help: "Segments deleted: let_go when the last of their jobs was pruned, orphan where whoever wrote one died before it was used",
};

/// Every metric of the scheduler, in the order of the page.
pub const METRICS: [MetricInfo; 21] = [
    SUBMISSIONS,
    REQUESTS,
    REQUEST_SECONDS,
    JOBS,
    OLDEST_DUE,
    DURABILITY,
    CONNECTOR_UP,
    IN_FLIGHT,
    IN_FLIGHT_LIMIT,
    PACE,
    CIRCUIT_OPEN,
    BUDGET_SPENT,
    SSE_CLIENTS,
    PRUNED,
    SERVICE_ERRORS,
    DUTY,
    PLACES_MENDED,
    EXCHANGE_BYTES,
    EXCHANGE_MOVED,
    SEGMENTS,
    SEGMENTS_DELETED,
];
