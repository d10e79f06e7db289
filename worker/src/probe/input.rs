//! Reading a file by pieces, with every bound in one place.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// The most that one request for bytes may span.
pub(super) const WINDOW: usize = 64 << 10;
/// How much a refill reads ahead.
const READ_AHEAD: usize = 32 << 10;
/// The most that one probe reads of a file in all. Sound and Matroska scans touch every frame's header.
const READ_MAX: u64 = 1 << 30;

/// Why a reader stopped. What it had found until then stands.
#[derive(Debug)]
pub(super) enum Fault {
    /// The bytes are not as they should be.
    Broken(String),
    /// A limit of ours was met.
    Limits(String),
    /// The file could not be read.
    Io(io::Error),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Shorthand.
pub(super) type Outcome<T = ()> = Result<T, Fault>;

/// A fault of the bytes.
pub(super) fn broken<T>(why: impl Into<String>) -> Outcome<T> {
    Err(Fault::Broken(why.into()))
}

/// A limit that was met.
pub(super) fn limits<T>(why: impl Into<String>) -> Outcome<T> {
    Err(Fault::Limits(why.into()))
}

/// What must be there.
pub(super) trait Need<T> {
    /// The value, or a fault that says what is missing.
    fn need(self, what: &str) -> Outcome<T>;
}

impl<T> Need<T> for Option<T> {
    fn need(self, what: &str) -> Outcome<T> {
        self.ok_or_else(|| Fault::Broken(format!("{what} is missing or cut short")))
    }
}

/// A file with one window of it in memory.
pub(super) struct Source {
    file: File,
    len: u64,
    window: Vec<u8>,
    start: u64,
    read: u64,
}

impl Source {
    /// Opens a file.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        Ok(Self { file, len, window: Vec::new(), start: 0, read: 0 })
    }

    /// The file's size in bytes.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Up to `want` bytes (at most [`WINDOW`]) from an offset; fewer only at the end of the file.
    pub(super) fn at(&mut self, offset: u64, want: usize) -> Outcome<&[u8]> {
        let want = want.min(WINDOW);
        let end = offset.saturating_add(want as u64).min(self.len);
        let held = self.start..self.start + self.window.len() as u64;
        if offset < held.start || end > held.end {
            self.refill(offset, want)?;
        }
        let from = usize::try_from(offset.saturating_sub(self.start)).unwrap_or(usize::MAX).min(self.window.len());
        let to = from.saturating_add(want).min(self.window.len());
        Ok(self.window.get(from..to).unwrap_or_default())
    }

    /// Exactly `N` bytes from an offset, where they are there.
    pub(super) fn exact<const N: usize>(&mut self, offset: u64) -> Outcome<Option<[u8; N]>> {
        Ok(self.at(offset, N)?.first_chunk::<N>().copied())
    }

    /// A span as a vector of its own; shorter where the file ends before.
    pub(super) fn span(&mut self, offset: u64, len: u64, cap: u64, what: &str) -> Outcome<Vec<u8>> {
        let len = len.min(self.len.saturating_sub(offset));
        if len > cap {
            return limits(format!("{what} has {len} bytes, more than the {cap} that are read"));
        }
        self.spend(len)?;
        self.file.seek(SeekFrom::Start(offset))?;
        let mut bytes = Vec::new();
        (&mut self.file).take(len).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn refill(&mut self, offset: u64, want: usize) -> Outcome {
        let size = want.max(READ_AHEAD) as u64;
        self.spend(size.min(self.len.saturating_sub(offset)))?;
        self.window.clear();
        self.start = offset;
        if offset < self.len {
            self.file.seek(SeekFrom::Start(offset))?;
            (&mut self.file).take(size).read_to_end(&mut self.window)?;
        }
        Ok(())
    }

    fn spend(&mut self, bytes: u64) -> Outcome {
        self.read = self.read.saturating_add(bytes);
        if self.read > READ_MAX { limits("more than 1 GiB would have to be read") } else { Ok(()) }
    }
}

macro_rules! readers {
    ($($(#[$doc:meta])* $name:ident: $number:ty, $width:literal, $from:ident;)*) => {
        $($(#[$doc])*
        pub(super) fn $name(bytes: &[u8], at: usize) -> Option<$number> {
            let part = bytes.get(at..)?.first_chunk::<$width>()?;
            Some(<$number>::$from(*part))
        })*
    };
}

readers! {
    /// A big-endian 16-bit number.
    be16: u16, 2, from_be_bytes;
    /// A big-endian 32-bit number.
    be32: u32, 4, from_be_bytes;
    /// A big-endian 64-bit number.
    be64: u64, 8, from_be_bytes;
    /// A little-endian 16-bit number.
    le16: u16, 2, from_le_bytes;
    /// A little-endian 32-bit number.
    le32: u32, 4, from_le_bytes;
    /// A little-endian 64-bit number.
    le64: u64, 8, from_le_bytes;
}

/// A little-endian 24-bit number.
pub(super) fn le24(bytes: &[u8], at: usize) -> Option<u32> {
    let [a, b, c] = bytes.get(at..)?.first_chunk::<3>()?;
    Some(u32::from_le_bytes([*a, *b, *c, 0]))
}

/// `count` units at `rate` a second, as milliseconds to the nearest.
pub(super) fn to_ms(count: u64, rate: u64) -> Option<u64> {
    let rate = u128::from(rate);
    if rate == 0 {
        return None;
    }
    u64::try_from((u128::from(count) * 1000 + rate / 2) / rate).ok()
}
