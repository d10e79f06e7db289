//! What each Runway video model accepts, and what it costs.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

#[derive(Debug, Clone, Copy)]
enum Seconds {
    /// Any whole number in the range.
    Range(i64, i64),
    /// One of these.
    OneOf(&'static [i64]),
}

/// One model on one route.
#[derive(Debug, Clone, Copy)]
struct Variant {
    model: &'static str,
    /// Ratios of text to video; none where the model wants an image.
    text: Option<&'static [&'static str]>,
    image: &'static [&'static str],
    ratio_required: bool,
    seconds: Seconds,
    /// Length when nothing is said; none where it must be said.
    default_seconds: Option<i64>,
    /// Whether image to video wants words too.
    words_with_image: bool,
    positions: &'static [&'static str],
    /// Credits a second without and with sound.
    price: (i64, i64),
    /// Fields beyond the common ones.
    more: &'static [&'static str],
}

const WIDE: &[&str] = &["1280:720", "720:1280"];
const FULL: &[&str] = &["1280:720", "720:1280", "1080:1920", "1920:1080"];
const MANY: &[&str] = &["1280:720", "720:1280", "1104:832", "960:960", "832:1104", "1584:672"];
const GEN4: &[&str] = &["seed", "contentModeration", "outputFormat", "proresProfile"];
const VEO: &[&str] = &["seed", "audio", "negativePrompt"];

const VARIANTS: [Variant; 5] = [
    Variant {
        model: "gen4.5",
        text: Some(WIDE),
        image: MANY,
        ratio_required: true,
        seconds: Seconds::Range(2, 10),
        default_seconds: None,
        words_with_image: true,
        positions: &["first"],
        price: (12, 12),
        more: GEN4,
    },
    Variant {
        model: "gen4_turbo",
        text: None,
        image: MANY,
        ratio_required: true,
        seconds: Seconds::Range(2, 10),
        default_seconds: Some(10),
        words_with_image: false,
        positions: &["first"],
        price: (5, 5),
        more: &["seed", "contentModeration"],
    },
    Variant {
        model: "veo3.1",
        text: Some(FULL),
        image: FULL,
        ratio_required: true,
        seconds: Seconds::OneOf(&[4, 6, 8]),
        default_seconds: Some(8),
        words_with_image: false,
        positions: &["first", "last"],
        price: (20, 40),
        more: VEO,
    },
    Variant {
        model: "veo3.1_fast",
        text: Some(FULL),
        image: FULL,
        ratio_required: true,
        seconds: Seconds::OneOf(&[4, 6, 8]),
        default_seconds: Some(8),
        words_with_image: false,
        positions: &["first", "last"],
        price: (10, 15),
        more: VEO,
    },
    Variant {
        model: "gemini_omni_flash",
        text: Some(WIDE),
        image: WIDE,
        ratio_required: false,
        seconds: Seconds::Range(3, 10),
        default_seconds: Some(8),
        words_with_image: false,
        positions: &["first"],
        price: (10, 10),
        more: &[],
    },
];

/// The models, for the organisation's limits.
pub(super) fn models() -> impl Iterator<Item = &'static str> {
    VARIANTS.iter().map(|variant| variant.model)
}

/// A request that was accepted.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Asked {
    pub(super) model: &'static str,
    pub(super) prompt: String,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) seconds: i64,
    pub(super) sound: bool,
    pub(super) credits: i64,
}

/// Reads the body of a start as strictly as the vendor does; `image` says which of the two routes it came by.
pub(super) fn read(body: &[u8], image: bool) -> Result<Asked, Box<Response>> {
    let map = match serde_json::from_slice(body) {
        Ok(Value::Object(map)) => map,
        _ => return Err(Box::new(refused(StatusCode::BAD_REQUEST, "The request body is not a JSON object."))),
    };
    let allowed: Vec<&str> = VARIANTS.iter().filter(|one| image || one.text.is_some()).map(|one| one.model).collect();
    let model = map.get("model").and_then(Value::as_str).unwrap_or_default();
    let Some(variant) = VARIANTS.into_iter().find(|one| one.model == model && (image || one.text.is_some())) else {
        let issue = json!({"code": "invalid_union_discriminator", "path": ["model"], "options": allowed,
            "message": "Invalid discriminator value"});
        return Err(Box::new(invalid(vec![issue])));
    };
    let mut reader = Reader { map: &map, issues: Vec::new() };
    let asked = variant.read(&mut reader, image);
    if reader.issues.is_empty() { Ok(asked) } else { Err(Box::new(invalid(reader.issues))) }
}

struct Reader<'a> {
    map: &'a Map<String, Value>,
    issues: Vec<Value>,
}

impl<'a> Reader<'a> {
    fn issue(&mut self, name: &str, code: &str, message: &str, more: Value) {
        let mut issue = json!({"code": code, "path": [name], "message": message});
        if let (Value::Object(issue), Value::Object(more)) = (&mut issue, more) {
            issue.extend(more);
        }
        self.issues.push(issue);
    }

