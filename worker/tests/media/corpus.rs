//! Making files, probing them, and asking ffprobe.

use longhaul_registry::MediaSpec;
use longhaul_worker::probe::{Hint, Probed, probe_file};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A folder that is gone when the test ends.
pub(crate) struct Corpus {
    dir: TempDir,
}

impl Corpus {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs ffmpeg with these arguments (split at spaces) and the file as its output.
    pub(crate) fn make(&self, name: &str, args: &str) -> PathBuf {
        let path = self.path(name);
        let args = args.replace("{dir}", self.dir.path().to_str().unwrap());
        let output = Command::new("ffmpeg")
            .args(["-nostdin", "-v", "error", "-y", "-threads", "2"])
            .args(args.split_whitespace())
            .arg(&path)
            .output()
            .expect("ffmpeg must be installed to run these tests");
        assert!(output.status.success(), "ffmpeg {args}: {}", String::from_utf8_lossy(&output.stderr));
        path
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// The first part of a file, as a download that was cut.
    pub(crate) fn cut(&self, name: &str, whole: &Path, keep: impl Fn(usize) -> usize) -> PathBuf {
        let bytes = std::fs::read(whole).unwrap();
        self.write(name, &bytes[..keep(bytes.len())])
    }
}

pub(crate) fn probed(path: &Path) -> Probed {
    probe_file(path, &Hint::default())
}

pub(crate) fn spec(path: &Path) -> MediaSpec {
    probed(path).spec
}

pub(crate) fn declared(path: &Path, mime: &str) -> Probed {
    probe_file(path, &Hint { declared_mime: Some(mime.to_owned()), ..Hint::default() })
}

/// What ffprobe says: `{"streams": […], "format": {…}}`.
pub(crate) fn ffprobe(path: &Path) -> Value {
    let output = Command::new("ffprobe")
        .args(["-v", "error", "-show_streams", "-show_format", "-of", "json"])
        .arg(path)
        .output()
        .expect("ffprobe must be installed to run these tests");
    assert!(output.status.success(), "ffprobe: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn stream<'a>(answer: &'a Value, kind: &str) -> Option<&'a Value> {
    answer["streams"].as_array()?.iter().find(|stream| stream["codec_type"] == kind)
}

fn ms(value: &Value) -> Option<u64> {
    value.as_str()?.parse::<f64>().ok().map(|seconds| (seconds * 1000.0).round() as u64)
}

/// Compares with ffprobe everything that both name; `but` are fields in which ffprobe is known to be wrong.
pub(crate) fn agree(path: &Path, but: &[&str]) {
    let (ours, theirs) = (spec(path), ffprobe(path));
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let same = |field: &str, ours: Option<String>, theirs: Option<String>| {
        if let (false, Some(theirs)) = (but.contains(&field), theirs) {
            assert_eq!(ours.as_deref(), Some(theirs.as_str()), "{name}: {field}");
        }
    };
    let number = |value: &Value| value.as_u64().map(|number| number.to_string());
    if let (Some(video), Some(stream)) = (&ours.video, stream(&theirs, "video")) {
        same("width", video.width.map(|v| v.to_string()), number(&stream["width"]));
        same("height", video.height.map(|v| v.to_string()), number(&stream["height"]));
        let fps = video.fps.map(|fps| format!("{}/{}", fps.num, fps.den));
        same("fps", fps, stream["r_frame_rate"].as_str().map(str::to_owned));
        same("frames", video.frames.map(|v| v.to_string()), stream["nb_frames"].as_str().map(str::to_owned));
    }
    if let (Some(audio), Some(stream)) = (&ours.audio, stream(&theirs, "audio")) {
        same(
            "sample_rate",
            audio.sample_rate.map(|v| v.to_string()),
            stream["sample_rate"].as_str().map(str::to_owned),
        );
        same("channels", audio.channels.map(|v| v.to_string()), number(&stream["channels"]));
    }
    if let Some(theirs) = ms(&theirs["format"]["duration"]).filter(|_| !but.contains(&"duration")) {
        let ours = ours.duration_ms.unwrap_or(0);
        assert!(ours.abs_diff(theirs) <= 1, "{name}: duration {ours} against {theirs}");
    }
}

/// A status of `ok`, with the message where it is not.
pub(crate) fn assert_ok(spec: &MediaSpec) {
    assert_eq!((spec.probe.status.as_str(), spec.probe.message.as_deref()), ("ok", None), "{spec:#?}");
    assert_eq!(spec.complete, Some(true), "{spec:#?}");
}
