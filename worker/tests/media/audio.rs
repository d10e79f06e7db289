use crate::corpus::{Corpus, agree, assert_ok, declared, probed, spec};
use longhaul_registry::MediaSpec;
use longhaul_worker::probe::{Hint, probe_file};

const SINE: &str = "-f lavfi -i sine=f=440:r=44100:d=5";

fn sound(spec: &MediaSpec) -> (&str, u32, u16, Option<u8>) {
    let audio = spec.audio.as_ref().unwrap();
    assert_eq!(audio.duration_ms, spec.duration_ms);
    assert_eq!(spec.audio_tracks, Some(1));
    (audio.codec.as_deref().unwrap(), audio.sample_rate.unwrap(), audio.channels.unwrap(), audio.bit_depth)
}

#[test]
fn headers_of_uncompressed_sound() {
    let corpus = Corpus::new();
    for (name, args, mime, container, expected) in [
        ("a.wav", "-c:a pcm_s16le", "audio/wav", "wav", ("pcm_s16le", 44_100, 1, Some(16))),
        ("b.wav", "-c:a pcm_s24le -ac 2 -ar 48000", "audio/wav", "wav", ("pcm_s24le", 48_000, 2, Some(24))),
        ("c.wav", "-c:a pcm_f32le", "audio/wav", "wav", ("pcm_f32le", 44_100, 1, Some(32))),
        ("d.wav", "-c:a pcm_u8 -ar 8000", "audio/wav", "wav", ("pcm_u8", 8000, 1, Some(8))),
        ("e.wav", "-c:a pcm_mulaw -ar 8000", "audio/wav", "wav", ("pcm_mulaw", 8000, 1, Some(8))),
        ("f.wav", "-rf64 always -c:a pcm_s16le", "audio/wav", "wav", ("pcm_s16le", 44_100, 1, Some(16))),
        ("g.aiff", "-c:a pcm_s16be", "audio/aiff", "aiff", ("pcm_s16be", 44_100, 1, Some(16))),
        ("h.aiff", "-c:a pcm_s16le", "audio/aiff", "aiff", ("pcm_s16le", 44_100, 1, Some(16))),
        ("i.flac", "-c:a flac", "audio/flac", "flac", ("flac", 44_100, 1, Some(16))),
        ("j.flac", "-c:a flac -sample_fmt s32 -ac 2", "audio/flac", "flac", ("flac", 44_100, 2, Some(24))),
    ] {
        let path = corpus.make(name, &format!("{SINE} {args}"));
        let found = spec(&path);
        assert_ok(&found);
        assert_eq!((found.mime.as_str(), found.container.as_str()), (mime, container), "{name}");
        assert_eq!(sound(&found), expected, "{name}");
        assert_eq!((found.duration_ms, found.duration_source.as_deref()), (Some(5000), Some("header")), "{name}");
        agree(&path, &[]);
    }
}

#[test]
fn compressed_sound() {
    let corpus = Corpus::new();
    for (name, args, mime, container, expected, source) in [
        ("a.mp3", "-c:a libmp3lame -b:a 64k", "audio/mpeg", "mp3", ("mp3", 44_100, 1, None), "header"),
        ("b.mp3", "-c:a libmp3lame -q:a 6 -ac 2", "audio/mpeg", "mp3", ("mp3", 44_100, 2, None), "header"),
        ("c.mp3", "-c:a libmp3lame -ar 22050", "audio/mpeg", "mp3", ("mp3", 22_050, 1, None), "header"),
        ("d.m4a", "-c:a aac", "audio/mp4", "mp4", ("mp4a.40.2", 44_100, 1, None), "track"),
        ("e.ogg", "-c:a libvorbis", "audio/ogg", "ogg", ("vorbis", 44_100, 1, None), "scan"),
        ("f.opus", "-c:a libopus", "audio/ogg", "ogg", ("opus", 48_000, 1, None), "scan"),
        ("g.mp4", "-c:a libopus -ac 2", "audio/mp4", "mp4", ("opus", 48_000, 2, None), "track"),
        ("h.m4a", "-c:a alac", "audio/mp4", "mp4", ("alac", 44_100, 1, Some(16)), "track"),
        ("i.mp4", "-c:a flac -strict -2", "audio/mp4", "mp4", ("flac", 44_100, 1, Some(16)), "track"),
        ("j.ogg", "-c:a flac", "audio/ogg", "ogg", ("flac", 44_100, 1, Some(16)), "scan"),
    ] {
        let path = corpus.make(name, &format!("{SINE} {args}"));
        let found = spec(&path);
        assert_ok(&found);
        assert_eq!((found.mime.as_str(), found.container.as_str()), (mime, container), "{name}");
        assert_eq!(sound(&found), expected, "{name}");
        assert_eq!(found.duration_source.as_deref(), Some(source), "{name}");
        assert!(found.duration_ms.unwrap().abs_diff(5000) <= 1, "{name}: {:?}", found.duration_ms);
        // ffprobe keeps the padding of MP3 and the pre-skip of Opus in the duration.
        let wrong: &[&str] = if name.ends_with("mp3") || name.ends_with("opus") { &["duration"] } else { &[] };
        agree(&path, wrong);
    }
}

