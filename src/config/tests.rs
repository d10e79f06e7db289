//! What is read, what overrides it, and what is told of mistakes.

use super::*;

fn problems(text: &str, overrides: &[(&str, &str)]) -> Vec<String> {
    let overrides: Vec<_> = overrides.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let problems = parse("longhaul.toml", text, &overrides).err().map(|problems| problems.0).unwrap_or_default();
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn the_defaults_are_those_of_the_interface() {
    let config = parse("none", "", &[]).unwrap();
    assert_eq!(config.store.url, "sqlite:longhaul.db");
    assert_eq!(config.api.listen.to_string(), "127.0.0.1:7070");
    assert_eq!((config.worker.concurrency, config.worker.lease_s), (256, 15));
    assert_eq!((config.artifacts.max_bytes, config.api.max_body_bytes), (4 << 30, 64 << 20));
}

#[test]
fn a_file_and_the_environment_override_what_they_name() {
    let overrides = [
        ("LONGHAUL__WORKER__LEASE_S".to_owned(), "9".to_owned()),
        ("LONGHAUL__STORE__URL".to_owned(), "sqlite:other.db".to_owned()),
        ("LONGHAUL__NOTIFY__PRIVATE_HOSTS".to_owned(), "[\"127.0.0.1:9\"]".to_owned()),
        ("LONGHAUL__CONNECTORS__FLUX__CREDENTIAL".to_owned(), "env:B".to_owned()),
    ];
    let text = "[worker]\nconcurrency = 3\n[connectors.flux]\nvendor = \"flux\"\ncredential = \"env:A\"\n";
    let config = parse("f", text, &overrides).unwrap();
    assert_eq!((config.worker.concurrency, config.worker.lease_s), (3, 9));
    assert_eq!((config.store.url.as_str(), config.notify.private_hosts.len()), ("sqlite:other.db", 1));
    assert_eq!(config.connectors["flux"].credential.as_deref(), Some("env:B"));
}

#[test]
fn the_former_name_of_the_retention_time_still_holds() {
    let days = |text: &str, overrides: &[(&str, &str)]| {
        let overrides: Vec<_> =
            overrides.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        parse("longhaul.toml", text, &overrides).map(|config| config.retention.jobs_days).ok()
    };
    let variable = |name: &'static str| [(name, "7")];
    assert_eq!(days("", &[]), Some(30));
    assert_eq!(days("[api]\nretention_days = 90\n", &[]), Some(90));
    assert_eq!(days("[retention]\njobs_days = 90\n", &[]), Some(90));
    assert_eq!(days("", &variable("LONGHAUL__API__RETENTION_DAYS")), Some(7));
    assert_eq!(days("[retention]\njobs_days = 90\n", &variable("LONGHAUL__RETENTION__JOBS_DAYS")), Some(7));
    let both = "[api]\nretention_days = 90\n[retention]\njobs_days = 30\n";
    let found = problems(both, &[]);
    assert!(found.len() == 1 && found[0].starts_with("longhaul.toml:2: api.retention_days: "), "{found:#?}");
    let found = problems("[api]\nretention_days = 9\n", &variable("LONGHAUL__RETENTION__JOBS_DAYS"));
    assert!(found.len() == 1 && found[0].contains("retention.jobs_days"), "{found:#?}");
    for (text, place) in
        [("[api]\nretention_days = 0", "api.retention_days"), ("[retention]\nusage_days = 0", "usage_days")]
    {
        let found = problems(text, &[]);
        assert!(found.len() == 1 && found[0].contains(place), "{found:#?}");
    }
}

#[test]
fn every_mistake_names_file_line_and_the_nearest_key() {
    let found = problems("[worker]\nconcurency = 3\nlease_s = \"x\"\n[strore]\n", &[]);
    assert_eq!(found.len(), 3, "{found:#?}");
    assert!(found[0].starts_with("longhaul.toml:2: worker.concurency: ") && found[0].contains("concurrency"));
    assert!(found[1].starts_with("longhaul.toml:3: worker.lease_s: "), "{}", found[1]);
    assert!(found[2].contains("`store`"), "{}", found[2]);
    let found = problems("[api]\nlisten = \"7070\"\n", &[]);
    assert!(found[0].starts_with("longhaul.toml:2: api.listen: "), "{found:?}");
    let found = problems("[worker]\nlease_s = 1\n[store]\nurl = \"mysql://x\"\n", &[]);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(problems("a = [\n", &[])[0].contains("no TOML"));
}

#[test]
fn a_wrong_variable_is_named_as_the_variable() {
    let found = problems("", &[("LONGHAUL__WORKER__CONCURRENCY", "many")]);
    assert!(found[0].contains("LONGHAUL__WORKER__CONCURRENCY"), "{found:?}");
    let found = problems("", &[("LONGHAUL__WORKER__CONCURENCY", "4")]);
    assert!(found[0].contains("LONGHAUL__WORKER__CONCURENCY") && found[0].contains("concurrency"), "{found:?}");
    assert!(problems("", &[("LONGHAUL__WORKER", "4")])[0].contains("names no key"));
}

#[test]
fn a_secret_in_the_wrong_place_is_refused_without_repeating_it() {
    let found = problems("[notify]\nsecret = \"whsec_CANARY\"\n", &[]);
    assert!(found[0].starts_with("longhaul.toml:2: ") && !found[0].contains("CANARY"), "{found:?}");
}

#[test]
fn a_mistake_is_the_variables_where_the_variable_set_it() {
    let file = "[worker]\nlease_s = 9\n";
    let told = |name: &str, value: &str| problems(file, &[(name, value)]).join("\n");
    assert!(told("LONGHAUL__WORKER__LEASE_S", "1").starts_with("environment variable LONGHAUL__WORKER__LEASE_S"));
    assert!(told("LONGHAUL__API__LISTEN", "here").starts_with("environment variable LONGHAUL__API__LISTEN"));
    let overrides = [("LONGHAUL__CONNECTORS__A__CREDENTIAL".to_owned(), "CANARY".to_owned())];
    let config = parse("f", "[connectors.a]\nvendor = \"flux\"\n", &overrides).unwrap();
    let told = config.resolve(&Registry::builtin().unwrap()).unwrap_err().to_string();
    assert!(told.contains("LONGHAUL__CONNECTORS__A__CREDENTIAL") && !told.contains("CANARY"), "{told}");
}

#[test]
fn what_has_no_effect_is_said_and_the_defaults_all_have_one() {
    let keys = |text: &str| -> Vec<String> {
        parse("f", text, &[]).unwrap().without_effect(None).into_iter().map(|(key, _)| key).collect()
    };
    assert_eq!(keys(""), Vec::<String>::new());
    assert_eq!(keys("[store]\ndurability = \"everysec\"\n"), ["store.durability"]);
    let text = "[connectors.a]\nvendor = \"flux\"\nlimits = { in_flight = 3, starts_per_minute = 4 }\n\
                [tenants.a]\nweight = 3\nbudget_usd_per_month = \"5\"\n";
    assert_eq!(keys(text), Vec::<String>::new());
}

#[test]
fn what_has_no_effect_hangs_on_the_role() {
    let keys = |text: &str, role: Option<Role>| -> Vec<String> {
        parse("f", text, &[]).unwrap().without_effect(role).into_iter().map(|(key, _)| key).collect()
    };
    let (listen, fleet) = ("[worker]\nlisten = \"127.0.0.1:7072\"\n", "[store]\nurl = \"redis://r\"\n");
    assert_eq!(keys(listen, None), ["worker.listen"]);
    assert_eq!(keys(&format!("{fleet}{listen}"), Some(Role::Serve)), ["worker.listen"]);
    for role in [None, Some(Role::Worker), Some(Role::Scheduler)] {
        assert_eq!(keys(&format!("{fleet}durability = \"everysec\"\n{listen}"), role), Vec::<String>::new());
    }
}

#[test]
fn stores_are_a_file_or_a_redis() {
    let found = |url: &str| problems(&format!("[store]\nurl = \"{url}\"\n"), &[]);
    for url in [
        "sqlite:a.db",
        "redis://localhost",
        "rediss://user:secret@redis.example:6380/2?prefix=lh",
        "redis+sentinel://a:26379,b:26379/primary",
        "rediss+sentinel://a:26379/primary",
        "redis-cluster://a:7000,b:7001",
        "rediss-cluster://a:7000",
    ] {
        assert_eq!(found(url), Vec::<String>::new(), "{url}");
    }
    for url in ["", "sqlite:", "redis://", "redis://:CANARY@", "redis-cluster:///", "postgres://u:CANARY@h", "CANARY"] {
        let told = found(url);
        assert!(told.len() == 1 && told[0].starts_with("longhaul.toml:2: store.url"), "{url}: {told:?}");
        assert!(!told[0].contains("CANARY"), "a password is not repeated: {told:?}");
    }
    assert_eq!(problems("[store]\ndurability = \"sometimes\"\n", &[]).len(), 1);
}

#[test]
fn a_fleets_artifacts_want_a_place_that_all_reach() {
    let told = |text: &str| parse("f", text, &[]).unwrap().unshared_artifacts();
    let fleet = "[store]\nurl = \"redis://r\"\n";
    assert!(told(fleet).is_some_and(|told| told.contains("./artifacts") && told.contains("s3://")));
    assert_eq!(told(&format!("{fleet}[artifacts]\nurl = \"s3://b/p\"\n")), None);
    assert_eq!(told(""), None);
}

#[test]
fn artifacts_go_where_they_can() {
    for url in ["ftp://x/y", "artifacts", "s3:", "file:", ""] {
        let found = problems(&format!("[artifacts]\nurl = \"{url}\"\n"), &[]);
        assert!(found.first().is_some_and(|told| told.contains(":2: artifacts.url")), "{url}: {found:?}");
    }
    assert!(problems("[artifacts]\nurl = \"s3://bucket/prefix\"\n", &[]).is_empty());
}

#[test]
fn limits_are_what_the_file_says() {
    let text = "[connectors.a]\nvendor = \"flux\"\ncredential = \"env:K\"\n\
                limits = { in_flight = 3, starts_per_minute = 4, requests_per_second = 5 }\n\
                [tenants.acme]\nweight = 3\nbudget_usd_per_month = \"0.30\"\n\
                budget_units_per_month = { characters = \"100000\" }\n";
    let config = parse("f", text, &[]).unwrap();
    let limits = config.limits(&config.resolve(&Registry::builtin().unwrap()).unwrap());
    let caps = limits.connectors["a"];
    assert_eq!((caps.in_flight, caps.starts_per_minute, caps.requests_per_second), (Some(3), Some(4), Some(5)));
    let acme = &limits.tenants["acme"];
    assert_eq!((acme.weight, acme.budget_usd), (3, Some("0.3".parse().unwrap())));
    assert_eq!(acme.budget_units, [(Unit::Characters, "100000".parse().unwrap())].into());
}

#[test]
fn a_budget_names_a_unit_and_is_not_below_zero() {
    for (line, told) in [
        ("budget_units_per_month = { credit = \"5\" }", "`credits`"),
        ("budget_units_per_month = { credits = \"-5\" }", "tenants.a.budget_units_per_month.credits"),
        ("budget_units_per_month = { usd = \"5\" }", "tenants.a.budget_units_per_month.usd"),
    ] {
        let found = problems(&format!("[tenants.a]\n{line}\n"), &[]);
        assert!(found.first().is_some_and(|problem| problem.contains(told)), "{line}: {found:?}");
    }
}
