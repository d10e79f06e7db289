//! An installed connector out of its section of the configuration.

#![allow(clippy::unwrap_used)]

use longhaul_registry::shape::{Field, Shape, may};
use longhaul_registry::{
    AuthScheme, CONNECTOR_SECTION, Connector, ConnectorConfig, ConnectorLimits, Document, Price, Problem, Registry,
    Unit, VendorFile, check_job, price, resolve,
};
use rust_decimal::Decimal;
use serde_json::{Value, json};
use std::sync::Arc;

fn registry() -> Registry {
    Registry::builtin().unwrap_or_else(|problems| panic!("{problems}"))
}

fn config(section: Value) -> ConnectorConfig {
    serde_json::from_value(section).unwrap()
}

fn good(section: Value) -> Connector {
    resolve("mine", &config(section), &registry()).unwrap_or_else(|problems| panic!("{problems:?}"))
}

fn bad(section: Value) -> Vec<(String, String)> {
    let problems = resolve("mine", &config(section), &registry()).map(|_| ()).unwrap_err();
    problems.into_iter().map(|Problem { path, code, .. }| (path, code)).collect()
}

fn one(path: &str, code: &str) -> Vec<(String, String)> {
    vec![(format!("connectors.mine.{path}"), code.to_owned())]
}

#[test]
fn the_section_of_the_interface_page_resolves() {
    let text = r#"
        vendor = "flux"
        credential = "env:BFL_API_KEY"
        base_url = "https://api.bfl.ai"
        allow_private_network = false
        private_hosts = []
        limits = { in_flight = 24, starts_per_minute = 60, requests_per_second = 10 }
        settings = { region = "eu" }
        price_override = { credit_usd = "0.01" }
        cadence = { first_s = 1, factor = 1.6, ceiling_s = 10, jitter = 0.2 }
    "#;
    let connector = resolve("flux", &toml::from_str(text).unwrap(), &registry()).unwrap();
    // The vendor's own address is no choice of one's own: the region stands.
    assert_eq!(connector.base_url, "https://api.eu.bfl.ai");
    assert_eq!(connector.credential.as_deref(), Some("env:BFL_API_KEY"));
    let limits = ConnectorLimits { in_flight: Some(24), starts_per_minute: Some(60), requests_per_second: Some(10) };
    assert_eq!(connector.limits, limits);
    assert_eq!(connector.cadence.factor, 1.6);
    assert_eq!(connector.price_override[&Unit::Credits].to_string(), "0.01");
    assert_eq!(connector.auth(), &AuthScheme::Header { name: "x-key".to_owned() });
    assert_eq!(connector.setting_str("model"), Some("flux-2-pro"));
    assert_eq!(connector.check_urls(), ["https://api.eu.bfl.ai/v1/credits"]);
}

#[test]
fn what_is_left_out_is_the_vendors_default() {
    let connector = good(json!({"vendor": "flux", "credential": "file:/run/secrets/bfl"}));
    assert_eq!(connector.base_url, "https://api.bfl.ai");
    assert_eq!(connector.limits.in_flight, Some(24));
    assert_eq!((connector.cadence.first_s, connector.cadence.ceiling_s), (1.0, 5.0));
    let one_part = json!({"vendor": "flux", "credential": "env:K", "cadence": {"first_s": 0.05}, "limits": {"starts_per_minute": 5}});
    let connector = good(one_part);
    assert_eq!((connector.cadence.first_s, connector.cadence.factor), (0.05, 2.0));
    assert_eq!((connector.limits.in_flight, connector.limits.starts_per_minute), (Some(24), Some(5)));
    // A first delay above the vendor's ceiling lifts the ceiling.
    let connector = good(json!({"vendor": "flux", "credential": "env:K", "cadence": {"first_s": 20}}));
    assert_eq!(connector.cadence.ceiling_s, 20.0);
}