    fn get(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name)
    }

    fn choice(&mut self, name: &str, allowed: &[&'static str], required: bool) -> Option<&'static str> {
        let Some(value) = self.get(name) else {
            if required {
                self.issue(name, "invalid_type", "Required", json!({"expected": allowed}));
            }
            return None;
        };
        let found = value.as_str().and_then(|text| allowed.iter().find(|one| **one == text).copied());
        if found.is_none() {
            self.issue(
                name,
                "invalid_enum_value",
                "Invalid enum value",
                json!({"options": allowed, "received": value}),
            );
        }
        found
    }

    fn typed(&mut self, name: &str, right: fn(&Value) -> bool, expected: &str) {
        if self.get(name).is_some_and(|value| !right(value)) {
            self.issue(name, "invalid_type", "Invalid input", json!({"expected": expected}));
        }
    }
}

impl Variant {
    fn read(self, reader: &mut Reader<'_>, image: bool) -> Asked {
        let prompt = self.words(reader, !image || self.words_with_image);
        if image {
            self.pictures(reader);
        }
        let ratios = if image { self.image } else { self.text.unwrap_or_default() };
        let first = ratios.first().copied().unwrap_or("1280:720");
        let ratio = reader.choice("ratio", ratios, self.ratio_required).unwrap_or(first);
        let seconds = self.length(reader);
        self.options(reader);
        let known = ["model", "promptText", "ratio", "duration"];
        for name in reader.map.keys() {
            let known = known.contains(&name.as_str())
                || self.more.contains(&name.as_str())
                || (image && name == "promptImage");
            if !known {
                reader.issues.push(json!({"code": "unrecognized_keys", "keys": [name], "path": [],
                    "message": format!("Unrecognized key in object: '{name}'")}));
            }
        }
        // Models that can make sound do unless told not to.
        let sound = self.more.contains(&"audio") && reader.get("audio").and_then(Value::as_bool).unwrap_or(true);
        let (width, height) = ratio.split_once(':').unwrap_or(("1280", "720"));
        Asked {
            model: self.model,
            prompt,
            width: width.parse().unwrap_or(1280),
            height: height.parse().unwrap_or(720),
            seconds,
            sound,
            credits: seconds * if sound { self.price.1 } else { self.price.0 },
        }
    }

    fn words(self, reader: &mut Reader<'_>, required: bool) -> String {
        let Some(value) = reader.get("promptText") else {
            if required {
                reader.issue("promptText", "invalid_type", "Required", json!({"expected": "string"}));
            }
            return String::new();
        };
        let text = value.as_str().unwrap_or_default();
        if text.is_empty() {
            reader.issue(
                "promptText",
                "too_small",
                "String must contain at least 1 character(s)",
                json!({"minimum": 1}),
            );
        } else if text.encode_utf16().count() > 1000 {
            let message = "String must contain at most 1000 character(s)";
            reader.issue("promptText", "too_big", message, json!({"maximum": 1000}));
        }
        text.to_owned()
    }

    fn length(self, reader: &mut Reader<'_>) -> i64 {
        let Some(value) = reader.get("duration") else {
            if self.default_seconds.is_none() {
                reader.issue("duration", "invalid_type", "Required", json!({"expected": "integer"}));
            }
            return self.default_seconds.unwrap_or(1);
        };
        let seconds = value.as_i64().unwrap_or(-1);
        match self.seconds {
            Seconds::Range(least, most) if !(least..=most).contains(&seconds) => {
                let message = format!("Number must be an integer from {least} to {most}");
                reader.issue("duration", "invalid_value", &message, json!({"minimum": least, "maximum": most}));
            }
            Seconds::OneOf(list) if !list.contains(&seconds) => {
                reader.issue("duration", "invalid_enum_value", "Invalid enum value", json!({"options": list}));
            }
            Seconds::Range(..) | Seconds::OneOf(_) => {}
        }
        seconds
    }

    fn pictures(self, reader: &mut Reader<'_>) {
        let Some(value) = reader.get("promptImage") else {
            reader.issue("promptImage", "invalid_type", "Required", json!({"expected": "string or array"}));
            return;
        };
        let uris: Vec<&Value> = match value {
            Value::Array(list) if list.is_empty() || list.len() > self.positions.len() => {
                let most = self.positions.len();
                reader.issue(
                    "promptImage",
                    "too_big",
                    "Array has a wrong length",
                    json!({"minimum": 1, "maximum": most}),
                );
                return;
            }
            Value::Array(list) => {
                let known = |position: &Value| self.positions.iter().any(|one| position == one);
                if !list.iter().all(|one| one.get("position").is_some_and(known)) {
                    let options = json!({"options": self.positions});
                    reader.issue("promptImage", "invalid_enum_value", "Invalid position", options);
                }
                list.iter().map(|one| one.get("uri").unwrap_or(&Value::Null)).collect()
            }
            one => vec![one],
        };
        for uri in uris {
            let text = uri.as_str().unwrap_or_default();
            let data = text.starts_with("data:image/");
            if !(text.starts_with("https://") || text.starts_with("runway://") || data) {
                let message = "Must be an HTTPS URL, a Runway upload URI or a data URI of an image";
                reader.issue("promptImage", "invalid_string", message, Value::Null);
            } else if data && text.len() > 5 * 1024 * 1024 {
                reader.issue("promptImage", "too_big", "Data URI is larger than 5MB", json!({"maximum": 5_242_880}));
            }
        }
    }

    fn options(self, reader: &mut Reader<'_>) {
        reader.typed("seed", |value| value.as_u64().is_some_and(|seed| seed <= 4_294_967_295), "integer");
        reader.typed("audio", Value::is_boolean, "boolean");
        reader.typed("negativePrompt", Value::is_string, "string");
        reader.typed("contentModeration", Value::is_object, "object");
        if self.more.contains(&"outputFormat") {
            // The vendor delivers others too; this stand-in makes MP4 and says so rather than sending another.
            reader.choice("outputFormat", &["mp4"], false);
        }
        if reader.get("proresProfile").is_some() && self.more.contains(&"proresProfile") {
            let message = "Only valid when outputFormat is prores or hdr_prores";
            reader.issue("proresProfile", "custom", message, Value::Null);
        }
    }
}

/// `400` with the list of what is wrong.
fn invalid(issues: Vec<Value>) -> Response {
    let body = json!({"error": "Validation of body failed", "issues": issues,
        "docUrl": "https://docs.dev.runwayml.com/api"});
    (StatusCode::BAD_REQUEST, Json(body)).into_response()
}

/// Any other refusal.
pub(super) fn refused(status: StatusCode, words: &str) -> Response {
    (status, Json(json!({"error": words, "docUrl": "https://docs.dev.runwayml.com/errors/errors"}))).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_json(body: Value, image: bool) -> Result<Asked, Box<Response>> {
        read(body.to_string().as_bytes(), image)
    }

    #[test]
    fn the_worked_example_is_accepted_and_priced() {
        let body =
            json!({"model": "gen4.5", "promptText": "a paper boat on a pond", "duration": 5, "ratio": "1280:720"});
        let asked = read_json(body, false).unwrap();
        // "estimatedCost": {"credits": 60}
        assert_eq!((asked.credits, asked.seconds, asked.width, asked.height), (60, 5, 1280, 720));
    }

    #[test]
    fn sound_costs_more_where_a_model_makes_it() {
        let body = |audio: bool| json!({"model": "veo3.1", "promptText": "x", "duration": 4, "ratio": "1920:1080", "audio": audio});
        assert_eq!(read_json(body(true), false).unwrap().credits, 160);
        assert_eq!(read_json(body(false), false).unwrap().credits, 80);
    }

    #[test]
    fn what_a_model_cannot_make_is_refused() {
        let good = json!({"model": "gen4.5", "promptText": "x", "duration": 5, "ratio": "1280:720"});
        let with = |name: &str, value: Value| {
            let mut body = good.clone();
            body[name] = value;
            body
        };
        let wrong = [
            with("ratio", json!("960:960")),
            with("ratio", json!("1:1")),
            with("duration", json!(11)),
            with("duration", json!(2.5)),
            with("duration", Value::Null),
            with("promptText", json!("")),
            with("promptText", json!("\u{1F3A5}".repeat(501))),
            with("audio", json!(true)),
            with("metadata", json!({"job": "1"})),
            with("model", json!("gen4_turbo")),
            with("model", json!("sora-2")),
            with("outputFormat", json!("gif")),
            with("promptImage", json!("https://example.com/a.png")),
        ];
        for body in wrong {
            assert_eq!(read_json(body.clone(), false).unwrap_err().status(), 400, "{body}");
        }
        assert!(
            read_json(with("promptText", json!("\u{1F3A5}".repeat(500))), false).is_ok(),
            "500 pairs are 1000 units"
        );
        let veo = json!({"model": "veo3.1", "promptText": "x", "duration": 5, "ratio": "1280:720"});
        assert!(read_json(veo, false).is_err(), "veo3.1 makes 4, 6 or 8 seconds");
    }

    #[test]
    fn image_to_video_wants_an_image_it_can_reach() {
        let body = |image: Value| json!({"model": "gen4.5", "promptText": "x", "duration": 5, "ratio": "960:960", "promptImage": image});
        assert!(read_json(body(json!("https://example.com/a.png")), true).is_ok());
        assert!(read_json(body(json!([{"uri": "runway://u/1", "position": "first"}])), true).is_ok());
        assert!(read_json(body(json!([{"uri": "runway://u/1", "position": "last"}])), true).is_err());
        assert!(read_json(body(json!("http://example.com/a.png")), true).is_err());
        assert!(read_json(body(json!([])), true).is_err());
    }
}
