//! What a vendor's file must satisfy beyond its keys and types.

use crate::address::{is_host_pattern, read, read_base};
use crate::connector::{AuthScheme, Cadence, ConnectorLimits, LostStart, OptionSpec, SettingSpec, VendorFile};
use crate::path::{item, join};
use crate::template::named;
use crate::values::{Wanted, check, is_of_kind};
use crate::vocabulary::{Problem, Task, Unit};
use serde_json::Value;
use std::collections::BTreeMap;

/// The longest silence of a start, in seconds: past it the network has forgotten the connection.
const MAX_SILENCE_S: u64 = 1800;
/// The longest watchdog, in minutes: thirty days.
pub(crate) const MAX_MINUTES: u32 = 43_200;

/// Everything wrong with a vendor's file whose keys and types are right.
pub(crate) fn check_vendor(file: &VendorFile) -> Vec<Problem> {
    let mut found = Found::default();
    found.name("vendor", &file.vendor);
    found.text("title", &file.title);
    found.address("docs", &file.docs);
    found.date("verified", &file.verified);
    if !file.base_url.is_empty() {
        found.base("base_url", &file.base_url);
    }
    check_regions(file, &mut found);
    check_auth(file, &mut found);
    check_headers("headers", &file.headers, file, &mut found);
    check_free_check(file, &mut found);
    check_abilities(file, &mut found);
    check_times(file, &mut found);
    check_prices(file, &mut found);
    found.0.extend(check_cadence("cadence", &file.cadence));
    found.0.extend(check_limits("limits", &file.limits));
    for (name, setting) in &file.settings {
        check_setting(&join("settings", name), name, setting, &mut found);
    }
    for (name, option) in &file.options {
        check_option(&join("options", name), name, option, &mut found);
    }
    for (index, retirement) in file.retirements.iter().enumerate() {
        let path = item("retirements", index);
        found.text(&join(&path, "what"), &retirement.what);
        found.date(&join(&path, "on"), &retirement.on);
        found.text(&join(&path, "instead"), &retirement.instead);
    }
    found.0
}

/// What is wrong with a cadence.
pub(crate) fn check_cadence(path: &str, cadence: &Cadence) -> Vec<Problem> {
    let mut found = Found::default();
    let day = 86_400.0;
    let first_fits = cadence.first_s > 0.0 && cadence.first_s <= day;
    found.unless(first_fits, &join(path, "first_s"), "out_of_range", "this must be above 0 and at most 86400 seconds");
    let factor_fits = (1.0..=10.0).contains(&cadence.factor);
    found.unless(factor_fits, &join(path, "factor"), "out_of_range", "this must be 1 to 10: delays never shrink");
    let ceiling_fits = cadence.ceiling_s >= cadence.first_s && cadence.ceiling_s <= day;
    let message = "this must be at least first_s and at most 86400 seconds";
    found.unless(ceiling_fits, &join(path, "ceiling_s"), "out_of_range", message);
    let jitter_fits = (0.0..=1.0).contains(&cadence.jitter);
    found.unless(jitter_fits, &join(path, "jitter"), "out_of_range", "this is a share: 0 to 1");
    found.0
}

/// What is wrong with limits.
pub(crate) fn check_limits(path: &str, limits: &ConnectorLimits) -> Vec<Problem> {
    let mut found = Found::default();
    let all = [
        ("in_flight", limits.in_flight),
        ("starts_per_minute", limits.starts_per_minute),
        ("requests_per_second", limits.requests_per_second),
    ];
    for (key, limit) in all {
        let message = "0 would stop everything: give 1 or more, or leave it out; to stop a connector, pause it";
        found.unless(limit != Some(0), &join(path, key), "out_of_range", message);
    }
    found.0
}

/// Whether a text is a name as vendors and connectors have them.
#[must_use]
pub fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

/// Whether a text is a day as files write it, `YYYY-MM-DD`.
pub(crate) fn is_date(text: &str) -> bool {
    text.len() == 10 && chrono::NaiveDate::parse_from_str(text, "%Y-%m-%d").is_ok()
}