#[test]
fn a_base_url_of_ones_own_wins_over_the_region() {
    let section = json!({"vendor": "flux", "credential": "env:K", "base_url": "http://127.0.0.1:7071/flux/",
        "allow_private_network": true, "settings": {"region": "us"}});
    assert_eq!(good(section).base_url, "http://127.0.0.1:7071/flux");
    let eu = good(json!({"vendor": "elevenlabs", "credential": "env:K", "settings": {"region": "eu"}}));
    assert_eq!(eu.base_url, "https://api.eu.residency.elevenlabs.io");
    let wanted = [
        "https://api.eu.residency.elevenlabs.io/v1/user/subscription",
        "https://api.eu.residency.elevenlabs.io/v1/models",
    ];
    assert_eq!(eu.check_urls(), wanted);
}

#[test]
fn settings_stand_in_headers_auth_and_check() {
    let claude = |settings: Value| {
        let mut settings = settings;
        settings["agent_id"] = json!("agent_FAKE01");
        settings["environment_id"] = json!("env_FAKE01");
        good(json!({"vendor": "claude_managed_agents", "credential": "env:K", "settings": settings}))
    };
    let plain = claude(json!({}));
    assert_eq!(plain.auth(), &AuthScheme::Bearer);
    assert_eq!(plain.vendor.headers["anthropic-version"], "2026-10-21");
    assert!(!plain.vendor.headers.contains_key("anthropic-workspace-id"), "a header without a value is left out");
    let other = claude(json!({"auth": "x_api_key", "workspace_id": "wrkspc_F", "api_version": "2023-06-01"}));
    assert_eq!(other.auth(), &AuthScheme::Header { name: "x-api-key".to_owned() });
    assert_eq!(other.vendor.headers["anthropic-workspace-id"], "wrkspc_F");
    assert_eq!(other.vendor.headers["anthropic-version"], "2023-06-01");

    let agent = "https://agents.acme.example/a";
    let plain = good(json!({"vendor": "a2a", "credential": "env:K", "base_url": agent}));
    assert_eq!(plain.check_urls(), ["https://agents.acme.example/a/.well-known/agent-card.json"]);
    let settings = json!({"auth": "header", "auth_header": "X-Agent-Key", "card_url": "https://cards.acme.example/c.json",
        "key_hosts": ["rpc.acme.example"]});
    let other = good(json!({"vendor": "a2a", "credential": "env:K", "base_url": agent, "settings": settings}));
    assert_eq!(other.auth(), &AuthScheme::Header { name: "X-Agent-Key".to_owned() });
    assert_eq!(other.check_urls(), ["https://cards.acme.example/c.json"]);
    assert_eq!(other.vendor.key_hosts, ["rpc.acme.example"]);
    let settings = json!({"endpoint": "https://rpc.acme.example/a2a"});
    let elsewhere = good(json!({"vendor": "a2a", "credential": "env:K", "base_url": agent, "settings": settings}));
    assert_eq!(elsewhere.vendor.key_hosts, ["rpc.acme.example"]);
    let open = good(json!({"vendor": "a2a", "base_url": agent, "settings": {"auth": "none"}}));
    assert_eq!((open.auth(), &open.credential), (&AuthScheme::None, &None));
}

