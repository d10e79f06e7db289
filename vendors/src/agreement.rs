//! The modules against the registry's own files: what a file promises, its module takes.

use crate::JobVendor;
use crate::elevenlabs::ElevenLabs;
use crate::flux::Flux;
use crate::runway::Runway;
use crate::testing::request;
use longhaul_registry::{Connector, ConnectorConfig, Registry, check_options, resolve};
use serde_json::{Value, json};

fn installed(vendor: &str) -> Connector {
    let config: ConnectorConfig =
        serde_json::from_value(json!({"vendor": vendor, "credential": "env:SANDBOX_KEY"})).unwrap();
    resolve(vendor, &config, &Registry::builtin().unwrap()).unwrap()
}

fn modules() -> [(Box<dyn JobVendor>, Value); 3] {
    let script = json!([{"role": "script", "text": "Good morning."}]);
    [
        (Box::new(Flux), json!({"task": "image", "instructions": "x"})),
        (Box::new(Runway), json!({"task": "video", "instructions": "x"})),
        (Box::new(ElevenLabs), json!({"task": "speech", "inputs": script, "media": {"voice": "voiceA"}})),
    ]
}

#[test]
fn every_promised_format_and_listed_option_value_is_taken() {
    for (module, body) in modules() {
        let connector = installed(module.name());
        let file = &connector.vendor;
        assert!(!file.formats.is_empty() && !file.options.is_empty(), "{}", module.name());
        for format in &file.formats {
            let mut body = body.clone();
            body["media"]["format"] = json!(format);
            let prepared = module.prepare(&request(body), &connector);
            assert!(prepared.is_ok(), "{} {format}: {prepared:?}", module.name());
        }
        for (name, option) in &file.options {
            for value in &option.allowed {
                let mut body = body.clone();
                body["vendor"] = json!({ name: value });
                let request = request(body);
                assert_eq!(check_options(file, &request.vendor), vec![], "{} {name} {value}", module.name());
                let prepared = module.prepare(&request, &connector);
                assert!(prepared.is_ok(), "{} {name} {value}: {prepared:?}", module.name());
            }
        }
    }
}

#[test]
fn estimates_are_in_the_files_unit_and_readings_have_a_version() {
    for (module, body) in modules() {
        let connector = installed(module.name());
        let prepared = module.prepare(&request(body), &connector).unwrap();
        assert_eq!(module.adapter(), format!("{}/1", module.name()));
        assert!(prepared.estimate.iter().all(|line| line.unit == connector.vendor.unit), "{prepared:?}");
        assert!(!prepared.estimate.is_empty() && prepared.model.is_some(), "{prepared:?}");
    }
    let catalog: Vec<&str> = crate::catalog().iter().map(|module| module.name()).collect();
    for (module, _) in modules() {
        assert!(catalog.contains(&module.name()), "{catalog:?}");
    }
}
