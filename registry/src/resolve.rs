//! An installed connector: the vendor's file with the user's section of `longhaul.toml` over it.

use crate::address::{is_host_pattern, is_plainly_private, read, read_base, read_host};
use crate::connector::{AuthScheme, Cadence, Connector, ConnectorLimits, SettingSpec, VendorFile};
use crate::load::Registry;
use crate::nearest::{nearest, unknown_key};
use crate::path::{item, join};
use crate::pricing::read_override;
use crate::rules::{check_cadence, check_limits, is_header_name, is_header_value, is_name};
use crate::template::fill;
use crate::values::{Wanted, check};
use crate::vocabulary::Problem;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// `[connectors.NAME]` of `longhaul.toml`. It holds a reference to the credential, never the credential.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConnectorConfig {
    /// The vendor's name in the registry. Required.
    pub vendor: String,
    /// `env:NAME` or `file:PATH`. Required unless the vendor wants none.
    pub credential: Option<String>,
    /// Where the API is; the vendor's own address (of the region set) where left out.
    pub base_url: Option<String>,
    /// Opens exactly the base URL's own host and port although it is private, over http too. Default: false.
    pub allow_private_network: bool,
    /// Further private `host:port` that this connector may reach. Default: none.
    pub private_hosts: Vec<String>,
    /// Limits; what is left out is the vendor's default.
    pub limits: ConnectorLimits,
    /// Settings, as the vendor's file lists them.
    pub settings: BTreeMap<String, Value>,
    /// Money for one unit, over the vendor's list: `credit_usd = "0.01"`, `second_usd`, `token_in_usd`, …
    pub price_override: BTreeMap<String, Value>,
    /// When polls come; what is left out is the vendor's default.
    pub cadence: CadenceConfig,
}

/// A part of a [`Cadence`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CadenceConfig {
    /// Seconds from the start to the first poll.
    pub first_s: Option<f64>,
    /// Each delay is the one before times this.
    pub factor: Option<f64>,
    /// No delay is longer.
    pub ceiling_s: Option<f64>,
    /// Share of the delay by which it varies, 0 to 1.
    pub jitter: Option<f64>,
}

/// Makes a connector of a section of the configuration. Problems' paths begin with `connectors.NAME`; no
/// problem repeats a value, which may be a secret in the wrong place.
///
/// # Errors
/// Everything wrong with the section.
pub fn resolve(name: &str, config: &ConnectorConfig, registry: &Registry) -> Result<Connector, Vec<Problem>> {
    let root = join("connectors", name);
    let mut problems = Vec::new();
    if !is_name(name) {
        problems.push(Problem::new(&root, "not_allowed", "connectors' names are small letters, digits and `_`"));
    }
    let vendor = match find_vendor(&join(&root, "vendor"), &config.vendor, registry) {
        Ok(vendor) => vendor,
        Err(problem) => {
            problems.push(*problem);
            return Err(problems);
        }
    };
    let at = |key: &str| join(&root, key);
    let settings = read_settings(&at("settings"), vendor, config, &mut problems);
    let base_url = read_base_url(&at("base_url"), vendor, config, &settings, &mut problems);
    let mut file = VendorFile::clone(vendor);
    apply_settings(&root, &mut file, &settings, &mut problems);
    check_credential(&at("credential"), config.credential.as_deref(), &file.auth, &mut problems);
    for (index, host) in config.private_hosts.iter().enumerate() {
        if !matches!(read_host(host), Some((_, Some(_)))) {
            let message = "this must be host:port, such as 10.0.0.7:9000";
            problems.push(Problem::new(item(&at("private_hosts"), index), "not_allowed", message));
        }
    }
    problems.extend(check_limits(&at("limits"), &config.limits));
    let cadence = merge_cadence(vendor.cadence, config.cadence);
    problems.extend(check_cadence(&at("cadence"), &cadence));
    let price_override = read_override(&at("price_override"), &config.price_override, &mut problems);
    if !problems.is_empty() {
        return Err(problems);
    }
    Ok(Connector {
        name: name.to_owned(),
        vendor: Arc::new(file),
        credential: config.credential.clone(),
        base_url,
        allow_private_network: config.allow_private_network,
        private_hosts: config.private_hosts.clone(),
        limits: merge_limits(vendor.limits, config.limits),
        settings,
        price_override,
        cadence,
    })
}

