//! Where calls may go, and what may go with them. Field cases R24, R30 and R34:
//! https://github.com/bobmatnyc/trusty-tools/issues/4392, https://github.com/openai/openai-python/issues/3516,
//! https://github.com/arcships/aimux/pull/163

use super::*;
use crate::guard::Reason;
use longhaul_registry::AuthScheme;

/// Every address that an answer may name and nobody may follow, pointing at the canary where it has a port.
fn hostile(canary: u16) -> Vec<String> {
    vec![
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        format!("http://[::ffff:127.0.0.1]:{canary}/"),
        format!("http://2130706433:{canary}/"),
        format!("http://0x7f.1:{canary}/"),
        format!("https://0177.1:{canary}/"),
        format!("http://[64:ff9b::7f00:1]:{canary}/"),
        format!("https://rebind.test:{canary}/"),
        format!("http://rebind.test:{canary}/"),
        "https://bfl.ai.evil.test/".to_owned(),
        "file:///etc/hostname".to_owned(),
        format!("http://localhost.:{canary}/"),
        format!("https://127.0.0.1:{canary}/"),
        format!("https://[::1]:{canary}/"),
        format!("https://user:CANARY@rebind.test:{canary}/"),
    ]
}

fn names() -> Arc<Names> {
    let local: IpAddr = "127.0.0.1".parse().unwrap();
    let table = [("rebind.test", vec![local, "::1".parse().unwrap()]), ("vendor.test", vec![local])];
    let evil = ("bfl.ai.evil.test", vec![local]);
    Arc::new(Names { table: table.into_iter().chain([evil]).collect(), asked: AtomicUsize::new(0) })
}

#[tokio::test]
async fn no_address_from_data_reaches_the_private_network() {
    let canary = Server::canary().await;
    let vendor = Server::start(move |_| Act::Close).await;
    let kit = Setup::at(&vendor.base()).with(|setup| setup.names = names()).build();
    let notifier = Notifier::new(Arc::clone(&kit.guard), &[]).unwrap();
    for url in hostile(canary.port()) {
        let failures = [
            kit.call(Call::get("poll", "/").at(&url)).await.unwrap_err(),
            kit.call(Call::get("poll", "/").at(&url).without_key()).await.unwrap_err(),
            kit.call(Call::get("poll", "/").at(&url).without_key().paid()).await.unwrap_err(),
            kit.transport.download("sample", &url, false).await.unwrap_err(),
            kit.transport.download("sample", &url, true).await.unwrap_err(),
            notifier.post_webhook(&url, &[], "{}".into()).await.unwrap_err(),
        ];
        for failure in failures {
            assert_eq!((failure.kind, failure.code.as_str()), (FailureKind::VendorError, "address_refused"), "{url}");
            assert_eq!((failure.retry, failure.unsent), (Retry::Never, true), "{url}");
            assert!(!failure.message.contains("meta-data") && !failure.message.contains("CANARY"), "{failure}");
        }
    }
    assert_eq!((vendor.connections(), kit.staged_files()), (0, 0));
    assert!(kit.events.count(WireEvent::Refused(Reason::Metadata)) > 0);
    assert!(kit.events.count(WireEvent::Refused(Reason::KeyHost)) > 0);
    canary.assert_untouched().await;
}

#[tokio::test]
async fn a_redirect_to_any_of_them_is_refused_and_counted() {
    let canary = Server::canary().await;
    let addresses = hostile(canary.port());
    let targets = addresses.clone();
    let cdn = Server::start(move |seen| {
        let index: usize = seen.line().split(['/', ' ']).nth(2).unwrap().parse().unwrap();
        Act::Say(answer("302 Found", &[("location", &targets[index])], ""))
    })
    .await;
    let kit = Setup::at(&cdn.base()).with(|setup| setup.names = names()).build();
    for (index, address) in addresses.iter().enumerate() {
        let failure = kit.transport.download("sample", &format!("{}/{index}", cdn.base()), false).await.unwrap_err();
        assert_eq!(failure.code, "address_refused", "{address}");
    }
    assert_eq!((cdn.seen().len(), kit.staged_files()), (addresses.len(), 0));
    canary.assert_untouched().await;
}

#[tokio::test]
async fn a_name_is_looked_up_once_and_only_its_opened_port_is_open() {
    let vendor = Server::start(|_| Act::Say(answer("200 OK", &[], "{}"))).await;
    let canary = Server::canary().await;
    let names = names();
    let kit = Setup::at(&format!("http://vendor.test:{}", vendor.port()))
        .with(|setup| setup.names = Arc::clone(&names))
        .build();
    kit.call(Call::get("poll", "/")).await.unwrap();
    assert_eq!(names.asked.load(Ordering::SeqCst), 1);
    let url = format!("https://vendor.test:{}/", canary.port());
    let failure = kit.call(Call::get("poll", "/").at(&url).without_key()).await.unwrap_err();
    assert_eq!((failure.code.as_str(), names.asked.load(Ordering::SeqCst)), ("address_refused", 2));
    assert!(failure.message.contains("vendor.test"), "{failure}");
    canary.assert_untouched().await;
}

