//! H.264 constrained baseline, written without an encoder: a mosaic in key frames, a slow pan in between.
//!
//! Every macroblock of a key frame is Intra16x16 with a flat prediction from its neighbour and one DC coefficient
//! a plane, coded by CAVLC; so the decoder's picture is known here exactly and errors do not build up. Other
//! frames move the whole picture by a few pixels with one motion vector and leave the rest to P_Skip.
//! Clause and table numbers are those of ITU-T H.264.

use super::bits::Bits;
use super::paint::{Painting, place};

/// Quantiser of every macroblock. At 24 the DC scale is 10 * 16 and its shifts come out even.
const QP: i32 = 24;
/// A key frame every so many frames.
const GOP: usize = 48;

/// A coded video track.
#[derive(Debug, Clone)]
pub(super) struct Track {
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) fps: u32,
    pub(super) sps: Vec<u8>,
    pub(super) pps: Vec<u8>,
    /// One access unit a frame, NAL units prefixed with four bytes of length.
    pub(super) frames: Vec<Vec<u8>>,
}

impl Track {
    /// Whether a frame can be decoded without the ones before it.
    pub(super) fn is_key(frame: usize) -> bool {
        frame.is_multiple_of(GOP)
    }
}

/// Codes a painting as so many frames.
pub(super) fn encode(painting: &Painting, fps: u32, frames: usize) -> Track {
    let (width, height) = painting.size();
    let size = (width.div_ceil(16), height.div_ceil(16));
    let mosaic = mosaic(painting, size);
    // The two kinds of key frame differ in idr_pic_id only, as neighbouring ones must.
    let keys = [key_frame(&mosaic, size, 0), key_frame(&mosaic, size, 1)];
    let reach = usize::try_from(width / 32).unwrap_or(0).min(GOP / 2);
    let frames = (0..frames)
        .map(|frame| {
            let within = frame % GOP;
            if within == 0 {
                return keys[(frame / GOP) % 2].clone();
            }
            let back = within > GOP / 2;
            let step = if back { within - GOP / 2 } else { within };
            let shift = match (step <= reach, back) {
                (false, _) => 0,
                (true, false) => 8,
                (true, true) => -8,
            };
            moved_frame(size, within, shift)
        })
        .collect();
    Track { width, height, fps, sps: sps((width, height), fps), pps: pps(), frames }
}

/// The colours of all macroblocks as Y, Cb and Cr of BT.709 in video range.
fn mosaic(painting: &Painting, (wide, high): (u32, u32)) -> Vec<[i32; 3]> {
    let (width, height) = painting.size();
    let mut out = Vec::new();
    for row in 0..high {
        for column in 0..wide {
            let x = place(column * 16 + 7, width).min(1.0);
            let y = place(row * 16 + 7, height).min(1.0);
            out.push(ycc(painting.colour_at(x, y)));
        }
    }
    out
}

/// BT.709, video range, in sixteen-bit fixed point.
fn ycc([r, g, b]: [u8; 3]) -> [i32; 3] {
    let (r, g, b) = (i32::from(r), i32::from(g), i32::from(b));
    let y = 11_966 * r + 40_254 * g + 4_064 * b;
    let cb = -6_596 * r - 22_189 * g + 28_784 * b;
    let cr = 28_784 * r - 26_145 * g - 2_639 * b;
    [16 + ((y + 32_768) >> 16), 128 + ((cb + 32_768) >> 16), 128 + ((cr + 32_768) >> 16)]
}

/// What a luma DC level adds to every sample (8.5.10: 160 * c >> 2, then + 32 >> 6).
fn luma_gain(level: i32) -> i32 {
    (40 * level + 32) >> 6
}

/// What a chroma DC level adds to every sample (8.5.11: (160 * c << 4) >> 5, then + 32 >> 6).
fn chroma_gain(level: i32) -> i32 {
    (80 * level + 32) >> 6
}

/// The level whose gain comes nearest to a difference, and the sample that results.
fn nearest(predicted: i32, wanted: i32, per_level: (i32, i32), gain: fn(i32) -> i32) -> (i32, i32) {
    let (up, down) = per_level;
    let guess = (wanted - predicted) * down / up;
    let miss = |level: i32| (predicted + gain(level) - wanted).abs();
    let level = (guess - 1..=guess + 1).min_by_key(|level| miss(*level)).unwrap_or(0);
    (level, (predicted + gain(level)).clamp(0, 255))
}

