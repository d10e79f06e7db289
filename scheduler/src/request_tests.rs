use super::*;
use crate::strict;

fn problems_of(body: &str) -> Vec<(String, String)> {
    let mut found = match strict::read(body.as_bytes(), &DECIMALS) {
        Ok(tree) => {
            let mut problems = tree.problems;
            read(tree.value, &mut problems);
            problems
        }
        Err(problem) => vec![problem],
    };
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found.into_iter().map(|problem| (problem.path, problem.code)).collect()
}

fn good(body: &str) -> JobRequest {
    let tree = strict::read(body.as_bytes(), &DECIMALS).unwrap();
    let mut problems = tree.problems;
    let request = read(tree.value, &mut problems);
    assert_eq!(problems, []);
    request.unwrap()
}

#[test]
fn a_whole_request_reads_as_serde_reads_it() {
    let body = r#"{"connector": "flux", "task": "image", "instructions": "a brass telescope",
        "media": {"width": 1536, "height": 864.0, "format": "png", "count": 1, "seed": 18446744073709551615},
        "inputs": [{"role": "reference", "url": "https://example.com/a.png"}],
        "vendor": {"safety_tolerance": 2},
        "limits": {"max_cost_usd": "0.50", "max_minutes": 30, "question_minutes": 10},
        "output_path": "assets/hero.png", "expect": [], "strict_spec": false,
        "tenant": "acme", "priority": 0, "labels": {"task": "T-12"},
        "notify": {"url": "https://orchestrator.example/hooks", "events": ["job.finished", "job.needs_input"]},
        "on_unknown_start": "park"}"#;
    let mut expected: JobRequest = serde_json::from_str(&body.replace("864.0", "864")).unwrap();
    expected.limits.max_cost_usd = Some("0.5".parse().unwrap());
    assert_eq!(good(body), expected);
}

#[test]
fn money_is_read_by_its_own_digits() {
    let with = |money: &str| format!(r#"{{"connector":"c","task":"image","limits":{{"max_cost_usd":{money}}}}}"#);
    for (money, is) in
        [("0.1", "0.1"), ("\"0.1\"", "0.1"), ("\"1e3\"", "1000"), ("0.10000000000000000001", "0.10000000000000000001")]
    {
        assert_eq!(good(&with(money)).limits.max_cost_usd.unwrap().to_string(), is);
    }
    for money in
        ["\"-1\"", "-1", "\"NaN\"", "NaN", "\"\"", "\"\\\"1\\\"\"", "1e400", "true", "[1]", "\"1,5\"", "Infinity"]
    {
        let problems = problems_of(&with(money));
        assert_eq!(problems.len(), 1, "{money}");
        assert_eq!(problems[0].0, "limits.max_cost_usd", "{money}");
    }
}

#[test]
fn seeds_are_exact_or_refused_with_the_range() {
    let with = |seed: &str| format!(r#"{{"connector":"c","task":"image","media":{{"seed":{seed}}}}}"#);
    assert_eq!(good(&with("9007199254740993")).media.seed, Some(9_007_199_254_740_993));
    for seed in ["18446744073709551616", "-1", "1e19"] {
        let mut problems = Vec::new();
        read(strict::read(with(seed).as_bytes(), &[]).unwrap().value, &mut problems);
        assert_eq!((problems[0].path.as_str(), problems[0].code.as_str()), ("media.seed", "out_of_range"), "{seed}");
        assert_eq!(problems[0].allowed, Some(serde_json::json!({"min": 0, "max": u64::MAX})));
    }
    assert_eq!(problems_of(&with("1.5"))[0].1, "wrong_type");
    assert_eq!(problems_of(&with("\"7\""))[0].1, "wrong_type");
}

#[test]
fn every_problem_is_told_at_once() {
    let body = r#"{"task":"pictures","instuctions":"x","media":{"width":"a","hieght":1},"inputs":[{"role":"file"},{"url":1,"role":"x"}],
        "limits":{"max_minutes":0},"output_path":"../x","expect":["gold"],"tenant":"a/b","priority":101,
        "labels":{"a=b":"x","n":1},"notify":{"events":["job.started"]},"on_unknown_start":"retry"}"#;
    let found = problems_of(body);
    let expected = [
        ("connector", "missing"),
        ("expect[0]", "not_allowed"),
        ("inputs[0]", "conflict"),
        ("inputs[1]", "conflict"),
        ("inputs[1].url", "wrong_type"),
        ("instuctions", "unknown_key"),
        ("labels.n", "wrong_type"),
        ("limits.max_minutes", "out_of_range"),
        ("media.hieght", "unknown_key"),
        ("media.width", "wrong_type"),
        ("notify.events[0]", "not_allowed"),
        ("notify.url", "missing"),
        ("on_unknown_start", "not_allowed"),
        ("output_path", "not_allowed"),
        ("priority", "out_of_range"),
        ("task", "not_allowed"),
        ("tenant", "not_allowed"),
    ];
    let found: Vec<(&str, &str)> = found.iter().map(|(path, code)| (path.as_str(), code.as_str())).collect();
    assert_eq!(found, expected);
}

#[test]
fn the_nearest_name_is_offered() {
    let mut problems = Vec::new();
    read(serde_json::json!({"connector": "c", "task": "image", "lables": {}}), &mut problems);
    assert!(problems[0].message.contains("`labels`"), "{}", problems[0].message);
}

#[test]
fn paths_that_could_climb_or_clash_are_refused() {
    for path in ["/a", "a/../b", "", "a//b", "a/", "./a", "C:a", "a\\b", "a\u{0}b", ".hidden", "inputs/a.png"] {
        let body = serde_json::json!({"connector": "c", "task": "image", "output_path": path}).to_string();
        assert_eq!(problems_of(&body), [("output_path".to_owned(), "not_allowed".to_owned())], "{path:?}");
    }
}
