//! The compiled-in files against facts transcribed from the vendors' wire pages.

#![allow(clippy::unwrap_used)]

use longhaul_registry::{AuthScheme, LostStart, Registry, Task, Unit, VendorFile};
use std::collections::BTreeSet;
use std::sync::Arc;

fn registry() -> Registry {
    Registry::builtin().unwrap_or_else(|problems| panic!("{problems}"))
}

fn vendor(name: &str) -> Arc<VendorFile> {
    Arc::clone(registry().vendor(name).unwrap())
}

fn header(name: &str) -> AuthScheme {
    AuthScheme::Header { name: name.to_owned() }
}

#[test]
fn every_file_of_the_folder_is_compiled_in() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/connectors");
    let files: BTreeSet<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .map(|name| name.strip_suffix(".toml").unwrap().to_owned())
        .collect();
    let registry = registry();
    let names: BTreeSet<String> = registry.names().into_iter().map(str::to_owned).collect();
    assert_eq!(names, files);
    assert_eq!(registry.names(), ["a2a", "claude_managed_agents", "elevenlabs", "flux", "runway"]);
}

/// vendor, base URL, key, free check, tasks, unit, (lost start, cancels, cancel erases, asks, synchronous).
#[test]
fn the_wire_facts_are_those_of_the_pages() {
    use LostStart::{Find, None as Nothing};
    use Task::{AgentBrowse, AgentCode, AgentGeneral, AgentResearch, Image, Speech, Video};
    let agent = vec![AgentBrowse, AgentCode, AgentGeneral, AgentResearch];
    let facts = [
        (
            "flux",
            "https://api.bfl.ai",
            header("x-key"),
            "/v1/credits",
            vec![Image],
            Unit::Credits,
            (Nothing, false, false, false, false),
        ),
        (
            "runway",
            "https://api.dev.runwayml.com",
            AuthScheme::Bearer,
            "/v1/organization",
            vec![Video],
            Unit::Credits,
            (Nothing, true, true, false, false),
        ),
        (
            "elevenlabs",
            "https://api.elevenlabs.io",
            header("xi-api-key"),
            "/v1/user/subscription",
            vec![Speech],
            Unit::Credits,
            (Find, false, false, false, true),
        ),
        (
            "claude_managed_agents",
            "https://api.anthropic.com",
            AuthScheme::Bearer,
            "/v1/sessions?limit=1",
            agent.clone(),
            Unit::Usd,
            (Find, true, false, true, false),
        ),
        (
            "a2a",
            "",
            AuthScheme::Bearer,
            "{card_url|/.well-known/agent-card.json}",
            agent,
            Unit::Requests,
            (Find, true, false, true, false),
        ),
    ];
    for (name, base_url, auth, check, tasks, unit, abilities) in facts {
        let file = vendor(name);
        assert_eq!(file.base_url, base_url, "{name}");
        assert_eq!(file.auth, auth, "{name}");
        assert_eq!((file.check.method.as_str(), file.check.path.as_str()), ("GET", check), "{name}");
        let mut found = file.tasks.clone();
        found.sort_by_key(|task| task.as_str());
        assert_eq!(found, tasks, "{name}");
        assert_eq!(file.unit, unit, "{name}");
        let found = (file.lost_start, file.cancels, file.cancel_erases, file.asks, file.synchronous);
        assert_eq!(found, abilities, "{name}");
        assert_eq!(file.verified, "2026-11-30", "{name}");
        assert!(!file.sources.is_empty(), "{name}");
    }
}

