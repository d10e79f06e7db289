use super::*;
use crate::artifacts::{Prober, Staging, describe};
use crate::probe::{Hint, blank};
use longhaul_registry::{AudioSpec, Fraction, ImageSpec, Input, VideoSpec};

fn request(task: &str) -> JobRequest {
    serde_json::from_value(json!({"connector": "c", "task": task})).unwrap()
}

fn spec(container: &str) -> MediaSpec {
    MediaSpec { container: container.to_owned(), complete: Some(true), ..blank(&Hint::default()) }
}

fn clip(width: u32, height: u32, ms: u64) -> MediaSpec {
    MediaSpec {
        duration_ms: Some(ms),
        video: Some(VideoSpec {
            width: Some(width),
            height: Some(height),
            display_width: Some(width),
            display_height: Some(height),
            fps: Some(Fraction { num: 24_000, den: 1001 }),
            ..VideoSpec::default()
        }),
        audio: Some(AudioSpec { sample_rate: Some(48_000), channels: Some(2), ..AudioSpec::default() }),
        ..spec("mp4")
    }
}

fn fields(asked: &MediaRequest, spec: &MediaSpec, count: usize) -> Vec<(String, Value, Value)> {
    let check = spec_check(asked, spec, count, None);
    assert_eq!(check.ok, check.mismatches.is_empty());
    check.mismatches.into_iter().map(|m| (m.field, m.asked, m.got)).collect()
}

fn names(asked: &MediaRequest, spec: &MediaSpec, count: usize) -> Vec<String> {
    fields(asked, spec, count).into_iter().map(|(name, _, _)| name).collect()
}

#[test]
fn size_is_exact_and_duration_has_its_margin() {
    let asked =
        MediaRequest { width: Some(1280), height: Some(720), duration_ms: Some(5000), ..MediaRequest::default() };
    assert!(names(&asked, &clip(1280, 720, 5100), 1).is_empty());
    assert!(names(&asked, &clip(1280, 720, 4900), 1).is_empty());
    assert_eq!(names(&asked, &clip(1280, 720, 5101), 1), ["duration_ms"]);
    assert_eq!(names(&asked, &clip(1280, 720, 3008), 1), ["duration_ms"]);
    assert_eq!(
        fields(&asked, &clip(720, 1280, 5000), 1),
        [("width".to_owned(), json!(1280), json!(720)), ("height".to_owned(), json!(720), json!(1280))]
    );
    assert_eq!(names(&asked, &clip(1280, 721, 5000), 1), ["height"]);
    let long = MediaRequest { duration_ms: Some(60_000), ..MediaRequest::default() };
    assert!(names(&long, &clip(1, 1, 61_200), 1).is_empty());
    assert_eq!(names(&long, &clip(1, 1, 61_201), 1), ["duration_ms"]);
}

#[test]
fn a_turned_clip_or_picture_is_measured_as_it_is_shown() {
    let asked = MediaRequest { width: Some(720), height: Some(1280), ..MediaRequest::default() };
    let mut turned = clip(1280, 720, 5000);
    let video = turned.video.as_mut().unwrap();
    (video.display_width, video.display_height, video.rotation) = (Some(720), Some(1280), Some(90));
    assert!(names(&asked, &turned, 1).is_empty());
    let picture = |orientation| MediaSpec {
        image: Some(ImageSpec { width: Some(1280), height: Some(720), orientation, ..ImageSpec::default() }),
        ..spec("jpeg")
    };
    assert!(names(&asked, &picture(Some(6)), 1).is_empty());
    assert_eq!(names(&asked, &picture(Some(3)), 1), ["width", "height"]);
    assert_eq!(names(&asked, &picture(None), 1), ["width", "height"]);
}

#[test]
fn formats_go_by_the_container() {
    let asked = |format: &str| MediaRequest { format: Some(format.to_owned()), ..MediaRequest::default() };
    for (format, container) in [
        ("png", "png"),
        ("jpg", "jpeg"),
        ("JPEG", "jpeg"),
        ("mp4", "mp4"),
        ("mov", "mov"),
        ("wav", "wav"),
        ("mp3", "mp3"),
        ("mp3_44100_128", "mp3"),
        ("m4a", "mp4"),
        ("aac", "adts"),
        ("pcm", "pcm"),
        ("pcm_24000", "pcm"),
        ("ogg", "ogg"),
    ] {
        assert!(names(&asked(format), &spec(container), 1).is_empty(), "{format} in {container}");
    }
    for (format, container) in
        [("png", "jpeg"), ("mp4", "mov"), ("mp3", "wav"), ("opus", "ogg"), ("wav", "pcm"), ("png", "unknown")]
    {
        assert_eq!(names(&asked(format), &spec(container), 1), ["format"], "{format} in {container}");
    }
    let tiff = MediaSpec { mime: "image/tiff".to_owned(), ..spec("unknown") };
    assert!(names(&asked("tiff"), &tiff, 1).is_empty());
    let opus =
        MediaSpec { audio: Some(AudioSpec { codec: Some("opus".to_owned()), ..AudioSpec::default() }), ..spec("ogg") };
    assert!(names(&asked("opus"), &opus, 1).is_empty());
}