#[test]
fn streams_without_a_header_are_counted_frame_by_frame() {
    let corpus = Corpus::new();
    for (name, args) in [("cbr.mp3", "-b:a 64k"), ("vbr.mp3", "-q:a 4")] {
        let path = corpus.make(name, &format!("{SINE} -c:a libmp3lame {args} -write_xing 0 -id3v2_version 0"));
        let found = spec(&path);
        assert_ok(&found);
        assert_eq!((found.mime.as_str(), found.duration_source.as_deref()), ("audio/mpeg", Some("scan")));
        // Five seconds are 191.4 frames of 1152; the encoder adds its delay, so 193 or 194 come out.
        let ms = found.duration_ms.unwrap();
        assert!((5016..=5069).contains(&ms), "{name}: {ms}");
        let cut = corpus.cut("cut.mp3", &path, |len| len / 2 + 7);
        let found = spec(&cut);
        assert_eq!(found.complete, Some(false), "{name}");
    }
    let path = corpus.make("a.aac", &format!("{SINE} -c:a aac -f adts"));
    let found = spec(&path);
    assert_ok(&found);
    assert_eq!((found.mime.as_str(), found.container.as_str()), ("audio/aac", "adts"));
    assert_eq!(sound(&found), ("mp4a.40.2", 44_100, 1, None));
    let ms = found.duration_ms.unwrap();
    // 215.3 frames of 1024 and one of priming: 217.
    assert!((5015..=5039).contains(&ms), "{ms}");
    assert_eq!(spec(&corpus.cut("cut.aac", &path, |len| len / 2)).complete, Some(false));
}

#[test]
fn wave_headers_of_streams_take_the_rest_of_the_file() {
    let corpus = Corpus::new();
    let whole = corpus.make("whole.wav", &format!("{SINE} -c:a pcm_s16le -bitexact"));
    let bytes = std::fs::read(&whole).unwrap();
    assert_eq!(&bytes[36..40], b"data");
    for (name, riff, data) in [
        ("ones.wav", u32::MAX, u32::MAX),
        ("zeros.wav", 0, 0),
        ("signed.wav", 0x7FFF_FFFF, 0x7FFF_FFDB),
        ("round.wav", 0x8000_0024, 0x8000_0000),
    ] {
        let mut streamed = bytes.clone();
        streamed[4..8].copy_from_slice(&riff.to_le_bytes());
        streamed[40..44].copy_from_slice(&data.to_le_bytes());
        let found = spec(&corpus.write(name, &streamed));
        assert_ok(&found);
        assert_eq!((found.duration_ms, found.duration_source.as_deref()), (Some(5000), Some("scan")), "{name}");
    }
    let found = spec(&corpus.cut("cut.wav", &whole, |len| 44 + (len - 44) / 5));
    assert_eq!((found.complete, found.duration_ms), (Some(false), Some(1000)));
    assert_eq!(found.probe.status, "partial");
    // An empty data chunk with another chunk after it is empty, not open.
    let mut empty = bytes[..44].to_vec();
    empty[40..44].copy_from_slice(&0u32.to_le_bytes());
    empty.extend(b"LIST\x04\0\0\0abcd");
    let found = spec(&corpus.write("empty.wav", &empty));
    assert_eq!((found.duration_ms, found.complete), (Some(0), Some(true)));
}

#[test]
fn cut_lossless_and_ogg_files_are_incomplete() {
    let corpus = Corpus::new();
    for (name, args) in
        [("a.flac", "-c:a flac"), ("b.ogg", "-c:a libvorbis"), ("c.opus", "-c:a libopus"), ("d.mp3", "-c:a libmp3lame")]
    {
        let whole = corpus.make(name, &format!("{SINE} {args}"));
        for keep in [3, 7] {
            let found = spec(&corpus.cut(&format!("cut-{name}"), &whole, |len| len * keep / 10 + 5));
            assert_eq!(found.complete, Some(false), "{name} at {keep}/10: {found:#?}");
        }
    }
}

