//! PNG, by the `png` crate.

use super::paint::Painting;

/// Encodes the picture that a seed stands for.
pub(super) fn encode(width: u32, height: u32, seed: &str) -> Vec<u8> {
    let pixels = Painting::new(width, height, seed).rgb();
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::Fast);
    let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(&pixels));
    // Writing to memory fails only for sizes that PNG cannot hold, which no caller asks for.
    if written.is_err() { Vec::new() } else { out }
}
