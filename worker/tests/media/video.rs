use crate::corpus::{Corpus, agree, assert_ok, probed, spec};
use longhaul_registry::{ColourSpec, Fraction, MediaSpec};

/// Picture and sound of five seconds, as the encoder is asked for them.
const CLIP: &str = "-f lavfi -i testsrc=s=320x180:r=24:d=5 -f lavfi -i sine=f=440:r=48000:d=5 -shortest";
const X264: &str = "-c:v libx264 -preset ultrafast -pix_fmt yuv420p";

fn fps(spec: &MediaSpec) -> (u32, u32, &str) {
    let video = spec.video.as_ref().unwrap();
    let Fraction { num, den } = video.fps.unwrap();
    (num, den, video.fps_kind.as_deref().unwrap())
}

fn size(spec: &MediaSpec) -> (u32, u32, u32, u32) {
    let video = spec.video.as_ref().unwrap();
    (video.width.unwrap(), video.height.unwrap(), video.display_width.unwrap(), video.display_height.unwrap())
}

#[test]
fn h264_with_aac_whether_the_moov_comes_last_or_first() {
    let corpus = Corpus::new();
    for (name, flags) in [("last.mp4", ""), ("first.mp4", "-movflags +faststart")] {
        let path = corpus.make(name, &format!("{CLIP} {X264} -c:a aac {flags}"));
        let spec = spec(&path);
        assert_ok(&spec);
        assert_eq!((spec.mime.as_str(), spec.container.as_str()), ("video/mp4", "mp4"));
        assert_eq!((spec.duration_ms, spec.duration_source.as_deref()), (Some(5000), Some("track")));
        assert_eq!(fps(&spec), (24, 1, "const"));
        assert_eq!(size(&spec), (320, 180, 320, 180));
        let video = spec.video.unwrap();
        assert_eq!(video.frames, Some(120));
        assert_eq!(video.duration_ms, Some(5000));
        assert_eq!(video.rotation, Some(0));
        assert_eq!(video.bit_depth, Some(8));
        assert!(video.codec.unwrap().starts_with("avc1.42"), "ultrafast is a baseline profile");
        let audio = spec.audio.unwrap();
        assert_eq!(
            (audio.codec.as_deref(), audio.sample_rate, audio.channels),
            (Some("mp4a.40.2"), Some(48_000), Some(1))
        );
        assert_eq!(audio.duration_ms, Some(5000), "the edit list takes the encoder's padding off");
        assert_eq!(spec.audio_tracks, Some(1));
        let bytes = std::fs::metadata(&path).unwrap().len();
        assert_eq!(spec.bitrate_bps, Some(bytes * 8 / 5));
        agree(&path, &[]);
    }
}

#[test]
fn fragmented_files_of_every_kind() {
    let corpus = Corpus::new();
    let b_frames = "-c:v libx264 -preset fast -pix_fmt yuv420p";
    for (name, codec, flags) in [
        ("keyframe.mp4", X264, "-g 24 -movflags frag_keyframe+empty_moov"),
        ("b.mp4", b_frames, "-g 24 -movflags frag_keyframe+empty_moov"),
        ("delayed.mp4", b_frames, "-g 24 -movflags frag_keyframe+empty_moov+delay_moov"),
        ("dash.mp4", X264, "-g 24 -movflags frag_keyframe+empty_moov+default_base_moof+separate_moof"),
        ("every.mp4", X264, "-frag_duration 1 -movflags empty_moov"),
        ("hybrid.mp4", X264, "-g 24 -movflags frag_keyframe"),
    ] {
        let path = corpus.make(name, &format!("{CLIP} {codec} -c:a aac {flags}"));
        let spec = spec(&path);
        assert_ok(&spec);
        assert_eq!((spec.mime.as_str(), spec.duration_source.as_deref()), ("video/mp4", Some("fragments")), "{name}");
        assert_eq!(fps(&spec), (24, 1, "const"), "{name}");
        let video = spec.video.as_ref().unwrap();
        assert_eq!(video.frames, Some(120), "{name}");
        let off = video.duration_ms.unwrap().abs_diff(5000);
        assert!(off <= 84, "{name}: {:?}", video.duration_ms);
        // ffprobe counts the encoder's padding where the edit list of a delayed moov takes it off.
        agree(&path, if name == "delayed.mp4" { &["frames", "duration"] } else { &["frames"] });
    }
}

