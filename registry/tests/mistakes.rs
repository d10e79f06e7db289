//! Every mistake in the registry's files is told with file, line and key.

use longhaul_registry::{FileProblems, Registry};

const GOOD: &str = r#"vendor = "acme"
title = "Acme"
docs = "https://docs.acme.example"
verified = "2026-11-30"
base_url = "https://api.acme.example"
auth = { scheme = "bearer" }
check = { method = "GET", path = "/me" }
tasks = ["image"]
formats = ["png"]
lost_start = "find"
find_s = 60
start_silence_s = 60
max_minutes = 30
unit = "credits"
cadence = { first_s = 1, factor = 2, ceiling_s = 5, jitter = 0.2 }

[[prices]]
unit = "credits"
usd = "0.01"
as_of = "2026-11-30"
source = "a page"

[settings.model]
type = "string"
about = "The model."
default = "a1"

[options.steps]
type = "integer"
about = "Steps."
min = 1
max = 50
"#;

const UNSUPPORTED: &str = r#"[[service]]
name = "nowhere"
title = "Nowhere"
why = "No API."
instead = "Acme."
vendors = ["acme"]
as_of = "2026-11-30"
"#;

fn read(vendor: &str, unsupported: &str) -> Result<Registry, FileProblems> {
    Registry::read(&[("registry/connectors/acme.toml", vendor)], ("registry/unsupported.toml", unsupported))
}

/// One problem, as it is printed.
fn only(vendor: &str) -> String {
    match read(vendor, UNSUPPORTED) {
        Ok(_) => "nothing wrong".to_owned(),
        Err(problems) => problems.to_string(),
    }
}

fn line_of(text: &str, needle: &str) -> usize {
    text.lines().position(|line| line.contains(needle)).map_or(0, |at| at + 1)
}

/// Swaps one place and expects exactly one problem: on that line, with that key, saying so.
fn mistake(from: &str, to: &str, key: &str, says: &str) {
    assert!(GOOD.contains(from), "{from}");
    let text = GOOD.replacen(from, to, 1);
    let told = only(&text);
    let line = 1 + GOOD.split(from).next().unwrap_or_default().matches('\n').count();
    let start = format!("registry/connectors/acme.toml:{line}: {key}: ");
    assert!(told.starts_with(&start), "{to}: wanted {start:?}, got {told}");
    assert!(told.contains(says), "{to}: {told}");
    assert_eq!(told.lines().count(), 1, "{told}");
}

#[test]
fn the_good_file_is_good() {
    assert!(read(GOOD, UNSUPPORTED).is_ok(), "{}", only(GOOD));
}

#[test]
fn keys_and_types() {
    mistake("formats =", "fromats =", "fromats", "did you mean `formats`?");
    mistake("find_s = 60", "find_s = \"60\"", "find_s", "a whole number");
    mistake("find_s = 60", "find_s = -1", "find_s", "not below zero");
    mistake("unit = \"credits\"\ncadence", "unit = \"credit\"\ncadence", "unit", "did you mean `credits`?");
    mistake("tasks = [\"image\"]", "tasks = [\"picture\"]", "tasks[0]", "allowed are image, video");
    mistake("tasks = [\"image\"]", "tasks = []", "tasks", "empty");
    mistake("formats = [\"png\"]", "formats = []", "formats", "empty");
    mistake("lost_start = \"find\"", "lost_start = \"search\"", "lost_start", "key, find, none");
    mistake("scheme = \"bearer\"", "scheme = \"barer\"", "auth.scheme", "did you mean `bearer`?");
    mistake("scheme = \"bearer\"", "scheme = \"header\"", "auth.name", "missing");
    mistake("usd = \"0.01\"", "usd = 0.01", "prices[0].usd", "in quotes");
    mistake("usd = \"0.01\"", "usd = \"a cent\"", "prices[0].usd", "decimal");
    mistake("verified = \"2026-11-30\"", "verified = 2026-11-30", "verified", "a date (put it in quotes)");
    mistake("type = \"integer\"", "type = \"int\"", "options.steps.type", "allowed are string, integer");
    mistake("type = \"string\"", "type = \"text\"", "settings.model.type", "allowed are string, url");
    mistake("method = \"GET\", ", "method = \"FETCH\", ", "check.method", "GET, HEAD, POST");
}

#[test]
fn a_missing_key_is_told_where_it_is_missing() {
    assert_eq!(
        only(&GOOD.replace("title = \"Acme\"\n", "")),
        "registry/connectors/acme.toml:1: title: `title` is missing here"
    );
    let text = GOOD.replace("as_of = \"2026-11-30\"\n", "");
    let line = line_of(&text, "[[prices]]");
    assert_eq!(only(&text), format!("registry/connectors/acme.toml:{line}: prices[0].as_of: `as_of` is missing here"));
}

