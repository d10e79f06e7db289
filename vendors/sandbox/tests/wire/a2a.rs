//! A2A 1.0, by the requests of its wire page, over both bindings.

use crate::support::{Answer, Rig};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

const KEY: (&str, &str) = ("authorization", "Bearer sandbox-a2a");
const VERSION: (&str, &str) = ("a2a-version", "1.0");
const HEADERS: [(&str, &str); 2] = [KEY, VERSION];

#[derive(Clone, Copy, PartialEq)]
enum Binding {
    Rpc,
    Rest,
}

const BOTH: [Binding; 2] = [Binding::Rpc, Binding::Rest];

/// A client on one binding.
struct Agent<'a> {
    rig: &'a Rig,
    binding: Binding,
}

impl Agent<'_> {
    async fn rpc(&self, method: &str, params: Value) -> Answer {
        let call = json!({"jsonrpc": "2.0", "id": "c-1", "method": method, "params": params});
        self.rig.ask("POST", "/a2a/rpc", &HEADERS, call).await
    }

    /// The result of a call, or its error's reason.
    async fn call(&self, method: &str, params: Value) -> Result<Value, String> {
        if self.binding == Binding::Rpc {
            let answer = self.rpc(method, params).await;
            assert_eq!(answer.status, 200);
            let answer = answer.json();
            assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &json!("c-1")));
            return match answer.get("error") {
                None => Ok(answer["result"].clone()),
                Some(error) => Err(error["data"][0]["reason"].as_str().unwrap_or_default().to_owned()),
            };
        }
        let id = params["id"].as_str().unwrap_or_default().to_owned();
        let query = || {
            let pairs = params.as_object().unwrap().iter().filter(|(name, _)| *name != "id");
            let pairs: Vec<String> =
                pairs.map(|(name, value)| format!("{name}={}", value.to_string().trim_matches('"'))).collect();
            pairs.join("&")
        };
        let answer = match method {
            "SendMessage" => self.rig.ask("POST", "/a2a/rest/message:send", &HEADERS, params).await,
            "GetTask" => self.rig.get(&format!("/a2a/rest/tasks/{id}?{}", query()), &HEADERS).await,
            "ListTasks" => self.rig.get(&format!("/a2a/rest/tasks?{}", query()), &HEADERS).await,
            _ => self.rig.ask("POST", &format!("/a2a/rest/tasks/{id}:cancel"), &HEADERS, json!({})).await,
        };
        if answer.status == 200 {
            assert_eq!(answer.header("content-type"), Some("application/a2a+json"));
            return Ok(answer.json());
        }
        let error = answer.json()["error"].clone();
        assert_eq!(error["code"], answer.status);
        assert_eq!(error["details"][0]["domain"], "a2a-protocol.org");
        Err(error["details"][0]["reason"].as_str().unwrap().to_owned())
    }

    async fn start(&self, words: &str) -> Value {
        let sent = self.call("SendMessage", send("m-1", "ctx-1", words)).await.unwrap();
        sent["task"].clone()
    }

    async fn get(&self, task: &Value) -> Value {
        self.call("GetTask", json!({"id": task["id"], "historyLength": 0})).await.unwrap()
    }

    async fn answer(&self, task: &Value, id: &str, words: &str) -> Result<Value, String> {
        let mut params = send(id, "ctx-1", words);
        params["message"]["taskId"] = task["id"].clone();
        self.call("SendMessage", params).await
    }
}

fn send(id: &str, context: &str, words: &str) -> Value {
    json!({
        "message": {"messageId": id, "contextId": context, "role": "ROLE_USER", "parts": [{"text": words}]},
        "configuration": {"returnImmediately": true},
    })
}

fn state(task: &Value) -> &str {
    task["status"]["state"].as_str().unwrap_or_default()
}