#[test]
fn broken_rates_are_fractions_even_in_millisecond_ticks() {
    let corpus = Corpus::new();
    let source = "-f lavfi -i testsrc=s=320x180:r=30000/1001:d=5";
    for (name, flags) in [("ticks.mp4", ""), ("ms.mp4", "-video_track_timescale 1000"), ("m.mov", ""), ("m.mkv", "")] {
        let path = corpus.make(name, &format!("{source} {X264} {flags}"));
        let spec = spec(&path);
        assert_ok(&spec);
        assert_eq!(fps(&spec), (30_000, 1001, "const"), "{name}");
        assert_eq!(spec.audio, None);
        assert_eq!(spec.audio_tracks, None);
        agree(&path, &["fps"]);
    }
}

#[test]
fn frames_at_uneven_times_are_variable() {
    let corpus = Corpus::new();
    // Every third frame of a run of 30 a second left out, times kept.
    let path = corpus
        .make("vfr.mp4", &format!("-f lavfi -i testsrc=s=320x180:r=30:d=4 -vf select=mod(n\\,3) -vsync vfr {X264}"));
    let spec = spec(&path);
    assert_ok(&spec);
    let (num, den, kind) = fps(&spec);
    assert_eq!(kind, "vfr");
    let average = f64::from(num) / f64::from(den);
    assert!((19.5..20.6).contains(&average), "{average}");
    assert_eq!(spec.video.unwrap().frames, Some(80));
}

#[test]
fn high_dynamic_range_and_deep_pictures() {
    let corpus = Corpus::new();
    let hdr = "-colorspace bt2020nc -color_primaries bt2020 -color_trc smpte2084 -color_range tv";
    let path = corpus.make(
        "hdr10.mp4",
        &format!(
            "-f lavfi -i testsrc=s=320x180:r=24:d=1 -c:v libx265 -preset ultrafast -x265-params log-level=error \
             -pix_fmt yuv420p10le {hdr} -tag:v hvc1"
        ),
    );
    let found = spec(&path);
    assert_ok(&found);
    let video = found.video.as_ref().unwrap();
    assert_eq!(video.bit_depth, Some(10));
    assert_eq!(video.hdr.as_deref(), Some("pq"));
    assert_eq!(video.colour, Some(ColourSpec { primaries: 9, transfer: 16, matrix: 9, full_range: false }));
    // Main 10 (profile 2, compatible with 2), main tier, level 2 (60).
    assert!(video.codec.as_ref().unwrap().starts_with("hvc1.2.4.L60"), "{:?}", video.codec);
    assert_eq!(found.duration_ms, Some(1000));
    agree(&path, &[]);

    let path = corpus.make(
        "deep.mp4",
        "-f lavfi -i testsrc=s=320x180:r=24:d=1 -c:v libx264 -preset ultrafast -pix_fmt yuv420p10le \
         -colorspace bt709 -color_primaries bt709 -color_trc bt709",
    );
    let video = spec(&path).video.unwrap();
    assert_eq!(video.bit_depth, Some(10));
    assert_eq!(video.hdr.as_deref(), Some("none"));
    assert!(video.codec.unwrap().starts_with("avc1.6E"), "High 10 is profile 110");
}

