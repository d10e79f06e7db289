//! Artifact storage: one place for bytes, whether a folder or a bucket.
//!
//! Both roles use it: the worker places outputs, the scheduler takes in uploads and hands bytes out.
//! A key is `<tenant>/<path>`; keys are checked here again, whatever was checked before.

mod cloud;
mod local;

use bytes::{Bytes, BytesMut};
use cloud::{AZURE_NAMES, GCS_NAMES, S3_NAMES, scrubbed, secrets_of, settings};
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use local::{LEADS_OUT, LocalError, file_stream, local_names, place_locally, try_write, write_locally};
use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use object_store::{GetOptions, GetRange, GetResultPayload, ObjectStore, ObjectStoreExt, PutPayload, WriteMultipart};
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::io::AsyncReadExt;
use url::Url;
use uuid::Uuid;

/// Files up to this size go up in one request; larger ones in parts.
const SINGLE_PUT_MAX: u64 = 16 << 20;
/// Smallest part of a large upload. Object stores take at most 10,000 parts.
const PART_MIN: u64 = 8 << 20;
/// Parts of one upload under way at a time: bounds the memory of an upload.
const PARTS_IN_FLIGHT: usize = 4;
/// Bytes read from a local file at a time.
const READ_CHUNK: usize = 256 << 10;
/// The longest key that S3, GCS and Azure all take.
const KEY_MAX: usize = 1024;
/// The longest part of a key that common file systems take, with room for a temporary name beside it.
const SEGMENT_MAX: usize = 200;

/// Why storage could not do it. Every text says what to do next.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The URL or the credentials cannot work.
    #[error("artifact storage {url}: {reason}; correct [artifacts] url")]
    Settings {
        /// The URL as configured.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The place does not take bytes.
    #[error(
        "artifact storage {place} cannot be written: {reason}; make room, mend permissions or correct [artifacts] url, work is retried"
    )]
    Unwritable {
        /// The folder or bucket.
        place: String,
        /// What the system said.
        reason: String,
    },
    /// The place does not answer.
    #[error("artifact storage {place} is not available: {reason}; work goes on by itself when it is back")]
    Unavailable {
        /// The folder or bucket.
        place: String,
        /// What the system said.
        reason: String,
    },
    /// The key cannot name an artifact.
    #[error("artifact path {key:?} is not allowed: {reason}; use <tenant>/<relative path>")]
    Key {
        /// The key.
        key: String,
        /// The rule it breaks.
        reason: &'static str,
    },
    /// Nothing stands under the key.
    #[error("artifact storage holds nothing at {key:?}; it was deleted, or never placed")]
    NotFound {
        /// The key.
        key: String,
    },
    /// The range starts past the end.
    #[error("the range starts past the end of {key:?}, which has {total} bytes; ask for a range below that")]
    Range {
        /// The key.
        key: String,
        /// The object's size in bytes.
        total: u64,
    },
}

/// Shorthand.
pub type StorageResult<T> = Result<T, StorageError>;

/// An object, or a range of one, being read.
pub struct ObjectRead {
    /// Size of the whole object in bytes.
    pub total: u64,
    /// The bytes that [`Self::stream`] carries; shorter than asked where the object ends before.
    pub range: Range<u64>,
    /// The bytes.
    pub stream: BoxStream<'static, StorageResult<Bytes>>,
}

impl std::fmt::Debug for ObjectRead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ObjectRead").field("total", &self.total).field("range", &self.range).finish_non_exhaustive()
    }
}

/// A folder or a bucket that holds artifacts.
#[derive(Clone)]
pub struct ArtifactStorage {
    inner: Arc<Inner>,
}

struct Inner {
    store: Box<dyn ObjectStore>,
    prefix: ObjectPath,
    /// The folder, links resolved, where storage is one.
    root: Option<PathBuf>,
    place: String,
    /// Credential values: they never reach an error text.
    secrets: Vec<String>,
}