#[test]
fn flux() {
    let file = vendor("flux");
    assert_eq!(file.key_hosts, ["bfl.ai", "*.bfl.ai"]);
    assert_eq!(file.formats.iter().collect::<BTreeSet<_>>().len(), 3);
    assert!(["jpeg", "png", "webp"].iter().all(|format| file.formats.iter().any(|known| known == format)));
    // 24 active tasks; 1 s doubling to 5 s.
    assert_eq!(file.limits.in_flight, Some(24));
    assert_eq!((file.cadence.first_s, file.cadence.factor, file.cadence.ceiling_s), (1.0, 2.0, 5.0));
    assert_eq!(file.regions["eu"], "https://api.eu.bfl.ai");
    assert_eq!(file.regions["us"], "https://api.us.bfl.ai");
    let tolerance = &file.options["safety_tolerance"];
    assert_eq!((tolerance.min, tolerance.max), (Some(0.0), Some(6.0)));
    let guidance = &file.options["guidance"];
    assert_eq!((guidance.min, guidance.max), (Some(1.5), Some(10.0)));
    let steps = &file.options["steps"];
    assert_eq!((steps.min, steps.max), (Some(1.0), Some(50.0)));
    assert_eq!((file.find_s, file.absence_proves), (0, false));
}

#[test]
fn runway() {
    let file = vendor("runway");
    assert_eq!(file.headers["X-Runway-Version"], "{api_version}");
    assert_eq!(file.settings["api_version"].default, Some("2024-11-06".into()));
    // Not more often than every 5 s a task, jitter included.
    assert!(file.cadence.first_s * (1.0 - file.cadence.jitter) >= 5.0);
    // Model names are open strings.
    assert!(file.options["model"].allowed.is_empty());
    assert_eq!(file.settings["model"].default, Some("gen4.5".into()));
}

#[test]
fn credits_cost_a_cent_at_flux_and_runway_and_nothing_else_is_priced() {
    for name in ["flux", "runway"] {
        let file = vendor(name);
        let prices: Vec<_> = file.prices.iter().map(|price| (price.unit, price.usd.to_string())).collect();
        assert_eq!(prices, [(Unit::Credits, "0.01".to_owned())], "{name}");
    }
    assert_eq!(vendor("flux").prices[0].as_of, "2026-02-03");
    // The plan decides (elevenlabs), money is reported (claude), nothing is known (a2a).
    for name in ["elevenlabs", "claude_managed_agents", "a2a"] {
        assert!(vendor(name).prices.is_empty(), "{name}");
    }
}

#[test]
fn elevenlabs() {
    let file = vendor("elevenlabs");
    assert_eq!(file.check.or_path.as_deref(), Some("/v1/models"));
    // Five minutes of search; what is not found then is a person's to decide.
    assert_eq!((file.find_s, file.absence_proves), (300, false));
    // A silent start of minutes is billed when it is cut.
    assert!(file.start_silence_s >= 300, "{}", file.start_silence_s);
    assert_eq!(file.limits.in_flight, Some(2));
    assert_eq!(file.settings["cost_header"].default, Some("character-cost".into()));
    assert_eq!(file.settings["request_id_header"].default, Some("request-id".into()));
    assert_eq!(file.settings["enable_logging"].default, Some(true.into()));
    assert_eq!(file.regions["us"], "https://api.us.elevenlabs.io");
    assert_eq!(file.regions["eu"], "https://api.eu.residency.elevenlabs.io");
    let formats = &file.options["output_format"].allowed;
    for word in ["mp3_22050_32", "mp3_44100_192", "wav_44100", "pcm_8000", "opus_48000_192", "ulaw_8000", "alaw_8000"] {
        assert!(formats.contains(&word.into()), "{word}");
    }
    // Rates that the page does not list.
    for word in ["mp3_48000_128", "mp3_44100_256", "wav_11025", "opus_24000_32", "flac_44100"] {
        assert!(!formats.contains(&word.into()), "{word}");
    }
    assert_eq!(file.options["previous_request_ids"].max, Some(3.0));
    assert_eq!(file.options["optimize_streaming_latency"].max, Some(4.0));
}

