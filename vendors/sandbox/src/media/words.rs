//! Reading a medium from a few words.

use super::{Kind, Media};

pub(super) fn parse(text: &str) -> Result<Media, String> {
    let mut words = text.split_whitespace();
    let kind = match words.next().unwrap_or_default() {
        "png" => Kind::Png,
        "jpeg" | "jpg" => Kind::Jpeg,
        "webp" => Kind::Webp,
        "mp4" => Kind::Mp4,
        "wav" => Kind::Wav,
        "pcm" => Kind::Pcm,
        "ulaw" => Kind::Ulaw,
        "alaw" => Kind::Alaw,
        "mp3" => Kind::Mp3,
        "opus" => Kind::Opus,
        other => {
            return Err(format!(
                "unknown format {other:?}; use png, jpeg, webp, mp4, wav, pcm, ulaw, alaw, mp3 or opus"
            ));
        }
    };
    let mut media = Media::new(kind, text);
    let mut audio = false;
    while let Some(word) = words.next() {
        if let Some((width, height)) = word.split_once('x').and_then(|(w, h)| Some((w.parse().ok()?, h.parse().ok()?)))
        {
            (media.width, media.height) = (width, height);
        } else if let Some(ms) = word.strip_suffix('s').and_then(milliseconds) {
            if audio { media.audio_ms = Some(ms) } else { media.duration_ms = ms }
        } else if let Some(fps) = word.strip_suffix("fps").and_then(|n| n.parse().ok()) {
            media.fps = fps;
        } else if let Some(kbps) = word.strip_suffix("kbps").and_then(|n| n.parse().ok()) {
            media.bitrate_kbps = kbps;
        } else if let Ok(rate) = word.parse() {
            media.sample_rate = rate;
        } else {
            match word {
                "mono" => media.channels = 1,
                "stereo" => media.channels = 2,
                "silence" | "black" => media.blank = true,
                "audio" => audio = true,
                "rotation" => {
                    let turn = words.next().and_then(|n| n.parse().ok());
                    media.rotation = turn.ok_or("rotation wants 0, 90, 180 or 270")?;
                }
                "with" | "of" | "coded" => {}
                other => return Err(format!("unknown word {other:?} in {text:?}")),
            }
        }
    }
    check(media, text)
}

fn milliseconds(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let part: u64 = format!("{part:0<3}").get(..3)?.parse().ok()?;
    Some(whole.parse::<u64>().ok()? * 1000 + part)
}

fn check(media: Media, text: &str) -> Result<Media, String> {
    let picture = matches!(media.kind, Kind::Png | Kind::Jpeg | Kind::Webp | Kind::Mp4);
    if picture && (media.width == 0 || media.height == 0 || media.width > 8192 || media.height > 8192) {
        return Err(format!("{text:?} needs a size such as 512x512, at most 8192"));
    }
    if media.kind == Kind::Mp4 && (media.width % 2 == 1 || media.height % 2 == 1 || media.fps == 0) {
        return Err(format!("{text:?}: a video has even sides and at least one frame a second"));
    }
    let timed = !matches!(media.kind, Kind::Png | Kind::Jpeg | Kind::Webp);
    if timed && !(1..=3_600_000).contains(&media.duration_ms) {
        return Err(format!("{text:?} needs a length such as 5.0s, at most an hour"));
    }
    if ![0, 90, 180, 270].contains(&media.rotation) {
        return Err(format!("{text:?}: rotation is 0, 90, 180 or 270"));
    }
    if !(8000..=48_000).contains(&media.sample_rate) {
        return Err(format!("{text:?}: a sample rate is 8000 to 48000"));
    }
    if media.kind == Kind::Mp3 && !super::mp3::possible(media.sample_rate, media.bitrate_kbps) {
        return Err(format!("{text:?}: layer III has no such rate"));
    }
    Ok(media)
}