/// Whether a text can be a header's name.
pub(crate) fn is_header_name(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

/// Whether a text can be a header's value.
pub(crate) fn is_header_value(text: &str) -> bool {
    text.bytes().all(|b| (0x20..0x7f).contains(&b)) && text.trim() == text
}

/// Problems as they are found.
#[derive(Default)]
pub(crate) struct Found(pub(crate) Vec<Problem>);

impl Found {
    pub(crate) fn unless(&mut self, holds: bool, path: &str, code: &str, message: impl Into<String>) {
        if !holds {
            self.0.push(Problem::new(path, code, message));
        }
    }

    pub(crate) fn text(&mut self, path: &str, text: &str) {
        self.unless(!text.trim().is_empty(), path, "empty", "this must not be empty");
    }

    pub(crate) fn name(&mut self, path: &str, name: &str) {
        self.unless(is_name(name), path, "not_allowed", "names are small letters, digits and `_`, at most 64");
    }

    pub(crate) fn date(&mut self, path: &str, date: &str) {
        self.unless(is_date(date), path, "not_allowed", "this must be a day that exists, as YYYY-MM-DD");
    }

    fn address(&mut self, path: &str, text: &str) {
        self.https(path, read(text).map(|address| address.is_https));
    }

    fn base(&mut self, path: &str, text: &str) {
        self.https(path, read_base(text).map(|address| address.is_https));
        self.unless(!text.ends_with('/'), path, "not_allowed", "it must have no `/` at its end");
    }

    fn https(&mut self, path: &str, read: Result<bool, &'static str>) {
        match read {
            Ok(is_https) => self.unless(is_https, path, "not_allowed", "it must begin with https://"),
            Err(wrong) => self.0.push(Problem::new(path, "not_allowed", wrong)),
        }
    }

    fn once<'v>(&mut self, path: &str, values: impl IntoIterator<Item = &'v str>) {
        let mut seen = Vec::new();
        for (index, value) in values.into_iter().enumerate() {
            self.unless(!seen.contains(&value), &item(path, index), "conflict", "this stands here twice");
            seen.push(value);
        }
    }
}

/// A setting that chooses between keys of a table.
fn check_choice<T: PartialEq>(
    choice: &str,
    table_key: &str,
    table: &BTreeMap<String, T>,
    plain: (&str, &T),
    file: &VendorFile,
    found: &mut Found,
) {
    if table.is_empty() {
        return;
    }
    let Some(setting) = file.settings.get(choice) else {
        let message = format!("`{table_key}` needs a setting `{choice}` that chooses between them");
        return found.0.push(Problem::new(join("settings", choice), "missing", message));
    };
    let path = join("settings", choice);
    let keys: Vec<_> = table.keys().map(|key| Value::from(key.as_str())).collect();
    let is_same = setting.allowed.len() == keys.len() && keys.iter().all(|key| setting.allowed.contains(key));
    let message = format!("this must allow exactly the keys of `{table_key}`");
    found.unless(is_same, &join(&path, "allowed"), "conflict", message);
    let default = setting.default.as_ref().and_then(Value::as_str).and_then(|key| table.get(key));
    let message = format!("this must be the key of `{table_key}` that says the same as `{}`", plain.0);
    found.unless(default == Some(plain.1), &join(&path, "default"), "conflict", message);
}

fn check_regions(file: &VendorFile, found: &mut Found) {
    for (region, url) in &file.regions {
        found.base(&join("regions", region), url);
    }
    check_choice("region", "regions", &file.regions, ("base_url", &file.base_url), file, found);
}

