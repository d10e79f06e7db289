//! AAC-LC silence, for the sound track of a video.

use super::bits::Bits;

/// Samples of one frame.
pub(super) const FRAME: u64 = 1024;
/// Samples a second.
pub(super) const RATE: u32 = 48_000;

/// AudioSpecificConfig (ISO/IEC 14496-3, 1.6.2.1): AAC LC, 48 kHz, one channel.
pub(super) fn config() -> Vec<u8> {
    let mut bits = Bits::default();
    bits.put(2, 5);
    bits.put(3, 4);
    bits.put(1, 4);
    bits.put(0, 3);
    bits.into_bytes()
}

/// One raw frame without a single spectral line (4.4.2.1: SCE, then END).
pub(super) fn silence() -> Vec<u8> {
    let mut bits = Bits::default();
    bits.put(0, 3); // ID_SCE
    bits.put(0, 4); // element_instance_tag
    bits.put(100, 8); // global_gain
    bits.put(0, 4); // reserved, one long window, sine shape
    bits.put(0, 6); // max_sfb
    bits.put(0, 4); // no prediction, pulses, noise shaping, gain control
    bits.put(7, 3); // ID_END
    bits.into_bytes()
}
