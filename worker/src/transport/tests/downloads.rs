//! Downloads: whole or not at all.

use super::*;

/// A file of some size whose bytes depend on their place.
fn file(size: usize) -> Vec<u8> {
    (0..size).map(|n| (n % 251) as u8).collect()
}

/// The head of an answer that promises more than may come.
fn head(status: &str, headers: &[(&str, String)]) -> Vec<u8> {
    let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("HTTP/1.1 {status}\r\n{lines}\r\n").into_bytes()
}

fn from(seen: &Seen) -> Option<usize> {
    seen.header("range").map(|range| range.strip_prefix("bytes=").unwrap().strip_suffix('-').unwrap().parse().unwrap())
}

/// A server of one file that cuts every answer after `step` bytes and honours ranges.
async fn cutting(size: usize, step: usize, validator: (&'static str, &'static str)) -> Server {
    Server::start(move |seen| {
        let whole = file(size);
        let start = from(seen).unwrap_or(0);
        let end = (start + step).min(size);
        let mut out = if start == 0 {
            head("200 OK", &[("content-length", size.to_string()), (validator.0, validator.1.to_owned())])
        } else {
            let range = format!("bytes {start}-{}/{size}", size - 1);
            head("206 Partial Content", &[("content-length", (size - start).to_string()), ("content-range", range)])
        };
        out.extend_from_slice(&whole[start..end]);
        if end == size { Act::Say(out) } else { Act::SayAndClose(out) }
    })
    .await
}

async fn fetch(kit: &Kit, server: &Server) -> Result<Downloaded, Failure> {
    kit.transport.download("sample", &format!("{}/f?sig=CANARY", server.base()), false).await
}

#[tokio::test]
async fn a_whole_file_comes_with_its_type_name_and_hash() {
    let server = Server::start(|_| {
        let headers = [("content-type", "video/mp4"), ("content-disposition", "attachment; filename=\"v.mp4\"")];
        Act::Say(answer("200 OK", &headers, file(400_000)))
    })
    .await;
    let kit = Kit::at(&server.base());
    let done = fetch(&kit, &server).await.unwrap();
    assert_eq!((done.staged.bytes, done.content_type.as_deref()), (400_000, Some("video/mp4")));
    assert_eq!(done.content_disposition.as_deref(), Some("attachment; filename=\"v.mp4\""));
    assert_eq!(done.sha256, crate::redact::sha256_hex(&file(400_000)));
    assert_eq!(done.host, server.address.to_string());
    assert!(kit.staged(&done.staged) == file(400_000));
    let seen = &server.seen()[0];
    assert_eq!(
        (seen.header("x-key"), seen.header("accept-encoding"), seen.header("range")),
        (None, Some("identity"), None)
    );
    let text = kit.exchanges().pop().unwrap().text;
    assert!(
        text.contains("/f?sig=…\n") && text.contains("[400000 bytes of video/mp4, sha256 ") && !text.contains("CANARY")
    );
}

#[tokio::test]
async fn a_keyed_download_takes_the_key_to_the_base_by_url_or_path() {
    let server = Server::start(|_| Act::Say(answer("200 OK", &[], "bytes"))).await;
    let kit = Kit::at(&format!("{}/v1", server.base()));
    for url in [format!("{}/v1/files/1", server.base()), "/files/1".to_owned()] {
        assert_eq!(kit.transport.download("file", &url, true).await.unwrap().staged.bytes, 5);
    }
    for seen in server.seen() {
        assert_eq!((seen.line(), seen.header("x-key")), ("GET /v1/files/1 HTTP/1.1", Some(KEY)));
    }
}

#[tokio::test]
async fn a_cut_download_is_taken_up_where_it_ended() {
    for validator in [("etag", "\"v1\""), ("last-modified", "Mon, 30 Nov 2026 07:00:00 GMT")] {
        let server = cutting(1_000_000, 300_000, validator).await;
        let kit = Kit::at(&server.base());
        let done = fetch(&kit, &server).await.unwrap();
        assert!(kit.staged(&done.staged) == file(1_000_000));
        assert_eq!(done.sha256, crate::redact::sha256_hex(&file(1_000_000)));
        let seen = server.seen();
        assert_eq!(seen.len(), 4);
        assert!(seen[1..].iter().all(|seen| seen.header("if-range") == Some(validator.1) && from(seen).unwrap() > 0));
        assert_eq!(kit.events.count(WireEvent::DownloadResumed), 3);
    }
}

