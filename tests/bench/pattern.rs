//! The poll pattern: N jobs, each a start, five polls and a finish; the polls 0.73 s apart, which is no multiple of
//! anybody's polling interval; all submitted before the clock starts; 50 steps in work at one time.

use crate::Outcome;
use longhaul_registry::JobRequest;
use longhaul_store::{Estimate, Job, JobBody, NewEvent, SqliteOptions, SqliteStore, Store, Submission};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

use longhaul_store::clock::{Clock, SystemClock};

/// Polls a job, the one that finds it done included.
pub const POLLS: u32 = 5;
/// Milliseconds from one poll to the next.
pub const APART_MS: i64 = 730;
/// Steps of one job: a start, the polls, a finish.
pub const STEPS: u64 = 2 + POLLS as u64;
/// Length of a lease.
pub const LEASE: Duration = Duration::from_secs(15);
/// The connector that all jobs name.
pub const CONNECTOR: &str = "bench";

/// A new SQLite file in a folder that goes with it. Every commit is fsynced.
pub struct Fresh {
    /// The store.
    pub store: Arc<SqliteStore>,
    /// Its clock.
    pub clock: Arc<SystemClock>,
    _folder: TempDir,
}

impl Fresh {
    /// Opens one below `folder`, or below the system's folder for temporary files.
    ///
    /// # Errors
    /// Where it cannot be made.
    pub fn open(folder: Option<PathBuf>) -> Outcome<Self> {
        let folder = match folder {
            Some(folder) => tempfile::tempdir_in(folder)?,
            None => tempfile::tempdir()?,
        };
        let clock = Arc::new(SystemClock::default());
        let store = SqliteStore::open(folder.path().join("bench.db"), SqliteOptions::default(), clock.clone())?;
        Ok(Self { store: Arc::new(store), clock, _folder: folder })
    }

    /// Submits so many jobs, a thousand a call; answers how long that took.
    ///
    /// # Errors
    /// The store's.
    pub async fn submit(&self, jobs: u64) -> Outcome<Duration> {
        let begun = self.clock.monotonic();
        for first in (0..jobs).step_by(1000) {
            let batch = (first..jobs.min(first + 1000)).map(submission).collect::<Outcome<Vec<_>>>()?;
            self.store.submit(batch).await?;
        }
        Ok(self.clock.monotonic().saturating_sub(begun))
    }
}

/// A job as the API would submit it.
fn submission(at: u64) -> Outcome<Submission> {
    let words = "a brass telescope on a windowsill, morning light";
    let request = json!({
        "connector": CONNECTOR, "task": "image", "instructions": words,
        "media": {"width": 1536, "height": 864, "format": "png"},
    });
    let request: JobRequest = serde_json::from_value(request)?;
    let job = Job::queued(format!("job_{at:032x}"), "default".to_owned(), "flux".to_owned(), &request);
    let prepared = json!({
        "path": "/v1/flux-2-pro", "body": {"prompt": words, "width": 1536, "height": 864, "output_format": "png"},
    });
    let body = JobBody {
        request,
        prepared,
        model: Some("flux-2-pro".to_owned()),
        start_silence: None,
        estimate: Estimate::default(),
    };
    let data = json!({"from": null, "to": "queued"});
    let events = vec![NewEvent { kind: "state".to_owned(), step: None, data }];
    Ok(Submission { job, body, idempotency: None, output_path: None, events, usage: Vec::new() })
}
