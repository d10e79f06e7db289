//! Every medium is read back by ffprobe and decoded by ffmpeg, which must be installed where tests run.

use std::process::Command;

use serde_json::Value;

use super::*;

/// What ffprobe says about a file, with raw formats named.
fn probe(media: &Media, raw: &[&str]) -> Value {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), media.bytes()).unwrap();
    let decoded = Command::new("ffmpeg")
        .args(["-v", "error", "-xerror"])
        .args(raw)
        .arg("-i")
        .arg(file.path())
        .args(["-f", "null", "-"])
        .output()
        .expect("ffmpeg must be installed to test the media");
    let complaints = String::from_utf8_lossy(&decoded.stderr).into_owned();
    assert!(decoded.status.success() && complaints.is_empty(), "{media:?}: {complaints}");
    let probed = Command::new("ffprobe")
        .args(["-v", "error", "-count_frames", "-show_format", "-show_streams", "-of", "json"])
        .args(raw)
        .arg(file.path())
        .output()
        .expect("ffprobe must be installed to test the media");
    assert!(probed.status.success(), "{}", String::from_utf8_lossy(&probed.stderr));
    serde_json::from_slice(&probed.stdout).unwrap()
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_else(|| panic!("{pointer} in {value}"))
}

fn number(value: &Value, pointer: &str) -> u64 {
    value.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("{pointer} in {value}"))
}

fn seconds(value: &Value, pointer: &str) -> f64 {
    text(value, pointer).parse().unwrap()
}

#[test]
fn pictures_have_their_size_and_format() {
    for (kind, codec) in [(Kind::Png, "png"), (Kind::Jpeg, "mjpeg"), (Kind::Webp, "webp")] {
        for (width, height) in [(1536, 864), (64, 64), (33, 17), (1, 1)] {
            let probed = probe(&Media::image(kind, width, height, "brass telescope"), &[]);
            assert_eq!(text(&probed, "/streams/0/codec_name"), codec);
            assert_eq!(number(&probed, "/streams/0/width"), u64::from(width));
            assert_eq!(number(&probed, "/streams/0/height"), u64::from(height));
        }
    }
}

#[test]
fn a_jpeg_shows_the_same_picture_as_a_png() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, name) in [(Kind::Png, "a.png"), (Kind::Jpeg, "a.jpg")] {
        std::fs::write(folder.path().join(name), Media::image(kind, 320, 180, "tram in rain").bytes()).unwrap();
    }
    let compared = Command::new("ffmpeg")
        .current_dir(folder.path())
        .args(["-i", "a.png", "-i", "a.jpg", "-lavfi", "[0]format=yuv444p[a];[1]format=yuv444p[b];[a][b]psnr"])
        .args(["-f", "null", "-"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&compared.stderr).into_owned();
    let psnr: f64 = said.rsplit("average:").next().unwrap().split_whitespace().next().unwrap().parse().unwrap();
    assert!(psnr > 32.0, "{said}");
}

#[test]
fn pictures_of_other_words_differ_and_are_not_flat() {
    let one = Media::image(Kind::Png, 128, 128, "a").bytes();
    assert_eq!(one, Media::image(Kind::Png, 128, 128, "a").bytes());
    assert_ne!(one, Media::image(Kind::Png, 128, 128, "b").bytes());
    let colours: std::collections::BTreeSet<[u8; 3]> =
        Painting::new(128, 128, Some("a")).rgb().chunks(3).map(|rgb| [rgb[0], rgb[1], rgb[2]]).collect();
    assert!(colours.len() > 500, "{}", colours.len());
}

#[test]
fn a_video_of_any_even_size_has_its_length_and_rate() {
    let sizes = [
        (1280, 720),
        (720, 1280),
        (1584, 672),
        (960, 960),
        (832, 1104),
        (1920, 1080),
        (640, 360),
        (16, 16),
        (2, 2),
        (50, 34),
    ];
    for (width, height) in sizes {
        let probed = probe(&Media::video(width, height, 5000, "paper boat"), &[]);
        assert_eq!(text(&probed, "/streams/0/codec_name"), "h264");
        assert_eq!(number(&probed, "/streams/0/width"), u64::from(width));
        assert_eq!(number(&probed, "/streams/0/height"), u64::from(height));
        assert_eq!(text(&probed, "/streams/0/r_frame_rate"), "24/1");
        assert_eq!(text(&probed, "/streams/0/avg_frame_rate"), "24/1");
        assert_eq!(text(&probed, "/streams/0/nb_read_frames"), "120");
        assert!((seconds(&probed, "/streams/0/duration") - 5.0).abs() < 1e-9);
        assert!((seconds(&probed, "/format/duration") - 5.0).abs() < 1e-9);
        assert_eq!(text(&probed, "/streams/0/color_space"), "bt709");
    }
}