fn said(task: &Value) -> &str {
    task["status"]["message"]["parts"][0]["text"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn the_card_names_both_bindings_and_can_be_revalidated() {
    let rig = Rig::new().await;
    let url = "/a2a/.well-known/agent-card.json";
    let answer = rig.get(url, &[VERSION]).await;
    let card = answer.json();
    let base = format!("{}/a2a", rig.base);
    assert_eq!(
        card["supportedInterfaces"],
        json!([
            {"url": format!("{base}/rpc"), "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
            {"url": format!("{base}/rest"), "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"}])
    );
    assert_eq!(card["securityRequirements"][0], json!({"schemes": {"bearer": {}}}));
    let tag = answer.header("etag").unwrap();
    assert!(tag.starts_with("W/\""));
    assert_eq!(rig.get(url, &[("if-none-match", tag)]).await.status, 304);
    let rest = rig.get("/a2a/rest_only/.well-known/agent-card.json", &[]).await.json();
    assert_eq!(rest["supportedInterfaces"].as_array().unwrap().len(), 1);
    let old = rig.get("/a2a/old/.well-known/agent-card.json", &[]).await.json();
    assert_eq!(old["protocolVersion"], "0.3.0");
}

#[tokio::test]
async fn a_task_from_start_to_outputs() {
    let rig = Rig::new().await;
    for (count, binding) in BOTH.into_iter().enumerate() {
        let agent = Agent { rig: &rig, binding };
        let task = agent.start("When is high water?").await;
        assert_eq!((state(&task), &task["contextId"]), ("TASK_STATE_SUBMITTED", &json!("ctx-1")));
        assert!(task["status"].get("timestamp").is_none());
        assert_eq!(task["history"][0]["messageId"], "m-1");
        assert_eq!(rig.books().starts(Some("a2a")).len(), count + 1);
        rig.advance(300);
        let working = agent.get(&task).await;
        assert_eq!((state(&working), said(&working)), ("TASK_STATE_WORKING", "Looking at it."));
        assert!(working["status"]["timestamp"].as_str().unwrap().ends_with('Z'));
        assert!(working.get("history").is_none(), "none was asked for");
        rig.advance(1700);
        let done = agent.get(&task).await;
        assert_eq!(state(&done), "TASK_STATE_COMPLETED");
        let artifacts = done["artifacts"].as_array().unwrap();
        let names: Vec<&Value> = artifacts.iter().map(|artifact| &artifact["name"]).collect();
        assert_eq!(names, ["report.md", "chart.png", "photo.png"]);
        let pieces = artifacts[0]["parts"].as_array().unwrap();
        assert_eq!(pieces.len(), 5, "appended parts are not joined");
        let report: String = pieces.iter().map(|part| part["text"].as_str().unwrap()).collect();
        assert!(report.contains("High water comes at 02:30 and at 14:05."), "{report}");
        let chart = STANDARD.decode(artifacts[1]["parts"][0]["raw"].as_str().unwrap()).unwrap();
        assert!(chart.starts_with(b"\x89PNG"));
        let photo = rig.get(artifacts[2]["parts"][0]["url"].as_str().unwrap(), &[]).await;
        assert_eq!((photo.status, photo.body == chart), (200, true));
        let whole = agent.call("GetTask", json!({"id": task["id"]})).await.unwrap();
        assert_eq!(whole["history"].as_array().unwrap().len(), 2);
    }
}

#[tokio::test]
async fn keys_and_versions_are_checked() {
    let rig = Rig::new().await;
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}});
    let ask = async |headers: &[(&str, &str)]| rig.ask("POST", "/a2a/rpc", headers, call.clone()).await;
    for key in [("authorization", "Bearer other"), ("x-api-key", "other"), VERSION] {
        let refused = ask(&[key, VERSION]).await;
        assert_eq!((refused.status, refused.header("www-authenticate")), (401, Some("Bearer")));
    }
    let basic = format!("Basic {}", STANDARD.encode("me:sandbox-a2a"));
    for key in [KEY, ("x-api-key", "sandbox-a2a"), ("authorization", &basic)] {
        assert!(ask(&[key, VERSION]).await.json()["result"].is_object());
    }
    for version in [&[KEY][..], &[KEY, ("a2a-version", "")], &[KEY, ("a2a-version", "0.3")]] {
        assert_eq!(ask(version).await.json()["error"]["code"], -32009);
        let rest = rig.get("/a2a/rest/tasks", version).await;
        assert_eq!(
            (rest.status, &rest.json()["error"]["details"][0]["reason"]),
            (400, &json!("VERSION_NOT_SUPPORTED"))
        );
    }
    assert!(ask(&[KEY, ("a2a-version", "1.0.1")]).await.json()["result"].is_object(), "patches do not count");
    assert_eq!(rig.get("/a2a/open/rest/tasks", &[VERSION]).await.status, 200);
}