fn check_auth(file: &VendorFile, found: &mut Found) {
    let choices = file.auth_choices.iter().map(|(name, scheme)| (join("auth_choices", name), scheme));
    for (path, scheme) in std::iter::once(("auth".to_owned(), &file.auth)).chain(choices) {
        if let AuthScheme::Header { name } = scheme {
            let path = join(&path, "name");
            check_settings_named(&path, name, file, found);
            let is_readable = is_header_name(name) || named(name).next().is_some();
            found.unless(is_readable, &path, "not_allowed", "this must be the name of a header");
        }
    }
    check_choice("auth", "auth_choices", &file.auth_choices, ("auth", &file.auth), file, found);
    for (index, host) in file.key_hosts.iter().enumerate() {
        let message = "this must be a host such as example.com or *.example.com";
        found.unless(is_host_pattern(host), &item("key_hosts", index), "not_allowed", message);
    }
}

fn check_headers(path: &str, headers: &BTreeMap<String, String>, file: &VendorFile, found: &mut Found) {
    for (name, value) in headers {
        let path = join(path, name);
        found.unless(is_header_name(name), &path, "not_allowed", "this is no name of a header");
        let is_secret = ["authorization", "proxy-authorization", "cookie"].contains(&name.to_lowercase().as_str());
        found.unless(!is_secret, &path, "not_allowed", "credentials travel by `auth`, never as a fixed header");
        found.unless(is_header_value(value), &path, "not_allowed", "headers hold plain printable letters");
        check_settings_named(&path, value, file, found);
    }
}

fn check_settings_named(path: &str, text: &str, file: &VendorFile, found: &mut Found) {
    let known: Vec<_> = file.settings.keys().map(String::as_str).collect();
    for key in named(text).filter(|key| !known.contains(key)) {
        let hint = crate::nearest(key, known.iter().copied()).map(|near| format!("; did you mean `{near}`?"));
        let message = format!("`{{{key}}}` is no setting of this file{}", hint.unwrap_or_default());
        found.0.push(Problem::new(path, "unknown_key", message));
    }
}

fn check_free_check(file: &VendorFile, found: &mut Found) {
    let paths = [("check.path", Some(&file.check.path)), ("check.or_path", file.check.or_path.as_ref())];
    for (place, path) in paths.into_iter().filter_map(|(place, path)| Some((place, path?))) {
        found.unless(path.starts_with(['/', '{']), place, "not_allowed", "this must begin with `/`");
        check_settings_named(place, path, file, found);
    }
    check_headers("check.headers", &file.check.headers, file, found);
}

fn check_abilities(file: &VendorFile, found: &mut Found) {
    found.once("tasks", file.tasks.iter().map(|task| task.as_str()));
    found.once("formats", file.formats.iter().map(String::as_str));
    for (index, format) in file.formats.iter().enumerate() {
        found.unless(is_name(format), &item("formats", index), "not_allowed", "formats are small letters and digits");
    }
    let makes_media =
        |task: &Task| matches!(task, Task::Image | Task::Video | Task::Speech | Task::Sound | Task::Music);
    let names_formats = !file.formats.is_empty() || !file.tasks.iter().any(makes_media);
    found.unless(names_formats, "formats", "missing", "a vendor of media names the formats that it makes");
    for (index, source) in file.sources.iter().enumerate() {
        found.text(&item("sources", index), source);
    }
    let searches = file.lost_start == LostStart::Find;
    let waited_for = file.lost_start != LostStart::None;
    found.unless(
        waited_for == (file.find_s > 0),
        "find_s",
        "conflict",
        "this goes with `lost_start = \"find\"` and `lost_start = \"key\"`: give both or neither",
    );
    let message = "only a vendor that is searched (`lost_start = \"find\"`) can prove an absence";
    found.unless(searches || !file.absence_proves, "absence_proves", "conflict", message);
    let message = "a vendor whose cancel erases can cancel: set `cancels = true`";
    found.unless(file.cancels || !file.cancel_erases, "cancel_erases", "conflict", message);
}

