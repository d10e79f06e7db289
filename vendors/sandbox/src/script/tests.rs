use super::*;
use serde_json::json;

fn places() -> Places {
    Places { base: "http://h/flux".into(), cdn: "http://c/_files/flux".into(), other: "http://o/_other/flux".into() }
}

struct Table {
    scripts: Scripts,
    places: Places,
    now_ms: i64,
}

impl Table {
    fn new(wire: Value) -> Self {
        let mut scripts = Scripts::default();
        scripts.set(&json!({"vendor": "flux", "wire": wire}), 0).unwrap();
        Self { scripts, places: places(), now_ms: 0 }
    }

    fn ask(&mut self, route: &str, query: &str) -> Option<Scripted> {
        self.scripts.answer(&Call {
            vendor: "flux",
            host: "api",
            route,
            path: "/v1/x",
            query,
            body: b"{}",
            reused: false,
            key: "sandbox-CANARY",
            now_ms: self.now_ms,
            places: &self.places,
        })
    }

    fn text(&mut self, route: &str, query: &str) -> String {
        String::from_utf8(self.ask(route, query).unwrap().body.to_vec()).unwrap()
    }
}

#[test]
fn answers_come_in_order_and_the_last_one_repeats() {
    let mut table = Table::new(json!([
        {"step": "poll", "times": 2, "status": 200, "body": {"status": "Pending"}},
        {"step": "poll", "status": 503, "raw": "busy"},
        {"step": "poll", "status": 200, "body": {"status": "Ready"}}]));
    let seen: Vec<(u16, String)> = (0..5)
        .map(|_| {
            let answer = table.ask("poll", "").unwrap();
            (answer.status, String::from_utf8(answer.body.to_vec()).unwrap())
        })
        .collect();
    let pending = (200, r#"{"status":"Pending"}"#.to_owned());
    let ready = (200, r#"{"status":"Ready"}"#.to_owned());
    assert_eq!(seen, [pending.clone(), pending, (503, "busy".to_owned()), ready.clone(), ready]);
    assert!(table.ask("check", "").is_none(), "a step without entries is the stand-in's own");
}

#[test]
fn jobs_side_by_side_keep_their_own_place() {
    let mut table = Table::new(json!([
        {"step": "start", "body": {"id": "job-{n}", "polling_url": "{base}/v1/get_result?id=job-{n}"}},
        {"step": "poll", "times": 1, "body": {"id": "{id}", "status": "Pending"}},
        {"step": "poll", "body": {"id": "{id}", "status": "Ready", "result": {"sample": "{cdn}/{n}.png"}}}]));
    let first = table.ask("start", "").unwrap();
    assert_eq!(first.vendor_job_id.as_deref(), Some("job-1"));
    assert_eq!(table.text("start", ""), r#"{"id":"job-2","polling_url":"http://h/flux/v1/get_result?id=job-2"}"#);
    assert!(table.text("poll", "id=job-2").contains("Pending"));
    assert!(table.text("poll", "id=job-1").contains("Pending"));
    assert!(table.text("poll", "id=job-2").contains("http://c/_files/flux/2.png"));
    assert!(table.text("poll", "id=job-1").contains("http://c/_files/flux/1.png"));
}

#[test]
fn a_window_overrides_every_step_while_it_is_open() {
    let mut table = Table::new(json!([
        {"step": "any", "from_s": 10, "until_s": 190, "status": 503, "body": {"title": "Service unavailable"}},
        {"step": "poll", "status": 200, "body": {}}]));
    assert_eq!(table.ask("poll", "").unwrap().status, 200);
    table.now_ms = 10_000;
    assert_eq!(table.ask("poll", "").unwrap().status, 503);
    assert_eq!(table.ask("start", "").unwrap().status, 503);
    table.now_ms = 190_000;
    assert_eq!(table.ask("poll", "").unwrap().status, 200);
}

#[test]
fn until_a_step_and_until_seconds() {
    let mut table = Table::new(json!([
        {"step": "poll", "until": "cancel", "body": {"a": 1}},
        {"step": "cancel", "status": 200, "body": {}},
        {"step": "poll", "until_s": 30, "body": {"a": 2}},
        {"step": "poll", "body": {"a": 3}}]));
    for _ in 0..4 {
        assert_eq!(table.text("poll", ""), r#"{"a":1}"#);
    }
    table.ask("cancel", "");
    table.now_ms = 5_000;
    assert_eq!(table.text("poll", ""), r#"{"a":2}"#);
    table.now_ms = 34_999;
    assert_eq!(table.text("poll", ""), r#"{"a":2}"#);
    table.now_ms = 35_000;
    assert_eq!(table.text("poll", ""), r#"{"a":3}"#);
}

#[test]
fn the_each_forms_spread_into_single_answers() {
    let mut table = Table::new(json!([
        {"step": "poll", "status": 429, "each_header_retry_after": ["3", "{http_date:+4s}", "{rfc850_date:+4s}", "{asctime_date:+4s}"]},
        {"step": "poll", "each_raw": ["{\"eta\":NaN}", "\u{feff}{}"]},
        {"step": "poll", "each": [{"status": 502, "raw": "<html>", "content_type": "text/html"}, {"fault": "reset"}]}]));
    let after: Vec<String> = (0..4)
        .map(|_| table.ask("poll", "").unwrap().headers.into_iter().find(|(name, _)| name == "retry-after").unwrap().1)
        .collect();
    // The three forms of RFC 9110 section 5.6.7, four seconds after 1970 began.
    assert_eq!(
        after,
        ["3", "Thu, 01 Jan 1970 00:00:04 GMT", "Thursday, 01-Jan-70 00:00:04 GMT", "Thu Jan  1 00:00:04 1970"]
    );
    assert_eq!(table.text("poll", ""), "{\"eta\":NaN}");
    assert_eq!(table.text("poll", ""), "\u{feff}{}");
    assert_eq!(table.ask("poll", "").unwrap().status, 502);
    assert_eq!(table.ask("poll", "").unwrap().fault, Some(FaultKind::Reset));
}

#[test]
fn an_answer_may_hand_over_to_the_stand_in() {
    let mut table = Table::new(json!([
        {"step": "start", "times": 1, "fault": "drop_after_read", "then_own": true}]));
    assert_eq!(table.ask("start", "").unwrap().fault, Some(FaultKind::DropAfterRead));
    assert!(table.ask("start", "").is_none());
}

#[test]
fn mistakes_are_named_by_entry() {
    let mut scripts = Scripts::default();
    let wrong = scripts.set(&json!({"vendor": "flux", "wire": [{"step": "poll"}, {"step": "poll", "stauts": 200}]}), 0);
    let text = wrong.unwrap_err();
    assert!(text.starts_with("wire[1]: ") && text.contains("stauts"), "{text}");
    assert!(scripts.set(&json!({"vendor": "flux", "wire": [{"step": "poll", "rule": "at random"}]}), 0).is_err());
    assert!(scripts.set(&json!({"vendor": "flux", "wire": [{"step": "download", "file": "png wide"}]}), 0).is_err());
}

#[test]
fn a_declared_route_names_steps_of_any_vendor() {
    let mut scripts = Scripts::default();
    let routes = json!([{"step": "start", "method": "POST", "path": "/v1/predictions"}, {"step": "poll", "path": "/v1/predictions/*"}, {"step": "rest", "path": "/m/**"}]);
    scripts.set(&json!({"vendor": "replicate", "routes": routes, "wire": []}), 0).unwrap();
    assert_eq!(scripts.route("replicate", "POST", "/v1/predictions").as_deref(), Some("start"));
    assert_eq!(scripts.route("replicate", "GET", "/v1/predictions/p1").as_deref(), Some("poll"));
    assert_eq!(scripts.route("replicate", "GET", "/m/requests/1/status").as_deref(), Some("rest"));
    assert_eq!(scripts.route("replicate", "GET", "/v1/predictions"), None);
}

#[test]
fn a_vendor_may_repeat_the_key() {
    let mut table = Table::new(json!([{"step": "poll", "status": 401, "body": {"error": "bad key {key}"}}]));
    assert_eq!(table.text("poll", ""), r#"{"error":"bad key sandbox-CANARY"}"#);
}
