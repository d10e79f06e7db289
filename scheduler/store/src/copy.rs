//! Moving a store: everything of one is taken in by another, then both are read and compared.

use crate::{Record, Store, StoreError, StoreResult};
use ring::digest::{SHA256, digest};
use std::fmt::Write as _;

/// Records moved in one piece.
const PIECE: usize = 500;
/// Pieces between two looks at what leaves the copy's memory.
const TEND: u64 = 20;

/// How far a copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyProgress {
    /// So many records were taken in.
    Copied(u64),
    /// So many records of the copy were read back.
    Verified(u64),
}

/// What a store holds, in a form that can be compared: for each kind of record how many there are, and the sum of their
/// SHA-256 modulo 2^256. The order in which they are told does not matter; one that is missing, doubled or different does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    kinds: [(u64, [u8; 32]); Record::KINDS.len()],
}

impl Contents {
    /// Counts a record in. [`Record::End`] does not count.
    ///
    /// # Errors
    /// Where it cannot be written down.
    pub fn add(&mut self, record: &Record) -> StoreResult<()> {
        let Some(kind) = record.kind() else { return Ok(()) };
        let text = serde_json::to_vec(record)
            .map_err(|error| StoreError::Corrupt(format!("a {kind} cannot be written down: {error}")))?;
        let place = Record::KINDS.iter().position(|known| *known == kind);
        if let Some((count, sum)) = place.and_then(|place| self.kinds.get_mut(place)) {
            *count += 1;
            add(sum, digest(&SHA256, &text).as_ref());
        }
        Ok(())
    }

    /// Each kind with its count and the hash of its records, in hex.
    #[must_use]
    pub fn kinds(&self) -> Vec<(&'static str, u64, String)> {
        let kinds = Record::KINDS.into_iter().zip(&self.kinds);
        kinds.map(|(kind, (count, sum))| (kind, *count, hex(sum))).collect()
    }

    /// All records.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.kinds.iter().map(|(count, _)| count).sum()
    }

    /// SHA-256 over all kinds, counts and hashes, in hex.
    #[must_use]
    pub fn sha256(&self) -> String {
        let mut text = String::new();
        for (kind, count, hash) in self.kinds() {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{kind} {count} {hash}");
        }
        hex(digest(&SHA256, text.as_bytes()).as_ref())
    }
}

/// Adds 256-bit numbers, the lowest byte last; what overflows is dropped.
fn add(sum: &mut [u8; 32], more: &[u8]) {
    let mut carry = 0;
    for (digit, more) in sum.iter_mut().zip(more).rev() {
        let wide = u16::from(*digit) + u16::from(*more) + carry;
        *digit = wide.to_le_bytes()[0];
        carry = wide >> 8;
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut hex = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

/// What a copy came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// What the source told.
    pub from: Contents,
    /// What the copy told afterwards.
    pub to: Contents,
    /// Exchanges whose texts the source could not tell, and says so in their place ([`crate::StoredExchange::lost`]).
    pub lost: u64,
}

impl Copied {
    /// The copy holds what the source holds, and can be used.
    #[must_use]
    pub fn agrees(&self) -> bool {
        self.from == self.to
    }
}

/// Copies everything from one store into another that is empty, reads the copy back and compares. Nobody may change
/// either store meanwhile. Only a copy that agrees can be opened afterwards.
///
/// # Errors
/// [`StoreError::Refused`] where the target holds anything; else whatever either store could not do.
pub async fn copy(
    from: &dyn Store,
    to: &dyn Store,
    mut progress: impl FnMut(CopyProgress) + Send,
) -> StoreResult<Copied> {
    if let (records, _) = to.dump(None, 1).await?
        && let Some(kind) = records.first().and_then(Record::kind)
    {
        return Err(StoreError::Refused(format!(
            "the store to copy into is not empty: it holds at least one {kind}; name a new one, or remove what it holds"
        )));
    }
    let (mut told, mut cursor, mut end, mut lost) = (Contents::default(), None, None, 0);
    for piece in 1_u64.. {
        let (mut records, next) = from.dump(cursor.as_deref(), PIECE).await?;
        for record in &records {
            told.add(record)?;
            lost += u64::from(matches!(record, Record::Exchange(one) if one.exchange.lost().is_some()));
        }
        // The end is taken in last of all: without it the copy cannot be opened.
        end = records.pop_if(|record| matches!(record, Record::End { .. })).or(end);
        to.load(records).await?;
        progress(CopyProgress::Copied(told.count()));
        cursor = next;
        // Nobody else tends a store that is not whole yet.
        if piece % TEND == 0 || cursor.is_none() {
            while to.move_exchanges().await?.is_some_and(|moved| moved.more) {}
        }
        if cursor.is_none() {
            break;
        }
    }
    let mut copy = Contents::default();
    loop {
        let (records, next) = to.dump(cursor.as_deref(), PIECE).await?;
        for record in &records {
            copy.add(record)?;
        }
        progress(CopyProgress::Verified(copy.count()));
        cursor = next;
        if cursor.is_none() {
            break;
        }
    }
    let copied = Copied { from: told, to: copy, lost };
    if copied.agrees() {
        let end = end.ok_or_else(|| StoreError::Corrupt("the store to copy from told no end".into()))?;
        to.load(vec![end]).await?;
    }
    Ok(copied)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PathRecord;

    fn path(path: &str) -> Record {
        Record::Path(PathRecord { tenant: "acme".into(), path: path.into(), job: "job_1".into() })
    }

    fn contents(records: &[Record]) -> Contents {
        let mut contents = Contents::default();
        for record in records {
            contents.add(record).unwrap();
        }
        contents
    }

    #[test]
    fn order_does_not_matter_and_everything_else_does() {
        let both = contents(&[path("a"), path("b")]);
        assert_eq!(both, contents(&[path("b"), path("a"), Record::End { position: 7 }]));
        assert_eq!(both.sha256(), contents(&[path("b"), path("a")]).sha256());
        for other in [&[path("a")][..], &[path("a"), path("c")], &[path("a"), path("b"), path("b")]] {
            assert_ne!(both, contents(other));
            assert_ne!(both.sha256(), contents(other).sha256());
        }
    }

    #[test]
    fn one_record_has_its_own_hash() {
        // printf '%s' '{"kind":"path","value":{"tenant":"acme","path":"a","job":"job_1"}}' | sha256sum
        let kinds = contents(&[path("a")]).kinds();
        let hash = "de0426edb32b3238ed4e41f8834e63c82b1a797d0ce5dbc07cd02163d57ee24b";
        assert_eq!(kinds.into_iter().find(|(kind, ..)| *kind == "path"), Some(("path", 1, hash.to_owned())));
    }

    #[test]
    fn sums_carry() {
        let mut sum = [0xff; 32];
        let mut two = [0; 32];
        two[31] = 2;
        add(&mut sum, &two);
        let mut one = [0; 32];
        one[31] = 1;
        assert_eq!(sum, one);
    }
}
