//! What a text-to-speech request may hold, and what it costs.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use crate::media::{Kind, Media};
use crate::vendors::fields::{Fields, object, unprocessable};

/// One model: name, most characters of a request, hundredths of a credit a character.
pub(super) const MODELS: [(&str, usize, i64); 8] = [
    ("eleven_v4", 10_000, 100),
    ("eleven_v4_turbo", 40_000, 50),
    ("eleven_v3", 5_000, 100),
    ("eleven_multilingual_v2", 10_000, 100),
    ("eleven_flash_v2_5", 40_000, 50),
    ("eleven_turbo_v2_5", 40_000, 50),
    ("eleven_flash_v2", 30_000, 50),
    ("eleven_turbo_v2", 30_000, 50),
];

const FORMATS: [&str; 28] = [
    "alaw_8000",
    "mp3_22050_32",
    "mp3_24000_48",
    "mp3_44100_128",
    "mp3_44100_192",
    "mp3_44100_32",
    "mp3_44100_64",
    "mp3_44100_96",
    "opus_48000_128",
    "opus_48000_192",
    "opus_48000_32",
    "opus_48000_64",
    "opus_48000_96",
    "pcm_16000",
    "pcm_22050",
    "pcm_24000",
    "pcm_32000",
    "pcm_44100",
    "pcm_48000",
    "pcm_8000",
    "ulaw_8000",
    "wav_16000",
    "wav_22050",
    "wav_24000",
    "wav_32000",
    "wav_44100",
    "wav_48000",
    "wav_8000",
];

/// Characters spoken in a second.
const PACE: u64 = 15;

/// A request that was accepted.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Asked {
    pub(super) text: String,
    pub(super) voice: String,
    pub(super) model: &'static str,
    pub(super) format: &'static str,
    pub(super) logged: bool,
    /// Whole credits.
    pub(super) cost: i64,
    pub(super) settings: Value,
}

/// Reads a request as strictly as the vendor does.
pub(super) fn read(voice: &str, query: &BTreeQuery, body: &[u8]) -> Result<Asked, Box<Response>> {
    let map = object(body)?;
    let mut fields = Fields::new("body", &map);
    let text = fields.required_text("text").to_owned();
    let model = fields.text("model_id").unwrap_or("eleven_multilingual_v2").to_owned();
    fields.text("language_code");
    let settings = fields.any("voice_settings").cloned();
    fields.any("pronunciation_dictionary_locators");
    fields.integer("seed", 0, 4_294_967_295);
    fields.text("previous_text");
    fields.text("next_text");
    for name in ["previous_request_ids", "next_request_ids"] {
        if fields.any(name).is_some_and(|ids| ids.as_array().is_none_or(|ids| ids.len() > 3)) {
            fields.refuse(name, "a list of at most 3 request ids");
        }
    }
    fields.flag("use_pvc_as_ivc");
    fields.choice("apply_text_normalization", &["auto", "on", "off"]);
    fields.flag("apply_language_text_normalization");
    fields.any("audio_effects");
    fields.finish()?;
    let format = read_query(query)?;
    let logged = query.get("enable_logging").is_none_or(|word| word != "false");
    let settings = voice_settings(settings)?;
    if !voice.chars().all(|c| c.is_ascii_alphanumeric()) || voice.to_ascii_lowercase().starts_with("nosuch") {
        let words = format!("A voice with voice_id {voice} was not found.");
        return Err(Box::new(refused(StatusCode::NOT_FOUND, "voice_not_found", &words)));
    }
    let Some((model, most, rate)) = MODELS.into_iter().find(|(name, ..)| *name == model) else {
        let words = format!("A model with model_id {model} does not exist.");
        return Err(Box::new(refused(StatusCode::BAD_REQUEST, "model_not_found", &words)));
    };
    let characters = text.chars().count();
    if characters > most {
        let words = format!("The text has {characters} characters; {model} takes at most {most} a request.");
        return Err(Box::new(refused(StatusCode::BAD_REQUEST, "max_character_limit_exceeded", &words)));
    }
    let cost = (i64::try_from(characters).unwrap_or(i64::MAX).saturating_mul(rate) + 99) / 100;
    Ok(Asked { text, voice: voice.to_owned(), model, format, logged, cost, settings })
}

/// The query's pairs.
pub(super) type BTreeQuery = std::collections::BTreeMap<String, String>;

fn read_query(query: &BTreeQuery) -> Result<&'static str, Box<Response>> {
    let wanted = query.get("output_format").map_or("mp3_44100_128", String::as_str);
    let wrong = |name: &str, kind: &str, message: &str| {
        Box::new(unprocessable(vec![json!({"type": kind, "loc": ["query", name], "msg": message})]))
    };
    if query.get("enable_logging").is_some_and(|word| !["true", "false"].contains(&word.as_str())) {
        return Err(wrong("enable_logging", "bool_parsing", "Input should be a valid boolean"));
    }
    if query.get("optimize_streaming_latency").is_some_and(|word| !word.parse().is_ok_and(|n: u8| n <= 4)) {
        return Err(wrong("optimize_streaming_latency", "less_than_equal", "Input should be between 0 and 4"));
    }
    FORMATS.into_iter().find(|format| *format == wanted).ok_or_else(|| {
        let list: Vec<String> = FORMATS.iter().map(|format| format!("'{format}'")).collect();
        wrong("output_format", "enum", &format!("Input should be {}", list.join(", ")))
    })
}

