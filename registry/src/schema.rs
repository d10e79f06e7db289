//! The keys of the registry's own files. A test holds them against the types that they are read into.

use crate::shape::{Field, Shape, may, need};
use crate::vocabulary::{Task, Unit};

const WORDS: Shape = Shape::Some(&Shape::Text);
const VALUES: Shape = Shape::Some(&Shape::Any);
const HEADERS: Shape = Shape::Map(&Shape::Text);

/// Kinds of a setting.
pub(crate) const SETTING_KINDS: [&str; 6] = ["string", "url", "integer", "number", "boolean", "array"];
/// Kinds of a job's option.
pub(crate) const OPTION_KINDS: [&str; 6] = ["string", "integer", "number", "boolean", "object", "array"];

fn tasks() -> Vec<&'static str> {
    Task::ALL.map(Task::as_str).to_vec()
}

fn units() -> Vec<&'static str> {
    Unit::ALL.map(Unit::as_str).to_vec()
}

const AUTH: Shape = Shape::Tagged(
    "scheme",
    &[
        ("bearer", &[need("scheme", Shape::Text)]),
        ("header", &[need("scheme", Shape::Text), need("name", Shape::Text)]),
        ("basic", &[need("scheme", Shape::Text)]),
        ("none", &[need("scheme", Shape::Text)]),
    ],
);

const CHECK: Shape = Shape::Table(&[
    need("method", Shape::Word(|| vec!["GET", "HEAD", "POST"])),
    need("path", Shape::Text),
    may("or_path", Shape::Text),
    may("headers", HEADERS),
    may("public", Shape::Flag),
]);

const CADENCE: Shape = Shape::Table(&[
    need("first_s", Shape::Number),
    need("factor", Shape::Number),
    need("ceiling_s", Shape::Number),
    need("jitter", Shape::Number),
]);

const LIMITS: Shape = Shape::Table(&[
    may("in_flight", Shape::Count),
    may("starts_per_minute", Shape::Count),
    may("requests_per_second", Shape::Count),
]);

const OPTION: Shape = Shape::Table(&[
    need("type", Shape::Word(|| OPTION_KINDS.to_vec())),
    need("about", Shape::Text),
    may("allowed", VALUES),
    may("min", Shape::Number),
    may("max", Shape::Number),
    may("max_chars", Shape::Count),
]);

const SETTING: Shape = Shape::Table(&[
    need("type", Shape::Word(|| SETTING_KINDS.to_vec())),
    need("about", Shape::Text),
    may("required", Shape::Flag),
    may("default", Shape::Any),
    may("allowed", VALUES),
]);

const PRICE: Shape = Shape::Table(&[
    need("unit", Shape::Word(units)),
    need("usd", Shape::Decimal),
    may("model", Shape::Text),
    need("as_of", Shape::Text),
    need("source", Shape::Text),
]);

const RETIREMENT: Shape =
    Shape::Table(&[need("what", Shape::Text), need("on", Shape::Text), need("instead", Shape::Text)]);

/// `registry/connectors/<vendor>.toml`.
pub(crate) const VENDOR_FILE: &[Field] = &[
    need("vendor", Shape::Text),
    need("title", Shape::Text),
    need("docs", Shape::Text),
    need("verified", Shape::Text),
    may("sources", WORDS),
    need("base_url", Shape::Text),
    may("regions", Shape::Map(&Shape::Text)),
    need("auth", AUTH),
    may("auth_choices", Shape::Map(&AUTH)),
    may("headers", HEADERS),
    may("key_hosts", WORDS),
    need("check", CHECK),
    need("tasks", Shape::Some(&Shape::Word(tasks))),
    may("formats", WORDS),
    need("lost_start", Shape::Word(|| vec!["key", "find", "none"])),
    may("find_s", Shape::Count),
    may("absence_proves", Shape::Flag),
    may("asks", Shape::Flag),
    may("cancels", Shape::Flag),
    may("cancel_erases", Shape::Flag),
    may("synchronous", Shape::Flag),
    need("start_silence_s", Shape::Count),
    may("model_silence_s", Shape::Map(&Shape::Count)),
    may("outputs_live_s", Shape::Count),
    need("max_minutes", Shape::Count),
    need("unit", Shape::Word(units)),
    may("prices", Shape::Some(&PRICE)),
    need("cadence", CADENCE),
    may("limits", LIMITS),
    may("settings", Shape::Map(&SETTING)),
    may("options", Shape::Map(&OPTION)),
    may("retirements", Shape::Some(&RETIREMENT)),
];

