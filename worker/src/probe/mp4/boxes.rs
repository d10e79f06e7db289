//! Boxes in memory: a bounded walk, and the check of depth that comes before it.

use super::super::input::{Outcome, be32, be64, limits};

/// Boxes of one level below the top.
const LEVEL_MAX: usize = 4096;
/// How deep boxes may be nested. Real files stay below ten.
const DEPTH_MAX: usize = 16;

/// One box: its kind, its body, and the whole of it for a decoder that wants the header too.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct BoxRef<'a> {
    pub(in super::super) kind: [u8; 4],
    pub(in super::super) body: &'a [u8],
    pub(in super::super) whole: &'a [u8],
}

/// A walk over the boxes of one level. It ends at the first that does not fit.
#[derive(Clone, Debug)]
pub(in super::super) struct Boxes<'a> {
    rest: &'a [u8],
    seen: usize,
}

impl<'a> Boxes<'a> {
    pub(in super::super) fn new(body: &'a [u8]) -> Self {
        Self { rest: body, seen: 0 }
    }

    /// The first box of a kind.
    pub(in super::super) fn first(mut self, kind: &[u8; 4]) -> Option<BoxRef<'a>> {
        self.find(|found| &found.kind == kind)
    }
}

impl<'a> Iterator for Boxes<'a> {
    type Item = BoxRef<'a>;

    fn next(&mut self) -> Option<BoxRef<'a>> {
        if self.seen >= LEVEL_MAX {
            return None;
        }
        self.seen += 1;
        let (kind, length, size) = split(self.rest)?;
        let (whole, rest) = self.rest.split_at_checked(size)?;
        self.rest = rest;
        Some(BoxRef { kind, body: whole.get(length..)?, whole })
    }
}

/// Kind, header length and whole size of the box that begins here.
fn split(bytes: &[u8]) -> Option<([u8; 4], usize, usize)> {
    let kind = *bytes.get(4..)?.first_chunk::<4>()?;
    let (length, size) = match be32(bytes, 0)? {
        0 => (8, bytes.len()),
        1 => (16, usize::try_from(be64(bytes, 8)?).ok()?),
        size => (8, usize::try_from(size).ok()?),
    };
    (size >= length).then_some((kind, length, size))
}

fn is_container(kind: [u8; 4]) -> bool {
    const KINDS: [&[u8; 4]; 20] = [
        b"moov", b"trak", b"mdia", b"minf", b"stbl", b"dinf", b"edts", b"udta", b"mvex", b"moof", b"traf", b"meta",
        b"ilst", b"sinf", b"schi", b"wave", b"tref", b"iprp", b"ipco", b"gmhd",
    ];
    KINDS.contains(&&kind)
}

/// Refuses boxes that are nested deeper than [`DEPTH_MAX`] or too many on a level, without recursion.
pub(super) fn check_depth(bytes: &[u8]) -> Outcome {
    let mut levels = vec![Boxes::new(bytes)];
    while let Some(level) = levels.last_mut() {
        if level.seen >= LEVEL_MAX {
            return limits(format!("more than {LEVEL_MAX} boxes on one level"));
        }
        match level.next() {
            Some(found) if is_container(found.kind) => {
                // `meta` has four bytes of its own before its children, except in QuickTime.
                let full = found.kind == *b"meta" && be32(found.body, 0) == Some(0);
                let inside = found.body.get(if full { 4 } else { 0 }..).unwrap_or_default();
                levels.push(Boxes::new(inside));
                if levels.len() > DEPTH_MAX {
                    return limits(format!("boxes are nested more than {DEPTH_MAX} deep"));
                }
            }
            Some(_) => {}
            None => {
                levels.pop();
            }
        }
    }
    Ok(())
}
