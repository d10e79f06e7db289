//! From what a vendor offers to an artifact: staged on disk while it is hashed, described by its bytes,
//! judged, named and placed. Nothing here speaks to a network: a download hands its bytes to a
//! [`StagingWriter`].

mod checks;
mod describe;
mod inline;
mod naming;
mod speech;
mod staging;

pub use checks::{Delivery, MediaClass, due_class, is_main, missing_deliverables, spec_check, verdict};
pub use describe::{Described, Prober, describe, hint};
pub use inline::{Inline, stage_inline};
pub use longhaul_store::content::content_disposition;
pub use naming::{Namer, Placed, extension_of, safe_name};
pub use speech::too_short_for_script;
pub use staging::{StagedFile, Staging, StagingError, StagingWriter};

use longhaul_store::storage::{ArtifactStorage, StorageResult};

/// Places a described file where its tenant finds it. Placing it again changes nothing.
///
/// # Errors
/// Where storage does not take it.
pub async fn place(storage: &ArtifactStorage, tenant: &str, placed: &Placed, file: &StagedFile) -> StorageResult<()> {
    storage.put_file(&format!("{tenant}/{}", placed.path), file.path()).await
}