#[test]
fn newer_and_older_codecs_have_their_strings() {
    let corpus = Corpus::new();
    let source = "-f lavfi -i testsrc=s=320x180:r=24:d=1 -pix_fmt yuv420p";
    for (name, args, codec) in [
        ("av1.mp4", "-c:v libsvtav1 -preset 12", "av01.0.00M.08"),
        ("vp9.mp4", "-c:v libvpx-vp9 -deadline realtime -cpu-used 8", "vp09.00.11.08"),
        ("mpeg4.mp4", "-c:v mpeg4", "mp4v.20"),
        ("av1.webm", "-c:v libsvtav1 -preset 12", "av01.0.00M.08"),
        ("vp8.webm", "-c:v libvpx -deadline realtime -cpu-used 8", "vp8"),
        ("h264.mkv", X264, "avc1.42C00C"),
    ] {
        let path = corpus.make(name, &format!("{source} {args}"));
        let spec = spec(&path);
        assert_ok(&spec);
        assert_eq!(fps(&spec), (24, 1, "const"), "{name}");
        assert_eq!(size(&spec), (320, 180, 320, 180), "{name}");
        let found = spec.video.unwrap();
        assert_eq!(found.frames, Some(24), "{name}");
        assert_eq!(found.codec.as_deref(), Some(codec), "{name}");
        agree(&path, &[]);
    }
}

#[test]
fn prores_in_a_mov_is_measured_from_its_track() {
    let corpus = Corpus::new();
    let path = corpus.make(
        "prores.mov",
        "-f lavfi -i testsrc=s=320x180:r=25:d=1 -f lavfi -i sine=r=48000:d=1 -c:v prores_ks -profile:v 3 -c:a pcm_s16le -ac 2",
    );
    let spec = spec(&path);
    assert_ok(&spec);
    assert_eq!((spec.mime.as_str(), spec.container.as_str()), ("video/quicktime", "mov"));
    assert_eq!((fps(&spec), size(&spec)), ((25, 1, "const"), (320, 180, 320, 180)));
    assert_eq!(spec.video.unwrap().codec.as_deref(), Some("apch"));
    let audio = spec.audio.unwrap();
    assert_eq!((audio.codec.as_deref(), audio.sample_rate), (Some("pcm_s16le"), Some(48_000)));
    assert_eq!((audio.channels, audio.bit_depth), (Some(2), Some(16)));
    agree(&path, &[]);
}

#[test]
fn rotation_and_pixel_aspect_change_what_is_shown() {
    let corpus = Corpus::new();
    // Black with a red corner at the top left: where ffmpeg shows the corner tells how the picture turned.
    corpus.make("flat.mp4", &format!("-f lavfi -i color=black:s=64x32:r=5:d=1,drawbox=0:0:8:8:red:fill {X264}"));
    for angle in [90, 180, 270] {
        let path = corpus.make("turned.mp4", &format!("-i {{dir}}/flat.mp4 -c copy -metadata:s:v:0 rotate={angle}"));
        let shown = corpus.make("turned.raw", "-i {dir}/turned.mp4 -frames:v 1 -f rawvideo -pix_fmt rgb24");
        let pixels = std::fs::read(shown).unwrap();
        let (width, height) = if angle == 180 { (64, 32) } else { (32, 64) };
        let red = |x: usize, y: usize| pixels[(y * width + x) * 3] > 128;
        let corners = [red(2, 2), red(width - 3, 2), red(width - 3, height - 3), red(2, height - 3)];
        let turns = corners.iter().position(|red| *red).unwrap();
        let spec = spec(&path);
        assert_ok(&spec);
        assert_eq!(size(&spec), (64, 32, width as u32, height as u32), "{angle}");
        assert_eq!(spec.video.unwrap().rotation, Some(turns as u16 * 90), "clockwise, {angle}");
        agree(&path, &[]);
    }
    let path = corpus.make("wide.mp4", &format!("-f lavfi -i testsrc=s=720x576:r=25:d=1 -vf setsar=64/45 {X264}"));
    assert_eq!(size(&spec(&path)), (720, 576, 1024, 576));
    let path = corpus.make("wide.mkv", &format!("-f lavfi -i testsrc=s=720x576:r=25:d=1 -vf setsar=64/45 {X264}"));
    assert_eq!(size(&spec(&path)), (720, 576, 1024, 576));
    // 1080 lines are coded as 1088 and cropped.
    let path = corpus.make("crop.mp4", &format!("-f lavfi -i testsrc=s=1920x1080:r=24:d=0.2 {X264}"));
    assert_eq!(size(&spec(&path)), (1920, 1080, 1920, 1080));
}

