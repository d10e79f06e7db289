//! What a call becomes on the wire, what comes back, and what its deadlines do.

use super::*;
use flate2::{Compression, write::GzEncoder};
use http::Method;
use longhaul_vendors::{CallBody, Part};
use serde_json::json;
use std::io::Write;

fn ok(body: &str) -> Act {
    Act::Say(answer("200 OK", &[("content-type", "application/json")], body))
}

#[tokio::test]
async fn a_call_is_written_with_its_headers_query_and_key() {
    let server = Server::start(|_| ok(r#"{"id":7}"#)).await;
    let kit = Kit::at(&format!("{}/base", server.base()));
    let call = Call::post("create", "/v1/jobs", json!({"prompt": "a brass telescope"}))
        .query("name", "a b&c")
        .header("Acme-Version", "8")
        .header("idempotency-key", "k-1");
    let reply = kit.call(call).await.unwrap();
    assert_eq!((reply.status, &reply.body[..]), (200, &br#"{"id":7}"#[..]));
    let seen = &server.seen()[0];
    assert_eq!(seen.line(), "POST /base/v1/jobs?name=a+b%26c HTTP/1.1");
    let headers = [
        ("x-key", KEY),
        ("acme-version", "8"),
        ("idempotency-key", "k-1"),
        ("content-type", "application/json"),
        ("content-length", "30"),
        ("accept-encoding", "gzip"),
    ];
    for (name, value) in headers {
        assert_eq!(seen.header(name), Some(value), "{name}");
    }
    assert!(seen.header("user-agent").unwrap().starts_with("longhaul/"));
    assert_eq!(seen.body, br#"{"prompt":"a brass telescope"}"#);
    kit.call(Call::get("look", "/v1/jobs/7?full=1").without_key()).await.unwrap();
    let seen = &server.seen()[1];
    assert_eq!((seen.line(), seen.header("x-key")), ("GET /base/v1/jobs/7?full=1 HTTP/1.1", None));
    kit.call(Call::new("stop", Method::POST, "/v1/jobs/7/cancel")).await.unwrap();
    assert_eq!(server.seen()[2].header("content-length"), Some("0"));
    assert_eq!(server.connections(), 1, "free calls share a connection");
}

#[tokio::test]
async fn a_large_form_goes_out_with_its_length_and_arrives_whole() {
    let server = Server::start(|_| ok("{}")).await;
    let kit = Kit::at(&server.base());
    let file: Vec<u8> = (0..1_000_003u32).map(|n| (n % 251) as u8).collect();
    let parts = vec![
        Part { name: "model".into(), file_name: None, mime: None, data: "m1".into() },
        Part {
            name: "file".into(),
            file_name: Some("a.bin".into()),
            mime: Some("audio/wav".into()),
            data: file.clone().into(),
        },
    ];
    let mut call = Call::new("upload", Method::POST, "/v1/files");
    call.body = CallBody::Multipart(parts);
    kit.call(call.paid()).await.unwrap();
    let seen = &server.seen()[0];
    assert_eq!(seen.header("transfer-encoding"), None);
    let boundary = seen.header("content-type").unwrap().strip_prefix("multipart/form-data; boundary=").unwrap();
    let mut expected = format!(
        "--{boundary}\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\nm1\r\n--{boundary}\r\n\
         content-disposition: form-data; name=\"file\"; filename=\"a.bin\"\r\ncontent-type: audio/wav\r\n\r\n"
    )
    .into_bytes();
    expected.extend_from_slice(&file);
    expected.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    assert!(seen.body == expected);
}

#[tokio::test]
async fn gzip_is_undone_and_bounded_after_it() {
    let packed = |plain: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    };
    let (small, bomb) = (packed(br#"{"status":"Ready"}"#), packed(&vec![b' '; 9 << 20]));
    assert!(bomb.len() < 64 << 10);
    let server = Server::start(move |seen| {
        let body = if seen.line().contains("bomb") { &bomb } else { &small };
        Act::Say(answer("200 OK", &[("content-encoding", "gzip")], body))
    })
    .await;
    let kit = Kit::at(&server.base());
    assert_eq!(&kit.call(Call::get("poll", "/small")).await.unwrap().body[..], br#"{"status":"Ready"}"#);
    let failure = kit.call(Call::get("poll", "/bomb")).await.unwrap_err();
    assert_eq!((failure.code.as_str(), failure.retry), ("unreadable_answer", Retry::Never));
    let failure = kit.call(Call::get("poll", "/bomb").paid()).await.unwrap_err();
    assert_eq!(failure.retry, Retry::Unknown);
}

#[tokio::test]
async fn an_answer_in_memory_is_bounded_at_eight_mebibytes() {
    let server = Server::start(|seen| {
        let size = if seen.line().contains("fits") { 8 << 20 } else { (8 << 20) + 1 };
        Act::Say(answer("200 OK", &[], vec![b'x'; size]))
    })
    .await;
    let kit = Kit::at(&server.base());
    assert_eq!(kit.call(Call::get("poll", "/fits")).await.unwrap().body.len(), 8 << 20);
    assert_eq!(kit.call(Call::get("poll", "/more")).await.unwrap_err().code, "unreadable_answer");
}

#[tokio::test]
async fn a_success_streams_into_staging_and_an_error_stays_in_memory() {
    let server = Server::start(|seen| match seen.line() {
        line if line.contains("speech") => {
            Act::Say(answer("200 OK", &[("content-type", "audio/mpeg")], vec![7; 300_000]))
        }
        _ => Act::Say(answer("422 Unprocessable Entity", &[], "no such voice")),
    })
    .await;
    let kit = Setup::at(&server.base()).with(|setup| setup.max_bytes = 300_000).build();
    let reply = kit.call(Call::get("speak", "/speech").paid().to_staging()).await.unwrap();
    let staged = reply.staged.unwrap();
    assert_eq!((staged.bytes, reply.body.len()), (300_000, 0));
    assert_eq!(kit.staged(&staged), vec![7; 300_000]);
    let reply = kit.call(Call::get("speak", "/other").to_staging()).await.unwrap();
    assert_eq!((reply.status, reply.staged, &reply.body[..]), (422, None, &b"no such voice"[..]));
    let tight = Setup::at(&server.base()).with(|setup| setup.max_bytes = 299_999).build();
    let failure = tight.call(Call::get("speak", "/speech").to_staging()).await.unwrap_err();
    assert_eq!((failure.code.as_str(), failure.retry), ("output_too_large", Retry::Never));
    assert_eq!(tight.staged_files(), 0, "what was refused leaves nothing behind");
}

#[tokio::test]
async fn an_answer_says_how_long_to_wait() {
    let server = Server::start(|_| {
        let headers = [("date", "Mon, 30 Nov 2026 07:38:00 GMT"), ("retry-after", "Mon, 30 Nov 2026 07:38:04 GMT")];
        Act::Say(answer("429 Too Many Requests", &headers, ""))
    })
    .await;
    let kit = Kit::at(&server.base());
    let reply = kit.call(Call::get("poll", "/")).await.unwrap();
    assert_eq!((reply.status, reply.retry_after), (429, Some(Duration::from_secs(4))));
    assert_eq!(kit.events.count(WireEvent::RetryAfter), 1);
    assert_eq!(kit.guard.skews().ahead_ms("127.0.0.1"), Some(600_500), "the vendor's clock is ten minutes ahead");
}

#[tokio::test]
async fn a_segment_of_dots_leads_nowhere() {
    let server = Server::canary().await;
    let kit = Kit::at(&format!("{}/v1", server.base()));
    for path in
        ["/jobs/..", "/jobs/../keys", "/jobs/%2e%2E/keys", "/./x", "/a\\..\\b", "jobs", "@evil.test/", "/a b", "/a#b"]
    {
        let failure = kit.call(Call::delete("cancel", path)).await.unwrap_err();
        assert_eq!((failure.code.as_str(), failure.unsent), ("address_refused", true), "{path}");
    }
    server.assert_untouched().await;
}

#[tokio::test]
async fn silence_before_the_answer_and_inside_it_ends_a_call() {
    let server = Server::start(|seen| match seen.line() {
        line if line.contains("before") => Act::SayAndHang(Vec::new()),
        _ => Act::SayAndHang(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf".to_vec()),
    })
    .await;
    let kit = Setup::at(&server.base()).with(|setup| short(&mut setup.limits)).build();
    for path in ["/before", "/inside"] {
        for (paid, verdict) in [(false, Retry::Backoff), (true, Retry::Unknown)] {
            let mut call = Call::get("poll", path);
            call.paid = paid;
            let failure = kit.call(call).await.unwrap_err();
            assert_eq!((failure.kind, failure.retry, failure.unsent), (FailureKind::Timeout, verdict, false), "{path}");
            assert!(failure.message.contains("said nothing"), "{}", failure.message);
        }
    }
    assert_eq!(server.seen().len(), 4, "a timeout is never a reason to send again by itself");
}

#[tokio::test]
async fn a_call_may_be_silent_longer_than_the_general_deadline() {
    let pieces = || vec![Vec::new(), answer("200 OK", &[], "late")];
    let server = Server::start(move |_| Act::Trickle(pieces(), millis(500))).await;
    let kit = Setup::at(&server.base()).with(|setup| setup.limits.silence = millis(150)).build();
    let patient = Call::get("start", "/").paid().silence(Some(Duration::from_secs(20)));
    assert_eq!(&kit.call(patient).await.unwrap().body[..], b"late");
    assert_eq!(kit.call(Call::get("start", "/").paid()).await.unwrap_err().retry, Retry::Unknown);
}

#[tokio::test]
async fn a_trickle_that_is_never_silent_still_has_an_end() {
    let server = Server::start(|_| {
        let mut pieces = vec![b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n".to_vec()];
        pieces.extend(std::iter::repeat_n(b"x".to_vec(), 1000));
        Act::Trickle(pieces, millis(20))
    })
    .await;
    let kit = Setup::at(&server.base()).with(|setup| setup.limits.whole = millis(600)).build();
    let failure = kit.call(Call::get("poll", "/").paid()).await.unwrap_err();
    assert_eq!((failure.kind, failure.retry), (FailureKind::Timeout, Retry::Unknown));
    assert!(failure.message.contains("not whole in time"), "{}", failure.message);
}

#[tokio::test]
async fn inputs_come_from_text_data_artifacts_and_guarded_urls() {
    let files = Server::start(|_| Act::Say(answer("200 OK", &[("content-type", "image/png")], "bytes"))).await;
    let vendor = Server::canary().await;
    let input = |change: fn(&mut Input, String), value: String| {
        let mut input: Input = serde_json::from_value(json!({"role": "reference"})).unwrap();
        change(&mut input, value);
        input
    };
    let url: fn(&mut Input, String) = |input, value| input.url = Some(value);
    let kit = Setup::at(&vendor.base())
        .with(|setup| {
            setup.connector.private_hosts = vec![files.address.to_string()];
            setup.inputs = vec![
                input(|input, value| input.text = Some(value), "a script".into()),
                input(|input, value| input.artifact = Some(value), "art_1".into()),
                input(url, "data:image/png;base64,AAEC".into()),
                input(url, format!("{}/a/b%20c.png?sig=CANARY", files.base())),
                input(url, format!("{}/v1/keys", vendor.base())),
                input(url, "https://169.254.169.254/latest".into()),
            ];
        })
        .build();
    let read = |index| kit.transport.input(index);
    assert_eq!(&read(0).await.unwrap().data[..], b"a script");
    assert_eq!(read(1).await.unwrap().name.as_deref(), Some("art_1.png"));
    assert_eq!(&read(2).await.unwrap().data[..], &[0, 1, 2]);
    let fetched = read(3).await.unwrap();
    assert_eq!(
        (fetched.mime.as_str(), fetched.name.as_deref(), &fetched.data[..]),
        ("image/png", Some("b c.png"), &b"bytes"[..])
    );
    assert_eq!(files.seen()[0].header("x-key"), None);
    // The place opened for the vendor is not opened for the orchestrator's addresses.
    for index in [4, 5] {
        assert_eq!(read(index).await.unwrap_err().code, "address_refused");
    }
    assert_eq!(read(6).await.unwrap_err().kind, FailureKind::InvalidRequest);
    vendor.assert_untouched().await;
    assert!(kit.exchanges().iter().all(|exchange| !exchange.text.contains("CANARY")));
}
