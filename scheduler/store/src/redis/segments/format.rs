//! What a segment is: recorded exchanges of many jobs in one object that is written once and never changes.
//!
//! It begins with [`MAGIC`]. Entries follow, one after another: the length of the head and the length of the text (u32, the
//! highest byte first), the CRC-32 of both, the head, the text. The head is the MessagePack list `[job, number, count, first_ms,
//! last_ms, step, route, adapter, fingerprint]`, so that a segment tells what it holds without the store; the text is packed as the
//! store had it (raw deflate). An entry is read alone by its place.

use super::super::value::{pack, unpack};
use crate::{StoreError, StoreResult};
use flate2::Crc;

/// What every segment begins with: the name and version of the format.
const MAGIC: &[u8; 8] = b"LHSEG001";
/// Two lengths and a checksum.
const FIXED: usize = 12;

/// What is known of an exchange beside its text: count, first and last seen, step, route, adapter, fingerprint.
pub(in crate::redis) type About = (u64, i64, i64, String, String, String, String);
/// An entry's head.
type Head = (String, u64, u64, i64, i64, String, String, String, String);
/// What a pointer says of its exchange: all of the above but the fingerprint, and the time between first and last.
type Brief = (u64, i64, i64, String, String, String);

/// A segment's name: when it was begun by the store's time (six bytes), then chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SegmentId(pub(super) [u8; 10]);

impl SegmentId {
    /// A new one.
    pub(super) fn at(now_ms: i64) -> Self {
        let mut id = [0; 10];
        let (time, chance) = id.split_at_mut(6);
        time.copy_from_slice(&now_ms.to_be_bytes()[2..]);
        chance.copy_from_slice(&rand::random::<[u8; 4]>());
        Self(id)
    }

    /// When it was begun, milliseconds since 1970 by the store's time.
    pub(super) fn begun_ms(self) -> i64 {
        self.0.iter().take(6).fold(0, |ms, byte| (ms << 8) | i64::from(*byte))
    }

    /// The object's own name.
    pub(super) fn name(self) -> String {
        let hex: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{hex}.seg")
    }

    /// The segment of an object's own name.
    pub(super) fn of_name(name: &str) -> Option<Self> {
        let hex = name.strip_suffix(".seg").filter(|hex| hex.len() == 20 && hex.is_ascii())?;
        let mut id = [0; 10];
        for (byte, at) in id.iter_mut().zip((0..20).step_by(2)) {
            *byte = u8::from_str_radix(hex.get(at..at + 2)?, 16).ok()?;
        }
        Some(Self(id))
    }

    /// The segment of a field of the server's.
    pub(super) fn of_bytes(bytes: &[u8]) -> StoreResult<Self> {
        let id = bytes.try_into();
        id.map(Self).map_err(|_| StoreError::Corrupt("the name of a segment of exchanges does not read".to_owned()))
    }
}

/// Where an exchange's text lies, and what is known of it without looking there.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pointer {
    pub(super) segment: SegmentId,
    pub(super) offset: u32,
    pub(super) length: u32,
    pub(super) about: About,
}

impl Pointer {
    /// As it stands in the job: the segment's ten bytes first, which scripts read, then place, length and a MessagePack list.
    pub(super) fn write(&self) -> StoreResult<Vec<u8>> {
        let (count, first, last, step, route, adapter, _) = &self.about;
        let mut bytes = self.segment.0.to_vec();
        bytes.extend(self.offset.to_be_bytes());
        bytes.extend(self.length.to_be_bytes());
        bytes.extend(pack(&(count, first, last - first, step, route, adapter))?);
        Ok(bytes)
    }

    pub(super) fn read(bytes: &[u8]) -> StoreResult<Self> {
        let short = || StoreError::Corrupt("a pointer into a segment of exchanges is cut short".to_owned());
        let (segment, rest) = bytes.split_first_chunk::<10>().ok_or_else(short)?;
        let (offset, rest) = rest.split_first_chunk::<4>().ok_or_else(short)?;
        let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(short)?;
        let (count, first, between, step, route, adapter): Brief =
            unpack("a pointer into a segment of exchanges", rest)?;
        Ok(Self {
            segment: SegmentId(*segment),
            offset: u32::from_be_bytes(*offset),
            length: u32::from_be_bytes(*length),
            about: (count, first, first + between, step, route, adapter, String::new()),
        })
    }
}

/// A segment being made.
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn new() -> Self {
        Self(MAGIC.to_vec())
    }

    /// Adds an exchange; answers its place and length.
    pub(super) fn add(&mut self, job: &str, n: u64, about: &About, packed: &[u8]) -> StoreResult<(u32, u32)> {
        let too_large = |_| StoreError::Refused(format!("an exchange of {job} is too large for a segment"));
        let (count, first, last, step, route, adapter, fingerprint) = about;
        let head = pack(&(job, n, count, first, last, step, route, adapter, fingerprint))?;
        let offset = u32::try_from(self.0.len()).map_err(too_large)?;
        for length in [head.len(), packed.len()] {
            self.0.extend(u32::try_from(length).map_err(too_large)?.to_be_bytes());
        }
        self.0.extend(checksum(&head, packed).to_be_bytes());
        self.0.extend(&head);
        self.0.extend(packed);
        let length = u32::try_from(FIXED + head.len() + packed.len()).map_err(too_large)?;
        Ok((offset, length))
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }
}