#[test]
fn every_mistake_names_its_key() {
    let flux = |more: Value| {
        let mut section = json!({"vendor": "flux", "credential": "env:K"});
        section.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        bad(section)
    };
    assert_eq!(bad(json!({})), one("vendor", "missing"));
    assert_eq!(bad(json!({"vendor": "fluks"})), one("vendor", "not_allowed"));
    assert_eq!(bad(json!({"vendor": "midjourney"})), one("vendor", "model_unavailable"));
    assert_eq!(bad(json!({"vendor": "flux"})), one("credential", "missing"));
    for reference in ["sandbox-canary", "env:", "env:9K", "env:A-B", "file:", "file: ", "vault:x", "env:A B"] {
        assert_eq!(flux(json!({"credential": reference})), one("credential", "not_allowed"), "{reference}");
    }
    let urls = [
        "http://api.bfl.ai",
        "ftp://api.bfl.ai",
        "api.bfl.ai",
        "https://u:p@api.bfl.ai",
        "https://api.bfl.ai?x=1",
        "https://127.0.0.1:7071",
        "https://localhost",
        "https://169.254.169.254",
        "https://[::1]",
        "https://api.bfl.ai:0",
    ];
    for url in urls {
        assert_eq!(flux(json!({"base_url": url})), one("base_url", "not_allowed"), "{url}");
    }
    for host in ["10.0.0.7", "10.0.0.7:0", "http://10.0.0.7:80", "10.0.0.7:80/x", "a b:80", ":80"] {
        assert_eq!(
            flux(json!({"private_hosts": ["10.0.0.7:80", host]})),
            one("private_hosts[1]", "not_allowed"),
            "{host}"
        );
    }
    assert_eq!(flux(json!({"limits": {"in_flight": 0}})), one("limits.in_flight", "out_of_range"));
    assert_eq!(flux(json!({"settings": {"modle": "x"}})), one("settings.modle", "unknown_key"));
    assert_eq!(flux(json!({"settings": {"model": 3}})), one("settings.model", "wrong_type"));
    assert_eq!(flux(json!({"settings": {"model": ""}})), one("settings.model", "empty"));
    assert_eq!(flux(json!({"settings": {"region": "mars"}})), one("settings.region", "not_allowed"));
    assert_eq!(flux(json!({"cadence": {"factor": 0.5}})), one("cadence.factor", "out_of_range"));
    assert_eq!(flux(json!({"cadence": {"jitter": 2}})), one("cadence.jitter", "out_of_range"));
    assert_eq!(flux(json!({"cadence": {"first_s": 9, "ceiling_s": 3}})), one("cadence.ceiling_s", "out_of_range"));
    assert_eq!(flux(json!({"price_override": {"credits_usd": "1"}})), one("price_override.credits_usd", "unknown_key"));
    assert_eq!(flux(json!({"price_override": {"usd_usd": "1"}})), one("price_override.usd_usd", "unknown_key"));
    assert_eq!(flux(json!({"price_override": {"credit_usd": 0.01}})), one("price_override.credit_usd", "wrong_type"));
    assert_eq!(flux(json!({"price_override": {"credit_usd": "1,5"}})), one("price_override.credit_usd", "not_allowed"));
    assert_eq!(flux(json!({"price_override": {"credit_usd": "-1"}})), one("price_override.credit_usd", "out_of_range"));
    assert_eq!(bad(json!({"vendor": "a2a", "credential": "env:K"})), one("base_url", "missing"));
    let claude = json!({"vendor": "claude_managed_agents", "credential": "env:K", "settings": {"agent_id": "agent_F"}});
    assert_eq!(bad(claude), one("settings.environment_id", "missing"));
    let a2a = |settings: Value| {
        bad(json!({"vendor": "a2a", "credential": "env:K", "base_url": "https://a.example", "settings": settings}))
    };
    assert_eq!(a2a(json!({"auth": "none"})), one("credential", "conflict"));
    assert_eq!(a2a(json!({"auth": "header", "auth_header": "a b"})), one("settings.auth_header", "not_allowed"));
    assert_eq!(a2a(json!({"card_url": "http://a.example/c"})), one("settings.card_url", "not_allowed"));
    assert_eq!(a2a(json!({"key_hosts": ["a.example", "*"]})), one("settings.key_hosts[1]", "not_allowed"));
    let runway = json!({"vendor": "runway", "credential": "env:K", "settings": {"api_version": "1\r\nx: y"}});
    assert_eq!(bad(runway), one("settings.api_version", "not_allowed"));
    let name = resolve("My Flux", &config(json!({"vendor": "flux", "credential": "env:K"})), &registry()).unwrap_err();
    assert_eq!((name[0].path.as_str(), name[0].code.as_str()), ("connectors.\"My Flux\"", "not_allowed"));
}