/// `[connectors.NAME]` of `longhaul.toml`, for [`crate::Document::check`]: the keys of
/// [`crate::ConnectorConfig`]. None is required here: the environment may bring a `vendor` that the file leaves out,
/// and [`crate::resolve`] tells where it is missing after all.
pub const CONNECTOR_SECTION: &[Field] = &[
    may("vendor", Shape::Text),
    may("credential", Shape::Text),
    may("base_url", Shape::Text),
    may("allow_private_network", Shape::Flag),
    may("private_hosts", Shape::List(&Shape::Text)),
    may("limits", LIMITS),
    may("settings", Shape::Map(&Shape::Any)),
    may("price_override", Shape::Map(&Shape::Any)),
    may(
        "cadence",
        Shape::Table(&[
            may("first_s", Shape::Number),
            may("factor", Shape::Number),
            may("ceiling_s", Shape::Number),
            may("jitter", Shape::Number),
        ]),
    ),
];

/// `registry/unsupported.toml`.
pub(crate) const UNSUPPORTED_FILE: &[Field] = &[need(
    "service",
    Shape::Some(&Shape::Table(&[
        need("name", Shape::Text),
        need("title", Shape::Text),
        may("also", WORDS),
        need("why", Shape::Text),
        need("instead", Shape::Text),
        may("vendors", WORDS),
        need("as_of", Shape::Text),
    ])),
)];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VendorFile;
    use serde_json::{Value, json};

    /// Every member of the type, each table's with an entry, as the type itself writes it.
    fn everything() -> Value {
        let file: VendorFile = serde_json::from_value(json!({
            "vendor": "v", "title": "t", "docs": "d", "verified": "2026-11-30", "base_url": "https://v.example",
            "regions": {"eu": "u"}, "auth": {"scheme": "header", "name": "x"},
            "auth_choices": {"b": {"scheme": "header", "name": "x"}},
            "check": {"method": "GET", "path": "/", "or_path": "/"}, "tasks": [], "lost_start": "none",
            "start_silence_s": 60, "max_minutes": 1, "unit": "credits",
            "prices": [{"unit": "credits", "usd": "1", "model": "m", "as_of": "a", "source": "s"}],
            "cadence": {"first_s": 1, "factor": 1, "ceiling_s": 1, "jitter": 0},
            "settings": {"s": {"type": "string", "about": "a"}}, "options": {"o": {"type": "string", "about": "a"}},
            "retirements": [{"what": "w", "on": "o", "instead": "i"}]
        }))
        .unwrap();
        serde_json::to_value(file).unwrap()
    }

    fn compare(path: &str, shape: Shape, value: &Value) {
        let fields = match shape {
            Shape::Table(fields) => fields,
            Shape::Tagged(tag, variants) => {
                let word = value[tag].as_str().unwrap();
                variants.iter().find(|(name, _)| *name == word).unwrap().1
            }
            Shape::Some(inner) => return value.as_array().unwrap().iter().for_each(|v| compare(path, *inner, v)),
            Shape::Map(inner) => return value.as_object().unwrap().values().for_each(|v| compare(path, *inner, v)),
            _ => return,
        };
        let mut ours: Vec<_> = fields.iter().map(|field| field.name).collect();
        let mut theirs: Vec<_> = value.as_object().unwrap().keys().map(String::as_str).collect();
        ours.sort_unstable();
        theirs.sort_unstable();
        assert_eq!(ours, theirs, "{path}");
        for field in fields {
            compare(&format!("{path}.{}", field.name), field.shape, &value[field.name]);
        }
    }

    #[test]
    fn the_keys_are_those_of_the_type() {
        compare("vendor file", Shape::Table(VENDOR_FILE), &everything());
        let section = serde_json::to_value(crate::ConnectorConfig::default()).unwrap();
        compare("connector", Shape::Table(CONNECTOR_SECTION), &section);
    }
}