fn key_frame(mosaic: &[[i32; 3]], (wide, _): (u32, u32), idr_pic_id: u32) -> Vec<u8> {
    let mut bits = Bits::default();
    bits.ue(0); // first_mb_in_slice
    bits.ue(7); // slice_type: I, all slices
    bits.ue(0); // pic_parameter_set_id
    bits.put(0, 4); // frame_num
    bits.ue(idr_pic_id);
    bits.put(0, 2); // no_output_of_prior_pics_flag, long_term_reference_flag
    bits.se(QP - 26); // slice_qp_delta
    bits.ue(0); // the loop filter softens the edges of the mosaic
    bits.se(3); // slice_alpha_c0_offset_div2
    bits.se(3); // slice_beta_offset_div2
    let wide = usize::try_from(wide).unwrap_or(1);
    let mut made: Vec<[i32; 3]> = Vec::with_capacity(mosaic.len());
    for (at, wanted) in mosaic.iter().enumerate() {
        let left = (at % wide > 0).then(|| made.last().copied()).flatten();
        let above = at.checked_sub(wide).and_then(|above| made.get(above)).copied();
        // Prediction modes (tables 8-4 and 8-5): horizontal from the left, vertical from above, DC from nothing.
        let (luma_mode, chroma_mode, predicted) = match (left, above) {
            (Some(left), _) => (1, 1, left),
            (None, Some(above)) => (0, 2, above),
            (None, None) => (2, 0, [128; 3]),
        };
        let (y, y_made) = nearest(predicted[0], wanted[0], (40, 64), luma_gain);
        let (cb, cb_made) = nearest(predicted[1], wanted[1], (80, 64), chroma_gain);
        let (cr, cr_made) = nearest(predicted[2], wanted[2], (80, 64), chroma_gain);
        let chroma = cb != 0 || cr != 0;
        bits.ue(1 + luma_mode + if chroma { 4 } else { 0 }); // mb_type (table 7-11), no AC
        bits.ue(chroma_mode);
        bits.se(0); // mb_qp_delta
        one_coefficient(&mut bits, y, Plane::Luma);
        if chroma {
            one_coefficient(&mut bits, cb, Plane::Chroma);
            one_coefficient(&mut bits, cr, Plane::Chroma);
        }
        made.push([y_made, cb_made, cr_made]);
    }
    bits.trail();
    nal(0x65, &bits.into_bytes())
}

#[derive(Clone, Copy, PartialEq)]
enum Plane {
    Luma,
    Chroma,
}

/// A residual block whose only coefficient, if any, is the first (9.2).
fn one_coefficient(bits: &mut Bits, level: i32, plane: Plane) {
    // coeff_token (table 9-5) for no coefficient, one trailing one, one other; nC is 0 or, for chroma DC, -1.
    let [none, one, other] = match plane {
        Plane::Luma => [(1, 1), (1, 2), (0b101, 6)],
        Plane::Chroma => [(1, 2), (1, 1), (0b111, 6)],
    };
    match level {
        0 => {
            bits.put(none.0, none.1);
            return;
        }
        1 | -1 => {
            bits.put(one.0, one.1);
            bits.flag(level < 0);
        }
        _ => {
            bits.put(other.0, other.1);
            // 9.2.2.1 with suffixLength 0; the first level after no trailing ones is stored two lower.
            let code = (if level > 0 { 2 * level - 2 } else { -2 * level - 1 }) - 2;
            let code = u32::try_from(code).unwrap_or(0);
            match code {
                0..14 => bits.put(1, code + 1),
                14..30 => {
                    bits.put(1, 15);
                    bits.put(code - 14, 4);
                }
                _ => {
                    bits.put(1, 16);
                    bits.put(code - 30, 12);
                }
            }
        }
    }
    bits.put(1, 1); // total_zeros 0 (tables 9-7 and 9-9)
}

/// A frame that is the one before it, moved by `shift` quarter pixels.
fn moved_frame((wide, high): (u32, u32), number: usize, shift: i32) -> Vec<u8> {
    let mut bits = Bits::default();
    bits.ue(0); // first_mb_in_slice
    bits.ue(5); // slice_type: P, all slices
    bits.ue(0); // pic_parameter_set_id
    bits.put(u32::try_from(number % 16).unwrap_or(0), 4); // frame_num
    bits.put(0, 3); // no override of the list size, no list change, sliding window
    bits.se(QP - 26);
    bits.ue(1); // no loop filter: there is no new edge
    let mut skipped = 0;
    for row in 0..high {
        for column in 0..wide {
            // 8.4.1.1: at the top and left edges P_Skip would mean no motion; elsewhere it means the neighbours'.
            if shift == 0 || (row > 0 && column > 0) {
                skipped += 1;
                continue;
            }
            bits.ue(skipped);
            skipped = 0;
            bits.ue(0); // mb_type P_L0_16x16
            // The prediction is the neighbour's vector for every macroblock but the first, which has none.
            bits.se(if row == 0 && column == 0 { shift } else { 0 });
            bits.se(0);
            bits.ue(0); // coded_block_pattern 0 (table 9-4, inter)
        }
    }
    if skipped > 0 {
        bits.ue(skipped);
    }
    bits.trail();
    nal(0x41, &bits.into_bytes())
}

/// Frame size and macroblocks a second of each level (table A-1).
const LEVELS: [(u32, u64, u64); 14] = [
    (10, 99, 1_485),
    (11, 396, 3_000),
    (12, 396, 6_000),
    (13, 396, 11_880),
    (21, 792, 19_800),
    (22, 1_620, 20_250),
    (30, 1_620, 40_500),
    (31, 3_600, 108_000),
    (32, 5_120, 216_000),
    (40, 8_192, 245_760),
    (42, 8_704, 522_240),
    (50, 22_080, 589_824),
    (51, 36_864, 983_040),
    (52, 36_864, 2_073_600),
];