fn find_vendor<'r>(path: &str, name: &str, registry: &'r Registry) -> Result<&'r VendorFile, Box<Problem>> {
    let names = registry.names();
    let problem =
        |code: &str, message: String| Box::new(Problem::new(path, code, message).allowed(Value::from(names.clone())));
    if name.is_empty() {
        return Err(problem("missing", format!("`vendor` is missing; it is one of {}", names.join(", "))));
    }
    if let Some(vendor) = registry.vendor(name) {
        return Ok(vendor);
    }
    if let Some(service) = registry.unsupported_named(name) {
        let message = format!("{} is not supported. {} Instead: {}", service.title, service.why, service.instead);
        return Err(problem("model_unavailable", message));
    }
    let hint = nearest(name, names.iter().copied()).map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
    Err(problem("not_allowed", format!("the registry has no such vendor; {hint}it has {}", names.join(", "))))
}

fn read_settings(
    path: &str,
    vendor: &VendorFile,
    config: &ConnectorConfig,
    problems: &mut Vec<Problem>,
) -> BTreeMap<String, Value> {
    let known: Vec<_> = vendor.settings.keys().map(String::as_str).collect();
    for (key, value) in &config.settings {
        let path = join(path, key);
        match vendor.settings.get(key) {
            Some(spec) => check_setting(&path, value, spec, config, problems),
            None => problems.push(unknown_key(path, key, &known)),
        }
    }
    let mut settings = BTreeMap::new();
    for (key, spec) in &vendor.settings {
        match config.settings.get(key).or(spec.default.as_ref()) {
            Some(value) => {
                settings.insert(key.clone(), value.clone());
            }
            None if spec.required => {
                let message = format!("`{key}` is missing: {}", spec.about);
                problems.push(Problem::new(join(path, key), "missing", message));
            }
            None => {}
        }
    }
    settings
}

fn check_setting(path: &str, value: &Value, spec: &SettingSpec, config: &ConnectorConfig, problems: &mut Vec<Problem>) {
    let wanted = Wanted { kind: &spec.kind, allowed: &spec.allowed, min: None, max: None, max_chars: None };
    let found = check(path, value, &wanted);
    let text = value.as_str().filter(|_| found.is_empty());
    problems.extend(found);
    match text {
        Some("") => problems.push(Problem::new(path, "empty", "this must not be empty: leave it out instead")),
        Some(url) if spec.kind == "url" => {
            let address = read(url).map(|address| (address.is_https, address.host));
            check_address(path, address, config.allow_private_network, problems);
        }
        _ => {}
    }
}

fn read_base_url(
    path: &str,
    vendor: &VendorFile,
    config: &ConnectorConfig,
    settings: &BTreeMap<String, Value>,
    problems: &mut Vec<Problem>,
) -> String {
    let trimmed = |url: &str| url.trim_end_matches('/').to_owned();
    let own = config.base_url.as_deref().map(trimmed).filter(|url| !url.is_empty() && *url != vendor.base_url);
    let region = settings.get("region").and_then(Value::as_str).and_then(|region| vendor.regions.get(region));
    let url = own.unwrap_or_else(|| region.unwrap_or(&vendor.base_url).clone());
    if url.is_empty() {
        let message = format!("`base_url` is missing: {} has no address of its own", vendor.title);
        problems.push(Problem::new(path, "missing", message));
        return url;
    }
    let address = read_base(&url).map(|address| (address.is_https, address.host));
    check_address(path, address, config.allow_private_network, problems);
    url
}

fn check_address(
    path: &str,
    address: Result<(bool, &str), &'static str>,
    allow_private: bool,
    problems: &mut Vec<Problem>,
) {
    let wrong = match address {
        Err(wrong) => wrong,
        Ok(_) if allow_private => return,
        Ok((false, _)) => {
            "it must begin with https://; http is for a private address with allow_private_network = true"
        }
        Ok((true, host)) if is_plainly_private(host) => {
            "this address is private: set allow_private_network = true if it is meant, or give the public one"
        }
        Ok(_) => return,
    };
    problems.push(Problem::new(path, "not_allowed", wrong));
}