#[tokio::test]
async fn without_proof_of_sameness_a_download_starts_over() {
    // A weak ETag proves nothing (RFC 9110 section 8.8.3), so the second try asks for the whole.
    let server = Server::start(|seen| {
        let mut out = head("200 OK", &[("content-length", "1000".to_owned()), ("etag", "W/\"v1\"".to_owned())]);
        out.extend_from_slice(&file(1000)[..if seen.number == 0 { 400 } else { 1000 }]);
        if seen.number == 0 { Act::SayAndClose(out) } else { Act::Say(out) }
    })
    .await;
    let kit = Kit::at(&server.base());
    let done = fetch(&kit, &server).await.unwrap();
    assert!(kit.staged(&done.staged) == file(1000));
    assert_eq!(server.seen().len(), 2);
    assert!(server.seen().iter().all(|seen| seen.header("range").is_none()));
}

#[tokio::test]
async fn a_server_that_ignores_the_range_or_changed_the_file_is_read_from_the_start() {
    // The second answer is a 200 with another file: If-Range did not match.
    let other: Vec<u8> = file(900).into_iter().rev().collect();
    let expected = other.clone();
    let server = Server::start(move |seen| {
        if seen.number == 0 {
            let mut out = head("200 OK", &[("content-length", "1000".to_owned()), ("etag", "\"v1\"".to_owned())]);
            out.extend_from_slice(&file(1000)[..400]);
            return Act::SayAndClose(out);
        }
        Act::Say(answer("200 OK", &[("etag", "\"v2\"")], &other))
    })
    .await;
    let kit = Kit::at(&server.base());
    let done = fetch(&kit, &server).await.unwrap();
    assert!(kit.staged(&done.staged) == expected);
    assert_eq!(done.sha256, crate::redact::sha256_hex(&expected));
    assert_eq!(from(&server.seen()[1]), Some(400));
}

#[tokio::test]
async fn a_rest_that_does_not_fit_is_thrown_away() {
    for (status, range) in [
        ("206 Partial Content", "bytes 500-999/1000"),
        ("206 Partial Content", "bytes 400-1999/2000"),
        ("416 Range Not Satisfiable", "bytes */1000"),
    ] {
        let server = Server::start(move |seen| match seen.number {
            0 => {
                let mut out = head("200 OK", &[("content-length", "1000".to_owned()), ("etag", "\"v1\"".to_owned())]);
                out.extend_from_slice(&file(1000)[..400]);
                Act::SayAndClose(out)
            }
            1 => Act::Say(answer(status, &[("content-range", range)], "wrong bytes")),
            _ => Act::Say(answer("200 OK", &[], file(1000))),
        })
        .await;
        let kit = Kit::at(&server.base());
        let done = fetch(&kit, &server).await.unwrap();
        assert!(kit.staged(&done.staged) == file(1000), "{status} {range}");
        assert_eq!(server.seen()[2].header("range"), None);
    }
}

#[tokio::test]
async fn a_download_that_never_gets_further_is_given_back_to_the_step() {
    let server = Server::start(|_| {
        let mut out = head("200 OK", &[("content-length", "1000".to_owned())]);
        out.extend_from_slice(&file(400));
        Act::SayAndClose(out)
    })
    .await;
    let kit = Setup::at(&server.base()).with(|setup| setup.limits.resumes = 3).build();
    let failure = fetch(&kit, &server).await.unwrap_err();
    assert_eq!(
        (failure.kind, failure.code.as_str(), failure.retry),
        (FailureKind::Network, "download_cut", Retry::Backoff)
    );
    assert!(server.seen().len() <= 4, "{}", server.seen().len());
    assert_eq!(kit.staged_files(), 0);
    assert!(!failure.message.contains("CANARY"));
}

#[tokio::test]
async fn silence_in_the_middle_is_taken_up_too() {
    let server = Server::start(|seen| {
        let start = from(seen).unwrap_or(0);
        if start > 0 {
            let range = format!("bytes {start}-999/1000");
            let length = (1000 - start).to_string();
            let mut out = head("206 Partial Content", &[("content-length", length), ("content-range", range)]);
            out.extend_from_slice(&file(1000)[start..]);
            return Act::Say(out);
        }
        let mut out = head("200 OK", &[("content-length", "1000".to_owned()), ("etag", "\"v1\"".to_owned())]);
        out.extend_from_slice(&file(400));
        Act::SayAndHang(out)
    })
    .await;
    let kit = Setup::at(&server.base()).with(|setup| setup.limits.silence = millis(300)).build();
    let done = fetch(&kit, &server).await.unwrap();
    assert!(kit.staged(&done.staged) == file(1000));
}

