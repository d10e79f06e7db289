//! Baseline JPEG (ITU-T T.81), 4:4:4, with Huffman tables of its own that need no statistics.
//!
//! The AC table gives every symbol that can occur the same eight bits, the DC table four: larger files than a
//! tuned table makes, and nothing to go wrong.

use super::bits::Bits;
use super::paint::Painting;

/// Order of the coefficients (figure A.6).
const ZIGZAG: [usize; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21,
    28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54,
    47, 55, 62, 63,
];

/// Quantiser of coefficient `n` in zigzag order: finer where the eye sees more.
fn step(n: usize) -> u8 {
    u8::try_from(6 + n / 2).unwrap_or(u8::MAX)
}

/// AC symbols: runs of 0 to 15 zeros times sizes of 1 to 10 bits, end of block, and sixteen zeros.
fn ac_symbols() -> Vec<u8> {
    let pairs = (0..16_u8).flat_map(|run| (1..=10_u8).map(move |size| run << 4 | size));
    [0x00, 0xf0].into_iter().chain(pairs).collect()
}

/// Encodes a painting.
pub(super) fn encode(painting: &Painting) -> Vec<u8> {
    let (width, height) = painting.size();
    let mut out = vec![0xff, 0xd8];
    segment(&mut out, 0xe0, b"JFIF\0\x01\x01\0\0\x01\0\x01\0\0");
    let steps: Vec<u8> = std::iter::once(0).chain((0..64).map(step)).collect();
    segment(&mut out, 0xdb, &steps);
    let mut frame = vec![8];
    frame.extend(u16::try_from(height).unwrap_or(u16::MAX).to_be_bytes());
    frame.extend(u16::try_from(width).unwrap_or(u16::MAX).to_be_bytes());
    frame.extend([3, 1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0]);
    segment(&mut out, 0xc0, &frame);
    let mut dc = vec![0x00, 0, 0, 0, 12];
    dc.extend([0; 12]);
    dc.extend(0..12_u8);
    segment(&mut out, 0xc4, &dc);
    let symbols = ac_symbols();
    let mut ac = vec![0x10, 0, 0, 0, 0, 0, 0, 0, u8::try_from(symbols.len()).unwrap_or(0)];
    ac.extend([0; 8]);
    ac.extend(&symbols);
    segment(&mut out, 0xc4, &ac);
    segment(&mut out, 0xda, &[3, 1, 0, 2, 0, 3, 0, 0, 63, 0]);
    for byte in scan(painting, &symbols) {
        out.push(byte);
        if byte == 0xff {
            out.push(0);
        }
    }
    out.extend([0xff, 0xd9]);
    out
}

fn segment(out: &mut Vec<u8>, marker: u8, body: &[u8]) {
    out.extend([0xff, marker]);
    out.extend(u16::try_from(body.len() + 2).unwrap_or(u16::MAX).to_be_bytes());
    out.extend(body);
}

fn scan(painting: &Painting, symbols: &[u8]) -> Vec<u8> {
    let (width, height) = painting.size();
    let pixels = painting.rgb();
    let cosines = cosines();
    let mut codes = [0_u32; 256];
    for (code, symbol) in (0..).zip(symbols) {
        codes[usize::from(*symbol)] = code;
    }
    let mut bits = Bits::default();
    let mut before = [0; 3];
    for top in (0..height).step_by(8) {
        for left in (0..width).step_by(8) {
            for (plane, before) in before.iter_mut().enumerate() {
                let block = block(&pixels, (width, height), (left, top), plane);
                let levels = quantised(&block, &cosines);
                put_block(&mut bits, &levels, before, &codes);
            }
        }
    }
    // The last byte is filled with ones.
    let odd = bits.len() % 8;
    if odd > 0 {
        bits.put(0xff, u32::try_from(8 - odd).unwrap_or(0));
    }
    bits.into_bytes()
}

