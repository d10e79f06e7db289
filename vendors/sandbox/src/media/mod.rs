//! Media made on demand, real and playable, in exactly the size, length and format asked for.

mod paint;
mod png;

use bytes::Bytes;

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// PNG, 8 bits, RGB.
    Png,
}

/// One medium: a description from which the same bytes are made every time.
#[derive(Debug, Clone, PartialEq)]
pub struct Media {
    /// Format.
    pub kind: Kind,
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Words from which the picture or the tune is derived.
    pub seed: String,
}

impl Media {
    /// A picture.
    #[must_use]
    pub fn image(kind: Kind, width: u32, height: u32, seed: &str) -> Self {
        Self { kind, width, height, seed: seed.to_owned() }
    }

    /// Reads a description such as `png 1024x1024`.
    ///
    /// # Errors
    /// What is wrong with the words.
    pub fn parse(words: &str) -> Result<Self, String> {
        let mut parts = words.split_whitespace();
        let kind = match parts.next() {
            Some("png") => Kind::Png,
            other => return Err(format!("unknown format {other:?}")),
        };
        let size = parts.next().and_then(|word| word.split_once('x'));
        let size = size.and_then(|(width, height)| Some((width.parse().ok()?, height.parse().ok()?)));
        let (width, height) = size.ok_or_else(|| format!("no size in {words:?}"))?;
        Ok(Self::image(kind, width, height, words))
    }

    /// Content type.
    #[must_use]
    pub fn content_type(&self) -> &'static str {
        match self.kind {
            Kind::Png => "image/png",
        }
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        match self.kind {
            Kind::Png => png::encode(self.width, self.height, &self.seed).into(),
        }
    }
}
