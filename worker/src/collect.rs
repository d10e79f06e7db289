//! Collects a job's outputs: fetched, hashed, sniffed, probed, checked, placed. Success means bytes in hand.

use crate::artifacts::{
    Delivery, Described, Inline, Namer, Placed, Prober, StagedFile, Staging, describe, is_main, missing_deliverables,
    place, spec_check, stage_inline, verdict,
};
use crate::runner::{Collect, Collecting, Session, request_hash};
use crate::transport::{StagingArea, StagingWriter};
use async_trait::async_trait;
use longhaul_registry::{ArtifactDraft, Collected, DraftSource, Failure, FailureKind, Note, Retry, SpecCheck};
use longhaul_store::advance::derived_uuid;
use longhaul_store::storage::{ArtifactStorage, StorageError};
use longhaul_store::{Artifact, Store, StoreError};
use longhaul_vendors::StagedBody;
use serde_json::json;
use std::io;
use std::sync::Arc;
use tracing::warn;

/// Fetches, checks and places outputs.
pub struct Collector {
    /// Where files are on their way.
    pub staging: Staging,
    /// Describes them.
    pub prober: Prober,
    /// Where artifacts go.
    pub storage: ArtifactStorage,
    /// Looks for the same bytes under other jobs.
    pub store: Arc<dyn Store>,
}

/// One output in hand.
struct Held {
    draft: ArtifactDraft,
    file: StagedFile,
    link: Option<String>,
    host: Option<String>,
    described: Described,
}

#[async_trait]
impl Collect for Collector {
    async fn collect(
        &self,
        session: Arc<dyn Session>,
        mut what: Collecting<'_>,
    ) -> Result<Collected<Artifact>, Failure> {
        let mut held = Vec::with_capacity(what.drafts.len());
        for draft in std::mem::take(&mut what.drafts) {
            held.push(self.fetch(&session, &what, draft).await?);
        }
        let mut report = what.report.clone();
        let failure = judge(&what, &held);
        if let Some(failure) = failure.as_ref().filter(|failure| not_output(failure)) {
            // A page or nothing at all is no output of the job: there is nothing to keep, and a fresh link may help.
            return Err(failure.clone());
        }
        for one in &held {
            let twins = self.twins(&what, &one.described.sha256).await;
            let linked = matches!(one.draft.source, DraftSource::Url { .. });
            if linked && !twins.is_empty() && what.job.fresh_links == 0 {
                return Err(anothers_bytes());
            }
            report.notes.extend(twins);
        }
        let (artifacts, notes) = self.place_all(&what, held).await?;
        report.notes.extend(notes);
        let failure = failure.or_else(|| strict(&what, &artifacts));
        Ok(Collected { artifacts, failure, report })
    }

    async fn keep(&self, drafts: Vec<ArtifactDraft>) -> Vec<ArtifactDraft> {
        let mut kept = Vec::with_capacity(drafts.len());
        for mut draft in drafts {
            if let DraftSource::Base64 { .. } | DraftSource::Text { .. } = &draft.source {
                match self.stage(&draft).await {
                    Ok(token) => draft.source = DraftSource::Staged { token },
                    // It is still in hand, and the next step tells what is wrong with the folder or with the bytes.
                    Err(failure) => warn!("an output cannot be kept before its start is written: {}", failure.message),
                }
            }
            kept.push(draft);
        }
        kept
    }

    async fn let_go(&self, drafts: &[ArtifactDraft]) {
        for draft in drafts {
            if let DraftSource::Staged { token } = &draft.source {
                self.staging.discard(token);
            }
        }
    }
}

impl Collector {
    async fn fetch(
        &self,
        session: &Arc<dyn Session>,
        what: &Collecting<'_>,
        mut draft: ArtifactDraft,
    ) -> Result<Held, Failure> {
        let (file, link, host) = match stage_inline(&self.staging, &draft, what.now_ms).await? {
            Inline::Staged { file, link } => (file, link, None),
            Inline::Remote { url, with_key } => {
                let got = session.download(&url, with_key).await?;
                draft.declared_mime = got.content_type.or(draft.declared_mime);
                draft.name = draft.name.or_else(|| got.content_disposition.as_deref().and_then(disposition_name));
                (self.staging.take(&got.staged.token).await.map_err(|error| error.failure())?, None, Some(got.host))
            }
        };
        let described = describe(&self.prober, &file, &draft, &what.body.request).await;
        Ok(Held { draft, file, link, host, described })
    }