impl std::fmt::Debug for ArtifactStorage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ArtifactStorage").field(&self.inner.place).finish()
    }
}

/// Checks that a key is `<tenant>/<relative path>`, safe on every kind of storage.
///
/// # Errors
/// [`StorageError::Key`] with the rule that it breaks.
pub fn check_key(key: &str) -> StorageResult<()> {
    let refuse = |reason| Err(StorageError::Key { key: key.chars().take(KEY_MAX).collect(), reason });
    if key.len() > KEY_MAX {
        return refuse("it is longer than 1024 bytes");
    }
    if key.starts_with('/') {
        return refuse("it is absolute");
    }
    if key.contains('\\') {
        return refuse("it has a backslash");
    }
    if key.chars().any(char::is_control) {
        return refuse("it has a control character");
    }
    if !key.contains('/') {
        return refuse("it has no tenant before the path");
    }
    for segment in key.split('/') {
        match segment {
            "" => return refuse("it has an empty part"),
            "." | ".." => return refuse("it has a part that climbs"),
            long if long.len() > SEGMENT_MAX => return refuse("it has a part of more than 200 bytes"),
            _ => {}
        }
    }
    // The local store of the `object_store` crate keeps `name#7` for unfinished uploads.
    if let Some((_, digits)) = key.rsplit_once('#')
        && !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_digit())
    {
        return refuse("it ends in # and a number");
    }
    Ok(())
}

impl ArtifactStorage {
    /// Opens storage from its URL: `file:./artifacts`, `file:///srv/artifacts`, `s3://bucket/prefix`,
    /// `az://container/prefix` or `gs://bucket/prefix`. `env` looks up what the cloud needs
    /// (`AWS_…`, `AZURE_…`, `GOOGLE_…`). A folder is made where there is none, and is tried for writing.
    ///
    /// # Errors
    /// [`StorageError::Settings`] for a URL that cannot work, [`StorageError::Unwritable`] for a folder
    /// that cannot be made or written, naming it.
    pub fn open(url: &str, env: impl Fn(&str) -> Option<String>) -> StorageResult<Self> {
        match url.split_once(':') {
            Some(("file", path)) => Self::open_folder(url, path),
            Some(("s3", _)) => Self::open_bucket(url, &S3_NAMES, env),
            Some(("az", _)) => Self::open_bucket(url, &AZURE_NAMES, env),
            Some(("gs", _)) => Self::open_bucket(url, &GCS_NAMES, env),
            _ => Err(settings(url, "it must begin with file:, s3://, az:// or gs://")),
        }
    }

    fn open_folder(url: &str, path: &str) -> StorageResult<Self> {
        let folder = match path.strip_prefix("//") {
            Some(absolute) if absolute.starts_with('/') => absolute,
            Some(_) => return Err(settings(url, "a folder's URL has no host: write file:/path or file:./path")),
            None => path,
        };
        if folder.is_empty() {
            return Err(settings(url, "it names no folder"));
        }
        let unwritable =
            |error: io::Error| StorageError::Unwritable { place: folder.to_owned(), reason: io_text(&error) };
        fs::create_dir_all(folder).map_err(unwritable)?;
        let root = fs::canonicalize(folder).map_err(unwritable)?;
        try_write(&root).map_err(unwritable)?;
        let store = LocalFileSystem::new_with_prefix(&root)
            .map_err(|error| StorageError::Unwritable { place: folder.to_owned(), reason: error.to_string() })?
            .with_fsync(true);
        Ok(Self::build(Box::new(store), ObjectPath::default(), Some(root), folder.to_owned(), Vec::new()))
    }

