//! Says why jobs wait, and when running ones are likely done.

use crate::api::Api;
use crate::error::ApiResult;
use crate::view::{JobJson, time};
use longhaul_registry::Step;
use longhaul_store::{ConnectorRow, Job, JobRecord, TenantRow, limits};
use std::collections::BTreeMap;

/// One job, with what holds it back.
///
/// # Errors
/// Where the store cannot read.
pub(crate) async fn explained_one(api: &Api, record: &JobRecord) -> ApiResult<JobJson> {
    let mut all = explained(api, std::slice::from_ref(record)).await?;
    Ok(all.pop().unwrap_or_else(|| JobJson::new(record)))
}

/// Jobs, each with what holds it back. The rows are read once for all of them, and not at all where every job rests.
///
/// # Errors
/// Where the store cannot read.
pub(crate) async fn explained(api: &Api, records: &[JobRecord]) -> ApiResult<Vec<JobJson>> {
    let mut all: Vec<JobJson> = records.iter().map(JobJson::new).collect();
    if records.iter().all(|record| record.job.step.is_none()) {
        return Ok(all);
    }
    let now_ms = api.store.now_ms().await?;
    let connectors: BTreeMap<String, ConnectorRow> =
        api.store.connectors().await?.into_iter().map(|row| (row.name.clone(), row)).collect();
    let tenants = budgets(api, records).await?;
    api.expected.refresh(&*api.store, &*api.clock).await;
    for (json, record) in all.iter_mut().zip(records) {
        let JobRecord { job, body, .. } = record;
        json.expected_at = api.expected.of(record, now_ms).map(time);
        let Some(connector) = connectors.get(&job.connector) else { continue };
        let waiting = limits::waiting(job, body, connector, tenants.get(&job.tenant), now_ms);
        json.waiting = waiting.map(Into::into);
    }
    Ok(all)
}

/// What stands against the budgets that a start among these jobs waits for.
async fn budgets(api: &Api, records: &[JobRecord]) -> ApiResult<BTreeMap<String, TenantRow>> {
    let starts = |job: &Job| job.step == Some(Step::Start) && api.options.budgeted.contains(&job.tenant);
    let mut names: Vec<String> =
        records.iter().map(|record| &record.job).filter(|job| starts(job)).map(|job| job.tenant.clone()).collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    let rows = api.store.tenants(&names).await?;
    Ok(rows.into_iter().map(|row| (row.tenant.clone(), row)).collect())
}
