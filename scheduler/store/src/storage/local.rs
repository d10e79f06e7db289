//! A folder as storage: whole files appear in one move, and links out of it are refused.

use super::READ_CHUNK;
use bytes::{Bytes, BytesMut};
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use uuid::Uuid;

/// The rule that a link breaks.
pub(super) const LEADS_OUT: &str = "a link on the way leads out of the artifacts folder";

/// Writes a small file and deletes it.
pub(super) fn try_write(root: &Path) -> io::Result<()> {
    let path = root.join(format!(".longhaul-check-{}", Uuid::new_v4()));
    let written = fs::write(&path, b"longhaul");
    let removed = fs::remove_file(&path);
    written.and(removed)
}

/// Why a file could not be placed.
pub(super) enum LocalError {
    Key(&'static str),
    Io(io::Error),
}

impl From<io::Error> for LocalError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Makes the key's folder one part at a time, so that a link out of the root is met before anything is
/// made behind it; answers the folder and the file's place in it.
fn local_target(root: &Path, key: &str) -> Result<(PathBuf, PathBuf), LocalError> {
    let mut folder = root.to_owned();
    let mut parts = key.split('/').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            let target = folder.join(part);
            if target.is_dir() {
                return Err(LocalError::Key("a folder stands there"));
            }
            return Ok((folder, target));
        }
        let above = folder.clone();
        folder.push(part);
        match fs::create_dir(&folder) {
            // A file is not durable in a folder whose own name is not.
            Ok(()) => fs::File::open(above)?.sync_all()?,
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error.into()),
            Err(_) => {}
        }
        if !fs::canonicalize(&folder)?.starts_with(root) {
            return Err(LocalError::Key(LEADS_OUT));
        }
        if !folder.is_dir() {
            return Err(LocalError::Key("a file stands where a folder is wanted"));
        }
    }
    Err(LocalError::Key("it is empty"))
}

/// Puts a file under a key by linking it, or by a copy where links do not reach.
pub(super) fn place_locally(root: &Path, key: &str, file: &Path) -> Result<(), LocalError> {
    let source = fs::File::open(file)?;
    source.sync_all()?;
    let (folder, target) = local_target(root, key)?;
    let part = folder.join(format!(".{}.part", Uuid::new_v4()));
    if fs::hard_link(file, &part).is_err() {
        // Another file system, or one without links.
        copy_durably(source, &part)?;
    }
    publish(&folder, &part, &target)
}

/// Writes bytes under a key.
pub(super) fn write_locally(root: &Path, key: &str, bytes: &[u8]) -> Result<(), LocalError> {
    let (folder, target) = local_target(root, key)?;
    let part = folder.join(format!(".{}.part", Uuid::new_v4()));
    copy_durably(bytes, &part)?;
    publish(&folder, &part, &target)
}

fn copy_durably(mut source: impl io::Read, part: &Path) -> io::Result<()> {
    let written = fs::File::create_new(part).and_then(|mut file| {
        io::copy(&mut source, &mut file)?;
        file.sync_all()
    });
    if written.is_err() {
        // The copy's own error is the one to tell.
        drop(fs::remove_file(part));
    }
    written
}

fn publish(folder: &Path, part: &Path, target: &Path) -> Result<(), LocalError> {
    if let Err(error) = fs::rename(part, target) {
        drop(fs::remove_file(part));
        return Err(error.into());
    }
    // Renaming one link of a file onto another of the same file does nothing and leaves both names.
    match fs::remove_file(part) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    fs::File::open(folder)?.sync_all()?;
    Ok(())
}

/// The names of a folder's files.
pub(super) fn local_names(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_file()
            && let Ok(name) = entry.file_name().into_string()
        {
            names.push(name);
        }
    }
    Ok(names)
}

/// A range of an open file, piece by piece.
pub(super) fn file_stream(file: fs::File, range: Range<u64>) -> impl futures::Stream<Item = io::Result<Bytes>> {
    let start = (tokio::fs::File::from_std(file), range.end - range.start, Some(range.start));
    futures::stream::try_unfold(start, |(mut file, left, seek)| async move {
        if let Some(at) = seek {
            file.seek(io::SeekFrom::Start(at)).await?;
        }
        if left == 0 {
            return Ok(None);
        }
        let want = usize::try_from(left).unwrap_or(READ_CHUNK).min(READ_CHUNK);
        let mut chunk = BytesMut::with_capacity(want);
        let got = (&mut file).take(want as u64).read_buf(&mut chunk).await? as u64;
        if got == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter while it was read"));
        }
        Ok(Some((chunk.freeze(), (file, left.saturating_sub(got), None))))
    })
}