    /// Stages a draft's own bytes; the token they are held by.
    async fn stage(&self, draft: &ArtifactDraft) -> Result<String, Failure> {
        match stage_inline(&self.staging, draft, 0).await? {
            Inline::Staged { file, .. } => self.staging.hold(file).map_err(|error| error.failure()),
            Inline::Remote { .. } => Err(Failure::new(FailureKind::Internal, Retry::Never, "the draft is a link")),
        }
    }

    async fn place_all(&self, what: &Collecting<'_>, held: Vec<Held>) -> Result<(Vec<Artifact>, Vec<Note>), Failure> {
        let request = &what.body.request;
        let task = request.task;
        let main = held.iter().filter(|one| is_main(&one.described.role, task)).count();
        let places = self.places(what, &held).await?;
        let mut spare = Namer::new(&folder(what), None);
        let (mut artifacts, mut notes) = (Vec::with_capacity(held.len()), Vec::new());
        for (index, (one, mut placed)) in held.into_iter().zip(places).enumerate() {
            let described = &one.described;
            let checked = if is_main(&described.role, task) {
                spec_check(&request.media, &described.spec, main, described.silent)
            } else {
                SpecCheck::default()
            };
            let tenant = &what.job.tenant;
            match place(&self.storage, tenant, &placed, &one.file).await {
                Err(StorageError::Key { .. }) if request.output_path.is_some() => {
                    // The bytes are paid for, and no waiting mends a path that cannot be.
                    let unusable = std::mem::replace(
                        &mut placed,
                        spare.next(&described.role, described.name.as_deref(), &described.mime),
                    );
                    notes.push(elsewhere(&unusable, &placed));
                    place(&self.storage, tenant, &placed, &one.file).await
                }
                done => done,
            }
            .map_err(unplaced)?;
            artifacts.push(artifact(what, index, one, placed, checked));
        }
        Ok((artifacts, notes))
    }

    /// Where the outputs go, each path held by this job before a byte is written there: a number after the name that was
    /// asked for may be another job's very path.
    async fn places(&self, what: &Collecting<'_>, held: &[Held]) -> Result<Vec<Placed>, Failure> {
        let asked = what.body.request.output_path.as_deref();
        let mut taken = Vec::new();
        loop {
            let mut namer = Namer::new(&folder(what), asked).avoiding(&taken);
            let place =
                |Held { described, .. }: &Held| namer.next(&described.role, described.name.as_deref(), &described.mime);
            let places: Vec<Placed> = held.iter().map(place).collect();
            if asked.is_none() {
                // Nobody else may name a path below `jobs/`.
                return Ok(places);
            }
            let paths: Vec<String> = places.iter().map(|placed| placed.path.clone()).collect();
            let others = self.store.hold_paths(&what.job.tenant, &what.job.id, &paths).await.map_err(unheld)?;
            if others.is_empty() {
                return Ok(places);
            }
            taken.extend(others);
        }
    }

    /// A warning for each other job whose different request has the same bytes: a vendor that hands one job's output
    /// to another's.
    async fn twins(&self, what: &Collecting<'_>, sha256: &str) -> Vec<Note> {
        let found = self.store.same_bytes(&what.job.tenant, sha256, &what.job.id).await.unwrap_or_default();
        let mine = request_hash(&what.body.prepared);
        let others = found.into_iter().filter(|(_, hash)| *hash != mine).map(|(job, _)| job).take(3);
        let warning = |job: String| {
            let message = format!("the same bytes are an output of {job}, which asked for something else");
            let data = json!({"code": "same_bytes", "message": message, "job": job});
            Note { kind: "warning".to_owned(), data, id: Some(format!("same_bytes:{job}")) }
        };
        others.map(warning).collect()
    }
}

/// Where a job's artifacts stand when it names no path: a later attempt's do not overwrite an earlier one's.
fn folder(what: &Collecting<'_>) -> String {
    match what.job.attempt {
        0 | 1 => what.job.id.clone(),
        attempt => format!("{}/{attempt}", what.job.id),
    }
}

fn judge(what: &Collecting<'_>, held: &[Held]) -> Option<Failure> {
    let request = &what.body.request;
    if held.is_empty() {
        let message = "the vendor says it is done and has nothing to show for it";
        return Some(Failure::new(FailureKind::OutputEmpty, Retry::Backoff, message));
    }
    let found = held.iter().find_map(|one| {
        verdict(&Delivery { described: &one.described, draft: &one.draft, request, content_length: None })
    });
    let roles: Vec<&str> = held.iter().map(|one| one.described.role.as_str()).collect();
    found.or_else(|| missing_deliverables(request, &roles))
}

