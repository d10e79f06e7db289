//! Content encodings, undone piece by piece so that a small answer cannot become a large one unseen.

use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use http::HeaderValue;
use std::io::Write;

/// The most one piece may grow to. Deflate makes at most about 1,030 bytes of one, and pieces of the wire
/// are at most some 16 KiB.
const MAX_PIECE: usize = 32 << 20;

/// Undoes an answer's content encoding.
pub(crate) enum Decoder {
    Plain,
    Gzip(Box<MultiGzDecoder<Vec<u8>>>),
}

impl Decoder {
    /// The decoder an answer needs. Only gzip is ever asked for.
    pub(crate) fn for_encoding(encoding: Option<&HeaderValue>) -> Result<Self, String> {
        let text = encoding.map(|value| String::from_utf8_lossy(value.as_bytes()).trim().to_ascii_lowercase());
        match text.as_deref() {
            None | Some("" | "identity") => Ok(Self::Plain),
            Some("gzip" | "x-gzip") => Ok(Self::Gzip(Box::new(MultiGzDecoder::new(Vec::new())))),
            Some(_) => Err("a content encoding that was not asked for".to_owned()),
        }
    }

    pub(crate) fn is_plain(&self) -> bool {
        matches!(self, Self::Plain)
    }

    /// Decodes one piece.
    pub(crate) fn feed(&mut self, chunk: Bytes) -> Result<Bytes, String> {
        let Self::Gzip(gzip) = self else { return Ok(chunk) };
        for part in chunk.chunks(4096) {
            gzip.write_all(part).map_err(|error| format!("gzip: {error}"))?;
            if gzip.get_ref().len() > MAX_PIECE {
                return Err("gzip: it grows beyond all measure".to_owned());
            }
        }
        Ok(std::mem::take(gzip.get_mut()).into())
    }

    /// Checks that the encoding came to its end, and gives what was still held back.
    pub(crate) fn finish(&mut self) -> Result<Bytes, String> {
        let Self::Gzip(gzip) = self else { return Ok(Bytes::new()) };
        gzip.try_finish().map_err(|error| format!("gzip: {error}"))?;
        Ok(std::mem::take(gzip.get_mut()).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};

    fn packed(plain: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    fn decoder(encoding: &'static str) -> Decoder {
        Decoder::for_encoding(Some(&HeaderValue::from_static(encoding))).unwrap()
    }

    #[test]
    fn gzip_is_undone_whatever_the_pieces() {
        let plain: Vec<u8> = (0..200_000u32).flat_map(|n| (n.wrapping_mul(n)).to_le_bytes()).collect();
        let packed = packed(&plain);
        for size in [1, 7, 4096, packed.len()] {
            let mut decoder = decoder("gzip");
            let mut out = Vec::new();
            for piece in packed.chunks(size) {
                out.extend_from_slice(&decoder.feed(Bytes::copy_from_slice(piece)).unwrap());
            }
            out.extend_from_slice(&decoder.finish().unwrap());
            assert!(out == plain, "pieces of {size}");
        }
    }

    #[test]
    fn a_cut_a_broken_and_an_exploding_body_are_errors() {
        let packed = packed(&vec![0; 100 << 20]);
        let mut cut = decoder("gzip");
        cut.feed(Bytes::copy_from_slice(&packed[..packed.len() / 4])).unwrap();
        assert!(cut.finish().is_err());
        assert!(decoder("gzip").feed(packed.into()).is_err());
        assert!(decoder("gzip").feed(Bytes::from_static(b"no gzip at all, no gzip at all")).is_err());
        assert!(Decoder::for_encoding(Some(&HeaderValue::from_static("br"))).is_err());
    }
}
