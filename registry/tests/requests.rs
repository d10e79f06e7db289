//! What a job's request may hold, whatever its vendor.

#![allow(clippy::unwrap_used)]

use longhaul_registry::{PROBLEM_CODES, Problem, Registry, VendorFile, check_options, check_request, codes};
use serde_json::{Value, json};
use std::sync::Arc;

fn vendor(name: &str) -> Arc<VendorFile> {
    let registry = Registry::builtin().unwrap_or_else(|problems| panic!("{problems}"));
    Arc::clone(registry.vendor(name).unwrap())
}

fn check(name: &str, mut base: Value, more: Value) -> Vec<Problem> {
    base.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    check_request(&serde_json::from_value(base).unwrap(), &vendor(name))
}

fn image(more: Value) -> Vec<Problem> {
    check("flux", json!({"connector": "flux", "task": "image", "instructions": "a telescope"}), more)
}

fn speech(more: Value) -> Vec<Problem> {
    check("elevenlabs", json!({"connector": "e", "task": "speech"}), more)
}

fn agent(more: Value) -> Vec<Problem> {
    check("a2a", json!({"connector": "a", "task": "agent.code", "instructions": "mend it"}), more)
}

fn told(problems: &[Problem]) -> Vec<(&str, &str)> {
    problems.iter().map(|problem| (problem.path.as_str(), problem.code.as_str())).collect()
}

#[test]
fn the_request_of_the_interface_page_is_good() {
    let request = json!({
        "media": {"width": 1536, "height": 864, "format": "png", "count": 1, "seed": 7},
        "inputs": [{"role": "reference", "url": "https://example.com/a.png?sig=x"}],
        "vendor": {"safety_tolerance": 2},
        "limits": {"max_cost_usd": "0.50", "max_minutes": 30, "question_minutes": 10},
        "output_path": "assets/hero.png", "expect": [], "strict_spec": false,
        "tenant": "acme", "priority": 0, "labels": {"task": "T-12"},
        "notify": {"url": "https://orchestrator.example/hooks", "events": ["job.finished", "job.needs_input"]},
        "on_unknown_start": "park"
    });
    assert_eq!(image(request), []);
}

#[test]
fn tasks_and_formats_are_the_vendors() {
    let problems = image(json!({"task": "video", "media": {"format": "jpg"}}));
    assert_eq!(told(&problems), [("task", "not_allowed"), ("media.format", "not_allowed")]);
    assert_eq!(problems[0].allowed, Some(json!(["image"])));
    assert!(problems[1].message.contains("did you mean `jpeg`?"), "{problems:?}");
    assert_eq!(problems[1].allowed, Some(json!(["png", "jpeg", "webp"])));
    assert_eq!(told(&agent(json!({"media": {"format": "png"}}))), [("media.format", "not_allowed")]);
}

#[test]
fn speech_wants_one_script_and_others_want_words() {
    let script = json!({"role": "script", "text": "Hello."});
    assert_eq!(speech(json!({"inputs": [script]})), []);
    assert_eq!(told(&speech(json!({"instructions": "Hello."}))), [("inputs", "missing")]);
    assert_eq!(told(&speech(json!({"inputs": [script, script]}))), [("inputs", "conflict")]);
    assert_eq!(told(&image(json!({"instructions": " "}))), [("instructions", "missing")]);
    let picture = json!([{"role": "reference", "artifact": "art_0f"}]);
    assert_eq!(image(json!({"instructions": "", "inputs": picture})), [], "a picture to work on may say enough");
    assert_eq!(told(&agent(json!({"instructions": "", "inputs": picture}))), [("instructions", "missing")]);
    assert_eq!(told(&agent(json!({"instructions": "x".repeat(1_000_001)}))), [("instructions", "too_long")]);
    // A million characters of two bytes each are not too many.
    assert_eq!(agent(json!({"instructions": "é".repeat(1_000_000)})), []);
    assert_eq!(told(&agent(json!({"instructions": "a\u{0}b"}))), [("instructions", "not_allowed")]);
}

