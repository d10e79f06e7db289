//! No key in anything that is kept, shown or handed on. Field case R28:
//! https://github.com/zeroclaw-labs/zeroclaw/issues/9813

use super::*;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

/// The key in every form a grep would look for.
fn forms() -> Vec<String> {
    vec![
        KEY.to_owned(),
        "CANARY".to_owned(),
        STANDARD.encode(KEY),
        KEY.replace('-', "%2D"),
        STANDARD.encode(format!("user:{KEY}")),
    ]
}

fn assert_clean(what: &str, text: &str) {
    for form in forms() {
        assert!(!text.contains(&form), "{what} shows {form}: {text}");
    }
}

#[tokio::test]
async fn an_answer_that_echoes_the_key_reaches_nobody_with_it() {
    let basic = STANDARD.encode(format!("user:{KEY}"));
    let server = Server::start(move |seen| {
        let key = seen.header("x-key").unwrap().to_owned();
        let (status, body) = match seen.line() {
            line if line.contains("401") => {
                ("401 Unauthorized", format!(r#"{{"error":"Incorrect key provided: {key}"}}"#))
            }
            line if line.contains("500") => ("500 Oops", format!("x-key: {key}\nAuthorization: Basic {basic}\n")),
            line if line.contains("302") => ("302 Found", format!("<a href=\"/?key={key}\">moved</a>")),
            _ => ("200 OK", format!(r#"{{"you":"{key}","q":"k%3D{key}"}}"#)),
        };
        let location = format!("https://elsewhere.test/?key={key}");
        Act::Say(answer(status, &[("x-echo", &key), ("location", &location), ("x-request-id", "r-1")], body))
    })
    .await;
    let kit = Kit::at(&server.base());
    for path in ["/401", "/500", "/302", "/200"] {
        for paid in [false, true] {
            let mut call = Call::post("start", path, json!({"prompt": "paper crane"}));
            call.paid = paid;
            match kit.call(call).await {
                Ok(reply) => {
                    assert_clean("the body", std::str::from_utf8(&reply.body).unwrap());
                    assert_clean("the headers", &format!("{:?}", reply.headers));
                    assert_eq!(reply.header("x-request-id"), Some("r-1"));
                }
                Err(failure) => assert_clean("the failure", &format!("{failure} {failure:?}")),
            }
        }
    }
    let exchanges = kit.exchanges();
    assert_eq!(exchanges.len(), 8);
    for exchange in &exchanges {
        assert_clean("the record", &serde_json::to_string(exchange).unwrap());
        assert!(
            exchange.text.contains("x-key: [credential]") && exchange.text.contains("paper crane"),
            "{}",
            exchange.text
        );
        assert!(exchange.text.contains("x-request-id: r-1"), "{}", exchange.text);
    }
}

#[tokio::test]
async fn a_host_that_was_not_given_the_key_and_echoes_it_is_not_written_down_with_it() {
    let server = Server::start(|seen| {
        assert_eq!(seen.header("x-key"), None);
        Act::Say(answer("403 Forbidden", &[("x-echo", KEY)], format!("<Error><Key>{KEY}</Key></Error>")))
    })
    .await;
    let kit = Kit::at(&server.base());
    let failure = kit.transport.download("sample", &format!("{}/f", server.base()), false).await.unwrap_err();
    assert_clean("the failure", &format!("{failure} {failure:?}"));
    let exchanges = kit.exchanges();
    assert_eq!(exchanges.len(), 1);
    assert_clean("the record", &exchanges[0].text);
    assert!(exchanges[0].text.contains("x-echo: [credential]"), "{}", exchanges[0].text);
}

#[tokio::test]
async fn errors_without_an_answer_name_the_host_and_not_the_key() {
    let plain = Server::start(|_| Act::Close).await;
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    for base in [
        "http://unknown.test:1".to_owned(),
        format!("http://{closed}"),
        format!("https://{}", plain.address),
        plain.base(),
    ] {
        let kit = Kit::at(&base);
        let call = Call::get("poll", "/v1/x").query("key", KEY).query("id", "42");
        let failure = kit.call(call).await.unwrap_err();
        assert_clean("the failure", &format!("{failure} {failure:?}"));
        assert!(failure.message.contains(base.split("//").nth(1).unwrap()), "{failure}");
        let text = kit.exchanges().pop().unwrap().text;
        assert_clean("the record", &text);
        assert!(text.starts_with(&format!("GET {base}/v1/x?key=…&id=42\n")), "{text}");
    }
}

#[tokio::test]
async fn a_credential_that_cannot_be_used_is_an_auth_failure_that_names_its_reference() {
    let server = Server::canary().await;
    let cases = [
        (Some("env:OTHER"), KEY, "env:OTHER is not set"),
        (None, KEY, "names no credential"),
        (Some("env:KEY"), "sandbox-CANARY-\u{e9}", "env:KEY"),
    ];
    for (reference, key, words) in cases {
        let kit = Setup::at(&server.base())
            .with(|setup| {
                setup.connector.credential = reference.map(str::to_owned);
                setup.key = key.to_owned();
            })
            .build();
        let failure = kit.call(Call::get("poll", "/")).await.unwrap_err();
        assert_eq!(
            (failure.kind, failure.code.as_str(), failure.unsent),
            (FailureKind::Auth, "credential_missing", true)
        );
        assert!(failure.message.contains(words) && failure.message.contains(&server.address.to_string()), "{failure}");
        assert_clean("the failure", &format!("{failure:?}"));
    }
    server.assert_untouched().await;
}

#[tokio::test]
async fn the_record_keeps_words_and_replaces_media() {
    let picture: Vec<u8> = (0..3000u32).map(|n| (n * 31 % 253) as u8).collect();
    let encoded = STANDARD.encode(&picture);
    let body = format!(r#"{{"data":[{{"b64_json":"{encoded}"}}],"url":"https://cdn.test/a.png?sig=CANARY&v=1"}}"#);
    let server = Server::start(move |seen| match seen.line().starts_with("POST") {
        true => Act::Say(answer("200 OK", &[("content-type", "application/json"), ("set-cookie", "s=CANARY")], &body)),
        false => Act::Say(answer("200 OK", &[("content-type", "image/png")], &picture)),
    })
    .await;
    let kit = Kit::at(&server.base());
    let reply =
        kit.call(Call::post("start", "/v1/images", json!({"prompt": "a kettle", "image": encoded}))).await.unwrap();
    assert!(reply.body.len() > 4000, "the module still sees the whole answer");
    kit.call(Call::get("file", "/a.png").to_staging()).await.unwrap();
    let exchanges = kit.exchanges();
    let hash = crate::redact::sha256_hex(&(0..3000u32).map(|n| (n * 31 % 253) as u8).collect::<Vec<u8>>());
    let described = format!("[base64 of 3000 bytes, sha256 {hash}]");
    let expected = format!(
        "POST {0}/v1/images\naccept-encoding: gzip\nacme-version: 7\nx-key: [credential]\ncontent-type: application/json\n\n\
         {{\"image\":\"{described}\",\"prompt\":\"a kettle\"}}\n\nHTTP 200 OK\ncontent-length: {1}\n\
         content-type: application/json\nset-cookie: [masked]\n\n\
         {{\"data\":[{{\"b64_json\":\"{described}\"}}],\"url\":\"https://cdn.test/a.png?sig=…&v=1\"}}\n",
        server.base(),
        reply.body.len(),
    );
    assert_eq!(exchanges[0].text, expected);
    assert!(
        exchanges[1].text.ends_with(&format!("\n[3000 bytes of image/png, sha256 {hash}]\n")),
        "{}",
        exchanges[1].text
    );
    assert_eq!(
        (exchanges[0].step, exchanges[0].route.as_str(), exchanges[0].adapter.as_str()),
        (Step::Poll, "start", "1")
    );
}

#[tokio::test]
async fn equal_answers_have_equal_fingerprints_whatever_their_dates_and_ids() {
    let server = Server::start(|seen| {
        let id = seen.number.to_string();
        let body = if seen.number == 2 { r#"{"status":"Ready"}"# } else { r#"{"status":"Pending"}"# };
        Act::Say(answer("200 OK", &[("x-request-id", &id), ("date", "Mon, 30 Nov 2026 07:28:00 GMT")], body))
    })
    .await;
    let kit = Kit::at(&server.base());
    for path in ["/a", "/a", "/a", "/b"] {
        kit.call(Call::get("poll", path)).await.unwrap();
    }
    let prints: Vec<String> = kit.exchanges().into_iter().map(|exchange| exchange.fingerprint).collect();
    assert_eq!(prints[0], prints[1]);
    assert!(prints[1] != prints[2] && prints[0] != prints[3] && prints[0].len() == 64);
    assert!(kit.exchanges().is_empty(), "handed out once");
}

#[tokio::test]
async fn a_large_body_is_kept_in_part_and_named_whole() {
    let server = Server::start(|_| Act::Say(answer("200 OK", &[], "line of text é\n".repeat(20_000)))).await;
    let kit = Kit::at(&server.base());
    kit.call(Call::get("poll", "/")).await.unwrap();
    let text = kit.exchanges().pop().unwrap().text;
    let hash = crate::redact::sha256_hex("line of text é\n".repeat(20_000).as_bytes());
    assert!(text.ends_with(&format!("\n[cut: 320000 bytes in all, sha256 {hash}]\n")));
    assert!(text.len() < (64 << 10) + 1000);
}