fn level((width, height): (u32, u32), fps: u32) -> u32 {
    let frame = u64::from(width.div_ceil(16)) * u64::from(height.div_ceil(16));
    // A side may be at most the square root of eight frames long.
    let side = u64::from(width.div_ceil(16).max(height.div_ceil(16)));
    let fits = |(_, most, rate): &&(u32, u64, u64)| {
        frame <= *most && side * side <= *most * 8 && frame * u64::from(fps) <= *rate
    };
    LEVELS.iter().find(fits).map_or(52, |(level, ..)| *level)
}

fn sps((width, height): (u32, u32), fps: u32) -> Vec<u8> {
    let (wide, high) = (width.div_ceil(16), height.div_ceil(16));
    let mut bits = Bits::default();
    bits.put(66, 8); // profile_idc: baseline
    bits.put(0b1100_0000, 8); // constraint sets 0 and 1: constrained baseline
    bits.put(level((width, height), fps), 8);
    bits.ue(0); // seq_parameter_set_id
    bits.ue(0); // log2_max_frame_num_minus4
    bits.ue(2); // pic_order_cnt_type: output in coding order
    bits.ue(1); // max_num_ref_frames
    bits.flag(false); // gaps_in_frame_num_value_allowed_flag
    bits.ue(wide - 1);
    bits.ue(high - 1);
    bits.flag(true); // frame_mbs_only_flag
    bits.flag(true); // direct_8x8_inference_flag
    let crop = (wide * 16 - width, high * 16 - height);
    bits.flag(crop != (0, 0));
    if crop != (0, 0) {
        for units in [0, crop.0 / 2, 0, crop.1 / 2] {
            bits.ue(units);
        }
    }
    bits.flag(true); // vui_parameters_present_flag
    vui(&mut bits, fps);
    bits.trail();
    let mut unit = vec![0x67];
    unit.extend(escaped(&bits.into_bytes()));
    unit
}

fn vui(bits: &mut Bits, fps: u32) {
    bits.flag(true); // aspect_ratio_info_present_flag
    bits.put(1, 8); // square samples
    bits.flag(false); // overscan_info_present_flag
    bits.flag(true); // video_signal_type_present_flag
    bits.put(5, 3); // video_format: unspecified
    bits.flag(false); // video_full_range_flag
    bits.flag(true); // colour_description_present_flag
    for _ in 0..3 {
        bits.put(1, 8); // BT.709
    }
    bits.flag(false); // chroma_loc_info_present_flag
    bits.flag(true); // timing_info_present_flag
    bits.put(1, 32);
    bits.put(fps * 2, 32); // ticks count fields
    bits.flag(true); // fixed_frame_rate_flag
    bits.put(0, 3); // no HRD parameters, no pic_struct
    bits.flag(true); // bitstream_restriction_flag
    bits.flag(true); // motion_vectors_over_pic_boundaries_flag
    for value in [0, 0, 10, 10, 0, 1] {
        // no byte or bit limit, vectors below 1024 quarter pixels, no reordering, one reference
        bits.ue(value);
    }
}

fn pps() -> Vec<u8> {
    let mut bits = Bits::default();
    bits.ue(0); // pic_parameter_set_id
    bits.ue(0); // seq_parameter_set_id
    bits.flag(false); // entropy_coding_mode_flag: CAVLC
    bits.flag(false); // bottom_field_pic_order_in_frame_present_flag
    bits.ue(0); // num_slice_groups_minus1
    bits.ue(0); // num_ref_idx_l0_default_active_minus1
    bits.ue(0); // num_ref_idx_l1_default_active_minus1
    bits.put(0, 3); // no weighted prediction
    bits.se(0); // pic_init_qp_minus26
    bits.se(0); // pic_init_qs_minus26
    bits.se(0); // chroma_qp_index_offset
    bits.flag(true); // deblocking_filter_control_present_flag
    bits.flag(false); // constrained_intra_pred_flag
    bits.flag(false); // redundant_pic_cnt_present_flag
    bits.trail();
    let mut unit = vec![0x68];
    unit.extend(escaped(&bits.into_bytes()));
    unit
}

/// A NAL unit behind four bytes of its length.
fn nal(head: u8, payload: &[u8]) -> Vec<u8> {
    let payload = escaped(payload);
    let length = u32::try_from(payload.len() + 1).unwrap_or(u32::MAX);
    let mut out = Vec::with_capacity(payload.len() + 5);
    out.extend_from_slice(&length.to_be_bytes());
    out.push(head);
    out.extend(payload);
    out
}

/// Emulation prevention (7.4.1): no three bytes may look like a start code.
fn escaped(payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(payload.len() + payload.len() / 64);
    let mut zeros = 0;
    for byte in payload {
        if zeros >= 2 && *byte <= 3 {
            out.push(3);
            zeros = 0;
        }
        out.push(*byte);
        zeros = if *byte == 0 { zeros + 1 } else { 0 };
    }
    out
}