#[test]
fn claude_managed_agents() {
    let file = vendor("claude_managed_agents");
    assert_eq!(file.headers["anthropic-beta"], "managed-agents-2026-04-01");
    assert_eq!(file.settings["api_version"].default, Some("2026-10-21".into()));
    assert_eq!(file.auth_choices["bearer"], AuthScheme::Bearer);
    assert_eq!(file.auth_choices["x_api_key"], header("x-api-key"));
    assert!(file.settings["agent_id"].required && file.settings["environment_id"].required);
    assert!(!file.settings["vault_ids"].required && !file.settings["agent_version"].required);
    // 300 creates a minute, 600 other calls a minute; 5 s, then 15 s.
    assert_eq!((file.limits.starts_per_minute, file.limits.requests_per_second), (Some(300), Some(10)));
    assert_eq!((file.cadence.first_s, file.cadence.ceiling_s), (5.0, 15.0));
    // The session's own event list holds every accepted message: a two-phase start is free to repeat.
    assert!(file.absence_proves && file.find_s > 0);
}

#[test]
fn a2a() {
    let file = vendor("a2a");
    assert_eq!(file.headers["A2A-Version"], "1.0");
    assert_eq!((file.cadence.first_s, file.cadence.factor, file.cadence.ceiling_s), (1.0, 2.0, 30.0));
    // ListTasks is optional and lags: not being listed proves nothing. Balancers cut at up to 300 s.
    assert!(!file.absence_proves && file.find_s > 0 && file.start_silence_s >= 300);
    assert_eq!(file.settings["binding"].allowed, ["JSONRPC", "HTTP+JSON"]);
    assert_eq!(file.auth_choices.keys().collect::<Vec<_>>(), ["basic", "bearer", "header", "none"]);
    assert!(file.formats.is_empty());
}

#[test]
fn services_without_an_api_have_an_alternative() {
    let registry = registry();
    let wanted = [
        "midjourney",
        "suno",
        "udio",
        "perplexity_comet",
        "chatgpt",
        "claude_app",
        "gemini_app",
        "grok_app",
        "genspark",
        "kimi",
        "minimax_agent",
        "playht",
        "sora",
    ];
    for name in wanted {
        let service = registry.unsupported_named(name).unwrap_or_else(|| panic!("{name}"));
        assert!(service.instead.len() > 20 && service.why.len() > 20, "{name}");
        assert!(registry.vendor(name).is_none(), "{name}");
    }
    for (also, name) in
        [("Play.ht", "playht"), ("sora-2", "sora"), ("Claude.ai", "claude_app"), ("comet", "perplexity_comet")]
    {
        assert_eq!(registry.unsupported_named(also).unwrap().name, name);
    }
    // What ended, and when.
    assert!(registry.unsupported_named("sora").unwrap().why.contains("2026-09-24"));
    assert!(registry.unsupported_named("playht").unwrap().why.contains("2025"));
    assert!(registry.unsupported_named("flux").is_none());
}

#[test]
fn the_list_tells_sources_and_lost_starts() {
    let list = serde_json::to_value(registry().list()).unwrap();
    assert_eq!(list["vendors"][3]["vendor"], "flux");
    assert_eq!(list["vendors"][3]["lost_start"], "none");
    assert_eq!(list["vendors"][3]["unit"], "credits");
    assert!(list["unsupported"].as_array().unwrap().len() >= 13);
    let detail = serde_json::to_value(longhaul_registry::VendorDetail::from(vendor("flux").as_ref())).unwrap();
    assert_eq!(detail["title"], "FLUX (Black Forest Labs)");
    assert_eq!(detail["prices"][0]["usd"], "0.01");
    assert!(detail["prices"][0]["source"].as_str().unwrap().contains("black-forest-labs/skills"));
    assert!(detail["lost_start_means"].as_str().unwrap().contains("start_unknown"));
    let means = longhaul_registry::lost_start_means(&vendor("elevenlabs"));
    assert!(means.contains("300 s") && means.contains("start_unknown"), "{means}");
    let means = longhaul_registry::lost_start_means(&vendor("claude_managed_agents"));
    assert!(means.contains("started again"), "{means}");
}