#[test]
fn edit_lists_say_what_a_player_shows() {
    let corpus = Corpus::new();
    corpus.make("long.mp4", &format!("{CLIP} {X264} -g 24 -c:a aac"));
    let path = corpus.make("trimmed.mp4", "-ss 1.5 -i {dir}/long.mp4 -t 2 -c copy");
    let found = spec(&path);
    assert_eq!(found.video.as_ref().unwrap().duration_ms.map(|ms| ms.abs_diff(2000) <= 42), Some(true), "{found:#?}");

    let path = corpus.make(
        "aac.mp4",
        &format!("-f lavfi -i testsrc=s=320x180:r=25:d=2 -f lavfi -i sine=r=48000:d=2 {X264} -c:a aac"),
    );
    let found = spec(&path);
    assert_eq!(found.duration_ms, Some(2000));
    assert_eq!(found.audio.unwrap().duration_ms, Some(2000));

    let path = corpus.make(
        "late.mp4",
        &format!(
            "-f lavfi -i testsrc=s=320x180:r=25:d=2 -itsoffset 0.7 -f lavfi -i sine=r=48000:d=2 \
             -map 0:v -map 1:a {X264} -c:a aac"
        ),
    );
    let found = spec(&path);
    assert_eq!(found.video.unwrap().duration_ms, Some(2000));
    assert_eq!(found.audio.unwrap().duration_ms, Some(2700));
    assert_eq!(found.duration_ms, Some(2700));
    agree(&path, &[]);
}

#[test]
fn several_audio_tracks_are_counted_and_the_default_described() {
    let corpus = Corpus::new();
    let inputs = "-f lavfi -i testsrc=s=320x180:r=25:d=1 -f lavfi -i sine=r=44100:d=1 -f lavfi -i sine=r=48000:d=1";
    for (name, audio) in [("two.mp4", "-c:a aac"), ("two.mkv", "-c:a libopus -ar:a:0 24000")] {
        let path = corpus.make(
            name,
            &format!("{inputs} -map 0:v -map 1:a -map 2:a {X264} {audio} -ac:a:1 2 -disposition:a:0 0 -disposition:a:1 default"),
        );
        let spec = spec(&path);
        assert_ok(&spec);
        assert_eq!(spec.audio_tracks, Some(2), "{name}");
        let audio = spec.audio.unwrap();
        assert_eq!((audio.sample_rate, audio.channels), (Some(48_000), Some(2)), "{name}");
    }
}

#[test]
fn webm_with_and_without_a_duration() {
    let corpus = Corpus::new();
    let clip = "-c:v libvpx-vp9 -deadline realtime -cpu-used 8 -c:a libopus";
    let path = corpus.make("seekable.webm", &format!("{CLIP} {clip}"));
    let found = spec(&path);
    assert_ok(&found);
    assert_eq!((found.mime.as_str(), found.container.as_str()), ("video/webm", "webm"));
    assert_eq!(found.duration_source.as_deref(), Some("header"));
    assert!(found.duration_ms.unwrap().abs_diff(5000) <= 20, "{:?}", found.duration_ms);
    assert_eq!(fps(&found), (24, 1, "const"));
    assert_eq!(found.video.as_ref().unwrap().frames, Some(120));
    // The encoder's pre-skip moves the picture 7 ms back.
    assert_eq!(found.video.as_ref().unwrap().duration_ms, Some(5007));
    let audio = found.audio.as_ref().unwrap();
    assert_eq!((audio.codec.as_deref(), audio.sample_rate, audio.channels), (Some("opus"), Some(48_000), Some(1)));
    agree(&path, &[]);

    let path = corpus.make("live.webm", &format!("{CLIP} {clip} -live 1"));
    let found = spec(&path);
    assert_ok(&found);
    assert_eq!(found.duration_source.as_deref(), Some("scan"));
    // The last block of sound is a whole one of 20 ms.
    assert!(found.duration_ms.unwrap().abs_diff(5000) <= 28, "{:?}", found.duration_ms);
    assert_eq!(fps(&found), (24, 1, "const"));

    let path = corpus.make("sound.webm", "-f lavfi -i sine=r=48000:d=1 -c:a libopus");
    assert_eq!(spec(&path).mime, "audio/webm");
    let path = corpus.make("h264.mkv", &format!("{CLIP} {X264} -c:a libopus"));
    let found = spec(&path);
    assert_eq!((found.mime.as_str(), found.container.as_str()), ("video/x-matroska", "mkv"));
    agree(&path, &[]);
}