#[tokio::test]
async fn the_key_follows_no_redirect_whatever_header_carries_it() {
    let stranger = Server::canary().await;
    let basic = AuthScheme::Basic;
    let named = |name: &str| AuthScheme::Header { name: name.to_owned() };
    for scheme in [named("x-key"), named("x-goog-api-key"), named("x-api-key"), AuthScheme::Bearer, basic] {
        let elsewhere = format!("{}/evil", stranger.base());
        let vendor = Server::start(move |seen| match seen.number {
            0..3 => Act::Say(answer(
                ["307 Temporary Redirect", "302 Found", "308 Permanent Redirect"][seen.number],
                &[("location", &elsewhere)],
                "",
            )),
            _ => Act::Say(answer("200 OK", &[], "{}")),
        })
        .await;
        let kit = Setup::at(&vendor.base())
            .with(|setup| {
                let mut file = (*setup.connector.vendor).clone();
                file.auth = scheme.clone();
                setup.connector.vendor = Arc::new(file);
                setup.connector.private_hosts = vec![stranger.address.to_string()];
                setup.key = format!("user:{KEY}");
            })
            .build();
        for paid in [false, false, true] {
            let mut call = Call::get("poll", "/v1/x");
            call.paid = paid;
            let failure = kit.call(call).await.unwrap_err();
            let verdict = if paid { Retry::Unknown } else { Retry::Backoff };
            assert_eq!((failure.kind, failure.retry), (FailureKind::VendorError, verdict), "{failure}");
            assert!(failure.message.contains("redirect (HTTP 3"), "{failure}");
        }
        assert_eq!(kit.call(Call::get("poll", "/v1/x")).await.unwrap().status, 200);
        assert_eq!(kit.events.count(WireEvent::RedirectRefused), 3);
    }
    stranger.assert_untouched().await;
}

#[tokio::test]
async fn a_keyed_call_or_download_to_another_host_is_refused_not_sent_bare() {
    let vendor = Server::canary().await;
    let files = Server::canary().await;
    let kit =
        Setup::at(&vendor.base()).with(|setup| setup.connector.private_hosts = vec![files.address.to_string()]).build();
    let url = format!("{}/file", files.base());
    for failure in [
        kit.call(Call::get("file", "/").at(&url)).await.unwrap_err(),
        kit.transport.download("file", &url, true).await.unwrap_err(),
    ] {
        assert_eq!((failure.code.as_str(), failure.unsent), ("address_refused", true));
        assert!(failure.message.contains("credential"), "{failure}");
    }
    assert_eq!(kit.events.count(WireEvent::Refused(Reason::KeyHost)), 2);
    files.assert_untouched().await;
    vendor.assert_untouched().await;
}

#[tokio::test]
async fn webhooks_reach_listed_private_places_alone_and_follow_nothing() {
    let orchestrator = Server::start(|seen| match seen.number {
        0 => Act::Say(answer("204 No Content", &[], "")),
        1 => Act::Say(answer("302 Found", &[("location", "http://127.0.0.1:1/")], "")),
        _ => Act::Say(answer("503 Service Unavailable", &[("retry-after", "7")], "busy")),
    })
    .await;
    let kit = Kit::at("http://127.0.0.1:1");
    let url = format!("{}/hooks?token=CANARY", orchestrator.base());
    let closed = Notifier::new(Arc::clone(&kit.guard), &[]).unwrap();
    let refused = closed.post_webhook(&url, &[], "{}".into()).await.unwrap_err();
    assert!(refused.code == "address_refused" && !refused.message.contains("CANARY"), "{refused}");
    assert_eq!(orchestrator.connections(), 0);
    let notifier = Notifier::new(Arc::clone(&kit.guard), &[orchestrator.address.to_string()]).unwrap();
    let headers = [("webhook-id", "msg_1"), ("webhook-signature", "v1,abc")];
    let mut answers = Vec::new();
    for _ in 0..3 {
        answers.push(notifier.post_webhook(&url, &headers, r#"{"type":"job.finished"}"#.into()).await.unwrap());
    }
    let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!((statuses, answers[2].retry_after), (vec![204, 302, 503], Some(Duration::from_secs(7))));
    let seen = &orchestrator.seen()[0];
    assert_eq!((seen.line(), seen.header("webhook-id")), ("POST /hooks?token=CANARY HTTP/1.1", Some("msg_1")));
    assert_eq!(seen.header("content-type"), Some("application/json"));
    assert_eq!(seen.body, br#"{"type":"job.finished"}"#);
}

/// Passes by itself; [`proxies_from_the_environment_are_ignored`] runs it again with every proxy variable set.
#[tokio::test]
async fn a_call_a_download_and_a_webhook_reach_loopback() {
    let server = Server::start(|_| Act::Say(answer("200 OK", &[], "{}"))).await;
    let kit = Kit::at(&server.base());
    kit.call(Call::get("poll", "/")).await.unwrap();
    kit.call(Call::get("start", "/").paid()).await.unwrap();
    kit.transport.download("sample", &server.base(), false).await.unwrap();
    let notifier = Notifier::new(Arc::clone(&kit.guard), &[server.address.to_string()]).unwrap();
    notifier.post_webhook(&server.base(), &[], "{}".into()).await.unwrap();
    assert_eq!(server.seen().len(), 4);
}

fn loopback_test() -> tokio::process::Command {
    let mut command = tokio::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "transport::tests::guarding::a_call_a_download_and_a_webhook_reach_loopback"]);
    command
}

#[tokio::test]
async fn a_machine_without_trusted_roots_can_still_call_loopback() {
    let mut command = loopback_test();
    command.env("SSL_CERT_FILE", "/dev/null").env_remove("SSL_CERT_DIR");
    let output = command.output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[tokio::test]
async fn proxies_from_the_environment_are_ignored() {
    let canary = Server::canary().await;
    let mut command = loopback_test();
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"] {
        command.env(name, canary.base());
    }
    for name in ["ALL_PROXY", "all_proxy"] {
        command.env(name, format!("socks5://{}", canary.address));
    }
    command.env("NO_PROXY", "").env("no_proxy", "");
    let output = command.output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    canary.assert_untouched().await;
}