#[test]
fn values() {
    mistake("title = \"Acme\"", "title = \" \"", "title", "empty");
    mistake("docs = \"https", "docs = \"http", "docs", "https://");
    mistake("verified = \"2026-11-30\"", "verified = \"2026-02-30\"", "verified", "a day that exists");
    mistake("verified = \"2026-11-30\"", "verified = \"2026-1-1\"", "verified", "YYYY-MM-DD");
    mistake("as_of = \"2026-11-30\"", "as_of = \"November\"", "prices[0].as_of", "YYYY-MM-DD");
    mistake("base_url = \"https://api", "base_url = \"http://api", "base_url", "https://");
    mistake("api.acme.example\"", "api.acme.example/\"", "base_url", "no `/` at its end");
    mistake("path = \"/me\"", "path = \"me\"", "check.path", "begin with `/`");
    mistake("path = \"/me\"", "path = \"/{modle}\"", "check.path", "did you mean `model`?");
    mistake("first_s = 1,", "first_s = 0,", "cadence.first_s", "above 0");
    mistake("factor = 2", "factor = 0.9", "cadence.factor", "1 to 10");
    mistake("ceiling_s = 5", "ceiling_s = 0.5", "cadence.ceiling_s", "at least first_s");
    mistake("jitter = 0.2", "jitter = 1.5", "cadence.jitter", "0 to 1");
    mistake("jitter = 0.2", "jitter = nan", "cadence.jitter", "0 to 1");
    mistake("start_silence_s = 60", "start_silence_s = 0", "start_silence_s", "1 to 1800");
    mistake("max_minutes = 30", "max_minutes = 0", "max_minutes", "1 to 43200");
    mistake("find_s = 60", "find_s = 0", "find_s", "lost_start");
    mistake("formats = [\"png\"]", "formats = [\"png\", \"png\"]", "formats[1]", "twice");
    mistake("formats = [\"png\"]", "formats = [\"PNG\"]", "formats[0]", "small letters");
    mistake("unit = \"credits\"\nusd", "unit = \"usd\"\nusd", "prices[0].unit", "a dollar costs a dollar");
    mistake("source = \"a page\"", "source = \"\"", "prices[0].source", "empty");
    mistake("default = \"a1\"", "default = 1", "settings.model.default", "a string");
    mistake("default = \"a1\"", "allowed = [\"a1\", 2]", "settings.model.allowed[1]", "declared type");
    mistake("max = 50", "max = 0", "options.steps.max", "below `min`");
    mistake("max = 50", "max_chars = 5", "options.steps.max_chars", "only a string");
    mistake("about = \"Steps.\"", "about = \"\"", "options.steps.about", "empty");
    mistake("[options.steps]", "[options.\"a step\"]", "options.\"a step\"", "letters, digits");
    mistake("[settings.model]", "[settings.Model]", "settings.Model", "small letters");
}

#[test]
fn what_contradicts_itself() {
    let add = |line: &str| GOOD.replacen("unit = \"credits\"", &format!("{line}\nunit = \"credits\""), 1);
    let cases = [
        ("cancel_erases = true", "cancel_erases: ", "set `cancels = true`"),
        ("key_hosts = [\"*\"]", "key_hosts[0]: ", "*.example.com"),
        ("headers = { Authorization = \"x\" }", "headers.Authorization: ", "never as a fixed header"),
        ("headers = { \"a b\" = \"x\" }", "headers.\"a b\": ", "no name of a header"),
        ("headers = { x = \"{nothing}\" }", "headers.x: ", "no setting of this file"),
        ("model_silence_s = { \"a1.5\" = 9000 }", "model_silence_s.\"a1.5\": ", "1 to 1800"),
        ("outputs_live_s = 5", "outputs_live_s: ", "at least 10 seconds"),
        ("limits = { in_flight = 0 }", "limits.in_flight: ", "pause it"),
        ("retirements = [{ what = \"a0\", on = \"soon\", instead = \"a1\" }]", "retirements[0].on: ", "YYYY-MM-DD"),
    ];
    for (line, key, says) in cases {
        let text = add(line);
        let told = only(&text);
        let at = line_of(&text, line);
        assert!(told.starts_with(&format!("registry/connectors/acme.toml:{at}: {key}")), "{line}: {told}");
        assert!(told.contains(says), "{line}: {told}");
        assert_eq!(told.lines().count(), 1, "{told}");
    }
    let none = GOOD.replace("lost_start = \"find\"\nfind_s = 60", "lost_start = \"none\"\nabsence_proves = true");
    assert!(read(&GOOD.replace("\"find\"", "\"key\""), UNSUPPORTED).is_ok());
    let key = GOOD.replace("lost_start = \"find\"\nfind_s = 60", "lost_start = \"key\"");
    assert!(
        only(&key).contains("find_s: this goes with `lost_start"),
        "a key is sent again for a time: {}",
        only(&key)
    );
    assert!(only(&none).contains("absence_proves: only a vendor that is searched"), "{}", only(&none));
    let required = GOOD.replace("default = \"a1\"", "default = \"a1\"\nrequired = true");
    assert!(only(&required).contains("settings.model.default: what is required has no default"), "{}", only(&required));
    let closed = GOOD.replace("default = \"a1\"", "default = \"a1\"\nallowed = [\"a2\"]");
    assert!(only(&closed).contains("settings.model.default: this value is not possible"), "{}", only(&closed));
    let twice =
        format!("{GOOD}\n[[prices]]\nunit = \"credits\"\nusd = \"0.02\"\nas_of = \"2026-11-30\"\nsource = \"b\"\n");
    assert!(only(&twice).contains("prices[1]: this unit and model have a price above already"), "{}", only(&twice));
    let media = GOOD.replace("formats = [\"png\"]\n", "");
    assert!(only(&media).contains("formats: a vendor of media names"), "{}", only(&media));
    let text = add("");
    let regions = format!("{text}\n[regions]\neu = \"https://eu.acme.example\"\n");
    assert!(only(&regions).contains("settings.region: `regions` needs a setting `region`"), "{}", only(&regions));
    let regions = format!(
        "{regions}\n[settings.region]\ntype = \"string\"\nabout = \"Where.\"\ndefault = \"eu\"\nallowed = [\"eu\", \"us\"]\n"
    );
    let told = only(&regions);
    assert!(told.contains("settings.region.allowed: this must allow exactly the keys of `regions`"), "{told}");
    assert!(told.contains("settings.region.default: this must be the key of `regions` that says the same"), "{told}");
    let choices = format!("{text}\n[auth_choices]\nkey = {{ scheme = \"header\", name = \"x-key\" }}\n");
    assert!(only(&choices).contains("settings.auth: `auth_choices` needs a setting `auth`"), "{}", only(&choices));
}