/// Puts the settings where the vendor's file names them.
fn apply_settings(root: &str, file: &mut VendorFile, settings: &BTreeMap<String, Value>, problems: &mut Vec<Problem>) {
    let chosen = settings.get("auth").and_then(Value::as_str).and_then(|choice| file.auth_choices.get(choice));
    if let Some(scheme) = chosen {
        file.auth = scheme.clone();
    }
    if let AuthScheme::Header { name } = &mut file.auth {
        *name = fill(name, settings).unwrap_or_default();
        if !is_header_name(name) {
            let message = "this is no name of a header: letters, digits and `-`";
            problems.push(Problem::new(join(&join(root, "settings"), "auth_header"), "not_allowed", message));
        }
    }
    file.headers = fill_headers(root, &file.headers, settings, problems);
    file.check.headers = fill_headers(root, &file.check.headers, settings, problems);
    if let Some(path) = fill(&file.check.path, settings) {
        file.check.path = path;
    }
    file.check.or_path = file.check.or_path.as_ref().and_then(|path| fill(path, settings));
    // The operator's own word for where calls go is the word for where the key goes too.
    let endpoint = settings.get("endpoint").and_then(Value::as_str).and_then(|url| read(url).ok());
    if let Some(endpoint) = endpoint.filter(|endpoint| endpoint.is_https && is_host_pattern(endpoint.host)) {
        file.key_hosts.push(endpoint.host.to_owned());
    }
    let hosts = settings.get("key_hosts").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for (index, host) in hosts.iter().enumerate() {
        match host.as_str().filter(|host| is_host_pattern(host)) {
            Some(host) => file.key_hosts.push(host.to_owned()),
            None => {
                let path = item(&join(&join(root, "settings"), "key_hosts"), index);
                let message = "this must be a host such as example.com or *.example.com";
                problems.push(Problem::new(path, "not_allowed", message));
            }
        }
    }
}

fn fill_headers(
    root: &str,
    headers: &BTreeMap<String, String>,
    settings: &BTreeMap<String, Value>,
    problems: &mut Vec<Problem>,
) -> BTreeMap<String, String> {
    let mut filled = BTreeMap::new();
    for (name, template) in headers {
        let Some(value) = fill(template, settings) else { continue };
        if !is_header_value(&value) {
            let key = crate::template::named(template).next().unwrap_or_default();
            let message = format!("this becomes the header `{name}` and must be plain printable letters");
            problems.push(Problem::new(join(&join(root, "settings"), key), "not_allowed", message));
        }
        filled.insert(name.clone(), value);
    }
    filled
}

fn check_credential(path: &str, credential: Option<&str>, auth: &AuthScheme, problems: &mut Vec<Problem>) {
    let form = "a credential is a reference, never the key itself: `env:NAME` or `file:PATH`";
    let problem = match (credential, auth) {
        (None, AuthScheme::None) => return,
        (Some(_), AuthScheme::None) => {
            Problem::new(path, "conflict", "no credential travels with auth = \"none\": leave it out")
        }
        (None, _) => Problem::new(path, "missing", format!("`credential` is missing: {form}")),
        (Some(reference), _) if is_reference(reference) => return,
        (Some(_), _) => Problem::new(path, "not_allowed", form),
    };
    problems.push(problem);
}

fn is_reference(text: &str) -> bool {
    if let Some(name) = text.strip_prefix("env:") {
        return name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    }
    text.strip_prefix("file:").is_some_and(|path| !path.trim().is_empty() && !path.chars().any(char::is_control))
}

fn merge_limits(vendor: ConnectorLimits, own: ConnectorLimits) -> ConnectorLimits {
    ConnectorLimits {
        in_flight: own.in_flight.or(vendor.in_flight),
        starts_per_minute: own.starts_per_minute.or(vendor.starts_per_minute),
        requests_per_second: own.requests_per_second.or(vendor.requests_per_second),
    }
}

/// A first delay of one's own above the vendor's ceiling lifts the ceiling to it.
fn merge_cadence(vendor: Cadence, own: CadenceConfig) -> Cadence {
    let first_s = own.first_s.unwrap_or(vendor.first_s);
    Cadence {
        first_s,
        factor: own.factor.unwrap_or(vendor.factor),
        ceiling_s: own.ceiling_s.unwrap_or_else(|| vendor.ceiling_s.max(first_s)),
        jitter: own.jitter.unwrap_or(vendor.jitter),
    }
}
