//! Discovery, the choice of an interface, and where the key may go.

use super::*;
use crate::Reply;
use crate::testing::{answer, raw};
use longhaul_registry::FailureKind;

/// What the first poll of a job without notes makes of a card: the address it asks, or the failure.
async fn chosen(connector: &Connector, replies: Vec<(Call, Reply)>, asks: Option<Call>) -> Result<Value, Failure> {
    let job = job(hello()).known_as(TASK, Value::Null);
    let mut script = Script::new();
    for (call, reply) in replies {
        script = script.expect(call, reply);
    }
    if let Some(call) = asks {
        let body = task(json!("TASK_STATE_WORKING"), Value::Null);
        let is_rpc = matches!(&call.body, CallBody::Json(_));
        script = script.expect(call, answer(200, if is_rpc { result(body) } else { body }));
    }
    match polled_by(connector, &job, &script).await? {
        PollAnswer::Running(report) => Ok(report.vendor_state.unwrap()["interface"].clone()),
        other => panic!("{other:?}"),
    }
}

async fn from_card(connector: &Connector, body: Value, asks: Option<Call>) -> Result<Value, Failure> {
    chosen(connector, vec![(get_card(), answer(200, body))], asks).await
}

fn entry(url: &str, binding: &str, version: &str) -> Value {
    json!({"url": url, "protocolBinding": binding, "protocolVersion": version})
}

fn rpc_interface() -> Value {
    json!({"url": RPC, "binding": "JSONRPC"})
}

fn rest_task() -> Call {
    rest("get_task", http::Method::GET, &format!("/tasks/{TASK}"), None).query("historyLength", "0")
}

#[tokio::test]
async fn the_first_entry_that_is_spoken_is_taken() {
    let connector = vendor();
    assert_eq!(from_card(&connector, both(), Some(get_task(0))).await.unwrap(), rpc_interface());
    let others_first = card(json!([
        entry("https://api.example/grpc", "GRPC", "1.0"),
        entry("https://api.example/old", "JSONRPC", "0.3"),
        entry("https://api.example/new", "https://example.com/binding", "1.0"),
        entry(REST, "HTTP+JSON", "1.0.1"),
        entry(RPC, "JSONRPC", "1.0")
    ]));
    let interface = from_card(&connector, others_first, Some(rest_task())).await.unwrap();
    assert_eq!(interface, json!({"url": REST, "binding": "HTTP+JSON"}));
    let no_version = card(json!([{"url": RPC, "protocolBinding": "jsonrpc"}]));
    assert_eq!(from_card(&connector, no_version, Some(get_task(0))).await.unwrap(), rpc_interface());
    let by_setting = with(json!({"binding": "HTTP+JSON"}));
    let interface = from_card(&by_setting, both(), Some(rest_task())).await.unwrap();
    assert_eq!(interface["url"], REST);
}

#[tokio::test]
async fn the_older_path_is_tried_after_404_alone() {
    let old = || Call::get("get_card", "/.well-known/agent.json").header("A2A-Version", "1.0");
    let replies = vec![(get_card(), raw(404, "Not Found")), (old(), answer(200, both()))];
    assert_eq!(chosen(&vendor(), replies, Some(get_task(0))).await.unwrap(), rpc_interface());
    let nowhere = vec![(get_card(), raw(404, "")), (old(), raw(404, ""))];
    let failure = chosen(&vendor(), nowhere, None).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::InvalidRequest, "a missing card is no lost task");
    for (status, kind) in [(401, FailureKind::Auth), (403, FailureKind::Auth), (500, FailureKind::VendorError)] {
        let failure = chosen(&vendor(), vec![(get_card(), raw(status, ""))], None).await.unwrap_err();
        assert_eq!(failure.kind, kind, "{status}");
    }
    let page = vec![(get_card(), raw(200, "<html>"))];
    assert_eq!(chosen(&vendor(), page, None).await.unwrap_err().code, "unreadable_answer");
}

#[tokio::test]
async fn settings_go_before_the_card() {
    let card_url = with(json!({"card_url": "https://api.example/agents/7/card.json"}));
    let at = |url: &str| Call::get("get_card", "").at(url).header("A2A-Version", "1.0");
    let replies = vec![(at("https://api.example/agents/7/card.json"), answer(200, both()))];
    assert_eq!(chosen(&card_url, replies, Some(get_task(0))).await.unwrap(), rpc_interface());
    let elsewhere = with(json!({"card_url": "https://cards.example/7.json"}));
    let replies = vec![(at("https://cards.example/7.json").without_key(), answer(200, both()))];
    assert_eq!(chosen(&elsewhere, replies, Some(get_task(0))).await.unwrap(), rpc_interface());
    let gone = vec![(at("https://cards.example/7.json").without_key(), raw(404, ""))];
    assert!(chosen(&elsewhere, gone, None).await.is_err(), "a configured address has no fallback");

    let endpoint = with(json!({"endpoint": "http://10.0.0.9/a2a", "tenant": "acme"}));
    let body = json!({"jsonrpc": "2.0", "id": KEY, "method": "GetTask",
        "params": {"id": TASK, "historyLength": 0, "tenant": "acme"}});
    let asks = Call::post("get_task", "", body).at("http://10.0.0.9/a2a").header("A2A-Version", "1.0");
    let interface = chosen(&endpoint, vec![], Some(asks)).await.unwrap();
    assert_eq!(interface, json!({"url": "http://10.0.0.9/a2a", "binding": "JSONRPC", "tenant": "acme"}));
}