    fn open_bucket(url: &str, names: &[&str], env: impl Fn(&str) -> Option<String>) -> StorageResult<Self> {
        let parsed = Url::parse(url).map_err(|error| settings(url, &error.to_string()))?;
        if parsed.host_str().is_none_or(str::is_empty) {
            return Err(settings(url, "it names no bucket"));
        }
        if parsed.query().is_some() || parsed.password().is_some() {
            return Err(settings(url, "it must hold no query and no password: credentials come from the environment"));
        }
        let options: Vec<(String, String)> = names
            .iter()
            .filter_map(|name| env(name).filter(|value| !value.is_empty()).map(|value| (name.to_lowercase(), value)))
            // One object at a time: not every store that speaks S3 has the bulk call.
            .chain(url.starts_with("s3:").then(|| ("aws_disable_bulk_delete".to_owned(), "true".to_owned())))
            .collect();
        let secrets = secrets_of(&options);
        // The client below takes the process's provider; one that is installed already stays.
        drop(rustls::crypto::ring::default_provider().install_default());
        let (store, prefix) = object_store::parse_url_opts(&parsed, options)
            .map_err(|error| settings(url, &scrubbed(&error.to_string(), &secrets)))?;
        Ok(Self::build(store, prefix, None, url.to_owned(), secrets))
    }

    fn build(
        store: Box<dyn ObjectStore>,
        prefix: ObjectPath,
        root: Option<PathBuf>,
        place: String,
        secrets: Vec<String>,
    ) -> Self {
        Self { inner: Arc::new(Inner { store, prefix, root, place, secrets }) }
    }