fn checksum(head: &[u8], packed: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(head);
    crc.update(packed);
    crc.sum()
}

/// Reads the entry that `bytes` are; an error says why it is not that of this exchange.
pub(super) fn entry<'a>(bytes: &'a [u8], job: &str, n: u64) -> Result<(About, &'a [u8]), &'static str> {
    const SHORT: &str = "the object ends before the exchange does";
    let number =
        |bytes: &'a [u8]| bytes.split_first_chunk::<4>().map(|(number, rest)| (u32::from_be_bytes(*number), rest));
    let (head, rest) = number(bytes).ok_or(SHORT)?;
    let (text, rest) = number(rest).ok_or(SHORT)?;
    let (sum, rest) = number(rest).ok_or(SHORT)?;
    let lengths = usize::try_from(head).ok().zip(usize::try_from(text).ok()).ok_or(SHORT)?;
    let (head, packed) =
        rest.split_at_checked(lengths.0).filter(|(_, packed)| packed.len() == lengths.1).ok_or(SHORT)?;
    if checksum(head, packed) != sum {
        return Err("its checksum does not agree");
    }
    let read: StoreResult<Head> = unpack("an exchange in a segment", head);
    let (whose, number, count, first, last, step, route, adapter, fingerprint) =
        read.map_err(|_| "what is said of the exchange does not read")?;
    if whose != job || number != n {
        return Err("another exchange stands there");
    }
    Ok(((count, first, last, step, route, adapter, fingerprint), packed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(count: u64) -> About {
        (count, 5, 7, "poll".to_owned(), "get_result".to_owned(), "flux/1".to_owned(), "ab".repeat(32))
    }

    #[test]
    fn an_entry_is_read_by_its_place_alone() {
        let mut writer = Writer::new();
        let first = writer.add("job_1", 3, &about(2), b"one").unwrap();
        let (offset, length) = writer.add("job_2", 4, &about(9), b"").unwrap();
        let bytes = writer.finish();
        assert_eq!(&bytes[..8], b"LHSEG001");
        assert_eq!((first.0, first.0 + first.1, offset + length), (8, offset, u32::try_from(bytes.len()).unwrap()));
        let at = |(offset, length): (u32, u32)| &bytes[offset as usize..(offset + length) as usize];
        assert_eq!(entry(at(first), "job_1", 3), Ok((about(2), &b"one"[..])));
        assert_eq!(entry(at((offset, length)), "job_2", 4), Ok((about(9), &b""[..])));
    }

    #[test]
    fn what_is_not_the_exchange_is_not_taken_for_it() {
        let mut writer = Writer::new();
        writer.add("job_1", 3, &about(2), b"one").unwrap();
        let bytes = writer.finish().split_off(8);
        for (job, n) in [("job_2", 3), ("job_1", 4)] {
            assert_eq!(entry(&bytes, job, n), Err("another exchange stands there"));
        }
        for cut in 0..bytes.len() {
            assert_eq!(entry(&bytes[..cut], "job_1", 3), Err("the object ends before the exchange does"), "{cut}");
        }
        for at in 0..bytes.len() {
            let mut spoilt = bytes.clone();
            spoilt[at] ^= 0x40;
            assert!(entry(&spoilt, "job_1", 3).is_err(), "{at}");
        }
    }

    #[test]
    fn the_checksum_is_the_usual_one() {
        // python3 -c "import zlib; print(hex(zlib.crc32(b'123456789')))"
        assert_eq!(checksum(b"1234", b"56789"), 0xcbf4_3926);
    }

    #[test]
    fn a_name_tells_when_its_segment_was_begun() {
        let id = SegmentId::at(1_796_040_000_123);
        assert_eq!(id.begun_ms(), 1_796_040_000_123);
        assert_eq!(SegmentId::of_name(&id.name()), Some(id));
        assert_ne!(SegmentId::at(1), SegmentId::at(1));
        for other in ["", "x.seg", "0123456789abcdef0123", "0123456789abcdef01zz.seg", "0123456789abcdef0123.seg2"] {
            assert_eq!(SegmentId::of_name(other), None, "{other}");
        }
    }

    #[test]
    fn a_pointer_keeps_what_people_look_for_first() {
        let pointer = Pointer { segment: SegmentId::at(9), offset: 8, length: 70_000, about: about(3) };
        let bytes = pointer.write().unwrap();
        assert_eq!(bytes[..10], pointer.segment.0);
        let mut read = Pointer::read(&bytes).unwrap();
        assert_eq!(read.about.6, "", "the fingerprint is in the segment");
        read.about.6 = pointer.about.6.clone();
        assert_eq!(read, pointer);
        assert!(Pointer::read(&bytes[..17]).is_err());
    }
}