#[test]
fn a_video_of_an_odd_length_is_exact_to_the_millisecond() {
    for (ms, frames) in [(1, "1"), (5017, "121"), (10_000, "240"), (41, "1"), (5200, "125")] {
        let probed = probe(&Media::video(128, 96, ms, "x"), &[]);
        assert_eq!(text(&probed, "/streams/0/nb_read_frames"), frames);
        let got = seconds(&probed, "/streams/0/duration");
        #[allow(clippy::cast_precision_loss)]
        let asked = ms as f64 / 1000.0;
        assert!((got - asked).abs() < 1e-4, "asked {asked}, got {got}");
    }
}

#[test]
fn what_a_decoder_shows_is_the_painting() {
    // Decode the first frame and the frame after the pan has come back; both must be near the painted colours.
    let media = Media::video(640, 352, 4000, "clockwork fish");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), media.bytes()).unwrap();
    let shown = Command::new("ffmpeg")
        .args(["-v", "error", "-i"])
        .arg(file.path())
        .args([
            "-vf",
            "scale=in_color_matrix=bt709:in_range=tv",
            "-frames:v",
            "1",
            "-f",
            "rawvideo",
            "-pix_fmt",
            "rgb24",
            "-",
        ])
        .output()
        .unwrap();
    let painting = Painting::new(640, 352, Some("clockwork fish"));
    let (mut worst, mut sum, mut count) = (0_i32, 0_i64, 0_i64);
    for row in 0..22_u32 {
        for column in 0..40_u32 {
            let (x, y) = (column * 16 + 7, row * 16 + 7);
            let at = usize::try_from((y * 640 + x) * 3).unwrap();
            let wanted = painting.colour_at(paint::place(x, 640), paint::place(y, 352));
            for (shown, wanted) in shown.stdout[at..at + 3].iter().zip(wanted) {
                let miss = (i32::from(*shown) - i32::from(wanted)).abs();
                worst = worst.max(miss);
                sum += i64::from(miss);
                count += 1;
            }
        }
    }
    assert!(worst <= 12 && sum / count <= 3, "worst {worst}, mean {}", sum / count);
}

#[test]
fn the_picture_moves() {
    let media = Media::video(640, 352, 1000, "kite");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), media.bytes()).unwrap();
    let sums = Command::new("ffmpeg")
        .args(["-v", "error", "-i"])
        .arg(file.path())
        .args(["-f", "framemd5", "-"])
        .output()
        .unwrap();
    let sums = String::from_utf8(sums.stdout).unwrap();
    let frames: std::collections::BTreeSet<&str> =
        sums.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit(',').next()).collect();
    assert!(frames.len() >= 20, "{sums}");
}

#[test]
fn sound_beside_a_video_has_its_own_length() {
    let probed = probe(&Media::parse("mp4 3.0s 1280x720 with audio 3.008s").unwrap(), &[]);
    assert!((seconds(&probed, "/streams/0/duration") - 3.0).abs() < 1e-9);
    assert_eq!(text(&probed, "/streams/1/codec_name"), "aac");
    assert_eq!(text(&probed, "/streams/1/sample_rate"), "48000");
    assert_eq!(number(&probed, "/streams/1/channels"), 1);
    assert!((seconds(&probed, "/streams/1/duration") - 3.008).abs() < 1e-9);
    assert!((seconds(&probed, "/format/duration") - 3.008).abs() < 1e-9);
}

#[test]
fn a_turned_video_says_so() {
    let probed = probe(&Media::parse("mp4 1.0s coded 1280x720 rotation 90").unwrap(), &[]);
    assert_eq!(number(&probed, "/streams/0/width"), 1280);
    // ffprobe gives counterclockwise degrees: a clockwise turn by 90 reads -90.
    assert_eq!(probed.pointer("/streams/0/side_data_list/0/rotation").and_then(Value::as_i64), Some(-90));
}

