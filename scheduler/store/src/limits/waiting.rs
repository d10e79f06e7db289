//! Why a job waits: read from what the rows say, in the order in which a claim looks.

use super::{Passed, TenantRow};
use crate::{ConnectorRow, ConnectorState, Job, JobBody};
use longhaul_registry::Step;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

/// What holds a due step back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitReason {
    /// The connector has as many jobs at its vendor as it may.
    InFlight,
    /// The connector starts as many jobs a minute as it may.
    StartRate,
    /// The connector makes as many requests a second as it may, or as its vendor bears.
    RequestRate,
    /// The vendor does not answer: starts are held but for one that tries it, other steps are tried now and then.
    Circuit,
    /// The connector cools until a time its vendor named.
    Cooling,
    /// The connector is parked until its free check passes.
    Parked,
    /// A person paused the connector.
    Paused,
    /// The tenant's budget of the month does not cover the job.
    Budget,
    /// Other starts go first: of its tenant by priority and age, of other tenants by their turn.
    FairShare,
}

/// Why a job waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// What holds it back.
    pub reason: WaitReason,
    /// For people.
    pub detail: String,
    /// Store time at which that ends by itself, where it is known.
    pub until_ms: Option<i64>,
}

/// Why a job's due step is not handed out; `None` where nothing holds it back, or it is not due. A step that a worker
/// runs at this moment has taken its place and its tokens; it is not told apart here.
#[must_use]
pub fn waiting(
    job: &Job,
    body: &JobBody,
    connector: &ConnectorRow,
    tenant: Option<&TenantRow>,
    now_ms: i64,
) -> Option<Waiting> {
    let step = job.step?;
    let fresh = step == Step::Start && job.start_sent.is_none();
    if let Some(held) = held(&connector.state, fresh, now_ms) {
        return Some(held);
    }
    if let Some(away) = away(connector, step, fresh, job.due_at.map(|due| due.resolve(now_ms)), now_ms) {
        return Some(away);
    }
    if job.due_at.is_some_and(|due| due.resolve(now_ms) > now_ms) {
        return None;
    }
    if fresh {
        let budget = tenant.and_then(|row| Some((row, row.limits.passed(&row.used(), &body.estimate)?)));
        if let Some((row, passed)) = budget {
            return Some(over_budget(row, &passed));
        }
        if let Some(cap) = connector.limits.in_flight.filter(|cap| connector.in_flight >= *cap) {
            let detail = format!("{} of {cap} at the vendor", connector.in_flight);
            return Some(Waiting { reason: WaitReason::InFlight, detail, until_ms: None });
        }
        if let Some(next) = connector.next_start_ms.filter(|next| *next > now_ms) {
            let detail = format!("{} starts a minute", connector.limits.starts_per_minute.unwrap_or_default());
            return Some(Waiting { reason: WaitReason::StartRate, detail, until_ms: Some(next) });
        }
    }
    if let Some(next) = connector.next_request_ms.filter(|next| *next > now_ms) {
        return Some(Waiting {
            reason: WaitReason::RequestRate,
            detail: request_rate(connector, now_ms),
            until_ms: Some(next),
        });
    }
    (fresh && connector.queued > 1).then(|| {
        let detail = match connector.tenants_waiting {
            0 | 1 => format!("{} queued, by priority and age", connector.queued),
            tenants => format!("{} queued, of {tenants} tenants in turn", connector.queued),
        };
        Waiting { reason: WaitReason::FairShare, detail, until_ms: None }
    })
}

fn held(state: &ConnectorState, fresh: bool, now_ms: i64) -> Option<Waiting> {
    let waiting = |reason, detail: &String, until_ms| Some(Waiting { reason, detail: detail.clone(), until_ms });
    match state {
        ConnectorState::Parked { reason, .. } => waiting(WaitReason::Parked, reason, None),
        ConnectorState::Paused { reason, .. } if fresh => waiting(WaitReason::Paused, reason, None),
        ConnectorState::Cooling { until, reason } if fresh && until.resolve(now_ms) > now_ms => {
            waiting(WaitReason::Cooling, reason, Some(until.resolve(now_ms)))
        }
        ConnectorState::Open | ConnectorState::Cooling { .. } | ConnectorState::Paused { .. } => None,
    }
}

/// The vendor does not answer: a start is held until one tries it, another step until its own next try or its turn.
fn away(connector: &ConnectorRow, step: Step, fresh: bool, due_ms: Option<i64>, now_ms: i64) -> Option<Waiting> {
    let circuits = &connector.circuits;
    let (since_ms, until_ms) = if fresh {
        circuits.holds_starts()?;
        (circuits.opened().map(|(_, since)| since).min()?, connector.next_start_ms)
    } else {
        // A start that was sent is looked for as polls are made.
        let step = if step == Step::Start { Step::Poll } else { step };
        let since = circuits.opened().find_map(|(open, since)| (open == step).then_some(since))?;
        (since, due_ms.max(connector.next_request_ms))
    };
    let steps: Vec<&str> = circuits.opened().map(|(step, _)| step.as_str()).collect();
    let seconds = now_ms.saturating_sub(since_ms).max(0) / 1_000;
    let detail = format!("the vendor has not answered for {seconds} s ({})", steps.join(", "));
    Some(Waiting { reason: WaitReason::Circuit, detail, until_ms: until_ms.filter(|until| *until > now_ms) })
}

fn over_budget(row: &TenantRow, passed: &Passed) -> Waiting {
    let unit = passed.unit.map_or("USD", longhaul_registry::Unit::as_str);
    let figure = |figure: Decimal| figure.normalize().to_string();
    let job = passed.job.map_or_else(|| "an unknown cost".to_owned(), |job| format!("{} {unit}", figure(job)));
    Waiting {
        reason: WaitReason::Budget,
        detail: format!(
            "{} of {} {unit} of {} spent or set aside, and this job is to take {job}",
            figure(passed.used),
            figure(passed.budget),
            row.month
        ),
        until_ms: Some(row.month.ends_ms()),
    }
}

/// The rate that holds: the connector's own, or the pace its vendor bears.
fn request_rate(connector: &ConnectorRow, now_ms: i64) -> String {
    let pace = connector.pace.as_ref().and_then(|pace| pace.at(now_ms));
    match (pace, connector.limits.requests_per_second) {
        (Some(pace), _) => {
            let thousandths = u64::from(pace.0) / 60;
            let (whole, rest) = (thousandths / 1_000, thousandths % 1_000);
            format!("slowed to {whole}.{rest:03} requests a second after the vendor refused some")
        }
        (None, limit) => format!("{} requests a second", limit.unwrap_or_default()),
    }
}

impl ConnectorRow {
    /// The rate its requests are kept to now; `None` where nothing limits them.
    #[must_use]
    pub fn request_rate(&self, now_ms: i64) -> Option<super::Rate> {
        super::request_rate(&self.limits, self.pace.as_ref(), &self.circuits, now_ms)
    }
}
