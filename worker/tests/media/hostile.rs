//! Bytes made to break readers. Each must be answered in bounded time and memory; `probe_child.rs` runs
//! the worst of them under real limits.

use crate::corpus::{Corpus, spec};
use std::panic::catch_unwind;

fn boxed(kind: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let mut out = u32::try_from(body.len() + 8).unwrap().to_be_bytes().to_vec();
    out.extend(kind);
    out.extend(body);
    out
}

fn ftyp() -> Vec<u8> {
    boxed(b"ftyp", b"isom\0\0\x02\0isomiso2avc1mp41")
}

#[test]
fn boxes_nested_without_end_are_refused() {
    let corpus = Corpus::new();
    for kind in [b"moov", b"trak", b"udta", b"wave"] {
        let mut nested = Vec::new();
        for _ in 0..20_000u32 {
            let size = u32::try_from(nested.len() + 8).unwrap().to_be_bytes();
            let mut outer = size.to_vec();
            outer.extend(kind);
            outer.append(&mut nested);
            nested = outer;
            if nested.len() > 40_000 {
                break;
            }
        }
        let file = [ftyp(), boxed(b"moov", &nested)].concat();
        let found = spec(&corpus.write("nested.mp4", &file));
        assert_eq!((found.container.as_str(), found.probe.status.as_str()), ("mp4", "limits"));
    }
}

#[test]
fn descriptors_nested_without_end_do_not_overflow_the_stack() {
    let corpus = Corpus::new();
    // Tag 3, a four-byte length, then es_id and flags, over and over: an ES descriptor in an ES descriptor.
    let mut inner = Vec::new();
    for _ in 0..30_000 {
        let size = inner.len() + 3;
        let mut outer = vec![3];
        outer.extend([21, 14, 7, 0].map(|shift| (size >> shift & 0x7F) as u8 | if shift > 0 { 0x80 } else { 0 }));
        outer.extend([0, 1, 0]);
        outer.append(&mut inner);
        inner = outer;
    }
    let esds = boxed(b"esds", &[&[0; 4], inner.as_slice()].concat());
    let mut entry = vec![0; 28];
    entry[16..18].copy_from_slice(&2u16.to_be_bytes());
    entry[24..28].copy_from_slice(&(48_000u32 << 16).to_be_bytes());
    entry.extend(esds);
    let found = spec(&corpus.write("esds.mp4", &sound_file(&boxed(b"mp4a", &entry), &stts(&[(10, 1024)]))));
    assert_eq!(found.audio.unwrap().codec.as_deref(), Some("mp4a"));
}

fn stts(entries: &[(u32, u32)]) -> Vec<u8> {
    let mut body = vec![0; 4];
    body.extend(u32::try_from(entries.len()).unwrap().to_be_bytes());
    for (count, ticks) in entries {
        body.extend(count.to_be_bytes());
        body.extend(ticks.to_be_bytes());
    }
    boxed(b"stts", &body)
}

/// A file with one sound track of this sample description and time table.
fn sound_file(entry: &[u8], stts: &[u8]) -> Vec<u8> {
    let mut mdhd = vec![0; 24];
    mdhd[12..16].copy_from_slice(&48_000u32.to_be_bytes());
    let mut hdlr = vec![0; 25];
    hdlr[8..12].copy_from_slice(b"soun");
    let stsd = boxed(b"stsd", &[&[0, 0, 0, 0, 0, 0, 0, 1], entry].concat());
    let stbl = boxed(b"stbl", &[stsd.as_slice(), stts].concat());
    let mdia = [boxed(b"mdhd", &mdhd), boxed(b"hdlr", &hdlr), boxed(b"minf", &stbl)].concat();
    let trak = boxed(b"trak", &boxed(b"mdia", &mdia));
    [ftyp(), boxed(b"moov", &trak), boxed(b"mdat", &[0; 64])].concat()
}

#[test]
fn forged_counts_are_neither_believed_nor_allocated() {
    let corpus = Corpus::new();
    let entry = boxed(b"sowt", &[0; 28]);
    // The table claims four billion entries and has one.
    let mut table = stts(&[(10, 1024)]);
    table[12..16].copy_from_slice(&u32::MAX.to_be_bytes());
    let found = spec(&corpus.write("entries.mp4", &sound_file(&entry, &table)));
    assert_eq!(found.probe.status, "partial");
    assert_eq!(found.duration_ms, None);
    // One entry claims four billion samples in a file of a few hundred bytes.
    let found = spec(&corpus.write("samples.mp4", &sound_file(&entry, &stts(&[(u32::MAX, 1)]))));
    assert_eq!(found.probe.status, "partial");
    assert_eq!(found.duration_ms, None);
    // A fragment does the same.
    let tfhd = boxed(b"tfhd", &[0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 4, 0]);
    for flags in [0u32, 0x100] {
        let trun = boxed(b"trun", &[flags.to_be_bytes(), u32::MAX.to_be_bytes()].concat());
        let moof = boxed(b"moof", &boxed(b"traf", &[tfhd.clone(), trun].concat()));
        let file = [sound_file(&entry, &stts(&[])), moof].concat();
        let found = spec(&corpus.write("trun.mp4", &file));
        assert_eq!((found.probe.status.as_str(), found.duration_ms), ("partial", None), "{flags:x}");
    }
}