#[test]
fn raw_samples_are_what_they_were_declared_to_be() {
    let corpus = Corpus::new();
    let raw = corpus.make("a.pcm", "-f lavfi -i sine=r=24000:d=2 -f s16le -ac 1");
    let found = declared(&raw, "audio/L16;rate=24000;channels=1").spec;
    assert_ok(&found);
    assert_eq!((found.mime.as_str(), found.container.as_str()), ("audio/l16", "pcm"));
    assert_eq!((found.duration_ms, found.duration_source.as_deref()), (Some(2000), Some("declared")));
    assert_eq!(found.declared_mime.as_deref(), Some("audio/L16;rate=24000;channels=1"));
    assert_eq!(sound(&found), ("pcm_s16be", 24_000, 1, Some(16)));

    let found = declared(&raw, "audio/pcm").spec;
    assert_eq!((found.container.as_str(), found.duration_ms), ("pcm", None));
    let hint = Hint { declared_mime: Some("audio/pcm".to_owned()), sample_rate: Some(24_000), ..Hint::default() };
    assert_eq!(probe_file(&raw, &hint).spec.duration_ms, Some(2000));
    let hint = Hint { asked_format: Some("pcm_24000".to_owned()), ..Hint::default() };
    assert_eq!(probe_file(&raw, &hint).spec.duration_ms, Some(2000));

    let law = corpus.make("a.ul", "-f lavfi -i sine=r=8000:d=3 -f mulaw -ac 1");
    let found = declared(&law, "audio/basic").spec;
    assert_eq!((found.duration_ms, sound(&found)), (Some(3000), ("pcm_mulaw", 8000, 1, Some(8))));

    // A header always wins over what was declared.
    let wave = corpus.make("a.wav", "-f lavfi -i sine=r=24000:d=2");
    let found = declared(&wave, "audio/L16;codec=pcm;rate=24000").spec;
    assert_eq!((found.container.as_str(), found.duration_ms), ("wav", Some(2000)));
    let error = corpus.write("error.pcm", br#"{"error": {"code": 404}}"#);
    assert_eq!(declared(&error, "audio/L16;rate=24000").spec.container, "json");
}

#[test]
fn silence_is_noticed_in_wave_and_raw_samples() {
    let corpus = Corpus::new();
    for (name, args) in [
        ("a.wav", "-c:a pcm_s16le"),
        ("b.wav", "-c:a pcm_s24le"),
        ("c.wav", "-c:a pcm_f32le"),
        ("d.wav", "-c:a pcm_mulaw"),
    ] {
        let quiet = corpus.make(name, &format!("-f lavfi -i anullsrc=r=24000:cl=mono:d=3 {args}"));
        assert_eq!(probed(&quiet).silent, Some(true), "{name}");
        let loud = corpus.make(name, &format!("-f lavfi -i sine=r=24000:d=3 {args}"));
        assert_eq!(probed(&loud).silent, Some(false), "{name}");
        // Silence until the very end, then a word.
        let late = corpus.make(name, &format!("-f lavfi -i sine=r=24000:d=3 -af volume=0:enable='lt(t,2.9)' {args}"));
        assert_eq!(probed(&late).silent, Some(false), "{name}");
    }
    let raw = corpus.make("a.pcm", "-f lavfi -i anullsrc=r=24000:cl=mono:d=3 -f s16le");
    assert_eq!(declared(&raw, "audio/L16;rate=24000").silent, Some(true));
    let mp3 = corpus.make("a.mp3", "-f lavfi -i anullsrc=r=24000:cl=mono:d=1");
    assert_eq!(probed(&mp3).silent, None, "compressed sound is not decoded");
}

#[test]
fn tags_and_cover_pictures_do_not_count_as_sound() {
    let corpus = Corpus::new();
    corpus.make("cover.png", "-f lavfi -i testsrc=s=640x640 -frames:v 1");
    let path = corpus.make(
        "tagged.mp3",
        &format!("{SINE} -i {{dir}}/cover.png -map 0:a -map 1:v -c:a libmp3lame -c:v copy -metadata title=t -id3v2_version 3 -write_id3v1 1"),
    );
    let found = spec(&path);
    assert_ok(&found);
    assert_eq!((found.mime.as_str(), found.video, found.image), ("audio/mpeg", None, None));
    assert!(found.duration_ms.unwrap().abs_diff(5000) <= 1);
    let path = corpus.make(
        "tagged.m4a",
        &format!("{SINE} -i {{dir}}/cover.png -map 0:a -map 1:v -c:a aac -c:v copy -disposition:v attached_pic"),
    );
    let found = spec(&path);
    assert_eq!((found.mime.as_str(), found.video), ("audio/mp4", None));
}