/// One 8 by 8 block of a plane of Y, Cb, Cr, around zero; beyond the edge the last pixel repeats.
fn block(pixels: &[u8], (width, height): (u32, u32), (left, top): (u32, u32), plane: usize) -> [f32; 64] {
    let mut out = [0.0; 64];
    for (at, value) in (0_u32..).zip(&mut out) {
        let x = (left + at % 8).min(width - 1);
        let y = (top + at / 8).min(height - 1);
        let start = usize::try_from((u64::from(y) * u64::from(width) + u64::from(x)) * 3).unwrap_or(0);
        let Some([r, g, b]) = pixels.get(start..start + 3).and_then(|rgb| rgb.first_chunk::<3>()).copied() else {
            continue;
        };
        let (r, g, b) = (f32::from(r), f32::from(g), f32::from(b));
        *value = match plane {
            0 => 0.299 * r + 0.587 * g + 0.114 * b - 128.0,
            1 => -0.168_736 * r - 0.331_264 * g + 0.5 * b,
            _ => 0.5 * r - 0.418_688 * g - 0.081_312 * b,
        };
    }
    out
}

/// `cosines[u][x]` of the DCT, with its scale.
fn cosines() -> [[f32; 8]; 8] {
    let mut out = [[0.0; 8]; 8];
    for (u, row) in (0_u8..).zip(&mut out) {
        let scale = if u == 0 { 0.125_f32.sqrt() } else { 0.5 };
        for (x, value) in (0_u8..).zip(row) {
            *value = scale * (f32::from(2 * x + 1) * f32::from(u) * std::f32::consts::PI / 16.0).cos();
        }
    }
    out
}

fn quantised(block: &[f32; 64], cosines: &[[f32; 8]; 8]) -> [i32; 64] {
    let mut rows = [0.0; 64];
    for (row, out) in block.chunks_exact(8).zip(rows.chunks_exact_mut(8)) {
        for (value, wave) in out.iter_mut().zip(cosines) {
            *value = row.iter().zip(wave).map(|(sample, cosine)| sample * cosine).sum();
        }
    }
    let mut out = [0; 64];
    for (n, (level, place)) in out.iter_mut().zip(ZIGZAG).enumerate() {
        let (column, wave) = (place % 8, &cosines[place / 8]);
        let sum: f32 = rows.iter().skip(column).step_by(8).zip(wave).map(|(sample, cosine)| sample * cosine).sum();
        #[allow(clippy::cast_possible_truncation)]
        {
            *level = (sum / f32::from(step(n))).round() as i32;
        }
    }
    out
}

fn put_block(bits: &mut Bits, levels: &[i32; 64], before: &mut i32, codes: &[u32; 256]) {
    let difference = levels[0] - *before;
    *before = levels[0];
    let size = size_of(difference);
    bits.put(size, 4);
    put_level(bits, difference, size);
    let mut zeros = 0_usize;
    for level in levels.iter().skip(1) {
        if *level == 0 {
            zeros += 1;
            continue;
        }
        while zeros > 15 {
            bits.put(codes[0xf0], 8);
            zeros -= 16;
        }
        let size = size_of(*level);
        let symbol = (zeros << 4) | usize::try_from(size).unwrap_or(0);
        bits.put(codes.get(symbol).copied().unwrap_or(0), 8);
        put_level(bits, *level, size);
        zeros = 0;
    }
    if zeros > 0 {
        bits.put(codes[0], 8);
    }
}

/// Bits that a value needs.
fn size_of(value: i32) -> u32 {
    32 - value.unsigned_abs().leading_zeros()
}

/// A value in so many bits; negative ones are stored one lower (F.1.2.1).
fn put_level(bits: &mut Bits, value: i32, size: u32) {
    let stored = if value < 0 { value - 1 } else { value };
    #[allow(clippy::cast_sign_loss)]
    bits.put(stored as u32, size);
}