#[test]
fn cut_downloads_are_incomplete_and_keep_what_can_be_read() {
    let corpus = Corpus::new();
    let first = corpus.make("first.mp4", &format!("{CLIP} {X264} -c:a aac -movflags +faststart"));
    let found = spec(&corpus.cut("cut-first.mp4", &first, |len| len * 6 / 10));
    assert_eq!(found.complete, Some(false));
    assert_eq!((found.mime.as_str(), size(&found)), ("video/mp4", (320, 180, 320, 180)));

    let last = corpus.make("last.mp4", &format!("{CLIP} {X264} -c:a aac"));
    for (share, name) in [(6, "in the media"), (10, "in the moov")] {
        let found =
            spec(&corpus.cut("cut-last.mp4", &last, |len| if share == 10 { len - 40 } else { len * share / 10 }));
        assert_eq!((found.complete, found.probe.status.as_str()), (Some(false), "partial"), "{name}");
        assert_eq!(found.container, "mp4");
    }

    let webm = corpus.make("whole.webm", &format!("{CLIP} -c:v libvpx -deadline realtime -cpu-used 8 -c:a libvorbis"));
    let found = spec(&corpus.cut("cut.webm", &webm, |len| len / 2));
    assert_eq!((found.complete, found.probe.status.as_str()), (Some(false), "partial"));
    assert_eq!(size(&found), (320, 180, 320, 180));

    let fragmented =
        corpus.make("frag.mp4", &format!("{CLIP} {X264} -g 24 -c:a aac -movflags frag_keyframe+empty_moov"));
    let found = spec(&corpus.cut("cut-frag.mp4", &fragmented, |len| len / 2));
    assert_eq!(found.complete, Some(false));
    assert!(found.duration_ms.unwrap() < 4500, "{:?}", found.duration_ms);
}

#[test]
fn a_probe_reads_the_head_and_the_moov_and_no_media() {
    let corpus = Corpus::new();
    // Nine gigabytes of nothing behind a box header with a 64-bit size, and the moov after it.
    let small =
        corpus.make("small.mp4", &format!("-f lavfi -i testsrc=s=320x180:r=24:d=1 {X264} -movflags +faststart"));
    let bytes = std::fs::read(&small).unwrap();
    let media = bytes.windows(4).position(|part| part == b"mdat").unwrap() - 4;
    let big = corpus.path("big.mp4");
    let file = std::fs::File::create(&big).unwrap();
    let size = 9u64 << 30;
    let mut head = bytes[..32].to_vec();
    head.extend([0, 0, 0, 1]);
    head.extend(b"mdat");
    head.extend(size.to_be_bytes());
    use std::os::unix::fs::FileExt;
    file.write_all_at(&head, 0).unwrap();
    file.write_all_at(&bytes[32..media], 32 + size).unwrap();
    let found = probed(&big).spec;
    assert_eq!(found.complete, Some(true), "{found:#?}");
    assert_eq!(found.duration_ms, Some(1000));
    assert_eq!(fps(&found), (24, 1, "const"));
}
