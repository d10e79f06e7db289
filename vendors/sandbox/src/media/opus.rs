//! Opus silence in Ogg (RFC 6716, RFC 7845, RFC 3533).

/// A mono full-band CELT packet of 20 ms that decodes to silence.
const SILENCE: [u8; 3] = [0xf8, 0xff, 0xfe];
/// Samples of one packet at 48 kHz.
const PACKET: u64 = 960;
/// Samples a decoder drops at the start.
const PRE_SKIP: u16 = 312;
/// Packets of one page: one second.
const PER_PAGE: u64 = 50;
const SERIAL: u32 = 0x4c48_5342;

/// So many milliseconds of silence.
pub(super) fn encode(ms: u64) -> Vec<u8> {
    let end = ms * 48 + u64::from(PRE_SKIP);
    let packets = end.div_ceil(PACKET).max(1);
    let mut head = b"OpusHead\x01\x01".to_vec();
    head.extend(PRE_SKIP.to_le_bytes());
    head.extend(48_000_u32.to_le_bytes());
    head.extend([0, 0, 0]); // no gain, plain mono
    let mut tags = b"OpusTags".to_vec();
    tags.extend(7_u32.to_le_bytes());
    tags.extend(b"sandbox");
    tags.extend(0_u32.to_le_bytes());
    let mut out = page(2, 0, 0, &[&head]);
    out.extend(page(0, 0, 1, &[&tags]));
    let (mut done, mut number) = (0, 2);
    while done < packets {
        let count = PER_PAGE.min(packets - done);
        done += count;
        let last = done == packets;
        let place = if last { end } else { done * PACKET };
        let body: Vec<&[u8]> = (0..count).map(|_| &SILENCE[..]).collect();
        out.extend(page(if last { 4 } else { 0 }, place, number, &body));
        number += 1;
    }
    out
}

/// One page of packets that are each shorter than 255 bytes.
fn page(kind: u8, place: u64, number: u32, packets: &[&[u8]]) -> Vec<u8> {
    let mut out = b"OggS\x00".to_vec();
    out.push(kind);
    out.extend(place.to_le_bytes());
    out.extend(SERIAL.to_le_bytes());
    out.extend(number.to_le_bytes());
    out.extend([0; 4]);
    out.push(u8::try_from(packets.len()).unwrap_or(u8::MAX));
    out.extend(packets.iter().map(|packet| u8::try_from(packet.len()).unwrap_or(0)));
    out.extend(packets.concat());
    let sum = checksum(&out).to_le_bytes();
    for (at, byte) in sum.into_iter().enumerate() {
        if let Some(place) = out.get_mut(22 + at) {
            *place = byte;
        }
    }
    out
}

/// CRC-32 with the polynomial 04c11db7, no reflection, as Ogg wants it.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |sum, byte| {
        let start = sum ^ (u32::from(*byte) << 24);
        (0..8).fold(start, |crc, _| if crc & 0x8000_0000 == 0 { crc << 1 } else { (crc << 1) ^ 0x04c1_1db7 })
    })
}