#[tokio::test]
async fn a_tenant_goes_with_every_request() {
    let mut of_rest = entry(REST, "HTTP+JSON", "1.0");
    of_rest["tenant"] = json!("a/b");
    let asks = rest("get_task", http::Method::GET, &format!("/a%2Fb/tasks/{TASK}"), None).query("historyLength", "0");
    let interface = from_card(&vendor(), card(json!([of_rest])), Some(asks)).await.unwrap();
    assert_eq!(interface, json!({"url": REST, "binding": "HTTP+JSON", "tenant": "a/b"}));
    let mut none = entry(RPC, "JSONRPC", "1.0");
    none["tenant"] = json!("");
    assert_eq!(from_card(&vendor(), card(json!([none])), Some(get_task(0))).await.unwrap(), rpc_interface());
}

#[tokio::test]
async fn what_is_not_spoken_is_named() {
    let v03 = json!({"name": "x", "url": "https://api.example/", "preferredTransport": "JSONRPC", "protocolVersion": "0.3.0"});
    let failure = from_card(&vendor(), v03, None).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::CapabilityMissing);
    assert_eq!(failure.message, "the agent offers JSONRPC 0.3.0; Longhaul speaks JSONRPC and HTTP+JSON of A2A 1.0");
    let grpc = card(json!([entry("https://api.example/g", "GRPC", "1.0")]));
    let failure = from_card(&vendor(), grpc, None).await.unwrap_err();
    assert!(failure.message.starts_with("the agent offers GRPC 1.0; "), "{}", failure.message);
    let mut extended = both();
    extended["capabilities"] =
        json!({"extensions": [{"uri": "https://x/opt"}, {"uri": "https://x/must", "required": true}]});
    let failure = from_card(&vendor(), extended, None).await.unwrap_err();
    assert_eq!(
        (failure.kind, failure.vendor_code.as_deref()),
        (FailureKind::CapabilityMissing, Some("https://x/must"))
    );
}

#[tokio::test]
async fn the_key_stays_with_its_origin() {
    let refused = [
        ("http://api.example/rpc", "of plain HTTP below an https base URL"),
        ("https://evil.example/rpc", "of another origin than base_url"),
        ("https://api.example:8443/rpc", "of another origin than base_url"),
        ("https://api.example@evil.example/rpc", "of another origin than base_url"),
        ("https://0.0.0.0/rpc", "of another origin than base_url"),
        ("ftp://api.example/rpc", "that is not HTTP"),
        ("/rpc", "that is no URL"),
    ];
    for (url, why) in refused {
        let failure = from_card(&vendor(), card(json!([entry(url, "JSONRPC", "1.0")])), None).await.unwrap_err();
        assert_eq!(failure.code, "address_refused", "{url}");
        assert!(failure.message.contains(why), "{url}: {}", failure.message);
    }
    let second = card(json!([entry("http://api.example/rpc", "JSONRPC", "1.0"), entry(RPC, "JSONRPC", "1.0")]));
    assert_eq!(from_card(&vendor(), second, Some(get_task(0))).await.unwrap(), rpc_interface());

    let mut listed = connector("a2a", json!({"key_hosts": ["*.Agents.example"]}));
    let at = |url: &str, key: bool| {
        let mut call = get_task(0).at(url);
        call.with_key = key;
        call
    };
    let url = "https://eu.agents.example/rpc";
    let one = card(json!([entry(url, "JSONRPC", "1.0")]));
    assert_eq!(from_card(&listed, one.clone(), Some(at(url, true))).await.unwrap()["url"], url);
    for other in ["https://eviLagents.example/rpc", "https://eu.agents.example:444/rpc", "https://agents.example/rpc"] {
        let lookalike = card(json!([entry(other, "JSONRPC", "1.0")]));
        assert_eq!(from_card(&listed, lookalike, None).await.unwrap_err().code, "address_refused", "{other}");
    }
    listed = vendor();
    listed.credential = None;
    assert_eq!(from_card(&listed, one, Some(at(url, false))).await.unwrap()["url"], url);
}