#[test]
fn boxes_larger_than_anything_are_cut_files() {
    let corpus = Corpus::new();
    let mut huge = ftyp();
    huge.extend([0, 0, 0, 1]);
    huge.extend(b"moov");
    huge.extend((u64::MAX - 10).to_be_bytes());
    huge.extend([0; 100]);
    let found = spec(&corpus.write("huge.mp4", &huge));
    assert_eq!((found.complete, found.probe.status.as_str()), (Some(false), "partial"));
    let mut tiny = ftyp();
    tiny.extend([0, 0, 0, 4]);
    tiny.extend(b"moov");
    let found = spec(&corpus.write("tiny.mp4", &tiny));
    assert_eq!((found.complete, found.probe.status.as_str()), (Some(false), "partial"));
    let many = [ftyp(), boxed(b"moov", &boxed(b"free", &[]).repeat(5000))].concat();
    assert_eq!(spec(&corpus.write("many.mp4", &many)).probe.status, "limits");
}

#[test]
fn matroska_of_unknown_and_absurd_sizes() {
    let corpus = Corpus::new();
    let header = [0x1A, 0x45, 0xDF, 0xA3, 0x87, 0x42, 0x82, 0x84, b'w', b'e', b'b', b'm'];
    let segment = [0x18, 0x53, 0x80, 0x67, 0x01, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF];
    // Info of unknown size: not allowed, and nothing to skip by.
    let info = [0x15, 0x49, 0xA9, 0x66, 0x01, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF];
    let found = spec(&corpus.write("unknown.webm", &[&header[..], &segment, &info].concat()));
    assert_eq!((found.container.as_str(), found.probe.status.as_str()), ("webm", "partial"));
    // Tracks that claim a petabyte.
    let tracks = [0x16, 0x54, 0xAE, 0x6B, 0x01, 0x04, 0, 0, 0, 0, 0, 0, 0xAE, 0x80];
    let found = spec(&corpus.write("absurd.webm", &[&header[..], &segment, &tracks].concat()));
    assert_eq!((found.complete, found.probe.status.as_str()), (Some(false), "partial"));
    let found = spec(&corpus.write("bare.webm", &header));
    assert_eq!((found.complete, found.probe.status.as_str()), (Some(false), "partial"));
}

#[test]
fn no_cut_and_no_flipped_byte_makes_a_reader_panic() {
    let corpus = Corpus::new();
    let clip = "-f lavfi -i testsrc=s=64x64:r=10:d=0.4";
    let sine = "-f lavfi -i sine=r=8000:d=0.2";
    let seeds = [
        corpus.make("a.mp4", &format!("{clip} {sine} -c:v libx264 -preset ultrafast -c:a aac")),
        corpus.make("b.mp4", &format!("{clip} -c:v libx264 -preset ultrafast -movflags frag_keyframe+empty_moov")),
        corpus.make("c.webm", &format!("{clip} {sine} -c:v libvpx -c:a libopus -deadline realtime")),
        corpus.make("d.gif", clip),
        corpus.make("e.webp", &format!("{clip} -c:v libwebp")),
        corpus.make("f.png", &format!("{clip} -f apng")),
        corpus.make("g.jpg", &format!("{clip} -frames:v 1")),
        corpus.make("h.avif", "-f lavfi -i testsrc=s=64x64 -frames:v 1 -c:v libaom-av1 -still-picture 1 -cpu-used 8"),
        corpus.make("i.wav", sine),
        corpus.make("j.mp3", sine),
        corpus.make("k.flac", sine),
        corpus.make("l.opus", &format!("{sine} -c:a libopus")),
        corpus.make("m.aiff", sine),
        corpus.make("n.aac", &format!("{sine} -c:a aac -f adts")),
    ];
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for seed in &seeds {
        let bytes = std::fs::read(seed).unwrap();
        for round in 0..250 {
            let mut mutant = bytes.clone();
            if round % 3 == 0 {
                mutant.truncate(random(bytes.len()));
            }
            for _ in 0..random(8) {
                if !mutant.is_empty() {
                    // Headers hold what matters: most flips go there.
                    let span = if random(2) == 0 { mutant.len() } else { mutant.len().min(700) };
                    let at = random(span);
                    let any = random(256) as u8;
                    mutant[at] = [0, 0xFF, 0x7F, 0x80, any][random(5)];
                }
            }
            let path = corpus.write("mutant", &mutant);
            let answer = catch_unwind(|| spec(&path)).expect("probe_file never panics");
            assert!(
                ["ok", "partial", "unsupported", "failed", "limits"].contains(&answer.probe.status.as_str()),
                "{}",
                answer.probe.status
            );
            assert_ne!(
                answer.probe.message.as_deref(),
                Some("the reader gave up on these bytes"),
                "a panic inside: {} round {round}",
                seed.display()
            );
        }
    }
}