    /// The folder or bucket, as a person knows it.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.inner.place
    }

    /// Places a file under a key. What stood there is replaced in one move: a reader sees the old bytes
    /// or the new. On return the bytes are durable.
    ///
    /// In a folder of the same file system the file is linked, not copied: it must not be changed
    /// afterwards (deleting it is fine).
    ///
    /// # Errors
    /// Where the key is not allowed or the bytes cannot be placed.
    pub async fn put_file(&self, key: &str, file: &Path) -> StorageResult<()> {
        check_key(key)?;
        if let Some(root) = &self.inner.root {
            let (root, owned, file) = (root.clone(), key.to_owned(), file.to_owned());
            let outcome = tokio::task::spawn_blocking(move || place_locally(&root, &owned, &file)).await;
            return outcome.map_err(|error| self.unavailable(&error.to_string()))?.map_err(|error| match error {
                LocalError::Key(reason) => StorageError::Key { key: key.to_owned(), reason },
                LocalError::Io(error) => self.io_error(&error),
            });
        }
        let mut source = tokio::fs::File::open(file).await.map_err(|error| self.io_error(&error))?;
        let bytes = source.metadata().await.map_err(|error| self.io_error(&error))?.len();
        if bytes <= SINGLE_PUT_MAX {
            let mut body = Vec::new();
            source.read_to_end(&mut body).await.map_err(|error| self.io_error(&error))?;
            return self.put_bytes(key, Bytes::from(body)).await;
        }
        self.put_parts(key, source, bytes).await
    }

    async fn put_parts(&self, key: &str, mut source: tokio::fs::File, bytes: u64) -> StorageResult<()> {
        let part = usize::try_from(PART_MIN.max(bytes.div_ceil(9_000))).unwrap_or(usize::MAX);
        let upload = self.inner.store.put_multipart(&self.object_path(key)?).await;
        let upload = upload.map_err(|error| self.write_error(key, error))?;
        let mut parts = WriteMultipart::new_with_chunk_size(upload, part);
        let sent = async {
            loop {
                let mut chunk = BytesMut::with_capacity(READ_CHUNK);
                if source.read_buf(&mut chunk).await.map_err(|error| self.io_error(&error))? == 0 {
                    return Ok(());
                }
                parts.wait_for_capacity(PARTS_IN_FLIGHT).await.map_err(|error| self.write_error(key, error))?;
                parts.put(chunk.freeze());
            }
        }
        .await;
        match sent {
            Ok(()) => parts.finish().await.map(|_| ()).map_err(|error| self.write_error(key, error)),
            Err(error) => {
                // An unfinished upload costs money until it is dropped; the first error is the one to tell.
                drop(parts.abort().await);
                Err(error)
            }
        }
    }

    /// Places bytes under a key, with the promises of [`Self::put_file`].
    ///
    /// # Errors
    /// Where the key is not allowed or the bytes cannot be placed.
    pub async fn put_bytes(&self, key: &str, bytes: Bytes) -> StorageResult<()> {
        check_key(key)?;
        if let Some(root) = &self.inner.root {
            let (root, owned) = (root.clone(), key.to_owned());
            let outcome = tokio::task::spawn_blocking(move || write_locally(&root, &owned, &bytes)).await;
            return outcome.map_err(|error| self.unavailable(&error.to_string()))?.map_err(|error| match error {
                LocalError::Key(reason) => StorageError::Key { key: key.to_owned(), reason },
                LocalError::Io(error) => self.io_error(&error),
            });
        }
        let path = self.object_path(key)?;
        let put = self.inner.store.put(&path, PutPayload::from_bytes(bytes)).await;
        put.map(|_| ()).map_err(|error| self.write_error(key, error))
    }

    /// Reads an object, or the part of it in `range` (an end past the object's is the object's).
    ///
    /// # Errors
    /// [`StorageError::NotFound`], [`StorageError::Range`] where the range is empty or starts past the
    /// end, or where storage does not answer.
    pub async fn read(&self, key: &str, range: Option<Range<u64>>) -> StorageResult<ObjectRead> {
        check_key(key)?;
        self.stay_inside(key).await?;
        if let Some(asked) = &range {
            let total = self.head(key).await?;
            if asked.start >= total || asked.start >= asked.end {
                return Err(StorageError::Range { key: key.to_owned(), total });
            }
        }
        let options = GetOptions { range: range.map(GetRange::Bounded), ..GetOptions::default() };
        let path = self.object_path(key)?;
        let got = self.inner.store.get_opts(&path, options).await.map_err(|error| self.read_error(key, error))?;
        let (total, range) = (got.meta.size, got.range.clone());
        let here = self.clone();
        let stream = match got.payload {
            GetResultPayload::File(file, _) => {
                file_stream(file, range.clone()).map_err(move |error| here.io_error(&error)).boxed()
            }
            GetResultPayload::Stream(stream) => {
                let key = key.to_owned();
                stream.map_err(move |error| here.read_error(&key, error)).boxed()
            }
        };
        Ok(ObjectRead { total, range, stream })
    }

    /// The size of an object in bytes.
    ///
    /// # Errors
    /// [`StorageError::NotFound`], or where storage does not answer.
    pub async fn head(&self, key: &str) -> StorageResult<u64> {
        check_key(key)?;
        self.stay_inside(key).await?;
        let meta = self.inner.store.head(&self.object_path(key)?).await;
        meta.map(|meta| meta.size).map_err(|error| self.read_error(key, error))
    }

    /// Deletes an object; one that is gone already is deleted.
    ///
    /// # Errors
    /// Where storage does not answer or refuses.
    pub async fn delete(&self, key: &str) -> StorageResult<()> {
        check_key(key)?;
        match self.stay_inside(key).await {
            Err(StorageError::NotFound { .. }) => return Ok(()),
            other => other?,
        }
        match self.inner.store.delete(&self.object_path(key)?).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.write_error(key, error)),
        }
    }

    /// The names of the objects that stand right below a folder, sorted; none where there is no such folder. What stands
    /// in folders below it is not told, nor are names that begin with a dot.
    ///
    /// # Errors
    /// Where the folder's key is not allowed, or storage does not answer.
    pub async fn names(&self, folder: &str) -> StorageResult<Vec<String>> {
        check_key(folder)?;
        let mut names = if let Some(root) = &self.inner.root {
            match self.stay_inside(folder).await {
                Err(StorageError::NotFound { .. }) => return Ok(Vec::new()),
                other => other?,
            }
            let path = root.join(folder);
            let listed = tokio::task::spawn_blocking(move || local_names(&path)).await;
            listed.map_err(|error| self.unavailable(&error.to_string()))?.map_err(|error| self.io_error(&error))?
        } else {
            let path = self.object_path(folder)?;
            let listed = self.inner.store.list_with_delimiter(Some(&path)).await;
            let listed = listed.map_err(|error| self.read_error(folder, error))?;
            listed.objects.iter().filter_map(|object| object.location.filename().map(str::to_owned)).collect()
        };
        names.retain(|name| !name.starts_with('.'));
        names.sort();
        Ok(names)
    }

    /// Tries whether storage takes a write now.
    ///
    /// # Errors
    /// [`StorageError::Unwritable`] or [`StorageError::Unavailable`].
    pub async fn check(&self) -> StorageResult<()> {
        if let Some(root) = self.inner.root.clone() {
            let tried = tokio::task::spawn_blocking(move || try_write(&root)).await;
            return tried.map_err(|error| self.unavailable(&error.to_string()))?.map_err(|error| self.io_error(&error));
        }
        let name = format!(".longhaul-check-{}", Uuid::new_v4());
        let path = self.inner.prefix.clone().join(name.as_str());
        let put = self.inner.store.put(&path, PutPayload::from_static(b"longhaul")).await;
        put.map_err(|error| self.write_error(&name, error))?;
        self.inner.store.delete(&path).await.map_err(|error| self.write_error(&name, error))
    }

    fn object_path(&self, key: &str) -> StorageResult<ObjectPath> {
        let whole =
            if self.inner.prefix.as_ref().is_empty() { key.to_owned() } else { format!("{}/{key}", self.inner.prefix) };
        ObjectPath::parse(whole)
            .map_err(|_| StorageError::Key { key: key.to_owned(), reason: "storage does not take it as a name" })
    }

    /// In a folder, a link that leads out of the root is refused.
    async fn stay_inside(&self, key: &str) -> StorageResult<()> {
        let Some(root) = self.inner.root.clone() else { return Ok(()) };
        let path = root.join(key);
        let real = tokio::task::spawn_blocking(move || fs::canonicalize(path).map(|real| real.starts_with(root))).await;
        match real.map_err(|error| self.unavailable(&error.to_string()))? {
            Ok(true) => Ok(()),
            Ok(false) => Err(StorageError::Key { key: key.to_owned(), reason: LEADS_OUT }),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Err(StorageError::NotFound { key: key.to_owned() })
            }
            Err(error) => Err(self.io_error(&error)),
        }
    }

    fn unavailable(&self, reason: &str) -> StorageError {
        StorageError::Unavailable { place: self.inner.place.clone(), reason: scrubbed(reason, &self.inner.secrets) }
    }

    fn unwritable(&self, reason: &str) -> StorageError {
        StorageError::Unwritable { place: self.inner.place.clone(), reason: scrubbed(reason, &self.inner.secrets) }
    }

    fn io_error(&self, error: &io::Error) -> StorageError {
        match error.kind() {
            io::ErrorKind::PermissionDenied
            | io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::NotFound
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::IsADirectory
            | io::ErrorKind::DirectoryNotEmpty
            | io::ErrorKind::AlreadyExists => self.unwritable(&io_text(error)),
            _ => self.unavailable(&io_text(error)),
        }
    }

    fn write_error(&self, key: &str, error: object_store::Error) -> StorageError {
        match error {
            object_store::Error::PermissionDenied { .. }
            | object_store::Error::Unauthenticated { .. }
            | object_store::Error::NotFound { .. } => self.unwritable(&error.to_string()),
            other => self.read_error(key, other),
        }
    }

    fn read_error(&self, key: &str, error: object_store::Error) -> StorageError {
        match error {
            object_store::Error::NotFound { .. } => StorageError::NotFound { key: key.to_owned() },
            other => self.unavailable(&other.to_string()),
        }
    }
}

fn io_text(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "no space is left".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::ReadOnlyFilesystem => "the file system is read-only".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod s3_tests;
#[cfg(test)]
mod tests;
