//! EBML (RFC 8794): element headers in a file, elements in memory.

use super::super::input::{Outcome, Source};

/// The longest header: four bytes of id, eight of size.
const HEADER_MAX: usize = 12;

/// An element's header in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadAt {
    pub(super) id: u32,
    /// Where its content begins.
    pub(super) body: u64,
    /// `None`: it runs until something that cannot be inside it.
    pub(super) size: Option<u64>,
}

impl HeadAt {
    /// Where the element ends, as it says.
    pub(super) fn end(&self) -> Option<u64> {
        Some(self.body.saturating_add(self.size?))
    }
}

/// The element that begins here; `None` where the bytes are none, or end too early.
pub(super) fn head_at(source: &mut Source, at: u64) -> Outcome<Option<HeadAt>> {
    let bytes = source.at(at, HEADER_MAX)?;
    Ok(header(bytes).map(|(id, size, used)| HeadAt { id, body: at + used as u64, size }))
}

/// Id, size and length of a header.
fn header(bytes: &[u8]) -> Option<(u32, Option<u64>, usize)> {
    let (id, id_len) = number(bytes, 4, false)?;
    let (size, size_len) = number(bytes.get(id_len..)?, 8, true)?;
    let unknown = size == (1u64 << (7 * size_len)) - 1;
    Some((u32::try_from(id).ok()?, (!unknown).then_some(size), id_len + size_len))
}

/// A number whose first byte tells its length, with that marker cut off where wished.
pub(super) fn number(bytes: &[u8], longest: usize, bare: bool) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let len = usize::try_from(first.leading_zeros()).ok()? + 1;
    if len > longest {
        return None;
    }
    let mask = if bare { 0xFFu16 >> len } else { 0xFF };
    let start = u64::from(first) & u64::from(mask);
    let value = bytes.get(1..len)?.iter().fold(start, |value, byte| value << 8 | u64::from(*byte));
    Some((value, len))
}

/// An element in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Element<'a> {
    pub(super) id: u32,
    pub(super) body: &'a [u8],
}

/// A walk over the elements of one level in memory. It ends at the first that does not fit.
pub(super) struct Children<'a> {
    rest: &'a [u8],
}

impl<'a> Children<'a> {
    pub(super) fn new(body: &'a [u8]) -> Self {
        Self { rest: body }
    }
}

impl<'a> Iterator for Children<'a> {
    type Item = Element<'a>;

    fn next(&mut self) -> Option<Element<'a>> {
        let (id, size, used) = header(self.rest)?;
        let (body, rest) = self.rest.get(used..)?.split_at_checked(usize::try_from(size?).ok()?)?;
        self.rest = rest;
        Some(Element { id, body })
    }
}

/// An unsigned number of up to eight bytes.
pub(super) fn uint(body: &[u8]) -> Option<u64> {
    (body.len() <= 8).then(|| body.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

/// A float of four or eight bytes.
pub(super) fn float(body: &[u8]) -> Option<f64> {
    match body.len() {
        4 => Some(f64::from(f32::from_be_bytes(*body.first_chunk::<4>()?))),
        8 => Some(f64::from_be_bytes(*body.first_chunk::<8>()?)),
        _ => None,
    }
}