/// The bytes are no output (a page, nothing), rather than one that fell short.
fn not_output(failure: &Failure) -> bool {
    failure.kind == FailureKind::OutputExpired
}

fn artifact(what: &Collecting<'_>, index: usize, one: Held, placed: Placed, checked: SpecCheck) -> Artifact {
    let job = what.job;
    let fetched_at = chrono::DateTime::from_timestamp_millis(what.now_ms).map(|at| at.to_rfc3339());
    let source = json!({
        "vendor": job.vendor, "index": index, "role": one.described.role, "fetched_at": fetched_at,
        "url_host": one.host, "declared_mime": one.draft.declared_mime, "declared_bytes": one.draft.declared_bytes,
        "link": one.link,
    });
    Artifact {
        id: format!("art_{}", derived_uuid(&format!("{}/{}/{index}", job.id, job.attempt)).replace('-', "")),
        job: Some(job.id.clone()),
        tenant: job.tenant.clone(),
        role: one.described.role,
        name: placed.name,
        path: placed.path,
        mime: one.described.mime,
        bytes: one.described.bytes,
        sha256: one.described.sha256,
        spec: Some(one.described.spec),
        spec_check: Some(checked),
        source,
    }
}

/// A job that wants exactly what it asked for.
fn strict(what: &Collecting<'_>, artifacts: &[Artifact]) -> Option<Failure> {
    if !what.body.request.strict_spec {
        return None;
    }
    let checks = artifacts.iter().filter_map(|artifact| artifact.spec_check.as_ref());
    let differs: Vec<String> = checks
        .flat_map(|checked| &checked.mismatches)
        .map(|mismatch| format!("{}: {} for {}", mismatch.field, mismatch.got, mismatch.asked))
        .collect();
    (!differs.is_empty()).then(|| {
        let message = format!("strict_spec is set and this was delivered: {}", differs.join("; "));
        Failure::new(FailureKind::SpecMismatch, Retry::Never, message)
    })
}

/// A link that leads to another job's output is asked for once more; the same bytes again are then taken, with a warning.
fn anothers_bytes() -> Failure {
    let message = "the link leads to bytes that are another job's output; the vendor is asked for a fresh link";
    Failure::new(FailureKind::OutputExpired, Retry::Backoff, message).code("same_bytes")
}

/// An output that stands elsewhere than was asked.
fn elsewhere(unusable: &Placed, placed: &Placed) -> Note {
    let message = format!("nothing can stand at {}, so it stands at {}", unusable.path, placed.path);
    let data = json!({"code": "path_taken", "message": message, "path": placed.path});
    Note { kind: "warning".to_owned(), data, id: Some(format!("path_taken:{}", unusable.path)) }
}

/// Artifact storage that does not take a file is a passing fault of ours: the bytes stay at the vendor.
fn unplaced(error: StorageError) -> Failure {
    if matches!(error, StorageError::Key { .. }) {
        // No waiting mends a path that cannot be.
        return Failure::new(FailureKind::SpecMismatch, Retry::Never, error.to_string()).code("path_taken");
    }
    Failure::new(FailureKind::Internal, Retry::Backoff, error.to_string()).code("storage_unavailable")
}

/// So is a store that cannot say whose a path is.
fn unheld(error: StoreError) -> Failure {
    Failure::new(FailureKind::Internal, Retry::Backoff, error.to_string()).code("storage_unavailable")
}

fn disposition_name(header: &str) -> Option<String> {
    let (_, rest) = header.split_once("filename=")?;
    let name = rest.split(';').next()?.trim().trim_matches('"');
    (!name.is_empty()).then(|| name.to_owned())
}

/// The staging area as the transport writes to it.
pub struct Stage(pub Staging);

struct Writing {
    staging: Staging,
    writer: crate::artifacts::StagingWriter,
}

#[async_trait]
impl StagingArea for Stage {
    async fn create(&self) -> io::Result<Box<dyn StagingWriter>> {
        let writer = self.0.writer().map_err(io::Error::other)?;
        Ok(Box::new(Writing { staging: self.0.clone(), writer }))
    }
}

#[async_trait]
impl StagingWriter for Writing {
    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer.write(bytes).await.map_err(io::Error::other)
    }

    async fn restart(&mut self) -> io::Result<()> {
        self.writer.restart().await.map_err(io::Error::other)
    }

    async fn finish(self: Box<Self>) -> io::Result<StagedBody> {
        let file = self.writer.finish().await.map_err(io::Error::other)?;
        let bytes = file.bytes();
        let token = self.staging.hold(file).map_err(io::Error::other)?;
        Ok(StagedBody { token, bytes })
    }
}