/// Voice settings with the vendor's defaults filled in.
fn voice_settings(given: Option<Value>) -> Result<Value, Box<Response>> {
    let mut settings =
        json!({"stability": 0.5, "use_speaker_boost": true, "similarity_boost": 0.75, "style": 0.0, "speed": 1.0});
    let empty = Map::new();
    let map = match &given {
        None => &empty,
        Some(Value::Object(map)) => map,
        Some(_) => {
            let problem =
                json!({"type": "model_type", "loc": ["body", "voice_settings"], "msg": "Input should be an object"});
            return Err(Box::new(unprocessable(vec![problem])));
        }
    };
    let mut fields = Fields::new("body", map);
    for name in ["stability", "similarity_boost", "style", "clone_strength"] {
        fields.number(name, 0.0, 1.0);
    }
    let speed = fields.number("speed", 0.0, 10.0);
    fields.flag("use_speaker_boost");
    fields.finish()?;
    if speed.is_some_and(|speed| !(0.7..=1.2).contains(&speed)) {
        let words =
            "Invalid setting for speed received, expected to be greater or equal to 0.7 and less or equal to 1.2";
        return Err(Box::new(refused(StatusCode::BAD_REQUEST, "invalid_voice_settings", words)));
    }
    if let Value::Object(settings) = &mut settings {
        settings.extend(map.iter().map(|(name, value)| (name.clone(), value.clone())));
    }
    Ok(settings)
}

impl Asked {
    /// The sound of this request; `cut` keeps a third of it.
    pub(super) fn sound(&self, cut: bool) -> Media {
        let characters = u64::try_from(self.text.chars().count()).unwrap_or(u64::MAX / 2000);
        let whole = (characters * 1000 / PACE).max(500);
        let speed = self.settings.get("speed").and_then(Value::as_f64).unwrap_or(1.0);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        let whole = (whole as f64 / speed) as u64;
        let ms = if cut { whole / 3 } else { whole };
        let mut parts = self.format.split('_');
        let kind = match parts.next() {
            Some("pcm") => Kind::Pcm,
            Some("wav") => Kind::Wav,
            Some("ulaw") => Kind::Ulaw,
            Some("alaw") => Kind::Alaw,
            Some("opus") => Kind::Opus,
            _ => Kind::Mp3,
        };
        let mut number = || parts.next().and_then(|word| word.parse().ok());
        let rate = number().unwrap_or(44_100);
        let mut media = Media::sound(kind, rate, ms, &format!("{} {}", self.voice, self.text));
        media.bitrate_kbps = number().unwrap_or(128);
        media
    }
}

/// A refusal in the vendor's newer form, which carries the older one too.
pub(super) fn refused(status: StatusCode, code: &str, message: &str) -> Response {
    let kind = match status.as_u16() {
        401 | 403 => "authentication_error",
        429 => "rate_limit_error",
        500.. => "internal_error",
        _ => "invalid_request",
    };
    (status, Json(json!({"detail": {"type": kind, "code": code, "status": code, "message": message}}))).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(body: Value, query: &[(&str, &str)]) -> Result<Asked, Box<Response>> {
        let query = query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        read("voiceA", &query, body.to_string().as_bytes())
    }

    #[test]
    fn characters_cost_what_their_model_says() {
        assert_eq!(ask(json!({"text": "Hello."}), &[]).unwrap().cost, 6);
        // The wire page's example: 6 characters at half a credit.
        assert_eq!(ask(json!({"text": "Hello.", "model_id": "eleven_flash_v2_5"}), &[]).unwrap().cost, 3);
        assert_eq!(ask(json!({"text": "héé"}), &[]).unwrap().cost, 3, "characters, not bytes");
    }

    #[test]
    fn what_cannot_be_spoken_is_refused() {
        let cases = [
            (json!({}), vec![], 422),
            (json!({"text": ""}), vec![], 422),
            (json!({"text": "a", "speed": 1.0}), vec![], 422),
            (json!({"text": "a", "seed": -1}), vec![], 422),
            (json!({"text": "a", "previous_request_ids": ["1", "2", "3", "4"]}), vec![], 422),
            (json!({"text": "a", "voice_settings": {"speed": 1.5}}), vec![], 400),
            (json!({"text": "a", "voice_settings": {"tempo": 1.0}}), vec![], 422),
            (json!({"text": "a"}), vec![("output_format", "mp3_48000_320")], 422),
            (json!({"text": "a"}), vec![("output_format", "flac_44100")], 422),
            (json!({"text": "a", "model_id": "eleven_v9"}), vec![], 400),
            (json!({"text": "a".repeat(10_001)}), vec![], 400),
        ];
        for (body, query, status) in cases {
            assert_eq!(ask(body.clone(), &query).unwrap_err().status(), status, "{query:?}");
        }
        assert!(ask(json!({"text": "a".repeat(10_000)}), &[]).is_ok());
    }
}
