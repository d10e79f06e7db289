//! The outputs step: success means bytes in hand.

use super::poll::{conclude, given_up, passing, waits};
use super::{Change, moot};
use crate::{Artifact, JobState, Took, Transition, durations};
use longhaul_registry::{Collected, Failure, FailureKind, Retry};
use serde_json::json;
use std::time::Duration;

/// How long a terminal word may be without its bytes.
const PATIENCE_MS: i64 = 60_000;
/// Between two looks within the patience.
const LOOK_AGAIN: Duration = Duration::from_secs(3);
/// Fresh links asked of the vendor before a dead one is believed.
const FRESH_LINKS: u8 = 1;

pub(super) fn collected(mut change: Change<'_>, collected: Result<Collected<Artifact>, Failure>) -> Transition {
    if change.out.job.state != JobState::Collecting {
        return moot(change);
    }
    match collected {
        Ok(Collected { artifacts, failure, report }) => {
            change.take(report);
            match failure {
                Some(failure) => fell_short(change, artifacts, failure),
                None => in_hand(change, artifacts, None),
            }
        }
        Err(failure) => missed(change, failure),
    }
}

fn in_hand(mut change: Change<'_>, artifacts: Vec<Artifact>, failure: Option<Failure>) -> Transition {
    for artifact in &artifacts {
        let data = json!({
            "id": artifact.id, "role": artifact.role, "name": artifact.name, "mime": artifact.mime,
            "bytes": artifact.bytes, "sha256": artifact.sha256,
        });
        change.event("artifact", data);
    }
    change.out.artifacts = artifacts;
    match failure {
        Some(failure) => given_up(change, failure),
        None => {
            change.out.took = taught(&change);
            conclude(change, JobState::Succeeded)
        }
    }
}

/// What a success teaches of how long such jobs take.
fn taught(change: &Change<'_>) -> Option<Took> {
    let job = &change.out.job;
    let ms = job.took_ms.filter(|_| job.ending.is_none())?;
    let key = durations::key(&job.connector, job.task, change.rules.body.model.as_deref())?;
    Some(Took { key, ms })
}

/// Something came, or nothing: not what success means.
fn fell_short(mut change: Change<'_>, artifacts: Vec<Artifact>, failure: Failure) -> Transition {
    match failure.kind {
        FailureKind::OutputEmpty if patient(&change) => look_again(change, &failure),
        FailureKind::OutputExpired if change.out.job.fresh_links < FRESH_LINKS => fresh_link(change, failure),
        FailureKind::OutputExpired if absent(&failure) && patient(&change) => look_again(change, &failure),
        _ if change.out.job.ending.is_some() => {
            // The job did not succeed anyway: what there was is kept, and what was missing is said.
            if failure.kind != FailureKind::OutputEmpty {
                change.warn(&failure.code, failure.message);
            }
            in_hand(change, artifacts, None)
        }
        _ => in_hand(change, artifacts, Some(failure)),
    }
}

fn look_again(mut change: Change<'_>, failure: &Failure) -> Transition {
    // What the start brought with it has been tried and was no good: the vendor is asked from here on.
    change.job().drafts.clear();
    change.blame(failure);
    change.due(LOOK_AGAIN);
    change.out
}

/// Not there, which a file that is still being published is too; a link that is refused or gone stays so.
fn absent(failure: &Failure) -> bool {
    failure.vendor_code.as_deref() == Some("404")
}

fn patient(change: &Change<'_>) -> bool {
    change.age_ms(change.out.job.collecting_since).is_some_and(|age| age < PATIENCE_MS)
}

fn fresh_link(mut change: Change<'_>, failure: Failure) -> Transition {
    let job = change.job();
    job.fresh_links = job.fresh_links.saturating_add(1);
    job.drafts.clear();
    change.blame(&failure);
    change.event("step", json!({"did": "fresh_link_asked"}));
    change.go_on();
    change.out
}

fn missed(mut change: Change<'_>, failure: Failure) -> Transition {
    match failure.kind {
        FailureKind::Auth | FailureKind::Quota | FailureKind::RateLimited => waits(change, failure),
        FailureKind::OutputExpired | FailureKind::OutputEmpty | FailureKind::SpecMismatch => {
            fell_short(change, Vec::new(), failure)
        }
        FailureKind::NotFound if patient(&change) => look_again(change, &failure),
        FailureKind::VendorError | FailureKind::Network | FailureKind::Timeout if failure.retry != Retry::Never => {
            passing(change, failure)
        }
        FailureKind::Internal if failure.retry != Retry::Never => waits(change, failure),
        FailureKind::Internal => {
            change.park(failure);
            change.out
        }
        FailureKind::InvalidRequest
        | FailureKind::ContentPolicy
        | FailureKind::NotFound
        | FailureKind::ModelUnavailable
        | FailureKind::CapabilityMissing
        | FailureKind::VendorError
        | FailureKind::Network
        | FailureKind::Timeout
        | FailureKind::StartUnknown
        | FailureKind::LimitExceeded => given_up(change, failure),
    }
}