#[test]
fn count_sound_rate_and_silence_are_compared_and_the_unknown_is_let_be() {
    let asked = MediaRequest {
        count: Some(2),
        sample_rate: Some(44_100),
        channels: Some(1),
        fps: Some(24),
        ..MediaRequest::default()
    };
    assert_eq!(names(&asked, &clip(1, 1, 1), 1), ["sample_rate", "channels", "count"]);
    let faster = MediaRequest { fps: Some(30), ..MediaRequest::default() };
    assert_eq!(names(&faster, &clip(1, 1, 1), 1), ["fps"], "24000/1001 is 24 but not 30");
    assert_eq!(names(&asked, &spec("mp4"), 2), Vec::<String>::new(), "nothing is known of this one");
    let check = spec_check(&MediaRequest::default(), &spec("wav"), 1, Some(true));
    assert_eq!((check.ok, check.mismatches[0].field.as_str()), (false, "silence"));
    assert!(spec_check(&MediaRequest::default(), &spec("wav"), 1, Some(false)).ok);
    assert!(spec_check(&MediaRequest::default(), &spec("wav"), 7, None).ok);
}

/// Stages bytes and judges them as the output of a job.
async fn judged(bytes: &[u8], draft: &ArtifactDraft, request: &JobRequest, length: Option<u64>) -> Option<Failure> {
    let dir = tempfile::tempdir().unwrap();
    let staging = Staging::new(dir.path(), 1 << 30).unwrap();
    let mut writer = staging.writer().unwrap();
    writer.write(bytes).await.unwrap();
    let file = writer.finish().await.unwrap();
    let described = describe(&Prober::in_process(), &file, draft, request).await;
    assert_eq!(described.bytes, bytes.len() as u64);
    verdict(&Delivery { described: &described, draft, request, content_length: length })
}

fn link(role: &str) -> ArtifactDraft {
    ArtifactDraft::new(role, DraftSource::Url { url: "https://cdn.example/x".to_owned(), with_key: false })
}

fn code(failure: Option<Failure>) -> String {
    failure.map(|failure| failure.code).unwrap_or_default()
}

#[tokio::test]
async fn nothing_or_a_page_in_place_of_media_is_a_failure() {
    let video = request("video");
    assert_eq!(code(judged(b"", &link("video"), &video, None).await), "output_empty");
    let pages: [&[u8]; 4] =
        [b"<!doctype html><html></html>", b"{\"error\": 1}", b"<?xml version=\"1.0\"?><Error/>", b"link expired"];
    for page in pages {
        let failure = judged(page, &link("video"), &video, None).await.unwrap();
        assert_eq!(failure.kind, FailureKind::OutputExpired);
        let inline = ArtifactDraft::new("video", DraftSource::Base64 { data: String::new() });
        assert_eq!(code(judged(page, &inline, &video, None).await), "output_empty");
        // The same bytes as a text are what was asked for.
        assert_eq!(code(judged(page, &link("report"), &request("agent.code"), None).await), "");
    }
}

/// A WAVE file of this many milliseconds at 24 kHz mono; every sample is `level`.
fn wave(ms: u32, level: i16) -> Vec<u8> {
    let samples = ms * 24;
    let mut out = b"RIFF".to_vec();
    out.extend((36 + samples * 2).to_le_bytes());
    out.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0\xC0\x5D\0\0\x80\xBB\0\0\x02\0\x10\0data");
    out.extend((samples * 2).to_le_bytes());
    out.extend((0..samples).flat_map(|_| level.to_le_bytes()));
    out
}

#[tokio::test]
async fn what_is_cut_short_is_told_by_length_by_container_and_by_script() {
    let mut speech = request("speech");
    let whole = wave(81_000, 900);
    assert_eq!(code(judged(&whole, &link("audio"), &speech, Some(whole.len() as u64)).await), "");
    assert_eq!(code(judged(&whole, &link("audio"), &speech, Some(whole.len() as u64 + 1)).await), "output_truncated");
    let declared = ArtifactDraft { declared_bytes: Some(whole.len() as u64 + 9), ..link("audio") };
    assert_eq!(code(judged(&whole, &declared, &speech, None).await), "output_truncated");
    assert_eq!(code(judged(&whole[..90_000], &link("audio"), &speech, None).await), "output_truncated");

    let script: String = "a plain sentence of even words here. ".chars().cycle().take(1200).collect();
    speech.inputs.push(Input { role: "script".to_owned(), text: Some(script), ..Input::default() });
    let cut = judged(&wave(20_000, 900), &link("audio"), &speech, None).await.unwrap();
    assert_eq!((cut.kind, cut.code.as_str()), (FailureKind::SpecMismatch, "output_truncated"));
    assert!(cut.message.contains("20.0 s"), "{}", cut.message);
    assert_eq!(code(judged(&wave(81_000, 900), &link("audio"), &speech, None).await), "");
    // Silence of the right length is flagged by the check, not failed.
    assert_eq!(code(judged(&wave(81_000, 0), &link("audio"), &speech, None).await), "");
}

#[tokio::test]
async fn a_probe_that_fails_fails_no_job() {
    let noise: Vec<u8> = (0..5000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    assert_eq!(code(judged(&noise, &link("video"), &request("video"), Some(5000)).await), "");
}

#[test]
fn deliverables_that_are_owed_are_named_when_missing() {
    let mut job = request("agent.code");
    job.expect = vec!["patch".to_owned(), "report".to_owned()];
    assert_eq!(missing_deliverables(&job, &["report", "patch", "text"]), None);
    let failure = missing_deliverables(&job, &["report"]).unwrap();
    assert_eq!(failure.kind, FailureKind::OutputEmpty);
    assert!(failure.message.contains("patch") && !failure.message.contains("report"));
}