#[tokio::test]
async fn what_is_too_large_is_refused_before_or_while_it_streams() {
    let server = Server::start(|seen| match seen.line().contains("honest") {
        true => Act::SayAndHang(head("200 OK", &[("content-length", "1001".to_owned())])),
        false => {
            let mut out = head("200 OK", &[("connection", "close".to_owned())]);
            out.extend_from_slice(&file(1001));
            Act::SayAndClose(out)
        }
    })
    .await;
    let kit = Setup::at(&server.base()).with(|setup| setup.max_bytes = 1000).build();
    for path in ["/honest", "/quiet"] {
        let failure = kit.transport.download("sample", &format!("{}{path}", server.base()), false).await.unwrap_err();
        assert_eq!((failure.code.as_str(), failure.retry), ("output_too_large", Retry::Never), "{path}");
    }
    assert_eq!((server.seen().len(), kit.staged_files()), (2, 0));
}

#[tokio::test]
async fn each_status_has_its_verdict() {
    let seven = Retry::After(Duration::from_secs(7));
    let rows: [(&str, &str, bool, FailureKind, Retry); 12] = [
        ("403 Forbidden", "", false, FailureKind::OutputExpired, Retry::Backoff),
        ("401 Unauthorized", "", false, FailureKind::OutputExpired, Retry::Backoff),
        ("404 Not Found", "", false, FailureKind::OutputExpired, Retry::Backoff),
        ("410 Gone", "", false, FailureKind::OutputExpired, Retry::Backoff),
        ("400 Bad Request", "<Code>ExpiredToken</Code>", false, FailureKind::OutputExpired, Retry::Backoff),
        ("400 Bad Request", "what", false, FailureKind::VendorError, Retry::Never),
        ("401 Unauthorized", "", true, FailureKind::Auth, Retry::Never),
        ("404 Not Found", "", true, FailureKind::OutputExpired, Retry::Backoff),
        ("429 Too Many Requests", "", false, FailureKind::RateLimited, seven),
        ("503 Service Unavailable", "", false, FailureKind::VendorError, seven),
        ("500 Internal Server Error", "", true, FailureKind::VendorError, seven),
        ("204 No Content", "", false, FailureKind::OutputEmpty, seven),
    ];
    for (status, body, with_key, kind, retry) in rows {
        let server = Server::start(move |_| Act::Say(answer(status, &[("retry-after", "7")], body))).await;
        let kit = Kit::at(&server.base());
        let failure = kit.transport.download("sample", &format!("{}/f", server.base()), with_key).await.unwrap_err();
        assert_eq!((failure.kind, failure.retry), (kind, retry), "{status}");
        assert_eq!(failure.vendor_code.as_deref(), status.get(..3), "{status}");
        assert_eq!((server.seen().len(), kit.staged_files()), (1, 0), "{status}");
    }
}

#[tokio::test]
async fn redirects_of_bare_downloads_are_followed_five_times_with_harmless_headers() {
    let cdn = Server::start(|_| Act::Say(answer("200 OK", &[], "bytes"))).await;
    let place = format!("{}/real?sig=CANARY", cdn.base());
    let hops = Server::start(move |seen| {
        let left: usize = seen.line().split(['/', ' ']).nth(2).unwrap().parse().unwrap();
        let next = if left == 1 { place.clone() } else { format!("/{}", left - 1) };
        Act::Say(answer("302 Found", &[("location", &next), ("set-cookie", "s=1")], ""))
    })
    .await;
    let kit =
        Setup::at(&hops.base()).with(|setup| setup.connector.private_hosts = vec![cdn.address.to_string()]).build();
    let done = kit.transport.download("sample", &format!("{}/5", hops.base()), false).await.unwrap();
    assert_eq!((done.staged.bytes, done.host), (5, cdn.address.to_string()));
    let names = |seen: &Seen| {
        let mut names: Vec<String> = seen
            .head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(':'))
            .map(|(name, _)| name.to_ascii_lowercase())
            .collect();
        names.sort();
        names
    };
    for seen in hops.seen().iter().chain(&cdn.seen()) {
        assert_eq!(names(seen), ["accept", "accept-encoding", "host", "user-agent"]);
    }
    let failure = kit.transport.download("sample", &format!("{}/6", hops.base()), false).await.unwrap_err();
    assert_eq!((failure.code.as_str(), failure.retry), ("address_refused", Retry::Never));
    assert_eq!(cdn.seen().len(), 1);
    assert!(kit.exchanges().iter().all(|exchange| !exchange.text.contains("CANARY")));
}

#[tokio::test]
async fn a_keyed_download_follows_no_redirect() {
    let cdn = Server::canary().await;
    let place = cdn.base();
    let vendor = Server::start(move |_| Act::Say(answer("302 Found", &[("location", &place)], ""))).await;
    let kit =
        Setup::at(&vendor.base()).with(|setup| setup.connector.private_hosts = vec![cdn.address.to_string()]).build();
    let failure = kit.transport.download("file", "/files/1", true).await.unwrap_err();
    assert_eq!((failure.code.as_str(), failure.retry), ("vendor_error", Retry::Backoff));
    cdn.assert_untouched().await;
}