#[test]
fn a_file_is_named_for_its_vendor() {
    let told = only(&GOOD.replace("vendor = \"acme\"", "vendor = \"acne\""));
    assert_eq!(told, "registry/connectors/acme.toml:1: vendor: a vendor's file has its name: this must be `acme`");
}

#[test]
fn all_mistakes_of_all_files_are_told_at_once_in_the_order_of_their_lines() {
    let text = GOOD
        .replace("title = \"Acme\"", "titel = \"Acme\"")
        .replace("find_s = 60", "find_s = true")
        .replace("jitter = 0.2", "jiter = 0.2");
    let Err(problems) = read(&text, &UNSUPPORTED.replace("why =", "wy =")) else { panic!("it was taken") };
    let told: Vec<_> = problems.0.iter().map(|problem| (problem.line, problem.problem.path.as_str())).collect();
    let cadence = line_of(&text, "cadence");
    let wanted = [(1, "title"), (2, "titel"), (11, "find_s"), (cadence, "cadence.jiter"), (cadence, "cadence.jitter")];
    assert_eq!(told[..5], wanted, "{problems}");
    assert_eq!(problems.0.len(), 7, "{problems}");
    assert!(problems.0[5..].iter().all(|problem| problem.file == "registry/unsupported.toml"));
}

#[test]
fn unsupported_services() {
    let told = |text: &str| match read(GOOD, text) {
        Ok(_) => "nothing wrong".to_owned(),
        Err(problems) => problems.to_string(),
    };
    let swap = |from: &str, to: &str| told(&UNSUPPORTED.replacen(from, to, 1));
    let at = |line: usize, rest: &str| format!("registry/unsupported.toml:{line}: service[0].{rest}");
    assert!(swap("\"nowhere\"", "\"acme\"").starts_with(&at(2, "name: `acme` is the name of a vendor")));
    assert!(swap("\"nowhere\"", "\"No Where\"").starts_with(&at(2, "name: names are small letters")));
    assert!(swap("[\"acme\"]", "[\"acne\"]").starts_with(&at(6, "vendors[0]: the registry has no such vendor")));
    assert!(swap("\"Acme.\"", "\"\"").starts_with(&at(5, "instead: this must not be empty")));
    assert!(swap("2026-11-30", "2026-13-30").starts_with(&at(7, "as_of: this must be a day that exists")));
    assert!(swap("instead = \"Acme.\"\n", "").starts_with(&at(1, "instead: `instead` is missing here")));
    assert!(told(&format!("{UNSUPPORTED}\n{UNSUPPORTED}")).contains("service[1].name: `nowhere` is the name"));
    assert!(told("").contains("registry/unsupported.toml:1: service: `service` is missing here"));
}

#[test]
fn what_is_no_toml() {
    let told = only(&GOOD.replace("find_s = 60", "find_s = = 60"));
    assert!(told.starts_with("registry/connectors/acme.toml:11: this is no TOML: "), "{told}");
    let told = only(&GOOD.replace("find_s = 60", "find_s = 60\nfind_s = 70"));
    assert!(told.starts_with("registry/connectors/acme.toml:12: this is no TOML: duplicate key"), "{told}");
}