fn check_times(file: &VendorFile, found: &mut Found) {
    let models = file.model_silence_s.iter().map(|(model, s)| (join("model_silence_s", model), *s));
    for (path, silence) in std::iter::once(("start_silence_s".to_owned(), file.start_silence_s)).chain(models) {
        let fits = (1..=MAX_SILENCE_S).contains(&silence);
        found.unless(fits, &path, "out_of_range", format!("this must be 1 to {MAX_SILENCE_S} seconds"));
    }
    let message = "this must be at least 10 seconds: leave it out where outputs do not die";
    found.unless(file.outputs_live_s.is_none_or(|lives| lives >= 10), "outputs_live_s", "out_of_range", message);
    let fits = (1..=MAX_MINUTES).contains(&file.max_minutes);
    found.unless(fits, "max_minutes", "out_of_range", format!("this must be 1 to {MAX_MINUTES} minutes"));
    let fits = file.find_s <= 3600;
    found.unless(fits, "find_s", "out_of_range", "this must be at most 3600 seconds: after that a person decides");
}

fn check_prices(file: &VendorFile, found: &mut Found) {
    let mut seen = Vec::new();
    for (index, price) in file.prices.iter().enumerate() {
        let path = item("prices", index);
        found.date(&join(&path, "as_of"), &price.as_of);
        found.text(&join(&path, "source"), &price.source);
        let is_price = !price.usd.is_sign_negative() && price.usd <= rust_decimal::Decimal::ONE_THOUSAND;
        found.unless(is_price, &join(&path, "usd"), "out_of_range", "this must be 0 to 1000 dollars for one unit");
        found.unless(price.unit != Unit::Usd, &join(&path, "unit"), "conflict", "a dollar costs a dollar: no price");
        let key = (price.unit, &price.model);
        found.unless(!seen.contains(&key), &path, "conflict", "this unit and model have a price above already");
        seen.push(key);
    }
}

fn check_setting(path: &str, name: &str, setting: &SettingSpec, found: &mut Found) {
    found.name(path, name);
    found.text(&join(path, "about"), &setting.about);
    check_allowed_kinds(path, &setting.kind, &setting.allowed, found);
    let is_plain = !(setting.required && setting.default.is_some());
    found.unless(is_plain, &join(path, "default"), "conflict", "what is required has no default");
    if let Some(default) = &setting.default {
        let wanted = Wanted { kind: &setting.kind, allowed: &setting.allowed, min: None, max: None, max_chars: None };
        found.0.extend(check(&join(path, "default"), default, &wanted));
    }
}

fn check_option(path: &str, name: &str, option: &OptionSpec, found: &mut Found) {
    let is_wire_name = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    found.unless(is_wire_name, path, "not_allowed", "options are letters, digits and `_`");
    found.text(&join(path, "about"), &option.about);
    check_allowed_kinds(path, &option.kind, &option.allowed, found);
    let is_counted = matches!(option.kind.as_str(), "integer" | "number" | "array");
    for (key, bound) in [("min", option.min), ("max", option.max)] {
        let message = "only a number or an array has a smallest and a largest";
        found.unless(bound.is_none() || is_counted, &join(path, key), "conflict", message);
        found.unless(
            bound.is_none_or(f64::is_finite),
            &join(path, key),
            "out_of_range",
            "this must be a finite number",
        );
    }
    let is_range = option.min.zip(option.max).is_none_or(|(min, max)| min <= max);
    found.unless(is_range, &join(path, "max"), "conflict", "this is below `min`");
    let is_text = option.max_chars.is_none() || option.kind == "string";
    found.unless(is_text, &join(path, "max_chars"), "conflict", "only a string has a longest length");
    found.unless(option.max_chars != Some(0), &join(path, "max_chars"), "out_of_range", "this must be 1 or more");
}

fn check_allowed_kinds(path: &str, kind: &str, allowed: &[Value], found: &mut Found) {
    let item_kinds: &[&str] = if kind == "array" { &["string", "number", "boolean"] } else { &[kind] };
    let path = join(path, "allowed");
    for (index, value) in allowed.iter().enumerate() {
        let fits = item_kinds.iter().any(|kind| is_of_kind(value, kind));
        found.unless(fits, &item(&path, index), "wrong_type", format!("this must be of the declared type, {kind}"));
    }
}
