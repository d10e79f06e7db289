//! What ElevenLabs speaks: formats of its SDK (PyPI elevenlabs 2.78.0), caps of its help pages.

use longhaul_registry::{MediaRequest, Problem};
use rust_decimal::Decimal;
use serde_json::{Value, json};

/// One `output_format`: the vendor's word, our format and its sample rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Format {
    /// The vendor's word.
    pub(super) word: &'static str,
    codec: &'static str,
    rate: u32,
}

const fn format(word: &'static str, codec: &'static str, rate: u32) -> Format {
    Format { word, codec, rate }
}

/// Every format of the whole-answer route. Of several that fit, the first is taken: what every plan has.
const FORMATS: [Format; 28] = [
    format("mp3_44100_128", "mp3", 44_100),
    format("mp3_44100_96", "mp3", 44_100),
    format("mp3_44100_64", "mp3", 44_100),
    format("mp3_44100_32", "mp3", 44_100),
    format("mp3_44100_192", "mp3", 44_100),
    format("mp3_24000_48", "mp3", 24_000),
    format("mp3_22050_32", "mp3", 22_050),
    format("wav_24000", "wav", 24_000),
    format("wav_8000", "wav", 8_000),
    format("wav_16000", "wav", 16_000),
    format("wav_22050", "wav", 22_050),
    format("wav_32000", "wav", 32_000),
    format("wav_44100", "wav", 44_100),
    format("wav_48000", "wav", 48_000),
    format("pcm_24000", "pcm", 24_000),
    format("pcm_8000", "pcm", 8_000),
    format("pcm_16000", "pcm", 16_000),
    format("pcm_22050", "pcm", 22_050),
    format("pcm_32000", "pcm", 32_000),
    format("pcm_44100", "pcm", 44_100),
    format("pcm_48000", "pcm", 48_000),
    format("opus_48000_128", "opus", 48_000),
    format("opus_48000_96", "opus", 48_000),
    format("opus_48000_64", "opus", 48_000),
    format("opus_48000_32", "opus", 48_000),
    format("opus_48000_192", "opus", 48_000),
    format("ulaw_8000", "ulaw", 8_000),
    format("alaw_8000", "alaw", 8_000),
];

/// Our words for the formats.
const CODECS: [&str; 6] = ["mp3", "wav", "pcm", "opus", "ulaw", "alaw"];

impl Format {
    /// The format of a vendor's word.
    pub(super) fn of(word: &str) -> Option<Self> {
        FORMATS.into_iter().find(|format| format.word == word)
    }

    /// The media type of the bytes. Those without a header of their own say rate and channels here; the
    /// vendor's PCM is signed 16 bit, little-endian, mono.
    pub(super) fn mime(self, declared: Option<&str>) -> String {
        let plain = |mime: &str| declared.filter(|declared| !declared.is_empty()).unwrap_or(mime).to_owned();
        match self.codec {
            "mp3" => plain("audio/mpeg"),
            "wav" => plain("audio/wav"),
            "opus" => plain("audio/ogg"),
            "ulaw" => "audio/basic".to_owned(),
            "alaw" => "audio/PCMA;rate=8000;channels=1".to_owned(),
            _ => format!("audio/pcm;rate={};channels=1", self.rate),
        }
    }
}

/// Chooses the `output_format` of format and sample rate, or of the option that names it whole.
pub(super) fn output_format(
    media: &MediaRequest,
    option: Option<&Value>,
    problems: &mut Vec<Problem>,
) -> Option<Format> {
    if let Some(channels) = media.channels.filter(|channels| *channels != 1) {
        let message = format!("speech is mono here, not {channels} channels");
        problems.push(Problem::new("media.channels", "not_allowed", message).allowed(json!([1])));
    }
    let asked = media.format.as_deref().map(|format| if format == "mulaw" { "ulaw" } else { format });
    if let Some(codec) = asked.filter(|codec| !CODECS.contains(codec)) {
        let message = format!("no speech comes as `{codec}`");
        problems.push(Problem::new("media.format", "not_allowed", message).allowed(json!(CODECS)));
        return None;
    }
    let Some(option) = option else {
        let codec = asked.unwrap_or("mp3");
        let rates = || FORMATS.into_iter().filter(|format| format.codec == codec);
        let found = rates().find(|format| media.sample_rate.is_none_or(|rate| rate == format.rate));
        if found.is_none() {
            let mut allowed: Vec<u32> = rates().map(|format| format.rate).collect();
            allowed.sort_unstable();
            allowed.dedup();
            let message = format!("{codec} has no such sample rate here");
            problems.push(Problem::new("media.sample_rate", "not_allowed", message).allowed(json!(allowed)));
        }
        return found;
    };
    let Some(format) = option.as_str().and_then(Format::of) else {
        let words: Vec<&str> = FORMATS.iter().map(|format| format.word).collect();
        let message = format!("{option} is no output format");
        problems.push(Problem::new("vendor.output_format", "not_allowed", message).allowed(json!(words)));
        return None;
    };
    if asked.is_some_and(|codec| codec != format.codec) {
        let message = format!("`{}` is another format; leave one of the two out", format.word);
        problems.push(Problem::new("media.format", "conflict", message).allowed(json!([format.codec])));
    }
    if media.sample_rate.is_some_and(|rate| rate != format.rate) {
        let message = format!("`{}` has another rate; leave one of the two out", format.word);
        problems.push(Problem::new("media.sample_rate", "conflict", message).allowed(json!([format.rate])));
    }
    Some(format)
}

/// Most characters of one text, where the vendor states it.
pub(super) fn cap(model: &str) -> Option<usize> {
    match model {
        "eleven_flash_v2_5" | "eleven_turbo_v2_5" => Some(40_000),
        "eleven_flash_v2" | "eleven_turbo_v2" => Some(30_000),
        "eleven_multilingual_v1" | "eleven_multilingual_v2" | "eleven_monolingual_v1" => Some(10_000),
        _ => None,
    }
}

/// Why a text cannot be spoken by a model.
pub(super) fn unfit(model: &str, text: &str) -> Option<String> {
    if text.trim().is_empty() {
        return Some("the script is empty; give the text to speak".to_owned());
    }
    let characters = text.chars().count();
    let cap = cap(model).filter(|cap| characters > *cap)?;
    Some(format!("{model} takes at most {cap} characters, not {characters}; split the text over several jobs"))
}

/// What a text is likely to cost, in credits: its characters times the model's multiplier. The exact
/// multiplier stands in the account's list of models; flash and turbo cost about half.
pub(super) fn credits(model: &str, text: &str) -> Decimal {
    let half = model.contains("flash") || model.contains("turbo");
    let multiplier = if half { Decimal::new(5, 1) } else { Decimal::ONE };
    (Decimal::from(text.chars().count()) * multiplier).normalize()
}