#[test]
fn all_mistakes_are_told_at_once_and_none_repeats_what_may_be_a_key() {
    let section = json!({
        "vendor": "flux", "credential": "sandbox-canary-1", "base_url": "https://sandbox-canary-2:x@api.bfl.ai",
        "private_hosts": ["sandbox-canary-3@x"], "settings": {"region": "sandbox-canary-4", "api_key": "sandbox-canary-5"},
        "price_override": {"credit_usd": "sandbox-canary-6"}, "limits": {"in_flight": 0}
    });
    let problems = resolve("mine", &config(section), &registry()).unwrap_err();
    assert_eq!(problems.len(), 7, "{problems:?}");
    assert!(!format!("{problems:?}").contains("canary"), "{problems:?}");
}

#[test]
fn an_unsupported_service_names_its_alternative() {
    let problems = resolve("mine", &config(json!({"vendor": "Midjourney"})), &registry()).unwrap_err();
    assert!(problems[0].message.contains("FLUX") && problems[0].message.contains("no public API"), "{problems:?}");
    let problems = resolve("mine", &config(json!({"vendor": "runaway"})), &registry()).unwrap_err();
    assert!(problems[0].message.contains("did you mean `runway`?"), "{problems:?}");
    assert_eq!(problems[0].allowed.as_ref().unwrap().as_array().unwrap().len(), 5);
}

#[test]
fn problems_find_their_lines_in_the_configuration() {
    let text = "[store]\nurl = \"sqlite:x.db\"\n\n[connectors.mine]\nvendor = \"flux\"\ncredential = \"env:K\"\n\
                limits = { in_flight = 0 }\n\n[connectors.mine.settings]\nmodel = 7\nregion = \"mars\"\n";
    let table: toml::Table = text.parse().unwrap();
    let section = table["connectors"]["mine"].clone().try_into().unwrap();
    let problems = resolve("mine", &section, &registry()).unwrap_err();
    let placed = Document::parse("longhaul.toml", text).unwrap().place(problems);
    let told: Vec<_> = placed.iter().map(|problem| (problem.line, problem.problem.path.as_str())).collect();
    let wanted = [
        (7, "connectors.mine.limits.in_flight"),
        (10, "connectors.mine.settings.model"),
        (11, "connectors.mine.settings.region"),
    ];
    assert_eq!(told, wanted);
    assert!(placed[2].to_string().starts_with("longhaul.toml:11: connectors.mine.settings.region: "), "{}", placed[2]);

    const FILE: &[Field] = &[may("connectors", Shape::Map(&Shape::Table(CONNECTOR_SECTION)))];
    let text = "[connectors.mine]\nvendor = \"flux\"\ncredentail = \"env:K\"\ncadence = { jiter = 1 }\n";
    let told: Vec<_> =
        Document::parse("longhaul.toml", text).unwrap().check(FILE).iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].starts_with("longhaul.toml:3: connectors.mine.credentail: "), "{told:?}");
    assert!(told[0].contains("did you mean `credential`?") && told[1].contains("did you mean `jitter`?"), "{told:?}");
}

#[test]
fn unknown_keys_of_the_section_are_refused() {
    let error =
        serde_json::from_value::<ConnectorConfig>(json!({"vendor": "flux", "credentail": "env:K"})).unwrap_err();
    assert!(error.to_string().contains("credentail"), "{error}");
    assert!(serde_json::from_value::<ConnectorConfig>(json!({"cadence": {"first": 1}})).is_err());
    assert!(serde_json::from_value::<ConnectorConfig>(json!({"limits": {"inflight": 1}})).is_err());
}

fn decimal(text: &str) -> Decimal {
    text.parse().unwrap()
}

fn priced(connector: &Connector, model: Option<&str>, unit: Unit, quantity: &str) -> Option<String> {
    price(connector, model, unit, decimal(quantity)).map(|usd| usd.to_string())
}

