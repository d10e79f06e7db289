//! Where bodies stream to: the transport's view of the staging area.

use async_trait::async_trait;
use longhaul_vendors::StagedBody;
use std::io;
use std::path::PathBuf;
use tokio::fs::File;
use tokio::io::{AsyncSeekExt, AsyncWriteExt};
use uuid::Uuid;

/// A place for bodies on their way to becoming artifacts.
#[async_trait]
pub trait StagingArea: Send + Sync {
    /// Opens a new, empty place.
    async fn create(&self) -> io::Result<Box<dyn StagingWriter>>;
}

/// One body being written. Dropped before [`StagingWriter::finish`], what was written is gone.
#[async_trait]
pub trait StagingWriter: Send {
    /// Appends.
    async fn write(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Forgets what was written: the body starts over.
    async fn restart(&mut self) -> io::Result<()>;

    /// Closes it and names it.
    async fn finish(self: Box<Self>) -> io::Result<StagedBody>;
}

/// The simplest staging area: files in a folder, the token being the file's name.
#[derive(Clone, Debug)]
pub struct FolderStaging {
    /// The folder; it must exist.
    pub folder: PathBuf,
}

struct FolderWriter {
    file: File,
    path: PathBuf,
    token: String,
    bytes: u64,
    finished: bool,
}

impl Drop for FolderWriter {
    fn drop(&mut self) {
        if !self.finished {
            // Nobody can be told from here; a file left behind is swept with the folder.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[async_trait]
impl StagingArea for FolderStaging {
    async fn create(&self) -> io::Result<Box<dyn StagingWriter>> {
        let token = Uuid::new_v4().simple().to_string();
        let path = self.folder.join(&token);
        let file = File::create_new(&path).await?;
        Ok(Box::new(FolderWriter { file, path, token, bytes: 0, finished: false }))
    }
}

#[async_trait]
impl StagingWriter for FolderWriter {
    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes).await?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    async fn restart(&mut self) -> io::Result<()> {
        self.file.flush().await?;
        self.file.set_len(0).await?;
        self.file.rewind().await?;
        self.bytes = 0;
        Ok(())
    }

    async fn finish(mut self: Box<Self>) -> io::Result<StagedBody> {
        self.file.flush().await?;
        self.finished = true;
        Ok(StagedBody { token: self.token.clone(), bytes: self.bytes })
    }
}