#[tokio::test]
async fn errors_of_the_json_rpc_binding() {
    let rig = Rig::new().await;
    let agent = Agent { rig: &rig, binding: Binding::Rpc };
    let broken = rig.send("POST", "/a2a/rpc", &HEADERS, b"{nope").await.unwrap().json();
    assert_eq!((&broken["error"]["code"], &broken["id"]), (&json!(-32700), &Value::Null));
    for (call, code) in [
        (json!({"jsonrpc": "1.0", "id": 1, "method": "GetTask"}), -32600),
        (json!([{"jsonrpc": "2.0", "id": 1, "method": "GetTask"}]), -32600),
        (json!({"jsonrpc": "2.0", "id": 1, "method": "message/send"}), -32601),
        (json!({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {}}), -32602),
        (json!({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "none"}}), -32001),
        (json!({"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {}}), -32004),
        (json!({"jsonrpc": "2.0", "id": 1, "method": "GetTaskPushNotificationConfig", "params": {}}), -32003),
        (json!({"jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard"}), -32007),
    ] {
        let answer = rig.ask("POST", "/a2a/rpc", &HEADERS, call.clone()).await;
        assert_eq!((answer.status, &answer.json()["error"]["code"]), (200, &json!(code)), "{call}");
    }
    let wrong = agent.rpc("SendMessage", json!({"message": {"role": "ROLE_USER", "parts": []}})).await.json();
    assert_eq!(wrong["error"]["code"], -32602);
    let violations = &wrong["error"]["data"][1]["fieldViolations"];
    assert_eq!(violations[0], json!({"field": "message.message_id", "description": "Field is required."}));
    assert_eq!(rig.get("/a2a/rest/none", &HEADERS).await.status, 404);
    let old = rig.ask("POST", "/a2a/old/rpc", &HEADERS, json!({"jsonrpc": "2.0", "id": 1, "method": "GetTask"})).await;
    assert_eq!(old.json()["error"]["code"], -32601);
    assert!(rig.books().starts(None).is_empty());
}

#[tokio::test]
async fn nothing_is_done_once_only() {
    let rig = Rig::new().await;
    for binding in BOTH {
        let agent = Agent { rig: &rig, binding };
        let words = format!("Again {}", binding == Binding::Rpc);
        let (first, second) = (agent.start(&words).await, agent.start(&words).await);
        assert_ne!(first["id"], second["id"], "the same messageId makes a second task");
        assert_eq!(rig.books().starts_report(Some("a2a"))["by_marker"][&words], 2);
    }
}

#[tokio::test]
async fn a_lost_start_is_found_by_its_context() {
    let rig = Rig::new().await;
    for binding in BOTH {
        let agent = Agent { rig: &rig, binding };
        let context = if binding == Binding::Rpc { "ctx-a" } else { "ctx-b" };
        let mut ids = Vec::new();
        for n in 0..3 {
            let sent = agent.call("SendMessage", send(&format!("m-{n}"), context, "x")).await.unwrap();
            ids.push(sent["task"]["id"].clone());
            rig.advance(10);
        }
        let mut params = json!({"contextId": context, "historyLength": 10, "pageSize": 2});
        let page = agent.call("ListTasks", params.clone()).await.unwrap();
        assert_eq!((&page["totalSize"], &page["pageSize"]), (&json!(3), &json!(2)));
        assert_eq!(page["tasks"][0]["id"], ids[2], "newest first");
        assert_eq!(page["tasks"][0]["history"][0]["messageId"], "m-2");
        assert_eq!(page["tasks"][0]["history"][0]["parts"][0], json!({"text": "x", "filename": "", "mediaType": ""}));
        assert!(page["tasks"][0].get("artifacts").is_none());
        params["pageToken"] = page["nextPageToken"].clone();
        let rest = agent.call("ListTasks", params.clone()).await.unwrap();
        assert_eq!((&rest["tasks"][0]["id"], &rest["nextPageToken"]), (&ids[0], &json!("")));
        params["pageSize"] = json!(101);
        assert_eq!(agent.call("ListTasks", params).await.unwrap_err(), "INVALID_PARAMS");
        let own = agent.call("SendMessage", send("m-9", context, "sandbox:own_context")).await;
        assert_eq!(own.unwrap_err(), "INVALID_PARAMS");
        let late = agent.call("SendMessage", send("m-8", "ctx-late", "sandbox:late_listed")).await.unwrap();
        let listed =
            async || agent.call("ListTasks", json!({"contextId": "ctx-late"})).await.unwrap()["totalSize"].clone();
        let before = listed().await.as_u64().unwrap();
        rig.advance(3000);
        assert_eq!(listed().await, before + 1, "{late}");
    }
    let unlisted = rig.get("/a2a/unlisted/rest/tasks", &HEADERS).await;
    assert_eq!(unlisted.json()["error"]["details"][0]["reason"], "UNSUPPORTED_OPERATION");
}

#[tokio::test]
async fn a_question_and_its_answer() {
    let rig = Rig::new().await;
    for binding in BOTH {
        let agent = Agent { rig: &rig, binding };
        let task = agent.start("Build a boat sandbox:asks").await;
        rig.advance(2000);
        let asks = agent.get(&task).await;
        assert_eq!((state(&asks), said(&asks)), ("TASK_STATE_INPUT_REQUIRED", "Which name should the boat have?"));
        let mut params = send("m-2", "ctx-other", "Petrel");
        params["message"]["taskId"] = task["id"].clone();
        assert_eq!(agent.call("SendMessage", params).await.unwrap_err(), "INVALID_PARAMS", "another context");
        let starts = rig.books().starts(None).len();
        let taken = agent.answer(&task, "m-2", "Petrel \"II\"").await.unwrap();
        assert_eq!(state(&taken["task"]), "TASK_STATE_WORKING");
        assert_eq!(rig.books().starts(None).len(), starts, "an answer is no start");
        rig.advance(2000);
        let done = agent.get(&task).await;
        assert_eq!(
            (state(&done), said(&done)),
            ("TASK_STATE_COMPLETED", "Done, with your answer taken in: Petrel \"II\".")
        );
        assert_eq!(agent.answer(&task, "m-3", "late").await.unwrap_err(), "UNSUPPORTED_OPERATION");
        let mut params = send("m-4", "ctx-1", "x");
        params["message"]["taskId"] = json!("none");
        assert_eq!(agent.call("SendMessage", params).await.unwrap_err(), "TASK_NOT_FOUND");
    }
}

#[tokio::test]
async fn an_answer_sent_twice_answers_the_next_question_too() {
    let rig = Rig::new().await;
    for binding in BOTH {
        let agent = Agent { rig: &rig, binding };
        let task = agent.start("Build a boat sandbox:asks_twice").await;
        rig.advance(2000);
        let first = agent.get(&task).await;
        agent.answer(&task, "m-2", "Petrel").await.unwrap();
        rig.advance(2000);
        let second = agent.get(&task).await;
        assert_eq!(said(&second), "And which harbour does it belong to?");
        assert_ne!(first["status"]["message"]["messageId"], second["status"]["message"]["messageId"]);
        agent.answer(&task, "m-2", "Petrel").await.unwrap();
        rig.advance(2000);
        let done = agent.call("GetTask", json!({"id": task["id"]})).await.unwrap();
        assert_eq!(state(&done), "TASK_STATE_COMPLETED");
        let ids: Vec<&Value> =
            done["history"].as_array().unwrap().iter().map(|message| &message["messageId"]).collect();
        assert_eq!(ids.iter().filter(|id| ***id == "m-2").count(), 1, "history shows it once");
    }
}

#[tokio::test]
async fn signing_in_needs_no_message() {
    let rig = Rig::new().await;
    let agent = Agent { rig: &rig, binding: Binding::Rpc };
    let task = agent.start("sandbox:auth").await;
    rig.advance(1000);
    let waits = agent.get(&task).await;
    assert_eq!(state(&waits), "TASK_STATE_AUTH_REQUIRED");
    assert!(said(&waits).contains("https://login.sandbox.example/"));
    rig.advance(2000);
    assert_eq!(state(&agent.get(&task).await), "TASK_STATE_WORKING");
    rig.advance(1000);
    assert_eq!(state(&agent.get(&task).await), "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn cancelling() {
    let rig = Rig::new().await;
    for binding in BOTH {
        let agent = Agent { rig: &rig, binding };
        let task = agent.start("sandbox:never_ends").await;
        rig.advance(86_400_000);
        assert_eq!(state(&agent.get(&task).await), "TASK_STATE_WORKING");
        let cancelled = agent.call("CancelTask", json!({"id": task["id"]})).await.unwrap();
        assert_eq!(state(&cancelled), "TASK_STATE_CANCELED");
        assert_eq!(agent.call("CancelTask", json!({"id": task["id"]})).await.unwrap_err(), "TASK_NOT_CANCELABLE");
        let waiting = agent.start("sandbox:asks").await;
        rig.advance(2000);
        let cancelled = agent.call("CancelTask", json!({"id": waiting["id"]})).await.unwrap();
        assert_eq!(state(&cancelled), "TASK_STATE_CANCELED", "also while it asks");
        let slow = agent.start("sandbox:slow_cancel").await;
        rig.advance(500);
        let reply = agent.call("CancelTask", json!({"id": slow["id"]})).await.unwrap();
        assert_eq!(state(&reply), "TASK_STATE_WORKING", "the reply may still show it at work");
        rig.advance(2000);
        assert_eq!(state(&agent.get(&slow).await), "TASK_STATE_CANCELED");
        let stubborn = agent.start("sandbox:no_cancel").await;
        assert_eq!(agent.call("CancelTask", json!({"id": stubborn["id"]})).await.unwrap_err(), "TASK_NOT_CANCELABLE");
    }
}

#[tokio::test]
async fn ways_a_task_can_end() {
    let rig = Rig::new().await;
    let agent = Agent { rig: &rig, binding: Binding::Rpc };
    for (scenario, word, text, artifacts) in [
        ("fails", "FAILED", "The chart service did not answer.", 0),
        ("fails_late", "FAILED", "The last page could not be written.", 3),
        ("crash", "FAILED", "", 0),
        ("rejected", "REJECTED", "This agent does not take such work.", 0),
        ("rejected_late", "REJECTED", "On a closer look this is not allowed.", 0),
        ("cancelled", "CANCELED", "Stopped by the agent's owner.", 0),
        ("empty", "COMPLETED", "", 0),
        ("status_text", "COMPLETED", "High water is at 14:05 and at 02:30.", 0),
        ("text_only", "COMPLETED", "Done.", 1),
        ("data", "COMPLETED", "Done.", 1),
        ("unknown_state", "COMPLETED", "Done.", 3),
    ] {
        let task = agent.start(&format!("sandbox:{scenario}")).await;
        rig.advance(2000);
        let ended = agent.get(&task).await;
        assert_eq!((state(&ended), said(&ended)), (format!("TASK_STATE_{word}").as_str(), text), "{scenario}");
        assert_eq!(ended["artifacts"].as_array().map_or(0, Vec::len), artifacts, "{scenario}");
    }
    let stuck = agent.start("sandbox:stuck").await;
    rig.advance(86_400_000);
    assert_eq!(state(&agent.get(&stuck).await), "TASK_STATE_SUBMITTED");
}

#[tokio::test]
async fn other_spellings_and_unknown_states() {
    let rig = Rig::new().await;
    let agent = Agent { rig: &rig, binding: Binding::Rest };
    for (scenario, at_work, done) in [
        ("lower_case", json!("working"), json!("completed")),
        ("integers", json!(2), json!(3)),
        ("unknown_state", json!("TASK_STATE_PONDERING"), json!("TASK_STATE_COMPLETED")),
        ("unspecified", json!("TASK_STATE_UNSPECIFIED"), json!("TASK_STATE_COMPLETED")),
    ] {
        let task = agent.start(&format!("sandbox:{scenario}")).await;
        rig.advance(600);
        assert_eq!(agent.get(&task).await["status"]["state"], at_work);
        rig.advance(1400);
        assert_eq!(agent.get(&task).await["status"]["state"], done);
    }
}

#[tokio::test]
async fn a_file_in_pieces_joins_to_one_picture() {
    let rig = Rig::new().await;
    let agent = Agent { rig: &rig, binding: Binding::Rpc };
    let mut whole = Vec::new();
    for scenario in ["raw", "raw_chunks"] {
        let task = agent.start(&format!("sandbox:{scenario}")).await;
        rig.advance(2000);
        let done = agent.get(&task).await;
        let parts = done["artifacts"][0]["parts"].as_array().unwrap().clone();
        assert!(parts.iter().all(|part| part["filename"] == "chart.png" && part["mediaType"] == "image/png"));
        let bytes: Vec<u8> =
            parts.iter().flat_map(|part| STANDARD.decode(part["raw"].as_str().unwrap()).unwrap()).collect();
        assert!(bytes.starts_with(b"\x89PNG") && bytes.ends_with(b"IEND\xaeB`\x82"));
        whole.push(parts.len());
    }
    assert_eq!(whole, [1, 3]);
}

#[tokio::test]
async fn a_bare_message_is_an_answer() {
    let rig = Rig::new().await;
    for binding in BOTH {
        let agent = Agent { rig: &rig, binding };
        let sent = agent.call("SendMessage", send("m-1", "ctx-1", "sandbox:immediate")).await.unwrap();
        assert!(sent.get("task").is_none());
        assert_eq!((&sent["message"]["role"], &sent["message"]["contextId"]), (&json!("ROLE_AGENT"), &json!("ctx-1")));
    }
    assert_eq!(rig.books().starts(None).len(), 2);
}

#[tokio::test]
async fn a_call_that_is_not_to_return_at_once_waits_for_the_end() {
    let rig = Rig::new().await;
    let agent = Agent { rig: &rig, binding: Binding::Rpc };
    for (words, wanted) in [("x", "TASK_STATE_COMPLETED"), ("sandbox:asks", "TASK_STATE_INPUT_REQUIRED")] {
        let mut params = send("m-1", "ctx-1", words);
        params.as_object_mut().unwrap().remove("configuration");
        let known = rig.books().requests(Some("a2a")).len();
        let hands = async {
            while rig.books().requests(Some("a2a")).len() == known {
                tokio::task::yield_now().await;
            }
            loop {
                rig.advance(500);
                tokio::task::yield_now().await;
            }
        };
        let sent = tokio::select! {
            sent = agent.call("SendMessage", params) => sent.unwrap(),
            () = hands => unreachable!(),
        };
        assert_eq!(state(&sent["task"]), wanted);
    }
}

#[tokio::test]
async fn refusals_from_outside_the_protocol() {
    let rig = Rig::new().await;
    let agent = Agent { rig: &rig, binding: Binding::Rpc };
    for (scenario, statuses) in
        [("rate_limited", [429, 429, 200]), ("unavailable", [503, 200, 200]), ("server_error", [500, 200, 200])]
    {
        for status in statuses {
            let answer = agent.rpc("SendMessage", send("m-1", "ctx-1", &format!("sandbox:{scenario}"))).await;
            assert_eq!(answer.status, status, "{scenario}");
            assert_eq!(answer.header("retry-after").is_some(), status == 429 || status == 503);
        }
    }
    let internal = agent.rpc("SendMessage", send("m-1", "ctx-1", "sandbox:internal")).await.json();
    assert_eq!(internal["error"]["code"], -32603);
    assert_eq!(rig.books().starts(None).len(), 5);
}

#[tokio::test]
async fn a_task_can_be_lost() {
    let rig = Rig::new().await;
    let agent = Agent { rig: &rig, binding: Binding::Rest };
    let task = agent.start("sandbox:vanishes").await;
    agent.get(&task).await;
    agent.get(&task).await;
    assert_eq!(agent.call("GetTask", json!({"id": task["id"]})).await.unwrap_err(), "TASK_NOT_FOUND");
}

#[tokio::test]
async fn a_tenant_is_named_in_every_request() {
    let rig = Rig::new().await;
    let card = rig.get("/a2a/tenanted/.well-known/agent-card.json", &[]).await.json();
    assert_eq!(card["supportedInterfaces"][1]["tenant"], "acme");
    let mut params = send("m-1", "ctx-1", "x");
    let call = |params: &Value| json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params});
    let refused = rig.ask("POST", "/a2a/tenanted/rpc", &HEADERS, call(&params)).await.json();
    assert_eq!(refused["error"]["code"], -32602);
    params["tenant"] = json!("acme");
    assert!(rig.ask("POST", "/a2a/tenanted/rpc", &HEADERS, call(&params)).await.json()["result"]["task"].is_object());
    let started = rig.ask("POST", "/a2a/tenanted/rest/acme/message:send", &HEADERS, params).await.json();
    let url = format!("/a2a/tenanted/rest/acme/tasks/{}", started["task"]["id"].as_str().unwrap());
    assert_eq!(rig.get(&url, &HEADERS).await.status, 200);
    let routes: Vec<String> = rig.books().requests(Some("a2a")).into_iter().map(|request| request.route).collect();
    assert_eq!(routes, ["check", "start", "start", "start", "poll"]);
}