#[test]
fn media_numbers_have_ranges() {
    for key in ["width", "height", "duration_ms", "fps", "sample_rate", "channels", "count"] {
        let path = format!("media.{key}");
        assert_eq!(told(&image(json!({"media": {key: 0}}))), [(path.as_str(), "out_of_range")]);
        assert_eq!(image(json!({"media": {key: 1}})), [], "{key}");
    }
    assert_eq!(told(&image(json!({"media": {"width": 65_536}}))), [("media.width", "out_of_range")]);
    assert_eq!(image(json!({"media": {"seed": 18_446_744_073_709_551_615_u64}})), []);
    for aspect in ["16x9", "16:", ":9", "0:9", "16:0", "16:9:1", "-1:2", "1.5:1", "100000:1", ""] {
        assert_eq!(told(&image(json!({"media": {"aspect": aspect}}))), [("media.aspect", "not_allowed")], "{aspect}");
    }
    assert_eq!(image(json!({"media": {"aspect": "16:9", "language": "pt-BR"}})), []);
    for language in ["e", "en_US", "en-", "englisch und deutsch"] {
        let problems = image(json!({"media": {"language": language}}));
        assert_eq!(told(&problems), [("media.language", "not_allowed")], "{language}");
    }
    assert_eq!(told(&image(json!({"media": {"voice": "a\nb"}}))), [("media.voice", "not_allowed")]);
}

#[test]
fn an_input_has_one_source_that_can_be_had() {
    let input = |input: Value| {
        let problems = image(json!({"inputs": [input]}));
        problems.into_iter().map(|problem| (problem.path, problem.code)).collect::<Vec<_>>()
    };
    let one = |path: &str, code: &str| vec![(path.to_owned(), code.to_owned())];
    assert_eq!(input(json!({"role": "reference"})), one("inputs[0]", "missing"));
    let both = json!({"role": "reference", "url": "https://a.example/x", "text": "x"});
    assert_eq!(input(both), one("inputs[0]", "conflict"));
    assert_eq!(input(json!({"role": "First Frame", "text": "x"})), one("inputs[0].role", "not_allowed"));
    assert_eq!(input(json!({"role": "reference", "url": "data:image/png;base64,AA=="})), []);
    let urls = [
        "http://a.example/x",
        "ftp://a.example/x",
        "file:///etc/passwd",
        "//a.example",
        "https://",
        "https://u@a.example/",
        "https://a.example/x y",
        "https://a.example/\n",
        "data:image/png",
        "https://127.0.0.1/x",
        "https://localhost/x",
        "https://169.254.169.254/latest",
        "https://[::ffff:10.0.0.1]/",
    ];
    for url in urls {
        let problems = input(json!({"role": "reference", "url": url}));
        assert_eq!(problems, one("inputs[0].url", "not_allowed"), "{url}");
    }
    for artifact in ["", "art_", "art_a/b", "job_1", "art_a b"] {
        let problems = input(json!({"role": "reference", "artifact": artifact}));
        assert_eq!(problems, one("inputs[0].artifact", "not_allowed"), "{artifact}");
    }
    assert_eq!(input(json!({"role": "repo", "repo": "acme/demo.rs"})), []);
    for repo in ["acme", "acme/", "/demo", "acme/demo/x", "acme/..", "acme/de mo"] {
        assert_eq!(input(json!({"role": "repo", "repo": repo})), one("inputs[0].repo", "not_allowed"), "{repo}");
    }
    assert_eq!(input(json!({"role": "script", "text": ""})), one("inputs[0].text", "empty"));
    let many: Vec<_> = (0..101).map(|_| json!({"role": "reference", "text": "x"})).collect();
    assert_eq!(told(&image(json!({"inputs": many}))), [("inputs", "too_long")]);
}

#[test]
fn output_paths_stay_below_their_root() {
    for path in ["hero.png", "a/b/c.png", "…/ü.png", "a..b/c", ".hidden", "x".repeat(255).as_str()] {
        assert_eq!(image(json!({"output_path": path})), [], "{path}");
    }
    let long = format!("{}/x", "a/".repeat(300));
    let bad = [
        "",
        "/etc/passwd",
        "..",
        "../x",
        "a/../x",
        "a/..",
        "./a",
        "a/./b",
        "a//b",
        "a/",
        "a\\b",
        "a\nb",
        "a\0b",
        "C:/x",
        "C:x",
        " a",
        "a /b",
        &long,
        &"x".repeat(256),
    ];
    for path in bad {
        assert_eq!(told(&image(json!({"output_path": path}))), [("output_path", "not_allowed")], "{path:?}");
    }
}

