//! Collects a job's outputs: fetched, hashed, sniffed, probed, checked, placed. Success means bytes in hand.

mod check;
mod fetch;
mod naming;

use crate::probe::{ChildLimits, Hint, Probed, in_child};
use crate::runner::{Collect, Collecting, Session};
use async_trait::async_trait;
use fetch::Fetched;
use longhaul_registry::{ArtifactDraft, Collected, Failure, FailureKind, Note, Retry, SpecCheck};
use longhaul_store::advance::derived_uuid;
use longhaul_store::storage::{ArtifactStorage, StorageError};
use longhaul_store::{Artifact, Store};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;

/// Fetches, checks and places outputs.
pub struct Collector {
    /// The folder for files under way.
    pub staging: PathBuf,
    /// Where artifacts go.
    pub storage: ArtifactStorage,
    /// Looks for the same bytes under other jobs.
    pub store: Arc<dyn Store>,
    /// The program that probes hostile media in a process of its own: this one.
    pub probe: PathBuf,
}

/// One output, fetched and described, not placed yet.
struct Described {
    draft: ArtifactDraft,
    fetched: Fetched,
    probed: Probed,
}

#[async_trait]
impl Collect for Collector {
    async fn collect(
        &self,
        session: Arc<dyn Session>,
        mut what: Collecting<'_>,
    ) -> Result<Collected<Artifact>, Failure> {
        let drafts = std::mem::take(&mut what.drafts);
        let mut described = Vec::with_capacity(drafts.len());
        for draft in drafts {
            let fetched = fetch::fetch(&self.staging, &session, &draft).await?;
            let probed = self.probe(&what, &draft, &fetched).await;
            described.push(Described { draft, fetched, probed });
        }
        self.settle(what, described).await
    }
}

impl Collector {
    async fn probe(&self, what: &Collecting<'_>, draft: &ArtifactDraft, fetched: &Fetched) -> Probed {
        let media = &what.body.request.media;
        let asked_format = what.body.prepared["query"]["output_format"].as_str().map(str::to_owned);
        let hint = Hint {
            declared_mime: fetched.content_type.clone().or_else(|| draft.declared_mime.clone()),
            asked_format: asked_format.or_else(|| media.format.clone()),
            sample_rate: media.sample_rate,
            channels: media.channels,
        };
        in_child(&self.probe, &fetched.path, &hint, ChildLimits::default()).await
    }

    /// Decides what was delivered, and places it.
    async fn settle(&self, what: Collecting<'_>, described: Vec<Described>) -> Result<Collected<Artifact>, Failure> {
        let mut report = what.report.clone();
        let request = &what.body.request;
        let mut failure = check::missing(request, described.iter().map(|one| &one.draft));
        let mut artifacts = Vec::with_capacity(described.len());
        for (index, one) in described.into_iter().enumerate() {
            if let Some(found) =
                check::unusable(what.body, &what.job.vendor_state, &one.draft, &one.fetched, &one.probed)
            {
                if !found.keep {
                    return Err(found.failure);
                }
                failure = failure.or(Some(found.failure));
            }
            let checked = check::spec(request, &one.draft, &one.probed, index, artifacts.capacity());
            if request.strict_spec && !checked.ok {
                failure = failure.or_else(|| Some(check::strict(&checked)));
            }
            report.notes.extend(self.twins(&what, &one.fetched.sha256).await);
            artifacts.push(self.place(&what, index, one, checked).await?);
        }
        Ok(Collected { artifacts, failure, report })
    }

    async fn place(
        &self,
        what: &Collecting<'_>,
        index: usize,
        one: Described,
        checked: SpecCheck,
    ) -> Result<Artifact, Failure> {
        let Described { draft, fetched, probed } = one;
        let (job, request) = (what.job, &what.body.request);
        let name = naming::file_name(&draft, &fetched, &probed.spec);
        let path = naming::path(request.output_path.as_deref(), &job.id, job.attempt, index, &name);
        let key = format!("{}/{path}", job.tenant);
        self.storage.put_file(&key, &fetched.path).await.map_err(unplaced)?;
        let name = path.rsplit('/').next().unwrap_or(&path).to_owned();
        let fetched_at = chrono::DateTime::from_timestamp_millis(what.now_ms).map(|at| at.to_rfc3339());
        let source = json!({
            "vendor": job.vendor, "index": index, "role": draft.role, "fetched_at": fetched_at,
            "url_host": fetched.host, "declared_mime": draft.declared_mime, "declared_bytes": draft.declared_bytes,
            "link": fetched.link,
        });
        Ok(Artifact {
            id: format!("art_{}", derived_uuid(&format!("{}/{}/{index}", job.id, job.attempt)).replace('-', "")),
            job: Some(job.id.clone()),
            tenant: job.tenant.clone(),
            role: draft.role,
            name,
            path,
            mime: probed.spec.mime.clone(),
            bytes: fetched.bytes,
            sha256: fetched.sha256.clone(),
            spec: Some(probed.spec),
            spec_check: Some(checked),
            source,
        })
    }

    /// A warning for each other job whose different request has the same bytes: a vendor that hands one job's output to
    /// another's.
    async fn twins(&self, what: &Collecting<'_>, sha256: &str) -> Vec<Note> {
        let found = self.store.same_bytes(&what.job.tenant, sha256, &what.job.id).await.unwrap_or_default();
        let mine = crate::runner::request_hash(&what.body.prepared);
        let others = found.into_iter().filter(|(_, hash)| *hash != mine).map(|(job, _)| job).take(3);
        others
            .map(|job| Note {
                kind: "warning".to_owned(),
                data: json!({"code": "same_bytes", "message": format!("the same bytes are an output of {job}, which asked for something else"), "job": job}),
                id: Some(format!("same_bytes:{job}")),
            })
            .collect()
    }
}

/// Artifact storage that does not take a file is a passing fault of ours: the bytes stay at the vendor.
fn unplaced(error: StorageError) -> Failure {
    Failure::new(FailureKind::VendorError, Retry::Backoff, error.to_string()).code("storage_unavailable")
}