#[test]
fn prices_are_exact() {
    let flux = good(json!({"vendor": "flux", "credential": "env:K", "price_override": {"credit_usd": "0.01"}}));
    assert_eq!(priced(&flux, None, Unit::Credits, "0.04").as_deref(), Some("0.0004"));
    assert_eq!(priced(&flux, None, Unit::Credits, "3.5").as_deref(), Some("0.035"));
    // Ten times 0.01 is 0.1 and not 0.09999999999999999.
    let sum: Decimal = (0..10).filter_map(|_| price(&flux, None, Unit::Credits, Decimal::ONE)).sum();
    assert_eq!(sum, decimal("0.1"));
    assert_eq!(priced(&flux, None, Unit::Credits, "5.000000000000000001").as_deref(), Some("0.05000000000000000001"));
    assert_eq!(priced(&flux, None, Unit::Usd, "0.31").as_deref(), Some("0.31"));
    assert_eq!(priced(&flux, None, Unit::Seconds, "3"), None);
    let huge = Decimal::MAX.to_string();
    let dear = good(json!({"vendor": "flux", "credential": "env:K", "price_override": {"credit_usd": "1000"}}));
    assert_eq!(priced(&dear, None, Unit::Credits, &huge), None, "what does not fit is unknown, not wrong");
}

#[test]
fn an_override_comes_before_the_models_price_and_that_before_the_vendors() {
    let mut connector = good(json!({"vendor": "flux", "credential": "env:K"}));
    let mut file = VendorFile::clone(&connector.vendor);
    let model_price = |usd: &str, model: Option<&str>| Price {
        unit: Unit::Images,
        usd: decimal(usd),
        model: model.map(str::to_owned),
        as_of: "2026-11-30".to_owned(),
        source: "test".to_owned(),
    };
    file.prices = vec![model_price("0.03", None), model_price("0.07", Some("max"))];
    connector.vendor = Arc::new(file);
    assert_eq!(priced(&connector, Some("max"), Unit::Images, "2").as_deref(), Some("0.14"));
    assert_eq!(priced(&connector, Some("pro"), Unit::Images, "2").as_deref(), Some("0.06"));
    assert_eq!(priced(&connector, None, Unit::Images, "2").as_deref(), Some("0.06"));
    connector.price_override.insert(Unit::Images, decimal("0.01"));
    assert_eq!(priced(&connector, Some("max"), Unit::Images, "2").as_deref(), Some("0.02"));
}

#[test]
fn every_unit_but_dollars_can_be_priced_over() {
    let keys = [
        ("credit_usd", Unit::Credits),
        ("token_in_usd", Unit::TokensIn),
        ("token_out_usd", Unit::TokensOut),
        ("character_usd", Unit::Characters),
        ("second_usd", Unit::Seconds),
        ("image_usd", Unit::Images),
        ("megapixel_usd", Unit::Megapixels),
        ("request_usd", Unit::Requests),
        ("acu_usd", Unit::Acu),
        ("unit_usd", Unit::Units),
    ];
    assert_eq!(keys.len() + 1, Unit::ALL.len());
    for (key, unit) in keys {
        let connector = good(json!({"vendor": "flux", "credential": "env:K", "price_override": {key: "2.5"}}));
        assert_eq!(priced(&connector, None, unit, "2").as_deref(), Some("5"), "{key}");
    }
}

#[test]
fn a_job_may_use_addresses_that_its_connector_opens_and_no_others() {
    let connector = good(json!({"vendor": "runway", "credential": "env:K", "base_url": "http://127.0.0.1:7071/runway",
        "allow_private_network": true, "private_hosts": ["10.0.0.7:9000"]}));
    let found = |url: &str| {
        let request = json!({"connector": "mine", "task": "video", "instructions": "a boat",
            "inputs": [{"role": "first_frame", "url": url}], "notify": {"url": url}});
        let problems = check_job(&serde_json::from_value(request).unwrap(), &connector);
        problems.into_iter().map(|problem| problem.path).collect::<Vec<_>>()
    };
    for open in [
        "http://10.0.0.7:9000/a.png",
        "http://127.0.0.1:7071/x",
        "https://files.example/a.png",
        "https://10.0.0.7:9000/",
    ] {
        assert_eq!(found(open), Vec::<String>::new(), "{open}");
    }
    for shut in [
        "http://10.0.0.7:9001/a.png",
        "http://files.example/a.png",
        "https://127.0.0.1/x",
        "https://10.0.0.7/a",
        "file:///etc/passwd",
    ] {
        assert_eq!(found(shut), ["inputs[0].url", "notify.url"], "{shut}");
    }
}
