//! What a staged file is: its hash, its size, its spec.

use super::staging::StagedFile;
use crate::probe::{ChildLimits, Hint, Probed, in_child, probe_file};
use longhaul_registry::{ArtifactDraft, JobRequest, MediaSpec, ProbeReport};
use std::path::{Path, PathBuf};

/// Where probing happens.
#[derive(Clone, Debug)]
pub struct Prober {
    child: Option<(PathBuf, ChildLimits)>,
}

impl Prober {
    /// In a child process of this program (`longhaul`), as a worker does it.
    #[must_use]
    pub fn child(exe: PathBuf, limits: ChildLimits) -> Self {
        Self { child: Some((exe, limits)) }
    }

    /// In this process, for bytes that are trusted: seeds, one's own files, tests.
    #[must_use]
    pub fn in_process() -> Self {
        Self { child: None }
    }

    /// Probes a file; never fails, as [`probe_file`].
    pub async fn probe(&self, path: &Path, hint: &Hint) -> Probed {
        if let Some((exe, limits)) = &self.child {
            return in_child(exe, path, hint, *limits).await;
        }
        let (path, owned) = (path.to_owned(), hint.clone());
        tokio::task::spawn_blocking(move || probe_file(&path, &owned)).await.unwrap_or_else(|error| {
            let mut spec = crate::probe::blank(hint);
            spec.probe = ProbeReport { status: "failed".to_owned(), message: Some(error.to_string()), ..spec.probe };
            Probed { spec, silent: None }
        })
    }
}

/// A staged file with everything that its bytes say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Its part in the job.
    pub role: String,
    /// The vendor's file name, made safe; `None` where it gave none that can be used.
    pub name: Option<String>,
    /// Sniffed and normalised media type.
    pub mime: String,
    /// Hex SHA-256.
    pub sha256: String,
    /// Size.
    pub bytes: u64,
    /// What the bytes say.
    pub spec: MediaSpec,
    /// Whether its sound is silence, where that is known.
    pub silent: Option<bool>,
}

/// What a draft and its job know of a file besides its bytes.
#[must_use]
pub fn hint(draft: &ArtifactDraft, request: &JobRequest) -> Hint {
    let option = |name: &str| request.vendor.get(name).and_then(serde_json::Value::as_str).map(str::to_owned);
    let vendor = option("output_format").or_else(|| option("response_format")).or_else(|| option("encoding"));
    Hint {
        declared_mime: draft.declared_mime.clone(),
        asked_format: vendor.or_else(|| request.media.format.clone()),
        sample_rate: request.media.sample_rate,
        channels: request.media.channels,
    }
}

/// Describes a staged file. A probe that fails is told in the spec.
pub async fn describe(prober: &Prober, file: &StagedFile, draft: &ArtifactDraft, request: &JobRequest) -> Described {
    let Probed { spec, silent } = prober.probe(file.path(), &hint(draft, request)).await;
    Described {
        role: draft.role.clone(),
        name: draft.name.as_deref().and_then(super::naming::safe_name),
        mime: spec.mime.clone(),
        sha256: file.sha256().to_owned(),
        bytes: file.bytes(),
        spec,
        silent,
    }
}
