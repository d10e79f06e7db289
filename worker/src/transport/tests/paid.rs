//! Paid calls are sent once; what came of them is never guessed. Field case R02:
//! https://github.com/juspay/hyperswitch-prism/pull/2257

use super::*;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn start() -> Call {
    Call::post("start", "/v1/images", json!({"prompt": "a copper kettle"})).paid()
}

fn verdict(failure: &Failure) -> (FailureKind, Retry, bool) {
    (failure.kind, failure.retry, failure.unsent)
}

#[tokio::test]
async fn a_start_goes_over_a_fresh_connection_every_time() {
    let server = Server::start(|_| Act::Say(answer("200 OK", &[], "{}"))).await;
    let kit = Kit::at(&server.base());
    kit.call(Call::get("check", "/v1/credits")).await.unwrap();
    for _ in 0..3 {
        kit.call(start()).await.unwrap();
    }
    kit.call(Call::get("check", "/v1/credits")).await.unwrap();
    let connections: Vec<usize> = server.seen().iter().map(|seen| seen.connection).collect();
    assert_eq!(connections, [0, 1, 2, 3, 0]);
}

#[tokio::test]
async fn a_start_that_was_read_and_not_answered_is_unknown_and_sent_once() {
    let faults: [fn() -> Act; 5] = [
        || Act::Close,
        || Act::Reset,
        || Act::SayAndClose(b"HTTP/1.1 200 OK\r\ncontent-le".to_vec()),
        || Act::SayAndClose(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"id\":".to_vec()),
        || Act::SayAndClose(b"garbage that is no HTTP\r\n\r\n".to_vec()),
    ];
    for (n, fault) in faults.into_iter().enumerate() {
        let server = Server::start(move |seen| match seen.line().starts_with("POST") {
            true => fault(),
            false => Act::Say(answer("200 OK", &[], "{}")),
        })
        .await;
        let kit = Kit::at(&server.base());
        kit.call(Call::get("check", "/v1/credits")).await.unwrap();
        let failure = kit.call(start()).await.unwrap_err();
        assert_eq!(verdict(&failure), (FailureKind::Network, Retry::Unknown, false), "fault {n}: {failure}");
        let starts = server.seen().iter().filter(|seen| seen.line().starts_with("POST")).count();
        assert_eq!(starts, 1, "fault {n}");
        let last = kit.exchanges().pop().unwrap();
        assert!(last.text.contains("a copper kettle") && last.text.contains("network:"), "{}", last.text);
    }
}

