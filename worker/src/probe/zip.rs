//! ZIP: whether its directory is there. Nothing is unpacked.

use super::input::{Outcome, Source, WINDOW, broken, le16, le32};
use longhaul_registry::MediaSpec;

/// Fills in the spec of a ZIP file.
pub(super) fn read(source: &mut Source, spec: &mut MediaSpec) -> Outcome {
    let len = source.len();
    let start = len.saturating_sub(WINDOW as u64);
    let tail = source.at(start, WINDOW)?.to_vec();
    let end = tail.windows(4).rposition(|part| part == b"PK\x05\x06");
    let record = end.and_then(|at| tail.get(at..)).filter(|record| record.len() >= 22);
    let (Some(at), Some(record)) = (end, record) else {
        spec.complete = Some(false);
        return broken("there is no central directory: the archive is cut short");
    };
    let size = u64::from(le32(record, 12).unwrap_or(0));
    let comment = u64::from(le16(record, 20).unwrap_or(0));
    let place = start + at as u64;
    // All ones point to the ZIP64 record before this one.
    let fits = size == u64::from(u32::MAX) || size <= place;
    spec.complete = Some(fits && place + 22 + comment <= len);
    if spec.complete == Some(true) { Ok(()) } else { broken("the central directory does not fit the file") }
}