#[test]
fn wav_has_its_rate_channels_and_length() {
    for (words, rate, channels, length) in
        [("wav 20.0s 24000 mono", "24000", 1, 20.0), ("wav 1.5s 44100 stereo", "44100", 2, 1.5)]
    {
        let probed = probe(&Media::parse(words).unwrap(), &[]);
        assert_eq!(text(&probed, "/streams/0/codec_name"), "pcm_s16le");
        assert_eq!(text(&probed, "/streams/0/sample_rate"), rate);
        assert_eq!(number(&probed, "/streams/0/channels"), channels);
        assert!((seconds(&probed, "/streams/0/duration") - length).abs() < 1e-6);
    }
}

#[test]
fn bare_samples_are_as_many_as_the_length_asks() {
    for (kind, bytes) in [(Kind::Pcm, 32_000), (Kind::Ulaw, 16_000), (Kind::Alaw, 16_000)] {
        assert_eq!(Media::sound(kind, 8000, 2000, "x").bytes().len(), bytes);
    }
}

#[test]
fn mp3_of_every_rate_has_its_length() {
    let forms = [
        (44_100, 32),
        (44_100, 64),
        (44_100, 96),
        (44_100, 128),
        (44_100, 192),
        (24_000, 48),
        (22_050, 32),
        (48_000, 320),
        (16_000, 32),
    ];
    for (rate, kbps) in forms {
        let media = Media { bitrate_kbps: kbps, ..Media::sound(Kind::Mp3, rate, 10_000, "harp") };
        let probed = probe(&media, &[]);
        assert_eq!(text(&probed, "/streams/0/codec_name"), "mp3");
        assert_eq!(text(&probed, "/streams/0/sample_rate"), rate.to_string());
        assert_eq!(text(&probed, "/streams/0/bit_rate"), (kbps * 1000).to_string());
        assert_eq!(number(&probed, "/streams/0/channels"), 1);
        let per_frame = if rate >= 32_000 { 1152.0 } else { 576.0 };
        let frames: f64 = text(&probed, "/streams/0/nb_read_frames").parse().unwrap();
        let length = frames * per_frame / f64::from(rate);
        assert!((length - 10.0).abs() <= per_frame / f64::from(rate), "{rate} {kbps}: {length}");
        assert!((seconds(&probed, "/format/duration") - 10.0).abs() < 0.08, "{probed}");
    }
}

/// The mean volume in dB as ffmpeg hears it.
fn volume(media: &Media, raw: &[&str]) -> f64 {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), media.bytes()).unwrap();
    let heard = Command::new("ffmpeg")
        .args(raw)
        .arg("-i")
        .arg(file.path())
        .args(["-af", "volumedetect", "-f", "null", "-"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&heard.stderr).into_owned();
    said.rsplit("mean_volume:").next().unwrap().split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn speech_is_audible_and_silence_is_silent() {
    for kind in [Kind::Wav, Kind::Mp3] {
        let mean = volume(&Media::sound(kind, 44_100, 5000, "Good morning."), &[]);
        assert!((-35.0..-10.0).contains(&mean), "{kind:?} {mean}");
    }
    for (kind, raw) in [(Kind::Ulaw, "mulaw"), (Kind::Alaw, "alaw")] {
        let mean = volume(&Media::sound(kind, 8000, 5000, "Good morning."), &["-f", raw, "-ar", "8000"]);
        assert!((-35.0..-10.0).contains(&mean), "{kind:?} {mean}");
    }
    assert!(volume(&Media::parse("wav 2.0s of silence").unwrap(), &[]) < -90.0);
    assert!(volume(&Media::parse("mp3 2.0s of silence").unwrap(), &[]) < -90.0);
}

#[test]
fn opus_ends_where_it_should() {
    let probed = probe(&Media::sound(Kind::Opus, 48_000, 3210, "x"), &[]);
    assert_eq!(text(&probed, "/streams/0/codec_name"), "opus");
    // ffprobe 5.1 counts the pre-skip of 312 samples in.
    assert!((seconds(&probed, "/format/duration") - 3.210).abs() < 0.007, "{probed}");
}

#[test]
fn words_that_describe_nothing_are_refused() {
    for words in
        ["", "gif 2x2", "png", "png 0x4", "mp4 640x360", "mp4 5.0s 641x360", "mp3 1.0s 44100 7kbps", "png 4x4 wobbly"]
    {
        assert!(Media::parse(words).is_err(), "{words}");
    }
    let media = Media::parse("mp4 5.2s 1360x768").unwrap();
    assert_eq!((media.width, media.height, media.duration_ms), (1360, 768, 5200));
}