#[tokio::test]
async fn a_staged_start_that_broke_off_is_unknown_and_leaves_nothing() {
    let server =
        Server::start(|_| Act::SayAndClose(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nsound".to_vec())).await;
    let kit = Kit::at(&server.base());
    let failure = kit.call(start().to_staging()).await.unwrap_err();
    assert_eq!(verdict(&failure), (FailureKind::Network, Retry::Unknown, false));
    assert_eq!(kit.staged_files(), 0);
}

#[tokio::test]
async fn what_never_had_a_connection_was_never_sent() {
    let plain = Server::start(|_| Act::Say(answer("200 OK", &[], "{}"))).await;
    // A port that was just given back refuses.
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let rows = [
        (format!("http://{closed}"), "refused"),
        ("http://unknown.test:9".to_owned(), "no such name"),
        (format!("https://{}", plain.address), "TLS"),
    ];
    for (base, what) in rows {
        let kit = Kit::at(&base);
        for call in [start(), Call::get("poll", "/v1/x")] {
            let failure = kit.call(call).await.unwrap_err();
            assert_eq!(verdict(&failure), (FailureKind::Network, Retry::Backoff, true), "{what}: {failure}");
            let host = base.split("//").nth(1).unwrap();
            assert!(failure.message.contains(host), "{failure}");
            let text = kit.exchanges().pop().unwrap().text;
            assert!(text.contains("not sent: network"), "{text}");
        }
    }
    assert!(plain.seen().is_empty(), "a TLS hello is no request");
}

#[tokio::test]
async fn a_handshake_that_never_ends_is_unsent_when_the_connect_deadline_passes() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("https://{}", silent.local_addr().unwrap());
    // Silence and the whole are shorter than the connect on purpose: they only count once there is a connection.
    let kit = Setup::at(&base)
        .with(|setup| setup.limits = Limits { connect: millis(300), silence: millis(50), ..setup.limits })
        .build();
    let failure = kit.call(start()).await.unwrap_err();
    assert_eq!(verdict(&failure), (FailureKind::Timeout, Retry::Backoff, true), "{failure}");
    let kit = Setup::at(&base)
        .with(|setup| setup.limits = Limits { silence: millis(20), whole: millis(100), ..setup.limits })
        .build();
    let failure = kit.call(start()).await.unwrap_err();
    assert_eq!(verdict(&failure), (FailureKind::Timeout, Retry::Backoff, true), "{failure}");
}

#[tokio::test]
async fn a_poll_whose_pooled_connection_died_goes_again_once_and_unseen() {
    // The second request of every connection is read and met with an end, as an idle timeout that crosses it.
    let server = Server::start(|seen| match (seen.line().contains("poll"), seen.connection) {
        (true, 0) => Act::Close,
        _ => Act::Say(answer("200 OK", &[], "{}")),
    })
    .await;
    let kit = Kit::at(&server.base());
    kit.call(Call::get("warm", "/warm")).await.unwrap();
    assert_eq!(kit.call(Call::get("poll", "/poll")).await.unwrap().status, 200);
    let polls: Vec<usize> =
        server.seen().iter().filter(|seen| seen.line().contains("poll")).map(|seen| seen.connection).collect();
    assert_eq!(polls, [0, 1]);
    assert_eq!(kit.events.count(WireEvent::PooledConnectionDied), 1);
}

#[tokio::test]
async fn a_cancel_that_erases_is_not_sent_again_behind_the_back_of_its_step() {
    let server = Server::start(|seen| match seen.line().starts_with("DELETE") {
        true => Act::Close,
        false => Act::Say(answer("200 OK", &[], "{}")),
    })
    .await;
    let kit = Kit::at(&server.base());
    kit.call(Call::get("poll", "/v1/tasks/1")).await.unwrap();
    let failure = kit.call(Call::delete("cancel", "/v1/tasks/1").once()).await.unwrap_err();
    assert_eq!(verdict(&failure), (FailureKind::Network, Retry::Backoff, false), "{failure}");
    let cancels: Vec<usize> =
        server.seen().iter().filter(|seen| seen.line().starts_with("DELETE")).map(|seen| seen.connection).collect();
    assert_eq!(cancels, [1]);
}

#[tokio::test]
async fn a_poll_that_dies_on_a_fresh_connection_is_a_passing_fault() {
    let server = Server::start(|_| Act::Close).await;
    let kit = Kit::at(&server.base());
    let failure = kit.call(Call::get("poll", "/poll")).await.unwrap_err();
    assert_eq!(verdict(&failure), (FailureKind::Network, Retry::Backoff, false));
    assert_eq!((server.seen().len(), kit.events.count(WireEvent::PooledConnectionDied)), (1, 0));
    // Once warm, a poll goes twice and no more.
    let server = Server::start(|seen| match seen.number {
        0 => Act::Say(answer("200 OK", &[], "{}")),
        _ => Act::Close,
    })
    .await;
    let kit = Kit::at(&server.base());
    kit.call(Call::get("warm", "/warm")).await.unwrap();
    let failure = kit.call(Call::get("poll", "/poll")).await.unwrap_err();
    assert_eq!((verdict(&failure), server.seen().len()), ((FailureKind::Network, Retry::Backoff, false), 3));
}

/// A server whose every HTTP/2 connection reads requests to their end and then says `frames`. It counts
/// the requests.
async fn h2_server(frames: Vec<u8>) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(h2_connection(stream, frames.clone(), Arc::clone(&count)));
        }
    });
    (base, requests)
}

async fn h2_connection(mut stream: TcpStream, frames: Vec<u8>, requests: Arc<AtomicUsize>) {
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await.unwrap();
    stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
    let mut head = [0; 9];
    while stream.read_exact(&mut head).await.is_ok() {
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        stream.read_exact(&mut vec![0; length]).await.unwrap();
        // DATA or HEADERS with END_STREAM: the request was read.
        if head[3] <= 1 && head[4] & 1 == 1 {
            requests.fetch_add(1, Ordering::SeqCst);
            let _ = stream.write_all(&frames).await;
            let _ = stream.shutdown().await;
        }
    }
}

fn goaway(last: u8, code: u8) -> Vec<u8> {
    vec![0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, last, 0, 0, 0, code]
}

fn reset(code: u8) -> Vec<u8> {
    vec![0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, code]
}

/// RFC 9113 sections 6.8, 7 and 8.7: NO_ERROR 0, INTERNAL_ERROR 2, REFUSED_STREAM 7, CANCEL 8, ENHANCE_YOUR_CALM 11.
#[tokio::test]
async fn http2_says_what_was_not_processed_and_all_else_is_unknown() {
    let unread = (FailureKind::Network, Retry::Backoff, true);
    let unknown = (FailureKind::Network, Retry::Unknown, false);
    let rows = [
        ("above the last id", goaway(0, 0), unread),
        ("above the last id, in anger", goaway(0, 11), unread),
        ("refused", reset(7), unread),
        ("at the last id", goaway(1, 0), unknown),
        ("at the last id, in anger", goaway(1, 2), unknown),
        ("reset by an error", reset(2), unknown),
        ("reset by a cancel", reset(8), unknown),
        ("an end without a word", Vec::new(), unknown),
    ];
    for (what, frames, expected) in rows {
        let (base, requests) = h2_server(frames).await;
        let kit = Setup::at(&base).with(|setup| setup.h2_only = true).build();
        let failure = kit.call(start()).await.unwrap_err();
        assert_eq!(verdict(&failure), expected, "{what}: {failure}");
        assert_eq!(requests.load(Ordering::SeqCst), 1, "{what}: the library sends nothing again");
    }
}
