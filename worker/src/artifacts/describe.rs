//! What a staged file is: its hash, its size, its spec.

use super::staging::StagedFile;
use crate::probe::{ChildLimits, Hint, Probed, in_child, probe_file};
use longhaul_registry::{ArtifactDraft, JobRequest, MediaSpec, ProbeReport};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Where probing happens.
#[derive(Clone, Debug)]
pub struct Prober {
    child: Option<Children>,
}

/// How children are started.
#[derive(Clone, Debug)]
struct Children {
    exe: PathBuf,
    limits: ChildLimits,
    room: Arc<Semaphore>,
}

impl Prober {
    /// In a child process of this program (`longhaul`), as a worker does it. Two a processor run at one time: when the
    /// outputs of hundreds of jobs come at once, more would take the processors from the worker itself, which could not
    /// renew its leases.
    #[must_use]
    pub fn child(exe: PathBuf, limits: ChildLimits) -> Self {
        Self::children(exe, limits, 2 * std::thread::available_parallelism().map_or(1, usize::from))
    }

    fn children(exe: PathBuf, limits: ChildLimits, at_once: usize) -> Self {
        Self { child: Some(Children { exe, limits, room: Arc::new(Semaphore::new(at_once)) }) }
    }

    /// In this process, for bytes that are trusted: seeds, one's own files, tests.
    #[must_use]
    pub fn in_process() -> Self {
        Self { child: None }
    }

    /// Probes a file; never fails, as [`probe_file`].
    pub async fn probe(&self, path: &Path, hint: &Hint) -> Probed {
        if let Some(Children { exe, limits, room }) = &self.child {
            // Nobody closes it.
            let _room = room.acquire().await.ok();
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[tokio::test]
    async fn so_many_children_run_at_one_time_and_no_more() {
        const AT_ONCE: usize = 3;
        let folder = tempfile::tempdir().unwrap();
        let (log, gate, exe) = (folder.path().join("log"), folder.path().join("gate"), folder.path().join("child"));
        // A child writes down that it is there, stays until the gate is open, and writes down that it goes.
        let script = format!(
            "#!/bin/sh\necho + >>{log}\nwhile [ ! -e {gate} ]; do /bin/sleep 0.01; done\necho - >>{log}\n",
            log = log.display(),
            gate = gate.display()
        );
        std::fs::write(&exe, script).unwrap();
        std::fs::set_permissions(&exe, std::fs::Permissions::from_mode(0o755)).unwrap();
        let prober = Prober::children(exe, ChildLimits::default(), AT_ONCE);
        let hint = Hint::default();
        let probes = futures::future::join_all((0..4 * AT_ONCE).map(|_| prober.probe(folder.path(), &hint)));
        let opening = async {
            while std::fs::read_to_string(&log).unwrap_or_default().lines().count() < AT_ONCE {
                tokio::task::yield_now().await;
            }
            std::fs::write(&gate, "").unwrap();
        };
        tokio::join!(probes, opening);
        let (mut now, mut most, mut all) = (0_usize, 0, 0);
        for line in std::fs::read_to_string(&log).unwrap().lines() {
            now = if line == "+" { now + 1 } else { now - 1 };
            all += usize::from(line == "+");
            most = most.max(now);
        }
        assert_eq!((all, most, now), (4 * AT_ONCE, AT_ONCE, 0));
    }
}