#[test]
fn deliverables_limits_and_the_rest() {
    assert_eq!(agent(json!({"expect": ["patch", "pull_request", "file", "report", "text"]})), []);
    let problems = agent(json!({"expect": ["patsh", "file", "file"]}));
    assert_eq!(told(&problems), [("expect[0]", "not_allowed"), ("expect[2]", "conflict")]);
    assert!(problems[0].message.contains("did you mean `patch`?"), "{problems:?}");
    assert_eq!(told(&image(json!({"expect": ["file"]}))), [("expect", "conflict")]);
    for cost in ["0", "-1"] {
        let problems = image(json!({"limits": {"max_cost_usd": cost}}));
        assert_eq!(told(&problems), [("limits.max_cost_usd", "out_of_range")], "{cost}");
    }
    let problems = image(json!({"limits": {"max_minutes": 0, "question_minutes": 10_081}}));
    assert_eq!(told(&problems), [("limits.max_minutes", "out_of_range"), ("limits.question_minutes", "out_of_range")]);
    for priority in [-101, 101] {
        assert_eq!(told(&image(json!({"priority": priority}))), [("priority", "out_of_range")]);
    }
    assert_eq!(image(json!({"priority": -100, "tenant": "Acme-1.eu_x"})), []);
    for tenant in ["", "..", ".a", "a/b", "a b", "ä", &"x".repeat(65)] {
        assert_eq!(told(&image(json!({"tenant": tenant}))), [("tenant", "not_allowed")], "{tenant}");
    }
    assert_eq!(told(&image(json!({"labels": {"a=b": "x"}}))), [("labels.\"a=b\"", "not_allowed")]);
    assert_eq!(told(&image(json!({"labels": {"a": "x".repeat(257)}}))), [("labels.a", "not_allowed")]);
    let many: serde_json::Map<_, _> = (0..65).map(|n| (format!("k{n}"), json!("v"))).collect();
    assert_eq!(told(&image(json!({"labels": many}))), [("labels", "too_long")]);
    let notify = |notify: Value| {
        let problems = image(json!({"notify": notify}));
        problems.into_iter().map(|problem| (problem.path, problem.code)).collect::<Vec<_>>()
    };
    let one = |path: &str, code: &str| vec![(path.to_owned(), code.to_owned())];
    assert_eq!(notify(json!({"url": "https://o.example/h"})), []);
    assert_eq!(notify(json!({"url": "http://o.example/h"})), one("notify.url", "not_allowed"));
    assert_eq!(notify(json!({"url": "https://o.example/h", "events": []})), one("notify.events", "empty"));
    let problems = notify(json!({"url": "https://o.example/h", "events": ["job.done"]}));
    assert_eq!(problems, one("notify.events[0]", "not_allowed"));
}

#[test]
fn options_are_those_of_the_vendors_list() {
    let options = |name: &str, options: Value| check_options(&vendor(name), options.as_object().unwrap());
    assert_eq!(options("flux", json!({"model": "flux-2-flex", "steps": 50, "guidance": 1.5, "raw": true})), []);
    let problems = options("flux", json!({"safety_tolerence": 2}));
    assert_eq!(told(&problems), [("vendor.safety_tolerence", "unknown_key")]);
    assert!(problems[0].message.contains("did you mean `safety_tolerance`?"), "{problems:?}");
    assert!(problems[0].allowed.as_ref().unwrap().as_array().unwrap().contains(&json!("safety_tolerance")));
    for (value, code) in [
        (json!(7), "out_of_range"),
        (json!(-1), "out_of_range"),
        (json!(2.0), "wrong_type"),
        (json!("2"), "wrong_type"),
        (json!(null), "wrong_type"),
    ] {
        let problems = options("flux", json!({"safety_tolerance": value}));
        assert_eq!(told(&problems), [("vendor.safety_tolerance", code)], "{value}");
    }
    assert_eq!(options("flux", json!({"safety_tolerance": 7}))[0].allowed, Some(json!("0 to 6")));
    assert_eq!(told(&options("flux", json!({"guidance": 1.4}))), [("vendor.guidance", "out_of_range")]);
    assert_eq!(told(&options("flux", json!({"model": "m".repeat(101)}))), [("vendor.model", "too_long")]);
    assert_eq!(told(&options("flux", json!({"raw": 1}))), [("vendor.raw", "wrong_type")]);
    let problems =
        options("elevenlabs", json!({"apply_text_normalization": "no", "previous_request_ids": ["a", "b", "c", "d"]}));
    assert_eq!(
        told(&problems),
        [("vendor.apply_text_normalization", "not_allowed"), ("vendor.previous_request_ids", "out_of_range")]
    );
    assert_eq!(problems[0].allowed, Some(json!(["auto", "on", "off"])));
    assert_eq!(
        options("elevenlabs", json!({"previous_request_ids": ["a", "b", "c"], "voice_settings": {"speed": 1.1}})),
        []
    );
    assert_eq!(
        told(&options("runway", json!({"contentModeration": "low"}))),
        [("vendor.contentModeration", "wrong_type")]
    );
    assert_eq!(told(&options("runway", json!({"outputFormat": "avi"}))), [("vendor.outputFormat", "not_allowed")]);
}

#[test]
fn every_code_of_a_problem_is_explained() {
    let page = codes::page("invalid_request").unwrap();
    for code in PROBLEM_CODES {
        assert!(page.contains(&format!("`{code}`")), "{code}");
    }
}
