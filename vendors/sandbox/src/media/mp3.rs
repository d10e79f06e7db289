//! MPEG audio layer III at a constant bit rate, written without an encoder.
//!
//! Every frame stands alone (no bit reservoir). Its granules hold a few spectral lines of size one in the count1
//! region, whose second code table has four bits for every quadruple, and the loudness is the global gain.
//! Names are those of ISO/IEC 11172-3 and 13818-3.

use super::Media;
use super::bits::Bits;
use super::tune::Tune;

/// Bit rates of layer III by index, MPEG-1 and MPEG-2.
const RATES: [[u32; 15]; 2] = [
    [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320],
    [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160],
];
const SAMPLING: [[u32; 3]; 2] = [[44_100, 48_000, 32_000], [22_050, 24_000, 16_000]];
/// Samples of one granule.
const GRANULE: u32 = 576;
/// Global gain of the loudest syllable.
const LOUD: f32 = 196.0;

#[derive(Debug, Clone, Copy)]
struct Form {
    /// True for MPEG-2, which has one granule a frame instead of two.
    second: bool,
    bitrate_index: u32,
    sampling_index: u32,
    kbps: u32,
    rate: u32,
}

impl Form {
    fn of(rate: u32, kbps: u32) -> Option<Self> {
        let version = SAMPLING.iter().position(|rates| rates.contains(&rate))?;
        let index = |list: &[u32], wanted: u32| list.iter().position(|n| *n == wanted);
        let sampling = index(SAMPLING.get(version)?, rate)?;
        let bitrate = index(RATES.get(version)?.get(1..)?, kbps)? + 1;
        Some(Self {
            second: version == 1,
            bitrate_index: u32::try_from(bitrate).ok()?,
            sampling_index: u32::try_from(sampling).ok()?,
            kbps,
            rate,
        })
    }

    fn granules(self) -> u32 {
        if self.second { 1 } else { 2 }
    }
}

/// Whether layer III has this sample rate and bit rate.
pub(super) fn possible(rate: u32, kbps: u32) -> bool {
    Form::of(rate, kbps).is_some()
}

/// Codes a tune; the length is right to half a frame.
pub(super) fn encode(media: &Media, tune: &Tune) -> Vec<u8> {
    let Some(form) = Form::of(media.sample_rate, media.bitrate_kbps) else { return Vec::new() };
    let per_frame = u64::from(GRANULE * form.granules());
    let samples = media.duration_ms * u64::from(form.rate) / 1000;
    let frames = ((samples + per_frame / 2) / per_frame).max(1);
    // Bytes a frame are rarely whole: a frame is padded by one byte whenever a whole byte has gathered.
    let share = per_frame / 8 * u64::from(form.kbps) * 1000;
    let mut owed = 0;
    let mut out = Vec::new();
    for frame in 0..frames {
        owed += share % u64::from(form.rate);
        let padding = owed >= u64::from(form.rate);
        if padding {
            owed -= u64::from(form.rate);
        }
        let size = usize::try_from(share / u64::from(form.rate)).unwrap_or(0) + usize::from(padding);
        let start = out.len();
        out.extend(one_frame(form, tune, frame, padding));
        out.resize(start + size, 0);
    }
    out
}

fn one_frame(form: Form, tune: &Tune, frame: u64, padding: bool) -> Vec<u8> {
    let granules: Vec<(Bits, u32)> =
        (0..form.granules()).map(|n| granule(form, tune, frame * u64::from(form.granules()) + u64::from(n))).collect();
    let mut bits = Bits::default();
    bits.put(0x7ff, 11); // sync word
    bits.put(if form.second { 0b10 } else { 0b11 }, 2);
    bits.put(0b01, 2); // layer III
    bits.flag(true); // no CRC
    bits.put(form.bitrate_index, 4);
    bits.put(form.sampling_index, 2);
    bits.flag(padding);
    bits.flag(false);
    bits.put(0b1100, 4); // one channel
    bits.put(0b0100, 4); // an original without emphasis
    side_info(&mut bits, form, &granules);
    let mut out = bits.into_bytes();
    let mut main = Bits::default();
    for (lines, _) in granules {
        append(&mut main, lines);
    }
    out.extend(main.into_bytes());
    out
}

fn side_info(bits: &mut Bits, form: Form, granules: &[(Bits, u32)]) {
    if form.second {
        bits.put(0, 8 + 1); // main_data_begin, private bits
    } else {
        bits.put(0, 9 + 5 + 4); // main_data_begin, private bits, scfsi
    }
    for (lines, gain) in granules {
        bits.put(u32::try_from(lines.len()).unwrap_or(0), 12); // part2_3_length
        bits.put(0, 9); // big_values
        bits.put(*gain, 8);
        bits.put(0, if form.second { 9 } else { 4 }); // scalefac_compress: no scale factors
        bits.flag(false); // window_switching_flag
        bits.put(0, 15 + 4 + 3); // table_select, region counts
        if !form.second {
            bits.flag(false); // preflag
        }
        bits.flag(false); // scalefac_scale
        bits.flag(true); // count1table_select: table B
    }
}

/// The spectral lines of one granule and its global gain.
fn granule(form: Form, tune: &Tune, number: u64) -> (Bits, u32) {
    #[allow(clippy::cast_precision_loss)]
    let ms = number as f64 * f64::from(GRANULE) * 1000.0 / f64::from(form.rate);
    let (pitch, loud) = tune.at(ms);
    let mut bits = Bits::default();
    if loud < 0.02 {
        return (bits, 0);
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    let (line, gain) = {
        let width = form.rate as f32 / (2.0 * GRANULE as f32);
        ((pitch / width).max(1.0) as usize, (LOUD + 4.0 * loud.log2()).max(1.0) as u32)
    };
    let lines = [line, line * 2, line * 3];
    // A tone in the middle of a line turns its phase by half a line's worth a granule: two up, two down.
    let negative = number % 4 >= 2;
    for quad in (0..=line * 3).step_by(4) {
        let set = [0, 1, 2, 3].map(|n| lines.contains(&(quad + n)));
        let index = set.iter().fold(0, |index, on| index * 2 + u32::from(*on));
        bits.put(15 - index, 4); // table B: the complement
        for on in set {
            if on {
                bits.flag(negative);
            }
        }
    }
    (bits, gain)
}

fn append(main: &mut Bits, lines: Bits) {
    let mut left = lines.len();
    for byte in lines.into_bytes() {
        let take = left.min(8);
        main.put(u32::from(byte) >> (8 - take), u32::try_from(take).unwrap_or(0));
        left -= take;
    }
}
